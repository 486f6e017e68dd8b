"""Proxies hear of changes, also after the connection was lost, and are heard of themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import Connection
from psycopg_pool import AsyncConnectionPool

from provenance.chain import Witness
from provenance.ledger import Ledger
from provenance.watch import EVERYTHING, beat, vigil, watch

Pools = Callable[..., Any]


@pytest.fixture
def ready(swept: str) -> str:
    """One database for all tests here, which is swept before each."""
    return swept


@asynccontextmanager
async def hearing(dsn: str, application_name: str = "pgveil test") -> AsyncIterator[asyncio.Queue[str]]:
    """What ``watch`` tells."""
    heard: asyncio.Queue[str] = asyncio.Queue()
    named = psycopg.conninfo.make_conninfo(dsn, application_name=application_name)
    check = AsyncConnectionPool.check_connection
    async with AsyncConnectionPool(named, min_size=1, max_size=2, open=False, check=check) as pool:
        task = asyncio.create_task(watch(pool, heard.put_nowait, pause=0.05))
        try:
            yield heard
        finally:
            task.cancel()
            await asyncio.wait([task])


@pytest.mark.parametrize(
    ("change", "table"),
    [
        ("UPDATE provenance.deployment SET epsilon = 9", "deployment"),
        ("SELECT provenance.create_analyst('dora', 'dora', 3)", "analyst"),
        ("SELECT provenance.refresh('patient')", "relation"),
        ("SELECT provenance.declare_attribute('patient', 'age', 0, 90, 1)", "attribute"),
        ("INSERT INTO provenance.view (relation) VALUES ('patient')", "view"),
        ("SELECT provenance.grant_budget('bob', 'alice', 1)", "grant_of_budget"),
        ("INSERT INTO provenance.coalition VALUES ('inside')", "coalition"),
    ],
)
def test_a_change_is_heard(ready: str, owner: Connection, change: str, table: str) -> None:
    async def run() -> None:
        async with hearing(ready) as heard:
            assert await asyncio.wait_for(heard.get(), 120) == EVERYTHING
            await asyncio.to_thread(owner.execute, change.encode())
            told = {await asyncio.wait_for(heard.get(), 120)}
            while table not in told:
                told.add(await asyncio.wait_for(heard.get(), 120))

    asyncio.run(run())


def test_after_a_lost_connection_everything_may_have_changed(ready: str, owner: Connection) -> None:
    async def run() -> None:
        async with hearing(ready, "to be cut") as heard:
            assert await asyncio.wait_for(heard.get(), 120) == EVERYTHING
            end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'to be cut'"
            await asyncio.to_thread(owner.execute, end)
            assert await asyncio.wait_for(heard.get(), 120) == EVERYTHING
            await asyncio.to_thread(owner.execute, "UPDATE provenance.deployment SET epsilon = 9")
            assert await asyncio.wait_for(heard.get(), 120) == "deployment"

    asyncio.run(run())


def test_a_proxy_is_heard_of_as_long_as_it_runs(ready: str, owner: Connection, pools: Pools, tmp_path: Path) -> None:
    seen = "SELECT name, trouble, seen_at > started_at FROM provenance.replica ORDER BY 1"
    owner.execute("INSERT INTO provenance.replica (name, seen_at) VALUES ('of old', now() - interval '2 days')")

    async def run() -> None:
        async with pools(ready) as pool:
            ledger = Ledger(pool)
            ledger.remember(Witness(tmp_path / "anchor", "ledger"))
            await beat(pool, ledger, "one")
            assert owner.execute(seen).fetchall() == [("one", None, False)]
            task = asyncio.create_task(vigil(pool, ledger, "one", pause=0.01))
            while owner.execute(seen).fetchall() != [("one", None, True)]:
                await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.wait([task])

    asyncio.run(asyncio.wait_for(run(), 120))
    assert (tmp_path / "anchor").exists(), "it looks after the anchor too"


def test_a_gap_shows_as_the_trouble_of_the_proxy_that_noticed(
    ready: str, owner: Connection, pools: Pools, tmp_path: Path
) -> None:
    file = tmp_path / "anchor"
    file.write_text(
        '{"ledger": "ledger", "charge": 7, "hash": "%s", "at": "2024-01-01 00:00:00+00", "coin": "zcdp",'
        ' "table": ["0.5", "0"], "analysts": {"alice": ["0.5", "0"]}}' % ("00" * 32)
    )

    async def run() -> None:
        async with pools(ready) as pool:
            ledger = Ledger(pool)
            ledger.remember(Witness(file, "ledger", "one"))
            await beat(pool, ledger, "one")
            ((trouble,),) = owner.execute("SELECT trouble FROM provenance.replica").fetchall()
            assert "restored from an older copy" in trouble
            owner.execute("SELECT provenance.accept_gap(id) FROM provenance.gap WHERE replica = 'one'")
            await beat(pool, ledger, "one")
            assert owner.execute("SELECT trouble FROM provenance.replica").fetchall() == [(None,)]

    asyncio.run(run())
