"""The door: whole questions from their clauses, as analysts write them."""

from __future__ import annotations

from typing import Any

import pytest
from fragments import CATALOG, CUSTOMERS, ORDERS, ask, clauses

from mechanisms.errors import Refusal
from sqlrewrite.catalog import Catalog
from sqlrewrite.question import Form, MeasureKind, Unit
from sqlrewrite.read import read

KPIS: list[dict[str, Any]] = [
    {"aggregates": ["count(*)"]},
    {"keys": ["city"], "aggregates": ["count(*)", "avg(amount)"]},
    {"keys": ["date_trunc('month', ordered_on)"], "aggregates": ["sum(amount)", "count(DISTINCT customer_id)"]},
    {"keys": ["city", "extract(dow FROM ordered_on)"], "aggregates": ["count(*)"], "where": "amount > 10"},
    {"keys": ["width_bucket(amount, 0, 500, 20)"], "aggregates": ["count(*)"]},
    {"keys": ["CASE WHEN quantity < 3 THEN 'few' ELSE 'many' END"], "aggregates": ["avg(amount)"]},
    {"keys": ["quantity / 3"], "aggregates": ["count(*)"]},
    {"keys": ["city"], "having": "count(*) > 100 AND avg(amount) > 20"},
    {"keys": ["city"], "having": "count(*) > 100 OR sum(amount) > 5000"},
    {"keys": ["city"], "having": "count(*) FILTER (WHERE gift) > 0.2 * count(*)"},
    {"keys": ["city"], "having": "percentile_cont(0.9) WITHIN GROUP (ORDER BY amount) > 100 AND count(*) >= 50"},
    {
        "keys": ["city"],
        "having": "sum(amount) / count(DISTINCT customer_id) > 50 AND count(DISTINCT customer_id) >= 20",
    },
    {"from_": "orders o JOIN city c USING (city)", "keys": ["c.region"], "aggregates": ["sum(o.amount)"]},
    {
        "from_": "customers c JOIN orders o ON o.customer_id = c.id",
        "keys": ["c.segment"],
        "aggregates": ["avg(o.amount)"],
    },
    {"from_": "patients JOIN ward USING (disease)", "keys": ["disease", "capacity"], "having": "count(*) > capacity"},
    {"from_": "patients", "keys": ["disease"], "where": "age BETWEEN 18 AND 65", "having": "count(*) > 10"},
    {"keys": ["city", "gift"], "sets": ((0, 1), (0,), ()), "aggregates": ["count(*)"]},
    {"keys": ["city"]},
    {"where": "1 = 0", "aggregates": ["count(*)"]},
]


@pytest.mark.parametrize("parts", KPIS)
def test_what_analysts_write_is_read(parts: dict[str, Any]) -> None:
    question = ask(**parts)
    assert len(question.keys) == len(parts.get("keys", ()))
    assert len(question.columns) == len(parts.get("aggregates", ()))
    assert (question.having is None) is ("having" not in parts)
    used = {place for statistic in question.statistics for place, _ in statistic.terms}
    assert used == set(range(len(question.measures)))
    assert all(statistic.row_bound > 0 for statistic in question.statistics)
    assert ask(**parts) == question


@pytest.mark.parametrize("parts", KPIS)
def test_a_question_can_be_read_before_bind(parts: dict[str, Any]) -> None:
    assert ask(**parts, parameters=None) == ask(**parts)


def test_the_keys_keep_their_order() -> None:
    question = ask(keys=["gift", "city"])
    assert [key.expression.name for key in question.keys] == ["gift", "city"]  # type: ignore[union-attr]


def test_keys_alone_measure_nothing() -> None:
    question = ask(keys=["city"])
    assert question.measures == () and question.statistics == ()


def test_a_column_and_a_decision_share_their_measure() -> None:
    question = ask(keys=["city"], aggregates=["count(*)"], having="count(*) > 5 AND count(*) < 900")
    assert [measure.kind for measure in question.measures] == [MeasureKind.ROWS]
    assert len(question.statistics) == 1
    assert question.columns[0].form is Form.COUNT


def test_a_relation_of_another_catalog_is_unknown() -> None:
    stale = Catalog(1, (CUSTOMERS,))
    with pytest.raises(Refusal) as caught:
        read(clauses(), stale, lambda schema, name: ORDERS, ())
    assert caught.value.sqlstate == "42P01"
    assert read(clauses(), CATALOG, lambda schema, name: ORDERS, ()).unit != Unit()


def test_too_many_keys_or_measures_are_refused() -> None:
    with pytest.raises(Refusal):
        ask(keys=[f"quantity + {n}" for n in range(17)])
    with pytest.raises(Refusal):
        ask(aggregates=[f"sum(quantity + {n})" for n in range(70)])


@pytest.mark.parametrize(
    ("parts", "word"),
    [
        ({"keys": ["salary"]}, "salary"),
        ({"aggregates": ["sum(salary)"]}, "salary"),
        ({"having": "count(*) > 5 AND sum(salary) > 1"}, "salary"),
        ({"from_": "orders JOIN town USING (city)"}, "town"),
        ({"where": "quantity = 1 AND sqrt(quantity) > 1"}, "sqrt"),
    ],
)
def test_a_refusal_points_into_the_statement(parts: dict[str, Any], word: str) -> None:
    with pytest.raises(Refusal) as caught:
        ask(**parts, start=1000)
    (text,) = [value if isinstance(value, str) else value[0] for value in parts.values()]
    assert caught.value.position == 1000 + text.index(word) + 1
