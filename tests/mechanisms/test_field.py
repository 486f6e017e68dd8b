"""Where a number proves or refutes a test: at the very edge of the grid, and out of reach."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from decision_problems import problem
from seeded_source import seeded

from mechanisms import decision, ladder
from mechanisms import field as fields
from mechanisms.condition import And, Leaf
from mechanisms.decision import Refine
from mechanisms.field import Field
from mechanisms.loss import Coin
from mechanisms.release import Staged
from mechanisms.values import Exact

BAND = And((Leaf(0), Leaf(1)))


@pytest.mark.parametrize("coin", Coin)
@pytest.mark.parametrize("direction", [1, -1])
@pytest.mark.parametrize(("moved", "scale"), [(1, 1000), (7, 1000), (7, 100_000), (1000, 3)])
def test_a_group_at_the_edge_is_refuted_or_proven_as_rarely_as_told(
    moved: int, scale: int, direction: int, coin: Coin, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells, level = 40_000, 540  # 1.5 grid units wide
    chance = float(np.exp(-1 / ladder.width(level)))
    bound = Decimal(chance**6 / (1 + chance)) + Decimal("1e-12")  # just what Laplace noise has beyond 5
    thresholds = np.arange(cells, dtype=np.int64) % 5000 - 2500  # each its own

    def share(proven: bool, shifted: int = 0) -> float:
        """How many groups that lie at the edge a test decides wrongly."""
        tests = (decision.Test(0, direction, thresholds, scale, scale),)
        asked = replace(problem(Leaf(0), cells, coin=coin), tests=tests, sensitivities=(moved,))
        exact = thresholds - direction if proven else thresholds
        field = Field(asked)
        step = Refine(0, np.ones(cells, dtype=np.bool_), level, field.parts[0])
        staged = Staged(Exact(exact[None, :]), asked, seeded(f"edge/{moved}/{direction}/{coin}/{proven}"))
        field.take([step], staged.answer([step], staged.price([step])))
        edge = field._edges[0]
        nearer = replace(edge, passing=edge.passing + shifted, failing=edge.failing - shifted)
        monkeypatch.setattr(field, "_edges", (nearer,))
        return float(np.mean(field.beyond(0, bound, proven=proven)))

    for proven in (True, False):
        told = float(bound) + 5 * (float(bound) / cells) ** 0.5
        assert share(proven) <= told
        if coin is Coin.PURE:  # the shift of Laplace noise is the least: an edge off by one shows
            assert share(proven, 1) > told


def test_thresholds_out_of_reach_refute_nobody_who_meets_them() -> None:
    far = 2**62
    for direction, sign in ((1, 1), (-1, -1), (1, -1), (-1, 1)):
        tests = (
            decision.Test(0, direction, sign * far, 1000, 1000),
            decision.Test(0, direction, sign * far * 3, 1000, 1000),
        )
        asked = replace(problem(BAND, 4), tests=tests, sensitivities=(1,))
        field = Field(asked)
        values = np.array([[far, -far, far - 1, 1 - far]], dtype=np.int64) * sign
        staged = Staged(Exact(values), asked, seeded("far"))
        step = Refine(0, np.ones(4, dtype=np.bool_), 400, field.parts[0])
        field.take([step], staged.answer([step], staged.price([step])))
        meets = (values[0].astype(object) - sign * far) * direction >= 0
        refuted = field.beyond(0, Decimal("1e-9"), proven=False)
        proven = field.beyond(0, Decimal("1e-9"), proven=True)
        assert not (refuted & meets).any()
        assert not (proven & ~meets).any()


def test_cells_that_were_refined_less_are_read_with_their_own_noise() -> None:
    asked = problem(Leaf(0), 2, thresholds=(1000,), coin=Coin.PURE)
    field = Field(asked)
    one, both = np.array([True, False]), np.ones(2, dtype=np.bool_)
    edge = field._edges[0].failing
    field.take([Refine(0, both, 300, field.parts[0])], [edge + 1000])
    wide = ladder.shift(Coin.PURE, 300, Decimal("0.05"))
    field.take([Refine(0, one, 500, field.parts[0])], [edge + wide])
    assert field.beyond(0, Decimal("0.05"), proven=True).tolist() == [True, False]


def test_the_grid_is_fine_enough_for_the_scale() -> None:
    for moved, scale in ((1, 1), (1, 1000), (1, 10**9), (500, 3), (10**6, 10**9)):
        asked = problem(Leaf(0), 3, sensitivities=(moved,), scales=(scale,))
        parts = Field(asked).parts[0]
        assert parts in (1, fields._FINEST) or fields._GRID / 2 <= scale * parts / moved <= fields._GRID
