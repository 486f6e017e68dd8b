"""Every word of a text that could name a relation: for statements that carry another one, or that cannot be read."""

from __future__ import annotations

import re
from itertools import pairwise

from sqlrewrite.blocks import Name
from sqlrewrite.lex import fold

_NAME = r'(?:"(?:[^"]|"")+"|[A-Za-z_\x80-\U0010ffff][\w$]*)'
_CHAIN = re.compile(rf"{_NAME}(?:\s*\.\s*{_NAME})*")
_PART = re.compile(_NAME)


def mentions(text: str) -> set[Name]:
    """Every word that could name a relation, quoted or not, in strings and comments too: too many, never too few."""
    found: set[Name] = set()
    for chain in set(_CHAIN.findall(text)):
        parts = [_unquoted(part) for part in _PART.findall(chain)]
        found.add((None, parts[0]))
        found.update(pairwise(parts))
    return found


def _unquoted(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else fold(part)
