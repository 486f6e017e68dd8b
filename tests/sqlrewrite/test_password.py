"""ALTER ROLE ... PASSWORD, read: whose, and what the constant means."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.errors import Refusal
from sqlrewrite.password import changes_role, new_password


@pytest.mark.parametrize(
    "text",
    [
        "ALTER ROLE alice PASSWORD 'x'",
        "  alter\n\tuser \"Alice\" with password 'x' ;",
        "ALTER -- why\nROLE alice PASSWORD 'x'",
        "ALTER /* why */ /* not */ ROLE alice SUPERUSER",
        "SELECT 1; ALTER ROLE alice PASSWORD NULL; SELECT 2",
        "ALTER ROLE mapping PASSWORD 'x'",
        "ALTER USER mapping PASSWORD 'x'",
    ],
)
def test_a_changed_role_is_seen(text: str) -> None:
    assert changes_role(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'ALTER ROLE alice PASSWORD ''x'''",
        "-- ALTER ROLE alice PASSWORD 'x'",
        "ALTER TABLE role ADD password text",
        "ALTER ROLE alice SET search_path = x",
        "ALTER ROLE alice IN DATABASE demo RESET ALL",
        "ALTER ROLE alice RENAME TO bob",
        "ALTER USER MAPPING FOR alice SERVER s OPTIONS (SET password 'x')",
        "CREATE ROLE alice PASSWORD 'x'",
        "ALTER ROLE",
        "ALTER ROLE alice",
        "",
    ],
)
def test_other_statements_are_not(text: str) -> None:
    assert not changes_role(text)


@pytest.mark.parametrize(
    ("constant", "password"),
    [
        ("'it''s'", "it's"),
        ("'a\\b'", "a\\b"),
        ("E'a\\\\b\\'''c'", "a\\b''c"),
        ("e'x'", "x"),
        ("$$it's$$", "it's"),
        ("$a$ $$ $a$", " $$ "),
    ],
)
def test_constants_are_read_as_postgresql_reads_them(constant: str, password: str) -> None:
    assert new_password(f"ALTER ROLE alice PASSWORD {constant}", ["alice"]) == password


@pytest.mark.parametrize(
    "constant",
    [
        *("'abc", "'", "$$abc", "$a$abc$$", "E'abc\\'", "E'abc", "''", "$$$$", "E''"),
        *("B'1'", "N'x'", "U&'x'", "E'\\n'"),
    ],
)
def test_what_cannot_be_read_surely_is_refused(constant: str) -> None:
    with pytest.raises(Refusal):
        new_password(f"ALTER ROLE alice PASSWORD {constant}", ["alice"])


def test_backslashes_mean_what_the_session_says() -> None:
    text = "ALTER ROLE alice PASSWORD 'a\\\\b'"
    assert new_password(text, ["alice"], backslashes=True) == "a\\b"
    assert new_password(text, ["alice"], backslashes=False) == "a\\\\b"


_WORDS = st.sampled_from(
    [*("alter", "ROLE", "user", "alice", '"alice"', "current_user", "with", "encrypted", "password", "null", "'x'"),
     *("$$y$$", "E'z'", "valid", "until", ";", "set", "mapping", "for", "(", "--c\n", "/*c*/", "$1", "'", "$", '"')]
)  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(st.lists(_WORDS, max_size=12))
def test_every_text_is_read_or_refused(words: list[str]) -> None:
    text = " ".join(("alter role", *words))
    if changes_role(text):
        try:
            assert new_password(text, ["alice"]) in ("x", "y", "z") or "'" in words or "$" in words or '"' in words
        except Refusal as refusal:
            assert refusal.position is None or 1 <= refusal.position <= len(text) + 1


@pytest.mark.parametrize("piece", ["alter--", "alter ", "alter/*", "-- alter\n", "alter\n--", "'", "/*"])
def test_no_text_is_slow_to_look_at(piece: str) -> None:
    """Texts of the longest kind that is looked at; exponential or quadratic work would take minutes."""
    text = "alter" + piece * (60_000 // len(piece))
    begun = time.process_time()
    changes_role(text)
    assert time.process_time() - begun < 10
