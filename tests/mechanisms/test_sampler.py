from __future__ import annotations

import ast
import os
import time
from decimal import Context, Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from exact_sampler import Exactly
from laws import GAUSSIANS, LAPLACES, LAWS, audit, fits, variance_is_off_by
from pace import pace
from scipy.stats import chi2_contingency
from seeded_source import seeded

import mechanisms
from mechanisms.noise import MIN_RATE, DiscreteGaussian, DiscreteLaplace, Noise
from mechanisms.sampler import Source, Table, draw, gaussian_table, laplace_tables, parted

N = 200_000
DIGITS = Context(prec=150)
every_law = pytest.mark.parametrize("noise", LAWS, ids=str)
# A sample is accepted within 4 standard errors (or p > 0.001) and a wrong scale must lie beyond 8 (or p < 1e-9).


@every_law
def test_a_sample_has_the_shape_of_its_law(noise: Noise) -> None:
    # Among so many laws one sample may be of the unluckiest in a thousand; ten times as many draws then tell.
    first = fits(draw(noise, N, seeded(f"shape {noise}")), noise)
    assert first > 0.001 or fits(draw(noise, 10 * N, seeded(f"shape {noise} again")), noise) > 0.001


@every_law
def test_a_sample_of_a_law_five_percent_narrower_is_rejected(noise: Noise) -> None:
    assert fits(draw(noise.scaled(Fraction(95, 100)), N, seeded(f"narrow {noise}")), noise) < 1e-9


@every_law
def test_the_variance_is_the_laws_and_one_of_five_percent_less_is_rejected(noise: Noise) -> None:
    n = 1_000_000
    assert abs(variance_is_off_by(draw(noise, n, seeded(f"variance {noise}")), noise)) < 4
    narrow = noise.scaled(Fraction(9747, 10000))  # its square is 0.95
    assert variance_is_off_by(draw(narrow, n, seeded(f"less variance {noise}")), noise) < -8


@pytest.mark.parametrize(
    ("noise", "distance"),
    [(LAPLACES[0], 1), (DiscreteLaplace(Fraction(1), 10), 10), (GAUSSIANS[1], 4), (GAUSSIANS[3], 1000)],
    ids=str,
)
def test_two_neighbours_are_as_hard_to_tell_apart_as_was_paid_for(noise: Noise, distance: int) -> None:
    def excess(law: Noise, seed: str) -> float:
        at_zero = draw(law, 400_000, seeded(f"{seed} zero {noise}"))
        at_neighbour = draw(law, 400_000, seeded(f"{seed} neighbour {noise}")) + distance
        return audit(at_zero, at_neighbour, noise, distance)

    assert excess(noise, "audit") < 4
    assert excess(noise.scaled(Fraction(9, 10)), "mutant") > 8


@pytest.mark.slow
@every_law
def test_four_million_draws_have_the_shape_and_the_variance_of_their_law(noise: Noise) -> None:
    sample = draw(noise, 4_000_000, seeded(f"four million {noise}"))
    assert fits(sample, noise) > 0.001
    assert abs(variance_is_off_by(sample, noise)) < 4
    narrow = draw(noise.scaled(Fraction(99, 100)), 4_000_000, seeded(f"four million narrow {noise}"))
    assert variance_is_off_by(narrow, noise) < -8


@pytest.mark.parametrize("noise", [LAPLACES[0], LAPLACES[4], GAUSSIANS[0], GAUSSIANS[1]], ids=str)
def test_the_exact_rational_sampler_draws_from_the_same_law(noise: Noise) -> None:
    exactly = Exactly(seeded(f"oracle {noise}"))
    match noise:
        case DiscreteLaplace():
            theirs = np.array([exactly.laplace(noise.rate) for _ in range(20_000)])
        case DiscreteGaussian():
            theirs = np.array([exactly.gaussian(noise.sigma2) for _ in range(20_000)])
    assert fits(theirs, noise) > 0.001  # the oracle itself
    ours = draw(noise, 20_000, seeded(f"against the oracle {noise}"))
    cuts = np.unique(np.quantile(theirs, np.linspace(0.05, 0.95, 19)))
    counts = np.array([np.bincount(np.searchsorted(cuts, s), minlength=len(cuts) + 1) for s in (ours, theirs)])
    assert chi2_contingency(counts[:, counts.sum(axis=0) > 0]).pvalue > 0.001


