"""What was released already, as boxes in arrays: which answers lie near a region, and which patch a rectangle.

Two boxes make a rectangle, or leave one, only if they are equal on all axes but one, and there lie side by side (their
union), or one in the other at an edge (their difference). So answers are kept by what they are on all axes but one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from provenance.region import Region
from provenance.space import Box, Listed, Opaque, Space, Steps

Codes = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Fit(Enum):
    """How an answer patches a rectangle."""

    JOINED = "added to it"
    REMOVED = "taken from it"
    AROUND = "it is taken from the answer"


@dataclass(frozen=True, slots=True)
class Patches:
    """Answers that patch a rectangle on one axis: their numbers, and the spans that come out there."""

    fit: Fit
    axis: int
    numbers: Codes
    low: Codes
    high: Codes


class Released:
    """Answers to one measure: the box of each, its value and its variance."""

    __slots__ = ("_alike", "_high", "_low", "_sd", "boxes", "space", "values", "variances")

    def __init__(self, space: Space) -> None:
        self.space = space
        self.boxes: list[Box] = []
        self.values: list[Fraction] = []
        self.variances: list[Fraction] = []
        self._low = np.empty((len(space.axes), 64), np.int64)
        self._high = np.empty((len(space.axes), 64), np.int64)
        self._sd = np.empty(64)
        self._alike: dict[tuple[int, Box], list[int]] = {}  # by an axis, and the spans on all others

    def __len__(self) -> int:
        return len(self.boxes)

    def add(self, region: Region, value: Fraction | int, variance: Fraction | int) -> int | None:
        """Keep an answer, and tell its number; None if its region is not made of ranges."""
        box = self.space.box(region)
        if box is None:
            return None
        number = len(self.boxes)
        if number == len(self._sd):
            self._low, self._high = (np.concatenate([a, np.empty_like(a)], axis=1) for a in (self._low, self._high))
            self._sd = np.concatenate([self._sd, np.empty_like(self._sd)])
        for axis, span in enumerate(box):
            self._low[axis, number], self._high[axis, number] = span
            self._alike.setdefault((axis, (*box[:axis], *box[axis + 1 :])), []).append(number)
        self._sd[number] = float(variance) ** 0.5
        self.boxes.append(box)
        self.values.append(Fraction(value))
        self.variances.append(Fraction(variance))
        return number

    def errors(self, asked: Box) -> NDArray[np.float64]:
        """The relaxation error of each answer."""
        total = np.zeros(len(self))
        for axis in range(len(asked)):
            low, high = self._spans(axis)
            total += self.apart(axis, low, high, asked)
        return total

    def apart(self, axis: int, low: Codes, high: Codes, asked: Box) -> NDArray[np.float64]:
        """What spans on one axis add to the relaxation error."""
        kind = self.space.axes[axis]
        share = self.space.weight(kind) / len(self.space.axes)
        match kind:
            case Steps():
                away = np.abs(low - asked[axis][0]) + np.abs(high - asked[axis][1])
                return np.asarray(away * (share / max(1, kind.size - 1)))
            case Listed():
                unlike = np.bitwise_count(low ^ asked[axis][0])
                return np.asarray(unlike * (share / (len(kind.members) + kind.rest)))
            case Opaque():
                return np.asarray((low != asked[axis][0]) * (2 * share))

    def nearest(self, errors: NDArray[np.float64], most: int) -> list[int]:
        """The answers with the smallest error, of equal ones the most precise, then the oldest."""
        if most == 1:
            best = np.flatnonzero(errors <= errors.min())
            return [int(best[self._sd[best].argmin()])]
        some = np.argpartition(errors, most)[: 4 * most] if len(errors) > 4 * most else np.arange(len(errors))
        order = np.lexsort((some, self._sd[some], errors[some]))[:most]
        return [int(number) for number in some[order]]

    def patches(self, box: Box) -> list[Patches]:
        """Every answer that makes a rectangle together with this one."""
        found: list[Patches] = []
        for axis, span in enumerate(box):
            alike = self._alike.get((axis, (*box[:axis], *box[axis + 1 :])), ())
            numbers = [number for number in alike if self.boxes[number][axis] != span]
            if numbers:
                found += self._on(axis, span, np.array(numbers, np.int64))
        return found

    def _on(self, axis: int, span: tuple[int, int], rows: Codes) -> Sequence[Patches]:
        low, high = self._low[axis, rows], self._high[axis, rows]
        first, last = span
        kind = self.space.axes[axis]
        cases: list[tuple[Fit, Flags, Codes, Codes]] = []
        match kind:
            case Steps():
                beside = (low == last + 1) | (high == first - 1)
                inside = (low >= first) & (high <= last) & ((low == first) | (high == last))
                around = (low <= first) & (high >= last) & ((low == first) | (high == last))
                at_first, at_last = low == first, high == last
                cases = [
                    (Fit.JOINED, beside, np.minimum(low, first), np.maximum(high, last)),
                    (Fit.REMOVED, inside, np.where(at_first, high + 1, first), np.where(at_first, last, low - 1)),
                    (Fit.AROUND, around, np.where(at_last, low, last + 1), np.where(at_last, first - 1, high)),
                ]
            case Listed():
                none = np.zeros_like(low)
                cases = [
                    (Fit.JOINED, low & first == 0, low | first, none),
                    (Fit.REMOVED, low & first == low, first & ~low, none),
                    (Fit.AROUND, low & first == first, low & ~first, none),
                ]
            case Opaque():
                pass
        return [Patches(fit, axis, rows[hit], a[hit], b[hit]) for fit, hit, a, b in cases if hit.any()]

    def _spans(self, axis: int) -> tuple[Codes, Codes]:
        return self._low[axis, : len(self)], self._high[axis, : len(self)]
