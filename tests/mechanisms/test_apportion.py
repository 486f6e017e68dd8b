"""Accuracy divided among statistics: prices add up to what was asked, and more accuracy never costs less."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seeded_source import seeded

from mechanisms.accuracy import Accuracy, Margin
from mechanisms.apportion import Ask, apportion, at_least, own_epsilon
from mechanisms.errors import AccuracyUnreachable
from mechanisms.loss import Coin, epsilon_of
from mechanisms.noise import DiscreteGaussian, DiscreteLaplace
from mechanisms.release import release
from mechanisms.threshold import Share, decide
from mechanisms.values import Exact

DELTA = Decimal("5e-10")


def accuracy(
    *, beta: str = "0.05", confidence: str = "0.95", epsilon: str | None = None, most: str | None = None
) -> Accuracy:
    return Accuracy(
        Decimal(beta),
        Decimal("0.1"),
        Margin.parse("50u"),
        Decimal(confidence),
        None if epsilon is None else Decimal(epsilon),
        None if most is None else Decimal(most),
    )


ASKS = st.lists(
    st.builds(
        lambda sensitivity, units, decided, shown: Ask(sensitivity, sensitivity * units, decided, shown or not decided),
        st.integers(1, 500),
        st.integers(3, 200),
        st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


def price(shares: tuple[Share, ...], touched: int = 1) -> Decimal:
    return own_epsilon(shares, touched, DELTA)


def divided(
    asks: list[Ask], wanted: Accuracy, longest: int = 1, touched: int = 1, coin: Coin = Coin.PURE
) -> tuple[Share, ...]:
    return apportion(asks, wanted, longest=longest, touched=touched, coin=coin, delta=DELTA)


@given(ASKS, st.integers(1, 20), st.integers(1, 5))
def test_a_given_epsilon_is_the_most_that_all_statistics_cost_together(
    asks: list[Ask], touched: int, longest: int
) -> None:
    shares = divided(asks, accuracy(epsilon="0.7"), longest=longest, touched=touched)
    assert len(shares) == len(asks)
    assert Decimal("0.699") < price(shares, touched) <= Decimal("0.7")
    assert all(share.sensitivity == ask.sensitivity for share, ask in zip(shares, asks, strict=True))


@given(ASKS)
def test_every_statistic_keeps_its_margin(asks: list[Ask]) -> None:
    for share, ask in zip(divided(asks, accuracy(), longest=1, touched=1), asks, strict=True):
        assert share.shift <= ask.margin
        if ask.decided:
            assert share.beta == Decimal("0.05") and share.noise.tail(share.shift + 1) <= Decimal("0.05")
        if ask.shown:
            assert 2 * share.noise.tail(ask.margin + 1) <= Decimal("0.05")


@given(ASKS, st.sampled_from(["0.2", "0.05", "0.01", "0.001"]), st.integers(1, 8))
def test_more_accuracy_never_costs_less(asks: list[Ask], beta: str, longest: int) -> None:
    base = price(divided(asks, accuracy(beta=beta), longest=longest, touched=1))
    narrower = [Ask(ask.sensitivity, ask.margin // 2, ask.decided, ask.shown) for ask in asks]
    assert price(divided(narrower, accuracy(beta=beta), longest=longest, touched=1)) >= base
    assert price(divided(asks, accuracy(beta=beta), longest=longest + 1, touched=1)) >= base
    assert price(divided(asks, accuracy(beta=str(Decimal(beta) / 2)), longest=longest, touched=1)) >= base
    assert price(divided([*asks, asks[0]], accuracy(beta=beta), longest=longest, touched=1)) > base


def test_beta_is_divided_by_the_longest_conjunction() -> None:
    shares = divided([Ask(1, 50, True, False)] * 4, accuracy(), longest=4, touched=1)
    assert {share.beta for share in shares} == {Decimal("0.0125")}


def test_a_group_that_qualifies_in_every_atom_is_missed_within_beta() -> None:
    """Three atoms, all just met, decided 40,000 times; the same with beta undivided misses too often."""
    many = 40_000
    asks = [Ask(1, 20, True, False)] * 3

    def missed(longest: int) -> float:
        shares = divided(asks, accuracy(), longest=longest, touched=1)
        noisy = release(Exact(np.full((3, many), 100, dtype=np.int64)), shares, seeded("conjunction"))
        kept = np.logical_and.reduce([decide(noisy.row(i), 1, 100, share) for i, share in enumerate(shares)])
        return 1 - float(kept.mean())

    assert 0.04 < missed(3) <= 0.05
    assert missed(1) > 0.1


def test_what_costs_more_than_one_question_may_is_refused_with_a_margin_that_would_do() -> None:
    asks = [Ask(1, 20, True, False), Ask(100, 2000, False, True)]
    with pytest.raises(AccuracyUnreachable) as refusal:
        divided(asks, accuracy(most="0.1"), longest=1, touched=2)
    assert refusal.value.sqlstate == "54000" and refusal.value.hint and "veil.margin" in refusal.value.hint
    needed = price(divided(asks, accuracy(), longest=1, touched=2), 2)
    assert price(divided(asks, accuracy(most=str(needed)), longest=1, touched=2), 2) == needed


def test_nothing_asked_costs_nothing() -> None:
    assert divided([], accuracy(epsilon="1"), longest=1, touched=1) == ()


# -- both coins --------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(ASKS, st.integers(1, 20))
def test_a_given_epsilon_is_what_the_question_loses_on_a_zcdp_ledger_too(asks: list[Ask], touched: int) -> None:
    shares = divided(asks, accuracy(epsilon="0.7"), touched=touched, coin=Coin.ZCDP)
    lost = price(shares, touched)
    assert lost <= Decimal("0.7")
    if not any(ask.decided for ask in asks):
        assert lost > Decimal("0.6999")
        rho = sum((share.loss(Coin.ZCDP).amount for share in shares), Decimal(0)) * touched
        assert lost == epsilon_of(Coin.ZCDP, rho, DELTA)


@settings(max_examples=25, deadline=None)
@given(ASKS)
def test_numbers_are_gaussian_on_a_zcdp_ledger_and_keep_their_margin(asks: list[Ask]) -> None:
    for share, ask in zip(divided(asks, accuracy(), coin=Coin.ZCDP), asks, strict=True):
        assert isinstance(share.noise, DiscreteLaplace if ask.decided else DiscreteGaussian)
        reached = share.grid.half_width(share.noise.shift(Decimal("0.025")))
        assert share.shift <= ask.margin and (not ask.shown or reached <= ask.margin)


def test_pure_steps_and_gaussian_ones_are_told_by_the_smaller_of_two_valid_bounds() -> None:
    asks = [Ask(1, 50, True, False), Ask(1, 50, False, True)]
    laplace, gaussian = divided(asks, accuracy(), coin=Coin.ZCDP)
    apart = laplace.epsilon + epsilon_of(Coin.ZCDP, gaussian.price, DELTA)
    together = epsilon_of(Coin.ZCDP, laplace.loss(Coin.ZCDP).amount + gaussian.price, DELTA)
    assert price((laplace, gaussian)) == min(apart, together)
    assert price((laplace,), 3) == 3 * laplace.epsilon


def test_an_epsilon_too_small_for_any_noise_is_refused_with_one_that_works() -> None:
    asks = [Ask(1, 50, False, True)] * 3
    with pytest.raises(AccuracyUnreachable) as refusal:
        divided(asks, accuracy(epsilon="0.0001"), touched=4, coin=Coin.ZCDP)
    told = str(refusal.value.hint).split()[-1].rstrip(".")
    assert divided(asks, accuracy(epsilon=str(Decimal(told) * Decimal("1.01"))), touched=4, coin=Coin.ZCDP)


def test_a_narrower_margin_costs_more_on_a_zcdp_ledger() -> None:
    """Across the border where a coarser grid is taken, too."""
    for sensitivity in (1, 7, 100, 50_000):
        margins = [sensitivity * 2**power for power in range(12)]
        prices = [price(divided([Ask(sensitivity, m, False, True)], accuracy(), coin=Coin.ZCDP)) for m in margins]
        assert prices == sorted(prices, reverse=True) and len(set(prices)) == len(prices)


@pytest.mark.parametrize("coin", list(Coin))
@pytest.mark.parametrize("touched", [1, 8])
def test_a_least_price_buys_finer_noise_in_the_same_proportions(coin: Coin, touched: int) -> None:
    asks = [Ask(1, 500, True, False), Ask(7, 4000, False, True), Ask(100, 90_000, True, True)]
    how = accuracy()
    cheap = apportion(asks, how, longest=2, touched=touched, coin=coin, delta=DELTA)

    def amount(shares: tuple[Share, ...]) -> Decimal:
        return sum((share.loss(coin).amount for share in shares), Decimal(0)) * touched

    floor = 50 * amount(cheap)
    finer = at_least(asks, cheap, floor, how, longest=2, touched=touched, coin=coin)
    assert floor * (1 - Decimal("1e-9")) <= amount(finer) <= floor + touched * 3 * Decimal("1e-18")
    for before, after in zip(cheap, finer, strict=True):
        assert after.shift < before.shift and after.beta == before.beta
        grown = after.loss(coin).amount / before.loss(coin).amount
        assert abs(grown - 50) < Decimal("1e-4")
    assert at_least(asks, finer, floor / 2, how, longest=2, touched=touched, coin=coin) == finer
