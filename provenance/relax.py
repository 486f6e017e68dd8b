"""An answer to a nearby question, put together from what was released before (seed 4, section 4).

A *compound* adds some answers and takes others away so that every unit counts once or not at all, and the ones that
count are a rectangle. Relaxing a question looks for a compound of at most ``MOST_TERMS`` answers whose rectangle lies
near the asked one: it starts with the nearest answers, and patches each with others that leave a rectangle. The paper
keeps one compound at a time; here the best few are kept beside it, and an answer may also be what the compound is taken
from. While there is budget left where it is needed, an artificial patch that straightens an edge may be bought.

What is found is a plan (which answers, which signs): it depends on public regions and variances only, never on data.
Its value is computed from released numbers, once the patches, if any, are bought.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

from provenance.region import Region
from provenance.released import Fit, Released
from provenance.space import Box, Listed, Space, Span, Steps

MOST_TERMS = 3
"""The paper's xi: more terms are nearer to the question, and noisier."""
_WIDTH = 4

Price: TypeAlias = "Callable[[Sequence[Region]], Decimal | None]"
"""What it costs to measure these regions, all of them; None if some limit does not allow it."""


@dataclass(frozen=True, slots=True)
class Term:
    """A released answer by its number, or a region that must be measured first; and how often it counts."""

    factor: Fraction
    source: int | Region


@dataclass(frozen=True, slots=True)
class Relaxed:
    """The region that is really answered, how far it is from the asked one, and how the answer is made."""

    region: Region
    error: Fraction
    variance: Fraction
    cost: Decimal
    terms: tuple[Term, ...]

    @property
    def patches(self) -> list[Region]:
        """What must be measured first."""
        return [term.source for term in self.terms if isinstance(term.source, Region)]

    def value(self, values: Sequence[Fraction], bought: Mapping[Region, Fraction] | None = None) -> Fraction:
        """The answer, from the released values and the patches' ones.

        *Guarantee*: unbiased for the region that is told, with the variance that is told (seed 4, Lemma 4).
        """
        known = bought or {}
        amounts = (values[t.source] if isinstance(t.source, int) else known[t.source] for t in self.terms)
        return sum((term.factor * amount for term, amount in zip(self.terms, amounts, strict=True)), Fraction(0))


@dataclass(frozen=True, slots=True)
class _Compound:
    """Answers with their signs, patches with theirs, and the rectangle that they leave."""

    box: Box
    error: float
    cost: Decimal
    variance: Fraction
    answers: tuple[tuple[int, int], ...]
    patches: tuple[tuple[int, Box], ...] = ()

    @property
    def rank(self) -> tuple[float, Decimal, Fraction]:
        """Near first, then cheap, then precise."""
        return self.error, self.cost, self.variance


def relax(
    released: Released,
    asked: Region,
    *,
    most: int = MOST_TERMS,
    price: Price | None = None,
    patch_variance: Fraction = Fraction(0),
    width: int = _WIDTH,
) -> Relaxed | None:
    """The nearest compound that is found; None if nothing was released, or the question is no rectangle.

    *Guarantee*: a function of regions, variances and the price of patches, all of them public.
    """
    space = released.space
    box = space.box(asked)
    if box is None or not len(released):
        return None
    errors = released.errors(box)
    beam = [
        _Compound(released.boxes[n], _rounded(errors[n]), Decimal(0), released.variances[n], ((+1, n),))
        for n in released.nearest(errors, width)
    ]
    path, best = beam[0], _best(space, beam)  # the path is the paper's one compound
    for _ in range(1, most):
        if best is not None and best.error == 0:
            break
        found = {c.box: list(_patched(released, c, box, width)) for c in (*beam, path)}
        bought = list[_Compound]()
        if price is not None:
            for compound in dict.fromkeys((path, beam[0])) if beam else (path,):
                bought += _straightened(space, compound, box, price, patch_variance)
        steps = [new for fit, new in found[path.box] if fit is not Fit.AROUND]
        steps += [new for new in bought if new.answers == path.answers]
        path = min((path, *(new for new in steps if new.error < path.error)), key=_rank)
        beam = _distinct(sorted([*bought, *(new for group in found.values() for _, new in group)], key=_rank), width)
        best = _best(space, [*beam, path, *((best,) if best is not None else ())])
    return None if best is None else _told(space, best, box)


def _best(space: Space, compounds: Sequence[_Compound]) -> _Compound | None:
    """The nearest one that has the form of a region."""
    return min((compound for compound in compounds if space.formed(compound.box)), key=_rank, default=None)


