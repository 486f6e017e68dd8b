"""The one look at the data: a generated SELECT, for a receipt, as a role that can do nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from provenance.model import Receipt
from proxy.errors import ProtectedDatabaseFailed
from sqlrewrite.generate import Generated

log = logging.getLogger("pgveil")
READER: Final = "pgveil_reader"

T = TypeVar("T")
Take: TypeAlias = Callable[[Sequence[TupleRow]], T]


class Backend:
    """The protected database."""

    def __init__(self, pool: AsyncConnectionPool[AsyncConnection[TupleRow]]) -> None:
        self._pool = pool
        # Waiting for a turn may take as long as other questions do; waiting for a server that is down may not.
        self._turns = asyncio.Semaphore(pool.max_size)

    @asynccontextmanager
    async def reader(self) -> AsyncIterator[Reader]:
        """A connection that is there before the question is charged: a server that is down costs nobody anything."""
        async with self._turns:
            try:
                conn = await self._pool.getconn()
            except (psycopg.Error, OSError) as failure:
                log.error("the protected database cannot be reached: %s", type(failure).__name__)
                raise ProtectedDatabaseFailed from None
            try:
                yield Reader(conn)
            finally:
                await self._pool.putconn(conn)


@dataclass(frozen=True, slots=True)
class Reader:
    """One connection to the protected database."""

    _conn: AsyncConnection[TupleRow]

    async def measure(self, receipt: Receipt, query: Generated, take: Take[T], carried: Mapping[str, str]) -> T:
        """Read the exact numbers of a question that has been paid for; ``take`` locks them away (Exact or Found).

        *Guarantee*: nothing of an error of the protected database passes; the transaction is read-only and its
        time-out is the same for every question.
        """
        if not isinstance(receipt, Receipt):
            raise TypeError("data is read for a receipt")
        try:
            async with self._conn.pipeline(), self._conn.transaction():
                for name, value in carried.items():
                    await self._conn.execute("SELECT pg_catalog.set_config(%s, %s, true)", (name, value))
                async with psycopg.AsyncRawCursor(self._conn) as cursor:
                    await cursor.execute(query.sql, query.parameters, binary=True)
                    rows = await cursor.fetchall()
        except (psycopg.Error, OSError) as failure:
            log.error(
                "charge %s: the protected database failed: %s [%s]",
                receipt.id,
                type(failure).__name__,
                getattr(failure, "sqlstate", None),
            )
            raise ProtectedDatabaseFailed from None
        return take(rows)


async def configure(conn: AsyncConnection[Any], seconds: float) -> None:
    """Make a fresh connection powerless: SELECT on registered tables, read-only, no search path."""
    await conn.execute(f"SET ROLE {READER}")
    await conn.execute("SET default_transaction_read_only = on")
    await conn.execute("SET search_path = ''")
    await conn.execute("SELECT set_config('statement_timeout', %s, false)", (str(int(seconds * 1000)),))
    await conn.commit()
