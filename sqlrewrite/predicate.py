"""Conditions on rows: WHERE, FILTER and the WHEN of CASE, with SQL's three-valued logic kept.

All of them keep a row only where the condition is true, so a constant NULL may be read as the constant that keeps no
row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp

from sqlrewrite.allow import SHAPE, construct, refused
from sqlrewrite.constant import (
    CASTS,
    FLOATS,
    INCOMPARABLE,
    INTEGERS,
    NUMBERS,
    PARTIAL,
    TEXTS,
    TIMES,
    UNKNOWN,
    base_type,
    decimal,
    fit,
)
from sqlrewrite.errors import NotAnswered
from sqlrewrite.expression import CONDITIONS, FALSE, TRUE, Reader, expression, sized
from sqlrewrite.parse import bare, position
from sqlrewrite.question import (
    AllOf,
    Always,
    Among,
    AnyOf,
    Case,
    Compare,
    Comparison,
    Expression,
    IsNull,
    Like,
    Literal,
    Not,
    Predicate,
)
from sqlrewrite.walk import is_constant

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
MAX_VALUES = 2_000
_BLANKS = " \t\n\r\v\f"
# Possessive: what was read is not tried again, or a long text that is no array would take for ever.
_ELEMENT = re.compile(r'[ \t\n\r\v\f]*+(?:"((?:[^"\\]|\\.)*+)"[ \t\n\r\v\f]*+|([^,{}"\\]++))(?:,|\Z)', re.DOTALL)


def condition(node: exp.Expr, reader: Reader) -> Predicate:
    """What a condition says, read where only TRUE keeps a row."""
    return predicate(node, reader, negated=False)


def predicate(node: exp.Expr, reader: Reader, negated: bool) -> Predicate:
    """The condition; ``negated`` tells under how many NOTs it stands, which is what a constant NULL needs."""
    match node:
        case exp.Paren():
            return predicate(node.this, reader, negated)
        case exp.Not():
            return Not(predicate(node.this, reader, not negated))
        case exp.And():
            return AllOf(tuple(predicate(part, reader, negated) for part in node.flatten(unnest=False)))
        case exp.Or():
            return AnyOf(tuple(predicate(part, reader, negated) for part in node.flatten(unnest=False)))
    found = _alone(node, reader, negated)
    sized(node, reader, lambda rendering: rendering.clause(found))
    return found


def _alone(node: exp.Expr, reader: Reader, negated: bool) -> Predicate:
    """A condition that no others are joined in."""
    match node:
        case exp.Is():
            return _is(node, reader)
        case exp.NullSafeEQ() | exp.NullSafeNEQ():
            return _distinct(node, reader)
        case exp.In():
            return _among(node.this, node.expressions, reader, node, negated)
        case exp.Between():
            low, high = (
                _compare(node.this, op, node.args[end], reader, node, negated)
                for op, end in ((Comparison.GE, "low"), (Comparison.LE, "high"))
            )
            return AllOf((low, high))
        case exp.Like() | exp.ILike():
            return _like(node, reader, negated)
        case exp.EQ() if isinstance(node.expression, exp.Any):
            return _any(node.this, node.expression, reader, node, negated)
    op = COMPARISONS.get(type(node))
    if op is not None:
        return _compare(node.this, op, node.expression, reader, node, negated)
    return _flag(node, reader, negated)


def _compare(
    left: exp.Expr, op: Comparison, right: exp.Expr, reader: Reader, whole: exp.Expr, negated: bool
) -> Predicate:
    first, second = _side(left, reader), _side(right, reader)
    if is_constant(first):
        first, second, op = second, first, FLIPPED[op]
    if is_constant(first):
        if not reader.bound and whole.find(exp.Parameter) is not None:
            return Always(True)
        truth = _decided(first, op, second, whole)
        return Always(negated if truth is None else truth)
    if isinstance(second, Literal):
        second = fit(second, first.type_name, whole)
    else:
        _comparable(first, second, whole)
    return Compare(first, op, second)


def _side(node: exp.Expr, reader: Reader) -> Expression:
    node = bare(node)
    if isinstance(node, (*CONDITIONS, exp.Any)):
        raise NotAnswered(
            "a condition is compared with something",
            hint="write IS TRUE, or use AND, OR and NOT",
            position=position(node),
        )
    return expression(node, reader)


def _decided(left: Expression, op: Comparison, right: Expression, node: exp.Expr) -> bool | None:
    """A comparison of two constants."""
    if not isinstance(left, Literal) or not isinstance(right, Literal):
        raise _no_constant(node)
    if left.text is None or right.text is None:
        return None
    first, second = decimal(left), decimal(right)
    if first is None or second is None or not {left.type_name, right.type_name} & set(NUMBERS):
        if left.type_name != right.type_name or op not in (Comparison.EQ, Comparison.NE):
            raise _no_constant(node)
        return (left.text == right.text) is (op is Comparison.EQ)
    match op:
        case Comparison.GT:
            return first > second
        case Comparison.GE:
            return first >= second
        case Comparison.LT:
            return first < second
        case Comparison.LE:
            return first <= second
        case Comparison.EQ:
            return first == second
        case Comparison.NE:
            return first != second


def _no_constant(node: exp.Expr) -> NotAnswered:
    return NotAnswered("this comparison of constants is not read", hint="write TRUE or FALSE", position=position(node))


def _comparable(left: Expression, right: Expression, node: exp.Expr) -> None:
    """Two expressions whose comparison is total whatever the data: no text is parsed, no numeric becomes a float."""
    first, second = base_type(left.type_name), base_type(right.type_name)
    for family in ((*INTEGERS, "numeric"), (*INTEGERS, *FLOATS), TEXTS, TIMES):
        if first in family and second in family:
            return
    if first != second or first in (*PARTIAL, *INCOMPARABLE) or first == "interval" or first.endswith("[]"):
        raise NotAnswered(
            f"values of types {first} and {second} are not compared",
            hint="compare columns of the same type",
            position=position(node),
        )


def _among(left: exp.Expr, values: Sequence[exp.Expr], reader: Reader, whole: exp.Expr, negated: bool) -> Predicate:
    argument = _side(left, reader)
    found = [reader.constant(value) for value in values]
    if any(value is None for value in found):
        # IN with columns in the list is an OR of comparisons.
        return AnyOf(tuple(_compare(left, Comparison.EQ, value, reader, whole, negated) for value in values))
    if is_constant(argument):
        return AnyOf(tuple(_compare(left, Comparison.EQ, value, reader, whole, negated) for value in values))
    return _members(argument, [value for value in found if value is not None], whole)


def _members(argument: Expression, values: Sequence[Literal], node: exp.Expr) -> Predicate:
    if len(values) > MAX_VALUES:
        raise NotAnswered(
            f"a list holds at most {MAX_VALUES} values",
            hint="join a public table that holds them",
            position=position(node),
        )
    if not values:
        return Always(False)
    return Among(argument, tuple(fit(value, argument.type_name, node) for value in values))


def _any(left: exp.Expr, right: exp.Any, reader: Reader, whole: exp.Expr, negated: bool) -> Predicate:
    listed = bare(right.this)
    element: str | None = None
    if isinstance(listed, exp.Cast) and listed.args["to"].this == exp.DType.ARRAY:
        (inner,) = listed.args["to"].expressions
        element = CASTS.get(inner.this)
        listed = bare(listed.this)
        if element is None:
            raise refused(whole, "Any")
    if isinstance(listed, exp.Array):
        return _among(left, listed.expressions, reader, whole, negated)
    argument = _side(left, reader)
    found = reader.constant(listed)
    if found is None or is_constant(argument):
        raise NotAnswered(
            "= ANY takes a constant list", hint="write = ANY(ARRAY[1, 2]) or IN (1, 2)", position=position(whole)
        )
    if found.text is None:
        return Always(negated)
    if found.type_name.endswith("[]"):
        element = found.type_name[:-2]
    values = [Literal(text, element or UNKNOWN) for text in _elements(found.text, whole)]
    return _members(argument, values, whole)


def _elements(text: str, node: exp.Expr) -> list[str | None]:
    """The elements of a one-dimensional array in PostgreSQL's text form."""
    body = text.strip(_BLANKS)
    found: list[str | None] = []
    if not (body.startswith("{") and body.endswith("}")):
        raise NotAnswered("this is no array", hint="write ARRAY[1, 2]", position=position(node))
    body, at = body[1:-1].strip(_BLANKS), 0
    while at < len(body):
        match = _ELEMENT.match(body, at)
        if match is None:
            raise NotAnswered("this array is not read", hint="write ARRAY[1, 2]", position=position(node))
        quoted, plain = match.groups()
        if quoted is not None:
            found.append(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
        else:
            plain = plain.rstrip(_BLANKS)
            found.append(None if plain.lower() == "null" else plain)
        at = match.end()
    return found


def _like(node: exp.Like | exp.ILike, reader: Reader, negated: bool) -> Predicate:
    argument = _side(node.this, reader)
    pattern = reader.constant(node.expression)
    if pattern is None or base_type(pattern.type_name) not in (*TEXTS, UNKNOWN):
        raise NotAnswered("LIKE takes a constant pattern", hint="write LIKE 'a%'", position=position(node))
    if base_type(argument.type_name) not in TEXTS or is_constant(argument):
        raise NotAnswered("LIKE compares a column of text", hint="write column LIKE 'a%'", position=position(node))
    inverted = bool(node.args.get("negate"))
    if pattern.text is None and reader.bound:
        return Not(Always(not negated)) if inverted else Always(negated)
    found = Like(argument, Literal(pattern.text, "text"), isinstance(node, exp.ILike))
    if pattern.text is not None and re.search(r"(?<!\\)(?:\\\\)*\\$", pattern.text):
        raise NotAnswered("a LIKE pattern ends with a backslash", hint="write it twice", position=position(node))
    return Not(found) if inverted else found


def _is(node: exp.Is, reader: Reader) -> Predicate:
    found: Predicate
    match node.expression:
        case exp.Null():
            argument = expression(bare(node.this), reader)
            found = Always(argument.text is None) if isinstance(argument, Literal) else IsNull(argument)
        case exp.Boolean():
            found = _is_true(node.this, bool(node.expression.this), reader)
        case _:
            raise refused(node, construct(node))
    return Not(found) if node.args.get("negate") else found


def _is_true(node: exp.Expr, wanted: bool, reader: Reader) -> Predicate:
    """IS TRUE is never NULL, unlike = TRUE: the difference shows under NOT."""
    node = bare(node)
    if isinstance(node, exp.Column):
        flag = expression(node, reader)
        if flag.type_name != "boolean":
            raise _no_condition(node)
        return AllOf((Not(IsNull(flag)), Compare(flag, Comparison.EQ, TRUE if wanted else FALSE)))
    truth = predicate(node, reader, negated=not wanted)
    kept = truth if wanted else Not(truth)
    return Compare(Case(((kept, TRUE),), FALSE, "boolean"), Comparison.EQ, TRUE)


def _distinct(node: exp.NullSafeEQ | exp.NullSafeNEQ, reader: Reader) -> Predicate:
    left, right = _side(node.this, reader), _side(node.expression, reader)
    if is_constant(left):
        left, right = right, left
    if not isinstance(right, Literal) or is_constant(left):
        raise NotAnswered(
            "IS DISTINCT FROM compares a column with a constant",
            hint="write column IS DISTINCT FROM 1",
            position=position(node),
        )
    same: Predicate
    if right.text is None and reader.bound:
        same = IsNull(left)
    else:
        same = AllOf((Not(IsNull(left)), Compare(left, Comparison.EQ, fit(right, left.type_name, node))))
    return Not(same) if isinstance(node, exp.NullSafeNEQ) else same


def _flag(node: exp.Expr, reader: Reader, negated: bool) -> Predicate:
    """A boolean column or constant on its own."""
    found = expression(node, reader)
    if isinstance(found, Literal):
        if found.text is None and (found.type_name in (UNKNOWN, "boolean")):
            return Always(negated)
        if found.type_name == "boolean":
            return Always(found.text == "true" or (found.text or "").lower() in ("t", "on", "yes", "1"))
    elif found.type_name == "boolean":
        return Compare(found, Comparison.EQ, TRUE)
    raise _no_condition(node)


def _no_condition(node: exp.Expr) -> NotAnswered:
    return NotAnswered(
        "this is no condition",
        hint=f"write column = constant, IN (...), BETWEEN, LIKE or IS NULL, joined by AND, OR and NOT: {SHAPE}",
        position=position(node),
    )
