"""The protected database: generated SELECTs, for a receipt, in one snapshot, as a role that can do nothing else.

A statement is measured in one REPEATABLE READ, READ ONLY transaction that is opened *before* the charge::

    LOCK TABLE ... IN ACCESS SHARE MODE    no ALTER TABLE until the transaction ends; takes no snapshot yet
    set_config(...)                        the snapshot is taken here; settings that dates depend on
    PREPARE, constants                     every generated statement is analysed, every constant is read
    FACTS                                  columns, types, constraints: as they were when the question was planned?
    -- the charge: registry version and data versions are compared under the ledger's lock --
    SELECT ...                             the measurement, for a receipt

*Guarantee*: what a sensitivity relies on (constraints, types, keys) holds in the snapshot that is read. A refresh
committed before the charge is noticed there; one after it comes too late to matter, since the snapshot is older. What
cannot run costs nothing, and until the receipt is there no private row is read: LOCK, PREPARE and FACTS look at the
system catalogs only, so a refusal tells nothing of rows, and neither does its time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import psycopg
from psycopg import AsyncConnection, IsolationLevel
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from provenance.constraints import FACTS
from provenance.errors import StaleCatalog
from provenance.model import Receipt
from proxy.errors import (
    ConstantNotRead,
    DeadlineExceeded,
    MeasurementFailed,
    ProtectedDatabaseFailed,
    ProtectedDatabaseUnusable,
)
from sqlrewrite.catalog import Relation
from sqlrewrite.generate import Generated
from sqlrewrite.term import quoted

log = logging.getLogger("pgveil")
READER: Final = "pgveil_reader"
_LOCK_SECONDS: Final = 10.0
"""How long a question waits for an ALTER TABLE to end, before it is charged."""
_PIECE: Final = 200
"""Rows that are read in one go: some tenths of a millisecond, in which no other session is served."""
_SHUTDOWN: Final = frozenset(("57P01", "57P02", "57P03", "57P05", "25P03"))
_TIMEOUT: Final = "57014"
_NOT_READ: Final = ("22", "23")
"""Classes of errors that only constants can have before a row is read: not of the type, not in the domain."""

T = TypeVar("T")
Take: TypeAlias = Callable[[Sequence[TupleRow]], T]


class Backend:
    """The protected database."""

    def __init__(self, pool: AsyncConnectionPool[AsyncConnection[TupleRow]], seconds: float) -> None:
        self._pool = pool
        self._seconds = seconds
        # Waiting for a turn may take as long as other questions do; waiting for a server that is down may not.
        self._turns = asyncio.Semaphore(pool.max_size)

    @asynccontextmanager
    async def snapshot(
        self, relations: Sequence[Relation], queries: Sequence[Generated], carried: Mapping[str, str]
    ) -> AsyncIterator[Reader]:
        """One snapshot in which ``queries`` can run and the facts about ``relations`` hold; nothing is read yet.

        StaleCatalog: something about the tables has changed since the catalog was read; plan the question again.
        """
        async with self._turns:
            try:
                conn = await self._pool.getconn()
            except (psycopg.Error, OSError) as failure:
                log.error("the protected database cannot be reached: %s", type(failure).__name__)
                raise ProtectedDatabaseUnusable from None
            try:
                await _open(conn, relations, queries, carried)
                yield Reader(conn, self._seconds)
            finally:
                with suppress(psycopg.Error, OSError):
                    await conn.rollback()
                await self._pool.putconn(conn)


@dataclass(frozen=True, slots=True)
class Reader:
    """One connection to the protected database, inside its snapshot."""

    _conn: AsyncConnection[TupleRow]
    _seconds: float

    async def measure(self, receipt: Receipt, query: Generated, take: Take[T]) -> T:
        """Read the exact numbers of a question that has been paid for; ``take`` locks them away (Exact or Found).

        *Guarantee*: nothing of an error of the protected database passes, and the time limit is the same for every
        question. An error that could depend on rows, PostgreSQL's or that of reading its result, is a
        ``MeasurementFailed``, which the caller records as a security incident.
        """
        if not isinstance(receipt, Receipt):
            raise TypeError("data is read for a receipt")
        try:
            async with psycopg.AsyncRawCursor(self._conn) as cursor:
                await cursor.execute(query.sql.encode(), query.parameters, binary=True)
                rows: list[TupleRow] = []
                while piece := await cursor.fetchmany(_PIECE):
                    rows += piece
                    await asyncio.sleep(0)
            return await asyncio.to_thread(take, rows)
        except (psycopg.Error, OSError) as failure:
            state = getattr(failure, "sqlstate", None)
            kind = state or type(failure).__name__
        except (ValueError, TypeError, ArithmeticError, LookupError) as failure:  # a row that Python cannot hold
            state, kind = None, type(failure).__name__
        if state == _TIMEOUT:
            log.warning("charge %s: the question did not end within %g seconds", receipt.id, self._seconds)
            raise DeadlineExceeded(self._seconds)
        if self._conn.closed or state in _SHUTDOWN:
            log.error("charge %s: the connection to the protected database was lost [%s]", receipt.id, kind)
            raise ProtectedDatabaseFailed
        log.error("security incident: charge %s: the protected database failed [%s]: %s", receipt.id, kind, query)
        raise MeasurementFailed(receipt.id, kind, f"{query.sql} -- {list(query.parameters)}")


async def configure(conn: AsyncConnection[Any], seconds: float) -> None:
    """Make a fresh connection powerless: SELECT on registered tables, read-only, no search path."""
    await conn.set_isolation_level(IsolationLevel.REPEATABLE_READ)
    await conn.set_read_only(True)
    await conn.execute(f"SET ROLE {READER}")
    await conn.execute("SET default_transaction_read_only = on")
    await conn.execute("SET search_path = ''")
    await conn.execute("SET idle_in_transaction_session_timeout = 0")
    for name, limit in (("statement_timeout", seconds), ("lock_timeout", min(seconds, _LOCK_SECONDS))):
        await conn.execute("SELECT set_config(%s, %s, false)", (name, str(int(limit * 1000))))
    await conn.commit()


async def _open(
    conn: AsyncConnection[TupleRow],
    relations: Sequence[Relation],
    queries: Sequence[Generated],
    carried: Mapping[str, str],
) -> None:
    names = [each.schema for each in relations], [each.name for each in relations]
    expected = {(each.schema, each.name): each.facts for each in relations}
    try:
        if await _prepared(conn, relations, queries, carried, names) != expected:
            raise _changed()
        return
    except (psycopg.Error, OSError) as failure:
        log.error("a question cannot run on the protected database [%s]", getattr(failure, "sqlstate", None))
        if conn.closed:
            raise ProtectedDatabaseUnusable from None
        unread = (getattr(failure, "sqlstate", None) or "")[:2] in _NOT_READ
    # A name that is not there any more is a fact that has changed; anything else is not the analyst's fault.
    try:
        await conn.rollback()
        found = await _facts(await conn.execute(FACTS, _asked_of(names)))
    except (psycopg.Error, OSError):
        raise ProtectedDatabaseUnusable from None
    if found != expected:
        raise _changed()
    if unread:
        raise ConstantNotRead
    raise ProtectedDatabaseUnusable


async def _prepared(
    conn: AsyncConnection[TupleRow],
    relations: Sequence[Relation],
    queries: Sequence[Generated],
    carried: Mapping[str, str],
    names: tuple[list[str], list[str]],
) -> dict[tuple[str, str], str]:
    """Take the locks, then the snapshot; analyse every statement; return the facts."""
    # In one order everywhere. LOCK TABLE does not take materialized views: PREPARE locks those, and FACTS notices one
    # that was made anew in between.
    tables = sorted(f"{quoted(each.schema)}.{quoted(each.name)}" for each in relations if not each.materialized)
    async with conn.pipeline():
        if tables:
            await conn.execute(f"LOCK TABLE {', '.join(tables)} IN ACCESS SHARE MODE".encode())
        for name, value in carried.items():
            await conn.execute("SELECT pg_catalog.set_config(%s, %s, true)", (name, value))
        for query in queries:
            await conn.execute(f"PREPARE pgveil_question AS {query.sql}".encode())
            await conn.execute("DEALLOCATE pgveil_question")
            if query.parameters:
                await psycopg.AsyncRawCursor(conn).execute(query.constants.encode(), query.parameters)
        # From here on the question's time limit counts: an index that is being rebuilt is waited for after the charge.
        await conn.execute("SELECT pg_catalog.set_config('lock_timeout', '0', true)")
        facts = await conn.execute(FACTS, _asked_of(names))
        return await _facts(facts)


def _asked_of(names: tuple[list[str], list[str]]) -> dict[str, object]:
    return {"reader": READER, "schemas": names[0], "names": names[1]}


async def _facts(cursor: psycopg.AsyncCursor[TupleRow]) -> dict[tuple[str, str], str]:
    return {(schema, name): digest for schema, name, _, digest in await cursor.fetchall()}


def _changed() -> StaleCatalog:
    return StaleCatalog("a table has changed since the question was read", hint="Ask again.")
