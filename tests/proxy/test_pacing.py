"""Padded scans: the law of the delay, the grid, and every way in which a scan can end."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Callable, Coroutine
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mechanisms.sampler import Source
from proxy import pacing
from proxy.pacing import FIRST, RATIO, SCALE, SHIFT, Pacing, delay, departure, residual

sys.path.append(str(Path(__file__).parents[1] / "mechanisms"))
from seeded_source import seeded

MS = 1000  # in microseconds


def law() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The delays and their exact probabilities."""
    values = np.arange(SHIFT + 60 * SCALE)
    weights = np.exp(-np.abs(values - SHIFT) / SCALE)
    return values, weights / weights.sum()


def grid(upto: int) -> list[int]:
    points = [FIRST]
    while points[-1] < upto:
        points.append(points[-1] * 5 // 4)
    return points


# -- The law -----------------------------------------------------------------------------------------------------------


def clipped(source: Source) -> int:
    """A planted mistake: what is negative becomes zero, so that zero says how fast the scan was."""
    return max(0, SHIFT - 4 * SCALE + int(pacing.draw(pacing._LAW, 1, source)[0]))


def unlike_the_law(draws: list[int]) -> bool:
    values, masses = law()
    cumulated = np.cumsum(masses)
    below = np.searchsorted(np.sort(draws), values, side="right") / len(draws)
    farthest = float(np.max(np.abs(below - cumulated)))
    return farthest > math.sqrt(math.log(2 / 1e-9) / (2 * len(draws)))  # Dvoretzky, Kiefer, Wolfowitz, Massart


def test_the_delay_is_a_truncated_laplace() -> None:
    source = seeded("delay")
    draws = [delay(source) for _ in range(4_000)]
    assert min(draws) >= 0
    assert not unlike_the_law(draws)
    assert unlike_the_law([clipped(source) for _ in range(4_000)])


def test_the_default_source_is_the_operating_systems() -> None:
    assert Pacing()._source is pacing.os.urandom


@pytest.mark.parametrize("shift", [1, 10, 100, 1000])
def test_the_residual_bounds_what_the_exact_laws_allow(shift: int) -> None:
    values = np.arange(SHIFT + 60 * SCALE)
    early, late = (np.exp(-np.abs(values - SHIFT - by) / SCALE) * (values >= by) for by in (0, shift))
    early, late = early / early.sum(), late / late.sum()
    assert 0.5 * np.abs(early - late).sum() <= residual(shift, 1)
    missed = early[:shift].sum()
    here, there = late[shift:], early[shift:] / early[shift:].sum()
    kl = float(np.sum(here * np.log(here / there)))
    assert kl <= shift**2 / (2 * SCALE**2)
    for timings in (1, 100, 4000):
        assert min(1, math.sqrt(timings * kl / 2) + timings * missed) <= residual(shift, timings)


def test_the_residual_is_the_one_that_is_written_down() -> None:
    found = [round(residual(10, n), 4) for n in (1, 100, 4000, 100_000)]
    assert found == [0.0010, 0.0102, 0.0732, 0.5647]
    text = pacing.__doc__ or ""
    assert "TV at most 0.0010    0.0102   0.073    0.565" in text


def test_the_best_attack_stays_within_the_residual() -> None:
    """The likelihood ratio of 400 exact delays (no grid, no jitter) against a shift of 0.3 ms."""
    rng, timings, shift = np.random.default_rng(7), 400, 300
    values, masses = law()
    draws = rng.choice(values, size=(4000, timings), p=masses)

    def later(seen: np.ndarray[Any, Any]) -> float:
        """How often the shifted law is the likelier one."""
        return float(np.mean((np.abs(seen - SHIFT) - np.abs(seen - SHIFT - shift)).sum(axis=1) > 0))

    advantage = later(draws + shift) - later(draws)
    assert 0.2 < advantage <= residual(shift, timings) + 0.04  # the attack is a good one, and the bound holds


# -- The grid ----------------------------------------------------------------------------------------------------------


def test_departures_are_the_first_grid_point_that_is_late_enough() -> None:
    points = grid(10**9)
    assert max(Fraction(b, a) for a, b in pairwise(points)) <= RATIO <= Fraction(3, 2)
    rng = np.random.default_rng(3)
    for elapsed, delayed in rng.integers(0, 10**8, size=(2000, 2)).tolist():
        point = departure(elapsed, delayed)
        assert point == next(each for each in points if each >= elapsed + delayed)
    assert departure(0, 0) == FIRST and departure(FIRST, 0) == FIRST and departure(FIRST, 1) == FIRST * 5 // 4


# -- Ways to end -------------------------------------------------------------------------------------------------------


class Watched(Pacing):
    """Remembers for when departures were set."""

    def __init__(self, seed: str = "watched") -> None:
        super().__init__(4, seeded(seed))
        self.points: list[int] = []

    async def _wait(self, began: int, point: int) -> None:
        self.points.append(point)
        await super()._wait(began, point)


async def lasting(seconds: float, end: Callable[[], Any] = lambda: "answer") -> Any:
    await asyncio.sleep(seconds)
    return end()


def fails() -> None:
    raise RuntimeError("at the deadline")


def took(pacing: Pacing, scan: Coroutine[Any, Any, Any]) -> tuple[int, object]:
    async def run() -> tuple[int, object]:
        began = time.perf_counter_ns()
        try:
            result: object = await pacing.padded(scan)
        except RuntimeError as error:
            result = str(error)
        return (time.perf_counter_ns() - began) // 1000, result

    return asyncio.run(run())


@pytest.mark.parametrize(("end", "result"), [(lambda: "answer", "answer"), (fails, "at the deadline")])
@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_a_scan_ends_at_a_grid_point_whatever_it_ends_with(end: Callable[[], Any], result: str, seconds: float) -> None:
    watched, source = Watched("ends"), seeded("ends")
    microseconds, came = took(watched, lasting(seconds, end))
    assert came == result
    [point] = watched.points
    assert point in grid(10**9) and point >= seconds * 1e6 + delay(source)
    assert microseconds >= point


def test_trusted_analysts_do_not_wait() -> None:
    watched = Watched()
    assert asyncio.run(watched.padded(lasting(0), delayed=False)) == "answer"
    assert watched.points == []


async def stopped(pacing: Pacing, after: float, scan: Coroutine[Any, Any, Any], times: int = 1) -> None:
    task = asyncio.create_task(pacing.padded(scan))
    await asyncio.sleep(after)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0.002)
    with pytest.raises(asyncio.CancelledError):
        await task


