"""How much slower than an idle machine this one is just now.

What is asked for in seconds is asked of an idle machine; tests run beside others. So a limit is stretched by what a
fixed piece of work takes now against what it took on an idle one, and by nothing else.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

_IDLE = 0.0075  # seconds that the piece of work takes on an idle machine with two cores
_PIECES = 30


def pace(clock: Callable[[], float] = time.perf_counter) -> float:
    """The factor, at least 1; by default for the time on the wall, with ``time.process_time`` for that of a core."""
    return max(1.0, statistics.fmean(_piece(clock) for _ in range(_PIECES)) / _IDLE)


def _piece(clock: Callable[[], float]) -> float:
    """Some thousand steps of Python, and some of numpy, as in most of what is measured."""
    begun = clock()
    total = 0
    for number in range(60_000):
        total += number & 1023
    values = np.arange(200_000, dtype=np.int64)
    total += int(np.sort((values * 7919) % 104_729).sum() & 1)
    assert total
    return clock() - begun
