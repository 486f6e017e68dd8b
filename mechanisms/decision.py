"""A decision in numbers, and the conversation in which a mechanism makes it.

A mechanism is a generator: it yields what it wants released next, is sent what came out, and returns a ``Decision``.
It never sees exact numbers, never draws noise and never pays: ``release.Staged`` answers what it asks for, once that is
paid. So the same mechanism runs behind the ledger, in a bench and under an audit::

    mechanism:  Problem -> yields (Refine | Fresh | Choose, ...) -> is sent as many replies -> ... -> Decision

Every number is a whole multiple of a public unit. ``Refine`` speaks of a *grid*: with a sensitivity D and m ``parts``
the value x is the grid number floor(x m / D), which one privacy unit moves by at most m; so wide sums come onto a
small lattice with no loss of price.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mechanisms.condition import Condition
from mechanisms.errors import AccuracyUnreachable
from mechanisms.loss import Coin
from mechanisms.noise import DiscreteLaplace
from mechanisms.values import Lattice

Mask: TypeAlias = NDArray[np.bool_]
Estimates: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Test:
    """One atom: statistic >= threshold (+1) or statistic <= threshold (-1), in the statistic's lattice numbers.

    ``scale`` and ``span`` are public guesses that tune accuracy and never privacy: how far the values of groups that
    do not qualify may lie from the threshold (for a count, the threshold itself), and the papers' range of values.
    """

    statistic: int
    direction: int
    threshold: int | Lattice  # one for all cells, or one for each
    scale: int
    span: int


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """What is to be decided for each of ``cells`` groups, and how well."""

    sensitivities: tuple[int, ...]  # of each statistic: how far one unit moves it in one cell
    tests: tuple[Test, ...]
    tree: Condition[int]  # over the indices of ``tests``, minimised, NOT pushed inwards
    implicants: tuple[frozenset[int], ...]  # prime: all of a set true makes the tree true
    implicates: tuple[frozenset[int], ...]  # prime: all of a set false makes it false
    cells: int
    beta: Decimal
    alpha: Decimal
    coin: Coin
    touched: int = 1  # the most cells that one unit moves
    together: tuple[tuple[int, ...], ...] | None = None  # statistics that one unit can move at once; None: all

    def sets(self) -> tuple[tuple[int, ...], ...]:
        """The statistics that one unit can move at once."""
        return self.together if self.together is not None else (tuple(range(len(self.sensitivities))),)


@dataclass(frozen=True, slots=True, eq=False)
class Refine:
    """Bring the noise path of a statistic down to a level of the ladder, in the chosen cells.

    The path is the one of the problem's coin: Gaussian under ``zcdp``, Laplace under ``pure``. A cell that is at the
    level or beyond stays as it is. The reply is ``Estimates`` in grid numbers, NaN where nothing was ever released.
    """

    statistic: int
    cells: Mask
    level: int
    parts: int  # of the grid; the same for every request on one statistic


@dataclass(frozen=True, slots=True, eq=False)
class Fresh:
    """An independent draw, in the statistic's own lattice numbers; the reply is ``Estimates``, NaN elsewhere."""

    statistic: int
    cells: Mask
    noise: DiscreteLaplace


@dataclass(frozen=True, slots=True, eq=False)
class Choose:
    """The first of some clauses that seems to refute at least ``share`` of the cells (AboveThreshold).

    A clause is a set of tests; a cell counts for it with min over its tests of clip((threshold - value) / (scale/2),
    0, 1), signed by the direction. The reply is the index of the clause, or None. *Guarantee*: ``epsilon``-DP.
    """

    clauses: tuple[frozenset[int], ...]
    share: float
    epsilon: Decimal


Request: TypeAlias = Refine | Fresh | Choose
Reply: TypeAlias = Estimates | int | None


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """Which groups are kept, and what is promised about them.

    ``expected_false`` bounds the expected number of groups that are kept and do not qualify; it and ``alpha`` are
    None where the mechanism promises neither. ``uncertain`` counts, for each test, the kept groups that lie so near
    its threshold that they were not decided by it.
    """

    kept: Mask
    beta: Decimal
    alpha: Decimal | None
    expected_false: float | None
    uncertain: tuple[int, ...]
    betas: tuple[Decimal, ...]  # of each test


Solver: TypeAlias = Generator[tuple[Request, ...], tuple[Reply, ...], Decision]


class CapReached(AccuracyUnreachable):
    """Thrown into a mechanism whose next request would cost more than the question may spend.

    It may answer with a refusal that tells the smallest ask that would have worked.
    """

    def __init__(self) -> None:
        super().__init__(
            "the decision cannot be made within what the question may spend",
            hint="SET veil.alpha or veil.beta higher, or veil.max_epsilon higher.",
        )
