"""Registered tables for the reader's tests, and a question from its clauses."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import psycopg

from sqlrewrite.catalog import Attribute, Catalog, Key, Kind, Reference, Relation
from sqlrewrite.clauses import Clauses, Fragment
from sqlrewrite.question import Literal, Question
from sqlrewrite.read import read
from sqlrewrite.render import Rendering

DAYS = tuple(date(2024, 1, 1) + timedelta(days=day) for day in range(366))

SCHEMA = """
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TABLE customers (id integer PRIMARY KEY, born date, segment text NOT NULL, score numeric(6,2));
CREATE TABLE city (city text PRIMARY KEY, region text NOT NULL, population integer, area numeric(8,1));
CREATE TABLE region (region text PRIMARY KEY, country text NOT NULL);
CREATE TABLE holiday (day date, name text);
CREATE TABLE orders (
  order_id bigint PRIMARY KEY, customer_id integer NOT NULL REFERENCES customers, city text NOT NULL,
  category text, amount numeric(8,2), discount numeric(4,2) NOT NULL, quantity integer NOT NULL, small smallint,
  big bigint, wide numeric, weight double precision, ordered_on date NOT NULL, shipped timestamp, seen timestamptz,
  gift boolean, note character varying(20), code character(4), feeling mood, rating integer);
CREATE TABLE patients (id integer PRIMARY KEY, age integer NOT NULL, disease text NOT NULL, sex text);
CREATE TABLE ward (disease text PRIMARY KEY, capacity integer NOT NULL, floor numeric(4,1));
CREATE TABLE visits (visit_id integer PRIMARY KEY, patient integer REFERENCES patients, cost numeric(7,2));
"""

ROWS = """
INSERT INTO customers SELECT i, date '1950-01-01' + 300 * i, CASE WHEN i % 3 = 0 THEN 'home' ELSE 'office' END, i * 7.25
  FROM generate_series(1, 40) i;
INSERT INTO city VALUES ('Bonn', 'west', 330000, 141.1), ('Jena', 'east', 110000, 114.8), ('Kiel', 'north', 247000,
118.7); INSERT INTO region VALUES ('west', 'de'), ('east', 'de'), ('north', 'de');
INSERT INTO orders SELECT i, 1 + i * 7 % 40, (ARRAY['Bonn', 'Jena', 'Kiel', 'Ulm'])[1 + i % 4],
  (ARRAY['books', 'food', 'toys', NULL])[1 + i % 7 % 4], nullif(i * 37 % 50100, 37) / 100.0, (i * 13 % 3000) / 100.0
  - 9.5, 1 + i % 10, nullif(i % 11 - 5, 3), nullif(i * 1001 % 1000000, 1001), nullif(i % 31, 7) / 3.0, nullif(i % 97,
  5) / 7.0, date '2024-01-01' + i % 366, timestamp '2024-01-01' + i * interval '3 hours 7 minutes',
  timestamptz '2024-01-01 00:00+00' + i * interval '5 hours', (ARRAY[true, false, NULL])[1 + i % 3],
  nullif('note ' || i % 13, 'note 4'), (ARRAY['A', 'B1', NULL])[1 + i % 3], (ARRAY['sad', 'happy', NULL])[1 + i %
  3]::mood, nullif(i % 6, 0) FROM generate_series(1, 400) i;
INSERT INTO patients SELECT i, i % 101, (ARRAY['cold', 'flu', 'gout'])[1 + i % 3], (ARRAY['f', 'm', NULL])[1 + i % 3]
  FROM generate_series(1, 200) i;
