"""What a question does to the views that its numbers come from: a plan, before anything is drawn or read.

A ``Move`` is what happens to one view, a ``Source`` where one statistic comes from, ``Ways`` both for a whole question,
with what it costs the analyst, the protected database, each view and each region.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from mechanisms.grid import Grid
from mechanisms.loss import Coin, Loss, exact_sum
from mechanisms.synopsis import FRESH, Known, Partial, Step, advanced
from provenance.model import Felt, Part
from provenance.plan import Choice, Cost, on_view
from provenance.plan import Plan as Choices
from provenance.reach import reach
from provenance.releases import Held, Place
from provenance.snapshots import as_of
from proxy.floor import below, bought_by, felt_by
from proxy.wider import Derivable
from sqlrewrite.cells import Cells
from sqlrewrite.question import Question
from sqlrewrite.view import View


@dataclass(frozen=True, slots=True)
class Move:
    """What happens to one view."""

    place: Place
    view: View
    question: Question  # whose statistic ``row`` the view is, over these cells
    cells: Cells
    row: int
    grid: Grid
    held: Held
    touched: int
    step: Step
    word: str  # reuse, derive, refine or measure
    drawn: Partial | None = None  # as much of a release as the analyst gets, where one is there already
    also: tuple[tuple[str, tuple[Any, ...]], ...] = ()  # what is written with the charge

    @property
    def cost(self) -> Cost:
        """For the analyst, and for the protected database."""
        return on_view(self.step, self.held.known, self.grid.parts, self.touched, Coin.ZCDP)

    @property
    def part(self) -> Part:
        """What the view loses."""
        return Part(self.view.dimensions, self.view.measure, self.cost.analyst, self.cost.database)

    @property
    def felt(self) -> Felt:
        """Where that falls: on whoever the statistic can be about, in any of its cells."""
        return Felt(reach(self.question, self.row), self.cost.analyst, self.cost.database)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a statistic comes from: a view, which of its cells, and the releases that are enough, if known whole."""

    place: Place
    wider: Derivable | None
    known: Known | None


@dataclass(frozen=True, slots=True)
class Ways:
    """How the numbers of one question are had: a move for each view, and the view of each statistic."""

    moves: Mapping[Place, Move]
    sources: tuple[Source, ...]  # of each statistic
    plans: tuple[Choices, ...]  # for each statistic, the ways that were weighed
    floor: Decimal = Decimal(0)  # the least price of a scan, which falls on everybody whose rows are read

    @property
    def free(self) -> bool:
        """Whether nothing is paid, drawn or written: all of it follows from releases that the analyst knows whole."""
        return all(source.known is not None for source in self.sources)

    @property
    def looks(self) -> bool:
        """Whether the data must be read."""
        return any(move.step.grow is not None for move in self.moves.values())

    @property
    def measured(self) -> list[Question]:
        """The questions whose views grow: each is measured by one statement."""
        growing = (move.question for move in self.moves.values() if move.step.grow is not None)
        return list({id(question): question for question in growing}.values())

    @property
    def facts(self) -> dict[str, Any]:
        """What the answer says of itself: the ways, and of releases that are there already when the oldest was paid."""
        used = [(self.moves[one.place], one.known) for one in self.sources]
        known = [(move, free or advanced(move.held.known, move.step)) for move, free in used]
        oldest = as_of(move.held.paid[id_] for move, own in known for id_ in own.ids if id_ != FRESH)
        return {"ways": self.names} | ({} if oldest is None else {"as_of": oldest})

    def beside(self, fresh: Ways) -> Ways:
        """The same, weighed against a measurement of everything."""
        both = zip(self.plans, fresh.plans, strict=True)
        kept = [(one.chosen, *(way for way in one.others if not _grows(way)), other.chosen) for one, other in both]
        return replace(self, plans=tuple(Choices(chosen, tuple(others)) for chosen, *others in kept))

    @property
    def names(self) -> list[str]:
        """What is done for each statistic."""
        return [
            self.moves[one.place].word if one.wider is None else f"{self.moves[one.place].word} on {one.wider.label}"
            for one in self.sources
        ]

    @property
    def scans(self) -> list[list[Move]]:
        """The moves that read data, by the statement that reads it."""
        found: dict[int, list[Move]] = {}
        for move in self.moves.values():
            if move.step.grow is not None:
                found.setdefault(id(move.question), []).append(move)
        return list(found.values())

    @property
    def below(self) -> Cost:
        """What is paid on top of all moves, since a scan costs at least the floor."""
        return below(self.scans, self.floor)

    @property
    def bought(self) -> tuple[Decimal, ...]:
        """What the floor of its scan buys for each number, in coin: in proportion to what it costs without."""
        return bought_by([self.moves[one.place] for one in self.sources], self.floor)

    @property
    def loss(self) -> Loss:
        """What the analyst pays."""
        return Loss(Coin.ZCDP, exact_sum((self.below.analyst, *(part.amount for part in self.parts))))

    def dearer_than(self, most: Decimal | None) -> bool:
        """Whether the analyst would pay more than is allowed: parts of a release come in steps, rounded up."""
        return most is not None and self.loss.amount > most

    @property
    def table(self) -> Decimal:
        """What the protected database loses."""
        return exact_sum((self.below.database, *(part.table for part in self.parts)))

    @property
    def parts(self) -> tuple[Part, ...]:
        """What each view loses; two views that reports call the same are one there."""
        named: dict[tuple[tuple[str, ...], str], Part] = {}
        for part in (move.part for move in self.moves.values()):
            key = (tuple(sorted(set(part.dimensions))), part.measure)
            before = named.get(key)
            named[key] = (
                part
                if before is None
                else replace(
                    before,
                    amount=exact_sum((before.amount, part.amount)),
                    table=exact_sum((before.table, part.table)),
                )
            )
        return tuple(named.values())

    @property
    def felt(self) -> tuple[Felt, ...]:
        """Where what is lost falls: views of different rows are not paid for by the same units, but for the floor."""
        return felt_by(self.moves.values(), self.scans, self.floor)

    @property
    def also(self) -> list[tuple[str, tuple[Any, ...]]]:
        """What is written with the charge."""
        return [statement for move in self.moves.values() for statement in move.also]


def _grows(way: Choice) -> bool:
    return way.step is None or way.step.grow is not None
