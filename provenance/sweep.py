"""The heaviest point, exactly: a sweep over the places of each attribute, one attribute after the other.

On one attribute only the places where something begins can be the heaviest, and of these only the ones whose set of
regions is not inside a neighbour's (``touching.Index`` keeps them). With several attributes this is a search through
the grid of such places, the heaviest set first: the total of what is left bounds every point inside, so the first point
that is reached is the heaviest one, and whenever the search is cut off, what it holds on top is a safe bound.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from provenance.region import Region
from provenance.touching import Bits, Index
from provenance.weighing import Weights

_TOTAL_COSTS = 4  # of the steps that a total is worth


@dataclass(frozen=True, slots=True)
class Bound:
    """At most ``amount`` lies on any point; if exact, the regions ``held`` share a point that bears it.

    A search above a floor that finds nothing gives the floor, exact, and holds nothing.
    """

    amount: int
    exact: bool
    held: Bits = 0


def sweep(index: Index, weights: Weights, among: Bits, inside: Region, floor: int, work: int) -> Bound | None:
    """The largest total over a point inside, or the floor if that is more; None if there is too much to look at.

    *Guarantee*: no point bears more, also if the work (steps on sets, not time) was cut off.
    """
    places = index.places(among, inside, work)
    return None if places is None else search(places, weights, among, floor, work)


def search(axes: Sequence[Sequence[Bits]], weights: Weights, among: Bits, floor: int, work: int) -> Bound:
    """The best choice of one place on each axis."""
    turn = 0
    waiting: list[tuple[int, int, Bits, Sequence[Sequence[Bits]]]] = [(-weights.total(among), turn, among, axes)]
    while waiting:
        total, _, left, open_axes = heapq.heappop(waiting)
        if -total <= floor:
            break
        narrowed, still = _narrow(open_axes, left)
        work -= 1 + sum(map(len, open_axes))
        if not narrowed:
            return Bound(-total, exact=True, held=left)
        if work < 0:
            return Bound(-total, exact=False)
        for bits in narrowed:
            work -= _TOTAL_COSTS
            held = weights.total(bits)
            if held > floor:
                turn += 1
                heapq.heappush(waiting, (-held, turn, bits, still))
    return Bound(floor, exact=True)


def _narrow(axes: Sequence[Sequence[Bits]], left: Bits) -> tuple[list[Bits], list[Sequence[Bits]]]:
    """The sets that the places of the axis with the fewest leave, and the other axes that still separate."""
    best: list[Bits] | None = None
    separating: list[Sequence[Bits]] = []
    chosen: Sequence[Bits] = ()
    for axis in axes:
        found: list[Bits] = []
        for place in axis:
            held = place & left
            if held == left:
                break
            if found and held & found[-1] == held:
                continue
            while found and held & found[-1] == found[-1]:
                found.pop()
            found.append(held)
        else:
            separating.append(axis)
            if best is None or len(found) < len(best):
                best, chosen = found, axis
    return list(dict.fromkeys(best or ())), [axis for axis in separating if axis is not chosen]
