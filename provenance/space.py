"""The public domain as axes of whole numbers, on which rectangles can be put together and taken apart.

    Steps    ordered, with a step: whole numbers, decimals on a lattice, days. An extent is a range of codes
    Listed   a list of members: an extent is a set of them, the bits of a number
    Opaque   no domain is declared: extents are equal or they are not

An attribute that is not restricted holds more than all its codes if NULL or values beyond the bounds can occur
(``rest``): on steps that is one code below the first. What has no form as a region (all below 5 and NULL) is no answer,
but may be a piece of one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

from provenance.extent import Extent, Interval, Members, Value
from provenance.region import Region

MOST_MEMBERS = 62
"""Sets are bits of one machine word."""

Span: TypeAlias = "tuple[int, int]"
"""From code to code on steps; a set of bits and 0 on a list; a number and 0 where nothing is known."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The values low, low + step, ..., ``size`` of them."""

    name: str
    low: int | Decimal | date
    size: int
    step: int | Decimal = 1  # in days for dates
    rest: bool = False

    @property
    def whole(self) -> Span:
        return -1 if self.rest else 0, self.size - 1

    def value(self, code: int) -> Value:
        if isinstance(self.low, date):
            return self.low + timedelta(days=code * int(self.step))
        return self.low + code * self.step

    def span(self, extent: Extent | None) -> Span | None:
        """The codes of an extent; None if they are no range."""
        match extent:
            case None:
                return self.whole
            case Interval():
                first = 0 if extent.low is None else self._code(extent.low, extent.low_closed, +1)
                last = self.size - 1 if extent.high is None else self._code(extent.high, extent.high_closed, -1)
                if first is None or last is None:
                    return None
                return max(first, 0), min(last, self.size - 1)
            case Members(values):
                codes = sorted({code for value in values for code in self._codes(value)})
                if None in values or not codes or codes[-1] - codes[0] >= len(codes):
                    return None
                return codes[0], codes[-1]

    def extent(self, span: Span) -> Extent | None:
        """The extent of codes; everything is None."""
        if span == self.whole:
            return None
        if span[0] < 0:
            raise ValueError("what lies beyond the codes has no extent of its own")
        return Interval(self.value(span[0]), self.value(span[1]))

    def _codes(self, value: Value) -> range:
        """The code of a value, if it has one; looked for at its place, since an axis may be as long as a type is."""
        first, last = self._code(value, True, +1), self._code(value, True, -1)
        return range(0) if first is None or last is None else range(max(first, 0), min(last, self.size - 1) + 1)

    def _code(self, end: Value, closed: bool, inwards: int) -> int | None:
        """The outermost code that is inside."""
        if isinstance(self.low, date):
            if not isinstance(end, date) or type(end) is not type(self.low):
                return None
            place = Fraction((end - self.low).days, int(self.step))
        elif isinstance(end, int | Decimal) and not isinstance(end, bool):
            place = (Fraction(end) - Fraction(self.low)) / Fraction(self.step)
        else:
            return None
        code = math.ceil(place) if inwards > 0 else math.floor(place)
        return code if closed or code != place else code + inwards

    def error(self, one: Span, other: Span) -> Fraction:
        """How far the edges lie apart, in shares of the domain (seed 4, Eq. 13)."""
        return Fraction(abs(one[0] - other[0]) + abs(one[1] - other[1]), max(1, self.size - 1))


