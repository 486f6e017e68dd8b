"""The skeleton of statements: which SELECTs there are, what their FROMs name, and where clauses end."""

from __future__ import annotations

import contextlib
import time

import pytest

from mechanisms.errors import Refusal
from sqlrewrite.blocks import outline
from sqlrewrite.folding import questions


def blocks(text: str) -> list[str]:
    return [text[block.start : block.stop] for block in outline(text).blocks]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("SELECT 1", set()),
        ("SELECT a FROM t", {(None, "t")}),
        ("SELECT a FROM s.t AS x", {("s", "t")}),
        ('SELECT a FROM "S"."T t"', {("S", "T t")}),
        ("SELECT a FROM T", {(None, "t")}),
        ("SELECT a FROM t, u JOIN v ON t.a = v.a", {(None, "t"), (None, "u"), (None, "v")}),
        ("SELECT a FROM (t JOIN u USING (a))", {(None, "t"), (None, "u")}),
        ("SELECT a FROM ONLY t", {(None, "t")}),
        ("SELECT a FROM f(1), generate_series(1, 2) g", set()),
        ("SELECT a FROM (SELECT b FROM t) q", {(None, "t")}),
        ("SELECT (SELECT b FROM t) FROM u WHERE x IN (SELECT c FROM v)", {(None, "t"), (None, "u"), (None, "v")}),
        ("WITH q AS (SELECT a FROM t) SELECT * FROM q", {(None, "t")}),
        ('WITH "T" AS (SELECT 1) SELECT * FROM T', {(None, "t")}),
        ("WITH t AS (SELECT * FROM t) SELECT * FROM t", {(None, "t")}),
        ("WITH RECURSIVE t AS (SELECT 1 UNION ALL SELECT * FROM t) SELECT * FROM t", set()),
        ("WITH t AS (SELECT 1) SELECT * FROM public.t", {("public", "t")}),
        ("SELECT 1 FROM t UNION SELECT 2 FROM u EXCEPT (SELECT 3 FROM v)", {(None, "t"), (None, "u"), (None, "v")}),
        ("TABLE t", {(None, "t")}),
        ('SELECT count(*) FROM "T", T, s.T', {(None, "T"), (None, "t"), ("s", "t")}),
        ('WITH "T" AS (SELECT * FROM city) SELECT * FROM "T"', {(None, "city")}),
        ('WITH T AS (SELECT 1) SELECT * FROM "t"', set()),
        ("WITH a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a", {(None, "b")}),
        ("WITH b AS (SELECT 1), a AS (SELECT * FROM b) SELECT * FROM a", set()),
        ("SELECT * FROM (WITH t AS (SELECT 1) SELECT * FROM t) x, t", {(None, "t")}),
        ("INSERT INTO x SELECT * FROM t", {(None, "t")}),
        ("CREATE TEMP TABLE x AS SELECT * FROM t", {(None, "t")}),
        ("SELECT 'FROM t' AS a, $$ FROM u $$ /* FROM v */ -- FROM w", set()),
        ("SELECT extract(year FROM d), substring(a FROM 1 FOR 2), trim(both FROM b) FROM t", {(None, "t")}),
        ("SELECT a IS DISTINCT FROM b FROM t", {(None, "t")}),
        ("SELECT a FROM t TABLESAMPLE SYSTEM (1)", {(None, "t")}),
        ("SELECT a FROM LATERAL (SELECT * FROM t) x", {(None, "t")}),
    ],
)
def test_a_from_names_its_relations(text: str, names: set[tuple[str | None, str]]) -> None:
    assert outline(text).names() == names


def test_the_clauses_of_a_select_are_told_apart() -> None:
    text = "SELECT a, count(*) FROM t WHERE a IS DISTINCT FROM 3 GROUP BY a HAVING count(*) > 2"
    text += " ORDER BY 2 LIMIT 5 OFFSET 1"
    (block,) = outline(text).blocks
    shown = {name: " ".join(token.text for token in part) for name, part in block.clauses.items()}
    assert shown == {
        "select": "a , count ( * )",
        "from": "t",
        "where": "a IS DISTINCT FROM 3",
        "group": "a",
        "having": "count ( * ) > 2",
        "order": "2",
        "limit": "5",
        "offset": "1",
    }


def test_within_group_is_no_group_by() -> None:
    (block,) = outline("SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY x) FROM t GROUP BY a").blocks
    assert [token.text for token in block.clauses["group"]] == ["a"]


def test_order_by_behind_a_set_operation_belongs_to_all_of_it() -> None:
    first, second = outline("SELECT a FROM t UNION SELECT b FROM u ORDER BY 1 LIMIT 3").blocks
    assert "order" not in second.clauses and [t.text for t in second.tail["limit"]] == ["3"]
    assert [t.text for t in first.tail["order"]] == ["1"]


def test_a_question_inside_a_question_is_refused() -> None:
    text = "SELECT count(*) FROM p WHERE a > (SELECT avg(a) FROM p)"
    with pytest.raises(Refusal) as refusal:
        questions(outline(text), lambda name: name[1] == "p")
    assert refusal.value.sqlstate == "0A000" and refusal.value.position == text.index("(SELECT") + 2


def test_questions_side_by_side_are_two() -> None:
    text = "SELECT * FROM (SELECT count(*) FROM p) a, (SELECT count(*) FROM p) b"
    assert len(questions(outline(text), lambda name: name[1] == "p")) == 2


@pytest.mark.parametrize("text", ["SELECT (1 FROM t", "SELECT count( FROM t", "SELECT 1; SELECT 2"])
def test_what_cannot_be_taken_apart_is_refused(text: str) -> None:
    with pytest.raises(Refusal) as refusal:
        outline(text)
    assert refusal.value.sqlstate == "42601"


@pytest.mark.parametrize(
    "text", ["(" * 8_000 + ")" * 8_000, "SELECT " + "1," * 8_000 + "1 FROM t", "SELECT 1 " + "UNION SELECT 1 " * 1_000]
)
def test_a_long_statement_takes_milliseconds_or_is_refused(text: str) -> None:
    start = time.process_time()
    with contextlib.suppress(Refusal):
        outline(text)
    assert time.process_time() - start < 1
