"""The atoms of one HAVING clause while it is read, and which of them the text decides by itself.

A count is never below 0, and so is no sum of a column whose declared bounds are not: ``count(*) >= 0`` holds and
``count(*) < 0`` does not, whatever the data. ``avg(x) > 60`` and ``avg(x) < 50`` cannot both hold, though their linear
forms are two statistics.

*Guarantee*: all of this follows from the text and the declared bounds: what is decided here is the same on every
database, and says nothing of any.
"""

from __future__ import annotations

from collections.abc import Hashable, Set
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, TypeAlias

from mechanisms.condition import And, Condition, Leaf
from sqlrewrite import minimise
from sqlrewrite.aggregate import Measures
from sqlrewrite.expression import Reader
from sqlrewrite.linear import FAR, Linear, Placed, on_lattice, row_span
from sqlrewrite.question import Atom, Comparison, GroupKey, MeasureKind, Statistic

Tree: TypeAlias = Condition[Atom] | bool
_COUNTS: Final = (MeasureKind.ROWS, MeasureKind.VALUES, MeasureKind.UNITS)


@dataclass(frozen=True, slots=True)
class Quotient:
    """A comparison of something that is no single sum: an average, a ratio or a quantile against a number."""

    of: Hashable
    up: bool
    bound: Fraction

    def clashes(self, other: Quotient) -> bool:
        """Whether no value satisfies both; where there is none (a division by zero) neither does."""
        low, high = (self, other) if self.up else (other, self)
        return self.of == other.of and low.up and not high.up and low.bound > high.bound


@dataclass(slots=True)
class Having:
    """The HAVING clause being read."""

    reader: Reader
    measures: Measures
    keys: tuple[GroupKey, ...]
    support: int | None
    scalar: bool  # some grouping set has no keys: its group may have no rows, and sums are NULL there
    statistics: dict[Statistic, int] = field(default_factory=dict)
    atoms: dict[tuple[object, ...], Atom] = field(default_factory=dict)
    guards: dict[tuple[object, ...], frozenset[int]] = field(default_factory=dict)
    asked: set[tuple[object, ...]] = field(default_factory=set)  # atoms that the analyst wrote
    plain: set[tuple[object, ...]] = field(default_factory=set)  # atoms on sums and counts as they are
    quotients: dict[tuple[object, ...], Quotient] = field(default_factory=dict)

    def atom(
        self,
        form: Linear,
        op: Comparison,
        text: str,
        average: frozenset[int] | None = None,
        asked: bool = True,
        quotient: Quotient | None = None,
    ) -> Tree:
        """``form op 0``; ``average``: the counts one of which must guard it."""
        placed = on_lattice(form, op, self.measures)
        known = self._decided(placed)
        if known is not None:
            return known if average is None or not known else self._supported(known, average)
        statistic = self.statistics.setdefault(placed.statistic, len(self.statistics))
        key = (statistic, placed.direction, placed.threshold)
        made = Atom(statistic, placed.direction, placed.threshold, text, average is not None)
        atom = self.atoms.setdefault(key, made)
        if asked:
            self.asked.add(key)
        if quotient is not None:
            self.quotients.setdefault(key, quotient)
        if average is None:
            self.plain.add(key)
            return Leaf(atom)
        self.guards[key] = average
        return self._supported(Leaf(atom), average)

    def _supported(self, tree: Tree, average: frozenset[int]) -> Tree:
        """The same, with the guard that ``veil.support`` reads beside an average."""
        if self.support is None:
            return tree
        least = Linear({min(average, key=self._not_rows): Fraction(1)}, constant=Fraction(-self.support))
        guard = self.atom(least, Comparison.GE, "count(*)")
        if isinstance(tree, bool) or isinstance(guard, bool):
            return guard if tree is True else tree
        return And((tree, guard))

    def _not_rows(self, place: int) -> bool:
        return self.measures[place].kind is not MeasureKind.ROWS

    def _decided(self, placed: Placed) -> bool | None:
        """Whether a statistic can only lie on one side of its threshold."""
        if not isinstance(placed.threshold, int):
            return None
        least, most = row_span(placed.statistic.terms, self.measures)
        low, high = 0 if least >= 0 else 1 - FAR, 0 if most <= 0 else FAR - 1
        if placed.direction < 0:
            low, high = -high, -low
        threshold = placed.direction * placed.threshold
        if threshold > high:
            return False
        return True if threshold <= low and self._has_value(placed.statistic) else None

    def _has_value(self, statistic: Statistic) -> bool:
        """Whether the sums in a statistic are of something in every group; where they can still be NULL, an atom on the
        number of values stands beside.
        """
        return not self.scalar or all(self.measures[place].kind in _COUNTS for place, _ in statistic.terms)

    def unsure(self, atom: Atom) -> frozenset[int] | None:
        """The counts one of which must guard an atom; one that is also asked without a ratio needs no guard."""
        key = _key(atom)
        return None if key in self.plain else self.guards.get(key)

    def alone(self, atom: Atom) -> int | None:
        """The measure that an atom is about, if it is about one only."""
        terms = list(self.statistics)[atom.statistic].terms
        return terms[0][0] if len(terms) == 1 else None

    def size_at_most(self, atom: Atom, counts: Set[int]) -> int | None:
        """Up to which size an atom lets groups be, as one of these counts tells it; all rows are never fewer."""
        place = self.alone(atom)
        if place is None or atom.direction > 0 or not isinstance(atom.threshold, int):
            return None
        rows = self.measures[place].kind is MeasureKind.ROWS and self.measures[place].filter is None
        return atom.threshold if rows or place in counts else None

    def clash(self, one: Atom, other: Atom) -> bool:
        """Whether no group satisfies both."""
        first, second = self.quotients.get(_key(one)), self.quotients.get(_key(other))
        both = first is not None and second is not None and first.clashes(second)
        return both or minimise.clash(one, other)

    def cover(self, one: Atom, other: Atom) -> bool:
        """Whether every group satisfies one of them."""
        return minimise.cover(one, other) and self._has_value(list(self.statistics)[one.statistic])


def _key(atom: Atom) -> tuple[object, ...]:
    return atom.statistic, atom.direction, atom.threshold
