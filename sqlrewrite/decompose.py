"""HAVING to a monotone tree of atoms, each a linear combination of measures against a threshold.

NOT is pushed inwards. ``avg(x) > c`` is ``sum(x) - c count(x) > 0``; ``sum(a) / sum(b) > c`` with b >= 0 is
``sum(a) - c sum(b) > 0``; a quantile ``> c`` is ``count(x > c) - (1 - q) count(x) > 0`` (exact for percentile_disc;
percentile_cont interpolates between two neighbours of it). Integer division cuts towards zero, as in PostgreSQL.

An aggregate that is NULL (a sum of no values) or a division by zero makes its comparison not true: where the linear
form would say otherwise, an atom on the number of values stands beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from sqlglot import exp

from mechanisms.condition import And, Condition, Leaf, Or
from mechanisms.errors import AccuracyUnreachable
from sqlrewrite.aggregate import Measures, filtered, nullable
from sqlrewrite.constant import decimal, fit
from sqlrewrite.errors import NotAnswered
from sqlrewrite.expression import Reader, expression
from sqlrewrite.guard import proposed, shown
from sqlrewrite.having import Having, Quotient, Tree
from sqlrewrite.linear import Linear, against_zero, conjoined, uncut
from sqlrewrite.minimise import ALWAYS, NEVER, minimise, possible
from sqlrewrite.normal import normal_condition, normalise
from sqlrewrite.parse import conjuncts, position
from sqlrewrite.predicate import COMPARISONS, FLIPPED, NEGATED, predicate
from sqlrewrite.question import (
    AllOf,
    Always,
    Atom,
    Compare,
    Comparison,
    GroupKey,
    MeasureKind,
    Predicate,
    Statistic,
)
from sqlrewrite.side import Side, side

ZERO = Fraction(0)


@dataclass(frozen=True, slots=True)
class Decision:
    """What HAVING says: a tree over statistics, and conditions on keys alone, which belong to WHERE."""

    having: Condition[Atom] | None
    where: Predicate | None
    statistics: tuple[Statistic, ...]


def decompose(
    node: exp.Expr,
    reader: Reader,
    measures: Measures,
    keys: tuple[GroupKey, ...],
    sets: Sequence[Sequence[int]],
    support: int | None,
    text: str,
) -> Decision:
    """The decision that holds exactly where the expression is true; ``NEVER`` where no data can make it true."""
    # With every key in the one grouping set, a condition on keys may move into WHERE.
    complete = len(sets) == 1 and set(sets[0]) == set(range(len(keys)))
    reading = Having(reader, measures, keys, support, scalar=not all(sets))
    kept: list[exp.Expr] = []
    where: list[Predicate] = []
    for part in conjuncts(node):
        if _has_aggregate(part):
            kept.append(part)
        elif part.find(exp.Column) is None or complete:
            where.append(predicate(part, reader, negated=False))
        else:
            raise _no_decision(part)
    tree = _all(_tree(part, reading, negated=False) for part in kept)
    filtering = normalise(AllOf(tuple(where))) if where else None
    if tree is False or filtering == Always(False):
        return Decision(NEVER, None, ())
    condition = ALWAYS if tree is True else minimise(_marked(tree, reading), reading.clash, reading.cover)
    _guarded(condition, reading, node, text)
    having = None if condition == ALWAYS else normal_condition(condition)
    return Decision(having, None if filtering == Always(True) else filtering, tuple(reading.statistics))


def _marked(tree: Condition[Atom], reading: Having) -> Condition[Atom]:
    """Equal atoms are equal values, however often and in whatever form they were written."""
    match tree:
        case Leaf(atom):
            return Leaf(replace(atom, average=reading.unsure(atom) is not None))
        case And(parts):
            return And(tuple(_marked(part, reading) for part in parts))
        case Or(parts):
            return Or(tuple(_marked(part, reading) for part in parts))


def _has_aggregate(node: exp.Expr) -> bool:
    return node.find(exp.AggFunc, exp.Filter, exp.WithinGroup) is not None


def _tree(node: exp.Expr, reading: Having, negated: bool) -> Tree:
    if not _has_aggregate(node) and node.find(exp.Column) is None:
        constant = normalise(predicate(node, reading.reader, negated))
        if isinstance(constant, Always):
            return constant.value is not negated
    if not _has_aggregate(node) and not isinstance(node, exp.Paren | exp.Not | exp.And | exp.Or):
        raise _no_decision(node)
    match node:
        case exp.Paren():
            return _tree(node.this, reading, negated)
        case exp.Not():
            return _tree(node.this, reading, not negated)
        case exp.And() | exp.Or():
            parts = [_tree(part, reading, negated) for part in node.flatten(unnest=False)]
            return _all(parts) if isinstance(node, exp.And) is not negated else _any(parts)
        case exp.Between():
            low, high = (
                _comparison(node.this, op, node.args[end], reading, negated, node)
                for op, end in ((Comparison.GE, "low"), (Comparison.LE, "high"))
            )
            return _any((low, high)) if negated else _all((low, high))
    op = COMPARISONS.get(type(node))
    if op is None:
        raise _no_decision(node)
    if op in (Comparison.EQ, Comparison.NE):
        raise NotAnswered(
            f"HAVING with {op.value} is not answered: noise would hide whether an aggregate is exactly a number",
            hint="write >= and <=, or BETWEEN",
            position=position(node),
        )
    return _comparison(node.this, op, node.expression, reading, negated, node)


def _all(parts: Iterable[Tree]) -> Tree:
    return _joined(list(parts), And, False)


def _any(parts: Iterable[Tree]) -> Tree:
    return _joined(list(parts), Or, True)


def _joined(parts: Sequence[Tree], kind: type[And[Atom]] | type[Or[Atom]], ends: bool) -> Tree:
    if any(part is ends for part in parts):
        return ends
    real = tuple(part for part in parts if not isinstance(part, bool))
    if not real:
        return not ends
    return real[0] if len(real) == 1 else kind(real)


def _comparison(
    left: exp.Expr, op: Comparison, right: exp.Expr, reading: Having, negated: bool, whole: exp.Expr
) -> Tree:
    op = NEGATED[op] if negated else op
    for quantile, bound, turned in ((left, right, op), (right, left, FLIPPED[op])):
        if isinstance(_call(quantile), exp.WithinGroup):
            return _quantile(quantile, turned, bound, reading, whole)
    first, second = (side(part, reading.reader, reading.measures, reading.keys) for part in (left, right))
    if first is None or second is None:  # NULL
        return False
    text = shown(left if _has_aggregate(left) else right)
    if first.over is None and second.over is not None:
        first, second, op = second, first, FLIPPED[op]
    if first.over is None:
        return _linear(first.form.plus(second.form, Fraction(-1)), op, first.empty | second.empty, text, reading, whole)
    if second.over is not None:
        if second.over != first.over or first.cut or second.cut:
            raise _not_linear(whole)
        difference = first.form.plus(second.form, Fraction(-1))
        paired = first.paired and second.paired
        both = Side(difference, first.over, first.empty | second.empty, paired=paired)
        return _ratio(both, op, ZERO, text, reading, whole)
    if not second.form.fixed:
        raise _not_linear(whole)
    return _ratio(first, op, second.form.constant, text, reading, whole)


def _linear(form: Linear, op: Comparison, empty: frozenset[int], text: str, reading: Having, whole: exp.Expr) -> Tree:
    if form.keys and not form.terms:
        raise _no_decision(whole)
    _one_key(form, reading, whole)
    # A single sum that must exceed a positive number is not 0; in all other cases 0 may stand for NULL. Sums that
    # cancel (sum(x) - sum(x)) are still NULL where they have no value.
    alone = len(form.terms) == 1 and empty <= set(form.terms) and not form.keys and not against_zero(form.constant, op)
    needed = frozenset() if alone else empty
    first = reading.atom(form, op, text) if form.terms else against_zero(form.constant, op)
    return _all((first, *(_some(place, text, reading) for place in sorted(needed))))


def _ratio(found: Side, op: Comparison, bound: Fraction, text: str, reading: Having, whole: exp.Expr) -> Tree:
    over = found.over
    if over is None:
        raise ValueError("a ratio has a denominator")
    if found.cut:
        op, bound = uncut(op, bound)
    form = found.form.plus(over, -bound)
    if not over.terms:  # a constant denominator: the cut of integer division only
        form = found.form.times(1 / over.constant).plus(Linear(constant=bound), Fraction(-1))
        return _linear(form, op, found.empty, text, reading, whole)
    measures = reading.measures
    if over.constant or over.keys or any(f < 0 or measures[p].lower < 0 for p, f in over.terms.items()):
        raise NotAnswered(
            "the denominator of a ratio must be known not to be negative",
            hint="divide by a count, or by the sum of a column whose declared lower bound is 0 or more",
            position=position(whole),
        )
    if form.keys:
        raise _not_linear(whole)
    parts: list[Tree] = []
    if form.terms:
        # a / b > 0 is a > 0: no average is left to guard.
        same = frozenset(found.form.terms.items()), found.form.constant, frozenset(over.terms.items())
        quotient = Quotient(same, op in (Comparison.GT, Comparison.GE), bound)
        guards = _guards(over, reading) if bound else None
        parts.append(reading.atom(form, op, text, average=guards, quotient=quotient))
    elif not against_zero(form.constant, op):
        return False
    if not _never_zero(over, measures) and (not found.paired or op in (Comparison.GE, Comparison.LE)):
        parts.append(reading.atom(over, Comparison.GT, f"the denominator of {text}", asked=False))
    # With nothing added up, the numerator is NULL and the linear form is -bound * denominator.
    if against_zero(-bound, op) or len(found.form.terms) != 1 or not found.empty <= set(found.form.terms):
        parts.extend(
            _some(place, text, reading)
            for place in sorted(found.empty)
            if not (found.paired and place in found.form.terms)
        )
    return _all(parts)


def _quantile(node: exp.Expr, op: Comparison, right: exp.Expr, reading: Having, whole: exp.Expr) -> Tree:
    reader, measures = reading.reader, reading.measures
    call, kept = filtered(node, reader)
    ordering = call.expression.expressions
    if len(ordering) != 1 or ordering[0].args.get("desc"):
        raise NotAnswered(
            "a percentile is ordered by one expression, upwards",
            hint="write percentile_cont(0.5) WITHIN GROUP (ORDER BY x)",
            position=position(whole),
        )
    share, bound = reader.constant(call.this.this), reader.constant(right)
    part = Fraction(1, 2) if share is not None and share.text is None and not reader.bound else None
    part = Fraction(decimal(share) or 0) if part is None and share is not None else part
    if part is None or bound is None or not 0 < part < 1:
        raise NotAnswered(
            "a percentile between 0 and 1 is compared with a constant",
            hint="write percentile_cont(0.5) WITHIN GROUP (ORDER BY x) > 10",
            position=position(whole),
        )
    argument = expression(ordering[0].this, reader)
    if bound.text is None and reader.bound:
        return False
    # v > c and v <= c count the values above c, v >= c and v < c those from c on.
    beyond = Comparison.GT if op in (Comparison.GT, Comparison.LE) else Comparison.GE
    above = Compare(argument, beyond, fit(bound, argument.type_name, whole))
    over = Linear({measures.values(argument, kept): Fraction(1)})
    form = Linear({measures.rows(conjoined(kept, above, normalise)): Fraction(1)}).plus(over, part - 1)
    found = Comparison.GT if op in (Comparison.GT, Comparison.GE) else Comparison.LE
    number = decimal(bound)
    same = "quantile", argument, kept, part
    quotient = None if number is None else Quotient(same, found is Comparison.GT, Fraction(number))
    atom = reading.atom(form, found, shown(node), average=_guards(over, reading), quotient=quotient)
    some = found is Comparison.LE and not _never_zero(over, measures)
    text = f"values of {shown(node)}"
    return _all((atom, reading.atom(over, Comparison.GT, text, asked=False))) if some else atom


def _some(place: int, text: str, reading: Having) -> Tree:
    """The sum has at least one value."""
    measure = reading.measures[place]
    if measure.argument is None or (measure.filter is None and not nullable(measure.argument, reading.reader.scope)):
        return True
    counted = reading.measures.values(measure.argument, measure.filter)
    return reading.atom(Linear({counted: Fraction(1)}), Comparison.GT, f"values of {text}", asked=False)


def _never_zero(over: Linear, measures: Measures) -> bool:
    """Whether a group that has a row has something in the denominator."""
    sure = (MeasureKind.ROWS, MeasureKind.UNITS)  # rows without a unit are left out of everything
    return any(measures[place].kind in sure and measures[place].filter is None for place in over.terms)


def _guards(over: Linear, reading: Having) -> frozenset[int]:
    """The counts that show the size of what is averaged: those of the denominator, and of its rows."""
    measures = reading.measures
    own = {place for place in over.terms if measures[place].kind is not MeasureKind.TOTAL}
    return frozenset(own | {measures.rows(measures[place].filter) for place in over.terms})


def _guarded(condition: Condition[Atom], reading: Having, node: exp.Expr, text: str) -> None:
    """Every way to be true that holds an average holds a guard on its size too."""
    lacking: list[tuple[Atom, frozenset[int]]] = []
    most: list[int] = []
    for term in possible(condition, reading.clash):
        sizes = {
            place
            for atom in term
            if (place := reading.alone(atom)) is not None
            and atom.direction == 1
            and isinstance(atom.threshold, int)
            and atom.threshold >= 1
            and (atom.statistic, atom.direction, atom.threshold) in reading.asked
        }
        for atom in term:
            wanted = reading.unsure(atom)
            if wanted is not None and not wanted & sizes:
                lacking.append((atom, wanted))
                most += [known for each in term if (known := reading.size_at_most(each, wanted)) is not None]
    for atom, wanted in lacking[:1]:
        raise AccuracyUnreachable(
            f"{atom.text} on groups of any size cannot be decided with a bounded error",
            hint=proposed(wanted, reading.measures, reading.reader, node, text, min(most, default=None)),
            position=next((position(part) for part in node.walk() if shown(part) == atom.text), None),
        )


def _one_key(form: Linear, reading: Having, whole: exp.Expr) -> None:
    if not form.keys:
        return
    if len(form.keys) > 1 or form.constant or len(form.terms) > 1:
        raise NotAnswered(
            "a threshold from a public table is one column, times a constant",
            hint="write HAVING count(*) > 0.9 * table.column",
            position=position(whole),
        )


def _call(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren | exp.Filter):
        node = node.this
    return node


def _not_linear(node: exp.Expr) -> NotAnswered:
    return NotAnswered(
        "this comparison has no linear form",
        hint="compare one ratio with a constant; write 1.0 * count(*) to divide without cutting",
        position=position(node),
    )


def _no_decision(node: exp.Expr) -> NotAnswered:
    return NotAnswered(
        "HAVING compares aggregates with numbers, and this does not",
        hint="write HAVING count(*) > 100; conditions on columns go into WHERE",
        position=position(node),
    )
