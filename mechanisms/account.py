"""What a decision has cost so far, exactly: the fold over everything that was released for it.

Each statistic of each cell is in a *state*: how far its path was refined, and what its independent draws cost. Few
states differ, so prices are fractions of states, and cells are only counted.

*Guarantee.* A privacy unit moves at most ``touched`` cells, and in each of them the statistics of one of
``problem.sets()``. So what was released is worth at most the sum over the ``touched`` dearest cells of the largest sum
over a set (releases on different coordinates compose by adding, in both coins), and beside it each ``Choose`` step,
whose epsilon covers a whole unit. Every request is priced before it is drawn, so the bound holds for requests chosen
from earlier replies.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mechanisms import ladder
from mechanisms.decision import Choose, Fresh, Mask, Problem, Refine, Request
from mechanisms.ladder import NOTHING
from mechanisms.loss import Coin, Loss

Index: TypeAlias = NDArray[np.int64]
_DENSE = 1 << 22  # up to so many combinations of states are counted in an array


@dataclass(frozen=True, slots=True)
class _State:
    """Of one statistic in one cell."""

    level: int = NOTHING
    draws: Fraction = Fraction(0)  # what the independent draws cost, in coin


@dataclass(frozen=True, slots=True, eq=False)
class _Statistic:
    """The states of one statistic: ``states[index[cell]]``."""

    states: tuple[_State, ...]
    index: Index
    parts: int | None = None  # of its grid, once there is one

    def refined(self, request: Refine, coin: Coin) -> _Statistic:
        """After bringing some cells down to a level."""
        ladder.offered(coin, request.level)
        if request.parts < 1 or self.parts not in (None, request.parts):
            raise ValueError("all requests on one statistic are on the same grid")
        moved = self._moved(
            request.cells, [replace(state, level=max(state.level, request.level)) for state in self.states]
        )
        return replace(moved, parts=request.parts)

    def drawn(self, request: Fresh, sensitivity: int, coin: Coin) -> _Statistic:
        """After an independent draw in some cells."""
        if request.noise.sensitivity < sensitivity:
            raise ValueError("the noise is for a statistic that one unit moves less")
        step = pure_step(request.noise.epsilon, coin)
        return self._moved(request.cells, [replace(state, draws=state.draws + step) for state in self.states])

    def prices(self, coin: Coin) -> list[Fraction]:
        """What each state costs."""
        return [
            state.draws + ladder.price(coin, state.level, 1 if self.parts is None else self.parts)
            for state in self.states
        ]

    def _moved(self, cells: Mask, successors: list[_State]) -> _Statistic:
        if cells.dtype != np.bool_ or cells.shape != self.index.shape:
            raise ValueError("cells are chosen by one truth value for each")
        if len(successors) == 1 and cells.all():
            return replace(self, states=tuple(successors))
        known = {state: place for place, state in enumerate(self.states)}
        follows = np.array([known.setdefault(state, len(known)) for state in successors], dtype=np.int64)
        index = np.where(cells, follows[self.index], self.index)
        # States in which no cell is any more are forgotten: a long conversation passes through many.
        used = np.flatnonzero(np.bincount(index, minlength=len(known)))
        renamed = np.zeros(len(known), dtype=np.int64)
        renamed[used] = np.arange(len(used))
        states = tuple(known)
        return replace(self, states=tuple(states[place] for place in used), index=renamed[index])


class Account:
    """The price of everything that was released for one problem."""

    __slots__ = ("_chosen", "_problem", "_statistics", "_total")

    def __init__(self, problem: Problem) -> None:
        start = _Statistic((_State(),), np.zeros(problem.cells, dtype=np.int64))
        self._problem = problem
        self._statistics = (start,) * len(problem.sensitivities)
        self._chosen = Fraction(0)  # what the choosing steps cost
        self._total: Loss | None = None  # once it is known

    def after(self, requests: Sequence[Request]) -> Loss:
        """The total, if these were released too."""
        return self.foreseen(requests).total()

    def book(self, requests: Sequence[Request]) -> None:
        """Count these as released."""
        then = self.foreseen(requests)
        self._statistics, self._chosen, self._total = then._statistics, then._chosen, then._total

    def foreseen(self, requests: Sequence[Request]) -> Account:
        """The account as it will be after these."""
        then = copy(self)
        for request in requests:
            then._take(request)
        return then

    def total(self) -> Loss:
        """What everything cost together, rounded up once."""
        if self._total is None:
            self._total = self._added_up()
        return self._total

    def _added_up(self) -> Loss:
        cells = self._cells()
        left, spent = self._problem.touched, self._chosen
        for price, count in cells.dearest(left):
            taken = min(left, count)
            left, spent = left - taken, spent + taken * price
        return Loss(self._problem.coin, _round_up(spent))

    def cells(self) -> tuple[tuple[Decimal, ...], Index]:
        """The predicate-wise loss: the distinct losses of cells, ascending, and which of them each cell has."""
        cells = self._cells()
        told = [_round_up(price + self._chosen) for price in cells.prices(range(cells.many))]
        places = {price: place for place, price in enumerate(sorted(set(told)))}
        return tuple(places), np.array([places[price] for price in told], dtype=np.int64)[cells.index]

    def _take(self, request: Request) -> None:
        coin, statistics = self._problem.coin, list(self._statistics)
        self._total = None
        # One statistic under two names would have two paths at the price of one.
        if not isinstance(request, Choose) and request.statistic not in range(len(statistics)):
            raise ValueError(f"there is no statistic {request.statistic}")
        match request:
            case Refine(statistic=of):
                statistics[of] = statistics[of].refined(request, coin)
            case Fresh(statistic=of):
                statistics[of] = statistics[of].drawn(request, self._problem.sensitivities[of], coin)
            case Choose():
                if not request.epsilon > 0:
                    raise ValueError("a choice costs something")
                self._chosen += pure_step(Fraction(request.epsilon), coin)
        self._statistics = tuple(statistics)

    def _cells(self) -> _Cells:
        columns: list[Index] = []
        index, many = np.zeros(self._problem.cells, dtype=np.int64), 1
        for statistic in self._statistics:
            states = len(statistic.states)
            if states == 1:
                columns.append(np.zeros(many, dtype=np.int64))
                continue
            used, index = _compressed(index * states + statistic.index, many * states)
            columns = [*(column[used // states] for column in columns), used % states]
            many = len(used)
        prices = [statistic.prices(self._problem.coin) for statistic in self._statistics]
        return _Cells(columns, index, prices, self._problem.sets(), many)


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """The combinations of states that occur, and which one each cell is in."""

    columns: list[Index]  # for each statistic its state in each combination
    index: Index
    states: list[list[Fraction]]  # for each statistic the price of each of its states
    sets: tuple[tuple[int, ...], ...]
    many: int

    def prices(self, combinations: Iterable[int]) -> list[Fraction]:
        """What a cell in each of these combinations costs, exactly."""
        # Whole numbers over one denominator: sums of fractions would take most of the time.
        below = math.lcm(*(price.denominator for column in self.states for price in column))
        whole = [[price.numerator * (below // price.denominator) for price in column] for column in self.states]
        return [
            Fraction(max(sum(whole[of][self.columns[of][place]] for of in together) for together in self.sets), below)
            for place in combinations
        ]

    def dearest(self, cells: int) -> list[tuple[Fraction, int]]:
        """Prices and numbers of cells, the dearest first, until there are at least so many cells, or all.

        Floats only tell which combinations cannot be among them; they are good to 15 digits and 9 are used.
        """
        if self.many <= 1:
            return [(price, len(self.index)) for price in self.prices(range(self.many))]
        rough = [np.array([float(price) for price in column]) for column in self.states]
        sums = [
            sum((rough[of][self.columns[of]] for of in together), start=np.zeros(self.many)) for together in self.sets
        ]
        about = np.max(sums, axis=0)
        counts = np.bincount(self.index, minlength=self.many)
        order = np.argsort(-about)
        last = order[min(int(np.searchsorted(np.cumsum(counts[order]), cells)), self.many - 1)]
        near = np.flatnonzero(about >= about[last] * (1 - 1e-9)).tolist()
        priced = zip(self.prices(near), counts[near].tolist(), strict=True)
        return sorted(priced, reverse=True)


def pure_step(epsilon: Fraction, coin: Coin) -> Fraction:
    """What an epsilon-DP step costs in coin, exactly (Bun and Steinke 2016, Prop. 1.4)."""
    match coin:
        case Coin.PURE:
            return epsilon
        case Coin.ZCDP:
            return epsilon * epsilon / 2


def _compressed(codes: Index, many: int) -> tuple[Index, Index]:
    """The codes that occur, ascending, and the place of each cell's code among them."""
    if many == 1:
        return np.zeros(1, dtype=np.int64), codes
    if many > _DENSE:
        used, places = np.unique(codes, return_inverse=True)
        return used, places.astype(np.int64)
    used = np.flatnonzero(np.bincount(codes, minlength=many)).astype(np.int64)
    renamed = np.zeros(many, dtype=np.int64)
    renamed[used] = np.arange(len(used))
    return used, renamed[codes]


def _round_up(amount: Fraction) -> Decimal:
    """The smallest number of 18 places that is not below the amount."""
    return Decimal(f"{-(-amount.numerator * 10**18 // amount.denominator)}e-18")  # read exactly, whatever its length
