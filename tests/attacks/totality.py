"""Constants of all sizes in all positions, on hostile rows: does a question fail, or dwell, because of a row?

A text is refused while it is read, or its generated SQL has the same outcome on every set of rows. The command

    python tests/attacks/totality.py --random 100000 --processes 2 --out bench/results/evidence/totality.json

runs the directed texts and so many random ones, and writes what it found.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from question_world import (
    BY_ACCOUNT,
    BY_OWNER,
    BY_ROW,
    COLUMNS,
    HOSTILE,
    SCHEMA,
    SEED,
    VALUES,
    Asked,
    Server,
    ask,
)

from mechanisms.errors import Refusal
from sqlrewrite.catalog import Catalog
from sqlrewrite.generate import Generated, generate
from sqlrewrite.question import Literal

NUMBERS = (
    *("0", "1", "-1", "0.5", "7.25", "100", "1e20", "-1e-30", "1e30", "1e39", "1e49", "1e50", "1e100", "-1e100"),
    *("1e399", "1e400", "1e401", "-1e-400", "1e-399", "1e308", "1e309", "1e-308", "1e-324", "1e1000", "1e16383"),
    *("1e131000", "1e131071", "1e131072", "1e-16383", "1e-16384", "1e-131000", "-0", "-0.0", "0e500"),
    *("32767", "32768", "2147483647", "2147483648", "-2147483648", "9223372036854775807", "9223372036854775808"),
    *("-9223372036854775808", "10000000000000000000000000000000000000000", "0." + "3" * 60, "9" * 50, "9" * 51),
    *("9" * 400, "9" * 4000, "0." + "0" * 3000 + "1", "1." + "7" * 4000),
)
NOT_FINITE = ("NaN", "Infinity", "-Infinity", "inf", "-inf", "nan", "", "abc", "1_000", "0x1f", "1e", " 5 ", "५")
PATTERNS = (
    *(
        "%",
        "_",
        "",
        "a%",
        "%a",
        "%a%",
        "a_b",
        "%a%b%c%",
        "%" * 50,
        "_" * 99,
        "x" * 100,
        "x" * 101,
        "%" + "a" * 98 + "b",
    ),
    *("%a" * 8, "%a" * 9, "%_" * 40, "%a_" * 33 + "b", "a" * 3000, "%9" * 1500, "%_9" * 1000, "_" * 15000, "%" * 3000),
    *("%" + "\U0001d54f" * 80 + "c%", "%" + "a" * 96 + "c", "%" + "_a" * 48 + "c%", "\U0001d54f" * 99),
)
WHOLE = ("0", "1", "-1", "7", "400000", "1277500", "2147483647", "-2147483648", "99999999999", "1e400", "9" * 100)
NUMERIC_COLUMNS = ("cost", "wide", "whole", "rate", "fine", "small", "n", "big", "low", "beds")
TEXT_COLUMNS = ("stay.ward", "kind", "note", "code", "zone", "label")
FROM = "stay JOIN ward ON stay.ward = ward.ward"

ARITHMETIC = (
    "SELECT count(*) FROM {f} WHERE {x} > {c}",
    "SELECT count(*) FROM {f} WHERE {x} * {c} > 1",
    "SELECT count(*) FROM {f} WHERE {x} * {c} * {c} * {c} > {x}",
    "SELECT count(*) FROM {f} WHERE {x} + {c} < {x} - {c}",
    "SELECT count(*) FROM {f} WHERE {x} / {c} > 1 OR {x} % {c} = 0",
    "SELECT count(*) FROM {f} WHERE (CASE WHEN id = 1 AND n >= 0 THEN 10 ELSE 0 END) * {c} > 1",
    "SELECT count(*) FROM {f} WHERE CASE WHEN {x} > 5 THEN {c} ELSE {x} END * {x} > 1",
    "SELECT count(*) FROM {f} WHERE coalesce({x}, {c}) * {x} > 1",
    "SELECT count(*) FROM {f} WHERE {x} IN (1, 2, {c}) OR {x} BETWEEN -{c} AND {c}",
    "SELECT count(*) FROM {f} WHERE abs(-{x} * {c}) > 1 OR ({x} + {c})::bigint > 1 OR ({x} * {c})::text = 'a'",
    "SELECT count(*) FROM {f} WHERE round(({x} * {c})::numeric, 2) > trunc({x} - {c}) OR floor({x} / {c}) = ceil({x})",
    "SELECT count(*) FROM {f} WHERE {x} IS DISTINCT FROM {c} OR ({x} + {c}) IS NULL",
    "SELECT width_bucket({x}, 0, {c}, 10), count(*) FROM {f} GROUP BY 1",
    "SELECT width_bucket({x} * {c}, 0, 1, 3), {x} + {c}, count(*) FROM {f} GROUP BY 1, 2",
    "SELECT CASE WHEN {x} > {c} THEN 'a' ELSE 'b' END, count(*) FROM {f} GROUP BY 1",
    "SELECT sum({x} * {c}), count({x} + {c}) FROM {f}",
    "SELECT avg(coalesce({x}, {c})), sum(CASE WHEN {x} > 0 THEN {c} ELSE 0 END) FROM {f}",
    "SELECT stddev({x} + {c}), var_pop({x} / {c}) FROM {f}",
    "SELECT sum({c}), count({c}), avg({x} % {c}) FROM {f}",
    "SELECT count(*) FILTER (WHERE {x} * {c} > 0), sum({x}) FILTER (WHERE {c} > {x}) FROM {f}",
    "SELECT kind FROM {f} GROUP BY kind HAVING count(*) > {c}",
    "SELECT kind FROM {f} GROUP BY kind HAVING sum({x}) * {c} > 1 AND sum({x}) + {c} < 7",
    "SELECT kind FROM {f} GROUP BY kind HAVING sum({x} * {c}) > 1",
    "SELECT kind FROM {f} GROUP BY kind HAVING avg({x}) > {c} AND count(*) > 5",
    "SELECT kind FROM {f} GROUP BY kind HAVING sum({x}) / {c} > {c} * {c}",
    "SELECT kind FROM {f} GROUP BY kind"
    " HAVING percentile_cont(0.5) WITHIN GROUP (ORDER BY {x} + {c}) > {c} AND count(*) > 5",
    "SELECT count(*) FROM stay JOIN ward ON stay.ward = ward.ward AND {x} * {c} > beds",
    "SELECT count(*) FROM (SELECT {x} * {c} AS y, id FROM {f}) q WHERE y * y > 1",
)
TEXTS = (
    "SELECT count(*) FROM {f} WHERE {t} LIKE '{p}'",
    "SELECT count(*) FROM {f} WHERE lower({t}) NOT ILIKE '{p}' OR upper({t}) LIKE '{p}'",
    "SELECT count(*) FILTER (WHERE coalesce({t}, {t}) LIKE '{p}') FROM {f}",
    "SELECT {t} LIKE '{p}', count(*) FROM {f} GROUP BY 1",
    "SELECT count(*) FROM {f} WHERE {t} = '{p}' OR {t} IN ('a', '{p}') OR {t} <> '{p}'",
    "SELECT count(*) FROM {f} WHERE {t} < '{p}' OR left({t}, 20) >= '{p}' OR length({t}) > 3",
    "SELECT CASE WHEN {t} > '{p}' THEN '{p}' ELSE {t} END, count(*) FROM {f} GROUP BY 1",
    "SELECT lower({t}), upper(left({t}, 9)), count(*) FROM {f} WHERE {t} < kind OR note > {t} GROUP BY 1, 2",
    "SELECT count(*) FROM {f} WHERE n::text LIKE '{p}' OR day::text LIKE '{p}' OR {t} LIKE 'a'",
    "SELECT count(*) FROM {f} WHERE (whole * 7)::text LIKE '{p}'",
)
MOMENTS = (
    "SELECT extract(year FROM day + {w}), count(*) FROM stay GROUP BY 1",
    "SELECT count(*) FROM stay WHERE day - {w} > '2024-01-01' OR at + INTERVAL '{i}' > till",
    "SELECT date_trunc('month', at - INTERVAL '{i}'), count(*) FROM stay GROUP BY 1",
    "SELECT count(*) FROM stay WHERE extract(epoch FROM till) * {w} > 1 OR (day - day) * {w} > 1",
    "SELECT count(*) FROM stay WHERE round(wide, {w}) > 1 OR trunc(whole * 3, {w}) > 1",
    "SELECT left(note, {w}), count(*) FROM stay GROUP BY 1",
    "SELECT width_bucket(wide, 0, 1, {w}), count(*) FROM stay GROUP BY 1",
    "SELECT sum(n * {w}), sum(big * {w}), sum(small - {w}) FROM stay",
    "SELECT count(*) FROM stay WHERE date_part('julian', day) * {w} > extract(julian FROM at) * {w}",
)
ROW_MILLISECONDS = 2.0  # more than the work of a row ever is: detoasting, and a machine that others use
TAME = ("0", "1", "-1", "3", "7", "0.5", "7.25", "19.99", "100", "1e6", "2.5")
FIELDS = ("year", "month", "dow", "week", "quarter", "hour", "decade", "epoch", "julian", "second", "microseconds")
UNITS = ("hour", "day", "week", "month", "quarter", "year", "decade", "millennium")
INTERVALS = ("1 day", "3000 years", "9999 years", "999999 years", "999999 seconds", "100000 months", "9999999 days")
SIZED = (
    # the two found exploits, and their kin: what an analyst can size is refused
    "SELECT count(*) FROM stay WHERE (CASE WHEN id = 1 AND n >= 0 THEN 10 ELSE 0 END) * 1e131071 > 1",
    "SELECT count(*) FROM stay WHERE (n * 1e399 * 1e399 * 1e399 * 1e399 * 1e399 * 1e399 * 1e399)::text LIKE '%9%'",
    "SELECT count(*) FROM stay WHERE (n * 1e30)::text LIKE '%9%'",
    "SELECT count(*) FROM stay WHERE note LIKE '" + "%9_" * 1000 + "'",
    "SELECT count(*) FROM stay WHERE note LIKE '" + "a" * 3000 + "'",
    "SELECT count(*) FROM stay WHERE note LIKE '" + "%a" * 20 + "'",
    "SELECT count(*) FROM stay WHERE note ILIKE '%" + "a" * 200 + "'",
    "SELECT count(*) FROM stay WHERE wide * wide * wide * wide * wide * wide > 1",
    "SELECT count(*) FROM stay WHERE big * big * big > 1",
    "SELECT count(*) FROM stay WHERE wide % 1e-400 > 1",
    "SELECT extract(year FROM day + 2147483647), count(*) FROM stay GROUP BY 1",
    "SELECT count(*) FROM stay WHERE n IN (" + ", ".join(map(str, range(1500))) + ")",
    "SELECT count(*) FROM stay WHERE " + " OR ".join(f"note LIKE '%{i}%'" for i in range(40)),
    "SELECT sum(CASE " + " ".join(f"WHEN wide * {i} > {i} THEN {i}" for i in range(1, 60)) + " END) FROM stay",
    "SELECT " + ", ".join(f"sum(rate * {i})" for i in range(1, 40)) + " FROM stay",
    "SELECT count(*) FROM stay WHERE " + "(" * 9 + "wide" + " * 1.5)::int" * 9 + " > 1",
    "SELECT count(*) FROM stay WHERE " + " OR ".join(f"note LIKE '%{'a' * 80}{i}%'" for i in range(7)),
    "SELECT count(*) FROM stay WHERE note ILIKE '%" + "\U0001d54f" * 80 + "c%' OR kind ILIKE '%" + "é" * 80 + "c%'",
    "SELECT count(*) FROM stay WHERE n" + "+1" * 300 + " = 3",
    "SELECT sum(n" + "::bigint::int" * 200 + ") FROM stay",
)


@dataclass(frozen=True)
class Text:
    """A question with its parameters, under one registry."""

    sql: str
    parameters: tuple[Literal, ...] = ()
    catalog: Catalog = BY_ROW


@dataclass
class Report:
    """What became of the texts."""

    counts: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    alike: list[str] = field(default_factory=list)  # what fails on every database
    slow: list[tuple[float, str]] = field(default_factory=list)  # milliseconds that the huge row took

    @property
    def slowest(self) -> float:
        return max(self.slow)[0] if self.slow else 0.0

    def add(self, other: Report) -> None:
        self.counts += other.counts
        self.states += other.states
        self.failures += other.failures
        self.alike += other.alike
        self.slow += other.slow

    def fail(self, why: str, text: Text) -> None:
        self.counts["failed"] += 1
        self.failures.append(f"{why}: {text.sql[:400]} {[p.text and p.text[:50] for p in text.parameters]}")


# -- rows -------------------------------------------------------------------------------------------------------------

HUGE = {"wide": "9" * 131072 + "." + "9" * 16383, "whole": "-" + "7" * 131072, "note": "a" * 1_000_000} | {
    "kind": "%_" * 500_000, "ward": "north", "rate": "-1.7976931348623157e308", "fine": "1e-45",
    "cost": "NaN", "big": -(2**63), "n": 2**31 - 1, "small": -(2**15), "day": "5874897-12-31", "code": "ZZZZ",
    "at": "294276-12-31 23:59:59.999999", "till": "4714-11-24 00:00+00 BC",
}  # fmt: skip
"""One row with the values that take longest."""


def rows_of(kind: str) -> list[tuple[object, ...]]:
    """The rows of one set: none, tame ones, hostile ones, or the one huge row."""
    rng, tame = random.Random(4), [VALUES[name][0] for name in COLUMNS]
    match kind:
        case "empty":
            return []
        case "tame":
            return [(n, 1 + n % 3, *(rng.choice(VALUES[name]) for name in COLUMNS)) for n in range(20)]
        case "huge":
            return [(1, 1, *(HUGE.get(name, value) for name, value in zip(COLUMNS, tame, strict=True)))]
    most = max(len(values) for values in HOSTILE.values())
    found = [(n, 1 + n % 3, *(HOSTILE[name][n % len(HOSTILE[name])] for name in COLUMNS)) for n in range(most)]
    joined = COLUMNS.index("ward") + 2  # each of them once more, with a ward that is known
    found += [(most + n, *row[1:joined], "north", *row[joined + 1 :]) for n, row in enumerate(found)]
    most *= 2
    for number in range(20):
        mixed = {name: rng.choice((HOSTILE if rng.random() < 0.5 else VALUES)[name]) for name in COLUMNS}
        mixed["ward"] = rng.choice(("north", "south", "attic"))
        found.append((most + number, 1 + number % 3, *mixed.values()))
    return found


class Worlds:
    """The same tables with several sets of rows, each in a database of its own."""

    KINDS = ("empty", "tame", "hostile", "huge")

    def __init__(self, dsns: Sequence[str], stack: ExitStack) -> None:
        self.servers: dict[str, Server] = {}
        for kind, dsn in zip(self.KINDS, dsns, strict=True):
            connection = stack.enter_context(psycopg.connect(dsn, autocommit=True))
            connection.execute("SET TIME ZONE 'Europe/Berlin'; SET jit = off")
            connection.execute("SET default_transaction_read_only = on; SET statement_timeout = '20s'")
            connection.prepare_threshold = None
            self.servers[kind] = Server(connection)

    def run(self, kind: str, generated: Generated) -> str:
        """What came of a statement: nothing, or an SQLSTATE."""
        server = self.servers[kind]
        try:
            server.raw.execute(generated.sql.encode(), generated.parameters, binary=True).fetchall()
        except psycopg.Error as error:
            return error.sqlstate or type(error).__name__
        except (ValueError, OverflowError, TypeError) as error:  # of psycopg, which reads the rows
            return type(error).__name__
        return ""

    def generic(self, on: bool) -> None:
        for server in self.servers.values():
            server.connection.execute(f"SET plan_cache_mode = {'force_generic_plan' if on else 'auto'}")

    def took(self, generated: Generated) -> float:
        """How much longer the huge row takes than none, in milliseconds: least times, more of them where in doubt."""
        least = {"huge": float("inf"), "empty": float("inf")}
        for attempt in range(40):
            for kind in least:
                told = (
                    self.servers[kind]
                    .raw.execute(
                        f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {generated.sql}".encode(), generated.parameters
                    )
                    .fetchone()
                )
                assert told is not None
                least[kind] = min(least[kind], told[0][0]["Execution Time"])
            if attempt >= 2 and least["huge"] - least["empty"] < ROW_MILLISECONDS / 5:
                break
        return least["huge"] - least["empty"]


def build(dsn: str, kind: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(SCHEMA)
        cursor.executemany("INSERT INTO account VALUES (%s, %s, %s)", [(1, 1, "f"), (2, 2, "m"), (3, None, "m")])
        cursor.executemany(f"INSERT INTO stay VALUES (%s, %s{', %s' * len(COLUMNS)})", rows_of(kind))
        cursor.execute("VACUUM ANALYZE")


# -- texts ------------------------------------------------------------------------------------------------------------


def directed() -> list[Text]:
    """Every template with every constant, columns and registries in turn; constants as text and as parameters."""
    columns, texts = itertools.cycle(NUMERIC_COLUMNS), itertools.cycle(TEXT_COLUMNS)
    catalogs = itertools.cycle((BY_ROW, BY_ACCOUNT))
    found = [Text(sql, catalog=next(catalogs)) for sql in SIZED]
    for template, constant in itertools.product(ARITHMETIC, NUMBERS):
        written = template.format(f=FROM, x=next(columns), c=constant)
        found.append(Text(written, catalog=next(catalogs)))
    kinds = itertools.cycle(("numeric", "unknown", "double precision", "integer", "bigint", "real"))
    for template, constant in itertools.product(ARITHMETIC, (*NUMBERS, *NOT_FINITE)):
        written = template.format(f=FROM, x=next(columns), c="$1")
        found.append(Text(written, (Literal(constant, next(kinds)),), next(catalogs)))
    for template, pattern in itertools.product(TEXTS, PATTERNS):
        for _ in range(2):
            found.append(Text(template.format(f=FROM, t=next(texts), p=pattern), catalog=next(catalogs)))
        sent = template.replace("'{p}'", "$1").format(f=FROM, t=next(texts))
        kind = "text" if len(pattern) % 2 else "unknown"
        found.append(Text(sent, (Literal(pattern + "\\" * (len(pattern) % 3), kind),), next(catalogs)))
    for template, whole, interval in itertools.product(MOMENTS, WHOLE, INTERVALS):
        if "{i}" in template or interval == INTERVALS[0]:
            found.append(Text(template.format(w=whole, i=interval), catalog=next(catalogs)))
    return found


class HostileWriter:
    """Random questions whose constants, patterns and lengths are of all sizes; some of them are parameters.

    Only what is chosen is written out: a grammar that writes every choice first takes longer than the check.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.parameters: list[Literal] = []
        self.joined = False

    def of(self, *choices: Callable[[], str]) -> str:
        return self.rng.choice(choices)()

    def parameter(self, text: str | None, type_name: str) -> str:
        self.parameters.append(Literal(text, type_name))
        return f"${len(self.parameters)}"

    def constant(self) -> str:
        odds = self.rng.random()
        text = self.rng.choice(NUMBERS if odds < 0.3 else TAME)
        if odds < 0.02:
            text = self.rng.choice(NOT_FINITE)
        if odds < 0.02 or self.rng.random() < 0.2:
            return self.parameter(
                text, self.rng.choice(("numeric", "unknown", "double precision", "integer", "bigint"))
            )
        return text

    def column(self) -> str:
        return self.rng.choice(NUMERIC_COLUMNS if self.joined else NUMERIC_COLUMNS[:-1])

    def number(self, depth: int = 0) -> str:
        if depth > 2 or self.rng.random() < 0.35:
            return self.column()
        e, c = lambda: self.number(depth + 1), self.constant
        return self.of(
            lambda: f"({e()} {self.rng.choice('+-*')} {e()})", lambda: f"({e()} {self.rng.choice('+-*/%')} {c()})",
            lambda: f"({c()} {self.rng.choice('+-*')} {e()})", lambda: f"-({e()})", lambda: f"abs({e()})",
            lambda: f"round(({e()})::numeric, {self.rng.choice(('2', '0', '-3', '30', '31', c()))})",
            lambda: f"{self.rng.choice(('round', 'trunc', 'floor', 'ceil'))}({e()})",
            lambda: f"coalesce({e()}, {c()})", lambda: f"coalesce({e()}, {e()})",
            lambda: f"({e()})::{self.rng.choice(('int', 'bigint', 'smallint', 'numeric', 'float8', 'real'))}",
            lambda: f"CASE WHEN {self.condition(depth + 1)} THEN {e()} ELSE {c()} END",
            lambda: f"CASE WHEN {self.condition(depth + 1)} THEN {c()} WHEN {self.condition(depth + 1)} THEN {e()} END",
            lambda: f"extract({self.rng.choice(FIELDS)} FROM {self.moment(depth + 1)})",
            lambda: f"date_part('{self.rng.choice(FIELDS)}', {self.moment(depth + 1)})",
            lambda: f"length({self.text(depth + 1)})", lambda: "(day - day)", lambda: "paid::int",
            lambda: f"width_bucket({e()}, {c()}, {c()}, {self.rng.choice(('5', c()))})",
        )  # fmt: skip

    def text(self, depth: int = 0) -> str:
        if depth > 2 or self.rng.random() < 0.5:
            return self.rng.choice(TEXT_COLUMNS if self.joined else TEXT_COLUMNS[:-2])
        t = lambda: self.text(depth + 1)  # noqa: E731
        return self.of(
            lambda: f"lower({t()})", lambda: f"upper({t()})", lambda: f"coalesce({t()}, {self.string()})",
            lambda: f"left({t()}, {self.rng.choice(('2', '300', '10000', self.constant()))})", lambda: f"{t()}::text",
            lambda: f"CASE WHEN {self.condition(depth + 1)} THEN {t()} ELSE {self.string()} END",
            lambda: f"({self.number(depth + 1)})::text", lambda: f"({self.moment(depth + 1)})::text",
        )  # fmt: skip

    def string(self) -> str:
        text = self.rng.choice(("", "a", "north", "x" * 255, "y" * 256, "z" * 1001, *PATTERNS[:12]))
        return self.parameter(text, "text") if self.rng.random() < 0.2 else f"'{text}'"

    def moment(self, depth: int = 0) -> str:
        if depth > 2 or self.rng.random() < 0.5:
            return self.rng.choice(("day", "day", "at", "till"))
        m = lambda: self.moment(depth + 1)  # noqa: E731
        return self.of(
            lambda: f"date_trunc('{self.rng.choice(UNITS)}', {m()})", lambda: f"day - {self.rng.choice(WHOLE)}",
            lambda: f"{m()} {self.rng.choice('+-')} INTERVAL '{self.rng.choice(INTERVALS)}'", lambda: f"{m()}::date",
            lambda: f"day + {self.rng.choice(WHOLE)}", lambda: f"{m()}::timestamptz", lambda: f"coalesce({m()}, {m()})",
            lambda: f"CASE WHEN {self.condition(depth + 1)} THEN {m()} END",
        )  # fmt: skip

    def condition(self, depth: int = 0) -> str:
        c, e, t = lambda: self.condition(depth + 1), lambda: self.number(depth + 1), lambda: self.text(depth + 1)
        op = self.rng.choice(("<", "<=", "=", "<>", ">", ">="))
        if depth < 3 and self.rng.random() < 0.2:
            return self.of(
                lambda: f"({c()} AND {c()})", lambda: f"({c()} OR {c()})", lambda: f"NOT ({c()})",
                lambda: f"({c()}) IS TRUE",
            )  # fmt: skip
        return self.of(
            lambda: f"{e()} {op} {self.constant()}", lambda: f"{e()} {op} {self.constant()}",
            lambda: f"{self.constant()} {op} {e()}", lambda: f"{e()} {op} {e()}",
            lambda: f"{e()} IN ({', '.join(self.constant() for _ in range(self.rng.choice((1, 5, 20))))})",
            lambda: f"{e()} BETWEEN {self.constant()} AND {self.constant()}",
            lambda: f"{e()} IS DISTINCT FROM {self.constant()}", lambda: f"{e()} IS NOT NULL",
            lambda: f"{t()} {op} {self.string()}", lambda: f"{t()} {op} {t()}",
            lambda: f"{t()} IN ({', '.join(self.string() for _ in range(self.rng.choice((2, 12))))})",
            lambda: f"{t()} {self.rng.choice(('LIKE', 'NOT LIKE', 'ILIKE'))} {self.pattern()}",
            lambda: f"{self.moment(depth + 1)} {op} {self.moment(depth + 1)}",
            lambda: f"{self.moment(depth + 1)} {op} DATE '2024-03-31'",
            lambda: "paid", lambda: "span > INTERVAL '1 day'", lambda: "feeling >= 'sad'", lambda: "rate = 'NaN'",
        )  # fmt: skip

    def pattern(self) -> str:
        text = self.rng.choice(PATTERNS[:14] if self.rng.random() < 0.7 else PATTERNS)
        return self.parameter(text, "text") if self.rng.random() < 0.3 else f"'{text}'"

    def kept(self) -> str:
        return f" FILTER (WHERE {self.condition(1)})" if self.rng.random() < 0.3 else ""

    def aggregate(self) -> str:
        return self.of(
            lambda: "count(*)", lambda: f"count({self.number()})", lambda: f"count({self.text()})",
            lambda: f"sum({self.number()})", lambda: f"sum({self.number()})", lambda: f"avg({self.number()})",
            lambda: f"stddev({self.number(1)})", lambda: f"var_pop({self.number(1)})",
            lambda: "count(DISTINCT account)",
        ) + self.kept()  # fmt: skip

    def having(self) -> str:
        op, c = self.rng.choice(("<", "<=", ">", ">=")), self.constant
        atom = self.of(
            lambda: f"count(*){self.kept()} {op} {c()}", lambda: f"sum({self.number(1)}){self.kept()} {op} {c()}",
            lambda: f"avg({self.number(1)}) {op} {c()} AND count(*) > 5",
            lambda: f"sum({self.number(1)}) * {c()} {op} {c()} * {c()}",
            lambda: f"sum({self.number(1)}) - {c()} * count(*) {op} {c()}", lambda: f"sum(n) / count(*) {op} {c()}",
            lambda: f"percentile_cont(0.5) WITHIN GROUP (ORDER BY {self.number(1)}) {op} {c()} AND count(*) > 5",
        )  # fmt: skip
        return f"{atom} {self.rng.choice(('AND', 'OR'))} {self.having()}" if self.rng.random() < 0.2 else atom

    def question(self) -> str:
        """Tables, conditions, keys and aggregates."""
        odds = self.rng.random
        self.joined = odds() < 0.5
        tables = "stay" + (self.rng.choice((" JOIN ward USING (ward)", " LEFT JOIN ward USING (ward)")) * self.joined)
        if self.joined and odds() < 0.1:
            tables = f"stay JOIN ward ON stay.ward = ward.ward AND {self.condition(1)}"
        keys = list(dict.fromkeys(self.key() for _ in range(self.rng.choice((0, 0, 1, 1, 2)))))
        shown = [*keys, *(self.aggregate() for _ in range(self.rng.randint(1, 3)))]
        text = f"SELECT {', '.join(shown)} FROM {tables}"
        text += f" WHERE {self.condition()}" if odds() < 0.6 else ""
        listed = ", ".join(keys)
        if keys:
            text += f" GROUP BY {self.rng.choice((listed, listed, listed, f'ROLLUP ({listed})', f'CUBE ({listed})'))}"
        return text + (f" HAVING {self.having()}" if odds() < 0.3 else "")

    def key(self) -> str:
        return self.of(
            lambda: self.rng.choice(("kind", "day", "code", "paid", "span", "feeling", "n", "note", "wide", "whole")),
            lambda: self.text(1), lambda: self.number(1), lambda: self.moment(1),
        )  # fmt: skip

    def text_of(self, catalog: Catalog) -> Text:
        self.parameters = []
        return Text(self.question(), tuple(self.parameters), catalog)


