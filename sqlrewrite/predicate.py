"""WHERE to a predicate over columns and constants: comparisons, IN, BETWEEN, IS NULL, AND, OR, NOT."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from sqlrewrite.allow import SHAPE
from sqlrewrite.catalog import Attribute
from sqlrewrite.constant import constant, fit
from sqlrewrite.decompose import COMPARISONS, FLIPPED
from sqlrewrite.errors import NotAnswered
from sqlrewrite.parse import position
from sqlrewrite.question import AllOf, Among, AnyOf, Compare, Comparison, IsNull, Literal, Not, Predicate

Resolve = Callable[[exp.Column], Attribute]


def predicate(node: exp.Expr, column: Resolve, parameters: Sequence[Literal] | None) -> Predicate:
    """What WHERE says, with SQL's three-valued logic kept."""
    match node:
        case exp.Paren():
            return predicate(node.this, column, parameters)
        case exp.Not():
            return Not(predicate(node.this, column, parameters))
        case exp.And():
            return AllOf(tuple(predicate(part, column, parameters) for part in node.flatten(unnest=False)))
        case exp.Or():
            return AnyOf(tuple(predicate(part, column, parameters) for part in node.flatten(unnest=False)))
        case exp.Column():
            return _flag(column(node), node)
        case exp.Is():
            return _is(node, column)
        case exp.In():
            attribute = _column(node.this, column, node)
            values = tuple(_value(value, attribute, parameters, node) for value in node.expressions)
            return Among(attribute.name, values)
        case exp.Between():
            attribute = _column(node.this, column, node)
            low = _value(node.args["low"], attribute, parameters, node)
            high = _value(node.args["high"], attribute, parameters, node)
            return AllOf((Compare(attribute.name, Comparison.GE, low), Compare(attribute.name, Comparison.LE, high)))
    op = COMPARISONS.get(type(node))
    if op is None:
        raise _not_a_predicate(node)
    left, right = node.this, node.expression
    if not isinstance(_bare(left), exp.Column):
        left, right, op = right, left, FLIPPED[op]
    attribute = _column(left, column, node)
    return Compare(attribute.name, op, _value(right, attribute, parameters, node))


def _column(node: exp.Expr, column: Resolve, whole: exp.Expr) -> Attribute:
    bare = _bare(node)
    if not isinstance(bare, exp.Column):
        raise _not_a_predicate(whole)
    return column(bare)


def _value(node: exp.Expr, attribute: Attribute, parameters: Sequence[Literal] | None, whole: exp.Expr) -> Literal:
    literal = constant(node, parameters)
    if literal is None:
        raise _not_a_predicate(whole)
    return fit(literal, attribute.type_name, node)


def _is(node: exp.Is, column: Resolve) -> Predicate:
    attribute = _column(node.this, column, node)
    part: Predicate
    match node.expression:
        case exp.Null():
            part = IsNull(attribute.name)
        case exp.Boolean():
            # IS TRUE is never NULL, unlike = TRUE: the difference shows under NOT.
            truth = Literal("true" if node.expression.this else "false", "boolean")
            _flag(attribute, node)
            part = AllOf((Not(IsNull(attribute.name)), Compare(attribute.name, Comparison.EQ, truth)))
        case _:
            raise _not_a_predicate(node)
    return Not(part) if node.args.get("negate") else part


def _flag(attribute: Attribute, node: exp.Expr) -> Predicate:
    if attribute.type_name != "boolean":
        raise _not_a_predicate(node)
    return Compare(attribute.name, Comparison.EQ, Literal("true", "boolean"))


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _not_a_predicate(node: exp.Expr) -> NotAnswered:
    return NotAnswered(
        "WHERE compares a column with a constant, and this does not",
        hint=f"write column = constant, IN (...), BETWEEN or IS NULL, joined by AND, OR and NOT: {SHAPE}",
        position=position(node),
    )
