"""When a question that reads data may go on: after a secret delay, at a point of a public grid.

How long a scan of the protected tables takes depends on their rows, so its duration is an output. A scan is therefore
*padded*: whatever comes after it (the settlement, the stored answer, the lock on which another session with the same
question waits, the answer itself) happens at a time from which little can be learned about the scan's true duration.
Stored answers, derived answers and refusals before data is read do not pass here and are not delayed.

*Construction.* A scan that ends T microseconds after it began, by success, by an error or at the deadline, lasts to the
outside until the first point of the grid 10 ms x 1.25^k at or after T + X. X is drawn before the scan begins, from the
operating system's generator, with density proportional to exp(-|x - s| / b) on x >= 0: b = 5 ms and s = 6 b = 30 ms. It
is truncated, not clipped: no single value has a probability of its own.

*Guarantee.* Let one unit's rows change T by at most dt (T itself may be random; couple it). Let P be the law of T + X
for the later T and Q that for the earlier one.
(1) Q puts mass delta = e^(-s/b) (e^(dt/b) - 1) / (2 - e^(-s/b)), about dt/(2b) e^(-s/b), on values below the support of
P. Let Q' be Q given that this does not happen; TV(Q, Q') <= delta.
(2) On the common support log(P/Q') is a constant plus (|x - s| - |x - s - dt|) / b, which stays within an interval of
width 2 dt/b. By Hoeffding's lemma KL(P || Q') <= (2 dt/b)^2 / 8 = dt^2 / (2 b^2) (Dong, Durfee, Rogers 2020, bounded
range). One timing is also (dt/b, delta)-DP.
(3) The grid, and all that follows, is post-processing. For n timings, adaptively chosen, KL adds up (chain rule) and so
do the deltas; Pinsker's inequality gives the total variation between everything seen in the two worlds:

    TV <= sqrt(n) dt / (2 b) + n delta.

For dt = 10 microseconds (what ``sqlrewrite`` lets one row cost, about):

    n          1         100      4,000    100,000
    first      0.0010    0.010    0.063    0.316
    n delta    0.000002  0.0002   0.010    0.248
    TV at most 0.0010    0.0102   0.073    0.565

The price of a scan (``deployment.scan_floor``, by default 1/4,000 of the analyst's limit) keeps n at 4,000 for each
analyst and period. A larger b buys a smaller residual for a longer wait: 5 ms makes the residual of all that an analyst
can pay for (7 % advantage over guessing) smaller than what the paid answers themselves tell, for some 40 ms a question.

*Why the clocks are as they are.* The duration is taken in nanoseconds and rounded up to microseconds, and the wait has
an absolute end in a thread of its own. The event loop's timers would not do: they count whole milliseconds from the
moment at which they are set, that is from the end of the scan, so that the fraction of a millisecond at which a scan
ended would be seen in the time of departure, without any noise.

*Cancelling.* A cancel request at time t leaves at the grid point of t + 50 ms + a fresh delay, whether the scan still
ran or had ended: within these 50 ms PostgreSQL has stopped (if it takes longer, its end counts, as always). Further
requests change nothing. At a shutdown all clients are told first, and then nobody waits any more.

*Limits.* dt is a bound for what the analyst's question makes of one unit's rows. PostgreSQL works in jumps as well: a
sort or a hash table that outgrows ``work_mem`` is written to disk, a hash table doubles, a parallel worker is started
or not, a page more is read; one row can be the one that does it, and moves T by milliseconds. A person with very many
rows moves T in proportion to them (measured: 44 ms for 300,000 rows, 0.15 microseconds each). While a scan runs other
sessions share processors, disk and this event loop with it, and may see that they are slower; no delay hides that.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any, Final, TypeVar

from mechanisms.noise import DiscreteLaplace
from mechanisms.sampler import Source, draw

T = TypeVar("T")

SCALE: Final = 5_000  # b, in microseconds
SHIFT: Final = 6 * SCALE  # s
FIRST: Final = 10_000  # the first point of the grid, in microseconds
RATIO: Final = Fraction(5, 4)
CANCELLING: Final = 50_000  # microseconds in which PostgreSQL stops a statement
_LAW: Final = DiscreteLaplace(Fraction(1), SCALE)


def delay(source: Source) -> int:
    """A secret delay in microseconds: Laplace of scale ``SCALE`` around ``SHIFT``, given that it is not negative."""
    while True:
        drawn = SHIFT + int(draw(_LAW, 1, source)[0])
        if drawn >= 0:
            return drawn


def departure(elapsed: int, delayed: int, first: int = FIRST, ratio: Fraction = RATIO) -> int:
    """The first grid point at or after ``elapsed`` + ``delayed``; everything in microseconds since the scan began."""
    point = first
    while point < elapsed + delayed:
        point = point * ratio.numerator // ratio.denominator
    return point


def residual(shift: float, timings: int) -> float:
    """The most by which so many timings can tell apart two worlds whose scans differ by ``shift`` microseconds.

    A bound on the total variation, at most 1; the derivation is at the head of this file.
    """
    missed = math.exp(-SHIFT / SCALE) * math.expm1(shift / SCALE) / (2 - math.exp(-SHIFT / SCALE))
    return min(1.0, math.sqrt(timings) * shift / (2 * SCALE) + timings * missed)


class Pacing:
    """Pads scans; one for all sessions of a proxy."""

    def __init__(self, at_once: int = 8, source: Source = os.urandom) -> None:
        """``at_once``: scans that may wait at the same time."""
        self._source = source
        self._threads = ThreadPoolExecutor(at_once, "pacing")
        self._waiting: set[threading.Event] = set()
        self._closed = False

    async def padded(self, scan: Coroutine[Any, Any, T], delayed: bool = True) -> T:
        """What ``scan`` returns or raises, not before its departure; ``delayed`` is off for trusted analysts.

        *Guarantee*: with ``delayed``, the time of return is a point of the grid after a delay as above, for every way
        in which the scan can end, cancelling included.
        """
        if not delayed:
            return await scan
        first, fresh = delay(self._source), delay(self._source)  # before anything is read
        began = time.perf_counter_ns()
        running = asyncio.get_running_loop().create_task(scan)
        try:
            await asyncio.wait((running,))
            await self._wait(began, departure(_since(began), first))
        except asyncio.CancelledError:
            least = _since(began) + CANCELLING
            running.cancel()
            await _undisturbed(self._cancelled(running, began, least, fresh))
            raise
        return running.result()

    def close(self) -> None:
        """Nobody waits any more."""
        self._closed = True
        for wake in self._waiting:
            wake.set()
        self._threads.shutdown(wait=False)

    async def _cancelled(self, running: asyncio.Task[Any], began: int, least: int, fresh: int) -> None:
        await asyncio.wait((running,))
        if not running.cancelled():
            running.exception()  # nobody will ask for it
        await self._wait(began, departure(max(least, _since(began)), fresh))

    async def _wait(self, began: int, point: int) -> None:
        """Until ``point`` microseconds after ``began``."""
        if self._closed:
            return
        wake = threading.Event()
        self._waiting.add(wake)
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads, _sleep, wake, began + 1000 * point)
        finally:
            self._waiting.discard(wake)
            wake.set()


def _since(began: int) -> int:
    """Microseconds, rounded up."""
    return -((began - time.perf_counter_ns()) // 1000)


def _sleep(wake: threading.Event, until: int) -> None:
    wake.wait(max(0, until - time.perf_counter_ns()) / 1e9)


async def _undisturbed(work: Coroutine[Any, Any, None]) -> None:
    """Finish some work whatever is cancelled meanwhile."""
    task = asyncio.get_running_loop().create_task(work)
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            continue
    task.result()
