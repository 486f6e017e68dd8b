"""Stored answers, with a memory: a question that is asked again and again is looked up in PostgreSQL once."""

from __future__ import annotations

from typing import Final

from provenance.model import Receipt
from provenance.synopses import Sameness, Stored, Synopses
from proxy.recent import Recent

_MOST: Final = 4_000_000  # numbers, 8 bytes each
_BESIDE: Final = 200  # what an answer weighs beside its numbers, in numbers


class Kept:
    """The synopses of ``provenance``.

    *Guarantee*: what is stored under a ``Sameness`` never changes, and who has stored answers is never renamed (the
    journal refers to the name), so that one found once may be shown again; new data have another version.
    """

    def __init__(self, store: Synopses) -> None:
        self._store = store
        self._memory: Recent[Sameness, Stored] = Recent(_MOST)

    async def find(self, key: Sameness) -> Stored | None:
        """What was released before for the same question, if anything."""
        known = self._memory.get(key)
        if known is None:
            known = await self._store.find(key)
            if known is not None:
                self._remember(key, known)
        return known

    async def keep(self, key: Sameness, stored: Stored, receipt: Receipt) -> Stored:
        """Store an answer and return the one to show; it is remembered once it was found."""
        return await self._store.keep(key, stored, receipt)

    def _remember(self, key: Sameness, stored: Stored) -> None:
        values = stored.noisy.values
        values.setflags(write=False)  # several answers share it from now on
        self._memory.put(key, stored, _BESIDE + int(values.size))
