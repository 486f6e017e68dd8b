"""Expressions and predicates as short SQL for people: names of views in reports, never run.

Columns go by their names, constants are written out, and nothing is quoted that reads well without. Predicates that the
fingerprint takes for the same have one spelling, or a limit on a view would not hold for its other name.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlrewrite import normal
from sqlrewrite.question import (
    AllOf,
    Always,
    Among,
    AnyOf,
    Call,
    Case,
    Cast,
    ColumnRef,
    Compare,
    Expression,
    IsNull,
    Like,
    Literal,
    Measure,
    MeasureKind,
    Not,
    Predicate,
    Question,
    Statistic,
)

_OPERATORS = frozenset("+-*/%")


def expression(found: Expression) -> str:
    """A row expression."""
    match found:
        case Literal(text, type_name):
            return _literal(text, type_name)
        case ColumnRef(_, name, _):
            return name
        case Call(function, (left, right), _) if function in _OPERATORS:
            return f"({expression(left)} {function} {expression(right)})"
        case Call(function, arguments, _):
            return f"{function}({', '.join(map(expression, arguments))})"
        case Cast(argument, type_name):
            return f"{expression(argument)}::{type_name}"
        case Case(branches, otherwise, _):
            whens = " ".join(f"WHEN {predicate(when)} THEN {expression(then)}" for when, then in branches)
            return f"CASE {whens} ELSE {expression(otherwise)} END"


def predicate(found: Predicate) -> str:
    """A condition on rows."""
    match found:
        case Compare(left, op, right):
            op, right = normal.whole_numbers(left, op, right)
            return f"{expression(left)} {op.value} {expression(right)}"
        case Among(argument, values):
            return f"{expression(argument)} IN ({', '.join(map(expression, values))})"
        case Like(argument, pattern, fold_case):
            return f"{expression(argument)} {'ILIKE' if fold_case else 'LIKE'} {expression(pattern)}"
        case IsNull(argument):
            return f"{expression(argument)} IS NULL"
        case Always(value):
            return "true" if value else "false"
        case Not(part):
            return f"NOT ({predicate(part)})"
        case AllOf(parts):
            return _several(" AND ", parts)
        case AnyOf(parts):
            return _several(" OR ", parts)


def _several(word: str, parts: Sequence[Predicate]) -> str:
    """x > 17 and x >= 18 may have become one."""
    told = sorted({predicate(part) for part in parts})
    return told[0] if len(told) == 1 else f"({word.join(told)})"


def measure(found: Measure) -> str:
    """A sum over rows."""
    argument = "" if found.argument is None else expression(found.argument)
    match found.kind:
        case MeasureKind.ROWS:
            what = "count(*)"
        case MeasureKind.VALUES:
            what = f"count({argument})"
        case MeasureKind.UNITS:
            what = "count(DISTINCT unit)"
        case MeasureKind.TOTAL:
            what = f"sum({argument})"
        case MeasureKind.SQUARES:
            what = f"sum({argument} ^ 2)"
    return what if found.filter is None else f"{what} FILTER (WHERE {predicate(found.filter)})"


def statistic(question: Question, found: Statistic) -> str:
    """An integer combination of measures."""
    return " + ".join(
        f"{'' if factor == 1 else f'{factor} '}{measure(question.measures[place])}" for place, factor in found.terms
    )


def _literal(text: str | None, type_name: str) -> str:
    if text is None:
        return "NULL"
    if type_name in ("smallint", "integer", "bigint", "numeric", "boolean"):
        return text
    return "'" + text.replace("'", "''") + "'"
