"""The case files: what is accepted and how it is read, what is refused and with which words."""

from __future__ import annotations

from pathlib import Path

import pytest
from clinic import House, ask

from mechanisms.condition import And, Condition, Leaf, Or
from mechanisms.errors import Refusal
from sqlrewrite.question import AllOf, Among, AnyOf, Atom, Compare, IsNull, Literal, Not, Predicate, Question

CASES = Path(__file__).parent / "cases"


def pairs(name: str) -> list[tuple[str, str]]:
    """(statement, expectation): blocks between empty lines, the last line being the expectation."""
    found = []
    for block in (CASES / name).read_text(encoding="utf-8").split("\n\n")[1:]:
        *statement, expected = block.strip("\n").split("\n")
        found.append(("\n".join(statement), expected.removeprefix("-- ")))
    return found


ACCEPTED = pairs("accepted.sql")
REFUSED = pairs("refused.sql")


def literal(value: Literal) -> str:
    return f"{'NULL' if value.text is None else value.text}::{value.type_name}"


def where(part: Predicate) -> str:
    match part:
        case Compare(column, op, value):
            return f"{column} {op.value} {literal(value)}"
        case Among(column, values):
            return f"{column} IN ({', '.join(map(literal, values))})"
        case IsNull(column):
            return f"{column} IS NULL"
        case Not(inner):
            return f"NOT {where(inner)}"
        case AllOf(parts):
            return f"({' AND '.join(map(where, parts))})"
        case AnyOf(parts):
            return f"({' OR '.join(map(where, parts))})"


def having(condition: Condition[Atom]) -> str:
    match condition:
        case Leaf(atom):
            return f"count {'>=' if atom.direction > 0 else '<='} {atom.threshold}"
        case And(parts):
            return f"({' AND '.join(map(having, parts))})"
        case Or(parts):
            return f"({' OR '.join(map(having, parts))})"


def told(question: Question) -> str:
    return " | ".join(
        (
            " ".join(key.name for key in question.keys) or "-",
            "-" if question.where is None else where(question.where),
            "-" if question.having is None else having(question.having),
            ", ".join(question.shape.names),
        )
    )


def test_the_case_files_are_as_large_as_promised() -> None:
    assert len(ACCEPTED) >= 40
    assert len(REFUSED) >= 80


@pytest.mark.parametrize(("statement", "expected"), ACCEPTED)
def test_an_accepted_statement_is_read_as_written(statement: str, expected: str) -> None:
    assert told(ask(statement)) == expected


@pytest.mark.parametrize(("statement", "expected"), REFUSED)
def test_a_refused_statement_says_why_and_what_to_write(statement: str, expected: str) -> None:
    sqlstate, _, words = expected.partition(": ")
    with pytest.raises(Refusal) as caught:
        ask(statement)
    refusal = caught.value
    assert (refusal.sqlstate, words in f"{refusal.message} {refusal.hint}") == (sqlstate, True), refusal.message
    assert refusal.position is None or 1 <= refusal.position <= len(statement)


@pytest.mark.parametrize(("statement", "expected"), ACCEPTED)
def test_an_accepted_statement_equals_postgresql_without_noise(house: House, statement: str, expected: str) -> None:
    house.connection.execute(ROWS)
    theirs = house.raw.execute(statement).fetchall()
    question = ask(statement)
    ours = house.answer(question, house.types(statement))
    if expected.startswith("-") or (question.having is not None and "count >=" in expected and ">= 0" not in expected):
        assert ours == theirs if question.shape.order else sorted(map(repr, ours)) == sorted(map(repr, theirs))
    elif question.shape.limit is None:
        assert set(map(repr, theirs)) <= set(map(repr, ours))  # the groups that no row has are ours alone


# One row for a person unit in each group, so that bounding has nothing to cut.
ROWS = r"""
INSERT INTO patient_data SELECT i, i % 101, (ARRAY['F','M','X'])[1 + i % 3],
  (ARRAY['flu','cold','a "quoted\" one','',NULL])[1 + i % 5], (ARRAY[true,false,NULL])[1 + i % 3],
  (ARRAY[50.0,60.5])[1 + i % 2], 36 + i % 4, (ARRAY['A','B1',NULL])[1 + i % 3],
  (ARRAY['sad','ok','happy'])[1 + i % 3]::mood,
  date '2024-01-01' + i % 5, (ARRAY['x','y'])[1 + i % 2], (ARRAY['n',NULL])[1 + i % 2]
  FROM generate_series(1, 1000) AS i;
INSERT INTO orders SELECT i, i, (ARRAY['Ulm','Bonn','Kiel','Jena'])[1 + i % 4], (ARRAY['north','south'])[1 + i % 2], i,
  date '2024-01-01' + i % 5 FROM generate_series(1, 200) AS i;
"""
