"""The number of a region near the asked one, from what an analyst knows: compounds, combinations, and sums of cells."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction

from mechanisms.values import Lattice
from provenance.combine import Synopsis, from_answers, from_synopsis
from provenance.extent import Extent, Interval, Members
from provenance.region import Region
from provenance.relax import Price, Relaxed, relax
from provenance.released import Released
from provenance.shape import Shape
from provenance.space import MOST_MEMBERS, Axis, Box, Listed, Opaque, Space, Span, Steps
from sqlrewrite.catalog import Attribute, Relation
from sqlrewrite.constant import INTEGERS, base_type
from sqlrewrite.interval import grain_of_type

_MOST_STEPS = 2**40
_MOST_ANSWERS = 5_000
_MOST_SPANS = 400
_HEAVIER = 10_000  # one step of so many on an attribute that is kept outweighs all others


@dataclass(frozen=True, slots=True, eq=False)
class Fact:
    """Numbers that an analyst knows of a view, each with this variance, and independent of all other facts."""

    shape: Shape
    values: Lattice
    variance: Fraction


@dataclass(frozen=True, slots=True)
class Near:
    """The region that is really answered, how far it lies from the asked one, and its number."""

    region: Region
    error: Fraction
    variance: Fraction
    value: Fraction


class Nearby:
    """The facts of one relation that add up the same thing."""

    def __init__(
        self,
        relation: Relation,
        facts: Sequence[Fact],
        asked: Iterable[Region],
        kept: Collection[str] = (),
        additive: bool = True,
    ) -> None:
        """``kept`` attributes are not relaxed; what is not ``additive`` is told as it is, one fact at a time."""
        mentioned = {name for region in asked for name, _ in region.sides}
        mentioned |= {name for fact in facts for cell in fact.shape.cells for name, _ in cell.sides}
        plain = space_of(relation, mentioned)
        # Regions that keep them come first.
        heavy = 1 + _HEAVIER * len(plain.axes)
        self._kept, self._additive = tuple(kept), additive
        self._plain, self._space = plain, replace(plain, weights=dict.fromkeys(kept, heavy))
        self._axes = {axis.name: axis for axis in self._space.axes}
        self._released = Released(self._space)
        self._grids: list[tuple[Fact, Synopsis, list[int]]] = []
        for fact in facts:
            self._add(fact)

    def find(self, asked: Region, thorough: bool = True) -> Near | None:
        """The nearest region that the facts have a number of, then the most precise; None if there is none.

        Combinations of many facts are looked for only if it is to be ``thorough``: that takes tenths of a second.

        *Guarantee*: which facts are put together depends on regions and variances only, and the number on nothing but
        their values; the region is told exactly, as far as columns keep to their declared domains.
        """
        box = self._space.box(asked) if self._fits(asked) else None
        if box is None:
            return None
        found: list[Near] = []
        known = self._released
        ways = [relax(known, asked) if self._additive else relax(known, asked, most=1)]
        if self._additive and thorough:
            ways.append(from_answers(known, asked))
        for relaxed in ways:
            if relaxed is not None:
                found.append(_near(relaxed, relaxed.value(known.values)))
        for fact, synopsis, places in self._grids if self._additive else ():
            relaxed = from_synopsis(self._space, synopsis, asked)
            if relaxed is not None:
                numbers = [int(fact.values[places[t.source]]) for t in relaxed.terms if isinstance(t.source, int)]
                found.append(_near(relaxed, Fraction(sum(numbers))))
        best = min(found, key=lambda near: (near.error, near.variance), default=None)
        told = None if best is None else self._plain.box(best.region)
        if best is None or told is None:
            return None
        places = [place for place, axis in enumerate(self._plain.axes) if axis.name in self._kept]
        if any(told[place] != box[place] for place in places):
            return None
        return replace(best, error=self._plain.error(told, box))

    def patched(self, asked: Region, price: Price, variance: Fraction) -> Relaxed | None:
        """The nearest compound with pieces that may be bought, each with this variance; None if none helps.

        *Guarantee*: depends on regions, variances and prices only.
        """
        if not self._additive or not self._fits(asked):
            return None
        found = relax(self._released, asked, price=price, patch_variance=variance)
        return found if found is not None and found.patches else None

    def _add(self, fact: Fact) -> None:
        boxes: dict[Box, int] = {}
        for place, cell in enumerate(fact.shape.cells):
            box = self._space.box(cell) if self._fits(cell) else None
            if box is None:
                continue
            boxes[box] = place
            if len(self._released) < _MOST_ANSWERS:
                self._released.add(cell, int(fact.values[place]), fact.variance)
        grid = self._grid(boxes)
        if grid is not None:
            self._grids.append((fact, Synopsis(grid[0], fact.variance), grid[1]))

    def _grid(self, boxes: dict[Box, int]) -> tuple[dict[str, tuple[Span, ...]], list[int]] | None:
        """Cells as a grid, if they are all combinations of some spans: the spans, and which cell is where."""
        axes = self._space.axes
        spans = [tuple(dict.fromkeys(box[place] for box in boxes)) for place in range(len(axes))]
        if len(boxes) < 2 or max(map(len, spans)) > _MOST_SPANS:
            return None
        combinations: list[Box] = [()]
        for several in spans:
            if len(combinations) * len(several) > len(boxes):
                return None
            combinations = [(*box, span) for box in combinations for span in several]
        places = [boxes[box] for box in combinations if box in boxes]
        told = {
            axis.name: several
            for axis, several in zip(axes, spans, strict=True)
            if several != (axis.whole,) and not isinstance(axis, Opaque)
        }
        opaque = any(isinstance(axis, Opaque) and s != (axis.whole,) for axis, s in zip(axes, spans, strict=True))
        return None if len(places) != len(boxes) or opaque else (told, places)

    def _fits(self, region: Region) -> bool:
        return not region.empty and all(
            name in self._axes and _exactly(self._axes[name], extent) for name, extent in region.sides
        )


def _near(relaxed: Relaxed, value: Fraction) -> Near:
    return Near(relaxed.region, relaxed.error, relaxed.variance, value)


def _exactly(axis: Axis, extent: Extent) -> bool:
    """Whether an axis has exactly this extent: between the members of a list there may be other values."""
    match axis, extent:
        case Listed(members=members), Members(values):
            return values <= set(members)
        case Listed(), Interval():
            return False
        case Steps(), Members(values):
            return None not in values
    return True


def space_of(relation: Relation, mentioned: Iterable[str]) -> Space:
    """The columns with a declared domain as axes, and those that are mentioned without one."""
    named = set(mentioned)
    axes = (_axis(attribute, name in named) for name, attribute in relation.attributes.items())
    return Space(tuple(axis for axis in axes if axis is not None))


def _axis(attribute: Attribute, mentioned: bool) -> Axis | None:
    kind = base_type(attribute.type_name)
    rest = not (attribute.not_null and attribute.checked)
    found: Axis | None = None
    if kind == "boolean":
        found = Listed(attribute.name, (False, True) if attribute.not_null else (False, True, None))
    elif kind in INTEGERS or (kind == "numeric" and grain_of_type(attribute.type_name) is not None):
        found = _numbers(attribute, rest)
    elif kind == "date":
        found = _days(attribute, rest)
    elif kind in ("text", "character varying") and attribute.keys and len(attribute.keys) <= MOST_MEMBERS:
        found = Listed(attribute.name, attribute.keys, rest=True)
    return found or (Opaque(attribute.name) if mentioned else None)


def _numbers(attribute: Attribute, rest: bool) -> Axis | None:
    """Every value of the type between the declared bounds."""
    grain = grain_of_type(attribute.type_name)
    members = [value for value in attribute.domain or () if isinstance(value, int | Decimal)]
    low = attribute.lower if attribute.lower is not None else min(members, default=None)
    high = attribute.upper if attribute.upper is not None else max(members, default=None)
    if low is None or high is None or grain is None or grain > 1:
        return None
    first, last = -(-Fraction(low) // grain), Fraction(high) // grain
    size = int(last - first) + 1
    if not 0 < size <= _MOST_STEPS:
        return None
    step: int | Decimal = 1 if grain == 1 else Decimal(1) / grain.denominator
    return Steps(attribute.name, first * step, size, step, rest)


def _days(attribute: Attribute, rest: bool) -> Axis | None:
    """Days one after the other; of a list with gaps nothing is known in between."""
    days = [value for value in attribute.domain or () if isinstance(value, date) and not isinstance(value, datetime)]
    if not days or (max(days) - min(days)).days + 1 != len(set(days)):
        return None
    return Steps(attribute.name, min(days), len(set(days)), 1, rest)
