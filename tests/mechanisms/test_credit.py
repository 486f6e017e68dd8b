"""Credits are fair: for a group that fails, exp(rate x credit) is at most 1 on average, summed over the exact law."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from decision_problems import problem

from mechanisms import credit as credits
from mechanisms import ladder
from mechanisms.condition import And, Condition, Leaf, Or
from mechanisms.credit import credit, toll
from mechanisms.decision import Estimates, Refine
from mechanisms.field import Field
from mechanisms.loss import Coin

RATES = (0.003, 0.05, 0.5, 3.0)
HAIR = 1e-9  # for rounding in a sum of many floats
Law = tuple[Estimates, Estimates]  # values and their probabilities


def level_of(width: float) -> int:
    """The first level that is at most so wide."""
    return next(level for level in range(ladder.LEVELS) if ladder.width(level) <= width)


def gaussian_law(levels: Sequence[int]) -> Law:
    """The exact law of a path that stopped at each of these levels: independent increments, weighted by precision."""
    values, chances, before = np.zeros(1), np.ones(1), ladder.NOTHING
    for level in levels:
        gained = float(ladder.precision(level) - ladder.precision(before))
        reach = int(9.5 * gained**-0.5) + 2
        drawn = np.arange(-reach, reach + 1)
        weight = np.exp(-drawn * drawn * gained / 2)
        values = np.add.outer(values, drawn * gained / float(ladder.precision(level))).ravel()
        chances = np.multiply.outer(chances, weight / weight.sum()).ravel()
        if level != levels[-1]:
            values = values * float(ladder.precision(level) / ladder.precision(levels[levels.index(level) + 1]))
        before = level
    return values, chances


def laplace_law(level: int) -> Law:
    wide = ladder.width(level)
    drawn = np.arange(-int(40 * wide) - 2, int(40 * wide) + 3).astype(np.float64)
    weight = np.exp(-np.abs(drawn) / wide)
    return drawn, weight / weight.sum()


def credited(tree: Condition[int], coin: Coin, level: int, beyond: Sequence[Estimates], rate: float) -> Estimates:
    """The credits of groups whose numbers lie so far beyond what fails, one array for each statistic."""
    asked = problem(tree, len(beyond[0]), thresholds=(500,) * 3, scales=(1023,) * 3, coin=coin)
    field = Field(asked)
    everyone = np.ones(asked.cells, dtype=np.bool_)
    for statistic, distances in enumerate(beyond):
        assert field.parts[statistic] == 1
        field.take([Refine(statistic, everyone, level, 1)], [499 + distances])
    return credit(field, rate)


def moment(law: Law, coin: Coin, level: int, below: int, rate: float) -> float:
    """E[exp(rate h)] for a group that lies so far below the edge."""
    values, chances = law
    return float(np.exp(rate * credited(Leaf(0), coin, level, [values - below], rate)) @ chances)


@pytest.mark.parametrize("width", [0.3, 1, 2, 7, 60, 2000])
def test_laplace_credits_are_fair(width: float) -> None:
    level = level_of(width)
    law = laplace_law(level)
    for rate in RATES:
        for below in {0, 1, 3, int(width), int(5 * width)}:
            assert moment(law, Coin.PURE, level, below, rate) <= 1 + HAIR


@pytest.mark.parametrize("width", [0.3, 0.8, 1.7, 2, 5, 12, 200, 2000])
@pytest.mark.parametrize("factors", [(1.0,), (1.3, 1.0), (6.0, 1.0), (1.06, 1.0), (3.0, 1.5, 1.0)])
def test_gaussian_credits_are_fair_whatever_the_increments(width: float, factors: tuple[float, ...]) -> None:
    levels = [level_of(width * factor) for factor in factors]
    if levels[0] < ladder.coarsest(Coin.ZCDP) or (len(factors) > 1 and width > 100) or (len(factors) > 2 and width > 3):
        levels = levels[-1:]  # too wide, or too many combinations to sum over
    law = gaussian_law(levels)
    for rate in RATES:
        for below in {0, 1, 2, 5, int(width), int(3 * width)}:
            assert moment(law, Coin.ZCDP, levels[-1], below, rate) <= 1 + HAIR


@pytest.mark.parametrize("coin", Coin)
def test_credits_that_are_a_little_too_generous_are_caught(coin: Coin, monkeypatch: pytest.MonkeyPatch) -> None:
    level = level_of(60)
    law = laplace_law(level) if coin is Coin.PURE else gaussian_law([level])
    monkeypatch.setattr(credits, "toll", lambda rate: 0.93 * toll(rate))
    assert moment(law, coin, level, 0, 3.0) > 1.001


def test_the_toll_is_the_least_that_is_fair() -> None:
    surprise = -np.log((np.arange(200_000) + 0.5) / 200_000)
    for rate in RATES:

        def moment(fee: float, rate: float = rate) -> float:
            return float(np.exp(np.minimum(rate, surprise - fee)).mean())

        assert moment(toll(rate)) == pytest.approx(1, abs=1e-5)
        assert moment(toll(rate) - 1e-3) > 1


@pytest.mark.parametrize("rate", RATES)
def test_trees_of_credits_are_fair_for_whoever_fails(rate: float) -> None:
    level = level_of(8)
    values, chances = laplace_law(level)
    pairs = [part.ravel() for part in np.meshgrid(values, values)]
    both = np.multiply.outer(chances, chances).ravel()
    for tree, below in ((And((Leaf(0), Leaf(1))), (0, -40)), (Or((Leaf(0), Leaf(1))), (0, 0))):
        told = credited(tree, Coin.PURE, level, [pairs[0] - below[0], pairs[1] - below[1]], rate)
        assert told.max() <= 1
        assert np.exp(rate * told) @ both <= 1 + HAIR


def test_two_parts_on_one_statistic_do_not_count_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    level, rate = level_of(60), 3.0
    values, chances = laplace_law(level)
    tree = Or((Leaf(0), Leaf(1)))

    def fair() -> float:
        asked = problem(tree, len(values), thresholds=(500, 500), scales=(1023, 1023), same_statistic=True)
        field = Field(asked)
        field.take([Refine(0, np.ones(asked.cells, dtype=np.bool_), level, 1)], [499 + values])
        return float(np.exp(rate * credit(field, rate)) @ chances)

    assert fair() <= 1 + HAIR
    monkeypatch.setattr(credits, "_independent", lambda field, parts: True)
    assert fair() > 1.01


def test_what_was_not_measured_earns_nothing() -> None:
    asked = problem(Leaf(0), 5)
    assert not credit(Field(asked), 1.0).any()


def test_a_group_far_beyond_the_edge_earns_all_its_credit() -> None:
    level = level_of(60)
    for coin in Coin:
        assert credited(Leaf(0), coin, level, [np.full(1, 5000.0)], 1.0)[0] == pytest.approx(1)
