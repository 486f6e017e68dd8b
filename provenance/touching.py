"""Which regions a region overlaps, all at once: an index that grows and is never rebuilt.

Sets of regions are bits of one integer, the region that came first in the lowest. On each attribute an index knows
which regions hold a value, and between which places each interval lies; regions that do not restrict the attribute
overlap everything there. A region overlaps those that it overlaps on every attribute. Empty regions are not put in.

For the search of the heaviest point it also keeps, on each attribute, what lies on the places where something begins:
of any regions that share a place, some share one of these.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from provenance.extent import Extent, Interval, Kind, Members, Place, Value
from provenance.region import Region

Bits: TypeAlias = int
"""A set of regions, by their numbers."""

_NO_BOUND = 1 << 40
_FIRST_ROOM = 8
_WIDE = 100
_NOTHING: NDArray[np.int64] = np.empty(0, np.int64)


def numbers(bits: Bits) -> Iterator[int]:
    """The members of a set, in order."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


class Index:
    """The regions by attribute; those that restrict very many attributes by themselves.

    Two such regions are told apart by one of the first attributes that are looked at: comparing them is quicker than
    keeping thousands of places for each.
    """

    __slots__ = ("_axes", "_wide", "_wide_ones", "size")

    def __init__(self) -> None:
        self._axes: dict[str, _Axis] = {}
        self._wide: dict[int, Region] = {}
        self._wide_ones: Bits = 0
        self.size = 0

    def touching(self, region: Region) -> Bits:
        """The regions that are not disjoint from this one.

        *Guarantee*: a region that is left out is disjoint from it on some attribute.
        """
        if region.empty:
            return 0
        found = (1 << self.size) - 1 & ~self._wide_ones
        for name, extent in region.sides:
            if not found:
                break
            axis = self._axes.get(name)
            if axis is not None:
                found &= axis.touching(extent, self.size) | ~axis.restricted
        for number, wide in self._wide.items():
            if not wide.disjoint(region):
                found |= 1 << number
        return found

    def places(self, among: Bits, inside: Region, most: int) -> list[list[Bits]] | None:
        """On each attribute that tells some of these regions apart, which of them share a place inside.

        None if more than so many places must be looked at, or a region is too wide. All of them touch the one inside.
        """
        if among & self._wide_ones:
            return None
        axes = [(name, axis) for name, axis in self._axes.items() if axis.restricted & among]
        if sum(axis.stops for _, axis in axes) > most:
            return None
        found = (axis.places(among, inside.on(name)) for name, axis in axes)
        return [axis for axis in found if among not in axis]

    def add(self, region: Region) -> None:
        """One region more, with the next number."""
        number = self.size
        self.size += 1
        if len(region.sides) > _WIDE:
            self._wide[number] = region
            self._wide_ones |= 1 << number
            return
        axes = self._axes
        for name, extent in region.sides:
            axis = axes.get(name)
            if axis is None:
                axis = axes[name] = _Axis()
            axis.add(number, extent)


