"""pg8000: a driver in Python alone."""

from __future__ import annotations

import io
import ssl
from importlib.metadata import version
from typing import Any

import pg8000.dbapi
from agent import Request, serve
from dbapi import Driver


class Pg8000(Driver):
    def open(self, to: Request) -> Any:
        tls = ssl.create_default_context(cafile=to["ca"]) if to["ca"] else False
        conn = pg8000.dbapi.connect(
            to["user"], to["host"], to["database"], int(to["port"]), to["password"], ssl_context=tls
        )
        conn.autocommit = True
        return conn

    def notice(self, to: Request) -> Any:
        conn = self.open(to)
        self.rows(conn, to["decision"])
        said = [notice[b"M"].decode() for notice in conn.notices]
        conn.close()
        return said

    def pieces(self, to: Request) -> Any:
        """By a cursor in SQL, since the driver itself fetches everything."""
        conn = self.open(to)
        cursor = conn.cursor()
        cursor.execute("BEGIN")
        cursor.execute(f"DECLARE in_pieces CURSOR FOR {to['many']}")
        found: list[Any] = []
        while piece := self.rows(conn, "FETCH 7 FROM in_pieces"):
            found += piece
        conn.close()
        return found

    def copy(self, to: Request) -> Any:
        conn, out = self.open(to), io.BytesIO()
        conn.cursor().execute(f"COPY ({to['number']}) TO STDOUT", stream=out)
        conn.close()
        return [[["str", cell] for cell in line.split("\t")] for line in out.getvalue().decode().splitlines()]


if __name__ == "__main__":
    serve(lambda: version("pg8000"), Pg8000().checks())
