"""What every point of a small space bears, exactly: a counter for each point.

Where the public domain has a few million points this is the best that can be had: admission by the counters themselves
refuses nothing that a limit allows, where a histogram must be careful.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from provenance.space import Span

MOST_POINTS = 8_000_000


class Popularity:
    """Counters by code, for axes of so many codes each; spans of codes include both ends."""

    __slots__ = ("_counters",)

    def __init__(self, sizes: Sequence[int]) -> None:
        if math.prod(sizes) > MOST_POINTS:
            raise ValueError(f"a counter for each point is for at most {MOST_POINTS} points")
        self._counters: NDArray[np.int64] = np.zeros(tuple(sizes), np.int64)

    @property
    def most(self) -> int:
        """What the most popular point bears."""
        return int(self._counters.max())

    def room(self, box: Sequence[Span], limit: int) -> int:
        """What can still be charged to this box."""
        return limit - int(self._counters[_slices(box)].max())

    def process(self, box: Sequence[Span], weight: int, limit: int) -> bool:
        """Charge a box if every point of it has room.

        *Guarantee*: no point bears more than the limit.
        """
        inside = self._counters[_slices(box)]
        if int(inside.max()) + weight > limit:
            return False
        inside += weight
        return True


def _slices(box: Sequence[Span]) -> tuple[slice, ...]:
    return tuple(slice(low, high + 1) for low, high in box)
