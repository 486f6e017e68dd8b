"""Parallel composition, seen by a client: questions about different people share one price."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import ROUND_UP, Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from proxies import Proxy, new_analyst, running_proxy

from proxy.demo_data import CITIES, DISEASES


@pytest.fixture(scope="module")
def house(new_upstream: Callable[[], str]) -> str:
    """A deployment of its own, in which the region of an order is declared to be that of the customer."""
    dsn = new_upstream()
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(
            "UPDATE orders o SET region = h.region FROM"
            " (SELECT customer_id, min(region) AS region FROM orders GROUP BY customer_id) h"
            " WHERE h.customer_id = o.customer_id"
        )
        conn.execute(
            "UPDATE provenance.attribute SET constant_per_unit = true WHERE relation = 'orders' AND name = 'region'"
        )
    return dsn


@pytest.fixture(scope="module")
def gate(house: str, shadow_server: Any, tmp_path_factory: Any) -> Iterator[Proxy]:
    log: Path = tmp_path_factory.mktemp("regions") / "proxy.log"
    with running_proxy(house, shadow_server.admin_dsn, log) as running:
        yield running


class Client:
    """An analyst, and what is told to her by all who tell."""

    def __init__(self, gate: Proxy, house: str) -> None:
        self.name = new_analyst(house)
        self._session, self._house = gate.connect(self.name), house
        self.bills: list[dict[str, Any]] = []
        self._session.add_notice_handler(lambda told: self.bills.append(json.loads(told.message_detail or "{}")))

    def ask(self, text: str) -> Decimal:
        """What it was charged."""
        self._session.execute(text.encode())
        return Decimal(self.bills[-1]["charged"])

    def set(self, name: str, value: str) -> None:
        self._session.execute(f"SET veil.{name} = '{value}'".encode())

    def explain(self, text: str) -> dict[str, Any]:
        row = self._session.execute(f"EXPLAIN (FORMAT JSON) {text}".encode()).fetchone()
        assert row is not None
        told: dict[str, Any] = row[0][0]
        return told

    def budget(self) -> Decimal:
        """veil.budget: what is spent of the own limit, in epsilon, rounded up for reading."""
        row = self._session.execute("SELECT spent FROM veil.budget WHERE view = 'all'").fetchone()
        assert row is not None
        return Decimal(row[0])

    def balance(self) -> Decimal:
        return self._one("SELECT amount FROM provenance.balance WHERE scope = 'analyst' AND name = %s")

    def counted(self) -> Decimal:
        return self._one("SELECT sum(counted) FROM provenance.history WHERE analyst = %s")

    def epsilon(self) -> Decimal:
        """What the balance means, with as many digits."""
        exactly = self._one(
            "SELECT provenance.epsilon_of(d.coin, b.amount, d.conversion_delta) FROM provenance.deployment d"
            " JOIN provenance.balance b ON b.scope = 'analyst' AND b.name = %s"
        )
        return exactly.quantize(Decimal("0.000001"), ROUND_UP)

    def _one(self, text: str) -> Decimal:
        with psycopg.connect(self._house) as conn:
            row = conn.execute(text.encode(), (self.name,)).fetchone()
        assert row is not None
        return Decimal(row[0])

    def close(self) -> None:
        self._session.close()


@pytest.fixture
def client(gate: Proxy, house: str) -> Iterator[Client]:
    made = Client(gate, house)
    yield made
    made.close()


def of_disease(name: str) -> str:
    quoted = name.replace("'", "''")
    return f"SELECT count(*) FROM patient_data WHERE disease = '{quoted}'"


def test_forty_questions_on_forty_diseases_cost_as_much_as_one(client: Client, house: str) -> None:
    with psycopg.connect(house, autocommit=True) as conn:  # what others asked has left each disease its own level
        conn.execute("SELECT provenance.refresh('patient_data')")
    first, *others = [of_disease(disease.name) for disease in DISEASES[:40]]
    assert len(others) == 39
    price = client.ask(first)
    spent = client.budget()
    foreseen = client.explain(others[0])
    assert Decimal(foreseen["Charged"]) == price and Decimal(foreseen["Counted"]) == 0
    assert foreseen["Questions"][0]["Region"] == f"disease = '{DISEASES[1].name}'"
    assert [client.ask(text) for text in others] == [price] * 39
    assert client.balance() == price == client.counted()
    assert client.budget() == spent == client.epsilon()
    left = client.bills[0]["remaining_epsilon"]
    assert all(bill["remaining_epsilon"] == left for bill in client.bills)
    again = client.explain("SELECT count(*) FROM patient_data WHERE age < 30")
    assert again["Counted"] == again["Charged"] and Decimal(again["Counted"]) > 0
    assert again["Questions"][0]["Region"] == "age <= 29"
    more = client.ask("SELECT count(*) FROM patient_data WHERE age < 30")
    assert client.balance() == price + more
    with psycopg.connect(house) as conn:
        assert conn.execute("SELECT broken, reason FROM provenance.verify_chain()").fetchone() == (None, None)


def test_questions_that_share_people_add_up(client: Client) -> None:
    prices = [
        client.ask(f"SELECT count(*) FROM patient_data WHERE age BETWEEN {low} AND {low + 20}")
        for low in (0, 10, 20, 50)
    ]
    assert client.balance() == sum(prices[:3]) == client.counted()  # at 20 the first three, at 50 the last alone


def test_decisions_on_disjoint_people_share_their_price(client: Client) -> None:
    text = "SELECT disease FROM patient_data WHERE gender = '{}' GROUP BY disease HAVING count(*) > 100"
    one = client.ask(text.format("female"))
    assert client.balance() == one
    other = client.ask(text.format("male"))
    assert client.balance() == max(one, other) == client.counted()


def test_the_statistics_of_one_question_fall_where_their_filters_say(client: Client) -> None:
    text = "SELECT count(*) FILTER (WHERE gender = 'female'), count(*) FILTER (WHERE gender = 'male') FROM patient_data"
    price = client.ask(text)
    assert client.balance() == price / 2


def test_cities_of_one_customer_add_up_and_what_is_constant_per_customer_does_not(client: Client) -> None:
    cities = [f"SELECT count(*) FROM orders WHERE city = '{city.name}'" for city in CITIES[:3]]
    prices = [client.ask(text) for text in cities]
    assert client.balance() == sum(prices)
    regions = sorted({city.region for city in CITIES})[:3]
    before = client.balance()
    constant = [client.ask(f"SELECT count(*) FROM orders WHERE region = '{region}'") for region in regions]
    assert client.balance() == before + max(constant)
    assert client.explain(cities[0].replace("count(*)", "sum(amount)"))["Questions"][0]["Region"] == "everybody"


@pytest.mark.parametrize(("mechanism", "shown"), [("auto", "disease, count(*)"), ("ppwlm", "disease")])
def test_each_group_of_a_decision_bears_its_own_level(client: Client, house: str, mechanism: str, shown: str) -> None:
    """Predicate-wise loss: the till knows what each group lost, and later questions on a group that lost little have
    more room there than on one that lost all."""
    client.set("mechanism", mechanism)
    charged = client.ask(f"SELECT {shown} FROM patient_data GROUP BY disease HAVING count(*) > 1500")
    with psycopg.connect(house) as conn:
        row = conn.execute(
            "SELECT max(id) FROM provenance.charge WHERE analyst = %s AND question_of IS NULL", (client.name,)
        ).fetchone()
        assert row is not None
        lost = [row[1] for row in conn.execute("SELECT * FROM provenance.group_losses(%s) ORDER BY 1", row)]
        felt = conn.execute(
            "SELECT f.region, f.amount FROM provenance.felt f JOIN provenance.layer l ON l.id = f.layer"
            " WHERE l.scope = 'analyst' AND l.name = %s AND f.amount > 0",
            (client.name,),
        ).fetchall()
    names = [disease.name for disease in sorted(DISEASES, key=lambda disease: disease.name)]
    parts = {name: amount for text, amount in felt for name in json.loads(text)["disease"]["in"]}
    assert set(parts) == set(names) and len(lost) == 40 and len(set(lost)) >= 2 and 2 <= len(felt) <= 4
    assert client.balance() == charged == max(lost) == max(parts.values())
    assert sorted(parts.values()) >= sorted(lost) and min(parts.values()) < charged
    for before, after in zip(sorted(lost), sorted(parts.values()), strict=True):
        assert after >= before, "rounded up, if at all"
    cheapest, dearest = min(parts, key=lambda name: parts[name]), max(parts, key=lambda name: parts[name])
    foreseen = client.explain(of_disease(cheapest))
    price = client.ask(of_disease(cheapest))
    assert client.balance() == max(charged, parts[cheapest] + price) < charged + price
    assert Decimal(foreseen["Counted"]) == client.balance() - charged
    more = client.ask(of_disease(dearest))
    assert client.balance() == max(charged, parts[cheapest] + price, parts[dearest] + more) == charged + more
    with psycopg.connect(house) as conn:
        assert conn.execute("SELECT broken, reason FROM provenance.verify_chain()").fetchone() == (None, None)
