"""One question on one workload: its thresholds by z-score, its tree, what is true, and the floor of its price."""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias, TypeVar

import numpy as np

from bench.decision.groups import Average, Total
from bench.decision.workloads import Workload
from mechanisms.condition import And, Condition, Leaf, Or
from mechanisms.decision import Mask, Problem, Test
from mechanisms.loss import Coin
from mechanisms.values import Lattice
from sqlrewrite.minimise import expand

BETA, ALPHA = Decimal("0.05"), Decimal("0.1")
SELECTIVITIES = (0.005, 0.01, 0.02, 0.05, 0.1)
MOST = 6
_LOWEST, _HIGHEST = 0.003, 0.13  # a cell outside is not asked
_ZS = np.round(np.arange(0.5, 8.01, 0.1), 1)  # what is asked for stands out
Tree: TypeAlias = Condition[int]
Thing = TypeVar("Thing")


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """A question with the true numbers of every group."""

    workload: str
    data: str
    shape: str
    z: float
    values: Lattice  # a row for each statistic
    sensitivities: tuple[int, ...]
    tests: tuple[Test, ...]
    tree: Tree
    touched: int = 1

    @property
    def n(self) -> int:
        """Sub-queries, the guard of averages included."""
        return len(self.tests)

    @property
    def name(self) -> str:
        """No two questions of one run share it."""
        first = self.tests[0].threshold if isinstance(self.tests[0].threshold, int) else "its own"
        return f"{self.data}: {self.workload}, {self.n} {self.shape}, z {self.z:g}, from {first}"

    @property
    def truth(self) -> Mask:
        """Which groups qualify."""
        return _true(self.tree, [_passes(test, self.values[test.statistic]) for test in self.tests])

    @property
    def selectivity(self) -> float:
        return float(self.truth.mean())

    def problem(self, coin: Coin, beta: Decimal = BETA, alpha: Decimal = ALPHA) -> Problem:
        """What a mechanism is given."""
        return Problem(
            self.sensitivities,
            self.tests,
            self.tree,
            expand(self.tree, self._implies, conjunctions=True),
            expand(self.tree, self._implies, conjunctions=False),
            self.values.shape[1],
            beta,
            alpha,
            coin,
            self.touched,
        )

    def _implies(self, one: int, other: int) -> bool:
        a, b = self.tests[one], self.tests[other]
        if one == other or not (isinstance(a.threshold, int) and isinstance(b.threshold, int)):
            return one == other
        return (a.statistic, a.direction) == (b.statistic, b.direction) and a.direction * (
            a.threshold - b.threshold
        ) >= 0

    def floor(self) -> float:
        """What a bound on false positives for each single group would cost at the least.

        The nearest qualifying and non-qualifying groups are some units apart; no epsilon below this number divided by
        that distance tells them apart with both error bounds (ALGORITHMS.md section 1).
        """
        truth, scaled = self.truth, self.values.astype(np.float64)
        steps = scaled / np.array(self.sensitivities, dtype=np.float64)[:, None]
        there, elsewhere = steps[:, truth], steps[:, ~truth]
        gap = min(float(np.abs(elsewhere - column[:, None]).sum(axis=0).min()) for column in there.T)
        a, b = float(ALPHA), float(BETA)
        return max(math.log((1 - a) / b), math.log((1 - b) / a)) / max(1.0, math.ceil(gap))


def shaped(kind: str, leaves: Sequence[int], seed: str) -> Tree:
    """A conjunction, a disjunction, or a random tree of both."""
    parts = tuple(Leaf(leaf) for leaf in leaves)
    match kind:
        case _ if len(parts) == 1:
            return parts[0]
        case "and":
            return And(parts)
        case "or":
            return Or(parts)
        case "mix":
            chance = random.Random(f"{seed}/{len(parts)}")
            while True:
                tree = _random_tree(parts, chance)
                if {And, Or} == _operators(tree):
                    return tree
        case _:
            raise ValueError(f"there is no shape {kind}")


def shapes(workload: Workload) -> Iterator[tuple[int, str]]:
    """How many sub-queries in which shape; where one shape is another, only once."""
    fixed = 1 if workload.averages else 0  # the guard stands before the tree
    most = min(MOST, fixed + len(workload.averages or workload.totals))
    for n in range(1 + fixed, most + 1):
        free = n - fixed
        yield from ((n, kind) for kind in ("and", "or", "mix")[: min(free, 3)])


