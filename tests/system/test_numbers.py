"""Numbers on both coins: their noise, their price, and what veil.low, veil.high and veil.stddev tell of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from proxies import Proxy, charges, new_analyst, running_proxy
from scipy.stats import binom

from mechanisms.loss import Coin, epsilon_of

DELTA = Decimal("5e-10")
COUNTS = "SELECT disease, count(*), veil.low(count(*)), veil.high(count(*)) FROM patient_data GROUP BY disease"
AVERAGES = "SELECT disease, avg(age), veil.low(avg(age)), veil.high(avg(age)) FROM patient_data GROUP BY disease"


@dataclass
class House:
    """A proxy over a deployment of one coin."""

    coin: Coin
    proxy: Proxy
    upstream: str

    def sit(self, **settings: str) -> Sitting:
        connection = self.proxy.connect(new_analyst(self.upstream))
        bills: list[dict[str, Any]] = []
        connection.add_notice_handler(lambda notice: bills.append(json.loads(notice.message_detail or "{}")))
        for name, value in settings.items():
            connection.execute(f"SET veil.{name} = '{value}'")
        return Sitting(connection, bills, self.upstream)

    def refresh(self) -> None:
        """A new data version: analysts share what was released of the old one."""
        with psycopg.connect(self.upstream, autocommit=True) as conn:
            conn.execute("SELECT provenance.refresh('patient_data')")

    def truth(self, text: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.upstream) as conn:
            return conn.execute(text).fetchall()


@dataclass
class Sitting:
    connection: psycopg.Connection[Any]
    bills: list[dict[str, Any]]
    upstream: str

    def ask(self, text: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(text).fetchall()

    def paid(self) -> list[tuple[Any, ...]]:
        return charges(self.upstream, self.connection.info.user)


@pytest.fixture(scope="module", params=list(Coin), ids=lambda coin: coin.value)
def house(
    request: pytest.FixtureRequest, new_upstream: Callable[[], str], shadow_server: Any, tmp_path_factory: Any
) -> Iterator[House]:
    upstream = new_upstream()
    with psycopg.connect(upstream, autocommit=True) as conn:
        conn.execute("UPDATE provenance.deployment SET coin = %s", (request.param.value,))
    log: Path = tmp_path_factory.mktemp("numbers") / "proxy.log"
    with running_proxy(upstream, shadow_server.admin_dsn, log) as proxy:
        yield House(request.param, proxy, upstream)


@pytest.fixture
def she(house: House) -> Iterator[Sitting]:
    sitting = house.sit()
    yield sitting
    sitting.connection.close()


def test_the_coin_says_which_noise_a_number_gets_and_what_it_costs(house: House, she: Sitting) -> None:
    she.ask("SELECT gender, count(*), sum(age) FROM patient_data GROUP BY gender")
    (bill,) = she.bills
    assert bill["coin"] == house.coin.value
    assert bill["mechanism"] == ("gaussian" if house.coin is Coin.ZCDP else "laplace")
    ((_, epsilon, amount, _),) = she.paid()
    assert amount == Decimal(bill["charged"]) and float(epsilon) == pytest.approx(bill["epsilon"])
    assert epsilon == epsilon_of(house.coin, amount, DELTA)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT gender, count(*), avg(age) FROM patient_data GROUP BY gender",
        "SELECT city, count(*), sum(amount), count(DISTINCT customer_id) FROM orders GROUP BY city",
        "SELECT stddev(amount) FROM orders",
    ],
)
def test_a_given_epsilon_is_what_a_question_loses(house: House, text: str) -> None:
    sitting = house.sit(epsilon="0.25")
    sitting.ask(text)
    ((_, epsilon, amount, _),) = sitting.paid()
    assert Decimal("0.2499") < epsilon <= Decimal("0.25")
    assert epsilon_of(house.coin, amount, DELTA) <= Decimal("0.25") + Decimal("1e-15")
    sitting.connection.close()


def test_the_interval_of_a_count_holds_the_true_count(house: House) -> None:
    true = dict(house.truth("SELECT disease, count(*) FROM patient_data GROUP BY disease"))
    held = asked = 0
    for _ in range(10):
        house.refresh()
        sitting = house.sit(margin="10u", raw="on")
        for disease, n, low, high in sitting.ask(COUNTS):
            assert isinstance(n, int) and (low, high) == (n - 10, n + 10)
            held += low <= true.get(disease, 0) <= high
            asked += 1
        sitting.connection.close()
    assert asked >= 400 and binom.ppf(1e-8, asked, 0.95) <= held < asked


def test_the_interval_of_an_average_holds_the_true_average(house: House) -> None:
    true = dict(house.truth("SELECT disease, avg(age) FROM patient_data WHERE age IS NOT NULL GROUP BY disease"))
    held = asked = narrow = 0
    for _ in range(6):
        house.refresh()
        sitting = house.sit(confidence="0.9")
        for disease, average, low, high in sitting.ask(AVERAGES):
            if disease in true:
                held += low <= true[disease] <= high
                narrow += high - low < 50
                asked += 1
                assert average is None or low <= average <= high or (low, high) == (0, 100)
        sitting.connection.close()
    assert asked >= 200 and held >= binom.ppf(1e-8, asked, 0.9) and narrow > asked / 3


def test_what_is_told_of_the_noise_costs_nothing(she: Sitting) -> None:
    she.ask("SELECT disease, count(*) FROM patient_data GROUP BY disease")
    before = len(she.paid())
    rows = she.ask(COUNTS)
    assert len(she.paid()) == before == 1 and she.bills[-1]["reused"] is True
    again = she.ask("SELECT disease, veil.high(count(*)) - veil.low(count(*)) FROM patient_data GROUP BY 1")
    assert dict(again) == {disease: high - low for disease, _, low, high in rows} and len(she.paid()) == 1


def test_the_deviation_is_that_of_the_noise(house: House, she: Sitting) -> None:
    ((counted, summed, average, n),) = she.ask(
        "SELECT veil.stddev(count(*)), veil.stddev(sum(age)), veil.stddev(avg(age)), count(*) FROM patient_data"
    )
    expected = 25.77 if house.coin is Coin.ZCDP else 50 / 3.0 * 2**0.5
    assert float(counted) == pytest.approx(expected, rel=0.02)
    assert float(summed) == pytest.approx(100 * expected, rel=0.03)
    assert 0 < float(average) < 3 * float(summed) / n


def test_bounds_stand_wherever_postgresql_takes_them(she: Sitting) -> None:
    ((low,),) = she.ask("SELECT veil.low(count(*)) FROM patient_data")
    assert low == low.to_integral_value() and low > 50_000
    rows = she.ask(
        "SELECT g, hi FROM (SELECT gender AS g, veil.high(avg(age)) AS hi FROM patient_data GROUP BY 1) t"
        " WHERE hi > 0 ORDER BY hi DESC"
    )
    assert rows == sorted(rows, key=lambda row: -row[1]) and len(rows) >= 2
    ordered = she.ask("SELECT gender FROM patient_data GROUP BY gender ORDER BY veil.low(count(*)) DESC LIMIT 1")
    assert len(ordered) == 1
    # The numeric kinds and the column names are those that PostgreSQL describes before anything is paid.
    cursor = she.connection.execute(
        "SELECT veil.low(count(*)), veil.stddev(avg(age::float8)) AS s FROM patient_data", prepare=True
    )
    assert [(c.name, c.type_code) for c in cursor.description or ()] == [("low", 1700), ("s", 701)]


def test_another_confidence_is_another_interval_of_the_same_noise(house: House) -> None:
    sitting = house.sit(epsilon="0.2")
    text = "SELECT count(*), veil.high(count(*)) - veil.low(count(*)) FROM patient_data"
    ((n, width),) = sitting.ask(text)
    sitting.connection.execute("SET veil.confidence = 0.999")
    ((same, wider),) = sitting.ask(text)
    assert same == n and wider > 1.3 * float(width) and len(sitting.paid()) == 1
    sitting.connection.close()


def test_only_a_number_at_the_top_is_cut_off_at_zero_and_not_in_raw_form(house: House) -> None:
    inner = "SELECT disease, count(*) AS n, veil.low(count(*)) AS low FROM patient_data WHERE age > 99 GROUP BY disease"
    sitting = house.sit()
    clipped = sitting.ask(inner)
    wrapped = sitting.ask(f"SELECT * FROM ({inner}) t")
    sitting.connection.execute("SET veil.raw = on")
    raw = sitting.ask(inner)
    assert raw == wrapped and min(n for _, n, _ in raw) < 0 and min(low for *_, low in raw) < -40
    assert clipped == [(disease, max(0, n), max(0, low)) for disease, n, low in raw]
    assert all(isinstance(n, int) for _, n, _ in raw) and len(sitting.paid()) == 1
    sitting.connection.close()


def test_explain_tells_the_noise_in_words(house: House, she: Sitting) -> None:
    text = "SELECT city, count(*), sum(amount) FROM orders GROUP BY city"
    page = "\n".join(line for (line,) in she.ask(f"EXPLAIN {text}"))
    law = "discrete Gaussian, standard deviation" if house.coin is Coin.ZCDP else "discrete Laplace, scale"
    assert page.count(law) == 2 and page.count("Predicted error: within") == 2
    assert ("in steps of" in page) is (house.coin is Coin.ZCDP)
    ((document,),) = she.ask(f"EXPLAIN (FORMAT JSON) {text}")
    she.ask(text)
    assert document[0]["Epsilon"] == pytest.approx(she.bills[-1]["epsilon"])
    assert document[0]["Charged"] == she.bills[-1]["charged"] and len(she.paid()) == 1


def test_where_no_row_is_counted_nothing_is_noisy(she: Sitting) -> None:
    asked = "count(*), veil.low(count(*)), veil.high(count(*)), veil.stddev(count(*)), veil.low(avg(age))"
    assert she.ask(f"SELECT {asked} FROM patient_data WHERE false") == [(0, 0, 0, 0, None)]
    assert she.paid() == []


@pytest.mark.parametrize(
    "text",
    [
        "SELECT veil.low(3)",
        "SELECT veil.high(population) FROM city",
        "SELECT veil.stddev(n) FROM (SELECT count(*) AS n FROM patient_data) t",
        "SELECT veil.low(age) FROM patient_data GROUP BY age",
    ],
)
def test_of_a_number_that_is_no_aggregate_there_is_nothing_to_tell(she: Sitting, text: str) -> None:
    with pytest.raises(psycopg.errors.FeatureNotSupported) as refusal:
        she.ask(text)
    assert "takes one aggregate of a question" in str(refusal.value) and refusal.value.diag.message_hint
    assert she.paid() == []


def test_averages_are_paid_as_a_pair_and_sums_beside_them_are_used(house: House, she: Sitting) -> None:
    she.ask("SELECT avg(age) FROM patient_data")
    assert len(she.bills[-1]["statistics"]) == 2
    ((average, total, n),) = she.ask("SELECT avg(age), sum(age), count(age) FROM patient_data")
    assert len(she.bills[-1]["statistics"]) == 2 and average == pytest.approx(Decimal(total) / n)
    ((true,),) = house.truth("SELECT avg(age) FROM patient_data")
    assert abs(average - true) < 1
