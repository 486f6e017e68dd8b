"""Released numbers, kept so that the same question again costs nothing and shows the same noise."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from mechanisms.values import Noisy
from provenance.model import Receipt
from provenance.outlook import connected
from provenance.snapshots import as_of

_HEADER = struct.Struct("<3sBII")  # magic, version, aggregates, cells
_MAGIC = b"PVS"
_VERSION = 2
_FIRST_VERSION = 1  # its numbers are followed by a list of keys, or by nothing

_FIND = """
SELECT s.values, c.at FROM provenance.synopsis s JOIN provenance.charge c ON c.id = s.charge
WHERE s.analyst = %s AND s.relation_id = %s AND s.data_version = %s AND s.fingerprint = %s AND s.accuracy = %s"""

_KEEP = """
INSERT INTO provenance.synopsis (analyst, relation, relation_id, data_version, fingerprint, accuracy, aggregates, cells,
                                 values, charge)
SELECT %s, r.label, r.id, %s, %s, %s, %s, %s, %s, %s FROM provenance.relation r WHERE r.id = %s
ON CONFLICT DO NOTHING"""


@dataclass(frozen=True, slots=True)
class Sameness:
    """What makes two questions the same one: who asks what, of which data, how accurately."""

    analyst: str
    relation_id: int
    data_version: int
    fingerprint: str
    accuracy: str


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """What was released for a question: its numbers, and of a staged decision the groups kept and what was promised."""

    noisy: Noisy
    kept: NDArray[np.int64] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def measured(self, moment: datetime) -> Stored:
        """The same, as of this moment unless it says of which it is."""
        return replace(self, facts={"as_of": as_of([moment]), **self.facts})


def pack(stored: Stored) -> bytes:
    """The stored form: a header, the numbers, and as JSON the keys where the release found them, and a decision."""
    aggregates, cells = stored.noisy.values.shape
    head = _HEADER.pack(_MAGIC, _VERSION, aggregates, cells)
    rest = {
        "keys": stored.noisy.keys,
        "kept": None if stored.kept is None else stored.kept.tolist(),
        "facts": dict(stored.facts),
    }
    return head + np.ascontiguousarray(stored.noisy.values, dtype="<i8").tobytes() + json.dumps(rest).encode()


def unpack(stored: bytes) -> Stored:
    """The inverse of ``pack``; anything else is an error."""
    magic, version, aggregates, cells = _HEADER.unpack_from(stored)
    end = _HEADER.size + 8 * aggregates * cells
    if magic != _MAGIC or version not in (_FIRST_VERSION, _VERSION) or len(stored) < end:
        raise ValueError("a stored synopsis has an unknown form")
    values = np.frombuffer(stored[:end], dtype="<i8", offset=_HEADER.size).reshape(aggregates, cells).astype(np.int64)
    try:
        told: Any = json.loads(stored[end:]) if len(stored) > end else None
        rest: dict[str, Any] = {"keys": told, "kept": None, "facts": {}} if version == _FIRST_VERSION else dict(told)
        keys = None if rest["keys"] is None else tuple(tuple(key) for key in rest["keys"])
        kept = None if rest["kept"] is None else np.array(rest["kept"], dtype=np.int64)
        facts = dict(rest["facts"])
    except (ValueError, TypeError, KeyError) as unread:
        raise ValueError("a stored synopsis has an unknown form") from unread
    if keys is not None and len(keys) != cells:
        raise ValueError("a stored synopsis has an unknown form")
    return Stored(Noisy(values, keys), kept, facts)


class Synopses:
    """The store; the first one kept under a key is the one that everybody sees."""

    def __init__(self, pool: AsyncConnectionPool[AsyncConnection[TupleRow]]) -> None:
        self._pool = pool

    async def find(self, key: Sameness) -> Stored | None:
        """What was released before for the same question, if anything."""
        async with connected(self._pool) as conn:
            return await _find(conn, key)

    async def keep(self, key: Sameness, stored: Stored, receipt: Receipt) -> Stored:
        """Store an answer and return the one to show.

        *Guarantee*: if two processes answered the same question at once, both show the one that was stored first, so
        that noise is never seen twice.
        """
        paid = receipt.charge
        if (key.analyst, key.relation_id, key.data_version) != (paid.analyst, paid.relation_id, paid.data_version):
            raise ValueError("a synopsis is kept under what its receipt paid for")
        aggregates, cells = stored.noisy.values.shape
        row = (
            key.analyst,
            key.data_version,
            key.fingerprint,
            key.accuracy,
            aggregates,
            cells,
            pack(stored),
            receipt.id,
        )
        async with connected(self._pool) as conn, conn.pipeline():
            await conn.execute(_KEEP, (*row, key.relation_id))
            kept = await _find(conn, key)
        # Gone only if a refresh came in between: then this draw, which was paid for, is the answer for the old data.
        return stored if kept is None else kept


async def _find(conn: AsyncConnection[TupleRow], key: Sameness) -> Stored | None:
    cursor = await conn.execute(
        _FIND, (key.analyst, key.relation_id, key.data_version, key.fingerprint, key.accuracy), binary=True
    )
    row = await cursor.fetchone()
    return None if row is None else unpack(bytes(row[0])).measured(row[1])
