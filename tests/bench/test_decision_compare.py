"""How the bench ``decisions`` compares: geometric means, equal delivered rates, ledgers, broken promises."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.decision.cells import Cell
from bench.decision.compare import (
    Result,
    answered,
    at_equal_rates,
    broken,
    denials,
    ledgers,
    matched,
    questions,
    quotient,
    with_a_price,
)
from bench.decision.runs import Summary, Task, run_way
from bench.decisions import FULL, sized
from mechanisms.condition import Leaf
from mechanisms.decision import Test as Atom
from mechanisms.loss import Coin

PLAIN = Summary(100, 1.0, 1.0, 1.0, 0.01, 0.05, 0.5, 0.0, None, 1.0, 1.0)


def some_cell() -> Cell:
    values = np.arange(200)[None, :]
    return Cell("w", "d", "and", 1.0, values, (1,), (Atom(0, +1, 190, 190, 199),), Leaf(0))


def result(curve: dict[float, tuple[float, float]] | None = None, **ways: Summary) -> Result:
    points = {
        alpha: replace(PLAIN, median=spent, mean=spent, fpr=rate) for alpha, (spent, rate) in (curve or {}).items()
    }
    return Result(some_cell(), ways, {"probe": points} if curve else {})


def test_a_quotient_is_a_geometric_mean_with_its_ends() -> None:
    results = [
        result(cert=replace(PLAIN, median=a), probe=replace(PLAIN, median=b)) for a, b in ((1, 4), (1, 1), (2, 1))
    ]
    found = quotient(results, "cert", "probe", lambda _: True)
    assert found is not None and found.cells == 3
    assert found.mean == pytest.approx(0.5 ** (1 / 3)) and (found.best, found.worst) == (0.25, 2.0)
    assert quotient(results, "cert", "probe", lambda cell: cell.n > 1) is None


def test_an_answer_that_is_denied_costs_what_a_question_may_spend() -> None:
    """One cell that the rival answers, and one in which it says no for next to nothing."""
    results = [
        result(cert=replace(PLAIN, answer=2.0), probe=replace(PLAIN, answer=4.0)),
        result(cert=replace(PLAIN, median=2.0, answer=2.0), probe=replace(PLAIN, median=0.1, answer=10.0, denied=0.9)),
    ]
    found = answered(results, "cert", "probe", lambda _: True)
    assert found is not None and (found.best, found.worst) == (0.2, 0.5)
    assert found.mean == pytest.approx(0.1**0.5)
    assert answered(results, "cert", "probe", lambda cell: cell.n > 1) is None


def test_a_rival_that_only_says_no_has_no_cheap_answers() -> None:
    """Every group at the threshold: probe as printed denies after its first phase, whatever the noise."""
    level = replace(some_cell(), values=np.full((1, 200), 190))
    told = run_way("probe", Task(level, ("probe",), 2))
    assert told.denied == 1 and told.median < 1 and told.answer == 10


def test_equal_rates_lie_between_the_alphas_that_were_run() -> None:
    one = result({0.02: (8.0, 0.01), 0.1: (2.0, 0.03), 0.4: (0.5, 0.07)}, cert=replace(PLAIN, median=1.0, fpr=0.05))
    between = matched(one, "probe", 0.05)
    assert between is not None and between.met and between.spent == pytest.approx(1.0), "the middle of 2 and 0.5"
    beyond = matched(one, "probe", 0.09)
    assert beyond is not None and not beyond.met and beyond.spent == pytest.approx(0.5)


def test_a_rival_is_not_charged_for_a_dearer_point_that_delivers_less() -> None:
    one = result({0.02: (8.0, 0.01), 0.1: (1.0, 0.03), 0.4: (5.0, 0.07)}, cert=PLAIN)
    found = matched(one, "probe", 0.06)
    assert found is not None and found.spent == pytest.approx(1.0)


def test_cells_where_the_rival_cannot_deliver_the_same_are_told_apart() -> None:
    curve = {0.02: (8.0, 0.01), 0.4: (0.5, 0.07)}
    near, far = (result(curve, cert=replace(PLAIN, fpr=rate)) for rate in (0.04, 0.09))
    equal = at_equal_rates([near, far, result(cert=PLAIN)], "cert", "probe")
    assert equal.met is not None and equal.met.cells == 1 and equal.met.mean == pytest.approx(0.5)
    assert equal.every is not None and equal.every.cells == 2 and equal.every.worst == pytest.approx(2.0)


def test_ledgers_hold_whole_questions_on_both_coins() -> None:
    assert questions(replace(PLAIN, median=0.3), Coin.PURE) == 33
    # epsilon 10 at delta 5e-10 is a rho of 1.0597; an epsilon of 0.3 as rho is 0.045.
    assert questions(replace(PLAIN, median=0.045), Coin.ZCDP) == 23
    one = result(cert=replace(PLAIN, median=0.045), probe=replace(PLAIN, median=20.0))
    found = ledgers([one], ("cert", Coin.ZCDP), ("probe", Coin.PURE))
    assert found is not None and found.mean == pytest.approx(23), "a ledger that holds no question counts as one"


def test_broken_promises_are_counted_and_noise_is_forgiven() -> None:
    good, false = replace(PLAIN, fnr=0.06, fpr=0.1), replace(PLAIN, fnr=0.09, fpr=0.11)
    silent = replace(PLAIN, fnr=None, fpr=None, denied=1.0)
    results = [result(cert=way) for way in (good, false, silent)]
    assert broken(results, "cert") == (1, 1)
    assert denials(results, "cert", lambda _: True) == pytest.approx(1 / 3)
    assert denials(results, "cert", lambda cell: cell.n == 2) is None


def test_a_cell_in_which_a_rival_mostly_denies_has_no_price() -> None:
    results = [result(cert=PLAIN, probe=replace(PLAIN, denied=share)) for share in (0.0, 0.5, 0.51, 1.0)]
    assert with_a_price(results, "probe") == results[:2]
    assert with_a_price(results, "cert") == results


def test_an_alpha_at_which_a_rival_mostly_denies_gives_no_point_of_its_curve() -> None:
    curve = {0.02: (8.0, 0.01), 0.1: (0.1, 0.03), 0.4: (2.0, 0.05)}
    one = result(curve, cert=PLAIN)
    denying = {**one.curves["probe"], 0.1: replace(one.curves["probe"][0.1], denied=0.9)}
    found = matched(Result(one.cell, one.ways, {"probe": denying}), "probe", 0.03)
    assert found is not None and found.spent == pytest.approx(4.0), "the middle of 8 and 2"


def test_the_number_of_runs_can_be_wished_for() -> None:
    assert sized(None) == sized("") == FULL
    assert (sized("40").runs, sized("40").figure_runs, sized("40").series) == (40, 40, FULL.series)
