from __future__ import annotations

import time
from decimal import Context, Decimal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from mechanisms.loss import (
    QUANTUM,
    Coin,
    Loss,
    amount_within,
    epsilon_of,
    exact_difference,
    exact_product,
    exact_sum,
)

DIGITS = Context(prec=80)
steady = settings(derandomize=True, deadline=None, max_examples=150)
amounts = st.integers(min_value=0, max_value=10**22).map(lambda k: k * QUANTUM)
small = st.integers(min_value=1, max_value=10**12).map(lambda k: k * QUANTUM)
deltas = st.sampled_from([Decimal(d) for d in ("1e-30", "1e-12", "1e-9", "1e-6", "0.001", "0.1", "0.9")])
coins = st.sampled_from(Coin)
DELTA = Decimal("1e-9")


def delta_at(rho: Decimal, epsilon: Decimal) -> Decimal:
    """The smallest delta over all orders, by ternary search on the convex logarithm: another road to the same curve."""

    def log_delta(alpha: Decimal) -> Decimal:
        less = DIGITS.subtract(alpha, Decimal(1))
        exponent = DIGITS.multiply(less, DIGITS.subtract(DIGITS.multiply(alpha, rho), epsilon))
        entropy = DIGITS.subtract(DIGITS.multiply(less, DIGITS.ln(less)), DIGITS.multiply(alpha, DIGITS.ln(alpha)))
        return DIGITS.add(exponent, entropy)

    low, high = Decimal("1.0000000001"), Decimal("1e7")
    for _ in range(400):
        third = DIGITS.divide(DIGITS.subtract(high, low), Decimal(3))
        left, right = DIGITS.add(low, third), DIGITS.subtract(high, third)
        low, high = (low, right) if log_delta(left) < log_delta(right) else (left, high)
    return DIGITS.exp(log_delta(low))


@pytest.mark.parametrize("rho", ["1e-6", "0.001", "0.05", "1", "40"])
def test_the_conversion_is_the_optimal_one(rho: str) -> None:
    epsilon = epsilon_of(Coin.ZCDP, Decimal(rho), DELTA)
    assert delta_at(Decimal(rho), epsilon) <= DELTA
    assert delta_at(Decimal(rho), epsilon - 2 * QUANTUM) > DELTA


@pytest.mark.parametrize("rho", [1e-4, 0.01, 0.5, 3.0, 20.0])
def test_the_conversion_is_not_below_what_gaussian_noise_really_leaks(rho: float) -> None:
    # Balle and Wang 2018: the exact delta of Gaussian noise with that rho.
    epsilon = float(epsilon_of(Coin.ZCDP, Decimal(str(rho)), Decimal("1e-6")))
    mu = (2 * rho) ** 0.5
    leaked = norm.cdf(mu / 2 - epsilon / mu) - 2.718281828459045**epsilon * norm.cdf(-mu / 2 - epsilon / mu)
    assert 0 < leaked <= 1e-6
    assert leaked > 1e-8  # and it is no far-off bound


@steady
@given(amounts, deltas)
@example(Decimal(0), DELTA)
@example(QUANTUM, DELTA)
@example(Decimal(10) ** 15, Decimal("0.9"))
def test_the_conversion_is_at_most_the_closed_form(rho: Decimal, delta: Decimal) -> None:
    root = DIGITS.sqrt(DIGITS.multiply(rho, DIGITS.minus(DIGITS.ln(delta))))
    assert epsilon_of(Coin.ZCDP, rho, delta) <= DIGITS.add(rho, 2 * root) + QUANTUM


@steady
@given(st.one_of(amounts, small), small, deltas, coins)
def test_more_loss_never_means_less_epsilon(amount: Decimal, more: Decimal, delta: Decimal, coin: Coin) -> None:
    assert epsilon_of(coin, amount, delta) <= epsilon_of(coin, amount + more, delta)