# -- the check --------------------------------------------------------------------------------------------------------


def check(text: Text, worlds: Worlds, report: Report, timed: bool = False, filled: bool = False) -> None:
    """Read, generate and run one text on all sets of rows."""
    report.counts["texts"] += 1
    if len(text.sql) > 16_000:
        return report.counts.update(["longer than a statement may be"])
    try:
        asked = ask(text.sql, text.catalog, text.parameters, support=5)
    except Refusal as refusal:
        report.counts["refused"] += 1
        report.states[refusal.sqlstate] += 1
        report.counts["refused without a place"] += refusal.position is None
        return None
    except Exception as error:  # a refusal is the only way not to accept a text
        return report.fail(f"reading raised {error!r}", text)
    if not asked.question.measures:
        return report.counts.update(["decided by the text alone"])
    try:
        generated = generate(asked.question, SEED)
    except Exception as error:
        return report.fail(f"generating raised {error!r}", text)
    report.counts["accepted"] += 1
    outcomes = {kind: worlds.run(kind, generated) for kind in worlds.KINDS}
    if len(set(outcomes.values())) > 1:
        return report.fail(f"depends on rows {outcomes}", text)
    if outcomes["empty"]:
        report.counts["fails on every database"] += 1
        report.states[f"every database: {outcomes['empty']}"] += 1
        report.alike.append(f"{outcomes['empty']} {text.sql[:300]} {list(text.parameters)}"[:600])
        return None
    if timed:
        slow = worlds.took(generated)
        report.slow.append((slow, text.sql[:300]))
        report.counts["timed"] += 1
        if slow > ROW_MILLISECONDS:
            report.fail(f"the huge row takes {slow:.1f} ms", text)
    if filled:
        _fill(asked, worlds, text, report)
    return None


