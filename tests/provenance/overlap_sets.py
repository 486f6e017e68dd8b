"""Random sets of weighted regions on small domains, and the truth about them by looking at every point."""

from __future__ import annotations

from decimal import Decimal
from random import Random

import numpy as np

from provenance.extent import Extent, Interval, Members, Value
from provenance.region import Region, coin, quanta

# Between two whole numbers there is one place more, as over a dense domain, and NULL lies in no interval.
POINTS: tuple[Value, ...] = (*(Decimal(half) / 2 for half in range(-1, 12)), None)
Part = tuple[Region, Decimal]


def extent(random: Random) -> Extent:
    """A set, a single value, or an interval with any ends."""
    match random.randrange(4):
        case 0:
            return Members.of(random.randrange(6))
        case 1:
            return Members(frozenset(random.choice((0, 1, 2, 3, 4, 5, None)) for _ in range(random.randint(1, 4))))
        case _:
            low, high = sorted((random.randrange(6), random.randrange(6)))
            ends = (random.choice((low, low, None)), random.choice((high, high, None)))
            return Interval(*ends, random.random() < 0.7, random.random() < 0.7)


def region(random: Random, attributes: str) -> Region:
    share = random.choice((0.4, 0.7, 1.0))
    return Region.of({name: extent(random) for name in attributes if random.random() < share})


def weight(random: Random) -> Decimal:
    """Equal, simple, or with all the digits that a ledger has."""
    match random.randrange(3):
        case 0:
            return Decimal("0.05")
        case 1:
            return Decimal(random.randint(1, 9)) / 100
        case _:
            return coin(random.randrange(1, 10**18))


def random_set(random: Random) -> list[Part]:
    """Up to 12 weighted regions on up to three attributes."""
    attributes = "abc"[: random.randint(1, 3)]
    return [(region(random, attributes), weight(random)) for _ in range(random.randint(1, 12))]


def truth(parts: list[Part]) -> int:
    """The largest total over all points, in the smallest amounts."""
    names = sorted({name for region, _ in parts for name, _ in region.sides})
    totals = np.zeros((len(POINTS),) * len(names), np.uint64)
    assert sum(quanta(weight) for _, weight in parts) < 2**64
    for region, weight in parts:
        covered = np.ones((), np.bool_)
        for name in names:
            extent = region.on(name)
            inside = np.array([extent is None or value in extent for value in POINTS])
            covered = np.logical_and.outer(covered, inside)
        totals += np.uint64(quanta(weight)) * covered
    return int(totals.max())
