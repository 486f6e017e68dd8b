"""New questions from a histogram that the analyst knows, over the wire, beside the same number again and the plain
query.

Histograms are registered (``provenance.register_view``) and paid for once; from then on every range of ages, alone or
by disease, is a sum of their cells, costs nothing, and reads nothing. In turn, some in a row: ``select 1`` through
pgveil, the same range again, ever new ranges (literals in the text; parameters of a statement that psycopg prepares by
itself, that is parsed each time, and the latter with results in binary), new ranges by disease, a decision again; and
each question as plain PostgreSQL answers it from 1.2 million rows.
"""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import psycopg

from bench.rig.measure import interleave, ratio, say
from bench.rig.report import Report, Table
from bench.rig.scene import scene

ROWS, PATIENTS, AGES = 1_200_000, 60_000, 100
ONE, AGAIN, TEXT, BOUND = "select 1", "the same range again", "a new range, in the text", "a new range, as parameters"
PARSED, BINARY = "the same, parsed each time", "the same, in binary"
GROUPED, DECISION = "a new range by disease", "a decision again"
PLAIN, PLAIN_GROUPED, PLAIN_DECISION = "plain: a range", "plain: a range by disease", "plain: a decision"
SAME = {
    AGAIN: PLAIN,
    TEXT: PLAIN,
    BOUND: PLAIN,
    PARSED: PLAIN,
    BINARY: PLAIN,
    GROUPED: PLAIN_GROUPED,
    DECISION: PLAIN_DECISION,
}
"""What plain PostgreSQL does for each."""
PROMISED_MILLIS, PROMISED_TIMES = 2.0, 50.0
_WARM, _IN_A_ROW = 3, 10

_REGISTER = """
SELECT provenance.declare_attribute('patient_data', 'age', lower => '0', upper => '100', step => '1');
SELECT provenance.register_view('patient_data', '{age}');
SELECT provenance.register_view('patient_data', '{age,disease}');
"""
_MORE = """
INSERT INTO patient_data SELECT patient_id + %(first)s * n, age, gender, disease, disease_type
FROM patient_data, generate_series(1, %(times)s) AS n
"""
_RANGE = "SELECT count(*) FROM patient_data WHERE age BETWEEN {} AND {}"
_GROUPED = "SELECT disease, count(*) FROM patient_data WHERE age BETWEEN {} AND {} GROUP BY disease"
_DECIDED = "SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 2500"