INSERT INTO ward VALUES ('cold', 60, 1.5), ('flu', 70, 2);
INSERT INTO visits SELECT i, nullif(i % 150, 0) + 1, i * 1.25 FROM generate_series(1, 300) i;
"""

# Rows at the ends of their types: what is generated must not raise on them.
NASTY = """
INSERT INTO customers VALUES (2147483647, 'infinity', 'home', 'NaN');
INSERT INTO orders VALUES
  (-9223372036854775808, 1, '', '', 'NaN', 'NaN', -2147483648, -32768, -9223372036854775808, 'NaN', 'NaN', '-infinity',
   '-infinity', 'infinity', NULL, '', '', 'sad', -2147483648),
  (9223372036854775807, 1, repeat('x', 5000), NULL, 999999.99, -99.99, 2147483647, 32767, 9223372036854775807,
   1e131000, 1e308, '5874897-12-31', '294276-12-31 23:59:59', '294276-12-31 23:59:59+00', true, '%_\\', 'zzzz',
   'happy', 1),
  (0, 1, 'é', 'ß', -999999.99, 0, 0, 0, 0, -1e131000, '-infinity', '4714-11-24 BC', '4714-11-24 00:00:00 BC',
   '4714-11-24 00:00:00+00 BC', false, 'x', NULL, NULL, NULL),
  (-7, 1, 'é', 'ß', 0, 0, 0, 0, 0, 'infinity', 'infinity', 'infinity', 'infinity', '-infinity', false, 'x', NULL,
  NULL, 0);
"""


class Shop:
    """The analyst's own text on one side, what is generated from its reading on the other."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self.connection = connection
        self.raw = psycopg.RawCursor(connection)

    def plain(self, text: str) -> list[tuple[Any, ...]]:
        return self.raw.execute(text.encode()).fetchall()

    def type_of(self, text: str, from_: str = "orders") -> str:
        """The type that PostgreSQL gives an expression."""
        result = self.raw.execute(f"SELECT {text} FROM {from_} LIMIT 0".encode()).pgresult
        assert result is not None
        named = self.raw.execute("SELECT format_type($1::oid, $2::int4)", (result.ftype(0), result.fmod(0))).fetchone()
        assert named is not None
        return str(named[0])

    def kept(self, question: Question, shown: str = 't0."order_id"') -> list[tuple[Any, ...]]:
        """The rows that the generated WHERE keeps."""
        rendering = Rendering(question.sources)
        where = "true" if question.where is None else rendering.predicate(question.where)
        sql = f"SELECT {shown} FROM {rendering.tables()} WHERE {where} ORDER BY 1"
        return self.raw.execute(sql.encode(), rendering.parameters).fetchall()

    def values(self, question: Question, as_text: bool = False) -> list[tuple[Any, ...]]:
        """The generated keys of every row; some values have a text form only, such as infinity."""
        rendering = Rendering(question.sources)
        cast = "::text" if as_text else ""
        keys = ", ".join(f"{rendering.expression(key.expression)}{cast}" for key in question.keys)
        sql = f'SELECT t0."order_id", {keys} FROM {rendering.tables()} ORDER BY 1'
        return self.raw.execute(sql.encode(), rendering.parameters).fetchall()


def attribute(
    name: str,
    type_name: str,
    not_null: bool = False,
    domain: Sequence[Key] | None = None,
    bounds: tuple[str, str] | None = None,
    constant: bool = False,
) -> Attribute:
    lower, upper = (None, None) if bounds is None else (Decimal(bounds[0]), Decimal(bounds[1]))
    return Attribute(name, type_name, not_null, None if domain is None else tuple(domain), lower, upper, constant)


def relation(id_: int, name: str, kind: Kind, attributes: Sequence[Attribute], **more: object) -> Relation:
    return Relation(id_, "public", name, kind, {a.name: a for a in attributes}, **more)  # type: ignore[arg-type]


CITIES = ("Bonn", "Jena", "Kiel", "Ulm")
DISEASES = ("cold", "flu", "gout")

