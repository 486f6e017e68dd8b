"""Where a text alone says that no row is seen, an empty relation may stand for the table; nowhere else."""

from __future__ import annotations

import pytest

from sqlrewrite.blocks import Name
from sqlrewrite.lex import tokens
from sqlrewrite.probe import emptied, never

EMPTY = 'pg_catalog.unnest(\'{}\'::"public"."secret"[])'


def protected(name: Name) -> Name | None:
    return ("public", "secret") if name in ((None, "secret"), ("public", "secret")) else None


@pytest.mark.parametrize(
    "text", ["false", "(FALSE)", "1=0", "((1 = 2))", "1 <> 1", "1 != 1", "a > 1 AND 1=0", "(0=1) AND (a OR b)"]
)
def test_some_conditions_are_never_true(text: str) -> None:
    assert never(tokens(text))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "true",
        "1=1",
        "1 <> 2",
        "1 <= 1",
        "NOT false",
        '"false"',
        "1=0 OR a",
        "1=0 IS FALSE",
        "a BETWEEN 1 AND 1=0",
        "(a OR 1=0) AND b",
        "CASE WHEN a AND false THEN b END",
        "(1=0) = (1=0)",
        "x = 0",
        "-1 = 0 + 1",
    ],
)
def test_others_may_be(text: str) -> None:
    assert not never(tokens(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM secret LIMIT 0", f'SELECT * FROM {EMPTY} AS "secret" LIMIT 0'),
        ("SELECT s.a FROM public.secret s WHERE 1=0", f"SELECT s.a FROM {EMPTY} s WHERE 1=0"),
        ("SELECT public.secret.a FROM secret LIMIT 0", f'SELECT secret.a FROM {EMPTY} AS "secret" LIMIT 0'),
        (
            "SELECT * FROM (city c JOIN secret ON true) WHERE false",
            f'SELECT * FROM (city c JOIN {EMPTY} AS "secret" ON true) WHERE false',
        ),
        (
            "SELECT * FROM (SELECT a FROM secret AS x) t LIMIT 0",
            f"SELECT * FROM (SELECT a FROM {EMPTY} AS x) t LIMIT 0",
        ),
        ("TABLE secret LIMIT 0", f'SELECT * FROM {EMPTY} AS "secret" LIMIT 0'),
        ("TABLE public.secret ORDER BY 1 LIMIT 0;", f'SELECT * FROM {EMPTY} AS "secret" ORDER BY 1 LIMIT 0;'),
        ("SELECT * FROM (TABLE secret) t LIMIT 0", f'SELECT * FROM (SELECT * FROM {EMPTY} AS "secret") t LIMIT 0'),
        (
            "WITH x AS (SELECT * FROM secret) SELECT * FROM x LIMIT 0",
            f'WITH x AS (SELECT * FROM {EMPTY} AS "secret") SELECT * FROM x LIMIT 0',
        ),
        (
            "WITH x AS (TABLE secret), y AS (SELECT a FROM x) TABLE y LIMIT 0",
            f'WITH x AS (SELECT * FROM {EMPTY} AS "secret"), y AS (SELECT a FROM x) TABLE y LIMIT 0',
        ),
    ],
)
def test_an_empty_relation_stands_for_the_table(text: str, expected: str) -> None:
    assert emptied(text, protected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM city LIMIT 0",
        "SELECT * FROM secret",
        "SELECT * FROM secret LIMIT 1",
        "SELECT * FROM secret LIMIT 0 UNION ALL SELECT * FROM secret",
        "SELECT (SELECT a FROM secret), count(*) FROM city WHERE false",
        "SELECT * FROM city WHERE EXISTS (SELECT FROM secret)",
        "TABLE secret",
        "TABLE secret LIMIT 10",
        "WITH x AS (SELECT * FROM secret LIMIT 0), y AS (SELECT * FROM secret) SELECT * FROM y",
        "WITH x AS (INSERT INTO mine SELECT * FROM secret RETURNING *) SELECT * FROM x LIMIT 0",
        "SELECT * FROM city WHERE city IN (SELECT a FROM secret LIMIT 0) OR EXISTS (SELECT FROM secret)",
    ],
)
def test_a_statement_that_may_see_a_row_is_left_alone(text: str) -> None:
    assert emptied(text, protected) is None
