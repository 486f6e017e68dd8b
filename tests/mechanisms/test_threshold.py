from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seeded_source import seeded

from mechanisms.errors import AccuracyUnreachable
from mechanisms.loss import QUANTUM, Coin
from mechanisms.noise import DiscreteLaplace
from mechanisms.sampler import draw
from mechanisms.threshold import Share, decide, for_interval, interval_at, tslm, tslm_at, uncertain

steady = settings(derandomize=True, deadline=None, max_examples=120)
sensitivities = st.integers(min_value=1, max_value=1000)
margins = st.integers(min_value=0, max_value=100_000)
betas = st.integers(min_value=1, max_value=499_999).map(lambda k: k * Decimal("1e-6"))
confidences = betas.map(lambda beta: 1 - beta)
epsilons = st.integers(min_value=10**12, max_value=10**19).map(lambda k: k * QUANTUM)
BETA = Decimal("0.05")


@steady
@given(sensitivities, margins, betas)
def test_tslm_misses_with_at_most_beta_and_no_cheaper_share_does(sensitivity: int, margin: int, beta: Decimal) -> None:
    share = tslm(sensitivity, margin, beta)
    assert (share.shift, share.beta) == (margin, beta)
    assert share.noise == DiscreteLaplace(Fraction(share.epsilon), sensitivity)
    assert share.noise.tail(margin + 1) <= Fraction(beta)
    cheaper = Fraction(share.epsilon - QUANTUM)
    assert DiscreteLaplace(cheaper, sensitivity).tail(margin + 1) > Fraction(beta)


@steady
@given(sensitivities, margins.filter(bool), betas)
def test_tslm_on_the_lattice_costs_at_most_the_papers_price(sensitivity: int, margin: int, beta: Decimal) -> None:
    papers = sensitivity * math.log(1 / (2 * float(beta))) / margin
    assert float(tslm(sensitivity, margin, beta).epsilon) <= papers * (1 + 1e-9) + 2e-12


def test_tslm_on_a_fine_lattice_costs_the_papers_price() -> None:
    share = tslm(10**6, 50 * 10**6, BETA)
    assert float(share.epsilon) == pytest.approx(math.log(10) / 50, rel=1e-6)


@steady
@given(sensitivities, margins, st.integers(min_value=0, max_value=1000), betas, betas)
def test_more_accuracy_never_costs_less(
    sensitivity: int, margin: int, more: int, beta: Decimal, other: Decimal
) -> None:
    low, high = sorted((beta, other))
    assert tslm(sensitivity, margin, low).epsilon >= tslm(sensitivity, margin, high).epsilon
    assert tslm(sensitivity, margin, beta).epsilon >= tslm(sensitivity, margin + more, beta).epsilon
    assert tslm(sensitivity + 1, margin, beta).epsilon >= tslm(sensitivity, margin, beta).epsilon
    narrow, wide = for_interval(sensitivity, margin, 1 - low), for_interval(sensitivity, margin, 1 - high)
    assert narrow.epsilon >= wide.epsilon


@steady
@given(sensitivities, epsilons, betas)
def test_a_share_at_a_price_costs_that_price_and_leans_no_more_than_it_must(
    sensitivity: int, epsilon: Decimal, beta: Decimal
) -> None:
    share = tslm_at(sensitivity, epsilon, beta)
    assert share.epsilon == epsilon
    assert share.noise.tail(share.shift + 1) <= Fraction(beta)
    assert share.shift == 0 or share.noise.tail(share.shift) > Fraction(beta)


@steady
@given(sensitivities, margins, betas)
def test_price_to_margin_and_back_is_the_same_share(sensitivity: int, margin: int, beta: Decimal) -> None:
    share = tslm(sensitivity, margin, beta)
    assert tslm_at(sensitivity, share.epsilon, beta) == share


@steady
@given(sensitivities, margins, confidences)
def test_an_interval_holds_the_truth_with_its_confidence(sensitivity: int, margin: int, confidence: Decimal) -> None:
    share = for_interval(sensitivity, margin, confidence)
    assert share.beta is None
    assert 2 * share.noise.tail(margin + 1) <= 1 - Fraction(confidence)
    assert interval_at(sensitivity, share.epsilon, confidence).shift == margin


def missed(noise: DiscreteLaplace, direction: int, share: Share) -> float:
    """The rate of misses among a million groups that qualify by the narrowest: exactly at the threshold."""
    noisy = 700 + draw(noise, 1_000_000, seeded(f"worst {direction}"))
    return float(1 - decide(noisy, direction, 700, share).mean())


