"""The gate: odd bytes, long and deep texts, and what the two readers would see differently."""

from __future__ import annotations

import time

import pytest
from fragments import ask

from mechanisms.errors import Refusal
from sqlrewrite.clauses import Fragment
from sqlrewrite.errors import SyntaxNotRead, TooComplex
from sqlrewrite.parse import Form, gate, parse


@pytest.mark.parametrize(
    "text",
    [
        "x" * 1_000_000,
        "(" * 10_000 + "1" + ")" * 10_000,
        "(" * 10_000,
        "[" * 10_000,
        "quantity = 1" + " AND quantity = 1" * 50_000,
        "quantity = 1" + " AND quantity = 1" * 900,
        "NOT " * 3_000 + "gift",
        "quantity = " + "- " * 8_000 + "1",
        "quantity = 1e999999999 * 1e999999999",
    ],
    ids=["1 MB", "parentheses", "open", "brackets", "50,000 ANDs", "900 ANDs", "NOTs", "signs", "exponent"],
)
def test_a_text_that_is_too_long_or_too_deep_is_refused_quickly(text: str) -> None:
    took = []
    for _ in range(3):
        start = time.process_time()  # whatever else the machine does
        with pytest.raises(Refusal):
            ask(where=text)
        took.append(time.process_time() - start)
    assert min(took) < 0.05


def test_too_deep_and_too_long_have_their_own_sqlstate() -> None:
    for text in ("x" * 20_000, "é" * 9_000, "(" * 33):
        with pytest.raises(TooComplex) as caught:
            gate(text)
        assert caught.value.sqlstate == "54001"


def test_the_deepest_allowed_condition_is_read() -> None:
    deep = "(" * 31 + "quantity = 1" + ")" * 31
    assert ask(where=deep) == ask(where="quantity = 1")
    assert ask(where=" OR ".join(f"quantity = {n}" for n in range(400))).where is not None


@pytest.mark.parametrize(
    "odd", ["\u00a0", "\u2003", "\u3000", "\ufeff", "\u200b", "\x0b", "\x0c", "\r", "\x00", "\x1f", "\x85"]
)
def test_an_odd_blank_is_refused_wherever_it_stands(odd: str) -> None:
    for text in (f"quantity{odd}= 1", f"quantity = 1{odd}", f"quantity = 1 -- a{odd}b\n"):
        with pytest.raises(SyntaxNotRead):
            parse(Fragment(text, 0), Form.CONDITION)


def test_a_carriage_return_cannot_end_a_comment_for_one_reader_only() -> None:
    with pytest.raises(SyntaxNotRead):
        ask(where="quantity = 1 -- comment\r AND quantity = 2")


def test_odd_blanks_inside_a_constant_are_data() -> None:
    assert ask(where="note = 'a\u00a0b\u2003c\nd'") == ask(where="'a\u00a0b\u2003c\nd' = note")


def test_text_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(SyntaxNotRead):
        ask(where="note = '\ud800'")


def test_a_foreign_word_in_a_comment_is_read_over() -> None:
    assert ask(where="quantity = 1 -- wie viele Größen?\n") == ask(where="quantity = 1")


def test_an_unquoted_name_folds_ascii_only() -> None:
    with pytest.raises(Refusal) as caught:
        ask('"ÄRZTE"')
    assert "ÄRZTE" in caught.value.message
    assert ask("ORDERS", where="QUANTITY = 1") == ask(where="quantity = 1")


def test_a_place_counts_from_the_start_of_the_statement() -> None:
    text = "note = 'é' AND\n salary = 1"
    with pytest.raises(Refusal) as caught:
        ask(where=text, start=40)
    assert caught.value.position == 40 + text.index("salary") + 1
    with pytest.raises(SyntaxNotRead) as unread:
        ask(where="quantity = = 1", start=40)
    assert unread.value.position is not None and unread.value.position > 40


@pytest.mark.parametrize(
    "text",
    [
        "quantity = 1 {# OR true #}",
        "quantity = 1 PIVOT",
        "quantity = 1 LIMIT 1",
        "quantity = 1 QUALIFY true",
        "quantity = 1 AS x",
        "quantity = 1) OR (true",
        "quantity = 1 UNION SELECT 1",
        "quantity = 1 FOR UPDATE",
        "interval(0) '1.7 seconds' = interval '1 second'",
        "quantity = interval '1' second(0)",
    ],
)
def test_nothing_that_sqlglot_swallows_passes(text: str) -> None:
    with pytest.raises(Refusal):
        ask(where=text)
