"""Turns: one at a time for each key, and nothing left behind."""

from __future__ import annotations

import asyncio

import pytest

from proxy.turns import Turns


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
