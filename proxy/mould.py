"""A question that was read once, for all constants that may stand in its WHERE.

Reading a statement, pricing it and having the shadow say which cells of a registered view it adds up costs more than
its answer, if that is known. A *mould* keeps all of this but the constants: what one constant changes is the WHERE and
with it the fingerprint, and which cells count. Price, groups and noise do not depend on them (``mould`` sees to that).

Which cells count is said by PostgreSQL on the shadow, as ever, for the conditions without open constants, and for each
other condition by itself, once for each constant; only whole numbers are compared here, where both do the same.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from proxy.plan import Plan, StatementPlan
from proxy.recent import Recent
from proxy.wider import Derivable, Enumerate, derivable
from sqlrewrite.constant import INTEGERS, TEXTS, UNKNOWN, base_type
from sqlrewrite.derive import Rollup, wider
from sqlrewrite.domain import domain_query
from sqlrewrite.normal import condition_text, digest, frame, normalise
from sqlrewrite.question import (
    AllOf,
    Among,
    AnyOf,
    ColumnRef,
    Compare,
    Comparison,
    Expression,
    Literal,
    Not,
    Predicate,
    Question,
)
from sqlrewrite.view import frame_of
from sqlrewrite.walk import columns, operands, parts

Mask = NDArray[np.bool_]
Memory = Recent[Hashable, Any]

_DIGITS: Final = re.compile(r"-?[0-9]+")
_BESIDE: Final = 100  # what a question weighs beside its cells, in cells
_COMPARED: Final[Mapping[Comparison, Callable[[Any, int], Any]]] = {
    Comparison.GT: operator.gt,
    Comparison.GE: operator.ge,
    Comparison.LT: operator.lt,
    Comparison.LE: operator.le,
    Comparison.EQ: operator.eq,
    Comparison.NE: operator.ne,
}


@dataclass(frozen=True, slots=True, eq=False)
class Sheet:
    """A registered view that a statistic may come from: its cells, and where they go without the open conditions."""

    base: Derivable
    question: Question
    row: int
    numbers: Mapping[ColumnRef, tuple[NDArray[np.int64], Mask]]  # of each cell, and whether it is not NULL
    memory: Memory

    async def narrowed(self, conditions: Sequence[Predicate], enumerate_: Enumerate) -> Derivable | None:
        """The view with the cells that satisfy these conditions too; None if there is no such cell."""
        whole = self.base.rollup
        inside: Mask | None = None
        for condition in conditions:
            mask = self.compared(condition)
            mask = await self._listed(condition, enumerate_) if mask is None else mask
            inside = mask if inside is None else inside & mask
        sums = whole if inside is None else Rollup(np.where(inside, whole.groups, -1), whole.size)
        return replace(self.base, rollup=sums) if sums.most else None

    def compared(self, condition: Predicate) -> Mask | None:
        """Where a condition on whole numbers is true; None for all other conditions.

        *Guarantee*: the same cells as PostgreSQL tells for it: integers have one order, and nothing is true of NULL.
        """
        match condition:
            case Compare(ColumnRef() as column, op, Literal(text, type_name)) if _whole(text, type_name):
                held = self.numbers.get(column)
                return None if held is None else held[1] & _COMPARED[op](held[0], int(text or ""))
            case Among(ColumnRef() as column, values) if all(_whole(each.text, each.type_name) for each in values):
                held = self.numbers.get(column)
                return None if held is None else held[1] & np.isin(held[0], [int(each.text or "") for each in values])
            case AllOf(several) | AnyOf(several):
                joined: Callable[[Mask, Mask], Mask] = operator.and_ if isinstance(condition, AllOf) else operator.or_
                found = [self.compared(part) for part in several]
                masks = [mask for mask in found if mask is not None]
                return reduce(joined, masks) if len(masks) == len(found) else None
        return None

    async def _listed(self, condition: Predicate, enumerate_: Enumerate) -> Mask:
        mask: Mask | None = self.memory.get((self, condition))
        if mask is None:
            alone = wider(replace(self.question, where=condition), self.row, self.base.histogram)
            assert alone is not None
            mask = np.array([row[0] == "true" for row in await enumerate_(alone.listing)], dtype=np.bool_)
            self.memory.put((self, condition), mask, mask.size)
        return mask


@dataclass(frozen=True, slots=True, eq=False)
class Mould:
    """A planned statement with open constants."""

    planned: StatementPlan
    fixed: tuple[Predicate, ...]
    open: tuple[Predicate, ...]  # conditions with marks where constants were
    marks: tuple[str, ...]
    frame: str  # what the fingerprint is of, but for WHERE; and the same of each statistic's own view
    own: tuple[str, ...]
    sheets: tuple[tuple[Sheet, ...], ...]  # for each statistic
    memory: Memory

    @property
    def plan(self) -> Plan:
        return self.planned.plans[0]

    def asked(self, values: Sequence[Literal]) -> Asked:
        """What is asked with these constants."""
        known: Asked | None = self.memory.get((self, *values))
        if known is None:
            filled = tuple(_filled(part, dict(zip(self.marks, values, strict=True))) for part in self.open)
            where = normalise(AllOf((*self.fixed, *filled)))
            told = condition_text(where)
            own = tuple(digest(own, told) for own in self.own)
            known = Asked(filled, digest(self.frame, told), own)
            self.memory.put((self, *values), known, _BESIDE)
        return known


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What is asked out of a mould: the plan is the mould's, but for the condition and the digest."""

    filled: tuple[Predicate, ...]  # the conditions that were open
    digest: str
    own: tuple[str, ...]  # the digests of its statistics' own views


