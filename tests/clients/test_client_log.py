"""What clients say to a plain PostgreSQL at connect, to list and to describe, as its log has it: they say the same to
pgveil, and it gives the same rows.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import psycopg
import pytest
from drive import Agent, place
from matrix import CLIENTS, Client
from proxies import Proxy, charges
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from recorder import recorder
from server_log import Logged, statements
from test_client_statements import cases

pytestmark = pytest.mark.clients

CHECKS = ("connect", "list", "describe")


@pytest.mark.parametrize("client", cases())
def test_what_postgresql_logs_of_a_client_gives_the_same_rows_through_pgveil(
    client: Client, agents: Callable[[Client], Agent], proxy: Proxy, upstream: str, analyst: str, shadow_server
) -> None:  # type: ignore[no-untyped-def]
    with proxy.connect(analyst) as conn:  # the shadow knows analysts once they were here
        (database,) = conn.execute("SELECT current_database()").fetchone() or ("",)
    admin = shadow_server.admin_dsn
    at = conninfo_to_dict(admin)
    socket = Path(str(at["host"])) / f".s.PGSQL.{at['port']}"
    with statements(admin, analyst, str(database)) as logged, recorder(socket) as (port, _):
        for check in CHECKS:  # PostgreSQL itself, which lets everybody in by its socket
            agents(client).ask(check, **{**place(proxy, analyst), "port": str(port), "database": str(database)})
    with recorder(proxy.port) as (port, said):
        for check in CHECKS:
            agents(client).ask(check, **{**place(proxy, analyst), "port": str(port)})
    assert len(logged) >= 3
    heard = [text for one in said for text in one.texts()]
    assert {one.text.strip() for one in logged} <= {text.strip() for text in heard}
    direct = make_conninfo(admin, dbname=database, user=analyst)
    for _, session in groupby(sorted(logged, key=lambda one: one.backend), lambda one: one.backend):
        spoken = list(session)
        with proxy.connect(analyst) as veiled, psycopg.connect(direct, autocommit=True) as native:
            for one in spoken:
                assert seen(veiled, one) == seen(native, one), one
    assert charges(upstream, analyst) == []


def seen(conn: psycopg.Connection, one: Logged) -> Any:
    """What a program sees: names, types and rows of each result, or the SQLSTATE."""
    cursor = psycopg.RawCursor(conn)
    try:
        if one.text.upper().startswith("COPY"):
            with cursor.copy(one.text) as copy:
                return [bytes(piece) for piece in copy]
        cursor.execute(one.text, one.values or None)
    except psycopg.Error as error:
        return error.sqlstate, error.diag.message_primary
    found: list[Any] = []
    while True:
        shape = [(column.name, column.type_code) for column in cursor.description or ()]
        found.append((cursor.statusmessage, shape, cursor.fetchall() if cursor.description else None))
        if not cursor.nextset():
            return found


def test_every_listed_client_is_tried_or_said_to_be_missing() -> None:
    wanted = {"psql 15", "psql 18", "psycopg 3 (text)", "psycopg 3 (binary)", "psycopg2", "asyncpg", "pg8000"}
    wanted |= {"SQLAlchemy", "pandas.read_sql", "pgcli", "ADBC", "connectorx", "dbt-postgres", "node pg"}
    wanted |= {"postgres.js", "JDBC", "ODBC"}
    assert wanted <= {client.name for client in CLIENTS}
