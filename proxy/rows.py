"""From released numbers to the rows of an answer: groups, which of them are shown, and their columns as arrays."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property, reduce
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mechanisms.condition import And, Condition, Leaf, Or
from mechanisms.threshold import decide as beyond
from mechanisms.values import Noisy
from provenance.model import Remaining
from provenance.synopses import Stored
from proxy import messages as m
from proxy.bill import Groups, bill, sentence
from proxy.plan import Plan
from proxy.recent import Recent
from proxy.staging import Paid
from proxy.wishes import Wishes
from sqlrewrite.bounds import Told, bound_texts
from sqlrewrite.catalog import Key
from sqlrewrite.cells import key_text
from sqlrewrite.finish import Released, array_text
from sqlrewrite.problem import thresholds
from sqlrewrite.question import Atom
from sqlrewrite.values import column_texts

_BESIDE = 200  # what an answer weighs beside its groups and their texts
_BODIES: Final = 4  # of one answer, in different formats
# How PostgreSQL sends a value in binary, of types that can be shown as they are; a text is the same in both formats.
_BINARY: Final[Mapping[str, Callable[[int], bytes]]] = {
    name: struct.Struct(code).pack for name, code in (("bigint", ">q"), ("integer", ">i"), ("smallint", ">h"))
}


@dataclass(frozen=True, slots=True, eq=False)
class _Frame:
    """What the numbers of a plan are put into: the same for all of them."""

    plan: Plan  # held, since it is remembered by which it is
    groups: Groups
    kept: NDArray[np.int64]
    keys: list[list[str | None]]


def _framed(each: Plan, memory: Recent[Hashable, Any]) -> _Frame | None:
    """The frame of a plan that shows every group of a public domain; None if what is shown depends on the numbers."""
    if each.cells is None or each.empty or each.probe or each.question.having is not None:
        return None
    key = "frame", id(each)
    known: _Frame | None = memory.get(key)
    if known is None:
        groups = groups_of(each, None)
        keys = [[key_text(value) for value in column] for column in groups.keys]
        known = _Frame(each, groups, kept_of(each, groups), keys)
        memory.put(key, known, _BESIDE + groups.size * (1 + len(keys)))
    return known


def groups_of(each: Plan, noisy: Noisy | None) -> Groups:
    """The groups of an answer with their keys as texts and the grouping set that each belongs to."""
    statistics = len(each.question.statistics)
    if each.cells is not None:
        size = each.cells.size
        return Groups(
            noisy or Noisy(np.zeros((statistics, size), dtype=np.int64)),
            each.cells.key_columns(np.arange(size, dtype=np.int64)),
            each.cells.set_indices(np.arange(size, dtype=np.int64)),
        )
    keys = noisy.keys if noisy is not None and noisy.keys is not None else ()
    columns: list[list[Key]] = [[key[place] for key in keys] for place in range(len(each.question.keys))]
    sets = np.array([int(key[-1] or 0) for key in keys], dtype=np.int64)
    return Groups(noisy or Noisy(np.zeros((statistics, 0), dtype=np.int64)), columns, sets)


def kept_of(each: Plan, groups: Groups) -> NDArray[np.int64]:
    """Which groups the answer shows."""
    if each.empty:
        scalar = [index for index, keys in enumerate(each.question.sets) if not keys]
        return np.flatnonzero(np.isin(groups.sets, scalar)).astype(np.int64)
    if each.probe:
        return np.zeros(0, dtype=np.int64)
    if each.question.having is None:
        return np.arange(groups.size, dtype=np.int64)
    return np.flatnonzero(_holds(each.question.having, each, groups)).astype(np.int64)


def _holds(condition: Condition[Atom], each: Plan, groups: Groups) -> NDArray[np.bool_]:
    match condition:
        case Leaf(atom):
            share = each.shares[atom.statistic]
            assert share is not None
            return beyond(groups.noisy.row(atom.statistic), atom.direction, thresholds(atom, groups.keys), share)
        case And(parts):
            return reduce(np.logical_and, (_holds(part, each, groups) for part in parts))
        case Or(parts):
            return reduce(np.logical_or, (_holds(part, each, groups) for part in parts))


def masks_of(each: Plan, part: Released, call: tuple[int, ...], sets: NDArray[np.int64]) -> list[str]:
    """GROUPING(keys): a bit for each key that the row's grouping set leaves out, the first key highest."""
    masks = [
        sum((part.places[key] not in keys) << place for place, key in enumerate(reversed(call)))
        for keys in each.question.sets
    ]
    return [str(masks[index]) for index in sets.tolist()]


