"""Made-up answers, to try a finishing statement on: public keys, and numbers that have nothing to do with the data.

Only a statement that fails on all of them is refused, so they differ as much as answers may: large, small, zero, equal
and negative numbers, rising and falling ones, columns of different magnitudes, and of a decision different groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from proxy.plan import Plan, StatementPlan
from proxy.rows import columns_of, groups_of, kept_of, masks_of
from proxy.wishes import Wishes
from sqlrewrite.cells import key_text
from sqlrewrite.finish import Released, array_text

_MOST: Final = 5_000  # groups whose keys are written out
_LATER: Final = 500  # groups up to which all sets of numbers are made
_MAGNITUDES: Final[tuple[int, ...]] = tuple(10**e for e in range(1, 10))

Value: TypeAlias = Callable[[int, int], int]
"""The number of a column in a row; columns are counted through all questions of the statement."""


def _mixed(*numbers: int) -> int:
    """A number that looks like no function of these; always the same one."""
    value = 0x9E3779B9
    for number in numbers:
        value = (value ^ number) * 0x85EBCA6B & 0xFFFFFFFF
        value = (value ^ value >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return value >> 4


def _magnitude(*numbers: int) -> int:
    return _MAGNITUDES[_mixed(*numbers) % 8] // 10


def _values(few: bool) -> Iterator[Value]:
    """Ways to make numbers up, the likeliest to run first."""
    yield lambda column, row: 1000 + 8 * row + column
    yield lambda column, row: 0
    yield lambda column, row: 1
    yield lambda column, row: -1 - 8 * row - column
    yield lambda column, row: 1 + row + column
    for each in range(2 if few else 24):
        yield lambda column, row, each=each: _magnitude(each, column) * (1 + _mixed(each, column) % 9) + row  # type: ignore[misc]
    for many in () if few else _MAGNITUDES:
        for times in (1, 3):
            yield lambda column, row, base=many * times: base + 8 * row + column  # type: ignore[misc]
            yield lambda column, row, base=many * times: base - 8 * row - column  # type: ignore[misc]
    for each in range(2 if few else 12):
        yield lambda column, row, each=each: _magnitude(each, column, row) + _mixed(each, row, column) % 97  # type: ignore[misc]


@dataclass(frozen=True, slots=True)
class _Part:
    """One question: the columns of its relation, those that are made up left out."""

    keys: Sequence[Sequence[str | None]]
    masks: Sequence[Sequence[str]]
    size: int
    numbers: int  # made-up columns between keys and masks
    bounds: int  # made-up columns behind the masks
    chosen: bool  # which of these rows are in the answer is not public
    fixed: Sequence[str] | None = None  # the arrays themselves, where nothing is measured

    def arrays(self, value: Value, first: int, kept: Sequence[int]) -> list[str]:
        if self.fixed is not None:
            return [*self.fixed]
        made = [
            array_text([str(value(first + column, row)) for row in kept])
            for column in range(self.numbers + self.bounds)
        ]
        keys = [array_text([column[row] for row in kept]) for column in self.keys]
        masks = [array_text([column[row] for row in kept]) for column in self.masks]
        return [*keys, *made[: self.numbers], *masks, *made[self.numbers :]]

    def kept(self, number: int) -> Sequence[int]:
        """The rows of the numbered set: of a decision first none, then all, one, and several."""
        if not self.chosen or number == 1:
            return range(self.size)
        if number == 0:
            return ()
        if number % 3 == 2:
            return [_mixed(number) % self.size] if self.size else []
        return [row for row in range(self.size) if _mixed(number, row) % 2]


@dataclass(frozen=True, slots=True)
class MadeUp:
    """What a statement is tried on: the arrays of all its questions, for one set of numbers after the other."""

    parts: tuple[_Part, ...]
    partial: bool  # there are groups that are not public, or too many to be written out: all sets leave them out

    @property
    def first(self) -> list[str]:
        return self._arrays(next(_values(False)), 0)

    def others(self) -> Iterator[list[str]]:
        """All sets, the first again among them."""
        few = sum(part.size for part in self.parts) > _LATER
        for number, value in enumerate(_values(few)):
            yield self._arrays(value, number)
            if any(part.chosen for part in self.parts):
                yield self._arrays(value, number + 1)

    def _arrays(self, value: Value, number: int) -> list[str]:
        found: list[str] = []
        first = 0
        for part in self.parts:
            found += part.arrays(value, first, part.kept(number))
            first += part.numbers + part.bounds
        return found


def made_up(planned: StatementPlan, wishes: Wishes) -> MadeUp:
    """What a statement can be tried on."""
    sizes = [0 if each.cells is None else each.cells.size for each in planned.plans]
    large = sum(sizes) > _MOST
    pairs = zip(planned.plans, planned.parts, strict=True)
    parts = tuple(_part(each, part, wishes, each.cells is None or large) for each, part in pairs)
    return MadeUp(parts, large or any(each.cells is None and not each.free for each in planned.plans))


def _part(each: Plan, part: Released, wishes: Wishes, without: bool) -> _Part:
    numbers, bounds = len(part.question.columns), len(part.bounds)
    if without:
        no_rows: list[list[str]] = [[] for _ in part.question.keys]
        return _Part(no_rows, [[] for _ in part.groupings], 0, numbers, bounds, False)
    groups = groups_of(each, None)
    if each.free:
        columns = columns_of(each, part, groups, kept_of(each, groups), False, wishes.accuracy.confidence, None)
        return _Part((), (), 0, numbers, bounds, False, [array_text(column) for column in columns])
    keys = [[key_text(value) for value in column] for column in groups.keys]
    everywhere = np.arange(groups.size, dtype=np.int64)
    masks = [masks_of(each, part, call, groups.sets[everywhere]) for call in part.groupings]
    return _Part(keys, masks, groups.size, numbers, bounds, each.question.having is not None)
