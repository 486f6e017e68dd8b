from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from exact_sampler import Exactly, power
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import fits, variance_is_off_by
from scipy.stats import chi2_contingency
from seeded_source import seeded

from mechanisms import bridge
from mechanisms.bridge import FEWEST, PARTS, between, centred_table, narrowed, reachable, stations
from mechanisms.noise import DiscreteGaussian
from mechanisms.sampler import Source, Table, draw
from mechanisms.values import Lattice

steady = settings(derandomize=True, deadline=None, max_examples=150)
N = 200_000
STEPS = [  # wide, narrow: small tables, wide noise in two parts, a long way in several steps
    (Fraction(100), Fraction(100) * 45 / 64),
    (Fraction("2000.5"), Fraction("2000.5") * 63 / 64),
    (Fraction(10**6), Fraction(10**6) * 33 / 64),
    (Fraction(10**6), Fraction(10**6) * 41 / 64 / 1024),
]
every_step = pytest.mark.parametrize(("wide", "narrow"), STEPS)


def probabilities(table: Table) -> list[Fraction]:
    """What each cell really gets, from its boundaries."""
    width = len(table.boundaries) // len(table.first)
    edges = [int.from_bytes(table.boundaries[i : i + width], "big") for i in range(0, len(table.boundaries), width)]
    return [Fraction(b - a, 256**width) for a, b in zip(edges, [*edges[1:], 256**width], strict=True)]


def bell(x: Fraction, variance: Fraction) -> Fraction:
    return power(x * x / (2 * variance))


@pytest.mark.parametrize("variance", [Fraction(4), Fraction(8), Fraction("127.3")])
@pytest.mark.parametrize("parts", [0, 1, 23, 32, 63])
def test_the_table_around_a_fraction_is_within_two_to_the_minus_200_of_its_law(variance: Fraction, parts: int) -> None:
    table, first = centred_table(variance, parts)
    told = probabilities(table)
    beyond = 20
    places = range(first - beyond, first + len(told) + beyond)
    masses = [bell(x - Fraction(parts, PARTS), variance) for x in places]
    total = sum(masses)
    given_to = [Fraction(0)] * beyond + told + [Fraction(0)] * beyond
    distance = sum((abs(p - m / total) for p, m in zip(given_to, masses, strict=True)), Fraction(0)) / 2
    assert distance < Fraction(1, 2**200)


@pytest.mark.parametrize("parts", [0, 1, 37])
def test_wide_noise_around_a_fraction_is_within_two_to_the_minus_200_of_its_law(parts: int) -> None:
    centre, variance = Fraction(parts, PARTS), Fraction(128)

    def unevenness(near: Fraction) -> Fraction:
        """How far the ratio of the convolution to the law departs from a constant."""

        def ratio(x: int) -> Fraction:
            middle = round((x - centre) * (variance - near) / variance)
            exponents = (
                (x - y - centre) ** 2 / (2 * near)
                + y * y / (2 * (variance - near))
                - (x - centre) ** 2 / (2 * variance)
                for y in range(middle - 70, middle + 71)
            )
            return sum((power(exponent) for exponent in exponents), Fraction(0))

        ratios = [ratio(x) for x in (-40, *range(17), 55)]
        return max(ratios) / min(ratios) - 1

    assert unevenness(Fraction(8)) < Fraction(1, 2**200)
    assert unevenness(Fraction(1)) > Fraction(1, 2**100)


@pytest.mark.parametrize("narrow", [8, 12, 5])
def test_what_was_shown_first_is_the_narrow_noise_and_independent_rest_up_to_a_factor_that_nobody_sees(
    narrow: int,
) -> None:
    """The joint law that is drawn and the ideal one, in digits: within exp(2.2e-34), as the head of bridge says."""

    def unevenness(wide: Fraction, narrow: Fraction) -> Fraction:
        """How far theta, by which the two laws differ, departs from a constant over the centres."""
        variance = between(wide, narrow)
        thetas = [
            sum((bell(x - e * narrow / wide % 1, variance) for x in range(-60, 61)), Fraction(0)) for e in range(64)
        ]
        return max(thetas) / min(thetas) - 1

    wide = Fraction(narrow * narrow, narrow - 4) if narrow != 8 else Fraction(16)
    assert between(wide, Fraction(narrow)) == FEWEST
    assert 0 < unevenness(wide, Fraction(narrow)) < Fraction(22, 10**35)
    assert unevenness(wide / 4, Fraction(narrow, 4)) > Fraction(1, 10**10)  # a variance of 1 in between would not do


def joint(wide: Fraction, narrow: Fraction, seed: str) -> tuple[Lattice, Lattice]:
    """Wide noise, and what it became."""
    source = seeded(f"{seed} {wide} {narrow}")
    shown = draw(DiscreteGaussian(wide), N, source)
    return shown, narrowed(shown, wide, narrow, source)


