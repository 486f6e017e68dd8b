"""Which statements are ours: those that may name a protected relation.

A wrong "not ours" is harmless: the text runs on the shadow, where the role cannot SELECT from a protected table
and where the table is empty anyway. So the test may be cheap: first the bytes (does a protected name occur at all?),
then sqlglot's reading of the relations. Whether the name really is the protected table, and not a temporary one of
the same name, is for the shadow to say (``proxy.conversation``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from mechanisms.errors import Refusal
from sqlrewrite.blocks import outline
from sqlrewrite.catalog import Catalog
from sqlrewrite.kind import targets
from sqlrewrite.lex import Kind, scan
from sqlrewrite.lift import lift
from sqlrewrite.relations import mentions
from sqlrewrite.split import split, words

_REMEMBERED: Final = 20_000  # statement texts; a driver repeats few, and a stranger who sends many only empties it
_SMALL: Final = 4096  # bytes: longer texts are not remembered as passed
_MEDIUM: Final = 1 << 14  # bytes: nor are readings of longer ones
_LARGE: Final = 1 << 18  # bytes: no question is as long, and reading a longer text would keep others waiting

# Statements that carry another statement, which sqlglot does not look into: a protected name in one of them is
# refused with a reason rather than left to the shadow's bare "permission denied".
_WRAPPERS: Final = frozenset(("explain", "copy", "prepare", "declare"))

# Statements that can ask or write. All others (CREATE VIEW, DROP, LOCK, ...) are left to the shadow, whose role is
# powerless: a temporary table may well bear a protected name.
_OURS: Final = _WRAPPERS | {"select", "with", "table", "values", "insert", "update", "delete", "merge", "truncate"}
_BEFORE_TABLE: Final = frozenset(("global", "local", "temp", "temporary", "unlogged"))


@dataclass(frozen=True, slots=True)
class Router:
    """The protected names of one catalog, and the texts that were found not to concern them."""

    names: frozenset[str]
    qualified: frozenset[tuple[str, str]]
    marks: tuple[bytes, ...]  # one of them, in small letters, occurs in every text that names a protected relation
    passed: set[bytes] = field(default_factory=set, compare=False)  # memory of a pure function: safe to share

    @classmethod
    def of(cls, catalog: Catalog) -> Router:
        names = frozenset(relation.name for relation in catalog.protected)
        # U&"..." can spell a name in escapes that the byte test would miss; so can a doubled quote.
        marks = {re.split(rb'"', name.encode().lower())[0] for name in names} | {b'u&"'} if names else set()
        qualified = frozenset((relation.schema, relation.name) for relation in catalog.protected)
        return cls(names, qualified, tuple(sorted(marks)))

    def protects(self, schema: str, name: str) -> bool:
        return (schema, name) in self.qualified

    def is_plain(self, text: bytes) -> bool:
        """Whether the text certainly concerns no protected relation."""
        if text in self.passed:
            return True
        if len(text) > _LARGE:
            return True
        small = text.lower()
        if any(mark in small for mark in self.marks) and self._names_protected(text):
            return False
        if len(text) <= _SMALL and b"veil" not in small:  # settings are noted each time
            if len(self.passed) >= _REMEMBERED:
                self.passed.clear()
            self.passed.add(text)
        return True

    def _names_protected(self, text: bytes) -> bool:
        try:
            read = text.decode()
        except UnicodeDecodeError:
            read = text.decode("latin-1")  # another client encoding: the session decodes what may be ours
        lifted = lift(read)  # what a text names does not depend on its constants
        return _mentions(read if lifted is None else lifted.text, self.names)


PASS_ALL: Final = Router(frozenset(), frozenset(), ())
"""For administrators: their statements go where no private row is, and none is a question."""


def named(text: str) -> frozenset[tuple[str | None, str]]:
    """The relations that a statement names; of one that carries another (EXPLAIN, COPY, ...) every name-like word."""
    text = text.strip().rstrip(";")
    return _named(text) if len(text) <= _MEDIUM else _named.__wrapped__(text)


@lru_cache(maxsize=1024)
def _named(text: str) -> frozenset[tuple[str | None, str]]:
    try:
        return outline(text).names() | targets(text) if _first(text) not in _WRAPPERS else frozenset(mentions(text))
    except Refusal:
        return frozenset(mentions(text))


def _first(text: str) -> str:
    return next((token.word or "" for token in scan(text) if token.kind is not Kind.OPEN), "")


@lru_cache(maxsize=256)  # of at most _LARGE bytes each: a script is looked at as a whole and again piece by piece
def _mentions(text: str, names: frozenset[str]) -> bool:
    return any(_statement_mentions(piece, names) for piece in split(text))


def _statement_mentions(text: str, names: frozenset[str]) -> bool:
    spoken = words(text)
    if not spoken or not (spoken[0] in _OURS or _makes_table(spoken)):
        return False
    if not names.intersection(spoken):
        return bool(re.search(r"u&\"", text, re.IGNORECASE)) and _reads(text, names)
    return spoken[0] in _WRAPPERS or _reads(text, names)


def _makes_table(spoken: list[str]) -> bool:
    """CREATE TABLE ... AS, which may keep an answer."""
    if spoken[0] != "create" or "as" not in spoken:
        return False
    return next((word for word in spoken[1:] if word not in _BEFORE_TABLE), None) == "table"


def _reads(text: str, names: frozenset[str]) -> bool:
    # What sqlglot cannot read runs on the shadow, where PostgreSQL reads it and nothing private is.
    return any(name in names for _, name in named(text))
