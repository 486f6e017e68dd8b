"""Passwords that analysts and administrators change by themselves, as psql's ``\\password`` does.

*Guarantee*: a statement with a password in it goes to no database and into no log: PostgreSQL is shown another one in
its place, and what is stored is a verifier. The change holds at once, on every proxy, from the next login on; a
ROLLBACK does not undo it.
"""

from __future__ import annotations

import re
from typing import Final

from mechanisms.errors import BadSetting
from proxy.auth import MECHANISM, parse_verifier
from proxy.reading import Portal, Prepared
from sqlrewrite.errors import NotAnswered
from sqlrewrite.password import changes_role

# Does nothing, and has the command tag, the rights and the rules (no failed or read-only transaction) of the real one.
STAND_IN: Final = "ALTER ROLE CURRENT_USER RESET trace_notify"
NOTICE: Final = "veil: the password is changed at once; ROLLBACK does not undo it"

_LARGE: Final = 1 << 16  # bytes: reading a longer script would keep others waiting
_MD5: Final = re.compile("md5[0-9a-f]{32}")


def may_hide(text: bytes) -> bool:
    """Whether some statement of this script must not be seen by PostgreSQL; keywords are ASCII in every encoding."""
    return len(text) <= _LARGE and changes_role(text.decode("utf-8", "replace"))


def hidden(text: str, oids: tuple[int, ...] = ()) -> Prepared:
    """A statement, behind a stand-in if PostgreSQL must not see it."""
    return Prepared(STAND_IN, oids, secret=text) if changes_role(text) else Prepared(text, oids)


def hidden_portal(piece: str) -> Portal | None:
    """The same for a statement of a script; None if there is nothing to hide."""
    question = hidden(piece)
    return None if question.secret is None else Portal(question)


def checked(password: str) -> str:
    """A password that can be stored: a SCRAM verifier as clients make it, or a plain text; nothing that looks like a
    hash and is none that anybody could log in with."""
    if password.startswith(f"{MECHANISM}$") and parse_verifier(password) is None:
        raise BadSetting(
            "this SCRAM verifier is malformed", hint="Let the client make it (psql: \\password), or give a plain text."
        )
    if _MD5.fullmatch(password):
        raise NotAnswered("MD5 passwords are not supported", hint=f"Set password_encryption to {MECHANISM.lower()}.")
    return password