def probabilities(table: Table) -> list[Fraction]:
    """What each cell of a table really gets, from its boundaries."""
    width = len(table.boundaries) // len(table.first)
    edges = [int.from_bytes(table.boundaries[i : i + width], "big") for i in range(0, len(table.boundaries), width)]
    return [Fraction(b - a, 256**width) for a, b in zip(edges, [*edges[1:], 256**width], strict=True)]


def power(x: Fraction) -> Fraction:
    """exp(-x) to 150 digits, from another library."""
    return Fraction(DIGITS.exp(DIGITS.divide(Decimal(-x.numerator), Decimal(x.denominator))))


def distance(table: Table, masses: list[Fraction]) -> Fraction:
    """Total variation between a table and the law with these masses, which may have more cells."""
    told, total = probabilities(table), sum(masses)
    told += [Fraction(0)] * (len(masses) - len(told))
    return sum((abs(p - m / total) for p, m in zip(told, masses, strict=True)), Fraction(0)) / 2


@pytest.mark.parametrize("rate", [Fraction(1, 1000), Fraction(1, 20), Fraction(1), Fraction(50), Fraction(300)])
def test_the_tables_of_laplace_are_within_two_to_the_minus_200(rate: Fraction) -> None:
    tables = laplace_tables(rate)
    y = power(rate)
    total = distance(tables.sign, [y, y, 1 - y])
    for place, digit in enumerate(tables.digits):
        step, last = rate * 4096**place, place == len(tables.digits) - 1
        base, masses = power(step), [Fraction(1)]
        for _ in range(min(len(digit.first) + 200, 9000) - 1 if last else 4095):
            masses.append(Fraction(int(masses[-1] * base * 2**500), 2**500))
        total += distance(digit, masses)
    assert total < Fraction(1, 2**200)


@pytest.mark.parametrize("sigma2", [Fraction(1, 50), Fraction(1), Fraction(16), Fraction("900.5")])
def test_the_table_of_gauss_is_within_two_to_the_minus_200(sigma2: Fraction) -> None:
    table = gaussian_table(sigma2)
    masses = [2 * power(x * x / (2 * sigma2)) for x in range(1, len(table.first) + 20)]
    masses = [Fraction(1), *(Fraction(int(m * 2**500), 2**500) for m in masses)]
    assert distance(table, masses) < Fraction(1, 2**200)


@pytest.mark.parametrize("sigma2", [Fraction("4096.5"), Fraction(127**2), Fraction(128**2)])
def test_wide_noise_in_two_parts_is_within_two_to_the_minus_200_of_the_law(sigma2: Fraction) -> None:
    near, k, far = parted(DiscreteGaussian(sigma2))
    assert near.sigma2 + k * k * far.sigma2 == sigma2

    def unevenness(near: Fraction, far: Fraction) -> Fraction:
        """How far the ratio of the convolution to the law departs from a constant."""

        def ratio(x: int) -> Fraction:
            # Both exponents less that of the law are a square, so that every term is a bell around its centre.
            centre = round(x * k * far / sigma2)
            terms = (
                power((x - k * y) ** 2 / (2 * near) + y * y / (2 * far) - x * x / (2 * sigma2))
                for y in range(centre - 60, centre + 61)
            )
            return sum(terms, Fraction(0))

        ratios = [ratio(x) for x in (*range(k + 1), 100, 1001)]
        return max(ratios) / min(ratios) - 1

    assert unevenness(near.sigma2, far.sigma2) < Fraction(1, 2**200)
    narrow = near.sigma2 / 4
    assert unevenness(narrow, (sigma2 - narrow) / (k * k)) > Fraction(1, 2**100)


def test_a_table_that_is_off_by_two_to_the_minus_190_is_noticed() -> None:
    table = gaussian_table(Fraction(1))
    edge = int.from_bytes(table.boundaries[40:80], "big") + (1 << (320 - 190))
    mutant = Table(table.boundaries[:40] + edge.to_bytes(40, "big") + table.boundaries[80:], table.first)
    masses = [Fraction(1), *(2 * power(Fraction(x * x, 2)) for x in range(1, 40))]
    assert distance(mutant, masses) > Fraction(1, 2**200)