async def reluctant(seconds: float, stopping: float, log: list[str]) -> None:
    """A scan that PostgreSQL takes some time to stop."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        await asyncio.sleep(stopping)
        log.append("stopped")
        raise


def far_from_a_boundary(at: int) -> str:
    """A seed whose fresh delay leads into the middle of the grid, so that jitter of the machine changes nothing."""
    for number in range(1000):
        source = seeded(f"cancel {number}")
        first, fresh = delay(source), delay(source)
        least, point = at + fresh, departure(at, fresh)
        if first > 32 * MS and point * 4 // 5 + 2 * MS < least < point - 12 * MS:
            return f"cancel {number}"
    raise AssertionError("no such seed")


def cancelled_points(fast: float, slow: float, stopping: float) -> tuple[int, int]:
    """When a cancel after 20 ms leaves: while the scan is in its delay, and while it runs."""
    seed, log = far_from_a_boundary(20 * MS + pacing.CANCELLING), list[str]()
    in_delay, in_scan = Watched(seed), Watched(seed)
    asyncio.run(stopped(in_delay, 0.02, reluctant(fast, 0, log)))
    asyncio.run(stopped(in_scan, 0.02, reluctant(slow, stopping, log)))
    assert log == ["stopped"], "the scan itself was stopped"
    assert len(in_delay.points) == 2 and len(in_scan.points) == 1
    return in_delay.points[-1], in_scan.points[-1]


def test_a_cancel_leaves_at_the_same_time_whether_the_scan_runs_or_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, running = cancelled_points(0.0, 60.0, 0.03)
    assert ended == running >= 20 * MS + pacing.CANCELLING
    monkeypatch.setattr(pacing, "CANCELLING", 0)  # a planted mistake: the time to stop PostgreSQL is not covered
    ended, running = cancelled_points(0.0, 60.0, 0.06)
    assert ended != running


def test_more_cancel_requests_change_nothing_and_do_not_disturb_the_end_of_the_scan() -> None:
    log, watched = list[str](), Watched()
    began = time.perf_counter_ns()
    asyncio.run(stopped(watched, 0.005, reluctant(60.0, 0.02, log), times=5))
    assert log == ["stopped"] and len(watched.points) == 1
    assert (time.perf_counter_ns() - began) // 1000 >= watched.points[0]


def test_a_scan_that_ignores_a_cancel_counts_until_its_end() -> None:
    async def stubborn() -> None:
        for _ in range(20):
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    watched = Watched()
    asyncio.run(stopped(watched, 0.02, stubborn()))
    assert watched.points[-1] >= 190 * MS


def test_at_a_shutdown_nobody_waits() -> None:
    async def run() -> float:
        paused = Pacing(2)
        tasks = [asyncio.create_task(paused.padded(lasting(0))) for _ in range(2)]
        running = asyncio.create_task(paused.padded(reluctant(60, 0, [])))
        await asyncio.sleep(0.001)
        began = time.monotonic()
        paused.close()
        running.cancel()
        await asyncio.gather(*tasks, running, return_exceptions=True)
        return time.monotonic() - began

    pacing_delay = pacing.delay
    try:
        pacing.delay = lambda source: 10**8  # type: ignore[assignment]
        assert asyncio.run(run()) < 20
    finally:
        pacing.delay = pacing_delay


# -- The clock ---------------------------------------------------------------------------------------------------------


def spread(wait: Callable[[int], Coroutine[Any, Any, None]], each: int = 60, bins: int = 5) -> float:
    """How far apart, in milliseconds, waits end that were begun at different fractions of a millisecond before their
    end: of each fraction the promptest counts, since a busy machine only adds to it.
    """

    async def run() -> list[float]:
        promptest = [math.inf] * bins
        for number in range(each * bins):
            until = time.perf_counter_ns() + 3_000_000 + 1_000_000 * (number % bins) // bins
            await wait(until)
            late = (time.perf_counter_ns() - until) / 1e6
            promptest[number % bins] = min(promptest[number % bins], late)
        return promptest

    found = asyncio.run(run())
    return max(found) - min(found)


def test_the_wait_does_not_carry_the_phase_of_its_beginning() -> None:
    """Timers of the event loop count whole milliseconds from when they are set: the planted mistake."""
    pacer = Pacing(2)

    async def by_the_loop(until: int) -> None:
        await asyncio.sleep((until - time.perf_counter_ns()) / 1e9)

    assert spread(lambda until: pacer._wait(0, until // 1000)) < 0.3 < spread(by_the_loop)
