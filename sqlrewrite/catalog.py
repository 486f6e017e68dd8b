"""What is public about the registered relations: names, types, units, bounds and key domains.

The registry (``provenance.registry``) fills these values from the provenance tables; everything that
decides acceptance, sensitivity and price reads them and never the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import TypeAlias

Key: TypeAlias = str | int | Decimal | date | datetime | bool | None
"""One value of a group column, as psycopg reads it; ``None`` is SQL's NULL."""


class Kind(Enum):
    PROTECTED = "protected"
    PUBLIC = "public"


class Changes(Enum):
    """How the rows of a protected table change, as an administrator declares it."""

    ANY = "any"  # rows are added, changed and removed at any time
    APPEND = "append"  # rows are added, and neither changed nor removed
    FROZEN = "frozen"  # nothing changes as long as the data version is the same


@dataclass(frozen=True, slots=True)
class Attribute:
    """A column with what the administrator declared about it."""

    name: str
    type_name: str  # as format_type() writes it: 'integer', 'numeric(8,2)', 'text', 'public.mood'
    not_null: bool
    domain: tuple[Key, ...] | None = None  # every value a group may have, in order; NULL is added by ``keys``
    lower: Decimal | None = None
    upper: Decimal | None = None
    constant_per_unit: bool = False
    checked: bool = False  # a CHECK constraint or the type itself already keeps every value within the bounds
    bytewise: bool = False  # a text whose collation takes only identical values for equal
    immutable: bool = False  # a row keeps its value here as long as it exists

    @property
    def keys(self) -> tuple[Key, ...] | None:
        """The groups that this column makes: its domain, and NULL last unless the column forbids it."""
        if self.domain is None:
            return None
        return self.domain if self.not_null else (*self.domain, None)


@dataclass(frozen=True, slots=True)
class Reference:
    """A validated foreign key: each row with no NULL in ``columns`` has its row in the target."""

    columns: tuple[str, ...]
    schema: str
    name: str
    target_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnitPath:
    """How a row finds its privacy unit: along foreign keys, to columns of the table where they end.

    Without steps the unit is several columns of the table itself.
    """

    steps: tuple[Reference, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Histogram:
    """A registered view: its dimensions and its measure as an administrator wrote them."""

    dimensions: tuple[str, ...]
    measure: str


@dataclass(frozen=True, slots=True)
class Relation:
    """A registered table."""

    id: int
    schema: str
    name: str
    kind: Kind
    attributes: Mapping[str, Attribute]  # every column of the table, declared or not, in column order
    unit_column: str | None = None  # None: the privacy unit is a row, or found along ``unit_path``
    max_groups: int = 1
    max_rows: int = 1
    data_version: int = 1
    size_hint: int | None = None
    unique: frozenset[tuple[str, ...]] = frozenset()  # sorted column names of primary keys and unique constraints
    references: tuple[Reference, ...] = ()
    histograms: tuple[Histogram, ...] = ()  # registered views
    noise_magnitude: Decimal | None = None  # of every number, in multiples of what one unit moves; None: not fixed
    facts: str = ""  # digest of columns, types and constraints as they were read (``provenance.constraints.FACTS``)
    materialized: bool = False  # a materialized view, which LOCK TABLE does not take
    changes: Changes = Changes.ANY
    unit_path: UnitPath | None = None
    parents: tuple[int, ...] = ()  # the protected relations that foreign keys lead to: its rows are about their units
    refused: str | None = None  # why no question about it is answered
    remedy: str = "the administrator declares its unit: SELECT provenance.protect(...)"  # where it is refused

    @property
    def row_unit(self) -> bool:
        """Whether each row is a privacy unit of its own."""
        return self.unit_column is None and self.unit_path is None

    @property
    def short(self) -> str:
        """The name as administrators and notices write it: without the schema public."""
        return self.name if self.schema == "public" else self.qualified

    @property
    def qualified(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class Catalog:
    """All registered relations at one registry version."""

    version: int
    relations: tuple[Relation, ...]
    by_name: Mapping[tuple[str, str], Relation] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {(r.schema, r.name): r for r in self.relations})

    @property
    def protected(self) -> tuple[Relation, ...]:
        return tuple(r for r in self.relations if r.kind is Kind.PROTECTED)

    @property
    def public(self) -> tuple[Relation, ...]:
        return tuple(r for r in self.relations if r.kind is Kind.PUBLIC)
