"""Progressive looks along a path of noise: ``ppwlm`` and ``dppwlm`` (MIDE, thesis Alg. 2-4).

A group that is far from the threshold is decided by coarse noise and then left alone; only the undecided are looked at
with finer noise, m times at most, each time with a part of beta. The path is that of the problem's coin, so refining
costs the last level (PrivRelax) and the mechanisms run on both coins: a wanted margin alpha_j becomes the coarsest
level of the ladder whose shift is at most alpha_j. Tests on one statistic climb together, on one schedule.

Corrections to the text: the density of Eq. A.4 is replaced by the closed form of a sum of two Laplace variables; the
a look within the last interval leaves one step's beta for its end, where the printed loop looks once too often.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import scipy  # its parts are loaded where they are first used: a proxy starts without them

from mechanisms import ladder
from mechanisms.condition import atoms
from mechanisms.decision import Decision, Estimates, Mask, Problem, Refine, Reply, Solver
from mechanisms.entropy import entropy_bound
from mechanisms.loss import WIDE, Coin, round_down
from mechanisms.shifted import Talk, Trial, combined, everyone, margins_of
from mechanisms.split import proportional

STEPS = 4
FINE = 3
FIRST = Fraction(3, 10)
_GRID = 1023  # grid numbers in the first margin: fine enough for every level in use, coarse enough for Gaussian tables
_FAR = 2.0**46  # beyond every grid number that a release gives


class Climb:
    """The looks at one statistic for all its tests; it changes as replies come in."""

    def __init__(self, problem: Problem, tests: Sequence[int], first: Sequence[int]) -> None:
        self.problem, self.tests = problem, tuple(tests)
        self.statistic = problem.tests[self.tests[0]].statistic
        self._moved = problem.sensitivities[self.statistic]
        margins = [
            margin for told, margin in zip(problem.tests, first, strict=True) if told.statistic == self.statistic
        ]
        self.parts = max(1, _GRID * self._moved // min(margins))  # one grid for all tests on the statistic
        self.level = ladder.NOTHING
        self.levels = np.full(problem.cells, ladder.NOTHING)
        self.undecided = dict.fromkeys(self.tests, everyone(problem))
        self.passed = dict.fromkeys(self.tests, everyone(problem))
        self.beyond: dict[int, Estimates] = {}
        self._edges = {test: self._edge(test) for test in self.tests}

    @property
    def open(self) -> Mask:
        """The groups that some test has not decided."""
        found: Mask = np.logical_or.reduce(list(self.undecided.values()))
        return found

    def reach(self, margin: float) -> float:
        """A margin in grid numbers."""
        return margin * self.parts / self._moved

    def lattice(self, reach: float) -> float:
        """A margin in lattice numbers again."""
        return reach * self._moved / self.parts

    def level_for(self, margins: Mapping[int, float], bounds: Sequence[Decimal]) -> int:
        """The coarsest level at which every test has its margin."""
        coin = self.problem.coin
        return max(ladder.level_for(coin, self.reach(margins[test]), bounds[test]) for test in self.tests)

    def loss(self, level: int) -> float:
        """The epsilon of a path at this level; on zcdp the root of twice its rho, which plays the same part."""
        return self.parts / ladder.width(level)

    def look(self, level: int, bounds: Sequence[Decimal], cells: Mask | None = None) -> Talk[None]:
        """Refine the undecided groups and decide those that now lie beyond the shift of their tests.

        *Guarantee*: at a level that does not depend on a group's own noise, a group that satisfies a test is refuted by
        it with probability at most the bound. Tests of other groups and at other levels do not change that.
        """
        asked = self.open if cells is None else cells
        (reply,) = yield (Refine(self.statistic, asked, level, self.parts),)
        assert isinstance(reply, np.ndarray)
        self.level = level
        self.levels[asked] = np.maximum(self.levels[asked], level)
        for test in self.tests:
            beyond = self.problem.tests[test].direction * reply - self._edges[test]
            shift = ladder.shift(self.problem.coin, level, bounds[test])
            now = self.undecided[test] & asked
            # A group keeps the number that it was decided by: what others make of the path later is not its own.
            self.beyond[test] = np.where(now, beyond, self.beyond[test]) if test in self.beyond else beyond
            refuted, proven = now & (beyond < -shift), now & (beyond > shift)
            self.passed[test] = self.passed[test] & ~refuted
            self.undecided[test] = self.undecided[test] & ~(refuted | proven)

    def leave(self, cells: Mask) -> None:
        """Stop looking at these groups: the tree has decided them."""
        self.undecided = {test: undecided & ~cells for test, undecided in self.undecided.items()}

    def trial(self, test: int, margin: float, beta: Decimal) -> Trial:
        """What a test has seen so far, with a margin in grid numbers."""
        return Trial(self.beyond[test], margin, beta)

    def _edge(self, test: int) -> Estimates:
        """The signed grid number from which on a test holds: floor(x m / D) keeps the order of x."""
        told = self.problem.tests[test]
        grid = np.asarray(told.threshold, dtype=object) * self.parts // self._moved
        edge: Estimates = np.clip(np.asarray(grid, dtype=np.float64), -_FAR, _FAR) * told.direction
        return edge


Next: TypeAlias = Callable[[Climb, Sequence[int], int, Sequence[Decimal]], tuple[int, int]]
"""From a climb, its planned levels, the place in that plan and one step's bounds: the next place, and the level."""


