"""Constants that are lifted out of a text are read as PostgreSQL reads them, or by PostgreSQL."""

from __future__ import annotations

import psycopg
import pytest
from test_warm_attacks import Office, house, office, went  # noqa: F401

from proxy.conversation import Conversation

COUNT = "SELECT count(*) FROM stay WHERE "


def test_quoted_numbers_are_left_to_postgres(office: Office, went: list[bool]) -> None:  # noqa: F811
    session = office.knowing()
    numbers = session.ask(COUNT + "a = 5")
    assert session.ask(COUNT + "a = 5") == numbers and went[-1]
    for wrong in ("abc", "", "\uff15", "5;"):
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            session.ask(f"{COUNT}a = '{wrong}'")
    assert session.ask(COUNT + "a = '5'") == session.ask(COUNT + "a = ' 5 '") == numbers


def test_a_number_is_not_taken_for_the_string_that_stood_there(office: Office, went: list[bool]) -> None:  # noqa: F811
    session = office.knowing()
    session.ask(COUNT + "c = 'x'")
    known = session.ask(COUNT + "c = 'Z'")
    assert went[-1]
    with pytest.raises(psycopg.errors.UndefinedFunction):
        session.ask(COUNT + "c = 5")
    assert session.ask(COUNT + "c = 'Z'") == known


def test_a_text_with_places_is_not_the_one_whose_constants_were_lifted(office: Office) -> None:  # noqa: F811
    session = office.knowing()
    told = session.ask(COUNT + "a = 5")
    raw = session.connection.pgconn
    for _ in range(2):
        found = raw.exec_params((COUNT + "a = $1").encode(), [b"5"])
        assert (found.error_message, found.get_value(0, 0)) == (b"", str(told[0][0]).encode())
        assert session.ask(COUNT + "a = 5") == told
        assert session.ask(COUNT + "a = 5 ") == told


def test_what_postgres_refuses_meanwhile_ends_the_statement_and_not_the_session(
    office: Office,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = office.knowing()
    session.ask(COUNT + "c = 'x'")
    known = session.ask(COUNT + "c = 'Z'")

    async def fails(conversation: Conversation, wanted: object) -> None:
        await conversation.attempt("SELECT 1 / 0")

    monkeypatch.setattr(Conversation, "enumerate", fails)
    with pytest.raises(psycopg.errors.DivisionByZero):
        session.ask(COUNT + "c = 'q'")
    assert session.ask(COUNT + "c = 'Z'") == known
