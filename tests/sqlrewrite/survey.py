"""Random typed questions over three small tables, and their plain SQL as an independent renderer writes it.

``visit`` is protected, ``member`` (protected, reached by a foreign key) holds the person, ``town`` is public.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import psycopg
import pytest

from sqlrewrite.catalog import Attribute, Kind, Relation
from sqlrewrite.cells import Cells, cells
from sqlrewrite.constant import base_type
from sqlrewrite.domain import domain_query, is_open
from sqlrewrite.generate import generate
from sqlrewrite.interval import interval, squares
from sqlrewrite.question import (
    AllOf,
    Among,
    AnyOf,
    Call,
    Case,
    Cast,
    ColumnRef,
    Compare,
    Comparison,
    Expression,
    GroupKey,
    IsNull,
    Like,
    Literal,
    Measure,
    MeasureKind,
    Not,
    Predicate,
    Question,
    Source,
    Statistic,
    Unit,
)  # fmt: skip
from sqlrewrite.sensitivity import lattice_bounds

SEED = 20240229
SCHEMA = """
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TABLE member (member_id integer PRIMARY KEY, person bigint, sex text NOT NULL, "Born In" integer);
CREATE TABLE town (name text PRIMARY KEY, zone text, capacity integer NOT NULL);
CREATE TABLE visit (
  visit_id integer NOT NULL, member_id integer, town text NOT NULL, day date, feeling mood, ward character(4),
  paid boolean, score integer, rank smallint NOT NULL, stock bigint, cost numeric(6,2), rate double precision,
  load numeric, note text,
  seen timestamp without time zone, till timestamp with time zone);
