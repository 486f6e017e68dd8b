"""The fingerprint: one for all spellings of a question, another for another question."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from fragments import CITY, ORDERS, ask

from sqlrewrite.normal import _dump, _predicate, condition_text, fingerprint, normalise
from sqlrewrite.question import (
    AllOf,
    Always,
    Among,
    AnyOf,
    Case,
    Cast,
    ColumnRef,
    Compare,
    Comparison,
    Expression,
    IsNull,
    Literal,
    Not,
    Predicate,
    Question,
    Source,
)

SAME: list[list[dict[str, Any]]] = [
    [
        {"where": "quantity BETWEEN 2 AND 8", "keys": ["city"], "having": "count(*) > 500"},
        {
            "from_": "public.orders o",
            "where": "2 <= o.quantity AND quantity <= 8.0",
            "keys": ["o.city"],
            "having": "501 <= count(*)",
        },
        {"where": "NOT (quantity < 2 OR NOT quantity <= 8)", "keys": ["city"], "having": "NOT count(*) <= 500"},
        {
            "where": "quantity <= 8 AND (quantity >= 2 AND quantity <= 8)",
            "keys": ["(city)"],
            "having": "count(*) > 500.3",
        },
        {"where": "quantity BETWEEN 2 AND 8", "keys": ["city"], "having": "count(*) > 500 AND count(*) > 3"},
    ],
    [
        {"where": "city = 'Ulm' OR city = 'Bonn'", "keys": ["city", "gift"], "aggregates": ["count(*)", "sum(amount)"]},
        {
            "where": "city IN ('Bonn', 'Ulm', 'Bonn')",
            "keys": ["gift", "city"],
            "aggregates": ["sum(amount)", "count(*)"],
        },
        {
            "where": "NOT (city <> 'Ulm' AND NOT city = 'Bonn')",
            "keys": ["gift", "city"],
            "aggregates": ["count(1)", "sum(amount)"],
        },
    ],
    [
        {"keys": ["city"], "having": "avg(quantity) > 3 AND count(*) > 9"},
        {"keys": ["city"], "having": "count(*) >= 10 AND 3 < avg(quantity)"},
        {"keys": ["city"], "having": "count(*) >= 10 AND 1.0 * sum(quantity) / count(*) > 3.00"},
    ],
    [
        {"keys": ["city", "gift"], "sets": ((0,), (1,), ()), "aggregates": ["count(*)"]},
        {"keys": ["gift", "city"], "sets": ((), (0,), (1,)), "aggregates": ["count(*)"]},
    ],
    [  # a bound on whole numbers has four spellings, and one with a fraction
        {"keys": ["city"], "where": "quantity > 2 AND quantity < 8"},
        {"keys": ["city"], "where": "quantity >= 3 AND quantity <= 7"},
        {"keys": ["city"], "where": "quantity > 2.5 AND NOT quantity >= 7.01"},
        {"keys": ["city"], "where": "quantity BETWEEN 3 AND 7 AND quantity > 2 AND 8 > quantity"},
    ],
    [
        {"keys": ["city"], "where": "ordered_on > '2024-02-28' AND ordered_on < '2025-01-01'"},
        {"keys": ["city"], "where": "ordered_on BETWEEN '2024-02-29' AND '2024-12-31'"},
    ],
    [
        {"keys": ["city"], "aggregates": ["count(*) FILTER (WHERE quantity > 2)"]},
        {"keys": ["city"], "aggregates": ["count(*) FILTER (WHERE quantity >= 3)"]},
    ],
]

OTHERS: list[dict[str, Any]] = [
    {"keys": ["city"], "having": "count(*) > 500"},
    {"keys": ["city"], "having": "count(*) > 501"},
    {"keys": ["city"], "having": "count(*) < 501"},
    {"keys": ["city"], "having": "sum(quantity) > 500"},
    {"keys": ["city"], "having": "count(*) > 500", "aggregates": ["count(*)"]},
    {"keys": ["gift"], "having": "count(*) > 500"},
    {"keys": ["city", "gift"], "having": "count(*) > 500"},
    {"keys": ["city", "gift"], "sets": ((0,), (1,)), "having": "count(*) > 500"},
    {"keys": ["city"], "where": "quantity > 5", "having": "count(*) > 500"},
    {"keys": ["city"], "where": "quantity >= 5", "having": "count(*) > 500"},
    {"keys": ["city"], "where": "quantity >= 7", "having": "count(*) > 500"},
    {"keys": ["city"], "where": "quantity < 5", "having": "count(*) > 500"},
    {"keys": ["city"], "where": "quantity <= 5", "having": "count(*) > 500"},
    {"keys": ["city"], "where": "amount > 5", "having": "count(*) > 500"},
    {"keys": ["city"], "where": "amount >= 6", "having": "count(*) > 500"},
    {"keys": ["city"], "where": "ordered_on > '2025-01-31'", "having": "count(*) > 500"},
    {"keys": ["city"], "where": "ordered_on >= '2025-01-31'", "having": "count(*) > 500"},
    {"keys": ["city"], "where": "ordered_on < '2025-01-31'", "having": "count(*) > 500"},
    {"keys": ["city"], "where": "note = '5'", "having": "count(*) > 500"},
    {"keys": ["city"], "where": "note = ' 5'", "having": "count(*) > 500"},
    {"keys": ["city"], "where": "note = NULL", "having": "count(*) > 500"},
    {"keys": ["city"], "where": "note = 'NULL'", "having": "count(*) > 500"},
    {"keys": ["city"], "where": "note IS NULL", "having": "count(*) > 500"},
    {"keys": ["city"], "where": "note LIKE 'a'", "having": "count(*) > 500"},
    {"keys": ["city"], "where": "note ILIKE 'a'", "having": "count(*) > 500"},
    {"keys": ["upper(city)"], "having": "count(*) > 500"},
    {"from_": "orders JOIN city USING (city)", "keys": ["orders.city"], "having": "count(*) > 500"},
    {"from_": "orders LEFT JOIN city USING (city)", "keys": ["orders.city"], "having": "count(*) > 500"},
    {"keys": ["quantity / 2"]},
    {"keys": ["quantity / 2.0"]},
    {"keys": ["extract(year FROM ordered_on)"]},
    {"keys": ["date_part('year', ordered_on)"]},
    {"keys": ["city"], "aggregates": ["sum(quantity)"]},
    {"keys": ["city"], "aggregates": ["sum(quantity) FILTER (WHERE gift)"]},
    {"keys": ["city"], "aggregates": ["count(amount)"]},
]


def digest(question: Question) -> str:
    return fingerprint(question).digest


@pytest.mark.parametrize("spellings", SAME)
def test_all_spellings_of_a_question_have_one_fingerprint(spellings: list[dict[str, Any]]) -> None:
    assert len({digest(ask(**parts)) for parts in spellings}) == 1


def test_different_questions_have_different_fingerprints() -> None:
    assert len({digest(ask(**parts)) for parts in OTHERS}) == len(OTHERS)


def test_the_key_order_leads_to_the_same_keys() -> None:
    one, other = ask(keys=["gift", "city", "quantity"]), ask(keys=["quantity", "gift", "city"])

    def ordered(question: Question) -> list[Any]:
        return [question.keys[place].expression for place in fingerprint(question).key_order]

    assert digest(one) == digest(other)
    assert ordered(one) == ordered(other)
    assert sorted(fingerprint(one).key_order) == [0, 1, 2]


def test_a_threshold_follows_its_key() -> None:
    table = "patients p JOIN ward w ON p.disease = w.disease"
    one = ask(table, keys=["p.disease", "w.capacity"], having="count(*) > w.capacity")
    other = ask(table, keys=["w.capacity", "p.disease"], having="count(*) > w.capacity")
    assert digest(one) == digest(other)


def test_a_parameter_is_the_same_question_as_its_constant() -> None:
    bound = [Literal("500", "bigint"), Literal("8", "integer")]
    asked = ask(keys=["gift"], where="quantity > $2", having="count(*) > $1", parameters=bound)
    assert digest(asked) == digest(ask(keys=["gift"], where="quantity > 8", having="count(*) > 500"))


def test_what_changes_cells_or_sensitivity_changes_the_fingerprint() -> None:
    question = ask("orders JOIN city USING (city)", keys=["orders.city"], aggregates=["sum(amount)"])

    def declared(**changed: Any) -> Question:
        attributes = {**ORDERS.attributes, "city": replace(ORDERS.attributes["city"], **changed)}
        first = Source(replace(ORDERS, attributes=attributes))
        return replace(question, sources=(first, *question.sources[1:]))

    newer = replace(question.sources[1], relation=replace(CITY, data_version=2))
    (measure,) = question.measures
    others = [
        declared(domain=("Bonn", "Ulm")),
        declared(not_null=False),
        declared(constant_per_unit=True),
        replace(question, unit=replace(question.unit, max_rows=9)),
        replace(question, unit=replace(question.unit, max_groups=9)),
        replace(question, sources=(Source(replace(ORDERS, id=99)), question.sources[1])),
        replace(question, sources=(question.sources[0], newer)),
        replace(question, measures=(replace(measure, upper=measure.upper * 2),)),
        replace(question, measures=(replace(measure, unit=measure.unit * 2),)),
        replace(question, statistics=(replace(question.statistics[0], row_bound=1),)),
    ]
    assert len({digest(each) for each in (question, *others)}) == len(others) + 1


def test_a_refreshed_parent_makes_another_question() -> None:
    """Attack: stale answers. A protected parent's data version is told nowhere else in an answer's key."""
    question = ask("orders o JOIN city c ON o.city = c.city")
    parent = replace(question.sources[1], relation=replace(ORDERS, data_version=1))
    refreshed = replace(parent, relation=replace(ORDERS, data_version=2))
    before, after = (replace(question, sources=(question.sources[0], source)) for source in (parent, refreshed))
    assert digest(before) != digest(after)


def test_the_normal_form_is_stable() -> None:
    for parts in (*OTHERS, *(each for group in SAME for each in group)):
        where = ask(**parts).where
        assert where is None or normalise(where) == where


TYPES = ("integer", "bigint", "numeric", "text", "date", "character varying(5)")
TEXTS = ("1", "17", "18", "17.0", "17.5", "9999999999", "2020-01-01", "2020-01-02", 'a"b', "\xe9", "x" * 99, None)


def expression(dice: random.Random, depth: int) -> Expression:
    kind, type_name = dice.random(), dice.choice(TYPES)
    if depth == 0 or kind < 0.5:
        return ColumnRef(0, dice.choice("abc"), type_name)
    if kind < 0.7:
        return Literal(dice.choice(TEXTS), type_name)
    if kind < 0.9:
        return Cast(expression(dice, depth - 1), type_name)
    return Case(((predicate(dice, depth - 1), expression(dice, 0)),), expression(dice, 0), type_name)


def predicate(dice: random.Random, depth: int) -> Predicate:
    kind, constants = dice.random(), [Literal(dice.choice(TEXTS), dice.choice(TYPES)) for _ in range(3)]
    if depth == 0 or kind < 0.4:
        right = dice.choice((constants[0], expression(dice, 1)))
        return Compare(expression(dice, 1), dice.choice(list(Comparison)), right)
    if kind < 0.5:
        return Among(expression(dice, 1), tuple(constants))
    if kind < 0.55:
        return Always(dice.random() < 0.5)
    if kind < 0.6:
        return IsNull(expression(dice, 1))
    if kind < 0.7:
        return Not(predicate(dice, depth - 1))
    joined = dice.choice((AllOf, AnyOf))
    return joined(tuple(predicate(dice, depth - 1) for _ in range(dice.randint(1, 4))))


def test_the_text_of_a_condition_is_that_of_its_lists() -> None:
    dice = random.Random(5)
    for _ in range(2000):
        part = predicate(dice, dice.randint(0, 4))
        for each in (part, normalise(part)):
            assert condition_text(each) == _dump(_predicate(each))
