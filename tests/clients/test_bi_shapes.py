"""BI tools that cannot be run here: the statements that they are known to send."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from bi_statements import LOOKUPS, PROBES, QUESTIONS, ROWS, SCRIPTS
from proxies import Proxy, charges, new_analyst
from psycopg.conninfo import make_conninfo

pytestmark = pytest.mark.clients

ASKED = "SELECT region, count(*) AS n FROM orders GROUP BY region"
FAULTS = {
    "superset-series": "a question joined with another is refused",
}


def named(statements: Any) -> list[Any]:
    return [
        pytest.param(
            text, id=name, marks=[pytest.mark.xfail(strict=True, reason=FAULTS[name])] if name in FAULTS else []
        )
        for name, text in statements.items()
    ]


@pytest.fixture(scope="module")
def reader(upstream: str) -> str:
    """One analyst for all: what is asked twice in another wrapping is paid once."""
    return new_analyst(upstream)


@pytest.fixture(scope="module")
def veiled(proxy: Proxy, reader: str) -> Iterator[psycopg.Connection]:
    with proxy.connect(reader) as conn:
        yield conn


@pytest.fixture(scope="module")
def direct(proxy: Proxy, veiled: psycopg.Connection, reader: str, shadow_server) -> Iterator[psycopg.Connection]:  # type: ignore[no-untyped-def]
    """The shadow itself, past the proxy."""
    (database,) = veiled.execute("SELECT current_database()").fetchone() or ("",)
    with psycopg.connect(make_conninfo(shadow_server.admin_dsn, dbname=database, user=reader), autocommit=True) as conn:
        yield conn


@pytest.fixture
def paid(upstream: str, reader: str) -> Callable[[], int]:
    return lambda: len(charges(upstream, reader))


def seen(conn: psycopg.Connection, text: str, **how: Any) -> Any:
    """What a program sees: names, types and rows, or the SQLSTATE."""
    try:
        cursor = conn.execute(text, **how)
    except psycopg.Error as error:
        return error.sqlstate, str(error)
    if cursor.description is None:
        return cursor.statusmessage
    return [(column.name, column.type_code) for column in cursor.description], cursor.fetchall()


@pytest.mark.parametrize("text", named(LOOKUPS))
def test_a_lookup_gives_what_the_shadow_gives(
    veiled: psycopg.Connection, direct: psycopg.Connection, text: str
) -> None:
    found = seen(direct, text)
    assert isinstance(found[0], list), found
    assert seen(veiled, text) == found
    for how in ({"prepare": True}, {"prepare": True, "binary": True}):  # not every type has a binary form
        assert seen(veiled, text, **how) == seen(direct, text, **how)


@pytest.mark.parametrize("script", named(SCRIPTS))
def test_settings_cursors_and_temporary_tables_are_the_shadows(
    veiled: psycopg.Connection, direct: psycopg.Connection, script: tuple[str, ...]
) -> None:
    try:
        for text in script:
            found = seen(direct, text)
            assert not isinstance(found, tuple) or isinstance(found[0], list), found
            assert seen(veiled, text) == found
    finally:
        for conn in (veiled, direct):
            conn.rollback()
            conn.execute("DISCARD TEMP; RESET ALL")


@pytest.mark.parametrize("text", named(PROBES))
def test_a_probe_of_the_shape_is_free_and_empty(veiled: psycopg.Connection, paid: Callable[[], int], text: str) -> None:
    before = paid()
    for how in ({}, {"prepare": True}):
        names, rows = seen(veiled, text, **how)
        assert isinstance(names, list), rows
        assert names and rows == []
    assert paid() == before


@pytest.mark.parametrize("text", named(ROWS))
def test_rows_are_refused_in_every_wrapping(veiled: psycopg.Connection, paid: Callable[[], int], text: str) -> None:
    before = paid()
    state, said = seen(veiled, text)
    assert state == "42501" and "private rows" in said and "HINT" in said
    assert paid() == before


@pytest.mark.parametrize("asked", named(QUESTIONS))
def test_a_question_is_answered_in_the_shape_of_the_tool_and_paid_once(
    veiled: psycopg.Connection, paid: Callable[[], int], asked: tuple[str, int | None]
) -> None:
    text, many = asked
    first = seen(veiled, text)
    assert isinstance(first[0], list), first
    assert 0 < len(first[1]) < 45 if many is None else len(first[1]) == many
    after = paid()
    assert seen(veiled, text) == first and seen(veiled, text, prepare=True) == first
    assert paid() == after


def test_a_question_fills_a_temporary_table(veiled: psycopg.Connection) -> None:
    try:
        assert seen(veiled, f'CREATE TEMPORARY TABLE "#Tableau_3" AS {ASKED}') == "SELECT 7"
        assert sorted(seen(veiled, 'TABLE "#Tableau_3"')[1]) == sorted(seen(veiled, ASKED)[1])
    finally:
        veiled.execute("DISCARD TEMP")  # other tests list the tables of this session


def test_a_question_is_fetched_from_a_cursor_with_hold(veiled: psycopg.Connection) -> None:
    """psqlodbc with UseDeclareFetch, which Tableau turns on."""
    plain = sorted(seen(veiled, ASKED)[1])
    assert seen(veiled, f'DECLARE "SQL_CUR2" CURSOR WITH HOLD FOR {ASKED}') == "DECLARE CURSOR"
    rows = seen(veiled, 'FETCH 4 IN "SQL_CUR2"')[1]
    rows += seen(veiled, 'FETCH 2048 IN "SQL_CUR2"')[1]
    assert sorted(rows) == plain and seen(veiled, 'CLOSE "SQL_CUR2"') == "CLOSE CURSOR"


def test_a_question_is_prepared_in_sql(veiled: psycopg.Connection) -> None:
    plain = sorted(seen(veiled, ASKED)[1])
    try:
        assert seen(veiled, f"PREPARE asked AS {ASKED}") == "PREPARE"
        assert sorted(seen(veiled, "EXECUTE asked")[1]) == plain
    finally:
        veiled.execute("DEALLOCATE ALL")


def test_the_wrappings_of_one_question_agree(veiled: psycopg.Connection) -> None:
    plain = sorted(seen(veiled, ASKED)[1])
    for wrapped in ("SELECT * FROM ({}) t", "SELECT region, n FROM (SELECT * FROM ({}) a) b", "WITH c AS ({}) TABLE c"):
        assert sorted(seen(veiled, wrapped.format(ASKED))[1]) == plain
