"""A question that a limit refuses, relaxed with a piece that is still within the limit: bought, charged and told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from random import Random
from typing import Any

import psycopg
import pytest
from proxies import Proxy, charges, new_analyst, running_proxy

from mechanisms.loss import Coin, epsilon_of
from mechanisms.number import price_of_magnitude

NOISE = 40
KNOWN = ("age BETWEEN 20 AND 39", "age BETWEEN 10 AND 30")  # together they leave nothing from 20 to 30
ASKED = "age BETWEEN 20 AND 45"
PIECE = "age BETWEEN 40 AND 45"


def counting(where: str) -> str:
    return f"SELECT count(*) FROM patient_data WHERE {where}"


class Asker:
    """An analyst in a house where two numbers may be told of any patient."""

    def __init__(self, proxy: Proxy, coin: Coin, **settings: str) -> None:
        self.proxy, self.coin = proxy, coin
        self.name = new_analyst(proxy.upstream, raw="on", **settings)
        self.session = proxy.connect(self.name)
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.session.add_notice_handler(
            lambda n: self.told.append((n.message_primary or "", json.loads(n.message_detail or "{}")))
        )

    def ask(self, text: str) -> list[tuple[Any, ...]]:
        return self.session.execute(text.encode()).fetchall()

    def number(self, where: str) -> int:
        ((found,),) = self.ask(counting(where))
        return int(found)

    @property
    def bill(self) -> dict[str, Any]:
        return self.told[-1][1]

    def true_count(self, where: str) -> int:
        with psycopg.connect(self.proxy.upstream) as conn:
            row = conn.execute(counting(where).encode()).fetchone()
        assert row is not None
        return int(row[0])

    def administer(self, text: str, *values: Any) -> Any:
        with psycopg.connect(self.proxy.upstream, autocommit=True) as conn:
            cursor = conn.execute(text.encode(), values or None)
            return cursor.fetchone() if cursor.description else None


@pytest.fixture(scope="module", params=list(Coin), ids=lambda coin: coin.value)
def house(
    request: pytest.FixtureRequest, new_upstream: Callable[[], str], shadow_server: Any, tmp_path_factory: Any
) -> Iterator[tuple[Proxy, Coin]]:
    upstream, log = new_upstream(), tmp_path_factory.mktemp("patches") / "proxy.log"
    with psycopg.connect(upstream, autocommit=True) as conn:
        conn.execute("UPDATE provenance.deployment SET coin = %s", (request.param.value,))
    with running_proxy(upstream, shadow_server.admin_dsn, log) as proxy:
        yield proxy, request.param


@pytest.fixture
def new_asker(house: tuple[Proxy, Coin]) -> Iterator[Callable[..., Asker]]:
    made: list[Asker] = []

    def make(**settings: str) -> Asker:
        proxy, coin = house
        asker = Asker(proxy, coin, **{"on_exhausted": "relax", **settings})
        made.append(asker)
        # Another version of the data: what was told of the last one is out of the way, and still counts.
        asker.administer("SELECT provenance.refresh('patient_data')")
        price = price_of_magnitude(coin, Decimal(NOISE))
        (spent,) = asker.administer("SELECT provenance.spent_on(provenance.relation_id('patient_data'))")
        limit = epsilon_of(coin, spent + price * Decimal("2.5"), Decimal("0.5e-9"))
        asker.administer("SELECT provenance.limit_relation('patient_data', %s, %s)", limit, NOISE)
        for where in KNOWN:
            asker.number(where)
            assert Decimal(asker.bill["charged"]) == price
        return asker

    yield make
    for each in made:
        each.session.close()


def test_a_piece_that_is_within_the_limit_is_bought_and_told(new_asker: Callable[..., Asker]) -> None:
    asker = new_asker()
    known = asker.number(KNOWN[0])
    ((document,),) = asker.ask(f"EXPLAIN (FORMAT JSON) {counting(ASKED)}")
    (foretold,) = document[0]["Questions"][0]["Relaxed"]
    (line,) = [line for (line,) in asker.ask(f"EXPLAIN {counting(ASKED)}") if "Relaxed" in line]
    assert PIECE in line
    before = charges(asker.proxy.upstream, asker.name)
    value = asker.number(ASKED)
    sentence, bill = asker.told[-1]
    price = price_of_magnitude(asker.coin, Decimal(NOISE))
    (told,) = bill["relaxed"]
    assert (told["region"], told["error"]) == (ASKED, 0) and bill["bought"] == [PIECE]
    assert (bill["mechanism"], Decimal(bill["charged"]), bill["reused"]) == ("relax", price, False)
    assert bill["epsilon"] == pytest.approx(float(epsilon_of(asker.coin, price, Decimal("0.5e-9"))))
    assert f"({PIECE})" in sentence and "relaxation error 0" in sentence
    assert foretold["bought"] == [PIECE] and Decimal(foretold["charged"]) == price
    assert {name: foretold[name] for name in ("region", "error", "aggregate")} == {
        name: told[name] for name in ("region", "error", "aggregate")
    }
    assert foretold["stddev"] == pytest.approx(told["stddev"], rel=1e-3)
    assert len(charges(asker.proxy.upstream, asker.name)) == len(before) + 1
    assert abs(value - asker.true_count(ASKED)) < 25 * told["stddev"]
    # The piece is known from now on, and so is what was made of it.
    assert value == known + asker.number(PIECE) and asker.bill["charged"] == "0"
    assert asker.number(ASKED) == value and asker.bill["charged"] == "0" and "bought" not in asker.bill
    assert len(charges(asker.proxy.upstream, asker.name)) == len(before) + 1


def test_what_is_beyond_the_limit_everywhere_is_not_bought(new_asker: Callable[..., Asker]) -> None:
    asker = new_asker()
    for where in (PIECE, "age BETWEEN 40 AND 50"):  # now there is nothing left from 40 to 45 either
        asker.number(where)
    before = charges(asker.proxy.upstream, asker.name)
    asker.number("age BETWEEN 20 AND 44")
    (told,) = asker.bill["relaxed"]
    assert "bought" not in asker.bill and told["error"] > 0
    assert charges(asker.proxy.upstream, asker.name) == before


def test_a_piece_is_not_dearer_than_a_question_may_be(new_asker: Callable[..., Asker]) -> None:
    asker = new_asker()
    asker.session.execute("SET veil.max_epsilon = '0.001'")
    with pytest.raises(psycopg.Error) as refusal:  # the noise is fixed: a question costs more than that
        asker.number("age > 90")
    assert refusal.value.sqlstate == "54000"
    before = charges(asker.proxy.upstream, asker.name)
    with pytest.raises(psycopg.Error):
        asker.number(ASKED)
    assert charges(asker.proxy.upstream, asker.name) == before


def test_without_the_wish_nothing_is_bought(new_asker: Callable[..., Asker]) -> None:
    asker = new_asker(on_exhausted="error")
    before = charges(asker.proxy.upstream, asker.name)
    with pytest.raises(psycopg.Error) as refusal:
        asker.number(ASKED)
    assert refusal.value.sqlstate == "53400" and "veil.on_exhausted" in str(refusal.value.diag.message_hint)
    assert charges(asker.proxy.upstream, asker.name) == before


def test_rows_that_were_not_released_say_nothing_about_what_is_bought(new_asker: Callable[..., Asker]) -> None:
    """Neighbours: which piece is bought, and what it costs, is the same whatever rows there are."""
    told = []
    for rows in ("", "DELETE FROM patient_data WHERE age BETWEEN 36 AND 60 AND patient_id % 2 = 0"):
        asker = new_asker()
        if rows:
            asker.administer(rows)
        asker.number(ASKED)
        told.append({name: asker.bill[name] for name in ("bought", "charged", "relaxed", "epsilon", "reused")})
    assert told[0] == told[1] and told[0]["bought"] == [PIECE]


def test_no_question_of_a_workload_ends_without_an_answer(new_asker: Callable[..., Asker]) -> None:
    """The workload of the paper, in small: random rectangles, of which the limit lets only some through."""
    asker, random = new_asker(), Random(8)
    answered, relaxed, bought = 0, 0, 0
    for _ in range(60):
        low = random.randrange(0, 80)
        where = f"age BETWEEN {low} AND {low + random.randrange(5, 21)}"
        where += random.choice(("", " AND gender = 'female'", " AND disease_type IN ('viral', 'bacterial')"))
        value = asker.number(where)
        if "relaxed" not in asker.bill:
            answered += 1
            continue
        (told,) = asker.bill["relaxed"]
        relaxed, bought = relaxed + 1, bought + ("bought" in asker.bill)
        assert 0 <= told["error"] < 0.5 and told["stddev"] < 5 * NOISE
        # Laplace noise, and sums of three of it, are rarely so far off: once in 10^10 times.
        assert abs(value - asker.true_count(told["region"])) < 17 * told["stddev"], told
    assert answered > 5 and relaxed > 20 and bought > 0
    row = asker.administer("SELECT spent, \"limit\" FROM provenance.relation_budget WHERE relation = 'patient_data'")
    assert row[0] <= row[1]
