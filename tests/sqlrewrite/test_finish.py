"""The finishing statement: the analyst's text over released arrays, which PostgreSQL runs."""

from __future__ import annotations

from typing import Any

import pytest
from clinic import CATALOG, resolve, taken
from fragments import Shop

from sqlrewrite.finish import array_text, finish, released
from sqlrewrite.read import read


def finished(text: str, parameters: int = 0) -> tuple[str, list[tuple[str, ...]]]:
    """The statement, and the types of the arrays of each question."""
    parts = []
    for one in taken(text):
        question = read(one.clauses, CATALOG, resolve, None)
        parts.append(released(question, one, {place: place for place in range(len(question.keys))}))
    return finish(text, parts, parameters), [part.types for part in parts]


def run(shop: Shop, text: str, *arrays: list[str | None]) -> list[tuple[Any, ...]]:
    sql, _ = finished(text)
    return shop.raw.execute(sql.encode(), [array_text(array) for array in arrays]).fetchall()


def test_keys_and_numbers_arrive_with_their_types(shop: Shop) -> None:
    text = "SELECT gender, admitted, count(*), avg(age) FROM patient_data GROUP BY gender, admitted"
    _, types = finished(text)
    assert types == [("text", "date", "bigint", "numeric")]
    rows = run(shop, text, ["F", None], ["2024-01-02", None], ["3", "4"], ["1.5", None])
    assert [tuple(map(str, row)) for row in rows] == [("F", "2024-01-02", "3", "1.5"), ("None", "None", "4", "None")]


def test_everything_around_the_question_is_postgresqls(shop: Shop) -> None:
    text = (
        "WITH q AS (SELECT gender AS g, count(*) AS n FROM patient_data GROUP BY gender), x AS (SELECT 100 AS many)"
        " SELECT g, rank() OVER (ORDER BY n DESC) AS r, n::numeric / many AS part FROM q CROSS JOIN x"
        " WHERE n > (SELECT avg(n) FROM q) - 5 ORDER BY r LIMIT 2"
    )
    rows = run(shop, text, ["F", "M", "X"], ["10", "30", "20"])
    assert [(g, r, float(part)) for g, r, part in rows] == [("M", 1, 0.3), ("X", 2, 0.2)]


def test_order_and_hidden_columns_are_taken_from_the_released_numbers(shop: Shop) -> None:
    text = "SELECT gender FROM patient_data GROUP BY gender ORDER BY sum(age) DESC, count(*) LIMIT 2"
    assert run(shop, text, ["F", "M", "X"], ["5", "9", "5"], ["2", "1", "1"]) == [("M",), ("X",)]


def test_grouping_tells_what_was_rolled_up(shop: Shop) -> None:
    text = (
        "SELECT gender, disease, count(*) AS n, grouping(gender, disease) AS g FROM patient_data"
        " GROUP BY ROLLUP (gender, disease) ORDER BY g, n"
    )
    _, types = finished(text)
    assert types == [("text", "text", "bigint", "integer")]
    assert run(shop, text, ["F", None], ["flu", None], ["1", "2"], ["0", "3"])[1] == (None, None, 2, 3)


def test_two_questions_have_arrays_of_their_own_behind_the_analysts_parameters(shop: Shop) -> None:
    text = (
        "SELECT gender FROM patient_data GROUP BY gender HAVING count(*) > $2 INTERSECT"
        " SELECT city FROM orders GROUP BY city HAVING count(*) > $1"
    )
    sql, types = finished(text, parameters=2)
    assert types == [("text",), ("text",)]
    assert "unnest($3::text[])" in sql and "unnest($4::text[])" in sql
    assert sql.index("$3") < sql.index("INTERSECT") < sql.index("$4")


def test_no_protected_name_is_left(shop: Shop) -> None:
    for text in (
        "SELECT patient_data.gender, count(*) FROM patient_data GROUP BY patient_data.gender",
        "SELECT public.patient_data.gender FROM public.patient_data GROUP BY 1",
        "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM patient_data)",
    ):
        sql, _ = finished(text)
        assert "patient_data" not in sql and "orders" not in sql


def test_a_question_without_keys_and_aggregates_has_one_row(shop: Shop) -> None:
    assert run(shop, "SELECT 1 AS one FROM patient_data GROUP BY ()") == [(1,)]


def test_columns_keep_the_names_that_postgresql_would_give(shop: Shop) -> None:
    text = (
        "SELECT gender, p.disease, count(*), count(*)::int, (sum(age)), CASE WHEN count(*) > 1 THEN 1 END,"
        ' count(*) + 1, upper(gender), avg(age) AS mean, max(count(*)) OVER (), gender AS "A b"'
        " FROM patient_data p GROUP BY 1, 2"
    )
    sql, types = finished(text)
    described = shop.raw.execute(sql.encode(), [array_text([]) for _ in types[0]]).description
    assert described is not None
    assert [column.name for column in described] == [
        *("gender", "disease", "count", "count", "sum", "case", "?column?", "upper", "mean", "max", "A b"),
    ]


@pytest.mark.parametrize(
    "values",
    [
        ["plain", "two words", "", "NULL", "null", None],
        ['quo"te', "back\\slash", "{brace}", "com,ma", "it's", "new\nline", "tab\t", " blanks "],
        ["é", "日本", "\U0001f600", "$1", "%s", "'; DROP TABLE x; --"],
        [],
        [None, None],
    ],
)
def test_an_array_text_says_what_it_was_made_of(shop: Shop, values: list[str | None]) -> None:
    rows = shop.raw.execute("SELECT unnest($1::text[])", [array_text(values)]).fetchall()
    assert [row[0] for row in rows] == values
