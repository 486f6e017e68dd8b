"""Numbers at a fixed price, from the synopses of their views: what is known already is not paid for again.

For each view that a question's statistics need there is one of four moves:

- **reuse**: the analyst knows the view precisely enough;
- **derive**: the view's global synopsis does, and the analyst gets as much of it as was asked for;
- **refine**: the global synopsis grows by one more release, which is measured;
- **measure**: nothing is there yet: the first release.

A statistic has a view of its own, and may be a sum of cells of registered views: the cheapest is taken. The analyst
pays for what is new to the analyst, the protected database for what is new to everybody.

Where all that a question needs is known whole (``proxy.free``), nothing is drawn, written or charged.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import TypeAlias

import numpy as np

from mechanisms.grid import Grid
from mechanisms.loss import Coin
from mechanisms.noise import DiscreteGaussian
from mechanisms.release import release
from mechanisms.synopsis import FRESH, Known, Partial, Release, advanced, draw_partial, estimate
from mechanisms.threshold import Share
from mechanisms.values import Exact, Lattice, Noisy
from provenance.model import Receipt
from provenance.plan import NOTHING, OnView, plan
from provenance.plan import Plan as Choices
from provenance.releases import Fresh, Held, Place, Releases, learn
from provenance.shape import shape_of
from provenance.snapshots import combines, slices, unmeasured
from proxy.free import enough
from proxy.plan import Plan, weights
from proxy.view_updates import Move, Source, Ways
from proxy.wider import Derivable
from sqlrewrite.cells import Cells
from sqlrewrite.question import Question
from sqlrewrite.view import View, view_of

_FINEST = Fraction(4)
"""The smallest variance of a release, in grid numbers: below that, discrete noise is no Gaussian any more."""

_UNDER = 1 - Fraction(1, 10**9)  # of what a floor buys: roundings must not make it cost more

_Seen: TypeAlias = tuple[Place, View, Question, Cells, int, Derivable | None]

Measured = Callable[[Question, Cells], Awaitable[Exact]]
"""One look at the data."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A view that a statistic may come from, at the precision that the statistic needs."""

    place: Place
    view: View
    question: Question
    cells: Cells
    row: int
    grid: Grid
    held: Held
    precision: Fraction
    wider: Derivable | None

    @property
    def label(self) -> str:
        """As EXPLAIN calls it."""
        return "its own view" if self.wider is None else self.wider.label

    def on_view(self, before: Move | None, touched: int, floor: Decimal = Decimal(0)) -> OnView:
        """The same for the planner; ``before`` is what the question does to the view already, ``floor`` the least price
        of a scan: the view grows by what that buys, as far as noise can become finer.
        """
        wanted = self.precision if before is None else max(self.precision, before.step.precision)
        owed = NOTHING if before is None else before.cost
        known, parts = self.held.known, self.grid.parts
        least = min(1 / _FINEST, 2 * Fraction(floor) * _UNDER / (parts * parts * touched))
        return OnView(self.label, self.held.releases, known, wanted, parts, touched, owed, least)


async def ways(store: Releases, analyst: str, each: Plan) -> Ways:
    """The cheapest way for every number; nothing is written, and no data is read.

    Releases of different snapshots are combined only where nothing changes (``provenance.snapshots``): otherwise all
    numbers come from those of one snapshot, the latest of which is free if one is, or all are measured at once.
    """
    found = [_views(each, at) for at in range(len(each.shares))]
    shares = [share for share in each.shares if share is not None]
    places = [place for several, share in zip(found, shares, strict=True) for place, *_ in several]
    finest = [finer(place, share.grid) for several, share in zip(found, shares, strict=True) for place, *_ in several]
    held = await store.find(analyst, [*places, *finest])
    taken = partial(_taken, each, shares, found)
    if combines(each.question):
        return taken(held)
    there = [known for one in slices(each.question, held) if not (known := taken(one)).looks]
    free = next((one for one in there if one.free), None)
    if free is not None:
        return free
    fresh = taken(unmeasured(held))
    chosen = min([*there, fresh], key=lambda one: (one.loss.amount + one.table, one.loss.amount))
    return chosen if chosen is fresh else chosen.beside(fresh)


