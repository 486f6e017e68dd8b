"""Released numbers to the finishing statement, which the shadow runs: names, types and order are PostgreSQL's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mechanisms.values import Lattice, Noisy
from sqlrewrite.cells import Cells, cells, key_text
from sqlrewrite.generate import quoted
from sqlrewrite.question import AggregateColumn, KeyColumn, Question


@dataclass(frozen=True, slots=True)
class Finishing:
    """A statement over ``unnest`` of array parameters, each given as the text of an array."""

    sql: str
    arrays: tuple[str, ...]


def assemble(
    question: Question, keep: NDArray[np.bool_] | None, noisy: Noisy, column_types: Sequence[str], clip: bool
) -> Finishing:
    """The answer as SQL: the cells that ``keep`` marks (all without it), in the shape that was asked for.

    ``column_types`` are the types of the visible output columns as the shadow described them.
    """
    shape = question.shape
    grid = cells(question)
    kept = np.arange(grid.size, dtype=np.int64) if keep is None else np.flatnonzero(keep).astype(np.int64)
    types = [*column_types, *(_type(question, column) for column in shape.columns[len(column_types) :])]
    if len(column_types) != len(shape.names) or len(types) != len(shape.columns):
        raise ValueError("a type is needed for each visible column")
    arrays: list[str] = []
    sources: list[str] = []
    for place, column in enumerate(shape.columns, start=1):
        match column:
            case KeyColumn(index):
                arrays.append(array_text(_key_column(grid, index, kept)))
                sources.append(f"pg_catalog.unnest(${place}::text[])")
            case AggregateColumn(index):
                arrays.append(_numbers(noisy.row(index)[kept], clip))
                sources.append(f"pg_catalog.unnest(${place}::int8[])")
    values = [f"(t.c{place}::{_cast_type(name)})" for place, name in enumerate(types)]
    outputs = [f"{value} AS {quoted(name)}" for value, name in zip(values, shape.names, strict=False)]
    columns = ", ".join(f"c{place}" for place in range(len(values)))
    sql = f"SELECT {', '.join(outputs)} FROM ROWS FROM ({', '.join(sources)}) AS t({columns})"
    if shape.order:
        sql += " ORDER BY " + ", ".join(
            f"{values[term.output]} {'DESC' if term.descending else 'ASC'}"
            f" NULLS {'FIRST' if term.nulls_first else 'LAST'}"
            for term in shape.order
        )
    if shape.limit is not None:
        sql += f" LIMIT {shape.limit}"
    if shape.offset is not None:
        sql += f" OFFSET {shape.offset}"
    return Finishing(sql, tuple(arrays))


def array_text(values: Iterable[str | None]) -> str:
    """A one-dimensional text array as PostgreSQL reads it: every element quoted, NULL bare."""
    return "{" + ",".join("NULL" if value is None else _element(value) for value in values) + "}"


def _element(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _key_column(grid: Cells, axis: int, kept: NDArray[np.int64]) -> list[str | None]:
    texts = [key_text(value) for value in grid.axes[axis]]
    return [texts[place] for place in grid.places_along(axis, kept).tolist()]


def _numbers(values: Lattice, clip: bool) -> str:
    shown = np.maximum(values, 0) if clip else values
    return "{" + ",".join(map(str, shown.tolist())) + "}"


def _type(question: Question, column: KeyColumn | AggregateColumn) -> str:
    match column:
        case KeyColumn(index):
            return question.keys[index].type_name
        case AggregateColumn():
            return "bigint"


def _cast_type(type_name: str) -> str:
    """``character`` alone would mean one character: format_type writes it for a column of unknown length."""
    return "bpchar" if type_name == "character" else type_name