def columns_of(
    each: Plan,
    part: Released,
    groups: Groups,
    kept: NDArray[np.int64],
    clip: bool,
    confidence: Decimal,
    frame: _Frame | None,
) -> Sequence[Sequence[str | None]]:
    """The texts of each column of the released relation."""
    columns, chosen = each.question.columns, () if frame is not None else kept.tolist()
    keys = frame.keys if frame is not None else [[key_text(column[at]) for at in chosen] for column in groups.keys]
    values = [column_texts(each.question, column, groups.noisy, kept, clip) for column in columns]
    masks = [masks_of(each, part, call, groups.sets[kept]) for call in part.groupings]
    if not part.bounds:
        return [*keys, *values, *masks]
    told = Told(each.question, groups.noisy, None if each.free else each.shares, kept, confidence, clip)
    return [*keys, *values, *masks, *(bound_texts(told, columns[index], bound) for index, bound in part.bounds)]


@dataclass(frozen=True, eq=False)
class Rendered:
    """What an answer shows. Plan, part and numbers are held too: it is remembered by which they are."""

    plan: Plan
    part: Released
    stored: Stored | None
    groups: Groups
    kept: NDArray[np.int64]
    columns: Sequence[Sequence[str | None]]
    memory: Recent[Hashable, Any]
    bodies: dict[Hashable, bytes] = field(default_factory=dict)

    @property
    def weight(self) -> int:
        """For whoever remembers it."""
        return _BESIDE + self.groups.size + sum(len(text or "") for column in self.columns for text in column)

    @cached_property
    def arrays(self) -> Sequence[str]:
        """What the finishing statement takes."""
        return [array_text(column) for column in self.columns]

    def body(self, formats: Sequence[int]) -> bytes:
        """The rows as PostgreSQL sends them, of a statement that shows the released columns as they are; each column in
        its format.
        """
        assert self.part.as_is is not None
        kinds = [self.part.types[at] for at in self.part.as_is]
        packers = tuple(_BINARY.get(kind) if code else None for kind, code in zip(kinds, formats, strict=True))
        known = self.bodies.get(packers)
        if known is None:
            shown = [_cells(self.columns[at], pack) for at, pack in zip(self.part.as_is, packers, strict=True)]
            rows = list(zip(*shown, strict=True))
            known = b"".join([*map(m.encode_data_row, rows), m.encode_command_complete(f"SELECT {len(rows)}")])
            if len(self.bodies) == _BODIES:  # there are as many ways to ask as there are subsets of the columns
                self.bodies.clear()
            self.bodies[packers] = known
        return known

    def bill(self, paid: Paid | None, remaining: Remaining, text: str) -> tuple[str, str]:
        """The bill of the answer: a sentence, and JSON."""
        facts = {} if self.stored is None else self.stored.facts
        if paid is not None or self.plan.question.having is not None or set(facts) - {"as_of"} != {"ways"}:
            entry = bill(self.plan, self.groups, self.kept, paid, facts, remaining, text)
            return sentence(entry), entry.json()
        # The bills of free numbers differ in the text only.
        key = id(self.plan), self.groups.size, len(self.kept), *facts["ways"], facts.get("as_of"), remaining
        known: tuple[Plan, str, str] | None = self.memory.get(key)
        if known is None:
            entry = bill(self.plan, self.groups, self.kept, None, facts, remaining, "")
            known = self.plan, sentence(entry), entry.json().removeprefix('{"question": ""')
            self.memory.put(key, known, _BESIDE)
        _, told, rest = known
        return told, f'{{"question": {json.dumps(text)}{rest}'


def _cells(texts: Sequence[str | None], pack: Callable[[int], bytes] | None) -> list[bytes | None]:
    """A column as it is sent: as text, or packed."""
    if pack is None:
        return [None if text is None else text.encode() for text in texts]
    return [None if text is None else pack(int(text)) for text in texts]


def rendered(
    each: Plan, part: Released, stored: Stored | None, wishes: Wishes, top: bool, memory: Recent[Hashable, Any]
) -> Rendered:
    """An answer as it is shown, worked out once for the same numbers; ``top``: the question is the whole statement."""
    clip, confidence = top and not wishes.raw, wishes.accuracy.confidence
    key = id(each), id(part), id(stored), clip, confidence
    known: Rendered | None = memory.get(key)
    if known is None:
        frame = _framed(each, memory) if stored is not None and stored.kept is None else None
        if frame is not None and stored is not None:
            groups, kept = replace(frame.groups, noisy=stored.noisy), frame.kept
        else:
            groups = groups_of(each, None if stored is None else stored.noisy)
            kept = stored.kept if stored is not None and stored.kept is not None else kept_of(each, groups)
        columns = columns_of(each, part, groups, kept, clip, confidence, frame)
        known = Rendered(each, part, stored, groups, kept, columns, memory)
        memory.put(key, known, known.weight)
    return known
