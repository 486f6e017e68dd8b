"""``probe``, ``probe_naive`` and ``probe_ent``: both bounds for a tree of tests, as ProBE prints them.

*Two phases* (Alg. 1-4). Every test is tried at 30 % of its range, and from the noisy numbers the false groups are
estimated. Where they are too many, the largest margin that would have been good enough is tried with fresh noise, among
the groups that are left. A conjunction is not followed to its right once its left is empty. What the print says is done
to the letter (line 7 of Alg. 3 and Fig. 5: the false groups that are allowed are those of phase one); where it leaves
something open, the reading is taken that favours it (line 10: the second estimate is of the second output).

*What is printed and does not hold.* Eq. 26 counts a group whose noisy number passes the threshold itself as false with
weight beta_i, although a group just below the threshold passes it every other time: with many such groups alpha is
broken. It is kept as printed, to be compared with; ``cert`` keeps alpha. Corrected are the split of alpha, which is
alpha / sum o_i, and in ``probe_ent`` the intersection in a conjunction. A denial after a look has been paid for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from mechanisms import ladder
from mechanisms.condition import And, Condition, Leaf, Or, atoms
from mechanisms.decision import CapReached, Decision, Mask, Problem, Solver
from mechanisms.errors import AccuracyUnreachable
from mechanisms.loss import WIDE, round_down
from mechanisms.progressive import FINE, STEPS, Climb, ascend, by_entropy, divided, plan
from mechanisms.shifted import Range, Talk, Trial, combined, everyone, margins_of, run, uncertain
from mechanisms.split import equal, occurrences, proportional

FIRST = Fraction(3, 10)
"""The first margin, as a share of the range."""
Divide: TypeAlias = Callable[[Decimal], tuple[Decimal, ...]]


@dataclass(frozen=True, slots=True)
class Estimate:
    """How many groups a test keeps falsely at most (Eq. 26), and how many do not qualify at least (Eq. 27)."""

    false: float
    negative: float

    def within(self, alpha: float) -> bool:
        return self.false <= alpha * self.negative

    @property
    def rate(self) -> float:
        """The alpha that would have been met."""
        return self.false / self.negative if self.negative > 0 else math.inf


def estimate(trial: Trial, kept: Mask) -> Estimate:
    """ESTIMATEFPs (Alg. 4): groups that the tree has dropped are no longer false, nor those it keeps negative."""
    beta, passed = float(trial.beta), trial.passed
    sure = trial.beyond >= 0
    open_, clear = int(np.count_nonzero(passed & ~sure & kept)), int(np.count_nonzero(sure & kept))
    refuted = int(np.count_nonzero(~passed & ~kept))
    return Estimate(open_ + clear * beta, max(0.0, refuted - beta * len(kept)) / (1 - beta))


def largest_margin(trial: Trial, kept: Mask, most: float) -> float | None:
    """The largest margin with which at most so many groups would have been false (Alg. 3, line 7; Fig. 5).

    None if there is none. The estimate changes only where a margin passes a group's distance, so it lies just below
    such a one.
    """
    distance = -trial.beyond[kept]
    inside = np.sort(distance[(distance > 0) & (distance <= trial.margin)])
    clear = int(np.count_nonzero(distance <= 0)) * float(trial.beta)
    if not len(inside) or clear > most:
        return None
    cuts = np.unique(inside)
    good = np.flatnonzero(np.searchsorted(inside, cuts, side="left") + clear <= most)
    return math.nextafter(float(cuts[good[-1]]), 0.0)


def probe(problem: Problem, scale: Range = "span", first: Decimal = Decimal("0.5")) -> Solver:
    """Two phases with beta divided by Eq. 25; ``first`` is the first phase's part of beta (Table 3).

    *Guarantee*: a group that qualifies is missed with probability at most beta (ProBE, Thm 5.1). The bound alpha on
    false groups is claimed, and holds only while few groups lie just below a threshold.
    """
    margins = margins_of(problem, FIRST, scale)
    return _two_phases(problem, margins, first, lambda beta: proportional(problem, beta, margins))


def probe_naive(problem: Problem, scale: Range = "span", first: Decimal = Decimal("0.5")) -> Solver:
    """``probe`` with beta in equal parts. *Guarantee*: that of ``probe``."""
    return _two_phases(problem, margins_of(problem, FIRST, scale), first, lambda beta: equal(problem, beta))


def _two_phases(problem: Problem, margins: Sequence[int], first: Decimal, divide: Divide) -> Solver:
    alpha, many = _alpha_each(problem)
    part = round_down(WIDE.multiply(problem.beta, first))
    one, two = divide(part), divide(problem.beta - part)
    trials: dict[int, Trial] = {}
    pending = set(atoms(problem.tree))
    kept = yield from _traverse(problem, problem.tree, pending, trials, margins, one, everyone(problem))
    estimates = {test: estimate(trial, kept) for test, trial in trials.items()}
    finer, second = list(margins), list(one)
    for test, told in estimates.items():
        if told.within(alpha):
            continue
        margin = largest_margin(trials[test], kept, alpha * told.negative)
        if margin is None:
            raise _denied(problem, told.rate * many, "whatever the margin")
        finer[test], second[test] = int(margin), two[test]
        pending.add(test)
    if any(test in trials for test in pending):
        try:
            again = yield from _traverse(problem, problem.tree, pending, trials, finer, second, kept)
        except CapReached:
            met = max(told.rate for told in estimates.values()) * many
            raise _denied(problem, met, "within what the question may spend") from None
        kept = kept & again
        estimates = {test: estimate(trial, kept) for test, trial in trials.items()}
    return _decided(problem, kept, trials, estimates, tuple(a + b for a, b in zip(one, two, strict=True)))


def _traverse(
    problem: Problem,
    tree: Condition[int],
    pending: set[int],
    trials: dict[int, Trial],
    margins: Sequence[int],
    betas: Sequence[Decimal],
    cells: Mask,
) -> Talk[Mask]:
    """TRAVERSE (Alg. 2): the tree's value, with a new trial of each pending test that it comes to.

    Tests that it surely comes to are asked for together; the right of a conjunction is left out if its left is empty.
    """
    wanted = sorted(_surely(tree) & pending)
    pending.difference_update(wanted)
    for test, trial in (yield from run(problem, wanted, margins, betas, cells)).items():
        before = trials.get(test)
        beyond = trial.beyond if before is None else np.where(cells, trial.beyond, before.beyond)
        trials[test] = replace(trial, beyond=beyond)
    match tree:
        case Leaf(test):
            return trials[test].passed
        case And(parts):
            kept = everyone(problem)
            for part in parts:
                kept = kept & (yield from _traverse(problem, part, pending, trials, margins, betas, cells))
                if not (kept & cells).any():
                    break
            return kept
        case Or(parts):
            kept = ~everyone(problem)
            for part in parts:
                kept = kept | (yield from _traverse(problem, part, pending, trials, margins, betas, cells))
            return kept


def _surely(tree: Condition[int]) -> frozenset[int]:
    """The tests that a traversal comes to whatever it sees."""
    match tree:
        case Leaf(test):
            return frozenset((test,))
        case And(parts):
            return _surely(parts[0])
        case Or(parts):
            return frozenset[int]().union(*map(_surely, parts))


def probe_ent(problem: Problem, scale: Range = "span", steps: int = STEPS, fine: int = FINE) -> Solver:
    """Test after test by ``dppwlm``, whose last margin comes from the estimate after its first look (ProBE, Alg. 5).

    What a test leaves of its beta goes to the tests after it.
    *Guarantee*: that of ``dppwlm`` on beta, that of ``probe`` on alpha.
    """
    alpha, _ = _alpha_each(problem)
    margins = margins_of(problem, FIRST, scale)
    counts = occurrences(problem.tree, len(problem.tests))
    left, betas = problem.beta, [Decimal(0)] * len(problem.tests)
    trials: dict[int, Trial] = {}
    passed: dict[int, Mask] = {}

    def tried(test: int) -> Talk[Mask]:
        nonlocal left
        if test not in passed:
            undone = frozenset(other for other in atoms(problem.tree) if other not in passed)
            betas[test] = proportional(problem, left, margins, undone)[test]
            bounds, climb = [divided(betas[test], steps)] * len(betas), Climb(problem, (test,), margins)
            used, trials[test] = yield from _entropic(climb, test, margins[test], bounds, alpha, passed, fine, steps)
            passed[test] = climb.passed[test]
            left -= counts[test] * used * bounds[test]
        return passed[test]

    kept = yield from _walk(problem, problem.tree, tried)
    estimates = {test: estimate(trial, kept) for test, trial in trials.items()}
    return _decided(problem, kept, trials, estimates, tuple(betas))


def _entropic(
    climb: Climb,
    test: int,
    margin: int,
    bounds: Sequence[Decimal],
    alpha: float,
    passed: Mapping[int, Mask],
    fine: int,
    steps: int,
) -> Talk[tuple[int, Trial]]:
    """One test by ``dppwlm``: how many of its steps it took, and what it has seen at its last margin."""
    problem, tree = climb.problem, climb.problem.tree
    yield from climb.look(climb.level_for({test: margin}, bounds), bounds)
    trial = climb.trial(test, ladder.shift(problem.coin, climb.level, bounds[test]), bounds[test])
    hopeful = _known(tree, {**passed, test: trial.passed})
    anyway = _known(tree, {**passed, test: ~everyone(problem)})
    used = 1
    told = estimate(trial, hopeful)
    if not told.within(alpha):
        finer = largest_margin(trial, hopeful, alpha * told.negative)
        if finer is None:
            raise _denied(problem, told.rate * float(problem.alpha) / alpha, "whatever the margin")
        climb.leave(~hopeful | anyway)  # Example 5.1: what other tests have decided needs no finer noise
        starts, ends = [float(margin)] * len(bounds), [climb.lattice(finer)] * len(bounds)
        used = yield from ascend(climb, plan(climb, starts, ends, bounds, steps), bounds, by_entropy(fine))
        trial = climb.trial(test, finer, bounds[test])
    return used, replace(trial, beyond=np.where(anyway, np.nan, trial.beyond))


def _walk(problem: Problem, tree: Condition[int], tried: Callable[[int], Talk[Mask]]) -> Talk[Mask]:
    """The tree's value, test by test from left to right; a conjunction that is empty is not followed."""
    match tree:
        case Leaf(test):
            return (yield from tried(test))
        case And(parts):
            kept = everyone(problem)
            for part in parts:
                kept = kept & (yield from _walk(problem, part, tried))
                if not kept.any():
                    break
            return kept
        case Or(parts):
            kept = ~everyone(problem)
            for part in parts:
                kept = kept | (yield from _walk(problem, part, tried))
            return kept


