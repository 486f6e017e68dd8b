"""Small decision problems for tests of mechanisms: a tree, its prime sets, and data at chosen distances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import product

import numpy as np

from mechanisms.condition import And, Condition, Leaf, Or, atoms
from mechanisms.decision import Mask, Problem, Solver, Test
from mechanisms.errors import AccuracyUnreachable
from mechanisms.loss import Coin
from mechanisms.release import Staged
from mechanisms.sampler import Source
from mechanisms.solve import Solved, solve
from mechanisms.values import Exact, Lattice

ONE, TWO, THREE = Leaf(0), Leaf(1), Leaf(2)
TREES: dict[str, Condition[int]] = {
    "single": ONE,
    "conjunction": And((ONE, TWO, THREE)),
    "disjunction": Or((ONE, TWO, THREE)),
    "mixed": Or((ONE, And((TWO, THREE)))),
    "repeated": And((Or((ONE, TWO)), Or((ONE, THREE)))),
}


def prime_sets(tree: Condition[int], conjunctive: bool) -> tuple[frozenset[int], ...]:
    """Prime implicants (or implicates), by absorbing what the distributive law gives."""

    def sets(part: Condition[int]) -> list[frozenset[int]]:
        match part:
            case Leaf(test):
                return [frozenset((test,))]
            case And(parts) | Or(parts):
                children = [sets(child) for child in parts]
                if isinstance(part, And) == conjunctive:
                    return [frozenset[int]().union(*chosen) for chosen in product(*children)]
                return [found for child in children for found in child]

    found = set(sets(tree))
    return tuple(sorted((s for s in found if not any(other < s for other in found)), key=sorted))


def problem(
    tree: Condition[int],
    cells: int,
    *,
    thresholds: Sequence[int] = (200, 300, 400, 250, 350, 500),
    sensitivities: Sequence[int] | None = None,
    spans: Sequence[int] | None = None,
    scales: Sequence[int] | None = None,
    beta: str = "0.05",
    alpha: str = "0.1",
    coin: Coin = Coin.PURE,
    same_statistic: bool = False,
    directions: Sequence[int] = (1, 1, 1, 1, 1, 1),
) -> Problem:
    """Counts against thresholds; by default the range is four times the threshold and the scale the threshold."""
    many = max(atoms(tree)) + 1
    moved = tuple(sensitivities or (1,) * (1 if same_statistic else many))
    tests = tuple(
        Test(
            0 if same_statistic else i,
            directions[i],
            thresholds[i],
            scales[i] if scales else thresholds[i],
            spans[i] if spans else 4 * thresholds[i],
        )
        for i in range(many)
    )
    return Problem(
        moved,
        tests,
        tree,
        prime_sets(tree, True),
        prime_sets(tree, False),
        cells,
        Decimal(beta),
        Decimal(alpha),
        coin,
    )


def decide(make: Callable[[Problem], Solver], asked: Problem, values: Lattice, source: Source) -> Solved:
    """One run without a cap."""
    return solve(make(asked), Staged(Exact(values), asked, source), None)


def answered(
    make: Callable[[Problem], Solver], asked: Problem, values: Lattice, source: Source, runs: int
) -> list[Solved]:
    """The runs that were answered, of so many."""
    found = []
    for _ in range(runs):
        try:
            found.append(decide(make, asked, values, source))
        except AccuracyUnreachable:
            continue
    return found


def truth(asked: Problem, values: Lattice) -> Mask:
    """Which groups qualify."""

    def of(tree: Condition[int]) -> Mask:
        match tree:
            case Leaf(i):
                test = asked.tests[i]
                return np.asarray((values[test.statistic] - test.threshold) * test.direction >= 0)
            case And(parts):
                return np.asarray(np.logical_and.reduce([of(part) for part in parts]))
            case Or(parts):
                return np.asarray(np.logical_or.reduce([of(part) for part in parts]))

    return of(asked.tree)


HARD = 20
"""So many groups of ``at_the_threshold`` qualify, and just so."""
HARDEST: dict[str, tuple[int, ...]] = {
    "single": (0,),
    "conjunction": (0, 1, 2),
    "disjunction": (0,),
    "mixed": (1, 2),
    "repeated": (1, 2),
}
"""The tests that stand between a qualifying group and a miss at the worst: all of them just met, all others far off."""


def at_the_threshold(tree: str, coin: Coin, *, cells: int = 200) -> tuple[Problem, Lattice]:
    """The worst case for misses; half of the other groups are near enough to be looked at again."""
    asked = problem(TREES[tree], cells, spans=[2 * c for c in (200, 300, 400)], alpha="0.5", coin=coin)
    values = np.zeros((len(asked.tests), cells), dtype=np.int64)
    for i, test in enumerate(asked.tests):
        if i in HARDEST[tree]:
            values[i, HARD : cells // 2] = int(test.threshold) // 2
            values[i, :HARD] = int(test.threshold)
    return asked, values


def miss_rate(
    make: Callable[[Problem], Solver], tree: str, coin: Coin, source: Source, runs: int
) -> tuple[float, float]:
    """The share of hard groups that is missed in answered runs, and the lower end of its 99.9 % interval over runs."""
    asked, values = at_the_threshold(tree, coin)
    assert truth(asked, values).sum() == HARD
    found = answered(make, asked, values, source, runs)
    assert len(found) > runs / 4
    missed = np.array([np.mean(~solved.decision.kept[:HARD]) for solved in found])
    mean = float(missed.mean())
    return mean, mean - 3.29 * float(missed.std(ddof=1)) / len(found) ** 0.5
