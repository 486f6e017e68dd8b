"""An average with a guard on the size of its groups, on real data: it is decided, and seldom denied.

The groups are those of Adult (bundled with the demo), most of them smaller than the guard. The noise is seeded, so the
share of denials is a number of this code; what it says about other noise is in its exact interval.
"""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from itertools import product

import numpy as np
import pytest
from decision_problems import prime_sets, truth
from scipy.stats import beta as beta_law
from seeded_source import seeded

from mechanisms import decision
from mechanisms.certify import cert
from mechanisms.condition import And, Leaf
from mechanisms.decision import Problem
from mechanisms.errors import AccuracyUnreachable
from mechanisms.loss import Coin, amount_within
from mechanisms.release import Staged
from mechanisms.solve import solve
from mechanisms.values import Exact, Lattice
from proxy.demo_data import adult

SUPPORT = 200
LOW, HIGH = 0, 100  # declared of both columns
PLACE = {"age": 0, "workclass": 1, "education": 3, "occupation": 6, "relationship": 7, "sex": 9, "hours_per_week": 12}
KEYS = (("education", "occupation"), ("occupation", "relationship", "sex"), ("workclass", "education", "sex"))
AVERAGES = {"hours_per_week": (38, 40, 42, 45, 48), "age": (35, 38, 42, 45, 48)}
HALF_OF_TEN = {Coin.PURE: Decimal(5), Coin.ZCDP: amount_within(Coin.ZCDP, Decimal(5), Decimal("5e-10"))}
"""What one decision takes of the demo's largest limit at the most."""


@cache
def column(name: str) -> tuple[str, ...]:
    return tuple(row[PLACE[name]] for row in rows())


@cache
def rows() -> tuple[tuple[object, ...], ...]:
    return tuple(adult())


@cache
def groups(keys: tuple[str, ...]) -> tuple[Lattice, int]:
    """The group of each row, among all that the keys' values could make."""
    domain = {key: place for place, key in enumerate(product(*(sorted(set(column(name))) for name in keys)))}
    return np.array([domain[key] for key in zip(*map(column, keys), strict=True)]), len(domain)


def asked(keys: tuple[str, ...], average: str, c: int, coin: Coin) -> tuple[Problem, Lattice]:
    """``HAVING avg(x) > c AND count(*) >= 200``: SUM(x - c) >= 1, on the scale that the guard gives it."""
    places, cells = groups(keys)
    above = np.bincount(places, weights=np.array(column(average), dtype=np.int64) - c, minlength=cells)
    values = np.stack([above.astype(np.int64), np.bincount(places, minlength=cells)])
    moved = max(c - LOW, HIGH - c)
    scales = (1, SUPPORT * moved), (SUPPORT, SUPPORT)
    tests = tuple(decision.Test(at, 1, least, scale, 2 * scale) for at, (least, scale) in enumerate(scales))
    tree = And((Leaf(0), Leaf(1)))
    sets = prime_sets(tree, True), prime_sets(tree, False)
    return Problem((moved, 1), tests, tree, *sets, cells, Decimal("0.05"), Decimal("0.1"), coin), values


def denials(coin: Coin, runs: int, seed: str) -> tuple[int, int]:
    """How many of all decisions were denied: every average and threshold, so many runs each."""
    denied = decided = 0
    for keys, (average, thresholds) in product(KEYS, AVERAGES.items()):
        for c, run in product(thresholds, range(runs)):
            problem, values = asked(keys, average, c, coin)
            staged = Staged(Exact(values), problem, seeded(f"{seed}/{keys}/{average}/{c}/{run}"))
            decided += 1
            try:
                solve(cert(problem), staged, HALF_OF_TEN[coin])
            except AccuracyUnreachable:
                denied += 1
    return denied, decided


def test_the_questions_are_of_all_kinds() -> None:
    shares = []
    for keys, (average, thresholds) in product(KEYS, AVERAGES.items()):
        for c in thresholds:
            problem, values = asked(keys, average, c, Coin.ZCDP)
            assert 150 <= problem.cells <= 300 and 0.15 < np.mean(values[1] >= SUPPORT) < 0.35
            shares.append(float(truth(problem, values).mean()))
    assert min(shares) < 0.01 and max(shares) > 0.2 and np.median(shares) > 0.04


def test_a_guarded_average_of_real_groups_is_seldom_denied() -> None:
    counted = [denials(coin, 1, "some") for coin in Coin]
    denied, decided = (sum(column) for column in zip(*counted, strict=True))
    assert decided >= 60 and denied <= 0.05 * decided


@pytest.mark.slow
@pytest.mark.parametrize("coin", Coin)
def test_at_most_five_percent_of_three_hundred_guarded_averages_are_denied(coin: Coin) -> None:
    """By the upper end of the exact interval of 99.9 %, which four denials would keep and five would not."""
    denied, decided = denials(coin, 10, "many")
    assert decided == 300
    assert float(beta_law.ppf(0.999, denied + 1, decided - denied)) <= 0.05
