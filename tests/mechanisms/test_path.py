from __future__ import annotations

import math
import os
import time
import tracemalloc
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from exact_sampler import Exactly, power, stays
from laws import Sample, audit, fits, support, variance_is_off_by
from numpy.typing import NDArray
from scipy.stats import chi2_contingency, chisquare, norm
from seeded_source import seeded

from mechanisms import jumps, ladder
from mechanisms.ladder import LEVELS, NOTHING
from mechanisms.loss import Coin
from mechanisms.noise import DiscreteLaplace
from mechanisms.path import GaussianPath, LaplacePath, Path, path
from mechanisms.sampler import Source, Table, draw

# As in test_sampler: accepted within 4 standard errors (or p > 0.001), and a mutant must lie beyond 8 (or p < 1e-9).
N = 200_000
LAPLACE_LEVELS = [60, 330, 455, 525, 570, 630]
GAUSSIAN_LEVELS = [176, 330, 455, 525, 560, 600]
Walk = list[NDArray[np.float64]]


def law(level: int) -> DiscreteLaplace:
    return DiscreteLaplace(ladder.rate(level), 1)


def walk(noise: Path, levels: list[int]) -> Walk:
    """The noise of all cells at each of some levels."""
    every, seen = np.ones(len(noise.levels), dtype=np.bool_), []
    for level in levels:
        noise.refine(every, level)
        seen.append(noise.whole + noise.rest)
    return seen


def laplace_walk(levels: list[int], seed: str, n: int = N) -> Walk:
    return walk(LaplacePath(n, min(LEVELS - 1, levels[-1] + 40), seeded(seed)), levels)


def whole(noise: NDArray[np.float64]) -> Sample:
    return noise.astype(np.int64)


@pytest.mark.parametrize("level", LAPLACE_LEVELS)
def test_a_laplace_path_has_the_law_of_its_level_and_one_five_percent_too_narrow_is_rejected(level: int) -> None:
    noise = whole(laplace_walk([level], f"law {level}")[0])
    assert fits(noise, law(level)) > 0.001
    assert abs(variance_is_off_by(noise, law(level))) < 4
    assert variance_is_off_by(noise, law(level).scaled(Fraction(100, 95))) < -8


def test_a_path_has_the_law_of_each_level_also_when_it_came_there_in_steps() -> None:
    for level, noise in zip(LAPLACE_LEVELS, laplace_walk(LAPLACE_LEVELS, "steps"), strict=True):
        assert fits(whole(noise), law(level)) > 0.001
        assert abs(variance_is_off_by(whole(noise), law(level))) < 4


@pytest.mark.parametrize(("level", "distance"), [(300, 172), (455, 8), (525, 2), (560, 1)])
def test_two_neighbours_of_a_path_are_as_hard_to_tell_apart_as_was_paid_for(level: int, distance: int) -> None:
    at_zero, there = (laplace_walk([level - 60, level], f"{at} {level}", 400_000)[-1] for at in ("zero", "there"))
    told = (whole(at_zero), whole(there) + distance)
    assert audit(*told, law(level), distance) < 4
    assert audit(*told, law(level).scaled(Fraction(10, 9)), distance) > 8


def joint(coarse: int, fine: int) -> tuple[NDArray[np.float64], int]:
    """P[X_fine = x, X_coarse = z], from the formula, for |x|, |z| up to a reach."""
    reach = math.ceil(12 * ladder.width(coarse))
    y1, y2 = (math.exp(-float(ladder.rate(level))) for level in (coarse, fine))
    a = y2 / (1 - y2) ** 2 / (y1 / (1 - y1) ** 2)
    x = np.arange(-reach, reach + 1)
    at_fine = (1 - y2) / (1 + y2) * y2 ** np.abs(x)
    moves = (1 - a) * (1 - y1) / (1 + y1) * y1 ** np.abs(x[None, :] - x[:, None])
    return at_fine[:, None] * (moves + a * np.eye(len(x))), reach


def fits_jointly(seen: Walk, levels: list[int]) -> float:
    """The p-value of a chi-square test of two levels together, rare pairs in one class."""
    chance, reach = joint(*levels)
    codes = np.clip(whole(seen[1]) + reach, 0, 2 * reach) * (2 * reach + 1) + np.clip(
        whole(seen[0]) + reach, 0, 2 * reach
    )
    expected, observed = chance.reshape(-1) * len(seen[0]), np.bincount(codes, minlength=chance.size)
    often = expected > 20
    classes = [np.append(counts[often], counts[~often].sum()) for counts in (observed, expected)]
    return float(chisquare(classes[0], classes[1] * classes[0].sum() / classes[1].sum()).pvalue)


NEAR = [470, 510]  # widths of 6 and 2.7


