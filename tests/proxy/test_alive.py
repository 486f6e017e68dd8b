"""Connections of a pool are looked at before they are used, and asked only where there is doubt."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool

from proxy.runtime import Alive, Pool


def with_pool(dsn: str, alive: Alive, work: Callable[[Pool], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        # Patient: how long a busy machine takes to connect is not what is tested here.
        async with AsyncConnectionPool(dsn, min_size=2, max_size=2, check=alive, timeout=60, open=False) as pool:
            await pool.wait(60)
            return await work(pool)

    return asyncio.run(run())


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The connections that were asked whether they live."""
    real, connections = AsyncConnectionPool.check_connection, list[object]()

    async def check(conn: Any) -> None:
        connections.append(conn)
        await real(conn)

    monkeypatch.setattr(AsyncConnectionPool, "check_connection", staticmethod(check))
    return connections


async def one(pool: Pool) -> int:
    async with pool.connection() as conn:
        row = await (await conn.execute("SELECT pg_backend_pid()")).fetchone()
    return int(row[0]) if row is not None else 0


def test_a_connection_in_use_is_asked_once(database: str, asked: list[object]) -> None:
    async def work(pool: Pool) -> set[int]:
        return {await one(pool) for _ in range(40)}

    assert len(with_pool(database, Alive(60), work)) <= 2 and len(asked) <= 2


def test_one_that_was_silent_for_long_is_asked_again(database: str, asked: list[object]) -> None:
    async def work(pool: Pool) -> None:
        for _ in range(4):
            await one(pool)
            await asyncio.sleep(0.02)

    with_pool(database, Alive(0.01), work)
    assert len(asked) == 4


def test_connections_that_the_server_ended_are_replaced_without_a_word(database: str) -> None:
    async def work(pool: Pool) -> None:
        for _ in range(3):
            before = {await one(pool) for _ in range(6)}
            with psycopg.connect(database, autocommit=True) as owner:
                owner.execute("SELECT pg_terminate_backend(pid, 60000) FROM unnest(%s) AS t (pid)", (list(before),))
            assert await one(pool) not in before

    with_pool(database, Alive(60), work)
