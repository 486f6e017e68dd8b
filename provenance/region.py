"""The part of the data domain that a charge touches: one extent for each attribute that it restricts.

An attribute that is not named is not restricted. Two regions are disjoint if they are disjoint on some attribute (seed
3, Prop. 3), which takes time in the number of attributes and not of points. ``text`` is canonical: equal regions have
equal texts, so that it can be a key in a ledger.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from operator import itemgetter
from typing import Any, TypeAlias

from mechanisms.loss import QUANTUM, round_up
from provenance.extent import Extent, Interval, Members, Value, disjoint, hull, intersection

_name = itemgetter(0)


@dataclass(frozen=True, slots=True)
class Region:
    """Extents by attribute, in the order of their names."""

    sides: tuple[tuple[str, Extent], ...] = ()
    empty: bool = field(init=False, repr=False, compare=False)
    """Whether no unit can lie in it."""
    _by_name: Mapping[str, Extent] = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)
    _text: str | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        keep = object.__setattr__
        keep(self, "sides", tuple(sorted(self.sides, key=_name)))
        keep(self, "empty", any(extent.empty for _, extent in self.sides))
        keep(self, "_by_name", dict(self.sides))
        keep(self, "_hash", hash(self.sides))
        if len(self._by_name) != len(self.sides):
            raise ValueError("an attribute has one extent")

    def __hash__(self) -> int:
        return self._hash

    @classmethod
    def of(cls, extents: Mapping[str, Extent]) -> Region:
        return cls(tuple(extents.items()))

    def on(self, attribute: str) -> Extent | None:
        """The extent on an attribute; None is everything."""
        return self._by_name.get(attribute)

    def disjoint(self, other: Region) -> bool:
        """Whether no unit lies in both.

        *Guarantee*: True is a proof: what is charged to both is the maximum, not the sum (parallel composition).
        """
        small, large = (self, other) if len(self.sides) <= len(other.sides) else (other, self)
        for name, extent in small.sides:
            theirs = large._by_name.get(name)
            if theirs is not None and disjoint(extent, theirs):
                return True
        return self.empty or other.empty

    def intersection(self, other: Region) -> Region:
        """What lies in both, never less."""
        if not self.sides or not other.sides:
            return self if self.sides else other
        extents = dict(self.sides)
        for name, extent in other.sides:
            mine = extents.get(name)
            extents[name] = extent if mine is None else intersection(mine, extent)
        return Region.of(extents)

    def covers(self, point: Mapping[str, Value]) -> bool:
        """Whether a unit with these values is touched; of an attribute that is not told, any value may be meant."""
        return all(name not in point or point[name] in extent for name, extent in self.sides)

    def separating(self, attributes: Collection[str]) -> Region:
        """The region as far as these attributes restrict it.

        *Guarantee*: for a unit of many rows only attributes that are constant in the unit separate; without the others
        the region holds every unit that has a row in it.
        """
        return Region(tuple(side for side in self.sides if side[0] in attributes))

    @property
    def text(self) -> str:
        """The canonical JSON."""
        if self._text is None:
            written = {name: _extent_json(extent) for name, extent in self.sides}
            text = json.dumps(written, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            object.__setattr__(self, "_text", text)
            return text
        return self._text

    @classmethod
    def parse(cls, text: str) -> Region:
        """The region that has this text."""
        return cls.of({name: _extent_of(written) for name, written in json.loads(text).items()})


Part: TypeAlias = "tuple[Region, Decimal]"
"""A region and what is charged to each unit in it."""

EVERYWHERE = Region()

_EXACT = Context(prec=1000, traps=[InvalidOperation, Inexact])
_PLACES = -QUANTUM.adjusted()


def unit_parts(parts: Iterable[Part], constant: Collection[str], most_groups: int) -> list[Part]:
    """Parts of one charge as a unit of many rows feels them: at most so many of the groups that are told as parts.

    *Guarantee*: parts that only other attributes tell apart can all be touched by one unit, which lies in at most
    ``most_groups`` of them: their largest levels add up. Parts that still differ are left to be compared as regions.
    """
    felt: dict[Region, list[Decimal]] = {}
    for region, weight in parts:
        if not region.empty:
            felt.setdefault(region.separating(constant), []).append(weight)
    return [
        (region, coin(sum(quanta(weight) for weight in sorted(weights, reverse=True)[:most_groups])))
        for region, weights in felt.items()
    ]


def fewer_parts(parts: Sequence[Part], most: int) -> list[Part]:
    """The same charge in at most so many disjoint parts: beyond, one region that holds all, at the highest level.

    *Guarantee*: the parts are disjoint, so a unit lies in one of them and feels at most that level.
    """
    parts = [(region, weight) for region, weight in parts if not region.empty]
    if len(parts) <= most:
        return parts
    shared: dict[str, Extent] = dict(parts[0][0].sides)
    for region, _ in parts[1:]:
        for name in list(shared):
            theirs = region.on(name)
            merged = None if theirs is None else hull(shared[name], theirs)
            if merged is None:
                del shared[name]
            else:
                shared[name] = merged
    return [(Region.of(shared), max(weight for _, weight in parts))]


def quanta(weight: Decimal, rounded: Callable[[Decimal], Decimal] = round_up) -> int:
    """An amount of coin as a whole number of the smallest amounts."""
    if not weight.is_finite() or weight < 0:
        raise ValueError("a weight is a finite number that is not negative")
    return int(rounded(weight).scaleb(_PLACES, _EXACT))


def coin(amounts: int) -> Decimal:
    """So many of the smallest amounts, as an amount of coin."""
    return Decimal(amounts).scaleb(-_PLACES, _EXACT)


def _extent_json(extent: Extent) -> Any:
    match extent:
        case Members(values):
            return {"in": sorted((_value_json(value) for value in values), key=json.dumps)}
        case Interval(low, high, low_closed, high_closed):
            ends: dict[str, Any] = {}
            if low is not None:
                ends["from" if low_closed else "above"] = _value_json(low)
            if high is not None:
                ends["to" if high_closed else "below"] = _value_json(high)
            return ends


def _extent_of(written: Any) -> Extent:
    match written:
        case {"in": values, **rest} if not rest:
            return Members(frozenset(_value_of(value) for value in values))
        case dict() if written.keys() <= {"from", "above", "to", "below"} and len(written) <= 2:
            low = written.get("from", written.get("above"))
            high = written.get("to", written.get("below"))
            return Interval(_value_of(low), _value_of(high), "above" not in written, "below" not in written)
    raise ValueError(f"{written!r} is no extent")


def _value_json(value: Value) -> Any:
    match value:
        case Decimal():
            # 1.50 and 1.5 and 3/2 are one value: one text.
            whole = value == value.to_integral_value() and value.adjusted() < 40
            return int(value) if whole else {"number": str(value.normalize(_EXACT))}
        case datetime():
            return {"timestamp": (value if value.tzinfo is None else value.astimezone(UTC)).isoformat()}
        case date():
            return {"date": value.isoformat()}
        case None | bool() | int() | str():
            return value
    raise ValueError(f"{value!r} has no JSON form")


def _value_of(written: Any) -> Value:
    match written:
        case None | bool() | int() | str():
            return written
        case {"number": str(text)}:
            return Decimal(text)
        case {"timestamp": str(text)}:
            return datetime.fromisoformat(text)
        case {"date": str(text)}:
            return date.fromisoformat(text)
    raise ValueError(f"{written!r} is no value")
