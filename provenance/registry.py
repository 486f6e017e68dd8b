"""What is public: who may ask, and the registered tables with their units, bounds and key domains."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection, Error
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from provenance import ledger
from provenance.domain import MOST_GROUPS, Column, listing, with_domain
from provenance.migrate import derive, role_password
from provenance.model import Analyst, Deployment
from sqlrewrite.catalog import Attribute, Catalog, Key, Kind, Relation

log = logging.getLogger(__name__)

Pool = AsyncConnectionPool[AsyncConnection[TupleRow]]

_VERSIONS = """
SELECT d.registry_version, (SELECT jsonb_object_agg(r.id, r.data_version) FROM provenance.relation r WHERE r.active)
FROM provenance.deployment d"""

# One statement, so that the version and what it stands for come from one snapshot.
_DECLARED = """
SELECT d.registry_version, r.id, r.schema, r.name, r.kind, r.unit_column, r.max_groups, r.max_rows, r.data_version,
       r.size_hint,
       (SELECT coalesce(jsonb_object_agg(a.name, to_jsonb(a)
                                            || jsonb_build_object('source', parse_ident(a.members_from))),
                        '{}')
        FROM provenance.attribute a WHERE a.relation_id = r.id)
FROM provenance.deployment d LEFT JOIN provenance.relation r ON r.active
ORDER BY r.schema, r.name"""

_COLUMNS = """
SELECT n.nspname, c.relname, a.attname, format_type(a.atttypid, a.atttypmod), t.typname, a.attnotnull
FROM unnest(%s::text[], %s::text[]) AS wanted (schema, name)
JOIN pg_catalog.pg_namespace n ON n.nspname = wanted.schema
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name AND c.relkind IN ('r', 'p', 'm', 'f')
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
ORDER BY n.nspname, c.relname, a.attnum"""


@dataclass(frozen=True, slots=True)
class Versions:
    """What a cached plan or catalog must be checked against."""

    registry: int
    data: Mapping[int, int]  # relation id -> data version


@dataclass(frozen=True, slots=True)
class Account:
    """Who knocks: the verifier that SCRAM checks, and what kind of session follows."""

    name: str
    verifier: str
    administrator: bool


class Registry:
    """Reads the provenance tables (``pool``) and the protected database's catalogs (``upstream_pool``)."""

    def __init__(self, pool: Pool, upstream_pool: Pool) -> None:
        self._pool = pool
        self._upstream = upstream_pool

    async def version(self) -> int:
        """The registry version alone."""
        return (await self.versions()).registry

    async def versions(self) -> Versions:
        """The registry version and the data version of each active relation: one cheap query."""
        row = await self._one(_VERSIONS)
        return Versions(int(row[0]), {int(key): int(value) for key, value in (row[1] or {}).items()})

    async def load(self) -> Catalog:
        """Every active relation with its real columns and what is declared about them.

        *Guarantee*: of the protected database only catalogs and published tables are read, never a private row.
        """
        async with self._pool.connection() as conn:
            rows = await (await conn.execute(_DECLARED)).fetchall()
        version = int(rows[0][0])
        declared = [row[1:] for row in rows if row[1] is not None]
        public = frozenset((row[1], row[2]) for row in declared if row[3] == Kind.PUBLIC.value)
        async with self._upstream.connection() as conn:
            names = ([row[1] for row in declared], [row[2] for row in declared])
            columns: dict[tuple[str, str], dict[str, Attribute]] = {}
            said = {(row[1], row[2]): row[9] for row in declared}
            for schema, table, *real in await (await conn.execute(_COLUMNS, names)).fetchall():
                column = Column(*real)
                told = said[schema, table].get(column.name)
                domain = await _domain(conn, listing(column, told, public), f"{schema}.{table}.{column.name}")
                columns.setdefault((schema, table), {})[column.name] = with_domain(column, told, domain)
        relations = [_relation(row, columns[row[1], row[2]]) for row in declared if (row[1], row[2]) in columns]
        return Catalog(version, tuple(relations))

    async def deployment(self) -> Deployment:
        """The limits of the protected database."""
        return ledger.deployment_of(await self._one(ledger.STATE, (None,)))

    async def analyst(self, name: str) -> Analyst | None:
        """An analyst by name, active or not."""
        row = await self._one(ledger.STATE, (name,))
        return None if row[9] is None else ledger.analyst_of(row)

    async def administrator(self, name: str) -> bool:
        """Whether this is an active administrator."""
        found = await self._one(
            "SELECT EXISTS (SELECT FROM provenance.administrator WHERE name = %s AND active)", (name,)
        )
        return bool(found[0])

    async def account(self, name: str) -> Account | None:
        """The active analyst or administrator of that name, with the verifier."""
        row = await self._one(
            "SELECT (SELECT c.verifier FROM provenance.credential c WHERE c.name = %(name)s),"
            " EXISTS (SELECT FROM provenance.analyst WHERE name = %(name)s AND active),"
            " EXISTS (SELECT FROM provenance.administrator WHERE name = %(name)s AND active)",
            {"name": name},
        )
        verifier, analyst, administrator = row
        return Account(name, verifier, administrator) if verifier and (analyst or administrator) else None

    async def derived_password(self, role: str) -> str:
        """The password of a database role that pgveil made."""
        return role_password(await self._secret(), role)

    async def derived_key(self, label: str) -> bytes:
        """A key of this deployment, the same in every process: for the salts of unknown users, for hashes."""
        return derive(await self._secret(), label)

    async def _secret(self) -> bytes:
        return bytes((await self._one("SELECT value FROM provenance.secret"))[0])

    async def _one(self, query: str, parameters: Any = None) -> TupleRow:
        async with self._pool.connection() as conn:
            row = await (await conn.execute(query, parameters)).fetchone()
        if row is None:
            raise RuntimeError("the provenance schema is not initialised: run pgveil init")
        return row


async def _domain(
    conn: AsyncConnection[TupleRow], query: tuple[str, tuple[Any, ...]] | None, where: str
) -> tuple[Key, ...] | None:
    """The listed domain; one that does not fit the column's type is left out, so that its questions are refused."""
    if query is None:
        return None
    try:
        async with conn.transaction():
            rows = await (await conn.execute(query[0].encode(), query[1])).fetchall()
    except Error as wrong:  # only constants and published tables were read: the reason holds nothing private
        log.warning("the domain of %s is left out: %s", where, wrong)
        return None
    if len(rows) > MOST_GROUPS:
        log.warning("the domain of %s is left out: more than %d groups", where, MOST_GROUPS)
        return None
    return tuple(dict.fromkeys(row[0] for row in rows))


def _relation(row: TupleRow, attributes: Mapping[str, Attribute]) -> Relation:
    return Relation(
        id=int(row[0]),
        schema=row[1],
        name=row[2],
        kind=Kind(row[3]),
        attributes=attributes,
        unit_column=row[4],
        max_groups=row[5],
        max_rows=row[6],
        data_version=int(row[7]),
        size_hint=row[8],
    )
