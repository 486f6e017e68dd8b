"""How surely a group qualifies, as a number that may be added up over groups.

A credit h <= 1 is *fair* at a rate r if E[exp(r h)] <= 1 for every group that does not qualify: then the credits of
all such groups together exceed ln(1/d)/r with probability at most d (Markov), whatever the data.

*One test.* Let y be the number of a group that fails, and s the chance that noise alone carries a group at the very
edge as far as y, given that it carries it beyond the edge. Given that y lies beyond the edge, s is uniform or larger
(for Laplace noise, which has no memory, whatever the group; for Gaussian noise a group further down is carried less
far). So h = min(1, (ln(1/s) - t) / r) beyond the edge, and 0 before it, is fair where the integral of exp(r h) over s
in (0, 1), which is exp(-t) (1 + t + r), is 1: the *toll* t of each group that claims to qualify. Among all fair credits
this one is largest for groups whose numbers are spread evenly beyond the edge (exp(r h) follows the density of s).

*A tree.* A conjunction fails because one part fails: the least credit of its parts is fair. A disjunction fails because
all parts fail: if they rest on different statistics, whose noises are independent, the sum is fair; if not, the mean.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import scipy  # its parts are loaded where they are first used: a proxy starts without them

from mechanisms import ladder
from mechanisms.condition import And, Condition, Leaf, Or, atoms
from mechanisms.decision import Estimates
from mechanisms.field import Field
from mechanisms.loss import Coin

_SAFETY = 1.02
"""A Gaussian path is a sum of lattice variables: its law is the normal one but for less than this."""


def credit(field: Field, rate: float) -> Estimates:
    """The fair credits of all groups."""
    credits: Estimates = np.minimum(1.0, _credit(field, field.problem.tree, rate))
    return credits


@lru_cache(maxsize=256)
def toll(rate: float) -> float:
    """The t with exp(-t) (1 + t + rate) = 1, rounded up."""
    low, high = 0.0, 2 + 2 * rate
    for _ in range(80):
        middle = (low + high) / 2
        if math.log1p(middle + rate) > middle:
            low = middle
        else:
            high = middle
    return high


def _credit(field: Field, tree: Condition[int], rate: float) -> Estimates:
    match tree:
        case Leaf(test):
            return _of_test(field, test, rate)
        case And(parts):
            least: Estimates = np.minimum.reduce([_credit(field, part, rate) for part in parts])
            return least
        case Or(parts):
            added: Estimates = np.add.reduce([np.minimum(1.0, _credit(field, part, rate)) for part in parts])
            return added if _independent(field, parts) else added / len(parts)


def _independent(field: Field, parts: tuple[Condition[int], ...]) -> bool:
    used = [{field.problem.tests[test].statistic for test in atoms(part)} for part in parts]
    return sum(map(len, used)) == len(set().union(*used))


def _of_test(field: Field, test: int, rate: float) -> Estimates:
    credits: Estimates = np.zeros(field.problem.cells)
    beyond = field.beyond_failing(test)
    if beyond is None:
        return credits
    passing = np.flatnonzero(beyond > 0)
    wide = ladder.width(field.levels[field.problem.tests[test].statistic])
    told = np.minimum(1.0, (_surprise(field.problem.coin, beyond[passing], wide) - toll(rate)) / rate)
    credits[passing] = told
    return credits


def _surprise(coin: Coin, beyond: Estimates, wide: float) -> Estimates:
    """ln(1/s) of numbers that lie beyond the edge, rounded down."""
    match coin:
        case Coin.PURE:
            return (np.maximum(beyond, 1.0) - 1) / wide
        case Coin.ZCDP:
            offset = 0.5 + max(0.0435, 5 / (6 * wide)) if wide >= 5 / 3 else 1.0
            told = (
                scipy.special.log_ndtr(-offset / wide)
                - scipy.special.log_ndtr((offset - beyond) / wide)
                - math.log(_SAFETY)
            )
            return np.asarray(np.maximum(0.0, told))
