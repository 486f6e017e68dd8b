"""Limits as arithmetic: no sequence of admitted losses passes a limit, and none that fits is refused."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.loss import Coin, Loss, epsilon_of
from provenance import accountant
from provenance.errors import LimitReached, NotActive
from provenance.model import Allocation, Analyst, Balance, Balances, Deployment

ZCDP = Deployment(
    Coin.ZCDP, Decimal(10), Decimal("1e-9"), Allocation.MAX, Decimal(1), Decimal("5e-10"), Decimal("5e-10"), 1, 15
)
PURE = replace(ZCDP, coin=Coin.PURE, conversion_delta=Decimal(0), payment_delta=Decimal("1e-9"))
ALICE = Analyst("alice", 1, None, {}, True)
NOTHING = Balances(Balance(), Balance())
amounts = st.decimals(min_value=0, max_value=Decimal("0.5"), places=18)


@pytest.mark.parametrize(
    ("deployment", "analyst", "limit"),
    [
        (ZCDP, ALICE, "1"),
        (ZCDP, replace(ALICE, privilege=4), "4"),
        (ZCDP, replace(ALICE, privilege=10), "10"),
        (ZCDP, replace(ALICE, epsilon_limit=Decimal("2.5")), "2.5"),
        (ZCDP, replace(ALICE, epsilon_limit=Decimal(99)), "10"),
        (replace(ZCDP, expansion=Decimal(3)), ALICE, "3"),
        (replace(ZCDP, expansion=Decimal(30)), ALICE, "10"),
        (replace(ZCDP, allocation=Allocation.SUM), ALICE, "0.666666666666666666"),
        (replace(ZCDP, allocation=Allocation.SUM, privileges=0), ALICE, "10"),
    ],
)
def test_a_limit_follows_from_privilege_and_never_passes_the_table(
    deployment: Deployment, analyst: Analyst, limit: str
) -> None:
    assert accountant.limit(deployment, analyst) == Decimal(limit)


@pytest.mark.parametrize("deployment", [ZCDP, PURE], ids=["zcdp", "pure"])
@given(asked=st.lists(amounts, max_size=12))
def test_admitted_losses_never_pass_a_limit(deployment: Deployment, asked: list[Decimal]) -> None:
    balances = NOTHING
    for amount in asked:
        try:
            after = accountant.admit(deployment, ALICE, balances, Loss(deployment.coin, amount, Decimal(0)))
        except LimitReached:
            worth = accountant.worth(deployment, Decimal(1))
            assert balances.analyst.amount + amount > worth
            continue
        assert after.analyst.amount == balances.analyst.amount + amount
        balances = after
    total = balances.analyst.amount
    assert epsilon_of(deployment.coin, total, deployment.conversion_delta) <= 1
    assert 0 <= accountant.remaining_epsilon(deployment, ALICE, balances) <= 1


def test_delta_is_paid_from_its_own_part() -> None:
    paid = accountant.admit(ZCDP, ALICE, NOTHING, Loss(Coin.ZCDP, Decimal(0), Decimal("5e-10")))
    with pytest.raises(LimitReached, match="delta"):
        accountant.admit(ZCDP, ALICE, paid, Loss(Coin.ZCDP, Decimal(0), Decimal("1e-20")))


def test_small_questions_leave_more_than_their_sum() -> None:
    """Ten decisions of epsilon 0.5 in zcdp cost less than 5."""
    bob = replace(ALICE, privilege=10)
    balances = NOTHING
    for _ in range(10):
        balances = accountant.admit(ZCDP, bob, balances, Loss.of_pure_step(Decimal("0.1"), Coin.ZCDP))
    single = accountant.epsilon_spent(ZCDP, Decimal("0.005"))
    assert accountant.remaining_epsilon(ZCDP, bob, balances) > 10 - 10 * single


def test_remaining_is_never_negative() -> None:
    over = Balances(Balance(Decimal(5)), Balance(Decimal(5)))
    left = accountant.remaining(ZCDP, ALICE, over)
    assert (left.analyst, left.table, left.epsilon) == (0, 0, 0)


def test_what_asks_for_nothing_is_admitted_under_any_limit() -> None:
    over = Balances(Balance(Decimal(5), Decimal("0.1")), Balance(Decimal(5), Decimal("0.1")))
    assert accountant.admit(ZCDP, ALICE, over, Loss.nothing(Coin.ZCDP)) == over
    with pytest.raises(LimitReached):
        accountant.admit(ZCDP, ALICE, over, Loss(Coin.ZCDP, Decimal("1e-18")))


def test_inactive_analysts_and_foreign_coins_are_not_admitted() -> None:
    with pytest.raises(NotActive):
        accountant.admit(ZCDP, replace(ALICE, active=False), NOTHING, Loss.nothing(Coin.ZCDP))
    with pytest.raises(ValueError, match="pure"):
        accountant.admit(ZCDP, ALICE, NOTHING, Loss.nothing(Coin.PURE))
