"""What a charge touches on one attribute: a set of values, or an interval of an ordered domain.

Values are public constants of a question: whole numbers, decimals, dates, timestamps, truth values and text, and
``None`` for NULL, which lies in no interval. Values of different kinds (a column's number here, its text there) are
not compared: such extents count as overlapping, which is safe.

Text is ordered and told apart by code point, as under the collation ``C``. Who makes a region of a column with another
collation gives it no interval, and no set if the collation is not deterministic.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, TypeAlias

Value: TypeAlias = "int | Decimal | date | datetime | bool | str | None"
Place: TypeAlias = "tuple[Any, int]"
"""A place on an axis: a value, and -1, 0 or +1 for just below it, at it, or just above it."""


class Kind(Enum):
    """Values that can be compared with each other."""

    NUMBER = "number"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMP_WITH_ZONE = "timestamp with time zone"
    TRUTH = "boolean"
    TEXT = "text"


def kind_of(value: Value) -> Kind | None:
    """The kind of a value; NULL has none."""
    match value:
        case None:
            return None
        case bool():
            return Kind.TRUTH
        case int():
            return Kind.NUMBER
        case Decimal() if value.is_finite():
            return Kind.NUMBER
        case datetime():
            return Kind.TIMESTAMP if value.tzinfo is None else Kind.TIMESTAMP_WITH_ZONE
        case date():
            return Kind.DATE
        case str():
            return Kind.TEXT
    raise ValueError(f"{value!r} cannot bound a region")


@dataclass(frozen=True, slots=True)
class Interval:
    """From ``low`` to ``high``, each included if closed; None is no bound. NULL is not in it."""

    low: Value = None
    high: Value = None
    low_closed: bool = True
    high_closed: bool = True
    kind: Kind | None = field(init=False, repr=False, compare=False)
    first: Place | None = field(init=False, repr=False, compare=False)
    """Its lowest place; None if it has no lower bound."""
    last: Place | None = field(init=False, repr=False, compare=False)
    """Its highest place; None if it has no upper bound."""

    def __post_init__(self) -> None:
        kind, other = kind_of(self.low), kind_of(self.high)
        if kind is not None and other is not None and kind is not other:
            raise ValueError(f"{self.low!r} and {self.high!r} do not bound one interval")
        keep = object.__setattr__
        # An open end that is not there and a closed one are the same interval: one form, so that equal is equal.
        keep(self, "low_closed", self.low_closed or self.low is None)
        keep(self, "high_closed", self.high_closed or self.high is None)
        keep(self, "kind", kind or other)
        keep(self, "first", None if self.low is None else (self.low, 0 if self.low_closed else 1))
        keep(self, "last", None if self.high is None else (self.high, 0 if self.high_closed else -1))

    @property
    def empty(self) -> bool:
        return self.first is not None and self.last is not None and self.first > self.last

    def __contains__(self, value: Value) -> bool:
        if value is None:
            return False
        place = (value, 0)
        return (self.first is None or self.first <= place) and (self.last is None or place <= self.last)

    def stepwise(self) -> Interval:
        """The same over whole numbers or days: both ends closed, so that (3, 5) is [4, 4]."""
        if self.kind not in (Kind.NUMBER, Kind.DATE):
            raise ValueError(f"{self} has no steps")
        return Interval(_step(self.low, self.low_closed, +1), _step(self.high, self.high_closed, -1))


def _step(end: Any, closed: bool, inwards: int) -> Value:
    """The outermost whole number or day that is inside."""
    if isinstance(end, Decimal):
        whole = int(end.to_integral_value("ROUND_CEILING" if inwards > 0 else "ROUND_FLOOR"))
        closed, end = closed or whole != end, whole
    if end is None or closed:
        return end  # type: ignore[no-any-return]
    return end + (timedelta(days=inwards) if isinstance(end, date) else inwards)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Members:
    """A set of values of one kind, NULL perhaps among them."""

    values: frozenset[Value]
    kind: Kind | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        kinds = {kind_of(value) for value in self.values} - {None}
        if len(kinds) > 1:
            raise ValueError("the values of a set are of one kind")
        object.__setattr__(self, "kind", next(iter(kinds), None))

    @classmethod
    def of(cls, *values: Value) -> Members:
        return cls(frozenset(values))

    @property
    def empty(self) -> bool:
        return not self.values

    def __contains__(self, value: Value) -> bool:
        return value in self.values


Extent: TypeAlias = "Interval | Members"


def comparable(one: Extent, other: Extent) -> bool:
    """Whether the values of both are of one kind; what has no kind, such as NULL alone, fits every kind."""
    mine, theirs = one.kind, other.kind
    return mine is None or theirs is None or mine is theirs


def disjoint(one: Extent, other: Extent) -> bool:
    """Whether no value lies in both.

    *Guarantee*: True is a proof; extents that cannot be compared are not disjoint.
    """
    if one.empty or other.empty:
        return True
    if not comparable(one, other):
        return False
    match one, other:
        case Members(values), Members(others):
            return values.isdisjoint(others)
        case (Members(values), Interval() as inside) | (Interval() as inside, Members(values)):
            return not any(value in inside for value in values)
        case Interval(), Interval():
            return _before(one.last, other.first) or _before(other.last, one.first)
    raise TypeError(f"{one!r} or {other!r} is no extent")


def _before(last: Place | None, first: Place | None) -> bool:
    return last is not None and first is not None and last < first


def intersection(one: Extent, other: Extent) -> Extent:
    """What lies in both.

    *Guarantee*: never less than the true intersection; of extents that cannot be compared it is the first.
    """
    if not comparable(one, other):
        return one
    match one, other:
        case Members(values), Members(others):
            return Members(values & others)
        case (Members(values), Interval() as inside) | (Interval() as inside, Members(values)):
            return Members(frozenset(value for value in values if value in inside))
        case Interval(), Interval():
            low = one if other.first is None or (one.first is not None and one.first >= other.first) else other
            high = one if other.last is None or (one.last is not None and one.last <= other.last) else other
            return Interval(low.low, high.high, low.low_closed, high.high_closed)
    raise TypeError(f"{one!r} or {other!r} is no extent")


def hull(one: Extent, other: Extent) -> Extent | None:
    """The smallest extent that holds both, as far as it has a form; None is everything."""
    if one.empty or other.empty:
        return other if one.empty else one
    match one, other:
        case Members(values), Members(others) if comparable(one, other):
            return Members(values | others)
        case Interval(), Interval() if comparable(one, other):
            low = one if one.first is None or (other.first is not None and one.first <= other.first) else other
            high = one if one.last is None or (other.last is not None and one.last >= other.last) else other
            return Interval(low.low, high.high, low.low_closed, high.high_closed)
    return None
