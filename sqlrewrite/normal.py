"""The normal form of a question, and its fingerprint: what "the same question again" means.

NOT is pushed down to ``IN`` and ``IS NULL`` (all steps hold in three-valued logic), AND and OR are flattened,
sorted and freed of repetition, equalities of one column under OR become one ``IN``, numbers have one spelling.
"""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from typing import Any

from mechanisms.condition import And, Condition, Leaf, Or
from sqlrewrite.constant import INTEGERS, decimal, number_type
from sqlrewrite.decompose import NEGATED
from sqlrewrite.question import (
    AggregateColumn,
    AllOf,
    Among,
    AnyOf,
    Atom,
    Compare,
    Comparison,
    CountRows,
    IsNull,
    Literal,
    Not,
    Predicate,
    Question,
)


def normalise(part: Predicate, negated: bool = False) -> Predicate:
    """An equal predicate in normal form."""
    match part:
        case Compare(column, op, value):
            return Compare(column, NEGATED[op] if negated else op, _spelling(value))
        case Among(column, values):
            distinct = tuple(sorted({_spelling(value) for value in values}, key=_literal_order))
            if len(distinct) == 1:
                return Compare(column, Comparison.NE if negated else Comparison.EQ, distinct[0])
            among = Among(column, distinct)
            return Not(among) if negated else among
        case IsNull():
            return Not(part) if negated else part
        case Not(inner):
            return normalise(inner, not negated)
        case AllOf(parts) | AnyOf(parts):
            conjunction = isinstance(part, AllOf) is not negated
            return _join(conjunction, [normalise(inner, negated) for inner in parts])


def normal_condition(condition: Condition[Atom]) -> Condition[Atom]:
    """The same monotone tree, flattened, sorted and without repetition."""
    match condition:
        case Leaf():
            return condition
        case And(parts) | Or(parts):
            kind = type(condition)
            flat: set[Condition[Atom]] = set()
            for part in map(normal_condition, parts):
                flat.update(part.parts if isinstance(part, kind) else (part,))
            ordered = tuple(sorted(flat, key=lambda p: _dump(_condition(p))))
            return ordered[0] if len(ordered) == 1 else kind(ordered)


def fingerprint(question: Question) -> str:
    """A digest that equal questions share: names, order and limits of the output do not enter.

    *Guarantee*: equal fingerprints have the same cells in the same order, the same measured vector and the same
    sensitivity, so noise that was drawn for one may be shown for the other.
    """
    relation = question.relation
    shown = sorted({c.index for c in question.shape.columns if isinstance(c, AggregateColumn)})
    content = {
        "relation": relation.id,
        "unit": [relation.unit_column, relation.max_groups, relation.max_rows],
        "keys": [
            [key.name, key.constant_per_unit, None if key.keys is None else [_text(value) for value in key.keys]]
            for key in question.keys
        ],
        "where": None if question.where is None else _predicate(normalise(question.where)),
        "aggregates": [_aggregate(aggregate) for aggregate in question.aggregates],
        "having": None if question.having is None else _condition(normal_condition(question.having)),
        "shown": shown,
    }
    return hashlib.sha256(_dump(content).encode()).hexdigest()


def _join(conjunction: bool, parts: list[Predicate]) -> Predicate:
    kind = AllOf if conjunction else AnyOf
    flat: set[Predicate] = set()
    for part in parts:
        flat.update(part.parts if isinstance(part, kind) else (part,))
    if not conjunction:
        flat = _merged(flat)
    ordered = tuple(sorted(flat, key=lambda p: _dump(_predicate(p))))
    return ordered[0] if len(ordered) == 1 else kind(ordered)


def _merged(parts: set[Predicate]) -> set[Predicate]:
    """a = 1 OR a IN (2, 3) is a IN (1, 2, 3)."""
    rest: set[Predicate] = set()
    values: dict[str, set[Literal]] = {}
    for part in parts:
        match part:
            case Compare(column, Comparison.EQ, value):
                values.setdefault(column, set()).add(value)
            case Among(column, several):
                values.setdefault(column, set()).update(several)
            case _:
                rest.add(part)
    return rest | {normalise(Among(column, tuple(members))) for column, members in values.items()}


def _spelling(literal: Literal) -> Literal:
    if literal.type_name not in (*INTEGERS, "numeric") or literal.text is None:
        return literal
    value = decimal(literal)
    if value is None:
        return literal
    if abs(value) < 2**63 and value == value.to_integral_value():
        text = str(int(value))
        return Literal(text, number_type(text))
    # A context-free normalisation: Decimal.normalize would round to 28 digits.
    sign, digits, exponent = value.as_tuple()
    kept = "".join(map(str, digits)).rstrip("0") or "0"
    dropped = len(digits) - len(kept)
    return Literal(str(Decimal((sign, tuple(map(int, kept)), int(exponent) + dropped))), "numeric")


def _literal_order(literal: Literal) -> tuple[bool, str, str]:
    return literal.text is None, literal.type_name, literal.text or ""


def _predicate(part: Predicate) -> list[Any]:
    match part:
        case Compare(column, op, value):
            return [op.value, column, [value.text, value.type_name]]
        case Among(column, values):
            return ["in", column, [[value.text, value.type_name] for value in values]]
        case IsNull(column):
            return ["null", column]
        case Not(inner):
            return ["not", _predicate(inner)]
        case AllOf(parts):
            return ["and", [_predicate(inner) for inner in parts]]
        case AnyOf(parts):
            return ["or", [_predicate(inner) for inner in parts]]


def _condition(condition: Condition[Atom]) -> list[Any]:
    match condition:
        case Leaf(atom):
            return ["atom", atom.aggregate, atom.direction, atom.threshold]
        case And(parts):
            return ["and", [_condition(part) for part in parts]]
        case Or(parts):
            return ["or", [_condition(part) for part in parts]]


def _aggregate(aggregate: CountRows) -> list[str]:
    match aggregate:
        case CountRows():
            return ["count"]


def _text(value: object) -> list[str]:
    return [type(value).__name__, str(value)]


def _dump(content: Any) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
