"""The rivals and pgveil on questions whose answers are known by hand."""

from __future__ import annotations

import hashlib
from decimal import Decimal
from fractions import Fraction
from itertools import count

import pytest

from bench.synopsis.analytic import Price
from bench.synopsis.ours import Pgveil
from bench.synopsis.rivals import Chorus, DProvDB, NoFriction, PrivateSQL, Vanilla
from bench.synopsis.runs import SYSTEMS, Task, fairness, limits, proportional
from bench.synopsis.workload import Asked, turns
from mechanisms.loss import Coin, epsilon_of
from mechanisms.sampler import Source
from mechanisms.translate import epsilon_for

DELTA = Decimal("1e-9")
PRICE = Price(1e-9)
FIRST = Asked(0, 4, 400)  # a variance of 100 in each bin
FINER = Asked(0, 4, 200)
ELSEWHERE = Asked(1, 4, 400)
ONE, HALF = PRICE.epsilon(100), PRICE.epsilon(50)


@pytest.mark.parametrize("variance", ["0.5", "1", "175", "2800", "1000000"])
def test_the_quick_price_is_the_exact_one(variance: str) -> None:
    exact = float(epsilon_for(1 / Fraction(variance), 1, 1, DELTA))
    assert PRICE.epsilon(float(variance)) == pytest.approx(exact, rel=1e-6)
    assert PRICE.variance(exact) == pytest.approx(float(variance), rel=1e-6)


def test_dprovdb_pays_friction_and_the_second_analyst_what_she_learns() -> None:
    ledger = DProvDB(PRICE, 10, [10, 10], 2)
    assert ledger.ask(0, FIRST) and ledger.spent() == ledger.spent_by(0) == pytest.approx(ONE)
    assert ledger.ask(0, FIRST) and ledger.spent() == pytest.approx(ONE), "the same again is free"
    assert ledger.ask(0, FINER) and ledger.spent() == pytest.approx(2 * ONE), (
        "precision twice as high: a second release"
    )
    assert 2 * ONE > 1.3 * HALF, "at once it would have been much cheaper"
    assert ledger.ask(1, FINER) and ledger.spent_by(1) == pytest.approx(HALF)
    assert ledger.spent() == pytest.approx(2 * ONE) and ledger.releases() == 2
    smooth = NoFriction(PRICE, 10, [10, 10], 2)
    assert smooth.ask(0, FIRST) and smooth.ask(0, FINER) and smooth.spent() == pytest.approx(HALF)


def test_dprovdb_keeps_both_limits() -> None:
    ledger = DProvDB(PRICE, 1.5 * ONE, [1.5 * ONE, 0.9 * ONE], 2)
    assert ledger.ask(0, FIRST)
    assert not ledger.ask(1, FIRST), "the analyst's own limit"
    assert ledger.ask(1, Asked(0, 4, 500)), "less is within it"
    assert not ledger.ask(0, ELSEWHERE), "the table's"
    assert ledger.spent() == pytest.approx(ONE)


def test_vanilla_and_chorus_pay_for_everybody() -> None:
    vanilla = Vanilla(PRICE, 10, [10, 10], 2)
    assert all(vanilla.ask(who, FIRST) for who in (0, 1, 0))
    assert vanilla.spent() == pytest.approx(2 * ONE)
    chorus = Chorus(PRICE, 10, [10, 10], 2)
    assert all(chorus.ask(0, FIRST) for _ in range(3))
    assert chorus.spent() == pytest.approx(3 * PRICE.epsilon(400))
    short = Vanilla(PRICE, 1.5 * ONE, [10, 10], 2)
    assert short.ask(0, FIRST) and not short.ask(1, FIRST)


def test_a_static_split_answers_what_its_synopses_are_good_for() -> None:
    static = PrivateSQL(PRICE, 2 * ONE, [], 2)
    assert static.ask(0, Asked(0, 4, 401)) and not static.ask(0, Asked(0, 4, 399))
    assert static.spent() == 2 * ONE