def independent_walk(levels: list[int], seed: str, n: int = N) -> Walk:
    """The mutant: each level is drawn anew."""
    return [draw(law(level), n, seeded(f"{seed} {level}")).astype(np.float64) for level in levels]


def test_two_levels_together_have_the_law_of_gradual_release_and_a_redraw_has_not() -> None:
    assert fits_jointly(laplace_walk(NEAR, "jointly"), NEAR) > 0.001
    assert fits_jointly(independent_walk(NEAR, "jointly"), NEAR) < 1e-9


def test_averaging_the_levels_of_a_path_is_no_sharper_than_its_last_level_and_a_redraws_is() -> None:
    def gain(seen: Walk) -> float:
        """How many standard errors the best average of two levels lies below the variance that was paid for."""
        variances = [float(support(law(level))[1] @ support(law(level))[0].astype(float) ** 2) for level in NEAR]
        weight = variances[1] / sum(variances)
        squares = (weight * seen[0] + (1 - weight) * seen[1]) ** 2
        return float((variances[1] - squares.mean()) / (squares.std() / math.sqrt(len(squares))))

    assert gain(laplace_walk(NEAR, "average")) < 4
    assert gain(independent_walk(NEAR, "average")) > 8


def test_a_redraw_that_is_charged_the_difference_fails_the_audit_and_the_path_passes() -> None:
    n, distance, paid = 400_000, 3, 3 * float(ladder.rate(NEAR[-1]))

    def excess(walked: Callable[[list[int], str, int], Walk]) -> float:
        """In standard errors: the log-ratio of "both levels are at least twice the distance" on two neighbours."""
        here, there = (
            int((np.minimum(*walked(NEAR, f"audit of a pair {at}", n)) + at >= 2 * distance).sum())
            for at in (0, distance)
        )
        return float((math.log(there / here) - paid) / math.sqrt(1 / here + 1 / there))

    assert excess(laplace_walk) < 4
    assert excess(independent_walk) > 8


def alike(ours: Walk, theirs: Walk) -> float:
    """The p-value of two samples of walks having one law, on classes of all levels together."""
    codes = [np.zeros(len(sample[0]), dtype=np.int64) for sample in (ours, theirs)]
    for level in range(len(ours)):
        cuts = np.unique(np.quantile(theirs[level], [0.1, 0.3, 0.5, 0.7, 0.9]))
        for code, sample in zip(codes, (ours, theirs), strict=True):
            code *= len(cuts) + 1
            code += np.searchsorted(cuts, sample[level] + 1e-9)
    both = np.array([np.bincount(code, minlength=max(c.max() for c in codes) + 1) for code in codes])
    rare = both[1] < 10
    return float(chi2_contingency(np.c_[both[:, ~rare], both[:, rare].sum(axis=1)]).pvalue)


def test_the_path_that_is_drawn_forwards_by_exact_bridges_has_the_same_joint_law() -> None:
    levels = [470, 490, 520]
    exactly, rates = Exactly(seeded("bridges")), [ladder.rate(level) for level in levels]
    theirs = np.array([exactly.laplace_path(rates) for _ in range(6_000)], dtype=np.float64).T
    assert alike(laplace_walk(levels, "against bridges"), list(theirs)) > 0.001
    assert fits_jointly(list(theirs[:2]), levels[:2]) > 0.001
    assert alike(independent_walk(levels, "against bridges"), list(theirs)) < 1e-9


def test_the_gaussian_path_of_exact_fractions_has_the_same_joint_law() -> None:
    levels = [470, 490, 520]
    exactly, precisions = Exactly(seeded("fractions")), [ladder.precision(level) for level in levels]
    theirs = np.array([[float(x) for x in exactly.gaussian_path(precisions)] for _ in range(4_000)]).T
    ours = walk(GaussianPath(N, seeded("against fractions")), levels)
    assert alike(ours, list(theirs)) > 0.001
    anew = [walk(GaussianPath(N, seeded(f"anew {level}")), [level])[0] for level in levels]
    assert alike(anew, list(theirs)) < 1e-9


def gaussian_variance_is_off_by(noise: NDArray[np.float64], width: float) -> float:
    squares = noise**2
    return float((squares.mean() - width**2) / (squares.std() / math.sqrt(len(squares))))


def test_a_gaussian_path_has_the_variance_of_each_level_in_any_steps() -> None:
    seen = walk(GaussianPath(N, seeded("gauss")), GAUSSIAN_LEVELS)
    for level, noise in zip(GAUSSIAN_LEVELS, seen, strict=True):
        if level < 560:  # a narrower discrete Gaussian has a little less variance than its parameter
            assert abs(gaussian_variance_is_off_by(noise, ladder.width(level))) < 4
        assert gaussian_variance_is_off_by(noise, ladder.width(level) / 0.95) < -8


