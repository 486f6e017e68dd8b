"""Where one statement of a script ends and the next begins, and what is a word rather than a quoted text.

PostgreSQL still parses every piece by itself on the shadow, so a wrong cut is a syntax error there, not a leak.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r"""
      (?P<escape>   [eE]'(?:[^'\\]|''|\\.)*'?  )
    | (?P<string>   '(?:[^']|'')*'?             )
    | (?P<name>     "(?:[^"]|"")*"?             )
    | (?P<line>     --[^\r\n]*                  )
    | (?P<block>    /\*                         )
    | (?P<word>     [^\W\d][\w$]*               )
    | (?P<dollar>   \$(?:[^\W\d]\w*)?\$         )
    | (?P<end>      ;                           )
    """,
    re.VERBOSE | re.DOTALL,
)

_COMMENT = re.compile(r"/\*|\*/")


def _tokens(text: str) -> Iterator[tuple[str, int, int]]:
    """(kind, start, stop) of everything that can hide a semicolon or a name."""
    at = 0
    while (found := _TOKEN.search(text, at)) is not None:
        kind = found.lastgroup or ""
        at = found.end()
        if kind == "block":
            at = _block_end(text, at)
        elif kind == "dollar":  # $tag$ ... $tag$
            stop = text.find(found.group(), at)
            at = len(text) if stop < 0 else stop + len(found.group())
        yield kind, found.start(), at


def _block_end(text: str, at: int) -> int:
    """PostgreSQL's block comments nest."""
    depth = 1
    for mark in _COMMENT.finditer(text, at):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(text)


def split(text: str) -> list[str]:
    """The statements of a script, without the semicolons; empty ones (only blanks and comments) are left out."""
    pieces: list[str] = []
    start, last, filled = 0, 0, False
    atomic, previous = 0, ""
    for kind, begin, stop in _tokens(text):
        filled = filled or bool(text[last:begin].strip())  # numbers and operators are no tokens
        last = stop
        if kind == "word":
            word = text[begin:stop].lower()
            if word == "atomic" and previous == "begin":
                atomic = 1  # a SQL-standard function body: its semicolons are its own
            elif atomic and word == "case":
                atomic += 1
            elif atomic and word == "end":
                atomic -= 1
            previous = word
        if kind == "end" and not atomic:
            if filled:
                pieces.append(text[start:begin])
            start, filled = stop, False
        elif kind not in ("line", "block"):
            filled = True
    if filled or text[last:].strip():
        pieces.append(text[start:])
    return pieces


def words(text: str) -> list[str]:
    """Every identifier and keyword outside string constants and comments, folded as PostgreSQL folds them."""
    found = []
    for kind, begin, stop in _tokens(text):
        if kind == "word":
            found.append(text[begin:stop].lower())
        elif kind == "name":
            found.append(text[begin + 1 : stop - 1].replace('""', '"'))
    return found
