"""Whoever asks the same at the same time takes turns: the second finds the answer of the first, and pays nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager


class Turns:
    """Locks by key, there only while somebody holds or waits for them."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def of(self, keys: Iterable[Hashable]) -> AsyncIterator[None]:
        """Hold all of these; taken in one order by everybody, so that nobody waits in a circle."""
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
