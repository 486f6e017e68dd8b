"""Regions in classes of mutually disjoint ones: a unit lies in at most one of each class.

So the heaviest member of each class, summed up, is at least what any unit bears (seed 3, section 5: the weighted
chromatic number bounds the overlap from above, and so does every colouring that is not the best). DSATUR (Brélaz 1979)
gives the next class to the region that has the fewest left; among equals, to the heaviest.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from provenance.touching import Bits, numbers
from provenance.weighing import Weights


def colouring(near: Sequence[Bits], weights: Weights, among: Bits, work: int) -> list[Bits] | None:
    """Classes of mutually disjoint regions that hold all of these; ``near`` are the regions that each one overlaps.

    None if that is more work than is allowed.

    *Guarantee*: no two regions of a class overlap, whatever the order.
    """
    work -= sum((near[number] & among).bit_count() for number in numbers(among))
    if work < 0:
        return None
    each = weights.each
    classes: list[Bits] = []
    around: list[Bits] = []  # of each class, what overlaps some member
    saturation = dict.fromkeys(numbers(among), 0)
    waiting = [(0, -each[n], -(near[n] & among).bit_count(), n) for n in saturation]
    heapq.heapify(waiting)
    left = among
    while waiting:
        stale, _, _, number = heapq.heappop(waiting)
        bit = 1 << number
        if not left & bit or -stale != saturation[number]:
            continue
        left ^= bit
        place = next((place for place, taken in enumerate(around) if not taken & bit), len(classes))
        if place == len(classes):
            classes.append(0)
            around.append(0)
        classes[place] |= bit
        fresh = near[number] & left & ~around[place]
        around[place] |= near[number]
        for other in numbers(fresh):
            saturation[other] += 1
            degree = -(near[other] & left).bit_count()
            heapq.heappush(waiting, (-saturation[other], -each[other], degree, other))
    return classes


def colour_bound(classes: Sequence[Bits], weights: Weights) -> int:
    """The heaviest of each class, summed up."""
    each = weights.each
    return sum(max(each[number] for number in numbers(held)) for held in classes)
