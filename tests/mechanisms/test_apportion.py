"""Accuracy divided among statistics: prices add up to what was asked, and more accuracy never costs less."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seeded_source import seeded

from mechanisms.accuracy import Accuracy, Margin
from mechanisms.apportion import Ask, apportion
from mechanisms.errors import AccuracyUnreachable
from mechanisms.release import release
from mechanisms.threshold import Share, decide
from mechanisms.values import Exact


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
    return sum((share.epsilon for share in shares), Decimal(0)) * touched


@given(ASKS, st.integers(1, 20), st.integers(1, 5))
def test_a_given_epsilon_is_the_most_that_all_statistics_cost_together(
    asks: list[Ask], touched: int, longest: int
) -> None:
    shares = apportion(asks, accuracy(epsilon="0.7"), longest=longest, touched=touched)
    assert len(shares) == len(asks)
    assert Decimal("0.699") < price(shares, touched) <= Decimal("0.7")
    assert all(share.noise.sensitivity == ask.sensitivity for share, ask in zip(shares, asks, strict=True))


@given(ASKS)
def test_every_statistic_keeps_its_margin(asks: list[Ask]) -> None:
    for share, ask in zip(apportion(asks, accuracy(), longest=1, touched=1), asks, strict=True):
        assert share.shift <= ask.margin
        if ask.decided:
            assert share.beta == Decimal("0.05") and share.noise.tail(share.shift + 1) <= Decimal("0.05")
        if ask.shown:
            assert 2 * share.noise.tail(ask.margin + 1) <= Decimal("0.05")


@given(ASKS, st.sampled_from(["0.2", "0.05", "0.01", "0.001"]), st.integers(1, 8))
def test_more_accuracy_never_costs_less(asks: list[Ask], beta: str, longest: int) -> None:
    base = price(apportion(asks, accuracy(beta=beta), longest=longest, touched=1))
    narrower = [Ask(ask.sensitivity, ask.margin // 2, ask.decided, ask.shown) for ask in asks]
    assert price(apportion(narrower, accuracy(beta=beta), longest=longest, touched=1)) >= base
    assert price(apportion(asks, accuracy(beta=beta), longest=longest + 1, touched=1)) >= base
    assert price(apportion(asks, accuracy(beta=str(Decimal(beta) / 2)), longest=longest, touched=1)) >= base
    assert price(apportion([*asks, asks[0]], accuracy(beta=beta), longest=longest, touched=1)) > base


def test_beta_is_divided_by_the_longest_conjunction() -> None:
    shares = apportion([Ask(1, 50, True, False)] * 4, accuracy(), longest=4, touched=1)
    assert {share.beta for share in shares} == {Decimal("0.0125")}


def test_a_group_that_qualifies_in_every_atom_is_missed_within_beta() -> None:
    """Three atoms, all just met, decided 40,000 times; the same with beta undivided misses too often."""
    many = 40_000
    asks = [Ask(1, 20, True, False)] * 3

    def missed(longest: int) -> float:
        shares = apportion(asks, accuracy(), longest=longest, touched=1)
        noisy = release(Exact(np.full((3, many), 100, dtype=np.int64)), shares, seeded("conjunction"))
        kept = np.logical_and.reduce([decide(noisy.row(i), 1, 100, share) for i, share in enumerate(shares)])
        return 1 - float(kept.mean())

    assert 0.04 < missed(3) <= 0.05
    assert missed(1) > 0.1


def test_what_costs_more_than_one_question_may_is_refused_with_a_margin_that_would_do() -> None:
    asks = [Ask(1, 20, True, False), Ask(100, 2000, False, True)]
    with pytest.raises(AccuracyUnreachable) as refusal:
        apportion(asks, accuracy(most="0.1"), longest=1, touched=2)
    assert refusal.value.sqlstate == "54000" and refusal.value.hint and "veil.margin" in refusal.value.hint
    needed = price(apportion(asks, accuracy(), longest=1, touched=2), 2)
    assert price(apportion(asks, accuracy(most=str(needed)), longest=1, touched=2), 2) == needed


def test_nothing_asked_costs_nothing() -> None:
    assert apportion([], accuracy(epsilon="1"), longest=1, touched=1) == ()
