"""The gate: odd bytes, long and deep texts, and what the two readers would see differently."""

from __future__ import annotations

import time

import pytest
from clinic import ask

from mechanisms.errors import Refusal
from sqlrewrite.errors import SyntaxNotRead, TooComplex
from sqlrewrite.parse import gate, parse

QUESTION = "SELECT count(*) FROM patient_data"


@pytest.mark.parametrize(
    "text",
    [
        "x" * 1_000_000,
        "SELECT " + "(" * 10_000 + "1" + ")" * 10_000,
        "(" * 10_000,
        "[" * 10_000,
        f"{QUESTION} WHERE age = 1" + " AND age = 1" * 50_000,
        f"{QUESTION} WHERE age = 1" + " AND age = 1" * 1_000,
        f"{QUESTION} WHERE " + "NOT " * 3_000 + "insured",
        f"{QUESTION} WHERE age = " + "- " * 8_000 + "1",
    ],
    ids=["1 MB", "parentheses", "open", "brackets", "50,000 ANDs", "1,000 ANDs", "NOTs", "signs"],
)
def test_a_text_that_is_too_long_or_too_deep_is_refused_quickly(text: str) -> None:
    took = []
    for _ in range(3):
        start = time.perf_counter()
        with pytest.raises(Refusal):
            ask(text)
        took.append(time.perf_counter() - start)
    assert min(took) < 0.05


def test_too_deep_and_too_long_have_their_own_sqlstate() -> None:
    for text in ("x" * 20_000, "é" * 9_000, "(" * 33):
        with pytest.raises(TooComplex) as caught:
            gate(text)
        assert caught.value.sqlstate == "54001"


def test_the_deepest_allowed_question_is_read() -> None:
    deep = "(" * 31 + "age = 1" + ")" * 31
    assert ask(f"{QUESTION} WHERE {deep}") == ask(f"{QUESTION} WHERE age = 1")
    wide = " OR ".join(f"age = {n}" for n in range(400))
    assert ask(f"{QUESTION} WHERE {wide}").where is not None


@pytest.mark.parametrize(
    "odd", ["\u00a0", "\u2003", "\u3000", "\ufeff", "\u200b", "\x0b", "\x0c", "\r", "\x00", "\x1f", "\x85"]
)
def test_an_odd_blank_is_refused_wherever_it_stands(odd: str) -> None:
    for text in (f"SELECT{odd}count(*) FROM patient_data", f"{QUESTION}{odd}", f"{QUESTION} -- a{odd}b\n"):
        with pytest.raises(SyntaxNotRead):
            parse(text)


def test_a_carriage_return_cannot_end_a_comment_for_one_reader_only() -> None:
    with pytest.raises(SyntaxNotRead):
        parse(f"{QUESTION} -- comment\r WHERE age = 1")


def test_odd_blanks_inside_a_constant_are_data() -> None:
    question = ask(f"{QUESTION} WHERE note = 'a\u00a0b\u2003c\nd'")
    assert question == ask(f"{QUESTION} WHERE 'a\u00a0b\u2003c\nd' = note")


def test_text_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(SyntaxNotRead):
        parse("SELECT '\ud800'")


def test_a_foreign_word_in_a_comment_is_read_over() -> None:
    assert ask(f"{QUESTION} -- wie viele Größen?\n") == ask(QUESTION)


def test_an_unquoted_name_folds_ascii_only() -> None:
    with pytest.raises(Refusal) as caught:
        ask('SELECT count(*) FROM "ÄRZTE"')
    assert "ÄRZTE" in caught.value.message
    assert ask("SELECT COUNT(*) FROM PATIENT_DATA") == ask(QUESTION)


def test_the_position_of_an_unknown_column_is_its_character() -> None:
    text = "SELECT 'é', salary\nFROM patient_data"
    with pytest.raises(Refusal):
        ask(text)
    with pytest.raises(Refusal) as caught:
        ask("SELECT count(*) FROM patient_data\nWHERE note = 'é' AND salary = 1")
    assert (
        caught.value.position
        == "SELECT count(*) FROM patient_data\nWHERE note = 'é' AND salary = 1".index("salary") + 1
    )
    with pytest.raises(SyntaxNotRead) as unread:
        ask("SELECT count(*)\nFROM patient_data ORDER BY count USING <")
    assert unread.value.position == "SELECT count(*)\nFROM patient_data ORDER BY count USING <".index("USING") + 1
