"""Every decision mechanism on neighbouring databases: what its runs prove about the loss is at most what it charges.

``decision_audit`` holds the conversations and ``loss_proofs`` says what they prove, as a factor of the charge. The
long runs have the sizes that we publish, at 99.9 %; the short ones are sure to one in a million.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from audit_worlds import (
    MECHANISMS,
    NEAR,
    PLACES,
    ROUNDING,
    SHOTS,
    UNIT,
    factor,
    likelihood,
    world,
)
from decision_audit import REFUSED, audited, converse, seeded

from mechanisms.errors import AccuracyUnreachable
from mechanisms.loss import Coin
from mechanisms.release import Staged
from mechanisms.solve import solve
from mechanisms.values import Exact

LONG, SHORT = 0.001, 1e-6


PROVES = {Coin.PURE: 0.97, Coin.ZCDP: 0.9}
"""What four million looks prove at least: a bound that proves little tests little."""
every_shot = pytest.mark.parametrize("name", SHOTS)


def least(name: str) -> float:
    """Laplace noise tells less than the rho that is paid for it."""
    return PROVES[SHOTS[name].coin] * (0.5 if "paid" in name else 1)


@every_shot
def test_no_audit_of_one_look_exceeds_the_charge(name: str) -> None:
    shot = SHOTS[name]
    proved = shot.factor(0, shot.sensitivity, 100_000, SHORT)
    assert 0.7 * least(name) < proved <= 1


@pytest.mark.slow
@pytest.mark.vast
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("place", PLACES)
@every_shot
def test_no_audit_of_four_million_looks_exceeds_the_charge(name: str, place: str) -> None:
    shot = SHOTS[name]
    here = PLACES[place](shot.sensitivity)
    proved = shot.factor(here, here + shot.sensitivity, 4_000_000, LONG)
    assert least(name) < proved <= 1


@pytest.mark.parametrize("coin", list(Coin))
@pytest.mark.parametrize("shape", NEAR)
@pytest.mark.parametrize("name", MECHANISMS)
def test_no_run_tells_more_of_any_neighbour_than_its_charge(name: str, shape: str, coin: Coin) -> None:
    here = world(name, shape, coin)
    for told in audited(here, here.database, here.neighbours(), 100, f"{name} {shape} {coin}"):
        assert likelihood(coin, told, SHORT) <= 1 + ROUNDING


@pytest.mark.parametrize("shape", ["four groups", "units in two groups"])
@pytest.mark.parametrize("name", MECHANISMS)
def test_a_run_of_the_audit_is_the_run_that_is_solved_with_the_same_noise(name: str, shape: str) -> None:
    here = world(name, shape, Coin.PURE)
    for seed in range(4):
        shown = converse(here, here.database, 1, seeded(seed))
        staged, kept = Staged(Exact(here.database), here.problem, seeded(seed)), REFUSED
        with suppress(AccuracyUnreachable):
            solved = solve(here.make(here.problem), staged, here.cap)
            kept = sum(1 << cell for cell in np.flatnonzero(solved.decision.kept).tolist())
        assert shown.kept.tolist() == [kept]
        assert shown.charges.tolist() == [float(staged.spent().amount)]


def test_four_groups_have_more_than_twenty_neighbours() -> None:
    here = world("probe", "four groups", Coin.PURE)
    found = here.neighbours()
    assert len(found) == 4 * 8
    moved = [np.abs(other - here.database) for other in found]
    assert all((step.max(axis=1) <= [1, 3]).all() and (step.any(axis=0)).sum() == 1 for step in moved)


def proved(name: str, shape: str, coin: Coin, runs: int, sure: float) -> tuple[float, float]:
    """By frequency for one unit that is there or not, and by likelihood against all neighbours."""
    here = world(name, shape, coin)
    without, against = here.database, here.neighbours()
    with_unit = without + np.array(UNIT[shape])
    (unit,) = [place for place, other in enumerate(against) if (other == with_unit).all()]
    ours = audited(here, without, against, runs, f"{name} {shape} {coin} without")
    (theirs,) = audited(here, with_unit, [without], runs, f"{name} {shape} {coin} with")
    return factor(coin, ours[unit], theirs, sure), max(likelihood(coin, told, sure) for told in ours)


@pytest.mark.parametrize("coin", list(Coin))
@pytest.mark.parametrize("name", ["ppwlm", "probe", "cert"])
def test_a_unit_in_one_group_is_found_in_no_more_runs_than_the_charge_allows(name: str, coin: Coin) -> None:
    by_frequency, by_likelihood = proved(name, "one group", coin, 2_000, SHORT)
    assert by_frequency <= 1 and 0.3 < by_likelihood <= 1 + ROUNDING


LONG_RUNS = [
    *((name, shape, Coin.PURE) for name in MECHANISMS for shape in ("one group", "four groups")),
    *((name, shape, Coin.ZCDP) for name in ("ppwlm", "cert") for shape in ("one group", "four groups")),
    *((name, "units in two groups", Coin.PURE) for name in ("ppwlm", "probe", "cert")),
    *((name, "units in two groups", Coin.ZCDP) for name in ("ppwlm", "cert")),
]


@pytest.mark.slow
@pytest.mark.vast
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "shape", "coin"), LONG_RUNS)
def test_fifty_thousand_runs_prove_no_more_than_the_charge(name: str, shape: str, coin: Coin) -> None:
    by_frequency, by_likelihood = proved(name, shape, coin, 50_000, LONG)
    assert 0.3 < by_frequency <= 1, "a bound that proves little tests little"
    assert 0.8 < by_likelihood <= 1 + ROUNDING
