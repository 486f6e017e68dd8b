"""Global synopses and what each analyst knows of them, in PostgreSQL; values that were read stay in memory.

Released values never change, so what is kept in memory under a release's id and its moment is right as long as the
release is there; which releases a view has, and what an analyst knows, is read anew for every question.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fractions import Fraction
from typing import Any

import numpy as np
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from mechanisms.grid import Grid
from mechanisms.synopsis import Known, Partial, Release
from mechanisms.values import Lattice
from provenance.errors import StaleSynopsis
from provenance.model import Receipt
from provenance.outlook import connected
from provenance.shape import Shape

_FIND = """
SELECT r.digest, r.id, r.at, r.sensitivity, r.parts, r.variance, r.snapshot, c.at, k.drawn, k.added
FROM provenance.release r JOIN provenance.charge c ON c.id = r.charge
LEFT JOIN provenance.knowledge k ON k.release = r.id AND k.analyst = %s
WHERE r.relation_id = %s AND r.data_version = %s AND r.digest = ANY(%s) ORDER BY r.id"""

_SHAPES = """
SELECT r.digest, min(r.shape)
FROM provenance.release r JOIN provenance.knowledge k ON k.release = r.id AND k.analyst = %s
WHERE r.relation_id = %s AND r.data_version = %s AND r.summed = %s
GROUP BY r.digest ORDER BY max(r.id) DESC LIMIT %s"""

_WHOLE = "SELECT id, values FROM provenance.release WHERE id = ANY(%s)"
_PART = "SELECT release, values FROM provenance.knowledge WHERE analyst = %s AND release = %s AND drawn = %s"

_LEARN = """
INSERT INTO provenance.knowledge AS k (analyst, release, added, values) VALUES (%s, %s, %s, %s)
ON CONFLICT (analyst, release) DO UPDATE SET added = excluded.added, values = excluded.values, drawn = k.drawn + 1
WHERE k.drawn = %s RETURNING release"""

_APPEND = """
WITH made AS (
    INSERT INTO provenance.release (relation_id, data_version, digest, dimensions, measure, sensitivity, parts,
                                    variance, cells, values, charge, summed, shape, snapshot)
    SELECT r.id, r.data_version, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s FROM provenance.relation r
    WHERE r.id = %s AND r.data_version = %s RETURNING id, at)