@pytest.mark.parametrize("levels", [[300], [300, 304, 308], [400, 440]])
def test_two_neighbours_of_a_gaussian_path_are_as_hard_to_tell_apart_as_was_paid_for(levels: list[int]) -> None:
    wide, n = ladder.width(levels[-1]), 400_000

    def excess(claimed: float) -> float:
        """In standard errors: the log-ratio of "at least two widths" on neighbours a width apart, above the claim's."""
        error = math.sqrt(1 / here + 1 / there)
        return float((math.log(there / here) - norm.logsf(wide / claimed) + norm.logsf(2 * wide / claimed)) / error)

    here, there = (
        int((walk(GaussianPath(n, seeded(f"{at} of {levels}")), levels)[-1] + at >= 2 * wide).sum()) for at in (0, wide)
    )
    assert excess(wide) < 4
    assert excess(wide / 0.9) > 8


def test_gaussian_increments_are_independent_of_what_was_shown() -> None:
    first, second = walk(GaussianPath(N, seeded("correlation")), [400, 440])
    assert abs(np.corrcoef(second, first - second)[0, 1]) < 4 / math.sqrt(N)


def test_a_gaussian_increment_that_is_charged_too_little_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def sharper(low: int, high: int) -> object:
        return true(low, high).scaled(Fraction(9, 10))

    true = ladder.increment
    monkeypatch.setattr(ladder, "increment", sharper)
    noise = walk(GaussianPath(N, seeded("sharper")), [400, 440])[-1]
    assert gaussian_variance_is_off_by(noise, ladder.width(440)) < -8


@pytest.mark.parametrize("coin", list(Coin))
def test_cells_move_alone_and_only_downwards(coin: Coin) -> None:
    noise = path(coin, 4, seeded("alone"))
    moved = noise.refine(np.array([True, True, False, False]), 400)
    assert moved.tolist() == [0, 1]
    before = (noise.whole + noise.rest).copy()
    assert noise.refine(np.array([True, True, True, False]), 380).tolist() == [2]
    assert noise.levels.tolist() == [400, 400, 380, NOTHING]
    assert (noise.whole + noise.rest)[:2].tolist() == before[:2].tolist()


def test_the_order_in_which_levels_are_asked_for_does_not_change_the_law() -> None:
    # Some cells start fine and others coarser: the coarser levels are drawn later, for those that need them.
    n = N // 2
    noise, late = LaplacePath(2 * n, LEVELS - 1, seeded("late")), np.arange(2 * n) >= n
    noise.refine(~late, 510)
    early = noise.whole[~late].copy()
    noise.refine(late, 470)
    coarse = noise.whole[late].copy()
    noise.refine(late, 510)
    assert (noise.whole[~late] == early).all()
    assert fits_jointly([coarse.astype(float), noise.whole[late].astype(float)], NEAR) > 0.001
    assert fits(early, law(510)) > 0.001


def test_large_paths_are_drawn_in_blocks_that_fit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jumps, "_BLOCK", 7 * N)
    noise = LaplacePath(N, LEVELS - 1, seeded("blocks"))
    seen = walk(noise, NEAR)
    assert len(noise._jumps) > 10
    assert fits_jointly(seen, NEAR) > 0.001


def test_the_probability_of_each_jump_is_within_two_to_the_minus_200() -> None:
    _, _, exact = jumps._thresholds()
    for level in (1, 2, 100, 176, 400, 500, 629, 630):
        coarse, fine = ladder.rate(level - 1), ladder.rate(level)
        # The path's own formula: something is drawn, and it is not zero.
        told = (1 - stays(coarse, fine)) * 2 * power(coarse) / (1 + power(coarse))
        assert abs(Fraction(int.from_bytes(exact[level], "big"), 2**320) - told) < Fraction(1, 2**200)


def test_a_jump_on_a_tie_is_decided_by_further_bits() -> None:
    first, words, exact = jumps._thresholds()
    level = 400

    def jumped(*script: bytes) -> bool:
        parts = list(script)

        def source(n: int) -> bytes:
            return parts.pop(0) if parts else bytes(n)

        found = jumps._block(1, level, level, source)
        assert not parts
        return len(found.cell) == 1

    tie, word = bytes([first[level]]), int(words[level])
    assert jumped(bytes([first[level] - 1]))
    assert not jumped(bytes([first[level] + 1]))
    assert jumped(tie, (word - 1).to_bytes(8, "big"))
    assert not jumped(tie, (word + 1).to_bytes(8, "big"))
    rest = int.from_bytes(exact[level][9:], "big")
    assert jumped(tie, word.to_bytes(8, "big"), (rest - 1).to_bytes(31, "big"))
    assert not jumped(tie, word.to_bytes(8, "big"), rest.to_bytes(31, "big"))


