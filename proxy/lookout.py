"""One connection for looks at how things stand: statements of one row, many at a time, with nothing in between.

A look is asked for before every answer, also where that is all there is to do. A pool lends a connection, checks it and
takes it back; here the statements of all sessions follow each other on one connection (libpq's pipeline mode), each a
transaction of its own, and its socket is watched all the time.

*Guarantee*: a row was read after it was asked for. Where the connection is in doubt nothing is told (``Silent``), and
the pool is asked, which knows how to say what is wrong.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import Final, TypeAlias

from psycopg import AsyncConnection, Error
from psycopg.conninfo import make_conninfo
from psycopg.pq import ExecStatus

log = logging.getLogger(__name__)
Row: TypeAlias = tuple[bytes | None, ...]
_PATIENCE: Final = 3.0  # seconds that a look may take, and that pass before a lost connection is made again


class Silent(Exception):  # noqa: N818 - an event, not a fault
    """Nothing can be told here now."""


class Lookout:
    """The connection, made when it is first needed, and the looks that are under way."""

    def __init__(self, dsn: str, statements: Sequence[str]) -> None:
        self._dsn, self._statements = dsn, statements
        self._conn: AsyncConnection | None = None
        self._socket = -1  # of the connection: libpq does not tell it any more when it has closed it
        self._opening: asyncio.Task[None] | None = None
        self._lost = -_PATIENCE
        self._asked: deque[asyncio.Future[Row | None]] = deque()
        self._told: Row | None = None
        self._writing = False

    def ask(self, number: int, values: Sequence[str]) -> asyncio.Future[Row | None] | None:
        """Ask a statement with these values; what comes is its row, None if it has none, or ``Silent``.

        None: nothing can be asked here now.
        """
        conn = self._conn
        if conn is None:
            self._open()
            return None
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Row | None] = loop.create_future()
        try:
            pgconn = conn.pgconn
            pgconn.send_query_prepared(b"look_%d" % number, [value.encode() for value in values])
            pgconn.pipeline_sync()
            self._asked.append(future)
            if pgconn.flush() and not self._writing:
                self._writing = True
                loop.add_writer(self._socket, self._writable)
        except Error:
            self._lose()
            return None
        late = loop.call_later(_PATIENCE, self._lose)

        def heard(done: asyncio.Future[Row | None]) -> None:
            late.cancel()
            if not done.cancelled():
                done.exception()  # whoever was to wait for it may have ended before

        future.add_done_callback(heard)
        return future

    async def start(self) -> None:
        """Connect now."""
        self._open()
        if self._opening is not None:
            await self._opening

    def close(self) -> None:
        """Let go of the connection."""
        if self._opening is not None:
            self._opening.cancel()
        self._lose()

    def _open(self) -> None:
        if self._opening is None and time.monotonic() - self._lost >= _PATIENCE:
            self._opening = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        conn: AsyncConnection | None = None
        try:
            dsn = make_conninfo(self._dsn, connect_timeout=int(_PATIENCE), client_encoding="UTF8")
            conn = await AsyncConnection.connect(dsn, autocommit=True)
            for number, statement in enumerate(self._statements):
                await conn.execute(f"PREPARE look_{number} AS {statement}".encode())
            conn.pgconn.enter_pipeline_mode()
            self._socket = conn.fileno()
            asyncio.get_running_loop().add_reader(self._socket, self._readable)
            self._conn = conn
        except (Error, OSError) as failure:
            self._lost = time.monotonic()
            log.warning("no connection for looks: %s", type(failure).__name__)
        finally:
            self._opening = None
            if conn is not None and self._conn is not conn:
                conn.pgconn.finish()

    def _writable(self) -> None:
        conn = self._conn
        try:
            if conn is not None and not conn.pgconn.flush():
                self._writing = False
                asyncio.get_running_loop().remove_writer(self._socket)
        except Error:
            self._lose()

    def _readable(self) -> None:
        if self._conn is None:
            return
        pgconn = self._conn.pgconn
        try:
            pgconn.consume_input()
            while self._asked and not pgconn.is_busy():
                result = pgconn.get_result()
                if result is None:
                    continue  # the end of one statement's results
                if result.status == ExecStatus.PIPELINE_SYNC:
                    future, told, self._told = self._asked.popleft(), self._told, None
                    if not future.done():
                        future.set_result(told)
                elif result.status == ExecStatus.TUPLES_OK:
                    columns = range(result.nfields)
                    self._told = tuple(result.get_value(0, at) for at in columns) if result.ntuples else None
                else:
                    raise Silent  # a statement that fails: the pool says why
        except (Error, Silent):
            self._lose()

    def _lose(self) -> None:
        """Give the connection up; whoever waits asks elsewhere."""
        conn, self._conn, self._lost = self._conn, None, time.monotonic()
        self._told, self._writing = None, False
        if conn is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._socket)
            loop.remove_writer(self._socket)
            conn.pgconn.finish()
        while self._asked:
            future = self._asked.popleft()
            if not future.done():
                future.set_exception(Silent())
