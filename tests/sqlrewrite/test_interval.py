"""Bounds and lattice of an expression, from declarations alone; random rows never leave them."""

from __future__ import annotations

import random
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from plain_sql import sql
from survey import SOURCES, VISIT, Laboratory, Maker, column, fill, text, whole

from sqlrewrite.errors import NotAnswered
from sqlrewrite.interval import MOST_STEPS, Interval, interval, reach, squares
from sqlrewrite.question import Call, Case, Cast, Expression, IsNull, Literal, Source

CENT = Fraction(1, 100)
COST, SCORE, RANK = column(0, "cost"), column(0, "score"), column(0, "rank")


@pytest.mark.parametrize(
    ("expression", "lower", "upper", "unit"),
    [
        (SCORE, -5, 10, Fraction(1)),
        (COST, 0, 50, CENT),
        (Call("*", (COST, RANK), "numeric"), 0, 200, CENT),
        (Call("*", (COST, COST), "numeric"), 0, 2500, CENT**2),
        (Call("*", (SCORE, SCORE), "integer"), -50, 100, Fraction(1)),
        (Call("-", (SCORE, RANK), "integer"), -9, 9, Fraction(1)),
        (Call("-", (SCORE,), "integer"), -10, 5, Fraction(1)),
        (Call("/", (SCORE, whole(4)), "integer"), -1, 2, Fraction(1)),
        (Call("%", (SCORE, whole(4)), "integer"), -4, 4, Fraction(1)),
        (Call("abs", (SCORE,), "integer"), 0, 10, Fraction(1)),
        (Call("round", (COST, whole(0)), "numeric"), 0, 50, Fraction(1)),
        (Call("coalesce", (SCORE, whole(99)), "integer"), -5, 99, Fraction(1)),
        (Call("+", (COST, Literal("0.125", "numeric")), "numeric"),
         Decimal("0.125"), Decimal("50.125"), Fraction(1, 1000)),
        (Case(((IsNull(COST), whole(1)),), Literal(None, "integer"), "integer"), 1, 1, Fraction(1)),
        (Cast(column(0, "paid"), "integer"), 0, 1, Fraction(1)),
        (Cast(COST, "integer"), 0, 50, Fraction(1)),
        (Call("width_bucket", (column(0, "rate"), whole(0), whole(1), whole(9)), "integer"), 0, 10, Fraction(1)),
        (Call("extract", (text("month"), column(0, "seen")), "numeric"), 1, 12, Fraction(1)),
        (Call("extract", (text("year"), column(0, "day")), "numeric"), 2024, 2024, Fraction(1)),
        (Call("length", (column(0, "ward"),), "integer"), 0, 4, Fraction(1)),
        (Call("length", (column(0, "town"),), "integer"), 3, 4, Fraction(1)),
        (Call("-", (column(0, "day"), column(0, "day")), "integer"), -5, 5, Fraction(1)),
        (Call("nullif", (SCORE, whole(0)), "integer"), -5, 10, Fraction(1)),
    ],
    ids=repr,
)  # fmt: skip
def test_bounds_follow_from_declarations(
    expression: Expression, lower: Decimal, upper: Decimal, unit: Fraction
) -> None:
    assert interval(expression, SOURCES) == Interval(Decimal(lower), Decimal(upper), unit)


def test_the_square_of_a_number_is_not_negative() -> None:
    assert squares(SCORE, SOURCES) == Interval(Decimal(0), Decimal(100), Fraction(1))
    assert squares(COST, SOURCES) == Interval(Decimal(0), Decimal(2500), CENT**2)


@pytest.mark.parametrize("name", ["rate", "load"])
def test_a_number_without_a_scale_is_cut_into_about_a_million_steps(name: str) -> None:
    known = interval(column(0, name), SOURCES)
    assert known.unit.numerator == 1 and known.unit.denominator & (known.unit.denominator - 1) == 0
    assert 2**19 <= Fraction(known.upper) / known.unit <= 2**20


def test_a_lattice_has_a_bounded_number_of_steps_and_bounds_on_it() -> None:
    big = replace(VISIT.attributes["stock"], upper=Decimal(2**63 - 1))
    sources = (Source(replace(VISIT, attributes={**VISIT.attributes, "stock": big})), *SOURCES[1:])
    for expression in (column(0, "stock"), Call("*", (column(0, "stock"), column(0, "stock")), "bigint")):
        known = interval(expression, sources)
        assert 2**30 < Fraction(known.upper) / known.unit <= MOST_STEPS
        assert (Fraction(known.upper) / known.unit).denominator == 1


def test_a_missing_bound_is_refused_with_the_administrators_line() -> None:
    bare = {**VISIT.attributes, "score": replace(VISIT.attributes["score"], lower=None, upper=None)}
    sources = (Source(replace(VISIT, attributes=bare)), *SOURCES[1:])
    with pytest.raises(NotAnswered) as refused:
        interval(Call("+", (RANK, SCORE), "integer"), sources)
    assert '"score"' in refused.value.message
    assert "provenance.declare_attribute('public.visit', 'score', lower, upper)" in (refused.value.hint or "")


@pytest.mark.parametrize(
    "expression",
    [column(0, "note"), column(0, "day"), Call("extract", (text("epoch"), column(0, "day")), "numeric"),
     Call("length", (column(0, "note"),), "integer"), Call("/", (SCORE, RANK), "integer")],
    ids=repr,
)  # fmt: skip
def test_what_has_no_public_bounds_is_refused(expression: Expression) -> None:
    with pytest.raises(NotAnswered):
        interval(expression, SOURCES)


def test_random_rows_within_the_declarations_stay_within_the_bounds(laboratory: Laboratory) -> None:
    rng = random.Random(4)
    maker = Maker(rng)
    fill(laboratory.connection, rng, 300)
    for _ in range(150):
        expression = maker.number()
        known, exact = interval(expression, SOURCES), reach(expression, SOURCES)
        values = f"SELECT ({sql(expression)})::numeric AS v FROM visit t0 JOIN town t2 ON t0.town = t2.name"
        row = laboratory.raw.execute(f"SELECT min(v), max(v), array_agg(DISTINCT v) FROM ({values}) s").fetchone()
        assert row is not None
        if row[0] is None:
            continue
        assert known.lower <= row[0] and row[1] <= known.upper, expression
        if exact is not None and exact.grain is not None:
            assert all((Fraction(v) / exact.grain).denominator == 1 for v in row[2] if v is not None), expression
