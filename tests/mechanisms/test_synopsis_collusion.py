"""What analysts can make of all that they were shown, each alone and all together: never more than was paid for."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm
from synopsis_play import Drawn, Play, redrawn, sharpest

from mechanisms.synopsis import draw_partial

CELLS = 200_000
ERROR = math.sqrt(2 / CELLS)  # relative, of a sample variance
SCRIPT = [  # who asks for which variance
    *(("ann", 400), ("bob", 3000), ("cat", 1500), ("bob", 1400), ("cat", 700), ("bob", 900), ("bob", 600)),
    *(("ann", 250), ("cat", 500), ("bob", 380), ("bob", 300), ("cat", 270), ("bob", 255)),
]


def played(seed: str, drawn: Drawn = draw_partial, cells: int = CELLS, asks: int = len(SCRIPT), **how: int) -> Play:
    play = Play(cells, seed, drawn, **how)
    for who, variance in SCRIPT[:asks]:
        play.ask(who, Fraction(variance))
    return play


def test_the_play_has_parts_that_are_refined_and_a_global_synopsis_that_grows() -> None:
    play = played("shape")
    assert len(play.releases) == 2
    assert len(play.shown["bob"]) > 6 and len(play.shown["cat"]) > 3
    assert all(play.paid[who] == play.known[who].precision(play.releases) for who in ("ann", "bob", "cat"))


def test_all_analysts_together_are_no_sharper_than_the_global_synopsis() -> None:
    play = played("together")
    _, best = sharpest([values for shown in play.shown.values() for values in shown])
    whole = float(1 / play.everything)
    assert best > whole * (1 - 5 * ERROR)
    assert best < whole * (1 + 5 * ERROR), "ann knows all of it: the bound is met, so the test has teeth"


def test_one_analyst_alone_is_no_sharper_than_she_paid_for() -> None:
    play = played("alone")
    for who in ("ann", "bob", "cat"):
        _, best = sharpest(play.shown[who])
        assert abs(best * float(play.paid[who]) - 1) < 5 * ERROR


def test_a_local_synopsis_that_is_redrawn_instead_of_bridged_is_sharper_than_was_paid_for() -> None:
    for drawn, leaks in ((draw_partial, False), (redrawn, True)):
        play = played(f"mutant {leaks}", drawn, asks=7)
        assert len(play.shown["bob"]) == 4
        _, best = sharpest(play.shown["bob"])
        assert (best * float(play.paid["bob"]) < 1 - 20 * ERROR) is leaks


def test_a_part_that_is_charged_what_is_new_to_the_database_only_is_caught() -> None:
    """A mutant till: who learns what others know already pays nothing, though it is new to her."""
    play = Play(CELLS, "new to the database", draw_partial)
    new = {"ann": Fraction(0), "bob": Fraction(0)}
    for who, variance in (("ann", 100), ("bob", 800), ("bob", 80)):
        before = play.everything
        play.ask(who, Fraction(variance))
        new[who] += play.everything - before
    for who in ("ann", "bob"):
        _, best = sharpest(play.shown[who])
        assert abs(best * float(play.paid[who]) - 1) < 5 * ERROR
    assert new["bob"] < play.paid["bob"] / 2 and best * float(new["bob"]) < 1 - 20 * ERROR


def covariances(analysts: list[list[tuple[int, Fraction]]], releases: list[Fraction]) -> NDArray[np.float64]:
    """Of what analysts were shown: each a list of (release, variance of added noise; 0 for the whole release)."""
    shown = [(who, place, added) for who, path in enumerate(analysts) for place, added in path]
    matrix = np.zeros((len(shown), len(shown)))
    for (i, (who, place, added)), (j, (other, elsewhere, also)) in product(enumerate(shown), repeat=2):
        if place == elsewhere:
            # A bridge: the wider noise is the narrower and independent rest.
            matrix[i, j] = float(releases[place] + (min(added, also) if who == other else 0))
    return matrix


@pytest.mark.parametrize("seed", range(20))
def test_the_covariances_of_many_paths_leave_nothing_below_the_global_synopsis(seed: int) -> None:
    random = np.random.default_rng(seed)
    releases = [Fraction(int(random.integers(50, 3000))) for _ in range(3)]
    analysts = []
    for _ in range(4):
        path = [(place, Fraction(0)) for place in range(3) if random.random() < 0.3]
        part = int(random.integers(3))
        widths = sorted({Fraction(int(random.integers(5, 9000))) for _ in range(4)}, reverse=True)
        if (part, Fraction(0)) not in path:
            path += [(part, width) for width in widths]
        analysts.append(path)

    def best(some: list[list[tuple[int, Fraction]]]) -> float:
        matrix = covariances(some, releases)
        n = len(matrix)
        system = np.block([[matrix, np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
        weights = np.linalg.lstsq(system, np.append(np.zeros(n), 1.0), rcond=1e-12)[0][:n]
        return float(weights @ matrix @ weights)

    everything = float(1 / sum(1 / variance for variance in releases))
    assert best(analysts) >= everything * (1 - 1e-9)
    for path in analysts:
        finest = {place: min(added for at, added in path if at == place) for place, _ in path}
        paid = sum(1 / (releases[place] + added) for place, added in finest.items())
        if path:
            assert best([path]) == pytest.approx(float(1 / paid), rel=1e-9)


def excess(seed: str, narrower: int) -> float:
    """The audit: how many standard errors the log-ratio of one event on two neighbours exceeds what was paid for.

    The event is about the best combination of what two analysts were shown together: it is at least so large.
    """
    distance, cells = 15, 60_000
    here, there = (
        [values for who in ("bob", "cat") for values in play.shown[who]]
        for play in (
            played(f"{seed} here", cells=cells, narrower=narrower),
            played(f"{seed} there", cells=cells, narrower=narrower, at=distance),
        )
    )
    precision = float(played("price", cells=1).everything)  # both have learned nearly all of it by the end
    weights, _ = sharpest(here)
    deviation = precision**-0.5
    event = 2 * distance
    allowed = math.log(norm.sf((event - distance) / deviation) / norm.sf(event / deviation))
    hits, neighbour = (int(np.count_nonzero(weights @ np.array(shown) >= event)) for shown in (here, there))
    error = math.sqrt(1 / hits + 1 / neighbour - 2 / cells)
    return (math.log(neighbour / hits) - allowed) / error


def test_the_joint_view_of_two_analysts_tells_neighbours_apart_as_hard_as_the_database_paid_for() -> None:
    assert excess("audit", 100) < 4
    assert excess("mutant", 85) > 8
