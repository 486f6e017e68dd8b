"""How much dearer the measuring statement is than the plain query, in one interleaved run on one server.

1.2 million orders in 43 cities and 14 days, 20 of each customer. Three questions:

    numbers    SELECT city, ordered_on, count(*), avg(amount) ... GROUP BY 1, 2
    decision   the same keys, HAVING (count(*) >= a AND avg(amount) > b)
                                  OR (count(*) FILTER (...) >= c AND avg(amount) < d)
    person     numbers, with the customer as privacy unit (8 groups and 8 rows each)

Each is timed against its plain form, one after the other in each round, with the same parallel workers; what counts is
the ratio of the medians. ``checked`` is the same where a CHECK keeps ``amount`` in its bounds, so nothing is clamped.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import psycopg

from bench.rig.measure import interleave, ratio
from bench.rig.peers import PEERS
from bench.rig.report import Report, Table
from proxy.embedded import temporary
from sqlrewrite.catalog import Attribute, Kind, Relation
from sqlrewrite.cells import cells
from sqlrewrite.generate import generate
from sqlrewrite.question import (
    ColumnRef,
    Compare,
    Comparison,
    GroupKey,
    Literal,
    Measure,
    MeasureKind,
    Question,
    Source,
    Unit,
)

CITIES, DAYS, ROWS_EACH = 43, 14, 20
LIMITS = {
    "numbers": 1.7,
    "numbers, checked": 1.7,
    "decision": 1.9,
    "person": 12.0,
    "person, checked": 12.0,
}
TABLE = """
CREATE TABLE orders (order_id integer NOT NULL, customer_id integer NOT NULL, city text NOT NULL,
  amount numeric(8,2) NOT NULL, ordered_on date NOT NULL);
"""
ROWS = """
INSERT INTO orders
SELECT i, 1 + i %% %(customers)s, 'city ' || (hashint4(i) & 2147483647) %% 43,
       round(((hashint4(i + 1000000000) & 2147483647) %% 50001)::numeric / 100, 2),
       date '2025-01-01' + (hashint4(i + 500000000) & 2147483647) %% 14
