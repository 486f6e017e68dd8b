"""The values of this room: limits, charges and the proof of payment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal, localcontext
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.loss import Coin, Loss
from provenance.errors import LimitReached
from provenance.region import Region

STEPS = 10
"""What is left of a limit that analysts share is shown in so many steps: what others pay moves it."""


class Allocation(Enum):
    """How an analyst's limit follows from the privilege."""

    MAX = "max"
    SUM = "sum"


@dataclass(frozen=True, slots=True)
class Deployment:
    """The limits of the protected database, and the public split of its delta (made in ``0001_tables.sql``)."""

    coin: Coin
    epsilon: Decimal
    delta: Decimal
    allocation: Allocation
    expansion: Decimal
    conversion_delta: Decimal  # turns the coin into epsilon
    payment_delta: Decimal  # bounds the sum of what charges pay in delta
    registry_version: int
    privileges: int  # the sum over active analysts, for Allocation.SUM
    periods: int = 1  # that have begun: every limit is worth so many times its coin
    next_period: str | None = None  # when there will be one more


@dataclass(frozen=True, slots=True)
class Analyst:
    """One who asks."""

    name: str
    privilege: int
    epsilon_limit: Decimal | None
    settings: Mapping[str, str]
    active: bool
    paused: bool = False  # security incidents: nothing that reads data is paid for until an administrator resumes


@dataclass(frozen=True, slots=True)
class Balance:
    """What has been spent under one limit, in coin and in delta."""

    amount: Decimal = Decimal(0)
    delta: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class View:
    """A view in the books: what its hidden global synopsis has cost, in coin, and the most that it may cost."""

    id: int
    label: str
    epsilon_limit: Decimal | None  # None: as much as the whole database (water-filling)
    spent: Decimal


@dataclass(frozen=True, slots=True)
class Limited:
    """A relation with a limit of its own: no unit of it has lost more than ``spent``, in coin."""

    label: str
    epsilon_limit: Decimal
    spent: Decimal


@dataclass(frozen=True, slots=True)
class Grant:
    """A budget that somebody lends to the analyst, in coin."""

    id: int
    grantor: str
    left: Decimal  # of the grant
    room: Decimal  # that the grantor has left, for all grants together


@dataclass(frozen=True, slots=True)
class Lending:
    """How much of what an analyst has learned counts for others, and the other way round, in coin."""

    given: Decimal = Decimal(0)  # what others learned at the analyst's expense
    drawn: Decimal = Decimal(0)  # what the analyst learned at the expense of others
    grants: tuple[Grant, ...] = ()  # from which more can be drawn, in this order


@dataclass(frozen=True, slots=True)
class Balances:
    """The totals that a charge must fit under; ``coalition`` stands in for the table where there are groups."""

    analyst: Balance
    table: Balance
    views: Mapping[int, View] = field(default_factory=dict)  # by id: those that the charge names
    lending: Lending = field(default_factory=Lending)
    coalition: Balance | None = None  # what the analysts who may collude with this one have learned
    relations: Mapping[int, Limited] = field(default_factory=dict)  # by id: those that have a limit of their own


@dataclass(frozen=True, slots=True)
class Remaining:
    """What is left, in epsilon: under the analyst's own limit and under the protected database's.

    What others pay moves the latter, so that analysts see it in tenths of ``most``, the database's limit, only.
    """

    analyst: Decimal
    table: Decimal
    most: Decimal = Decimal(0)

    @property
    def shared(self) -> Decimal:
        """An upper bound on what is left in the database: as many tenths of its limit as are begun."""
        if self.most <= 0:
            return self.table
        return self.most * (self.table * STEPS / self.most).to_integral_value(ROUND_CEILING) / STEPS

    @property
    def epsilon(self) -> Decimal:
        """The most that the analyst can still learn, as the analyst sees it: both limits bind."""
        return min(self.analyst, self.shared)


@dataclass(frozen=True, slots=True)
class Room:
    """What both limits still hold, in coin: all of it, and as much as takes half of the epsilon that is left.

    Under zCDP that is more than the same epsilon would be worth alone: what was spent before has paid for delta.
    """

    whole: Decimal
    half: Decimal


