"""veil.low, veil.high and veil.stddev: read off with their aggregate, and told from the noise that it got."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from clinic import CATALOG, resolve, taken
from fragments import ask

from mechanisms.errors import Refusal
from mechanisms.loss import Coin
from mechanisms.number import number_for
from mechanisms.threshold import Share
from mechanisms.values import Noisy
from sqlrewrite.bounds import Told, bound_texts
from sqlrewrite.cut import BoundSlot, Cut
from sqlrewrite.finish import Released, finish, released
from sqlrewrite.question import AggregateValue, Bound, Form, Question
from sqlrewrite.read import read
from sqlrewrite.sensitivity import sensitivity
from sqlrewrite.values import column_texts

CONFIDENCE = Decimal("0.95")
ONE = np.arange(1)


def parts(text: str) -> list[Released]:
    found = []
    for one in taken(text):
        question = read(one.clauses, CATALOG, resolve, None)
        found.append(released(question, one, {place: place for place in range(len(question.keys))}))
    return found


def finished(text: str) -> str:
    return finish(text, parts(text), 0)


def slots(one: Cut) -> list[BoundSlot]:
    return [piece for piece in (*one.head, *one.rest) if isinstance(piece, BoundSlot)]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT veil.low(count(*)) FROM patient_data",
        'SELECT "veil"."low" ( (count(*)) ) AS n FROM patient_data',
        "SELECT VEIL.LOW(count(*)) + 1 FROM patient_data",
        "SELECT gender FROM patient_data GROUP BY gender ORDER BY veil.low(count(*))",
        "SELECT sum(veil.low(count(*))) OVER () FROM patient_data GROUP BY gender",
        "SELECT x FROM (SELECT veil.low(count(*) ) x FROM patient_data) t",
    ],
)
def test_a_bound_is_read_off_wherever_an_aggregate_may_stand(text: str) -> None:
    ((one,),) = [slots(cut) for cut in taken(text)]
    assert one == BoundSlot(0, Bound.LOW)
    (part,) = parts(text)
    assert part.bounds == ((0, Bound.LOW),) and part.types[-1] == "numeric"
    assert ".b0" in finished(text) and "low" not in finished(text).replace('AS "low"', "").lower()


def test_a_bound_has_the_name_and_the_type_that_the_functions_of_the_shadow_have() -> None:
    asked = "veil.low(count(*)), veil.high(avg(age)), veil.stddev(sum(fever)), veil.low(sum(fever))"
    (part,) = parts(f"SELECT {asked} FROM patient_data")
    assert part.types[3:] == ("numeric", "numeric", "double precision", "double precision")
    assert [piece for piece in part.cut.head if isinstance(piece, str) and " AS " in piece] == [
        *(' AS "low"', ' AS "high"', ' AS "stddev"', ' AS "low"')
    ]


def test_a_bound_and_its_aggregate_are_one_measurement() -> None:
    (part,) = parts(
        "SELECT count(*) FILTER (WHERE age > 5), veil.high(count(*) FILTER (WHERE age > 5)) FROM patient_data"
    )
    assert len(part.question.columns) == len(part.question.statistics) == 1


@pytest.mark.parametrize(
    "text",
    [
        "SELECT veil.low(age) FROM patient_data GROUP BY age",
        "SELECT veil.low(count(*) + 1) FROM patient_data",
        "SELECT veil.low(veil.low(count(*))) FROM patient_data",
        "SELECT veil.stddev(count(*), 1) FROM patient_data",
        "SELECT veil.high(sum(count(*)) OVER ()) FROM patient_data GROUP BY gender",
        "SELECT veil.low(n) FROM (SELECT count(*) AS n FROM patient_data) t",
        "SELECT gender FROM patient_data GROUP BY gender HAVING veil.low(count(*)) > 5",
    ],
)
def test_on_anything_else_it_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(Refusal) as refusal:
        finished(text)
    assert refusal.value.sqlstate == "0A000" and refusal.value.hint


# -- the numbers -------------------------------------------------------------------------------------------------------


def told(question: Question, numbers: list[int], coin: Coin = Coin.ZCDP, clip: bool = True, margin: int = 50) -> Told:
    """One cell of released statistics, in the order of the question's."""
    moved = sensitivity(question).statistics
    shares: list[Share] = [number_for(coin, each, margin * each, CONFIDENCE) for each in moved]
    return Told(question, Noisy(np.array([[n] for n in numbers], dtype=np.int64)), shares, ONE, CONFIDENCE, clip)


def ends(from_: Told, column: AggregateValue) -> tuple[float, float, float]:
    low, high, deviation = (bound_texts(from_, column, bound)[0] for bound in Bound)
    assert low is not None and high is not None and deviation is not None
    return float(low), float(high), float(deviation)


@pytest.mark.parametrize("coin", Coin)
def test_a_count_has_the_interval_of_its_noise(coin: Coin) -> None:
    question = ask(aggregates=["count(*)"])
    low, high, deviation = ends(told(question, [1000], coin), question.columns[0])
    moved = sensitivity(question).statistics[0]
    assert (low, high) == (1000 - 50 * moved, 1000 + 50 * moved)
    assert deviation == pytest.approx(50 * moved / (1.94 if coin is Coin.ZCDP else 2.11), rel=0.02)


