"""The heaviest set of regions that overlap pairwise, or all in one point: branch and bound with a safe cut-off.

A set of pairwise overlapping regions is a clique of the overlap graph. Where extents are intervals or single values it
also has a common point (Helly); sets of several values can overlap pairwise only, so there the common part is kept and
asked for (seed 3, Algorithm 1 and section 6.2). The search takes the most promising branch first, bounded by a
colouring of what is left: the first leaf is the answer, and after a cut-off the top of the heap is still a bound. A
clique that is merely large is never taken for the largest.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from provenance.extent import Members
from provenance.region import EVERYWHERE, Region
from provenance.sweep import Bound
from provenance.touching import Bits, numbers
from provenance.weighing import Weights

_COMPARING_COSTS = 8  # of the steps that comparing two regions is worth


def clique(near: Sequence[Bits], weights: Weights, among: Bits, floor: int, work: int) -> Bound:
    """The largest total of pairwise overlapping regions, or the floor if that is more."""
    return _search(near, weights, among, EVERYWHERE, floor, work, None)


def overlap(
    regions: Sequence[Region],
    near: Sequence[Bits],
    weights: Weights,
    among: Bits,
    inside: Region,
    floor: int,
    work: int,
) -> Bound:
    """The largest total of regions with a common point inside, or the floor if that is more.

    All of them touch the region that the point lies inside.
    """
    helly = _helly(inside) and all(_helly(regions[number]) for number in numbers(among))
    return _search(near, weights, among, inside, floor, work, None if helly else regions)


def _helly(region: Region) -> bool:
    """Whether it is made of intervals and single values: such regions, if they overlap pairwise, share a point."""
    return not any(isinstance(extent, Members) and len(extent.values) > 1 for _, extent in region.sides)


def _search(
    near: Sequence[Bits],
    weights: Weights,
    among: Bits,
    inside: Region,
    floor: int,
    work: int,
    regions: Sequence[Region] | None,
) -> Bound:
    """Best first; a node is what it has, what it may still take, and what all of that has in common.

    *Guarantee*: every clique of the graph is below some node of the heap or was bounded by the floor, so the largest
    bound in the heap bounds them all, whenever the search stops.
    """
    order = weights.heaviest_first(among)
    local = _renumbered(near, order)
    each = [weights.each[number] for number in order]
    turn = 0
    every = (1 << len(order)) - 1
    waiting: list[tuple[int, int, int, Bits, Bits, Region, int | None]]
    waiting = [(-sum(each), turn, 0, 0, every, inside, None)]
    while waiting:
        bound, _, has, held, left, common, newest = heapq.heappop(waiting)
        if -bound <= floor:
            break
        if regions is not None and newest is not None and left:
            common = common.intersection(regions[order[newest]])
            work -= len(common.sides)
            work -= _COMPARING_COSTS * left.bit_count()
            for number in numbers(left):
                if common.disjoint(regions[order[number]]):
                    left ^= 1 << number
        if not left:
            if -bound == has:
                return Bound(has, exact=True, held=sum(1 << order[number] for number in numbers(held)))
            turn += 1
            heapq.heappush(waiting, (-has, turn, has, held, 0, common, None))
            continue
        steps, taken = _coloured(local, each, left)
        work -= taken
        if work < 0:
            return Bound(-bound, exact=False)
        if -bound > has + steps[-1][1]:
            bound = -(has + steps[-1][1])
        before = left
        for number, below in reversed(steps):
            before ^= 1 << number
            if has + below <= floor:
                break
            turn += 1
            work -= 1
            bounded = max(bound, -(has + below))
            taking = (has + each[number], held | 1 << number, before & local[number])
            heapq.heappush(waiting, (bounded, turn, *taking, common, number))
    return Bound(floor, exact=True)


def _coloured(near: Sequence[Bits], each: Sequence[int], left: Bits) -> tuple[list[tuple[int, int]], int]:
    """These regions class by class, each with a bound on the cliques of it and those before it; and the work."""
    steps: list[tuple[int, int]] = []
    sofar = work = 0
    while left:
        room = left
        heaviest = each[(room & -room).bit_length() - 1]  # numbers are in falling weight: the first is the heaviest
        while room:
            low = room & -room
            number = low.bit_length() - 1
            room &= ~near[number] & ~low
            left ^= low
            work += 1
            steps.append((number, sofar + heaviest))
        sofar += heaviest
    return steps, work


def _renumbered(near: Sequence[Bits], order: Sequence[int]) -> list[Bits]:
    """The overlaps among some regions, by their places in an order.

    As a matrix: one by one the pairs of two thousand regions would take seconds, which nobody counts as work.
    """
    if all(number == place for place, number in enumerate(order)):
        every = (1 << len(order)) - 1
        return [near[number] & every for number in order]
    size = max(order) // 8 + 1
    every = (1 << 8 * size) - 1
    packed = b"".join((near[number] & every).to_bytes(size, "little") for number in order)
    rows = np.unpackbits(np.frombuffer(packed, np.uint8).reshape(len(order), size), axis=1, bitorder="little")
    moved = np.packbits(rows[:, np.array(order, np.int64)], axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in moved]
