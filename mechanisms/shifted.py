"""One look with a shifted threshold: ``tslm`` and ``naive``, and the trial of a test that ``probe`` repeats.

A test asks for fresh Laplace noise and leans by its margin u to the side of keeping, so that a group that qualifies is
missed with probability beta_i at most (MIDE, Alg. 1). Each test draws its own noise, as in the papers, also where two
of them look at the same statistic.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Literal, TypeAlias, TypeVar

import numpy as np

from mechanisms import threshold
from mechanisms.condition import And, Condition, Leaf, Or, atoms
from mechanisms.decision import Decision, Estimates, Fresh, Mask, Problem, Reply, Request, Solver
from mechanisms.noise import DiscreteLaplace
from mechanisms.split import equal, proportional

T = TypeVar("T")
Talk: TypeAlias = Generator[tuple[Request, ...], tuple[Reply, ...], T]
"""A part of a mechanism's conversation, which ends in a T."""
Range: TypeAlias = Literal["span", "scale"]
"""Which public number a margin is a share of: the papers' range of values, or the scale that ``cert`` has."""


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """What one test has seen: how far each group lies beyond the threshold (below it: negative), and its margin."""

    beyond: Estimates
    margin: float
    beta: Decimal

    @property
    def passed(self) -> Mask:
        return self.beyond >= -self.margin

    def uncertain(self, kept: Mask) -> int:
        """How many kept groups lie within the margin of the threshold."""
        return int(np.count_nonzero(kept & (np.abs(self.beyond) <= self.margin)))


def tslm(problem: Problem, margins: Sequence[int], betas: Sequence[Decimal] | None = None) -> Solver:
    """One look at each test at the given margins; beta is divided by Eq. 25 of ProBE unless told otherwise.

    *Guarantee*: a group that qualifies is missed with probability at most beta; nothing is promised about false
    groups; each test costs Delta ln(1/(2 beta_i))/u_i at most (MIDE, Alg. 1 and Thm 5.4).
    """
    shares = tuple(betas) if betas is not None else proportional(problem, problem.beta, margins)
    trials = yield from run(problem, sorted(set(atoms(problem.tree))), margins, shares, everyone(problem))
    kept = combined(problem.tree, {test: trial.passed for test, trial in trials.items()})
    return Decision(kept, problem.beta, None, None, uncertain(problem, trials, kept), shares)


def naive(problem: Problem, share: Fraction = Fraction(12, 100)) -> Solver:
    """One look at each test at 12 % of its range, beta in equal parts (ProBE section 6.1; thesis chapter 6).

    *Guarantee*: that of ``tslm``.
    """
    return tslm(problem, margins_of(problem, share), equal(problem, problem.beta))


def margins_of(problem: Problem, share: Fraction, of: Range = "span") -> tuple[int, ...]:
    """A share of each test's public range, at least one lattice number."""
    return tuple(max(1, int((test.span if of == "span" else test.scale) * share)) for test in problem.tests)


def everyone(problem: Problem) -> Mask:
    """All groups."""
    return np.ones(problem.cells, dtype=np.bool_)


def run(
    problem: Problem, tests: Iterable[int], margins: Sequence[int], betas: Sequence[Decimal], cells: Mask
) -> Talk[dict[int, Trial]]:
    """A trial of each test with fresh noise in the chosen cells; elsewhere its numbers are NaN, which pass nothing."""
    asked, requests = list(tests), []
    for test in asked:
        statistic = problem.tests[test].statistic
        noise = threshold.tslm(problem.sensitivities[statistic], margins[test], betas[test]).noise
        assert isinstance(noise, DiscreteLaplace)
        requests.append(Fresh(statistic, cells, noise))
    replies = (yield tuple(requests)) if requests else ()
    trials = {}
    for test, reply in zip(asked, replies, strict=True):
        assert isinstance(reply, np.ndarray)
        told = problem.tests[test]
        trials[test] = Trial((reply - told.threshold) * told.direction, margins[test], betas[test])
    return trials


def combined(tree: Condition[int], found: Mapping[int, Mask]) -> Mask:
    """The tree's value for every group, given each test's."""
    match tree:
        case Leaf(test):
            value = found[test]
        case And(parts):
            value = np.logical_and.reduce([combined(part, found) for part in parts])
        case Or(parts):
            value = np.logical_or.reduce([combined(part, found) for part in parts])
    return value


def uncertain(problem: Problem, trials: Mapping[int, Trial], kept: Mask) -> tuple[int, ...]:
    """For each test how many kept groups it did not decide; none where it was never run."""
    return tuple(trials[test].uncertain(kept) if test in trials else 0 for test in range(len(problem.tests)))
