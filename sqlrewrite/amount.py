"""What one row adds to a sum, as SQL: clamped to its bounds and on its lattice, in the cheapest exact form.

On the lattice already (whole numbers, ``numeric(p,s)``): summed as it is, and the *sum* is brought to lattice numbers.
Otherwise each row is rounded to its lattice number first. Bounds that hold by type or CHECK are not clamped again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction

from sqlrewrite.constant import base_type
from sqlrewrite.interval import reach, squared
from sqlrewrite.question import Call, ColumnRef, Expression, Measure, MeasureKind, Source
from sqlrewrite.render import Rendering
from sqlrewrite.sensitivity import can_be_null, lattice_bounds
from sqlrewrite.term import Form, Term

INT4 = 2**31 - 1
FAR = 2**62  # beyond it sums are cut off, on both sides: one unit then moves them less, never more
MANY_ROWS = 2**40
_EXACT = Context(prec=2000)


@dataclass(frozen=True, slots=True)
class Amount:
    """``sql`` is summed over the rows that meet ``conditions``; a sum of 1 stands for ``1 / step`` lattice numbers."""

    sql: str
    conditions: list[str]
    step: Fraction  # the measure's unit where ``sql`` is in real units, 1 where it is a lattice number
    most: int  # the largest lattice number of one row
    narrow: bool  # int2 or int4, so that PostgreSQL sums it in int8
    rendering: Rendering

    def lattice(self, total: str, wide: bool = False) -> str:
        """A sum as int8 lattice numbers, also where it would not fit."""
        if self.step != 1:
            total = f"({total} * {self.rendering.number(_decimal(1 / self.step), 'numeric')})"
        elif self.narrow and not wide:
            return total
        if self.most * MANY_ROWS >= FAR:
            ends = [self.rendering.number(end, "numeric") for end in (-FAR, FAR)]
            # NULL (no row) becomes the least: kept NULL by the CASE.
            total = f"(CASE WHEN ({total} IS NOT NULL) THEN least(greatest({total}, {ends[0]}), {ends[1]}) END)"
        return f"({total}::int8)"

    def scaled(self, total: str, rows: str, max_rows: int) -> str:
        """A person's sum over ``rows`` rows as that of ``max_rows`` rows with the same average, on the lattice."""
        most = self.rendering.number(max_rows, "int8")
        share = f"({total}::numeric) * {most} / {rows}"
        if self.step == 1:
            kind = "int8" if self.most * max_rows < FAR else "numeric"
            return f"CASE WHEN ({rows} > {most}) THEN (pg_catalog.round({share})::{kind}) ELSE {total} END"
        up, down = (self.rendering.number(_decimal(step), "numeric") for step in (1 / self.step, self.step))
        return f"CASE WHEN ({rows} > {most}) THEN (pg_catalog.round({share} * {up}) * {down}) ELSE {total} END"


def amount(measure: Measure, sources: tuple[Source, ...], rendering: Rendering, whole: bool = False) -> Amount:
    """The summand of a TOTAL or SQUARES measure; ``whole`` asks for lattice numbers already in each row.

    *Guarantee*: every row adds a lattice number between the measure's bounds, whatever the data.
    """
    if measure.argument is None:
        raise ValueError("a sum needs an argument")
    argument = measure.argument
    known = reach(argument, sources)
    simple = isinstance(argument, ColumnRef) and measure.kind is MeasureKind.TOTAL
    if measure.kind is MeasureKind.SQUARES:
        known = known and squared(known)
        argument = Call("*", (argument, argument), "numeric")
    low, high = lattice_bounds(measure)
    term = rendering.term(argument)
    exact = known is not None and known.grain is not None and (known.grain / measure.unit).denominator == 1
    if term.form is Form.OTHER:  # a NULL constant
        term = Term(f"({term.sql}::numeric)", Form.NUMERIC)
    if not exact and not (term.form is Form.FLOAT and _dyadic(measure.unit)):
        term = Term(f"({term.sql}::numeric)", Form.NUMERIC)
    sure = known is not None and known.sure and low * measure.unit <= known.lower and known.upper <= high * measure.unit
    conditions: list[str] = []
    sql = term.sql
    if not sure:
        sql, conditions = _clamped(
            term, argument, simple, (low * measure.unit, high * measure.unit), sources, rendering
        )
    most = max(abs(low), abs(high))
    if exact and (term.form is Form.WHOLE or (term.form is Form.NUMERIC and not whole)):  # floats are never summed
        return _as_it_is(sql, conditions, measure, term, argument, simple, most, rendering)
    kind = "int4" if most <= INT4 else "int8"
    return Amount(
        f"(({_steps(sql, term.form, measure.unit, rendering)})::{kind})",  # the cast rounds
        conditions,
        Fraction(1),
        most,
        kind == "int4",
        rendering,
    )


