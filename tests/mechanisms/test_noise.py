from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import GAUSSIANS, LAWS, support

from mechanisms.noise import MIN_RATE, DiscreteGaussian, DiscreteLaplace, Noise

steady = settings(derandomize=True, deadline=None, max_examples=100)
rates = st.fractions(min_value=Fraction(1, 5000), max_value=20)
betas = st.integers(min_value=1, max_value=10**9 - 1).map(lambda k: k * Decimal("1e-9"))


@pytest.mark.parametrize("noise", LAWS, ids=str)
@pytest.mark.parametrize("t", [-40, -1, 0, 1, 2, 3, 10, 40])
def test_a_tail_is_what_the_formula_sums_to(noise: Noise, t: int) -> None:
    x, p = support(noise)
    assert float(noise.tail(t)) == pytest.approx(float(p[x >= t].sum()), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("noise", LAWS, ids=str)
def test_the_two_halves_of_a_law_cover_it(noise: Noise) -> None:
    # Upper bounds on both sides of a cut add up to a little more than one, and never to less.
    for t in range(-30, 31):
        assert 1 <= noise.tail(t) + noise.tail(1 - t) < 1 + Fraction(1, 2**200)


@steady
@given(rates, st.integers(min_value=1, max_value=50), st.integers(min_value=0, max_value=200))
def test_one_unit_moves_a_laplace_tail_by_exactly_e_to_the_epsilon(rate: Fraction, sensitivity: int, t: int) -> None:
    noise = DiscreteLaplace(rate * sensitivity, sensitivity)
    near, far = noise.tail(t + 1), noise.tail(t + 1 + sensitivity)
    if far > Fraction(1, 2**200):  # below, the fixed point has no digits left to compare
        assert float(near / far) == pytest.approx(2.718281828459045 ** float(noise.epsilon), rel=1e-9)


@steady
@given(rates, betas)
def test_the_shift_of_laplace_is_the_smallest_that_is_rarely_exceeded(rate: Fraction, beta: Decimal) -> None:
    noise = DiscreteLaplace(rate, 1)
    shift = noise.shift(beta)
    assert noise.tail(shift + 1) <= Fraction(beta)
    assert shift == 0 or noise.tail(shift) > Fraction(beta)


@pytest.mark.parametrize("noise", GAUSSIANS, ids=str)
@pytest.mark.parametrize("beta", ["0.4", "0.05", "0.001", "1e-18"])
def test_the_shift_of_gauss_is_the_smallest_that_is_rarely_exceeded(noise: DiscreteGaussian, beta: str) -> None:
    shift = noise.shift(Decimal(beta))
    assert noise.tail(shift + 1) <= Fraction(beta)
    assert shift == 0 or noise.tail(shift) > Fraction(beta)


@steady
@given(st.fractions(min_value=Fraction(1, 100), max_value=10**6), st.integers(min_value=1, max_value=1000))
def test_the_loss_of_gauss_is_told_from_above(sigma2: Fraction, sensitivity: int) -> None:
    rho = Fraction(sensitivity**2, 2) / sigma2
    told = Fraction(DiscreteGaussian(sigma2).loss(sensitivity))
    assert rho <= told < rho + Fraction(1, 10**18)


def test_noise_at_a_loss_costs_that_loss() -> None:
    for rho in ("0.001", "0.333333333333333333", "7"):
        assert DiscreteGaussian.at_loss(Decimal(rho), 3).loss(3) == Decimal(rho)


def test_noise_that_would_leave_64_bits_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="too wide"):
        DiscreteLaplace(MIN_RATE / 2, 1)
    with pytest.raises(ValueError, match="variance"):
        DiscreteGaussian(Fraction(2**28 + 1))
    with pytest.raises(ValueError, match="variance"):
        DiscreteGaussian(Fraction(0))
    with pytest.raises(ValueError, match="sensitivity"):
        DiscreteLaplace(Fraction(1), 0)


def test_a_scaled_law_is_as_much_wider() -> None:
    assert DiscreteLaplace(Fraction(1), 2).scaled(Fraction(9, 10)).rate == Fraction(5, 9)
    assert DiscreteGaussian(Fraction(4)).scaled(Fraction(1, 2)).sigma2 == 1