@steady
@given(st.one_of(amounts, small), deltas, coins)
@example(Decimal(0), DELTA, Coin.ZCDP)
@example(QUANTUM, DELTA, Coin.ZCDP)
@example(Decimal(10), DELTA, Coin.ZCDP)
@example(Decimal(10) ** 12, DELTA, Coin.ZCDP)
@example(Decimal("0.1234567890123456789"), DELTA, Coin.PURE)
def test_an_amount_within_epsilon_is_within_it_and_one_quantum_more_is_not(
    epsilon: Decimal, delta: Decimal, coin: Coin
) -> None:
    amount = amount_within(coin, epsilon, delta)
    assert amount >= 0
    assert epsilon_of(coin, amount, delta) <= epsilon
    if epsilon > 0:
        assert epsilon_of(coin, amount + QUANTUM, delta) > epsilon


@steady
@given(st.one_of(amounts, small), small, deltas, coins)
def test_a_larger_limit_never_holds_less(epsilon: Decimal, more: Decimal, delta: Decimal, coin: Coin) -> None:
    assert amount_within(coin, epsilon, delta) <= amount_within(coin, epsilon + more, delta)


def test_nothing_spent_is_nothing_lost_and_a_limit_of_zero_allows_nothing() -> None:
    for coin in Coin:
        assert epsilon_of(coin, Decimal(0), DELTA) == 0
        assert amount_within(coin, Decimal(0), DELTA) == 0


def test_an_epsilon_under_zcdp_needs_a_delta() -> None:
    for delta in ("0", "1", "-1"):
        with pytest.raises(ValueError, match="delta"):
            epsilon_of(Coin.ZCDP, Decimal(1), Decimal(delta))
    assert epsilon_of(Coin.PURE, Decimal(1), Decimal(0)) == 1


@steady
@given(small, coins)
def test_a_pure_step_is_priced_from_above(epsilon: Decimal, coin: Coin) -> None:
    amount = Loss.of_pure_step(epsilon, coin).amount
    exact = epsilon if coin is Coin.PURE else DIGITS.multiply(DIGITS.multiply(epsilon, epsilon), Decimal("0.5"))
    assert exact <= amount < exact + QUANTUM


def test_losses_add_exactly_to_the_last_digit() -> None:
    large, tiny = Loss(Coin.PURE, Decimal(10) ** 20, Decimal("1e-40")), Loss(Coin.PURE, QUANTUM, Decimal("1e-10"))
    total = large + tiny
    assert str(total.amount) == "100000000000000000000.000000000000000001"
    assert total.delta == Decimal("1.000000000000000000000000000001E-10")


def test_two_coins_do_not_add_up_and_a_loss_is_never_negative() -> None:
    with pytest.raises(ValueError, match="do not add"):
        Loss(Coin.PURE, Decimal(1)) + Loss(Coin.ZCDP, Decimal(1))
    for amount in ("-1e-18", "NaN", "Infinity"):
        with pytest.raises(ValueError, match="finite"):
            Loss(Coin.PURE, Decimal(amount))


def test_two_hundred_questions_of_a_tenth_mean_less_than_half_of_their_sum() -> None:
    steps = [Loss.of_pure_step(Decimal("0.1"), Coin.ZCDP)] * 200
    spent = sum(steps, Loss.nothing(Coin.ZCDP))
    assert spent.amount == 1
    assert epsilon_of(Coin.ZCDP, spent.amount, DELTA) < 10


def test_a_conversion_takes_no_time_worth_speaking_of() -> None:
    best = 1.0
    for k in range(1, 30):  # each a new amount, so that nothing is cached
        start = time.process_time()
        epsilon_of(Coin.ZCDP, k * Decimal("0.0123456789"), Decimal("1.5e-9"))
        best = min(best, time.process_time() - start)
    assert best < 0.002


def test_amounts_of_any_size_are_added_without_rounding() -> None:
    large, small = Decimal("123456789012345678901234567890"), Decimal("1e-18")
    assert exact_sum([large, small, small]) == Decimal("123456789012345678901234567890.000000000000000002")
    assert exact_difference(exact_sum([large, small]), large) == small
    assert exact_product(exact_sum([large, small]), 3) == exact_sum([large, small] * 3)