def _fill(asked: Asked, worlds: Worlds, text: Text, report: Report) -> None:
    """What Python does with the rows."""
    try:
        grid = worlds.servers["empty"].grid(asked.question)
    except Refusal:  # too many groups: found before anything is charged, from public things
        return
    report.counts["read into cells"] += 1
    for kind in ("hostile", "huge"):
        try:
            worlds.servers[kind].measured(asked.question, grid)
        except Exception as error:
            report.fail(f"cells on {kind} rows raised {error!r}", text)


def random_texts(seed: int, n: int) -> Iterator[Text]:
    rng = random.Random(seed)
    writer = HostileWriter(rng)
    for _ in range(n):
        yield writer.text_of(rng.choice((BY_ROW, BY_ACCOUNT, BY_OWNER)))


def survey(texts: Iterator[Text] | Sequence[Text], worlds: Worlds, timed: int = 0, filled: int = 0) -> Report:
    """Check texts; every so manieth is timed, and read into cells."""
    report = Report()
    for number, text in enumerate(texts):
        check(text, worlds, report, bool(timed) and number % timed == 0, bool(filled) and number % filled == 0)
    return report


def _work(job: tuple[int, int, list[str], bool]) -> Report:
    seed, n, dsns, generic = job
    with ExitStack() as stack:
        worlds = Worlds(dsns, stack)
        worlds.generic(generic)
        return survey(random_texts(seed, n), worlds, timed=200, filled=50)


