"""From released numbers to the rows of an answer: groups, which of them are shown, and their columns as arrays."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.condition import And, Condition, Leaf, Or
from mechanisms.threshold import decide as beyond
from mechanisms.values import Noisy
from provenance.model import Remaining
from provenance.synopses import Stored
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


def _masks(each: Plan, part: Released, call: tuple[int, ...], sets: NDArray[np.int64]) -> list[str]:
    """GROUPING(keys): a bit for each key that the row's grouping set leaves out, the first key highest."""
    masks = [
        sum((part.places[key] not in keys) << place for place, key in enumerate(reversed(call)))
        for keys in each.question.sets
    ]
    return [str(masks[index]) for index in sets.tolist()]


def columns_of(
    each: Plan, part: Released, groups: Groups, kept: NDArray[np.int64], clip: bool, confidence: Decimal
) -> Sequence[str]:
    chosen = kept.tolist()
    columns = each.question.columns
    keys = [array_text([key_text(column[at]) for at in chosen]) for column in groups.keys]
    values = [array_text(column_texts(each.question, column, groups.noisy, kept, clip)) for column in columns]
    masks = [array_text(_masks(each, part, call, groups.sets[kept])) for call in part.groupings]
    told = Told(each.question, groups.noisy, None if each.free else each.shares, kept, confidence, clip)
    bounds = [array_text(bound_texts(told, columns[index], bound)) for index, bound in part.bounds]
    return [*keys, *values, *masks, *bounds]


@dataclass(frozen=True, slots=True, eq=False)
class Rendered:
    """What an answer shows. Plan, part and numbers are held too: it is remembered by which they are."""

    plan: Plan
    part: Released
    stored: Stored | None
    groups: Groups
    kept: NDArray[np.int64]
    arrays: Sequence[str]

    def told(self, paid: Paid | None, remaining: Remaining, text: str) -> tuple[Sequence[str], tuple[str, str]]:
        """The arrays of the answer, and its bill."""
        facts = {} if self.stored is None else self.stored.facts
        entry = bill(self.plan, self.groups, self.kept, paid, facts, remaining, text)
        return self.arrays, (sentence(entry), entry.json())


def rendered(
    each: Plan, part: Released, stored: Stored | None, wishes: Wishes, top: bool, memory: Recent[Hashable, Any]
) -> Rendered:
    """An answer as it is shown, worked out once for the same numbers; ``top``: the question is the whole statement."""
    clip, confidence = top and not wishes.raw, wishes.accuracy.confidence
    key = id(each), id(part), id(stored), clip, confidence
    known: Rendered | None = memory.get(key)
    if known is None:
        groups = groups_of(each, None if stored is None else stored.noisy)
        kept = stored.kept if stored is not None and stored.kept is not None else kept_of(each, groups)
        arrays = columns_of(each, part, groups, kept, clip, confidence)
        known = Rendered(each, part, stored, groups, kept, arrays)
        memory.put(key, known, _BESIDE + groups.size + sum(len(text) for text in arrays))
    return known
