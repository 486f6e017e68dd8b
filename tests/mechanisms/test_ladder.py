from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from mechanisms import ladder
from mechanisms.errors import AccuracyUnreachable
from mechanisms.ladder import LEVELS, NOTHING
from mechanisms.loss import Coin
from mechanisms.noise import MAX_SIGMA2, DiscreteLaplace

steady = settings(derandomize=True, deadline=None, max_examples=100)
coins = st.sampled_from(list(Coin))
gaussian_levels = st.integers(ladder.coarsest(Coin.ZCDP), LEVELS - 1)
bounds = st.decimals("0.000001", "0.3", places=6)


def masses(sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """The discrete Gaussian law, from its formula."""
    x = np.arange(-(reach := math.ceil(13 * sigma) + 3), reach + 1)
    weight = np.exp(-(x**2) / (2 * sigma**2))
    return x, weight / weight.sum()


def test_the_widths_are_two_percent_apart_from_a_sixteen_bit_grid_to_a_quarter() -> None:
    widths = [ladder.width(level) for level in range(LEVELS)]
    assert widths[0] == 2.0**16
    assert 0.25 < widths[-1] < 0.252
    assert np.allclose(np.array(widths[:-1]) / widths[1:], 1.02, rtol=1e-10)
    assert ladder.width(ladder.coarsest(Coin.ZCDP)) < 2**11 < ladder.width(ladder.coarsest(Coin.ZCDP) - 1)


@steady
@given(coins, st.data(), st.integers(1, 10**9))
def test_a_path_costs_what_one_release_at_its_last_level_does(coin: Coin, data: st.DataObject, parts: int) -> None:
    level = data.draw(st.integers(ladder.coarsest(coin), ladder.deepest(coin)))
    price = ladder.price(coin, level, parts)
    match coin:
        case Coin.PURE:
            assert DiscreteLaplace(price, parts).rate == ladder.rate(level)
        case Coin.ZCDP:
            assert price == Fraction(parts**2, 2) / ladder.increment(NOTHING, level).sigma2
    assert ladder.price(coin, NOTHING, parts) == 0 < price


@steady
@given(st.lists(gaussian_levels, min_size=1, max_size=6, unique=True))
def test_the_precisions_of_all_steps_add_up_exactly(levels: list[int]) -> None:
    levels.sort()
    steps = [ladder.increment(low, high) for low, high in zip([NOTHING, *levels], levels, strict=False)]
    assert sum(1 / step.sigma2 for step in steps) == ladder.precision(levels[-1])


def test_every_smallest_step_can_be_drawn() -> None:
    first = ladder.coarsest(Coin.ZCDP)
    assert all(ladder.increment(level, level + 1).sigma2 <= MAX_SIGMA2 for level in range(first, LEVELS - 1))


def test_levels_that_are_not_offered_have_no_price_and_no_shift() -> None:
    for coin, level in ((Coin.ZCDP, 175), (Coin.ZCDP, LEVELS), (Coin.PURE, -2), (Coin.PURE, LEVELS)):
        with pytest.raises(ValueError, match="level"):
            ladder.price(coin, level, 1)
        with pytest.raises(ValueError, match="level"):
            ladder.shift(coin, level, Decimal("0.1"))
    for level in (-1, LEVELS):
        with pytest.raises(ValueError, match="level"):
            ladder.rate(level)


@steady
@given(st.integers(0, LEVELS - 1), bounds)
def test_the_shift_of_laplace_noise_is_the_smallest(level: int, bound: Decimal) -> None:
    noise, shift = DiscreteLaplace(ladder.rate(level), 1), int(ladder.shift(Coin.PURE, level, bound))
    assert noise.tail(shift + 1) <= Fraction(bound)
    assert shift == 0 or noise.tail(shift) > Fraction(bound)


@pytest.mark.parametrize("sigma", [0.25, 0.3, 0.5, 0.8, 1.0, 1.3, 1.67, 2.0, 3.1, 5.0, 12.0, 40.0, 150.0])
def test_a_discrete_gaussian_is_stochastically_below_the_normal_law_and_a_little(sigma: float) -> None:
    x, p = masses(sigma)
    upper = np.cumsum(p[::-1])[::-1]

    def exceeds(added: float) -> float:
        return float((upper - norm.sf((x - added) / sigma)).max())

    assert exceeds(1) < 1e-13
    if sigma > 5 / 3:
        assert exceeds(0.5 + max(0.0435, 5 / (6 * sigma))) < 1e-13
        assert exceeds(0.45) > 1e-4 / sigma  # the half is needed


@pytest.mark.parametrize("bound", ["0.3", "0.05", "0.001", "0.0000001"])
@pytest.mark.parametrize(("low", "high"), [(NOTHING, 500), (470, 500), (500, 534), (530, 533), (560, 580), (610, 629)])
def test_no_path_strays_further_than_told(low: int, high: int, bound: str) -> None:
    # All of the law: both releases on their lattices, combined in floats.
    if low == NOTHING:
        path, chance = masses(ladder.width(high))
    else:
        steps = [masses(math.sqrt(ladder.increment(*ends).sigma2)) for ends in ((NOTHING, low), (low, high))]
        kept = float(ladder.precision(low) / ladder.precision(high))
        path = (kept * steps[0][0][:, None] + (1 - kept) * steps[1][0][None, :]).reshape(-1)
        chance = (steps[0][1][:, None] * steps[1][1][None, :]).reshape(-1)
    shift = ladder.shift(Coin.ZCDP, high, Decimal(bound))
    assert chance[path > shift].sum() <= float(bound)
    assert shift <= ladder.width(high) * norm.isf(float(bound)) + 1.001


@steady
@given(coins, bounds, st.floats(3, 1000))
def test_the_level_for_a_shift_is_the_coarsest(coin: Coin, bound: Decimal, reach: float) -> None:
    level = ladder.level_for(coin, reach, bound)
    assert ladder.shift(coin, level, bound) <= reach
    assert level == ladder.coarsest(coin) or ladder.shift(coin, level - 1, bound) > reach


def test_an_accuracy_that_no_level_has_is_refused() -> None:
    with pytest.raises(AccuracyUnreachable) as refused:
        ladder.level_for(Coin.ZCDP, 0.5, Decimal("0.05"))
    assert refused.value.sqlstate == "54000"
    assert ladder.level_for(Coin.PURE, 0, Decimal("0.05")) <= ladder.deepest(Coin.PURE)


def test_a_tiny_bound_is_kept_too() -> None:
    bound = Decimal("1e-17")
    assert ladder.shift(Coin.ZCDP, 400, bound) >= ladder.width(400) * norm.isf(1e-17) + 0.999
    for wrong in ("0", "1"):
        with pytest.raises(ValueError, match="probability"):
            ladder.shift(Coin.ZCDP, 400, Decimal(wrong))