def marks(values: Sequence[Literal], text: str) -> tuple[Literal, ...] | None:
    """A mark for each constant, of its type, that occurs nowhere in the text; None if some constant can have none."""
    found = []
    for place, value in enumerate(values):
        base = base_type(value.type_name)
        if value.text is None or base not in (*INTEGERS, "text", "character varying", UNKNOWN):
            return None
        shown = str((31_357 if base == "smallint" else 2_113_929_217) + place) if base in INTEGERS else f"\ufdd0{place}"
        found.append(Literal(shown, value.type_name))
    return None if any(mark.text is None or mark.text in text for mark in found) else tuple(found)


async def mould(
    planned: StatementPlan,
    values: Sequence[Literal],
    marked: Question,
    marks: Sequence[Literal],
    every: bool,
    context: Callable[[Question], str],
    enumerate_: Enumerate,
    memory: Memory,
) -> Mould | None:
    """The mould of a statement; ``marked`` is its question as it is read with marks in the place of the constants.

    *Guarantee*: the two readings differ in constants of WHERE only, the groups do not depend on WHERE, and the
    constants put back give the question that was planned. ``every`` constant must be one of the question.
    """
    each, question = planned.plans[0], planned.plans[0].question
    known = [mark.text or "" for mark in marks]
    if len(planned.plans) > 1 or planned.top is not each.cut.block or each.cells is None or each.context:
        return None
    if each.cut.clauses.having is not None:  # its constants may decide it, and marks in their place may not
        return None
    if replace(marked, where=None) != replace(question, where=None) or domain_query(question) is not None:
        return None
    conditions = _conjuncts(marked)
    opened = tuple(part for part in conditions if _marks_in(part, known))
    fixed = tuple(part for part in conditions if not _marks_in(part, known))
    found = [mark for part in opened for mark in _marks_in(part, known)]
    if not opened or (every and set(found) != set(known)) or not all(_simple(part) for part in opened):
        return None
    filled = [_filled(part, dict(zip(known, values, strict=True))) for part in opened]
    if any(_marks_in(part, known) for part in filled) or normalise(AllOf((*fixed, *filled))) != question.where:
        return None
    bare = replace(question, where=normalise(AllOf(fixed)) if fixed else None)
    wanted = {column for part in opened for operand in operands(part) for column in columns(operand)}
    sheets = [
        await _sheets(bare, at, each, wanted, context, enumerate_, memory) for at in range(len(question.statistics))
    ]
    own = tuple(frame_of(question, at) for at in range(len(question.statistics)))
    return (
        Mould(planned, fixed, opened, tuple(known), frame(question), own, tuple(sheets), memory)
        if all(sheets)
        else None
    )


