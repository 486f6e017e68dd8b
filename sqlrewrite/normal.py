"""The normal form of a question, and its fingerprint: what "the same question again" means.

NOT is pushed down to ``IN``, ``LIKE`` and ``IS NULL`` (all steps hold in three-valued logic), AND and OR are flattened,
sorted and freed of repetition, equalities of one expression under OR become one ``IN``, numbers that are compared have
one spelling, and in the fingerprint a bound on whole numbers or days is told as the last one inside.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

from mechanisms.condition import And, Condition, Leaf, Or
from sqlrewrite.constant import INTEGERS, base_type, decimal, number_type
from sqlrewrite.question import (
    AllOf,
    Always,
    Among,
    AnyOf,
    Atom,
    Call,
    Case,
    Cast,
    ColumnRef,
    Compare,
    Comparison,
    Expression,
    GroupKey,
    IsNull,
    KeyThreshold,
    Like,
    Literal,
    Measure,
    Not,
    Predicate,
    Question,
    Source,
    Statistic,
)
from sqlrewrite.walk import columns

_GT, _GE, _LT, _LE, _EQ, _NE = Comparison
_REMEMBERED = 64  # characters of a constant
_NEGATED = {_GT: _LE, _GE: _LT, _LT: _GE, _LE: _GT, _EQ: _NE, _NE: _EQ}
_FLIPPED = {_GT: _LT, _GE: _LE, _LT: _GT, _LE: _GE, _EQ: _EQ, _NE: _NE}


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """``key_order[i]`` is the place in ``Question.keys`` of the key that stands i-th in the canonical order."""

    digest: str
    key_order: tuple[int, ...]


def normalise(part: Predicate, negated: bool = False) -> Predicate:
    """An equal predicate in normal form."""
    match part:
        case Compare(left, op, right):
            return _comparison(simplest(left), _NEGATED[op] if negated else op, simplest(right))
        case Among(argument, values):
            argument = simplest(argument)
            distinct = tuple(sorted({_spelling(value, argument) for value in values}, key=_literal_order))
            if len(distinct) == 1:
                return Compare(argument, _NE if negated else _EQ, distinct[0])
            among = Among(argument, distinct)
            return Not(among) if negated else among
        case Like(argument, pattern, fold_case):
            like = Like(simplest(argument), pattern, fold_case)
            return Not(like) if negated else like
        case IsNull(argument):
            null = IsNull(simplest(argument))
            return Not(null) if negated else null
        case Always(value):
            return Always(value is not negated)
        case Not(inner):
            return normalise(inner, not negated)
        case AllOf(parts) | AnyOf(parts):
            conjunction = isinstance(part, AllOf) is not negated
            return _join(conjunction, [normalise(inner, negated) for inner in parts])


def simplest(found: Expression) -> Expression:
    """An equal expression whose conditions are in normal form."""
    match found:
        case Literal() | ColumnRef():
            return found
        case Call(function, arguments, type_name):
            return Call(function, tuple(simplest(argument) for argument in arguments), type_name)
        case Cast(argument, type_name):
            return Cast(simplest(argument), type_name)
        case Case(branches, otherwise, type_name):
            whens = tuple((normalise(when), simplest(then)) for when, then in branches)
            return Case(whens, simplest(otherwise), type_name)


def normal_condition(condition: Condition[Atom]) -> Condition[Atom]:
    """The same monotone tree, flattened, sorted and without repetition."""
    match condition:
        case Leaf():
            return condition
        case And(parts) | Or(parts):
            kind = type(condition)
            flat: dict[str, Condition[Atom]] = {}
            for part in map(normal_condition, parts):
                for each in part.parts if isinstance(part, kind) else (part,):
                    flat.setdefault(_dump(_condition(each)), each)
            ordered = tuple(flat[key] for key in sorted(flat))
            return ordered[0] if len(ordered) == 1 else kind(ordered)


def fingerprint(question: Question) -> Fingerprint:
    """A digest that equal questions share: names, order and limits of the output do not enter.

    *Guarantee*: equal fingerprints have the same cells (with keys in ``key_order``), the same measured vectors in the
    same order and the same sensitivity, so noise that was drawn for one may be shown for the other.
    """
    content, key_order = _content(question)
    where = None if question.where is None else normalise(question.where)
    return Fingerprint(digest(content, condition_text(where)), key_order)


def frame(question: Question) -> str:
    """All that the fingerprint of a question is of, but for its WHERE: see ``digest``."""
    return _content(question)[0]


def condition_text(where: Predicate | None) -> str:
    """A WHERE in normal form as it enters the fingerprint."""
    return "null" if where is None else _text(where)


def digest(frame_: str, condition: str) -> str:
    """The fingerprint's digest of a question with this frame and this condition."""
    return hashlib.sha256(f"{frame_}{condition}}}".encode()).hexdigest()


