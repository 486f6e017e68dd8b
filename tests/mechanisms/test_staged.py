from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import fits
from seeded_source import seeded

from mechanisms import choosing, decision, ladder
from mechanisms import path as paths
from mechanisms import release as the_release
from mechanisms.condition import Leaf
from mechanisms.decision import CapReached, Choose, Decision, Fresh, Problem, Refine, Reply, Request
from mechanisms.errors import AccuracyUnreachable
from mechanisms.loss import Coin, Loss
from mechanisms.noise import DiscreteGaussian, DiscreteLaplace
from mechanisms.path import GaussianPath
from mechanisms.release import FARTHEST, Staged, _grid_numbers
from mechanisms.sampler import Source, draw
from mechanisms.solve import solve
from mechanisms.values import Exact, Lattice

steady = settings(derandomize=True, deadline=None, max_examples=200)
every_coin = pytest.mark.parametrize("coin", list(Coin))
ONE = Decimal(1)


def problem(coin: Coin, cells: int, **changes: object) -> Problem:
    tests = (decision.Test(0, 1, 500, 500, 5000), decision.Test(1, -1, 40, 10, 5000))
    both = frozenset((0, 1))
    asked = Problem((1, 3), tests, Leaf(0), (both,), (both,), cells, Decimal("0.05"), Decimal("0.1"), coin)
    return replace(asked, **changes)  # type: ignore[arg-type]


def staged(coin: Coin, numbers: Lattice, seed: str, **changes: object) -> Staged:
    return Staged(Exact(numbers), problem(coin, numbers.shape[1], **changes), seeded(seed))


def ask(stage: Staged, *requests: Request) -> tuple[Reply, ...]:
    return stage.answer(requests, stage.price(requests))


def two(first: int, second: int, cells: int) -> Lattice:
    return np.array([np.full(cells, first), np.full(cells, second)])


@every_coin
def test_a_refined_statistic_has_the_noise_of_its_level_around_its_grid_number(coin: Coin) -> None:
    n = 100_000
    stage, every = staged(coin, two(1000, -7, n), "around"), np.ones(n, dtype=np.bool_)
    for level in (400, 450):
        estimates, other = ask(stage, Refine(0, every, level, 8), Refine(1, every, level, 2))
    assert isinstance(estimates, np.ndarray) and isinstance(other, np.ndarray)
    for noise in (estimates - 8000, other - math.floor(-14 / 3)):
        wide = ladder.width(450) * (math.sqrt(2) if coin is Coin.PURE else 1)
        assert abs(noise.mean()) < 5 * wide / math.sqrt(n)
        assert abs(noise.std() / wide - 1) < 0.03
    assert abs(np.corrcoef(estimates, other)[0, 1]) < 5 / math.sqrt(n)


@every_coin
def test_what_was_never_released_is_not_there(coin: Coin) -> None:
    stage = staged(coin, two(5, 5, 4), "nothing")
    some, none = np.array([True, False, True, False]), np.zeros(4, dtype=np.bool_)
    assert np.isnan(ask(stage, Refine(0, none, 300, 8))[0]).all()
    assert stage.spent().amount == 0
    refined, drawn = ask(stage, Refine(0, some, 300, 8), Fresh(1, some, DiscreteLaplace(Fraction(1), 3)))
    assert (np.isnan(refined) == ~some).all() and (np.isnan(drawn) == ~some).all()


@every_coin
def test_asking_for_a_coarser_level_again_costs_nothing_and_shows_the_same(coin: Coin) -> None:
    stage, every = staged(coin, two(5, 5, 9), "again"), np.ones(9, dtype=np.bool_)
    first, spent = ask(stage, Refine(0, every, 400, 8))[0], stage.spent()
    for level in (400, 300):
        assert (ask(stage, Refine(0, every, level, 8))[0] == first).all()
    assert stage.spent() == spent


@every_coin
def test_what_is_not_paid_is_not_answered_and_costs_nothing(coin: Coin) -> None:
    stage, every = staged(coin, two(5, 5, 3), "unpaid"), np.ones(3, dtype=np.bool_)
    asked = (Refine(0, every, 300, 8), Fresh(0, every, DiscreteLaplace(Fraction(1, 3), 1)))
    price = stage.price(asked)
    other = Coin.PURE if coin is Coin.ZCDP else Coin.ZCDP
    for paid in (Loss(coin, price.amount - Decimal("1e-18")), Loss(other, price.amount * 100)):
        with pytest.raises(ValueError, match="paid"):
            stage.answer(asked, paid)
    assert stage.spent().amount == 0
    stage.answer(asked, price)
    assert stage.spent() == price
    more = (Refine(0, every, 320, 8),)
    with pytest.raises(ValueError, match="paid"):  # the total counts, and not the last step
        stage.answer(more, price)
    assert stage.price(more).amount > price.amount


