"""The bench of synopses runs: tiny lists, every figure, and what it writes can be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.synopsis import workload
from bench.synopsis.figures import FULL, SMOKE, figures
from bench.synopsis.runs import SMOOTH, SYSTEMS
from bench.synopsis.workload import missing, ranges, search, views

needs_data = pytest.mark.skipif(bool(missing()), reason=f"not in ../shared/data: {', '.join(missing())}")


@needs_data
def test_synopses_runs_every_system_and_every_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["synopses", "--smoke", "--out", str(tmp_path)]) == 0
    told = json.loads((tmp_path / "synopses.json").read_text())
    assert told["bench"] == "synopses" and told["smoke"] is True
    numbers = told["numbers"]
    assert {point["system"] for point in numbers["end_to_end"]} == {*SYSTEMS, SMOOTH}
    assert {len(point["privileges"]) for point in numbers["end_to_end"]} == {2, 6}
    for figure in ("end_to_end", "cached", "analysts", "tau", "delta"):
        assert all(0 <= point["answered"] <= point["questions"] for point in numbers[figure])
        for point in numbers[figure]:
            assert max(point["spent_by_list"]) <= point["epsilon"] + 1e-6, "no limit is exceeded"
    assert all(quotient["dprovdb"] > 0 for quotient in numbers["ratio"].values())
    for one in numbers["searches"]:
        assert one["course"] == sorted(one["course"]) and one["course"][0] > 0
    assert numbers["time"]["pgveil"]["reuse"]["questions"] > 0
    pictures = {path.name for path in tmp_path.glob("*.png")}
    assert pictures == {"synopses.png", *(f"synopses_{name}.png" for name in ("components", "fairness", "searches"))}
    assert "pgveil / dprovdb" in capsys.readouterr().out


@needs_data
def test_the_workload_is_that_of_the_paper() -> None:
    assert (views("adult"), views("orders")) == (6, 3)
    asked = ranges("adult", 1, 4000, 3000, 1)
    assert len(asked) == 4000 and [one.variance for one in asked[:2]] == [3000, 2999]
    assert asked[-1].variance == 1, "no question asks for less than 1"
    assert all(1 <= one.bins <= workload.BINS for one in asked)
    assert (len(search("adult")), len(search("orders"))) == (156, 43)


def test_without_the_workload_the_bench_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(workload, "DATA", tmp_path)
    assert main(["synopses", "--smoke", "--out", str(tmp_path / "out")]) == 0
    assert "SKIPPED: the workloads are not there" in capsys.readouterr().out


def test_the_full_size_is_that_of_the_paper() -> None:
    first = figures(FULL).end_to_end[0]
    assert (first.size, first.start, first.step, first.delta) == (4000, 3000, 1, "1e-9")
    assert len(figures(FULL).repeated(first)) == 4
    assert len(set(figures(SMOKE).tasks())) < 700
