"""Shares for numbers that are shown: Gaussian noise under ``zcdp``, Laplace noise under ``pure``.

The Gaussian tables want a standard deviation of at most some thousand: where the own lattice would need more, the
noise lives on a ``Grid`` whose parts bring it to about 2048 cells. What a cell hides is a 4096th of the deviation.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from mechanisms.errors import AccuracyUnreachable
from mechanisms.grid import Grid
from mechanisms.loss import WIDE, Coin, round_up
from mechanisms.noise import MAX_SIGMA2, DiscreteGaussian
from mechanisms.threshold import Share, for_interval, interval_at, one_side, reachable

CELLS = 2048
"""The deviation, in cells, above which a coarser grid is taken."""
SMALLEST_RHO = round_up(Decimal(1) / Decimal(2 * int(MAX_SIGMA2)))
"""What the widest noise costs: one part to the unit."""
_PI = Decimal("3.14159265358979323846")
_BITS = 30  # of a variance: the loss of rounding it down is below a billionth of the price


def number_for(coin: Coin, sensitivity: int, margin: int, confidence: Decimal) -> Share:
    """The cheapest share on this coin whose number lies within the margin of the truth.

    *Guarantee*: P[|released - truth| > margin] <= 1 - confidence, by the exact tail of the discrete law.
    """
    match coin:
        case Coin.PURE:
            return for_interval(sensitivity, margin, confidence)
        case Coin.ZCDP:
            return _cheapest(sensitivity, margin, one_side(confidence))


def number_at(coin: Coin, sensitivity: int, price: Decimal, confidence: Decimal) -> Share:
    """The share at a given price in coin, with the smallest interval of this confidence."""
    match coin:
        case Coin.PURE:
            return interval_at(sensitivity, price, confidence)
        case Coin.ZCDP:
            if price < SMALLEST_RHO:
                raise AccuracyUnreachable(
                    "the price is too small for any answer",
                    detail=f"asked: rho {price:f} for one number; the smallest is {SMALLEST_RHO:f}",
                    hint="SET veil.epsilon higher, or ask for fewer numbers at once.",
                )
            return _at(sensitivity, price, one_side(confidence))


def price_of_magnitude(coin: Coin, magnitude: Decimal) -> Decimal:
    """What a number costs whose noise has this mean size, in multiples of what one unit moves it.

    Laplace noise of scale b has the mean size b; Gaussian noise of deviation s has s sqrt(2 / pi), and rho = 1 / 2 s^2.
    """
    match coin:
        case Coin.PURE:
            return round_up(WIDE.divide(Decimal(1), magnitude))
        case Coin.ZCDP:
            return round_up(WIDE.divide(Decimal(1), WIDE.multiply(_PI, WIDE.multiply(magnitude, magnitude))))


@lru_cache(maxsize=4096)
def _cheapest(sensitivity: int, margin: int, bound: Decimal) -> Share:
    reachable(margin, bound)
    quantile = -NormalDist().inv_cdf(float(bound))
    grid = Grid(sensitivity, sensitivity)
    if margin > CELLS * quantile:
        # At least eight cells in the margin, so that the cell is small beside it at any confidence.
        parts = max(math.floor(CELLS * quantile * sensitivity / margin), -(-8 * sensitivity // margin), 1)
        grid = Grid(sensitivity, min(parts, sensitivity))
    within = margin if grid.own else (2 * grid.parts * margin - sensitivity) // (2 * sensitivity)
    noise = DiscreteGaussian(_widest(within, bound))
    return Share(noise, margin, noise.loss(grid.parts), None, grid)


@lru_cache(maxsize=4096)
def _at(sensitivity: int, rho: Decimal, bound: Decimal) -> Share:
    grid = Grid(sensitivity, sensitivity)
    twice = 2 * Fraction(rho)
    if sensitivity * sensitivity > CELLS * CELLS * twice:
        grid = Grid(sensitivity, min(sensitivity, max(1, math.isqrt(math.floor(CELLS * CELLS * twice)))))
    noise = DiscreteGaussian(grid.parts * grid.parts / twice)
    return Share(noise, grid.half_width(noise.shift(bound)), rho, None, grid)


@lru_cache(maxsize=4096)
def _widest(within: int, bound: Decimal) -> Fraction:
    """The largest variance of 30 bits with P[X > within] <= bound.

    Found in floats, which only say where to look, and then checked in integers.
    """
    wanted = math.log(bound)
    low, high = math.log(2.0**-6), math.log(float(MAX_SIGMA2)) / 2
    if _log_tail(high, within) <= wanted:
        return MAX_SIGMA2
    for _ in range(52):
        middle = (low + high) / 2
        low, high = (middle, high) if _log_tail(middle, within) <= wanted else (low, middle)
    variance = math.exp(2 * low)
    unit = Fraction(2) ** (math.frexp(variance)[1] - _BITS)
    sigma2 = (Fraction(variance) // unit) * unit
    while DiscreteGaussian(sigma2).tail(within + 1) > Fraction(bound):
        sigma2 -= unit
    return sigma2


def _log_tail(log_deviation: float, within: int) -> float:
    """ln P[X > within] of the discrete Gaussian, in floats."""
    deviation = math.exp(log_deviation)
    first = within + 1
    reach = np.arange(first, first + 2 + math.ceil(10 * deviation), dtype=np.float64)
    # Relative to the first mass, so that a far tail does not vanish.
    tail = float(np.sum(np.exp((first * first - reach * reach) / (2 * deviation * deviation))))
    whole = 1 + 2 * float(np.sum(np.exp(-(np.arange(1, 2 + math.ceil(10 * deviation)) ** 2) / (2 * deviation**2))))
    return math.log(tail) - first * first / (2 * deviation * deviation) - math.log(whole)