@every_coin
def test_a_batch_with_one_wrong_request_releases_nothing(coin: Coin) -> None:
    stage, every = staged(coin, two(5, 5, 3), "batch"), np.ones(3, dtype=np.bool_)
    with pytest.raises(ValueError, match="grid"):
        stage.answer((Refine(0, every, 300, 8), Refine(0, every, 310, 9)), Loss(coin, Decimal(100)))
    assert stage.spent().amount == 0
    assert np.isnan(stage.values(0, 0)).all()


@every_coin
def test_values_are_those_that_were_shown_when_the_level_was_first_reached(coin: Coin) -> None:
    stage = staged(coin, two(5, 5, 4), "values")
    masks = [np.array(mask) for mask in ([1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0])]
    shown = [
        ask(stage, Refine(0, mask.astype(np.bool_), level, 8))[0]
        for mask, level in zip(masks, (300, 350, 400), strict=True)
    ]
    for level, expected in (
        (290, [shown[0][0], shown[0][1], shown[0][2], math.nan]),
        (300, [shown[0][0], shown[0][1], shown[0][2], math.nan]),
        (301, [shown[1][0], shown[1][1], math.nan, math.nan]),
        (400, [shown[2][0], math.nan, math.nan, math.nan]),
        (401, [math.nan] * 4),
    ):
        np.testing.assert_array_equal(stage.values(0, level), expected)
    assert np.isnan(stage.values(1, 300)).all()


def test_replies_can_be_scribbled_on() -> None:
    stage, every = staged(Coin.ZCDP, two(5, 5, 4), "scribble"), np.ones(4, dtype=np.bool_)
    first = ask(stage, Refine(0, every, 300, 8))[0]
    kept = first.copy()
    first[:] = 0
    assert (stage.values(0, 300) == kept).all()
    assert (ask(stage, Refine(0, every, 300, 8))[0] == kept).all()


def test_a_fresh_draw_has_its_own_law_each_time() -> None:
    n, noise = 100_000, DiscreteLaplace(Fraction(1, 4), 3)
    stage, every = staged(Coin.PURE, two(7, 1000, n), "fresh"), np.ones(n, dtype=np.bool_)
    first, second = (ask(stage, Fresh(1, every, noise))[0] - 1000 for _ in range(2))
    assert fits(first.astype(np.int64), noise) > 0.001
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / math.sqrt(n)
    assert stage.spent().amount == Decimal("0.5")


