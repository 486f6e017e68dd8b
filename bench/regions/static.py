"""The static database of seed 4: fixed noise, a bound on the popularity of a point, and relaxation for the rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction

import numpy as np

from bench.regions.seeds import relax_as_printed
from bench.regions.workloads import AXES, SPACE
from provenance.buckets import Buckets
from provenance.popularity import Popularity
from provenance.region import Region
from provenance.relax import relax
from provenance.released import Released
from provenance.space import Box

NOISE = 2000
VARIANCE = Fraction(2 * NOISE * NOISE)


def popularity_limit(epsilon: float) -> int:
    """How many answers may touch a point: epsilon lambda / 2, since the paper's neighbours replace a row."""
    return round(epsilon * NOISE / 2)


def most_answers(epsilon: float, volume: float) -> float:
    """Seed 4, Lemma 3: no method answers more questions of this volume."""
    return epsilon * NOISE / (2 * volume * (1 - volume))


Admit = Callable[[Box], bool]


def exactly(limit: int) -> Admit:
    """Admission by the popularity of every point."""
    points = Popularity(list(AXES.values()))
    return lambda box: points.process(box, 1, limit)


def by_buckets(limit: int, most: int) -> Admit:
    """Admission by the histogram."""
    sizes = list(AXES.values())
    buckets = Buckets([0] * len(sizes), [size - 1 for size in sizes], most)

    def admit(box: Box) -> bool:
        low, high = np.array(box, np.int64).T
        return buckets.process(low, high, 1, limit)

    return admit


def disjointly() -> Admit:
    """Only what overlaps nothing that was answered."""
    return exactly(1)


def admitted(boxes: Iterable[Box], admit: Admit) -> list[int]:
    """How many were answered so far, after each question."""
    found, counted = [], 0
    for box in boxes:
        counted += admit(box)
        found.append(counted)
    return found


@dataclass(slots=True)
class Tally:
    """What became of a workload."""

    answered: int = 0
    relaxed: int = 0
    nothing: int = 0
    bought: int = 0
    error: float = 0.0
    terms: float = 0.0
    exact: int = 0
    seconds: float = 0.0
    worst: float = 0.0
    errors: list[float] = field(default_factory=list)

    @property
    def mean_error(self) -> float:
        return self.error / max(1, self.relaxed)

    @property
    def mean_terms(self) -> float:
        return self.terms / max(1, self.relaxed)

    @property
    def millis(self) -> float:
        return 1000 * self.seconds / max(1, self.answered + self.relaxed + self.nothing)


def serve(queries: Sequence[Region], limit: int, most: int, *, printed: bool) -> Tally:
    """Answer what the limit allows and relax the rest, by Relax as printed or by ours."""
    points, released, tally = Popularity(list(AXES.values())), Released(SPACE), Tally()

    def affordable(boxes: Sequence[Box]) -> bool:
        return all(points.room(box, limit) >= len(boxes) for box in boxes)

    def price(regions: Sequence[Region]) -> Decimal | None:
        boxes = [box for region in regions if (box := SPACE.box(region)) is not None]
        return Decimal(len(boxes)) if affordable(boxes) else None

    for asked in queries:
        start = time.perf_counter()
        box = SPACE.box(asked)
        if box is None:
            raise ValueError("the workload is made of rectangles")
        if points.process(box, 1, limit):
            released.add(asked, 0, VARIANCE)
            tally.answered += 1
            tally.seconds += time.perf_counter() - start
            continue
        if printed:
            found = relax_as_printed(released, box, most, affordable)
            error, terms, patches = found.error, found.size, [SPACE.region(patch) for patch in found.patches]
        else:
            ours = relax(released, asked, most=most, price=price, patch_variance=VARIANCE)
            if ours is None:
                tally.nothing += 1
                continue
            error, terms, patches = float(ours.error), len(ours.terms), list(ours.patches)
        for patch in patches:
            bought = None if patch is None else SPACE.box(patch)
            if patch is None or bought is None or not points.process(bought, 1, limit):
                raise ValueError("a patch that was bought must be within the limit")
            released.add(patch, 0, VARIANCE)
        taken = time.perf_counter() - start
        tally.relaxed += 1
        tally.bought += len(patches)
        tally.error += error
        tally.terms += terms
        tally.exact += error == 0
        tally.seconds += taken
        tally.worst = max(tally.worst, taken)
        tally.errors.append(error)
    return tally