def _content(question: Question) -> tuple[str, tuple[int, ...]]:
    keys = [_key(key, question.sources) for key in question.keys]
    key_order = tuple(sorted(range(len(keys)), key=lambda place: (_dump(keys[place]), place)))
    places = {old: new for new, old in enumerate(key_order)}
    wanted = {terms for column in question.columns for terms in column.wanted}
    shown = [place for place, statistic in enumerate(question.statistics) if statistic.terms in wanted]
    unit = question.unit
    content = {
        "sources": [_source(source) for source in question.sources],
        "unit": [
            None if unit.column is None else [_expression(part) for part in unit.column],
            unit.max_groups,
            unit.max_rows,
        ],
        "keys": [keys[old] for old in key_order],
        "sets": sorted(sorted(places[key] for key in each) for each in question.sets),
        "measures": [measure_form(measure) for measure in question.measures],
        "statistics": [_statistic(statistic) for statistic in question.statistics],
        "having": None if question.having is None else _condition(normal_condition(question.having), places),
        "shown": shown,
    }
    # The names are written in their order, and "where" would be the last of them.
    return _dump(content)[:-1] + ',"where":', key_order


def measure_form(measure: Measure) -> list[Any]:
    """A measure as plain lists: its canonical order and its part of the fingerprint."""
    return [
        measure.kind.value,
        None if measure.argument is None else _expression(measure.argument),
        None if measure.filter is None else _predicate(measure.filter),
        str(measure.lower),
        str(measure.upper),
        str(measure.unit),
    ]


def order_of(content: Any) -> str:
    """A text to sort by."""
    return _dump(content)


def _small(left: Expression, right: Expression) -> bool:
    """A column and a bound, which may come again in other ranges; what is remembered must not be long."""
    return isinstance(left, ColumnRef) and isinstance(right, Literal) and len(right.text or "") <= _REMEMBERED


def _bound(left: Expression, op: Comparison, right: Literal) -> Compare:
    return Compare(left, op, _spelling(right, left))


def _spelled(part: Compare) -> tuple[str, str]:
    return (_known_spelling if _small(part.left, part.right) else _spell)(part)


def _spell(part: Compare) -> tuple[str, str]:
    return _dump(_predicate(part)), repr(part)


_known_bound = lru_cache(maxsize=4096)(_bound)
_known_spelling = lru_cache(maxsize=4096)(_spell)


def _order(part: Predicate) -> tuple[str, str]:
    return _spelled(part) if isinstance(part, Compare) else (_text(part), repr(part))


def _text(part: Predicate) -> str:
    """``_dump`` of the predicate, put together from its parts."""
    match part:
        case Compare():
            return _spelled(part)[0]
        case AllOf(parts) | AnyOf(parts):
            texts = sorted({_text(inner) for inner in parts})
            word = "and" if isinstance(part, AllOf) else "or"
            return texts[0] if len(texts) == 1 else f'["{word}",[{",".join(texts)}]]'
        case _:
            return _dump(_predicate(part))


def _comparison(left: Expression, op: Comparison, right: Expression) -> Predicate:
    if isinstance(right, Literal):
        return (_known_bound if _small(left, right) else _bound)(left, op, right)
    turned = op in (_GT, _GE) or (op in (_EQ, _NE) and _dump(_expression(right)) < _dump(_expression(left)))
    if turned and columns(right):  # a constant stands on the right
        return Compare(right, _FLIPPED[op], left)
    return Compare(left, op, right)


def _join(conjunction: bool, parts: Sequence[Predicate]) -> Predicate:
    kind = AllOf if conjunction else AnyOf
    flat: set[Predicate] = set()
    for part in parts:
        flat.update(part.parts if isinstance(part, kind) else (part,))
    if Always(not conjunction) in flat:
        return Always(not conjunction)
    flat.discard(Always(conjunction))
    if not flat:
        return Always(conjunction)
    flat = _merged(flat, _NE if conjunction else _EQ)
    # x < 8 and x <= 7 have one form: their spelling settles the order, or it would be that of a set.
    ordered = tuple(sorted(flat, key=_order))
    return ordered[0] if len(ordered) == 1 else kind(ordered)


def _merged(parts: set[Predicate], op: Comparison) -> set[Predicate]:
    """a = 1 OR a IN (2, 3) is a IN (1, 2, 3); with ``op`` <> and AND, NOT IN."""
    rest: set[Predicate] = set()
    values: dict[Expression, set[Literal]] = {}
    for part in parts:
        match part:
            case Compare(left, found, Literal() as value) if found is op:
                values.setdefault(left, set()).add(value)
            case Among(argument, several) if op is _EQ:
                values.setdefault(argument, set()).update(several)
            case Not(Among(argument, several)) if op is _NE:
                values.setdefault(argument, set()).update(several)
            case _:
                rest.add(part)
    merged = (normalise(Among(argument, tuple(members)), op is _NE) for argument, members in values.items())
    return rest | set(merged)


