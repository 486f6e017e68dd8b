from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import log_ndtr
from scipy.stats import norm
from seeded_source import seeded

from mechanisms.errors import AccuracyUnreachable
from mechanisms.loss import Coin, epsilon_of
from mechanisms.noise import DiscreteGaussian
from mechanisms.sampler import draw
from mechanisms.synopsis import Known, Release, draw_partial, estimate, step
from mechanisms.translate import (
    SquaredError,
    Within,
    epsilon_for,
    margin_of,
    normal_tail,
    precision_for,
    precision_wanted,
    quantile,
    slack,
)

steady = settings(derandomize=True, deadline=None, max_examples=150)
DELTA = Decimal("1e-9")
epsilons = st.floats(min_value=1e-4, max_value=60).map(lambda e: Decimal(f"{e:.9f}"))
deltas = st.sampled_from([Decimal("1e-12"), DELTA, Decimal("1e-5"), Decimal("0.01")])


def analytic(epsilon: float, m: float) -> float:
    """ln(delta) of Balle and Wang, Theorem 8, from another library."""
    upper, lower = log_ndtr(m / 2 - epsilon / m), epsilon + log_ndtr(-m / 2 - epsilon / m)
    return float(upper + np.log1p(-np.exp(lower - upper)))


@pytest.mark.parametrize("epsilon", ["0.01", "0.4", "1", "3.2", "6.4", "30"])
@pytest.mark.parametrize("delta", ["1e-12", "1e-9", "1e-3"])
def test_the_precision_of_a_price_is_that_of_the_analytic_condition_to_a_millionth(epsilon: str, delta: str) -> None:
    wanted = math.log(float(delta))
    m = brentq(lambda m: analytic(float(epsilon), m) - wanted, float(epsilon) / 30, 40, xtol=1e-14, rtol=1e-13)
    found = float(precision_for(Decimal(epsilon), Decimal(delta), 1, 1))
    assert m * m * (1 - 1e-6) < found <= m * m * (1 + 1e-9)
    back = float(epsilon_for(Fraction(m * m), 1, 1, Decimal(delta)))
    assert float(epsilon) * (1 - 1e-9) <= back < float(epsilon) * (1 + 1e-6)


@steady
@given(epsilon=epsilons, delta=deltas, sensitivity=st.integers(1, 50), touched=st.integers(1, 9))
def test_there_and_back_loses_less_than_a_millionth_and_never_gains(
    epsilon: Decimal, delta: Decimal, sensitivity: int, touched: int
) -> None:
    precision = precision_for(epsilon, delta, sensitivity, touched)
    assert epsilon_for(precision, sensitivity, touched, delta) <= epsilon * (1 + Decimal("1e-6"))
    assert epsilon_for(precision * (1 + Fraction(1, 10**6)), sensitivity, touched, delta) > epsilon * (
        1 - Decimal("1e-6")
    )


@steady
@given(delta=deltas, pair=st.tuples(epsilons, epsilons))
def test_more_epsilon_is_never_less_precision_and_back(delta: Decimal, pair: tuple[Decimal, Decimal]) -> None:
    low, high = sorted(pair)
    assert precision_for(low, delta, 1, 1) <= precision_for(high, delta, 1, 1)
    assert epsilon_for(Fraction(low), 1, 1, delta) <= epsilon_for(Fraction(high), 1, 1, delta)


def test_what_one_unit_moves_scales_the_price_as_a_length_does() -> None:
    assert epsilon_for(Fraction(1, 900), 3, 4, DELTA) == epsilon_for(Fraction(1, 100), 2, 1, DELTA)


def test_the_epsilon_of_one_release_is_below_that_of_the_coin() -> None:
    for precision in (Fraction(1, 10**6), Fraction(1, 100), Fraction(4)):
        exact = epsilon_for(precision, 1, 1, DELTA)
        assert Decimal("0.85") * epsilon_of(Coin.ZCDP, Decimal(float(precision / 2)), DELTA) < exact
        assert exact < epsilon_of(Coin.ZCDP, Decimal(float(precision / 2)), DELTA)


