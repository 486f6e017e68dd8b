"""One public ladder of noise widths, 2 % apart, that every path of noise climbs down.

Level l has the width w = 2^16 / 1.02^l grid units: under ``pure`` the scale of Laplace noise, under ``zcdp`` the
standard deviation of Gaussian noise. The ladder is the same for every question, so tables for sampling are built once
in the life of a process. What is exact is the rate 1/w, a whole multiple of 2^-56 (``RATES``).

*Why a Gaussian path strays no further than told.* A path at level l is Y = sum p_k X_k / P, where the X_k are
independent discrete Gaussians of sigma_k^2 = 1/p_k and P = sum p_k = 1/w^2; so every sigma_k >= w. Let f(x) =
exp(-x^2 / (2 sigma^2)), N the normal law of the same sigma and Z = sum f >= sqrt(2 pi) sigma (Poisson summation).

(A) X is stochastically below N + 1, for every sigma. For m >= 1, f falls on [0, oo), so
P[X >= m] <= int_{m-1}^oo f / Z <= P[N >= m-1] (Canonne, Kamath, Steinke 2020, Prop. 25). For m = 1-k <= 0 the claim is
P[X >= k] >= P[N >= k]: sum_{x>=k} f exceeds int_k^oo f by at least f(max(k, sigma+1))/2 (trapezia, f is convex beyond
sigma), and the normalisation takes back (t-1) int_k^oo f, t = Z / (sqrt(2 pi) sigma). If sigma <= 1, then
int_k^oo f <= f(k) sigma^2 and t-1 <= 1/(sqrt(2 pi) sigma), so it takes back at most 0.4 f(k). If sigma > 1, then
t-1 <= 2.1 exp(-2 pi^2 sigma^2), so it takes back less than 1e-8 f(k), and f(max(k, sigma+1)) >= exp(-2) f(k).

(B) X is below N + 1/2 + d with d = max(0.0435, 5/(6 sigma)), but for a probability of 2^-70, if sigma >= 5/3. For
x >= 1, Jensen gives int f(x+u) du >= f(x) exp((x d - (1/12 + d^2)/2) / sigma^2) >= f(x) over u in -d +- 1/2: so
P[X >= m] <= P[N >= m - 1/2 - d] for m >= 1. For m = 1-k <= 0: over u in d +- 1/2, int f(x+u) du <= f(x)
exp(-h d) sinh(h/2)/(h/2) <= f(x) exp(-h d + h^2/24) with h = x/sigma^2, which is at most f(x) while x <= 24 sigma^2 d,
above all for x <= 20 sigma. So P[X >= k] >= P[N >= k - 1/2 + d] less what lies beyond 20 sigma (below 2^-280), less the
normalisation (t-1 < 2^-77).

Both survive weighting and adding independent variables, since the weights p_k/P are positive with sum 1: Y is below
N(0, w^2) + 1, and below N(0, w^2) + 1/2 + max(0.0435, 5/(6 w)) but for 631 * 2^-70 < 2^-60. The law is symmetric.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist

from mechanisms.errors import AccuracyUnreachable
from mechanisms.loss import Coin
from mechanisms.noise import DiscreteGaussian, DiscreteLaplace

NOTHING = -1
"""The level of a path of which nothing was released."""
LEVELS = 631
"""The last has a width of about 1/4 grid unit."""
RATE_BITS = 56
RATES = tuple((102**level << 40) // 100**level for level in range(LEVELS))
"""1/w of each level, in units of 2^-56."""
_COARSEST = {Coin.PURE: 0, Coin.ZCDP: 176}  # the first Gaussian is the first below 2^11: wider tables take too long
_NEGLIGIBLE = 2.0**-60
_ROUNDING = 1e-12  # far above the relative error of a few float operations


def coarsest(coin: Coin) -> int:
    """The first level that is offered."""
    return _COARSEST[coin]


def deepest(coin: Coin) -> int:
    """The last level that is offered."""
    return LEVELS - 1


def rate(level: int) -> Fraction:
    """By how much the logarithm of the Laplace law falls per grid unit."""
    return Fraction(RATES[_standing(level)], 1 << RATE_BITS)


def precision(level: int) -> Fraction:
    """One over the variance of the Gaussian path; zero where nothing was released."""
    return Fraction(0) if level == NOTHING else rate(level) ** 2


def width(level: int) -> float:
    """The width in grid units, for tuning."""
    return math.ldexp(1.0 / RATES[_standing(level)], RATE_BITS)


def price(coin: Coin, level: int, parts: int) -> Fraction:
    """What a path costs once it stands at this level, for a statistic that one unit moves by ``parts`` grid units.

    *Guarantee*: under ``pure`` everything up to this level is a function of the release at this level and of
    independent noise (``path``); under ``zcdp`` it is independent releases whose precisions add up to this one.
    """
    if level == NOTHING:
        return Fraction(0)
    offered(coin, level)
    match coin:
        case Coin.PURE:
            return parts * rate(level)
        case Coin.ZCDP:
            return parts * parts * precision(level) / 2


@lru_cache(maxsize=4096)
def increment(low: int, high: int) -> DiscreteGaussian:
    """The release that brings a Gaussian path from one level to a finer one: its precision is what is missing."""
    return DiscreteGaussian(1 / (precision(high) - precision(low)))


@lru_cache(maxsize=16384)
def shift(coin: Coin, level: int, bound: Decimal) -> float:
    """How far the noise of a path at this level strays to one side: P[noise > shift] <= bound.

    *Guarantee*: for Laplace the smallest such number; for Gaussian proven above, whatever the steps of the path were.
    """
    offered(coin, level)
    match coin:
        case Coin.PURE:
            return float(DiscreteLaplace(rate(level), 1).shift(bound))
        case Coin.ZCDP:
            wide, told = width(level), float(bound)
            if wide >= 5 / 3 and told >= 1000 * _NEGLIGIBLE:
                reach = wide * _quantile(told - _NEGLIGIBLE) + 0.5 + max(0.0435, 5 / (6 * wide))
            else:
                reach = wide * _quantile(told) + 1
            return max(0.0, reach * (1 + _ROUNDING))


def level_for(coin: Coin, reach: float, bound: Decimal) -> int:
    """The coarsest level whose shift is at most this."""
    levels = range(coarsest(coin), deepest(coin) + 1)
    found = bisect_left(levels, True, key=lambda level: shift(coin, level, bound) <= reach)
    if found == len(levels):
        raise AccuracyUnreachable(
            "no noise is as narrow as the accuracy asks for",
            detail=f"asked: {reach:g} grid units, exceeded with probability {bound:f} at most",
            hint="Ask with a larger beta or alpha.",
        )
    return levels[found]


def offered(coin: Coin, level: int) -> int:
    """The level, if there is such a one under this coin."""
    if not coarsest(coin) <= level <= deepest(coin):
        raise ValueError(f"level {level} is not offered under {coin.value}")
    return level


def _standing(level: int) -> int:
    """A level that something was released at: a negative index would count from the end."""
    if not 0 <= level < LEVELS:
        raise ValueError(f"the ladder has no level {level}")
    return level


@lru_cache(maxsize=1024)
def _quantile(bound: float) -> float:
    """A z with P[N(0, 1) > z] <= bound: found, then checked against the other library's tail."""
    if not 0 < bound < 1:
        raise ValueError("a bound on a probability lies between 0 and 1")
    z = -NormalDist().inv_cdf(bound)
    while math.erfc(z / math.sqrt(2)) / 2 > bound * (1 - _ROUNDING):
        z += _ROUNDING * max(1.0, abs(z))
    return z
