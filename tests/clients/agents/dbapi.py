"""What all drivers of Python's DB-API do alike; each client's file says how it connects and what is its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from agent import Request, at_the_word, done, refusal, restarted, shown

LIST = (
    "SELECT table_name FROM information_schema.tables"
    " WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1"
)
DESCRIBE = (
    "SELECT column_name, data_type FROM information_schema.columns"
    " WHERE table_name = 'orders' ORDER BY ordinal_position"
)


class Driver(ABC):
    """One driver."""

    places: tuple[str, str] = ("%s", "%s")

    @abstractmethod
    def open(self, to: Request) -> Any:
        """A connection, in autocommit mode."""

    def rows(self, conn: Any, text: str, *values: Any) -> list[Any]:
        cursor = conn.cursor()
        cursor.execute(text, values) if values else cursor.execute(text)
        return [tuple(row) for row in cursor.fetchall()]

    def connect(self, to: Request) -> Any:
        conn = self.open(to)
        try:
            return self.rows(conn, "SELECT 1")[0][0]
        finally:
            conn.close()

    tls = connect

    def ask(self, to: Request, text: str, *values: Any) -> list[Any]:
        conn = self.open(to)
        try:
            return self.rows(conn, text, *values)
        finally:
            conn.close()

    def list(self, to: Request) -> Any:
        return [row[0] for row in self.ask(to, LIST)]

    def describe(self, to: Request) -> Any:
        return self.ask(to, DESCRIBE)

    def public(self, to: Request) -> Any:
        return self.ask(to, to["public"])

    def decision(self, to: Request) -> Any:
        return self.ask(to, to["decision"])

    def number(self, to: Request) -> Any:
        return shown(self.ask(to, to["number"]))

    def parameter(self, to: Request) -> Any:
        text = to["parameter"].replace("{1}", self.places[0]).replace("{2}", self.places[1])
        return self.ask(to, text, "female", 2000)

    def error(self, to: Request) -> Any:
        conn = self.open(to)
        found = refusal(lambda: self.rows(conn, to["refused"]))
        then = self.rows(conn, "SELECT 2")[0][0]
        conn.close()
        return {"state": found, "then": then}

    def transaction(self, to: Request) -> Any:
        conn = self.open(to)
        cursor = conn.cursor()
        cursor.execute("BEGIN")
        before = self.rows(conn, to["decision"])
        cursor.execute("SAVEPOINT here")
        found = [refusal(lambda asked=to[name]: self.rows(conn, asked)) for name in ("refused", "public")]
        cursor.execute("ROLLBACK TO SAVEPOINT here")
        after = self.rows(conn, to["decision"])
        cursor.execute("COMMIT")
        conn.close()
        return {"before": before, "states": found, "after": after}

    def reconnect(self, to: Request) -> Any:
        """A driver alone does not reconnect: it says that the connection is gone, and the program opens another."""
        conn = self.open(to)
        before = self.rows(conn, to["decision"])
        restarted(to)
        try:
            self.rows(conn, "SELECT 1")
        except Exception:
            conn = self.open(to)
        after = self.rows(conn, to["decision"])
        conn.close()
        return {"before": before, "after": after}

    def cancelled(self, to: Request, conn: Any, cancel: Any) -> Any:
        thread = at_the_word(to, cancel)
        found = refusal(lambda: self.rows(conn, to["long"]))
        done(thread, to)
        then = self.rows(conn, "SELECT 1")[0][0]
        conn.close()
        return {"state": found, "then": then}

    def checks(self) -> dict[str, Any]:
        names = ("connect", "tls", "list", "describe", "public", "decision", "number", "parameter", "error")
        names += ("transaction", "reconnect", "notice", "pieces", "copy", "pipeline", "cancel", "binding", "direct")
        return {name: getattr(self, name) for name in names if hasattr(self, name)}


def in_pieces(cursor: Any, size: int = 7) -> list[Any]:
    """What a cursor gives, so many rows at a time."""
    rows: list[Any] = []
    while piece := cursor.fetchmany(size):
        rows += [tuple(row) for row in piece]
    return rows