INSERT INTO town VALUES ('Ulm', 'south', 10), ('Bonn', 'west', 5), ('Kiel', 'north', 7), ('Jena', NULL, 3);
"""
DAYS = tuple(date(2024, 1, 29) + timedelta(days=day) for day in range(6))
TOWNS = ("Ulm", "Bonn", "Kiel", "Jena")

VALUES: dict[str, list[object]] = {
    "town": [*TOWNS],
    "day": [*DAYS, None],
    "feeling": ["sad", "ok", "happy", None],
    "ward": ["A", "B1", None],
    "paid": [True, False, None],
    "score": [-5, -1, 0, 3, 10, None],
    "rank": [1, 2, 3, 4],
    "stock": [0, 7, 5_000_000_000, None],
    "cost": ["0", "0.01", "19.99", "50.00", None],
    "rate": [-1.0, -0.1, 0.3, 1.0, None],
    "load": ["0", "0.123456789", "7.25", "10", None],
    "note": ["", "n", "it's", "Note 7", None],
    "seen": ["2024-01-29 23:59:59", "2024-02-01 08:30:00", None],
    "till": ["2024-01-31 12:00:00+00", "2024-02-02 01:00:00+00", None],
}
HOSTILE: dict[str, list[object]] = {
    "town": ["undeclared", ""],
    "day": ["infinity", "-infinity", "0044-03-15 BC", "5874897-12-31", "9999-12-31"],
    "feeling": [None],
    "ward": ["", "ZZZZ"],
    "paid": [None],
    "score": [-(2**31), 2**31 - 1],
    "rank": [-(2**15), 2**15 - 1],
    "stock": [-(2**63), 2**63 - 1],
    "cost": ["NaN", "-9999.99", "9999.99"],
    "rate": ["NaN", "Infinity", "-Infinity", "1e308", "-1e-308"],
    "load": ["NaN", "Infinity", "-Infinity", "1e131000", "-1e131000", "1e-16000"],
    "note": ["", "\\", "%", "x" * 1000],
    "seen": ["infinity", "-infinity", "4714-11-24 BC", "294276-12-31 23:59:59"],
    "till": ["infinity", "-infinity", "4713-01-01 BC", "294276-12-31 00:00:00+00"],
}


def _relation(id_: int, name: str, kind: Kind, *attributes: Attribute) -> Relation:
    return Relation(id_, "public", name, kind, {a.name: a for a in attributes})


def _number(name: str, type_name: str, low: str, high: str, not_null: bool = False) -> Attribute:
    return Attribute(name, type_name, not_null, lower=Decimal(low), upper=Decimal(high))


VISIT = _relation(
    1, "visit", Kind.PROTECTED,
    Attribute("visit_id", "integer", True), Attribute("member_id", "integer", False),
    Attribute("town", "text", True, TOWNS), Attribute("day", "date", False, DAYS),
    Attribute("feeling", "public.mood", False, ("sad", "ok", "happy")),
    Attribute("ward", "character(4)", False, ("A", "B1")),
    Attribute("paid", "boolean", False, (False, True)),
    _number("score", "integer", "-5", "10"), _number("rank", "smallint", "1", "4", True),
    _number("stock", "bigint", "0", "5000000000"), _number("cost", "numeric(6,2)", "0", "50"),
    _number("rate", "double precision", "-1", "1"), _number("load", "numeric", "0", "10"),
    Attribute("note", "text", False), Attribute("seen", "timestamp without time zone", False),
    Attribute("till", "timestamp with time zone", False),
)  # fmt: skip
MEMBER = _relation(
    2, "member", Kind.PROTECTED,
    Attribute("member_id", "integer", True), Attribute("person", "bigint", False),
    Attribute("sex", "text", True, ("F", "M"), constant_per_unit=True), _number("Born In", "integer", "1900", "2020"),
)  # fmt: skip
TOWN = _relation(
    3, "town", Kind.PUBLIC,
    Attribute("name", "text", True), Attribute("zone", "text", False), _number("capacity", "integer", "0", "100", True),
)  # fmt: skip


def column(source: int, name: str) -> ColumnRef:
    return ColumnRef(source, name, (VISIT, MEMBER, TOWN)[source].attributes[name].type_name)


SOURCES = (
    Source(VISIT),
    Source(MEMBER, ((column(0, "member_id"), "member_id"),)),
    Source(TOWN, ((column(0, "town"), "name"),)),
)
PERSON = (column(1, "person"),)


def whole(value: int) -> Literal:
    return Literal(str(value), "integer")


def text(value: str) -> Literal:
    return Literal(value, "text")


# -- random parts ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Maker:
    rng: random.Random

    def number(self, depth: int = 0) -> Expression:
        rng = self.rng
        leaf = rng.choice(("score", "rank", "cost", "rate", "load", "stock", "score", "cost"))
        match rng.randrange(14) if depth < 2 else 0:
            case 0 | 1 | 2 | 3:
                return column(0, leaf)
            case 4:
                kind = rng.choice("+-*")
                left, right = (column(0, rng.choice(("score", "rank", "cost"))) for _ in range(2))
                return Call(
                    kind, (left, right), "numeric" if "numeric" in left.type_name + right.type_name else "integer"
                )
            case 5:
                return Call(rng.choice("+-*"), (column(0, "cost"), Literal("1.5", "numeric")), "numeric")
            case 6:
                return Call(
                    rng.choice("/%"),
                    (column(0, rng.choice(("score", "rank"))), whole(rng.choice([2, 3, -4]))),
                    "integer",
                )
            case 7:
                inner = self.number(2)
                return Case(((self.predicate(2), inner),), Literal(None, inner.type_name), inner.type_name)
            case 8:
                inner = column(0, rng.choice(("score", "cost")))
                return Call("coalesce", (inner, Literal("1", base_type(inner.type_name))), base_type(inner.type_name))
            case 9:
                inner = column(0, rng.choice(("score", "cost", "stock")))
                return Call("abs", (inner,), base_type(inner.type_name))
            case 10:
                return Call("extract", (text(rng.choice(["month", "dow"])), column(0, "day")), "numeric")
            case 11:
                return Cast(column(0, rng.choice(("paid", "cost", "score"))), "integer")
            case 12:
                return Call("round", (column(0, "cost"), whole(1)), "numeric")
            case _:
                return Call("width_bucket", (column(0, "score"), whole(-5), whole(10), whole(4)), "integer")

    def key(self) -> Expression:
        rng = self.rng
        plain = [column(0, name) for name in ("town", "day", "feeling", "ward", "paid")]
        zone, sex = column(2, "zone"), column(1, "sex")
        derived: list[Expression] = [
            zone, sex,
            Call("date_trunc", (text("month"), column(0, "day")), "timestamp with time zone"),
            Call("extract", (text(rng.choice(["month", "dow"])), column(0, rng.choice(["day", "seen"]))), "numeric"),
            Call("width_bucket", (column(0, "load"), whole(0), whole(10), whole(4)), "integer"),
            Call("width_bucket", (column(0, "rate"), whole(-1), whole(1), whole(3)), "integer"),
            Call("/", (column(0, "score"), whole(4)), "integer"),
            Call("lower", (column(0, "town"),), "text"),
            Call("+", (column(0, "day"), whole(7)), "date"),
            Cast(column(0, "paid"), "integer"),
            Call("coalesce", (zone, text("none")), "text"),
            Case(((Compare(column(0, "cost"), Comparison.GT, Literal("10", "numeric")), text("dear")),
                  (IsNull(column(0, "cost")), Literal(None, "text"))), text("cheap"), "text"),
        ]  # fmt: skip
        return rng.choice(plain if rng.random() < 0.6 else derived)

    def predicate(self, depth: int = 0) -> Predicate:
        rng = self.rng
        match rng.randrange(11) if depth < 3 else rng.randrange(8):
            case 0:
                low = rng.choice([-1, 0, 3])
                return Compare(column(0, "score"), rng.choice(list(Comparison)), whole(low))
            case 1:
                return Compare(column(0, "cost"), rng.choice(list(Comparison)), Literal("19.99", "numeric"))
            case 2:
                return Among(column(0, "town"), (text("Bonn"), text("Ulm")))
            case 3:
                return Compare(
                    column(0, "day"), rng.choice([Comparison.GE, Comparison.LT]), Literal("2024-02-01", "date")
                )
            case 4:
                return IsNull(column(0, rng.choice(("day", "cost", "note"))))
            case 5:
                return Like(
                    column(0, rng.choice(("note", "town"))),
                    text(rng.choice(["%n%", "U_m", "it''%", ""])),
                    rng.random() < 0.5,
                )
            case 6:
                return Compare(column(0, "rate"), Comparison.GT, Literal("0", "double precision"))
            case 7:
                return Compare(column(0, "paid"), Comparison.EQ, Literal("true", "boolean"))
            case 8:
                return Not(self.predicate(depth + 1))
            case 9:
                return AllOf(tuple(self.predicate(depth + 1) for _ in range(2)))
            case _:
                return AnyOf(tuple(self.predicate(depth + 1) for _ in range(2)))

    def measure(self, person: bool) -> Measure:
        rng = self.rng
        kept = self.predicate(1) if rng.random() < 0.35 else None
        kind = rng.choice([MeasureKind.TOTAL] * 4 + list(MeasureKind))
        if kind is MeasureKind.ROWS or (kind is MeasureKind.UNITS and not person):
            return Measure(MeasureKind.ROWS, None, kept)
        if kind is MeasureKind.UNITS:
            return Measure(kind, None, kept)
        argument = self.number()
        if kind is MeasureKind.VALUES:
            return Measure(kind, argument, kept)
        known = (squares if kind is MeasureKind.SQUARES else interval)(argument, SOURCES)
        return Measure(kind, argument, kept, known.lower, known.upper, known.unit)

    def question(self, person: bool | None = None) -> Question:
        rng = self.rng
        person = rng.random() < 0.5 if person is None else person
        keys = list(dict.fromkeys(self.key() for _ in range(rng.choice([0, 1, 1, 2, 2, 3]))))
        sets: tuple[tuple[int, ...], ...] = (tuple(range(len(keys))),)
        if keys and rng.random() < 0.25:
            every = [tuple(k for k in range(len(keys)) if mask >> k & 1) for mask in range(2 ** len(keys))]
            sets = tuple(rng.sample(every, rng.randint(1, len(every))))
            used = sorted({k for chosen in sets for k in chosen})
            keys, sets = [keys[k] for k in used], tuple(tuple(used.index(k) for k in chosen) for chosen in sets)
        measures = tuple(dict.fromkeys(self.measure(person) for _ in range(rng.randint(1, 4))))
        unit = Unit(PERSON, rng.randint(1, 4), rng.randint(1, 4)) if person else Unit()
        outer = rng.random() < 0.3
        sources = (SOURCES[0], SOURCES[1], replace(SOURCES[2], outer=outer))
        made = tuple(
            GroupKey(key, isinstance(key, ColumnRef) and key.source == 1, is_open(key, sources)) for key in keys
        )
        where = self.predicate() if rng.random() < 0.6 else None
        return Question(sources, unit, where, made, sets, measures, self.statistics(measures), None, ())

    def statistics(self, measures: tuple[Measure, ...]) -> tuple[Statistic, ...]:
        """Every measure, and for sums sum - c count with the joint bound of a row where both see the same rows."""
        single = [Statistic(((place, 1),), max(map(abs, lattice_bounds(m)))) for place, m in enumerate(measures)]
        for place, m in enumerate(measures):
            low, high = lattice_bounds(m)
            for other, n in enumerate(measures):
                c = self.rng.randint(-abs(low) - 3, abs(high) + 3)
                if m.kind is not MeasureKind.TOTAL or n.kind in (
                    MeasureKind.TOTAL,
                    MeasureKind.SQUARES,
                    MeasureKind.UNITS,
                ):
                    continue
                same = m.filter == n.filter and n.argument == m.argument
                bound = (
                    max(abs(low - c), abs(high - c))
                    if same
                    else max(abs(low), abs(high), abs(low - c), abs(high - c), abs(c))
                )
                single.append(Statistic(((place, 1), (other, -c)), bound))
        return tuple(single)


def fill(
    connection: psycopg.Connection, rng: random.Random, rows: int, hostile: float = 0.0, alone: bool = False
) -> None:
    """New random rows; ``alone``: every visit has a person of its own, so that nothing is bounded."""
    connection.execute("TRUNCATE visit, member")
    people = [None, *range(1, 6)] if not alone else [None, *range(1, rows + 2)]
    sexes = {person: rng.choice("FM") for person in people}
    members = max(rows, 1) if alone else 12
    owners = {
        m: (m if rng.random() < 0.9 else None) if alone else rng.choice([1, 1, *people]) for m in range(1, members + 1)
    }
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO member VALUES (%s, %s, %s, %s)",
            [(m, p, sexes[p], rng.choice([1950, 2001, None])) for m, p in owners.items()],
        )
        cursor.executemany(
            f"INSERT INTO visit VALUES (%s, %s{', %s' * len(VALUES)})",
            [
                (
                    n,
                    (n + 1 if alone else rng.choice([*owners, None])),
                    *(rng.choice(HOSTILE[k]) if rng.random() < hostile else rng.choice(v) for k, v in VALUES.items()),
                )
                for n in range(rows)
            ],
        )


# -- answers --------------------------------------------------------------------------------------------------


class Laboratory:
    """A real server that plays both the protected database and the shadow."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self.connection = connection
        self.raw = psycopg.RawCursor(connection)

    def cells(self, question: Question) -> Cells:
        wanted = domain_query(question)
        return cells(question, None if wanted is None else self.raw.execute(wanted.sql, wanted.parameters).fetchall())

    def measure(self, question: Question, grid: Cells) -> np.ndarray:
        generated = generate(question, SEED)
        return grid.fill(self.raw.execute(generated.sql, generated.parameters).fetchall())

    def statistics(self, question: Question, grid: Cells) -> np.ndarray:
        values = self.measure(question, grid).astype(object)
        return np.array([sum(c * values[m] for m, c in s.terms) for s in question.statistics], dtype=object)


# -- fixtures (conftest lists them) ---------------------------------------------------------------------------


@pytest.fixture(scope="session")
def survey_dsn(postgres: Any) -> str:
    dsn: str = postgres.new_database("survey")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(SCHEMA)
    return dsn


@pytest.fixture
def laboratory(survey_dsn: str) -> Iterator[Laboratory]:
    """A session whose changes are gone afterwards."""
    with psycopg.connect(survey_dsn) as connection:
        connection.execute("SET TIME ZONE 'Europe/Berlin'")
        yield Laboratory(connection)
        connection.rollback()
