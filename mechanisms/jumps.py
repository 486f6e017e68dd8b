"""The jumps of Laplace paths: in which cell, between which levels, and how far.

*Guarantee*: each decision "is there a jump" and each size is within total variation 2**-200 of its exact law. No float
takes part. Neither does any data: what the sampler does depends on its random bytes only.

*Is there a jump?* q (see ``path``) is computed from exp_down in 384 bits. An exponential is off by less than 2 units;
1 - y2 and y1 - y2 are at least 2**-24, so each factor is off by at most 2**-358 of itself, q by less than 2**-350, and
its 320 leading bits by 2**-320 more. A uniform 320-bit number is compared with it: the first byte decides but for one
time in 256, then 8 bytes, then all.

*How far?* G = floor(E / rate) is geometric with ratio exp(-rate) if E is exponential, whatever the rate: so one
exponential, in binary, serves all levels. Its integer part and its digits to base 256 are independent, geometric with
ratio exp(-1) and truncated geometric with ratios exp(-256**-i): tables as in ``sampler``, within 2**-219 each. Four
digits leave open a number E in [K, K+1) 2**-32; where that does not settle floor(E / rate), further digits are drawn,
until 320 bits (never reached: the probability is below 2**-290). At most 41 tables take part: 41 * 2**-219 < 2**-213.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mechanisms.fixed import BITS, ONE, exp_down
from mechanisms.ladder import RATE_BITS, RATES, rate
from mechanisms.noise import geometric_masses
from mechanisms.sampler import Source, Table

_BLOCK = 1 << 22  # decisions that are drawn at once: 4 MB
_DIGITS = 4  # of an exponential, to base 256, that are always drawn
_MOST_DIGITS = 40
_UNDECIDED = 1 << 25


@dataclass(frozen=True, slots=True, eq=False)
class Jumps:
    """The jumps of some levels, in ascending order of level; a jump of level l leads from l to the coarser l - 1."""

    first: int  # the level of the first slice
    starts: NDArray[np.int64]  # where the jumps of each level start; one more at the end
    cell: NDArray[np.int32]
    size: NDArray[np.int32]

    def between(self, coarse: int, fine: int) -> tuple[NDArray[np.int16], NDArray[np.int32], NDArray[np.int32]]:
        """Level, cell and size of the jumps that lead from ``fine`` to ``coarse``."""
        levels = len(self.starts) - 1
        low, high = (min(max(level + 1 - self.first, 0), levels) for level in (coarse, fine))
        start, end = int(self.starts[low]), int(self.starts[max(low, high)])
        each = np.diff(self.starts[low : max(low, high) + 1])
        of = np.repeat(np.arange(self.first + low, self.first + max(low, high), dtype=np.int16), each)
        return of, self.cell[start:end], self.size[start:end]


def draw_jumps(cells: int, fine: int, coarse: int, source: Source) -> Iterator[Jumps]:
    """The jumps that lead from one level up to a coarser one, in blocks, the finest first."""
    step = max(1, _BLOCK // max(1, cells))
    for last in range(fine, coarse, -step):
        yield _block(cells, max(coarse, last - step) + 1, last, source)


def _block(cells: int, first: int, last: int, source: Source) -> Jumps:
    levels = last - first + 1
    bytes_, words, exact = _thresholds()
    drawn = np.frombuffer(source(levels * cells), dtype=np.uint8).reshape(levels, cells)
    places = np.flatnonzero(drawn <= bytes_[first : last + 1, None])
    level = places // cells + first
    ties = np.flatnonzero(drawn.reshape(-1)[places] == bytes_[level])
    below = np.frombuffer(source(8 * len(ties)), dtype=">u8").astype(np.uint64)
    there = np.ones(len(places), dtype=np.bool_)
    there[ties] = below < words[level[ties]]
    for tie in np.flatnonzero(below == words[level[ties]]):
        there[ties[tie]] = source(31) < exact[level[ties[tie]]][9:]
    places, level = places[there], level[there]
    starts = np.searchsorted(level, np.arange(first, last + 2)).astype(np.int64)
    size = _geometric(level - 1, source) + 1
    negative = np.unpackbits(np.frombuffer(source((len(size) + 7) // 8), dtype=np.uint8), count=len(size))
    size = np.where(negative, -size, size)
    return Jumps(first, starts, (places % cells).astype(np.int32), size.astype(np.int32))


@cache
def _thresholds() -> tuple[NDArray[np.uint8], NDArray[np.uint64], list[bytes]]:
    """The probability of a jump at each level as a 320-bit number: its first byte, the next 8 bytes, and all 40."""
    powers = [exp_down(rate(level)) for level in range(len(RATES))]
    exact = [bytes(40)]  # no jump leads beyond level 0
    for y1, y2 in pairwise(powers):
        above = 2 * (y1 - y2) * ((ONE << BITS) - y1 * y2)
        below = (ONE + y1) * (ONE - y2) ** 2
        exact.append(((above << 320) // below).to_bytes(40, "big"))
    first = np.array([number[0] for number in exact], dtype=np.uint8)
    words = np.array([int.from_bytes(number[1:9], "big") for number in exact], dtype=np.uint64)
    return first, words, exact


def _geometric(level: NDArray[np.int64], source: Source) -> NDArray[np.int64]:
    """For each entry a geometric number with the ratio exp(-rate) of that level."""
    known = _exponentials(len(level), source)
    factor, scale = (column[level] for column in _factors())
    # known * factor / 2**16 from below: off by less than 2**24 (the factor's rounding) + 2**23 (digits to come) + 1.
    product = (known >> np.uint64(16)) * factor + ((known & np.uint64(0xFFFF)) * factor >> np.uint64(16))
    told = product >> scale
    for open_ in np.flatnonzero(told != product + np.uint64(_UNDECIDED) >> scale):
        told[open_] = _settle(int(known[open_]), RATES[level[open_]], source)
    return told.astype(np.int64)


@cache
def _factors() -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """The width of each level as a number of 39 bits, and by how many bits a product with it is to be shifted."""
    factors, shifts = [], []
    for number in RATES:
        places = number.bit_length() - RATE_BITS + 38  # then the quotient lies above 2**38, and at most at 2**39
        factors.append((1 << RATE_BITS + places) // number)
        shifts.append(places + 8 * _DIGITS - 16)
    return np.array(factors, dtype=np.uint64), np.array(shifts, dtype=np.uint64)


def _settle(known: int, number: int, source: Source) -> int:
    """floor(E / rate), with as many further digits of E as that takes."""
    digits = _DIGITS
    while True:
        shift = 8 * digits
        low = (known << RATE_BITS) // (number << shift)
        high = (((known + 1) << RATE_BITS) - 1) // (number << shift)
        if low == high or digits == _MOST_DIGITS:
            return low
        digits += 1
        known = known << 8 | int(_digit(digits).table.draw(1, source)[0])


@dataclass(frozen=True, slots=True, eq=False)
class _Quick:
    """A small table, and for all 16-bit beginnings of a number its cell, or -1 where more bits decide."""

    table: Table
    cell: NDArray[np.int16]

    @classmethod
    def of(cls, table: Table) -> _Quick:
        starts = np.arange(1 << 16, dtype=np.uint64) << np.uint64(48)
        # Boundaries are 320-bit numbers: one whose first 64 bits end a stretch may lie inside it, so it leaves it open.
        low = np.searchsorted(table.first, starts, side="left")
        high = np.searchsorted(table.first, starts + np.uint64((1 << 48) - 1), side="right")
        return cls(table, np.where(low == high, high - 1, -1).astype(np.int16))

    def draw(self, bits: NDArray[np.uint16], source: Source) -> NDArray[np.int16]:
        """The cells of uniform numbers of which the first 16 bits are known."""
        cells = self.cell[bits]
        open_ = np.flatnonzero(cells < 0)
        more = np.zeros((len(open_), 8), dtype=np.uint8)
        more[:, 2:] = np.frombuffer(source(6 * len(open_)), dtype=np.uint8).reshape(-1, 6)
        words = more.view(">u8").reshape(-1).astype(np.uint64) | bits[open_].astype(np.uint64) << np.uint64(48)
        cells[open_] = self.table.cells_of(words, source)
        return cells


@cache
def _digit(place: int) -> _Quick:
    """The integer part of an exponential (place 0), or its digit of worth 256**-place."""
    worth = Fraction(1, 256**place)
    return _Quick.of(Table.of(geometric_masses(worth, limit=256 if place else None)))


def _exponentials(n: int, source: Source) -> NDArray[np.uint64]:
    """floor(E 2**32) for n independent exponentials: numbers below 2**40."""
    bits = np.frombuffer(source(2 * n * (_DIGITS + 1)), dtype=np.uint16).reshape(_DIGITS + 1, n)
    known = np.zeros(n, dtype=np.uint64)
    for place in range(_DIGITS + 1):
        known = known << np.uint64(8) | _digit(place).draw(bits[place], source).astype(np.uint64)
    return known
