"""What kind of statement a text is: those that write to a protected table or carry another statement are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlrewrite.blocks import Name, Tokens
from sqlrewrite.errors import NotAnswered, WouldShowRows, WouldWrite
from sqlrewrite.lex import Kind, tokens

_WRITES: Final = frozenset(("insert", "update", "delete", "merge", "truncate"))
_SKIPPED: Final = frozenset(("into", "from", "only", "table"))
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
