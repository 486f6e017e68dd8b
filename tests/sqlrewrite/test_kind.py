"""Kinds of statements: those that write to a protected table, or carry a question that cannot be taken out."""

from __future__ import annotations

import pytest

from sqlrewrite.errors import NotAnswered, WouldShowRows, WouldWrite
from sqlrewrite.kind import refuse_kind, targets

SECRET = {(None, "secret"), ("public", "secret"), (None, "Odd Name")}


def is_protected(name: tuple[str | None, str]) -> bool:
    return name in SECRET


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO secret VALUES (1)",
        "insert into public.secret (a) select 1",
        "UPDATE secret SET a = 1",
        "UPDATE ONLY secret SET a = 1",
        "DELETE FROM secret WHERE true RETURNING *",
        "DELETE FROM ONLY public . secret",
        "MERGE INTO secret s USING t ON true WHEN MATCHED THEN DELETE",
        "TRUNCATE secret",
        "TRUNCATE TABLE ONLY secret",
        'INSERT INTO "Odd Name" VALUES (1)',
        "/* SELECT */ INSERT INTO /* x */ secret VALUES (1)",
        'INSERT INTO "secret" SELECT count(*) FROM other',
        "INSERT INTO SECRET VALUES (1)",
        "COPY secret FROM STDIN",
        'copy public.secret (a, "to") from stdin',
    ],
)
def test_writing_to_a_protected_table_is_refused(text: str) -> None:
    with pytest.raises(WouldWrite) as refusal:
        refuse_kind(text, is_protected)
    assert refusal.value.sqlstate == "25006" and refusal.value.hint


@pytest.mark.parametrize("text", ["COPY secret TO STDOUT", 'copy public.secret (a, "from") to stdout'])
def test_copying_a_protected_table_would_show_its_rows(text: str) -> None:
    with pytest.raises(WouldShowRows) as refusal:
        refuse_kind(text, is_protected)
    assert refusal.value.sqlstate == "42501" and "COPY (SELECT" in (refusal.value.hint or "")


@pytest.mark.parametrize("word", ["COPY", "PREPARE", "DECLARE"])
def test_a_statement_that_carries_a_question_is_refused_with_what_to_do_instead(word: str) -> None:
    with pytest.raises(NotAnswered) as refusal:
        refuse_kind(f"{word} x AS SELECT count(*) FROM secret", is_protected)
    assert word in refusal.value.message and refusal.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) FROM secret",
        "INSERT INTO mine SELECT count(*) FROM secret",
        'INSERT INTO "SECRET" VALUES (1)',
        "UPDATE mine SET a = (SELECT count(*) FROM secret)",
        "CREATE TEMP TABLE secret AS SELECT 1",
        "WITH q AS (SELECT 1) SELECT 'INSERT INTO secret'",
        "",
    ],
)
def test_other_statements_pass(text: str) -> None:
    refuse_kind(text, is_protected)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("INSERT INTO a.b SELECT 1", {("a", "b")}),
        ("UPDATE t SET x = 1", {(None, "t")}),
        ('DELETE FROM "T"', {(None, "T")}),
        ("TRUNCATE t", {(None, "t")}),
        ("SELECT 1 FROM t", set()),
        ("INSERT INTO", set()),
        ("", set()),
    ],
)
def test_the_target_of_a_write_is_named(text: str, names: set[tuple[str | None, str]]) -> None:
    assert targets(text) == names
