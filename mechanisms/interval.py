"""Intervals and deviations of released numbers, and of what is computed from them: all post-processing, all free.

A count or a sum has the exact interval of its share. An average is a quotient of two released numbers: under Gaussian
noise its interval is Fieller's, the set of all v for which the released S - v N is not too far from 0; it is right for
every size of the denominator, where the usual "value +- 2 deviations" fails for small ones. Under Laplace noise each of
the two gets half of what may fail (union bound). A variance has the box of its three numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mechanisms.loss import WIDE
from mechanisms.noise import DiscreteGaussian
from mechanisms.threshold import Share, one_side
from mechanisms.values import Lattice

Reals: TypeAlias = NDArray[np.float64]
Ends: TypeAlias = tuple[Reals, Reals]


def half_width(share: Share, confidence: Decimal) -> int:
    """How far a released number may lie from the truth, in lattice numbers.

    *Guarantee*: P[|released - truth| > half_width] <= 1 - confidence, exactly on the lattice.
    """
    return share.grid.half_width(share.noise.shift(one_side(confidence)))


def deviation(share: Share) -> float:
    """The standard deviation of the noise, in lattice units."""
    return share.noise.deviation * share.grid.sensitivity / share.grid.parts


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One released aggregate over all cells, with its noise and the real size of a lattice unit."""

    lattice: Lattice
    share: Share
    unit: Fraction

    @property
    def values(self) -> Reals:
        """In real units."""
        return np.asarray(self.lattice * float(self.unit), dtype=np.float64)

    @property
    def deviation(self) -> float:
        return deviation(self.share) * float(self.unit)

    def half_width(self, confidence: Decimal) -> float:
        return half_width(self.share, confidence) * float(self.unit)

    def ends(self, confidence: Decimal) -> Ends:
        values, half = self.values, self.half_width(confidence)
        return values - half, values + half

    @property
    def smooth(self) -> bool:
        """Whether the noise is as good as normal, but for a half-cell on each side."""
        return isinstance(self.share.noise, DiscreteGaussian) and self.share.noise.sigma2 >= 4

    @property
    def grain(self) -> float:
        """How far, in deviations, the released number may lie beyond a normal one that is drawn along with it.

        A discrete Gaussian X of sigma >= 5/3 and a normal Z of the same sigma can be drawn together such that
        |X - Z| <= 1/2 + max(0.0435, 5 / (6 sigma)); a coarse grid hides half a cell and one unit more.
        """
        grid, sigma = self.share.grid, self.share.noise.deviation
        cell = 0.5 + max(0.0435, 5 / (6 * sigma))
        return (cell if grid.own else cell + 0.5 + grid.parts / grid.sensitivity) / sigma


def ratio(top: Row, bottom: Row, confidence: Decimal, within: tuple[float, float]) -> Ends:
    """An interval for top / bottom, both true ones; where the denominator is not clearly above 0, ``within``.

    *Guarantee*: it holds the true quotient with probability at least ``confidence`` if that lies ``within``.
    """
    if top.smooth and bottom.smooth:
        low, high, sure = _fieller(top, bottom, confidence)
    else:
        low, high, sure = _box(top, bottom, _shared(confidence, 2))
    return np.where(sure, low, within[0]), np.where(sure, high, within[1])


def ratio_deviation(top: Row, bottom: Row) -> Reals:
    """The standard deviation of top / bottom by the delta method; NaN where the denominator is not above 0."""
    over = np.where(bottom.values > 0, bottom.values, np.nan)
    quotient = top.values / over
    spread: Reals = np.hypot(top.deviation, quotient * bottom.deviation) / over
    return spread


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """Squares about a point, the sum and the count; ``about`` is that point where the sum is not about it too.

    ``less`` is 1 for a sample and 0 for a population.
    """

    squares: Row
    top: Row
    bottom: Row
    less: int
    about: float = 0.0


def variance(spread: Spread, confidence: Decimal, most: float) -> Ends:
    """An interval for (squares - sum^2 / count) / (count - less); where there may be too few values, 0 to ``most``.

    *Guarantee*: as for ``ratio``; each of the three numbers gets a third of what may fail.
    """
    squares, top, bottom, less = spread.squares, spread.top, spread.bottom, spread.less
    each = _shared(confidence, 3)
    fewest = less + 1
    low_n, high_n = bottom.ends(each)
    sure = low_n >= fewest
    low_n, high_n = np.maximum(low_n, fewest), np.maximum(high_n, fewest)
    low_s, high_s = top.ends(each)
    far, near = spread.about * low_n, spread.about * high_n
    low_s, high_s = low_s - np.maximum(far, near), high_s - np.minimum(far, near)
    low_q, high_q = squares.ends(each)
    largest = np.maximum(np.abs(low_s), np.abs(high_s)) ** 2
    smallest = np.where((low_s < 0) & (high_s > 0), 0, np.minimum(np.abs(low_s), np.abs(high_s)) ** 2)
    low = np.maximum(0, low_q - largest / low_n) / (high_n - less)
    high = np.maximum(0, high_q - smallest / high_n) / (low_n - less)
    return np.where(sure, low, 0.0), np.where(sure, high, most)


def variance_deviation(spread: Spread) -> tuple[Reals, Reals]:
    """That variance and its standard deviation by the delta method; NaN where there are too few values."""
    squares, top, bottom = spread.squares, spread.top, spread.bottom
    n = np.where(bottom.values > spread.less, bottom.values, np.nan)
    mean = top.values / n - spread.about
    found = (squares.values - mean * mean * n) / (n - spread.less)
    by_count = mean * mean + 2 * mean * spread.about - found
    parts = (np.full_like(mean, squares.deviation), 2 * mean * top.deviation, by_count * bottom.deviation)
    return found, np.sqrt(np.sum(np.square(parts), axis=0)) / (n - spread.less)


def _shared(confidence: Decimal, among: int) -> Decimal:
    """The confidence of each of several intervals that shall all hold."""
    return WIDE.subtract(Decimal(1), WIDE.divide(WIDE.subtract(Decimal(1), confidence), Decimal(among)))


def _fieller(top: Row, bottom: Row, confidence: Decimal) -> tuple[Reals, Reals, NDArray[np.bool_]]:
    """All v with |S - v N| <= z sqrt(s^2 + v^2 n^2), where s and n are the deviations; an interval if N > z n.

    The noise is discrete: beside z deviations of the normal that it is drawn along with, it may lie by the grains of
    both further off, which is at most sqrt(grain_S^2 + grain_N^2) deviations (Cauchy and Schwarz).
    """
    z = -NormalDist().inv_cdf(float(one_side(confidence))) + math.hypot(top.grain, bottom.grain)
    s, n = top.values, bottom.values
    over, under = (z * top.deviation) ** 2, (z * bottom.deviation) ** 2
    sure = n > z * bottom.deviation
    a = np.where(sure, n * n - under, 1.0)
    root = np.sqrt(np.where(sure, s * s * under + over * a, 0.0))
    return (s * n - root) / a, (s * n + root) / a, sure


def _box(top: Row, bottom: Row, each: Decimal) -> tuple[Reals, Reals, NDArray[np.bool_]]:
    """The least and the largest quotient of two intervals."""
    low_s, high_s = top.ends(each)
    low_n, high_n = bottom.ends(each)
    sure = low_n > 0
    low_n, high_n = np.where(sure, low_n, 1.0), np.where(sure, high_n, 1.0)
    low = low_s / np.where(low_s < 0, low_n, high_n)
    high = high_s / np.where(high_s > 0, low_n, high_n)
    return low, high, sure
