"""What a client says to a PostgreSQL, read from that PostgreSQL's own log."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

_PREFIX = "\N{SECTION SIGN}"
_RECORD = re.compile(rf"^{_PREFIX}(\w*){_PREFIX}(\d+){_PREFIX} ?(\w+):  ", re.MULTILINE)
_STATEMENT = re.compile(r"(?:statement|execute [^:]*): (.*)", re.DOTALL)
_VALUE = re.compile(r"\$\d+ = (?:NULL|'((?:[^']|'')*)')")


@dataclass(frozen=True)
class Logged:
    """A statement, with the values of its parameters as text, and the backend that ran it."""

    backend: int
    text: str
    values: tuple[str | None, ...] = ()


@contextmanager
def statements(admin: str, role: str, database: str) -> Iterator[list[Logged]]:
    """What one role runs meanwhile in a database of that server; the list is filled at the end."""
    log = Path(str(conninfo_to_dict(admin)["host"])).parent / "postgres.log"
    who = sql.SQL("ALTER ROLE {} IN DATABASE {} ").format(sql.Identifier(role), sql.Identifier(database))
    found: list[Logged] = []
    with psycopg.connect(admin, autocommit=True) as conn:
        conn.execute(f"ALTER SYSTEM SET log_line_prefix = '{_PREFIX}%u{_PREFIX}%p{_PREFIX} '")
        for setting in ("log_statement = 'all'", "log_min_messages = 'log'"):  # of an analyst nothing is logged else
            conn.execute(who + sql.SQL(f"SET {setting}"))
        conn.execute("SELECT pg_reload_conf()")
        until = time.monotonic() + 60
        while conn.execute("SHOW log_line_prefix").fetchone() != (f"{_PREFIX}%u{_PREFIX}%p{_PREFIX} ",):
            assert time.monotonic() < until, "the setting was not read"
            time.sleep(0.05)
        before = log.stat().st_size
        yield found
        conn.execute(who + sql.SQL("RESET ALL"))
    with log.open("rb") as whole:
        whole.seek(before)
        found += _read(whole.read().decode(), role)


def _read(text: str, role: str) -> list[Logged]:
    found: list[Logged] = []
    heads = list(_RECORD.finditer(text))
    for head, after in zip(heads, [*heads[1:], None], strict=True):
        user, backend, level = head.groups()
        said = (
            text[head.end() : after.start() if after else None].rstrip("\n").replace("\n\t", "\n")
        )  # further lines are set in by a tab
        if user != role:
            continue
        if level == "LOG" and (statement := _STATEMENT.fullmatch(said)) is not None:
            found.append(Logged(int(backend), statement[1]))
        elif level == "DETAIL" and "arameters: " in said:
            values = tuple(None if one[1] is None else one[1].replace("''", "'") for one in _VALUE.finditer(said))
            found[-1] = Logged(int(backend), found[-1].text, values)
    return found
