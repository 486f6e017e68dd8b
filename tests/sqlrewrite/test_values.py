"""Released numbers as the texts of an answer: as PostgreSQL writes them, digit by digit."""

from __future__ import annotations

import random
from decimal import Decimal
from fractions import Fraction

import numpy as np
import psycopg
import pytest
from fragments import Shop

from mechanisms.values import Noisy
from sqlrewrite.question import AggregateValue, Form, Measure, MeasureKind, Question, Statistic, Unit
from sqlrewrite.values import column_texts, statistic_of

FUNCTIONS = {
    Form.COUNT: "count",
    Form.SUM: "sum",
    Form.AVG: "avg",
    Form.VAR_SAMP: "var_samp",
    Form.VAR_POP: "var_pop",
    Form.STDDEV_SAMP: "stddev_samp",
    Form.STDDEV_POP: "stddev_pop",
}
ALL = np.arange(1)


def measures(unit: Fraction, lower: str) -> tuple[Measure, ...]:
    low = Decimal(lower)
    return (
        Measure(MeasureKind.SQUARES, None, None, Decimal(0), Decimal(10**6), unit * unit),
        Measure(MeasureKind.TOTAL, None, None, low, Decimal(1000), unit),
        Measure(MeasureKind.VALUES),
    )


def question(unit: Fraction = Fraction(1), lower: str = "0") -> Question:
    """Squares, sum and count, each released by itself."""
    single = tuple(Statistic(((place, 1),), 1) for place in range(3))
    return Question((), Unit(), None, (), ((),), measures(unit, lower), single, None, ())


def column(form: Form, type_name: str = "numeric") -> AggregateValue:
    used = {Form.COUNT: (2,), Form.SUM: (1,), Form.AVG: (1, 2)}.get(form, (0, 1, 2))
    return AggregateValue(form, used, type_name, "")


def shown(form: Form, squares: int, total: int, count: int, *, unit: Fraction = Fraction(1), lower: str = "0",
          type_name: str = "numeric", clip: bool = True) -> str | None:  # fmt: skip
    noisy = Noisy(np.array([[squares], [total], [count]], dtype=np.int64))
    (text,) = column_texts(question(unit, lower), column(form, type_name), noisy, ALL, clip)
    return text


@pytest.mark.parametrize("form", FUNCTIONS)
@pytest.mark.parametrize("places", [0, 1, 2, 4])
def test_numbers_have_the_digits_that_postgresql_gives_them(shop: Shop, form: Form, places: int) -> None:
    rng = random.Random(places)
    unit = Fraction(1, 10**places)
    for _ in range(40):
        values = [
            rng.randrange(-(10 ** rng.randrange(1, 9)), 10 ** rng.randrange(1, 9)) for _ in range(rng.randint(1, 9))
        ]
        texts = [f"{Decimal(value).scaleb(-places):f}" for value in values]
        listed = ", ".join(f"('{text}'::numeric(20, {places}))" for text in texts)
        ((expected,),) = shop.plain(f"SELECT {FUNCTIONS[form]}(x)::text FROM (VALUES {listed}) v(x)")
        sums = sum(value * value for value in values), sum(values), len(values)
        assert shown(form, *sums, unit=unit, lower="-1", clip=False) == expected


def test_whole_number_columns_have_whole_numbers(shop: Shop) -> None:
    ((expected,),) = shop.plain("SELECT avg(x)::text FROM (VALUES (1), (2), (2)) v(x)")
    assert shown(Form.AVG, 0, 5, 3) == expected
    assert shown(Form.SUM, 0, 5, 3, type_name="bigint") == "5"
    assert shown(Form.SUM, 0, 5, 3, type_name="double precision", unit=Fraction(1, 4)) == "1.25"


def test_a_unit_without_a_decimal_form_is_shown_to_sixteen_places() -> None:
    assert shown(Form.SUM, 0, 1, 1, unit=Fraction(1, 3)) == "0.3333333333333333"
    assert shown(Form.SUM, 0, 3, 1, unit=Fraction(1, 8)) == "0.375"


def test_at_the_top_counts_and_sums_of_nonnegatives_are_not_negative() -> None:
    assert shown(Form.COUNT, 0, 0, -3, type_name="bigint") == "0"
    assert shown(Form.SUM, 0, -30, 1, unit=Fraction(1, 100)) == "0.00"
    assert shown(Form.SUM, 0, -30, 1, unit=Fraction(1, 100), lower="-5") == "-0.30"


def test_inside_they_may_be() -> None:
    assert shown(Form.COUNT, 0, 0, -3, type_name="bigint", clip=False) == "-3"
    assert shown(Form.SUM, 0, -30, 1, unit=Fraction(1, 100), clip=False) == "-0.30"


@pytest.mark.parametrize(
    ("form", "least"), [(Form.AVG, 1), (Form.VAR_SAMP, 2), (Form.VAR_POP, 1), (Form.STDDEV_SAMP, 2)]
)
def test_where_noise_left_too_few_rows_there_is_no_average(form: Form, least: int) -> None:
    for count in (-5, 0, least - 1):
        assert shown(form, 10, 5, count) is None
    assert shown(form, 10, 3, least) is not None


def test_noise_cannot_make_a_variance_negative() -> None:
    assert shown(Form.VAR_SAMP, -1000, 50, 10) == "0" and shown(Form.STDDEV_POP, 3, 50, 10) == "0"


def test_a_measure_that_is_not_released_by_itself_is_an_error() -> None:
    with pytest.raises(ValueError, match="not released"):
        statistic_of(Question((), Unit(), None, (), ((),), (Measure(MeasureKind.ROWS),), (), None, ()), ((0, 1),))


def test_huge_numbers_are_written_in_full(shop: Shop) -> None:
    big = 2**62
    ((expected,),) = shop.plain(f"SELECT ({big}::numeric / 7)::text")
    assert shown(Form.AVG, 0, big, 7) == expected
    assert isinstance(shop.connection, psycopg.Connection)
