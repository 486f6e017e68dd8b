"""The public cells of a question: its grouping sets one after the other, each in a fixed order, nothing read from data.

Where every key of a set is a plain declared column, the cells are the product of the domains, the last key running
fastest, and are never written out. Keys that are worked out (``date_trunc``, a public table's column) come as a list of
possible tuples (``sqlrewrite.domain``). Without keys there is one cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from mechanisms.values import Exact, Lattice, Passed
from sqlrewrite.catalog import Key
from sqlrewrite.constant import base_type
from sqlrewrite.errors import TooManyGroups
from sqlrewrite.question import Question
from sqlrewrite.sensitivity import declared

MAX_CELLS = 1_000_000
FAR = 2**62
"""Measured numbers are cut off there, on both sides: one unit then moves them less, never more."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Values along one direction of a set: those of one key, or tuples of several that hang together."""

    keys: tuple[int, ...]
    values: tuple[tuple[Key, ...], ...]
    places: Mapping[Any, int] = field(repr=False, compare=False)  # by bare value where there is one key


@dataclass(frozen=True, slots=True)
class Block:
    """The cells of one grouping set."""

    keys: tuple[int, ...]
    axes: tuple[Axis, ...]
    offset: int

    @property
    def size(self) -> int:
        return math.prod(len(axis.values) for axis in self.axes)