def _known(tree: Condition[int], found: Mapping[int, Mask]) -> Mask:
    """The tree's value by the tests that were run, as if the others did not stand in it."""
    pruned = _pruned(tree, found)
    assert pruned is not None
    return combined(pruned, found)


def _pruned(tree: Condition[int], found: Mapping[int, Mask]) -> Condition[int] | None:
    match tree:
        case Leaf(test):
            return tree if test in found else None
        case And(parts):
            left = tuple(part for part in (_pruned(part, found) for part in parts) if part is not None)
            return And(left) if left else None
        case Or(parts):
            left = tuple(part for part in (_pruned(part, found) for part in parts) if part is not None)
            return Or(left) if left else None


def _alpha_each(problem: Problem) -> tuple[float, int]:
    """The part of alpha of one occurrence of a test, and how many there are: FPR <= sum o_i alpha_i."""
    many = sum(occurrences(problem.tree, len(problem.tests)))
    return float(problem.alpha) / many, many


def _decided(
    problem: Problem,
    kept: Mask,
    trials: Mapping[int, Trial],
    estimates: Mapping[int, Estimate],
    betas: tuple[Decimal, ...],
) -> Decision:
    """The decision, unless some estimate is still above its part of alpha (Alg. 3, line 10)."""
    alpha, many = _alpha_each(problem)
    if not all(told.within(alpha) for told in estimates.values()):
        raise _denied(problem, max(told.rate for told in estimates.values()) * many, "by the second estimate")
    false = min(sum(told.false for told in estimates.values()), float(np.count_nonzero(kept)))
    return Decision(kept, problem.beta, problem.alpha, false, uncertain(problem, trials, kept), betas)


def _denied(problem: Problem, met: float, where: str) -> AccuracyUnreachable:
    return AccuracyUnreachable(
        f"alpha {problem.alpha:f} cannot be met {where}",
        detail=f"false groups are estimated at a share of {met:.3g}" if math.isfinite(met) else None,
        hint=(
            f"SET veil.alpha = {math.ceil(met * 1000) / 1000:g} would do at this price, or use veil.mechanism = 'cert'."
            if met < 1
            else "Use veil.mechanism = 'cert', or ask about fewer conditions or larger groups."
        ),
    )
