"""Constants are lifted where they are a whole side of a comparison in WHERE, and nowhere else."""

from __future__ import annotations

import random
from typing import Any

import psycopg
import pytest

from sqlrewrite.lift import _lifted, _read, lift

LIFTED = {
    "SELECT count(*) FROM p WHERE age BETWEEN 20 AND 39": ("age BETWEEN $1 AND $2", ["20", "39"]),
    "select count(*) from p where(age>=20 and age<007)or sex='f''m' limit 5": (
        "(age>=$1 and age<$2)or sex=$3 limit 5",
        ["20", "7", "f'm"],
    ),
    "SELECT a, count(*) FROM p WHERE a <> 3 GROUP BY 1 ORDER BY 2;": ("a <> $1 GROUP BY 1 ORDER BY 2;", ["3"]),
    "SELECT count(*) FROM p WHERE a /* 7 */ = -- 8\n 9 -- 10": ("a /* 7 */ = -- 8\n $1 -- 10", ["9"]),
    "SELECT count(*) FROM p WHERE a BETWEEN 1 AND 2 + 3": ("a BETWEEN $1 AND 2 + 3", ["1"]),
}
LEFT = [
    "SELECT count(*) FROM p",
    "SELECT count(*) FROM p WHERE a = $1 AND b = 5",
    "SELECT count(*) FROM p WHERE a = -5",
    "SELECT count(*) FROM p WHERE a = 5::text",
    "SELECT count(*) FROM p WHERE a > 1.5 OR a = 1e3 OR a = 1234567890",
    "SELECT count(*) FROM p WHERE 5 = 5",
    "SELECT count(*) FROM p WHERE a >= 'x' AND c = E'x' AND d = 'a\\b'",
    "SELECT count(*) FROM p WHERE a = 'x' || 'y'",
    "SELECT count(*) FROM p WHERE a @> 5",
    "SELECT count(*) FROM p WHERE a = ANY ('{1}')",
    "SELECT a, count(*) FROM p GROUP BY a HAVING count(*) > 5",
    "SELECT count(*) FROM p LIMIT 5",
    "EXPLAIN SELECT count(*) FROM p WHERE a = 5",
    "WITH q AS (SELECT 1) SELECT count(*) FROM p WHERE a = 5",
    "SELECT count(*) FROM p WHERE a = 5" + " " * 5000,
    "SELECT count(*) FROM p WHERE a = 5abc",
    "",
]


@pytest.mark.parametrize("text", LIFTED)
def test_a_constant_of_a_comparison_is_lifted(text: str) -> None:
    found, (where, values) = lift(text), LIFTED[text]
    assert found is not None and found.text.endswith(where) and [value.text for value in found.values] == values


@pytest.mark.parametrize("text", LEFT)
def test_everything_else_is_left_where_it_is(text: str) -> None:
    assert lift(text) is None


def test_postgresql_reads_what_is_lifted_as_it_reads_the_constants(postgres) -> None:  # type: ignore[no-untyped-def]
    """The same columns, and with the constants bound the same rows, whatever stands around the comparison."""
    dice = random.Random(7)
    with psycopg.connect(postgres.new_database("lift"), autocommit=True) as conn:
        conn.execute(
            "CREATE TABLE p AS SELECT i AS n, i::smallint AS s, i::numeric AS d, i::text AS t"
            " FROM generate_series(0, 30) i"
        )
        for _ in range(200):
            column, op = dice.choice("nsd"), dice.choice(("<", "<=", ">", ">=", "=", "<>", "!="))
            parts = [
                f"{column} {op} {dice.randint(0, 30)}",
                f"{column} BETWEEN {dice.randint(0, 15)} AND {dice.randint(10, 30)}",
                f"t {dice.choice(('=', '<>'))} '{dice.randint(0, 30)}'",
                f"(NOT {column} > {dice.randint(0, 30)})",
            ]
            where = dice.choice((" AND ", " OR ")).join(dice.sample(parts, dice.randint(1, 3)))
            text = f"SELECT {column}, count(*) AS c FROM p WHERE {where} GROUP BY {column} ORDER BY 1 LIMIT 7"
            found = lift(text)
            assert found is not None
            cursor = psycopg.RawCursor(conn)
            bound = [int(value.text or "") if value.type_name == "integer" else value.text for value in found.values]
            plainly, described = cursor.execute(text).fetchall(), columns(cursor)
            assert cursor.execute(found.text, bound).fetchall() == plainly and columns(cursor) == described


def columns(cursor: psycopg.RawCursor[Any]) -> list[tuple[str, int]]:
    return [(column.name, column.type_code) for column in cursor.description or ()]


PIECES = (
    *("where ", "x = 5 ", "x=5and y=6 ", "and ", "or ", "between 1 and 2 ", "group by 1 ", "limit 5 ", "gender = 'f' "),
    *("12", "7", "123456789", "1234567890", "1.5", ".5", "5.", "1e3", "1_000", "0x1F", "5x", "x = 007 ", "$1", "a1 "),
    *("'", "''", "'a 5'", "E'\\'5'", "U&'\\0041 5'", "x'1F'", '"5"', '"', 'U&"d 5"', "$$", "$a1$", "\0", " ", "\n"),
    *("$\u20ac1\u20ac$", "$\u20ac2\u20ac$", "a\u20ac12 ", "\u20ac5", " 5\u20ac", "5\u0663", "5\u0301", "x >= 5\xb2 "),
    *("--5\n", "/*5", "*/", "/* /*1*/ 2*/", "x =\xa05 and ", "(", ")", ";", ",", ".", "-", "=", ">=", "<>"),
)


def test_what_is_lifted_by_the_pattern_of_a_text_is_what_its_tokens_tell() -> None:
    dice = random.Random(11)
    for _ in range(10_000):
        start = "select count(*) from t where " if dice.random() < 0.8 else "select "
        text = start + "".join(dice.choices(PIECES, k=dice.randint(1, 9)))
        assert _lifted.__wrapped__(text) == _read(text), text
