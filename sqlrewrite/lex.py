"""PostgreSQL's lexical rules: a text as tokens with their places, and nothing about what they mean.

Strings of every kind, quoted names, nested comments and dollar quotes are told apart as PostgreSQL does it (with
standard_conforming_strings on), so that structure is never looked for inside them. What has no end goes to the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple


class Kind(Enum):
    WORD = "word"  # keyword or unquoted name
    NAME = "name"  # "quoted name"
    STRING = "string"  # any constant in quotes
    NUMBER = "number"
    PARAMETER = "parameter"  # $1
    OPEN = "open"
    CLOSE = "close"
    COMMA = "comma"
    DOT = "dot"
    END = "end"  # ;
    SIGN = "sign"  # one character of an operator


class Token(NamedTuple):  # half the cost of a frozen dataclass, and a text has thousands
    kind: Kind
    text: str
    start: int

    @property
    def stop(self) -> int:
        return self.start + len(self.text)

    @property
    def word(self) -> str | None:
        """The keyword or unquoted name in lower case (ASCII letters only, as PostgreSQL folds in UTF-8)."""
        return fold(self.text) if self.kind is Kind.WORD else None

    @property
    def name(self) -> str | None:
        """The identifier, folded unless it was quoted."""
        if self.kind is Kind.NAME:
            return self.text[1:-1].replace('""', '"')
        return self.word

    @property
    def form(self) -> str:
        """The same for two spellings of one token."""
        if self.kind in (Kind.WORD, Kind.NAME):
            return '"' + (self.name or "") + '"'
        return self.text


_TOKEN: Final = re.compile(
    r"""
      (?P<blank>     [ \t\n\r\f\v]+ | --[^\r\n]*                                     )
    | (?P<block>     /\*                                                             )
    | (?P<string>    [eE]'(?:[^'\\]|''|\\.)*(?:'|\Z) | (?:[bBxXnN]|[uU]&)?'(?:[^']|'')*(?:'|\Z) )
    | (?P<name>      "(?:[^"]|"")*(?:"|\Z)                                           )
    | (?P<uname>     [uU]&"(?:[^"]|"")*(?:"|\Z)                                      )
    | (?P<dollar>    \$(?:[A-Za-z_\x80-\U0010ffff][0-9A-Za-z_\x80-\U0010ffff]*)?\$   )
    | (?P<parameter> \$[0-9]+                                                        )
    | (?P<number>    (?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9]+)? )
    | (?P<word>      [A-Za-z_\x80-\U0010ffff][0-9A-Za-z_$\x80-\U0010ffff]*           )
    | (?P<open>      [(\[]                                                           )
    | (?P<close>     [)\]]                                                           )
    | (?P<comma>     ,                                                               )
    | (?P<dot>       \.                                                              )
    | (?P<end>       ;                                                               )
    | (?P<sign>      .                                                               )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT: Final = re.compile(r"/\*|\*/")
_KINDS: Final = {kind.value: kind for kind in Kind} | {"dollar": Kind.STRING, "uname": Kind.STRING}
_SMALL: Final = 1 << 16  # characters: longer texts are not remembered


def fold(word: str) -> str:
    """An unquoted word in lower case, touching ASCII letters only."""
    if word.isascii():
        return word.lower()
    return "".join(c.lower() if "A" <= c <= "Z" else c for c in word)


def tokens(text: str) -> tuple[Token, ...]:
    """Every token of a text, comments and blanks left out."""
    return _remembered(text) if len(text) <= _SMALL else tuple(scan(text))


@lru_cache(maxsize=16)  # one statement is looked at by several readers in turn
def _remembered(text: str) -> tuple[Token, ...]:
    return tuple(scan(text))


def scan(text: str) -> Iterator[Token]:
    """The same, one by one."""
    match, kinds = _TOKEN.match, _KINDS
    at, size = 0, len(text)
    while at < size:
        found = match(text, at)
        assert found is not None  # the last alternative takes anything
        kind, start, at = found.lastgroup or "", at, found.end()
        if kind == "blank":
            continue
        if kind == "block":
            at = _comment_end(text, at)
            continue
        if kind == "dollar":  # $tag$ ... $tag$
            stop = text.find(found.group(), at)
            at = size if stop < 0 else stop + len(found.group())
        yield Token(kinds[kind], text[start:at], start)  # U&"..." counts as a string: nothing matches such a name


def _comment_end(text: str, at: int) -> int:
    """PostgreSQL's block comments nest."""
    depth = 1
    for mark in _COMMENT.finditer(text, at):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(text)
