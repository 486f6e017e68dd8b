"""Coarser lattices: what one unit moves stays exact, and nothing leaves 64 bits."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seeded_source import seeded

from mechanisms.grid import Grid
from mechanisms.loss import Coin
from mechanisms.number import number_at
from mechanisms.release import release
from mechanisms.values import Exact

FAR = 2**62
GRIDS = st.integers(1, 2**70).flatmap(lambda d: st.builds(Grid, st.just(d), st.integers(1, min(d, 2**50))))
NUMBERS = st.one_of(st.integers(-FAR, FAR), st.integers(-1000, 1000), st.sampled_from([-FAR, FAR, 0]))


def placed(grid: Grid, *values: int) -> list[int]:
    return [int(n) for n in grid.numbers(np.array(values, dtype=np.int64))]


@given(GRIDS, NUMBERS)
def test_a_grid_number_is_the_floor_of_its_share(grid: Grid, x: int) -> None:
    assert placed(grid, x) == [x * grid.parts // grid.sensitivity]


@given(GRIDS, NUMBERS, st.integers(0, 2**70))
def test_one_unit_moves_a_grid_number_by_at_most_its_parts(grid: Grid, x: int, step: int) -> None:
    other = min(FAR, x + min(step, grid.sensitivity))
    one, two = placed(grid, x, other)
    assert 0 <= two - one <= grid.parts


def test_a_unit_that_moves_further_than_the_sensitivity_is_seen() -> None:
    """The bound is tight: the test above would see a part too many."""
    assert placed(Grid(1000, 7), 0, 1000) == [0, 7] and placed(Grid(1000, 7), 999, 2000)[1] - 6 == 8


@given(GRIDS, NUMBERS, st.integers(-(2**18), 2**18))
def test_a_draw_of_so_many_cells_stays_within_the_half_width(grid: Grid, x: int, draw: int) -> None:
    (number,) = placed(grid, x)
    back = int(grid.lattice(np.array([number + draw], dtype=np.int64))[0])
    assert abs(back) <= 2**63 - 1
    if abs(back) < 2**63 - 1:
        assert abs(back - x) <= grid.half_width(abs(draw))


@given(st.integers(1, 2**70), NUMBERS)
def test_as_many_parts_as_units_is_the_lattice_itself(sensitivity: int, x: int) -> None:
    grid = Grid(sensitivity, sensitivity)
    assert placed(grid, x) == [x] and int(grid.lattice(np.array([x], dtype=np.int64))[0]) == x
    assert grid.half_width(5) == 5


@pytest.mark.parametrize(("sensitivity", "parts"), [(5, 6), (5, 0), (0, 0)])
def test_no_grid_is_finer_than_the_lattice(sensitivity: int, parts: int) -> None:
    with pytest.raises(ValueError, match="part"):
        Grid(sensitivity, parts)


@pytest.mark.parametrize("sensitivity", [2**36, 2**50, 2**62, 2**66])
def test_a_release_at_the_edge_of_64_bits_does_not_wrap_around(sensitivity: int) -> None:
    share = number_at(Coin.ZCDP, sensitivity, Decimal("0.01"), Decimal("0.95"))
    values = np.array([[-(2**63), -FAR, 0, FAR, 2**63 - 1]], dtype=np.int64)
    noisy = release(Exact(values), [share], seeded("edge")).row(0)
    if sensitivity <= 2**50:
        assert noisy[0] < -FAR // 2 and noisy[1] < -FAR // 2 and noisy[3] > FAR // 2 and noisy[4] > FAR // 2
    # Clamped numbers of the same side differ by noise alone.
    assert abs(int(noisy[0]) - int(noisy[1])) <= 60 * share.shift