def test_only_at_the_top_is_an_interval_cut_off_at_zero_as_the_number_is() -> None:
    question = ask(aggregates=["count(*)"])
    column, few = question.columns[0], [-20]
    assert ends(told(question, few, clip=False), column)[:2] == (-20 - 150, -20 + 150)
    assert ends(told(question, few), column)[:2] == (0, 130)
    assert column_texts(question, column, Noisy(np.array([few])), ONE, True) == ["0"]


def test_the_ends_of_a_sum_are_on_its_lattice() -> None:
    question = ask(aggregates=["sum(amount)"])
    low, high = (
        bound_texts(told(question, [123_456_789]), question.columns[0], bound)[0] for bound in (Bound.LOW, Bound.HIGH)
    )
    assert low is not None and high is not None
    assert Decimal(low).as_tuple().exponent == Decimal(high).as_tuple().exponent == -2
    assert Decimal(low) + Decimal(high) == 2 * Decimal("1234567.89")


@pytest.mark.parametrize("coin", Coin)
def test_an_average_is_released_about_the_middle_of_its_bounds(coin: Coin) -> None:
    """amount lies between 0 and 500: the sum about 250 moves by half as much as the sum itself."""
    question = ask(aggregates=["avg(amount)"])
    (column,) = question.columns
    assert column.centre == 25_000 and not column.plain
    widths = dict(zip((s.terms for s in question.statistics), sensitivity(question).statistics, strict=True))
    assert widths[column.wanted[0]] * 2 == widths[column.wanted[1]] * 50_000
    numbers = [0] * 2
    place = {s.terms: i for i, s in enumerate(question.statistics)}
    numbers[place[column.wanted[0]]], numbers[place[column.wanted[1]]] = -5_000 * 10_000, 10_000
    given = told(question, numbers, coin)
    assert column_texts(question, column, given.noisy, ONE, True) == ["200.0000000000000000"]
    low, high, deviation = ends(given, column)
    assert low < 200 < high and 1 < deviation < 3
    assert (high - low) / deviation == pytest.approx(3.95, abs=0.1) if coin is Coin.ZCDP else high - low < 30


def test_an_average_of_hardly_any_values_is_only_known_to_be_within_its_bounds() -> None:
    question = ask(aggregates=["avg(amount)"])
    (column,) = question.columns
    given = told(question, [0, 0])
    assert column_texts(question, column, given.noisy, ONE, True) == [None]
    low, high, deviation = (bound_texts(given, column, bound)[0] for bound in Bound)
    assert (float(low or "nan"), float(high or "nan"), deviation) == (0, 500, None)


def test_an_average_beside_its_sum_is_computed_from_that_sum() -> None:
    question = ask(aggregates=["avg(amount)", "sum(amount)"])
    average = question.columns[0]
    assert average.plain and len(question.statistics) == 2
    numbers = {((question.columns[1].measures[0], 1),): 20_000_000, average.wanted[1]: 1000}
    given = told(question, [numbers[statistic.terms] for statistic in question.statistics])
    assert column_texts(question, average, given.noisy, ONE, True) == ["200.0000000000000000"]
    low, high, _ = ends(given, average)
    assert low < 200 < high


@pytest.mark.parametrize("more", [[], ["sum(amount)"]])
@pytest.mark.parametrize("name", ["variance", "var_pop", "stddev", "stddev_pop"])
def test_a_spread_is_that_of_the_values_whatever_its_squares_are_about(name: str, more: list[str]) -> None:
    values = [Fraction(n, 100) for n in (0, 1250, 49_999, 3, 20_000)] * 400
    question = ask(aggregates=[f"{name}(amount)", *more])
    column = question.columns[0]
    squares, total, count = column.measures
    about = column.centre * question.measures[total].unit
    exact = {
        squares: int(sum((v - about) ** 2 for v in values) / question.measures[squares].unit),
        total: int(sum(values) / question.measures[total].unit),
        count: len(values),
    }
    numbers = [sum(exact[m] * f for m, f in statistic.terms) for statistic in question.statistics]
    given = told(question, numbers, margin=1)
    (text,) = column_texts(question, column, given.noisy, ONE, True)
    truth = np.var([float(v) for v in values], ddof=1 if name in ("variance", "stddev") else 0)
    assert float(text or "nan") == pytest.approx(float(truth if "var" in name else np.sqrt(truth)), rel=1e-9)
    low, high, deviation = ends(given, column)
    assert low < float(text or "nan") < high and 0 < deviation < (high - low) / 2


def test_squares_about_the_middle_move_a_quarter_as_far() -> None:
    question = ask("patients", aggregates=["stddev(age)"])
    column = question.columns[0]
    assert column.form is Form.STDDEV_SAMP
    squares, total, _ = (question.measures[place] for place in column.measures)
    assert squares.upper <= (max(abs(total.lower), abs(total.upper)) / 2 + 1) ** 2


def test_where_nothing_was_measured_nothing_is_noisy() -> None:
    question = ask(aggregates=["count(*)"])
    empty = Told(question, Noisy(np.zeros((1, 1), dtype=np.int64)), None, ONE, CONFIDENCE, True)
    assert [bound_texts(empty, question.columns[0], bound) for bound in Bound] == [["0"], ["0"], ["0"]]