@dataclass(frozen=True, slots=True, eq=False)
class PredicateLoss:
    """What each group of a question lost, in coin: the distinct levels, and the place of each group's level.

    ``min_entropy`` is that of the spend over the groups, None where nobody computed it.
    """

    levels: tuple[Decimal, ...]
    index: NDArray[np.integer[Any]]
    min_entropy: float | None = None

    def __post_init__(self) -> None:
        if self.index.ndim != 1 or not np.issubdtype(self.index.dtype, np.integer):
            raise ValueError("each group has the place of one level")
        if len(self.levels) > 65536 or any(not level.is_finite() or level < 0 for level in self.levels):
            raise ValueError("levels are at most 65536 finite numbers that are not negative")
        if self.groups and not 0 <= int(self.index.min()) <= int(self.index.max()) < len(self.levels):
            raise ValueError("a group has a level that is not there")
        if self.min_entropy is not None and not np.isfinite(self.min_entropy):
            raise ValueError("an entropy is a finite number")

    @classmethod
    def uniform(cls, level: Decimal, groups: int, min_entropy: float | None = None) -> PredicateLoss:
        """Every group lost the same, as under a fixed price."""
        return cls((level,), np.zeros(groups, dtype=np.uint8), min_entropy)

    @property
    def groups(self) -> int:
        """How many there are."""
        return int(self.index.size)

    @property
    def most(self) -> Decimal:
        """The largest level."""
        return max(self.levels, default=Decimal(0))

    def packed(self) -> bytes:
        """The stored form of ``index``, which ``provenance.group_losses`` reads: see ``charge_loss.level_of``."""
        if len(self.levels) < 2:
            return b""
        return self.index.astype("u1" if len(self.levels) <= 256 else ">u2").tobytes()


class Stage(Enum):
    """What a row of the journal is."""

    CHARGE = "charge"  # a fixed price, paid at once
    RESERVE = "reserve"  # what the next stage of a question may spend
    SETTLE = "settle"  # gives back what was not reached


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the journal; a settlement's numbers are what it gives back, with a minus."""

    id: int
    question: int  # the id of the question's first row
    analyst: str
    stage: Stage
    amount: Decimal
    delta: Decimal = Decimal(0)
    table: Decimal | None = None  # what the protected database lost; None: the amount
    parts: Mapping[int, tuple[Decimal, Decimal]] = field(default_factory=dict)  # view -> (amount, table)
    counted: Decimal | None = None  # by how much it moves the analyst's balance; None: the amount
    table_counted: Decimal | None = None  # and that of the protected database


@dataclass(frozen=True, slots=True)
class Account:
    """One question in the books."""

    analyst: str
    staged: bool
    settled: bool
    net: Balance


@dataclass(frozen=True, slots=True)
class Books:
    """What a journal adds up to."""

    table: Balance
    analysts: Mapping[str, Balance]
    questions: Mapping[int, Account]
    views: Mapping[int, Decimal] = field(default_factory=dict)
    spending: Mapping[tuple[str, int], Decimal] = field(default_factory=dict)  # (analyst, view) -> learned


@dataclass(frozen=True, slots=True)
class Part:
    """What one view of the charge's relation loses, in coin."""

    dimensions: tuple[str, ...]  # in any order: the books know them sorted
    measure: str
    amount: Decimal  # what the analyst learns about the view
    table: Decimal  # what the view's hidden global synopsis costs


@dataclass(frozen=True, slots=True)
class Felt:
    """What a unit in a region loses by a charge, in coin: to the analyst, and of the protected database."""

    region: Region
    amount: Decimal
    table: Decimal


