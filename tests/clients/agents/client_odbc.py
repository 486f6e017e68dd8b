"""ODBC: psqlodbc under pyodbc."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pyodbc
from agent import Request, at_the_word, done, refusal, serve
from dbapi import Driver, in_pieces

pyodbc.pooling = False


class Odbc(Driver):
    places = ("?", "?")

    def __init__(self, library: str) -> None:
        self.library = library

    def open(self, to: Request, **more: str) -> Any:
        place = {"DRIVER": self.library, "SERVER": to["host"], "PORT": to["port"], "DATABASE": to["database"]}
        tls = {"SSLMODE": "verify-full", "pqopt": f"{{sslrootcert={to['ca']}}}"} if to["ca"] else {"SSLMODE": "disable"}
        parts = {**place, "UID": to["user"], "PWD": to["password"], **tls, **more}
        return pyodbc.connect(";".join(f"{name}={value}" for name, value in parts.items()), autocommit=True)

    def list(self, to: Request) -> Any:
        """SQLTables, as every ODBC tool lists."""
        conn = self.open(to)
        found = [row.table_name for row in conn.cursor().tables(tableType="TABLE")]
        conn.close()
        return found

    def describe(self, to: Request) -> Any:
        """SQLColumns, SQLPrimaryKeys, SQLForeignKeys, SQLStatistics."""
        conn = self.open(to)
        columns = [[row.column_name, row.type_name] for row in conn.cursor().columns(table="orders")]
        assert [row.column_name for row in conn.cursor().primaryKeys(table="orders")] == ["order_id"]
        assert [row.pktable_name for row in conn.cursor().foreignKeys(foreignTable="orders")] == ["city"]
        assert any(row.column_name == "order_id" for row in conn.cursor().statistics(table="orders"))
        conn.close()
        return columns

    def transaction(self, to: Request) -> Any:
        """With the driver's own rollback of single statements turned off, as it is in other drivers."""
        conn = self.open(to, Protocol="7.4-0")
        conn.autocommit = False
        before = self.rows(conn, to["decision"])
        conn.cursor().execute("SAVEPOINT here")
        states = [refusal(lambda asked=to[name]: self.rows(conn, asked)) for name in ("refused", "public")]
        conn.cursor().execute("ROLLBACK TO SAVEPOINT here")
        after = self.rows(conn, to["decision"])
        conn.commit()
        conn.close()
        return {"before": before, "states": states, "after": after}

    def notice(self, to: Request) -> Any:
        conn = self.open(to)
        cursor = conn.cursor()
        cursor.execute(to["decision"])
        said = [text[text.find("veil: ") :] for _, text in cursor.messages]  # after "NOTICE: " and the driver's name
        conn.close()
        return said

    def pieces(self, to: Request) -> Any:
        """UseDeclareFetch, which Tableau and Power BI turn on for large answers."""
        conn = self.open(to, UseDeclareFetch="1", Fetch="7")
        cursor = conn.cursor()
        cursor.execute(to["many"])
        found = in_pieces(cursor)
        conn.close()
        return found

    def cancel(self, to: Request) -> Any:
        conn = self.open(to)
        cursor = conn.cursor()
        thread = at_the_word(to, cursor.cancel)
        try:
            cursor.execute(to["long"])
            state = "answered"
        except pyodbc.Error as error:
            state = str(error.args[0])
        done(thread, to)
        then = self.rows(conn, "SELECT 1")[0][0]
        conn.close()
        return {"state": state, "then": then}


def version(library: str) -> str:
    found = re.findall(rb"\b\d\d\.\d\d\.\d{4}\b", Path(library).read_bytes())
    return f"psqlodbc {max(found).decode()}, pyodbc {pyodbc.version}"


if __name__ == "__main__":
    serve(lambda: version(sys.argv[1]), Odbc(sys.argv[1]).checks())
