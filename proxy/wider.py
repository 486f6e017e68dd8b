"""Registered views that a question's numbers can be derived from, with the shadow's word on which cells add up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sqlrewrite.catalog import Histogram
from sqlrewrite.cells import Cells
from sqlrewrite.derive import Rollup, rollup, wider
from sqlrewrite.domain import DomainQuery
from sqlrewrite.question import Question
from sqlrewrite.view import View, view_of

Enumerate = Callable[[DomainQuery], Awaitable[list[tuple[str | None, ...]]]]
"""Asks the shadow for the public values of derived keys."""


@dataclass(frozen=True, slots=True, eq=False)
class Derivable:
    """One registered view that has a statistic of the question as sums of its cells."""

    view: View
    question: Question
    cells: Cells
    rollup: Rollup
    histogram: Histogram

    @property
    def label(self) -> str:
        """How people know it."""
        return f"{', '.join(self.view.dimensions)}: {self.view.measure}"


async def derivable(
    question: Question, place: int, domain: Cells, context: Callable[[Question], str], enumerate_: Enumerate
) -> tuple[Derivable, ...]:
    """The registered views of the question's relation that can answer one of its statistics.

    ``context`` tells what else the numbers of a view depend on: its own settings, not those of this question.
    """
    found: list[Derivable] = []
    for histogram in question.relation.histograms:
        candidate = wider(question, place, histogram)
        if candidate is None:
            continue
        sums = rollup(await enumerate_(candidate.listing), domain)
        if sums.most:  # a question that no cell adds to is measured like any other
            view = view_of(candidate.question, 0, context(candidate.question))
            found.append(Derivable(view, candidate.question, candidate.cells, sums, histogram))
    return tuple(found)