@pytest.mark.parametrize("direction", [1, -1])
@pytest.mark.parametrize("share", [tslm(1, 50, BETA), tslm(3, 4, Decimal("0.01")), tslm(1, 0, BETA)], ids=str)
def test_groups_exactly_at_the_threshold_are_missed_at_most_beta_of_the_time(share: Share, direction: int) -> None:
    beta = float(share.beta or 0)
    error = math.sqrt(beta * (1 - beta) / 1_000_000)
    assert abs(missed(share.noise, direction, share) - beta) < 4 * error
    # The same count sees noise that is a twentieth too wide, and a threshold that leans by one too few.
    assert missed(share.noise.scaled(Fraction(105, 100)), direction, share) > beta + 8 * error
    if share.shift:
        shy = Share(share.noise, share.shift - 1, share.epsilon, share.beta)
        assert missed(share.noise, direction, shy) > beta + 8 * error


def test_a_decision_leans_towards_keeping_on_both_sides() -> None:
    share = tslm(1, 3, BETA)
    noisy = np.arange(5, 16)
    assert noisy[decide(noisy, 1, 10, share)].tolist() == [7, 8, 9, 10, 11, 12, 13, 14, 15]
    assert noisy[decide(noisy, -1, 10, share)].tolist() == [5, 6, 7, 8, 9, 10, 11, 12, 13]
    with pytest.raises(ValueError, match="direction"):
        decide(noisy, 0, 10, share)


def test_uncertain_groups_are_those_kept_that_noise_alone_may_have_lifted() -> None:
    share = tslm(1, 3, BETA)
    noisy = np.arange(0, 21)
    assert uncertain(noisy, 1, 10, share) == 6  # 7..12: at 13 a false group needs noise of 4
    assert uncertain(noisy, -1, 10, share) == 6  # 8..13
    assert uncertain(noisy, 1, 100, share) == 0
    assert uncertain(noisy, 1, 10, tslm(1, 0, BETA)) == 0


def test_a_threshold_beyond_64_bits_is_a_threshold_like_any_other() -> None:
    share, noisy = tslm(1, 3, BETA), np.array([-(2**62), 0, 2**62])
    assert decide(noisy, 1, 10**30, share).tolist() == [False] * 3
    assert decide(noisy, -1, 10**30, share).tolist() == [True] * 3
    assert uncertain(noisy, 1, 10**30, share) == 0


def test_a_beta_of_one_half_or_more_is_nearly_free() -> None:
    assert tslm(1, 50, Decimal("0.6")).epsilon < Decimal("1e-11")


def test_an_ask_that_cannot_be_met_names_the_smallest_that_can() -> None:
    with pytest.raises(AccuracyUnreachable, match="below zero") as refusal:
        tslm(1, -1, BETA)
    assert refusal.value.sqlstate == "54000"
    with pytest.raises(AccuracyUnreachable, match="too small") as refusal:
        tslm_at(3, Decimal("1e-18"), BETA)
    assert "0.000000000002728485" in str(refusal.value.hint)
    for confidence in ("1", "-1.5"):
        with pytest.raises(AccuracyUnreachable, match="between 0 and 1"):
            for_interval(1, 50, Decimal(confidence))


def test_a_margin_too_dear_is_refused_with_the_margin_that_can_be_had() -> None:
    allowed = Decimal("0.1")
    with pytest.raises(AccuracyUnreachable, match="more than one question may spend") as refusal:
        tslm(3, 5, BETA, max_epsilon=allowed)
    assert "69 lattice units (23u)" in str(refusal.value.hint)
    assert tslm(3, 69, BETA, max_epsilon=allowed).epsilon <= allowed
    with pytest.raises(AccuracyUnreachable):
        tslm(3, 68, BETA, max_epsilon=allowed)
    with pytest.raises(AccuracyUnreachable):
        for_interval(3, 69, Decimal("0.95"), max_epsilon=allowed)


def test_a_share_cannot_cost_less_than_its_noise() -> None:
    with pytest.raises(ValueError, match="costs at least"):
        Share(DiscreteLaplace(Fraction(1), 1), 5, Decimal("0.999999999999999999"), BETA)


def test_a_share_is_charged_in_the_ledgers_coin() -> None:
    share = tslm_at(1, Decimal("0.2"), BETA)
    assert share.loss(Coin.PURE).amount == Decimal("0.2")
    assert share.loss(Coin.ZCDP).amount == Decimal("0.02")
