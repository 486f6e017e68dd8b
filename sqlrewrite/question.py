"""The typed question: the only thing that decides what is charged and what SQL is generated.

A misreading of the analyst's text can therefore give a private answer to another question, never a leak.
All values are frozen, hashable and in a normal form, so that equal questions are equal values:
``Question.fingerprint`` is what "the same question again" means.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from mechanisms.condition import Condition
from sqlrewrite.catalog import Attribute, Relation


class Comparison(Enum):
    GT = ">"
    GE = ">="
    LT = "<"
    LE = "<="
    EQ = "="
    NE = "<>"


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant of the analyst's text or a bound parameter, by value and PostgreSQL type; ``None`` is NULL."""

    text: str | None
    type_name: str


@dataclass(frozen=True, slots=True)
class Compare:
    """column op constant."""

    column: str
    op: Comparison
    value: Literal


@dataclass(frozen=True, slots=True)
class Among:
    """column IN (constants), sorted and without repetition."""

    column: str
    values: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    column: str


@dataclass(frozen=True, slots=True)
class Not:
    part: Predicate


@dataclass(frozen=True, slots=True)
class AllOf:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple[Predicate, ...]


Predicate: TypeAlias = Compare | Among | IsNull | Not | AllOf | AnyOf


@dataclass(frozen=True, slots=True)
class CountRows:
    """count(*)"""


Aggregate: TypeAlias = CountRows


@dataclass(frozen=True, slots=True)
class Atom:
    """One aggregate against one threshold, both on the aggregate's lattice (for a count: whole numbers).

    ``direction`` +1 reads "aggregate >= threshold", -1 reads "aggregate <= threshold": the strict
    comparisons of SQL have been moved by one lattice unit.
    """

    aggregate: int  # index into Question.aggregates
    direction: int
    threshold: int


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """Output column: the group key at this index of ``Question.keys``."""

    index: int


@dataclass(frozen=True, slots=True)
class AggregateColumn:
    """Output column: the aggregate at this index of ``Question.aggregates``."""

    index: int


@dataclass(frozen=True, slots=True)
class Order:
    """One ORDER BY term over an output column (0-based)."""

    output: int
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Shape:
    """How the answer is laid out: names and order do not make it another question."""

    columns: tuple[KeyColumn | AggregateColumn, ...]
    names: tuple[str, ...]
    order: tuple[Order, ...] = ()
    limit: int | None = None
    offset: int | None = None
    hidden: int = 0  # how many of the last columns serve ORDER BY only; ``names`` has none for them


@dataclass(frozen=True, slots=True)
class Question:
    """SELECT keys, aggregates FROM relation WHERE filter GROUP BY keys HAVING having."""

    relation: Relation
    keys: tuple[Attribute, ...]
    where: Predicate | None
    aggregates: tuple[Aggregate, ...]
    having: Condition[Atom] | None
    shape: Shape
