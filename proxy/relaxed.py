"""An empty purse still gets an answer (``veil.on_exhausted = relax``): the number of a nearby region that is known.

A count or a sum that a limit refuses is put together from releases that the analyst knows already. The notice and the
bill tell the region that was really answered, how far it lies from the asked one, and the noise. It costs nothing.

*Guarantee*: the answer is a function of public regions and of numbers that the analyst has been told already.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from mechanisms.synopsis import estimate
from mechanisms.values import Noisy
from provenance.errors import LimitReached
from provenance.nearby import Fact, Near, Nearby
from provenance.releases import Releases
from provenance.shape import Shape, shape_of
from provenance.synopses import Stored
from provenance.told import told
from proxy.plan import Plan, StatementPlan, lattice_unit
from proxy.runtime import Runtime
from proxy.wishes import Wishes
from sqlrewrite import spelled
from sqlrewrite.catalog import Relation
from sqlrewrite.cells import key_text
from sqlrewrite.question import ColumnRef, Question

_MOST_GROUPS = 100
_MOST_VIEWS = 200
_NOTHING = Fraction(0)

_OFFER = "SET veil.on_exhausted = 'relax' has it answered for a nearby region, from what you already know."
_NO_BOUNDS = "Ask without veil.low, veil.high and veil.stddev: a relaxed answer has its deviation in the bill."
_IN_VAIN = "Nothing that you know already adds up to a number near this one."


@dataclass(frozen=True, slots=True)
class Relaxed:
    """What is known near each number of a question: statistics x groups."""

    rows: tuple[tuple[Near, ...], ...]

    def stored(self, each: Plan) -> Stored:
        """As an answer; a number between two lattice points goes to the nearer one."""
        values = [[math.floor(near.value + Fraction(1, 2)) for near in row] for row in self.rows]
        return Stored(Noisy(np.array(values, dtype=np.int64)), facts={"relaxed": self.told(each)})

    def told(self, each: Plan) -> list[dict[str, Any]]:
        """For each number the region that it really is of, the relaxation error, and the standard deviation."""
        question, cells = each.question, each.cells
        assert cells is not None
        keys = cells.key_columns(np.arange(cells.size, dtype=np.int64))
        entries: list[dict[str, Any]] = []
        for statistic, row in zip(question.statistics, self.rows, strict=True):
            unit = lattice_unit(question, statistic)
            for cell, near in enumerate(row):
                group = {"group": [key_text(column[cell]) for column in keys]} if keys else {}
                entries.append(
                    {
                        "aggregate": _unfiltered(each, statistic.terms[0][0]),
                        **group,
                        "region": told(near.region),
                        "error": float(near.error),
                        "stddev": math.sqrt(near.variance) * float(unit),
                    }
                )
        return entries


async def instead(
    runtime: Runtime, analyst: str, planned: StatementPlan, wishes: Wishes, refusal: LimitReached
) -> list[tuple[Plan, Stored]]:
    """What stands for the questions of a statement that cannot be paid for; the refusal if there is nothing."""
    asked = [each for each in planned.plans if not each.free]
    if not wishes.relax:
        if all(each.question.having is None for each in asked):
            refusal.hint = f"{refusal.hint} {_OFFER}"
        raise refusal
    if any(part.bounds for part in planned.parts):  # they are worked out from noise that is not there
        refusal.hint = f"{refusal.hint} {_NO_BOUNDS}"
        raise refusal
    found: list[tuple[Plan, Stored]] = []
    for each in asked:
        near = await nearby(runtime.releases, analyst, each)
        if near is None:
            refusal.hint = f"{refusal.hint} {_IN_VAIN}"
            raise refusal
        found.append((each, near.stored(each)))
    return found


async def nearby(store: Releases, analyst: str, each: Plan) -> Relaxed | None:
    """What the analyst knows near the numbers of a question; None where one of them has nothing near it."""
    if each.cells is None or each.question.having is not None or not each.question.statistics:
        return None
    rows: list[tuple[Near, ...]] = []
    for place in range(len(each.question.statistics)):
        asked = shape_of(each.question, place, each.cells, _MOST_GROUPS)
        near = None if asked is None else await _row(store, analyst, each.question, asked)
        if near is None:
            return None
        rows.append(near)
    return Relaxed(tuple(rows))


async def _row(store: Releases, analyst: str, question: Question, asked: Shape) -> tuple[Near, ...] | None:
    """One number near that of each group; groups stay apart, so that none is taken for another."""
    keys = {key.expression.name for key in question.keys if isinstance(key.expression, ColumnRef)}
    facts = await _facts(store, analyst, question.relation, asked.summed)
    return await asyncio.to_thread(_nearest, question.relation, facts, asked, keys)


def _nearest(relation: Relation, facts: Sequence[Fact], asked: Shape, keys: Set[str]) -> tuple[Near, ...] | None:
    known = Nearby(relation, facts, asked.cells, keys)
    found: list[Near] = []
    for region in asked.cells:
        # No row can be in a group that WHERE leaves out.
        near = Near(region, _NOTHING, _NOTHING, _NOTHING) if region.empty else known.find(region)
        if near is None:
            return None
        found.append(near)
    return tuple(found)


async def _facts(store: Releases, analyst: str, relation: Relation, summed: str) -> Sequence[Fact]:
    """Everything that the analyst knows of one sum: of each view the best estimate."""
    shapes = await store.shapes(analyst, relation.id, relation.data_version, summed, _MOST_VIEWS)
    held = await store.find(analyst, list(shapes))
    facts: list[Fact] = []
    for place, shape in shapes.items():
        there = held[place]
        grid = there.grid
        if grid is None or not there.known.precision(there.releases):
            continue
        there = await store.loaded(analyst, there, there.known.whole)
        values, variance = estimate(there.releases, there.known)
        step = Fraction(grid.sensitivity, grid.parts)
        # Rounded to a whole number of steps, and told by the middle of a step: each time by at most a half.
        rounded = _NOTHING if grid.own and len(there.known.whole) + (there.known.partial is not None) == 1 else step**2
        facts.append(Fact(shape, grid.lattice(values), variance * step**2 + rounded))
    return facts


def _unfiltered(each: Plan, measure: int) -> str:
    return spelled.measure(each.question.measures[measure]).partition(" FILTER (WHERE ")[0]
