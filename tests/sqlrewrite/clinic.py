"""The registered tables of the tests, and how a question is answered on a real server without noise."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

import numpy as np
import psycopg

from mechanisms.condition import holds
from mechanisms.values import Noisy
from sqlrewrite.assemble import assemble
from sqlrewrite.catalog import Attribute, Catalog, Kind, Relation
from sqlrewrite.cells import cells
from sqlrewrite.generate import generate
from sqlrewrite.question import Literal, Question
from sqlrewrite.validate import read

SEED = 20240229

SCHEMA = """
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TABLE patient_data (
  patient_id integer NOT NULL, age integer, gender text NOT NULL, disease text, insured boolean,
  weight numeric(5,1), fever double precision, ward character(4), feeling mood, admitted date, "Odd ""Name" text,
  note text);
CREATE TABLE orders (
  order_id bigint NOT NULL, customer_id integer, city text NOT NULL, region character varying(10) NOT NULL,
  amount numeric(8,2), ordered_on date NOT NULL);
CREATE TABLE city (city text NOT NULL, region text NOT NULL);
"""


def relation(id_: int, name: str, kind: Kind, attributes: list[Attribute], unit: str | None = None) -> Relation:
    return Relation(
        id_, "public", name, kind, {a.name: a for a in attributes}, unit_column=unit, max_groups=2, max_rows=3
    )


DAYS = tuple(date(2024, 1, 1) + timedelta(days=day) for day in range(5))

PATIENTS = relation(
    1,
    "patient_data",
    Kind.PROTECTED,
    [
        Attribute("patient_id", "integer", True),
        Attribute("age", "integer", False, tuple(range(101))),
        Attribute("gender", "text", True, ("F", "M", "X")),
        Attribute("disease", "text", False, ("flu", "cold", 'a "quoted\\" one', "")),
        Attribute("insured", "boolean", False, (False, True)),
        Attribute("weight", "numeric(5,1)", False, (Decimal("50.0"), Decimal("60.5"))),
        Attribute("fever", "double precision", False, (Decimal(37), Decimal(38))),
        Attribute("ward", "character(4)", False, ("A", "B1")),
        Attribute("feeling", "public.mood", False, ("sad", "ok", "happy")),
        Attribute("admitted", "date", False, DAYS),
        Attribute('Odd "Name', "text", False, ("x", "y")),
        Attribute("note", "text", False),
    ],
)
ORDERS = relation(
    2,
    "orders",
    Kind.PROTECTED,
    [
        Attribute("order_id", "bigint", True),
        Attribute("customer_id", "integer", False),
        Attribute("city", "text", True, ("Ulm", "Bonn", "Kiel", "Jena")),
        Attribute("region", "character varying(10)", True, ("north", "south"), constant_per_unit=True),
        Attribute("amount", "numeric(8,2)", False),
        Attribute("ordered_on", "date", True, DAYS),
    ],
    unit="customer_id",
)
CITY = relation(3, "city", Kind.PUBLIC, [Attribute("city", "text", True), Attribute("region", "text", True)])
CATALOG = Catalog(1, (PATIENTS, ORDERS, CITY))


def resolve(schema: str | None, name: str) -> Relation | None:
    return CATALOG.by_name.get((schema or "public", name))


def ask(text: str, parameters: list[Literal] | None = None) -> Question:
    return read(text, CATALOG, resolve, parameters)


class House:
    """The two statements of a question on a real server, with noise left out."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self.connection = connection
        self.raw = psycopg.RawCursor(connection)

    def measure(self, question: Question) -> np.ndarray:
        grid = cells(question)
        if not question.aggregates:
            return grid.fill(())
        generated = generate(question, SEED)
        return grid.fill(self.raw.execute(generated.sql, generated.parameters).fetchall())

    def types(self, text: str) -> list[str]:
        """The output types of the analyst's own text, as the shadow would describe them."""
        result = self.raw.execute(text).pgresult
        assert result is not None
        described = [(result.ftype(i), result.fmod(i)) for i in range(result.nfields)]
        return [
            self.raw.execute("SELECT format_type($1::oid, $2::int4)", pair).fetchone()[0]  # type: ignore[index]
            for pair in described
        ]

    def answer(self, question: Question, types: list[str]) -> list[tuple]:
        exact = self.measure(question)
        keep = None
        if question.having is not None:
            having = question.having
            keep = np.array(
                [
                    holds(having, lambda a, cell=cell: a.direction * (exact[a.aggregate, cell] - a.threshold) >= 0)
                    for cell in range(exact.shape[1])
                ]
            )
        finishing = assemble(question, keep, Noisy(exact), types, clip=True)
        return self.raw.execute(finishing.sql, finishing.arrays).fetchall()
