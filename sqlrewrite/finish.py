"""The finishing statement: the analyst's own text, with each question replaced by the relation that was released.

Released numbers travel as array parameters, so the text is the same whatever the answer is: it can be parsed and
described on the shadow before anything is paid.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlrewrite.calls import bound_call, no_aggregate
from sqlrewrite.constant import FLOATS
from sqlrewrite.cut import AggregateSlot, BoundSlot, Cut, GroupingSlot, KeySlot, Slot
from sqlrewrite.lex import tokens
from sqlrewrite.question import Bound, Expression, Question

_RELATION: Final = "__veil_{}"
_ALIAS: Final = re.compile(r' AS "(?:[^"]|"")*"')
_AS_WRITTEN: Final = frozenset(("bigint", "integer", "smallint", "text", "character varying"))
"""Types whose values PostgreSQL shows as they are written in an array, whatever the settings."""


@dataclass(frozen=True, slots=True)
class Released:
    """The columns of one released relation: their SQL types, in the order of its array parameters."""

    question: Question
    cut: Cut
    places: Mapping[int, int]  # where each key of the text stands in the question's keys
    groupings: tuple[tuple[int, ...], ...]  # the GROUPING(...) calls, by key indices of the text
    bounds: tuple[tuple[int, Bound], ...]  # the veil.low(...) calls and kin, by the index of their aggregate
    as_is: tuple[int, ...] | None = None  # the columns that the statement shows, if it shows them as they are

    @property
    def types(self) -> tuple[str, ...]:
        keys = (type_of(key.expression) for key in self.question.keys)
        return (
            *keys,
            *(column.type_name for column in self.question.columns),
            *("integer" for _ in self.groupings),
            *(bound_type(self.question.columns[index].type_name) for index, _ in self.bounds),
        )

    @property
    def names(self) -> tuple[str, ...]:
        return (
            *(f"k{i}" for i in range(len(self.question.keys))),
            *(f"a{i}" for i in range(len(self.question.columns))),
            *(f"g{i}" for i in range(len(self.groupings))),
            *(f"b{i}" for i in range(len(self.bounds))),
        )


def released(question: Question, cut: Cut, places: Mapping[int, int]) -> Released:
    """What the released relation of a question has to hold."""
    slots = (*cut.head, *cut.rest)
    calls = (slot.keys for slot in slots if isinstance(slot, GroupingSlot))
    bounds = ((slot.index, slot.bound) for slot in slots if isinstance(slot, BoundSlot))
    return Released(question, cut, places, tuple(dict.fromkeys(calls)), tuple(dict.fromkeys(bounds)))


def bound_type(type_name: str) -> str:
    """The type of veil.low(x) and kin for an aggregate of this type, as the shadow's functions have it."""
    return "double precision" if type_name in FLOATS else "numeric"


def finish(text: str, parts: Sequence[Released], parameters: int) -> str:
    """The statement over released relations; their arrays are $n, counted on from the analyst's own parameters."""
    pieces: list[str] = []
    at, number = 0, parameters
    for index, part in sorted(enumerate(parts), key=lambda pair: pair[1].cut.block.start):
        block = part.cut.block
        first = number + sum(len(p.types) for p in parts[:index]) + 1
        pieces += [text[at : block.start], _select(part, _RELATION.format(index), first)]
        at = block.stop
    finished = "".join([*pieces, text[at:]])
    these = tokens(finished) if "veil" in text.lower() else ()
    for place in range(len(these)):
        bound = bound_call(these, place)
        if bound is not None:  # on a number of an outer SELECT: its noise is not known there
            raise no_aggregate(bound, None)
    return finished


def _select(part: Released, name: str, first: int) -> str:
    arrays = [f"pg_catalog.unnest(${first + i}::{type_name}[])" for i, type_name in enumerate(part.types)]
    if not arrays:  # SELECT 1 ... GROUP BY (): one row without columns
        relation = f"(SELECT) AS {name}"
    else:
        relation = f"ROWS FROM ({', '.join(arrays)}) AS {name}({', '.join(part.names)})"
    head = "".join(_piece(piece, part, name) for piece in part.cut.head)
    rest = "".join(_piece(piece, part, name) for piece in part.cut.rest)
    return f"{head} FROM {relation}{rest}"


def _piece(piece: str | Slot, part: Released, name: str) -> str:
    match piece:
        case str():
            return piece
        case KeySlot(index):
            return f"{name}.k{part.places[index]}"
        case AggregateSlot(index):
            return f"{name}.a{index}"
        case GroupingSlot(keys):
            return f"{name}.g{part.groupings.index(keys)}"
        case BoundSlot(index, bound):
            return f"{name}.b{part.bounds.index((index, bound))}"


def as_released(text: str, part: Released) -> tuple[int, ...] | None:
    """Which released columns a statement shows, if it shows them and nothing else, row by row as they are.

    *Guarantee*: then the finishing statement's rows are the elements of these arrays, in their order: nothing is
    computed, sorted, left out or written in another way.
    """
    block = part.cut.block
    if text[: block.start].strip() or text[block.stop :].strip(" \t\r\n;") or part.cut.rest:
        return None
    first, *pieces = [piece for piece in part.cut.head if piece != ""]
    shown: list[int] = []
    between = True
    for piece in pieces:
        if between and isinstance(piece, (KeySlot, AggregateSlot)):
            keys = len(part.question.keys)
            shown.append(part.places[piece.index] if isinstance(piece, KeySlot) else keys + piece.index)
            between = False
        elif not between and piece == ", ":
            between = True
        elif between or not isinstance(piece, str) or not _ALIAS.fullmatch(piece):
            return None
    plain = first == "SELECT " and not between and all(part.types[at] in _AS_WRITTEN for at in shown)
    return tuple(shown) if plain else None


def array_text(values: Sequence[str | None]) -> str:
    """The text of a one-dimensional array."""
    return "{" + ",".join("NULL" if value is None else _element(value) for value in values) + "}"


def _element(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def type_of(expression: Expression) -> str:
    """The SQL type of a row expression."""
    return expression.type_name