def ppwlm(problem: Problem, margins: Sequence[int], first: Fraction = FIRST, steps: int = STEPS) -> Solver:
    """At most ``steps`` looks, from a share of the range down to the given margins in geometric steps.

    *Guarantee*: a group that qualifies is missed with probability at most beta, since each look at a test has
    beta_i/steps at a level fixed beforehand (thesis, Alg. 2 and Thm 5.5); nothing is promised about false groups.
    """
    return _progressive(problem, margins, first, steps, lambda _climb, plan, at, _bounds: (at + 1, plan[at + 1]))


def dppwlm(
    problem: Problem, margins: Sequence[int], first: Fraction = FIRST, steps: int = STEPS, fine: int = FINE
) -> Solver:
    """As ``ppwlm``, but the next level is the one that promises the largest min-entropy of the spend.

    *Guarantee*: that of ``ppwlm`` as the thesis proves it (Alg. 3-4 and Thm 5.6), which takes the levels for fixed:
    they are chosen by the noise of all groups together, in which each group's own is one of many.
    """
    return _progressive(problem, margins, first, steps, by_entropy(fine))


def _progressive(problem: Problem, margins: Sequence[int], first: Fraction, steps: int, following: Next) -> Solver:
    betas = proportional(problem, problem.beta, margins)
    starts = [max(margin, start) for margin, start in zip(margins, margins_of(problem, first), strict=True)]
    together: dict[int, list[int]] = {}
    for test in sorted(set(atoms(problem.tree))):
        together.setdefault(problem.tests[test].statistic, []).append(test)
    climbs = [Climb(problem, tests, starts) for tests in together.values()]
    bounds = tuple(divided(beta, steps) for beta in betas)
    yield from side_by_side(
        [ascend(climb, plan(climb, starts, margins, bounds, steps), bounds, following) for climb in climbs]
    )
    kept = combined(problem.tree, {test: climb.passed[test] for climb in climbs for test in climb.tests})
    undecided = {test: climb.undecided[test] for climb in climbs for test in climb.tests}
    told = (np.count_nonzero(kept & undecided[test]) if test in undecided else 0 for test in range(len(betas)))
    return Decision(kept, problem.beta, None, None, tuple(map(int, told)), betas)


def plan(
    climb: Climb, starts: Sequence[float], ends: Sequence[float], bounds: Sequence[Decimal], steps: int
) -> tuple[int, ...]:
    """The levels of at most ``steps`` looks, with margins that fall geometrically from the starts to the ends."""
    levels = []
    for step in range(steps):
        share = step / (steps - 1) if steps > 1 else 1.0
        margins = {test: starts[test] ** (1 - share) * ends[test] ** share for test in climb.tests}
        levels.append(climb.level_for(margins, bounds))
    return tuple(sorted(set(levels)))


