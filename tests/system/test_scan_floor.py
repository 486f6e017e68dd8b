"""The least price of a question that reads data: what it costs, where that falls, and what it buys."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from proxies import Proxy, charges, new_analyst, running_proxy
from psycopg import errors

from mechanisms.loss import Coin, amount_within, epsilon_of
from proxy.floor import floor_amount

TENTH = Decimal("0.1")
LIMIT = Decimal(2)  # of each analyst, in epsilon
GENDERS = "SELECT gender, count(*) FROM patient_data GROUP BY gender"
DECISION = "SELECT disease FROM patient_data {} GROUP BY disease HAVING count(*) > 2500"


def books_of(dsn: str, coin: str) -> str:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("UPDATE provenance.deployment SET coin = %s, epsilon = 20, scan_floor = 0.1", (coin,))
        conn.execute("UPDATE provenance.deployment SET timing = 'immediate'")  # this module measures prices
    return dsn


@pytest.fixture(scope="module", params=["zcdp", "pure"])
def books(request: pytest.FixtureRequest, new_upstream: Callable[[], str]) -> str:
    return books_of(new_upstream(), request.param)


@pytest.fixture(scope="module")
def office(books: str, shadow_server, tmp_path_factory) -> Iterator[Proxy]:  # type: ignore[no-untyped-def]
    log = tmp_path_factory.mktemp("floor") / "proxy.log"
    with running_proxy(books, shadow_server.admin_dsn, log) as proxy:
        yield proxy


@pytest.fixture
def name(books: str) -> str:
    made = new_analyst(books)
    one(books, "UPDATE provenance.analyst SET epsilon_limit = %s WHERE name = %s RETURNING name", (LIMIT, made))
    return made


@pytest.fixture
def session(office: Proxy, name: str) -> Iterator[psycopg.Connection]:
    with office.connect(name) as conn:
        yield conn


def one(dsn: str, query: str, values: tuple[Any, ...] = ()) -> Any:
    with psycopg.connect(dsn, autocommit=True) as conn:
        row = conn.execute(query.encode(), values).fetchone()
    return None if row is None else row[0]


@pytest.fixture
def floor(books: str) -> Decimal:
    """The least price, in the ledger's measure."""
    with psycopg.connect(books) as conn:
        row = conn.execute("SELECT coin, conversion_delta FROM provenance.deployment").fetchone()
    assert row is not None
    return floor_amount(Coin(row[0]), LIMIT, row[1], TENTH)


def bill(session: psycopg.Connection, question: str) -> dict[str, Any]:
    told: list[dict[str, Any]] = []

    def hear(notice: psycopg.errors.Diagnostic) -> None:
        told.append(json.loads(notice.message_detail or "{}"))

    session.add_notice_handler(hear)
    try:
        session.execute(question.encode())
    finally:
        session.remove_notice_handler(hear)
    return told[-1]


def plan_of(session: psycopg.Connection, question: str) -> dict[str, Any]:
    row = session.execute(f"EXPLAIN (FORMAT JSON) {question}".encode()).fetchone()
    assert row is not None
    found: dict[str, Any] = row[0][0]
    return found


def everywhere(books: str, name: str) -> Decimal:
    """What the analyst has learned of every unit, wherever it lies."""
    query = """SELECT coalesce(sum(f.amount), 0) FROM provenance.felt f JOIN provenance.layer l ON l.id = f.layer
               WHERE l.scope = 'analyst' AND l.name = %s AND f.region = '{}'"""
    found: Decimal = one(books, query, (name,))
    return found


def spent(books: str, name: str) -> Decimal:
    found: Decimal = one(books, "SELECT sum(amount) FROM provenance.charge WHERE analyst = %s", (name,))
    return found


@pytest.mark.parametrize(
    "question",
    [
        GENDERS,
        "SELECT count(*) FROM patient_data WHERE age = 40",
        "SELECT avg(age) FROM patient_data WHERE gender = 'f'",
        "SELECT patient_id % 7, count(*) FROM patient_data WHERE age < 30 GROUP BY 1",
        "SELECT count(*) FROM orders WHERE city = 'Boston'",
        "SELECT gender FROM patient_data WHERE age < 50 GROUP BY gender HAVING count(*) > 100",
        DECISION.format(""),
        DECISION.format("WHERE age < 50"),
        "SELECT o.category, count(*) FROM orders o JOIN city c USING (city) WHERE c.region = 'West' GROUP BY 1",
    ],
)
def test_a_cheap_question_costs_the_floor_of_everybody(
    session: psycopg.Connection, books: str, name: str, floor: Decimal, question: str
) -> None:
    session.execute("SET veil.margin = '2000u'")
    foretold = plan_of(session, question)
    paid = bill(session, question)
    assert Decimal(paid["charged"]) == spent(books, name) >= floor
    assert everywhere(books, name) >= floor
    if "HAVING" not in question:
        assert Decimal(paid["charged"]) == floor, "no more than the floor"
        assert Decimal(foretold["Charged"]) == floor
    assert foretold["Questions"][0]["Least Price"] > 0
    assert Decimal(bill(session, question)["charged"]) == 0, "a stored answer is no scan"
    assert len(charges(books, name)) == 1


def test_what_is_above_the_floor_falls_on_the_region(
    session: psycopg.Connection, books: str, name: str, floor: Decimal
) -> None:
    session.execute("SET veil.epsilon = '0.9'")
    paid = bill(session, "SELECT count(*) FROM patient_data WHERE age = 41")
    assert Decimal(paid["charged"]) > floor
    assert everywhere(books, name) == floor
    query = """SELECT f.amount FROM provenance.felt f JOIN provenance.layer l ON l.id = f.layer
               WHERE l.scope = 'analyst' AND l.name = %s AND f.region <> '{}'"""
    assert one(books, query, (name,)) == Decimal(paid["charged"]) - floor


