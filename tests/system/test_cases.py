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


def test_the_case_files_are_as_long_as_promised() -> None:
    assert len(list(accepted())) >= 150
    assert len(list(refused())) >= 120