def ascend(climb: Climb, levels: Sequence[int], bounds: Sequence[Decimal], following: Next) -> Talk[int]:
    """Look from the first planned level on until nobody is undecided or the last level is reached.

    The answer is how many of the steps' bounds were used: a look that skips levels takes their bounds along.
    """
    if climb.level == ladder.NOTHING:
        yield from climb.look(levels[0], bounds)
    at = 0
    while at + 1 < len(levels) and climb.open.any():
        there, level = following(climb, levels, at, bounds)
        yield from climb.look(level, [bound * (there - at) for bound in bounds])
        at = there
    return at + 1


def side_by_side(talks: Sequence[Talk[int]]) -> Talk[None]:
    """Hold several conversations at once: what all of them ask next is asked together."""
    asking = [(talk, requests) for talk in talks if (requests := next(talk, None)) is not None]
    while asking:
        replies = iter((yield tuple(request for _, requests in asking for request in requests)))
        going_on = []
        for talk, requests in asking:
            told: tuple[Reply, ...] = tuple(next(replies) for _ in requests)
            with suppress(StopIteration):
                going_on.append((talk, talk.send(told)))
        asking = going_on


def by_entropy(fine: int = FINE) -> Next:
    """The choice of the next level that maximises min-entropy, among ``fine`` levels in each planned interval.

    The groups that are expected to be decided there end with that level, the others with the last one (thesis, Alg. 4).
    """

    def following(climb: Climb, levels: Sequence[int], at: int, bounds: Sequence[Decimal]) -> tuple[int, int]:
        undecided = int(np.count_nonzero(climb.open))
        settled, counts = np.unique(climb.levels[~climb.open], return_counts=True)
        losses, numbers = [climb.loss(level) for level in settled.tolist()], counts.tolist()
        best, chosen = -math.inf, (len(levels) - 1, levels[-1])
        for there in range(at + 1, len(levels)):
            for step in range(1, fine + 1):
                level = _between(levels[there - 1], levels[there], step / fine)
                # Within the last interval one step's bounds are kept for its end.
                place = there - 1 if level < levels[there] and there + 1 == len(levels) else there
                if level <= climb.level or place == at:
                    continue
                stays = _expected_undecided(climb, level, [bound * (place - at) for bound in bounds])
                entropy = entropy_bound(
                    [*losses, climb.loss(level), climb.loss(levels[-1])], [*numbers, undecided - stays, stays]
                )
                if entropy >= best:
                    best, chosen = entropy, (place, level)
        return chosen

    return following


def divided(bound: Decimal, parts: int) -> Decimal:
    """A bound's equal parts, rounded down."""
    return round_down(WIDE.divide(bound, Decimal(parts)))


def _between(low: int, high: int, share: float) -> int:
    """The level whose rate lies this far between two levels' rates."""
    step = math.log(1.02)
    return low + int(math.log1p(share * math.expm1(step * (high - low))) / step + 1e-9)


def _expected_undecided(climb: Climb, level: int, bounds: Sequence[Decimal]) -> float:
    """How many of the undecided groups will be undecided after a look at this level (thesis, Eq. 5.9)."""
    stays = np.zeros(climb.problem.cells)
    for test in climb.tests:
        shift = ladder.shift(climb.problem.coin, level, bounds[test])
        cells = climb.undecided[test]
        beyond = climb.beyond[test][cells]
        coin, before, after = climb.problem.coin, ladder.width(climb.level), ladder.width(level)
        within = sum_tail(coin, -shift - beyond, before, after) - sum_tail(coin, shift - beyond, before, after)
        stays[cells] = np.maximum(stays[cells], within)
    return float(stays.sum())


def sum_tail(coin: Coin, x: Estimates, first: float, second: float) -> Estimates:
    """P[X + Y > x] of two independent noises of these different widths.

    For Laplace with rates a, b and x >= 0 it is (a^2 e^(-b x) - b^2 e^(-a x)) / (2 (a^2 - b^2)).
    """
    match coin:
        case Coin.ZCDP:
            normal: Estimates = scipy.special.ndtr(-x / math.hypot(first, second))
            return normal
        case Coin.PURE:
            a2, b2, size = 1 / first**2, 1 / second**2, np.abs(x)
            upper: Estimates = (a2 * np.exp(-size / second) - b2 * np.exp(-size / first)) / (2 * (a2 - b2))
            return np.where(x >= 0, upper, 1 - upper)