def test_the_ends_of_what_can_be_translated() -> None:
    assert epsilon_for(Fraction(0), 1, 1, DELTA) == 0
    assert epsilon_for(Fraction(1, 10**9), 1, 1, Decimal("0.1")) == 0, "delta alone covers it"
    assert epsilon_for(Fraction(10**12), 1, 1, DELTA) > 10**11
    assert precision_for(Decimal(0), DELTA, 1, 1) > 0
    for wrong in (Decimal(-1), Decimal(10**6)):
        with pytest.raises(AccuracyUnreachable):
            precision_for(wrong, DELTA, 1, 1)
    for delta in (Decimal(0), Decimal(1)):
        with pytest.raises(AccuracyUnreachable):
            epsilon_for(Fraction(1), 1, 1, delta)


@pytest.mark.parametrize("x", ["-3", "0", "0.7", "4", "8.999", "9", "9.001", "25"])
def test_the_tail_in_decimals_is_that_of_another_library(x: str) -> None:
    with localcontext(Context(prec=80)):
        assert float(normal_tail(Decimal(x))) == pytest.approx(float(norm.sf(float(x))), rel=1e-12)


def test_the_series_and_the_continued_fraction_meet() -> None:
    with localcontext(Context(prec=80)):
        below, at = normal_tail(Decimal("8.9999999999999999999999999999")), normal_tail(Decimal(9))
        assert abs(below / at - 1) < Decimal("1e-26")


@steady
@given(
    weights=st.lists(st.integers(-4, 4).filter(bool), min_size=1, max_size=8),
    margin=st.integers(60, 10**6),
    confidence=st.sampled_from([Decimal("0.5"), Decimal("0.95"), Decimal("0.999999")]),
)
def test_the_margin_of_the_precision_that_a_margin_wants_is_that_margin(
    weights: list[int], margin: int, confidence: Decimal
) -> None:
    precision = precision_wanted(Within(Fraction(margin), confidence), weights)
    assert abs(margin_of(precision, weights, confidence) / margin - 1) < Fraction(1, 10**6)
    assert margin_of(precision, weights, confidence) >= margin * (1 - Fraction(1, 10**15))
    assert margin_of(2 * precision, weights, confidence) < margin


def test_a_squared_error_wants_the_squared_weights_over_it() -> None:
    assert precision_wanted(SquaredError(Fraction(700)), [1, -1, 1, 2]) == Fraction(7, 700)
    with pytest.raises(AccuracyUnreachable):
        precision_wanted(SquaredError(Fraction(0)), [1])


def test_the_quantile_is_rounded_up() -> None:
    assert 1.959963984540054 < quantile(Decimal("0.95")) < 1.95996399
    with pytest.raises(AccuracyUnreachable):
        quantile(Decimal(1))


def test_a_margin_that_the_lattice_cannot_tell_is_refused() -> None:
    weights = [1] * 10
    with pytest.raises(AccuracyUnreachable, match="lattice"):
        precision_wanted(Within(slack(weights), Decimal("0.95")), weights)


def test_the_promised_margin_holds_for_a_sum_of_cells_that_were_refined_in_part() -> None:
    """Seven cells, known through two releases, the second in part: more than the promised share lies within."""
    groups, confidence, margin = 60_000, Decimal("0.95"), Fraction(300)
    precision = precision_wanted(Within(margin, confidence), [1] * 7)
    source = seeded("margin")
    cells = 7 * groups
    releases = [
        Release(i, Fraction(variance), draw(DiscreteGaussian(Fraction(variance)), cells, source))
        for i, variance in enumerate((2 * (1 / precision), 1 / precision))
    ]
    found = step(releases, Known(), precision)
    assert found.take == (0,) and found.partial is not None
    part = draw_partial(releases[1], None, found.partial[1], source)
    shown, _ = estimate(releases, Known(frozenset(found.take), part))
    misses = np.count_nonzero(np.abs(shown.reshape(groups, 7).sum(axis=1)) > float(margin))
    error = math.sqrt(0.05 * 0.95 / groups)
    assert misses / groups < 0.05 + 5 * error
    tight = 0.9 * float(margin)
    assert np.count_nonzero(np.abs(shown.reshape(groups, 7).sum(axis=1)) > tight) / groups > 0.05 + 8 * error