class _Axis:
    """One attribute: sets by value, intervals by the rank of their ends among all ends."""

    __slots__ = (
        *("_below", "_ends", "_held", "_highs", "_kind", "_lows", "_numbers", "_stops", "_used"),
        *("_by_value", "restricted"),
    )

    def __init__(self) -> None:
        self.restricted: Bits = 0
        self._kind: Kind | None = None
        self._by_value: dict[Value, Bits] = {}
        self._stops: list[Place] = []  # where something begins; kept once there is an interval
        self._held: list[Bits] = []  # what lies there
        self._below: Bits = 0  # what lies below all stops
        self._ends: list[Place] = []
        self._used = 0
        self._numbers = self._lows = self._highs = _NOTHING

    @property
    def stops(self) -> int:
        """How many places there are."""
        return len(self._stops or self._by_value) + 2

    def add(self, number: int, extent: Extent) -> None:
        if self._kind is not extent.kind:
            if self._foreign(extent):
                return  # it stays unrestricted here: it cannot be compared with the others
            self._kind = self._kind or extent.kind
        bit = 1 << number
        self.restricted |= bit
        match extent:
            case Members(values):
                known = self._by_value
                if self._used:
                    for value in values:
                        if value is not None:
                            self._held[self._stop((value, 0), number)] |= bit
                        known[value] = known.get(value, 0) | bit
                else:
                    for value in values:
                        known[value] = known.get(value, 0) | bit
            case Interval(first=first, last=last):
                if not self._used:
                    self._set_in_order()
                start = 0 if first is None else self._stop(first, number)
                for place in range(start, len(self._stops) if last is None else bisect_right(self._stops, last)):
                    self._held[place] |= bit
                if first is None:
                    self._below |= bit
                self._remember(number, first, last)

    def _set_in_order(self) -> None:
        """As long as there are only sets, values have no order; the first interval needs one."""
        values: list[Any] = [value for value in self._by_value if value is not None]
        values.sort()
        self._stops = [(value, 0) for value in values]
        self._held = [self._by_value[value] for value in values]

    def places(self, among: Bits, inside: Extent | None) -> list[Bits]:
        """What shares a place inside; a set that lies in a neighbour is left out."""
        free = among & ~self.restricted
        null = self._by_value.get(None, 0)
        sets: Iterable[Bits]
        match inside:
            case Interval(first=first, last=last) if not self._foreign(inside):
                if not self._used:
                    sets = (held for value, held in self._by_value.items() if value in inside)
                else:
                    start = 0 if first is None else bisect_left(self._stops, first)
                    end = len(self._stops) if last is None else bisect_right(self._stops, last)
                    sets = (self._below if first is None else self._at(first), *self._held[start:end])
            case Members(values) if not self._foreign(inside):
                sets = (null if value is None else self._at((value, 0)) for value in values)
            case _:
                sets = (self._below, *self._held, null) if self._used else self._by_value.values()
        found: list[Bits] = []
        for each in sets:
            held = each & among | free
            if found and held & found[-1] == held:
                continue
            if found and held & found[-1] == found[-1]:
                found[-1] = held
            else:
                found.append(held)
        return list(dict.fromkeys(found)) or [free]

    def touching(self, extent: Extent, size: int) -> Bits:
        """Regions with an extent here that overlaps this one."""
        if self._foreign(extent):
            return self.restricted
        match extent:
            case Members(values):
                known = self._by_value
                found = 0
                for value in values:
                    found |= known.get(value, 0)
                    if self._used and value is not None:
                        found |= self._covering((value, 0), size)
                return found
            case Interval(first=first, last=last):
                low = -1 if first is None else bisect_left(self._ends, first)
                high = _NO_BOUND if last is None else bisect_right(self._ends, last) - 1
                # Intervals that begin at or below our end and end at or above our beginning.
                return self._between(high, low, size) | self._holding(extent)
        raise TypeError(f"{extent!r} is no extent")

    def _foreign(self, extent: Extent) -> bool:
        return self._kind is not None and extent.kind is not None and extent.kind is not self._kind

    def _at(self, place: Place) -> Bits:
        """What lies on a place."""
        if not self._used:
            return self._by_value.get(place[0], 0) if place[1] == 0 else 0
        stop = bisect_left(self._stops, place)
        if stop < len(self._stops) and self._stops[stop] == place:
            return self._held[stop]
        return self._covering(place, self.restricted.bit_length())

    def _stop(self, place: Place, size: int) -> int:
        """The number of a stop, which is made if there was none."""
        stop = bisect_left(self._stops, place)
        if stop == len(self._stops) or self._stops[stop] != place:
            self._stops.insert(stop, place)
            self._held.insert(stop, self._covering(place, size))
        return stop

    def _covering(self, place: Place, size: int) -> Bits:
        """The intervals that hold a place."""
        left = bisect_left(self._ends, place)
        at = left < len(self._ends) and self._ends[left] == place
        return self._between(left if at else left - 1, left, size)

    def _remember(self, number: int, first: Place | None, last: Place | None) -> None:
        low = -1 if first is None else self._rank(first)
        high = _NO_BOUND if last is None else self._rank(last)
        if first is not None and last is not None:
            low = bisect_left(self._ends, first)  # the second end may have moved the first
        if self._used == len(self._numbers):
            self._grow()
        self._numbers[self._used], self._lows[self._used], self._highs[self._used] = number, low, high
        self._used += 1

    def _between(self, most_low: int, least_high: int, size: int) -> Bits:
        if not self._used:
            return 0
        hit = (self._lows[: self._used] <= most_low) & (self._highs[: self._used] >= least_high)
        flags = np.zeros(size, np.bool_)
        flags[self._numbers[: self._used][hit]] = True
        return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")

    def _holding(self, interval: Interval) -> Bits:
        """Sets with a value in the interval."""
        found = 0
        for value, held in self._by_value.items():
            if value in interval:
                found |= held
        return found

    def _rank(self, end: Place) -> int:
        """The rank of an end, which is made a place if it was none."""
        rank = bisect_left(self._ends, end)
        if rank == len(self._ends) or self._ends[rank] != end:
            self._ends.insert(rank, end)
            for ranks in (self._lows, self._highs):
                ranks[: self._used] += ranks[: self._used] >= rank
        return rank

    def _grow(self) -> None:
        room = max(_FIRST_ROOM, 2 * len(self._numbers))
        for name in ("_numbers", "_lows", "_highs"):
            fresh = np.empty(room, np.int64)
            fresh[: self._used] = getattr(self, name)[: self._used]
            setattr(self, name, fresh)
