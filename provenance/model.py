"""The values of this room: limits, charges and the proof of payment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any

from mechanisms.loss import Coin, Loss


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


@dataclass(frozen=True, slots=True)
class Analyst:
    """One who asks."""

    name: str
    privilege: int
    epsilon_limit: Decimal | None
    settings: Mapping[str, str]
    active: bool


@dataclass(frozen=True, slots=True)
class Balance:
    """What has been spent under one limit, in coin and in delta."""

    amount: Decimal = Decimal(0)
    delta: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class Balances:
    """The totals that a charge must fit under."""

    analyst: Balance
    table: Balance


@dataclass(frozen=True, slots=True)
class Remaining:
    """What is left, in epsilon: under the analyst's own limit and under the protected database's."""

    analyst: Decimal
    table: Decimal

    @property
    def epsilon(self) -> Decimal:
        """What the analyst can still learn: both limits bind."""
        return min(self.analyst, self.table)


@dataclass(frozen=True, slots=True)
class Charge:
    """A request to pay for one question, under the versions that its price was computed with."""

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


_TILL = object()


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof that a charge is committed.

    *Guarantee*: only ``provenance.ledger`` makes one, and only after COMMIT succeeded; reading data needs one.
    """

    id: int
    charge: Charge
    epsilon: Decimal  # the question's own loss
    remaining: Remaining
    till: object = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.till is not _TILL:
            raise TypeError("a receipt comes from the ledger")

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a receipt is not copied")
