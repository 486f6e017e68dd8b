"""Intervals of averages and variances: they hold the truth as often as they say, for few values too."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom
from seeded_source import seeded

from mechanisms.interval import Ends, Row, Spread, ratio, ratio_deviation, variance, variance_deviation
from mechanisms.loss import Coin
from mechanisms.number import number_for
from mechanisms.release import release
from mechanisms.values import Exact

N = 4000
CONFIDENCE = Decimal("0.9")
LEAST = binom.ppf(0.00005, N, float(CONFIDENCE))


def rows(coin: Coin, exact: Sequence[int], sensitivities: Sequence[int], margin: int, seed: str) -> list[Row]:
    """Each number released N times, at this margin in units."""
    shares = [number_for(coin, each, margin * each, CONFIDENCE) for each in sensitivities]
    values = np.array([[number] * N for number in exact], dtype=np.int64)
    noisy = release(Exact(values), shares, seeded(seed))
    return [Row(noisy.row(place), share, Fraction(1)) for place, share in enumerate(shares)]


def held(ends: Ends, truth: float) -> int:
    return int(np.sum((ends[0] <= truth) & (truth <= ends[1])))


@pytest.mark.parametrize("coin", Coin)
@pytest.mark.parametrize("margin", [3, 50])
@pytest.mark.parametrize("half", [50, 25_000])
@pytest.mark.parametrize(
    ("count", "mean"), [(1, 0.5), (3, 1), (40, -0.9), (80, 0), (150, 1), (1000, 0.3), (100_000, -1)]
)
def test_the_interval_of_an_average_holds_it_as_often_as_it_says(
    coin: Coin, margin: int, half: int, count: int, mean: float
) -> None:
    total = round(mean * half * count)
    top, bottom = rows(coin, [total, count], [half, 1], margin, f"{coin}{margin}{half}{count}")
    assert held(ratio(top, bottom, CONFIDENCE, (-half, half)), total / count) >= LEAST


@pytest.mark.parametrize(("count", "mean"), [(150, 1), (1000, 0.3), (100_000, -1)])
def test_fiellers_interval_is_no_wider_than_it_must_be(count: int, mean: float) -> None:
    total = round(mean * 25_000 * count)
    top, bottom = rows(Coin.ZCDP, [total, count], [25_000, 1], 50, f"tight{count}")
    assert held(ratio(top, bottom, CONFIDENCE, (-25_000, 25_000)), total / count) <= binom.ppf(0.99995, N, 0.915)


def test_two_deviations_either_side_would_not_do_for_few_values() -> None:
    """What Fieller is for: where the denominator is about two deviations, an interval of 90 % ends too low twice as
    often as it may.
    """
    top, bottom = rows(Coin.ZCDP, [50 * 50, 50], [50, 1], 50, "naive")
    over = np.where(bottom.values > 0, bottom.values, np.nan)
    usual = top.values / over + 1.645 * ratio_deviation(top, bottom)
    _, high = ratio(top, bottom, CONFIDENCE, (-50, 50))
    too_many = binom.ppf(0.99995, N, 0.05)
    assert np.sum(usual < 50) > 1.5 * too_many and np.sum(high < 50) <= too_many


def test_noise_on_the_denominator_that_is_forgotten_is_seen() -> None:
    """The coverage tests have teeth: with the count taken for exact the interval is too narrow."""
    count, total = 300, 300 * 24_000
    top, bottom = rows(Coin.ZCDP, [total, count], [25_000, 1], 50, "forgotten")
    reach = 1.645 * top.deviation / bottom.values
    middle = top.values / bottom.values
    assert held((middle - reach, middle + reach), 24_000) < LEAST


@pytest.mark.parametrize("coin", Coin)
def test_a_denominator_that_may_be_zero_gives_the_declared_bounds(coin: Coin) -> None:
    top, bottom = rows(coin, [0, 0], [50, 1], 50, "zero")
    low, high = ratio(top, bottom, CONFIDENCE, (-50.0, 50.0))
    unsure = bottom.values <= 0
    assert unsure.sum() > N / 3
    assert set(low[unsure]) == {-50.0} and set(high[unsure]) == {50.0}
    assert np.all(np.isfinite(low)) and np.all(low <= high)


@pytest.mark.parametrize("coin", Coin)
def test_the_deviation_of_an_average_is_that_of_its_draws(coin: Coin) -> None:
    top, bottom = rows(coin, [20 * 5000, 5000], [50, 1], 50, "deviation")
    told = ratio_deviation(top, bottom)
    assert float(np.median(told)) == pytest.approx(float(np.std(top.values / bottom.values)), rel=0.06)
    assert np.all(np.isnan(ratio_deviation(top, Row(-bottom.lattice, bottom.share, bottom.unit))))


VALUES = [-40] * 300 + [0] * 900 + [50] * 400


@pytest.mark.parametrize("coin", Coin)
@pytest.mark.parametrize("less", [0, 1])
@pytest.mark.parametrize("copies", [1, 20])
@pytest.mark.parametrize("about", [0, 30])
def test_the_interval_of_a_variance_holds_it(coin: Coin, less: int, copies: int, about: int) -> None:
    """Also where the squares are about a point and the sum is not."""
    count = len(VALUES) * copies
    sums = [sum(v * v for v in VALUES) * copies, sum(v + about for v in VALUES) * copies, count]
    squares, top, bottom = rows(coin, sums, [2500, 50 + about, 1], 20, f"variance{coin}{copies}")
    spread = Spread(squares, top, bottom, less, about)
    truth = float(np.var(VALUES * copies, ddof=less))
    low, high = variance(spread, CONFIDENCE, 5000.0)
    assert held((low, high), truth) >= LEAST and np.all(low >= 0) and np.all(low <= high)
    found, noise = variance_deviation(spread)
    assert float(np.median(found)) == pytest.approx(truth, rel=0.05)
    if copies == 20:
        assert np.median(high - low) < truth / 2, "an interval that tells nothing holds everything"
        assert float(np.median(noise)) == pytest.approx(float(np.std(found)), rel=0.1)


def test_a_variance_of_too_few_values_is_only_known_to_be_within_its_bounds() -> None:
    squares, top, bottom = rows(Coin.ZCDP, [2500, 50, 2], [2500, 50, 1], 50, "few")
    spread = Spread(squares, top, bottom, 1)
    low, high = variance(spread, CONFIDENCE, 5000.0)
    assert np.mean((low == 0) & (high == 5000)) > 0.9
    assert np.isnan(variance_deviation(spread)[1]).any()
