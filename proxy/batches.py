"""Batches that ask for one thing: what drivers send to have one prepared statement executed, all in one piece.

[Parse of the unnamed statement,] Bind, [Describe of the portal,] Execute to the end, Sync
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from mechanisms.errors import Refusal
from proxy import messages as m
from proxy.reading import Portal, Prepared

Frames: TypeAlias = Sequence[tuple[int, bytes]]
_UNDESCRIBED: Final = [m.encode_execute(""), m.encode_sync()]
_DESCRIBED: Final = [m.encode_describe(m.PORTAL, ""), *_UNDESCRIBED]


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """A prepared statement that is bound, described if so, executed to its end, and synced, all at once."""

    portal: Portal
    described: bool
    parse: bytes | None  # the message that prepares it as the unnamed statement, if the batch begins with it


def bound(frames: Frames, statements: Mapping[str, Prepared]) -> Bound | None:
    """What these messages ask for, if they are all that it takes, and nothing is wrong with them by themselves."""
    parse = frames[0][1] if frames and frames[0][0] == m.PARSE else None
    rest = frames if parse is None else frames[1:]
    behind = [frame for _, frame in rest[1:]]
    described = behind == _DESCRIBED
    if not (described or behind == _UNDESCRIBED) or rest[0][0] != m.BIND:
        return None
    try:
        asked = m.decode_bind(rest[0][1])
        question = statements.get(asked.statement) if parse is None else _unnamed(parse, asked.statement)
    except Refusal:
        return None  # it is refused in its turn
    formats = *asked.formats, *asked.result_formats
    if question is None or asked.portal or any(code not in (0, 1) for code in formats):
        return None  # PostgreSQL says what is wrong with these
    return Bound(Portal(question, asked.values, asked.formats, asked.result_formats), described, parse)


def _unnamed(parse: bytes, wanted: str) -> Prepared | None:
    """The statement that a message prepares, if it is the unnamed one, the one that is wanted, and said in UTF-8.

    PostgreSQL may warn of a backslash each time that it reads one.
    """
    asked = m.decode_parse(parse)
    return None if asked.name or wanted or "\\" in asked.text else Prepared(asked.text, asked.oids)
