"""What an analyst has left is worked out anew exactly when something that it follows from has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool

from provenance.errors import NotActive
from provenance.ledger import Ledger
from provenance.migrate import migrate
from proxy import standing as module
from proxy.standing import Standing

CHANGES = {
    "the analyst's limit": "UPDATE provenance.analyst SET epsilon_limit = 2 WHERE name = 'zoe'",
    "the deployment's limit": "UPDATE provenance.deployment SET epsilon = 5",
    "the allocation": "UPDATE provenance.deployment SET allocation = 'sum'",
    "another analyst's privilege": "UPDATE provenance.analyst SET privilege = 9 WHERE name = 'max'",
    "a grant": "SELECT provenance.grant_budget('max', 'zoe', 0.5)",
}


@pytest.fixture
def books(database: str) -> str:
    migrate(database)
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("UPDATE provenance.deployment SET coin = 'pure', epsilon = 10, delta = 1e-9")
        owner.execute("SELECT provenance.create_analyst(name, name, 3) FROM unnest('{zoe,max}'::text[]) AS n (name)")
    return database


def standing_in(dsn: str, work: Callable[[Standing, Ledger], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with AsyncConnectionPool(dsn, min_size=1, max_size=2, timeout=60, open=False) as pool:
            ledger = Ledger(pool)
            return await work(Standing(pool, ledger), ledger)

    return asyncio.run(run())


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_seen_at_the_next_look(books: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BELIEVED", 3600.0)  # time alone makes nothing of it anew

    async def work(standing: Standing, ledger: Ledger) -> None:
        with psycopg.connect(books, autocommit=True) as owner:
            if "another" in what:
                owner.execute(CHANGES["the allocation"].encode())
            before = await standing.look("zoe")
            left = await standing.remaining("zoe")
            assert left == await ledger.remaining("zoe")
            owner.execute(CHANGES[what].encode())
            assert await standing.remaining("zoe") == left  # as of the last look
            assert await standing.look("zoe") == before
            after = await standing.remaining("zoe")
            assert after == await ledger.remaining("zoe") and after != left

    standing_in(books, work)


def test_the_ledger_is_not_asked_where_nothing_has_changed(books: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BELIEVED", 3600.0)
    asked: list[str] = []
    real = Ledger.remaining

    async def remaining(self: Ledger, analyst: str) -> Any:
        asked.append(analyst)
        return await real(self, analyst)

    monkeypatch.setattr(Ledger, "remaining", remaining)

    async def work(standing: Standing, ledger: Ledger) -> None:
        for name in ("zoe", "max", "zoe", "zoe", "max"):
            await standing.look(name)
            assert (await standing.remaining(name)).epsilon == Decimal(3)

    standing_in(books, work)
    assert asked == ["zoe", "max"]


def test_nothing_is_believed_for_long(books: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BELIEVED", -1.0)

    async def work(standing: Standing, ledger: Ledger) -> None:
        await standing.look("zoe")
        left = await standing.remaining("zoe")
        with psycopg.connect(books, autocommit=True) as owner:
            owner.execute(CHANGES["the analyst's limit"].encode())
        assert await standing.remaining("zoe") != left  # without another look

    standing_in(books, work)


def test_who_is_not_active_or_not_there_is_refused(books: str) -> None:
    async def work(standing: Standing, ledger: Ledger) -> None:
        await standing.look("zoe")
        with psycopg.connect(books, autocommit=True) as owner:
            owner.execute("UPDATE provenance.analyst SET active = false WHERE name = 'zoe'")
        for name in ("zoe", "nobody"):
            with pytest.raises(NotActive):
                await standing.look(name)

    standing_in(books, work)
