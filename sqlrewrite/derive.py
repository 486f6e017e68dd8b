"""A number from a wider view: which of its cells add up to each group of a question.

A histogram view counts (or sums) over every combination of its dimensions. A question whose filters and keys read these
dimensions only is a sum of such cells; the shadow, which holds no private row, says which, by PostgreSQL's own rules.
Only questions of a row unit about one table: a person's rows are bounded per group, and other groups bound them
differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sqlrewrite import spelled
from sqlrewrite.canonical import canonical
from sqlrewrite.catalog import Histogram
from sqlrewrite.cells import Cells, cells, key_text
from sqlrewrite.domain import DomainQuery, array, axis_type, shown_text
from sqlrewrite.normal import fingerprint
from sqlrewrite.question import ColumnRef, GroupKey, MeasureKind, Predicate, Question, Statistic
from sqlrewrite.render import Rendering
from sqlrewrite.sensitivity import declared
from sqlrewrite.walk import columns, operands, parts

MOST_CELLS = 100_000


@dataclass(frozen=True, slots=True)
class Wider:
    """A histogram's own question, and the statement that tells where its cells go."""

    question: Question
    cells: Cells
    listing: DomainQuery


@dataclass(frozen=True, eq=False)
class Rollup:
    """For each cell of the wider view the group that it adds to, -1 for none."""

    groups: NDArray[np.int64]
    size: int

    @cached_property
    def most(self) -> int:
        """The most cells that one group adds up."""
        inside = self.groups >= 0
        if self.size == 1:
            return int(np.count_nonzero(inside))
        counted = self.groups[inside]
        return int(np.bincount(counted).max()) if counted.size else 0

    def add_up(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """The groups' numbers."""
        inside = self.groups >= 0
        if self.size == 1:
            return np.array([values[inside].sum()], dtype=np.int64)
        totals = np.zeros(self.size, dtype=np.int64)
        np.add.at(totals, self.groups[inside], values[inside])
        return totals


def wider(question: Question, place: int, histogram: Histogram) -> Wider | None:
    """The histogram as a view that this statistic can be derived from; None if it cannot."""
    source, statistic = question.sources[0], question.statistics[place]
    plain = len(question.sources) == 1 and question.unit.column is None and len(question.sets) == 1
    if not plain or len(statistic.terms) != 1:
        return None
    measure = question.measures[statistic.terms[0][0]]
    bare = replace(measure, filter=None)
    if measure.kind not in (MeasureKind.ROWS, MeasureKind.TOTAL) or spelled.measure(bare) != histogram.measure:
        return None
    attributes = source.relation.attributes
    if not set(histogram.dimensions) <= attributes.keys():
        return None
    axes = [ColumnRef(0, name, attributes[name].type_name) for name in histogram.dimensions]
    known = all(declared(question.sources, axis) is not None for axis in axes)
    if not known or not _read(question, measure.filter) <= set(axes):
        return None
    found = Question(
        sources=question.sources,
        unit=question.unit,
        where=None,
        keys=tuple(GroupKey(axis, True) for axis in axes),
        sets=(tuple(range(len(axes))),),
        measures=(bare,),
        statistics=(Statistic(((0, statistic.terms[0][1]),), statistic.row_bound),),
        having=None,
        columns=(),
    )
    whole, _ = canonical(found, fingerprint(found))
    domain = cells(whole)
    if domain.size > MOST_CELLS:
        return None
    return Wider(whole, domain, _listing(question, measure.filter, whole, domain))


def rollup(rows: Sequence[tuple[str | None, ...]], domain: Cells) -> Rollup:
    """Where each cell of the wider view goes, from the rows of its listing."""
    flags = np.array([row[0] == "true" for row in rows], dtype=np.bool_)
    groups = domain.places([row[1:] for row in rows])
    groups[~flags] = -1
    return Rollup(groups, domain.size)


def _read(question: Question, filter_: Predicate | None) -> set[ColumnRef]:
    """All columns that decide where a row counts."""
    found: set[ColumnRef] = set()
    for condition in (question.where, filter_):
        if condition is not None:
            found |= {part for each in operands(condition) for part in parts(each) if isinstance(part, ColumnRef)}
    for key in question.keys:
        found |= set(columns(key.expression))
    return found


def _listing(question: Question, filter_: Predicate | None, whole: Question, domain: Cells) -> DomainQuery:
    """For every cell of the view, in order: whether its rows count, and the keys of the question."""
    axes = domain.blocks[0].axes
    names = {key.expression: f"d{place}.v" for place, key in enumerate(whole.keys)}
    rendering = Rendering(question.sources, names)
    tables = []
    for place, (axis, key) in enumerate(zip(axes, whole.keys, strict=True)):
        values = rendering.bind(array([key_text(value[0]) for value in axis.values]), "text[]")
        cast = axis_type(key.expression)
        tables.append(
            f"(SELECT a.i, (a.v::{cast}) AS v FROM pg_catalog.unnest({values}) WITH ORDINALITY AS a(v, i)) AS d{place}"
        )
    conditions = [rendering.predicate(part) for part in (question.where, filter_) if part is not None]
    counts = " AND ".join(f"(({condition}) IS TRUE)" for condition in conditions) or "true"
    shown = [f"({counts})::text", *(shown_text(rendering, key.expression) for key in question.keys)]
    order = ", ".join(f"d{place}.i" for place in range(len(tables)))
    sql = f"SELECT {', '.join(shown)} FROM {' CROSS JOIN '.join(tables)} ORDER BY {order}"
    return DomainQuery(sql, tuple(rendering.parameters))
