"""The public cells of a question: the product of its key domains, in a fixed order, with nothing read from data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqlrewrite.catalog import Attribute, Key
from sqlrewrite.constant import base_type
from sqlrewrite.question import Question


@dataclass(frozen=True, slots=True)
class Cells:
    """All combinations of the keys, the last key running fastest; without keys there is one cell."""

    aggregates: int
    keys: tuple[Attribute, ...]
    axes: tuple[tuple[Key, ...], ...]
    places: tuple[Mapping[Key, int], ...] = field(repr=False, compare=False)

    @property
    def size(self) -> int:
        return math.prod(len(axis) for axis in self.axes)

    def __iter__(self) -> Iterator[tuple[Key, ...]]:
        return (self.key(index) for index in range(self.size))

    def key(self, index: int) -> tuple[Key, ...]:
        """The key values of one cell."""
        values: list[Key] = []
        for axis in reversed(self.axes):
            index, place = divmod(index, len(axis))
            values.append(axis[place])
        return tuple(reversed(values))

    def index(self, values: Sequence[Any]) -> int | None:
        """The cell of a row's keys, or None where a value is outside its declared domain."""
        cell = 0
        for key, axis, places, value in zip(self.keys, self.axes, self.places, values, strict=True):
            place = places.get(canonical(key, value))
            if place is None:
                return None
            cell = cell * len(axis) + place
        return cell

    def fill(self, rows: Iterable[Sequence[Any]]) -> NDArray[np.int64]:
        """Rows of the generated SQL (keys, then aggregates) as an array of aggregates x cells.

        *Guarantee*: the shape is public, and rows outside the declared domain leave no trace.
        """
        values = np.zeros((self.aggregates, self.size), dtype=np.int64)
        width = len(self.axes)
        for row in rows:
            cell = self.index(row[:width])
            if cell is None:
                continue
            for place in range(self.aggregates):
                # Added, not set: two spellings of one key ('a' and 'a  ' of char(3)) share a cell.
                values[place, cell] += row[width + place] or 0
        return values

    def places_along(self, axis: int, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each cell index, the place of its value in one axis."""
        stride = math.prod(len(later) for later in self.axes[axis + 1 :])
        return (indices // stride) % len(self.axes[axis])


def cells(question: Question) -> Cells:
    """The cells that a question answers, empty ones included."""
    axes: list[tuple[Key, ...]] = []
    places: list[dict[Key, int]] = []
    for key in question.keys:
        if key.keys is None:
            raise ValueError(f"{key.name} has no declared domain")
        unique = tuple(dict.fromkeys(canonical(key, value) for value in key.keys))
        axes.append(unique)
        places.append({value: place for place, value in enumerate(unique)})
    return Cells(len(question.aggregates), question.keys, tuple(axes), tuple(places))


def canonical(key: Attribute, value: Any) -> Key:
    """A value of a key column in the one form that is hashed."""
    if isinstance(value, str):
        return value.rstrip(" ") if base_type(key.type_name) == "bpchar" else value
    if value is None or isinstance(value, bool | int | Decimal | date):
        return value
    return str(value)


def key_text(value: Key) -> str | None:
    """A key as text that PostgreSQL casts back to the column's type under any DateStyle."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.isoformat(sep=" ")
        case Decimal():
            return format(value, "f")
        case _:
            return str(value)
