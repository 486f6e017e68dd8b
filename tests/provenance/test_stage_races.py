"""Analysts, processes and crashes between reserve and settle: no limit is passed at any moment."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from mechanisms.loss import Coin, amount_within
from provenance.accountant import fold
from provenance.ledger import Ledger
from provenance.model import Charge, Entry

ChargeOf = Callable[..., Charge]
Journal = Callable[[Connection], list[Entry]]
Balanced = Callable[[Connection, list[Entry]], None]

HALF = Decimal("5e-10")
TABLE = amount_within(Coin.ZCDP, Decimal("1.2"), HALF)
EACH = amount_within(Coin.ZCDP, Decimal("0.5"), HALF)

# Each of eight analysts may use a third of what there is in epsilon: both limits are in the way. The trigger looks at
# every balance that is ever committed, whatever a later settlement gives back.
LIMITS = """
UPDATE provenance.deployment SET epsilon = 1.2;
SELECT provenance.create_analyst('a' || i, 'x', 1) FROM generate_series(0, 7) i;
UPDATE provenance.analyst SET epsilon_limit = 0.5;
CREATE FUNCTION guard() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.amount > (CASE NEW.scope WHEN 'table' THEN {table} ELSE {each} END) THEN
        RAISE EXCEPTION 'a limit was passed: % %', NEW.scope, NEW.amount;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER guard AFTER UPDATE ON provenance.balance FOR EACH ROW EXECUTE FUNCTION guard();
"""

ANALYSTS = """
import asyncio, random, sys
from dataclasses import replace
from decimal import Decimal
from psycopg_pool import AsyncConnectionPool
from mechanisms.loss import Coin, Loss
from provenance.errors import LimitReached
from provenance.ledger import Ledger
from provenance.model import Charge

async def ask(ledger, charge, rng, told):
    def some(most):
        return Loss(Coin.ZCDP, Decimal(rng.randrange(1, most)).scaleb(-6))
    for question in range(6):
        try:
            receipt = await ledger.charge(replace(charge, loss=some(800)))
        except LimitReached:
            told["refused"] += 1
            continue
        for stage in range(rng.randrange(4)):
            try:
                receipt = await ledger.reserve_more(receipt, some(900 * 2**stage))
            except LimitReached:
                told["refused"] += 1
                break
        if rng.random() < 0.8:
            reached = Loss(Coin.ZCDP, (receipt.paid.amount * rng.randrange(101) / 100).quantize(Decimal("1e-18")))
            end = await ledger.settle(receipt, reached)
            assert end.loss == reached
            told["settled"] += 1

async def main(dsn, relation, registry, *names):
    told = {"refused": 0, "settled": 0}
    async with AsyncConnectionPool(dsn, min_size=2, max_size=8, open=False) as pool:
        asked = []
        for name in names:
            nothing = Loss.nothing(Coin.ZCDP)
            charge = Charge(name, int(relation), 1, int(registry), "f", "q", "cert", nothing, staged=True)
            asked.append(ask(Ledger(pool), charge, random.Random(name), told))
        await asyncio.gather(*asked)
    print(told["refused"], told["settled"])
"""


def racing(owner: Connection, charge: Charge, dsn: str, processes: int) -> tuple[int, int]:
    """Eight analysts ask at once, from some processes; how often they were refused, and how often they settled."""
    owner.execute(LIMITS.format(table=TABLE, each=EACH).encode())
    names = [f"a{i}" for i in range(8)]
    program = ANALYSTS + "\nasyncio.run(main(*sys.argv[1:]))"
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", program, dsn, str(charge.relation_id), str(charge.registry_version), *some],
            stdout=subprocess.PIPE,
            text=True,
        )
        for some in (names[i::processes] for i in range(processes))
    ]
    told = [racer.communicate(timeout=240)[0].split() for racer in racers]
    assert all(racer.returncode == 0 for racer in racers)
    return sum(int(one[0]) for one in told), sum(int(one[1]) for one in told)


@pytest.mark.parametrize("processes", [1, 2, pytest.param(8, marks=pytest.mark.slow)])
def test_eight_analysts_who_reserve_and_settle_at_once_never_pass_a_limit(
    ready: str, owner: Connection, charge_of: ChargeOf, journal_of: Journal, books_balance: Balanced, processes: int
) -> None:
    refused, settled = racing(owner, charge_of(owner, "0"), ready, processes)
    assert refused > 0 and settled > 0, "both limits and settlements were in play"
    journal = journal_of(owner)
    books_balance(owner, journal)
    questions = fold(journal).questions.values()
    assert sum(question.settled for question in questions) == settled
    assert sum(question.net.amount for question in questions) <= TABLE


def test_the_guard_of_the_race_sees_a_limit_that_is_passed(sandbox: Connection) -> None:
    sandbox.execute(LIMITS.format(table=TABLE, each=EACH).encode())
    with pytest.raises(psycopg.errors.RaiseException, match="a limit was passed"), sandbox.transaction():
        sandbox.execute("UPDATE provenance.balance SET amount = %s", (EACH + Decimal("1e-18"),))


DOOMED = """
import asyncio, sys
from decimal import Decimal
from psycopg_pool import AsyncConnectionPool
from mechanisms.loss import Coin, Loss
from provenance.ledger import Ledger
from provenance.model import Charge

