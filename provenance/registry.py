"""What is public: who may ask, and the registered tables with their units, bounds and key domains."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from psycopg import AsyncConnection, Error, sql
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from mechanisms.loss import Coin
from provenance import entries, ledger_sql, outlook, structure, units
from provenance.accountant import not_active
from provenance.constraints import FACTS, Constraints
from provenance.domain import MOST_GROUPS, Column, Listing, listing, with_domain
from provenance.migrate import READER_ROLE, derive, role_password
from provenance.model import Analyst, Deployment
from provenance.scans import ScanPolicy
from sqlrewrite.catalog import Attribute, Catalog, Changes, Histogram, Key, Kind, Relation, UnitPath

log = logging.getLogger(__name__)

Pool = AsyncConnectionPool[AsyncConnection[TupleRow]]

_VERIFIER = "SCRAM-SHA-256$"
_SET_PASSWORD = """
SELECT provenance.set_password(a.name, %(verifier)s)
FROM (SELECT name FROM provenance.analyst WHERE active UNION SELECT name FROM provenance.administrator WHERE active) a
WHERE a.name = %(name)s"""

_VERSIONS = """
SELECT d.registry_version, d.coin, d.conversion_delta, d.payment_delta,
       (SELECT jsonb_object_agg(r.id, r.data_version) FROM provenance.relation r WHERE r.active)
FROM provenance.deployment d"""

# One statement, so that the version and what it stands for come from one snapshot.
_DECLARED = """
SELECT d.registry_version, r.id, r.schema, r.name, r.kind, r.unit_column, r.max_groups, r.max_rows, r.data_version,
       r.size_hint,
       (SELECT coalesce(jsonb_object_agg(a.name, to_jsonb(a)
                                            || jsonb_build_object('source', parse_ident(a.members_from))),
                        '{}')
        FROM provenance.attribute a WHERE a.relation_id = r.id),
       (SELECT coalesce(jsonb_agg(jsonb_build_array(to_jsonb(v.dimensions), v.measure) ORDER BY v.id), '[]')
        FROM provenance.view v WHERE v.relation_id = r.id AND v.registered), r.noise_magnitude, r.changes,
       r.unit IS NOT NULL OR r.unit_assumed, r.unit_path
FROM provenance.deployment d LEFT JOIN provenance.relation r ON r.active
ORDER BY r.schema, r.name"""

# Columns whose mere reading or comparing can raise on one row and not on another are not there for questions: virtual
# generated ones (100 / age), composite values, domains over arrays. Foreign tables are left out for the same reason.
_COLUMNS = """
SELECT n.nspname, c.relname, a.attname, format_type(a.atttypid, a.atttypmod), t.typname,
       -- A table with heirs reads theirs, too, which may have NULLs. Of PostgreSQL 18: NOT NULL ... NOT VALID holds for
       -- new rows only.
       a.attnotnull AND NOT (c.relkind = 'r' AND c.relhassubclass) AND NOT EXISTS (
           SELECT FROM pg_catalog.pg_constraint v
           WHERE v.conrelid = a.attrelid AND v.contype = 'n' AND v.conkey = ARRAY[a.attnum] AND NOT v.convalidated),
       coalesce(l.collisdeterministic, false)
FROM unnest(%s::text[], %s::text[]) AS wanted (schema, name)
JOIN pg_catalog.pg_namespace n ON n.nspname = wanted.schema
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name AND c.relkind IN ('r', 'p', 'm')
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated <> 'v'
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation
JOIN pg_catalog.pg_type b ON b.oid = CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END
WHERE b.typtype IN ('b', 'e', 'r', 'm') AND NOT (t.typtype = 'd' AND b.typcategory = 'A')
ORDER BY n.nspname, c.relname, a.attnum"""

# Only constraints that were checked against every row (and of PostgreSQL 18 none WITHOUT OVERLAPS). A deferred one may
# fail inside a transaction, and holds in every committed snapshot. A table with heirs shares its keys with none, and a
# foreign key to one tells nothing of the heirs' rows, which a join reads as well. A key whose index is not valid (made
# on a partitioned table alone) holds for nothing.
_CONSTRAINTS = """
SELECT n.nspname, c.relname, k.contype::text, k.columns, tn.nspname, t.relname, k.target_columns,
       CASE WHEN k.contype = 'c' THEN pg_catalog.pg_get_expr(k.conbin, k.conrelid) END
