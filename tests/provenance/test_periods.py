"""Periods: every limit grows by the same coin again when one has passed, and nothing that was spent comes back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import Connection, errors

from mechanisms.loss import Coin, Loss, amount_within, epsilon_of
from provenance import accountant
from provenance.errors import LimitReached
from provenance.ledger import Ledger
from provenance.model import Allocation, Analyst, Balance, Balances, Charge, Deployment, Part

HALF = Decimal("5e-10")
UNIT = Decimal("1e-18")
ROUNDED = 4 * UNIT  # a limit is an epsilon, which is told with as many digits as the coin
ONE = amount_within(Coin.ZCDP, Decimal(1), HALF)  # what alice's limit is worth, each period
ALICE = Analyst("alice", 1, None, {}, True)

ChargeOf = Callable[..., Charge]
Pools = Callable[..., Any]


@pytest.fixture
def ready(swept: str) -> str:
    """One database for all tests here, which is swept before each."""
    return swept


def pass_by(owner: Connection, how_long: str) -> None:
    """As if so much time had passed since the period was set."""
    owner.execute("UPDATE provenance.deployment SET period_began = period_began - %s::interval", (how_long,))


def pay(dsn: str, pools: Pools, *charges: Charge) -> None:
    """Each of them; the till says beforehand what it will say."""

    async def run() -> None:
        async with pools(dsn) as pool:
            ledger = Ledger(pool)
            for charge in charges:
                refusal = (await ledger.verdict([charge])).refusal
                if refusal is None:
                    await ledger.charge(charge)
                    continue
                with pytest.raises(LimitReached):
                    await ledger.charge(charge)
                raise refusal

    asyncio.run(run())


def periods(conn: Connection) -> int:
    row = conn.execute("SELECT provenance.periods()").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("coin", ["zcdp", "pure"])
def test_each_period_allows_as_much_again_and_not_more(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf, coin: str
) -> None:
    owner.execute("UPDATE provenance.deployment SET coin = %s, period = '1 month'", (coin,))
    each = ONE if coin == "zcdp" else Decimal(1)
    for month in range(3):
        if month:
            pass_by(owner, "31 days")
        pay(ready, pools, charge_of(owner, each))
        with pytest.raises(LimitReached, match='analyst "alice"') as refused:
            pay(ready, pools, charge_of(owner, ROUNDED))
        assert "wait until the limit grows (" in (refused.value.hint or "")
    assert owner.execute("SELECT amount FROM provenance.total").fetchone() == (3 * each,), "nothing has come back"


def test_what_was_not_spent_stays(ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf) -> None:
    owner.execute("UPDATE provenance.deployment SET period = '7 days'")
    pass_by(owner, "28 days")
    pay(ready, pools, charge_of(owner, 5 * ONE))
    with pytest.raises(LimitReached):
        pay(ready, pools, charge_of(owner, ROUNDED))


def test_every_limit_grows(ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf) -> None:
    """That of the database, of a coalition, of a view, of a relation, and the delta."""
    owner.execute("UPDATE provenance.deployment SET period = '1 day', epsilon = 1")
    owner.execute("UPDATE provenance.analyst SET privilege = 10")
    half = amount_within(Coin.ZCDP, Decimal("0.5"), HALF)
    owner.execute("SELECT provenance.register_view('patient', '{age}', epsilon_limit => 0.5)")
    on_view = replace(charge_of(owner, half), parts=(Part(frozenset({"age"}), "count(*)", half, half),))
    pay(ready, pools, on_view)
    with pytest.raises(LimitReached, match="view patient"):
        pay(ready, pools, on_view)
    pass_by(owner, "1 day")
    pay(ready, pools, on_view)
    rest = 2 * ONE - 2 * half
    pay(ready, pools, charge_of(owner, rest, "bob"))
    with pytest.raises(LimitReached, match="the protected database"):
        pay(ready, pools, charge_of(owner, ROUNDED, "bob"))
    owner.execute("UPDATE provenance.deployment SET epsilon = 10")
    owner.execute("SELECT provenance.limit_relation('orders', 0.5)")
    pay(ready, pools, charge_of(owner, 2 * half, "bob", "orders"))
    with pytest.raises(LimitReached, match="relation orders"):
        pay(ready, pools, charge_of(owner, ROUNDED, "bob", "orders"))
    owner.execute("SELECT provenance.limit_relation('orders', NULL)")
    with_delta = replace(charge_of(owner, "0"), loss=Loss(Coin.ZCDP, Decimal(0), 2 * HALF))
    pay(ready, pools, with_delta)
    with pytest.raises(LimitReached, match="the delta of"):
        pay(ready, pools, replace(with_delta, loss=Loss(Coin.ZCDP, Decimal(0), Decimal("1e-20"))))


def test_a_coalition_s_limit_grows(ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf) -> None:
    owner.execute("UPDATE provenance.deployment SET period = '1 day', epsilon = 1")
    owner.execute("UPDATE provenance.analyst SET privilege = 10")
    owner.execute("INSERT INTO provenance.coalition VALUES ('one'), ('two')")
    owner.execute("UPDATE provenance.analyst SET coalition = CASE name WHEN 'bob' THEN 'one' ELSE 'two' END")
    pass_by(owner, "1 day")
    pay(ready, pools, charge_of(owner, 2 * ONE), charge_of(owner, 2 * ONE, "bob"))
    for who in ("alice", "bob"):
        with pytest.raises(LimitReached):
            pay(ready, pools, charge_of(owner, ROUNDED, who))


def test_a_grant_is_given_once(ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf) -> None:
    owner.execute("UPDATE provenance.deployment SET period = '1 day'")
    pass_by(owner, "1 day")
    owner.execute("SELECT provenance.grant_budget('bob', 'alice', 1)")
    pay(ready, pools, charge_of(owner, 3 * ONE))
    with pytest.raises(LimitReached):
        pay(ready, pools, charge_of(owner, ROUNDED))


def test_no_change_of_the_period_earns_one(sandbox: Connection) -> None:
    for _ in range(20):
        for length in ("'1 day'", "'100 years'", "NULL", "'1 month'"):
            sandbox.execute(f"UPDATE provenance.deployment SET period = {length}".encode())
            assert periods(sandbox) == 1


def test_what_was_earned_stays_and_what_had_not_passed_is_not_counted(sandbox: Connection) -> None:
    sandbox.execute("UPDATE provenance.deployment SET period = '10 days'")
    pass_by(sandbox, "39 days")
    assert periods(sandbox) == 4
    sandbox.execute("UPDATE provenance.deployment SET period = '20 days'")
    pass_by(sandbox, "19 days")
    assert periods(sandbox) == 4
    pass_by(sandbox, "1 day")
    assert periods(sandbox) == 5
    sandbox.execute("UPDATE provenance.deployment SET period = NULL")
    assert periods(sandbox) == 5
    assert sandbox.execute("SELECT next_period, periods FROM provenance.total").fetchone() == (None, 5)
    sandbox.execute("UPDATE provenance.deployment SET epsilon = 9")
    assert periods(sandbox) == 5


def test_changes_at_the_same_moment_lose_nothing_and_earn_nothing(ready: str, owner: Connection) -> None:
    """The second waits for the first, with a snapshot from before it."""
    owner.execute("UPDATE provenance.deployment SET period = '1 day'")
    pass_by(owner, "3 days")
    with psycopg.connect(ready) as first, psycopg.connect(ready) as second:
        first.execute("UPDATE provenance.deployment SET period = '2 days'")
        first.execute("UPDATE provenance.deployment SET period_began = period_began - interval '2 days'")
        with ThreadPoolExecutor(1) as other:
            waiting = other.submit(second.execute, "UPDATE provenance.deployment SET period = '5 days'")
            blocked = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
            while owner.execute(blocked, (second.info.backend_pid,)).fetchone() != (1,):
                time.sleep(0.01)
            first.commit()
            waiting.result()
        second.commit()
    assert periods(owner) == 5


def test_a_clock_that_was_set_back_takes_nothing_away_but_time(sandbox: Connection) -> None:
    sandbox.execute("UPDATE provenance.deployment SET period = '1 day'")
    sandbox.execute("UPDATE provenance.deployment SET period_began = now() + interval '3 days'")
    assert periods(sandbox) == 1


@pytest.mark.parametrize("length", ["'0'", "'-1 day'", "'23 hours'", "'101 years'"])
def test_a_period_has_a_sensible_length(sandbox: Connection, length: str) -> None:
    with pytest.raises(errors.CheckViolation, match="a_period_lasts_a_day_at_least"):
        sandbox.execute(f"UPDATE provenance.deployment SET period = {length}".encode())


@pytest.mark.parametrize(
    ("began", "length", "until", "passed"),
    [
        ("2026-01-31", "1 month", "2026-02-27 23:59:59", 0),
        ("2026-01-31", "1 month", "2026-02-28", 1),
        ("2026-01-31", "1 month", "2026-03-30 23:59:59", 1),
        ("2026-01-31", "1 month", "2026-03-31", 2),
        ("2026-01-01", "1 month", "2126-01-01", 1200),
        ("2026-01-01", "1 year", "2125-12-31 23:59:59", 99),
        ("2024-02-29", "1 year", "2025-02-28", 1),
        ("2026-03-28 12:00", "1 day", "2026-03-29 11:59:59", 0),  # in many places that day has 23 hours
        ("2026-03-28 12:00", "1 day", "2026-03-29 12:00", 1),
        ("2026-01-01", "1 month 15 days", "2026-05-01", 2),
        ("2026-01-01", "1 day", "2025-01-01", 0),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Oslo", "Pacific/Apia"])
def test_periods_follow_the_calendar(
    sandbox: Connection, began: str, length: str, until: str, passed: int, zone: str
) -> None:
    sandbox.execute(f"SET LOCAL TimeZone = '{zone}'".encode())
    row = sandbox.execute(
        "SELECT provenance.periods_since(%s::timestamptz, %s, %s::timestamptz)", (began + "Z", length, until + "Z")
    ).fetchone()
    assert row == (passed,)


def test_the_next_period_begins_when_it_is_said(sandbox: Connection) -> None:
    sandbox.execute("UPDATE provenance.deployment SET period = '1 month'")
    pass_by(sandbox, "100 days")
    row = sandbox.execute("SELECT now(), provenance.next_period(), period_began FROM provenance.deployment").fetchone()
    assert row is not None
    now, later, began = row
    assert isinstance(later, datetime) and now < later

    def passed(until: datetime) -> int:
        query = "SELECT provenance.periods_since(%s, '1 month', %s - interval '1 microsecond'),"
        found = sandbox.execute(query + " provenance.periods_since(%s, '1 month', %s)", (began, until) * 2).fetchone()
        assert found is not None and found[1] == found[0] + 1
        return int(found[1])

    assert passed(later) == periods(sandbox)


def test_whoever_sets_a_period_is_told_what_it_means(sandbox: Connection) -> None:
    told: list[tuple[str, str]] = []
    sandbox.add_notice_handler(lambda said: told.append((said.message_primary or "", said.message_detail or "")))
    sandbox.execute("UPDATE provenance.deployment SET period = '1 month'")
    ((message, detail),) = told
    assert message == "every limit grows each 1 mon"
    most = epsilon_of(Coin.ZCDP, 13 * amount_within(Coin.ZCDP, Decimal(10), HALF), HALF)
    assert "epsilon 10.000000 (delta " in detail and f"epsilon {most:.6f}" in detail
    sandbox.execute("UPDATE provenance.deployment SET period = NULL, expansion = 2")
    sandbox.execute("UPDATE provenance.deployment SET expansion = 1")
    assert [each[:27] for each, _ in told[1:]] == ["limits do not grow any more"]


@pytest.mark.parametrize("delta", ["0.1", "1e-5", "5e-10", "1e-30"])
def test_an_amount_in_sql_is_an_amount_in_python(sandbox: Connection, delta: str) -> None:
    epsilons = [Decimal(f"{m}e{e}") for e in range(-3, 5) for m in ("1", "3.7")]
    query = "SELECT provenance.amount_of('zcdp', e, %s) FROM unnest(%s::numeric[]) WITH ORDINALITY t(e, o) ORDER BY o"
    rows = sandbox.execute(query, (Decimal(delta), epsilons)).fetchall()
    for epsilon, (found,) in zip(epsilons, rows, strict=True):
        true = amount_within(Coin.ZCDP, epsilon, Decimal(delta))
        assert abs(found - true) <= Decimal("1e-6") * true + Decimal("1e-12"), (epsilon, found, true)
        assert found <= true + Decimal("1e-12"), (epsilon, found, true)


@pytest.mark.parametrize("coin", ["zcdp", "pure"])
def test_reports_tell_the_till_s_limits(sandbox: Connection, coin: str) -> None:
    sandbox.execute("UPDATE provenance.deployment SET coin = %s, period = '1 day', epsilon = 10", (coin,))
    sandbox.execute("UPDATE provenance.analyst SET epsilon_limit = 0.3 WHERE name = 'bob'")
    sandbox.execute("SELECT provenance.limit_relation('orders', 2.5)")
    pass_by(sandbox, "6 days")
    delta = HALF if coin == "zcdp" else Decimal(0)
    deployment = Deployment(
        Coin(coin), Decimal(10), Decimal("1e-9"), Allocation.MAX, Decimal(1), delta, HALF, 1, 5, periods=7
    )
    people = {"alice": ALICE, "bob": Analyst("bob", 4, Decimal("0.3"), {}, True)}
    for name, limit in sandbox.execute("""SELECT analyst, "limit" FROM provenance.budget WHERE view = 'all'"""):
        assert float(limit) == pytest.approx(float(accountant.limit(deployment, people[name])), rel=1e-6)
    for table, epsilon in (("total", 10), ("relation_budget WHERE relation = 'orders'", Decimal("2.5"))):
        row = sandbox.execute(f'SELECT "limit" FROM provenance.{table}'.encode()).fetchone()
        grown = accountant.grown(deployment, Decimal(epsilon))
        assert row is not None and float(row[0]) == pytest.approx(float(grown), rel=1e-6)


@given(st.integers(1, 400), st.decimals(min_value="0.001", max_value=50, places=6), st.sampled_from(list(Coin)))
def test_a_limit_grows_by_its_coin(count: int, epsilon: Decimal, coin: Coin) -> None:
    delta = HALF if coin is Coin.ZCDP else Decimal(0)
    deployment = Deployment(coin, epsilon, 2 * HALF, Allocation.MAX, Decimal(1), delta, HALF, 1, 1, periods=count)
    owner = replace(ALICE, privilege=10)
    exactly = count * amount_within(coin, epsilon, delta)
    accountant.admit(deployment, owner, Balances(Balance(), Balance()), Loss(coin, exactly))
    with pytest.raises(LimitReached):
        accountant.admit(deployment, owner, Balances(Balance(), Balance()), Loss(coin, exactly + ROUNDED))
    room = accountant.room(deployment, owner, Balances(Balance(), Balance()))
    assert exactly - ROUNDED <= room.whole <= exactly + ROUNDED and room.half <= room.whole
