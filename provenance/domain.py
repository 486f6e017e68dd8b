"""The groups that a column makes: which SQL writes them out, given what was declared.

PostgreSQL itself casts members and counts ranges, so that every type means what it means there. The SQL reads published
tables and constants only.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlrewrite.catalog import Attribute, Key

MOST_GROUPS = 1_000_000

_DATES = {"date", "timestamp", "timestamptz"}
# Keys that psycopg reads as a ``Key``; values of every other type are keys in their text form.
_AS_THEY_ARE = _DATES | {"int2", "int4", "int8", "numeric", "bool", "text", "varchar", "bpchar"}


@dataclass(frozen=True, slots=True)
class Column:
    """A real column of the protected database."""

    name: str
    type_name: str  # format_type() of it: quoted where it must be
    base: str  # pg_type.typname
    not_null: bool
    bytewise: bool  # it has a collation, and that is deterministic


@dataclass(frozen=True, slots=True)
class Listing:
    """The query that lists a domain."""

    sql: str
    parameters: tuple[str | tuple[str, ...], ...] = ()
    constant: bool = False  # what it lists depends on nothing that can change

    @property
    def bound(self) -> list[Any]:
        """The parameters as psycopg takes them."""
        return [list(each) if isinstance(each, tuple) else each for each in self.parameters]


def with_domain(column: Column, told: Mapping[str, Any] | None, domain: tuple[Key, ...] | None) -> Attribute:
    """The column with what is declared about it; bounds are numbers, a range of dates is its domain only."""
    if told is None:
        return Attribute(column.name, column.type_name, column.not_null, bytewise=column.bytewise)
    numbers = column.base not in _DATES
    lower, upper = (Decimal(told[side]) if numbers and told[side] is not None else None for side in ("lower", "upper"))
    return Attribute(
        column.name,
        column.type_name,
        column.not_null,
        domain=domain,
        lower=lower,
        upper=upper,
        constant_per_unit=told["constant_per_unit"],
        bytewise=column.bytewise,
        immutable=told["immutable"],
    )


def listing(column: Column, told: Mapping[str, Any] | None, public: Set[tuple[str, str]]) -> Listing | None:
    """The query that lists the domain; ``None`` where no domain is declared.

    *Guarantee*: a domain never comes from a table that is not published, whatever the declaration says.
    """
    if told is None:
        return None
    plain = column.base in _AS_THEY_ARE  # others (an enum) may learn new values
    cast = f"::{column.type_name}" + ("" if plain else "::text")
    if told["members"] is not None:
        return Listing(
            f"SELECT m{cast} FROM unnest(%s::text[]) WITH ORDINALITY AS t (m, o) ORDER BY o",
            (tuple(told["members"]),),
            plain,
        )
    if told["members_from"] is not None:
        *schema, table, source = told["source"]
        place = (schema[0] if schema else "public", table)
        if place not in public:
            return None
        key = _quoted(source)
        where = ".".join(map(_quoted, place))
        return Listing(
            f"SELECT k FROM (SELECT DISTINCT {key}{cast} AS k FROM {where} WHERE {key} IS NOT NULL) AS t "
            f"ORDER BY k LIMIT {MOST_GROUPS + 1}"
        )
    if told["step"] is not None:
        step = told["step"]
        kinds = ("numeric", "numeric")
        if column.base in _DATES:
            kinds = ("timestamptz" if column.base == "timestamptz" else "timestamp", "interval")
            step = f"{step} days" if step.strip().isdigit() else step
        return Listing(
            f"SELECT v{cast} FROM generate_series(%s::{kinds[0]}, %s::{kinds[0]}, %s::{kinds[1]}) AS t (v) "
            f"LIMIT {MOST_GROUPS + 1}",
            (told["lower"], told["upper"], step),
            plain,
        )
    return None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