FROM unnest(%s::text[], %s::text[]) AS wanted (schema, name)
JOIN pg_catalog.pg_namespace n ON n.nspname = wanted.schema
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name AND c.relkind IN ('r', 'p')
CROSS JOIN LATERAL (
    SELECT s.*, ARRAY(SELECT a.attname::text FROM unnest(s.conkey) WITH ORDINALITY AS x (number, place)
                      JOIN pg_catalog.pg_attribute a ON a.attrelid = s.conrelid AND a.attnum = x.number
                      ORDER BY x.place) AS columns,
           ARRAY(SELECT a.attname::text FROM unnest(s.confkey) WITH ORDINALITY AS x (number, place)
                 JOIN pg_catalog.pg_attribute a ON a.attrelid = s.confrelid AND a.attnum = x.number
                 ORDER BY x.place) AS target_columns
    FROM pg_catalog.pg_constraint s
    WHERE s.conrelid = c.oid AND s.contype IN ('p', 'u', 'f', 'c') AND s.convalidated
      AND NOT (s.contype = 'c' AND s.connoinherit) AND NOT (c.relkind = 'r' AND c.relhassubclass)
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_class h
                      WHERE h.oid = nullif(s.confrelid, 0) AND h.relkind = 'r' AND h.relhassubclass)
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_index x
                      WHERE x.indexrelid = nullif(s.conindid, 0) AND NOT (x.indisvalid AND x.indisready))
      AND coalesce((to_jsonb(s) ->> 'conperiod')::bool, false) IS FALSE) k
