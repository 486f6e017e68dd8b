"""Groups that the data brought: named only from a noisy number of units on, so that nobody is a group by themselves."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from laws import fits
from seeded_source import seeded

from mechanisms.release import release_found
from mechanisms.threshold import for_interval, key_threshold
from mechanisms.values import Exact, Passed

PRESENCE = for_interval(1, 50, Decimal("0.95"))
SHARE = for_interval(10, 500, Decimal("0.95"))
DELTA = Decimal("1e-3")


def exact(*rows: list[int]) -> Exact:
    return Exact(np.array(rows, dtype=np.int64))


@pytest.mark.parametrize("delta", ["0.1", "1e-3", "1e-6", "1e-12"])
@pytest.mark.parametrize("touched", [1, 7])
def test_the_threshold_is_the_lowest_that_hides_a_single_unit(delta: str, touched: int) -> None:
    threshold = key_threshold(PRESENCE, Decimal(delta), touched)
    # One unit: 1 + X >= threshold is X >= threshold - 1.
    assert touched * PRESENCE.noise.tail(threshold - 1) <= Fraction(delta)
    assert touched * PRESENCE.noise.tail(threshold - 2) > Fraction(delta)


def test_single_units_are_named_as_rarely_as_delta_says() -> None:
    many, threshold = 400_000, key_threshold(PRESENCE, DELTA, 1)
    passed, _ = release_found(
        exact([5] * many), exact([1] * many), [SHARE], PRESENCE, threshold, seeded("single units")
    )
    share = len(passed.indices) / many
    assert 0.7 * float(DELTA) < share < 1.15 * float(DELTA), "a bound that is far from tight tests little"
    lower, _ = release_found(
        exact([5] * many), exact([1] * many), [SHARE], PRESENCE, threshold - 10, seeded("single units")
    )
    assert len(lower.indices) / many > 1.3 * float(DELTA), "mutant: a threshold that is ten too low"


def test_large_groups_are_named_and_get_the_noise_of_their_shares() -> None:
    many = 50_000
    threshold = key_threshold(PRESENCE, DELTA, 1)
    numbers = np.arange(many, dtype=np.int64)
    passed, noisy = release_found(
        Exact(numbers[None, :]), exact([10_000] * many), [SHARE], PRESENCE, threshold, seeded("large")
    )
    assert passed.indices.tolist() == list(range(many))
    assert fits(noisy.row(0) - numbers, SHARE.noise) > 0.001


def test_numbers_stay_with_their_groups() -> None:
    sizes = [10_000 if place % 3 == 0 else 0 for place in range(300)]
    numbers = [place * 1_000_000 for place in range(300)]
    passed, noisy = release_found(exact(numbers), exact(sizes), [SHARE], PRESENCE, 500, seeded("places"))
    assert passed.indices.tolist() == list(range(0, 300, 3))
    assert np.round(noisy.row(0) / 1_000_000).astype(int).tolist() == list(range(0, 300, 3))


def test_naming_and_numbers_have_independent_noise() -> None:
    """Whether a group passed must not tell which way its number errs."""
    many = 100_000
    passed, noisy = release_found(exact([0] * many), exact([500] * many), [SHARE], PRESENCE, 500, seeded("apart"))
    assert 0.4 * many < len(passed.indices) < 0.6 * many
    deviation = float(SHARE.noise.sensitivity / SHARE.noise.epsilon) * 2**0.5
    assert abs(float(noisy.row(0).mean())) < 5 * deviation / len(passed.indices) ** 0.5


def test_keys_alone_have_no_numbers() -> None:
    passed, noisy = release_found(
        Exact(np.zeros((0, 3), dtype=np.int64)), exact([9000, 1, 9000]), [], PRESENCE, 500, seeded("keys")
    )
    assert passed.indices.tolist() == [0, 2] and noisy.values.shape == (0, 2)


def test_no_group_at_all_is_an_empty_answer() -> None:
    nothing = Exact(np.zeros((1, 0), dtype=np.int64))
    passed, noisy = release_found(nothing, nothing, [SHARE], PRESENCE, 500, seeded("nothing"))
    assert passed.indices.tolist() == [] and noisy.values.shape == (1, 0)


def test_only_the_release_says_who_may_be_named() -> None:
    with pytest.raises(TypeError, match="for the release to say"):
        Passed(np.arange(3), object())