def test_the_digits_of_an_exponential_are_within_two_to_the_minus_200() -> None:
    total = Fraction(0)
    for place in range(6):
        table = jumps._digit(place).table
        base, masses = power(Fraction(1, 256**place)), [Fraction(1)]
        for _ in range(255 if place else len(table.first) + 150):
            masses.append(Fraction(int(masses[-1] * base * 2**500), 2**500))
        total += distance(table, masses)
    assert total < Fraction(1, 2**200)


def distance(table: Table, masses: list[Fraction]) -> Fraction:
    """Total variation between a table and the law with these masses, which may have more cells."""
    edges = [int.from_bytes(table.boundaries[i : i + 40], "big") for i in range(0, len(table.boundaries), 40)]
    told = [Fraction(b - a, 256**40) for a, b in zip(edges, [*edges[1:], 256**40], strict=True)]
    told += [Fraction(0)] * (len(masses) - len(told))
    whole = sum(masses)
    return sum((abs(p - m / whole) for p, m in zip(told, masses, strict=True)), Fraction(0)) / 2


@pytest.mark.parametrize("place", range(5))
def test_sixteen_bits_decide_a_digit_only_where_no_boundary_is(place: int) -> None:
    quick = jumps._digit(place)
    for bits in range(0, 1 << 16, 7):
        ends = [bits.to_bytes(2, "big") + filled * 38 for filled in (b"\x00", b"\xff")]
        cells = {quick.table._cell_of(end) for end in ends}
        assert cells == {int(quick.cell[bits])} or quick.cell[bits] == -1
    assert (quick.cell == -1).mean() < 0.01


def test_the_digits_that_are_left_open_are_drawn_from_the_same_table() -> None:
    quick = jumps._digit(1)
    bits = np.frombuffer(seeded("sixteen bits")(2_000_000), dtype=np.uint16)
    drawn = quick.draw(bits, seeded("further bits"))
    expected = np.exp(-np.arange(256) / 256)
    assert chisquare(np.bincount(drawn, minlength=256), expected / expected.sum() * len(bits)).pvalue > 0.001


def test_a_geometric_number_is_the_exponential_over_the_rate_rounded_down() -> None:
    level = np.repeat(np.arange(LEVELS), 200)
    known = jumps._exponentials(len(level), seeded("floor"))
    drawn = jumps._geometric(level, seeded("floor"))
    for k, of, told in zip(known.tolist(), level.tolist(), drawn.tolist(), strict=True):
        below = ladder.rate(of) * 2**32
        assert k // below <= told <= (k + 1) // below
    assert (drawn != 0).any()


def test_an_exponential_that_lies_across_a_boundary_is_settled_by_further_digits() -> None:
    number = ladder.RATES[0]  # a width of 2^16: the boundary of 3 lies at 3 * 2^16 units of 2^-32
    assert [jumps._settle((3 << 16) + unit, number, seeded("no digit")) for unit in (-1, 0)] == [2, 3]
    number = (1 << 41) + (1 << 23)  # the boundary of 1 lies at 131072.5: the next digit decides
    settled = [jumps._settle(131_072, number, seeded(f"half {i}")) for i in range(400)]
    assert 100 < sum(settled) < 300 and set(settled) == {0, 1}
    number = (1 << 41) + 1  # it lies at 131072 + 2^-24: above it but for three digits of 0
    assert {jumps._settle(131_072, number, seeded(f"across {i}")) for i in range(20)} == {1}


def seconds(work: Callable[[Source], object]) -> float:
    start = time.process_time()  # whatever else the machine does
    work(os.urandom)
    return time.process_time() - start


def whole_ladder(cells: int) -> Callable[[Source], object]:
    return lambda source: LaplacePath(cells, LEVELS - 1, source).refine(np.ones(cells, dtype=np.bool_), 0)


def test_a_path_of_a_few_thousand_cells_takes_milliseconds() -> None:
    whole_ladder(10)(os.urandom)  # tables are built once
    assert min(seconds(whole_ladder(2_400)) for _ in range(20)) < 0.25


@pytest.mark.slow
def test_four_hundred_thousand_paths_down_the_whole_ladder_take_seconds_and_little_memory() -> None:
    assert min(seconds(whole_ladder(400_000)) for _ in range(3)) < 30
    tracemalloc.start()
    whole_ladder(400_000)(os.urandom)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 400e6


@pytest.mark.parametrize("noise", [law(300), law(500), ladder.increment(300, 304), ladder.increment(NOTHING, 300)])
def test_a_million_draws_a_second_for_vectors_of_ten_thousand(noise: DiscreteLaplace) -> None:
    draw(noise, 1, os.urandom)
    assert min(seconds(lambda source: draw(noise, 10_000, source)) for _ in range(30)) < 0.010
