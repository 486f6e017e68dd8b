"""Parameters that are read here are read as PostgreSQL reads them; all others are left to it."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import pq

from proxy.plain import each_format, plain_text

TYPES = {21: "int2", 23: "int4", 20: "int8", 25: "text", 1043: "varchar", 1700: "numeric", 16: "bool"}
VALUES = [
    *(b"0", b"-0", b"007", b"42", b"-32768", b"32767", b"32768", b"2147483647", b"-2147483649", b"9" * 18, b"9" * 19),
    *(b" 5", b"5 ", b"+5", b"0x10", b"1_000", b"1e3", b"5.0", b"", b"abc", b"\xff", b"a\0b", "größe".encode()),
    *(b"\xed\xa0\x80", b"\xf4\x90\x80\x80", "\U0010ffff".encode(), b"true"),
    *(n.to_bytes(width, "big", signed=True) for width in (2, 4, 8) for n in (0, -1, 5, -(2**15))),
]


@pytest.mark.parametrize("oid", TYPES)
def test_what_is_read_here_is_what_postgresql_prints(database: str, oid: int) -> None:
    read = 0
    with psycopg.connect(database, autocommit=True) as conn:
        for format_ in (0, 1):
            for value in VALUES:
                told, printed = plain_text(oid, value, format_), _printed(conn, oid, value, format_)
                assert told is None or told == printed, (value, format_)
                read += told is not None
    assert (read > 5) is (oid in (20, 21, 23, 25, 1043))


def test_null_is_left_to_postgresql() -> None:
    assert plain_text(23, None, 0) is None


def test_formats_are_told_for_none_for_all_or_for_each() -> None:
    assert [each_format(told, 2) for told in ((), (1,), (0, 1))] == [(0, 0), (1, 1), (0, 1)]


def _printed(conn: psycopg.Connection[Any], oid: int, value: bytes, format_: int) -> str | None:
    if not format_ and b"\0" in value:
        return None  # libpq cannot send it
    sql = f"SELECT $1::{TYPES[oid]}::text".encode()
    result = conn.pgconn.exec_params(sql, [value], [oid], [pq.Format(format_)], pq.Format.TEXT)
    found = result.get_value(0, 0) if result.status == pq.ExecStatus.TUPLES_OK else None
    return None if found is None else found.decode()
