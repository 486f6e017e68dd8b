"""The bugs that the audit of decisions is for, planted one by one: each has to be found."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from audit_worlds import (
    MECHANISMS,
    NEAR,
    ROUNDING,
    SHOTS,
    TESTS,
    UNIT,
    asked,
    factor,
    likelihood,
    sets,
    world,
)
from decision_audit import World, audited, chances

from mechanisms import choosing, ladder
from mechanisms import path as paths
from mechanisms import release as the_release
from mechanisms.account import Account
from mechanisms.decision import Choose, Decision, Problem, Request, Solver
from mechanisms.loss import Coin, Loss
from mechanisms.noise import DiscreteLaplace, Noise
from mechanisms.path import GaussianPath, LaplacePath
from mechanisms.progressive import ppwlm
from mechanisms.sampler import Source, draw
from mechanisms.values import Lattice

SHORT = 1e-6

# -- In the noise ------------------------------------------------------------------------------------------------------

Patch = pytest.MonkeyPatch


def narrow_noise(patch: Patch) -> None:
    """Ten percent too little: draws that are narrower, and Laplace paths that go six levels too far."""

    def narrower(noise: Noise, n: int, source: Source) -> Lattice:
        return draw(noise.scaled(Fraction(9, 10)), n, source)

    true = LaplacePath.refine
    patch.setattr(the_release, "draw", narrower)
    patch.setattr(paths, "draw", narrower)
    patch.setattr(LaplacePath, "refine", lambda path, cells, level: true(path, cells, level + 6))


class Redrawn(GaussianPath):
    """Each level of a Laplace path is drawn anew, and charged as if it were bridged."""

    def refine(self, cells: np.ndarray, level: int) -> np.ndarray:
        moved = np.flatnonzero(cells & (self.levels < level))
        self.whole[moved] = draw(DiscreteLaplace(ladder.rate(level), 1), len(moved), self._source)
        self.levels[moved] = level
        return moved


def redrawn_paths(patch: Patch) -> None:
    patch.setattr(the_release, "path", lambda coin, cells, source: Redrawn(cells, source))


def one_part_too_many(patch: Patch) -> None:
    """The price is that of m parts, and the release works with m + 1."""
    true = the_release._grid_numbers
    patch.setattr(the_release, "_grid_numbers", lambda x, moved, parts: true(x, moved, parts + 1))


@pytest.mark.parametrize("name", [name for name in SHOTS if "paid" not in name])
def test_ten_percent_too_little_noise_is_caught_in_one_look(name: str, monkeypatch: Patch) -> None:
    narrow_noise(monkeypatch)
    assert SHOTS[name].factor(0, SHOTS[name].sensitivity, 200_000, SHORT) > 1


@pytest.mark.parametrize("name", ["a Laplace level", "two Laplace levels", "a Gaussian level", "two Gaussian levels"])
def test_a_part_too_many_is_caught_in_one_look(name: str, monkeypatch: Patch) -> None:
    one_part_too_many(monkeypatch)
    assert SHOTS[name].factor(0, SHOTS[name].sensitivity, 100_000, SHORT) > 1


@pytest.mark.parametrize("name", ["a Laplace number", "a Gaussian number", "a fresh draw"])
def test_a_unit_that_moves_one_more_than_was_said_is_caught_in_one_look(name: str) -> None:
    assert SHOTS[name].factor(0, SHOTS[name].sensitivity + 1, 100_000, SHORT) > 1


def test_a_redraw_that_is_charged_the_difference_is_caught_in_two_looks(monkeypatch: Patch) -> None:
    redrawn_paths(monkeypatch)
    assert SHOTS["two Laplace levels"].factor(0, 3, 100_000, SHORT) > 1


def found_in_runs(span: int, runs: int) -> float:
    """What runs of ``ppwlm`` prove of the first unit in a group; a wide span means far steps on a grid of one part."""
    tests = (replace(TESTS[0], threshold=1, span=span),)
    here = World(
        replace(asked("one group", Coin.PURE), tests=tests),
        np.array([[0]]),
        lambda problem: ppwlm(problem, [2], steps=6),
        Decimal(9),
    )
    databases = here.database, here.database + 1
    (ours,), (theirs,) = (audited(here, databases[at], [databases[1 - at]], runs, f"bugs {at}") for at in (0, 1))
    return factor(Coin.PURE, ours, theirs, SHORT)


@pytest.mark.parametrize(("bug", "span"), [(redrawn_paths, 24), (one_part_too_many, 3500)])
def test_a_bug_in_the_noise_is_caught_in_the_runs_of_a_mechanism(
    bug: Callable[[Patch], None], span: int, monkeypatch: Patch
) -> None:
    bug(monkeypatch)
    assert found_in_runs(span, 4_000) > 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_percent_too_little_noise_is_caught_in_fifty_thousand_runs(monkeypatch: Patch) -> None:
    for span in (24, 3500):
        assert found_in_runs(span, 50_000) <= 1
    narrow_noise(monkeypatch)
    assert found_in_runs(24, 50_000) > 1


# -- In the charge -----------------------------------------------------------------------------------------------------


class BeforeTheLast(Account):
    """Charges what stood before the last refinement."""

    __slots__ = ("_before",)
    _before: Loss

    def foreseen(self, requests: Sequence[Request]) -> Account:
        then = super().foreseen(requests)
        assert isinstance(then, BeforeTheLast)
        then._before = super().total()
        return then

    def total(self) -> Loss:
        return getattr(self, "_before", None) or super().total()


class ChoicesForgotten(Account):
    """Charges the looks, and not the choosing step before them."""

    __slots__ = ()

    def _take(self, request: Request) -> None:
        if not isinstance(request, Choose):
            super()._take(request)


def one_group_a_unit(problem: Problem) -> Account:
    """Charges a unit once that moves two groups."""
    return Account(replace(problem, touched=1))


def one_statistic_a_unit(problem: Problem) -> Account:
    """Charges the dearest statistic of a unit that moves two."""
    return Account(replace(problem, together=((0,), (1,))))


BUGS = [
    *((BeforeTheLast, name, "four groups", Coin.PURE) for name in ("ppwlm", "dppwlm", "probe", "probe_ent", "cert")),
    *((BeforeTheLast, name, "four groups", Coin.ZCDP) for name in ("ppwlm", "cert")),
    *((one_group_a_unit, name, "units in two groups", Coin.PURE) for name in MECHANISMS),
    *((one_group_a_unit, name, "units in two groups", Coin.ZCDP) for name in ("ppwlm", "cert")),
    *((one_statistic_a_unit, name, "four groups", Coin.PURE) for name in MECHANISMS),
    *((one_statistic_a_unit, name, "four groups", Coin.ZCDP) for name in ("ppwlm", "cert")),
]


def unpaid(here: World, shape: str, account: Callable[[Problem], Account]) -> float:
    """How far the losses exceed what such an account charges, where it charges anything."""
    other, runs = here.database + np.array(UNIT[shape]), 200 if here.problem.coin is Coin.PURE else 700
    (told,) = audited(here, here.database, [other], runs, "unpaid", account)
    return likelihood(here.problem.coin, told.part(np.flatnonzero(told.charges > 0)), SHORT)


@pytest.mark.parametrize(("account", "name", "shape", "coin"), BUGS)
def test_a_charge_that_forgets_something_is_caught(
    account: Callable[[Problem], Account], name: str, shape: str, coin: Coin
) -> None:
    assert unpaid(world(name, shape, coin), shape, account) > 1 + ROUNDING


def test_a_choice_that_is_not_charged_is_caught() -> None:
    """Only a unit of a group that is not yet refuted all the way moves a choice."""
    shape = "four groups"
    here = replace(world("cert", shape, Coin.PURE), database=np.array(NEAR[shape]))
    assert unpaid(here, shape, Account) <= 1 + ROUNDING
    assert unpaid(here, shape, ChoicesForgotten) > 1.001


# -- The choosing step -------------------------------------------------------------------------------------------------

UNITS = np.array([[1] * 8, [3] * 8])
CHOICE = Choose(sets((0,), (1,)), 1.0, Decimal(2))


def only_chooses(problem: Problem) -> Solver:
    (reply,) = yield (CHOICE,)
    kept = np.zeros(problem.cells, dtype=np.bool_)
    kept[: 2 if reply is None else reply] = True
    return Decision(kept, problem.beta, None, None, (0, 0), (problem.beta,) * 2)


def choice_world() -> World:
    """A unit moves the counts of all eight groups from one end of the scale to the other."""
    tests = tuple(replace(test, scale=2) for test in TESTS)
    problem = replace(asked("four groups", Coin.PURE), tests=tests, cells=8, touched=8)
    return World(problem, np.array([[5] * 8, [15] * 8]), only_chooses, Decimal(9))


def choices(runs: int) -> float:
    here = choice_world()
    other = here.database + UNITS
    (ours,) = audited(here, here.database, [other], runs, "choice without")
    (theirs,) = audited(here, other, [here.database], runs, "choice with")
    return factor(Coin.PURE, ours, theirs, SHORT)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_choice_tells_no_more_than_it_costs() -> None:
    assert 0.1 < choices(50_000) <= 1


def test_no_reply_to_a_choice_is_more_telling_than_its_price() -> None:
    here = choice_world()
    ours, theirs = (chances(CHOICE, here.problem, here.database + units) for units in (0 * UNITS, UNITS))
    assert 0.1 < np.abs(np.log(ours / theirs)).max() < float(CHOICE.epsilon)


def test_a_choice_whose_noise_forgets_that_units_touch_many_groups_is_caught(monkeypatch: Patch) -> None:
    true = choosing.above_threshold

    def forgetful(request: Choose, problem: Problem, *rest: Any) -> int | None:
        return true(request, replace(problem, touched=1), *rest)

    monkeypatch.setattr(the_release, "above_threshold", forgetful)
    assert choices(3_000) > 1


def test_choices_come_as_often_as_the_likelihood_says() -> None:
    here, runs = choice_world(), 3_000
    (told,) = audited(here, here.database, [here.database], runs, "often")
    often = [float(np.mean(told.outcomes == code)) for code in (0, 1, 3)]
    for share, chance in zip(often, chances(CHOICE, here.problem, here.database), strict=True):
        assert abs(share - chance) < 6 * math.sqrt(chance * (1 - chance) / runs) + 1e-9
