"""Which relations a text names, CTEs and quoted names included."""

from __future__ import annotations

import pytest

from sqlrewrite.relations import mentions, relations


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1", set()),
        ("SELECT count(*) FROM t", {(None, "t")}),
        ('SELECT count(*) FROM "T", T, s.T', {(None, "T"), (None, "t"), ("s", "t")}),
        ("SELECT * FROM a JOIN b USING (x), LATERAL (SELECT * FROM c) l", {(None, "a"), (None, "b"), (None, "c")}),
        ("SELECT (SELECT max(x) FROM a) FROM b WHERE EXISTS (SELECT FROM c)", {(None, "a"), (None, "b"), (None, "c")}),
        ("WITH t AS (SELECT 1) SELECT * FROM t", set()),
        ("WITH t AS (SELECT 1) SELECT * FROM public.t", {("public", "t")}),
        ('WITH "T" AS (SELECT * FROM city) SELECT * FROM T', {(None, "city"), (None, "t")}),
        ('WITH "T" AS (SELECT * FROM city) SELECT * FROM "T"', {(None, "city")}),
        ('WITH T AS (SELECT 1) SELECT * FROM "t"', set()),
        ("WITH t AS (SELECT * FROM t) SELECT * FROM t", {(None, "t")}),
        ("WITH RECURSIVE t AS (SELECT 1 UNION SELECT * FROM t) SELECT * FROM t", set()),
        ("WITH a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a", {(None, "b")}),
        ("WITH b AS (SELECT 1), a AS (SELECT * FROM b) SELECT * FROM a", set()),
        ("SELECT * FROM (WITH t AS (SELECT 1) SELECT * FROM t) x, t", {(None, "t")}),
        ("WITH t AS (SELECT 1) INSERT INTO t SELECT * FROM t", {(None, "t")}),
        ("WITH t AS (SELECT 1) DELETE FROM t", {(None, "t")}),
        ("UPDATE a SET x = 1 FROM b", {(None, "a"), (None, "b")}),
        ("SELECT 1; SELECT * FROM t", {(None, "t")}),
        ("CREATE TEMP TABLE x AS SELECT * FROM t", {(None, "x"), (None, "t")}),
        ("SELECT * FROM generate_series(1, 2) g", set()),
        ("SELECT * FROM t UNION SELECT * FROM u", {(None, "t"), (None, "u")}),
        ("TABLE t", {(None, "t")}),
    ],
)
def test_a_text_names_these_relations(text: str, expected: set[tuple[str | None, str]]) -> None:
    assert relations(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "EXPLAIN SELECT * FROM patient_data",
        "PREPARE q AS SELECT * FROM patient_data",
        "DO $$ BEGIN PERFORM 1 FROM patient_data; END $$",
        "SELECT * FROM patient_data WHERE (((",
        "SELECT " + "(" * 5_000 + " patient_data",
        "SELECT 1 -- " + "x" * 20_000 + "\n FROM Patient_Data",
        'LOCK TABLE "patient_data"',
    ],
)
def test_what_sqlglot_cannot_read_still_mentions_its_names(text: str) -> None:
    assert (None, "patient_data") in relations(text)


def test_a_qualified_mention_gives_schema_and_name() -> None:
    assert ("s", "T x") in mentions('LOCK s . "T x"')
