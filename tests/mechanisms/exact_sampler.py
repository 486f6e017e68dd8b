"""The exact rational samplers of Canonne, Kamath and Steinke (2020, Algorithms 1 to 3): slow, simple, an oracle.

They share nothing with ``mechanisms.sampler``: no table, no exponential, only rejection with rational coins.

Paths too come a second time. The Gaussian one is combined in fractions. The Laplace one goes *forwards*, from coarse
noise to fine: given the coarse z, the fine x has mass proportional to y2^|x| (a [x = z] + (1-a) k y1^|z-x|), with
k = (1-y1)/(1+y1): an atom at z, and geometric pieces before 0, between 0 and z, and beyond z. Which piece it is
is decided with exponentials of 150 digits; within a piece there are rational coins again.
"""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import isqrt

from mechanisms.sampler import Source

DIGITS = Context(prec=150)


@lru_cache(maxsize=4096)
def power(x: Fraction) -> Fraction:
    """exp(-x) to 150 digits, from another library."""
    return Fraction(DIGITS.exp(DIGITS.divide(Decimal(-x.numerator), Decimal(x.denominator))))


@lru_cache(maxsize=4096)
def stays(coarse: Fraction, fine: Fraction) -> Fraction:
    """The probability that a path of gradual release draws nothing between two rates."""
    y1, y2 = power(coarse), power(fine)
    return y2 / (1 - y2) ** 2 / (y1 / (1 - y1) ** 2)


@lru_cache(maxsize=65536)
def bridge_pieces(distance: int, coarse: Fraction, fine: Fraction) -> tuple[int, ...]:
    """Where the fine noise lies, given the coarse one at this distance above 0: parts of 2^480, cumulated.

    At z, below 0, between 0 and z, above z.
    """
    y1, y2, a = power(coarse), power(fine), stays(coarse, fine)
    jump, ratio = (1 - a) * (1 - y1) / (1 + y1), y2 / y1
    near, far = power(fine * distance), power(coarse * distance)
    outside = y1 * y2 / (1 - y1 * y2)
    masses = [
        a * near,
        jump * far * outside,
        jump * far * (1 - power((fine - coarse) * (distance + 1))) / (1 - ratio),
        jump * near * outside,
    ]
    total, cumulated, parts = sum(masses), Fraction(0), []
    for mass in masses:
        cumulated += mass
        parts.append(int(cumulated / total * 2**480))
    return tuple(parts)


class Exactly:
    """Draws from a buffered source."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._bits = 0
        self._left = 0

    def _take(self, bits: int) -> int:
        while self._left < bits:
            self._bits = (self._bits << 32768) | int.from_bytes(self._source(4096), "big")
            self._left += 32768
        self._left -= bits
        taken = self._bits >> self._left
        self._bits &= (1 << self._left) - 1
        return taken

    def below(self, n: int) -> int:
        bits = (n - 1).bit_length()
        while (value := self._take(bits)) >= n:
            pass
        return value

    def bernoulli(self, p: Fraction) -> bool:
        return self.below(p.denominator) < p.numerator

    def bernoulli_exp(self, x: Fraction) -> bool:
        """True with probability exp(-x)."""
        while x > 1:
            if not self.bernoulli_exp(Fraction(1)):
                return False
            x -= 1
        k = 1
        while self.bernoulli(x / k):
            k += 1
        return k % 2 == 1

    def laplace(self, rate: Fraction) -> int:
        """P[X = x] proportional to exp(-rate |x|)."""
        s, t = rate.numerator, rate.denominator
        while True:
            u = self.below(t)
            if not self.bernoulli_exp(Fraction(u, t)):
                continue
            v = 0
            while self.bernoulli_exp(Fraction(1)):
                v += 1
            magnitude = (u + t * v) // s
            negative = self.below(2) == 1
            if not (negative and magnitude == 0):
                return -magnitude if negative else magnitude

    def gaussian(self, sigma2: Fraction) -> int:
        """P[X = x] proportional to exp(-x^2 / (2 sigma2))."""
        t = isqrt(sigma2.numerator // sigma2.denominator) + 1
        while True:
            y = self.laplace(Fraction(1, t))
            if self.bernoulli_exp((abs(y) - sigma2 / t) ** 2 / (2 * sigma2)):
                return y

    def geometric(self, rate: Fraction) -> int:
        """P[G = g] proportional to exp(-rate g), g = 0, 1, ..."""
        s, t = rate.numerator, rate.denominator
        while not self.bernoulli_exp(Fraction(u := self.below(t), t)):
            pass
        v = 0
        while self.bernoulli_exp(Fraction(1)):
            v += 1
        return (u + t * v) // s

    def bridge(self, coarse_noise: int, coarse: Fraction, fine: Fraction) -> int:
        """The noise of the finer rate, given that of the coarser one on the same path."""
        z, sign = abs(coarse_noise), 1 if coarse_noise >= 0 else -1
        at, before, between, _ = bridge_pieces(z, coarse, fine)
        point = self._take(480)
        if point < at:
            return coarse_noise
        if point < before:
            return -sign * (1 + self.geometric(coarse + fine))
        if point < between:
            return sign * (self.geometric(fine - coarse) % (z + 1))  # a geometric number that stops at z
        return sign * (z + 1 + self.geometric(coarse + fine))

    def laplace_path(self, rates: list[Fraction]) -> list[int]:
        """The noise at each rate, the coarsest first."""
        path = [self.laplace(rates[0])]
        for coarse, fine in pairwise(rates):
            path.append(self.bridge(path[-1], coarse, fine))
        return path

    def gaussian_path(self, precisions: list[Fraction]) -> list[Fraction]:
        """The combined noise at each precision, the coarsest first."""
        weighted, path = Fraction(0), []
        for low, high in pairwise([Fraction(0), *precisions]):
            weighted += (high - low) * self.gaussian(1 / (high - low))
            path.append(weighted / high)
        return path
