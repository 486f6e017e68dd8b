"""Limits hold to the last digit, whoever races for them, and a receipt means a committed charge."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from mechanisms.loss import Coin, amount_within, epsilon_of
from provenance.errors import CommitUnknownError, LimitReached, NotActive, StaleCatalog
from provenance.ledger import Ledger
from provenance.model import Charge, Receipt

HALF = Decimal("5e-10")  # of the delta of 1e-9 converts
ALICE = amount_within(Coin.ZCDP, Decimal(1), HALF)
UNIT = Decimal("1e-18")

ChargeOf = Callable[..., Charge]
Pools = Callable[..., Any]


def spent(conn: Connection) -> dict[str, Decimal]:
    return dict(conn.execute("SELECT scope || name, amount FROM provenance.balance").fetchall())


def journal(conn: Connection) -> list[Decimal]:
    return [row[0] for row in conn.execute("SELECT amount FROM provenance.charge ORDER BY id").fetchall()]


def test_a_receipt_is_made_by_the_ledger_only(owner: Connection, charge_of: ChargeOf) -> None:
    with pytest.raises(TypeError, match="comes from the ledger"):
        Receipt(1, charge_of(owner, "0.001"), Decimal(0), None, object())  # type: ignore[arg-type]


def test_a_charge_is_in_the_journal_and_in_both_balances(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    charge = charge_of(owner, "0.00125")

    async def run() -> Receipt:
        async with pools(ready) as pool:
            return await Ledger(pool).charge(charge)

    receipt = asyncio.run(run())
    assert receipt.epsilon == epsilon_of(Coin.ZCDP, Decimal("0.00125"), HALF)
    assert receipt.remaining.analyst == 1 - receipt.epsilon
    assert receipt.remaining.table == 10 - receipt.epsilon
    row = owner.execute(
        "SELECT id, analyst, relation, data_version, coin, amount, epsilon, bill->>'question' FROM provenance.charge"
    ).fetchone()
    assert row == (receipt.id, "alice", "patient", 1, "zcdp", Decimal("0.00125"), receipt.epsilon, "SELECT 1")
    assert spent(owner) == {"table": Decimal("0.00125"), "analystalice": Decimal("0.00125"), "analystbob": 0}


def test_a_question_that_knows_its_own_loss_is_journaled_with_it(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    async def run() -> Receipt:
        async with pools(ready) as pool:
            return await Ledger(pool).charge(replace(charge_of(owner, "0.00125"), epsilon=Decimal("0.05")))

    assert asyncio.run(run()).epsilon == Decimal("0.05")
    assert owner.execute("SELECT epsilon, amount FROM provenance.charge").fetchone() == (
        Decimal("0.05"),
        Decimal("0.00125"),
    )


def test_the_last_digit_of_a_limit_can_be_spent_and_not_one_more(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    async def run() -> None:
        async with pools(ready) as pool:
            ledger = Ledger(pool)
            with pytest.raises(LimitReached) as caught:
                await ledger.charge(charge_of(owner, ALICE + UNIT))
            assert caught.value.sqlstate == "53400"
            assert 'analyst "alice"' in caught.value.message
            assert "left 1 of 1" in (caught.value.detail or "")
            assert journal(owner) == []
            receipt = await ledger.charge(charge_of(owner, ALICE))
            assert 0 <= receipt.remaining.analyst < Decimal("1e-15")
            with pytest.raises(LimitReached):
                await ledger.charge(charge_of(owner, UNIT))
            assert (await ledger.remaining("alice")).analyst == receipt.remaining.analyst
            assert (await ledger.remaining("bob")).analyst == 4

    asyncio.run(run())
    assert spent(owner)["table"] == ALICE


def test_the_table_limit_binds_analysts_together(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    owner.execute("UPDATE provenance.deployment SET epsilon = 1")
    owner.execute("UPDATE provenance.analyst SET privilege = 10")

    async def run() -> None:
        async with pools(ready) as pool:
            await Ledger(pool).charge(charge_of(owner, ALICE, "alice"))
            with pytest.raises(LimitReached, match="protected database"):
                await Ledger(pool).charge(charge_of(owner, UNIT, "bob"))

    asyncio.run(run())


def test_sixteen_tasks_on_two_pools_never_overspend(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    piece = (ALICE / 20).quantize(UNIT, rounding="ROUND_DOWN")
    charge = charge_of(owner, piece)

    async def client(ledger: Ledger) -> int:
        paid = 0
        for _ in range(3):
            try:
                await ledger.charge(charge)
                paid += 1
            except LimitReached:
                pass
        return paid

    async def run() -> int:
        async with pools(ready, 8) as one, pools(ready, 8) as two:
            ledgers = (Ledger(one), Ledger(two))
            return sum(await asyncio.gather(*(client(ledgers[i % 2]) for i in range(16))))

    assert asyncio.run(run()) == 20
    assert journal(owner) == [piece] * 20
    assert spent(owner)["analystalice"] == spent(owner)["table"] == 20 * piece <= ALICE


RACER = """
import asyncio, sys
from decimal import Decimal
from psycopg_pool import AsyncConnectionPool
from mechanisms.loss import Coin, Loss
from provenance.errors import LimitReached
from provenance.ledger import Ledger
from provenance.model import Charge

