"""Whole texts of questions against one small database: how a text becomes what is measured, and random texts.

``stay`` is read under four registries: each row a unit, each account a person, and each owner of accounts (reached by
a foreign key) a person, where the question joins accounts or, by a declared path, in every question.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import psycopg

from sqlrewrite.blocks import outline
from sqlrewrite.canonical import canonical
from sqlrewrite.catalog import Attribute, Catalog, Kind, Reference, Relation, UnitPath
from sqlrewrite.cells import Cells, cells, key_text, split
from sqlrewrite.cut import Cut, cut
from sqlrewrite.domain import domain_query, is_open
from sqlrewrite.finish import finish, released
from sqlrewrite.folding import columns, questions
from sqlrewrite.generate import generate
from sqlrewrite.normal import fingerprint
from sqlrewrite.question import Literal, Question
from sqlrewrite.read import read
from sqlrewrite.sensitivity import declared

SEED = 20250131
WARDS = ("north", "south", "attic")
DAYS = tuple(date(2024, 3, 29) + timedelta(days=day) for day in range(5))

SCHEMA = """
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TABLE ward (ward text PRIMARY KEY, zone text COLLATE "POSIX", beds int NOT NULL, label varchar UNIQUE);
INSERT INTO ward VALUES ('north', 'up', 20, 'A'), ('south', NULL, 5, 'A '), ('attic', 'up', 1, 'B1');
CREATE TABLE account (id int PRIMARY KEY, owner bigint, sex text NOT NULL);
CREATE TABLE stay (
  id int PRIMARY KEY, account int REFERENCES account, ward text, kind text NOT NULL COLLATE "C", day date, at timestamp,
  till timestamptz, cost numeric(8,2), wide numeric, whole numeric NOT NULL, rate double precision, fine real,
  small smallint, n int NOT NULL, big bigint, note text, code char(4), paid boolean, span interval, feeling mood,
  shape box, low int NOT NULL CHECK (low >= 0 AND low <= 9));
