"""The two laws of noise on the lattice: how much each costs, and how far it strays.

Both are symmetric laws on the integers. ``tail(t)`` is an upper bound on P[X >= t] that is tight to 2**-200 and is
computed in integers, so a promise that rests on it ("missed with probability at most beta") is a theorem and not
a float. ``scaled`` is for tests that must see a wrong scale rejected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import TypeAlias

from mechanisms.fixed import BITS, ONE, exp_down
from mechanisms.loss import WIDE, round_up

MIN_RATE = Fraction(1, 2**40)
"""The flattest Laplace noise: its draws stay below 2**49, so that no sum on the lattice leaves 64 bits."""
MAX_SIGMA2 = Fraction(2**28)
"""The widest Gaussian noise: 2**14 lattice units; a coarser lattice serves wider ones."""
NEGLIGIBLE = ONE >> 250
"""A mass below this ends a table; what is cut off is then below 2**-221 (see ``sampler``)."""
_SLACK = ONE >> 220  # above the cut-off and all rounding of a Gaussian table


@dataclass(frozen=True, slots=True)
class DiscreteLaplace:
    """P[X = x] proportional to exp(-|x| epsilon / sensitivity).

    *Guarantee*: added to an integer that one unit moves by at most ``sensitivity``, it is epsilon-DP
    (Ghosh, Roughgarden, Sundararajan 2009).
    """

    epsilon: Fraction
    sensitivity: int

    def __post_init__(self) -> None:
        if self.sensitivity < 1:
            raise ValueError("a sensitivity is at least one lattice unit")
        if self.rate < MIN_RATE:
            raise ValueError("the noise is too wide for 64 bits")

    @property
    def rate(self) -> Fraction:
        """By how much the logarithm of the probability falls per lattice unit."""
        return self.epsilon / self.sensitivity

    def tail(self, t: int) -> Fraction:
        """An upper bound on P[X >= t]: with y = exp(-rate) it is y^t / (1 + y) for t >= 1."""
        return _laplace_tail(self.rate, t)

    def shift(self, beta: Decimal) -> int:
        """The smallest s >= 0 with P[X > s] <= beta."""
        bound = Fraction(beta)
        if not bound > 0:
            raise ValueError("no shift is exceeded with probability 0")
        # s + 1 >= -ln(beta (1 + y)) / rate; the estimate is good to some 40 digits and then checked on the lattice.
        rate = WIDE.divide(Decimal(self.rate.numerator), Decimal(self.rate.denominator))
        need = WIDE.multiply(beta, WIDE.add(Decimal(1), WIDE.exp(WIDE.minus(rate))))
        t = max(1, int(WIDE.divide(WIDE.minus(WIDE.ln(need)), rate).to_integral_value(rounding=ROUND_CEILING)))
        while self.tail(t) > bound:
            t += 1
        while t > 1 and self.tail(t - 1) <= bound:
            t -= 1
        return t - 1

    @property
    def deviation(self) -> float:
        """The standard deviation: the variance is 2y / (1 - y)^2."""
        half = float(self.rate) / 2
        return math.sqrt(0.5) / math.sinh(half) if half < 300 else 0.0

    def scaled(self, factor: Fraction) -> DiscreteLaplace:
        """The same law, ``factor`` times as wide."""
        return DiscreteLaplace(self.epsilon / factor, self.sensitivity)


@dataclass(frozen=True, slots=True)
class DiscreteGaussian:
    """P[X = x] proportional to exp(-x^2 / (2 sigma2)).

    *Guarantee*: added to an integer that one unit moves by at most D, it is rho-zCDP with rho = D^2 / (2 sigma2)
    (Canonne, Kamath, Steinke 2020, Thm 4).
    """

    sigma2: Fraction

    def __post_init__(self) -> None:
        if not 0 < self.sigma2 <= MAX_SIGMA2:
            raise ValueError("the variance lies above 0 and at most at 2**28 lattice units squared")

    @classmethod
    def at_loss(cls, rho: Decimal, sensitivity: int) -> DiscreteGaussian:
        """The noise that costs exactly this rho."""
        return cls(Fraction(sensitivity * sensitivity, 2) / Fraction(rho))

    def loss(self, sensitivity: int) -> Decimal:
        """What it costs as rho, rounded up to 18 places."""
        rho = Fraction(sensitivity * sensitivity, 2) / self.sigma2
        wide = WIDE.divide(Decimal(rho.numerator), Decimal(rho.denominator))
        told = round_up(wide)
        # The division rounds to nearest, so it may have landed on the grid from above: then one step more.
        return told if Fraction(told) >= rho else round_up(WIDE.next_plus(wide))

    def tail(self, t: int) -> Fraction:
        """An upper bound on P[X >= t]."""
        if t <= 0:
            return min(Fraction(1), 1 - self._lower_tail(1 - t))
        sums = _upper_sums(self.sigma2)
        return min(Fraction(1), Fraction((sums[t] if t < len(sums) else 0) + _SLACK, _total(sums)))

    def _lower_tail(self, t: int) -> Fraction:
        """A lower bound on P[X >= t] for t >= 1: the masses are rounded down, and all rounding is below the slack."""
        sums = _upper_sums(self.sigma2)
        return Fraction(sums[t] if t < len(sums) else 0, _total(sums) + 3 * _SLACK)

    def shift(self, beta: Decimal) -> int:
        """The smallest s >= 0 with P[X > s] <= beta."""
        return _gaussian_shift(self, beta)

    @property
    def deviation(self) -> float:
        """The standard deviation, which is a little below sigma where sigma is below one lattice unit."""
        if self.sigma2 >= 16:
            return math.sqrt(self.sigma2)
        masses = [math.exp(-x * x / (2 * float(self.sigma2))) for x in range(1, 200)]
        squares = 2 * sum(x * x * mass for x, mass in enumerate(masses, start=1))
        return math.sqrt(squares / (1 + 2 * sum(masses)))

    def scaled(self, factor: Fraction) -> DiscreteGaussian:
        """The same law, ``factor`` times as wide."""
        return DiscreteGaussian(self.sigma2 * factor * factor)


Noise: TypeAlias = DiscreteLaplace | DiscreteGaussian


def geometric_masses(rate: Fraction, limit: int | None = None) -> list[int]:
    """exp(-rate x) for x = 0, 1, ... in fixed point from below, up to ``limit`` terms or until negligible.

    The x-th is off by at most 3x units: each product inherits both errors and rounds once.
    """
    step, mass = exp_down(rate), ONE
    masses = [mass]
    while limit is None or len(masses) < limit:
        mass = mass * step >> BITS
        if mass < NEGLIGIBLE:
            break
        masses.append(mass)
    return masses


def gaussian_masses(sigma2: Fraction) -> list[int]:
    """exp(-x^2 / (2 sigma2)) for x = 0, 1, ... in fixed point from below, until negligible.

    The ratio of neighbours is exp(-(2x+1) / (2 sigma2)), itself a geometric sequence: two products per mass. The
    x-th ratio is off by at most 3x + 2 units and the x-th mass by at most 2 (x+1)^2.
    """
    ratio, shrink, mass = exp_down(1 / (2 * sigma2)), exp_down(1 / sigma2), ONE
    masses = [mass]
    while True:
        mass = mass * ratio >> BITS
        if mass < NEGLIGIBLE:
            return masses
        masses.append(mass)
        ratio = ratio * shrink >> BITS


@lru_cache(maxsize=4096)
def _laplace_tail(rate: Fraction, t: int) -> Fraction:
    base = ONE + exp_down(rate)
    if t >= 1:
        return Fraction(min(base, exp_down(rate * t) + 2), base)
    return 1 - Fraction(exp_down(rate * (1 - t)), base + 2)


@lru_cache(maxsize=4096)
def _gaussian_shift(noise: DiscreteGaussian, beta: Decimal) -> int:
    bound = Fraction(beta)
    low, high = 0, len(_upper_sums(noise.sigma2))
    if noise.tail(high + 1) > bound:
        raise ValueError("no shift is exceeded with so small a probability")
    while low < high:
        middle = (low + high) // 2
        if noise.tail(middle + 1) <= bound:
            high = middle
        else:
            low = middle + 1
    return low


@lru_cache(maxsize=4)
def _upper_sums(sigma2: Fraction) -> list[int]:
    """sums[t] = the mass of t, t+1, ..., from below."""
    return list(accumulate(reversed(gaussian_masses(sigma2))))[::-1]


def _total(sums: list[int]) -> int:
    """The mass of all integers, from below: both halves and zero."""
    return 2 * sums[0] - ONE
