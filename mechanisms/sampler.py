"""Exact discrete noise from a source of random bytes: integer tables, 64 bits and a binary search per draw.

*Guarantee*: the law of each draw is within total variation 2**-200 of the exact law (in fact 2**-209), so n draws
together add at most n * 2**-199 to any delta. No float and no numpy generator takes part.

*Construction.* A law is one table or a few independent ones; a table is a list of cells with integer masses.

- Gaussian: the magnitude |X| is one table (masses 1, 2g(1), 2g(2), ...) and the sign one bit. Noise wider than 64
  units is X + k Y with independent X, Y of such tables, sigma_X^2 = 8 k^2 and sigma_X^2 + k^2 sigma_Y^2 = sigma^2.
- Laplace: with y = exp(-rate), X is 0, +(1+G) or -(1+G) with masses 1-y, y, y, where G is geometric with ratio y. In
  base B = 4096 the digits of G are independent: y^g is the product over the digits d_i of (y^(B^i))^d_i. So however
  flat the noise, G is a few tables of 4096 cells, and one of rate at least 1/32 for the leading digit.

*Proof of the bound.* A table has N <= 2**19 cells. Let m_i be the exact masses (m_0 = 1 or the masses sum to more
than 1, so their total M >= 1) and w_i <= m_i the fixed-point ones.
(1) Rounding: by ``noise`` an m_i exceeds w_i by at most 4 (i+1)^2 <= 2**42 units of 2**-384 (the doubled Gaussian).
(2) Cutting: masses from the first below 2**-250 on are dropped. Geometric, rate >= 1/32: they sum to less than
33 * 2**-250. Gaussian, N >= 1: from there on each mass is at most exp(-(2N+1)/(2 sigma2)) times the one before, so
they sum to less than 2**-250 (1 + 2 sigma2/3), and with both signs to less than 2**-221.
(3) Since w <= m pointwise, the normalised laws differ in total variation by at most (M - W)/M <= M - W,
which by (1) and (2) is below 2**19 * 2**-342 + 2**-221 < 2**-220.
(4) Cell boundaries are rounded down to multiples of 2**-320: at most N * 2**-320 <= 2**-301 more.
(5) A draw picks the cell of a uniform 320-bit number exactly: the first 64 bits decide unless they equal the first
64 bits of a boundary, and then the other 256 are drawn and compared too. So (3) and (4) are all, and at most
6 independent tables give 6 * 2**-219 < 2**-216.
(6) Completing the square, P[X + k Y = x] is exp(-x^2 / (2 sigma^2)) times the sum over the integers of a Gaussian bell
of variance t = sigma_X^2 sigma_Y^2 / sigma^2 = 8 (1 - 8 k^2/sigma^2), shifted by some number. By Poisson summation the
sum is sqrt(2 pi t) (1 +- 2.1 exp(-2 pi^2 t)), whatever the shift. Here k^2 <= sigma/2 and sigma > 64, so t >= 7.5, the
sum is constant but for a factor within 2**-211 of 1, and the total variation is below 2**-210 (Peikert 2010, Thm 3.1).

*Work.* Every draw takes the same bytes and the same number of comparisons, whatever its value; a tie (probability
below 2**-44) takes 32 bytes more, and tells only that one happened.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mechanisms.fixed import ONE, exp_down
from mechanisms.noise import DiscreteGaussian, DiscreteLaplace, Noise, gaussian_masses, geometric_masses

Source: TypeAlias = Callable[[int], bytes]
"""n -> n random bytes: ``os.urandom`` in production, a seeded stream in tests."""

DIGIT_BITS = 12
_WIDTH = 40  # bytes of a boundary: 320 bits
_FIRST = 8  # of which these are searched with numpy
_SIGNS = np.array([1, -1, 0], dtype=np.int64)
_FLAT = Fraction(1, 32)  # a geometric law flatter than this is split into digits
_WIDE = Fraction(64**2)  # a Gaussian law wider than this is drawn in two parts


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """The lower boundaries of the cells, as 320-bit big-endian integers, and their first 64 bits."""

    boundaries: bytes
    first: NDArray[np.uint64]

    @classmethod
    def of(cls, masses: list[int]) -> Table:
        """Cells in proportion to these masses, of which the last is not zero; boundaries rounded down."""
        total = sum(masses)
        edges = (edge * 256**_WIDTH // total for edge in accumulate(masses[:-1], initial=0))
        boundaries = b"".join(edge.to_bytes(_WIDTH, "big") for edge in edges)
        words = np.frombuffer(boundaries, dtype=">u8").reshape(len(masses), _WIDTH // 8)
        return cls(boundaries, np.ascontiguousarray(words[:, 0], dtype=np.uint64))

    def draw(self, n: int, source: Source) -> NDArray[np.int64]:
        """n independent cell numbers."""
        return self.cells_of(np.frombuffer(source(_FIRST * n), dtype=">u8").astype(np.uint64), source)

    def cells_of(self, bits: NDArray[np.uint64], source: Source) -> NDArray[np.int64]:
        """The cells of uniform numbers of which the first 64 bits are known; the others are drawn where they decide."""
        cells = np.searchsorted(self.first, bits, side="right").astype(np.int64) - 1
        for tie in np.flatnonzero(self.first[cells] == bits):
            cells[tie] = self._cell_of(int(bits[tie]).to_bytes(_FIRST, "big") + source(_WIDTH - _FIRST))
        return cells

    def _cell_of(self, point: bytes) -> int:
        """The cell of a full 320-bit number: big-endian bytes compare as the integers do."""
        return bisect_right(range(len(self.first)), point, key=self._boundary) - 1

    def _boundary(self, cell: int) -> bytes:
        return self.boundaries[_WIDTH * cell : _WIDTH * (cell + 1)]


@dataclass(frozen=True, slots=True, eq=False)
class LaplaceTables:
    """The sign (cells +1, -1, 0), and the digits of the magnitude less one, lowest first."""

    sign: Table
    digits: tuple[Table, ...]


def draw(noise: Noise, n: int, source: Source) -> NDArray[np.int64]:
    """n independent draws.

    *Guarantee*: within total variation 2**-200 of the exact law each; all values lie within 2**50.
    """
    match noise:
        case DiscreteLaplace():
            tables = laplace_tables(noise.rate)
            magnitude = np.ones(n, dtype=np.int64)
            for place, digit in enumerate(tables.digits):
                magnitude += digit.draw(n, source) << (DIGIT_BITS * place)
            return _SIGNS[tables.sign.draw(n, source)] * magnitude
        case DiscreteGaussian() if noise.sigma2 > _WIDE:
            near, k, far = parted(noise)
            return draw(near, n, source) + k * draw(far, n, source)
        case DiscreteGaussian():
            magnitude = gaussian_table(noise.sigma2).draw(n, source)
            packed = np.frombuffer(source((n + 7) // 8), dtype=np.uint8)
            signs = np.unpackbits(packed, count=n).astype(np.int64)
            return magnitude * (1 - 2 * signs)


@lru_cache(maxsize=256)  # at most 0.3 MB each
def laplace_tables(rate: Fraction) -> LaplaceTables:
    """Sign and digits of the law with P[X = x] proportional to exp(-rate |x|)."""
    step = exp_down(rate)
    # exp_down is below the truth by less than 2 units, so the mass of zero is below 1 - y, as the proof needs.
    sign = Table.of([step, step, ONE - step - 2])
    digits = []
    while rate < _FLAT:
        digits.append(Table.of(geometric_masses(rate, limit=1 << DIGIT_BITS)))
        rate *= 1 << DIGIT_BITS
    digits.append(Table.of(geometric_masses(rate)))
    return LaplaceTables(sign, tuple(digits))


@lru_cache(maxsize=1024)  # at most 0.25 MB each
def gaussian_table(sigma2: Fraction) -> Table:
    """The magnitude of the law with P[X = x] proportional to exp(-x^2 / (2 sigma2))."""
    zero, *others = gaussian_masses(sigma2)
    return Table.of([zero, *(2 * mass for mass in others)])


def parted(noise: DiscreteGaussian) -> tuple[DiscreteGaussian, int, DiscreteGaussian]:
    """Wide noise as X + k Y with independent X and Y that have small tables; few different X serve all."""
    k = 1 << math.isqrt(math.floor(noise.sigma2)).bit_length() // 2 - 1
    near = DiscreteGaussian(Fraction(8 * k * k))
    return near, k, DiscreteGaussian((noise.sigma2 - near.sigma2) / (k * k))
