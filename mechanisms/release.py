"""The one place of noise: exact numbers go in, noisy ones come out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from mechanisms import values
from mechanisms.account import Account, Index
from mechanisms.choosing import above_threshold
from mechanisms.decision import Choose, Estimates, Fresh, Problem, Refine, Reply, Request
from mechanisms.loss import Loss
from mechanisms.path import Path, path
from mechanisms.sampler import Source, draw
from mechanisms.threshold import Share
from mechanisms.values import Exact, Lattice, Noisy, Passed

LARGEST = 2**62
"""Exact numbers are clamped to this; draws stay within 2**50, so a sum never leaves 64 bits."""
FARTHEST = 2**45
"""Grid numbers are clamped to this: with their noise they are exact as floats."""


def release(exact: Exact, shares: Sequence[Share], source: Source = os.urandom) -> Noisy:
    """One share's noise for each aggregate row, an independent draw for each cell.

    *Guarantee*: row i costs ``shares[i].loss(coin)`` for an aggregate that one privacy unit moves by at most
    ``shares[i].sensitivity`` in one cell: its grid number moves by at most the grid's parts, and going back to the
    lattice is post-processing. Nothing here can fail or wrap around because of the data: clamping to 2**62 moves no two
    numbers apart, so the price holds even for numbers that no registered bound allows.
    """
    rows, cells = exact.shape
    if len(shares) != rows:
        raise ValueError(f"{rows} aggregates need as many shares, not {len(shares)}")
    # Drawn before the exact numbers are opened: what the sampler does cannot depend on them.
    noise = np.empty((rows, cells), dtype=np.int64)
    for row, share in enumerate(shares):
        noise[row] = draw(share.noise, cells, source)
    clamped = _opened(exact)
    noisy = [share.grid.lattice(share.grid.numbers(clamped[i]) + noise[i]) for i, share in enumerate(shares)]
    return Noisy(np.array(noisy, dtype=np.int64).reshape(rows, cells))


def release_found(
    statistics: Exact,
    presence: Exact,
    shares: Sequence[Share],
    presence_share: Share,
    threshold: int,
    source: Source = os.urandom,
) -> tuple[Passed, Noisy]:
    """Noise for groups whose keys nobody knew before: a group is named only if its noisy number of units passes.

    *Guarantee*: a group that one unit alone brings into being has one unit in it, so it is named with probability
    at most P[1 + X >= threshold], which ``key_threshold`` makes at most delta over the groups that a unit can touch;
    groups that are there with and without the unit pay ``presence_share`` and ``shares`` as usual (stability-based
    selection, Korolova et al. 2009).
    """
    counted = release(presence, [presence_share], source).row(0)
    noisy = release(statistics, shares, source)
    passed = np.flatnonzero(counted >= threshold).astype(np.int64)
    return Passed(passed, values._RELEASE), Noisy(noisy.values[:, passed])


@dataclass(frozen=True, slots=True, eq=False)
class _Shown:
    """What one step of a path showed: which cells came to the level, and their estimates there."""

    level: int
    cells: NDArray[np.int32]
    estimates: Estimates


class Staged:
    """Answers what a mechanism asks for, step by step, as long as it is paid.

    *Guarantee*: whatever is asked, everything that was answered costs at most what was last ``paid``: the price is
    taken before anything is drawn, and noise is drawn before exact numbers are opened. Which cells are asked for is up
    to the mechanism, which has seen noisy numbers only.
    """

    __slots__ = ("_account", "_exact", "_foreseen", "_grids", "_paths", "_problem", "_shown", "_source")

    def __init__(self, exact: Exact, problem: Problem, source: Source = os.urandom) -> None:
        if exact.shape != (len(problem.sensitivities), problem.cells):
            raise ValueError("a problem is about as many statistics and cells as were measured")
        self._exact, self._problem, self._source = exact, problem, source
        self._account = Account(problem)
        self._foreseen: tuple[Sequence[Request], Account] | None = None  # what was priced last
        self._paths: dict[int, Path] = {}
        self._grids: dict[int, Exact] = {}
        self._shown: dict[int, list[_Shown]] = {}

    def price(self, requests: Sequence[Request]) -> Loss:
        """What everything will have cost once these are answered too."""
        return self._after(requests).total()

    def _after(self, requests: Sequence[Request]) -> Account:
        """The account once these are answered: most requests are priced, and then answered at once."""
        if self._foreseen is None or self._foreseen[0] is not requests or not isinstance(requests, tuple):
            self._foreseen = requests, self._account.foreseen(requests)
        return self._foreseen[1]

    def spent(self) -> Loss:
        """What everything so far has cost."""
        return self._account.total()

    def cells(self) -> tuple[tuple[Decimal, ...], Index]:
        """The loss of each cell so far: the distinct losses, and which one each cell has."""
        return self._account.cells()

    def answer(self, requests: Sequence[Request], paid: Loss) -> tuple[Reply, ...]:
        """A reply to each request, if all that was ever asked is covered by what is paid."""
        then = self._after(requests)
        total = then.total()
        if paid.coin is not total.coin or paid.amount < total.amount:
            raise ValueError(f"{total.amount:f} {total.coin.value} would be spent, and less is paid")
        self._account, self._foreseen = then, None
        return tuple(self._reply(request) for request in requests)

    def values(self, statistic: int, level: int) -> Estimates:
        """The estimates that paths had when they first came to the level or below; NaN where one never did."""
        found = np.full(self._problem.cells, np.nan)
        for shown in reversed(self._shown.get(statistic, [])):
            if shown.level >= level:
                found[shown.cells] = shown.estimates
        return found

    def _reply(self, request: Request) -> Reply:
        match request:
            case Refine():
                return self._refined(request)
            case Fresh(statistic=statistic, cells=cells, noise=noise):
                drawn = draw(noise, int(np.count_nonzero(cells)), self._source)
                noisy = np.full(self._problem.cells, np.nan)
                noisy[cells] = _opened(self._exact)[statistic, cells] + drawn
                return noisy
            case Choose():
                return above_threshold(request, self._problem, _opened(self._exact), self._source)

    def _refined(self, request: Refine) -> Estimates:
        statistic, problem = request.statistic, self._problem
        if statistic not in self._paths:
            self._paths[statistic] = path(problem.coin, problem.cells, self._source)
        noise = self._paths[statistic]
        moved = noise.refine(request.cells, request.level)
        if statistic not in self._grids:
            grid = _grid_numbers(_opened(self._exact)[statistic], problem.sensitivities[statistic], request.parts)
            self._grids[statistic] = Exact(grid[None, :])
        # The whole number that was released, and then what follows from the differences of released numbers.
        estimates: Estimates = (_opened(self._grids[statistic])[0] + noise.whole) + noise.rest
        estimates[noise.levels < 0] = np.nan
        shown = _Shown(request.level, moved.astype(np.int32), estimates[moved])
        self._shown.setdefault(statistic, []).append(shown)
        return estimates


def _opened(exact: Exact) -> Lattice:
    """The numbers, clamped: two that were near each other stay so."""
    return np.clip(exact.open_for_release(), -LARGEST, LARGEST)


def _grid_numbers(numbers: Lattice, sensitivity: int, parts: int) -> Lattice:
    """floor(x parts / sensitivity), clamped; one unit moves it by at most ``parts``."""
    # Beyond this a grid number is clamped anyway, and products below it stay within 64 bits or become large integers.
    reach = min(LARGEST, (FARTHEST // parts + 1) * sensitivity)
    near = np.clip(numbers, -reach, reach)
    wide = near.astype(object) if reach // sensitivity * parts + sensitivity * parts >= LARGEST else near
    whole = wide // sensitivity
    exactly = whole * parts + (wide - whole * sensitivity) * parts // sensitivity
    grid: Lattice = np.clip(exactly, -FARTHEST, FARTHEST).astype(np.int64)
    return grid
