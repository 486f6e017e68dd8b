"""The released numbers of a staged decision as it goes on, and which tests they prove or refute."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mechanisms import ladder
from mechanisms.decision import Estimates, Mask, Problem, Refine, Reply, Test
from mechanisms.ladder import NOTHING
from mechanisms.loss import Coin
from mechanisms.path import Levels
from mechanisms.release import FARTHEST, LARGEST

_GRID = 1023
"""A statistic's scale spans between half of this and this many grid numbers: fine enough for every level in use."""
_FINEST = 16
"""What one unit moves is not divided finer, so that the coarsest noise is wide for small thresholds too."""
_Shift: TypeAlias = float | Estimates


@dataclass(frozen=True, slots=True, eq=False)
class _Edges:
    """A test in grid numbers, signed so that larger is truer: the least that a group that passes can have, and the
    most that one that fails can have.
    """

    statistic: int
    sign: int
    passing: Estimates
    failing: Estimates


class Field:
    """Levels and values of every statistic; it changes as replies come in."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.parts = tuple(_parts(problem, statistic) for statistic in range(len(problem.sensitivities)))
        self.levels = [NOTHING] * len(problem.sensitivities)  # the finest of any cell
        self._standing: list[Levels | None] = [None] * len(self.levels)  # of each cell, where they are not all the same
        self._values: list[Estimates | None] = [None] * len(problem.sensitivities)
        self._edges = tuple(_edges(problem, test, self.parts[test.statistic]) for test in problem.tests)

    def take(self, refines: Sequence[Refine], replies: Sequence[Reply]) -> None:
        """What was released."""
        for refine, reply in zip(refines, replies, strict=True):
            assert isinstance(reply, np.ndarray)
            self._stand(refine)
            self._values[refine.statistic] = reply

    def levels_for(self, tests: Iterable[int], share: float, bound: Decimal) -> dict[int, int]:
        """The level of each statistic at which a shift is this share of the scale of its tests."""
        wanted: dict[int, int] = {}
        for test in tests:
            asked = self.problem.tests[test]
            parts, moved = self.parts[asked.statistic], self.problem.sensitivities[asked.statistic]
            level = _level_for(self.problem.coin, share * max(1, asked.scale) * parts / moved, bound)
            wanted[asked.statistic] = max(level, wanted.get(asked.statistic, level))
        return wanted

    def beyond_failing(self, test: int) -> Estimates | None:
        """How far beyond anything that fails the test a group's number lies; None if it is not measured."""
        edges = self._edges[test]
        values = self._values[edges.statistic]
        return None if values is None else edges.sign * values - edges.failing

    def beyond(self, test: int, bound: Decimal, *, proven: bool) -> Mask:
        """Where a test is proven, or refuted, with at most this probability of a mistake; nowhere if not measured.

        *Guarantee*: for a cell whose noise is as drawn: which level it stands at must not depend on its own noise.
        """
        edges = self._edges[test]
        values = self._values[edges.statistic]
        if values is None:
            return np.zeros(self.problem.cells, dtype=np.bool_)
        shift = self._shift(edges.statistic, bound)
        if proven:
            return edges.sign * values > edges.failing + shift
        return edges.sign * values < edges.passing - shift

    def refuted(self, clauses: Sequence[frozenset[int]], bound: Decimal) -> Mask:
        """Where some clause has all its tests refuted."""
        return self._some(clauses, bound, proven=False)

    def proven(self, implicants: Sequence[frozenset[int]], bound: Decimal) -> Mask:
        """Where some implicant has all its tests proven."""
        return self._some(implicants, bound, proven=True)

    def statistics(self, tests: Iterable[int]) -> frozenset[int]:
        """What these tests are about."""
        return frozenset(self.problem.tests[test].statistic for test in tests)

    def _stand(self, refine: Refine) -> None:
        """Keep where every cell stands; all of them stand at the same level unless only some were refined."""
        statistic, before = refine.statistic, self.levels[refine.statistic]
        self.levels[statistic] = max(refine.level, before)
        standing = self._standing[statistic]
        if refine.cells.all() and (standing is None or refine.level >= before):
            self._standing[statistic] = None
        else:
            levels = np.full(self.problem.cells, before, dtype=np.int16) if standing is None else standing
            self._standing[statistic] = np.where(refine.cells, np.maximum(refine.level, levels), levels)

    def _shift(self, statistic: int, bound: Decimal) -> _Shift:
        """How far the noise strays: one number, unless some cells were refined further than others."""
        coin, standing = self.problem.coin, self._standing[statistic]
        if standing is None:
            return ladder.shift(coin, self.levels[statistic], bound)
        shifts = np.zeros(len(standing))  # there is no number where nothing was released
        for level in np.unique(standing[standing > NOTHING]).tolist():
            shifts[standing == level] = ladder.shift(coin, level, bound)
        return shifts

    def _some(self, sets: Sequence[frozenset[int]], bound: Decimal, *, proven: bool) -> Mask:
        found = np.zeros(self.problem.cells, dtype=np.bool_)
        known: dict[int, Mask] = {}
        for tests in sets:
            if any(self._values[self._edges[test].statistic] is None for test in tests):
                continue
            for test in tests - known.keys():
                known[test] = self.beyond(test, bound, proven=proven)
            found |= np.logical_and.reduce([known[test] for test in tests])
        return found


def _level_for(coin: Coin, reach: float, bound: Decimal) -> int:
    """The coarsest level that does, or the finest there is."""
    if ladder.shift(coin, ladder.deepest(coin), bound) > reach:
        return ladder.deepest(coin)
    return ladder.level_for(coin, reach, bound)


def _parts(problem: Problem, statistic: int) -> int:
    """How many grid numbers one unit moves the statistic by: the smallest scale of its tests decides."""
    scales = [max(1, test.scale) for test in problem.tests if test.statistic == statistic]
    return max(1, min(_FINEST, _GRID * problem.sensitivities[statistic] // min(scales))) if scales else 1


def _edges(problem: Problem, test: Test, parts: int) -> _Edges:
    """Both edges, clamped as the numbers themselves are: then no group changes sides with an edge out of reach."""
    moved = problem.sensitivities[test.statistic]
    thresholds = np.asarray(test.threshold, dtype=object)  # whole numbers of any size

    def grid(edge: NDArray[np.object_]) -> Estimates:
        numbers = np.clip(np.clip(edge, -LARGEST, LARGEST) * parts // moved, -FARTHEST, FARTHEST)
        return np.broadcast_to(np.asarray(numbers, dtype=np.float64) * test.direction, (problem.cells,))

    return _Edges(test.statistic, test.direction, grid(thresholds), grid(thresholds - test.direction))