"""

VALUES: dict[str, list[Any]] = {
    "ward": [*WARDS, None], "kind": ["a", "b", "C"], "day": [*DAYS, None],
    "at": ["2024-03-30 23:59:59", "2024-04-01 08:30", None],
    "till": ["2024-03-31 00:30+00", "2024-04-02 01:00+00", None],
    "cost": ["0", "0.01", "19.99", "500", None], "wide": ["5", "7.25", "10", None], "whole": ["5", "7.5", "10"],
    "rate": [-1.0, -0.1, 0.3, 1.0, None], "fine": [0.5, 2.0, None], "small": [-5, 0, 5, None], "n": [1, 2, 10],
    "big": [0, 7, 1_000_000, None], "note": ["", "x", "Note 7", None], "code": ["A", "B1", None],
    "paid": [True, False, None], "span": ["1 day", "2 days", None], "feeling": ["sad", "happy", None],
    "shape": [None], "low": [0, 9],
}  # fmt: skip
HOSTILE: dict[str, list[Any]] = {
    "ward": ["", "undeclared", "NORTH"], "kind": ["", "\\", "%"],
    "day": ["infinity", "-infinity", "0044-03-15 BC", "4714-11-24 BC", "5874897-12-31", "9999-12-31", "0001-01-01"],
    "at": ["infinity", "-infinity", "4714-11-24 BC", "294276-12-31 23:59:59.999999", "9999-12-31 23:59:59.999999"],
    "till": ["infinity", "-infinity", "4714-11-24 00:00+00 BC", "294276-12-31 23:00+00", "0001-01-01 00:00+00"],
    "cost": ["NaN", "-999999.99", "999999.99"],
    "wide": ["NaN", "Infinity", "-Infinity", "1e131000", "-1e131000", "1e-16000", "1e30", "7.250000",
             "0." + "7" * 9000],
    "whole": ["NaN", "Infinity", "-Infinity", "1e131000", "-1e131000", "1e30", "-1e19", "5.000"],
    "rate": ["NaN", "Infinity", "-Infinity", "1e308", "-1e308", "5e-324", "-0"],
    "fine": ["NaN", "Infinity", "-Infinity", "3e38", "1e-45"],
    "small": [-(2**15), 2**15 - 1], "n": [-(2**31), 2**31 - 1], "big": [-(2**63), 2**63 - 1],
    "note": ["\\", "%", "x" * 3000, "y" * 300_000, "ſ\u0130ß", "'"], "code": ["", "ZZZZ"], "paid": [None],
    "span": ["24:00:00", "-178000000 years", "178000000 years", "1 mon -30 days"], "feeling": [None],
    "shape": ["((0,0),(1e200,1e200))"], "low": [3],
}  # fmt: skip
COLUMNS = tuple(VALUES)


def _attribute(
    name: str, type_name: str, not_null: bool = False, domain: Sequence[Any] | None = None, ends: str | None = None,
    **more: bool,
) -> Attribute:  # fmt: skip
    lower, upper = (None, None) if ends is None else map(Decimal, ends.split())
    return Attribute(name, type_name, not_null, None if domain is None else tuple(domain), lower, upper, **more)


STAY = Relation(
    1, "public", "stay", Kind.PROTECTED,
    {
        a.name: a
        for a in (
            _attribute("id", "integer", True), _attribute("account", "integer"),
            _attribute("ward", "text", False, WARDS), _attribute("kind", "text", True, ("a", "b")),
            _attribute("day", "date", False, DAYS), _attribute("at", "timestamp without time zone"),
            _attribute("till", "timestamp with time zone"), _attribute("cost", "numeric(8,2)", ends="0 500"),
            _attribute("wide", "numeric", ends="5 10"), _attribute("whole", "numeric", True, ends="5 10"),
            _attribute("rate", "double precision", ends="-1 1"), _attribute("fine", "real", ends="0 2"),
            _attribute("small", "smallint", ends="-5 5"), _attribute("n", "integer", True, ends="1 10"),
            _attribute("big", "bigint", ends="0 1000000"), _attribute("note", "text"),
            _attribute("code", "character(4)", False, ("A", "B1")), _attribute("paid", "boolean", False, (False, True)),
            _attribute("span", "interval", False, ("1 day", "2 days")),
            _attribute("feeling", "public.mood", False, ("sad", "happy")), _attribute("shape", "box"),
            _attribute("low", "integer", True, ends="0 9", checked=True),
        )
    },
    unique=frozenset({("id",)}),
    references=(Reference(("account",), "public", "account", ("id",)),),
)  # fmt: skip
ACCOUNT = Relation(
    2, "public", "account", Kind.PROTECTED,
    {
        a.name: a
        for a in (
            _attribute("id", "integer", True), _attribute("owner", "bigint"),
            _attribute("sex", "text", True, ("f", "m"), constant_per_unit=True),
        )
    },
    unique=frozenset({("id",)}),
)  # fmt: skip
WARD = Relation(
    3, "public", "ward", Kind.PUBLIC,
    {
        a.name: a
        for a in (
            _attribute("ward", "text", True), _attribute("zone", "text"),
            _attribute("beds", "integer", True, ends="0 50"), _attribute("label", "character varying"),
        )
    },
    unique=frozenset({("ward",), ("label",)}),
)  # fmt: skip

BY_ROW = Catalog(1, (STAY, ACCOUNT, WARD))
BY_ACCOUNT = Catalog(1, (replace(STAY, unit_column="account", max_groups=2, max_rows=3), ACCOUNT, WARD))
BY_OWNER = Catalog(1, (STAY, replace(ACCOUNT, unit_column="owner", max_groups=3, max_rows=2), WARD))
TO_OWNER = UnitPath(STAY.references, ("owner",))
BY_PATH = Catalog(1, (replace(STAY, unit_path=TO_OWNER, max_groups=2, max_rows=3), *BY_OWNER.relations[1:]))


@dataclass(frozen=True)
class Asked:
    """A text as it is measured, and how it is finished."""

    question: Question
    cut: Cut
    digest: str
    finishing: str


def ask(text: str, catalog: Catalog = BY_ROW, parameters: Sequence[Literal] = (), support: int | None = None) -> Asked:
    """The one question of a text, by the same steps as the proxy's."""

    def resolve(schema: str | None, name: str) -> Relation | None:
        return catalog.by_name.get((schema or "public", name))

    protected = {(r.schema, r.name) for r in catalog.protected}
    blocks = questions(outline(text), lambda name: (name[0] or "public", name[1]) in protected)
    (block,) = blocks
    tables = columns(outline(text), block, lambda name: frozenset(resolve(*name).attributes))  # type: ignore[union-attr]
    taken = cut(text, block, tables)
    found = read(taken.clauses, catalog, resolve, parameters, support)
    keys = tuple(replace(key, open=is_open(key.expression, found.sources)) for key in found.keys)
    found = replace(found, keys=keys)
    printed = fingerprint(found)
    question, places = canonical(found, printed)
    return Asked(question, taken, printed.digest, finish(text, [released(question, taken, places)], len(parameters)))


