"""One question over the wire: for the first time, again, and by plain PostgreSQL; and where its time goes."""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from bench.rig.measure import interleave, ratio
from bench.rig.report import Report, Table
from bench.rig.scene import scene
from bench.rig.timed import DELAY, LAST, STAGES

PATIENTS = 60_000
FRESH, BEFORE, AGAIN = "first time", "first time, before the delay", "again"
PLAIN, ONE = "plain PostgreSQL", "select 1 through pgveil"
FINISH, REST = "shadow: finish, and the rows", "the rest: sockets, session, bill"
_WARM = 3
_VISIBLE = 0.25  # milliseconds that deserve a colour of their own


@dataclass(frozen=True, slots=True)
class Asked:
    """One question: when it began and ended, by the machine's monotonic clock."""

    begun: float
    ended: float

    @property
    def millis(self) -> float:
        return 1e3 * (self.ended - self.begun)


def question(threshold: int) -> str:
    """Another threshold is another question: the same work for PostgreSQL, and nothing to reuse."""
    return f"SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > {threshold}"


def run(*, smoke: bool) -> Report:
    """Ask in turn, on warm connections."""
    rounds, patients = (5, 2000) if smoke else (60, PATIENTS)
    with tempfile.TemporaryDirectory(prefix="pgveil-bench-") as name:
        seen = Path(name) / "spans.json"
        with (
            scene(patients, ("bench.rig.timed", str(seen))) as stage,
            psycopg.connect(stage.dsn, autocommit=True) as veil,
            psycopg.connect(stage.upstream, autocommit=True) as plain,
        ):
            samples = _ask(veil, plain, rounds)
        spans = json.loads(seen.read_text())  # written when the proxy has ended
    stages = {way: split(samples[way], spans) for way in (FRESH, AGAIN)}
    millis = {way: [one.millis for one in asked] for way, asked in samples.items()}
    before = [one.millis - 1e3 * _delayed(one, spans) for one in samples[FRESH]]
    return _report({FRESH: millis.pop(FRESH), BEFORE: before, **millis}, stages, smoke, patients)


def _delayed(one: Asked, spans: Sequence[tuple[str, float, float, float]]) -> float:
    """The seconds that a question spent in its secret delay."""
    return sum(
        own for stage, begun, ended, own in spans if stage == DELAY and one.begun <= begun and ended <= one.ended
    )


def _ask(veil: psycopg.Connection[Any], plain: psycopg.Connection[Any], rounds: int) -> dict[str, list[Asked]]:
    thresholds = itertools.count(300)
    latest = next(thresholds)

    def timed(conn: psycopg.Connection[Any], text: str) -> Asked:
        begun = time.monotonic()
        conn.execute(text.encode()).fetchall()
        return Asked(begun, time.monotonic())

    def fresh() -> Asked:
        nonlocal latest
        latest = next(thresholds)
        return timed(veil, question(latest))

    ways = {
        FRESH: fresh,
        AGAIN: lambda: timed(veil, question(latest)),
        PLAIN: lambda: timed(plain, question(latest)),
        ONE: lambda: timed(veil, "select 1"),
    }
    timed(veil, question(latest))
    interleave(ways, _WARM, quiet=True)
    return interleave(ways, rounds, "one question", quiet=rounds < 10)


def split(asked: Sequence[Asked], spans: Sequence[tuple[str, float, float, float]]) -> dict[str, float]:
    """The mean time of each stage per question in milliseconds; they add up to the mean latency."""
    total: dict[str, float] = dict.fromkeys([*(name for name, *_ in STAGES), FINISH, REST], 0.0)
    for one in asked:
        inside = [span for span in spans if one.begun <= span[1] and span[2] <= one.ended]
        left = one.ended - one.begun
        for stage, _, ended, own in inside:
            total[stage] += own
            left -= own
            if stage == LAST:
                total[FINISH] += one.ended - ended
                left -= one.ended - ended
        total[REST] += left
    return {stage: 1e3 * seconds / len(asked) for stage, seconds in total.items()}


def _report(
    millis: Mapping[str, Sequence[float]], stages: Mapping[str, Mapping[str, float]], smoke: bool, patients: int
) -> Report:
    ratios = {way: ratio(taken, millis[PLAIN]) for way, taken in millis.items()}
    latency = Table(
        f"Milliseconds per question, one client, {patients:,} rows, 40 groups",
        ("", "median", "fastest", "slowest", "over plain PostgreSQL"),
        [
            (way, *(f"{f(taken):.2f}" for f in (statistics.median, min, max)), "" if way == PLAIN else str(ratios[way]))
            for way, taken in millis.items()
        ],
    )
    where = Table(
        "Where the time goes: mean milliseconds per question, each stage without what is inside it",
        ("stage", FRESH, AGAIN),
        [(name, *(f"{stages[way][name]:.2f}" for way in (FRESH, AGAIN))) for name in stages[FRESH]],
    )
    numbers = {
        "statement": question(300),
        "rows": patients,
        "millis": millis,
        "over_plain": {way: found.as_json() for way, found in ratios.items() if way != PLAIN},
        "stages_millis": {way: dict(found) for way, found in stages.items()},
    }
    notes = [
        "plain PostgreSQL runs the same text on the protected database by Unix socket; pgveil is reached by TCP.",
        "the first time includes a durable COMMIT of the charge (fsync on) and one of the synopsis.",
        "the secret delay hides how long the scan took (deployment.timing).",
    ]
    return Report("questions", smoke, (latency, where), numbers, lambda figure: _draw(figure, millis, stages), notes)


def _draw(figure: Any, millis: Mapping[str, Sequence[float]], stages: Mapping[str, Mapping[str, float]]) -> None:
    """Left: latencies as boxes. Right: the stages, stacked."""
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.6))
    left.boxplot(list(millis.values()), showfliers=False)
    left.set_xticks(range(1, len(millis) + 1), [way.replace(" ", "\n") for way in millis], fontsize=8)
    left.set_ylabel("milliseconds")
    left.set_ylim(bottom=0)
    left.set_title("One question")
    shown = [stage for stage in stages[FRESH] if max(found[stage] for found in stages.values()) >= _VISIBLE]
    for row, way in enumerate((AGAIN, FRESH)):
        parts = {stage: stages[way][stage] for stage in shown}
        parts[f"less than {_VISIBLE} ms each"] = sum(stages[way].values()) - sum(parts.values())
        start = 0.0
        for number, (stage, taken) in enumerate(parts.items()):
            hatch, label = "//" if number >= 10 else None, stage if way == FRESH else None
            right.barh(row, taken, left=start, color=f"C{number % 10}", hatch=hatch, label=label, edgecolor="white")
            start += taken
    right.set_yticks((0, 1), (AGAIN, FRESH))
    right.set_xlabel("milliseconds")
    right.set_title("Where the time goes")
    right.legend(fontsize=6, loc="upper left", bbox_to_anchor=(1, 1))
