"""psycopg2, the most used driver of Python."""

from __future__ import annotations

import io
from typing import Any

import psycopg2
from agent import Request, serve
from dbapi import Driver, in_pieces


class Psycopg2(Driver):
    def open(self, to: Request, **more: str) -> Any:
        tls = {"sslmode": "verify-full", "sslrootcert": to["ca"]} if to["ca"] else {"sslmode": "disable"}
        place = {"host": to["host"], "port": to["port"], "dbname": to["database"]}
        conn = psycopg2.connect(**place, **tls, user=to["user"], password=to["password"], **more)
        conn.autocommit = True
        return conn

    def binding(self, to: Request) -> Any:
        conn = self.open(to, channel_binding="require")
        found = self.rows(conn, "SELECT 1")[0][0]
        conn.close()
        return found

    def notice(self, to: Request) -> Any:
        conn = self.open(to)
        self.rows(conn, to["decision"])
        said = [notice.removeprefix("NOTICE:  ") for notice in conn.notices]
        conn.close()
        return said

    def pieces(self, to: Request) -> Any:
        conn = self.open(to)
        conn.autocommit = False
        cursor = conn.cursor("in_pieces")
        cursor.execute(to["many"])
        found = in_pieces(cursor)
        conn.close()
        return found

    def copy(self, to: Request) -> Any:
        conn, out = self.open(to), io.StringIO()
        conn.cursor().copy_expert(f"COPY ({to['number']}) TO STDOUT", out)
        conn.close()
        return [[["str", cell] for cell in line.split("\t")] for line in out.getvalue().splitlines()]

    def cancel(self, to: Request) -> Any:
        conn = self.open(to)
        return self.cancelled(to, conn, conn.cancel)


if __name__ == "__main__":
    serve(lambda: psycopg2.__version__.split()[0], Psycopg2().checks())
