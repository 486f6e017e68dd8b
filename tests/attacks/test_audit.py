"""Empirical lower bounds on epsilon: neighbouring numbers through the one place of noise, many times.

An event is chosen on one half of the draws and tried on the other half; its odds under the two neighbours, with
Clopper-Pearson bounds, give an epsilon that the release has at least. A claim that is true is exceeded in one audit
of a thousand; noise that is ten percent too small is caught.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import beta as beta_law
from scipy.stats import norm

from mechanisms.grid import Grid
from mechanisms.loss import Coin
from mechanisms.noise import DiscreteGaussian
from mechanisms.release import release
from mechanisms.threshold import Share, decide, for_interval, tslm
from mechanisms.values import Exact

SURE = 0.001
SHARES = {
    "tslm": tslm(1, 3, Decimal("0.05")),
    "tslm of a person": tslm(4, 12, Decimal("0.05")),
    "interval": for_interval(1, 4, Decimal("0.95")),
    "interval of a person": for_interval(4, 16, Decimal("0.95")),
}


def seeded(seed: int) -> Callable[[int], bytes]:
    """A stream of bytes that depends on the seed alone."""
    calls = iter(range(2**62))
    return lambda n: hashlib.shake_256(f"{seed}/{next(calls)}".encode()).digest(n)


def draws(share: Any, value: int, n: int, seed: int) -> NDArray[np.int64]:
    exact = Exact(np.full((1, n), value, dtype=np.int64))
    return release(exact, [share], seeded(seed)).row(0)


def epsilon_at_least(low: NDArray[np.int64], high: NDArray[np.int64]) -> float:
    """What the draws prove about epsilon with probability 1 - SURE; the event is "at least t"."""
    half = len(low) // 2
    candidates = range(int(low.min()), int(high.max()) + 1)
    odds = [(np.mean(high[:half] >= t), np.mean(low[:half] >= t), t) for t in candidates]
    # The best event by its own lower bound on the first half: far tails have the odds but not the counts.
    best = max(odds, key=lambda o: _log_odds(int(o[0] * half), int(o[1] * half), half))[2]
    rest = len(low) - half
    return _log_odds(int(np.sum(high[half:] >= best)), int(np.sum(low[half:] >= best)), rest)


def _log_odds(many: int, few: int, n: int) -> float:
    p = float(beta_law.ppf(SURE / 2, many, n - many + 1)) if many else 0.0
    q = float(beta_law.ppf(1 - SURE / 2, few + 1, n - few)) if few < n else 1.0
    return math.log(p / q) if p > 0 else -math.inf


def audit(share: Any, sensitivity: int, n: int, seed: int) -> float:
    return epsilon_at_least(draws(share, 1000, n, seed), draws(share, 1000 + sensitivity, n, seed + 1))


def narrower(share: Share) -> Any:
    """The same claim over noise that is ten percent too small; a real share refuses to be made like this."""
    return SimpleNamespace(noise=share.noise.scaled(Fraction(9, 10)), grid=share.grid)


@pytest.mark.parametrize("name", SHARES)
def test_no_audit_exceeds_the_claim(name: str) -> None:
    share = SHARES[name]
    proved = audit(share, share.sensitivity, 200_000, seed=11)
    assert 0.9 * float(share.epsilon) < proved <= float(share.epsilon), "a bound that proves little tests little"


@pytest.mark.parametrize("name", SHARES)
def test_ten_percent_too_little_noise_is_caught(name: str) -> None:
    share = SHARES[name]
    assert audit(narrower(share), share.sensitivity, 200_000, seed=13) > float(share.epsilon)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARES)
@pytest.mark.parametrize("seed", [101, 103, 105])
def test_no_audit_of_four_million_draws_exceeds_the_claim(name: str, seed: int) -> None:
    share = SHARES[name]
    proved = audit(share, share.sensitivity, 4_000_000, seed)
    assert 0.98 * float(share.epsilon) < proved <= float(share.epsilon)
    assert audit(narrower(share), share.sensitivity, 4_000_000, seed) > float(share.epsilon)


@pytest.mark.slow
@pytest.mark.parametrize("margin", [50, 10])
def test_the_default_accuracy_is_audited_too(margin: int) -> None:
    share = tslm(1, margin, Decimal("0.05"))
    assert audit(share, 1, 4_000_000, seed=107) <= float(share.epsilon)
    assert audit(narrower(share), 1, 4_000_000, seed=107) > 0.99 * float(share.epsilon)


def test_a_decision_tells_no_more_than_the_number_that_it_came_from() -> None:
    """The kept groups of neighbours, with the threshold where it tells most."""
    share, n = SHARES["tslm"], 200_000
    threshold = 1000 + share.shift + 1
    low, high = (decide(draws(share, value, n, value), +1, threshold, share) for value in (1000, 1001))
    proved = _log_odds(int(high.sum()), int(low.sum()), n)
    assert 0.9 * float(share.epsilon) < proved <= float(share.epsilon)


# -- Gaussian noise on grids -------------------------------------------------------------------------------------------


def gaussian(sensitivity: int, parts: int, sigma2: int) -> Share:
    noise = DiscreteGaussian(Fraction(sigma2))
    return Share(noise, 0, noise.loss(parts), None, Grid(sensitivity, parts))


GAUSSIANS = {
    "a count": gaussian(1, 1, 4),
    "a person": gaussian(4, 4, 25),
    "a wide sum on few parts": gaussian(50_000, 4, 20),
    "parts that do not divide": gaussian(1000, 7, 36),
}


def rho_at_least(low: NDArray[np.int64], high: NDArray[np.int64]) -> float:
    """What the draws prove about rho: neighbours of Gaussian noise are normal laws at a distance of sqrt(2 rho).

    The distance between the quantiles of one event's two probabilities is at most that; the event is "at least t".
    """
    half = len(low) // 2

    def distance(t: int, part: slice) -> float:
        ends = []
        for draws_, at in ((high[part], SURE / 2), (low[part], 1 - SURE / 2)):
            n, k = len(draws_), int(np.sum(draws_ >= t))
            inside = (k, n - k + 1) if at < 0.5 else (k + 1, n - k)
            ends.append(float(beta_law.ppf(at, *inside)) if min(inside) > 0 else float(at >= 0.5))
        return float(norm.ppf(ends[0]) - norm.ppf(ends[1]))

    best = max(np.unique(np.quantile(high, np.linspace(0.05, 0.95, 40))), key=lambda t: distance(t, slice(half)))
    return max(0.0, distance(best, slice(half, None))) ** 2 / 2


def audit_rho(share: Any, n: int, seed: int, sensitivity: int) -> float:
    """The worst of several pairs of neighbours: a grid moves some of them by less."""
    starts = (0, 1, sensitivity - 1, 123_457)
    return max(
        rho_at_least(draws(share, start, n, seed), draws(share, start + sensitivity, n, seed + 1)) for start in starts
    )


@pytest.mark.parametrize("name", GAUSSIANS)
def test_no_audit_exceeds_the_rho_that_is_charged(name: str) -> None:
    share = GAUSSIANS[name]
    charged = float(share.loss(Coin.ZCDP).amount)
    assert 0.85 * charged < audit_rho(share, 200_000, 17, share.sensitivity) <= charged


@pytest.mark.parametrize("name", GAUSSIANS)
def test_ten_percent_too_little_gaussian_noise_is_caught(name: str) -> None:
    share = GAUSSIANS[name]
    assert audit_rho(narrower(share), 200_000, 19, share.sensitivity) > float(share.loss(Coin.ZCDP).amount)


@pytest.mark.parametrize("name", ["a wide sum on few parts", "parts that do not divide"])
def test_a_part_too_many_is_caught(name: str) -> None:
    """The price is that of m parts, and the release works with m + 1."""
    share = GAUSSIANS[name]
    finer = SimpleNamespace(noise=share.noise, grid=Grid(share.sensitivity, share.grid.parts + 1))
    assert audit_rho(finer, 200_000, 23, share.sensitivity) > float(share.loss(Coin.ZCDP).amount)


@pytest.mark.parametrize("name", ["a person", "parts that do not divide"])
def test_a_unit_that_moves_a_number_by_one_more_than_was_said_is_caught(name: str) -> None:
    share = GAUSSIANS[name]
    step = share.sensitivity + max(1, share.sensitivity // share.grid.parts)
    assert audit_rho(share, 200_000, 29, step) > float(share.loss(Coin.ZCDP).amount)
