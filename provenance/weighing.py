"""The total weight of a set of regions, in whole numbers: exact, and quick for sets of thousands.

A set is the bits of an integer. Weights are kept by their distinct values and by their binary digits; a total is one
population count for each, whichever are fewer.
"""

from __future__ import annotations

from provenance.touching import Bits, numbers


class Weights:
    """The weight of each region, and totals of sets."""

    __slots__ = ("_by_digit", "_by_weight", "each")

    def __init__(self) -> None:
        self.each: list[int] = []
        self._by_weight: dict[int, Bits] = {}
        self._by_digit: list[Bits] = []

    def append(self, weight: int) -> None:
        """The weight of the next region."""
        self.each.append(0)
        self.change(len(self.each) - 1, weight)

    def change(self, number: int, weight: int) -> None:
        """Another weight for a region."""
        bit, before = 1 << number, self.each[number]
        if before:
            rest = self._by_weight[before] ^ bit
            if rest:
                self._by_weight[before] = rest
            else:
                del self._by_weight[before]
        if weight:
            self._by_weight[weight] = self._by_weight.get(weight, 0) | bit
        changed, digit = before ^ weight, 0
        while changed >> digit:
            if changed >> digit & 1:
                self._by_digit += [0] * (digit + 1 - len(self._by_digit))
                self._by_digit[digit] ^= bit
            digit += 1
        self.each[number] = weight

    def total(self, bits: Bits) -> int:
        """The sum over a set."""
        if len(self._by_weight) <= len(self._by_digit):
            return sum(weight * (bits & held).bit_count() for weight, held in self._by_weight.items())
        return sum((bits & held).bit_count() << digit for digit, held in enumerate(self._by_digit))

    def heaviest_first(self, bits: Bits) -> list[int]:
        """The members of a set by falling weight, then by number."""
        found: list[int] = []
        for weight in sorted(self._by_weight, reverse=True):
            found += numbers(self._by_weight[weight] & bits)
        return found