def main() -> None:
    from proxy.embedded import temporary

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--random", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=20_261_118)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path)
    wanted = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    begun = time.time()
    with temporary({"fsync": "off"}) as cluster, ExitStack() as stack:
        dsns = []
        with psycopg.connect(cluster.dsn(), autocommit=True) as connection:
            for kind in Worlds.KINDS:
                connection.execute(f"CREATE DATABASE {kind}".encode())
                dsns.append(psycopg.conninfo.make_conninfo(cluster.dsn(), dbname=kind))
                build(dsns[-1], kind)
        texts = directed()
        worlds = Worlds(dsns, stack)
        plain = survey(texts, worlds, timed=1, filled=10)
        sys.stdout.write(f"directed: {plain.counts} {plain.failures[:20]}\n")
        accepted = [text for text in SIZED if not refused(Text(text))]
        pieces = max(1, wanted.random // 2500)
        jobs = [(wanted.seed + n, wanted.random // pieces, dsns, n % 4 == 3) for n in range(pieces)]
        drawn = Report()
        with multiprocessing.get_context("spawn").Pool(wanted.processes) as pool:
            for done, each in enumerate(pool.imap_unordered(_work, jobs), 1):
                drawn.add(each)
                sys.stdout.write(f"{done}: {drawn.counts} {drawn.failures[:5]} {time.time() - begun:.0f} s\n")
                sys.stdout.flush()
    n = plain.counts["texts"] + drawn.counts["texts"]
    failed = len(plain.failures) + len(drawn.failures) + len(accepted)
    result = {
        "commit": commit,
        "seed": wanted.seed,
        "n": n,
        "duration_seconds": round(time.time() - begun),
        "rows": {kind: len(rows_of(kind)) for kind in Worlds.KINDS},
        "failed": failed,
        "bound_99_9_percent": 6.9 / n if not failed else None,
        "directed": _told(plain),
        "random": _told(drawn),
        "sized_texts_accepted": accepted,
    }
    if wanted.out is not None:
        wanted.out.parent.mkdir(parents=True, exist_ok=True)
        wanted.out.write_text(json.dumps(result, indent=2) + "\n")
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    sys.exit(bool(failed))


def refused(text: Text) -> bool:
    try:
        ask(text.sql, text.catalog, text.parameters)
    except Refusal as refusal:
        return refusal.position is not None
    return False


def _told(report: Report) -> dict[str, object]:
    return {
        **dict(sorted(report.counts.items())),
        "sqlstates": dict(sorted(report.states.items())),
        "slowest_rows_ms": [(round(slow, 2), text) for slow, text in sorted(report.slow, reverse=True)[:5]],
        "failures": report.failures[:50],
    }


if __name__ == "__main__":
    main()