INSERT INTO provenance.knowledge (analyst, release, added, values) SELECT %s, id, %s, %s FROM made
RETURNING release, (SELECT at FROM made)"""

_MOST_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Place:
    """Where the releases of a view are filed."""

    relation_id: int
    data_version: int
    digest: str


@dataclass(frozen=True, slots=True)
class Held:
    """The releases of one view, and what an analyst knows of them; values are there once they are ``loaded``."""

    grid: Grid | None = None  # None: nothing was ever released
    releases: tuple[Release, ...] = ()
    known: Known = field(default_factory=Known)
    drawn: Mapping[int, int] = field(default_factory=dict)
    made: Mapping[int, datetime] = field(default_factory=dict)  # an id may come again in a ledger that was restored
    snapshots: Mapping[int, int] = field(default_factory=dict)  # of each release: which were measured on the same rows
    paid: Mapping[int, datetime] = field(default_factory=dict)  # when each was charged: before its data was read
    parts: Mapping[int, Fraction] = field(default_factory=dict)  # what was added to each release known in part

    def release(self, id_: int) -> Release:
        """One of them."""
        return next(each for each in self.releases if each.id == id_)


@dataclass(frozen=True, slots=True, eq=False)
class Fresh:
    """A release that was just drawn, with the names under which reports show its view."""

    place: Place
    dimensions: tuple[str, ...]
    measure: str
    grid: Grid
    variance: Fraction
    values: Lattice
    shape: Shape | None = None


def learn(analyst: str, release: int, partial: Partial | None, before: int) -> tuple[str, tuple[Any, ...]]:
    """The statement by which an analyst comes to know a release, whole or through added noise.

    *Guarantee*: it returns no row, and so is rolled back with its charge, if the analyst's knowledge of the release is
    not the ``before``-th any more: noise is never added twice to the same release from the same state.
    """
    return _LEARN, (analyst, release, *_told(partial), before)


class Releases:
    """The store."""

    def __init__(self, pool: AsyncConnectionPool[AsyncConnection[TupleRow]]) -> None:
        self._pool = pool
        self._values = _Memory(_MOST_BYTES)

    async def find(self, analyst: str, places: Sequence[Place]) -> dict[Place, Held]:
        """What there is of some views of one relation, and what the analyst knows of it."""
        if not places:
            return {}
        where = places[0]
        async with connected(self._pool) as conn:
            digests = [place.digest for place in places]
            cursor = await conn.execute(_FIND, (analyst, where.relation_id, where.data_version, digests))
            rows = await cursor.fetchall()
        return {place: _held(row[1:] for row in rows if row[0] == place.digest) for place in places}

    async def shapes(
        self, analyst: str, relation_id: int, data_version: int, summed: str, most: int
    ) -> dict[Place, Shape]:
        """The latest views that add up one thing and of which the analyst knows something.

        *Guarantee*: nothing that only other analysts know.
        """
        async with connected(self._pool) as conn:
            rows = await (await conn.execute(_SHAPES, (analyst, relation_id, data_version, summed, most))).fetchall()
        return {Place(relation_id, data_version, digest): Shape.parse(summed, text) for digest, text in rows}

    async def loaded(self, analyst: str, held: Held, wanted: Iterable[int]) -> Held:
        """The same, with the values of these releases, and of what the analyst knows in part.

        What is not as it was found any more (another session has learned more, the data were refreshed) is stale.
        """
        ids, made = set(wanted), held.made
        found = {id_: values for id_ in ids if (values := self._values.get((id_, made[id_]))) is not None}
        part = held.known.partial
        missing = sorted(ids - found.keys())
        which = None if part is None else (analyst, part.release, held.drawn[part.release])
        mark = None if part is None else (which, made[part.release])
        known_part = None if mark is None else self._values.get(mark)
        if missing or (which is not None and known_part is None):
            async with connected(self._pool) as conn, conn.pipeline():
                whole = await conn.execute(_WHOLE, (missing,), binary=True)
                parts = None if which is None else await conn.execute(_PART, which, binary=True)
                rows = await whole.fetchall()
                part_row = None if parts is None else await parts.fetchone()
            for id_, packed in rows:
                found[id_] = self._values.keep((id_, made[id_]), _unpacked(packed))
            if mark is not None and part_row is not None:
                known_part = self._values.keep(mark, _unpacked(part_row[1]))
        if ids - found.keys() or (part is not None and known_part is None):
            raise StaleSynopsis("what the question was planned on has changed meanwhile", hint="Ask again.")
        releases = tuple(replace(each, values=found.get(each.id)) for each in held.releases)
        known = held.known if part is None else replace(held.known, partial=replace(part, values=known_part))
        return replace(held, releases=releases, known=known)

    async def append(self, analyst: str, fresh: Fresh, part: Partial | None, receipt: Receipt) -> Release:
        """File a release that was paid for; whoever paid knows it whole, or in part.

        If the data were refreshed in between it is shown once and not filed. Releases of one receipt are measured in
        one transaction: the receipt's id tells the snapshot.
        """
        async with connected(self._pool) as conn:
            filed = await _append(conn, analyst, fresh, part, receipt)
        if filed is None:
            return Release(0, fresh.variance, fresh.values)
        return Release(filed[0], fresh.variance, self._values.keep(filed, fresh.values))


async def _append(
    conn: AsyncConnection[TupleRow], analyst: str, fresh: Fresh, part: Partial | None, receipt: Receipt
) -> tuple[int, datetime] | None:
    place, grid = fresh.place, fresh.grid
    row = (
        *(place.digest, list(fresh.dimensions), fresh.measure, grid.sensitivity, grid.parts, str(fresh.variance)),
        *(fresh.values.size, _packed(fresh.values), receipt.id),
        *((None, None) if fresh.shape is None else (fresh.shape.summed, fresh.shape.text)),
        *(receipt.id, place.relation_id, place.data_version, analyst),
        *_told(part),
    )
    told = await (await conn.execute(_APPEND, row)).fetchone()
    return None if told is None else (int(told[0]), told[1])


def _held(rows: Iterable[TupleRow]) -> Held:
    grid, releases, whole, partial = None, list[Release](), set[int](), None
    drawn, made = dict[int, int](), dict[int, datetime]()
    snapshots, paid, parts = dict[int, int](), dict[int, datetime](), dict[int, Fraction]()
    for id_, at, sensitivity, fineness, variance, snapshot, charged, times, added in rows:
        own = Grid(int(sensitivity), int(fineness))
        grid = grid or own
        if own != grid:
            continue  # two proxies began at once, on two grids: the first one counts
        releases.append(Release(id_, Fraction(variance), None))
        made[id_], snapshots[id_], paid[id_] = at, snapshot, charged
        if times is None:
            continue
        drawn[id_] = times
        if added is None:
            whole.add(id_)
        else:
            parts[id_] = Fraction(added)
            partial = Partial(id_, parts[id_], None)
    return Held(grid, tuple(releases), Known(frozenset(whole), partial), drawn, made, snapshots, paid, parts)


def _told(partial: Partial | None) -> tuple[str | None, bytes | None]:
    """What is added to a release, and the sum; nothing of one that is known whole."""
    if partial is None or partial.values is None:
        return None, None
    return str(partial.added), _packed(partial.values)


def _packed(values: Lattice) -> bytes:
    return np.ascontiguousarray(values, dtype="<i8").tobytes()


def _unpacked(packed: bytes) -> Lattice:
    return np.frombuffer(packed, dtype="<i8").astype(np.int64)


class _Memory:
    """Arrays by what never changes about them; the longest unused go first."""

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._arrays: OrderedDict[Any, Lattice] = OrderedDict()

    def get(self, key: Any) -> Lattice | None:
        found = self._arrays.get(key)
        if found is not None:
            self._arrays.move_to_end(key)
        return found

    def keep(self, key: Any, values: Lattice) -> Lattice:
        if key not in self._arrays:
            self._arrays[key] = values
            self._size += values.nbytes
        while self._size > self._most and len(self._arrays) > 1:
            _, dropped = self._arrays.popitem(last=False)
            self._size -= dropped.nbytes
        return values
