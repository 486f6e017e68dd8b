"""Min-entropy: the search agrees with brute force and with the thesis' own algorithm, and the bound is a bound."""

from __future__ import annotations

import math
import random
import time
from decimal import Decimal
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from decision_problems import problem
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.account import Account
from mechanisms.condition import Leaf
from mechanisms.decision import Fresh
from mechanisms.entropy import entropy_bound, min_entropy, normalised
from mechanisms.noise import DiscreteLaplace


def bounds(losses: list[float]) -> tuple[list[float], list[float]]:
    """Lemma 5.1 of the thesis."""
    ups, downs = sum(math.exp(e) for e in losses), sum(math.exp(-e) for e in losses)
    return [math.exp(-e) / ups for e in losses], [math.exp(e) / downs for e in losses]


def entropy(beliefs: list[float]) -> float:
    return -sum(p * math.log(p) for p in beliefs if p > 0)


def brute_force(losses: list[float]) -> float:
    """Every vertex: each belief on one of its bounds, except one that takes what is left."""
    low, high = bounds(losses)
    best = math.inf
    for raised in range(1 << len(losses)):
        beliefs = [high[i] if raised >> i & 1 else low[i] for i in range(len(losses))]
        for free in range(len(losses)):
            rest = 1 - sum(beliefs) + beliefs[free]
            if low[free] - 1e-13 <= rest <= high[free] + 1e-13:
                best = min(best, entropy([*beliefs[:free], rest, *beliefs[free + 1 :]]))
    return best


def by_the_thesis(losses: list[float]) -> float:
    """Algorithm 5: the last one takes as much slack as it can, or as little; the better of the two."""
    pairs = sorted(zip(*bounds(losses), strict=True), key=lambda pair: pair[1])
    widths = [high - low for low, high in pairs]

    @cache
    def beliefs(k: int, slack: float) -> tuple[float, ...]:
        low, width = pairs[k - 1][0], widths[k - 1]
        if k == 1:
            return (low + slack,)
        most = min(width, slack)
        others = min(sum(widths[: k - 1]), slack)
        one = (*beliefs(k - 1, slack - most), low + most)
        two = (*beliefs(k - 1, others), low + slack - others)
        return min((one, two), key=lambda found: entropy(list(found)))

    return entropy(list(beliefs(len(losses), 1 - sum(low for low, _ in pairs))))


@st.composite
def some_losses(draw: st.DrawFn) -> list[float]:
    levels = draw(st.lists(st.floats(0, draw(st.sampled_from([0.02, 0.3, 1.0, 4.0]))), min_size=1, max_size=6))
    return draw(st.lists(st.sampled_from(levels), min_size=2, max_size=6))


@given(some_losses())
def test_the_search_agrees_with_brute_force_and_with_the_thesis(losses: list[float]) -> None:
    found = min_entropy(losses, [1] * len(losses))
    assert found == pytest.approx(brute_force(losses), abs=1e-9)
    assert found == pytest.approx(by_the_thesis(losses), abs=1e-9)
    assert entropy_bound(losses, [1] * len(losses)) <= found + 1e-9


def test_many_random_cases_agree_with_brute_force() -> None:
    chance = random.Random(11)
    for _ in range(1500):
        size, top = chance.randint(2, 6), chance.choice([0.02, 0.2, 1, 4])
        levels = [chance.uniform(0, top) for _ in range(chance.randint(1, size))]
        losses = [chance.choice(levels) for _ in range(size)]
        assert min_entropy(losses, [1] * size) == pytest.approx(brute_force(losses), abs=1e-9)


@given(some_losses(), st.integers(1, 4))
def test_groups_of_one_loss_may_be_counted_together(losses: list[float], times: int) -> None:
    together = min_entropy(losses, [times] * len(losses), effort=10**5)
    assert together == pytest.approx(min_entropy(losses * times, [1] * len(losses) * times, effort=10**5), abs=1e-9)
    assert entropy_bound(losses, [times] * len(losses)) == pytest.approx(
        entropy_bound(losses * times, [1] * (len(losses) * times)), abs=1e-9
    )