def test_a_draw_on_a_boundary_is_decided_by_the_bits_below_it() -> None:
    table = Table.of([1, 1, 1])  # the boundaries are 0, 1/3, 2/3: 0x5555... and 0xaaaa...

    def drawn(*script: bytes) -> int:
        parts = list(script)

        def source(n: int) -> bytes:
            part = parts.pop(0)
            assert len(part) == n
            return part

        cell = int(table.draw(1, source)[0])
        assert not parts
        return cell

    assert drawn(b"\x55" * 8, b"\x55" * 31 + b"\x54") == 0
    assert drawn(b"\x55" * 8, b"\x55" * 32) == 1
    assert drawn(b"\xaa" * 8, b"\xaa" * 31 + b"\xa9") == 1
    assert drawn(b"\xaa" * 8, b"\xab" * 32) == 2
    assert drawn(bytes(8), bytes(32)) == 0
    assert drawn(b"\xff" * 8) == 2
    assert drawn(b"\x55" * 7 + b"\x56") == 1


def test_cells_too_small_for_64_bits_are_still_reached() -> None:
    table = Table.of([1 << 100, 1, (1 << 100) - 1])  # the middle one has probability 2**-101
    answers = iter([b"\x80" + bytes(7), bytes(32)])
    assert int(table.draw(1, lambda n: next(answers))[0]) == 1


@every_law
def test_every_draw_takes_the_same_bytes(noise: Noise) -> None:
    taken = []

    def source_of(seed: str) -> Source:
        stream = seeded(seed)

        def source(n: int) -> bytes:
            taken[-1] += n
            return stream(n)

        return source

    for run in range(5):
        taken.append(0)
        draw(noise, 1000, source_of(f"bytes {run}"))
    assert len(set(taken)) == 1


def test_the_same_source_gives_the_same_draws_and_another_gives_others() -> None:
    first, again, other = (draw(LAPLACES[3], 100, seeded(seed)) for seed in ("a", "a", "b"))
    assert (first == again).all()
    assert (first != other).any()


@pytest.mark.parametrize("noise", [DiscreteLaplace(MIN_RATE, 1), DiscreteLaplace(Fraction(10**6), 1)], ids=str)
def test_the_flattest_and_the_sharpest_noise_can_be_drawn(noise: DiscreteLaplace) -> None:
    sample = draw(noise, 100_000, seeded("edge"))
    assert sample.dtype == np.int64
    assert np.abs(sample).max() < 2**50
    if noise.rate < 1:
        mean = np.abs(sample).mean() * float(noise.rate)  # one, in the limit
        assert abs(mean - 1) < 4 / 100_000**0.5


def test_the_longest_draw_of_the_flattest_noise_stays_within_two_to_the_fifty() -> None:
    sizes = [len(digit.first) for digit in laplace_tables(MIN_RATE).digits]
    assert sum((size - 1) << (12 * place) for place, size in enumerate(sizes)) + 1 < 2**50


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9])
def test_any_number_of_draws_can_be_asked_for(n: int) -> None:
    assert [len(draw(noise, n, os.urandom)) for noise in (LAPLACES[0], GAUSSIANS[0])] == [n, n]


@pytest.mark.parametrize(
    "noise", [LAPLACES[0], LAPLACES[3], GAUSSIANS[1], DiscreteGaussian(Fraction(4000**2))], ids=str
)
def test_a_million_draws_take_less_than_a_second(noise: Noise) -> None:
    draw(noise, 1, os.urandom)  # the table is built once
    fastest = min(_seconds(noise, 100_000) for _ in range(20))
    assert fastest < 0.1 * pace()


def _seconds(noise: Noise, n: int) -> float:
    start = time.process_time()
    draw(noise, n, os.urandom)
    return time.process_time() - start


def test_no_other_randomness_and_no_float_law_enters_the_package() -> None:
    for path in Path(mechanisms.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Import(names):
                    assert not {"random", "secrets"} & {name.name.split(".")[0] for name in names}, path
                case ast.ImportFrom(module):
                    assert (module or "").split(".")[0] not in {"random", "secrets", "scipy"}, path
                case ast.Attribute(ast.Name("scipy"), attr):
                    assert attr == "special", path
                case ast.Attribute(attr="random" | "default_rng"):
                    raise AssertionError(path)