LEFT JOIN pg_catalog.pg_class t ON t.oid = nullif(k.confrelid, 0)
LEFT JOIN pg_catalog.pg_namespace tn ON tn.oid = t.relnamespace
ORDER BY n.nspname, c.relname, k.conname"""
_UNREADABLE = """
SELECT n.nspname, c.relname
FROM unnest(%s::text[], %s::text[]) AS wanted (schema, name)
JOIN pg_catalog.pg_namespace n ON n.nspname = wanted.schema
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name
CROSS JOIN (SELECT %s::name) AS reader (name)
WHERE NOT (has_schema_privilege(reader.name, n.oid, 'USAGE') AND has_table_privilege(reader.name, c.oid, 'SELECT'))"""


@dataclass(frozen=True, slots=True)
class Versions:
    """What a cached plan or catalog must be checked against."""

    registry: int
    coin: Coin  # an administrator may choose another one until something is charged
    conversion_delta: Decimal  # at which an amount of coin is told as epsilon
    payment_delta: Decimal  # what all charges together may pay in delta
    data: Mapping[int, int]  # relation id -> data version


@dataclass(frozen=True, slots=True)
class Account:
    """Who knocks: the verifier that SCRAM checks, and what kind of session follows."""

    name: str
    verifier: str
    administrator: bool


class Registry:
    """Reads the provenance tables (``pool``) and the protected database's catalogs (``upstream_pool``)."""

    def __init__(self, pool: Pool, upstream_pool: Pool, *, apart: bool = False) -> None:
        self._pool = pool
        self._upstream = upstream_pool
        self._apart = apart  # the provenance tables are in another database, where registering could grant nothing
        self._structures: list[tuple[int, str]] = []  # the protected tables as they were when they were last compared
        self._constant: dict[Listing, tuple[Key, ...]] = {}  # domains that no table can change, of the last load

    async def version(self) -> int:
        """The registry version alone."""
        return (await self.versions()).registry

    async def versions(self) -> Versions:
        """The registry version, the coin, and the data version of each active relation: one cheap query."""
        row = await self._one(_VERSIONS)
        data = {int(key): int(value) for key, value in (row[4] or {}).items()}
        return Versions(int(row[0]), Coin(row[1]), row[2], row[3], data)

    async def load(self) -> Catalog:
        """Every active relation with its real columns and what is declared about them.

        *Guarantee*: of the protected database only catalogs and published tables are read, never a private row.
        """
        async with outlook.connected(self._pool) as conn:
            rows = await (await conn.execute(_DECLARED)).fetchall()
        version = int(rows[0][0])
        declared = [row[1:] for row in rows if row[1] is not None]
        public = frozenset((row[1], row[2]) for row in declared if row[3] == Kind.PUBLIC.value)
        async with outlook.connected(self._upstream, autocommit=False) as conn:
            # One snapshot for columns, constraints and their digest: questions compare it where they read rows.
            await conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            names = ([row[1] for row in declared], [row[2] for row in declared])
            columns: dict[tuple[str, str], dict[str, Attribute]] = {}
            # Type names come qualified, so that they mean the same in the measuring session, which has no path.
            await conn.execute("SELECT set_config('search_path', '', true)")
            said = {(row[1], row[2]): row[9] for row in declared}
            known, self._constant = self._constant, {}
            for schema, table, *real in await (await conn.execute(_COLUMNS, names)).fetchall():
                column = Column(*real)
                told = said[schema, table].get(column.name)
                query = listing(column, told, public)
                domain = known.get(query) if query is not None else None
                if domain is None:
                    domain = await _domain(conn, query, f"{schema}.{table}.{column.name}")
                if domain is not None and query is not None and query.constant:
                    self._constant[query] = domain
                columns.setdefault((schema, table), {})[column.name] = with_domain(column, told, domain)
            unreadable = await _let_read(conn, names) if self._apart else frozenset()
            wanted = {"reader": READER_ROLE, "schemas": names[0], "names": names[1]}
            facts = {
                (schema, table): (materialized, digest)
                for schema, table, materialized, digest in await (await conn.execute(FACTS, wanted)).fetchall()
            }
            barred = structure.barred(await (await conn.execute(structure.BARRED, wanted)).fetchall())
            structures = await (await conn.execute(structure.STRUCTURE, wanted)).fetchall()
            rules: dict[tuple[str, str], Constraints] = {}
            for schema, table, *rule in await (await conn.execute(_CONSTRAINTS, names)).fetchall():
                rules.setdefault((schema, table), Constraints()).add(*rule)
            keys = await (await conn.execute(units.FOREIGN_KEYS)).fetchall()
        if await self._moved(declared, {(schema, table): found for schema, table, found in structures}):
            return await self.load()
        usable = (columns.keys() & facts.keys()) - unreadable
        found = _units(declared, rules, {name: columns[name] for name in usable}, keys)
        relations = [
            structure.refused(
                _relation(row, columns[name], rules.get(name, Constraints()), *found[name], *facts[name]),
                barred.get(name),
            )
            for row in declared
            if (name := (row[1], row[2])) in usable and _has_unit(row, columns[name])
        ]
        return Catalog(version, tuple(relations))

    async def _moved(self, declared: Sequence[TupleRow], structures: Mapping[units.Name, str]) -> bool:
        """Whether a table was made anew or rewritten since it was last read, which then is a new data version."""
        protected = [(row[0], structures[row[1], row[2]]) for row in declared if row[3] == Kind.PROTECTED.value
                     and (row[1], row[2]) in structures]  # fmt: skip
        if protected == self._structures:
            return False
        async with outlook.connected(self._pool) as conn:
            moved = [
                bool(row and row[0])
                for each in protected
                for row in [await (await conn.execute(structure.NOTE, each)).fetchone()]
            ]
        self._structures = protected
        return any(moved)

    async def deployment(self) -> Deployment:
        """The limits of the protected database."""
        return entries.deployment_of(await self._one(ledger_sql.STATE, (None,)))

    async def scans(self) -> ScanPolicy:
        """What holds for questions that read data; a change moves the registry version."""
        return ScanPolicy.of(await self._one(ScanPolicy.QUERY))

    async def analyst(self, name: str) -> Analyst | None:
        """An analyst by name, active or not."""
        row = await self._one(ledger_sql.STATE, (name,))
        return None if row[9] is None else entries.analyst_of(row)

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

    async def set_password(self, name: str, password: str) -> None:
        """Give somebody active another password; a plain one is hashed here, so that no server ever logs it."""
        async with outlook.connected(self._pool) as conn:
            if not password.startswith(_VERIFIER):
                made = conn.pgconn.encrypt_password(password.encode(), name.encode(), b"scram-sha-256")
                password = made.decode()
            changed = await (await conn.execute(_SET_PASSWORD, {"name": name, "verifier": password})).fetchone()
        if changed is None:
            raise not_active(name)

    async def derived_password(self, role: str) -> str:
        """The password of a database role that pgveil made."""
        return role_password(await self._secret(), role)

    async def derived_key(self, label: str) -> bytes:
        """A key of this deployment, the same in every process: for the salts of unknown users, for hashes."""
        return derive(await self._secret(), label)

    async def _secret(self) -> bytes:
        return bytes((await self._one("SELECT value FROM provenance.secret"))[0])

    async def _one(self, query: str, parameters: Any = None) -> TupleRow:
        async with outlook.connected(self._pool) as conn:
            row = await (await conn.execute(query, parameters)).fetchone()
        if row is None:
            raise RuntimeError("the provenance schema is not initialised: run pgveil init")
        return row


