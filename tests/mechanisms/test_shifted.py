"""One look with a shifted threshold: misses stay within beta, and the price is that of the papers."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from decision_problems import HARD, TREES, answered, at_the_threshold, decide, miss_rate, problem
from seeded_source import seeded

from mechanisms.decision import Problem, Solver
from mechanisms.loss import Coin
from mechanisms.shifted import margins_of, naive, tslm
from mechanisms.split import by_implicants


def tenth(asked: Problem) -> Solver:
    return tslm(asked, margins_of(asked, Fraction(1, 10)))


MECHANISMS = {"tslm": tenth, "naive": naive}


@pytest.mark.parametrize("coin", list(Coin))
@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("name", MECHANISMS)
def test_groups_exactly_at_the_threshold_are_missed_within_beta(name: str, tree: str, coin: Coin) -> None:
    _, low = miss_rate(MECHANISMS[name], tree, coin, seeded(f"{name}/{tree}/{coin}"), 400 if coin is Coin.PURE else 100)
    assert low <= 0.05


@pytest.mark.slow
@pytest.mark.vast
@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("name", MECHANISMS)
def test_groups_exactly_at_the_threshold_are_missed_within_beta_in_many_runs(name: str, tree: str) -> None:
    _, low = miss_rate(MECHANISMS[name], tree, Coin.PURE, seeded(f"many/{name}/{tree}"), 2000)
    assert low <= 0.05


def test_the_bound_on_misses_is_used_up_and_no_more() -> None:
    mean, _ = miss_rate(tenth, "single", Coin.PURE, seeded("used up"), 400)
    assert 0.045 < mean < 0.055


def test_a_conjunction_that_does_not_divide_beta_is_caught() -> None:
    def undivided(asked: Problem) -> Solver:
        return tslm(asked, margins_of(asked, Fraction(1, 10)), [asked.beta] * 3)

    _, low = miss_rate(undivided, "conjunction", Coin.PURE, seeded("undivided"), 100)
    assert low > 0.05


def test_a_disjunction_may_test_everything_at_the_full_beta() -> None:
    def whole(asked: Problem) -> Solver:
        return tslm(asked, margins_of(asked, Fraction(1, 10)), by_implicants(asked, asked.beta))

    mean, low = miss_rate(whole, "disjunction", Coin.PURE, seeded("whole"), 300)
    assert low <= 0.05 and mean > 0.035


@pytest.mark.parametrize(("margin", "epsilon"), [(80, 0.049), (40, 0.098)])
def test_example_5_1_of_the_thesis(margin: int, epsilon: float) -> None:
    """beta = 0.01 at a threshold of 200: ln(1/0.02)/80 = 0.049, and ln(1/0.02)/40 = 0.098."""
    asked = problem(TREES["single"], 2, beta="0.01")
    values = np.array([[10, 150]])
    runs = answered(lambda p: tslm(p, (margin,)), asked, values, seeded("example"), 400)
    assert float(runs[0].loss.amount) == pytest.approx(epsilon, rel=0.02)
    assert runs[0].decision.betas == (Decimal("0.01"),)
    assert runs[0].decision.alpha is None and runs[0].decision.expected_false is None
    kept = np.mean([run.decision.kept for run in runs], axis=0)
    assert kept[0] <= 0.02  # 10 lies outside [200 - 2*80, 200] and [200 - 2*40, 200]
    assert (kept[1] > 0.5) == (margin == 80)  # 150 lies in the uncertain region of 80 only at c - u = 120


def test_each_test_pays_for_its_own_draw() -> None:
    asked = problem(TREES["conjunction"], 50)
    values = np.zeros((3, 50), dtype=np.int64)
    solved = decide(naive, asked, values, seeded("price"))
    beta, margins = Decimal("0.05") / 3, [int(test.span * 0.12) for test in asked.tests]
    continuous = sum(np.log(1 / (2 * float(beta))) / u for u in margins)
    assert float(solved.loss.amount) == pytest.approx(continuous, rel=0.02)
    assert len(solved.losses) == 1


def test_zcdp_charges_half_the_square_of_each_draw() -> None:
    losses = {}
    for coin in Coin:
        asked, values = at_the_threshold("single", coin)
        losses[coin] = float(decide(naive, asked, values, seeded("coins")).loss.amount)
    assert losses[Coin.ZCDP] == pytest.approx(losses[Coin.PURE] ** 2 / 2, rel=1e-9)


def test_thresholds_may_differ_by_group_and_look_downwards() -> None:
    thresholds = np.array([100] * HARD + [900] * HARD)
    asked = problem(TREES["single"], 2 * HARD, directions=(-1,))
    told = replace(asked.tests[0], threshold=thresholds, scale=100, span=400)
    asked = replace(asked, tests=(told,))
    values = np.array([[700] * HARD + [900] * HARD])
    runs = answered(tenth, asked, values, seeded("downwards"), 200)
    kept = np.mean([run.decision.kept for run in runs], axis=0)
    assert kept[:HARD].max() == 0
    assert 0.94 < kept[HARD:].mean() < 0.97


def test_uncertain_groups_are_those_near_the_threshold() -> None:
    asked = problem(TREES["single"], 100)
    values = np.array([[200] * 40 + [10**6] * 50 + [-(10**6)] * 10])
    solved = decide(tenth, asked, values, seeded("uncertain"))
    assert 30 <= solved.decision.uncertain[0] <= 40
    assert solved.decision.kept[40:90].all() and not solved.decision.kept[90:].any()