Measured = Mapping[tuple[Any, ...], tuple[int, ...]]


class Server:
    """A real server that plays both the protected database and the shadow."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self.connection = connection
        self.raw = psycopg.RawCursor(connection)

    def reads(self, text: str) -> bool:
        """Whether PostgreSQL itself accepts a text, as the shadow is asked first."""
        try:
            with self.connection.transaction(force_rollback=True):
                self.raw.execute(f"EXPLAIN {text}".encode())
        except psycopg.Error:
            return False
        return True

    def grid(self, question: Question) -> Cells | None:
        if any(key.open for key in question.keys):
            return None
        wanted = domain_query(question)
        listed = None if wanted is None else self.raw.execute(wanted.sql.encode(), wanted.parameters).fetchall()
        return cells(question, listed)

    def rows(self, question: Question) -> list[tuple[Any, ...]]:
        generated = generate(question, SEED)
        with self.connection.transaction(force_rollback=True):
            self.connection.execute("SET LOCAL search_path = ''")
            return self.raw.execute(generated.sql.encode(), generated.parameters, binary=True).fetchall()

    def measured(self, question: Question, grid: Cells | None) -> Measured:
        """Statistics (and, of open keys, the number of units) by cell; cells without anything are left out."""
        rows = self.rows(question)
        if grid is not None:
            values = grid.fill(rows).astype(object)
            groups = [(int(cell),) for cell in np.flatnonzero(values.any(axis=0))]
            columns = [values[:, cell[0]].tolist() for cell in groups]
            present: list[int] = [0] * len(groups)
        else:
            types = [key.expression.type_name for key in question.keys]
            told = list(zip(*rows, strict=True)) or [()] * (len(types) + len(question.measures) + 2)
            marks, keys, numbers = split(types, question.sets, told)
            texts = [[key_text(value) for value in column] for column in keys]
            mark = [0] * len(rows) if marks is None else marks.tolist()
            groups = list(zip(mark, *texts, strict=True))
            columns = [[int(number[at]) for number in numbers] for at in range(len(rows))]
            place = generate(question, SEED).presence
            assert place is not None
            present = [column[place] for column in columns]
            groups = [group if self._inside(question, group[1:]) else None for group in groups]  # type: ignore[misc]
        return {
            group: (*(sum(c * column[m] for m, c in s.terms) for s in question.statistics), units)
            for group, column, units in zip(groups, columns, present, strict=True)
            if group is not None
        }

    def _inside(self, question: Question, texts: Sequence[str | None]) -> bool:
        """Groups outside the domain of a declared key are dropped; a key that is rolled up reads as NULL."""
        known = [declared(question.sources, key.expression) for key in question.keys]
        return all(
            a is None or t is None or t in {key_text(value) for value in a.domain or ()}
            for a, t in zip(known, texts, strict=True)
        )

    def fill(self, rng: random.Random, rows: int, hostile: float) -> None:
        self.connection.execute("TRUNCATE stay, account")
        accounts = [(i, rng.choice([1, 1, 2, 3, None])) for i in range(1, 9)]
        sexes = {owner: rng.choice("fm") for owner in (1, 2, 3, None)}
        made = [
            (
                n,
                rng.choice([1, 1, 1, 2, *range(1, 9), None]),
                *(rng.choice((HOSTILE if rng.random() < hostile else VALUES)[name]) for name in COLUMNS),
            )
            for n in range(rows)
        ]
        with self.connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO account VALUES (%s, %s, %s)", [(i, owner, sexes[owner]) for i, owner in accounts]
            )
            cursor.executemany(f"INSERT INTO stay VALUES (%s, %s{', %s' * len(COLUMNS)})", made)


# -- random texts -----------------------------------------------------------------------------------------------------


class Writer:
    """Writes questions as an analyst would; PostgreSQL and the reader then say which of them are any."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def pick(self, *choices: str) -> str:
        return self.rng.choice(choices)

    def constant(self) -> str:
        return self.pick("0", "1", "-1", "3", "7", "0.5", "7.25", "19.99", "100", "2147483648", "1e20", "-1e-30")

    def number(self, depth: int = 0) -> str:
        if depth > 2 or self.rng.random() < 0.35:
            return self.pick("cost", "wide", "whole", "whole", "rate", "fine", "small", "n", "n", "big", "low", "beds")
        e, f, c = self.number(depth + 1), self.number(depth + 1), self.constant()
        return self.pick(
            f"({e} + {f})", f"({e} - {f})", f"({e} * {f})", f"{e} * {c}", f"({e} - {c})", f"{e} / {c}", f"{e} % {c}",
            f"{e} / 7", f"-({e})", f"abs({e})", f"round({e})", f"round(({e})::numeric, {self.rng.randint(-3, 3)})",
            f"trunc({e})", f"floor({e})", f"ceil({e})", f"coalesce({e}, {c})", f"coalesce({e}, {f})", f"({e})::int",
            f"({e})::bigint", f"({e})::bigint", f"({e})::numeric", f"({e})::smallint", f"({e})::float8", f"({e})::real",
            f"CASE WHEN {self.condition(depth + 1)} THEN {e} ELSE {f} END",
            f"CASE WHEN {self.condition(depth + 1)} THEN 1 ELSE 0 END",
            f"extract({self.field()} FROM {self.moment(depth + 1)})", f"length({self.text(depth + 1)})",
            f"width_bucket({e}, 0, {self.pick('10', '7.5', '-3')}, {self.rng.randint(1, 5)})", "(day - day)",
            f"date_part('{self.field()}', {self.moment(depth + 1)})", "paid::int",
        )  # fmt: skip

    def field(self) -> str:
        return self.pick("year", "month", "day", "dow", "isodow", "doy", "week", "quarter", "hour", "decade", "epoch")

    def text(self, depth: int = 0) -> str:
        if depth > 2 or self.rng.random() < 0.5:
            return self.pick("stay.ward", "kind", "note", "code", "zone", "label")
        t, u = self.text(depth + 1), self.text(depth + 1)
        return self.pick(
            f"lower({t})", f"upper({t})", f"left({t}, 2)", f"coalesce({t}, {u})", f"coalesce({t}, 'none')",
            f"{t}::text",
            f"CASE WHEN {self.condition(depth + 1)} THEN {t} ELSE {u} END", "day::text", "n::text", "whole::text",
            f"CASE WHEN {self.condition(depth + 1)} THEN 'yes' ELSE 'no' END", "till::date::text", "paid::text",
        )  # fmt: skip

    def moment(self, depth: int = 0) -> str:
        if depth > 2 or self.rng.random() < 0.5:
            return self.pick("day", "day", "at", "till")
        m = self.moment(depth + 1)
        unit = self.pick("hour", "day", "week", "month", "quarter", "year", "decade", "millennium")
        return self.pick(
            f"date_trunc('{unit}', {m})", f"{m} + INTERVAL '{self.pick('1 month', '3 days', '2000 years', '5 hours')}'",
            f"{m} - INTERVAL '1 year'", f"{m}::date", f"{m}::timestamp", f"{m}::timestamptz", "day + 7", "day - 400000",
            f"CASE WHEN {self.condition(depth + 1)} THEN {m} END", f"coalesce({m}, {m})",
        )  # fmt: skip

    def condition(self, depth: int = 0) -> str:
        if depth < 3 and self.rng.random() < 0.3:
            a, b = self.condition(depth + 1), self.condition(depth + 1)
            return self.pick(f"({a} AND {b})", f"({a} OR {b})", f"NOT ({a})", f"({a}) IS TRUE", f"({a}) IS NOT FALSE")
        e, f, t, u, m = (self.number(depth), self.number(depth), self.text(depth), self.text(depth), self.moment(depth))
        op = self.pick("<", "<=", "=", "<>", ">", ">=")
        return self.pick(
            f"{e} {op} {self.constant()}", f"{e} {op} {f}", f"{e} IN (1, 2.5, -3)", f"{e} BETWEEN 0 AND 9",
            f"{t} {op} '{self.pick('', 'a', 'north', 'Z')}'", f"{t} {op} {u}", f"{t} IN ('a', 'north', 'A')",
            f"{t} LIKE '{self.pick('%', 'n%', '_', '', '%a%b', 'x' * 40)}'", f"{t} NOT ILIKE '%O%'", f"{t} IS NOT NULL",
            f"{m} {op} DATE '2024-03-31'", f"{m} {op} TIMESTAMP '2024-03-31 12:00'", f"{m} {op} {self.moment(depth)}",
            f"{m} IS NULL", f"{e} IS NULL", "paid", "NOT paid", "span > INTERVAL '1 day'", "span = '24:00:00'",
            "feeling = 'sad'", "feeling >= 'sad'", f"stay.ward {op} kind", "wide IS DISTINCT FROM 7", "rate = 'NaN'",
        )  # fmt: skip

    def aggregate(self) -> str:
        e = self.number()
        kept = f" FILTER (WHERE {self.condition(1)})" if self.rng.random() < 0.3 else ""
        unit = self.pick("stay.account", "account.owner", "stay.id")
        shape = self.pick(
            "count(*)", f"count({e})", f"count({self.text()})", f"sum({e})", f"sum({e})", f"avg({e})", f"stddev({e})",
            f"var_pop({e})", f"count(DISTINCT {unit})",
        )  # fmt: skip
        return shape + kept

    def having(self) -> str:
        e, kept = self.number(), f" FILTER (WHERE {self.condition(1)})" if self.rng.random() < 0.3 else ""
        c, op = self.constant(), self.pick("<", "<=", ">", ">=")
        atom = self.pick(
            f"count(*){kept} {op} {c}", f"sum({e}){kept} {op} {c}", f"avg({e}){kept} {op} {c}",
            f"avg({self.pick('whole', 'n', 'low')}::bigint){kept} {op} 7",
            f"sum({e}){kept} - 3 * count({e}) {op} {c}", f"sum({e}){kept} {op} sum({self.number()})",
            f"sum({e}) / count(*) {op} {c}", f"count(*){kept} * 1.0 / count(*) {op} 0.3", f"count({e}) {op} beds",
            f"percentile_cont(0.{self.rng.randint(1, 9)}) WITHIN GROUP (ORDER BY {e}){kept} {op} {c}",
        )  # fmt: skip
        if self.rng.random() < 0.3:
            return f"{atom} {self.pick('AND', 'OR')} {self.having()}"
        return atom

    def key(self) -> str:
        return self.pick(
            "stay.ward", "kind", "day", "code", "paid", "span", "feeling", "zone", "beds", "sex", "n", "note", "wide",
            self.text(1), self.number(1), self.moment(1), self.text(1),
        )  # fmt: skip

    def question(self) -> str:
        tables = "stay"
        if self.rng.random() < 0.6:
            tables += self.pick(" JOIN", " LEFT JOIN") + self.pick(
                " ward ON stay.ward = ward.ward", " ward USING (ward)"
            )
        if self.rng.random() < 0.6:
            tables += self.pick(" JOIN", " LEFT JOIN") + " account ON stay.account = account.id"
        keys = list(dict.fromkeys(self.key() for _ in range(self.rng.choice([0, 1, 1, 1, 2, 2]))))
        shown = [*keys, *(self.aggregate() for _ in range(self.rng.randint(1, 3)))]
        text = f"SELECT {', '.join(shown)} FROM {tables}"
        if self.rng.random() < 0.5:
            text += f" WHERE {self.condition()}"
        if keys:
            listed = ", ".join(keys)
            text += " GROUP BY " + self.pick(
                listed,
                listed,
                listed,
                listed,
                f"ROLLUP ({listed})",
                f"CUBE ({listed})",
                f"GROUPING SETS (({listed}), ())",
            )
        if self.rng.random() < 0.4:
            text += f" HAVING {self.having()}"
        return text
