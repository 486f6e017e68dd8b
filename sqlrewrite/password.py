"""ALTER ROLE ... PASSWORD: how analysts change their own password, and nothing else about a role.

Texts with a password in them are not remembered by any reader: ``scan`` is used, never ``tokens``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from mechanisms.errors import BadSetting
from sqlrewrite.errors import NotAnswered, NotYours, SyntaxNotRead
from sqlrewrite.lex import Kind, Token, scan

_ONESELF: Final = frozenset(("current_user", "current_role", "session_user"))
_SETTINGS: Final = frozenset(("set", "reset", "in", "rename"))  # ALTER ROLE me SET ...: PostgreSQL's own business
_HINT: Final = "Of a role only one's own password is changed here: ALTER ROLE CURRENT_USER PASSWORD '...'."
# Possessive and bounded, so that no text makes this slow; whoever writes a longer comment here hides nothing.
_BLANK: Final = r"(?:\s{1,99}+|--[^\n]{0,99}+\n|/\*.{0,99}?\*/){1,9}+"
_BEGINS: Final = re.compile(rf"\balter{_BLANK}(?:role|user)\b", re.IGNORECASE | re.DOTALL)
_CONSTANT: Final = re.compile(
    r"[eE]'(?P<escaping>(?:[^'\\]|''|\\.)*+)'"
    r"|(?P<prefix>[bBxXnN]|[uU]&)?'(?P<quoted>(?:[^']|'')*+)'"
    r"|(?P<tag>\$[^$]*\$)(?P<dollars>.*)(?P=tag)",
    re.DOTALL,
)
_ESCAPED: Final = re.compile(r"''|\\(.)", re.DOTALL)


def changes_role(text: str) -> bool:
    """Whether a statement of this script changes an attribute of a role, such as its password."""
    return bool(_BEGINS.search(text)) and any(map(_options, _statements(text)))


def new_password(text: str, own: Collection[str], backslashes: bool = False) -> str:
    """What ALTER ROLE sets the password of one of one's ``own`` names to; all else that it may say is refused.

    ``backslashes``: whether they escape in every constant, as with standard_conforming_strings off.
    """
    these, *others = _statements(text)
    options = _options(these)
    if others or not options:
        raise SyntaxNotRead("a role is changed by a statement of its own", hint=_HINT)
    role = these[2]
    if (role.kind is Kind.NAME or role.word not in _ONESELF) and role.name not in own:
        raise NotYours(
            "permission denied to alter role",
            detail="Everybody changes the own password only.",
            hint="An administrator sets those of others: SELECT provenance.set_password('name', 'password').",
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
    """What a string constant means, as PostgreSQL reads it; rare ways to write one are refused."""
    text, position = constant.text, constant.start + 1
    found = _CONSTANT.fullmatch(text)
    if found is None:
        raise SyntaxNotRead("unterminated quoted string", position=position)
    plain, escaping = found["quoted"], found["escaping"]
    if plain is not None and backslashes and not found["prefix"]:
        plain, escaping = None, plain
    if found["dollars"] is not None:
        return _not_empty(found["dollars"], position)
    if plain is not None and not found["prefix"]:
        return _not_empty(plain.replace("''", "'"), position)
    if escaping is not None and all(escaped in ("", "\\", "'") for escaped in _ESCAPED.findall(escaping)):
        return _not_empty(_ESCAPED.sub(lambda piece: piece[1] or "'", escaping), position)
    raise NotAnswered("a password is written as a plain constant", hint=_HINT, position=position)


def _not_empty(password: str, position: int) -> str:
    if not password:
        raise BadSetting("a password must not be empty", position=position)
    return password
