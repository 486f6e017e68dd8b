"""Where an answer comes from: of all ways to give it, the one that costs least now; a pure function of frozen values.

A question can be answered on its own view, on a wider view as a combination of cells, or by a measure of its own that
nobody else will use. Each way is priced for the analyst (what is new to her) and for the protected database (what is
new to everybody), and is one of four kinds:

    Reuse     the analyst knows enough already                    nothing is paid
    Derive    she learns more of what has been released           she pays, the database does not
    Refine    the view's global synopsis grows                    both pay for what is new to them
    Measure   the first release of a view, or a measure apart     both pay

The least sum of both prices wins, then the least for the analyst, then the order in which the ways were named. A way
that does not fit in what is left is taken only if none does: the ledger then says which limit is in the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, TypeAlias

from mechanisms.loss import Coin
from mechanisms.synopsis import Known, Release, Step, price, step


@dataclass(frozen=True, slots=True)
class Cost:
    """What is new to the analyst and to the protected database, in coin."""

    analyst: Decimal
    database: Decimal

    @property
    def both(self) -> Decimal:
        return self.analyst + self.database

    def less(self, other: Cost) -> Cost:
        return Cost(self.analyst - other.analyst, self.database - other.database)


NOTHING = Cost(Decimal(0), Decimal(0))


@dataclass(frozen=True, slots=True, eq=False)
class OnView:
    """A way to answer: on this view, if its cells have this precision.

    One unit moves at most ``touched`` cells by ``sensitivity`` lattice units each. ``owed`` is what the same question
    pays for the view already, on behalf of another number. ``floor`` is that of ``synopsis.step``.
    """

    view: str
    releases: Sequence[Release]
    known: Known
    precision: Fraction
    sensitivity: int
    touched: int = 1
    owed: Cost = NOTHING
    floor: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class Apart:
    """A way to answer: a release for this question alone, at this price in coin."""

    amount: Decimal


Way: TypeAlias = OnView | Apart


@dataclass(frozen=True, slots=True)
class Reuse:
    """Everything is known."""

    word: ClassVar[str] = "reuse"
    view: str
    step: Step
    cost: Cost


@dataclass(frozen=True, slots=True)
class Derive:
    """The analyst is told more of what has been released."""

    word: ClassVar[str] = "derive"
    view: str
    step: Step
    cost: Cost


@dataclass(frozen=True, slots=True)
class Refine:
    """The global synopsis of the view grows."""

    word: ClassVar[str] = "refine"
    view: str
    step: Step
    cost: Cost


@dataclass(frozen=True, slots=True)
class Measure:
    """A first release: of a view, or without one."""

    word: ClassVar[str] = "measure"
    view: str | None
    step: Step | None
    cost: Cost


Choice: TypeAlias = Reuse | Derive | Refine | Measure


@dataclass(frozen=True, slots=True)
class Plan:
    """The way that is taken, and the others, the cheapest first."""

    chosen: Choice
    others: tuple[Choice, ...]

    def taking(self, view: str) -> Plan:
        """The same ways, with the one on this view taken."""
        every = sorted((self.chosen, *self.others), key=lambda choice: choice.view != view)
        return Plan(every[0], tuple(every[1:]))

    def lines(self) -> list[str]:
        """For EXPLAIN: every way with its prices, the chosen one first."""
        return [
            f"{choice.word} {'apart' if choice.view is None else f'on {choice.view}'}: "
            f"{choice.cost.analyst.normalize():f} for the analyst, "
            f"{choice.cost.database.normalize():f} for the protected database"
            for choice in (self.chosen, *self.others)
        ]


def plan(ways: Sequence[Way], coin: Coin, left: Cost | None = None, least: Fraction = Fraction(0)) -> Plan:
    """The cheapest way among those that fit in what is ``left``; ``least`` is that of ``synopsis.step``."""
    if not ways:
        raise ValueError("a question has at least one way to be answered")
    choices = [_choice(way, coin, least) for way in ways]

    def fits(cost: Cost) -> bool:
        return left is None or (cost.analyst <= left.analyst and cost.database <= left.database)

    chosen, *others = sorted(choices, key=lambda choice: (not fits(choice.cost), choice.cost.both, choice.cost.analyst))
    return Plan(chosen, tuple(others))


def on_view(done: Step, known: Known, sensitivity: int, touched: int, coin: Coin) -> Cost:
    """What a step costs."""
    summed = done.partial is not None or known.partial is not None
    learned = price(done.learned, sensitivity, touched, coin, summed=summed)
    return Cost(learned, price(done.new, sensitivity, touched, coin, summed=False))


def _choice(way: Way, coin: Coin, least: Fraction) -> Choice:
    match way:
        case Apart(amount):
            return Measure(None, None, Cost(amount, amount))
        case OnView(view, releases, known, precision):
            found = step(releases, known, precision, least, way.floor)
            cost = on_view(found, known, way.sensitivity, way.touched, coin).less(way.owed)
            if found.idle:
                return Reuse(view, found, cost)
            if found.grow is None:
                return Derive(view, found, cost)
            return Refine(view, found, cost) if releases else Measure(view, found, cost)
