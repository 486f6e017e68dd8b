"""A relation with fixed noise and a bound (query relaxation, section 3), seen by a client: every number has the same
noise, and what is asked about a point too often is refused, or answered for a region nearby.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from proxies import Proxy, charges, new_analyst, running_proxy

from mechanisms.loss import Coin
from mechanisms.number import price_of_magnitude

NOISE = 40
LIMIT = "0.3"
PRICE = price_of_magnitude(Coin.ZCDP, Decimal(NOISE))


class House:
    """A deployment with a proxy, whose administrator fixes the noise of ``patient_data``."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy, self.upstream = proxy, proxy.upstream
        self._askers: list[Asker] = []

    def asker(self, **settings: str) -> Asker:
        self._askers.append(Asker(self, **settings))
        return self._askers[-1]

    def close(self) -> None:
        for each in self._askers:
            each.session.close()

    def sql(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.upstream, autocommit=True) as conn:
            cursor = conn.execute(text.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def fix(self, limit: str | None = LIMIT, noise: int | None = NOISE) -> None:
        self.sql("SELECT provenance.limit_relation('patient_data', %s::numeric, %s)", limit, noise)

    @property
    def popularity(self) -> Decimal:
        ((found,),) = self.sql("SELECT popularity FROM provenance.relation_budget WHERE relation = 'patient_data'")
        return Decimal(found)


class Asker:
    def __init__(self, house: House, **settings: str) -> None:
        self.house, self.name = house, new_analyst(house.upstream, **settings)
        self.session = house.proxy.connect(self.name)
        self.bills: list[dict[str, Any]] = []
        self.session.add_notice_handler(lambda told: self.bills.append(json.loads(told.message_detail or "{}")))

    def ask(self, text: str) -> list[tuple[Any, ...]]:
        return self.session.execute(text.encode()).fetchall()

    def set(self, name: str, value: str) -> None:
        self.session.execute(f"SET veil.{name} = '{value}'".encode())

    def refused(self, text: str) -> psycopg.Error:
        paid = charges(self.house.upstream, self.name)
        with pytest.raises(psycopg.Error) as refusal:
            self.session.execute(text.encode())
        assert charges(self.house.upstream, self.name) == paid
        return refusal.value

    def explain(self, text: str) -> dict[str, Any]:
        ((document,),) = self.ask(f"EXPLAIN (FORMAT JSON) {text}")
        found: dict[str, Any] = document[0]
        return found


def counting(where: str) -> str:
    return f"SELECT count(*) FROM patient_data WHERE {where}"


@pytest.fixture
def house(new_upstream: Callable[[], str], shadow_server: Any, tmp_path: Any) -> Iterator[House]:
    with running_proxy(new_upstream(), shadow_server.admin_dsn, tmp_path / "proxy.log") as proxy:
        made = House(proxy)
        try:
            made.fix()
            yield made
        finally:
            made.close()


def test_every_number_has_the_same_noise_whatever_is_asked_for(house: House) -> None:
    asker = house.asker()
    deviations = []
    for place, margin in enumerate(("10u", "50u", "3000u")):
        asker.set("margin", margin)
        where = f"age BETWEEN {10 * place} AND {10 * place + 9}"
        ((_, told),) = asker.ask(f"SELECT count(*), veil.stddev(count(*)) FROM patient_data WHERE {where}")
        deviations.append(float(told))
        assert Decimal(asker.bills[-1]["charged"]) == PRICE
    # The mean size of Gaussian noise is sqrt(2 / pi) of its deviation.
    assert all(abs(each * math.sqrt(2 / math.pi) / NOISE - 1) < 1e-4 for each in deviations)
    (statistic,) = asker.explain("SELECT sum(age) FROM patient_data WHERE age > 90")["Questions"][0]["Statistics"]
    assert f"standard deviation {NOISE * math.sqrt(math.pi / 2) * statistic['sensitivity']:.6g}," in statistic["noise"]


def test_questions_are_admitted_by_the_popularity_of_their_points(house: House) -> None:
    one, other = house.asker(), house.asker()
    for asked in range(10):
        try:
            (one, other)[asked % 2].ask(counting(f"age BETWEEN {asked} AND 50"))
        except psycopg.errors.ConfigurationLimitExceeded:
            break
        assert house.popularity == asked + 1
    assert 3 <= asked <= 9
    text = counting(f"age BETWEEN {asked} AND 50")
    assert not one.explain(text)["Allowed"] and "relation patient_data" in one.explain(text)["Verdict"]
    for asker in (one, other):
        refusal = asker.refused(text)
        assert refusal.sqlstate == "53400" and "relation patient_data" in str(refusal.diag.message_primary)
    for gender in ("age > 50", "age BETWEEN 51 AND 80"):
        one.ask(counting(gender))
    one.ask("SELECT count(*) FROM orders WHERE amount < 100")
    assert house.popularity == asked, "other points, and other relations"
    other.ask(counting("age BETWEEN 0 AND 50"))
    assert house.popularity == asked, "what is known to the database costs it nothing"


def test_what_is_refused_is_answered_for_a_region_nearby(house: House) -> None:
    asker = house.asker(on_exhausted="relax", raw="on")
    known: dict[int, int] = {}
    for low in range(12):
        ((number,),) = asker.ask(counting(f"age BETWEEN {low} AND 50"))
        if "relaxed" in asker.bills[-1]:
            break
        known[low] = number
    (told,) = asker.bills[-1]["relaxed"]
    nearest = max(known)
    assert told["region"] == f"age BETWEEN {nearest} AND 50" and number == known[nearest]
    assert asker.bills[-1]["charged"] == "0" and house.popularity == len(known)
    assert abs(told["stddev"] - NOISE * math.sqrt(math.pi / 2)) < 0.01


def test_decisions_have_the_same_noise_and_bound_beta(house: House) -> None:
    asker = house.asker()
    text = "SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 2000"
    kept = {name for (name,) in asker.ask(text)}
    bill = asker.bills[-1]
    assert bill["mechanism"] == "tslm" and bill["beta"] == 0.05
    # Laplace noise: epsilon 1 / NOISE for everybody, and the test leans by ln(1 / 2 beta) of its scale.
    assert bill["epsilon"] == pytest.approx(1 / NOISE)
    sizes = dict(house.sql("SELECT disease, count(*) FROM patient_data GROUP BY disease"))
    far = 30 * NOISE
    assert {name for name, size in sizes.items() if size > 2000 + far} <= kept
    assert not {name for name, size in sizes.items() if size < 2000 - far} & kept
    asker.set("mechanism", "cert")
    refusal = asker.refused(text.replace("2000", "2001"))
    assert refusal.sqlstate == "0A000" and "fixed noise" in str(refusal.diag.message_primary)


def test_an_analyst_s_own_price_is_the_most_that_is_paid(house: House) -> None:
    asker = house.asker()
    asker.set("epsilon", "0.05")
    refusal = asker.refused(counting("age < 30"))
    assert refusal.sqlstate == "54000" and "fixed" in str(refusal.diag.message_hint)
    asker.set("epsilon", "0.5")
    asker.ask(counting("age < 30"))
    assert Decimal(asker.bills[-1]["charged"]) == PRICE


def test_a_change_holds_from_the_next_question_on(house: House) -> None:
    asker = house.asker(margin="50u")
    asker.ask(counting("age = 1"))
    assert Decimal(asker.bills[-1]["charged"]) == PRICE
    house.fix(noise=2 * NOISE)
    asker.ask(counting("age = 2"))
    assert Decimal(asker.bills[-1]["charged"]) == price_of_magnitude(Coin.ZCDP, Decimal(2 * NOISE))
    house.fix(limit=None, noise=None)
    asker.ask(counting("age = 3"))
    assert Decimal(asker.bills[-1]["charged"]) > PRICE
    with house.proxy.connect("admin") as admin:
        admin.execute("SELECT provenance.limit_relation('patient_data', 0)")
    assert asker.refused(counting("age = 4")).sqlstate == "53400"


def test_on_a_pure_ledger_the_noise_is_laplace_s(
    new_upstream: Callable[[], str], shadow_server: Any, tmp_path: Any
) -> None:
    upstream = new_upstream()
    with psycopg.connect(upstream, autocommit=True) as conn:
        conn.execute("UPDATE provenance.deployment SET coin = 'pure'")
    with running_proxy(upstream, shadow_server.admin_dsn, tmp_path / "proxy.log") as proxy:
        house = House(proxy)
        house.fix(limit=str(Decimal(4) / NOISE))
        asker = house.asker()
        (statistic,) = asker.explain(counting("age < 9"))["Questions"][0]["Statistics"]
        assert statistic["noise"] == f"discrete Laplace, scale {NOISE}"
        for low in range(4):
            asker.ask(counting(f"age BETWEEN {low} AND 50"))
            assert Decimal(asker.bills[-1]["charged"]) == Decimal(1) / NOISE
        assert "relation patient_data" in str(asker.refused(counting("age BETWEEN 4 AND 50")).diag.message_primary)
        asker.ask(counting("age > 50"))
        assert house.popularity == 4
        house.close()
