"""What a denied run counts with, and the held-out questions of the bench ``decisions``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import decisions
from bench.__main__ import RESULTS
from bench.decision import held_out, measures
from bench.decision.cells import Cell
from bench.decision.groups import Groups, codes
from bench.decision.sources import missing
from bench.decision.workloads import Workload, workloads
from bench.rig.report import Report, write

NEEDS_DATA = pytest.mark.skipif(bool(missing()), reason="the data sets are not in ../shared/data")


def price(median: float, answer: float | None = None, denied: float = 0.0) -> dict[str, float]:
    return {"median": median, "answer": median if answer is None else answer, "denied": denied}


def told(n: int, cert: dict[str, float], probe: dict[str, float], z: float = 1.0) -> dict[str, Any]:
    return {
        "workload": "d: w",
        "n": n,
        "shape": "and",
        "z": z,
        "ways": {"cert": cert, "probe": probe, "probe_star": probe},
    }


CELLS = [
    told(3, price(1.0), price(4.0)),
    told(3, price(6.0), price(0.5, 10.0, 0.99), z=2.0),  # says no for next to nothing
    told(6, price(2.0, 10.0, 0.6), price(4.0)),  # here it is cert that denies
]


def test_a_cheap_no_is_the_worst_cell_by_one_measure_only() -> None:
    found = measures.numbers(CELLS)["probe"]["n = 3"]
    assert (found["cells"], found["mostly denied"], found["asked"]) == (2, 1, 1.5)
    capped, answering, spent = (found[measure.name] for measure in measures.MEASURES)
    assert (capped["worst"], capped["above"], capped["mean"]) == (0.6, 0, round((0.25 * 0.6) ** 0.5, 4))
    assert (answering["worst"], answering["cells"]) == (0.25, 1)
    assert (spent["worst"], spent["above"], spent["denied there"]) == (12.0, 1, 0.99)
    assert spent["worst cell"] == "d: w, 3 and, z 2"


def test_denials_of_cert_are_not_forgiven_where_the_rival_answers() -> None:
    found = measures.numbers(CELLS)["probe_star"]["n = 6"]
    assert [found[measure.name]["worst"] for measure in measures.MEASURES] == [2.5, 2.5, 0.5]
    assert found["denied = epsilon_max"]["above"] == 1, "one is asked for six sub-queries"


def test_a_rival_that_never_answers_has_nothing_to_compare_where_it_answers() -> None:
    found = measures.numbers(CELLS[1:2])["probe"]["all"]
    assert found["where it answers"] is None and found["asked"] is None
    rows = measures.table(CELLS[1:2], "t").rows
    assert rows[0] == ("probe, n = 3", "1.5", "0.60, 0.60, 0 of 1", "", "12.00, 12.00, 1 of 1", "1")


def test_the_kept_results_tell_the_measures_of_their_own_cells() -> None:
    numbers = json.loads((RESULTS / "decisions.json").read_text())["numbers"]
    assert numbers["comparisons"]["measures"] == measures.numbers(numbers["cells"])
    held = numbers["held_out"]
    assert held["measures"] == measures.numbers(held["cells"]) and len(held["cells"]) >= 60


@pytest.fixture(scope="module")
def made_up() -> Workload:
    rng = np.random.default_rng(3)
    key, filters = np.minimum(rng.geometric(0.008, 40_000) - 1, 399), (0.7, 0.6, 0.5, 0.4, 0.3)
    groups = Groups(codes(key, range(400)))
    others = (groups.rows(f"filter {share}", rng.random(40_000) < share) for share in filters)
    return Workload("made up", "none", (groups.rows(), *others))


def names(cells: list[Cell]) -> set[str]:
    assert len({one.name for one in cells}) == len(cells)
    return {one.name for one in cells}


def test_what_is_taken_is_not_held_out(made_up: Workload) -> None:
    every = list(held_out.cells([made_up] * 7, ()))
    assert {one.n for one in every} == set(range(1, 7))
    taken = names(every[::2])
    assert not taken & names(list(held_out.cells([made_up] * 7, taken)))


@NEEDS_DATA
def test_held_out_questions_are_none_of_the_others_and_cover_every_data_set() -> None:
    known = workloads()
    others = names(decisions.asked(known, decisions.FULL)[1])
    found = list(held_out.cells(known, others))
    assert not others & names(found) and 60 <= len(found) <= decisions.FULL.held_out
    assert {one.data for one in found} == {workload.data for workload in known}
    assert {one.n for one in found} == set(range(1, 7))


def held(cells: list[dict[str, Any]]) -> dict[str, Any]:
    return {"runs": 40, "day": "2026-01-02", "cells": cells}


def test_a_part_keeps_all_else_of_the_results(tmp_path: Path) -> None:
    old = {
        "bench": "decisions",
        "smoke": False,
        "machine": {"cores": 64},
        "numbers": {"runs": 100, "comparisons": {"ledger": 1}, "cells": CELLS, "figures": {}, "held_out": {}},
        "notes": ["three cells", "held out: none", "a denied run counts"],
    }
    (tmp_path / "decisions.json").write_text(json.dumps(old))
    report = Report(
        "decisions", False, (), {}, pytest.fail, amend=lambda there: decisions.amended(there, held(CELLS[:1]), False)
    )
    assert write(report, tmp_path) == [tmp_path / "decisions.json"], "no picture is drawn"
    new = json.loads((tmp_path / "decisions.json").read_text())
    assert new["machine"] == old["machine"] and new["numbers"]["cells"] == CELLS
    assert new["numbers"]["comparisons"] == {"ledger": 1, "measures": measures.numbers(CELLS)}
    assert new["numbers"]["held_out"] == held(CELLS[:1])
    assert new["notes"][0] == "three cells" and "held out: none" not in new["notes"]
    assert "1 questions" in new["notes"][-1] and "40 runs" in new["notes"][-1] and "2026-01-02" in new["notes"][-1]


def test_smoke_and_full_results_are_not_mixed() -> None:
    with pytest.raises(ValueError, match="not mixed"):
        decisions.amended({"smoke": True}, held([]), False)


@NEEDS_DATA
def test_there_is_no_other_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGVEIL_BENCH_PART", "figures")
    with pytest.raises(ValueError, match="no part figures"):
        decisions.run(smoke=True)


@NEEDS_DATA
def test_the_held_out_part_runs_the_three_that_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGVEIL_BENCH_PART", "held_out")
    report = decisions.run(smoke=True)
    assert report.amend is not None and "Held out" in report.tables[0].title
    new = report.amend({"smoke": True, "numbers": {"comparisons": {}, "cells": CELLS}, "notes": []})
    cells = new["numbers"]["held_out"]["cells"]
    assert [tuple(one["ways"]) for one in cells] == [held_out.WAYS] * decisions.SMOKE.held_out
