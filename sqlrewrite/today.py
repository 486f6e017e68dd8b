"""The current day in the conditions of a question: ``current_date``, and ``now()`` cut to a day or more.

What is asked about *today* is the same question all day, so that repeats stay free. PostgreSQL says what such an
expression is worth, and that is written into the text. A moment that is not cut to a day is left alone, and refused
later on: every refresh of a dashboard would be another question, and be paid for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final

from sqlrewrite.lex import Kind, Token, tokens

_CALLS: Final = frozenset(("now", "transaction_timestamp"))
_WORDS: Final = frozenset(("current_date", "current_timestamp", "localtimestamp"))
_BEGIN: Final = frozenset(("where", "having"))
_END: Final = frozenset(
    (
        *("select", "from", "where", "group", "having", "order", "limit", "offset", "fetch", "window", "for"),
        *("union", "intersect", "except"),
    )
)
_DAYS: Final = frozenset(("'day'", "'week'", "'month'", "'quarter'", "'year'"))
# What an expression may be made of that has no column in it.
_FREE: Final = _CALLS | _WORDS | frozenset(("cast", "as", "date_trunc", "interval", "date", "timestamp", "timestamptz"))
_SIGNS: Final = frozenset("+-*:")
_TYPES: Final = {
    "date": "DATE",
    "timestamp without time zone": "TIMESTAMP",
    "timestamp with time zone": "TIMESTAMP WITH TIME ZONE",
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where an expression stands that is worth the same all day."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Dated:
    """A text with constants in these places."""

    text: str
    places: Sequence[Place]
    constants: Sequence[str]

    def before(self, position: int) -> int:
        """Where a character of it stood in the text as it was written; both are counted from 1."""
        shift = 0
        for place, constant in zip(self.places, self.constants, strict=True):
            begin = place.start + shift
            if position <= begin:
                break
            if position <= begin + len(constant):
                return place.start + 1
            shift += len(constant) - (place.stop - place.start)
        return position - shift


def spoken(text: str) -> tuple[Place, ...]:
    """The places in conditions that mean the current day."""
    plain = text.lower()
    if not any(word in plain for word in (*_WORDS, *_CALLS)):
        return ()
    these = tokens(text)
    found: list[Place] = []
    opened: list[int] = []  # the brackets around
    inside: list[bool] = [False]  # whether a condition goes on, for each of them
    for at, token in enumerate(these):
        if token.kind is Kind.OPEN:
            opened.append(at)
            inside.append(inside[-1])
        elif token.kind is Kind.CLOSE and opened:
            opened.pop()
            inside.pop()
        elif token.kind is Kind.WORD and token.word in _END and not _of_extract(these, opened, token):
            inside[-1] = token.word in _BEGIN
        elif inside[-1] and (stop := _current(these, at)) is not None:
            place = _cut(these, at, stop, opened)
            if place is not None and place not in found:
                found.append(place)
    return tuple(found)


def constant(type_name: str, iso: str) -> str | None:
    """A value as a constant that means the same under every DateStyle; ``iso`` is its form in JSON.

    None where it is no such value: an infinite one, one before or after the years that are read here, or a text of a
    type that only bears the name.
    """
    word = _TYPES.get(type_name)
    try:
        if word is None or word == "DATE":
            return None if word is None else f"DATE '{date.fromisoformat(iso).isoformat()}'"
        moment = datetime.fromisoformat(iso)
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return f"{word} '{moment.isoformat(' ').replace('+00:00', '+00')}'"


def written(text: str, places: Sequence[Place], constants: Sequence[str]) -> Dated:
    """The text with constants in these places."""
    pieces, at = [], 0
    for place, one in zip(places, constants, strict=True):
        pieces += [text[at : place.start], one]
        at = place.stop
    return Dated("".join([*pieces, text[at:]]), places, constants)


def _current(these: Sequence[Token], at: int) -> int | None:
    """Behind the current time that begins here, if one does."""
    word = these[at].word
    if word is None or (at and these[at - 1].kind is Kind.DOT):
        return None
    called = at + 1 < len(these) and these[at + 1].kind is Kind.OPEN
    if word in _CALLS and called and at + 2 < len(these) and these[at + 2].kind is Kind.CLOSE:
        return at + 3
    return at + 1 if word in _WORDS and not called else None


def _cut(these: Sequence[Token], at: int, stop: int, opened: Sequence[int]) -> Place | None:
    """The largest expression around the current time that is a day, or more."""
    for opening in opened:
        start, end = _bracket(these, opening)
        if end and _free(these[start:end]):
            return Place(these[start].start, these[end - 1].stop)
    if _is_day(these, stop):
        return Place(these[at].start, these[stop + 2].stop)
    return Place(these[at].start, these[at].stop) if these[at].word == "current_date" else None


def _bracket(these: Sequence[Token], opening: int) -> tuple[int, int]:
    """What a bracket belongs to, if that is a day: a cast, or date_trunc; (0, 0) if it is not."""
    close = _closing(these, opening)
    before = these[opening - 1].word if opening else None
    if before == "cast":
        day = these[close - 1].word == "date" and these[close - 2].word == "as"
        return (opening - 1, close + 1) if day else (0, 0)
    if before == "date_trunc":
        return (opening - 1, close + 1) if these[opening + 1].text.lower() in _DAYS else (0, 0)
    return (opening, close + 4) if before not in _FREE and _is_day(these, close + 1) else (0, 0)


def _free(these: Sequence[Token]) -> bool:
    """Whether an expression has no column in it, nor anything else that is not known here."""
    return all(
        token.word in _FREE
        if token.kind is Kind.WORD
        else token.text in _SIGNS
        if token.kind is Kind.SIGN
        else token.text.startswith("'") and "\\" not in token.text
        if token.kind is Kind.STRING
        else token.kind in (Kind.NUMBER, Kind.OPEN, Kind.CLOSE, Kind.COMMA)
        for token in these
    )


def _is_day(these: Sequence[Token], at: int) -> bool:
    """Whether ``::date`` stands here."""
    return [token.text.lower() for token in these[at : at + 3]] == [":", ":", "date"]


def _closing(these: Sequence[Token], opening: int) -> int:
    depth = 0
    for at in range(opening, len(these)):
        depth += (these[at].kind is Kind.OPEN) - (these[at].kind is Kind.CLOSE)
        if depth == 0:
            return at
    return len(these) - 1


def _of_extract(these: Sequence[Token], opened: Sequence[int], token: Token) -> bool:
    """Whether it is the FROM of extract(year FROM ...)."""
    return token.word == "from" and bool(opened) and opened[-1] > 0 and these[opened[-1] - 1].word == "extract"