async def _sheets(
    bare: Question,
    at: int,
    each: Plan,
    wanted: set[ColumnRef],
    context: Callable[[Question], str],
    enumerate_: Enumerate,
    memory: Memory,
) -> tuple[Sheet, ...]:
    assert each.cells is not None
    found = await derivable(bare, at, each.cells, context, enumerate_)
    read = [base for base in found if wanted <= {key.expression for key in base.question.keys}]
    return tuple(Sheet(base, bare, at, _numbers(base), memory) for base in read)


def _numbers(base: Derivable) -> dict[ColumnRef, tuple[NDArray[np.int64], Mask]]:
    """The axes of whole numbers, written out for every cell."""
    (block,) = base.cells.blocks
    shape, found = [len(axis.values) for axis in block.axes], {}
    for place, axis in enumerate(block.axes):
        column = base.question.keys[axis.keys[0]].expression
        if isinstance(column, ColumnRef) and base_type(column.type_name) in INTEGERS:
            told = [value for (value,) in axis.values]
            if all(value is None or isinstance(value, int) for value in told):
                numbers = np.array([value if isinstance(value, int) else 0 for value in told], dtype=np.int64)
                there = np.array([value is not None for value in told], dtype=np.bool_)
                along = np.indices(shape, sparse=True)[place]
                wide = np.broadcast_to(along, shape).reshape(-1)
                found[column] = numbers[wide], there[wide]
    return found


def _whole(text: str | None, type_name: str) -> bool:
    return text is not None and type_name in INTEGERS


def _simple(part: Predicate) -> bool:
    """Whether open constants are compared with columns of their own kind, for which no constant is out of place."""
    match part:
        case Compare(ColumnRef(_, _, type_name), op, Literal(text, constant)):
            base = base_type(type_name)
            if base in INTEGERS:  # a quoted one is read by PostgreSQL, which may refuse it
                return constant in INTEGERS and _DIGITS.fullmatch(text or "") is not None
            equal = op in (Comparison.EQ, Comparison.NE)
            return base in ("text", "character varying") and equal and base_type(constant) in TEXTS
        case Among(ColumnRef(_, _, type_name), values):
            whole = all(value.type_name in INTEGERS and _DIGITS.fullmatch(value.text or "") for value in values)
            return base_type(type_name) in INTEGERS and whole
        case Not(inner):
            return _simple(inner)
        case AllOf(several) | AnyOf(several):
            return all(_simple(inner) for inner in several)
    return False


def _conjuncts(question: Question) -> tuple[Predicate, ...]:
    match question.where:
        case None:
            return ()
        case AllOf(several):
            return several
        case part:
            return (part,)


def _marks_in(part: Predicate, known: Sequence[str]) -> list[str]:
    inside = (inner for operand in operands(part) for inner in parts(operand))
    return [each.text for each in inside if isinstance(each, Literal) and each.text is not None and each.text in known]


def _filled(part: Predicate, values: Mapping[str, Literal]) -> Predicate:
    """The condition with constants instead of marks."""
    match part:
        case Compare(left, op, right):
            return Compare(left, op, _constant(right, values))
        case Among(argument, several):
            return Among(argument, tuple(_literal(each, values) for each in several))
        case Not(inner):
            return Not(_filled(inner, values))
        case AllOf(several):
            return AllOf(tuple(_filled(inner, values) for inner in several))
        case AnyOf(several):
            return AnyOf(tuple(_filled(inner, values) for inner in several))
    return part


def _constant(found: Expression, values: Mapping[str, Literal]) -> Expression:
    return _literal(found, values) if isinstance(found, Literal) else found


def _literal(found: Literal, values: Mapping[str, Literal]) -> Literal:
    value = values.get(found.text or "")
    if value is None:
        return found
    return value if value.type_name != UNKNOWN else replace(value, type_name=found.type_name)