CUSTOMERS = relation(
    1,
    "customers",
    Kind.PROTECTED,
    [
        attribute("id", "integer", True),
        attribute("born", "date"),
        attribute("segment", "text", True, ("home", "office"), constant=True),
        attribute("score", "numeric(6,2)", bounds=("0", "1000")),
    ],
    unique=frozenset({("id",)}),
    max_groups=2,
    max_rows=5,
)
ORDERS = relation(
    2,
    "orders",
    Kind.PROTECTED,
    [
        attribute("order_id", "bigint", True),
        attribute("customer_id", "integer", True),
        attribute("city", "text", True, CITIES),
        attribute("category", "text", False, ("books", "food", "toys")),
        attribute("amount", "numeric(8,2)", bounds=("0", "500")),
        attribute("discount", "numeric(4,2)", True, bounds=("-10", "20.5")),
        attribute("quantity", "integer", True, tuple(range(1, 11)), ("1", "10")),
        attribute("small", "smallint", bounds=("-5", "5")),
        attribute("big", "bigint", bounds=("0", "1000000")),
        attribute("wide", "numeric", bounds=("0", "10")),
        attribute("weight", "double precision", bounds=("0", "100")),
        attribute("ordered_on", "date", True, DAYS),
        attribute("shipped", "timestamp without time zone"),
        attribute("seen", "timestamp with time zone"),
        attribute("gift", "boolean", False, (False, True)),
        attribute("note", "character varying(20)"),
        attribute("code", "character(4)", False, ("A", "B1")),
        attribute("feeling", "mood", False, ("sad", "happy")),
        attribute("rating", "integer"),
    ],
    unit_column="customer_id",
    max_groups=4,
    max_rows=3,
    unique=frozenset({("order_id",)}),
    references=(Reference(("customer_id",), "public", "customers", ("id",)),),
)
PATIENTS = relation(
    3,
    "patients",
    Kind.PROTECTED,
    [
        attribute("id", "integer", True),
        attribute("age", "integer", True, tuple(range(101)), ("0", "100")),
        attribute("disease", "text", True, DISEASES),
        attribute("sex", "text", False, ("f", "m")),
    ],
    unique=frozenset({("id",)}),
)
VISITS = relation(
    4,
    "visits",
    Kind.PROTECTED,
    [
        attribute("visit_id", "integer", True),
        attribute("patient", "integer"),
        attribute("cost", "numeric(7,2)", bounds=("0", "900")),
    ],
    unique=frozenset({("visit_id",)}),
    references=(Reference(("patient",), "public", "patients", ("id",)),),
)
CITY = relation(
    5,
    "city",
    Kind.PUBLIC,
    [
        attribute("city", "text", True),
        attribute("region", "text", True),
        attribute("population", "integer", bounds=("0", "5000000")),
        attribute("area", "numeric(8,1)"),
    ],
    unique=frozenset({("city",)}),
)
REGION = relation(
    6,
    "region",
    Kind.PUBLIC,
    [attribute("region", "text", True), attribute("country", "text", True)],
    unique=frozenset({("region",)}),
)
HOLIDAY = relation(7, "holiday", Kind.PUBLIC, [attribute("day", "date"), attribute("name", "text")])
WARD = relation(
    8,
    "ward",
    Kind.PUBLIC,
    [
        attribute("disease", "text", True),
        attribute("capacity", "integer", True),
        attribute("floor", "numeric(4,1)"),
    ],
    unique=frozenset({("disease",)}),
)
CATALOG = Catalog(1, (CUSTOMERS, ORDERS, PATIENTS, VISITS, CITY, REGION, HOLIDAY, WARD))


def resolve(schema: str | None, name: str) -> Relation | None:
    return CATALOG.by_name.get((schema or "public", name))


def clauses(
    from_: str = "orders",
    where: str | None = None,
    keys: Sequence[str] = (),
    having: str | None = None,
    aggregates: Sequence[str] = (),
    sets: tuple[tuple[int, ...], ...] | None = None,
    start: int = 0,
) -> Clauses:
    def fragment(text: str) -> Fragment:
        return Fragment(text, start)

    return Clauses(
        fragment(from_),
        None if where is None else fragment(where),
        tuple(map(fragment, keys)),
        (tuple(range(len(keys))),) if sets is None else sets,
        None if having is None else fragment(having),
        tuple(map(fragment, aggregates)),
    )


def ask(
    from_: str = "orders",
    where: str | None = None,
    keys: Sequence[str] = (),
    having: str | None = None,
    aggregates: Sequence[str] = (),
    sets: tuple[tuple[int, ...], ...] | None = None,
    parameters: Sequence[Literal] | None = (),
    support: int | None = None,
    start: int = 0,
) -> Question:
    parts = clauses(from_, where, keys, having, aggregates, sets, start)
    return read(parts, CATALOG, resolve, parameters, support)
