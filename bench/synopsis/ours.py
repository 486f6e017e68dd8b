"""pgveil on the same questions: the planner's steps, priced in rho, under limits that mean the same epsilons.

Without values only the accounts are kept; with a ``source`` every release and every part of one is really drawn.
Several independent ``copies`` of every view may be drawn at once: answers from one synopsis share its noise, so that
the errors of one copy say little.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from bench.synopsis.workload import BINS, Asked
from mechanisms.loss import Coin
from mechanisms.noise import DiscreteGaussian
from mechanisms.sampler import Source, draw
from mechanisms.synopsis import FRESH, Known, Partial, Release, Step, advanced, draw_partial, estimate
from mechanisms.values import Lattice
from provenance import accountant
from provenance.model import Allocation, Analyst, Deployment
from provenance.plan import Choice, Cost, OnView, plan

UNITS = 16
"""Lattice units to a row: so that noise may be added to a release that is sharper than a row."""
LEAST = Fraction(1, 32)
"""A global synopsis grows by at least this part, while that fits, so that it is made of few releases."""


def deployment(epsilon: Decimal, delta: Decimal) -> Deployment:
    """A ledger in rho; half of its delta is for what these questions do not use, as in every deployment."""
    half = delta / 2
    return Deployment(Coin.ZCDP, epsilon, delta, Allocation.MAX, Decimal(1), half, half, 1, 1)


class Pgveil:
    """One ledger with its analysts, in memory."""

    def __init__(
        self,
        epsilon: Decimal,
        delta: Decimal,
        limits: Sequence[Decimal],
        views: int,
        source: Source | None = None,
        copies: int = 1,
    ) -> None:
        self._deployment = deployment(epsilon, delta)
        self._worth = [
            accountant.worth(self._deployment, accountant.limit(self._deployment, Analyst("", 1, limit, {}, True)))
            for limit in limits
        ]
        self._whole = accountant.worth(self._deployment, epsilon)
        self._table, self._paid = Decimal(0), [Decimal(0) for _ in limits]
        self._releases: list[list[Release]] = [[] for _ in range(views)]
        self._known = [[Known() for _ in range(views)] for _ in limits]
        self._precision = [[Fraction(0)] * views for _ in limits]
        self._source, self._copies = source, copies
        self._estimates: dict[tuple[int, int], Lattice] = {}
        self.last: Choice | None = None

    def ask(self, who: int, asked: Asked) -> bool:
        view, wanted = asked.view, Fraction(asked.bins, asked.variance * UNITS * UNITS)
        have = self._precision[who][view]
        if have >= wanted:
            self.last = None
            return True
        left = Cost(self._worth[who] - self._paid[who], self._whole - self._table)
        # No way costs less than what is missing: a quick no, since most of what is asked last is refused.
        if (wanted - have) * (UNITS * UNITS) / 2 > Fraction(left.analyst):
            return False
        for least in (LEAST, Fraction(0)):
            way = OnView(str(view), self._releases[view], self._known[who][view], wanted, UNITS)
            chosen = plan([way], Coin.ZCDP, left, least).chosen
            if chosen.cost.analyst <= left.analyst and chosen.cost.database <= left.database:
                assert chosen.step is not None
                self._do(who, view, chosen.step)
                self._paid[who] += chosen.cost.analyst
                self._table += chosen.cost.database
                self.last = chosen
                return True
        return False

    def _do(self, who: int, view: int, step: Step) -> None:
        releases, known = self._releases[view], self._known[who][view]
        if step.grow is not None:
            values = None
            if self._source is not None:  # the truth is 0 everywhere: what is shown is the error
                values = draw(DiscreteGaussian(step.grow), BINS * self._copies, self._source)
            releases.append(Release(len(releases), step.grow, values))
        partial = None
        if step.partial is not None and self._source is not None:
            place = len(releases) - 1 if step.partial[0] == FRESH else step.partial[0]
            before: Partial | None = known.partial
            if before is not None and before.release != place:
                before = None
            partial = draw_partial(releases[place], before, step.partial[1], self._source)
        self._known[who][view] = advanced(known, step, partial, len(releases) - 1)
        self._precision[who][view] = step.precision
        self._estimates.pop((who, view), None)

    def shown(self, who: int, asked: Asked, first: int) -> NDArray[np.float64]:
        """The errors of an answer, in rows, one for each copy of the view; ``first`` is the first bin of the range."""
        view = asked.view
        if (who, view) not in self._estimates:
            self._estimates[who, view] = estimate(self._releases[view], self._known[who][view])[0]
        cells = self._estimates[who, view].reshape(self._copies, BINS)
        return np.asarray(cells[:, first : first + asked.bins].sum(axis=1) / UNITS, dtype=np.float64)

    def promised(self, who: int, asked: Asked) -> float:
        """The variance that an answer has, in rows squared; rounding to the lattice adds a little."""
        return asked.bins * (float(1 / self._precision[who][asked.view]) + 1 / 12) / UNITS**2

    def spent(self) -> float:
        return float(accountant.epsilon_spent(self._deployment, self._table))

    def spent_by(self, who: int) -> float:
        return float(accountant.epsilon_spent(self._deployment, self._paid[who]))

    def releases(self) -> int:
        return sum(len(view) for view in self._releases)