FROM generate_series(1, %(rows)s) AS i ORDER BY hashint4(i + 7)
"""
KEYS = "city, ordered_on"
PLAIN_NUMBERS = f"SELECT {KEYS}, count(*), avg(amount) FROM orders GROUP BY {KEYS}"
PLAIN_DECISION = (
    f"SELECT {KEYS} FROM orders GROUP BY {KEYS} HAVING (count(*) >= 1900 AND avg(amount) > 250)"
    " OR (count(*) FILTER (WHERE amount > 400) >= 350 AND avg(amount) < 240)"
)


def orders(checked: bool) -> Relation:
    """What an administrator would declare."""
    days = tuple(date(2025, 1, 1) + timedelta(days=day) for day in range(DAYS))
    attributes = (
        Attribute("order_id", "integer", True),
        Attribute("customer_id", "integer", True),
        Attribute("city", "text", True, tuple(f"city {number}" for number in range(CITIES))),
        Attribute("amount", "numeric(8,2)", True, lower=Decimal(0), upper=Decimal(500), checked=checked),
        Attribute("ordered_on", "date", True, days),
    )
    return Relation(1, "public", "orders", Kind.PROTECTED, {a.name: a for a in attributes})


def numbers(checked: bool) -> Question:
    """Counts and averages of amount by city and day; the row is the unit."""
    keys = tuple(GroupKey(ColumnRef(0, name, kind), False) for name, kind in (("city", "text"), ("ordered_on", "date")))
    amount = ColumnRef(0, "amount", "numeric(8,2)")
    measures = (
        Measure(MeasureKind.ROWS),
        Measure(MeasureKind.TOTAL, amount, None, Decimal(0), Decimal(500), Fraction(1, 100)),
    )
    return Question((Source(orders(checked)),), Unit(), None, keys, ((0, 1),), measures, (), None, ())


def decision() -> Question:
    """The measures of a tree of two branches."""
    asked = numbers(False)
    high = Compare(ColumnRef(0, "amount", "numeric(8,2)"), Comparison.GT, Literal("400", "numeric"))
    return replace(asked, measures=(*asked.measures, Measure(MeasureKind.ROWS, None, high)))


def person(checked: bool) -> Question:
    """Numbers, with the customer as unit."""
    return replace(numbers(checked), unit=Unit((ColumnRef(0, "customer_id", "integer"),), 8, 8))


@dataclass(frozen=True, slots=True)
class Line:
    """One question against its plain form, round by round, in seconds."""

    name: str
    plain: tuple[float, ...]
    ours: tuple[float, ...]


def run(*, smoke: bool) -> Report:
    """Load the rows and time every pair in turn; ``smoke`` takes few rows and rounds."""
    rows, rounds = (30_000, 2) if smoke else (1_200_000, 7)
    settings = {"fsync": "off", "shared_buffers": "512MB", "max_parallel_workers_per_gather": "2"}
    with temporary(settings) as cluster, psycopg.connect(cluster.dsn(), autocommit=True) as connection:
        connection.execute(TABLE)
        connection.execute(ROWS, {"rows": rows, "customers": rows // ROWS_EACH})
        connection.execute("VACUUM (ANALYZE, FREEZE) orders")
        lines = list(_lines(connection, rounds))
        lines += [Line(f"{peer.name}: {name}", *times) for peer in PEERS for name, times in peer.times(cluster, rounds)]
    return _report(lines, rows, smoke)


def _lines(connection: psycopg.Connection[Any], rounds: int) -> Iterator[Line]:
    cursor = psycopg.RawCursor(connection)
    plans = {
        "numbers": (PLAIN_NUMBERS, numbers(False)),
        "numbers, checked": (PLAIN_NUMBERS, numbers(True)),
        "decision": (PLAIN_DECISION, decision()),
        "person": (PLAIN_NUMBERS, person(False)),
        "person, checked": (PLAIN_NUMBERS, person(True)),
    }
    for name, (plain, asked) in plans.items():
        generated, grid = generate(asked, 7), cells(asked)
        ways = {
            "plain": lambda plain=plain: _seconds(lambda: cursor.execute(plain).fetchall()),
            "ours": lambda g=generated, c=grid: _seconds(
                lambda: c.fill(cursor.execute(g.sql, g.parameters).fetchall())
            ),
        }
        interleave(ways, 1, quiet=True)
        times = interleave(ways, rounds, name)
        yield Line(name, tuple(times["plain"]), tuple(times["ours"]))


def _report(lines: Sequence[Line], rows: int, smoke: bool) -> Report:
    ratios = {line.name: ratio(line.ours, line.plain) for line in lines}
    table = Table(
        f"Milliseconds to measure {rows:,} orders, 43 cities x 14 days, against the plain query",
        ("question", "plain", "measured", "ratio", "promised"),
        [
            (
                line.name,
                f"{1e3 * statistics.median(line.plain):.0f}",
                f"{1e3 * statistics.median(line.ours):.0f}",
                str(ratios[line.name]),
                f"{LIMITS[line.name]:g}x" if line.name in LIMITS else "",
            )
            for line in lines
        ],
    )
    numbers_ = {
        line.name: {"plain": line.plain, "ours": line.ours, "ratio": ratios[line.name].median} for line in lines
    }

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.barh([line.name for line in lines], [ratios[line.name].median for line in lines])
        axes.set_xlabel("times the plain query")

    absent = [peer.name for peer in PEERS if not peer.installed]
    notes = [f"not installed, so not measured: {', '.join(absent)} (pip install 'pgveil[peers]')"] if absent else []
    return Report("scan", smoke, [table], numbers_, draw, notes)


def _seconds(what: Callable[[], object]) -> float:
    started = time.perf_counter()
    what()
    return time.perf_counter() - started
