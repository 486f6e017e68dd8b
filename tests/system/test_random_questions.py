"""Random questions through the whole proxy: with the noise left out, the rows are PostgreSQL's own."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any

import psycopg
import pytest
from random_questions import Asker


def comparable(value: Any) -> Any:
    """Exact, but for floating-point numbers, which PostgreSQL adds up in the order in which it finds them."""
    return f"{value:.12g}" if isinstance(value, float) else value


def rows(session: psycopg.Connection, text: str, parameters: list[Any]) -> tuple[list[Any], Counter[Any]]:
    cursor = session.execute(text, parameters or None)  # type: ignore[call-overload]
    shape = [(column.name, column.type_code) for column in cursor.description or ()]
    return shape, Counter(tuple(map(comparable, row)) for row in cursor.fetchall())


def bound(rng: random.Random, text: str) -> tuple[str, list[Any]]:
    """Some numbers behind the last HAVING as parameters."""
    at = text.rfind(" HAVING ")
    if at < 0 or rng.random() < 0.7:
        return text, []
    values: list[int] = []

    def taken(found: re.Match[str]) -> str:
        values.append(int(found.group()))
        return "%s"

    having = re.sub(r"(?<=[<>=] )\d+(?![\d.]| \*)", taken, text[at:].replace("%", "%%"))
    return (text[:at].replace("%", "%%") + having, list(values)) if values else (text, [])


def differing(ours: psycopg.Connection, theirs: psycopg.Connection, seed: int, questions: int) -> tuple[list[str], int]:
    """The statements that are not answered as PostgreSQL answers them, and how many answers had rows."""
    asker, rng = Asker(seed), random.Random(seed)
    wrong, filled = [], 0
    for _ in range(questions):
        text, parameters = bound(rng, asker.statement())
        expected = rows(theirs, text, parameters)
        try:
            told = rows(ours, text, parameters)
        except psycopg.Error as refusal:
            wrong.append(f"{text}\n    {parameters} {refusal}")
            continue
        filled += bool(expected[1])
        if told != expected:
            extra, missing = told[1] - expected[1], expected[1] - told[1]
            wrong.append(f"{text}\n    {parameters} too many: {list(extra)[:3]} too few: {list(missing)[:3]}")
    return wrong, filled


def test_random_questions_are_answered_as_postgresql_answers_them(
    asker: psycopg.Connection, truth: psycopg.Connection
) -> None:
    wrong, filled = differing(asker, truth, seed=20250301, questions=150)
    assert wrong == []
    assert filled > 100, "answers without rows compare little"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_many_random_questions_are_answered_as_postgresql_answers_them(
    asker: psycopg.Connection, truth: psycopg.Connection, seed: int
) -> None:
    wrong, _ = differing(asker, truth, seed, questions=500)
    assert wrong == []