def _taken(each: Plan, shares: Sequence[Share], found: Sequence[list[_Seen]], held: Mapping[Place, Held]) -> Ways:
    """The cheapest way for every number, from releases that may be combined; a scan buys what its floor pays."""
    plain = _chosen(each, found, shares, held, (Decimal(0),) * len(shares))
    bought = plain.bought if each.buys and plain.below.analyst else None
    return plain if bought is None else _chosen(each, found, shares, held, bought)


def _chosen(
    each: Plan,
    found: Sequence[list[_Seen]],
    shares: Sequence[Share],
    held: Mapping[Place, Held],
    floors: Sequence[Decimal],
) -> Ways:
    """The cheapest way for every number, if a view that grows for it grows by what these amounts buy at least."""
    touched = each.contribution.cells
    moves: dict[Place, Move] = {}
    sources: list[Source] = []
    plans: list[Choices] = []
    for share, several, floor in zip(shares, found, floors, strict=True):
        candidates = {one.label: one for one in (candidate(share, held, *view) for view in several)}
        weighed = plan([one.on_view(moves.get(one.place), touched, floor) for one in candidates.values()], Coin.ZCDP)
        free = {label: known for label, one in candidates.items() if (known := enough(one.held, one.precision))}
        weighed = weighed if not free else weighed.taking(min(free, key=lambda label: max(free[label].whole)))
        chosen = weighed.chosen
        assert chosen.view is not None and chosen.step is not None
        one = candidates[chosen.view]
        moves[one.place] = Move(
            *(one.place, one.view, one.question, one.cells, one.row, one.grid, one.held, touched),
            *(chosen.step, chosen.word),
        )
        sources.append(Source(one.place, one.wider, free.get(chosen.view)))
        plans.append(weighed)
    return Ways(moves, tuple(sources), tuple(plans), each.floor)


def _views(each: Plan, at: int) -> list[_Seen]:
    """The question's own view of a statistic, and the registered ones that it can be derived from."""
    assert each.cells is not None
    own = view_of(each.question, at, each.context)
    return [(place_of(each, own), own, each.question, each.cells, at, None), *registered(each, at)]


def registered(each: Plan, at: int) -> list[_Seen]:
    """The registered views that a statistic can be derived from."""
    return [(place_of(each, one.view), one.view, one.question, one.cells, 0, one) for one in each.wider[at]]


def place_of(each: Plan, view: View) -> Place:
    """Where the releases of a view are filed."""
    relation = each.question.relation
    return Place(relation.id, relation.data_version, view.digest)


def candidate(
    share: Share,
    held: Mapping[Place, Held],
    place: Place,
    view: View,
    question: Question,
    cells: Cells,
    row: int,
    wider: Derivable | None,
) -> Candidate:
    """A view at the precision that a share needs of its cells."""
    assert isinstance(share.noise, DiscreteGaussian)
    asked = share.noise.sigma2 / (
        1 if wider is None else wider.rollup.most
    )  # a sum of n cells has n times the variance
    there = held[place]
    grid = there.grid or share.grid
    variance = asked * Fraction(grid.parts, share.grid.parts) ** 2
    if variance < _FINEST and grid != share.grid:
        # The view's grid is too coarse for this: releases of their own, on a finer grid.
        place = finer(place, share.grid)
        grid, there, variance = share.grid, held[place], asked
    return Candidate(place, view, question, cells, row, grid, there, 1 / variance, wider)


def finer(place: Place, grid: Grid) -> Place:
    """Where releases of a view on a grid of their own are filed."""
    return replace(place, digest=finer_name(place.digest, grid))


def finer_name(digest: str, grid: Grid) -> str:
    """The same for the digest alone."""
    return f"{digest}/{grid.parts}"


async def drawn(store: Releases, analyst: str, chosen: Ways) -> Ways:
    """The same, with everything drawn that needs no data: what the analyst gets of releases that are there."""
    return replace(chosen, moves={place: await _drawn(store, analyst, move) for place, move in chosen.moves.items()})


