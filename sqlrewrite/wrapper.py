"""Statements that carry a question: the wrapper is taken off here, and put on again around what finishes it.

PostgreSQL still reads the whole wrapper on the shadow, so only where the question begins and ends is found out here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from sqlrewrite.blocks import Tokens, closing, is_query
from sqlrewrite.lex import Kind, tokens


class Carrier(Enum):
    COPY = "copy"  # takes no parameters
    DECLARE = "declare"


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A wrapped question: the texts before and behind it belong to the wrapper."""

    carrier: Carrier
    before: str
    question: str
    after: str
    cursor: str  # its name as it is spelled; empty for COPY
    hold: bool  # whether the cursor outlives its transaction

    def around(self, sql: str) -> str:
        """The same wrapper around another query."""
        return self.before + sql + self.after

    @property
    def takes_parameters(self) -> bool:
        return self.carrier is Carrier.DECLARE

    @property
    def has_parameters(self) -> bool:
        return any(token.kind is Kind.PARAMETER for token in tokens(self.question))


@dataclass(frozen=True, slots=True)
class Execution:
    """EXECUTE name (arguments)."""

    name: str
    arguments: str  # with their parentheses; empty if there are none
    start: int  # where they stand


def wrapper(text: str) -> Wrapper | None:
    """COPY (question) TO ... or DECLARE ... CURSOR ... FOR question, taken apart; None if the text is neither."""
    these = _statement(text)
    match these[0].word if these else None:
        case "copy" if len(these) > 2 and these[1].text == "(":
            inner = these[2 : closing(these, 1)]
            return _wrapper(Carrier.COPY, text, inner, "", False)
        case "declare":
            at = next((i for i in range(2, len(these)) if these[i].word == "cursor"), len(these))
            options = these[at + 1 : at + 3]
            holds = len(options) == 2 and options[0].word in ("with", "without") and options[1].word == "hold"
            at += 3 if holds else 1
            if at < len(these) and these[at].word == "for":
                hold = holds and options[0].word == "with"
                return _wrapper(Carrier.DECLARE, text, these[at + 1 :], these[1].text, hold)
    return None


def _wrapper(carrier: Carrier, text: str, inner: Tokens, cursor: str, hold: bool) -> Wrapper | None:
    if not inner or not is_query(inner):
        return None  # INSERT ... RETURNING and kin
    start, stop = inner[0].start, inner[-1].stop
    return Wrapper(carrier, text[:start], text[start:stop], text[stop:], cursor, hold)


def _statement(text: str) -> Tokens:
    these = tokens(text)
    while these and these[-1].kind is Kind.END:
        these = these[:-1]
    return these


def prepared(text: str) -> str | None:
    """The statement that PREPARE name (types) AS gives a name to; None if the text is no PREPARE."""
    these = _statement(text)
    if len(these) < 4 or these[0].word != "prepare":
        return None
    at = closing(these, 2) + 1 if these[2].kind is Kind.OPEN else 2
    if at + 1 >= len(these) or these[at].word != "as":
        return None  # PREPARE TRANSACTION, or a mistake
    return text[these[at + 1].start : these[-1].stop]


def execution(text: str) -> Execution | None:
    """EXECUTE taken apart; None if the text is none."""
    these = _statement(text)
    if len(these) < 2 or these[0].word != "execute" or these[1].name is None:
        return None
    rest = these[2:]
    start = rest[0].start if rest else these[1].stop
    return Execution(these[1].name, text[start : rest[-1].stop] if rest else "", start)


def inlined(sql: str, arrays: Sequence[str]) -> str:
    """A finishing statement with its arrays written out, for where PostgreSQL takes no parameters.

    Written so that it means the same whatever ``standard_conforming_strings`` says.
    """
    pieces: list[str] = []
    at = 0
    for token in tokens(sql):
        if token.kind is Kind.PARAMETER:
            value = arrays[int(token.text[1:]) - 1].replace("\\", "\\\\").replace("'", "''")
            pieces += [sql[at : token.start], f"E'{value}'"]
            at = token.stop
    return "".join([*pieces, sql[at:]])
