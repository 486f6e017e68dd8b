"""Which runs make which figure of DProvDB; numbers are those of its experiments, means over four lists of questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean

from bench.synopsis.runs import OURS, SMOOTH, SUMMED, SYSTEMS, THEIRS, Outcome, Task
from bench.synopsis.workload import RUNS, TABLES

EPSILONS = ("0.4", "0.8", "1.6", "3.2", "6.4")
ORDERS = ("round-robin", "random")
TWO, SIX = (1, 4), (1, 4, 1, 4, 1, 4)
SIZES = (50, 400, 1000, 2000, 4000, 7000)
TAUS = ("1", "1.3", "1.6", "1.9")
DELTAS = ("1e-9", "1e-10", "1e-11", "1e-12", "1e-13")
EQUALS = tuple((5,) * n for n in range(2, 7))
NEVER_SPENT = "200"
"""The budget of a search: it is never spent."""

Found = Mapping[Task, Outcome]


@dataclass(frozen=True, slots=True)
class Size:
    """How much is run."""

    runs: int
    divisor: int  # of the number of questions
    tables: Sequence[str]
    copies: int  # of each view, where errors are measured


FULL, SMOKE = Size(RUNS, 1, TABLES, 1000), Size(1, 100, TABLES, 10)


@dataclass(frozen=True, slots=True)
class Figures:
    """The runs of each figure; a point of a figure is a task of the first run."""

    size: Size
    end_to_end: tuple[Task, ...]  # Fig. 3
    cached: tuple[Task, ...]  # Fig. 5
    analysts: tuple[Task, ...]  # Fig. 6
    tau: tuple[Task, ...]  # Fig. 7
    delta: tuple[Task, ...]  # Fig. 8
    searches: tuple[Task, ...]  # Fig. 4

    def tasks(self) -> list[Task]:
        """Everything, every run."""
        several = (*self.end_to_end, *self.cached, *self.analysts, *self.tau, *self.delta)
        return [*(one for point in several for one in self.repeated(point)), *self.searches]

    def repeated(self, point: Task) -> list[Task]:
        """A point of a figure, on each of the lists."""
        return [replace(point, run=run) for run in range(1, self.size.runs + 1)]

    def mean(self, found: Found, point: Task, of: Callable[[Outcome], float] = lambda outcome: outcome.total) -> float:
        """Over the lists."""
        return fmean(of(found[one]) for one in self.repeated(point))


def figures(size: Size) -> Figures:
    """The experiments of the paper's section 6."""
    first = Task(OURS, "adult", 1, "3.2", TWO, size=4000 // size.divisor)
    return Figures(
        size,
        tuple(
            replace(first, system=system, table=table, epsilon=epsilon, order=order, privileges=privileges)
            for system, table, epsilon, order, privileges in product(
                (*SYSTEMS, SMOOTH), size.tables, EPSILONS, ORDERS, (TWO, SIX)
            )
        ),
        tuple(
            replace(first, system=system, epsilon=epsilon, size=max(1, n // size.divisor), start=15_000, step=2)
            for system, epsilon, n in product((OURS, THEIRS, "vanilla", "chorusp", "chorus"), EPSILONS, SIZES)
        ),
        tuple(
            replace(first, system=system, privileges=equals, size=2500 // size.divisor, start=5000, step=2)
            for system, equals in product((OURS, THEIRS, SUMMED, "vanilla"), EQUALS)
        ),
        tuple(
            replace(first, system=system, epsilon=epsilon, order=order, tau=tau, start=15_000, step=2)
            for system, epsilon, order, tau in product((OURS, THEIRS), EPSILONS, ORDERS, TAUS)
        ),
        tuple(
            replace(first, system=system, epsilon="6.4", order=order, delta=delta)
            for system, order, delta in product((OURS, THEIRS, "vanilla"), ORDERS, DELTAS)
        ),
        tuple(
            replace(first, system=system, table=table, epsilon=NEVER_SPENT, size=0)
            for system, table in product((OURS, THEIRS, "vanilla", "chorusp", "chorus"), size.tables)
        ),
    )
