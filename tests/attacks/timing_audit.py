"""Does the time of an answer tell two databases apart that differ in one unit?

The scans are real: each question is asked once through a proxy, what it reads with is recorded, and then the same
``Reader`` reads both databases in turn, in random order, through the product's ``Pacing`` with a stopwatch in place of
its wait. When an answer leaves is then computed by the product's own ``delay`` and ``departure``, on the grid that is
worst for us: its first point lies at the median of all scans plus the shift of the delay, where the law is steepest.

    python tests/attacks/timing_audit.py --pairs 1000 --out bench/results/evidence/timing.json
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]

import numpy as np
import psycopg
from attack_world import proxy_here
from numpy.typing import NDArray
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool
from scipy.stats import ks_2samp, mannwhitneyu
from timing_families import FAMILIES, Family, build

from mechanisms.sampler import Source
from proxy import pacing
from proxy.backend import Backend, Reader, configure
from proxy.pacing import SHIFT, Pacing, delay, departure, residual

Times = NDArray[np.int64]
Read = tuple[tuple[Any, ...], dict[str, Any]]
LEVEL = 0.01  # of all tests together
EXPLAINED = 0.2  # a residual from which on being told apart is what is written down
_WARM = 10


@dataclass(frozen=True)
class Verdict:
    """What one family's times tell: with the unit, and without."""

    family: str
    unit: str
    closed: str | None = None  # why it is no question (any more)
    pairs: int = 0
    medians: tuple[float, float] = (0.0, 0.0)  # of the true times, in microseconds
    shift: float = 0.0  # by which the unit moves them: the difference of the lower quartiles, which load moves least
    sure: float = 0.0  # and how far that may be off (two standard errors, by resampling)
    boundary: int = 0  # the point of the grid at the median
    p_ranks: float = 1.0  # Mann and Whitney, of departures
    p_laws: float = 1.0  # Kolmogorov and Smirnov
    p_ranks_of_scans: float = 1.0  # of the true times: what an analyst would see without any delay
    residual: float = 0.0  # what the stated residual allows at this shift

    @property
    def p(self) -> float:
        return min(self.p_ranks, self.p_laws)

    def told_apart(self, level: float) -> bool:
        """Whether it is told apart beyond what is written down.

        The work for one row is bounded, so one row must not be seen at all. A person may have many rows: how far such
        a person moves the time is a stated limit, and the residual at that shift says what it gives away.
        """
        return self.p < level and (self.unit == "row" or self.residual < EXPLAINED)


def seeded(seed: str) -> Source:
    """Bytes that are the same in every run."""
    calls = count()
    return lambda n: hashlib.shake_256(f"{seed}/{next(calls)}".encode()).digest(n)


def judged(
    family: Family, here: Times, there: Times, source: Source, draw: Callable[[Source], int] = delay, shift: int = SHIFT
) -> Verdict:
    """Whether departures tell these scans apart; ``draw`` and ``shift`` are those of the delay."""
    boundary = int(np.median(np.concatenate([here, there]))) + shift
    leaves = [
        np.array([departure(int(elapsed), draw(source), boundary) for elapsed in times]) for times in (here, there)
    ]
    n, rng = len(here), np.random.default_rng(1)
    moved = float(np.quantile(here, 0.25) - np.quantile(there, 0.25))
    again = [[np.quantile(rng.choice(times, n), 0.25) for times in (here, there)] for _ in range(200)]
    sure = 2 * float(np.std([one - other for one, other in again]))
    return Verdict(
        *(family.name, family.unit, None, n, (float(np.median(here)), float(np.median(there))), moved, sure, boundary),
        p_ranks=_ranks(*leaves),
        p_laws=float(ks_2samp(*leaves, method="asymp").pvalue),
        p_ranks_of_scans=_ranks(here, there),
        residual=residual(abs(moved), n),
    )


def _ranks(one: Times, other: Times) -> float:
    if len({*one.tolist(), *other.tolist()}) == 1:
        return 1.0
    return float(mannwhitneyu(one, other, alternative="two-sided", method="asymptotic").pvalue)


# -- Real scans --------------------------------------------------------------------------------------------------------


@contextmanager
def recording() -> Iterator[dict[str, list[Read]]]:
    """What questions read with, by database."""
    reads: dict[str, list[Read]] = {}
    original = Reader.measure

    async def measure(self: Reader, *args: Any, **more: Any) -> Any:
        reads.setdefault(self._conn.info.dbname, []).append((args, more))
        return await original(self, *args, **more)

    Reader.measure = measure  # type: ignore[assignment, method-assign]
    try:
        yield reads
    finally:
        Reader.measure = original  # type: ignore[method-assign]


def recorded(upstreams: Sequence[str], shadow: str, families: Sequence[Family]) -> dict[str, list[Read | str]]:
    """The scans of each family on each database; a text where it is refused."""
    found: dict[str, list[Read | str]] = {family.name: [] for family in families}
    for upstream in upstreams:
        with psycopg.connect(upstream, autocommit=True) as owner:  # what was released before would be no scan
            owner.execute("SELECT provenance.refresh(name) FROM provenance.relation WHERE kind = 'protected'")
        with recording() as reads, proxy_here(upstream, shadow) as hospital, hospital.connect("spy") as session:
            name = str(conninfo_to_dict(upstream)["dbname"])
            session.execute("SET veil.epsilon = '1'")
            for family in families:
                reads.pop(name, None)
                if "HAVING" in family.sql:
                    session.execute("RESET veil.epsilon")
                try:
                    session.execute(family.sql.encode())
                    found[family.name].append(reads[name][0])
                except psycopg.Error as refused:
                    found[family.name].append(f"{refused.sqlstate}: {refused.diag.message_primary}")
                session.execute("SET veil.epsilon = '1'")
    return found


