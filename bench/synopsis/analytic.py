"""What Gaussian noise costs by the analytic condition, in floats and quickly: a curve for each delta.

``mechanisms.translate`` is the exact one; a test says that both agree.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

_LOGS = np.linspace(math.log(1e-7), math.log(1e3), 8_001)  # of variances' inverses


@cache
def _curve(delta: float) -> NDArray[np.float64]:
    """ln epsilon at each precision of the grid, for a sensitivity of 1."""
    m = np.exp(_LOGS / 2)
    low, high = np.full(len(m), -40.0), np.full(len(m), 8.0)
    for _ in range(60):
        middle = (low + high) / 2
        epsilon = np.exp(middle)
        upper, lower = log_ndtr(m / 2 - epsilon / m), epsilon + log_ndtr(-m / 2 - epsilon / m)
        with np.errstate(divide="ignore", invalid="ignore"):
            enough = ~(upper + np.log1p(-np.exp(np.minimum(lower - upper, 0.0))) > math.log(delta))
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


class Price:
    """Between a variance and an epsilon, at one delta."""

    def __init__(self, delta: float) -> None:
        self._logs, self._curve = _LOGS.tolist(), _curve(delta).tolist()
        self._step = self._logs[1] - self._logs[0]

    def epsilon(self, variance: float) -> float:
        """What noise of this variance costs, where one unit moves one number by one."""
        place = (-math.log(variance) - self._logs[0]) / self._step
        if place < 0:  # cheaper than the grid knows: in proportion
            return math.exp(self._curve[0]) * math.exp((-math.log(variance) - self._logs[0]) / 2)
        at = min(int(place), len(self._logs) - 2)
        part = place - at
        return math.exp((1 - part) * self._curve[at] + part * self._curve[at + 1])

    def variance(self, epsilon: float) -> float:
        """The variance that this epsilon buys."""
        return math.exp(-float(np.interp(math.log(epsilon), self._curve, self._logs)))