def test_the_floor_buys_accuracy(session: psycopg.Connection, books: str, name: str, floor: Decimal) -> None:
    """Noise as of the least price, not as of the margin that was asked for, which would be thousands."""
    session.execute("SET veil.margin = '20000u'")
    truth = one(books, "SELECT count(*) FROM patient_data WHERE age = 42")
    row = session.execute("SELECT count(*) FROM patient_data WHERE age = 42").fetchone()
    assert row is not None
    pure = one(books, "SELECT coin FROM provenance.deployment") == "pure"
    assert abs(row[0] - truth) < (25 / float(floor) if pure else 10 / float(2 * floor) ** 0.5) < 200


def test_a_price_below_the_floor_is_raised(session: psycopg.Connection, floor: Decimal) -> None:
    session.execute("SET veil.epsilon = '0.000001'")
    assert Decimal(bill(session, "SELECT count(*) FROM patient_data WHERE age = 43")["charged"]) == floor


@pytest.mark.parametrize("question", ["SELECT count(*) FROM patient_data WHERE age = 44", DECISION.format("")])
def test_a_question_that_may_not_spend_the_floor_is_refused_before_it_is_charged(
    session: psycopg.Connection, books: str, name: str, question: str
) -> None:
    session.execute("SET veil.margin = '2000u'; SET veil.max_epsilon = '0.001'")
    with pytest.raises(errors.ProgramLimitExceeded) as refused:
        session.execute(question.encode())
    hint = refused.value.diag.message_hint or ""
    assert charges(books, name) == []
    enough = hint.split("'")[1]
    with pytest.raises(errors.ProgramLimitExceeded):
        session.execute(f"EXPLAIN {question}".encode())
    session.execute(f"SET veil.max_epsilon = '{enough}'".encode())
    if "HAVING" not in question:
        assert bill(session, question)["charged"] != "0"


def test_an_analyst_sees_no_more_timings_than_the_floor_allows(
    session: psycopg.Connection, books: str, name: str
) -> None:
    session.execute("SET veil.margin = '50000u'")
    scans = 0
    with pytest.raises(errors.Error) as refused:
        for age in range(20, 60):
            session.execute(f"SELECT count(*) FROM patient_data WHERE age = {age} AND gender = 'f'".encode())
            scans += 1
    assert refused.value.sqlstate == "54P01" or "limit" in str(refused.value)
    assert scans == 10


def test_a_change_of_the_limit_changes_the_price(session: psycopg.Connection, books: str, name: str) -> None:
    session.execute("SET veil.margin = '2000u'")
    before = Decimal(bill(session, "SELECT count(*) FROM patient_data WHERE age = 61")["charged"])
    one(books, "UPDATE provenance.analyst SET epsilon_limit = 4 WHERE name = %s RETURNING name", (name,))
    after = Decimal(bill(session, "SELECT count(*) FROM patient_data WHERE age = 62")["charged"])
    assert after > before


def test_what_is_lent_counts(session: psycopg.Connection, books: str, name: str, floor: Decimal) -> None:
    """Else an analyst with a tiny limit of their own, and much that is lent, could look very often."""
    lender = new_analyst(books)
    session.execute("SET veil.margin = '2000u'")
    one(books, "SELECT provenance.grant_budget(%s, %s, 1)", (lender, name))
    assert Decimal(bill(session, "SELECT count(*) FROM patient_data WHERE age = 63")["charged"]) > floor


def test_derived_answers_are_no_scans(office: Proxy, books: str) -> None:
    """What one analyst has had measured is derived for another at the accuracy asked for, below the floor."""
    if one(books, "SELECT coin FROM provenance.deployment") == "pure":
        pytest.skip("synopses are for Gaussian noise")
    first, second = new_analyst(books), new_analyst(books)
    for each in (first, second):
        one(books, "UPDATE provenance.analyst SET epsilon_limit = %s WHERE name = %s RETURNING name", (LIMIT, each))
    question = "SELECT count(*) FROM patient_data WHERE age = 64"
    with office.connect(first) as conn:
        paid = Decimal(bill(conn, question)["charged"])
    with office.connect(second) as conn:
        conn.execute("SET veil.margin = '500u'")
        assert 0 < Decimal(bill(conn, question)["charged"]) < paid


def test_what_a_decision_tells_of_its_view_counts_for_the_view(
    session: psycopg.Connection, books: str, name: str, floor: Decimal
) -> None:
    """The scan's row pays for the first stages of a decision: the limit of the view must see it."""
    bill(session, DECISION.format("WHERE age > 7"))
    query = (
        "SELECT sum(s.amount) FROM provenance.spending s JOIN provenance.view v ON v.id = s.view WHERE s.analyst = %s"
    )
    assert one(books, query, (name,)) >= floor


def test_the_floor_is_worth_what_it_says() -> None:
    delta = Decimal("1e-9")
    for coin in Coin:
        for fraction in (Decimal(1) / 4000, TENTH, Decimal(1)):
            amount = floor_amount(coin, Decimal(3), delta, fraction)
            whole = Decimal(3) if coin is Coin.PURE else amount_within(coin, Decimal(3), delta)
            assert whole - Decimal("1e-12") <= amount / fraction <= whole
            assert epsilon_of(coin, amount, delta) <= 3 + Decimal("1e-9")
        assert floor_amount(coin, Decimal(3), delta, Decimal(0)) == floor_amount(coin, Decimal(0), delta, TENTH) == 0
