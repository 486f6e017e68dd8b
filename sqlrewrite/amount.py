"""What one row adds to a sum, as SQL: clamped to its bounds and on its lattice, in the cheapest exact form.

On the lattice already (whole numbers, ``numeric(p,s)``): summed as it is, and the *sum* is brought to lattice numbers.
Otherwise each row is rounded to its lattice number first. Bounds that hold by type or CHECK are not clamped again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from fractions import Fraction

from sqlrewrite.bounded import Range, kept
from sqlrewrite.constant import base_type
from sqlrewrite.guarded import clamped
from sqlrewrite.interval import Reach, reach, squared
from sqlrewrite.question import ColumnRef, Expression, Measure, MeasureKind, Source
from sqlrewrite.render import Rendering
from sqlrewrite.sensitivity import can_be_null, lattice_bounds
from sqlrewrite.term import INT8, Form, Term, narrow

INT4 = 2**31 - 1
FAR = 2**62  # beyond it sums are cut off, on both sides: one unit then moves them less, never more
MANY_ROWS = 2**40
NARROW = 2**62 // MANY_ROWS  # PostgreSQL does not look whether a sum of int4 leaves int8
_EXACT = Context(prec=2000)


@dataclass(frozen=True, slots=True)
class Amount:
    """``sql`` is summed over the rows that meet ``conditions``; a sum of 1 stands for ``1 / step`` lattice numbers."""

    sql: str
    conditions: list[str]
    step: Fraction  # the measure's unit where ``sql`` is in real units, 1 where it is a lattice number
    most: int  # the largest lattice number of one row
    narrow: bool  # int2 or int4, and so small that PostgreSQL sums any number of rows in int8
    cost: int  # of one row
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
    known = reach(measure.argument, sources)
    low, high = lattice_bounds(measure)
    if measure.kind is MeasureKind.SQUARES:
        term, conditions = _squared(measure, known, sources, rendering)
        known = known and squared(known)
        narrow = False
    else:
        term, conditions = _bounded(measure, known, (low * measure.unit, high * measure.unit), sources, rendering)
        narrow = base_type(measure.argument.type_name) in ("smallint", "integer")
        narrow = narrow and isinstance(measure.argument, ColumnRef)
    exact = known is not None and known.grain is not None and (known.grain / measure.unit).denominator == 1
    most = max(abs(low), abs(high))
    if exact and (term.form is Form.WHOLE or (term.form is Form.NUMERIC and not whole)):  # floats are never summed
        return _as_it_is(term, conditions, measure, narrow, most, rendering)
    kind = "int4" if most <= INT4 else "int8"
    return Amount(
        f"(({_steps(term.sql, term.form, measure.unit, rendering)})::{kind})",  # the cast rounds
        conditions,
        Fraction(1),
        most,
        most <= NARROW,
        term.cost + 30,
        rendering,
    )


def _bounded(
    measure: Measure, known: Reach | None, ends: tuple[Fraction, Fraction], sources: tuple[Source, ...],
    rendering: Rendering,
) -> tuple[Term, list[str]]:  # fmt: skip
    """The argument between its bounds, and the conditions under which it is a number."""
    argument = measure.argument
    assert argument is not None
    exact = known is not None and known.grain is not None and (known.grain / measure.unit).denominator == 1
    sure = known is not None and known.sure and ends[0] <= known.lower and known.upper <= ends[1]
    wide = base_type(argument.type_name) == "numeric" and not narrow(argument.type_name)
    if isinstance(argument, ColumnRef) and wide:
        low, high = (rendering.number(_decimal(end), "numeric") for end in ends)
        return clamped(rendering.name(argument), rendering.attribute(argument), low, high, rendering.bind), []
    term = rendering.term(argument)
    if term.form is Form.OTHER:  # a NULL constant
        term = Term(f"({term.sql}::numeric)", Form.NUMERIC, 0, Range(Fraction(0), Fraction(0)))
    if not exact and term.form is not Form.FLOAT:
        term = rendering.exact(term, argument)
    term, conditions = (term, []) if sure else _clamped(term, argument, ends, sources, rendering)
    if not exact and term.form is Form.FLOAT and not _dyadic(measure.unit):
        term = _rounded(term, ends, rendering)
    return term, conditions


def _rounded(term: Term, ends: tuple[Fraction, Fraction], rendering: Rendering) -> Term:
    """A float between these ends as numeric; it is not guarded again, so it is NULL only where it was before."""
    size = kept(_decimal(ends[0]), _decimal(ends[1]))
    sql = f"pg_catalog.round(({term.sql}::numeric), {rendering.number(size.scale, 'int4')})"
    return Term(sql, Form.NUMERIC, term.cost + 75, Range(ends[0], ends[1], size.scale))


def _squared(
    measure: Measure, known: Reach | None, sources: tuple[Source, ...], rendering: Rendering
) -> tuple[Term, list[str]]:
    """The square of the argument, which is brought between its own bounds first: its digits are those of the bounds."""
    ends = (Fraction(0), Fraction(0)) if known is None else (known.lower, known.upper)
    finer = replace(measure, unit=(known and known.grain) or measure.unit)
    term, conditions = _bounded(finer, known, ends, sources, rendering)
    if term.form is Form.FLOAT:
        term = _rounded(term, ends, rendering)
    size = term.range or Range(*ends)
    inside = Range(max(size.lower, ends[0]), min(size.upper, ends[1]), size.scale)
    if term.form is Form.WHOLE and inside.most**2 <= INT8:
        square = f"(({term.sql}::int8) * ({term.sql}::int8))"
        return Term(square, Form.WHOLE, 2 * term.cost + 2, inside * inside), conditions
    one = rendering.exact(term)
    return Term(f"({one.sql} * {one.sql})", Form.NUMERIC, 2 * one.cost + 15, inside * inside), conditions


def _as_it_is(
    term: Term, conditions: list[str], measure: Measure, narrow: bool, most: int, rendering: Rendering
) -> Amount:
    cost = term.cost + 10
    if term.form is not Form.WHOLE:
        return Amount(term.sql, conditions, measure.unit, most, False, cost, rendering)
    sql, small = term.sql, most * measure.unit <= NARROW
    if narrow and not small:
        sql = f"({sql}::int8)"  # PostgreSQL would sum it in int8, which many rows overflow unseen
    elif not narrow and small:
        sql = f"({sql}::int4)"
    return Amount(sql, conditions, measure.unit, most, small, cost, rendering)


def _clamped(
    term: Term, argument: Expression, ends: tuple[Fraction, Fraction], sources: tuple[Source, ...],
    rendering: Rendering,
) -> tuple[Term, list[str]]:  # fmt: skip
    """Clamped to the bounds; NaN, which sorts above every number, becomes the upper one."""
    if term.form is Form.WHOLE:
        ends = Fraction(math.ceil(ends[0])), Fraction(math.floor(ends[1]))
    kind = _kind(term, argument, ends)
    low, high = (rendering.number(_decimal(end), kind) for end in ends)
    size = term.range and Range(max(term.range.lower, ends[0]), min(term.range.upper, ends[1]), term.range.scale)
    if isinstance(argument, ColumnRef) and term.sql == rendering.name(argument):
        # NULL stays NULL in CASE; least and greatest would make a number of it
        sql = f"(CASE WHEN ({term.sql} < {low}) THEN {low} WHEN ({term.sql} > {high}) THEN {high} ELSE {term.sql} END)"
        return Term(sql, term.form, 3 * term.cost + 4, size), []
    nullable = can_be_null(sources, argument)
    conditions = list(term.present) if nullable else []
    cost = term.cost + 10 + (term.presence_cost if nullable else 0)
    return Term(f"(least(greatest({term.sql}, {low}), {high}))", term.form, cost, size), conditions


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