async def _drawn(store: Releases, analyst: str, move: Move) -> Move:
    wanted = move.step
    there = [id_ for id_ in wanted.take if id_ != FRESH]
    part = wanted.partial if wanted.partial is not None and wanted.partial[0] != FRESH else None
    held = await store.loaded(analyst, move.held, {*move.held.known.whole, *there, *(() if part is None else part[:1])})
    also = [learn(analyst, id_, None, held.drawn.get(id_, 0)) for id_ in there]
    drawn_ = None
    if part is not None:
        id_, added = part
        before = held.known.partial
        same = before if before is not None and before.release == id_ else None
        drawn_ = draw_partial(held.release(id_), same, added, os.urandom)
        also.append(learn(analyst, id_, drawn_, held.drawn.get(id_, 0)))
    return replace(move, held=held, drawn=drawn_, also=tuple(also))


async def told(store: Releases, receipt: Receipt, chosen: Ways, measure: Measured) -> Noisy:
    """The numbers of a question that is paid for; ``measure`` reads the data, for the views that grow."""
    exact: dict[int, Exact] = {}
    seen: dict[Place, tuple[Sequence[Release], Known]] = {}
    for place, move in chosen.moves.items():
        releases, part, fresh = move.held.releases, move.drawn, FRESH
        if move.step.grow is not None:
            if id(move.question) not in exact:  # views of one question are measured by one statement
                exact[id(move.question)] = await measure(move.question, move.cells)
            share = _share(move.grid, move.step.grow)
            noisy = release(exact[id(move.question)].combine(weights(move.question)[[move.row]]), [share])
            grown, part = await _filed(store, receipt, move, _fresh(move, move.step.grow, noisy.row(0)))
            releases, fresh = (*releases, grown), grown.id
        seen[place] = releases, advanced(move.held.known, move.step, part, fresh)
    rows = [row(chosen.moves[one.place].grid, *seen[one.place], one.wider) for one in chosen.sources]
    return Noisy(np.array(rows, dtype=np.int64))


async def recalled(store: Releases, analyst: str, chosen: Ways) -> Noisy:
    """The numbers of a question that is free: see ``proxy.free``."""
    rows = []
    for one in chosen.sources:
        assert one.known is not None
        move = chosen.moves[one.place]
        held = await store.loaded(analyst, replace(move.held, known=one.known), one.known.whole)
        rows.append(row(move.grid, held.releases, one.known, one.wider))
    return Noisy(np.array(rows, dtype=np.int64))


def row(grid: Grid, releases: Sequence[Release], known: Known, wider: Derivable | None) -> Lattice:
    """One statistic of the answer: the best estimate, or sums of such.

    On the lattice itself cells are added up first, so that a sum is rounded once and not in each of its cells.
    """
    if wider is None or not grid.own:
        cells = grid.lattice(estimate(releases, known)[0])
        return cells if wider is None else wider.rollup.add_up(cells)
    add_up, partial = wider.rollup.add_up, known.partial
    summed = [replace(each, values=None if each.values is None else add_up(each.values)) for each in releases]
    if partial is not None and partial.values is not None:
        known = replace(known, partial=replace(partial, values=add_up(partial.values)))
    return estimate(summed, known)[0]


async def _filed(store: Releases, receipt: Receipt, move: Move, fresh: Fresh) -> tuple[Release, Partial | None]:
    """The fresh release under its id, and as much of it as the analyst gets."""
    part, wanted = None, move.step.partial
    if wanted is not None and wanted[0] == FRESH:
        part = draw_partial(Release(FRESH, fresh.variance, fresh.values), None, wanted[1], os.urandom)
    grown = await store.append(receipt.charge.analyst, fresh, part, receipt)
    return grown, move.drawn if part is None else replace(part, release=grown.id)


def _share(grid: Grid, variance: Fraction) -> Share:
    """The noise of the release by which a view grows."""
    noise = DiscreteGaussian(variance)
    return Share(noise, 0, noise.loss(grid.parts), None, grid)


def _fresh(move: Move, variance: Fraction, values: Lattice) -> Fresh:
    # The release tells the middle of each grid cell: its grid number is what has the noise.
    numbers = move.grid.numbers(values)
    shape = shape_of(move.question, move.row, move.cells)
    return Fresh(move.place, move.view.dimensions, move.view.measure, move.grid, variance, numbers, shape)
