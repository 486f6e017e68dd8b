"""Constants lifted out of a text: what is left is the same for all statements that differ in nothing else.

Only plain constants that are a whole side of a comparison in WHERE are lifted: ``age >= 20``, ``age BETWEEN 20 AND
39``, ``gender = 'female'``. There PostgreSQL reads one integer of at most nine digits as it reads another, and one
plain string as another, so that names, types and columns of the statement do not depend on them; whether the string
fits its column is for the reader of the question to say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from sqlrewrite.constant import UNKNOWN
from sqlrewrite.lex import Kind, Token, tokens
from sqlrewrite.question import Literal

_LONGEST: Final = 4096
# One that touches nothing it could belong to: what is not ASCII may stand in a name, or in the tag of a dollar quote.
_NUMBER: Final = re.compile(r"(?<![\w$.\x80-\U0010ffff])([0-9]{1,9})(?![\w$.\x80-\U0010ffff])")
_INTEGER: Final = re.compile(r"[0-9]{1,9}")
_STRING: Final = re.compile(r"'(?:[^'\\\0]|'')*'")
_EQUAL: Final = frozenset(("=", "<>", "!="))
_COMPARED: Final = _EQUAL | {"<", ">", "<=", ">="}
_OUTSIDE: Final = frozenset(
    (
        *("select", "from", "group", "having", "order", "limit", "offset", "fetch", "window", "for"),
        *("union", "intersect", "except"),
    )
)
_AFTER: Final = _OUTSIDE | {"and", "or"}


@dataclass(frozen=True, slots=True)
class Lifted:
    """A text with numbered places instead of constants, and the constants."""

    text: str
    values: tuple[Literal, ...]

    @property
    def types(self) -> tuple[str, ...]:
        """Of the constants: a number is not read where a string is."""
        return tuple(value.type_name for value in self.values)


def lift(text: str) -> Lifted | None:
    """The text without its constants; None where there are none to lift, or where it has parameters already."""
    return _lifted(text) if len(text) <= _LONGEST else None


@lru_cache(maxsize=16)  # one statement is looked at by several readers in turn
def _lifted(text: str) -> Lifted | None:
    """Texts that differ in whole numbers only, each of one to nine digits by itself, have the same tokens elsewhere."""
    bone, *others = _NUMBER.split(text)
    numbers, between = others[::2], others[1::2]
    pattern = _pattern("0".join((bone, *between)))
    if pattern is None:
        return _read(text)
    values, pieces = [], [bone]
    for number, rest, lifted in zip(numbers, between, pattern, strict=True):
        if lifted:
            values.append(Literal(str(int(number)), "integer"))
        pieces += (f"${len(values)}" if lifted else number, rest)
    return Lifted("".join(pieces), tuple(values))


@lru_cache(maxsize=1024)
def _pattern(text: str) -> tuple[bool, ...] | None:
    """Which of these numbers in a text are lifted; None if none is, or if something else is, too."""
    found = _constants(tokens(text))
    if not found or any(token.kind is not Kind.NUMBER for token, _ in found):
        return None
    starts = {token.start for token, _ in found}
    lifted = tuple(number.start() in starts for number in _NUMBER.finditer(text))
    return lifted if sum(lifted) == len(starts) else None  # 5and: a number, though it touches a word


def _read(text: str) -> Lifted | None:
    """The same for any text."""
    found = _constants(tokens(text))
    pieces: list[str] = []
    at = 0
    for number, (token, _) in enumerate(found, 1):
        pieces += (text[at : token.start], f"${number}")
        at = token.stop
    return Lifted("".join((*pieces, text[at:])), tuple(value for _, value in found)) if found else None


def _constants(these: tuple[Token, ...]) -> list[tuple[Token, Literal]]:
    """The constants to lift."""
    found: list[tuple[Token, Literal]] = []
    if not these or these[0].word != "select":
        return found
    inside = False
    for place, token in enumerate(these):
        kind = token.kind
        if kind is Kind.PARAMETER:
            return []
        if kind is Kind.WORD:
            word = token.word
            inside = word == "where" or (inside and word not in _OUTSIDE)
        elif inside and (kind is Kind.NUMBER or kind is Kind.STRING) and _ends(these, place):
            value = _constant(these, place)
            if value is not None:
                found.append((token, value))
    return found


def _ends(these: tuple[Token, ...], place: int) -> bool:
    """Whether nothing can be said about the constant behind it."""
    after = these[place + 1] if place + 1 < len(these) else None
    return after is None or after.kind in (Kind.CLOSE, Kind.END) or after.word in _AFTER


def _constant(these: tuple[Token, ...], place: int) -> Literal | None:
    token, before = these[place], these[place - 1]
    number = token.kind is Kind.NUMBER
    if not (_INTEGER if number else _STRING).fullmatch(token.text):
        return None
    if before.kind is Kind.SIGN:
        if _operator(these, place) not in (_COMPARED if number else _EQUAL):
            return None
    elif not number or not _of_range(these, place):
        return None
    return Literal(str(int(token.text)), "integer") if number else Literal(token.text[1:-1].replace("''", "'"), UNKNOWN)


def _operator(these: tuple[Token, ...], place: int) -> str:
    """The operator in front, if a name stands before it: signs that touch each other are one."""
    first = place - 1
    while first > 0 and these[first - 1].kind is Kind.SIGN and these[first - 1].stop == these[first].start:
        first -= 1
    name = these[first - 1].kind in (Kind.WORD, Kind.NAME)
    return "".join(token.text for token in these[first:place]) if name else ""


def _of_range(these: tuple[Token, ...], place: int) -> bool:
    """BETWEEN this, or BETWEEN a number AND this."""
    if these[place - 1].word == "between":
        return True
    ending = these[place - 1].word == "and" and these[place - 2].kind is Kind.NUMBER
    return ending and these[place - 3].word == "between"