def rho(epsilon: float) -> float:
    """Of Gaussian noise of variance 100, as epsilon at half of the delta."""
    return float(epsilon_of(Coin.ZCDP, Decimal(epsilon), DELTA / 2))


def test_pgveil_pays_no_friction_and_the_second_analyst_what_she_learns() -> None:
    ledger = Pgveil(Decimal(10), DELTA, [Decimal(10), Decimal(10)], 2)
    assert ledger.ask(0, FIRST) and ledger.spent() == pytest.approx(rho(0.005))
    assert ledger.ask(0, FIRST) and ledger.spent() == pytest.approx(rho(0.005))
    assert ledger.ask(0, FINER) and ledger.spent() == pytest.approx(rho(0.01)), "as if it had been so from the start"
    assert ledger.ask(1, Asked(0, 4, 300))
    assert ledger.spent_by(1) == pytest.approx(rho(0.005 * 4 / 3), rel=1e-4)
    assert ledger.spent() == pytest.approx(rho(0.01)), "what others know costs the database nothing"


def test_pgveil_keeps_both_limits() -> None:
    ledger = Pgveil(Decimal("0.6"), DELTA, [Decimal("0.6"), Decimal("0.3")], 2)
    assert ledger.ask(0, FIRST) and not ledger.ask(0, ELSEWHERE)
    assert not ledger.ask(1, FIRST) and ledger.ask(1, Asked(0, 1, 500))
    assert ledger.spent() <= 0.6 and ledger.spent_by(1) <= 0.3


def noise(seed: str) -> Source:
    """The same in every run."""
    calls = count()
    return lambda n: hashlib.shake_256(f"{seed} {next(calls)}".encode()).digest(n)


def test_what_pgveil_answers_has_the_error_that_was_asked_for() -> None:
    ledger = Pgveil(Decimal(10), DELTA, [Decimal(10)] * 2, 1, noise("bench"), copies=400)
    for who, variance in ((0, 300), (1, 700), (1, 450), (0, 280), (1, 330)):
        asked = Asked(0, 5, variance)
        assert ledger.ask(who, asked)
        assert ledger.promised(who, asked) <= variance * 1.01, "but for rounding to the lattice"
        squares = [float(error) ** 2 for first in range(0, 50, 5) for error in ledger.shown(who, asked, first)]
        off = sum(squares) / len(squares) / ledger.promised(who, asked) - 1
        assert len(squares) == 4000 and abs(off) < 5 * (2 / len(squares)) ** 0.5


def test_limits_follow_the_definitions_of_the_paper() -> None:
    def of(system: str, tau: str = "1") -> list[Decimal]:
        return limits(Task(system, "adult", 1, "2", (1, 4), tau=tau))

    assert of("pgveil") == of("dprovdb") == [Decimal("0.5"), 2]
    assert of("pgveil", "1.6") == [Decimal("0.8"), 2]
    assert of("vanilla") == of("chorusp") == of("dprovdb, l_sum") == [Decimal("0.4"), Decimal("1.6")]
    assert of("chorus") == of("sprivatesql") == [2, 2]
    assert {len(of(system)) for system in SYSTEMS} == {2}


def test_fairness_is_that_of_the_paper() -> None:
    assert fairness((10, 0), (1, 4)) == 1.0
    assert fairness((0, 10), (1, 4)) == pytest.approx(3.106, abs=1e-3)
    assert fairness((0, 0), (1, 4)) == 0.0
    assert proportional((1, 4), (1, 4)) and not proportional((1, 3.9), (1, 4))


def test_everybody_has_as_many_turns_in_either_order() -> None:
    assert list(turns("round-robin", 3, 2, 1)) == [0, 1, 2, 0, 1, 2]
    mixed = list(turns("random", 3, 50, 1))
    assert [mixed.count(who) for who in range(3)] == [50, 50, 50] and mixed != list(turns("random", 3, 50, 2))
