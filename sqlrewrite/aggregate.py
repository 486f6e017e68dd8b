"""Aggregates: the sums that the protected database measures, and how each number that the analyst asked for follows.

An aggregate is one or more measures (``avg`` is a sum and a count); equal measures are measured once.
"""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction
from typing import Final

from sqlglot import exp

from sqlrewrite.allow import construct, refused
from sqlrewrite.constant import FLOATS, INTEGERS, NUMBERS, base_type, number_type, wider
from sqlrewrite.errors import NotAnswered
from sqlrewrite.expression import Reader, expression
from sqlrewrite.interval import interval, squares
from sqlrewrite.normal import normalise, simplest
from sqlrewrite.parse import bare, position
from sqlrewrite.predicate import condition
from sqlrewrite.question import (
    AggregateValue,
    Always,
    Call,
    Case,
    Cast,
    ColumnRef,
    Expression,
    Form,
    Literal,
    Measure,
    MeasureKind,
    Predicate,
    Unit,
)
from sqlrewrite.scope import Scope
from sqlrewrite.term import narrow
from sqlrewrite.unit import is_unit

ROWS, VALUES, UNITS, TOTAL = MeasureKind.ROWS, MeasureKind.VALUES, MeasureKind.UNITS, MeasureKind.TOTAL
SPREADS: Final[dict[type[exp.Expr], Form]] = {
    exp.Variance: Form.VAR_SAMP,
    exp.VariancePop: Form.VAR_POP,
    exp.Stddev: Form.STDDEV_SAMP,
    exp.StddevSamp: Form.STDDEV_SAMP,
    exp.StddevPop: Form.STDDEV_POP,
}
MAX_MEASURES = 64
_EXACT: Final = Context(prec=2000)


class Measures:
    """The measures of one question, each once."""

    __slots__ = ("_places", "scope", "unit")

    def __init__(self, scope: Scope, unit: Unit) -> None:
        self.scope = scope
        self.unit = unit
        self._places: dict[Measure, int] = {}

    def __getitem__(self, place: int) -> Measure:
        return self.all()[place]

    def all(self) -> tuple[Measure, ...]:
        return tuple(self._places)

    def rows(self, kept: Predicate | None) -> int:
        """count(*)."""
        return self._place(Measure(ROWS, None, kept))

    def values(self, argument: Expression, kept: Predicate | None) -> int:
        """count(x): the rows themselves where x cannot be NULL."""
        if not nullable(argument, self.scope):
            return self.rows(kept)
        return self._place(Measure(VALUES, argument, kept))

    def units(self, kept: Predicate | None) -> int:
        """count(DISTINCT unit)."""
        return self._place(Measure(UNITS, None, kept))

    def total(self, argument: Expression, kept: Predicate | None) -> int:
        """sum(x)."""
        known = interval(argument, self.scope.sources)
        return self._place(Measure(TOTAL, argument, kept, known.lower, known.upper, known.unit))

    def squares(self, argument: Expression, kept: Predicate | None) -> int:
        """sum(x * x)."""
        known = squares(argument, self.scope.sources)
        return self._place(Measure(MeasureKind.SQUARES, argument, kept, known.lower, known.upper, known.unit))

    def _place(self, measure: Measure) -> int:
        found = self._places.setdefault(measure, len(self._places))
        if found >= MAX_MEASURES:
            raise NotAnswered(
                f"a question holds at most {MAX_MEASURES} sums and counts", hint="ask in several questions"
            )
        return found


def aggregate(node: exp.Expr, text: str, reader: Reader, measures: Measures) -> AggregateValue:
    """An aggregate of the select list or of ORDER BY."""
    call, kept = filtered(node, reader)
    match call:
        case exp.Count():
            return AggregateValue(Form.COUNT, (count(call, kept, reader, measures),), "bigint", text)
        case exp.Sum():
            argument = summed(call, reader)
            return AggregateValue(Form.SUM, (measures.total(argument, kept),), sum_type(argument), text)
        case exp.Avg():
            argument = summed(call, reader)
            used = (measures.total(argument, kept), measures.values(argument, kept))
            return AggregateValue(Form.AVG, used, mean_type(argument), text, middle(measures[used[0]]))
    form = SPREADS.get(type(call))
    if form is not None:
        argument = summed(call, reader)
        total = measures.total(argument, kept)
        centre = middle(measures[total])
        squares = measures.squares(without(argument, centre, measures[total].unit), kept)
        used3 = (squares, total, measures.values(argument, kept))
        return AggregateValue(form, used3, mean_type(argument), text, centre)
    if isinstance(call, exp.WithinGroup):
        raise NotAnswered(
            "a percentile is not shown: its noise would have no bound",
            hint="compare it with a number in HAVING, or count by buckets: GROUP BY width_bucket(x, 0, 100, 20)",
            position=position(node),
        )
    raise refused(call, construct(call))


