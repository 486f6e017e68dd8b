"""Where statements end: at a semicolon that PostgreSQL would see as one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlrewrite.split import split, words

PIECES = [
    "SELECT 1",
    "SELECT 'a;b'",
    "SELECT 'it''s; here'",
    r"SELECT E'back\';slash'",
    r"SELECT 'plain\'",
    'SELECT "a;b"',
    'SELECT "a""b;c"',
    "SELECT $$a;b$$",
    "SELECT $tag$ a; $$ b; $tag$",
    "SELECT a$b$c, $1",
    "SELECT 1 -- a; comment\n + 2",
    "SELECT 1 /* a; comment */ + 2",
    "SELECT 1 /* a; /* nested; */ comment; */ + 2",
    r"SELECT U&'\0041;' || N'b;' || B'1' || X'F'",
    "SELECT date'2020-01-01'",
    "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT CASE WHEN true THEN 2 END; END",
    "VALUES (1), (2)",
    "SELECT é FROM ü",
]


@pytest.mark.parametrize("piece", PIECES)
def test_one_statement_is_one_piece(piece: str) -> None:
    assert split(piece) == [piece]
    assert split(piece + ";") == [piece]


@given(
    st.lists(st.sampled_from(PIECES), max_size=6),
    st.sampled_from([";", " ; ", ";;", ";\n", "; /* c; */ ;", ";-- c;\n;"]),
)
def test_a_script_falls_into_the_pieces_that_made_it(pieces: list[str], mark: str) -> None:
    assert [piece.strip() for piece in split(mark.join(pieces))] == pieces


@pytest.mark.parametrize(
    "text", ["", " \n\t", ";", ";;;", "-- only a comment", "/* only /* a */ comment */", " ; -- x\n ; "]
)
def test_blanks_and_comments_are_no_statements(text: str) -> None:
    assert split(text) == []


@pytest.mark.parametrize(
    "text", ["SELECT 'open ; end", 'SELECT "open ; end', "SELECT $$open ; end", "SELECT 1 /* open ; end"]
)
def test_what_has_no_end_goes_to_the_end(text: str) -> None:
    assert split(text) == [text]


@given(st.text(alphabet="ab;'\"$-/*\n\\eE ", max_size=40))
def test_nothing_is_lost_but_semicolons_and_comments(text: str) -> None:
    at = 0
    for piece in split(text):
        start = text.index(piece, at)
        assert split(text[at:start]) == [] and split(piece) == [piece]
        at = start + len(piece)
    assert split(text[at:]) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT Disease FROM Patient_Data", ["select", "disease", "from", "patient_data"]),
        ('SELECT "Disease" FROM "a""b"', ["select", "Disease", "from", 'a"b']),
        ("SELECT 'patient_data' -- patient_data", ["select"]),
        ("SELECT $$patient_data$$ /* patient_data */", ["select"]),
        ("TABLE public.orders", ["table", "public", "orders"]),
        ("SELECT E'\\'orders' FROM x", ["select", "from", "x"]),
    ],
)
def test_words_are_names_and_keywords_only(text: str, expected: list[str]) -> None:
    assert words(text) == expected
