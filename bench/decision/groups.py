"""Rows of a parquet file by the groups of a public domain, and what is counted in each.

Every number is a whole multiple of a public unit, and every measure is clamped to bounds that are written here, not
read off the data; so what one privacy unit moves is public.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from numpy.typing import NDArray

from mechanisms.decision import Mask
from mechanisms.values import Lattice

DATA = Path(__file__).parents[2].parent / "shared" / "data"
"""Beside the checkout; pgveil runs without it, this bench does not."""

Column = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Total:
    """A count or a sum that is never negative: one number for each group, and what one unit moves it by."""

    name: str
    values: Lattice
    sensitivity: int


@dataclass(frozen=True, slots=True, eq=False)
class Average:
    """What an average is made of, for rows between two public bounds."""

    name: str
    sums: Lattice
    rows: Lattice
    low: int
    high: int


def columns(file: str, *names: str) -> list[Column]:
    """Some columns of a file."""
    table = pq.read_table(DATA / file, columns=list(names))
    return [table[name].to_numpy() for name in names]


def codes(values: Column, members: Sequence[Any] | None = None) -> tuple[Lattice, int]:
    """The place of each value in a public list of members (all that occur, if none is given), and -1 elsewhere."""
    found = pc.unique(values).to_pylist() if members is None else list(members)
    ordered = sorted(member for member in found if member is not None)
    places = pc.fill_null(pc.index_in(values, value_set=_like(values, ordered)), -1)
    return np.asarray(places.to_numpy(zero_copy_only=False), dtype=np.int64), len(ordered)


def _like(values: Column, members: Sequence[Any]) -> Any:
    return pa.array(members, type=pa.array(values[:1]).type)


def most_frequent(values: Column, number: int) -> list[Any]:
    """The members that a public list of the largest would name."""
    members, counts = np.unique(values, return_counts=True)
    return list(np.asarray(members)[np.argsort(-counts, kind="stable")[:number]].tolist())


class Groups:
    """Each row's group, and the aggregates over them."""

    def __init__(self, *keys: tuple[Lattice, int]) -> None:
        self.place, self.size = keys[0]
        for place, size in keys[1:]:
            inside = (self.place >= 0) & (place >= 0)
            self.place = np.where(inside, self.place * size + place, -1)
            self.size *= size

    def only(self, rows: Mask) -> Groups:
        """The same groups without some rows."""
        return Groups((np.where(rows, self.place, -1), self.size))

    def rows(self, name: str = "count(*)", where: Mask | None = None) -> Total:
        """COUNT(*), with a filter; the unit is the row."""
        chosen = self.place >= 0 if where is None else (self.place >= 0) & where
        return Total(name, np.bincount(self.place[chosen], minlength=self.size).astype(np.int64), 1)

    def sum(self, name: str, values: Column, high: int, where: Mask | None = None) -> Total:
        """SUM of whole numbers clamped to 0..high; the unit is the row."""
        chosen = self.place >= 0 if where is None else (self.place >= 0) & where
        return Total(name, self._sums(values, 0, high, chosen), high)

    def average(self, name: str, values: Column, low: int, high: int) -> Average:
        """AVG of whole numbers clamped to low..high, NULLs skipped; the unit is the row."""
        chosen = self.place >= 0
        if values.dtype.kind == "f":
            chosen &= ~np.isnan(values)
        rows = np.bincount(self.place[chosen], minlength=self.size).astype(np.int64)
        return Average(name, self._sums(values, low, high, chosen), rows, low, high)

    def people(self, name: str, person: Lattice, where: Mask | None = None) -> Total:
        """COUNT(DISTINCT person), the unit being the person; its groups have been bounded by ``bounded``."""
        chosen = self.place >= 0 if where is None else (self.place >= 0) & where
        pairs = np.unique(person[chosen] * self.size + self.place[chosen])
        return Total(name, np.bincount(pairs % self.size, minlength=self.size).astype(np.int64), 1)

    def spent(self, name: str, person: Lattice, values: Column, high: int) -> Total:
        """SUM of what each person contributes to a group, clamped to 0..high; the unit is the person."""
        chosen = self.place >= 0
        pairs, inverse = np.unique(person[chosen] * self.size + self.place[chosen], return_inverse=True)
        each = np.bincount(inverse, weights=np.nan_to_num(values[chosen]), minlength=len(pairs))
        kept = np.clip(np.rint(each), 0, high)
        sums = np.bincount(pairs % self.size, weights=kept, minlength=self.size)
        return Total(name, np.rint(sums).astype(np.int64), high)

    def bounded(self, person: Lattice, most: int) -> Groups:
        """Rows in at most so many groups of each person, chosen by a hash as the generated SQL does."""
        pairs = np.unique(np.where(self.place >= 0, person * self.size + self.place, -1))
        pairs = pairs[pairs >= 0]
        shuffled = pairs[np.argsort(np.random.default_rng(7).random(len(pairs)))]
        order = np.argsort(shuffled // self.size, kind="stable")
        people = (shuffled // self.size)[order]
        first = np.searchsorted(people, people)
        kept = np.sort(shuffled[order][np.arange(len(people)) - first < most])
        asked = person * self.size + self.place
        found = np.searchsorted(kept, asked).clip(max=len(kept) - 1)
        return self.only((self.place >= 0) & (kept[found] == asked))

    def _sums(self, values: Column, low: int, high: int, chosen: Mask) -> Lattice:
        # Whole numbers below 2**53 in all, so that sums in doubles are exact.
        clamped = np.clip(np.rint(np.nan_to_num(values[chosen])), low, high)
        sums = np.bincount(self.place[chosen], weights=clamped, minlength=self.size)
        return np.rint(sums).astype(np.int64)
