"""The shadow: a PostgreSQL that has the registered relations and no private row, where the analyst's own text runs.

Each state of the registry has its *generation*: a database of its own on the shadow cluster. It is built under a
working name and gets its comment (which holds the fingerprint) and its real name last, so a database with both is
whole, and what a killed builder left is known by its name and dropped. Builders on one cluster take turns by an
advisory lock in its ``postgres`` database. A generation that is no longer wanted is dropped once nobody is on it.

Another proxy may drop a generation between ``ensure`` and a connect: then the connect fails with 3D000, and the
remedy is to call ``ensure`` again with a fresh catalog.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import psycopg
from psycopg import AsyncConnection, errors
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from proxy import powerless, survey
from proxy.blueprint import Blueprint, Table, ddl, fingerprint, literal, quoted
from proxy.powerless import Caps
from proxy.veil_settings import SETTINGS
from sqlrewrite.catalog import Catalog, Kind

Connection: TypeAlias = AsyncConnection[Any]

_BUILD_LOCK = 0x7067_7665_696C_0001  # "pgveil"
_ROLE_LOCK = 0x7067_7665_696C_0002  # apart, so that a long build keeps nobody from logging in

# Both ends of a COPY in text format must agree on these.
_PLAIN_TEXT = (
    "SET LOCAL search_path = pg_catalog; SET LOCAL client_encoding = 'UTF8'; SET LOCAL datestyle = 'ISO, YMD';"
    " SET LOCAL intervalstyle = 'postgres'; SET LOCAL extra_float_digits = 3; SET LOCAL timezone = 'UTC';"
    " SET LOCAL lc_monetary = 'C'; SET LOCAL bytea_output = 'hex'"
)


class ShadowError(Exception):
    """The shadow cannot be built as it was asked for; the sentence is for the administrator."""


@dataclass(frozen=True, slots=True)
class Generation:
    """A finished shadow database."""

    database_name: str
    catalog_version: int
    fingerprint: str


class Shadow:
    """The shadow of one protected database. Superuser rights on the shadow cluster are needed, PostgreSQL 16 or later.

    All proxies that share a shadow cluster must have the same secret.
    """

    __slots__ = ("_admin_dsn", "_caps", "_secret", "database")

    def __init__(self, admin_dsn: str, database: str, secret: bytes, caps: Caps | None = None) -> None:
        if not database or len(database.encode()) > 56:
            raise ShadowError("the database's name must have 1 to 56 bytes, to leave room for a generation's number")
        self._admin_dsn = make_conninfo(admin_dsn, dbname="postgres")
        self._secret = secret
        self._caps = caps or Caps()
        self.database = database

    def password(self, analyst: str) -> str:
        """The password of the analyst's role on the shadow."""
        return powerless.password(self._secret, analyst)

    def dsn(self, generation: Generation, analyst: str) -> str:
        """Where the analyst's text runs, as whom."""
        return make_conninfo(
            self._admin_dsn, dbname=generation.database_name, user=analyst, password=self.password(analyst)
        )

    async def ensure(self, upstream: str | Connection, catalog: Catalog, analysts: Sequence[str]) -> Generation:
        """The generation for this catalog, built if it is not there, with these analysts let in.

        *Guarantee*: only rows of relations registered as public are read from the upstream.
        """
        async with _reading(upstream) as source, self._admin() as admin:
            blueprint = await read_blueprint(source, catalog)
            wanted = fingerprint(blueprint)
            async with _held(admin, _BUILD_LOCK):
                async with _held(admin, _ROLE_LOCK):
                    for analyst in analysts:
                        await self._ensure_role(admin, analyst)
                generation = await self._find(admin, wanted)
                if generation is None:
                    await self._build(admin, source, blueprint)
                    await self._drop_idle(admin, wanted, catalog.version)
                    generation = await self._finish(admin, catalog.version, wanted)
                else:
                    await self._drop_idle(admin, wanted, catalog.version)
                await self._admit(admin, generation, analysts)
        return generation

    async def ensure_role(self, analyst: str) -> None:
        """Make the analyst's role on the shadow cluster what it shall be."""
        async with self._admin() as admin, _held(admin, _ROLE_LOCK):
            await self._ensure_role(admin, analyst)

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[Connection]:
        async with await _connect(self._admin_dsn) as admin:
            if admin.info.server_version < 160000:
                raise ShadowError("the shadow must be PostgreSQL 16 or later")
            (superuser,) = await _one(admin, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
            if not superuser:
                raise ShadowError("the shadow's administrator must be a superuser: it closes functions to analysts")
            yield admin

    async def _ensure_role(self, admin: Connection, analyst: str) -> None:
        reason = powerless.unfit(analyst)
        if reason is not None:
            raise ShadowError(f"{reason}; choose another name for the analyst")
        async with admin.cursor(row_factory=dict_row) as cursor:
            row = await (await cursor.execute(powerless.STATE, (analyst,))).fetchone()
        found = None
        if row is not None:
            if row["mark"] != powerless.MARK:
                raise ShadowError(f"the shadow cluster has a role {analyst!r} that pgveil did not make")
            lists = {"memberships": tuple(row["memberships"]), "overrides": tuple(row["overrides"])}
            found = powerless.Found(**{**row, **lists, "settings": frozenset(row["settings"])})
        statements = powerless.remedy(analyst, self._secret, self._caps, found)
        if statements:
            async with admin.transaction():
                await _run(admin, *statements)

    async def _find(self, admin: Connection, wanted: str) -> Generation | None:
        found = [each for each in await self._generations(admin) if each.fingerprint == wanted]
        return found[0] if found else None

    async def _generations(self, admin: Connection) -> list[Generation]:
        """The finished databases of this shadow, the canonical name first."""
        rows = await admin.execute(
            "SELECT d.datname, shobj_description(d.oid, 'pg_database') FROM pg_database d"
            " WHERE d.datname <> %s AND shobj_description(d.oid, 'pg_database') LIKE '{\"pgveil\"%%'"
            " ORDER BY length(d.datname), d.datname",
            (self._workshop,),
        )
        found = []
        for name, comment in await rows.fetchall():
            mark = json.loads(comment)
            if mark["pgveil"] == self.database:
                found.append(Generation(name, mark["registry"], mark["fingerprint"]))
        return found

    @property
    def _workshop(self) -> str:
        """The name of a database that is being built."""
        return "pgveil_building_" + hashlib.sha256(self.database.encode()).hexdigest()[:16]

    async def _build(self, admin: Connection, source: Connection, blueprint: Blueprint) -> None:
        workshop = quoted(self._workshop)
        await _run(admin, f"DROP DATABASE IF EXISTS {workshop} WITH (FORCE)")
        # template0: nothing that somebody put into template1 comes along.
        await _run(admin, f"CREATE DATABASE {workshop} TEMPLATE template0 ENCODING 'UTF8'")
        await _run(
            admin,
            f"REVOKE ALL ON DATABASE {workshop} FROM PUBLIC",
            *(f"ALTER DATABASE {workshop} SET {name} = {literal(value)}" for name, value in SETTINGS.items()),
        )
        inside = make_conninfo(self._admin_dsn, dbname=self._workshop)
        async with await _connect(inside) as target, target.transaction():
            # A public table may refer to a protected one, which is empty here: load without checking that.
            await _run(target, _PLAIN_TEXT, "SET LOCAL session_replication_role = replica", *ddl(blueprint))
            for table in blueprint.tables:
                if table.public:
                    await _copy(source, target, table)

    async def _finish(self, admin: Connection, version: int, wanted: str) -> Generation:
        """Sign the database in the workshop and give it the first free name: only now it counts."""
        mark = json.dumps({"pgveil": self.database, "registry": version, "fingerprint": wanted})
        rows = await admin.execute("SELECT datname FROM pg_database")
        taken = {name for (name,) in await rows.fetchall()}
        name, number = self.database, 1
        while name in taken:
            number += 1
            name = f"{self.database}_{number}"
        # The builder's own backend takes a moment to leave, and RENAME looks again only every 100 ms.
        for _ in range(100):
            if await self._sessions(admin, self._workshop) == 0:
                break
            await asyncio.sleep(0.002)
        async with admin.transaction():
            await _run(
                admin,
                f"COMMENT ON DATABASE {quoted(self._workshop)} IS {literal(mark)}",
                f"ALTER DATABASE {quoted(self._workshop)} RENAME TO {quoted(name)}",
            )
        return Generation(name, version, wanted)

    async def _drop_idle(self, admin: Connection, wanted: str, version: int) -> None:
        """Drop what nobody uses; a generation of a younger registry belongs to a proxy that knows more."""
        for old in await self._generations(admin):
            if old.fingerprint == wanted or old.catalog_version > version:
                continue
            if await self._sessions(admin, old.database_name) == 0:
                try:
                    await _run(admin, f"DROP DATABASE IF EXISTS {quoted(old.database_name)}")
                except errors.ObjectInUse:
                    pass  # somebody came in the meantime: the next round takes it

    async def _sessions(self, admin: Connection, database: str) -> int:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'"
        (count,) = await _one(admin, query, database)
        return int(count)

    async def _admit(self, admin: Connection, generation: Generation, analysts: Sequence[str]) -> None:
        """Let these roles connect to the generation; who is already in stays in."""
        rows = await admin.execute(
            "SELECT r.rolname FROM pg_database d CROSS JOIN aclexplode(d.datacl) a JOIN pg_roles r ON r.oid = a.grantee"
            " WHERE d.datname = %s AND a.privilege_type = 'CONNECT'",
            (generation.database_name,),
        )
        inside = {name for (name,) in await rows.fetchall()}
        new = [quoted(name) for name in dict.fromkeys(analysts) if name not in inside]
        if new:
            await _run(
                admin,
                f"GRANT CONNECT, TEMPORARY ON DATABASE {quoted(generation.database_name)} TO {', '.join(new)}",
            )


async def read_blueprint(upstream: Connection, catalog: Catalog) -> Blueprint:
    """What the upstream's pg_catalog says of the registered relations; sets search_path for the transaction."""
    for relation in catalog.relations:
        if relation.schema in ("veil", "information_schema") or relation.schema.startswith("pg_"):
            raise ShadowError(f"{relation.qualified} cannot be shadowed: the schema's name is taken")
    async with upstream.transaction(), upstream.cursor(row_factory=dict_row) as cursor:
        await cursor.execute("SET LOCAL search_path = pg_catalog")
        names = [r.schema for r in catalog.relations], [r.name for r in catalog.relations]
        relations = await (await cursor.execute(survey.RELATIONS, names)).fetchall()
        kinds = {row["oid"]: catalog.by_name[row["schema"], row["name"]].kind for row in relations}
        split = {kind.value: [oid for oid, each in kinds.items() if each is kind] for kind in Kind}
        clash = await (await cursor.execute(survey.SOURCES, split)).fetchone()
        if clash is not None:
            at = {row["oid"]: f"{row['schema']}.{row['name']}" for row in relations}
            raise ShadowError(
                f"{at[clash['public']]} is registered as public, but shares rows with {at[clash['protected']]}, which"
                " is protected"
            )
        oids = (list(kinds),)
        columns = await (await cursor.execute(survey.COLUMNS, oids)).fetchall()
        types = await (await cursor.execute(survey.TYPES, oids)).fetchall()
        constraints = await (await cursor.execute(survey.CONSTRAINTS, oids)).fetchall()
    return survey.assemble(catalog, relations, columns, types, constraints)


async def _copy(source: Connection, target: Connection, table: Table) -> None:
    """Stream the rows of a public table. *Guarantee*: a protected table is never read."""
    if not table.public:
        raise ShadowError(f"{table.schema}.{table.name} is protected: its rows are not copied")
    if not table.columns:
        return
    columns = ", ".join(quoted(column.name) for column in table.columns)
    async with (
        source.cursor() as reader,
        target.cursor() as writer,
        reader.copy(f"COPY (SELECT {columns} FROM {table.sql_name}) TO STDOUT") as rows,
        writer.copy(f"COPY {table.sql_name} ({columns}) FROM STDIN") as into,
    ):
        async for block in rows:
            await into.write(block)
    await _run(target, f"ANALYZE {table.sql_name}")


@asynccontextmanager
async def _reading(upstream: str | Connection) -> AsyncIterator[Connection]:
    """One snapshot of the upstream, read-only."""
    if isinstance(upstream, str):
        async with await _connect(upstream) as opened, _reading(opened) as source:
            yield source
    else:
        async with upstream.transaction():
            await upstream.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            await _run(upstream, _PLAIN_TEXT)
            yield upstream


@asynccontextmanager
async def _held(admin: Connection, lock: int) -> AsyncIterator[None]:
    await admin.execute("SELECT pg_advisory_lock(%s)", (lock,))
    try:
        yield
    finally:
        # A broken connection has given its locks back already.
        if not admin.closed:
            await admin.execute("SELECT pg_advisory_unlock(%s)", (lock,))


async def _connect(dsn: str) -> Connection:
    return await psycopg.AsyncConnection.connect(dsn, autocommit=True)


async def _one(connection: Connection, query: str, *values: object) -> tuple[Any, ...]:
    row = await (await connection.execute(query, values)).fetchone()
    assert row is not None
    return cast(tuple[Any, ...], row)


async def _run(connection: Connection, *statements: str) -> None:
    """Statements of our own making, in one round trip (so, without parameters)."""
    await connection.execute(";\n".join(statements))
