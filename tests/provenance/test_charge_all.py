"""Several questions of one statement at the till: all are paid, or none; and the till's opinion, for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from psycopg import Connection

from mechanisms.loss import Coin, Loss, amount_within
from provenance.errors import LimitReached, NotActive, StaleCatalog
from provenance.ledger import Ledger
from provenance.model import Charge, Receipt

ALICE = amount_within(Coin.ZCDP, Decimal(1), Decimal("5e-10"))
UNIT = Decimal("1e-18")

ChargeOf = Callable[..., Charge]
Pools = Callable[..., Any]


def journal(conn: Connection) -> list[tuple[Any, ...]]:
    return conn.execute("SELECT id, relation, amount FROM provenance.charge ORDER BY id").fetchall()


def balances(conn: Connection) -> dict[str, Decimal]:
    return dict(conn.execute("SELECT scope || name, amount FROM provenance.balance").fetchall())


def pay(dsn: str, pools: Pools, charges: list[Charge]) -> list[Receipt]:
    async def run() -> list[Receipt]:
        async with pools(dsn) as pool:
            return await Ledger(pool).charge_all(charges)

    return asyncio.run(run())


def verdict(dsn: str, pools: Pools, amount: Decimal, delta: Decimal = Decimal(0), analyst: str = "alice") -> Any:
    async def run() -> LimitReached | None:
        async with pools(dsn) as pool:
            asked = Charge(analyst, 1, 1, 1, "f", "SELECT 1", "tslm", Loss(Coin.ZCDP, amount, delta))
            return (await Ledger(pool).verdict([asked])).refusal

    return asyncio.run(run())


def test_each_question_has_a_receipt_and_a_line_of_its_own(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    asked = [charge_of(owner, "0.001"), charge_of(owner, "0.002", relation="orders")]
    receipts = pay(ready, pools, asked)
    assert [receipt.charge for receipt in receipts] == asked
    assert journal(owner) == [
        (receipts[0].id, "patient", Decimal("0.001")),
        (receipts[1].id, "orders", Decimal("0.002")),
    ]
    assert balances(owner)["analystalice"] == balances(owner)["table"] == Decimal("0.003")
    assert receipts[0].remaining == receipts[1].remaining, "what is left is told when all are paid"


def test_a_limit_that_allows_one_and_not_two_takes_neither(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    dear = charge_of(owner, ALICE / 2 + UNIT)
    with pytest.raises(LimitReached):
        pay(ready, pools, [dear, dear])
    assert journal(owner) == [] and balances(owner)["table"] == 0
    pay(ready, pools, [dear])
    assert len(journal(owner)) == 1


def test_together_they_may_use_a_limit_to_its_last_digit(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    half = (ALICE / 2).quantize(UNIT)
    rest = ALICE - half
    with pytest.raises(LimitReached):
        pay(ready, pools, [charge_of(owner, half), charge_of(owner, rest + UNIT)])
    receipts = pay(ready, pools, [charge_of(owner, half), charge_of(owner, rest)])
    assert len(receipts) == 2 and balances(owner)["analystalice"] == ALICE


def test_one_stale_question_takes_the_others_with_it(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    good = charge_of(owner, "0.001")
    with pytest.raises(StaleCatalog):
        pay(ready, pools, [good, replace(good, data_version=99)])
    assert journal(owner) == []


def test_a_statement_has_one_analyst(ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf) -> None:
    with pytest.raises(ValueError, match="one analyst"):
        pay(ready, pools, [charge_of(owner, "0.001"), charge_of(owner, "0.001", analyst="bob")])
    assert journal(owner) == []


def test_racing_statements_never_overspend_together(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    """Twenty pairs for a limit that holds six questions: three pairs are paid, whoever comes first."""
    sixth = (ALICE / 6).quantize(UNIT, rounding="ROUND_DOWN")
    pair = [charge_of(owner, sixth), charge_of(owner, sixth, relation="orders")]

    async def run() -> list[Any]:
        async with pools(ready, 8) as pool:
            ledger = Ledger(pool)
            return await asyncio.gather(*(ledger.charge_all(pair) for _ in range(20)), return_exceptions=True)

    told = asyncio.run(run())
    assert sum(isinstance(one, list) for one in told) == 3
    assert all(isinstance(one, list | LimitReached) for one in told)
    assert len(journal(owner)) == 6 and balances(owner)["analystalice"] == 6 * sixth


def test_the_verdict_is_what_the_till_says_and_spends_nothing(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    assert verdict(ready, pools, ALICE) is None
    assert isinstance(verdict(ready, pools, ALICE + UNIT), LimitReached)
    assert journal(owner) == [] and balances(owner)["table"] == 0
    pay(ready, pools, [charge_of(owner, ALICE / 2)])
    refusal = verdict(ready, pools, ALICE / 2 + UNIT * 2)
    with pytest.raises(LimitReached) as at_the_till:
        pay(ready, pools, [charge_of(owner, ALICE / 2 + UNIT * 2)])
    assert (refusal.message, refusal.detail) == (at_the_till.value.message, at_the_till.value.detail)


def test_the_verdict_minds_delta_too(ready: str, pools: Pools) -> None:
    assert verdict(ready, pools, UNIT, Decimal("5e-10")) is None
    assert isinstance(verdict(ready, pools, UNIT, Decimal("6e-10")), LimitReached)


def test_a_verdict_for_nobody_is_a_refusal(ready: str, pools: Pools) -> None:
    with pytest.raises(NotActive):
        verdict(ready, pools, UNIT, analyst="nobody")
