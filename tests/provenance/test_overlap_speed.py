"""What the largest total over a point costs to know, at the sizes that are promised."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pace import pace

from bench.regions.workloads import census, synthetic
from provenance.overlap import Overlap


def seconds(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
def test_two_thousand_census_questions_take_a_second_and_one_more_milliseconds(weighted: bool) -> None:
    parts = census(np.random.default_rng(17), 2_200, weighted=weighted)
    known: list[Overlap] = []
    assert min(seconds(lambda: known.append(Overlap.of(parts[:2000]))) for _ in range(3)) < 1 * pace()
    kept = known[-1]
    assert kept.exact and len(kept) > 1900
    each = [seconds(lambda part=part: kept.add([part])) for part in parts[2000:]]  # type: ignore[misc]
    assert statistics.fmean(each) < 0.010 * pace() and sorted(each)[len(each) * 95 // 100] < 0.010 * pace()
    assert kept.bound() == Overlap.of(parts).bound(), "as from scratch"


@pytest.mark.slow
def test_two_hundred_questions_on_twenty_thousand_attributes_take_seconds() -> None:
    parts = synthetic(np.random.default_rng(18), 20_000, 200)
    assert len({name for region, _ in parts for name, _ in region.sides}) == 20_000
    found: list[Overlap] = []
    assert seconds(lambda: found.append(Overlap.of(parts))) < 10 * pace()
    kept = found[0]
    heaviest, all_ = kept.bound(), sum(weight for _, weight in parts)
    assert max(weight for _, weight in parts) <= heaviest < all_ / 2
