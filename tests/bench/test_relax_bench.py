"""The bench ``relax``: the static database of the paper, Relax as printed beside ours, and a smoke run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random

import numpy as np
import pytest

from bench import relax as relax_bench
from bench.__main__ import main
from bench.regions.seeds import relax_as_printed
from bench.regions.static import admitted, by_buckets, disjointly, exactly, most_answers, popularity_limit, serve
from bench.regions.workloads import AXES, SPACE, rectangles
from provenance.extent import Interval
from provenance.region import Region
from provenance.relax import relax
from provenance.released import Released
from provenance.space import Box, Space, Steps


def boxes(queries: Sequence[Region]) -> list[Box]:
    return [box for region in queries if (box := SPACE.box(region)) is not None]


def test_questions_are_rectangles_of_the_asked_volume_on_two_attributes() -> None:
    for region in rectangles(np.random.default_rng(1), 50, 0.04, None):
        box = SPACE.box(region)
        assert box is not None and len(region.sides) == 2
        shares = [
            (h - low) / (size - 1) for (low, h), size in zip(box, AXES.values(), strict=True) if h - low < size - 1
        ]
        assert len(shares) == 2 and all(abs(share - 0.2) < 0.05 for share in shares)


def test_better_admission_answers_more_and_never_above_the_limit() -> None:
    asked = boxes(list(rectangles(np.random.default_rng(2), 400, 0.04, None)))
    limit = popularity_limit(0.02)
    exact = admitted(asked, exactly(limit))[-1]
    assert limit == 20
    assert (
        admitted(asked, disjointly())[-1]
        < admitted(asked, by_buckets(limit, 100))[-1]
        < exact
        < most_answers(0.02, 0.04)
    )


def test_the_paper_s_path_is_among_ours() -> None:
    small = Space((Steps("a", 0, 7), Steps("b", 0, 5), Steps("c", 0, 4)))
    random = Random(3)

    def some() -> Region:
        ends = [sorted(random.choices(range(axis.size), k=2)) for axis in small.axes if isinstance(axis, Steps)]
        return Region.of({name: Interval(*e) for name, e in zip(small.names, ends, strict=True)})

    nearer = 0
    for _ in range(30):
        released = Released(small)
        for _ in range(60):
            released.add(some(), 0, 1)
        for asked in (some() for _ in range(5)):
            box = small.box(asked)
            assert box is not None
            ours, printed = relax(released, asked), relax_as_printed(released, box, 3, lambda patches: False)
            assert ours is not None and float(ours.error) <= printed.error + 1e-9
            nearer += float(ours.error) < printed.error - 1e-9
            bought = relax(released, asked, price=lambda r: Decimal(len(r)), patch_variance=Fraction(1))
            assert bought is not None and bought.error <= ours.error
    assert nearer, "and sometimes there is something better"


def test_no_question_ends_without_an_answer() -> None:
    queries = list(rectangles(np.random.default_rng(4), 200, 0.08, None))
    for printed in (True, False):
        tally = serve(queries, 15, 3, printed=printed)
        assert tally.nothing == 0 and tally.answered + tally.relaxed == 200 and tally.relaxed > 50
        assert tally.mean_error < 0.08 and 1 <= tally.mean_terms <= 3


@pytest.mark.slow
def test_twenty_thousand_questions_are_all_answered_with_a_small_error() -> None:
    queries = list(rectangles(np.random.default_rng(5), 20_000, 0.04, None))
    printed, ours = (serve(queries, popularity_limit(0.3), 3, printed=way) for way in (True, False))
    assert ours.nothing == 0 and ours.answered + ours.relaxed == 20_000
    assert ours.mean_error <= 1.05 * printed.mean_error and ours.mean_error < 0.002


def test_relax_runs_every_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relax_bench, "DATA", tmp_path)  # without the data set: the uniform half
    assert main(["relax", "--smoke", "--out", str(tmp_path)]) == 0
    told = json.loads((tmp_path / "relax.json").read_text())
    numbers = told["numbers"]
    assert any("SKIPPED" in note for note in told["notes"])
    assert set(numbers["whole"]["uniform"]) == {"printed", "ours"} and set(numbers["series"]) == {
        "xi",
        "epsilon",
        "volume",
    }
    assert numbers["whole"]["uniform"]["ours"]["without_an_answer"] == 0
    assert {path.name for path in tmp_path.glob("*.png")} == {"relax.png", "relax_capacity.png", "relax_series.png"}
    assert "Fig. 11" in capsys.readouterr().out
