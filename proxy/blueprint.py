"""What the shadow copies of the registered relations, as values, and the DDL that builds it.

Copied: schemas, enum and domain types, tables with column names, types and nullability, primary and unique keys,
foreign keys among registered relations, comments. Not copied, because they may hold private constants or code:
defaults, generation expressions, identity, checks, triggers, rules, other indexes, sequences, functions.
Partitioned tables, views and foreign tables are shown as plain tables.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from proxy import help as guide
from proxy import reports, undone
from proxy.veil_settings import SETTINGS


@dataclass(frozen=True, slots=True)
class EnumType:
    schema: str
    name: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DomainType:
    """A domain without its default and checks."""

    schema: str
    name: str
    over: str  # SQL text of the type beneath
    not_null: bool


CopiedType: TypeAlias = EnumType | DomainType


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str  # SQL text, qualified where it is not PostgreSQL's own
    not_null: bool
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class UniqueKey:
    name: str
    columns: tuple[str, ...]
    primary: bool
    nulls_not_distinct: bool = False
    deferrable: bool = False
    deferred: bool = False


@dataclass(frozen=True, slots=True)
class ForeignKey:
    name: str
    columns: tuple[str, ...]
    target_schema: str
    target_name: str
    target_columns: tuple[str, ...]
    match_full: bool = False
    on_update: str = "NO ACTION"
    on_delete: str = "NO ACTION"
    deferrable: bool = False
    deferred: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    schema: str
    name: str
    public: bool  # its rows are copied; of a table that is not public no row ever is
    data_version: int | None  # of a public table; a protected table's data does not shape the shadow
    columns: tuple[Column, ...]
    keys: tuple[UniqueKey, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    comment: str | None = None

    @property
    def sql_name(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"


@dataclass(frozen=True, slots=True)
class Blueprint:
    """Everything that a generation of the shadow is made from: nothing in it comes from a private row."""

    version: int  # of the registry
    schemas: tuple[str, ...]
    types: tuple[CopiedType, ...]  # what a type needs stands before it
    tables: tuple[Table, ...]


def quoted(name: str) -> str:
    """An SQL identifier, always in quotes."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """An SQL string constant that reads the same whatever standard_conforming_strings says."""
    body = text.replace("'", "''")
    return "E'" + body.replace("\\", "\\\\") + "'" if "\\" in body else f"'{body}'"


def fingerprint(blueprint: Blueprint) -> str:
    """One text per shape of the shadow: registry version, DDL (this program's own part included), public data."""
    digest = hashlib.sha256(f"registry {blueprint.version}\n".encode())
    for table in blueprint.tables:
        digest.update(f"{table.sql_name} public={table.public} data={table.data_version}\n".encode())
    digest.update("\n".join([*ddl(blueprint), *(f"{k}={v}" for k, v in SETTINGS.items())]).encode())
    return digest.hexdigest()


def ddl(blueprint: Blueprint) -> list[str]:
    """The statements that fill an empty database, before any public row is copied.

    *Guarantee*: nobody but the owner gets SELECT on a protected table. Grants go to PUBLIC because the database
    itself admits analysts only.
    """
    return [
        *(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}" for schema in blueprint.schemas),
        *(_create_type(each) for each in blueprint.types),
        *(_create_table(table) for table in blueprint.tables),
        *(_add_foreign_key(table, key) for table in blueprint.tables for key in table.foreign_keys),
        *(statement for table in blueprint.tables for statement in _comments(table)),
        *_VEIL,
        "REVOKE ALL ON SCHEMA public FROM PUBLIC",
        *(
            f"GRANT USAGE ON SCHEMA {quoted(s)} TO PUBLIC"
            for s in dict.fromkeys(("public", "veil", *blueprint.schemas))
        ),
        *(_grant(table) for table in blueprint.tables),
        _REVOKE_FUNCTIONS,
    ]


def _create_type(each: CopiedType) -> str:
    name = f"{quoted(each.schema)}.{quoted(each.name)}"
    match each:
        case EnumType(labels=labels):
            return f"CREATE TYPE {name} AS ENUM ({', '.join(map(literal, labels))})"
        case DomainType(over=over, not_null=not_null):
            return f"CREATE DOMAIN {name} AS {over}{' NOT NULL' if not_null else ''}"


def _create_table(table: Table) -> str:
    parts = [f"{quoted(c.name)} {c.type}{' NOT NULL' if c.not_null else ''}" for c in table.columns]
    for key in table.keys:
        kind = "PRIMARY KEY" if key.primary else "UNIQUE NULLS NOT DISTINCT" if key.nulls_not_distinct else "UNIQUE"
        parts.append(
            f"CONSTRAINT {quoted(key.name)} {kind} ({_columns(key.columns)}){_deferral(key.deferrable, key.deferred)}"
        )
    return f"CREATE TABLE {table.sql_name} ({', '.join(parts)})"


def _add_foreign_key(table: Table, key: ForeignKey) -> str:
    return (
        f"ALTER TABLE {table.sql_name} ADD CONSTRAINT {quoted(key.name)} FOREIGN KEY ({_columns(key.columns)})"
        f" REFERENCES {quoted(key.target_schema)}.{quoted(key.target_name)} ({_columns(key.target_columns)})"
        f"{' MATCH FULL' if key.match_full else ''} ON UPDATE {key.on_update} ON DELETE {key.on_delete}"
        f"{_deferral(key.deferrable, key.deferred)}"
    )


def _comments(table: Table) -> Iterator[str]:
    if table.comment is not None:
        yield f"COMMENT ON TABLE {table.sql_name} IS {literal(table.comment)}"
    for column in table.columns:
        if column.comment is not None:
            yield f"COMMENT ON COLUMN {table.sql_name}.{quoted(column.name)} IS {literal(column.comment)}"


def _grant(table: Table) -> str:
    # REFERENCES is what lets a role see a table in information_schema; it makes nothing possible, since a role
    # that can create no permanent table can declare no foreign key to one.
    return f"GRANT {'SELECT, REFERENCES' if table.public else 'REFERENCES'} ON {table.sql_name} TO PUBLIC"


def _columns(names: tuple[str, ...]) -> str:
    return ", ".join(map(quoted, names))


def _deferral(deferrable: bool, deferred: bool) -> str:
    return f" DEFERRABLE INITIALLY {'DEFERRED' if deferred else 'IMMEDIATE'}" if deferrable else ""


def _noise_functions() -> Iterator[str]:
    """veil.low(aggregate) and kin, so that PostgreSQL can parse and describe a question with them.

    The proxy reads them off and answers them; called on anything else they complain.
    """
    meanings = {
        "low": "The lower end of the interval of an aggregate of a question, at veil.confidence",
        "high": "The upper end of the interval of an aggregate of a question, at veil.confidence",
        "stddev": "The standard deviation of the noise on an aggregate of a question",
    }
    for name, meaning in meanings.items():
        complaint = f"veil.{name} takes one aggregate of a question about protected rows"
        hint = f"Write veil.{name}(count(*)) in the select list or ORDER BY of the SELECT that counts the rows."
        body = f"BEGIN RAISE feature_not_supported USING MESSAGE = '{complaint}', HINT = '{hint}'; END"
        for taken, given in (("bigint", "numeric"), ("numeric", "numeric"), ("double precision", "double precision")):
            yield f"CREATE FUNCTION veil.{name}({taken}) RETURNS {given} LANGUAGE plpgsql AS $${body}$$"
            yield f"COMMENT ON FUNCTION veil.{name}({taken}) IS '{meaning}'"


_VEIL = (
    "CREATE SCHEMA veil",
    "COMMENT ON SCHEMA veil IS 'pgveil: what you may spend and what you have asked'",
    *reports.ddl(),
    *guide.ddl(),
    *_noise_functions(),
    *undone.ddl(),
)

# What PUBLIC may write that outlives its session: large objects, and records in the write-ahead log.
# LISTEN, NOTIFY and advisory locks stay: tools use them, and they reach only other analysts' powerless sessions.
_REVOKE_FUNCTIONS = r"""DO $do$
DECLARE f regprocedure;
BEGIN
  FOR f IN SELECT oid FROM pg_catalog.pg_proc WHERE pronamespace = 'pg_catalog'::pg_catalog.regnamespace
           AND (proname LIKE 'lo\_%' OR proname IN ('loread', 'lowrite', 'pg_logical_emit_message'))
  LOOP EXECUTE pg_catalog.format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f); END LOOP;
END $do$"""
