"""Linear forms of measures: arithmetic on them, their place on the lattice, and how far one row can move them.

``sum(x) - 36.5 * count(x)`` is {sum: 1, count: -36.5}. Coefficients are exact fractions; ``on_lattice`` makes them
whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from typing import Any

from sqlrewrite.aggregate import Measures, nullable, row_range
from sqlrewrite.errors import NotAnswered
from sqlrewrite.normal import measure_form, order_of
from sqlrewrite.question import (
    AllOf,
    Among,
    Compare,
    Comparison,
    IsNull,
    KeyThreshold,
    Like,
    Measure,
    MeasureKind,
    Not,
    Predicate,
    Statistic,
)

FAR = 2**62
"""No sum reaches this: thresholds beyond it decide like it and stay within 64 bits."""

MAX_ROW_BOUND = 2**40  # so that sums of millions of rows stay within 64 bits
MAX_EVENTS = 10


@dataclass(frozen=True, slots=True)
class Linear:
    """Measures (and public keys) with their coefficients, plus a constant; in the units of the data."""

    terms: Mapping[int, Fraction] = field(default_factory=dict)
    keys: Mapping[int, Fraction] = field(default_factory=dict)
    constant: Fraction = Fraction(0)

    @property
    def fixed(self) -> bool:
        return not self.terms and not self.keys

    def plus(self, other: Linear, factor: Fraction = Fraction(1)) -> Linear:
        return Linear(
            _merged(self.terms, other.terms, factor),
            _merged(self.keys, other.keys, factor),
            self.constant + factor * other.constant,
        )

    def times(self, factor: Fraction) -> Linear:
        return Linear().plus(self, factor)


def _merged(one: Mapping[int, Fraction], other: Mapping[int, Fraction], factor: Fraction) -> dict[int, Fraction]:
    found = {place: one.get(place, Fraction(0)) + factor * other.get(place, Fraction(0)) for place in (*one, *other)}
    return {place: value for place, value in found.items() if value}


@dataclass(frozen=True, slots=True)
class Placed:
    """A comparison of a linear form with zero, on the lattice."""

    statistic: Statistic
    direction: int
    threshold: int | KeyThreshold


def on_lattice(form: Linear, op: Comparison, measures: Measures) -> Placed:
    """``form op 0`` as an integer combination of lattice numbers against a threshold.

    Strict comparisons move by one lattice unit; the sign is such that equal statistics are equal values.
    """
    scaled = {place: factor * measures[place].unit for place, factor in form.terms.items()}
    first = min(scaled, key=lambda place: _rank(measures[place]))
    scale = Fraction(math.lcm(*(value.denominator for value in scaled.values())))
    scale /= math.gcd(*(int(value * scale) for value in scaled.values()))
    if scaled[first] < 0:
        scale, op = -scale, _TURNED[op]
    terms = tuple(sorted((place, int(value * scale)) for place, value in scaled.items()))
    bound = row_bound(terms, measures)
    if bound > MAX_ROW_BOUND:
        raise NotAnswered(
            "the numbers of this comparison have too many digits to be measured exactly",
            hint="write the threshold with fewer decimal places",
        )
    statistic = Statistic(terms, bound)
    up = op in (Comparison.GT, Comparison.GE)
    if form.keys:
        ((key, factor),) = form.keys.items()
        strict = op in (Comparison.GT, Comparison.LT)
        return Placed(statistic, 1 if up else -1, KeyThreshold(key, -factor * scale, strict))
    return Placed(statistic, 1 if up else -1, threshold(op, -form.constant * scale))


def _rank(measure: Measure) -> tuple[bool, str]:
    """Sums come before counts: the sign of sum(x) - c count(x) is that of the sum."""
    return measure.kind is not MeasureKind.TOTAL, order_of(measure_form(measure))


_TURNED = {
    Comparison.GT: Comparison.LT,
    Comparison.GE: Comparison.LE,
    Comparison.LT: Comparison.GT,
    Comparison.LE: Comparison.GE,
}


def threshold(op: Comparison, value: Fraction) -> int:
    """The whole number that decides: > c is >= floor(c) + 1, < c is <= ceil(c) - 1."""
    bounded = min(max(value, Fraction(-FAR)), Fraction(FAR))
    match op:
        case Comparison.GE:
            return math.ceil(bounded)
        case Comparison.GT:
            return math.floor(bounded) + 1
        case Comparison.LE:
            return math.floor(bounded)
        case Comparison.LT:
            return math.ceil(bounded) - 1
        case Comparison.EQ | Comparison.NE:
            raise ValueError("an equality is no half-line")


def uncut(op: Comparison, bound: Fraction) -> tuple[Comparison, Fraction]:
    """trunc(v) op bound, as a comparison of v itself."""
    match op:
        case Comparison.GE | Comparison.GT:
            least = math.ceil(bound) if op is Comparison.GE else math.floor(bound) + 1
            return (Comparison.GE, Fraction(least)) if least >= 1 else (Comparison.GT, Fraction(least - 1))
        case _:
            most = math.floor(bound) if op is Comparison.LE else math.ceil(bound) - 1
            return (Comparison.LT, Fraction(most + 1)) if most >= 0 else (Comparison.LE, Fraction(most))


def against_zero(value: Fraction, op: Comparison) -> bool:
    """``value op 0``."""
    truths: dict[Comparison, Callable[[Fraction], bool]] = {
        Comparison.GT: lambda v: v > 0,
        Comparison.GE: lambda v: v >= 0,
        Comparison.LT: lambda v: v < 0,
        Comparison.LE: lambda v: v <= 0,
    }
    return truths[op](value)


def row_bound(terms: Sequence[tuple[int, int]], measures: Measures) -> int:
    """The most by which one row can move the combination, in lattice numbers.

    *Guarantee*: no row within the declared bounds moves it further.
    """
    return max(map(abs, row_span(terms, measures)))


def row_span(terms: Sequence[tuple[int, int]], measures: Measures) -> tuple[int, int]:
    """The least and the most that one row can add to the combination; 0, of a row that is not counted, lies between.

    A row adds to some of the measures, by their filters; the worst case is taken over all sets that are not ruled out
    because one filter implies another.
    """
    events = [(_event(measures[place], measures), measures[place].kind is MeasureKind.UNITS) for place, _ in terms]
    distinct = list(dict.fromkeys(events))
    if len(distinct) > MAX_EVENTS:
        furthest = sum(abs(factor) * max(map(abs, row_range(measures[place]))) for place, factor in terms)
        return -furthest, furthest
    closures = [_closure(event) for event, _ in distinct]
    least = most = 0
    for present in product((False, True), repeat=len(distinct)):
        # A row may be its unit's first for a narrow filter and not for a wide one: units are never implied.
        if any(
            here and not there and not distinct[other][1] and distinct[other][0] <= closures[one]
            for one, here in enumerate(present)
            for other, there in enumerate(present)
        ):
            continue
        held = {event for event, here in zip(distinct, present, strict=True) if here}
        low, high = _span([term for term, event in zip(terms, events, strict=True) if event in held], measures)
        least, most = min(least, low), max(most, high)
    return least, most


def _span(terms: Sequence[tuple[int, int]], measures: Measures) -> tuple[int, int]:
    """The same of a row that adds to all these measures; one argument has one value."""
    fixed = 0
    values: dict[Any, tuple[int, Measure]] = {}
    for place, factor in terms:
        measure = measures[place]
        if measure.kind in (MeasureKind.TOTAL, MeasureKind.SQUARES):
            key = (measure.kind, measure.argument, measure.lower, measure.upper, measure.unit)
            values[key] = (values.get(key, (0, measure))[0] + factor, measure)
        else:
            fixed += factor
    low = high = fixed
    for factor, measure in values.values():
        ends = sorted(factor * end for end in row_range(measure))
        low, high = low + ends[0], high + ends[1]
    return low, high


Event = frozenset[Any]


def _event(measure: Measure, measures: Measures) -> Event:
    """What must hold for a row to add to a measure, as a set of conditions."""
    conditions: set[Any] = set()
    if measure.filter is not None:
        conditions.update(measure.filter.parts if isinstance(measure.filter, AllOf) else (measure.filter,))
    if measure.kind is MeasureKind.UNITS:
        conditions.add("the first row of its unit")
    elif measure.argument is not None and nullable(measure.argument, measures.scope):
        conditions.add(Not(IsNull(measure.argument)))
    return frozenset(conditions)


def _closure(event: Event) -> Event:
    """The conditions, and what they imply: a comparison that is true has no NULL in it."""
    found = set(event)
    for condition in event:
        match condition:
            case Compare(left, _, right):
                found.update((Not(IsNull(left)), Not(IsNull(right))))
            case Among(argument, _) | Like(argument, _, _) | Not(Among(argument, _)) | Not(Like(argument, _, _)):
                found.add(Not(IsNull(argument)))
    return frozenset(found)


def conjoined(kept: Predicate | None, more: Predicate, normal: Callable[[Predicate], Predicate]) -> Predicate:
    """FILTER and one condition more."""
    return normal(more if kept is None else AllOf((kept, more)))
