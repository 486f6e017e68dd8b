"""The bench ``overlap``: the papers' workloads, the anchor beside ours, and a smoke run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench.__main__ import main
from bench.overlap import gain
from bench.regions.seeds import dsatur
from bench.regions.workloads import CENSUS, UNIT, census, exponential, synthetic, uniform
from provenance.extent import Members
from provenance.overlap import Overlap


def test_census_questions_are_drawn_as_in_the_paper() -> None:
    parts = census(np.random.default_rng(1), 300)
    for name, size in CENSUS.items():
        sides = [region.on(name) for region, _ in parts]
        values = [value for side in sides if isinstance(side, Members) for value in side.values]
        assert set(values) == set(range(size)) and None in sides, "each value or all"
    assert census(np.random.default_rng(1), 300) == parts
    assert len({weight for _, weight in census(np.random.default_rng(2), 50, weighted=True)}) == 50


def test_other_distributions_ask_for_less() -> None:
    rng = np.random.default_rng(3)
    plain = synthetic(rng, 30, 100)
    fewer = synthetic(rng, 30, 100, predicates=exponential(0.1))
    narrow = synthetic(rng, 30, 100, values=exponential(0.1))
    liked = synthetic(rng, 30, 100, favourite_attributes=0.05, predicates=lambda r, most, n: uniform(r, 3, n))

    def sides(parts: object) -> float:
        return float(np.mean([len(region.sides) for region, _ in parts]))  # type: ignore[attr-defined]

    def values(parts: object) -> float:
        return float(np.mean([len(e.values) for region, _ in parts for _, e in region.sides]))  # type: ignore[attr-defined]

    assert sides(fewer) < sides(plain) / 2 and values(narrow) < values(plain) / 2
    named = [int(name[1:]) for region, _ in liked for name, _ in region.sides]
    assert min(named) > 10 and max(named) < 20, "around the middle"


@pytest.mark.parametrize("seed", range(3))
def test_the_gain_is_no_worse_than_that_of_the_paper_s_colouring(seed: int) -> None:
    for parts in (census(np.random.default_rng(seed), 150), synthetic(np.random.default_rng(seed), 40, 60)):
        assert Overlap.of(parts).bound() <= dsatur(parts) * UNIT
        assert 0 <= gain(parts, dsatur(parts) * UNIT) <= gain(parts, Overlap.of(parts).bound()) < 1


@pytest.mark.slow
def test_the_gain_on_a_thousand_census_questions_is_no_worse_either() -> None:
    parts = census(np.random.default_rng(4), 1000)
    kept = Overlap.of(parts)
    assert kept.exact and kept.bound() <= dsatur(parts) * UNIT


def test_overlap_compares_with_the_anchor_in_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["overlap", "--smoke", "--out", str(tmp_path)]) == 0
    numbers = json.loads((tmp_path / "overlap.json").read_text())["numbers"]
    assert all(row["exact"] == 1 and row["gain"] > 0 for row in numbers["census"])
    assert all(row["ours"]["gain"] >= row["dsatur"]["gain"] for row in numbers["anchor"])
    assert numbers["added"]["exact"] and numbers["added"]["as_from_scratch"]
    pictures = {path.name for path in tmp_path.glob("*.png")}
    assert pictures == {"overlap.png", "overlap_domains.png", "overlap_distributions.png"}
    assert "One question more" in capsys.readouterr().out
