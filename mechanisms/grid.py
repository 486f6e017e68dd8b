"""A coarser lattice for wide sums: noise on it needs small tables, and what one unit moves stays exact.

With a sensitivity D and m parts the lattice number x is the grid number floor(x m / D). One privacy unit moves x by at
most D, hence x m / D by at most m and its floor by at most m: a price computed from m parts has no rounding in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mechanisms.values import Lattice

_FAR = 2**63 - 1
_ROOM = 2**60  # products below this leave 64 bits room for sums


@dataclass(frozen=True, slots=True)
class Grid:
    """The lattice cut into cells of ``sensitivity / parts`` lattice units; as many parts as units is the lattice."""

    sensitivity: int
    parts: int

    def __post_init__(self) -> None:
        if not 1 <= self.parts <= self.sensitivity:
            raise ValueError("a grid has at least one part, and no more than the sensitivity has lattice units")

    @property
    def own(self) -> bool:
        """Whether it is the lattice itself."""
        return self.parts == self.sensitivity

    def numbers(self, values: Lattice) -> Lattice:
        """The grid number of each lattice number within 2**62.

        *Guarantee*: two lattice numbers that are at most the sensitivity apart get numbers at most ``parts`` apart.
        """
        if self.own:
            return values
        roomy = self._roomy(values)
        whole = roomy // self.sensitivity
        rest = roomy - whole * self.sensitivity
        numbers: Lattice = (whole * self.parts + rest * self.parts // self.sensitivity).astype(np.int64)
        return numbers

    def lattice(self, numbers: Lattice) -> Lattice:
        """The lattice number in the middle of each grid number's cell; beyond 64 bits the last that there is."""
        if self.own:
            return numbers
        roomy = self._roomy(numbers)
        first = self._first(roomy)
        middle = first + (self._first(roomy + 1) - 1 - first) // 2
        return np.clip(middle, -_FAR, _FAR).astype(np.int64)

    def half_width(self, numbers: int) -> int:
        """How far a lattice number lies from the middle of a cell that is at most so many cells away from its own.

        The cell y has its first lattice number below y D/m + 1 and its last below (y + 1) D/m, so its middle lies
        between (y + 1/2) D/m - 1 and (y + 1/2) D/m + 1/2; the distance is below (numbers + 1/2) D/m + 1, and whole.
        """
        if self.own:
            return numbers
        return -((-(2 * numbers + 1) * self.sensitivity) // (2 * self.parts))

    def _first(self, numbers: Lattice) -> Lattice:
        """The first lattice number of each cell: y D / m, rounded up."""
        whole = numbers // self.parts
        rest = numbers - whole * self.parts
        first: Lattice = whole * self.sensitivity - (-rest * self.sensitivity) // self.parts
        return first

    def _roomy(self, values: Lattice) -> Lattice:
        """In whole numbers of any size where a product or a far draw may leave 64 bits."""
        products = self.sensitivity * self.parts
        # A draw is less than 2**19 cells.
        narrow = products < _ROOM and self.sensitivity // self.parts < _ROOM >> 19
        return values if narrow else values.astype(object)
