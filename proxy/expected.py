"""What PostgreSQL still owes: which frame ends an answer, and where that answer goes."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from proxy import messages as m
from proxy.codec import EMPTY_LIMIT, SMALL_LIMIT

Sink: TypeAlias = Callable[[int, bytes], bytes | None]
"""Takes one frame of an answer; what it returns goes to the client.

If the answer will never come, because of an error here or earlier in its batch, the sink gets that ErrorResponse, and
what it returns is nobody's.
"""


@dataclass(slots=True, eq=False)
class Expected:
    """An answer that is still to come: it ends with the frame that belongs to the message ``kind``."""

    kind: int
    sink: Sink | None = None  # None: relay
    done: asyncio.Future[None] | None = None


RELAYED: Final[dict[int, Expected]] = {
    kind: Expected(kind) for kind in (m.QUERY, m.SYNC, m.FUNCTION_CALL, m.PARSE, m.BIND, m.DESCRIBE, m.EXECUTE, m.CLOSE)
}

_head: Final = struct.Struct(">BI").unpack_from

# What may stand in a batch that is sent on unread: the expected answer, and how long the message may be.
_BATCH: Final[dict[int, tuple[Expected | None, int]]] = {
    m.FLUSH: (None, EMPTY_LIMIT),
    m.SYNC: (RELAYED[m.SYNC], EMPTY_LIMIT),
    **{kind: (RELAYED[kind], SMALL_LIMIT) for kind in (m.BIND, m.DESCRIBE, m.EXECUTE, m.CLOSE)},
}

_UNFIT: Final = (None, 0)


def batch(data: bytes) -> list[Expected] | None:
    """The answers to come, if these are whole and small messages of an extended batch without a Parse; else None."""
    answers: list[Expected] = []
    start, end = 0, len(data)
    while end - start >= 5:
        kind, length = _head(data, start)
        expected, limit = _BATCH.get(kind, _UNFIT)
        if not 4 <= length <= limit:
            return None
        if expected is not None:
            answers.append(expected)
        start += length + 1
    return answers if start == end else None
