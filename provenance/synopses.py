"""Released numbers, kept so that the same question again costs nothing and shows the same noise."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass

import numpy as np
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from mechanisms.values import Noisy
from provenance.ledger import connected
from provenance.model import Receipt

_HEADER = struct.Struct("<3sBII")  # magic, version, aggregates, cells
_MAGIC = b"PVS"
_VERSION = 1

_FIND = """
SELECT s.values FROM provenance.synopsis s
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


def pack(noisy: Noisy) -> bytes:
    """The stored form: a header, the numbers, and the keys (JSON) where the release found them."""
    aggregates, cells = noisy.values.shape
    head = _HEADER.pack(_MAGIC, _VERSION, aggregates, cells)
    found = b"" if noisy.keys is None else json.dumps(noisy.keys).encode()
    return head + np.ascontiguousarray(noisy.values, dtype="<i8").tobytes() + found


def unpack(stored: bytes) -> Noisy:
    """The inverse of ``pack``; anything else is an error."""
    magic, version, aggregates, cells = _HEADER.unpack_from(stored)
    end = _HEADER.size + 8 * aggregates * cells
    if magic != _MAGIC or version != _VERSION or len(stored) < end:
        raise ValueError("a stored synopsis has an unknown form")
    values = np.frombuffer(stored[:end], dtype="<i8", offset=_HEADER.size).reshape(aggregates, cells)
    if len(stored) == end:
        return Noisy(values.astype(np.int64))
    try:
        keys = tuple(tuple(key) for key in json.loads(stored[end:]))
    except (ValueError, TypeError) as unread:
        raise ValueError("a stored synopsis has an unknown form") from unread
    if len(keys) != cells:
        raise ValueError("a stored synopsis has an unknown form")
    return Noisy(values.astype(np.int64), keys)


class Synopses:
    """The store; the first one kept under a key is the one that everybody sees."""

    def __init__(self, pool: AsyncConnectionPool[AsyncConnection[TupleRow]]) -> None:
        self._pool = pool

    async def find(self, key: Sameness) -> Noisy | None:
        """What was released before for the same question, if anything."""
        async with connected(self._pool) as conn:
            return await _find(conn, key)

    async def keep(self, key: Sameness, noisy: Noisy, receipt: Receipt) -> Noisy:
        """Store an answer and return the one to show.

        *Guarantee*: if two processes answered the same question at once, both show the one that was stored first, so
        that noise is never seen twice.
        """
        paid = receipt.charge
        if (key.analyst, key.relation_id, key.data_version) != (paid.analyst, paid.relation_id, paid.data_version):
            raise ValueError("a synopsis is kept under what its receipt paid for")
        aggregates, cells = noisy.values.shape
        row = (key.analyst, key.data_version, key.fingerprint, key.accuracy, aggregates, cells, pack(noisy), receipt.id)
        async with connected(self._pool) as conn, conn.pipeline():
            await conn.execute(_KEEP, (*row, key.relation_id))
            kept = await _find(conn, key)
        # Gone only if a refresh came in between: then this draw, which was paid for, is the answer for the old data.
        return noisy if kept is None else kept


async def _find(conn: AsyncConnection[TupleRow], key: Sameness) -> Noisy | None:
    cursor = await conn.execute(
        _FIND, (key.analyst, key.relation_id, key.data_version, key.fingerprint, key.accuracy), binary=True
    )
    row = await cursor.fetchone()
    return None if row is None else unpack(bytes(row[0]))
