"""ALTER ROLE ... PASSWORD: how analysts change their own password, and nothing else about a role.

Texts with a password in them are not remembered by any reader: ``scan`` is used, never ``tokens``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from mechanisms.errors import BadSetting
from sqlrewrite.errors import NotAnswered, NotYours, SyntaxNotRead
from sqlrewrite.lex import Kind, Token, scan

_ONESELF: Final = frozenset(("current_user", "current_role", "session_user"))
_SETTINGS: Final = frozenset(("set", "reset", "in", "rename"))  # ALTER ROLE me SET ...: PostgreSQL's own business
_HINT: Final = "Of a role only one's own password is changed here: ALTER ROLE CURRENT_USER PASSWORD '...'."
_BEGINS: Final = re.compile(r"alter(?:\s|--[^\n]*|/\*.*?\*/)+(?:role|user)\b", re.IGNORECASE | re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def changes_role(text: str) -> bool:
    """Whether a statement of this script changes an attribute of a role, such as its password."""
    return bool(_BEGINS.search(text)) and any(map(_options, _statements(text)))


def new_password(text: str, analyst: str, backslashes: bool = False) -> str:
    """What ALTER ROLE sets the analyst's own password to; all else that such a statement may say is refused.

    ``backslashes``: whether they escape in every constant, as with standard_conforming_strings off.
    """
    these, *others = _statements(text)
    options = _options(these)
    if others or not options:
        raise SyntaxNotRead("a role is changed by a statement of its own", hint=_HINT)
    role = these[2]
    if (role.kind is Kind.NAME or role.word not in _ONESELF) and role.name != analyst:
        raise NotYours(
            "permission denied to alter role",
            detail="Analysts change their own password only.",
            hint="Ask the administrator.",
            position=role.start + 1,
        )
    if options and options[0].word == "encrypted":
        options = options[1:]
    if not options or options[0].word != "password":
        raise _not_this(options)
    if len(options) < 2 or (options[1].kind is not Kind.STRING and options[1].word != "null"):
        raise SyntaxNotRead("a password is a constant in quotes", hint=_HINT, position=options[0].start + 1)
    if options[1].word == "null":
        raise NotAnswered("a password cannot be taken away", hint=_HINT, position=options[1].start + 1)
    if len(options) > 2:
        raise _not_this(options[2:])
    return _value(options[1], backslashes)


def _statements(text: str) -> Iterator[Sequence[Token]]:
    these: list[Token] = []
    for token in scan(text):
        if token.kind is not Kind.END:
            these.append(token)
        elif these:
            yield these
            these = []
    if these:
        yield these


def _options(these: Sequence[Token]) -> Sequence[Token]:
    """What ALTER ROLE name [WITH] says; nothing if the statement is another one."""
    if len(these) < 4 or these[0].word != "alter" or these[1].word not in ("role", "user"):
        return ()
    if these[2].name is None or (these[1].word == "user" and these[2].word == "mapping" and these[3].word == "for"):
        return ()
    options = these[4:] if these[3].word == "with" else these[3:]
    return () if options and options[0].word in _SETTINGS else options


def _not_this(options: Sequence[Token]) -> NotAnswered:
    position = options[0].start + 1 if options else None
    return NotAnswered("attributes of a role are not changed here", hint=_HINT, position=position)


def _value(constant: Token, backslashes: bool) -> str:
    text, position = constant.text, constant.start + 1
    if text.startswith("$"):
        tag = text[: text.index("$", 1) + 1]
        return _not_empty(text[len(tag) : -len(tag)], position)
    if text[0] in "eE" or (text[0] == "'" and backslashes):
        plain = text[text.index("'") + 1 : -1].replace("''", "'")
        if all(escaped in "\\'" for escaped in _ESCAPED.findall(plain)):
            return _not_empty(_ESCAPED.sub(r"\1", plain), position)
    elif text[0] == "'":
        return _not_empty(text[1:-1].replace("''", "'"), position)
    raise NotAnswered("a password is written as a plain constant", hint=_HINT, position=position)


def _not_empty(password: str, position: int) -> str:
    if not password:
        raise BadSetting("a password must not be empty", position=position)
    return password