@dataclass(frozen=True, slots=True)
class Listed:
    """Members in any order, NULL perhaps among them."""

    name: str
    members: tuple[Value, ...]
    rest: bool = False

    def __post_init__(self) -> None:
        if not 0 < len(self.members) <= MOST_MEMBERS or len(set(self.members)) != len(self.members):
            raise ValueError(f"a list has 1 to {MOST_MEMBERS} different members")

    @property
    def whole(self) -> Span:
        return (1 << len(self.members) + self.rest) - 1, 0

    def span(self, extent: Extent | None) -> Span | None:
        if extent is None:
            return self.whole
        return sum(1 << place for place, member in enumerate(self.members) if member in extent), 0

    def extent(self, span: Span) -> Extent | None:
        if span == self.whole:
            return None
        if span[0] >> len(self.members):
            raise ValueError("what lies beyond the members has no extent of its own")
        return Members(frozenset(member for place, member in enumerate(self.members) if span[0] >> place & 1))

    def error(self, one: Span, other: Span) -> Fraction:
        """The members that are in one and not in the other, in shares of the list."""
        return Fraction((one[0] ^ other[0]).bit_count(), len(self.members) + self.rest)


@dataclass(frozen=True, slots=True)
class Opaque:
    """An attribute without a declared domain; everything is 0, and each extent that is met gets a number."""

    name: str
    rest: bool = True
    _known: dict[str, int] = field(default_factory=dict, repr=False, compare=False)
    _extents: list[Extent] = field(default_factory=list, repr=False, compare=False)

    @property
    def whole(self) -> Span:
        return 0, 0

    def span(self, extent: Extent | None) -> Span | None:
        if extent is None:
            return self.whole
        number = self._known.setdefault(Region.of({self.name: extent}).text, len(self._known) + 1)
        if number > len(self._extents):
            self._extents.append(extent)
        return number, 0

    def extent(self, span: Span) -> Extent | None:
        return None if span == self.whole else self._extents[span[0] - 1]

    def error(self, one: Span, other: Span) -> Fraction:
        return Fraction(2 * (one != other))


Axis: TypeAlias = "Steps | Listed | Opaque"
Box: TypeAlias = "tuple[Span, ...]"


@dataclass(frozen=True, slots=True)
class Space:
    """The axes of a relation, each with the weight that its edges have in the relaxation error."""

    axes: tuple[Axis, ...]
    weights: Mapping[str, int] = field(default_factory=dict)

    def box(self, region: Region) -> Box | None:
        """The codes of a region; None if it restricts what is no axis, holds nothing, or is not made of ranges."""
        if any(name not in self.names for name, _ in region.sides):
            return None
        spans = [axis.span(region.on(axis.name)) for axis in self.axes]
        found = [span for span in spans if span is not None]
        if len(found) < len(spans) or any(_nothing(axis, s) for axis, s in zip(self.axes, found, strict=True)):
            return None
        return tuple(found)

    @property
    def names(self) -> Sequence[str]:
        return [axis.name for axis in self.axes]

    def region(self, box: Box) -> Region | None:
        """The region of a box; None if it has no form."""
        sides: list[tuple[str, Extent]] = []
        for axis, span in zip(self.axes, box, strict=True):
            try:
                extent = axis.extent(span)
            except ValueError:
                return None
            if extent is not None:
                sides.append((axis.name, extent))
        return Region(tuple(sides))

    def formed(self, box: Box) -> bool:
        """Whether a box has the form of a region."""
        return all(
            span == axis.whole or not (span[0] < 0 if isinstance(axis, Steps) else span[0] >> len(axis.members))
            for axis, span in zip(self.axes, box, strict=True)
            if axis.rest and not isinstance(axis, Opaque)
        )

    def weight(self, axis: Axis) -> int:
        return self.weights.get(axis.name, 1)

    def error(self, one: Box, other: Box) -> Fraction:
        """The relaxation error (seed 4, Eq. 13): 0 for the same box, at most 2 with equal weights."""
        apart = (
            self.weight(axis) * axis.error(a, b) for axis, a, b in zip(self.axes, one, other, strict=True) if a != b
        )
        return sum(apart, Fraction(0)) / len(self.axes)


def _nothing(axis: Axis, span: Span) -> bool:
    match axis:
        case Steps():
            return span[0] > span[1]
        case Listed():
            return not span[0]
        case Opaque():
            return False