def _as_it_is(
    sql: str, conditions: list[str], measure: Measure, term: Term, argument: Expression, simple: bool, most: int,
    rendering: Rendering,
) -> Amount:  # fmt: skip
    if term.form is not Form.WHOLE:
        return Amount(sql, conditions, measure.unit, most, False, rendering)
    narrow = simple and base_type(argument.type_name) in ("smallint", "integer") and most * measure.unit <= INT4
    if not narrow and most * measure.unit <= INT4:
        sql, narrow = f"({sql}::int4)", True
    return Amount(sql, conditions, measure.unit, most, narrow, rendering)


def _clamped(
    term: Term, argument: Expression, simple: bool, ends: tuple[Fraction, Fraction], sources: tuple[Source, ...],
    rendering: Rendering,
) -> tuple[str, list[str]]:  # fmt: skip
    """Clamped to the bounds; NaN, which sorts above every number, becomes the upper one."""
    if term.form is Form.WHOLE:
        ends = Fraction(math.ceil(ends[0])), Fraction(math.floor(ends[1]))
    kind = _kind(term, argument, ends)
    low, high = (rendering.number(_decimal(end), kind) for end in ends)
    if simple:  # NULL stays NULL in CASE; least and greatest would make a number of it
        return (
            f"(CASE WHEN ({term.sql} < {low}) THEN {low} WHEN ({term.sql} > {high}) THEN {high} ELSE {term.sql} END)",
            [],
        )
    nullable = can_be_null(sources, argument)
    return f"(least(greatest({term.sql}, {low}), {high}))", [f"({term.sql} IS NOT NULL)"] if nullable else []


def _kind(term: Term, argument: Expression, ends: tuple[Fraction, Fraction]) -> str:
    match term.form:
        case Form.WHOLE:
            small = base_type(argument.type_name) in ("smallint", "integer") and isinstance(argument, ColumnRef)
            return "int4" if small and max(map(abs, ends)) <= INT4 else "int8"
        case Form.FLOAT:
            return "float8"
        case _:
            return "numeric"


def _steps(sql: str, form: Form, unit: Fraction, rendering: Rendering) -> str:
    kind = "float8" if form is Form.FLOAT else "numeric"
    if form is Form.FLOAT and unit > 1:
        # PostgreSQL fails where a product is too small for a float; below 1 all of it is less than half a step: 0.
        nothing, one, share = (rendering.number(_decimal(each), kind) for each in (Fraction(0), Fraction(1), 1 / unit))
        return f"CASE WHEN (pg_catalog.abs({sql}) < {one}) THEN {nothing} ELSE {sql} * {share} END"
    if unit.numerator == 1 or form is Form.FLOAT:
        return f"{sql} * {rendering.number(_decimal(1 / unit), kind)}"
    return f"{sql} / {rendering.number(_decimal(unit), kind)}"


def _dyadic(unit: Fraction) -> bool:
    return all(part & (part - 1) == 0 for part in (unit.numerator, unit.denominator))


def _decimal(value: Fraction) -> Decimal:
    return _EXACT.divide(Decimal(value.numerator), Decimal(value.denominator))
