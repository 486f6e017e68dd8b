"""HAVING to a monotone tree of atoms: NOT is pushed inwards, strict comparisons move by one lattice unit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal

from sqlglot import exp

from mechanisms.condition import And, Condition, Leaf, Or
from sqlrewrite.allow import SHAPE
from sqlrewrite.constant import constant, decimal
from sqlrewrite.errors import NotAnswered
from sqlrewrite.parse import position
from sqlrewrite.question import Atom, Comparison, Literal

FAR = 2**62
"""No count reaches this: thresholds beyond it decide like it and stay within 64 bits."""

COMPARISONS: dict[type[exp.Expr], Comparison] = {
    exp.GT: Comparison.GT,
    exp.GTE: Comparison.GE,
    exp.LT: Comparison.LT,
    exp.LTE: Comparison.LE,
    exp.EQ: Comparison.EQ,
    exp.NEQ: Comparison.NE,
}
FLIPPED = {
    Comparison.GT: Comparison.LT,
    Comparison.GE: Comparison.LE,
    Comparison.LT: Comparison.GT,
    Comparison.LE: Comparison.GE,
    Comparison.EQ: Comparison.EQ,
    Comparison.NE: Comparison.NE,
}
NEGATED = {
    Comparison.GT: Comparison.LE,
    Comparison.GE: Comparison.LT,
    Comparison.LT: Comparison.GE,
    Comparison.LE: Comparison.GT,
    Comparison.EQ: Comparison.NE,
    Comparison.NE: Comparison.EQ,
}

Find = Callable[[exp.Expr], int | None]
"""The index of the aggregate that an expression is, or None where it is none."""


def decompose(
    node: exp.Expr, find: Find, parameters: Sequence[Literal] | None, negated: bool = False
) -> Condition[Atom]:
    """The condition over atoms that holds exactly where the expression does (counts are never NULL)."""
    match node:
        case exp.Paren():
            return decompose(node.this, find, parameters, negated)
        case exp.Not():
            return decompose(node.this, find, parameters, not negated)
        case exp.And() | exp.Or():
            parts = tuple(decompose(part, find, parameters, negated) for part in node.flatten(unnest=False))
            return And(parts) if isinstance(node, exp.And) is not negated else Or(parts)
        case exp.Between():
            low = _leaf(node.this, Comparison.GE, node.args["low"], find, parameters, negated, node)
            high = _leaf(node.this, Comparison.LE, node.args["high"], find, parameters, negated, node)
            return Or((low, high)) if negated else And((low, high))
    op = COMPARISONS.get(type(node))
    if op is None:
        raise _not_a_condition(node)
    if find(_bare(node.this)) is not None:
        return _leaf(node.this, op, node.expression, find, parameters, negated, node)
    return _leaf(node.expression, FLIPPED[op], node.this, find, parameters, negated, node)


def atom(aggregate: int, op: Comparison, threshold: Decimal) -> Atom:
    """One comparison on whole numbers: > c is >= floor(c) + 1, < c is <= ceil(c) - 1."""
    bounded = min(max(threshold, Decimal(-FAR)), Decimal(FAR))
    match op:
        case Comparison.GE:
            return Atom(aggregate, +1, math.ceil(bounded))
        case Comparison.GT:
            return Atom(aggregate, +1, math.floor(bounded) + 1)
        case Comparison.LE:
            return Atom(aggregate, -1, math.floor(bounded))
        case Comparison.LT:
            return Atom(aggregate, -1, math.ceil(bounded) - 1)
        case Comparison.EQ | Comparison.NE:
            raise ValueError("an equality is no half-line")


def _leaf(
    left: exp.Expr,
    op: Comparison,
    right: exp.Expr,
    find: Find,
    parameters: Sequence[Literal] | None,
    negated: bool,
    whole: exp.Expr,
) -> Leaf[Atom]:
    index = find(_bare(left))
    literal = constant(right, parameters)
    if index is None or literal is None:
        raise _not_a_condition(whole)
    if op in (Comparison.EQ, Comparison.NE):
        raise NotAnswered(
            f"HAVING with {op.value} is not answered: noise would hide whether a count is exactly a number",
            hint="write count(*) >= n or count(*) <= n",
            position=position(whole),
        )
    if parameters is None and right.find(exp.Parameter) is not None:  # before Bind: any number will do
        return Leaf(atom(index, NEGATED[op] if negated else op, Decimal(0)))
    threshold = decimal(literal)
    if threshold is None:
        raise NotAnswered(
            "the threshold of a HAVING condition must be a finite number",
            hint="write count(*) > 100",
            position=position(whole),
        )
    return Leaf(atom(index, NEGATED[op] if negated else op, threshold))


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _not_a_condition(node: exp.Expr) -> NotAnswered:
    return NotAnswered(
        "HAVING compares count(*) with a constant, and this does not",
        hint=f"conditions on columns go into WHERE: {SHAPE}",
        position=position(node),
    )
