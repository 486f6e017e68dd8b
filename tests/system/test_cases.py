"""Every statement of the case files is answered as PostgreSQL answers it, or refused with its SQLSTATE, for nothing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from proxies import CASES, Proxy, charges


def accepted() -> Iterator[tuple[str, bool]]:
    for line in (CASES / "accepted.sql").read_text().splitlines():
        if line and not line.startswith("--"):
            statement, _, remark = line.partition("; -- ")
            yield statement.removesuffix(";"), remark == "empty"


def refused() -> Iterator[tuple[str, str]]:
    for line in (CASES / "refused.sql").read_text().splitlines():
        if line and not line.startswith("--"):
            state, _, statement = line.partition(" ")
            yield state, statement.removesuffix(";")


def comparable(value: Any) -> Any:
    """Averages are shown with fewer digits than PostgreSQL has: compare nine of them."""
    if isinstance(value, Decimal | float):
        return f"{float(value):.9g}"
    if isinstance(value, datetime | date):
        return value.isoformat()
    return value


@pytest.mark.parametrize(("statement", "empty"), list(accepted()), ids=lambda value: str(value)[:80])
def test_an_accepted_case_is_answered_as_postgresql_answers_it(
    asker: psycopg.Connection, truth: psycopg.Connection, statement: str, empty: bool
) -> None:
    ours = asker.execute(statement)
    theirs = truth.execute(statement)
    assert [(c.name, c.type_code) for c in ours.description or ()] == [
        (c.name, c.type_code) for c in theirs.description or ()
    ]
    answered = [tuple(map(comparable, row)) for row in ours.fetchall()]
    expected = [tuple(map(comparable, row)) for row in theirs.fetchall()]
    if empty:
        assert not Counter(expected) - Counter(answered)
        return
    assert Counter(answered) == Counter(expected)
    if re.search(r"ORDER BY [^()]*$", statement):
        assert answered == expected


@pytest.mark.parametrize(("state", "statement"), list(refused()), ids=lambda value: str(value)[:80])
def test_a_refused_case_has_its_sqlstate_and_costs_nothing(
    noiseless: Proxy, case_database: str, asker: psycopg.Connection, state: str, statement: str
) -> None:
    before = len(charges(case_database, asker.info.user))
    with pytest.raises(psycopg.Error) as refusal:
        asker.execute(statement)
    assert refusal.value.sqlstate == state, refusal.value.diag.message_primary
    assert len(charges(case_database, asker.info.user)) == before
    native = ("permission denied", "must be owner", "not allowed with GROUP BY")
    if state in ("0A000", "42501", "54000", "25006") and not any(text in str(refusal.value) for text in native):
        assert refusal.value.diag.message_hint


SPEAKS_FOR_ITSELF = (  # PostgreSQL's own refusals of a statement as a whole, and of what was called where it runs
    *("must be owner", "not allowed with GROUP BY", "can only be used in transaction blocks"),
    "takes one aggregate of a question",
)


def test_every_refusal_of_a_construct_points_at_it(asker: psycopg.Connection) -> None:
    """So that psql underlines it; what has no place is PostgreSQL's own, and little."""
    placed = 0
    for _, statement in refused():
        with pytest.raises(psycopg.Error) as refusal:
            asker.execute(statement.encode())
        at = refusal.value.diag.statement_position
        if at is None:
            assert any(text in str(refusal.value) for text in SPEAKS_FOR_ITSELF), statement
        else:
            assert 1 <= int(at) <= len(statement) + 1
            placed += 1
    assert placed >= 140


@pytest.mark.parametrize(
    ("statement", "place"),
    [
        ("SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 50 OR avg(age) > 50", "avg(age)"),
        ("SELECT count(*), sum(patient_id) FROM patient_data", "sum(patient_id)"),
        ("SELECT count(*) FROM patient_data WHERE age > 1 AND seen < now()", "now()"),
        ("EXPLAIN (VERBOSE, ANALYZE) SELECT count(*) FROM patient_data", "ANALYZE"),
        ("EXPLAIN (FORMAT XML) SELECT count(*) FROM patient_data", "FORMAT"),
        ("SELECT 1; SELECT * FROM (SELECT gender, max(age) FROM patient_data GROUP BY 1) t", "max(age)"),
        ("COPY (SELECT sum(age), min(age) FROM patient_data) TO STDOUT", "min(age)"),
        ("SELECT '\N{SNOWMAN}', bool_and(smoker) FROM patient_data", "bool_and"),
    ],
)
def test_the_place_is_that_of_the_construct(asker: psycopg.Connection, statement: str, place: str) -> None:
    with pytest.raises(psycopg.Error) as refusal:
        asker.execute(statement.encode())
    assert statement[int(refusal.value.diag.statement_position or 0) - 1 :].startswith(place)


@pytest.mark.parametrize("function", ["bool_and(smoker)", "to_char(seen, 'YYYY')", "bit_or(age)", "random()"])
def test_a_function_is_called_as_the_analyst_called_it(asker: psycopg.Connection, function: str) -> None:
    with pytest.raises(psycopg.Error, match=f"the function {function.partition('(')[0]} "):
        asker.execute(
            f"SELECT count(*) FROM patient_data WHERE {function} IS NULL".encode()
            if not function.startswith(("bool", "bit"))
            else f"SELECT {function} FROM patient_data".encode()
        )


def test_the_case_files_are_as_long_as_promised() -> None:
    assert len(list(accepted())) >= 150
    assert len(list(refused())) >= 120
