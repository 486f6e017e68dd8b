"""psycopg 3: text and binary, pipeline, server-side cursors, COPY."""

from __future__ import annotations

import sys
from typing import Any

import psycopg
from agent import Request, restarted, serve, shown
from dbapi import Driver, in_pieces


class Psycopg(Driver):
    def __init__(self, binary: bool) -> None:
        self.binary = binary

    def open(self, to: Request, **more: str) -> Any:
        tls = {"sslmode": "verify-full", "sslrootcert": to["ca"]} if to["ca"] else {"sslmode": "disable"}
        place = {"host": to["host"], "port": to["port"], "dbname": to["database"]}
        return psycopg.connect(**place, **tls, user=to["user"], password=to["password"], autocommit=True, **more)

    def rows(self, conn: Any, text: str, *values: Any) -> list[Any]:
        return conn.execute(text, values or None, binary=self.binary, prepare=self.binary).fetchall()

    def binding(self, to: Request) -> Any:
        with self.open(to, channel_binding="require") as conn:
            return self.rows(conn, "SELECT 1")[0][0]

    def direct(self, to: Request) -> Any:
        with self.open(to, sslnegotiation="direct") as conn:
            return self.rows(conn, "SELECT 1")[0][0]

    def notice(self, to: Request) -> Any:
        with self.open(to) as conn:
            said: list[str] = []
            conn.add_notice_handler(lambda notice: said.append(notice.message_primary))
            self.rows(conn, to["decision"])
        return said

    def pieces(self, to: Request) -> Any:
        with self.open(to) as conn, conn.transaction(), conn.cursor("in_pieces") as cursor:
            return in_pieces(cursor.execute(to["many"], binary=self.binary))

    def copy(self, to: Request) -> Any:
        style = " (FORMAT binary)" if self.binary else ""
        with self.open(to) as conn, conn.cursor().copy(f"COPY ({to['number']}) TO STDOUT{style}") as copy:
            copy.set_types(["text", "int8", "numeric"])
            return shown(copy.rows())

    def pipeline(self, to: Request) -> Any:
        with self.open(to) as conn, conn.pipeline():
            cursors = [conn.execute(to[name], binary=self.binary) for name in ("decision", "public", "number")]
            return [len(cursor.fetchall()) for cursor in cursors]

    def cancel(self, to: Request) -> Any:
        conn = self.open(to)
        return self.cancelled(to, conn, conn.cancel_safe)

    def reconnect(self, to: Request) -> Any:
        """The pool that comes with it checks a connection before it hands it out."""
        from psycopg_pool import ConnectionPool

        def connected() -> Any:
            with pool.connection() as conn:
                return self.rows(conn, to["decision"])

        parts = {"host": to["host"], "port": to["port"], "dbname": to["database"], "sslmode": "disable"}
        who = {**parts, "user": to["user"], "password": to["password"], "autocommit": True}
        with ConnectionPool(kwargs=who, min_size=1, open=True, check=ConnectionPool.check_connection) as pool:
            before = connected()
            restarted(to)
            return {"before": before, "after": connected()}


if __name__ == "__main__":
    serve(lambda: psycopg.__version__, Psycopg(binary=sys.argv[1] == "binary").checks())
