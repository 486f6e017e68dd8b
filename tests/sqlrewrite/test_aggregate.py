"""Aggregates: PostgreSQL's types, shared measures, public bounds."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from fragments import Shop, ask

from mechanisms.errors import Refusal
from sqlrewrite.question import ColumnRef, Form, Measure, MeasureKind, Statistic

AGGREGATES = [
    "count(*)", "COUNT(*)", "count(1)", "count(amount)", "count(quantity)", "count(ALL amount)",
    "count(DISTINCT customer_id)", "count(DISTINCT order_id)", "count(*) FILTER (WHERE gift)",
    "count(category) FILTER (WHERE amount > 5)", "sum(quantity)", "sum(small)", "sum(big)", "sum(amount)",
    "sum(weight)", "sum(wide)", "sum(amount * quantity)", "sum(amount - discount)",
    "sum(CASE WHEN gift THEN 1 ELSE 0 END)", "sum(CASE WHEN gift THEN amount END)", "sum(coalesce(amount, 0))",
    "sum(quantity) FILTER (WHERE city = 'Ulm' AND gift)", "sum(quantity + 1)", "sum(quantity / 2)", "sum(2)",
    "sum(0.5 * quantity)", "sum(extract(dow FROM ordered_on))", "avg(quantity)", "avg(small)", "avg(big)",
    "avg(amount)", "avg(weight)", "avg(wide)", "avg(amount) FILTER (WHERE gift)", "avg(amount * quantity)",
    "variance(quantity)", "var_samp(amount)", "var_pop(amount)", "stddev(quantity)", "stddev_samp(amount)",
    "stddev_pop(weight)", "stddev_pop(quantity)", "(count(*))", "sum((quantity))", "avg(abs(discount))",
    "sum(gift::int)",
]  # fmt: skip


@pytest.mark.parametrize("text", AGGREGATES)
def test_the_type_is_postgresqls(text: str, shop: Shop) -> None:
    (column,) = ask(aggregates=[text]).columns
    assert column.type_name == shop.type_of(text)
    assert column.text == text


REFUSED = [
    ("min(amount)", "0A000"),
    ("max(amount)", "0A000"),
    ("string_agg(city, ',')", "42501"),
    ("array_agg(city)", "42501"),
    ("json_agg(city)", "42501"),
    ("jsonb_agg(city)", "42501"),
    ("mode() WITHIN GROUP (ORDER BY city)", "42501"),
    ("any_value(city)", "42501"),
    ("percentile_cont(0.5) WITHIN GROUP (ORDER BY amount)", "0A000"),
    ("percentile_disc(0.5) WITHIN GROUP (ORDER BY amount)", "0A000"),
    ("count(DISTINCT city)", "0A000"),
    ("count(DISTINCT amount)", "0A000"),
    ("count(DISTINCT (city, gift))", "0A000"),
    ("count(city, gift)", "0A000"),
    ("sum(DISTINCT quantity)", "0A000"),
    ("avg(DISTINCT quantity)", "0A000"),
    ("sum(quantity ORDER BY city)", "0A000"),
    ("sum(rating)", "0A000"),  # no declared bounds
    ("avg(rating)", "0A000"),
    ("sum(city)", "0A000"),
    ("sum(gift)", "0A000"),
    ("sum(ordered_on)", "0A000"),
    ("sum(shipped)", "0A000"),
    ("sum(quantity) OVER ()", "0A000"),
    ("sum(sum(quantity))", "0A000"),
    ("sum(count(*))", "0A000"),
    ("count(*) FILTER (WHERE count(*) > 1)", "0A000"),
    ("count(*) FILTER (WHERE quantity IN (SELECT 1))", "0A000"),
    ("bool_and(gift)", "0A000"),
    ("every(gift)", "0A000"),
    ("corr(amount, discount)", "0A000"),
    ("bit_or(quantity)", "42501"),
    ("xmlagg(note)", "42501"),
    ("pg_catalog.count(*)", "0A000"),
    ("my_sum(quantity)", "0A000"),
    ("jsonb_object_agg(city, note)", "42501"),
    ("count()", "42601"),
    ("sum(salary)", "42703"),
    ("sum(*)", "0A000"),
    ("count(orders)", "42501"),
    ("count(orders.*)", "42501"),
    ("quantity", "0A000"),
    ("1", "0A000"),
]


@pytest.mark.parametrize(("text", "sqlstate"), REFUSED)
def test_an_aggregate_without_a_private_form_is_refused(text: str, sqlstate: str) -> None:
    with pytest.raises(Refusal) as caught:
        ask(aggregates=[text])
    assert caught.value.sqlstate == sqlstate, caught.value.message


def test_equal_measures_are_measured_once() -> None:
    question = ask(aggregates=["avg(amount)", "sum(amount)", "count(amount)", "count(*)", "stddev(amount)"])
    kinds = sorted(measure.kind.value for measure in question.measures)
    assert kinds == ["rows", "squares", "total", "values"]
    assert len(question.statistics) == 4
    average = question.columns[0]
    assert average.form is Form.AVG
    assert [question.measures[place].kind for place in average.measures] == [MeasureKind.TOTAL, MeasureKind.VALUES]


def test_the_order_of_the_text_does_not_order_the_measures() -> None:
    one = ask(aggregates=["sum(quantity)", "count(*)", "avg(amount)"])
    other = ask(aggregates=["avg(amount)", "count(*)", "sum(quantity)"])
    assert one.measures == other.measures
    assert one.statistics == other.statistics


def test_a_column_that_is_never_null_is_counted_by_rows() -> None:
    (column,) = ask(aggregates=["avg(quantity)"]).columns
    question = ask(aggregates=["avg(quantity)", "count(quantity)", "count(*)", "count(1)"])
    assert len(question.measures) == 2
    assert column.form is Form.AVG
    outer = ask("patients LEFT JOIN ward USING (disease)", aggregates=["count(ward.capacity)"])
    assert outer.measures[0].kind is MeasureKind.VALUES


def test_bounds_and_lattice_follow_from_the_declaration() -> None:
    question = ask(aggregates=["sum(amount)"])
    assert question.measures == (
        Measure(
            MeasureKind.TOTAL,
            ColumnRef(0, "amount", "numeric(8,2)"),
            None,
            Decimal(0),
            Decimal(500),
            Fraction(1, 100),
        ),
    )
    assert question.statistics == (Statistic(((0, 1),), 50_000),)


def test_a_missing_bound_comes_with_the_administrators_fix() -> None:
    with pytest.raises(Refusal) as caught:
        ask(aggregates=["sum(rating)"])
    assert "provenance.declare_attribute" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("from_", "text"),
    [
        ("orders", "count(DISTINCT customer_id)"),
        ("orders JOIN customers ON customer_id = id", "count(DISTINCT id)"),
        ("orders JOIN customers ON customer_id = id", "count(DISTINCT customer_id)"),
        ("visits JOIN patients ON patient = id", "count(DISTINCT patient)"),
        ("visits JOIN patients ON patient = id", "count(DISTINCT id)"),
    ],
)
def test_distinct_units_are_counted_by_any_of_their_names(from_: str, text: str) -> None:
    assert [measure.kind for measure in ask(from_, aggregates=[text]).measures] == [MeasureKind.UNITS]


def test_a_filter_that_is_always_true_is_none() -> None:
    assert ask(aggregates=["count(*) FILTER (WHERE 1 = 1)"]).measures == ask(aggregates=["count(*)"]).measures
