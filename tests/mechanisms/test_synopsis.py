from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seeded_source import seeded
from synopsis_play import Play

from mechanisms.loss import QUANTUM, Coin
from mechanisms.noise import MAX_SIGMA2, DiscreteGaussian
from mechanisms.synopsis import (
    FRESH,
    Known,
    Partial,
    Release,
    Step,
    advanced,
    draw_partial,
    estimate,
    fresh_variance,
    price,
    step,
)

steady = settings(derandomize=True, deadline=None, max_examples=150)
NOTHING = Known()
ONE, TWO = Release(1, Fraction(400)), Release(2, Fraction(100))
BOTH = (ONE, TWO)
variances = st.fractions(min_value=Fraction(1, 2), max_value=10**6, max_denominator=50)


def test_the_first_question_grows_the_synopsis_and_knows_it_whole() -> None:
    found = step((), NOTHING, Fraction(1, 400))
    assert found == Step((FRESH,), None, Fraction(400), Fraction(1, 400), Fraction(1, 400), Fraction(1, 400))


def test_who_knows_enough_learns_nothing() -> None:
    found = step(BOTH, Known(frozenset((1, 2))), Fraction(1, 80))
    assert found.idle and found.take == () and found.new == 0
    assert found.partial is None and found.grow is None
    assert found.precision == Fraction(5, 400)


def test_another_analyst_takes_whole_releases_and_a_part_of_the_next_and_nothing_grows() -> None:
    found = step(BOTH, NOTHING, Fraction(1, 400) + Fraction(1, 250))
    assert found.take == (1,) and found.grow is None and found.new == 0
    assert found.partial == (2, Fraction(150))
    assert found.precision == found.learned == Fraction(1, 400) + Fraction(1, 250)


def test_what_is_known_in_part_is_refined_before_anything_else_is_told() -> None:
    known = Known(frozenset((1,)), Partial(2, Fraction(150)))
    found = step((ONE, TWO, Release(3, Fraction(50))), known, Fraction(1, 400) + Fraction(1, 200))
    assert found.take == () and found.partial is not None and found.partial[0] == 2
    assert 97 < found.partial[1] <= 100
    assert Fraction(1, 200) - Fraction(1, 250) <= found.learned < Fraction(1, 198) - Fraction(1, 250)


def test_what_is_known_in_part_is_taken_whole_before_another_one_is_known_in_part() -> None:
    known = Known(frozenset((1,)), Partial(2, Fraction(150)))
    found = step((ONE, TWO, Release(3, Fraction(50))), known, Fraction(1, 400) + Fraction(1, 100) + Fraction(1, 200))
    assert found.take == (2,) and found.partial == (3, Fraction(150))
    after = advanced(known, found)
    assert after.whole == {1, 2} and after.partial is not None and after.partial.release == 3


def test_only_what_is_missing_in_all_releases_grows() -> None:
    found = step(BOTH, Known(frozenset((2,))), Fraction(1, 50))
    assert found.take == (1, FRESH) and found.partial is None
    assert found.new == Fraction(1, 50) - Fraction(1, 80) and found.learned == Fraction(1, 50) - Fraction(1, 100)


def test_growth_may_be_rounded_up_and_the_analyst_learns_no_more_for_it() -> None:
    found = step(BOTH, Known(frozenset((1, 2))), Fraction(1, 79), least=Fraction(1, 16))
    assert found.new >= Fraction(1, 80) / 16 and found.grow == 1 / found.new
    assert found.partial is not None and found.partial[0] == FRESH and found.take == ()
    assert Fraction(1, 79) <= found.precision < Fraction(1, 79) * (1 + Fraction(1, 10**6))


def test_a_release_that_is_too_sharp_for_added_noise_is_taken_whole() -> None:
    sharp = Release(1, Fraction(3))
    assert step((sharp,), NOTHING, Fraction(1, 1000)).take == (1,)
    with pytest.raises(ValueError, match="taken whole"):
        draw_partial(replace(sharp, values=np.zeros(3, dtype=np.int64)), None, Fraction(900), seeded("sharp"))


def test_a_wish_for_very_little_gets_the_widest_noise_there_is() -> None:
    assert fresh_variance(Fraction(1, 2**40)) == MAX_SIGMA2
    found = step((), NOTHING, Fraction(1, 2**40))
    assert found.grow == MAX_SIGMA2 and found.take == (FRESH,)


