"""Shares for shown numbers on both coins: the interval holds, the price is exact, and nothing cheaper would do."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from seeded_source import seeded

from mechanisms.errors import AccuracyUnreachable
from mechanisms.grid import Grid
from mechanisms.interval import deviation, half_width
from mechanisms.loss import Coin, round_up
from mechanisms.noise import MAX_SIGMA2, DiscreteGaussian, DiscreteLaplace
from mechanisms.number import CELLS, SMALLEST_RHO, number_at, number_for, price_of_magnitude
from mechanisms.release import release
from mechanisms.threshold import Share
from mechanisms.values import Exact

CONFIDENCE = Decimal("0.95")
BOUND = Fraction("0.025")
COARSE = number_for(Coin.ZCDP, 50_000, 50 * 50_000, CONFIDENCE)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 300), st.integers(0, 4000), st.sampled_from(["0.5", "0.9", "0.95", "0.999", "0.999999999"]))
def test_the_cheapest_gaussian_share_just_keeps_its_margin(sensitivity: int, margin: int, confidence: str) -> None:
    share = number_for(Coin.ZCDP, sensitivity, margin, Decimal(confidence))
    bound = (1 - Fraction(confidence)) / 2
    assert isinstance(share.noise, DiscreteGaussian)
    assert half_width(share, Decimal(confidence)) <= margin
    rho = Fraction(share.grid.parts**2, 2) / share.noise.sigma2
    assert rho <= Fraction(share.price) < rho + Fraction(1, 10**18) and share.loss(Coin.ZCDP).amount == share.price
    wider = DiscreteGaussian(share.noise.sigma2 * Fraction(1000001, 1000000))
    reach = margin if share.grid.own else (2 * share.grid.parts * margin - sensitivity) // (2 * sensitivity)
    assert wider.tail(reach + 1) > bound, "a millionth more noise breaks the promise"


def covered(share: Share, value: int, confidence: Decimal, n: int, seed: str) -> int:
    noisy = release(Exact(np.full((1, n), value, dtype=np.int64)), [share], seeded(seed)).row(0)
    return int(np.sum(np.abs(noisy - value) <= half_width(share, confidence)))


@pytest.mark.parametrize("coin", Coin)
@pytest.mark.parametrize(("sensitivity", "margin"), [(1, 50), (1, 4), (7, 90), (50_000, 2_500_000), (2**40, 2**44)])
@pytest.mark.parametrize("confidence", ["0.5", "0.95"])
def test_the_interval_holds_the_truth_as_often_as_it_says(
    coin: Coin, sensitivity: int, margin: int, confidence: str
) -> None:
    """5,000 draws, and not much more often either: the tails are exact."""
    n, level = 5000, float(confidence)
    share = number_for(coin, sensitivity, margin, Decimal(confidence))
    hits = covered(share, 123_456_789, Decimal(confidence), n, f"{coin}{sensitivity}")
    assert hits >= binom.ppf(0.00005, n, level)
    if margin > 10:
        assert hits <= binom.ppf(0.99995, n, level + 0.02), "an interval that always holds tells little"


def test_noise_that_is_wider_than_its_share_says_leaves_the_interval() -> None:
    """The coverage test has teeth: ten percent more noise is seen."""
    n = 20_000
    noise = COARSE.noise.scaled(Fraction(11, 10))
    assert isinstance(noise, DiscreteGaussian)
    wide = Share(noise, COARSE.shift, COARSE.price, None, COARSE.grid)
    noisy = release(Exact(np.zeros((1, n), dtype=np.int64)), [wide], seeded("wide")).row(0)
    assert np.sum(np.abs(noisy) <= half_width(COARSE, CONFIDENCE)) < binom.ppf(0.00005, n, 0.95)


def test_a_wide_sum_is_released_on_a_coarse_grid_of_about_2048_cells_to_the_deviation() -> None:
    assert COARSE.grid.parts < COARSE.sensitivity == 50_000
    assert 0.98 * CELLS < COARSE.noise.deviation <= CELLS
    noisy = release(Exact(np.full((1, 4000), 7, dtype=np.int64)), [COARSE], seeded("grid")).row(0)
    assert float(np.std(noisy)) == pytest.approx(deviation(COARSE), rel=0.06)
    assert abs(float(np.mean(noisy)) - 7) < 5 * deviation(COARSE) / 4000**0.5


def test_what_a_unit_moves_decides_the_price_and_not_the_lattice() -> None:
    """Cents or euros: the same margin in units costs the same to a thousandth."""
    fine, coarse = (number_for(Coin.ZCDP, d, 50 * d, CONFIDENCE) for d in (50_000, 5_000_000))
    assert float(fine.price) == pytest.approx(float(coarse.price), rel=1e-3)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 2**45), st.sampled_from(["0.5", "0.01", "0.000123", "0.000001", "0.00000001"]))
def test_a_share_at_a_price_costs_that_price(sensitivity: int, rho: str) -> None:
    share = number_at(Coin.ZCDP, sensitivity, Decimal(rho), CONFIDENCE)
    assert share.loss(Coin.ZCDP).amount == round_up(Decimal(rho))
    assert isinstance(share.noise, DiscreteGaussian)
    assert Fraction(share.grid.parts**2, 2) / share.noise.sigma2 == Fraction(rho)
    assert share.shift == half_width(share, CONFIDENCE)
    told = 1.96 * share.sensitivity / (2 * float(rho)) ** 0.5
    assert told * 0.99 - 1 < share.shift < told * 1.02 + 1


def test_on_a_pure_ledger_numbers_get_laplace_noise() -> None:
    assert isinstance(number_for(Coin.PURE, 3, 50, CONFIDENCE).noise, DiscreteLaplace)
    assert isinstance(number_at(Coin.PURE, 3, Decimal("0.1"), CONFIDENCE).noise, DiscreteLaplace)


def test_gaussian_noise_cannot_be_paid_for_on_a_pure_ledger() -> None:
    with pytest.raises(ValueError, match="pure"):
        COARSE.loss(Coin.PURE)
    with pytest.raises(ValueError, match="delta"):
        _ = COARSE.epsilon
    assert COARSE.epsilon_at(Decimal("5e-10")) > 0


def test_a_share_whose_price_is_below_its_noise_cannot_exist() -> None:
    noise, grid = DiscreteGaussian(Fraction(4)), Grid(10, 2)
    assert Share(noise, 5, Decimal("0.5"), None, grid).price == Decimal("0.5")
    for wrong in (
        (noise, Decimal("0.499999999999999999"), grid),
        (noise, Decimal("0.5"), Grid(10, 3)),
        (noise, 1, None),
    ):
        with pytest.raises(ValueError, match=r"share|grid"):
            Share(wrong[0], 5, Decimal(wrong[1]), None, wrong[2])
    with pytest.raises(ValueError, match="grid"):
        Share(DiscreteLaplace(Fraction(1), 10), 5, Decimal(1), None, grid)


def test_the_widest_noise_is_the_cheapest_and_below_it_there_is_no_answer() -> None:
    share = number_for(Coin.ZCDP, 1, 10**7, CONFIDENCE)
    assert isinstance(share.noise, DiscreteGaussian) and share.noise.sigma2 == MAX_SIGMA2
    assert share.price == SMALLEST_RHO
    with pytest.raises(AccuracyUnreachable):
        number_at(Coin.ZCDP, 1, SMALLEST_RHO - Decimal("1e-18"), CONFIDENCE)


@pytest.mark.parametrize("confidence", ["0.0001", "0.999999999999999999"])
def test_confidences_at_the_ends_have_shares_too(confidence: str) -> None:
    for sensitivity, margin in ((1, 1), (1, 5000), (10**6, 10**6), (10**6, 10**9), (10**9, 1)):
        share = number_for(Coin.ZCDP, sensitivity, margin, Decimal(confidence))
        assert half_width(share, Decimal(confidence)) <= margin


def test_deviations_are_those_of_the_law() -> None:
    for noise in (DiscreteGaussian(Fraction(1, 3)), DiscreteGaussian(Fraction(50)), DiscreteLaplace(Fraction(1), 1)):
        reach = np.arange(-200, 201)
        law = (
            np.exp(-(reach**2) / (2 * float(noise.sigma2)))
            if isinstance(noise, DiscreteGaussian)
            else np.exp(-float(noise.rate) * np.abs(reach))
        )
        assert noise.deviation == pytest.approx(float(np.sqrt(np.sum(reach**2 * law) / np.sum(law))), rel=1e-9)


@pytest.mark.parametrize("coin", list(Coin))
@pytest.mark.parametrize(("sensitivity", "magnitude"), [(1, "3"), (1, "40"), (1, "2000"), (7, "40"), (500, "12.5")])
def test_noise_of_a_magnitude_is_that_large_on_average(coin: Coin, sensitivity: int, magnitude: str) -> None:
    share = number_at(coin, sensitivity, price_of_magnitude(coin, Decimal(magnitude)), Decimal("0.95"))
    wide = share.grid.sensitivity / share.grid.parts
    # E|X| is the sum of P[|X| >= n], n = 1, 2, ...; the tails are exact, and beyond this reach nothing is left.
    scale = int(float(magnitude) * sensitivity / wide)
    mean = wide * 2 * sum(float(share.noise.tail(n)) for n in range(1, 12 * scale + 20))
    assert mean == pytest.approx(float(magnitude) * sensitivity, rel=0.02)
