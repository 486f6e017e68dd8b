"""The registered tables of the tests, and the questions of whole statements."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal

from sqlrewrite.blocks import outline
from sqlrewrite.catalog import Attribute, Catalog, Kind, Relation
from sqlrewrite.cut import Cut, cut
from sqlrewrite.folding import columns, questions
from sqlrewrite.kind import refuse_kind
from sqlrewrite.question import Literal, Question
from sqlrewrite.read import read


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
CITY = replace(
    relation(3, "city", Kind.PUBLIC, [Attribute("city", "text", True), Attribute("region", "text", True)]),
    unique=frozenset({("city",)}),
)
CATALOG = Catalog(1, (PATIENTS, ORDERS, CITY))


def resolve(schema: str | None, name: str) -> Relation | None:
    return CATALOG.by_name.get((schema or "public", name))


def taken(text: str) -> list[Cut]:
    """Every question of a statement, taken out of its text."""

    def is_protected(name: tuple[str | None, str]) -> bool:
        found = resolve(*name)
        return found is not None and found.kind is Kind.PROTECTED

    def known(name: tuple[str | None, str]) -> frozenset[str] | None:
        found = resolve(*name)
        return None if found is None else frozenset(found.attributes)

    refuse_kind(text, is_protected)
    found = []
    for block in questions(outline(text), is_protected):
        found.append(cut(text, block, columns(outline(text), block, known)))
    return found


def ask(text: str, parameters: list[Literal] | None = None) -> Question:
    """The one question of a statement."""
    (one,) = taken(text)
    return read(one.clauses, CATALOG, resolve, parameters)