@steady
@given(
    shown=st.lists(variances, max_size=5),
    whole=st.sets(st.integers(0, 4)),
    asked=variances,
    least=st.sampled_from([Fraction(0), Fraction(1, 32)]),
    again=variances,
)
def test_a_step_reaches_what_was_asked_and_teaches_little_more(
    shown: list[Fraction], whole: set[int], asked: Fraction, least: Fraction, again: Fraction
) -> None:
    releases = [Release(i, variance) for i, variance in enumerate(shown)]
    known = Known(frozenset(i for i in whole if i < len(shown)))
    for wish in (1 / asked, 1 / again):
        before = known.precision(releases)
        everything = sum((release.precision for release in releases), Fraction(0))
        found = step(releases, known, wish, least)
        assert found.precision >= wish
        assert found.learned == found.precision - before >= 0
        assert (found.grow is None) == (wish <= everything)
        assert found.idle == (before >= wish)
        if found.grow is not None:
            assert found.new == 1 / found.grow >= wish - everything
            assert found.new <= max(wish - everything, least * everything, 1 / MAX_SIGMA2) + Fraction(1, 2**64)
            if not least:
                assert found.new <= found.learned, "the database never pays more than the analyst"
            releases.append(Release(len(releases), found.grow))
        if not found.idle and min(release.variance for release in releases) > 500 and wish > Fraction(1, 10**5):
            assert found.learned <= (wish - before) * Fraction(33, 32) + wish / 16
        known = advanced(known, found, None, len(releases) - 1)
        assert known.precision(releases) == found.precision


def test_the_order_of_growth_does_not_matter_two_at_once_append_two() -> None:
    releases = [ONE, TWO, Release(9, Fraction(77))]
    assert Known(frozenset((1, 2, 9))).precision(releases) == Known(frozenset((1, 2, 9))).precision(releases[::-1])


def test_the_estimate_is_the_rounded_mean_with_precisions_as_weights() -> None:
    one, two = np.array([0, 10, -10, 1]), np.array([5, 11, -11, 0])
    releases = (replace(ONE, values=one), replace(TWO, values=two))
    mean, variance = estimate(releases, Known(frozenset((1, 2))))
    assert mean.tolist() == [4, 11, -11, 0] and mean.dtype == np.int64  # 4.0, 10.8, -10.8, 0.2
    assert variance == 80
    alone, variance = estimate(releases, Known(frozenset((1,))))
    assert alone.tolist() == one.tolist() and variance == 400


def test_the_estimate_is_exact_for_numbers_that_floats_cannot_hold() -> None:
    far = 2**61 + 1
    releases = (Release(1, Fraction(3), np.array([far])), Release(2, Fraction(3), np.array([far + 2])))
    assert estimate(releases, Known(frozenset((1, 2))))[0].tolist() == [far + 1]


def test_the_estimate_of_halves_rounds_up() -> None:
    releases = (Release(1, Fraction(4), np.array([0, -1])), Release(2, Fraction(4), np.array([1, 0])))
    assert estimate(releases, Known(frozenset((1, 2))))[0].tolist() == [1, 0]
    thirds = [Release(i, Fraction(3), np.array([i])) for i in range(3)]  # 0 + 1 + 2 over 3
    assert estimate(thirds, Known(frozenset((0, 1, 2))))[0].tolist() == [1]


@steady
@given(
    st.lists(st.tuples(*[st.integers(-(2**40), 2**40)] * 3), min_size=1, max_size=20),
    st.lists(variances, min_size=3, max_size=3),
)
def test_the_estimate_is_rounded_as_fractions_are(cells: list[tuple[int, ...]], wide: list[Fraction]) -> None:
    columns = np.array(cells, dtype=np.int64).T
    releases = [Release(i, variance, columns[i]) for i, variance in enumerate(wide)]
    shown, variance = estimate(releases, Known(frozenset((0, 1, 2))))
    for cell, numbers in zip(shown.tolist(), cells, strict=True):
        exact = sum(Fraction(x) / v for x, v in zip(numbers, wide, strict=True)) * variance
        assert cell == (exact + Fraction(1, 2)).__floor__()