@dataclass(frozen=True, slots=True)
class Charge:
    """A request to pay for one question, under the versions that its price was computed with.

    *Guarantee*: the protected database loses at most what the analyst learns, and no view more than either; a staged
    question keeps the proportions of its first reservation. No unit loses more than the sum of the ``felt`` parts that
    it lies in, and that sum is at most the loss.
    """

    analyst: str
    relation_id: int
    data_version: int
    registry_version: int
    fingerprint: str
    question: str
    mechanism: str
    loss: Loss
    epsilon: Decimal | None = None  # the question's own loss where it is known better than by converting the coin
    bill: Mapping[str, Any] = field(default_factory=dict)
    staged: bool = False  # the loss is a first reservation: more may follow, and what is not reached is given back
    groups: PredicateLoss | None = None  # of a fixed price; a staged question tells it when it settles
    table: Decimal | None = None  # what the protected database itself loses, in coin; None: as much as the analyst
    parts: tuple[Part, ...] = ()
    accuracy: str | None = None  # with it, an answer that was stored meanwhile is not paid for again
    felt: tuple[Felt, ...] = ()  # where it falls; nothing: everywhere, in full
    beside: tuple[int, ...] = ()  # the other protected relations that it reads: their limits bear it too
    joined_versions: tuple[tuple[int, int], ...] = ()  # joined relations, and the data versions it was planned on

    def __post_init__(self) -> None:
        if self.groups is not None and (self.staged or self.groups.most > self.loss.amount):
            raise ValueError("with a charge go the losses of groups under a fixed price, none above it")
        if not 0 <= self.table_amount <= self.loss.amount:
            raise ValueError("the protected database loses at most what the analyst learns")
        if any(not 0 <= part.amount <= self.loss.amount for part in self.parts) or any(
            not 0 <= part.table <= min(part.amount, self.table_amount) for part in self.parts
        ):
            raise ValueError("a view loses at most what the question costs")
        if len({(*sorted(set(part.dimensions)), part.measure) for part in self.parts}) != len(self.parts):
            raise ValueError("a view stands once in a charge")
        if any(not 0 <= one.amount <= self.loss.amount or not 0 <= one.table <= self.table_amount for one in self.felt):
            raise ValueError("a region loses at most what the question costs")
        if self.staged and self.felt and (len(self.felt) > 1 or self._summed != (self.loss.amount, self.table_amount)):
            raise ValueError("a question with stages falls on one region, in full")
        amount, table = self._summed
        if (amount > self.loss.amount or table > self.table_amount) and any(
            not one.region.disjoint(other.region)
            for place, one in enumerate(self.felt)
            for other in self.felt[place + 1 :]
        ):
            raise ValueError("parts that overlap lose at most what the question costs, together")

    @property
    def relations(self) -> tuple[int, ...]:
        """Everything protected that it reads, first what it is charged to."""
        return self.relation_id, *self.beside

    @property
    def table_amount(self) -> Decimal:
        """What the protected database itself loses, in coin."""
        return self.loss.amount if self.table is None else self.table

    @property
    def _summed(self) -> tuple[Decimal, Decimal]:
        with localcontext(prec=200):
            return sum((one.amount for one in self.felt), Decimal(0)), sum((one.table for one in self.felt), Decimal(0))


_TILL = object()


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof that a charge, and every reservation that was added to it, is committed.

    *Guarantee*: only ``provenance.ledger`` makes one, and only after COMMIT succeeded; reading data needs one.
    """

    id: int
    charge: Charge
    epsilon: Decimal  # the question's own loss
    remaining: Remaining
    till: object = field(repr=False, compare=False)
    added: Loss | None = None  # what was reserved after the charge

    @property
    def paid(self) -> Loss:
        """Everything that this receipt proves to be paid for the question: what may have been released so far."""
        return self.charge.loss if self.added is None else self.charge.loss + self.added

    def __post_init__(self) -> None:
        if self.till is not _TILL:
            raise TypeError("a receipt comes from the ledger")

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a receipt is not copied")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the till would say to some charges: why not, or how far they would move the balances, in coin."""

    refusal: LimitReached | None
    analyst: Decimal
    table: Decimal


@dataclass(frozen=True, slots=True)
class Settled:
    """What a staged question cost in the end."""

    id: int  # the question's charge
    loss: Loss
    epsilon: Decimal
    remaining: Remaining
