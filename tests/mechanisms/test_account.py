from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms import ladder
from mechanisms.account import Account, _Cells, _compressed, _Statistic
from mechanisms.condition import Leaf
from mechanisms.decision import Choose, Fresh, Problem, Refine, Request
from mechanisms.ladder import NOTHING
from mechanisms.loss import Coin, Loss
from mechanisms.noise import DiscreteLaplace

steady = settings(derandomize=True, deadline=None, max_examples=150)
every_coin = pytest.mark.parametrize("coin", list(Coin))
CELLS = 5
PARTS = (3, 8)
SENSITIVITIES = (1, 7)


def problem(
    coin: Coin, touched: int = 1, together: tuple[tuple[int, ...], ...] | None = None, cells: int = CELLS
) -> Problem:
    beta, alpha = Decimal("0.05"), Decimal("0.1")
    return Problem(SENSITIVITIES, (), Leaf(0), (), (), cells, beta, alpha, coin, touched, together)


def by_hand(asked: Problem, requests: Sequence[Request]) -> tuple[Fraction, list[Fraction]]:
    """The total and each cell's loss, cell by cell and step by step."""
    level = [[NOTHING] * asked.cells for _ in asked.sensitivities]
    spent = [[Fraction(0)] * asked.cells for _ in asked.sensitivities]
    chosen = Fraction(0)
    for request in requests:
        match request:
            case Refine():
                for cell in np.flatnonzero(request.cells):
                    level[request.statistic][cell] = max(level[request.statistic][cell], request.level)
            case Fresh():
                for cell in np.flatnonzero(request.cells):
                    spent[request.statistic][cell] += step(request.noise.epsilon, asked.coin)
            case Choose():
                chosen += step(Fraction(request.epsilon), asked.coin)
    cells = []
    for cell in range(asked.cells):
        each = [
            spent[of][cell] + ladder.price(asked.coin, level[of][cell], PARTS[of])
            for of in range(len(asked.sensitivities))
        ]
        cells.append(max(sum(each[of] for of in together) for together in asked.sets()))
    return sum(sorted(cells, reverse=True)[: asked.touched]) + chosen, [cell + chosen for cell in cells]


def step(epsilon: Fraction, coin: Coin) -> Fraction:
    return epsilon if coin is Coin.PURE else epsilon**2 / 2


