"""Wrappers are taken off and put on again, and what only looks like one is left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlrewrite.finish import array_text
from sqlrewrite.lex import Kind, tokens
from sqlrewrite.wrapper import Carrier, execution, inlined, prepared, wrapper

QUESTION = "SELECT a, count(*) FROM secret WHERE b = ')' GROUP BY a"


@pytest.mark.parametrize(
    ("before", "after", "cursor", "hold"),
    [
        ("COPY (", ") TO STDOUT", "", False),
        ("/* ( */ copy\n(-- (\n", " -- )\n) TO STDOUT WITH (FORMAT csv, HEADER);", "", False),
        ("DECLARE c CURSOR FOR ", "", "c", False),
        ('DECLARE "for cursor" BINARY INSENSITIVE NO SCROLL CURSOR WITHOUT HOLD FOR ', " ; ", '"for cursor"', False),
        ("declare cursor cursor with hold for\n", "", "cursor", True),
    ],
)
def test_a_wrapper_is_taken_off_and_put_on_again(before: str, after: str, cursor: str, hold: bool) -> None:
    found = wrapper(before + QUESTION + after)
    assert found is not None and (found.question, found.cursor, found.hold) == (QUESTION, cursor, hold)
    assert found.carrier is (Carrier.DECLARE if cursor else Carrier.COPY)
    assert found.around("TABLE t") == before + "TABLE t" + after


@pytest.mark.parametrize(
    "text",
    [
        "",
        QUESTION,
        "COPY",
        "COPY secret TO STDOUT",
        "COPY secret (a) TO STDOUT",
        "COPY (INSERT INTO t VALUES (1) RETURNING a) TO STDOUT",
        "COPY () TO STDOUT",
        "DECLARE",
        "DECLARE c CURSOR",
        "DECLARE c CURSOR WITH",
        "DECLARE c CURSOR WITH HOLD",
        "DECLARE c CURSOR FOR",
        "SELECT 'COPY (SELECT 1) TO STDOUT'",
    ],
)
def test_other_texts_are_no_wrappers(text: str) -> None:
    assert wrapper(text) is None


@pytest.mark.parametrize("head", ["PREPARE q AS ", "prepare q(int, numeric(8, 2)) AS\n", 'PREPARE "as" AS '])
def test_a_prepared_statement_is_found(head: str) -> None:
    assert prepared(head + QUESTION + ";") == QUESTION


@pytest.mark.parametrize("text", ["", QUESTION, "PREPARE TRANSACTION 'a'", "PREPARE q", "PREPARE q AS", "PREPARE q ()"])
def test_other_texts_prepare_nothing(text: str) -> None:
    assert prepared(text) is None


def test_an_execution_has_a_name_and_arguments() -> None:
    plain, quoted = execution("EXECUTE Q;"), execution("/* x */ execute \"My Q\" (1, ')')")
    assert plain is not None and (plain.name, plain.arguments) == ("q", "")
    assert quoted is not None and (quoted.name, quoted.arguments, quoted.start) == ("My Q", "(1, ')')", 23)
    assert execution("EXECUTE") is None and execution("SELECT 'EXECUTE q'") is None and execution("EXECUTE 'q'") is None


@given(st.lists(st.one_of(st.none(), st.text())), st.lists(st.text()))
def test_arrays_are_written_out_as_one_constant_each(first: list[str | None], second: list[str]) -> None:
    arrays = [array_text(first), array_text(second)]
    these = tokens(inlined("SELECT '$1', unnest($1::text[]), unnest($2::text[]) -- $2", arrays))
    written = [token.text for token in these if token.kind is Kind.STRING]
    assert [text[2:-1].replace("''", "'").replace("\\\\", "\\") for text in written[1:]] == arrays
    assert written[0] == "'$1'" and not any(token.kind is Kind.PARAMETER for token in these)