def test_nothing_and_numbers_that_are_not_there_have_no_estimate() -> None:
    with pytest.raises(ValueError, match="nothing is known"):
        estimate(BOTH, NOTHING)
    with pytest.raises(ValueError, match="needs the values"):
        estimate(BOTH, Known(frozenset((1,))))
    with pytest.raises(ValueError, match="needs its values"):
        draw_partial(ONE, None, Fraction(100), seeded("no values"))
    with pytest.raises(ValueError, match="of this release"):
        values = np.zeros(2, dtype=np.int64)
        draw_partial(replace(ONE, values=values), Partial(2, Fraction(900), values), Fraction(450), seeded("other"))
    with pytest.raises(ValueError, match="not the one of this step"):
        advanced(NOTHING, step(BOTH, NOTHING, Fraction(1, 500)), Partial(2, Fraction(1)))


def test_a_price_is_rounded_up_and_pays_one_quantum_for_the_sums() -> None:
    assert price(Fraction(0), 3, 2, Coin.ZCDP) == 0
    assert price(Fraction(1, 2), 3, 2, Coin.ZCDP) == Decimal("4.5") + QUANTUM
    assert price(Fraction(1, 2), 3, 2, Coin.ZCDP, summed=False) == Decimal("4.5")
    third = price(Fraction(1, 3), 1, 1, Coin.ZCDP)
    assert Fraction(third) - Fraction(QUANTUM) >= Fraction(1, 6) > Fraction(third) - 2 * Fraction(QUANTUM)
    with pytest.raises(ValueError, match="pure"):
        price(Fraction(1), 1, 1, Coin.PURE)
    for wrong in ((Fraction(-1), 1, 1), (Fraction(1), 0, 1), (Fraction(1), 1, 0)):
        with pytest.raises(ValueError, match="not negative"):
            price(*wrong, Coin.ZCDP)


@steady
@given(variance=variances, sensitivity=st.integers(1, 1000))
def test_the_price_of_a_release_is_that_of_its_noise_and_a_quantum(variance: Fraction, sensitivity: int) -> None:
    loss = DiscreteGaussian(variance).loss(sensitivity)
    assert price(1 / variance, sensitivity, 1, Coin.ZCDP) == loss + QUANTUM
    assert price(1 / variance, sensitivity, 1, Coin.ZCDP, summed=False) == loss


@steady
@given(st.lists(st.fractions(min_value=0, max_value=1, max_denominator=10**6), max_size=6))
def test_steps_together_pay_at_least_what_is_known_in_the_end(learned: list[Fraction]) -> None:
    assert sum(price(one, 2, 3, Coin.ZCDP) for one in learned) >= price(sum(learned, Fraction(0)), 2, 3, Coin.ZCDP)


def test_what_the_analyst_is_told_has_the_variance_that_was_promised() -> None:
    """The whole route, on many cells of which the truth is known; one of five percent less would be seen."""
    cells = 100_000
    play = Play(cells, "route")
    for who, variance in (("ann", 900), ("bob", 2500), ("bob", 1300), ("ann", 700), ("bob", 820), ("bob", 699)):
        play.ask(who, Fraction(variance))
        shown, told = estimate(play.releases, play.known[who])
        assert told <= variance
        # Rounding adds a twelfth.
        off = (float(np.mean(shown.astype(float) ** 2)) - float(told) - 1 / 12) / float(told) / (2 / cells) ** 0.5
        assert abs(off) < 5
        assert abs(0.05 / (2 / cells) ** 0.5) > 8


def test_where_it_grows_it_grows_by_the_floor_and_the_analyst_learns_all_of_it() -> None:
    floor = Fraction(1, 30)
    found = step(BOTH, Known(frozenset((1, 2))), Fraction(6, 400), floor=floor)
    assert found.new == floor == found.learned and found.take == (FRESH,)
    assert step(BOTH, Known(frozenset((1, 2))), Fraction(1, 10), floor=floor) == step(
        BOTH, Known(frozenset((1, 2))), Fraction(1, 10)
    ), "what needs more is as it was"


def test_what_need_not_grow_has_no_floor() -> None:
    for known, wanted in ((NOTHING, Fraction(1, 250)), (Known(frozenset((1, 2))), Fraction(1, 80))):
        assert step(BOTH, known, wanted, floor=Fraction(1)) == step(BOTH, known, wanted)