def up(amount: Fraction) -> Decimal:
    steps = amount * 10**18
    return Decimal(-(-steps.numerator // steps.denominator)) / 10**18


masks = st.lists(st.booleans(), min_size=CELLS, max_size=CELLS).map(np.array)
levels = st.integers(ladder.coarsest(Coin.ZCDP), 400)
epsilons = st.decimals("0.001", "2", places=3)
refines = st.builds(lambda of, cells, level: Refine(of, cells, level, PARTS[of]), st.integers(0, 1), masks, levels)
freshes = st.builds(
    lambda of, cells, epsilon, more: Fresh(of, cells, DiscreteLaplace(Fraction(epsilon), SENSITIVITIES[of] + more)),
    *(st.integers(0, 1), masks, epsilons, st.integers(0, 3)),
)
chooses = st.builds(lambda epsilon: Choose((frozenset((0,)),), 0.7, epsilon), epsilons)
requests = st.lists(st.one_of(refines, freshes, chooses), max_size=6)
problems = st.builds(
    problem, st.sampled_from(list(Coin)), st.integers(1, 7), st.sampled_from([None, ((0,), (1,)), ((0, 1), (1,))])
)


def account(asked: Problem, *released: Sequence[Request]) -> Account:
    made = Account(asked)
    for step in released:
        made.book(step)
    return made


@steady
@given(problems, requests)
def test_the_total_and_the_cells_are_those_that_one_adds_up_by_hand(asked: Problem, released: list[Request]) -> None:
    total, cells = by_hand(asked, released)
    booked = account(asked, released)
    assert booked.total() == Loss(asked.coin, up(total))
    losses, index = booked.cells()
    assert [losses[place] for place in index] == [up(cell) for cell in cells]
    assert list(losses) == sorted(set(losses))


@steady
@given(problems, requests, requests)
def test_what_was_foreseen_is_what_it_then_costs_and_foreseeing_changes_nothing(
    asked: Problem, first: list[Request], second: list[Request]
) -> None:
    booked = account(asked, first)
    before, foreseen = booked.total(), booked.after(second)
    assert booked.total() == before
    booked.book(second)
    assert booked.total() == foreseen
    assert before.amount <= foreseen.amount


@steady
@given(problems, requests, st.data())
def test_the_steps_in_which_things_are_released_do_not_matter(
    asked: Problem, released: list[Request], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(released))
    assert account(asked, released).total() == account(asked, *([one] for one in shuffled)).total()


EVERY = np.ones(CELLS, dtype=np.bool_)
FIRST = np.arange(CELLS) < 1
STAIRS = (Refine(0, EVERY, 300, 3), Refine(0, FIRST, 340, 3), Refine(0, EVERY, 310, 3))


def agrees(asked: Problem) -> bool:
    return account(asked, STAIRS).total().amount == up(by_hand(asked, STAIRS)[0])


def sums_levels(self: _Statistic, request: Refine, coin: Coin) -> _Statistic:
    """The mutant that charges each level of a path anew."""
    price = ladder.price(coin, request.level, request.parts)
    return self._moved(request.cells, [replace(state, draws=state.draws + price) for state in self.states])


def one_cell(self: _Cells, cells: int) -> list[tuple[Fraction, int]]:
    """The mutant that charges one cell, however many a unit moves."""
    return [(max(self.prices(range(self.many))), 1)]


@every_coin
def test_a_path_costs_its_last_level_and_a_unit_all_the_cells_it_touches(
    coin: Coin, monkeypatch: pytest.MonkeyPatch
) -> None:
    two, last = problem(coin, 2), ladder.price(coin, 340, 3)
    assert agrees(two)
    assert account(problem(coin), STAIRS).total().amount == up(last)
    assert account(two, STAIRS).total().amount == up(last + ladder.price(coin, 310, 3))
    for kind, name, mutant in ((_Statistic, "refined", sums_levels), (_Cells, "dearest", one_cell)):
        with monkeypatch.context() as patch:
            patch.setattr(kind, name, mutant)
            assert not agrees(two)


def test_statistics_that_no_unit_moves_together_cost_the_dearer_one() -> None:
    released = (Refine(0, EVERY, 300, 3), Refine(1, EVERY, 320, 8))
    prices = ladder.price(Coin.ZCDP, 300, 3), ladder.price(Coin.ZCDP, 320, 8)
    assert account(problem(Coin.ZCDP), released).total().amount == up(sum(prices))
    assert account(problem(Coin.ZCDP, 1, ((0,), (1,))), released).total().amount == up(max(prices))


def test_independent_draws_add_up_and_so_do_choices() -> None:
    drawn = Fresh(0, FIRST, DiscreteLaplace(Fraction(1, 10), 1))
    chosen = Choose((frozenset((0,)),), 0.7, Decimal("0.2"))
    assert account(problem(Coin.PURE), [drawn, drawn, chosen]).total().amount == Decimal("0.4")
    assert account(problem(Coin.ZCDP), [drawn, drawn, chosen]).total().amount == Decimal("0.03")
    losses, index = account(problem(Coin.PURE), [drawn, drawn, chosen]).cells()
    assert losses == (Decimal("0.2"), Decimal("0.4"))
    assert index.tolist() == [1, 0, 0, 0, 0]


def test_a_choice_is_paid_once_however_many_cells_a_unit_touches() -> None:
    chosen = Choose((frozenset((0,)),), 0.7, Decimal("0.2"))
    assert account(problem(Coin.PURE, 4), [chosen]).total().amount == Decimal("0.2")


def test_nothing_released_costs_nothing_and_no_cells_are_no_cost() -> None:
    assert Account(problem(Coin.ZCDP)).total() == Loss.nothing(Coin.ZCDP)
    nobody = Account(problem(Coin.ZCDP, cells=0))
    nobody.book([Refine(0, np.zeros(0, dtype=np.bool_), 300, 3)])
    assert nobody.total().amount == 0
    assert nobody.cells()[1].tolist() == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ([Refine(0, EVERY, 300, 3), Refine(0, EVERY, 310, 4)], "grid"),
        ([Refine(0, EVERY, 300, 0)], "grid"),
        ([Refine(0, EVERY, 175, 3)], "offered"),
        ([Refine(0, EVERY, 631, 3)], "offered"),
        ([Refine(0, EVERY[:-1], 300, 3)], "truth value"),
        ([Refine(0, np.array([2, 3, 4, 0, 1]), 300, 3)], "truth value"),
        ([Refine(-1, EVERY, 300, 8)], "no statistic"),  # the second path of a statistic that has one
        ([Refine(2, EVERY, 300, 3)], "no statistic"),
        ([Fresh(1, EVERY, DiscreteLaplace(Fraction(1), 6))], "moves less"),
        ([Fresh(-1, EVERY, DiscreteLaplace(Fraction(1), 7))], "no statistic"),
        ([Choose((frozenset((0,)),), 0.7, Decimal(0))], "costs something"),
    ],
)
def test_what_cannot_be_priced_is_refused_and_nothing_is_booked(wrong: list[Request], said: str) -> None:
    booked = account(problem(Coin.ZCDP), [Refine(1, EVERY, 200, 8)])
    before = booked.total()
    for attempt in (booked.after, booked.book):
        with pytest.raises(ValueError, match=said):
            attempt(wrong)
    assert booked.total() == before


def test_many_combinations_of_states_are_compressed_alike() -> None:
    codes = np.frombuffer(os.urandom(8000), dtype=np.uint64).astype(np.int64) & 0xFFF
    dense, sparse = _compressed(codes, 4096), _compressed(codes, 1 << 40)
    assert all((ours == theirs).all() for ours, theirs in zip(dense, sparse, strict=True))
    assert (dense[0][dense[1]] == codes).all()


def test_a_step_of_a_hundred_thousand_cells_is_priced_in_milliseconds() -> None:
    cells = 100_000
    asked = Problem((1,) * 4, (), Leaf(0), (), (), cells, Decimal("0.05"), Decimal("0.1"), Coin.ZCDP)
    booked, left = Account(asked), np.ones(cells, dtype=np.bool_)
    slowest = []
    for level in range(200, 400, 10):
        released = [Refine(of, left, level, 8) for of in range(4)]
        times = []
        for _ in range(3):
            start = time.process_time()
            booked.after(released)
            times.append(time.process_time() - start)
        slowest.append(min(times))
        booked.book(released)
        left = left & (np.arange(cells) % (level // 10) != 0)
    assert max(slowest) < 0.1