def _spelling(literal: Literal, beside: Expression) -> Literal:
    """One spelling for 65, 65.0 and 6.5e1, which compare alike with numbers."""
    exact = (*INTEGERS, "numeric")
    if literal.type_name not in exact or base_type(beside.type_name) not in exact or literal.text is None:
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


def _source(source: Source) -> list[Any]:
    relation = source.relation
    # The first table's version is part of what an answer is stored under; a joined one's (a protected parent's too)
    # counts here, or a refreshed parent would leave old answers standing.
    version = relation.data_version if source.on else None
    return [relation.id, version, [[_expression(left), right] for left, right in source.on], source.outer]


def _key(key: GroupKey, sources: Sequence[Source]) -> list[Any]:
    """The key with what is declared about its columns: another domain makes other cells."""
    used: dict[str, list[Any]] = {}
    for column in sorted(columns(key.expression), key=lambda ref: (ref.source, ref.name)):
        source = sources[column.source]
        attribute = source.relation.attributes[column.name]
        domain = None if attribute.domain is None else [[type(v).__name__, str(v)] for v in attribute.domain]
        used[_dump(_expression(column))] = [
            attribute.not_null,
            domain,
            str(attribute.lower),
            str(attribute.upper),
            attribute.constant_per_unit,
        ]
    return [_expression(key.expression), key.constant_per_unit, key.open, used]


def _expression(found: Expression) -> list[Any]:
    match found:
        case Literal(text, type_name):
            return ["literal", text, type_name]
        case ColumnRef(source, name, type_name):
            return ["column", source, name, type_name]
        case Call(function, arguments, type_name):
            return ["call", function, [_expression(argument) for argument in arguments], type_name]
        case Cast(argument, type_name):
            return ["cast", _expression(argument), type_name]
        case Case(branches, otherwise, type_name):
            whens = [[_predicate(when), _expression(then)] for when, then in branches]
            return ["case", whens, _expression(otherwise), type_name]


def _predicate(part: Predicate) -> list[Any]:
    match part:
        case Compare(left, op, right):
            op, right = whole_numbers(left, op, right)
            return [op.value, _expression(left), _expression(right)]
        case Among(argument, values):
            return ["in", _expression(argument), [[value.text, value.type_name] for value in values]]
        case Like(argument, pattern, fold_case):
            return ["ilike" if fold_case else "like", _expression(argument), pattern.text]
        case IsNull(argument):
            return ["null", _expression(argument)]
        case Always(value):
            return ["always", value]
        case Not(inner):
            return ["not", _predicate(inner)]
        case AllOf(parts):
            return _several("and", parts)
        case AnyOf(parts):
            return _several("or", parts)


def _several(word: str, parts: Sequence[Predicate]) -> list[Any]:
    """Predicates of one connective; x > 17 and x >= 18 may have become one."""
    forms = {_dump(form): form for form in map(_predicate, parts)}
    ordered = [forms[key] for key in sorted(forms)]
    return ordered[0] if len(ordered) == 1 else [word, ordered]


def whole_numbers(left: Expression, op: Comparison, right: Expression) -> tuple[Comparison, Expression]:
    """One form for x > 17 and x >= 18 where x is a column of whole numbers or of days."""
    if not isinstance(left, ColumnRef) or not isinstance(right, Literal) or op in (_EQ, _NE):
        return op, right
    up, type_name = op in (_GT, _GE), base_type(left.type_name)
    if type_name in INTEGERS and right.type_name in (*INTEGERS, "numeric"):
        value = decimal(right)
        if value is None:
            return op, right
        bound = math.ceil(value) if up else math.floor(value)
        if value == bound:
            bound += {_GT: 1, _LT: -1}.get(op, 0)
        return (_GE if up else _LE), Literal(str(bound), number_type(str(bound)))
    if type_name == "date" and right.type_name == "date" and op in (_GT, _LT):
        try:
            day = date.fromisoformat(right.text or "") + timedelta(days=1 if up else -1)
        except (ValueError, OverflowError):  # infinity, years before Christ: they stay as they are
            return op, right
        return (_GE if up else _LE), Literal(day.isoformat(), "date")
    return op, right


def _statistic(statistic: Statistic) -> list[Any]:
    return [[list(term) for term in statistic.terms], statistic.row_bound]


def _condition(condition: Condition[Atom], places: dict[int, int] | None = None) -> list[Any]:
    match condition:
        case Leaf(atom):
            threshold: Any = atom.threshold
            if isinstance(threshold, KeyThreshold):
                key = places[threshold.key] if places is not None else threshold.key
                threshold = [key, str(threshold.factor), threshold.strict]
            return ["atom", atom.statistic, atom.direction, threshold, atom.average]
        case And(parts):
            return ["and", sorted((_condition(part, places) for part in parts), key=_dump)]
        case Or(parts):
            return ["or", sorted((_condition(part, places) for part in parts), key=_dump)]


def _dump(content: Any) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
