"""The benches run: tiny sizes, real servers, and what they write can be read."""

from __future__ import annotations

import json
import os
import statistics
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import main, names
from bench.decision.sources import missing
from bench.decision.ways import EVERY
from bench.rig.measure import interleave, ratio
from bench.rig.report import Table, text_of
from bench.rig.scene import pgbouncer_program

PNG = b"\x89PNG"


def result(name: str, directory: Path) -> dict[str, Any]:
    assert main([name, "--smoke", "--out", str(directory)]) == 0
    assert (directory / f"{name}.png").read_bytes().startswith(PNG)
    told: dict[str, Any] = json.loads((directory / f"{name}.json").read_text())
    assert told["bench"] == name and told["smoke"] is True
    assert told["machine"]["cores"] == os.cpu_count() and told["machine"]["python"]
    return told


def test_every_bench_has_a_smoke_test_here() -> None:
    assert names() == ["decisions", "overlap", "questions", "relax", "scan", "synopses", "warm", "wire"]


def test_wire_compares_all_ways_in_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = result("wire", tmp_path)["numbers"]
    rivals = {"direct", "pgbouncer"} if pgbouncer_program() else {"direct"}
    assert {"simple, 8 clients", "prepared, 8 clients"} < set(numbers)
    for case in numbers.values():
        assert set(case["rates"]) == rivals | {"pgveil"} and set(case["pgveil_over"]) == rivals
        assert all(rate > 0 for rates in case["rates"].values() for rate in rates)
    assert "pgveil/direct" in capsys.readouterr().out


def test_questions_tells_latencies_and_where_the_time_goes(tmp_path: Path) -> None:
    numbers = result("questions", tmp_path)["numbers"]
    first, again = (numbers["stages_millis"][way] for way in ("first time", "again"))
    for way, stages in numbers["stages_millis"].items():
        taken = numbers["millis"][way]
        assert sum(stages.values()) == pytest.approx(sum(taken) / len(taken)), "the stages add up to the latency"
    seen = ("read the fragments", "ledger: charge", "data: measure", "decide, in stages", "synopsis: keep")
    assert all(first[stage] > 0 for stage in seen)
    assert again["shadow: describe, resolve, settings"] > 0
    assert again["read the fragments"] == again["price"] == 0, "a text is read once"
    before, after = (statistics.fmean(numbers["millis"][way]) for way in ("first time, before the delay", "first time"))
    assert after - before == pytest.approx(first["data: secret delay"]) and first["data: secret delay"] > 5
    assert again["ledger: charge"] == again["data: measure"] == again["noise"] == 0, "what is known is not read again"


def test_warm_compares_new_ranges_with_old_ones_and_with_plain_postgresql(tmp_path: Path) -> None:
    numbers = result("warm", tmp_path)["numbers"]
    assert numbers["free"] == numbers["asked"] > 0, "every answer is known"
    assert len(numbers["median"]) == 11 and all(millis > 0 for millis in numbers["median"].values())
    assert all(numbers["p95"][way] >= millis for way, millis in numbers["median"].items())
    assert len(numbers["plain_over"]) == 7


def test_scan_compares_each_question_with_its_plain_form(tmp_path: Path) -> None:
    numbers = result("scan", tmp_path)["numbers"]
    assert {"numbers", "decision", "person"} <= set(numbers)
    assert all(line["ratio"] > 0 for line in numbers.values())


@pytest.mark.skipif(bool(missing()), reason=f"the data sets are not in ../shared/data: {', '.join(missing())}")
def test_decisions_runs_every_mechanism_and_every_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = result("decisions", tmp_path)["numbers"]
    assert {tuple(cell["ways"]) for cell in numbers["cells"]} == {EVERY}
    assert all(way["median"] > 0 for cell in numbers["cells"] for way in cell["ways"].values())
    assert set(numbers["figures"]) == {
        "7 margin",
        "7 tree",
        "8 beta",
        "8 alpha",
        "10 averages",
        "table 3",
        "5.6",
        "5.8",
    }
    assert len(numbers["held_out"]["cells"]) == 1
    compared = numbers["comparisons"]
    assert compared["measures"]["probe"]["all"]["cells"] == len(numbers["cells"])
    assert compared["cert / probe"]["all"]["cells"] == len(numbers["cells"])
    assert {"cert / probe_star", "cert / probe, equal FPR", "cert / probe_star, equal FPR", "denials"} < set(compared)
    assert all(found["mean"] > 0 for found in compared["ledger"].values())
    pictures = {path.name for path in tmp_path.glob("*.png")}
    assert pictures == {
        "decisions.png",
        *(f"decisions_{n}.png" for n in ("probe_6", "probe_7_8", "probe_9_10", "mide")),
    }
    assert "Median epsilon of cert" in capsys.readouterr().out


def test_an_unknown_name_gets_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wore"]) == 2
    known = "decisions, overlap, questions, relax, scan, synopses, warm, wire"
    assert capsys.readouterr().err == f"there is no bench wore; there are: {known}\n"


def test_rivals_take_turns_and_each_round_gives_one_quotient() -> None:
    calls: list[str] = []
    pace = iter(range(1, 100))

    def way(name: str, times: int) -> float:
        calls.append(name)
        return times * next(pace)

    samples = interleave({"a": lambda: way("a", 1), "b": lambda: way("b", 2)}, 3, quiet=True)
    assert calls == ["a", "b", "b", "a", "a", "b"]
    assert samples == {"a": [1, 4, 5], "b": [4, 6, 12]}
    found = ratio(samples["b"], samples["a"])
    assert (found.low, found.median, found.high) == (1.5, 2.4, 4.0)


def test_a_table_lines_up() -> None:
    assert text_of(Table("t", ("load", "rate"), [("simple", "12"), ("x", "3,456")])).splitlines() == [
        "load     rate",
        "------  -----",
        "simple     12",
        "x       3,456",
    ]
