"""Looks on one connection: each gets its own row, and a connection that ends takes nothing else with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest
import uvloop

from proxy import lookout as module
from proxy.lookout import Lookout, Row, Silent

WHO = "SELECT pg_backend_pid()::text, $1::text"
SLOWLY = "SELECT $1::text FROM pg_sleep($2::float8)"


async def made(looks: Lookout) -> Row:
    """A row, as soon as there is a connection."""
    async with asyncio.timeout(60):
        while (asked := looks.ask(0, ["me"])) is None:
            await asyncio.sleep(0.01)
        row = await asked
    assert row is not None
    return row


def looking(dsn: str, work: Callable[[Lookout], Awaitable[None]]) -> list[dict[str, Any]]:
    """What went wrong in callbacks, where nobody hears of it."""
    faults: list[dict[str, Any]] = []

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        looks = Lookout(dsn, [WHO, SLOWLY])
        try:
            await work(looks)
        finally:
            looks.close()

    uvloop.run(run())
    return faults


def end(dsn: str, row: Row) -> None:
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute("SELECT pg_terminate_backend(%s::int)", ((row[0] or b"").decode(),))


@pytest.mark.parametrize("asked", [True, False])
def test_a_connection_that_ends_is_made_again(database: str, asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 1.0)

    async def work(looks: Lookout) -> None:
        first = await made(looks)
        under_way = looks.ask(1, ["late", "50"]) if asked else None
        await asyncio.to_thread(end, database, first)
        if under_way is not None:
            with pytest.raises(Silent):
                await under_way
        else:
            async with asyncio.timeout(60):
                while looks._conn is not None:
                    await asyncio.sleep(0.01)
        assert looks.ask(0, ["me"]) is None
        assert (await made(looks))[0] != first[0]

    assert looking(database, work) == []


def test_who_does_not_wait_any_more_takes_nobody_elses_row(database: str) -> None:
    async def work(looks: Lookout) -> None:
        await made(looks)
        several = [looks.ask(1, [f"{place}", "0.01"]) for place in range(20)]
        for future in several[::2]:
            assert future is not None
            future.cancel()
        for place, future in enumerate(several):
            if place % 2:
                assert future is not None and await future == (f"{place}".encode(),)

    assert looking(database, work) == []


def test_a_statement_that_fails_is_told_elsewhere(database: str) -> None:
    async def work(looks: Lookout) -> None:
        await made(looks)
        several = [looks.ask(1, ["x", each]) for each in ("0", "soon", "0")]
        told = await asyncio.gather(*(each for each in several if each is not None), return_exceptions=True)
        assert told[0] == (b"x",) and all(isinstance(each, Silent) for each in told[1:])

    assert looking(database, work) == []
