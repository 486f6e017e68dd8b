"""Whoever asks the same at the same time takes turns: the second finds the answer of the first, and pays nothing."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Hashable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from proxy.lookout import Lookout, Silent

LOCKS: Final = ("SELECT pg_try_advisory_lock($1::bigint)", "SELECT pg_advisory_unlock($1::bigint)")
"""What a ``Lookout`` is asked for turns with other proxies; PostgreSQL ends a turn with the connection that has it."""
_PATIENCE: Final = 60.0  # seconds; who has waited for so long pays: that is dear, but never wrong
_PAUSE: Final = 0.02


class Turns:
    """Locks by key, there only while somebody holds or waits for them."""

    def __init__(self, lookout: Lookout | None = None, first: int = 0) -> None:
        self._locks: dict[Hashable, tuple[asyncio.Lock, int]] = {}
        self._lookout, self._first = lookout, first  # where LOCKS begin among its statements

    @asynccontextmanager
    async def of(self, keys: Iterable[Hashable]) -> AsyncIterator[None]:
        """Hold all of these in this proxy; taken in one order by everybody, so that nobody waits in a circle."""
        async with AsyncExitStack() as held:
            for key in sorted(set(keys), key=repr):
                await held.enter_async_context(self._one(key))
            yield

    @asynccontextmanager
    async def _one(self, key: Hashable) -> AsyncIterator[None]:
        lock, users = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(key)
            if users > 1:
                self._locks[key] = lock, users - 1

    @asynccontextmanager
    async def everywhere(self, keys: Iterable[Hashable]) -> AsyncIterator[None]:
        """Hold all of these, which this proxy holds already, on all proxies of the ledger.

        Where that cannot be had (no connection, or not in time), whoever asks goes on: two who ask the same at the same
        moment may then both pay, and are shown the same numbers.
        """
        held: list[int] = []
        try:
            for number in sorted({_number(key) for key in keys}):
                if await self._taken(number):
                    held.append(number)
            yield
        finally:
            for number in held:
                self._ask(1, number)

    async def _taken(self, number: int) -> bool:
        begun = time.monotonic()
        while (asked := self._ask(0, number)) is not None:
            try:
                row = await asked
            except Silent:
                return False
            except asyncio.CancelledError:
                self._ask(1, number)  # it may have been given meanwhile
                raise
            if row is not None and row[0] == b"t":
                return True
            if time.monotonic() - begun > _PATIENCE:
                return False
            await asyncio.sleep(_PAUSE)
        return False

    def _ask(self, statement: int, number: int) -> asyncio.Future[tuple[bytes | None, ...] | None] | None:
        return None if self._lookout is None else self._lookout.ask(self._first + statement, [str(number)])


def _number(key: Hashable) -> int:
    """A number for a key, the same on every proxy."""
    return int.from_bytes(hashlib.sha256(f"pgveil turn {key!r}".encode()).digest()[:8], "big", signed=True)