def filtered(node: exp.Expr, reader: Reader) -> tuple[exp.Expr, Predicate | None]:
    """The call itself, and its FILTER."""
    found = bare(node)
    if not isinstance(found, exp.Filter):
        return found, None
    kept = normalise(condition(found.expression.this, reader))
    return found.this, None if kept == Always(True) else kept


def count(call: exp.Count, kept: Predicate | None, reader: Reader, measures: Measures) -> int:
    """The measure of count(*), count(x) or count(DISTINCT unit)."""
    if isinstance(call.this, exp.Star):
        return measures.rows(kept)
    if not isinstance(call.this, exp.Distinct):
        return measures.values(simplest(expression(call.this, reader)), kept)
    argument = expression(call.this.expressions[0], reader) if len(call.this.expressions) == 1 else None
    if isinstance(argument, ColumnRef):
        if is_unit(reader.scope, measures.unit, argument):
            return measures.units(kept)
        source = reader.scope.sources[argument.source]
        if argument.source == 0 and (argument.name,) in source.relation.unique:
            return measures.values(argument, kept)  # a key: every row has its own
    raise NotAnswered(
        "count(DISTINCT ...) is answered for the privacy unit only",
        hint="count groups around a question: SELECT count(*) FROM (SELECT x FROM t GROUP BY x HAVING count(*) > 50) g",
        position=position(call),
    )


def summed(call: exp.Expr, reader: Reader) -> Expression:
    """The number that is added up."""
    if isinstance(call.this, exp.Distinct | exp.Order):
        raise NotAnswered(
            "DISTINCT and ORDER BY inside an aggregate are not answered", hint="leave them out", position=position(call)
        )
    argument = expression(call.this, reader)
    if base_type(argument.type_name) not in NUMBERS:
        raise NotAnswered(
            f"values of type {argument.type_name} are not added up",
            hint="use a column of numbers; count conditions with count(*) FILTER (WHERE ...)",
            position=position(call),
        )
    return simplest(argument)


def sum_type(argument: Expression) -> str:
    """The type of sum(x)."""
    base = base_type(argument.type_name)
    if base in FLOATS:
        return base
    return "bigint" if base in ("smallint", "integer") else "numeric"


def mean_type(argument: Expression) -> str:
    """The type of avg(x), variance(x) and kin."""
    return "double precision" if base_type(argument.type_name) in FLOATS else "numeric"


def middle(measure: Measure) -> int:
    """The middle of what one row can add, as a lattice number."""
    return sum(row_range(measure)) // 2


def without(argument: Expression, centre: int, unit: Fraction) -> Expression:
    """argument - centre; a spread is the same about any point, and its squares are smallest about the middle."""
    if not centre:
        return argument
    text = f"{_EXACT.divide(Decimal((centre * unit).numerator), Decimal((centre * unit).denominator)):f}"
    constant = Literal(text, number_type(text))
    return Call("-", (argument, constant), wider(argument.type_name, constant.type_name))


def nullable(argument: Expression, scope: Scope) -> bool:
    """Whether the expression can be NULL in some row; in doubt it can."""
    match argument:
        case Literal(text, _):
            return text is None
        case ColumnRef(source, _, _):
            return scope.sources[source].outer or not scope.attribute(argument).not_null
        case Cast(inner, type_name):
            base = base_type(inner.type_name)  # out of the range of what they are cast to, numbers are NULL
            total = type_name == "text" or (base in INTEGERS and type_name in ("numeric", "bigint"))
            return not total or nullable(inner, scope)
        case Case(branches, otherwise, _):
            return nullable(otherwise, scope) or any(nullable(then, scope) for _, then in branches)
        case Call("coalesce", arguments, _):
            return all(nullable(part, scope) for part in arguments)
        case Call("+" | "-" | "*" | "/" | "%" | "abs", arguments, _):
            # A numeric without a declared precision is NULL in arithmetic where it is out of all bounds.
            wide = any(
                base_type(part.type_name) in ("numeric", *FLOATS)
                and not narrow(part.type_name)
                and not isinstance(part, Literal)
                for part in arguments
            )
            dated = any(base_type(part.type_name) not in NUMBERS for part in arguments)
            return wide or dated or any(nullable(part, scope) for part in arguments)
    return True


def row_range(measure: Measure) -> tuple[int, int]:
    """The least and the most that one row can add, in lattice numbers."""
    if measure.kind in (ROWS, VALUES, UNITS):
        return 0, 1
    return _floor(measure.lower, measure.unit), -_floor(-measure.upper, measure.unit)


def row_bound(measure: Measure) -> int:
    """The most by which one row can move a measure."""
    low, high = row_range(measure)
    return max(abs(low), abs(high))


def _floor(value: Decimal, unit: Fraction) -> int:
    return int(Fraction(value) // unit)
