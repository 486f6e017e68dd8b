"""What runs on two neighbouring databases prove about the privacy loss.

A run's charge is what it *reached*, so it is the claim for that run's output. For neighbours P and Q, and L = ln P/Q of
what came out: under ``pure`` L <= charge always, and under ``zcdp`` E_P[exp((a-1) L - a (a-1) charge)] <= 1 for every
order a > 1. Each proof here tells the largest s for which the runs refute that s times the charge is enough; a sound
mechanism has s <= 1, except with probability ``sure``.

*By likelihood* (``loss_factor``, ``moment_factor``): L follows from the numbers that were shown, if the noise has the
law that it is said to have. This is sharp: it finds every charge that is too small.

*By frequency* (``pure_factor``, ``zcdp_factor``): an event or a test function is chosen on one half of the runs and
tried on the other half, with bounds that hold for every law. This trusts nothing:

- ``pure``: P[E] <= E_Q[exp(charge); E] for every event E;
- ``zcdp``: E_P[F] <= E_Q[F^(a/(a-1)) exp(a charge)]^((a-1)/a) for every F >= 0. For E_P[F] is E_Q[r F] with r = P/Q, by
  Hoelder at most E_Q[r^a exp(-a (a-1) charge)]^(1/a) times that, and the claim says that this factor is at most 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta as beta_law

Floats: TypeAlias = NDArray[np.float64]
_CHOICE = 40_000
"""So many runs of the first half are enough to choose a test by."""
_ROUGHLY, _CLOSELY = 0.02, 5e-4


@dataclass(frozen=True, slots=True, eq=False)
class Losses:
    """For each run its charge, a few classes of what came out, and its loss against a neighbour.

    ``exact`` is ln P/Q of what was shown. ``redrawn`` is what it would be if every level of a path were drawn anew: a
    test function that finds paths which are.
    """

    charges: Floats
    outcomes: NDArray[np.int64]
    exact: Floats
    redrawn: Floats

    def reversed(self) -> Losses:
        """With P and Q exchanged."""
        return replace(self, exact=-self.exact, redrawn=-self.redrawn)

    def part(self, runs: slice | NDArray[np.int64]) -> Losses:
        return Losses(*(getattr(self, name)[runs] for name in Losses.__slots__))

    def halves(self) -> tuple[Losses, Losses]:
        """The runs to choose a test by, and those to try it on."""
        middle = len(self.charges) // 2
        return self.part(slice(min(middle, _CHOICE))), self.part(slice(middle, None))

    @staticmethod
    def joined(parts: list[Losses]) -> Losses:
        return Losses(*(np.concatenate([getattr(part, name) for part in parts]) for name in Losses.__slots__))


def loss_factor(told: Losses) -> float:
    """The largest |L| over its charge: under ``pure`` no run may have more than 1, whatever its chance."""
    return float(np.max(np.abs(told.exact) / told.charges))


def moment_factor(told: Losses, sure: float) -> float:
    """By how much the runs refute the moments of L that the charge allows under ``zcdp``.

    *Guarantee*: if X >= 0 has a mean of at most 1, the product of 1 + b (X - 1) over the runs is a bet that gains
    nothing on average, for every b in (0, 1), and so is the mean of some bets; it reaches 1/sure with probability at
    most ``sure`` (Ville).
    """
    orders, stakes = (1.05, 1.5, 2.0, 4.0), (0.005, 0.02, 0.05, 0.1, 0.2, 0.4)

    def refuted(s: float) -> bool:
        gains = []
        for a in orders:
            x = np.exp(np.minimum((a - 1) * (told.exact - s * a * told.charges), 300.0))
            gains += [float(np.log1p(b * (x - 1)).sum()) for b in stakes]
        return float(np.logaddexp.reduce(gains)) - math.log(len(gains)) >= -math.log(sure)

    return _largest(refuted, _CLOSELY)


Mask: TypeAlias = NDArray[np.bool_]
Event: TypeAlias = Callable[[Losses], Mask]


def pure_factor(ours: Losses, theirs: Losses, sure: float) -> float:
    """By how much the runs refute P[E] <= E_Q[exp(charge); E]; losses are those of P against Q on both sides."""
    (our_choice, ours), (their_choice, theirs) = ours.halves(), theirs.halves()
    most = float(our_choice.charges.max())

    def factor(event: Event, here: Losses, there: Losses, sure: float, within: float) -> float:
        # An event holds no run that is dearer than all of the first half: so its weights are bounded.
        inside, outside = (event(told) & (told.charges <= most) for told in (here, there))
        least = _share_at_least(int(inside.sum()), len(inside), sure / 2)
        weights = there.charges[outside]

        def refuted(s: float) -> bool:
            return least > _mean_at_most(np.exp(s * weights), len(outside), math.exp(s * most), sure / 2)

        return _largest(refuted, within)

    best = max(_events(our_choice), key=lambda event: factor(event, our_choice, their_choice, 0.1, _ROUGHLY))
    return factor(best, ours, theirs, sure, _CLOSELY)


def _events(told: Losses) -> Iterator[Event]:
    """Losses that come near the charge, by either test function; what came out; and what it cost."""
    yield from (partial(_near, near, "exact") for near in (0.2, 0.5, 0.8, 0.95, 1 - 1e-9))
    yield from (partial(_near, near, "redrawn") for near in (0.5, 0.95, 1.2, 1.5, 1.8))
    yield from (partial(_between, code, code, "outcomes") for code in np.unique(told.outcomes).tolist())
    for charge in np.unique(np.quantile(told.charges, [0.1, 0.3, 0.5, 0.7, 0.9])).tolist():
        yield partial(_between, 0.0, charge, "charges")
        yield partial(_between, math.nextafter(charge, math.inf), math.inf, "charges")


def _near(near: float, name: str, told: Losses) -> Mask:
    mask: Mask = getattr(told, name) >= near * told.charges
    return mask


def _between(low: float, high: float, name: str, told: Losses) -> Mask:
    values = getattr(told, name)
    mask: Mask = (values >= low) & (values <= high)
    return mask


def zcdp_factor(ours: Losses, theirs: Losses, sure: float) -> float:
    """By how much the runs refute E_P[F] <= E_Q[F^(a/(a-1)) exp(a charge)]^((a-1)/a).

    F = exp((a-1) (min(L, top) - a charge)) for charges in a window, and 0 beside it, so that it is bounded; the order,
    the top and the window are those that do best on the first halves.
    """
    (our_choice, ours), (their_choice, theirs) = ours.halves(), theirs.halves()
    high = float(our_choice.charges.max())

    def factor(test: tuple[float, float, float], here: Losses, there: Losses, sure: float, within: float) -> float:
        a, top, low = test
        inside, outside = (_between(low, high, "charges", told) for told in (here, there))
        f = np.exp((a - 1) * (np.minimum(here.exact, top) - a * here.charges))[inside]
        least = _mean_at_least(f, len(inside), math.exp((a - 1) * (top - a * low)), sure / 2)
        loss, charges = np.minimum(there.exact, top)[outside], there.charges[outside]

        def refuted(s: float) -> bool:
            bound = math.exp(a * (top - (a - s) * (low if s <= a else high)))
            most = _mean_at_most(np.exp(a * (loss - (a - s) * charges)), len(outside), bound, sure / 2)
            return least > 0 and a * math.log(least) > (a - 1) * math.log(most)

        return _largest(refuted, within)

    tops = np.quantile(our_choice.exact, (0.9, 0.99, 0.999)).tolist()
    lows = np.unique(np.quantile(our_choice.charges, (0, 0.3))).tolist()
    tests = product((1.3, 2.0, 3.0, 5.0), tops, lows)
    best = max(tests, key=lambda test: factor(test, our_choice, their_choice, 0.1, _ROUGHLY))
    return factor(best, ours, theirs, sure, _CLOSELY)


def _largest(refuted: Callable[[float], bool], within: float) -> float:
    """The largest s up to 4 that is refuted; 0 if none is."""
    low, high = 0.0, 4.0
    while high - low > within:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def _share_at_least(hits: int, n: int, sure: float) -> float:
    """Clopper and Pearson."""
    return float(beta_law.ppf(sure, hits, n - hits + 1)) if hits else 0.0


def _mean_at_most(x: Floats, n: int, bound: float, sure: float) -> float:
    """An upper bound on the mean of a law on [0, bound], of which n draws are these and zeros (Maurer, Pontil 2009)."""
    return float(x.sum()) / n + _slack(x, n, bound, sure)


def _mean_at_least(x: Floats, n: int, bound: float, sure: float) -> float:
    return max(0.0, float(x.sum()) / n - _slack(x, n, bound, sure))


def _slack(x: Floats, n: int, bound: float, sure: float) -> float:
    log = math.log(2 / sure)
    variance = (float(x @ x) - float(x.sum()) ** 2 / n) / (n - 1)
    return math.sqrt(2 * max(0.0, variance) * log / n) + 7 * bound * log / (3 * (n - 1))
