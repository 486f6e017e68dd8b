"""Time as an output: a sample of the audit of ``timing_audit``, and the mistakes that it must see.

The long run (``-m slow``, and ``python tests/attacks/timing_audit.py`` for ``bench/results/evidence/timing.json``) has
1,000 pairs of every family. Here thresholds are such that a run on a busy machine does not fail by chance.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
import pytest
from attack_world import proxy_here
from timing_audit import COSTS, LEVEL, Times, audit, judged, planted, seeded
from timing_families import FAMILIES, build

from proxy.pacing import residual

SURE = 1e-6
FIRST = ("plain count", "equality on the unit", "group by domain", "person by group", "join with a public table")


@pytest.fixture(scope="module")
def worlds(postgres) -> Sequence[str]:  # type: ignore[no-untyped-def]
    return [build(postgres.new_database("timing"), unit=unit) for unit in (True, False)]


def scans(seed: int, jitter: float = 300.0, n: int = 1000) -> tuple[Times, Times]:
    """Simulated scans of some 20 ms, in microseconds, that vary as those of an idle server do."""
    rng = np.random.default_rng(seed)
    one, other = (20_000 + rng.gamma(4.0, jitter / 2, n) for _ in range(2))
    return one.astype(np.int64), other.astype(np.int64)


def test_a_grid_alone_tells_a_row_and_the_delay_does_not() -> None:
    """As in the issue: 1,000 timings at a boundary, a row that costs 0.3 ms."""
    told = [planted(scans(seed), 300, f"simulated {seed}") for seed in range(10)]
    assert sum(mutant.p < SURE for mutant, _ in told) >= 9
    assert sum(product.p < LEVEL / 10 for _, product in told) == 0
    assert 0.9 < residual(300, 1000) < 1.1, "the residual says that more timings of such a row would be seen"


def test_the_harness_sees_nothing_where_there_is_nothing() -> None:
    told = [judged(FAMILIES[0], *scans(100 + seed), seeded(f"nothing {seed}")) for seed in range(20)]
    assert min(verdict.p for verdict in told) > LEVEL / 40


def test_a_row_of_ten_microseconds_is_not_seen_in_four_thousand_timings() -> None:
    """All that an analyst may pay for by default, with an idle server and the boundary at the median."""
    one, other = scans(7, jitter=50.0, n=4000)
    verdict = judged(FAMILIES[0], one + 10, other, seeded("ten"))
    assert verdict.p > LEVEL
    assert residual(10, 4000) < 0.08


def test_real_scans_of_neighbours_leave_alike(worlds: Sequence[str], shadow_server) -> None:  # type: ignore[no-untyped-def]
    families = [family for family in FAMILIES if family.name in FIRST]
    verdicts, same = audit(worlds, shadow_server.admin_dsn, 40, "sample", families)
    asked = [verdict for verdict in verdicts if verdict.closed is None]
    assert len(asked) >= 3
    assert not [verdict for verdict in asked if verdict.p < SURE]
    mutant, _ = planted(same, 20 * COSTS[-1], "sample")
    assert mutant.p < SURE, "a row that costs 60 ms is seen by the grid alone"


def test_answers_on_the_socket_leave_alike(worlds: Sequence[str], shadow_server) -> None:  # type: ignore[no-untyped-def]
    """The whole way, with the product's own delay and wait."""
    taken: tuple[list[int], list[int]] = ([], [])
    order = random.Random("socket")
    with ExitStack() as stack:
        hospitals = [stack.enter_context(proxy_here(upstream, shadow_server.admin_dsn)) for upstream in worlds]
        sessions = [stack.enter_context(hospital.connect("spy")) for hospital in hospitals]
        for number in range(25):
            for at in order.sample((0, 1), 2):  # in turn: the machine may be busier at one time than at another
                sessions[at].execute(f"SET veil.margin = '{900 - number}u'".encode())  # finer each time: it is measured
                began = time.perf_counter_ns()
                sessions[at].execute("SELECT count(*) FROM entry WHERE v > 50")
                taken[at].append((time.perf_counter_ns() - began) // 1000)
    here, there = (np.array(each) for each in taken)
    assert min(here.min(), there.min()) >= 10_000, "the first point of the grid"
    assert np.median(np.concatenate([here, there])) >= 30_000
    assert judged(FAMILIES[0], here, there, seeded("socket")).p_ranks_of_scans > SURE


@pytest.mark.slow
@pytest.mark.timeout(5400)
def test_no_family_is_told_apart_beyond_the_residual(worlds: Sequence[str], shadow_server) -> None:  # type: ignore[no-untyped-def]
    verdicts, _ = audit(worlds, shadow_server.admin_dsn, 1000, "slow")
    asked = [verdict for verdict in verdicts if verdict.closed is None]
    assert len(verdicts) >= 20
    level = LEVEL / (2 * len(asked))
    assert not [verdict for verdict in asked if verdict.told_apart(level)]