def _rounded(error: float) -> float:
    """Sums in different orders are one error."""
    return max(0.0, round(float(error), 12))


def _rank(compound: _Compound) -> tuple[float, Decimal, Fraction]:
    return compound.rank


def _distinct(compounds: Sequence[_Compound], most: int) -> list[_Compound]:
    """The first ones that leave different rectangles: of equal ones, the first is the best."""
    found: dict[Box, _Compound] = {}
    for compound in compounds:
        found.setdefault(compound.box, compound)
        if len(found) == most:
            break
    return list(found.values())


def _patched(released: Released, compound: _Compound, asked: Box, most: int) -> Iterator[tuple[Fit, _Compound]]:
    """The compound with one answer more: for each way that fits, the few that come nearest."""
    used = {number for _, number in compound.answers}
    for patches in released.patches(compound.box):
        axis = patches.axis
        apart = released.apart(axis, patches.low, patches.high, asked)
        kind = released.space.axes[axis]
        here = kind.error(compound.box[axis], asked[axis]) * released.space.weight(kind) / len(asked)
        elsewhere = compound.error - float(here)
        for place in apart.argsort(kind="stable")[:most].tolist():
            number = int(patches.numbers[place])
            if number in used:
                continue
            span = (int(patches.low[place]), int(patches.high[place]))
            flipped = patches.fit is Fit.AROUND
            answers = tuple((-sign, n) for sign, n in compound.answers) if flipped else compound.answers
            bought = tuple((-sign, b) for sign, b in compound.patches) if flipped else compound.patches
            new = _Compound(
                (*compound.box[:axis], span, *compound.box[axis + 1 :]),
                _rounded(elsewhere + float(apart[place])),
                compound.cost,
                compound.variance + released.variances[number],
                (*answers, (-1 if patches.fit is Fit.REMOVED else +1, number)),
                bought,
            )
            yield patches.fit, new


def _straightened(
    space: Space, compound: _Compound, asked: Box, price: Price, variance: Fraction
) -> Iterator[_Compound]:
    """The compound with the artificial patch that helps most of those that may be bought (section 4.3)."""
    ways: list[tuple[Fraction, int, int, Box, Box]] = []
    for place, (axis, mine, wanted) in enumerate(zip(space.axes, compound.box, asked, strict=True)):
        for sign, patch, result in straightening(axis, mine, wanted):
            box = (*compound.box[:place], result, *compound.box[place + 1 :])
            error = space.error(box, asked)
            if error < compound.error:
                ways.append((error, place, sign, (*compound.box[:place], patch, *compound.box[place + 1 :]), box))
    ways.sort(key=lambda way: way[:2])
    for error, _, sign, needed, straight in ways:
        patches = (*compound.patches, (sign, needed))
        regions = [region for _, each in patches if (region := space.region(each)) is not None]
        cost = price(regions) if len(regions) == len(patches) else None
        if cost is not None:
            yield _Compound(
                straight, _rounded(float(error)), cost, compound.variance + variance, compound.answers, patches
            )
            return


def straightening(axis: object, mine: Span, wanted: Span) -> Iterator[tuple[int, Span, Span]]:
    """Patches that move one edge to where it is wanted: their sign, their span, and what comes out."""
    match axis:
        case Steps():
            (x, y), (low, high) = mine, wanted
            if x < low <= y:
                yield -1, (x, low - 1), (low, y)
            elif low < x:
                yield +1, (low, x - 1), (low, y)
            if x <= high < y:
                yield -1, (high + 1, y), (x, high)
            elif y < high:
                yield +1, (y + 1, high), (x, high)
        case Listed():
            extra, lacking = mine[0] & ~wanted[0], wanted[0] & ~mine[0]
            if extra and extra != mine[0]:
                yield -1, (extra, 0), (mine[0] ^ extra, 0)
            if lacking:
                yield +1, (lacking, 0), (mine[0] | lacking, 0)


def _told(space: Space, compound: _Compound, asked: Box) -> Relaxed:
    region = space.region(compound.box)
    patches = [(sign, space.region(box)) for sign, box in compound.patches]
    if region is None:
        raise ValueError("what is told has the form of a region")
    terms = [Term(Fraction(sign), number) for sign, number in compound.answers]
    terms += [Term(Fraction(sign), patch) for sign, patch in patches if patch is not None]
    return Relaxed(region, space.error(compound.box, asked), compound.variance, compound.cost, tuple(terms))