async def main(dsn, relation, registry):
    loss = Loss(Coin.ZCDP, Decimal("0.001"))
    charge = Charge("alice", int(relation), 1, int(registry), "f", "q", "cert", loss, staged=True)
    async with AsyncConnectionPool(dsn, min_size=1, max_size=1, open=False) as pool:
        receipt = await Ledger(pool).charge(charge)
        receipt = await Ledger(pool).reserve_more(receipt, loss)
        print("reserved", flush=True)
        sys.stdin.readline()
        print("settling", flush=True)
        await Ledger(pool).settle(receipt, Loss.nothing(Coin.ZCDP))
        print("settled", flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("moment", ["between the stages", "in the settlement"])
def test_a_process_killed_before_it_settled_leaves_its_reservation_spent(
    swept: str, charge_of: ChargeOf, moment: str
) -> None:
    with psycopg.connect(swept) as conn:
        charge = charge_of(conn, "0")
    command = [sys.executable, "-c", DOOMED, swept, str(charge.relation_id), str(charge.registry_version)]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as doomed,
        psycopg.connect(swept) as till,
        psycopg.connect(swept, autocommit=True) as owner,
    ):
        assert doomed.stdin is not None and doomed.stdout is not None
        assert doomed.stdout.readline() == "reserved\n"
        if moment == "in the settlement":
            till.execute("SELECT FROM provenance.balance FOR UPDATE")
            doomed.stdin.write("\n")
            doomed.stdin.flush()
            assert doomed.stdout.readline() == "settling\n"
            _until_waiting(owner)
        doomed.send_signal(signal.SIGKILL)
        assert doomed.wait(60) == -signal.SIGKILL
        assert doomed.stdout.read() == ""
        row = owner.execute("SELECT charged, stages, settled FROM provenance.history").fetchone()
        assert row == (Decimal("0.002"), 2, False)
        assert owner.execute("SELECT amount FROM provenance.balance WHERE amount > 0 ORDER BY scope").fetchall() == [
            (Decimal("0.002"),),
            (Decimal("0.002"),),
        ]


def _until_waiting(owner: Connection) -> None:
    deadline = time.monotonic() + 60
    while owner.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    ).fetchone() == (0,):
        assert time.monotonic() < deadline, "the settlement never came to the till"
        time.sleep(0.02)


def test_a_first_reservation_goes_with_the_other_charges_of_its_statement(
    swept: str, pools: Callable[..., Any], charge_of: ChargeOf
) -> None:
    async def run(owner: Connection) -> None:
        async with pools(swept) as pool:
            ledger = Ledger(pool)
            fixed, staged = await ledger.charge_all(
                [charge_of(owner, "0.001"), replace(charge_of(owner, "0.002", relation="orders"), staged=True)]
            )
            await ledger.settle(staged, replace(staged.paid, amount=Decimal("0.0005")))
            assert fixed.id != staged.id

    with psycopg.connect(swept, autocommit=True) as owner:
        asyncio.run(run(owner))
        rows = owner.execute("SELECT relation, charged, stages, settled FROM provenance.history ORDER BY id").fetchall()
    assert rows == [("patient", Decimal("0.001"), 1, True), ("orders", Decimal("0.0005"), 1, True)]