async def _domain(conn: AsyncConnection[TupleRow], query: Listing | None, where: str) -> tuple[Key, ...] | None:
    """The listed domain; one that does not fit the column's type is left out, so that its questions are refused."""
    if query is None:
        return None
    try:
        async with conn.transaction():
            rows = await (await conn.execute(query.sql.encode(), query.bound)).fetchall()
    except Error as wrong:  # only constants and published tables were read: the reason holds nothing private
        log.warning("the domain of %s is left out: %s", where, wrong)
        return None
    if len(rows) > MOST_GROUPS:
        log.warning("the domain of %s is left out: more than %d groups", where, MOST_GROUPS)
        return None
    return tuple(dict.fromkeys(row[0] for row in rows))


async def _let_read(conn: AsyncConnection[TupleRow], names: tuple[list[str], list[str]]) -> frozenset[tuple[str, str]]:
    """Grant the reader what ``provenance.register`` would grant beside the tables; returns what it may not read."""
    refused = set()
    for schema, table in await (await conn.execute(_UNREADABLE, (*names, READER_ROLE))).fetchall():
        place = sql.Identifier(schema, table)
        try:
            async with conn.transaction():
                grant = "GRANT USAGE ON SCHEMA {} TO {}; GRANT SELECT ON {} TO {}"
                reader = sql.Identifier(READER_ROLE)
                await conn.execute(sql.SQL(grant).format(sql.Identifier(schema), reader, place, reader))
        except Error:
            pass
        # GRANT without the right to do so is a warning, not an error: look again.
        if await (await conn.execute(_UNREADABLE, ([schema], [table], READER_ROLE))).fetchone() is not None:
            log.warning("%s.%s is left out: %s may not read it; as its owner, GRANT SELECT", schema, table, READER_ROLE)
            refused.add((schema, table))
    return frozenset(refused)


def _has_unit(row: TupleRow, attributes: Mapping[str, Attribute]) -> bool:
    """Whether the column that names the person is there; without it nobody could be protected."""
    if row[4] is None or row[4] in attributes:
        return True
    log.warning("%s.%s is left out: it has no column %s", row[1], row[2], row[4])
    return False


def _units(
    declared: Sequence[TupleRow],
    rules: Mapping[units.Name, Constraints],
    columns: Mapping[units.Name, Collection[str]],
    keys: Sequence[TupleRow],
) -> dict[units.Name, tuple[UnitPath | str | None, tuple[int, ...]]]:
    """The path to each table's unit, or why no question about it is answered; and the protected tables it leads to."""
    tables = [units.Declared((row[1], row[2]), row[3], row[13], row[14]) for row in declared]
    ids = {(row[1], row[2]): int(row[0]) for row in declared}
    references = {name: rule.references for name, rule in rules.items()}
    parents = units.parents(tables, [(a, b, c, d) for a, b, c, d in keys])
    refused = units.undeclared(tables, parents)
    found: dict[units.Name, tuple[UnitPath | str | None, tuple[int, ...]]] = {}
    for each in tables:
        if each.name in columns:
            unit = refused.get(each.name) or units.path_of(each, references, columns)
            found[each.name] = unit, tuple(sorted(ids[parent] for parent in parents[each.name]))
            if isinstance(unit, str):
                log.warning("no question about %s.%s is answered: %s", *each.name, unit)
    return found


def _relation(
    row: TupleRow,
    attributes: Mapping[str, Attribute],
    rules: Constraints,
    unit: UnitPath | str | None,
    parents: tuple[int, ...],
    materialized: bool,
    facts: str,
) -> Relation:
    return Relation(
        id=int(row[0]),
        schema=row[1],
        name=row[2],
        kind=Kind(row[3]),
        attributes={name: rules.checked(attribute) for name, attribute in attributes.items()},
        unit_column=row[4],
        max_groups=row[5],
        max_rows=row[6],
        data_version=int(row[7]),
        size_hint=row[8],
        unique=frozenset(rules.unique),
        references=tuple(rules.references),
        histograms=tuple(Histogram(tuple(dimensions), measure) for dimensions, measure in row[10]),
        noise_magnitude=row[11],
        facts=facts,
        materialized=materialized,
        changes=Changes(row[12]),
        unit_path=unit if isinstance(unit, UnitPath) and row[4] is None else None,
        parents=parents,
        refused=unit if isinstance(unit, str) else None,
    )