@every_step
def test_the_narrow_noise_and_the_rest_have_their_laws_and_wrong_ones_are_rejected(
    wide: Fraction, narrow: Fraction
) -> None:
    shown, kept = joint(wide, narrow, "laws")
    rest = shown - kept
    for sample, variance in ((kept, narrow), (rest, wide - narrow)):
        law = DiscreteGaussian(variance)
        assert fits(sample, law) > 1e-4
        assert abs(variance_is_off_by(sample, law)) < 4.5
        assert fits(sample, law.scaled(Fraction(95, 100))) < 1e-9
        assert fits(sample, law.scaled(Fraction(100, 95))) < 1e-9


def dependence(one: Lattice, other: Lattice) -> float:
    """The p-value of a chi-square test of independence on 12 x 12 cells."""
    cells = [np.searchsorted(np.quantile(x, np.linspace(0, 1, 13)[1:-1]), x) for x in (one, other)]
    return float(chi2_contingency(np.bincount(12 * cells[0] + cells[1], minlength=144).reshape(12, 12)).pvalue)


def correlation(one: Lattice, other: Lattice) -> float:
    """In standard errors of independent samples."""
    return float(np.corrcoef(one, other)[0, 1] * N**0.5)


@every_step
def test_the_rest_is_independent_of_the_narrow_noise_and_a_redraw_is_not(wide: Fraction, narrow: Fraction) -> None:
    shown, kept = joint(wide, narrow, "independent")
    assert dependence(kept, shown - kept) > 1e-4
    redrawn = draw(DiscreteGaussian(narrow), N, seeded(f"redrawn {wide} {narrow}"))
    assert abs(correlation(kept, shown - kept)) < 4.5
    assert correlation(redrawn, shown - redrawn) < -8


@pytest.mark.parametrize(
    ("wide", "narrow", "seen"), [(Fraction(16), Fraction(8), 0), (Fraction(36), Fraction(36) * 40 / 64, -5)]
)
def test_rational_coins_that_happen_to_add_up_give_the_same_law(wide: Fraction, narrow: Fraction, seen: int) -> None:
    """The second implementation knows no bridge: it draws both parts exactly until their sum is what was shown."""
    exactly = Exactly(seeded(f"oracle {wide} {narrow} {seen}"))
    theirs: list[int] = []
    while len(theirs) < 500:
        part = exactly.gaussian(narrow)
        if part + exactly.gaussian(wide - narrow) == seen:
            theirs.append(part)

    def agreement(ours: Lattice) -> float:
        cuts = np.arange(min(theirs) + 2, max(theirs) - 1)
        counts = np.array([np.bincount(np.searchsorted(cuts, s), minlength=len(cuts) + 1) for s in (ours, theirs)])
        return float(chi2_contingency(counts[:, counts.sum(axis=0) > 0]).pvalue)

    source = seeded(f"against the oracle {wide} {narrow} {seen}")
    assert agreement(narrowed(np.full(20_000, seen), wide, narrow, source)) > 1e-4
    if seen:
        assert agreement(narrowed(np.full(20_000, -seen), wide, narrow, source)) < 1e-9


@steady
@given(
    wide=st.fractions(min_value=1, max_value=2**28, max_denominator=1000),
    part=st.floats(min_value=2**-22, max_value=1, exclude_max=True),
)
def test_what_is_reachable_is_reached_in_steps_that_are_wide_enough(wide: Fraction, part: float) -> None:
    most = wide * Fraction(part)
    found = reachable(wide, most)
    if found is None:
        assert most < 4 * FEWEST or between(wide, wide / 2) < FEWEST
        return
    assert found <= most
    way = stations(wide, found)
    assert (way[0], way[-1]) == (wide, found)
    for before, after in pairwise(way):
        assert (after * PARTS / before).denominator == 1 and between(before, after) >= FEWEST
    if most >= 300 and wide - most >= wide / 64:
        assert found >= most * 31 / 32


def test_noise_is_never_widened_and_never_brought_where_no_table_leads() -> None:
    for narrow in (Fraction(100), Fraction(101), Fraction(0), Fraction(100, 3), Fraction(1)):
        with pytest.raises(ValueError, match="cannot be brought"):
            stations(Fraction(100), narrow)
    assert reachable(Fraction(100), Fraction(100)) is None
    assert reachable(Fraction(15), Fraction(8)) is None  # the variance in between would be below 4


def test_every_cell_takes_the_same_bytes_whatever_was_shown() -> None:
    def taken(values: Lattice) -> int:
        total = 0

        def source(n: int) -> bytes:
            nonlocal total
            total += n
            return stream(n)

        stream: Source = seeded("bytes")
        narrowed(values, Fraction(1000), Fraction(1000) * 40 / 64, source)
        return total

    assert len({taken(np.full(1000, seen)) for seen in (0, 1, 17, -300)} | {taken(np.arange(1000))}) == 1


def test_the_head_of_the_file_tells_the_truth_about_the_smallest_variance() -> None:
    assert bridge.FEWEST == 4
    tail = power(Fraction(789568352087, 10**10))  # 2 pi^2 * 4 = 78.9568352087...
    assert Fraction(43, 10) * tail < Fraction(23, 10**35)
