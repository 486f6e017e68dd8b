"""How surely a group qualifies, as a number that may be added up over groups.

A credit h <= 1 is *fair* at a rate r if E[exp(r h)] <= 1 for every group that does not qualify: then the credits of
all such groups together exceed ln(1/d)/r with probability at most d (Markov), whatever the data.

*One test.* Let y be the number of a group that fails, and s the chance that noise alone carries a group at the very
edge as far as y, given that it carries it beyond the edge. Given that y lies beyond the edge, s is uniform or larger
(for Laplace noise, which has no memory, whatever the group; for Gaussian noise a group further down is carried less
far). So h = 1 - k s beyond the edge, and 0 before it, is fair where the integral of exp(r (1 - k s)) over (0, 1) is 1.

*A tree.* A conjunction fails because one part fails: the least credit of its parts is fair. A disjunction fails because
all parts fail: if they rest on different statistics, whose noises are independent, the sum is fair; if not, the mean.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import special

from mechanisms import ladder
from mechanisms.condition import And, Condition, Leaf, Or, atoms
from mechanisms.decision import Estimates
from mechanisms.field import Field
from mechanisms.loss import Coin

_SAFETY = 1.02
"""A Gaussian path is a sum of lattice variables: its law is the normal one but for less than this."""


def credit(field: Field, rate: float) -> Estimates:
    """The fair credits of all groups."""
    credits: Estimates = np.minimum(1.0, _credit(field, field.problem.tree, steepness(rate)))
    return credits


@lru_cache(maxsize=256)
def steepness(rate: float) -> float:
    """The k with integral of exp(rate (1 - k s)) over (0, 1) = 1, rounded up."""
    low, high = 1.0, 2 * math.exp(rate) / rate + 2
    for _ in range(80):
        middle = (low + high) / 2
        # exp(rate) (1 - exp(-rate k)) / (rate k) falls with k
        if math.exp(rate) * -math.expm1(-rate * middle) > rate * middle:
            low = middle
        else:
            high = middle
    return high


def _credit(field: Field, tree: Condition[int], steep: float) -> Estimates:
    match tree:
        case Leaf(test):
            return _of_test(field, test, steep)
        case And(parts):
            least: Estimates = np.minimum.reduce([_credit(field, part, steep) for part in parts])
            return least
        case Or(parts):
            added: Estimates = np.add.reduce([np.minimum(1.0, _credit(field, part, steep)) for part in parts])
            return added if _independent(field, parts) else added / len(parts)


def _independent(field: Field, parts: tuple[Condition[int], ...]) -> bool:
    used = [{field.problem.tests[test].statistic for test in atoms(part)} for part in parts]
    return sum(map(len, used)) == len(set().union(*used))


def _of_test(field: Field, test: int, steep: float) -> Estimates:
    beyond = field.beyond_failing(test)
    if beyond is None:
        return np.zeros(field.problem.cells)
    statistic = field.problem.tests[test].statistic
    wide = ladder.width(field.levels[statistic])
    match field.problem.coin:
        case Coin.PURE:
            chance = np.exp(-(np.maximum(beyond, 1.0) - 1) / wide)
        case Coin.ZCDP:
            offset = 0.5 + max(0.0435, 5 / (6 * wide)) if wide >= 5 / 3 else 1.0
            chance = special.ndtr(-(beyond - offset) / wide) / special.ndtr(-offset / wide)
            steep *= _SAFETY
    credits: Estimates = np.where(beyond > 0, 1 - steep * np.minimum(1.0, chance), 0.0)
    return credits