class Stopwatch(Pacing):
    """The product's pacing without its wait: when the scan ended is noted instead."""

    def __init__(self) -> None:
        super().__init__(1)
        self.elapsed = 0

    async def _wait(self, began: int, point: int) -> None:
        self.elapsed = point


@contextmanager
def without_delay() -> Iterator[None]:
    """Points of departure are the true times."""
    original = pacing.departure
    pacing.departure = lambda elapsed, delayed: elapsed  # type: ignore[assignment]
    try:
        yield
    finally:
        pacing.departure = original


async def timed(upstreams: Sequence[str], reads: Sequence[Read], pairs: int, seed: str) -> tuple[Times, Times]:
    """The true times of a scan on both databases, in turn, in random order."""
    watch, order = Stopwatch(), random.Random(seed)
    pools = [
        AsyncConnectionPool(dsn, min_size=1, max_size=1, open=False, configure=partial(configure, seconds=60))
        for dsn in upstreams
    ]
    times: tuple[list[int], list[int]] = ([], [])
    for pool in pools:
        await pool.open()
    try:
        snapshots = [Backend(pool, 60).snapshot((), [read[0][1]], {}) for pool, read in zip(pools, reads, strict=True)]
        async with snapshots[0] as first, snapshots[1] as second:
            readers = first, second

            async def one(at: int) -> int:
                args, more = reads[at]
                await watch.padded(readers[at].measure(*args, **more))
                return watch.elapsed

            with without_delay():
                gc.disable()
                try:
                    for number in range(_WARM + pairs):
                        for at in order.sample((0, 1), 2):
                            elapsed = await one(at)
                            if number >= _WARM:
                                times[at].append(elapsed)
                finally:
                    gc.enable()
    finally:
        for pool in pools:
            await pool.close()
        watch.close()
    return np.array(times[0]), np.array(times[1])


def audit(
    upstreams: Sequence[str], shadow: str, pairs: int, seed: str, families: Sequence[Family] = FAMILIES
) -> tuple[list[Verdict], tuple[Times, Times]]:
    """The verdict on every family; and the times of the first one, twice on the database without the unit."""
    reads = recorded(upstreams, shadow, families)
    verdicts = []
    for family in families:
        here, there = reads[family.name]
        if isinstance(here, str) or isinstance(there, str):
            verdicts.append(Verdict(family.name, family.unit, closed=str(here if isinstance(here, str) else there)))
            continue
        times = asyncio.run(timed(upstreams, (here, there), pairs, f"{seed}/{family.name}"))
        verdicts.append(judged(family, *times, seeded(f"{seed}/{family.name}")))
    first = reads[families[0].name][1]
    assert not isinstance(first, str)
    return verdicts, asyncio.run(timed([upstreams[1]] * 2, (first, first), pairs, f"{seed}/same"))


# -- Mutants -----------------------------------------------------------------------------------------------------------


def nothing(source: Source) -> int:
    """A planted mistake: no delay, only the grid."""
    return 0


COSTS = (300, 1000, 3000)  # microseconds of a planted row


def planted(base: tuple[Times, Times], cost: int, seed: str) -> tuple[Verdict, Verdict]:
    """Two samples of scans of one database, one made to last longer by a row that costs so much: as they leave by the
    grid alone, and as they leave by the product.
    """
    family = Family(f"a row that costs {cost / 1000} ms, planted", "row", "")
    here, there = base[0] + cost, base[1]
    return judged(family, here, there, seeded(f"{seed}/grid"), nothing, 0), judged(family, here, there, seeded(seed))


# -- The long run ------------------------------------------------------------------------------------------------------


def main() -> None:
    from proxy.embedded import OLDEST, temporary

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--seed", default="2026")
    parser.add_argument("--out", type=Path, default=Path("bench/results/evidence/timing.json"))
    given = parser.parse_args()
    began = time.monotonic()
    with temporary({"fsync": "off"}) as cluster, temporary({"fsync": "off"}, version=OLDEST) as shadow:
        dsns = []
        for name, unit in (("with_unit", True), ("without_unit", False)):
            with psycopg.connect(cluster.dsn(), autocommit=True) as conn:
                conn.execute(f"CREATE DATABASE {name}".encode())
            dsns.append(build(cluster.dsn(name), unit=unit))
        verdicts, same = audit(dsns, shadow.dsn(), given.pairs, given.seed)
    asked = [verdict for verdict in verdicts if verdict.closed is None]
    level = LEVEL / (2 * len(asked))
    mutants = [planted(same, cost, f"{given.seed}/planted/{cost}") for cost in COSTS]
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    report = {
        "commit": commit,
        "seed": given.seed,
        "n": given.pairs,
        "duration": round(time.monotonic() - began, 1),
        "delay": {"scale_us": pacing.SCALE, "shift_us": SHIFT, "grid_ratio": float(pacing.RATIO)},
        "level": level,
        "families": [
            {**asdict(verdict), "flagged": verdict.p < level, "beyond_residual": verdict.told_apart(level)}
            for verdict in verdicts
        ],
        "closed": sum(verdict.closed is not None for verdict in verdicts),
        "flagged_without_delay": sum(verdict.p_ranks_of_scans < level for verdict in asked),
        "flagged": sum(verdict.p < level for verdict in asked),
        "flagged_for_one_row": sum(verdict.p < level for verdict in asked if verdict.unit == "row"),
        "beyond_residual": sum(verdict.told_apart(level) for verdict in asked),
        "mutants_grid_only": [{**asdict(mutant), "flagged": mutant.p < level} for mutant, _ in mutants],
        "product_on_the_same": [{**asdict(product), "flagged": product.p < level} for _, product in mutants],
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
