"""Processes that charge at once, and die: no limit is passed at any point, whoever was quicker."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool
from region_books import balances, place, random_charge, wrong

from mechanisms.errors import Refusal
from mechanisms.loss import Coin, Loss
from provenance.accountant import worth
from provenance.entries import deployment_of
from provenance.errors import LimitReached
from provenance.ledger import Ledger
from provenance.ledger_sql import STATE
from provenance.model import Receipt

LIMITS = """
UPDATE provenance.deployment SET epsilon = 6;
UPDATE provenance.analyst SET epsilon_limit = 5"""


async def work(dsn: str, seed: int, steps: int) -> None:
    """A proxy that charges, reserves and settles for two analysts; refusals by a limit are what it is here for."""
    random = Random(seed)
    with psycopg.connect(dsn, autocommit=True) as conn:
        where = place(conn)
    async with AsyncConnectionPool[Any](dsn, min_size=1, max_size=4, open=False) as pool:
        ledger = Ledger(pool)

        async def ask(dice: Random) -> None:
            charge = random_charge(dice, where, dice.choice(("alice", "bob")), "ab")
            try:
                receipt: Receipt = await ledger.charge(charge)
                if charge.staged:
                    receipt = await ledger.reserve_more(receipt, Loss(Coin(where[3]), Decimal("0.02")))
                    await ledger.settle(receipt, Loss(Coin(where[3]), charge.loss.amount))
            except LimitReached:
                pass

        for _ in range(steps):
            await asyncio.gather(*(ask(Random(random.random())) for _ in range(2)))
            sys.stdout.write("one more\n")
            sys.stdout.flush()


def process(dsn: str, seed: int, steps: int) -> subprocess.Popen[str]:
    here = os.pathsep.join((str(Path(__file__).parent), str(Path(__file__).parents[2])))
    command = [sys.executable, str(Path(__file__)), dsn, str(seed), str(steps)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": here})


def within(conn: psycopg.Connection[Any]) -> bool:
    """Whether every balance is within its limit."""
    row = conn.execute(STATE, (None,)).fetchone()
    assert row is not None
    deployment = deployment_of(row)
    most = {"table": worth(deployment, Decimal(6))}
    return all(amount <= most.get(name, worth(deployment, Decimal(5))) for name, amount in balances(conn).items())


@pytest.mark.parametrize("coin", ["zcdp", "pure"])
def test_no_race_and_no_death_of_a_process_passes_a_limit(swept: str, coin: str) -> None:
    with psycopg.connect(swept, autocommit=True) as conn:
        conn.execute(LIMITS)
        conn.execute("UPDATE provenance.deployment SET coin = %s", (coin,))
        with ExitStack() as stack:
            running = [stack.enter_context(process(swept, seed, 8 if seed else 10**6)) for seed in range(4)]
            for one in running:
                stack.callback(one.kill)
            for one in running:
                assert one.stdout is not None and one.stdout.readline() == "one more\n"
            running[0].send_signal(signal.SIGKILL)
            while any(one.poll() is None for one in running):
                assert not wrong(conn) and within(conn)
                time.sleep(0.2)
            assert [one.wait() for one in running] == [-signal.SIGKILL, 0, 0, 0]
        assert not wrong(conn) and within(conn)
        asyncio.run(work(swept, 9, 1))  # whoever comes next finds all of it
        assert not wrong(conn) and within(conn)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_walks_lose_nothing(swept: str, sweep: Callable[[], None]) -> None:
    """The same in one process, many times: what fails here is found again by its seed."""
    for seed in range(60):
        sweep()
        with psycopg.connect(swept, autocommit=True) as conn:
            conn.execute(LIMITS)
            conn.execute("UPDATE provenance.deployment SET coin = %s", ("pure" if seed % 2 else "zcdp",))
            asyncio.run(work(swept, seed, 8))
            assert not wrong(conn) and within(conn), seed


if __name__ == "__main__":
    try:
        asyncio.run(work(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
    except Refusal as refusal:
        sys.exit(f"{refusal.message}: {refusal.detail}")