@dataclass(frozen=True, slots=True)
class Cells:
    """All groups that a question answers, empty ones included."""

    measures: int
    types: tuple[str, ...]  # of the keys
    blocks: tuple[Block, ...]

    @property
    def size(self) -> int:
        return sum(block.size for block in self.blocks)

    def fill(self, rows: Iterable[Sequence[Any]]) -> Lattice:
        """Rows of the generated SQL as an array of measures x cells.

        *Guarantee*: the shape is public, and rows outside the declared domain leave no trace.
        """
        values = np.zeros((self.measures, self.size), dtype=np.int64)
        columns = list(zip(*rows, strict=True))
        if not columns:
            return values
        marks, keys, numbers = split(self.types, [block.keys for block in self.blocks], columns)
        for block in self.blocks:
            chosen = _of_set(marks, block.keys, len(self.types))
            cell = np.zeros(len(columns[0]) if chosen is None else len(chosen), dtype=np.int64)
            inside = np.ones(len(cell), dtype=np.bool_)
            for axis in block.axes:
                place = _along(axis, keys, chosen)
                inside &= place >= 0
                cell = cell * len(axis.values) + place
            target = cell[inside] + block.offset
            for measure, column in enumerate(numbers[: self.measures]):
                told = column if chosen is None else column[chosen]
                # Added, not set: two spellings of one key ('a' and 'a  ' of char(3)) share a cell.
                np.add.at(values[measure], target, told[inside])
        return values

    def places(self, rows: Sequence[Sequence[str | None]]) -> NDArray[np.int64]:
        """The cell of each tuple of key texts, as a domain query writes them; -1 outside. For one grouping set."""
        (block,) = self.blocks
        columns = [_read(t, column) for t, column in zip(self.types, zip(*rows, strict=True), strict=True)]
        keys = [_canonical_column(t, column) for t, column in zip(self.types, columns, strict=True)]
        cell = np.zeros(len(rows), dtype=np.int64)
        inside = np.ones(len(rows), dtype=np.bool_)
        for axis in block.axes:
            place = _along(axis, keys, None)
            inside &= place >= 0
            cell = cell * len(axis.values) + place
        return np.where(inside, cell, -1)

    def key_columns(self, indices: NDArray[np.int64]) -> list[list[Key]]:
        """For each key its values in these cells; NULL where the cell's grouping set leaves the key out."""
        columns: list[list[Key]] = [[None] * len(indices) for _ in self.types]
        for block in self.blocks:
            at = np.flatnonzero((indices >= block.offset) & (indices < block.offset + block.size))
            rest = indices[at] - block.offset
            whole = len(at) == len(indices)
            for axis in reversed(block.axes):
                rest, place = np.divmod(rest, len(axis.values))
                for part, key in enumerate(axis.keys):
                    told = [axis.values[p][part] for p in place.tolist()]
                    if whole:
                        columns[key] = told
                        continue
                    for where, value in zip(at.tolist(), told, strict=True):
                        columns[key][where] = value
        return columns

    def set_indices(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each cell the grouping set that it belongs to."""
        starts = np.array([block.offset for block in self.blocks], dtype=np.int64)
        return np.searchsorted(starts, indices, side="right").astype(np.int64) - 1


class Found:
    """Groups of open keys as they are in the data: nobody may see them before their units pass a threshold."""

    __slots__ = ("__keys", "__measures", "__sets", "__units")
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self, keys: list[list[Key]], sets: NDArray[np.int64], measures: Lattice, units: NDArray[np.int64]
    ) -> None:
        self.__keys, self.__sets, self.__measures, self.__units = keys, sets, measures, units

    @property
    def measures(self) -> Exact:
        """Measures x groups."""
        return Exact(self.__measures)

    @property
    def units(self) -> Exact:
        """How many units each group has."""
        return Exact(self.__units.reshape(1, -1))

    def named(self, passed: Passed) -> list[tuple[str | None, ...]]:
        """The key texts of the groups that the release lets be named, and behind them the index of their grouping set.

        *Guarantee*: nothing of any other group; only the release makes a ``Passed``.
        """
        chosen = passed.indices.tolist()
        return [(*(key_text(column[at]) for column in self.__keys), str(int(self.__sets[at]))) for at in chosen]

    def __repr__(self) -> str:
        return "<Found>"

    def __eq__(self, other: object) -> NoReturn:
        raise TypeError("found groups are not compared")

    def __format__(self, spec: str) -> NoReturn:
        raise TypeError("found groups have no text form")

    __str__ = __format__  # type: ignore[assignment]

    def __reduce__(self) -> NoReturn:
        raise TypeError("found groups are not copied out")


def cells(question: Question, listed: Sequence[Sequence[Any]] | None = None) -> Cells:
    """The cells of a question; ``listed`` are the rows of its domain query, where it has one."""
    types = tuple(key.expression.type_name for key in question.keys)
    if listed is not None and len(listed) > MAX_CELLS:
        raise _too_many()
    tuples = None
    if listed is not None:
        columns = [_read(t, column) for t, column in zip(types, zip(*listed, strict=True), strict=False)]
        tuples = list(zip(*columns, strict=True))
    blocks: list[Block] = []
    offset = 0
    for keys in question.sets:
        if tuples is None or not keys:
            axes = tuple(_axis((key,), [(value,) for value in _domain(question, key)]) for key in keys)
        else:
            axes = (_axis(keys, [tuple(row[key] for key in keys) for row in tuples]),)
        block = Block(keys, axes, offset)
        blocks.append(block)
        offset += block.size
        if offset > MAX_CELLS:
            raise _too_many()
    return Cells(len(question.measures), types, tuple(blocks))


def found(question: Question, presence: int, rows: Iterable[Sequence[Any]]) -> Found:
    """The groups that the generated SQL of a question with open keys gave back; of other keys within their domain."""
    types = tuple(key.expression.type_name for key in question.keys)
    columns = list(zip(*rows, strict=True))
    empty = np.zeros(0, dtype=np.int64)
    if not columns:
        return Found([[] for _ in types], empty, np.zeros((len(question.measures), 0), dtype=np.int64), empty)
    marks, keys, numbers = split(types, question.sets, columns)
    told: list[list[Any]] = [[] for _ in types]
    picked: list[NDArray[np.int64]] = []
    owners: list[NDArray[np.int64]] = []
    for index, chosen_keys in enumerate(question.sets):
        chosen = _of_set(marks, chosen_keys, len(types))
        at = np.arange(len(columns[0]), dtype=np.int64) if chosen is None else chosen
        for key in chosen_keys:
            attribute = declared(question.sources, question.keys[key].expression)
            if attribute is not None and attribute.keys is not None:
                domain = set(_canonical_column(types[key], attribute.keys))
                at = at[[keys[key][place] in domain for place in at.tolist()]] if len(at) else at
        picked.append(at)
        owners.append(np.full(len(at), index, dtype=np.int64))
        for key in range(len(types)):
            told[key] += [keys[key][place] if key in chosen_keys else None for place in at.tolist()]
    everything = np.concatenate(picked)
    measures = np.array([column[everything] for column in numbers], dtype=np.int64).reshape(len(numbers), -1)
    return Found(told, np.concatenate(owners), measures[: len(question.measures)], measures[presence])


def split(
    types: Sequence[str], sets: Sequence[tuple[int, ...]], columns: Sequence[Sequence[Any]]
) -> tuple[NDArray[np.int64] | None, list[Sequence[Key]], list[NDArray[np.int64]]]:
    """The columns of the generated SQL: GROUPING() marks, keys, numbers.  With one set there are no marks."""
    marked = len(set(map(frozenset, sets))) > 1
    marks = np.array(columns[0], dtype=np.int64) if marked else None
    start = int(marked)
    keys = [_canonical_column(t, column) for t, column in zip(types, columns[start:], strict=False)]
    return marks, keys, [_numbers(column) for column in columns[start + len(types) :]]


def _too_many() -> TooManyGroups:
    return TooManyGroups(
        f"the question has more than {MAX_CELLS} possible groups", hint="group by fewer keys, or by coarser ones"
    )


def _domain(question: Question, key: int) -> Sequence[Key]:
    attribute = declared(question.sources, question.keys[key].expression)
    if attribute is None or attribute.keys is None:
        raise ValueError("the domain of a key that is no plain declared column must be listed")
    return _canonical_column(attribute.type_name, attribute.keys)


def _axis(keys: tuple[int, ...], values: Iterable[tuple[Key, ...]]) -> Axis:
    unique = tuple(dict.fromkeys(values))
    if len(keys) == 1:
        return Axis(keys, unique, {value[0]: place for place, value in enumerate(unique)})
    return Axis(keys, unique, {value: place for place, value in enumerate(unique)})


def _along(axis: Axis, keys: Sequence[Sequence[Key]], chosen: NDArray[np.int64] | None) -> NDArray[np.int64]:
    columns = [keys[key] for key in axis.keys]
    told: Iterable[Any] = columns[0] if len(columns) == 1 else zip(*columns, strict=True)
    if chosen is not None:
        listed = list(told)
        told = (listed[place] for place in chosen.tolist())
    get = axis.places.get
    return np.fromiter((get(value, -1) for value in told), dtype=np.int64)


def _of_set(marks: NDArray[np.int64] | None, keys: tuple[int, ...], width: int) -> NDArray[np.int64] | None:
    """The rows of one grouping set; None for all. GROUPING() has a bit for each key left out, the first one highest."""
    if marks is None:
        return None
    wanted = sum(1 << (width - 1 - key) for key in range(width) if key not in keys)
    return np.flatnonzero(marks == wanted).astype(np.int64)


def _numbers(column: Sequence[Any]) -> NDArray[np.int64]:
    try:
        numbers = np.array(column, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        numbers = np.array([max(-FAR, min(FAR, int(value or 0))) for value in column], dtype=np.int64)
    return np.clip(numbers, -FAR, FAR)


def _canonical_column(type_name: str, column: Sequence[Any]) -> Sequence[Key]:
    """Values of one key in the one form that is hashed; most types are in it already."""
    change = _canonical(base_type(type_name))
    return column if change is None else [change(value) for value in column]


def _read(type_name: str, column: Sequence[Any]) -> Sequence[Key]:
    """A key's values as the shadow listed them, in text (``sqlrewrite.domain``)."""
    match base_type(type_name):
        case "smallint" | "integer" | "bigint" | "numeric" | "real" | "double precision":
            return [Decimal(value) if isinstance(value, str) else value for value in column]
        case "boolean":
            return [value == "true" if isinstance(value, str) else value for value in column]
        case "date":
            return [date.fromisoformat(value[:10]) if isinstance(value, str) else value for value in column]
        case "timestamp without time zone":
            return [datetime.fromisoformat(value) if isinstance(value, str) else value for value in column]
        case "timestamp with time zone":
            return [
                datetime.fromisoformat(value).replace(tzinfo=UTC) if isinstance(value, str) else value
                for value in column
            ]
    return _canonical_column(type_name, column)


def _canonical(base: str) -> Callable[[Any], Key] | None:
    if base == "bpchar":
        return lambda value: value.rstrip(" ") if isinstance(value, str) else value
    if base in ("text", "character varying", "smallint", "integer", "bigint", "numeric", "boolean", "date"):
        return None
    if base == "timestamp with time zone":
        # Python takes an hour that a time zone has twice for unequal to the same moment in another zone.
        return lambda value: value.astimezone(UTC) if isinstance(value, datetime) else value
    return lambda value: value if value is None or isinstance(value, str | bool | int | Decimal | date) else str(value)


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