async def main(dsn, relation, registry, amount):
    loss = Loss(Coin.ZCDP, Decimal(amount), Decimal(0))
    charge = Charge("alice", int(relation), 1, int(registry), "f", "q", "tslm", loss)
    async with AsyncConnectionPool(dsn, min_size=4, max_size=4, open=False) as pool:
        done = await asyncio.gather(*(Ledger(pool).charge(charge) for _ in range(30)), return_exceptions=True)
    assert all(not isinstance(x, Exception) or isinstance(x, LimitReached) for x in done), done
    print(sum(not isinstance(x, Exception) for x in done))

asyncio.run(main(*sys.argv[1:]))
"""


def test_two_processes_racing_for_one_limit_share_it(ready: str, owner: Connection, charge_of: ChargeOf) -> None:
    piece = (ALICE / 25).quantize(UNIT, rounding="ROUND_DOWN")
    charge = charge_of(owner, piece)
    arguments = [ready, str(charge.relation_id), str(charge.registry_version), str(piece)]
    racers = [
        subprocess.Popen([sys.executable, "-c", RACER, *arguments], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    assert sum(int(racer.communicate(timeout=240)[0]) for racer in racers) == 25
    assert len(journal(owner)) == 25


@pytest.mark.parametrize(
    "change",
    [
        "SELECT provenance.refresh('patient')",
        "SELECT provenance.declare_attribute('patient', 'age', 0, 90, 1)",
        "UPDATE provenance.relation SET active = false WHERE name = 'patient'",
        "UPDATE provenance.deployment SET coin = 'pure'",
    ],
)
def test_a_price_from_other_versions_is_not_paid(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf, change: str
) -> None:
    charge = charge_of(owner, "0.001")
    owner.execute(change.encode())

    async def run() -> None:
        async with pools(ready) as pool:
            with pytest.raises(StaleCatalog):
                await Ledger(pool).charge(charge)

    asyncio.run(run())
    assert journal(owner) == []


def test_limits_and_the_active_flag_take_effect_at_the_next_charge(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    async def run() -> None:
        async with pools(ready) as pool:
            ledger = Ledger(pool)
            await ledger.charge(charge_of(owner, "0.001"))
            owner.execute("UPDATE provenance.analyst SET epsilon_limit = 0.0001 WHERE name = 'alice'")
            with pytest.raises(LimitReached, match="alice"):
                await ledger.charge(charge_of(owner, "0.001"))
            assert (await ledger.remaining("alice")).epsilon == 0
            owner.execute("UPDATE provenance.analyst SET epsilon_limit = 10, active = false WHERE name = 'alice'")
            with pytest.raises(NotActive):
                await ledger.charge(charge_of(owner, "0.001"))
            with pytest.raises(NotActive):
                await ledger.charge(charge_of(owner, "0.001", "nobody"))
            owner.execute("UPDATE provenance.analyst SET active = true WHERE name = 'alice'")
            await ledger.charge(charge_of(owner, "0.001"))

    asyncio.run(run())


def test_a_change_of_unit_waits_for_a_charge_in_flight(ready: str, owner: Connection, charge_of: ChargeOf) -> None:
    """Neither may slip past the other: the rule looks for charges while it holds the lock that charges need."""
    with psycopg.connect(ready) as till:
        till.execute("SELECT FROM provenance.balance WHERE scope = 'table' FOR UPDATE")
        owner.execute("SET lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            owner.execute("UPDATE provenance.relation SET unit_column = 'age' WHERE name = 'patient'")
        till.rollback()


def test_a_session_ended_during_commit_gives_no_receipt(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    """A deferred trigger ends the session while COMMIT runs: whether it counted is not for the caller to guess."""
    owner.execute(
        "CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$"
    )
    owner.execute(
        "CREATE CONSTRAINT TRIGGER cut AFTER INSERT ON provenance.charge DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION cut()"
    )

    async def run() -> None:
        async with pools(ready) as pool:
            with pytest.raises(CommitUnknownError):
                await Ledger(pool).charge(charge_of(owner, "0.001"))
            owner.execute("DROP TRIGGER cut ON provenance.charge")
            await Ledger(pool).charge(charge_of(owner, "0.002"))  # the pool has mended itself

    asyncio.run(run())
    assert journal(owner)[-1] == Decimal("0.002")
    assert sum(journal(owner)) == spent(owner)["table"] == spent(owner)["analystalice"]


class Cut:
    """A relay that lets COMMIT through to the server and never brings its answer back."""

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(self.upstream)
        committed = asyncio.Event()

        async def answers() -> None:
            while data := await there.read(65536):
                if committed.is_set():
                    break
                writer.write(data)
            writer.close()

        pump = asyncio.create_task(answers())
        while data := await reader.read(65536):
            if b"COMMIT" in data:
                committed.set()
            back.write(data)
        await pump
        back.close()


def test_a_commit_whose_answer_is_lost_is_spent_without_a_receipt(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf, tmp_path_factory: pytest.TempPathFactory
) -> None:
    parts = psycopg.conninfo.conninfo_to_dict(ready)
    port = parts.get("port") or 5432
    here = tmp_path_factory.mktemp("cut")

    async def run() -> None:
        relay = await asyncio.start_unix_server(Cut(f"{parts['host']}/.s.PGSQL.{port}"), here / f".s.PGSQL.{port}")
        async with relay:
            async with pools(psycopg.conninfo.make_conninfo(ready, host=str(here)), 1) as pool:
                with pytest.raises(CommitUnknownError):
                    await Ledger(pool).charge(charge_of(owner, "0.001"))
            await asyncio.sleep(0.1)

    asyncio.run(run())
    assert journal(owner) == [Decimal("0.001")]
    assert spent(owner)["analystalice"] == Decimal("0.001")


def test_a_cancelled_charge_leaves_the_till_open(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    async def run() -> None:
        async with pools(ready, 2) as pool:
            ledger = Ledger(pool)
            with psycopg.connect(ready) as till:
                till.execute("SELECT FROM provenance.balance FOR UPDATE")
                waiting = asyncio.create_task(ledger.charge(charge_of(owner, "0.001")))
                await asyncio.sleep(0.2)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            await asyncio.wait_for(ledger.charge(charge_of(owner, "0.002")), 60)

    asyncio.run(run())
    assert Decimal("0.002") in journal(owner)
    assert sum(journal(owner)) == spent(owner)["table"]
