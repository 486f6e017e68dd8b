"""DProvDB as printed (Algorithm 4), and the systems that it was compared with, as accounts of epsilon.

All add up epsilons, and pay a delta for every release beside them. A question that would break a limit is refused, and
the next one is tried. Where the printed text leaves a choice, it is made in their favour:

- an analyst who asks beyond the global synopsis pays min(its epsilon, what she paid + the epsilon of her own variance);
- a count has sensitivity 1 under ``chorus`` (their program charges the bins that it covers).

``NoFriction`` is not theirs: it shows how much of the difference is friction, and how much is how epsilons add up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from bench.synopsis.analytic import Price
from bench.synopsis.workload import Asked

_SLACK = 1e-12  # of sums of floats


class System(Protocol):
    """One ledger with its analysts."""

    def ask(self, who: int, asked: Asked) -> bool:
        """Answer the question, or refuse it."""

    def spent(self) -> float:
        """What the protected database has lost, as epsilon."""

    def spent_by(self, who: int) -> float:
        """What one analyst has learned, as epsilon."""

    def releases(self) -> int:
        """How often noise was added to data: each pays a delta, where deltas are added up."""


class DProvDB:
    """Additive Gaussian: a global synopsis for each view, local ones with noise added."""

    def __init__(self, price: Price, epsilon: float, limits: Sequence[float], views: int) -> None:
        self._price, self._table, self._limits = price, epsilon + _SLACK, [limit + _SLACK for limit in limits]
        self._global = [(0.0, math.inf)] * views  # epsilon, variance
        self._local = [[math.inf] * views for _ in limits]
        self._paid = [[0.0] * views for _ in limits]
        self._releases = 0

    def ask(self, who: int, asked: Asked) -> bool:
        view, wanted = asked.view, asked.variance / asked.bins
        if self._local[who][view] <= wanted:
            return True
        whole, variance = self._global[view]
        after = whole
        if variance > wanted:
            fresh = wanted if math.isinf(variance) else 1 / (1 / wanted - 1 / variance)
            after = whole + self._price.epsilon(fresh)
            if self.spent() + after - whole > self._table:
                return False
        paid = min(after, self._paid[who][view] + self._price.epsilon(wanted))
        if self.spent_by(who) + paid - self._paid[who][view] > self._limits[who]:
            return False
        if variance > wanted:
            self._global[view] = after, wanted
            self._releases += 1
        self._paid[who][view], self._local[who][view] = paid, wanted
        return True

    def spent(self) -> float:
        return sum(epsilon for epsilon, _ in self._global)

    def spent_by(self, who: int) -> float:
        return sum(self._paid[who])

    def releases(self) -> int:
        return self._releases


class NoFriction(DProvDB):
    """DProvDB if a view cost the epsilon of its present variance, however it got there; epsilons of views add up."""

    def ask(self, who: int, asked: Asked) -> bool:
        view, wanted = asked.view, asked.variance / asked.bins
        if self._local[who][view] <= wanted:
            return True
        whole, variance = self._global[view]
        paid = self._price.epsilon(wanted)
        after = max(whole, paid)
        more = paid - self._paid[who][view]
        if self.spent() + after - whole > self._table or self.spent_by(who) + more > self._limits[who]:
            return False
        self._releases += variance > wanted
        self._global[view] = after, min(variance, wanted)
        self._paid[who][view], self._local[who][view] = paid, wanted
        return True


class Vanilla:
    """A synopsis of each view for each analyst, drawn afresh where it is not accurate enough."""

    def __init__(self, price: Price, epsilon: float, limits: Sequence[float], views: int) -> None:
        self._price, self._table, self._limits = price, epsilon + _SLACK, [limit + _SLACK for limit in limits]
        self._local = [[math.inf] * views for _ in limits]
        self._paid = [0.0] * len(limits)
        self._releases = 0

    def ask(self, who: int, asked: Asked) -> bool:
        wanted = asked.variance / asked.bins
        if self._local[who][asked.view] <= wanted:
            return True
        if not self._pays(who, self._price.epsilon(wanted)):
            return False
        self._local[who][asked.view] = wanted
        return True

    def _pays(self, who: int, epsilon: float) -> bool:
        if self.spent() + epsilon > self._table or self._paid[who] + epsilon > self._limits[who]:
            return False
        self._paid[who] += epsilon
        self._releases += 1
        return True

    def spent(self) -> float:
        return sum(self._paid)

    def spent_by(self, who: int) -> float:
        return self._paid[who]

    def releases(self) -> int:
        return self._releases


class Chorus(Vanilla):
    """Every question is measured by itself; with the table's limit for everybody it does not tell analysts apart."""

    def ask(self, who: int, asked: Asked) -> bool:
        return self._pays(who, self._price.epsilon(asked.variance))


class PrivateSQL:
    """All views are released once, each with an equal part of the budget."""

    def __init__(self, price: Price, epsilon: float, limits: Sequence[float], views: int) -> None:
        self._epsilon, self._views = epsilon, views
        self._variance = price.variance(epsilon / views)

    def ask(self, who: int, asked: Asked) -> bool:
        return self._variance <= asked.variance / asked.bins

    def spent(self) -> float:
        return self._epsilon

    def spent_by(self, who: int) -> float:
        return self._epsilon

    def releases(self) -> int:
        return self._views