@given(some_losses(), st.integers(0, 5), st.floats(0.01, 1))
def test_a_larger_loss_never_leaves_more_uncertainty(losses: list[float], which: int, more: float) -> None:
    raised = list(losses)
    raised[which % len(losses)] += more
    ones = [1] * len(losses)
    assert min_entropy(raised, ones) <= min_entropy(losses, ones) + 1e-9


def test_nothing_lost_is_full_uncertainty_and_everything_lost_is_none() -> None:
    assert normalised(min_entropy([0.0], [600]), 600) == pytest.approx(1.0)
    assert normalised(entropy_bound([0.0], [600]), 600) == pytest.approx(1.0)
    assert min_entropy([900.0, 1.0], [3, 4]) == pytest.approx(0.0)
    assert normalised(0.0, 1) == 1.0


def test_of_two_spends_with_one_maximum_and_one_mean_the_metric_tells_which_is_worse() -> None:
    """The thesis' example of section 5.2.2."""
    first, second = min_entropy([0.1, 0.5, 1.0], [1, 1, 1]), min_entropy([0.2, 0.4, 1.0], [1, 1, 1])
    assert first == pytest.approx(brute_force([0.1, 0.5, 1.0]), abs=1e-9)
    assert second == pytest.approx(brute_force([0.2, 0.4, 1.0]), abs=1e-9)
    assert abs(first - second) > 1e-4


@pytest.mark.parametrize("start", [0.01, 0.1, 0.5])
def test_ten_levels_of_six_hundred_groups_are_searched_to_the_end(start: float) -> None:
    losses, counts = [start * 1.4**i for i in range(10)], [60] * 10
    assert min_entropy(losses, counts) == min_entropy(losses, counts, effort=10**6)


@pytest.mark.parametrize("losses", [[0.1 + 0.001 * i for i in range(10)], [1 + 0.01 * i for i in range(10)]])
def test_a_search_that_is_cut_short_tells_a_bound(losses: list[float]) -> None:
    counts = [37 + 5 * i for i in range(10)]
    best_of_five, found = math.inf, 0.0
    for _ in range(5):
        begun = time.process_time()
        found = min_entropy(losses, counts)
        best_of_five = min(best_of_five, time.process_time() - begun)
    assert best_of_five < 0.15
    longer = min_entropy(losses, counts, effort=5000)
    one_group = math.log(sum(counts)) / sum(counts)
    assert entropy_bound(losses, counts) <= found <= longer + 1e-10
    assert longer < entropy_bound(losses, counts) + one_group


def test_the_bound_is_quick_for_a_hundred_thousand_groups() -> None:
    losses = np.random.default_rng(5).uniform(0, 2, 100_000).tolist()
    begun = time.process_time()
    assert 0 < entropy_bound(losses, [1] * 100_000) < math.log(100_000)
    assert time.process_time() - begun < 2


def test_no_groups_and_negative_losses_are_not_a_spend() -> None:
    for losses, counts in (([], []), ([-0.1], [3]), ([0.1], [0])):
        with pytest.raises(ValueError):
            min_entropy(losses, counts)
        with pytest.raises(ValueError):
            entropy_bound(losses, counts)


def test_predicate_wise_losses_add_up_to_less_than_the_largest_ones_do() -> None:
    """The thesis' example: (0.1, 0.5) and then (0.5, 0.1) cost 0.6 in each group, not 0.5 + 0.5 = 1.0."""
    asked = problem(Leaf(0), 2)
    account = Account(asked)
    cells = (np.array([True, False]), np.array([False, True]))
    for first, second in (("0.1", "0.5"), ("0.5", "0.1")):
        account.book(
            [
                Fresh(0, cell, DiscreteLaplace(Fraction(epsilon), 1))
                for cell, epsilon in zip(cells, (first, second), strict=True)
            ]
        )
    assert account.total().amount == Decimal("0.6")
    assert account.cells()[0] == (Decimal("0.6"),)
