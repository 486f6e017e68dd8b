"""The exact rational samplers of Canonne, Kamath and Steinke (2020, Algorithms 1 to 3): slow, simple, an oracle.

They share nothing with ``mechanisms.sampler``: no table, no exponential, only rejection with rational coins.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

from mechanisms.sampler import Source


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
