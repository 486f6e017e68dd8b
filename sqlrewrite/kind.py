"""What kind of statement a text is: those that write to a protected table, carry another statement or would keep an
answer where nothing can be kept are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from sqlrewrite.blocks import Name, Tokens
from sqlrewrite.errors import NotAnswered, NotKept, WouldShowRows, WouldWrite
from sqlrewrite.lex import Kind, tokens

_WRITES: Final = frozenset(("insert", "update", "delete", "merge", "truncate"))
_SKIPPED: Final = frozenset(("into", "from", "only", "table"))
_TEMPORARY: Final = frozenset(("temp", "temporary"))
_BEFORE_NAME: Final = frozenset(("global", "local", "unlogged", "table", "if", "not", "exists"))
KEEP_HERE: Final = "write CREATE TEMP TABLE name AS SELECT ...: temporary tables are yours"
_CARRIERS: Final = {
    "copy": "Copy an answer: COPY (SELECT key, count(*) FROM table GROUP BY key) TO STDOUT.",
    "prepare": "PREPARE it by itself; to learn its price, EXPLAIN the question.",
    "declare": "DECLARE it by itself, over a SELECT; to learn its price, EXPLAIN the question.",
}


def refuse_kind(text: str, is_protected: Callable[[Name], bool]) -> None:
    """Refuse a statement that would write to a protected table, or one in which no question can be found."""
    these = tokens(text)
    word = these[0].word if these else None
    target = _target(these[1:]) if word in _WRITES or word == "copy" else None
    if word is not None and target is not None and is_protected(target):
        if word == "copy" and not _copies_in(these):
            raise WouldShowRows("COPY would show private rows", hint=_CARRIERS["copy"], position=these[0].start + 1)
        raise WouldWrite(
            f"{word.upper()} would change protected rows",
            hint="Protected tables are read-only here; temporary tables are yours.",
            position=these[0].start + 1,
        )
    if word in _CARRIERS:
        raise NotAnswered(
            f"{word.upper()} of protected rows is not answered in this form",
            hint=_CARRIERS[word],
            position=these[0].start + 1,
        )
    for at, made in _made(these):
        if not made.temporary:
            raise NotKept(
                "an answer can be kept in a temporary table only",
                hint=KEEP_HERE,
                position=these[at].start + 1,
            )


@dataclass(frozen=True, slots=True)
class Made:
    """The table that a statement makes of an answer."""

    name: str
    temporary: bool
    unless_there: bool  # IF NOT EXISTS: where there is one of that name, PostgreSQL runs no query


def made(text: str) -> Made | None:
    """The table that CREATE TABLE ... AS or SELECT ... INTO makes; None of other statements."""
    return next((found for _, found in _made(tokens(text))), None)


def keeps(text: str) -> bool:
    """Whether a statement puts answers into a table, or may do so."""
    return any(token.word in ("insert", "create", "into") for token in tokens(text))


def _made(these: Tokens) -> Iterator[tuple[int, Made]]:
    if these and these[0].word == "create":
        yield 0, _named(these[1:])
        return
    for at, token in enumerate(these):
        before = these[at - 1] if at else None
        if token.word != "into" or before is None or before.kind is Kind.DOT:
            continue
        if before.word not in ("insert", "merge", "as"):
            yield at, _named(these[at + 1 :])


def _named(these: Tokens) -> Made:
    at = 0
    while at < len(these) and these[at].word in _BEFORE_NAME | _TEMPORARY:
        at += 1
    words = {token.word for token in these[:at]}
    schema, name = _target(these[at:]) or (None, "")
    temporary = schema == "pg_temp" or (schema is None and bool(words & _TEMPORARY))
    return Made(name, temporary, "exists" in words)


def _copies_in(these: Tokens) -> bool:
    """COPY table FROM; the columns stand in brackets, in which neither word can."""
    return next((token.word for token in these[1:] if token.word in ("from", "to")), None) == "from"


def _target(these: Tokens) -> Name | None:
    """The relation that a writing statement names first."""
    while these and these[0].word in _SKIPPED:
        these = these[1:]
    if not these or these[0].name is None:
        return None
    if len(these) > 2 and these[1].kind is Kind.DOT and these[2].name is not None:
        return these[0].name, these[2].name
    return None, these[0].name


def targets(text: str) -> frozenset[Name]:
    """The relation that the statement writes to, if it is one that writes."""
    these = tokens(text)
    if not these or these[0].word not in _WRITES:
        return frozenset()
    target = _target(these[1:])
    return frozenset() if target is None else frozenset((target,))
