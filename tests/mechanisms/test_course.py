"""A decision goes on as far as it is paid for, and comes to the same end as one that is paid for at once."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
from decision_problems import TREES, decide, problem
from seeded_source import seeded

from mechanisms.certify import cert
from mechanisms.course import Course
from mechanisms.errors import AccuracyUnreachable
from mechanisms.loss import Coin, Loss
from mechanisms.release import Staged
from mechanisms.values import Exact

ASKED = {coin: problem(TREES["mixed"], 150, coin=coin) for coin in Coin}
VALUES = np.random.default_rng(1).lognormal(4, 0.8, (3, 150)).astype(np.int64)
MUCH = Decimal(1000)


@pytest.mark.parametrize("coin", Coin)
def test_paying_step_by_step_comes_to_the_same_end(coin: Coin) -> None:
    asked = ASKED[coin]
    at_once = decide(cert, asked, VALUES, seeded("steps"))
    course, staged = Course(asked, cert(asked), MUCH), Staged(Exact(VALUES), asked, seeded("steps"))
    course.measured(staged)
    payments = 0
    while (decision := course.advance(course.need)) is None:
        payments += 1
        assert staged.spent().amount < course.need.amount
    assert payments > 3
    assert (decision.kept == at_once.decision.kept).all()
    assert staged.spent() == at_once.loss
    assert course.need == Loss.nothing(coin)


@pytest.mark.parametrize("coin", Coin)
def test_nothing_is_released_beyond_what_is_paid(coin: Coin) -> None:
    asked = ASKED[coin]
    course, staged = Course(asked, cert(asked), MUCH), Staged(Exact(VALUES), asked, seeded("paid"))
    course.measured(staged)
    assert course.advance(Loss.nothing(coin)) is None
    assert staged.spent().amount == 0
    paid = Loss(coin, course.need.amount * 3)
    assert course.advance(paid) is None
    assert 0 < staged.spent().amount <= paid.amount < course.need.amount


@pytest.mark.parametrize("coin", Coin)
def test_beyond_the_cap_it_refuses_and_has_spent_no_more(coin: Coin) -> None:
    asked = ASKED[coin]
    cap = decide(cert, asked, VALUES, seeded("cap")).loss.amount / 2
    course, staged = Course(asked, cert(asked), cap), Staged(Exact(VALUES), asked, seeded("cap"))
    course.measured(staged)
    with pytest.raises(AccuracyUnreachable, match="could not be certified"):
        course.advance(Loss(coin, MUCH))
    assert 0 < staged.spent().amount <= cap


def test_a_first_step_beyond_the_cap_is_refused_before_anything_is_measured() -> None:
    asked = ASKED[Coin.PURE]
    with pytest.raises(AccuracyUnreachable):
        Course(asked, cert(asked), Decimal("1e-12"))


def test_a_decision_about_nobody_needs_nothing() -> None:
    asked = problem(TREES["single"], 0)
    course = Course(asked, cert(asked), MUCH)
    assert course.decision is not None
    assert course.need.amount == 0


def test_it_does_not_go_on_without_numbers() -> None:
    asked = ASKED[Coin.PURE]
    with pytest.raises(ValueError, match="measured"):
        Course(asked, cert(asked), MUCH).advance(Loss(Coin.PURE, MUCH))
