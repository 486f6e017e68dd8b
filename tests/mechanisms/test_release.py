from __future__ import annotations

import ast
import copy
import doctest
import pickle
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from laws import fits
from seeded_source import seeded

import mechanisms
from mechanisms.release import LARGEST, release
from mechanisms.sampler import draw
from mechanisms.threshold import tslm
from mechanisms.values import Exact

BETA = Decimal("0.05")
NARROW, WIDE = tslm(1, 3, BETA), tslm(2, 500, BETA)
ROOT = Path(mechanisms.__path__[0]).parent


def test_each_row_gets_the_noise_of_its_own_share() -> None:
    exact = np.array([np.full(100_000, 1000), np.full(100_000, -7)])
    noise = release(Exact(exact), [NARROW, WIDE], seeded("rows")).values - exact
    assert fits(noise[0], NARROW.noise) > 0.001
    assert fits(noise[1], WIDE.noise) > 0.001
    assert fits(noise[1], NARROW.noise) < 1e-9


def test_rows_and_cells_have_independent_noise() -> None:
    noise = release(Exact(np.zeros((2, 200_000), dtype=np.int64)), [NARROW, NARROW], seeded("independent")).values
    assert abs(np.corrcoef(noise[0], noise[1])[0, 1]) < 4 / 200_000**0.5
    assert abs(np.corrcoef(noise[0, :-1], noise[0, 1:])[0, 1]) < 4 / 200_000**0.5


def test_two_releases_from_the_operating_systems_source_differ() -> None:
    exact = Exact(np.zeros((1, 100), dtype=np.int64))
    assert (release(exact, [WIDE]).values != release(exact, [WIDE]).values).any()


def test_the_noise_does_not_depend_on_the_numbers() -> None:
    low, high = np.zeros((1, 1000), dtype=np.int64), np.arange(1000, dtype=np.int64)[None, :]
    first, second = (release(Exact(x), [WIDE], seeded("same")).values - x for x in (low, high))
    assert (first == second).all()


def test_numbers_at_the_end_of_64_bits_neither_fail_nor_wrap_around() -> None:
    ends = np.array([[2**63 - 1, 2**62, -(2**62), -(2**63)]])
    noisy = release(Exact(ends), [WIDE], seeded("ends")).values
    expected = np.array([LARGEST, LARGEST, -LARGEST, -LARGEST]) + draw(WIDE.noise, 4, seeded("ends"))
    assert noisy[0].tolist() == expected.tolist()
    assert (np.sign(noisy[0]) == [1, 1, -1, -1]).all()


def test_the_exact_numbers_are_left_as_they_were() -> None:
    exact = np.array([[2**63 - 1, 5]])
    release(Exact(exact), [NARROW], seeded("untouched"))
    assert exact.tolist() == [[2**63 - 1, 5]]


def test_every_aggregate_needs_its_share() -> None:
    for shares in ([], [NARROW], [NARROW] * 3):
        with pytest.raises(ValueError, match="2 aggregates"):
            release(Exact(np.zeros((2, 1), dtype=np.int64)), shares)


def test_no_groups_are_no_numbers() -> None:
    assert release(Exact(np.zeros((1, 0), dtype=np.int64)), [NARROW]).values.shape == (1, 0)


def test_exact_numbers_cannot_be_shown_compared_or_copied_out() -> None:
    exact = Exact(np.array([[424242]]))
    assert "424242" not in repr(exact)
    assert "424242" not in repr([exact])
    for attempt in (
        lambda: str(exact),
        lambda: f"{exact}",
        lambda: f"{exact:d}",
        lambda: "%s" % exact,  # noqa: UP031
        lambda: exact == exact,
        lambda: exact != 424242,
        lambda: hash(exact),
        lambda: pickle.dumps(exact),
        lambda: copy.copy(exact),
        lambda: copy.deepcopy(exact),
        lambda: int(exact),  # type: ignore[call-overload]
        lambda: list(exact),  # type: ignore[call-overload]
        lambda: exact + 1,  # type: ignore[operator]
        lambda: vars(exact),
    ):
        with pytest.raises(TypeError):
            attempt()


def test_exact_numbers_are_whole_and_in_rows() -> None:
    for wrong in (np.zeros(3, dtype=np.int64), np.zeros((1, 3)), np.zeros((1, 3), dtype=np.int32)):
        with pytest.raises(TypeError):
            Exact(wrong)  # type: ignore[arg-type]


def openers(text: str) -> bool:
    """Whether a module reaches for the numbers inside ``Exact``, by name or by string."""
    return any(
        (isinstance(node, ast.Attribute) and node.attr in ("open_for_release", "_Exact__values"))
        or (isinstance(node, ast.Constant) and node.value in ("open_for_release", "_Exact__values"))
        for node in ast.walk(ast.parse(text))
    )


def test_only_release_opens_exact_numbers() -> None:
    packages = ("proxy", "provenance", "sqlrewrite", "mechanisms", "bench")
    found = {
        path.relative_to(ROOT).as_posix()
        for package in packages
        for path in (ROOT / package).rglob("*.py")
        if openers(path.read_text())
    }
    assert found == {"mechanisms/release.py"}


@pytest.mark.parametrize("mutant", ["x = e.open_for_release()", "getattr(e, 'open_for_release')", "e._Exact__values"])
def test_the_search_for_openers_finds_one(mutant: str) -> None:
    assert openers(mutant)


def test_the_newcomers_page_tells_the_truth() -> None:
    result = doctest.testmod(mechanisms)
    assert result.attempted > 8
    assert result.failed == 0
