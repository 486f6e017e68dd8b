"""One side of a comparison in HAVING: a linear form of aggregates, or a ratio of two."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from sqlglot import exp

from sqlrewrite.aggregate import SPREADS, Measures, count, filtered, nullable, sum_type, summed
from sqlrewrite.allow import construct, refused
from sqlrewrite.catalog import Kind
from sqlrewrite.constant import CASTS, INTEGERS, NUMBERS, base_type, decimal
from sqlrewrite.errors import NotAnswered, OutOfRange
from sqlrewrite.expression import Reader
from sqlrewrite.linear import Linear
from sqlrewrite.parse import bare, position
from sqlrewrite.question import ColumnRef, GroupKey, Literal

MINUS = Fraction(-1)
MOST_BITS = 1400  # of a coefficient: some 400 digits


@dataclass(frozen=True, slots=True)
class Side:
    """``form`` or, with ``over``, ``form / over``."""

    form: Linear
    over: Linear | None = None
    empty: frozenset[int] = frozenset()  # sums that are NULL where they have no value
    whole: bool = False  # of an integer type: a division by another cuts
    cut: bool = False  # such a division
    paired: bool = False  # where ``over`` is 0, ``form`` is 0 too: an average


def side(node: exp.Expr, reader: Reader, measures: Measures, keys: tuple[GroupKey, ...]) -> Side | None:
    """What an expression over aggregates says; None where it is the constant NULL."""
    found = _side(node, reader, measures, keys)
    for form in (found.form, found.over) if found is not None else ():
        numbers = () if form is None else (*form.terms.values(), *form.keys.values(), form.constant)
        if any(max(n.numerator.bit_length(), n.denominator.bit_length()) > MOST_BITS for n in numbers):
            raise OutOfRange(
                "numeric value out of range: the constants of this condition have too many digits",
                hint="write smaller numbers",
                position=position(node),
            )
    return found


def _side(node: exp.Expr, reader: Reader, measures: Measures, keys: tuple[GroupKey, ...]) -> Side | None:
    known = reader.constant(node)
    if known is not None:
        return _constant(known, node, reader)

    def inner(part: exp.Expr) -> Side | None:
        return side(part, reader, measures, keys)

    match node:
        case exp.Paren():
            return inner(node.this)
        case exp.Neg():
            found = inner(node.this)
            return None if found is None else _scaled(found, MINUS, found.whole, node)
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div():
            left, right = (
                inner(node.this),
                inner(_nonzero(node.expression) if isinstance(node, exp.Div) else node.expression),
            )
            return None if left is None or right is None else _arithmetic(node, left, right)
        case exp.Cast():
            found = inner(node.this)
            return None if found is None else _cast(found, node)
        case exp.Coalesce():
            return _coalesced(inner(node.this), node, reader)
        case exp.Column():
            return _key(node, reader, keys)
    return _aggregate(node, reader, measures)


def _constant(known: Literal, node: exp.Expr, reader: Reader) -> Side | None:
    if known.text is None:
        return None if reader.bound else Side(Linear(constant=Fraction(1)))
    value = decimal(known)
    if value is None:
        raise NotAnswered(
            "the threshold of a HAVING condition must be a finite number",
            hint="write count(*) > 100",
            position=position(node),
        )
    return Side(Linear(constant=Fraction(value)), whole=known.type_name in INTEGERS)


def _arithmetic(node: exp.Binary, left: Side, right: Side) -> Side:
    whole = left.whole and right.whole
    match node:
        case exp.Mul():
            for one, other in ((left, right), (right, left)):
                if other.over is None and other.form.fixed:
                    return _scaled(one, other.form.constant, whole, node)
        case exp.Div():
            if right.over is None and right.form.fixed:
                if not right.form.constant:
                    raise NotAnswered("a division by zero", hint="divide by another number", position=position(node))
                if not (whole and left.over is None):
                    return _scaled(left, 1 / right.form.constant, False, node)
            if left.over is None and right.over is None:
                return Side(left.form, right.form, left.empty | (right.empty - _under(right)), whole, whole)
        case exp.Add() | exp.Sub():
            factor = MINUS if isinstance(node, exp.Sub) else Fraction(1)
            empty = left.empty | right.empty
            if left.cut or right.cut:
                raise _cut(node)
            if left.over == right.over:
                return Side(
                    left.form.plus(right.form, factor), left.over, empty, whole, paired=left.paired and right.paired
                )
            if right.over is None and right.form.fixed and left.over is not None:
                return Side(
                    left.form.plus(left.over, factor * right.form.constant), left.over, empty, paired=left.paired
                )
            if left.over is None and left.form.fixed and right.over is not None:
                form = right.form.times(factor).plus(right.over, left.form.constant)
                return Side(form, right.over, empty, paired=right.paired)
    raise NotAnswered(
        "this arithmetic of aggregates has no linear form",
        hint="add and subtract sums and counts, multiply them by constants, or divide one by another",
        position=position(node),
    )


def _under(right: Side) -> frozenset[int]:
    """A denominator that is NULL is like one that is zero: its own atom tells."""
    return frozenset(right.form.terms)


def _scaled(found: Side, factor: Fraction, whole: bool, node: exp.Expr) -> Side:
    if found.cut and abs(factor) != 1:
        raise _cut(node)
    return Side(found.form.times(factor), found.over, found.empty, whole, found.cut, found.paired)


def _cut(node: exp.Expr) -> NotAnswered:
    return NotAnswered(
        "a division of whole numbers cuts its result before the arithmetic around it",
        hint="write 1.0 * count(*) / count(*), or count(*)::numeric",
        position=position(node),
    )


def _cast(found: Side, node: exp.Cast) -> Side:
    target = CASTS.get(node.args["to"].this)
    if target not in NUMBERS or node.args["to"].expressions or (target in INTEGERS and not found.whole):
        raise NotAnswered(
            "this cast of an aggregate is not answered in HAVING",
            hint="cast to numeric or double precision",
            position=position(node),
        )
    return Side(found.form, found.over, found.empty, target in INTEGERS, found.cut, found.paired)


def _coalesced(found: Side | None, node: exp.Coalesce, reader: Reader) -> Side:
    other = reader.constant(node.expressions[0]) if len(node.expressions) == 1 else None
    if found is None or found.over is not None or len(found.form.terms) != 1 or found.form.constant:
        raise refused(node, construct(node))
    if other is None or (decimal(other) != 0 and reader.bound):
        raise NotAnswered("coalesce of an aggregate takes 0", hint="write coalesce(sum(x), 0)", position=position(node))
    return Side(found.form, whole=found.whole)


def _nonzero(node: exp.Expr) -> exp.Expr:
    """nullif(x, 0) as a denominator is x: a division by zero is not true either way."""
    found = bare(node)
    if isinstance(found, exp.Nullif) and isinstance(found.expression, exp.Literal) and found.expression.name == "0":
        inner: exp.Expr = found.this
        return inner
    return node


def _key(node: exp.Column, reader: Reader, keys: tuple[GroupKey, ...]) -> Side:
    column = reader.scope.column(node)
    places = [place for place, key in enumerate(keys) if key.expression == column]
    public = isinstance(column, ColumnRef) and reader.scope.sources[column.source].relation.kind is Kind.PUBLIC
    if not places or not public or base_type(column.type_name) not in (*INTEGERS, "numeric"):
        raise NotAnswered(
            f'"{node.name}" is no number of a public table that is grouped by',
            hint="thresholds are constants, or columns of a joined public table that stand in GROUP BY",
            position=position(node),
        )
    return Side(Linear(keys={places[0]: Fraction(1)}), whole=base_type(column.type_name) in INTEGERS)


def _aggregate(node: exp.Expr, reader: Reader, measures: Measures) -> Side:
    call, kept = filtered(node, reader)
    match call:
        case exp.Count():
            return Side(Linear({count(call, kept, reader, measures): Fraction(1)}), whole=True)
        case exp.Sum():
            argument = summed(call, reader)
            place = measures.total(argument, kept)
            empty = frozenset((place,)) if kept is not None or nullable(argument, reader.scope) else frozenset[int]()
            return Side(Linear({place: Fraction(1)}), empty=empty, whole=sum_type(argument) in INTEGERS)
        case exp.Avg():
            argument = summed(call, reader)
            over = Linear({measures.values(argument, kept): Fraction(1)})
            return Side(Linear({measures.total(argument, kept): Fraction(1)}), over, paired=True)
    if type(call) in SPREADS:
        raise NotAnswered(
            f"{construct(call).lower()} has no linear form and is not answered in HAVING",
            hint="bound the average of a distance: avg(abs(x - c)) > d",
            position=position(node),
        )
    if isinstance(call, exp.Min | exp.Max):
        raise refused(call, construct(call))
    raise NotAnswered(
        "HAVING compares sums, counts, averages and ratios of them with numbers",
        hint="write HAVING count(*) > 100 AND avg(x) > 5",
        position=position(node),
    )
