"""A histogram of the data space whose buckets count what touches them: Process and Split of seed 4, with real weights.

Each bucket is a box, and its counter the total weight of the boxes that intersect it, so no point inside bears more.
``process`` takes a box if every bucket that it touches has room under the limit; a bucket without room for another of
the kind is split (Figure 4 of the paper): if what partly covers it has a common part, that part becomes a bucket of its
own, else it is cut where the two counters are smallest. Pieces that are still full are split again, which the paper
leaves open. Boxes are whole numbers, both ends included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """Boxes by row: the lowest and the highest code on each axis."""

    low: Codes
    high: Codes

    def __len__(self) -> int:
        return len(self.low)

    def touching(self, low: Codes, high: Codes) -> NDArray[np.bool_]:
        """Which of them intersect a box."""
        hit = np.ones(len(self.low), np.bool_)
        for axis in range(len(low)):
            hit &= self.low[:, axis] <= high[axis]
            hit &= self.high[:, axis] >= low[axis]
        return hit

    def some(self, which: NDArray[np.bool_] | NDArray[np.int64]) -> Boxes:
        return Boxes(self.low[which], self.high[which])


class _Rows:
    """Boxes with a whole number each, in arrays that grow."""

    __slots__ = ("_amounts", "_high", "_low", "used")

    def __init__(self, axes: int) -> None:
        self._low = np.empty((64, axes), np.int64, order="F")
        self._high = np.empty((64, axes), np.int64, order="F")
        self._amounts = np.empty(64, np.int64)
        self.used = 0

    @property
    def boxes(self) -> Boxes:
        return Boxes(self._low[: self.used], self._high[: self.used])

    @property
    def amounts(self) -> NDArray[np.int64]:
        return self._amounts[: self.used]

    def append(self, low: Codes, high: Codes, amount: int) -> None:
        if self.used == len(self._low):
            self._low, self._high = (
                np.asfortranarray(np.concatenate([old, np.empty_like(old)])) for old in (self._low, self._high)
            )
            self._amounts = np.concatenate([self._amounts, np.empty_like(self._amounts)])
        self.used += 1
        self.replace(self.used - 1, low, high, amount)

    def replace(self, row: int, low: Codes, high: Codes, amount: int) -> None:
        self._low[row], self._high[row], self._amounts[row] = low, high, amount


class Buckets:
    """The histogram: at most ``most`` buckets, which cover the space from ``low`` to ``high``."""

    __slots__ = ("_buckets", "_most", "_taken")

    def __init__(self, low: Sequence[int], high: Sequence[int], most: int) -> None:
        self._most = most
        self._taken = _Rows(len(low))
        self._buckets = _Rows(len(low))
        self._buckets.append(np.array(low, np.int64), np.array(high, np.int64), 0)

    def __len__(self) -> int:
        return self._buckets.used

    @property
    def bound(self) -> int:
        """No point bears more."""
        return int(self._buckets.amounts.max())

    def room(self, low: Codes, high: Codes, limit: int) -> int:
        """What can still be charged to this box, as far as the buckets know."""
        hit = self._buckets.boxes.touching(low, high)
        return limit - int(self._buckets.amounts[hit].max(initial=0))

    def process(self, low: Codes, high: Codes, weight: int, limit: int) -> bool:
        """Charge a box if the limit allows, and split what is full then.

        *Guarantee*: after each call no point of the space bears more than the limit.
        """
        hit = np.flatnonzero(self._buckets.boxes.touching(low, high))
        amounts = self._buckets.amounts
        if amounts[hit].max(initial=0) + weight > limit:
            return False
        amounts[hit] += weight
        self._taken.append(low, high, weight)
        full = hit[amounts[hit] + weight > limit].tolist()
        while full and len(self) < self._most:
            pieces = self.split(full.pop())
            full += [row for row in pieces if self._buckets.amounts[row] + weight > limit]
        return True

    def add(self, low: Codes, high: Codes, weight: int) -> None:
        """Charge a box without a limit, and split nothing."""
        self._buckets.amounts[self._buckets.boxes.touching(low, high)] += weight
        self._taken.append(low, high, weight)

    def refine(self, splits: int, floor: int = 0) -> None:
        """Split the fullest bucket so many times, or until it cannot become emptier or no bucket exceeds the floor."""
        for _ in range(splits):
            row = int(self._buckets.amounts.argmax())
            if self._buckets.amounts[row] <= floor or not self.split(row):
                break

    def split(self, row: int) -> list[int]:
        """Cut a bucket into emptier ones, and tell which; none if everything that touches it covers it."""
        low, high = self._buckets.boxes.low[row].copy(), self._buckets.boxes.high[row].copy()
        taken = self._taken.boxes
        inside = np.flatnonzero(taken.touching(low, high))
        boxes, weights = taken.some(inside), self._taken.amounts[inside]
        partly = ((boxes.low > low) | (boxes.high < high)).any(axis=1)
        if not partly.any():
            return []
        clipped = Boxes(np.maximum(boxes.low, low), np.minimum(boxes.high, high))
        some = clipped.some(partly)
        first, last = some.low.max(axis=0), some.high.min(axis=0)
        common = bool((first <= last).all())
        pieces = _around(low, high, first, last) if common else _cut(low, high, some, weights[partly])
        rows = [row]
        for number, (a, b) in enumerate(pieces):
            amount = int(weights[clipped.touching(a, b)].sum())
            if number == 0:
                self._buckets.replace(row, a, b, amount)
            else:
                self._buckets.append(a, b, amount)
                rows.append(self._buckets.used - 1)
        return rows


def _around(low: Codes, high: Codes, first: Codes, last: Codes) -> list[tuple[Codes, Codes]]:
    """The common part, and what is left of the bucket around it, one cut at a time."""
    low, high = low.copy(), high.copy()
    pieces = []
    for axis in range(len(low)):
        if first[axis] > low[axis]:
            end = high.copy()
            end[axis] = first[axis] - 1
            pieces.append((low.copy(), end))
            low[axis] = first[axis]
        if last[axis] < high[axis]:
            start = low.copy()
            start[axis] = last[axis] + 1
            pieces.append((start, high.copy()))
            high[axis] = last[axis]
    return [*pieces, (low, high)]


def _cut(low: Codes, high: Codes, boxes: Boxes, weights: NDArray[np.int64]) -> list[tuple[Codes, Codes]]:
    """The two halves with the smallest sum of counters; if possible, both with less than the whole has.

    A cut that leaves everything on one side has the smallest sum of all, and the bucket is as full as before.
    """
    best: tuple[bool, int, int, int, int] | None = None
    whole = int(weights.sum())
    for axis in range(len(low)):
        starts, ends = boxes.low[:, axis], boxes.high[:, axis]
        places = np.unique(np.concatenate([starts, ends + 1]))
        places = places[(places > low[axis]) & (places <= high[axis])]
        if not len(places):
            continue
        left = _running(starts, weights, places)  # begins below the cut
        right = whole - _running(ends, weights, places)  # ends at or above it
        fuller = np.maximum(left, right)
        order = np.lexsort((fuller, left + right, fuller == whole))[0]
        sums = int(left[order] + right[order]), int(fuller[order])
        found = (sums[1] == whole, *sums, axis, int(places[order]))
        if best is None or found < best:
            best = found
    if best is None:
        raise ValueError("boxes that cover a bucket in part have an edge inside it")
    *_, axis, place = best
    end, start = high.copy(), low.copy()
    end[axis], start[axis] = place - 1, place
    return [(low, end), (start, high)]


def _running(places: Codes, weights: NDArray[np.int64], below: Codes) -> NDArray[np.int64]:
    """The weight of what lies strictly below each cut."""
    order = np.argsort(places, kind="stable")
    sums = np.concatenate([[0], np.cumsum(weights[order])])
    return sums[np.searchsorted(places[order], below, side="left")]
