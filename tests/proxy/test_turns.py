"""Turns: one at a time for each key, and nothing left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from proxy import turns as module
from proxy.lookout import Lookout
from proxy.turns import LOCKS, Turns

SOON = 30.0  # seconds, on a busy machine too; who would wait for a turn in vain goes on after a minute


def test_the_same_key_is_held_by_one_and_others_by_many() -> None:
    async def play() -> list[str]:
        turns, log = Turns(), list[str]()

        async def ask(name: str, *keys: str) -> None:
            async with turns.of(keys):
                log.append(f"{name} in")
                await asyncio.sleep(0.01)
                log.append(f"{name} out")

        await asyncio.gather(ask("a", "x", "y"), ask("b", "y", "x"), ask("c", "z"))
        assert turns._locks == {}
        return log

    log = asyncio.run(play())
    assert log.index("c in") < log.index("a out"), "another key does not wait"
    assert sorted((log.index("a in"), log.index("b in")))[1] > min(log.index("a out"), log.index("b out"))


def test_one_who_is_cancelled_while_waiting_leaves_the_turn_to_the_next() -> None:
    async def play() -> None:
        turns = Turns()

        async def ask() -> str:
            async with turns.of(["x"]):
                return "had it"

        async with turns.of(["x"]):
            waiting, next_one = asyncio.create_task(ask()), asyncio.create_task(ask())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await next_one == "had it" and turns._locks == {}

    asyncio.run(play())


def of_two_proxies(dsn: str, work: Callable[[Turns, Turns], Awaitable[None]]) -> None:
    async def play() -> None:
        lookouts = [Lookout(dsn, LOCKS), Lookout(dsn, LOCKS)]
        try:
            for lookout in lookouts:
                await lookout.start()
            await work(*(Turns(lookout) for lookout in lookouts))
        finally:
            for lookout in lookouts:
                lookout.close()

    asyncio.run(play())


def test_two_proxies_take_turns_too(database: str) -> None:
    async def work(one: Turns, other: Turns) -> None:
        inside: set[str] = set()

        async def ask(turns: Turns, *keys: str) -> None:
            async with turns.everywhere(keys):
                assert not inside & set(keys), "two at once"
                inside.update(keys)
                await asyncio.sleep(0.05)
                inside.difference_update(keys)

        await asyncio.gather(ask(one, "x", "y"), ask(other, "y", "x"), ask(one, "z"), ask(other, "v"))
        async with one.everywhere(["x"]), asyncio.timeout(SOON), other.everywhere(["z", "v", "y"]):
            pass  # others do not wait, and nothing is left behind

    of_two_proxies(database, work)


def test_who_gives_up_leaves_no_turn_behind(database: str) -> None:
    async def work(one: Turns, other: Turns) -> None:
        async def ask(turns: Turns) -> None:
            async with turns.everywhere(["x"]):
                pass

        for pause in (0.0, 0.0005, 0.001, 0.002, 0.005, 0.01):
            asked = asyncio.create_task(ask(one))
            await asyncio.sleep(pause)
            asked.cancel()
            await asyncio.wait([asked])
            async with asyncio.timeout(SOON):
                await ask(other)

    of_two_proxies(database, work)


def test_a_turn_ends_with_its_connection(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(one: Turns, other: Turns) -> None:
        async with one.everywhere(["x"]):
            assert one._lookout is not None
            one._lookout.close()
            async with asyncio.timeout(SOON), other.everywhere(["x"]):
                pass
            async with asyncio.timeout(SOON), one.everywhere(["x"]):  # nothing to ask: it goes on
                pass
        monkeypatch.setattr(module, "_PATIENCE", 0.1)
        async with other.everywhere(["y"]):
            await asyncio.sleep(0)

    of_two_proxies(database, work)