@steady
@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5),
    st.one_of(st.integers(1, 100), st.integers(1, 2**62)),
    st.one_of(st.integers(1, 100), st.integers(1, 2**40)),
)
def test_grid_numbers_are_exact_to_the_end_of_64_bits(numbers: list[int], sensitivity: int, parts: int) -> None:
    def exactly(number: int) -> int:
        return max(-FARTHEST, min(FARTHEST, max(-(2**62), min(2**62, number)) * parts // sensitivity))

    clamped = np.clip(np.array(numbers, dtype=np.int64), -(2**62), 2**62)
    assert _grid_numbers(clamped, sensitivity, parts).tolist() == [exactly(number) for number in numbers]
    for number in numbers:
        moved = exactly(min(2**62, max(-(2**62), number)) + sensitivity) - exactly(number)
        assert 0 <= moved <= parts


@every_coin
def test_numbers_at_the_end_of_64_bits_neither_fail_nor_wrap_around(coin: Coin) -> None:
    ends = np.array([[2**63 - 1, -(2**63)], [2**62, -(2**62)]])
    stage, every = staged(coin, ends, "ends"), np.ones(2, dtype=np.bool_)
    for statistic in range(2):
        refined, drawn = ask(
            stage, Refine(statistic, every, 300, 8), Fresh(statistic, every, DiscreteLaplace(Fraction(1), 3))
        )
        assert np.abs(refined / np.array([FARTHEST, -FARTHEST]) - 1).max() < 1e-6
        assert np.abs(drawn / np.array([2.0**62, -(2.0**62)]) - 1).max() < 1e-9
    assert ask(stage, Choose((frozenset((0,)), frozenset((1,))), 0.9, Decimal(50)))[0] is None


def test_an_estimate_depends_on_released_numbers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    # x + n and (x + 1) + (n - 1) are the same releases: not one bit of the floats may tell them apart.
    cells = 2000
    every, base = np.ones(cells, dtype=np.bool_), np.arange(cells) * 1_000_003_777

    def estimates(moved: int) -> list[Reply]:
        def shifted(noise: DiscreteGaussian, n: int, source: Source) -> Lattice:
            return draw(noise, n, source) - 8 * moved

        with monkeypatch.context() as patch:
            patch.setattr(paths, "draw", shifted)
            stage = staged(Coin.ZCDP, np.array([base + moved, base]), "the same")
            return [ask(stage, Refine(0, every, level, 8))[0] for level in (300, 311, 352, 401)]

    for ours, theirs in zip(estimates(0), estimates(1), strict=True):
        assert isinstance(ours, np.ndarray) and isinstance(theirs, np.ndarray)
        assert ours.tobytes() == theirs.tobytes()


class Redrawn(GaussianPath):
    """The mutant: a Laplace path that is drawn anew at each level, and charged as if it were bridged."""

    def refine(self, cells: np.ndarray, level: int) -> np.ndarray:
        moved = np.flatnonzero(cells & (self.levels < level))
        self.whole[moved] = draw(DiscreteLaplace(ladder.rate(level), 1), len(moved), self._source)
        self.levels[moved] = level
        return moved


@pytest.mark.parametrize("mutant", [False, True])
def test_the_audit_of_a_conversation_catches_a_redraw_that_is_charged_the_difference(
    mutant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mutant:
        monkeypatch.setattr(the_release, "path", lambda coin, cells, source: Redrawn(cells, source))
    n, every = 300_000, np.ones(300_000, dtype=np.bool_)

    def high(count: int) -> int:
        """In how many cells both levels show at least twice the neighbour's distance."""
        stage = staged(Coin.PURE, two(count, 0, n), f"conversation {count}")
        seen = [ask(stage, Refine(0, every, level, 3))[0] for level in (470, 510)]
        epsilons.append(float(stage.spent().amount))
        return int((np.minimum(*seen) >= 6).sum())

    epsilons: list[float] = []
    here, there = high(0), high(1)
    excess = (math.log(there / here) - epsilons[0]) / math.sqrt(1 / here + 1 / there)
    assert excess > 8 if mutant else excess < 4


@steady
@given(st.data())
def test_a_soft_count_moves_by_no_more_than_its_noise_is_made_for(data: st.DataObject) -> None:
    numbers = st.one_of(st.integers(-50, 50), st.integers(-(2**62), 2**62))
    scales, sensitivities = (st.one_of(st.integers(1, 60), st.integers(1, 2**63)) for _ in range(2))
    tests = tuple(
        decision.Test(of, data.draw(st.sampled_from([1, -1])), data.draw(numbers), data.draw(scales), 1)
        for of in range(2)
    )
    cells, bits = 3, data.draw(st.integers(0, 20))
    moves = tuple(data.draw(sensitivities) for _ in range(2))
    asked = problem(Coin.PURE, cells, tests=tests, sensitivities=moves)
    here = np.array(data.draw(st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=2, max_size=2)))
    there = here.copy()
    for of in range(2):
        there[of, 0] = np.clip(int(here[of, 0]) + data.draw(st.integers(-moves[of], moves[of])), -(2**62), 2**62)
    clause = frozenset((0, 1))
    counts = [choosing.soft_count(clause, asked, x, bits) for x in (here, there)]
    allowed = max(choosing.moved(test, moves[test.statistic], bits) for test in tests)
    assert abs(counts[0] - counts[1]) <= allowed
    assert counts[0] == sum(
        min(refuted(test, int(here[test.statistic, cell]), bits) for test in tests) for cell in range(3)
    )


def refuted(test: decision.Test, number: int, bits: int) -> int:
    """The definition, in fractions; no number is farther from a threshold than 2**61 counts."""
    assert isinstance(test.threshold, int)
    distance = min((test.threshold - number) * test.direction, 2**61)
    return math.floor(min(max(Fraction(2 * distance, test.scale), Fraction(0)), Fraction(1)) * 2**bits)


def test_thresholds_may_differ_from_cell_to_cell() -> None:
    tests = (decision.Test(0, 1, np.array([10, 20, 30]), 10, 1),)
    asked = problem(Coin.PURE, 3, tests=tests)
    assert choosing.soft_count(frozenset((0,)), asked, two(18, 0, 3), 1) == 0 + 0 + 2


def test_the_first_clause_that_refutes_enough_is_chosen() -> None:
    numbers = np.array([np.r_[np.full(900, 100), np.full(100, 900)], np.full(1000, 45)])
    stage = staged(Coin.PURE, numbers, "choose")
    first, second = frozenset((0,)), frozenset((1,))
    # 90 % lie far below 500; all lie 5 above 40, and half a scale of 10 is enough to be refuted.
    assert ask(stage, Choose((first, second), 0.7, ONE)) == (0,)
    assert ask(stage, Choose((first, second), 0.95, ONE)) == (1,)
    assert ask(stage, Choose((first, first | second), 0.95, ONE)) == (None,)
    assert stage.spent().amount == 3


def test_a_choice_is_as_private_as_it_costs_and_one_with_an_eighth_of_the_noise_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # One cell, one clause, and a count that one unit moves all the way.
    asked, runs = problem(Coin.PURE, 1), 3000
    choice = Choose((frozenset((0,)),), 1.0, Decimal(2))
    exacts = [np.array([[x], [0]]) for x in (0, 1000)]
    narrow = replace(asked, sensitivities=(500, 3))  # a unit moves the count from 0 to 1

    def excess() -> float:
        said = [
            sum(choosing.above_threshold(choice, narrow, x, seeded(f"choice {run}")) is not None for run in range(runs))
            for x in exacts
        ]
        ratio = math.log(said[0] / said[1])
        return (ratio - float(choice.epsilon)) / math.sqrt(1 / said[0] + 1 / said[1])

    assert excess() < 4
    true = choosing.draw
    monkeypatch.setattr(choosing, "draw", lambda noise, n, source: true(noise.scaled(Fraction(1, 8)), n, source))
    assert excess() > 8


def test_a_choice_takes_as_many_draws_whatever_the_numbers() -> None:
    taken: list[int] = []

    def counted(n: int) -> bytes:
        taken[-1] += n
        return stream(n)

    choice = Choose((frozenset((0,)), frozenset((1,))), 0.7, ONE)
    for numbers in (two(0, 0, 9), two(10**6, 10**6, 9)):
        taken.append(0)
        stream = seeded("draws")
        choosing.above_threshold(choice, problem(Coin.PURE, 9), numbers, counted)
    assert taken[0] == taken[1] > 0


def test_a_cheap_choice_for_units_that_touch_many_cells_counts_in_coarser_steps() -> None:
    many = problem(Coin.PURE, 9, touched=10**6, sensitivities=(10**4, 10**4))
    choice = Choose((frozenset((0,)),), 0.7, Decimal("0.001"))
    bits, moves = choosing._resolution(choice, many)
    assert 0 <= bits < 20
    assert moves == 10**6 << bits
    with pytest.raises(ValueError, match="cheap"):
        choosing._resolution(replace(choice, epsilon=Decimal("1e-7")), many)
    with pytest.raises(ValueError, match="clauses"):
        choosing._resolution(replace(choice, clauses=(frozenset(),)), many)


def test_a_problem_is_about_what_was_measured() -> None:
    for shape in ((1, 3), (2, 4)):
        with pytest.raises(ValueError, match="measured"):
            Staged(Exact(np.zeros(shape, dtype=np.int64)), problem(Coin.PURE, 3))


Talk = Generator[tuple[Request, ...], tuple[Reply, ...], Decision]


def refines_until_told(levels: range, cells: int) -> Talk:
    every = np.ones(cells, dtype=np.bool_)
    seen = np.zeros(cells)
    try:
        for level in levels:
            (reply,) = yield (Refine(0, every, level, 8),)
            assert isinstance(reply, np.ndarray)
            seen = reply
    except CapReached as reached:
        if levels.step > 10:
            raise AccuracyUnreachable("a sharper ask cannot be met") from reached
        if levels.step > 5:
            raise
    return Decision(seen >= 4000, Decimal("0.05"), None, None, (0, 0), (ONE, ONE))


@every_coin
def test_a_conversation_ends_with_a_decision_and_its_price(coin: Coin) -> None:
    solved = solve(refines_until_told(range(380, 501, 1), 6), staged(coin, two(9000, 0, 6), "talk"), None)
    last = ladder.price(coin, 500, 8)
    assert solved.decision.kept.all()
    assert 0 <= Fraction(solved.loss.amount) - last < Fraction(1, 10**18)
    assert solved.losses == (solved.loss.amount,) and solved.cells.tolist() == [0] * 6


@every_coin
@pytest.mark.parametrize("step", [1, 10, 20])
def test_what_would_exceed_the_cap_is_not_released_and_the_refusal_tells_what_was(coin: Coin, step: int) -> None:
    stage, cap = staged(coin, two(9000, 0, 6), "cap"), Decimal("0.5")
    talk = refines_until_told(range(300, 601, step), 6)
    if step == 1:  # it makes do with what it has
        spent = solve(talk, stage, cap).loss
    else:
        with pytest.raises(AccuracyUnreachable) as refused:
            solve(talk, stage, cap)
        assert isinstance(refused.value, CapReached) is (step == 10)
        assert refused.value.spent is not None
        spent = refused.value.spent
    assert spent == stage.spent()
    assert 0 < spent.amount <= cap < spent.amount * Decimal("1.04") ** (2 * step + 1)
