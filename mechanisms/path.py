"""Noise that can be refined, without any data: a path for each cell, from wide noise down the ``ladder`` to narrow.

A cell's path is known as far as it was refined. ``whole`` is its noise in grid units; ``rest`` is what a Gaussian path
adds to that, and depends on *differences* of released numbers only, so that rounding in floats cannot tell grid
number and noise apart: with y_k = x + n_k the best estimate is y_0 + sum p_k (y_k - y_0) / P.

*Laplace: gradual release, drawn backwards.* With y = exp(-rate) and g = y / (1-y)^2 the discrete Laplace law has the
characteristic function 1 / (1 + 2 g (1 - cos t)). For a coarser level 1 and a finer level 2, g1 > g2 and

    phi_1 / phi_2 = (1 + 2 g2 (1 - cos t)) / (1 + 2 g1 (1 - cos t)) = a + (1 - a) phi_1,     a = g2 / g1,

so X_1 = X_2 + W, where W is 0 with probability a and else an independent draw of level 1 (Koufogiannis, Han, Pappas
2016, on the lattice). Starting at the deepest level, (X_0, ..., X_l) is a function of X_l and of noise that is
independent of it: whoever sees the path down to l sees a release at l, processed further. *Guarantee*: a path costs its
last level, and not the sum of its levels, whatever decided where it stopped.

A draw of level 1 is 0, +(1+G) or -(1+G) with masses 1-y1, y1, y1, G geometric. So W is nonzero with probability

    q = (1 - a) 2 y1 / (1 + y1) = 2 (y1 - y2) (1 - y1 y2) / ((1 + y1) (1 - y2)^2),

and then +-(1+G): only such *jumps* are stored (``jumps``), some 20 for a path down the whole ladder.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mechanisms import ladder
from mechanisms.jumps import Jumps, draw_jumps
from mechanisms.ladder import NOTHING
from mechanisms.loss import Coin
from mechanisms.noise import DiscreteLaplace
from mechanisms.sampler import Source, draw
from mechanisms.values import Lattice

Levels: TypeAlias = NDArray[np.int16]


class Path(Protocol):
    """The paths of one statistic in all its cells."""

    levels: Levels  # of each cell; NOTHING where nothing was released
    whole: Lattice
    rest: NDArray[np.float64]

    def refine(self, cells: NDArray[np.bool_], level: int) -> NDArray[np.int64]:
        """Bring these cells to the level, and tell which of them moved: those that did not stand there yet."""


def path(coin: Coin, cells: int, source: Source) -> Path:
    """The path of the coin: nothing is released yet."""
    match coin:
        case Coin.PURE:
            return LaplacePath(cells, ladder.deepest(coin), source)
        case Coin.ZCDP:
            return GaussianPath(cells, source)


class GaussianPath:
    """Fresh increments, combined with weights in proportion to their exact precisions."""

    __slots__ = ("_source", "levels", "rest", "whole")

    def __init__(self, cells: int, source: Source) -> None:
        self.levels: Levels = np.full(cells, NOTHING, dtype=np.int16)
        self.whole: Lattice = np.zeros(cells, dtype=np.int64)
        self.rest: NDArray[np.float64] = np.zeros(cells)
        self._source = source

    def refine(self, cells: NDArray[np.bool_], level: int) -> NDArray[np.int64]:
        """Draw the missing precision of each cell that stands above the level."""
        moved = np.flatnonzero(cells & (self.levels < ladder.offered(Coin.ZCDP, level)))
        standing = self.levels[moved]
        for low in np.flatnonzero(np.bincount(standing + 1)) - 1:
            here = moved[standing == low]
            drawn = draw(ladder.increment(int(low), level), len(here), self._source)
            if low == NOTHING:
                self.whole[here] = drawn
            else:
                kept = _kept(int(low), level)
                self.rest[here] = kept * self.rest[here] + (1 - kept) * (drawn - self.whole[here])
        self.levels[moved] = level
        return moved


@lru_cache(maxsize=4096)
def _kept(low: int, high: int) -> float:
    """The weight of what a Gaussian path had at the coarser level, once it stands at the finer one."""
    return float(ladder.precision(low) / ladder.precision(high))


class LaplacePath:
    """Gradual release: the deepest level is drawn first, and jumps lead from each level to the coarser one.

    Levels are drawn when they are first needed: from the deepest up to the coarsest that was asked for.
    """

    __slots__ = ("_coarsest", "_jumps", "_source", "levels", "rest", "whole")

    def __init__(self, cells: int, deepest: int, source: Source) -> None:
        self.levels: Levels = np.full(cells, NOTHING, dtype=np.int16)
        self.whole: Lattice = draw(DiscreteLaplace(ladder.rate(deepest), 1), cells, source)
        self.rest: NDArray[np.float64] = np.zeros(cells)
        self._coarsest = deepest
        self._jumps: list[Jumps] = []  # the finest block first
        self._source = source

    def refine(self, cells: NDArray[np.bool_], level: int) -> NDArray[np.int64]:
        """Go down to the level, undoing the jumps that lead from it to where each cell stood."""
        self._reach(ladder.offered(Coin.PURE, level))
        moving = cells & (self.levels < level)
        # Where nothing was released, ``whole`` is the noise of the coarsest level that was drawn.
        standing = np.where(self.levels == NOTHING, self._coarsest, self.levels)
        moved = np.flatnonzero(moving)
        if len(moved):
            above = int(standing[moved].min())
            for block in self._jumps:
                of, cell, size = block.between(above, level)
                undone = moving[cell] & (of > standing[cell])
                _add(self.whole, cell[undone], -size[undone])
        self.levels[moved] = level
        return moved

    def _reach(self, level: int) -> None:
        """Draw up to this level; cells of which nothing was released go up with it."""
        if level >= self._coarsest:
            return
        unreleased = self.levels == NOTHING
        for block in draw_jumps(len(self.levels), self._coarsest, level, self._source):
            self._jumps.append(block)
            _, cell, size = block.between(level, self._coarsest)
            raised = unreleased[cell]
            _add(self.whole, cell[raised], size[raised])
        self._coarsest = level


def _add(whole: Lattice, cell: NDArray[np.int32], size: NDArray[np.int32]) -> None:
    """Add to the cells, some of which come several times; numpy is quick at it if all the types are the same."""
    np.add.at(whole, cell.astype(np.int64), size.astype(np.int64))