def cell(workload: Workload, n: int, kind: str, target: float, turn: int = 0) -> Cell | None:
    """The question whose thresholds lie at the z-score that lets about this share of the groups qualify.

    ``turn`` says which aggregate comes first. None where no z-score comes near.
    """
    make = _averages if workload.averages else _totals
    found: dict[int, Cell] = {}

    def share(place: int) -> float:
        if place not in found:
            found[place] = make(workload, n, kind, float(_ZS[place]), turn)
        return found[place].selectivity

    # The higher the thresholds, the fewer groups: look from both sides of where the target is crossed.
    crossing = bisect.bisect_left(range(len(_ZS)), -target, key=lambda place: -share(place))
    near = [share(place) for place in range(max(0, crossing - 2), min(len(_ZS), crossing + 2))]
    low = max(_LOWEST, 2 / workload.groups)
    possible = [s for s in near if low <= s <= _HIGHEST]
    if not possible:
        return None
    best = min(possible, key=lambda s: abs(math.log(s / target)))
    return next(candidate for _, candidate in sorted(found.items()) if candidate.selectivity == best)


def at_z(workload: Workload, n: int, kind: str, z: float) -> Cell:
    """The question at a given z-score."""
    return (_averages if workload.averages else _totals)(workload, n, kind, z, 0)


def _totals(workload: Workload, n: int, kind: str, z: float, turn: int) -> Cell:
    chosen = _turned(workload.totals, turn)[:n]
    tests = tuple(_test(place, total, z) for place, total in enumerate(chosen))
    tree = shaped(kind, range(n), workload.name)
    return _cell(workload, kind, z, chosen, tests, tree)


def _averages(workload: Workload, n: int, kind: str, z: float, turn: int) -> Cell:
    """``count(*) >= support AND ...``: AVG(x) > c is SUM(x - c) >= 0."""
    guard, m = workload.totals[0], workload.support
    chosen = [guard, *(_centred(each, m, z) for each in _turned(workload.averages, turn)[: n - 1])]
    tests = [Test(0, +1, m, m, _span(guard.values))]
    tests += [Test(i, +1, 0, m * each.sensitivity, _span(each.values)) for i, each in enumerate(chosen) if i > 0]
    tree = And((Leaf(0), shaped(kind, range(1, n), workload.name)))
    return _cell(workload, kind, z, chosen, tuple(tests), _flat(tree))


def _cell(
    workload: Workload, kind: str, z: float, chosen: Sequence[Total], tests: tuple[Test, ...], tree: Tree
) -> Cell:
    values = np.stack([total.values for total in chosen])
    steps = tuple(total.sensitivity for total in chosen)
    return Cell(workload.name, workload.data, kind, z, values, steps, tests, tree, workload.touched)


def _test(place: int, total: Total, z: float) -> Test:
    """``total >= c``; a total is never negative, so c is how far a group that fails can lie below."""
    c = max(1, round(float(total.values.mean() + z * total.values.std())))
    return Test(place, +1, c, c, _span(total.values))


def _centred(average: Average, support: int, z: float) -> Total:
    large = average.rows >= support
    means = average.sums[large] / average.rows[large]
    c = min(average.high - 1, max(average.low + 1, round(float(means.mean() + z * means.std()))))
    return Total(average.name, average.sums - c * average.rows, max(c - average.low, average.high - c))


def _span(values: Lattice) -> int:
    """The papers' range of values."""
    return max(1, int(values.max() - values.min()))


def _turned(things: tuple[Thing, ...], turn: int) -> tuple[Thing, ...]:
    turn %= len(things)
    return things[turn:] + things[:turn]


def _flat(tree: And[int]) -> Tree:
    parts: list[Tree] = []
    for part in tree.parts:
        parts += part.parts if isinstance(part, And) else (part,)
    return And(tuple(parts))


def _random_tree(parts: Sequence[Tree], chance: random.Random) -> Tree:
    if len(parts) == 1:
        return parts[0]
    cut = chance.randint(1, len(parts) - 1)
    kind: Callable[[tuple[Tree, ...]], Tree] = chance.choice((And, Or))
    return kind((_random_tree(parts[:cut], chance), _random_tree(parts[cut:], chance)))


def _operators(tree: Tree) -> set[type]:
    match tree:
        case Leaf():
            return set()
        case And(parts) | Or(parts):
            return {type(tree)}.union(*map(_operators, parts))


def _passes(test: Test, values: Lattice) -> Mask:
    return np.asarray(test.direction * (values - test.threshold) >= 0)


def _true(tree: Tree, passed: Sequence[Mask]) -> Mask:
    match tree:
        case Leaf(atom):
            return passed[atom]
        case And(parts):
            return np.asarray(np.logical_and.reduce([_true(part, passed) for part in parts]))
        case Or(parts):
            return np.asarray(np.logical_or.reduce([_true(part, passed) for part in parts]))
