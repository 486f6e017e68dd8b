"""Linear combinations of released numbers: a region that they span, nearest to the asked one, with the least noise.

Two sources. A *synopsis* has a number for every cell of a grid: the nearest region is made of whole cells, found on
each axis by itself, since the relaxation error is a sum over axes. *Answers* to questions are rows of a system over the
pieces that their edges cut the domain into: a region can be answered if its indicator lies in the span of the rows, and
among the ways to write it, weighted least squares gives the one with the smallest variance.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from provenance.region import Region
from provenance.relax import Relaxed, Term
from provenance.released import Released
from provenance.space import Axis, Box, Listed, Opaque, Space, Span, Steps

MOST_ANSWERS = 48
MOST_PIECES = 4096
_MOST_TARGETS = 256
_EDGES = 3
_RESIDUAL = 1e-9
_DENOMINATOR = 720


@dataclass(frozen=True, slots=True)
class Synopsis:
    """Cells of a grid: on each axis that it has, spans that do not overlap; and the variance of each cell's number.

    Cells are numbered with the last axis running fastest. Axes that are not named are not told apart.
    """

    spans: dict[str, tuple[Span, ...]]
    variance: Fraction


def from_synopsis(space: Space, synopsis: Synopsis, asked: Region) -> Relaxed | None:
    """The nearest region of whole cells; None if the question is no rectangle.

    *Guarantee*: no other choice of cells that is a rectangle has a smaller relaxation error.
    """
    box = space.box(asked)
    if box is None:
        return None
    found: list[Span] = []
    chosen: dict[str, list[int]] = {}
    for axis, wanted in zip(space.axes, box, strict=True):
        spans = synopsis.spans.get(axis.name)
        if spans is None:
            found.append(axis.whole)
            continue
        span, chosen[axis.name] = _nearest(axis, spans, wanted)
        found.append(span)
    region = space.region(tuple(found))
    if region is None:
        return None
    cells = [0]
    for name, spans in synopsis.spans.items():
        cells = [cell * len(spans) + place for cell in cells for place in chosen[name]]
    one = Fraction(1)
    terms = tuple(Term(one, cell) for cell in cells)
    return Relaxed(region, space.error(tuple(found), box), synopsis.variance * len(terms), Decimal(0), terms)


def _nearest(axis: Axis, spans: Sequence[Span], wanted: Span) -> tuple[Span, list[int]]:
    """The cells of one axis whose union lies nearest, and that union."""
    match axis:
        case Steps():
            order = sorted(range(len(spans)), key=lambda cell: spans[cell])
            runs: list[tuple[int, int, int]] = []
            for start in range(len(order)):
                for end in range(start, len(order)):
                    if end > start and spans[order[end]][0] != spans[order[end - 1]][1] + 1:
                        break
                    away = abs(spans[order[start]][0] - wanted[0]) + abs(spans[order[end]][1] - wanted[1])
                    runs.append((away, start, end))
            _, start, end = min(runs)
            return (spans[order[start]][0], spans[order[end]][1]), order[start : end + 1]
        case Listed():
            inside = [(2 * (s[0] & wanted[0]).bit_count() - s[0].bit_count(), -cell) for cell, s in enumerate(spans)]
            cells = [-cell for gain, cell in inside if gain > 0] or [-max(inside)[1]]
            return (sum(spans[cell][0] for cell in cells), 0), cells
        case Opaque():
            best = min(range(len(spans)), key=lambda cell: (spans[cell] != wanted, cell))
            return spans[best], [best]


def from_answers(released: Released, asked: Region, most: int = MOST_ANSWERS) -> Relaxed | None:
    """The nearest region in the span of the nearest answers, with the least variance; None if none is found."""
    space = released.space
    box = space.box(asked)
    if box is None or not len(released):
        return None
    near = released.nearest(released.errors(box), most)
    cuts = _cuts(space, [released.boxes[number] for number in near])
    while math.prod(len(axis) for axis in cuts) > MOST_PIECES and len(near) > 1:
        near = near[: len(near) // 2]
        cuts = _cuts(space, [released.boxes[number] for number in near])
    deviations = np.array([float(released.variances[number]) ** 0.5 or 1e-9 for number in near])
    rows = np.array([_indicator(space, released.boxes[number], cuts) for number in near])
    # Least variance under rows.T c = target: with c = z / deviation, the z of least norm.
    left, sizes, right = np.linalg.svd((rows / deviations[:, None]).T, full_matrices=False)
    rank = int((sizes > sizes[0] * 1e-10).sum())
    left, sizes, right = left[:, :rank], sizes[:rank], right[:rank]
    for target in _targets(space, cuts, box):
        wanted = _indicator(space, target, cuts)
        part = left.T @ wanted
        if np.abs(left @ part - wanted).max() < _RESIDUAL:
            factors = _rational((right.T @ (part / sizes)) / deviations, rows, wanted)
            region = space.region(target)
            if region is not None:
                terms = tuple(Term(f, number) for f, number in zip(factors, near, strict=True) if f)
                variance = sum((f * f * released.variances[n] for f, n in zip(factors, near, strict=True)), Fraction(0))
                return Relaxed(region, space.error(target, box), variance, Decimal(0), terms)
    return None


def _rational(factors: NDArray[np.float64], rows: NDArray[np.float64], wanted: NDArray[np.float64]) -> list[Fraction]:
    """Factors as short fractions, if these still give the target exactly; else as they are."""
    short = [Fraction(float(f)).limit_denominator(_DENOMINATOR) for f in factors]
    if all(sum(f for f, row in zip(short, rows, strict=True) if row[n]) == wanted[n] for n in range(len(wanted))):
        return short
    return [Fraction(float(f)) for f in factors]


def _cuts(space: Space, boxes: Sequence[Box]) -> list[list[int]]:
    """On each axis the pieces between all edges: where each begins, the set of members, or the number."""
    found: list[list[int]] = []
    for place, axis in enumerate(space.axes):
        spans = {axis.whole, *(box[place] for box in boxes)}
        match axis:
            case Steps():
                ends = {low for low, _ in spans} | {high + 1 for _, high in spans}
                found.append(sorted(ends - {axis.whole[1] + 1}))
            case Listed():
                pieces = {axis.whole[0]}
                for mask, _ in spans:
                    pieces = {part for piece in pieces for part in (piece & mask, piece & ~mask) if part}
                found.append(sorted(pieces))
            case Opaque():
                found.append(sorted({number for number, _ in spans}))
    return found


def _indicator(space: Space, box: Box, cuts: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Which pieces of the grid lie in a box."""
    inside = np.ones(1)
    for axis, (low, high), pieces in zip(space.axes, box, cuts, strict=True):
        values = np.array(pieces, np.int64)
        match axis:
            case Steps():
                hit = (values >= low) & (values <= high)
            case Listed():
                hit = values & low != 0
            case Opaque():
                # Nothing is known of how extents overlap: each is a piece of its own, and everything is another.
                hit = values == low
        inside = np.multiply.outer(inside, hit.astype(np.float64)).ravel()
    return inside


def _targets(space: Space, cuts: Sequence[Sequence[int]], asked: Box) -> list[Box]:
    """Boxes of whole pieces near the asked one, the nearest first."""
    choices: list[list[Span]] = []
    for axis, wanted, pieces in zip(space.axes, asked, cuts, strict=True):
        match axis:
            case Steps():
                last = [start - 1 for start in pieces[1:]] + [axis.whole[1]]
                lows = sorted(pieces, key=lambda start: abs(start - wanted[0]))[:_EDGES]
                highs = sorted(last, key=lambda end: abs(end - wanted[1]))[:_EDGES]
                choices.append([(low, high) for low in lows for high in highs if low <= high] or [axis.whole])
            case Listed():
                mask = sum(piece for piece in pieces if 2 * (piece & wanted[0]).bit_count() > piece.bit_count())
                choices.append(list(dict.fromkeys([(mask, 0), axis.whole])) if mask else [axis.whole])
            case Opaque():
                choices.append([wanted] if wanted[0] in pieces else [(number, 0) for number in pieces])
    boxes = itertools.islice(itertools.product(*choices), 8 * _MOST_TARGETS)
    return sorted(boxes, key=lambda box: space.error(box, asked))[:_MOST_TARGETS]
