"""A bounded memory of what was worked out before: the entries that were used last stay."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """What was used last, up to a total weight; an entry heavier than a tenth of that is not kept.

    For values that follow from their key alone: then it does not matter what is forgotten, nor when.
    """

    __slots__ = ("_entries", "_most", "_weight")

    def __init__(self, most: int) -> None:
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._most = most
        self._weight = 0

    def get(self, key: K) -> V | None:
        """What is remembered under a key, which counts as a use of it."""
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def put(self, key: K, value: V, weight: int = 1) -> None:
        """Remember, and forget what was not used for longest."""
        before = self._entries.pop(key, None)
        if before is not None:
            self._weight -= before[1]
        if weight > max(1, self._most // 10):
            return
        self._entries[key] = value, weight
        self._weight += weight
        while self._weight > self._most:
            _, (_, freed) = self._entries.popitem(last=False)
            self._weight -= freed

    def __len__(self) -> int:
        return len(self._entries)
