"""The mirrored decision keeps alpha for every group: it is the plain one about the negated tree."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from decision_problems import TREES, prime_sets, problem, truth
from seeded_source import seeded

from mechanisms.decision import Problem
from mechanisms.loss import Coin
from mechanisms.mirror import mirrored
from mechanisms.named import solver
from mechanisms.release import Staged
from mechanisms.solve import Solved, solve
from mechanisms.values import Exact, Lattice


def decided(asked: Problem, values: Lattice, seed: str) -> Solved:
    return solve(solver("cert", asked, (), mirror=True), Staged(Exact(values), asked, seeded(seed)), None)


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES.keys())
def test_the_negated_tree_holds_just_where_the_tree_does_not(tree: object) -> None:
    asked = problem(tree, 400, directions=(1, -1, 1), thresholds=(5, 5, 5))  # type: ignore[arg-type]
    values = np.random.default_rng(1).integers(0, 11, (len(asked.tests), 400))
    negated = mirrored(asked)
    assert (truth(negated, values) == ~truth(asked, values)).all()
    assert set(negated.implicants) == set(prime_sets(negated.tree, True))
    assert set(negated.implicates) == set(prime_sets(negated.tree, False))


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES.keys())
def test_a_decision_mirrored_twice_is_the_decision(tree: object) -> None:
    asked = problem(tree, 3, directions=(1, -1, 1), beta="0.2", alpha="0.3")  # type: ignore[arg-type]
    again = mirrored(mirrored(asked))
    assert (again.tree, again.beta, again.alpha) == (asked.tree, asked.beta, asked.alpha)
    assert [(test.direction, test.threshold) for test in again.tests] == [
        (test.direction, test.threshold) for test in asked.tests
    ]


def test_thresholds_of_each_group_are_negated_one_by_one() -> None:
    asked = problem(TREES["single"], 4)
    each = replace(asked, tests=(replace(asked.tests[0], threshold=np.array([1, 2, 3, 4])),))
    assert np.asarray(mirrored(each).tests[0].threshold).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("coin", Coin)
def test_who_fails_just_so_is_kept_with_probability_alpha_at_most(coin: Coin) -> None:
    hard, cells, runs = 12, 80, 25
    asked = problem(TREES["single"], cells, thresholds=(200,), alpha="0.05", beta="0.5", coin=coin)
    values = np.where(np.arange(cells) < hard, 199, 420)[None, :].astype(np.int64)
    rates = np.array([decided(asked, values, f"{coin}/{run}").decision.kept[:hard].mean() for run in range(runs)])
    assert rates.mean() - 3.29 * rates.std(ddof=1) / runs**0.5 <= 0.05


def test_what_is_clear_is_decided_rightly_and_the_promises_are_those_that_were_asked_for() -> None:
    asked = problem(TREES["mixed"], 60, alpha="0.001", beta="0.01")
    values = np.where(np.arange(60) < 50, 2000, 0)[None, :].repeat(3, axis=0).astype(np.int64)
    decision = decided(asked, values, "clear").decision
    assert (decision.kept == truth(asked, values)).all()
    assert (decision.alpha, decision.beta) == (Decimal("0.001"), Decimal("0.01"))
    assert decision.betas == (Decimal("0.01"),) * 3
