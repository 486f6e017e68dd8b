"""The check while a question is read that every part of it has a public size, and what one row of it costs in all.

*Guarantee*: what passes here is generated later without a refusal, since both make the same terms of the same parts:
everything that cannot run on every row is refused before anything is charged.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlrewrite.amount import amount
from sqlrewrite.guarded import Use
from sqlrewrite.limits import MOST_COST
from sqlrewrite.question import Expression, Measure, MeasureKind, Predicate, Source
from sqlrewrite.render import Rendering
from sqlrewrite.term import too_costly

_AGGREGATION = 5  # of one more sum or count


class RowCost:
    """What the parts of one question cost for a row, added up while they are read."""

    __slots__ = ("_measures", "_rendering", "_sources", "total")

    def __init__(self, sources: tuple[Source, ...]) -> None:
        self._sources = sources
        self._rendering = Rendering(sources)
        self._measures: set[Measure] = set()
        self.total = 0

    def where(self, part: Predicate) -> None:
        self._add(self._rendering.clause(part).cost)

    def key(self, expression: Expression) -> None:
        """A key is worked out, and then hashed or compared."""
        term = self._rendering.term(expression, Use.KEY)
        self._add(term.cost + 10 + term.length // 16)

    def measures(self, found: Sequence[Measure]) -> None:
        """The measures that were not there before."""
        for measure in found:
            if measure in self._measures:
                continue
            self._measures.add(measure)
            cost = _AGGREGATION
            if measure.filter is not None:
                cost += self._rendering.clause(measure.filter).cost
            if measure.kind in (MeasureKind.TOTAL, MeasureKind.SQUARES):
                cost += amount(measure, self._sources, self._rendering).cost
            elif measure.argument is not None:
                cost += self._rendering.term(measure.argument, Use.PRESENCE).presence_cost
            self._add(cost)

    def _add(self, cost: int) -> None:
        self.total += cost
        if self.total > MOST_COST:
            raise too_costly()