def run(*, smoke: bool) -> Report:
    """Ask in turn, on warm connections."""
    patients, rows, rounds = (2000, 4000, 8) if smoke else (PATIENTS, ROWS, 60)
    with (
        scene(patients) as stage,
        psycopg.connect(stage.upstream, autocommit=True) as plain,
        psycopg.connect(stage.dsn, autocommit=True) as veil,
    ):
        say(f"making {rows:,} rows of them")
        plain.execute(_MORE, {"first": patients, "times": rows // patients - 1})
        plain.execute("VACUUM (ANALYZE, FREEZE) patient_data")
        plain.execute(_REGISTER)
        plain.execute("SELECT provenance.refresh('patient_data')")
        millis, free = _ask(veil, plain, rounds)
    return _report(millis, free, smoke, rows)


def ranges() -> Iterator[tuple[int, int]]:
    """Every range of ages once, in an order that mixes long and short ones."""
    every = [(low, high) for low in range(AGES) for high in range(low, AGES)]
    return (every[at * 1999 % len(every)] for at in range(len(every)))


def _ask(
    veil: psycopg.Connection[Any], plain: psycopg.Connection[Any], rounds: int
) -> tuple[dict[str, list[float]], list[bool]]:
    """The times, and whether each new range was told to be free."""
    free: list[bool] = []
    fresh = itertools.cycle(ranges())
    latest = next(fresh)

    def timed(conn: psycopg.Connection[Any], text: str, values: tuple[int, ...] | None = None, **how: bool) -> float:
        begun = time.monotonic()
        conn.execute(text.encode(), values, **how).fetchall()
        return 1e3 * (time.monotonic() - begun)

    def new(text: str, values: bool = False, **how: bool) -> float:
        nonlocal latest
        latest = next(fresh)
        return timed(veil, text.format("%s", "%s"), latest, **how) if values else timed(veil, text.format(*latest))

    def some(one: Callable[[], float]) -> Callable[[], float]:
        """The median of a few in a row, as a dashboard asks them."""
        return lambda: statistics.median(one() for _ in range(_IN_A_ROW))

    veil.execute("SET veil.margin = '2u'")
    veil.execute("SELECT age, count(*) FROM patient_data GROUP BY age").fetchall()
    veil.execute("SELECT age, disease, count(*) FROM patient_data GROUP BY age, disease").fetchall()
    veil.execute("SET veil.margin = '100u'")
    ways = {
        ONE: some(lambda: timed(veil, "select 1")),
        AGAIN: some(lambda: timed(veil, _RANGE.format(20, 39))),
        TEXT: some(lambda: new(_RANGE)),
        BOUND: some(lambda: new(_RANGE, values=True)),
        PARSED: some(lambda: new(_RANGE, values=True, prepare=False)),
        BINARY: some(lambda: new(_RANGE, values=True, prepare=False, binary=True)),
        GROUPED: some(lambda: new(_GROUPED)),
        DECISION: some(lambda: timed(veil, _DECIDED)),
        PLAIN: lambda: timed(plain, _RANGE.format(*latest)),
        PLAIN_GROUPED: lambda: timed(plain, _GROUPED.format(*latest)),
        PLAIN_DECISION: lambda: timed(plain, _DECIDED),
    }
    interleave(ways, _WARM, quiet=True)
    veil.add_notice_handler(lambda notice: free.append(json.loads(notice.message_detail or "{}")["reused"]))
    return interleave(ways, rounds, quiet=True), free


def _report(millis: Mapping[str, Sequence[float]], free: Sequence[bool], smoke: bool, rows: int) -> Report:
    faster = {way: ratio(millis[plain], millis[way]) for way, plain in SAME.items()}
    over_one = {way: ratio(taken, millis[ONE]) for way, taken in millis.items()}
    table = Table(
        f"Milliseconds per statement, one client, {_IN_A_ROW} in a row; plain PostgreSQL reads {rows:,} rows",
        ("", "median", "95 of 100 below", "over select 1", "plain over it"),
        [
            (
                way,
                f"{statistics.median(taken):.2f}",
                f"{percentile(taken):.2f}",
                str(over_one[way]),
                str(faster[way]) if way in faster else "",
            )
            for way, taken in millis.items()
        ],
    )
    numbers = {
        "statement": _RANGE.format(20, 39),
        "rows": rows,
        "free": sum(free),
        "asked": len(free),
        "millis": millis,
        "median": {way: statistics.median(taken) for way, taken in millis.items()},
        "p95": {way: percentile(taken) for way, taken in millis.items()},
        "over_select_1": {way: found.as_json() for way, found in over_one.items()},
        "plain_over": {way: found.as_json() for way, found in faster.items()},
        "promised": {"millis": PROMISED_MILLIS, "times_faster": PROMISED_TIMES},
    }
    notes = [
        "plain PostgreSQL runs the text on the protected database by Unix socket; pgveil is reached by TCP.",
        f"promised for a new question: below {PROMISED_MILLIS:g} ms, and {PROMISED_TIMES:g}x faster than plain.",
    ]
    return Report("warm", smoke, [table], numbers, lambda figure: _draw(figure, millis), notes)


def percentile(taken: Sequence[float]) -> float:
    """95 of 100 are not above this."""
    return sorted(taken)[max(0, -(-95 * len(taken) // 100) - 1)]


def _draw(figure: Any, millis: Mapping[str, Sequence[float]]) -> None:
    axes = figure.subplots()
    axes.boxplot(list(millis.values()), showfliers=False)
    axes.set_xticks(range(1, len(millis) + 1), [way.replace(" ", "\n") for way in millis], fontsize=7)
    axes.set_yscale("log")
    axes.set_ylabel("milliseconds per statement")
