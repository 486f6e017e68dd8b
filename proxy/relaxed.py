"""An empty purse still gets an answer (``veil.on_exhausted = relax``): the number of a nearby region that is known.

A count or a sum that a limit refuses is put together from releases that the analyst knows already. The notice and the
bill tell the region that was really answered, how far it lies from the asked one, and the noise. It costs nothing,
unless a piece that is still within the limits is bought first (``proxy.patched``).
Groups are decided by such numbers: each leans by what its noise exceeds with its part of beta.

*Guarantee*: the answer is a function of public regions and of numbers that the analyst has been told already.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.condition import And, Condition, Leaf, Or
from mechanisms.errors import AccuracyUnreachable
from mechanisms.loss import Coin
from mechanisms.synopsis import estimate
from mechanisms.values import Noisy
from provenance.errors import LimitReached
from provenance.nearby import Fact, Near, Nearby
from provenance.releases import Releases
from provenance.shape import Shape, shape_of
from provenance.snapshots import as_of, combines, slices
from provenance.synopses import Sameness, Stored
from provenance.told import told
from proxy.bill import Groups
from proxy.plan import Plan, StatementPlan, lattice_unit
from proxy.rows import groups_of
from proxy.runtime import Runtime
from proxy.wishes import Wishes
from sqlrewrite import spelled
from sqlrewrite.cells import key_text
from sqlrewrite.minimise import prime_implicants
from sqlrewrite.problem import thresholds
from sqlrewrite.question import Atom, ColumnRef, Question

_MOST_GROUPS = 100
_MOST_VIEWS = 200
_MOST_SNAPSHOTS = 16  # the latest ones
_NOTHING = Fraction(0)

_PROMISE = "nearby regions: beta holds for those that are told, and for thresholds not chosen from these numbers"
_OFFER = "SET veil.on_exhausted = 'relax' may have it answered for a nearby region, from what you already know."
_NO_BOUNDS = "Ask without veil.low, veil.high and veil.stddev: a relaxed answer has its deviation in the bill."
_NO_LIMIT = "veil.on_exhausted = 'relax' answers what a limit refuses (53400); this was refused for its accuracy."
_IN_VAIN = "Nothing that you know already adds up to a number near this one."


@dataclass(frozen=True, slots=True)
class Relaxed:
    """What is known near each number of a question: statistics x groups."""

    rows: tuple[tuple[Near, ...], ...]
    as_of: str | None = None  # when the oldest release behind it was measured

    @property
    def farthest(self) -> tuple[Fraction, Fraction]:
        """How far the farthest number lies from what was asked, and the largest variance."""
        every = [near for row in self.rows for near in row]
        return max(near.error for near in every), max(near.variance for near in every)

    def stored(self, each: Plan) -> Stored:
        """As an answer; a number between two lattice points goes to the nearer one."""
        values = [[math.floor(near.value + Fraction(1, 2)) for near in row] for row in self.rows]
        noisy, having = Noisy(np.array(values, dtype=np.int64)), each.question.having
        facts: dict[str, Any] = {"relaxed": self.told(each), "as_of": self.as_of}
        if having is None:
            return Stored(noisy, facts=facts)
        beta = float(each.beta) / max(len(part) for part in prime_implicants(having))
        tests = 0 if each.staged is None else len(each.staged.atoms)
        facts |= {"promise": _PROMISE, "betas": [beta] * tests, "uncertain": [None] * tests}
        kept = self._holds(having, groups_of(each, noisy), beta, each.loss.coin)
        return Stored(noisy, np.flatnonzero(kept).astype(np.int64), facts)

    def _holds(self, condition: Condition[Atom], groups: Groups, beta: float, coin: Coin) -> NDArray[np.bool_]:
        """Which groups are kept.

        *Guarantee*: a group whose told regions qualify is missed at one atom with probability beta at most: sums of
        discrete Gaussians have Gaussian tails, P[X >= t] <= exp(-t^2 / 2 variance); any noise, such as that of a pure
        ledger, has P[X >= t] <= variance / (variance + t^2) (Cantelli).
        """
        match condition:
            case Leaf(atom):
                spread = np.array([float(near.variance) for near in self.rows[atom.statistic]])
                reach = 2 * math.log(1 / beta) if coin is Coin.ZCDP else (1 - beta) / beta
                shift = np.ceil(np.sqrt(spread * reach)).astype(np.int64)
                beyond = (groups.noisy.row(atom.statistic) - thresholds(atom, groups.keys)) * atom.direction
                return np.asarray(beyond >= -shift)
            case And(parts):
                return reduce(np.logical_and, (self._holds(part, groups, beta, coin) for part in parts))
            case Or(parts):
                return reduce(np.logical_or, (self._holds(part, groups, beta, coin) for part in parts))

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
                        "aggregate": unfiltered(each, statistic.terms[0][0]),
                        **group,
                        "region": told(near.region),
                        "error": float(near.error),
                        "stddev": math.sqrt(near.variance) * float(unit),
                    }
                )
        return entries


class Unpaid(Exception):  # noqa: N818 (a turn of the route, not a fault)
    """The till has refused these questions, and nothing was spent."""

    def __init__(self, refusal: LimitReached, owed: Mapping[Sameness, Plan]) -> None:
        self.refusal, self.owed = refusal, owed


async def instead(runtime: Runtime, planned: StatementPlan, wishes: Wishes, unpaid: Unpaid) -> dict[Sameness, Stored]:
    """What stands for the questions of a statement that cannot be paid for; the refusal if there is nothing."""
    if not wishes.relax:
        raise _with_hint(unpaid.refusal, _OFFER)
    if any(part.bounds for part in planned.parts):  # they are worked out from noise that is not there
        raise _with_hint(unpaid.refusal, _NO_BOUNDS)
    found: dict[Sameness, Stored] = {}
    for same, each in unpaid.owed.items():
        near = await nearby(runtime.releases, same.analyst, each)
        if near is None:
            raise _with_hint(unpaid.refusal, _IN_VAIN)
        found[same] = near.stored(each)
    return found


def unrelaxed(refusal: AccuracyUnreachable, wishes: Wishes) -> AccuracyUnreachable:
    """A refusal that relaxation is not about, told to whoever has asked for it: what was spent is spent, no limit is
    in the way, and a larger alpha or ``veil.max_epsilon`` gets an answer of the region that was asked for.
    """
    if not wishes.relax:
        return refusal
    hint = f"{refusal.hint or ''} {_NO_LIMIT}".strip()
    return AccuracyUnreachable(refusal.message, detail=refusal.detail, hint=hint, position=refusal.position)


def _with_hint(refusal: LimitReached, more: str) -> LimitReached:
    return LimitReached(refusal.message, detail=refusal.detail, hint=f"{refusal.hint or ''} {more}".strip())


async def nearby(store: Releases, analyst: str, each: Plan) -> Relaxed | None:
    """What the analyst knows near the numbers of a question; None where one of them has nothing near it.

    All of it from one snapshot, the one in which what is known lies nearest, unless nothing changes.
    """
    if each.cells is None or not each.question.statistics:
        return None
    question = replace(each.question, having=None)
    known: list[tuple[Shape, Mapping[int, Facts]]] = []
    for place in range(len(question.statistics)):
        asked = shape_of(question, place, each.cells, _MOST_GROUPS)
        if asked is None:
            return None
        known.append((asked, await facts_of(store, analyst, question, asked)))
    shared = set.intersection(*(set(facts) for _, facts in known))
    found = [
        near
        for snapshot in sorted(shared, reverse=True)
        if (near := await _relaxed(question, [(asked, facts[snapshot]) for asked, facts in known])) is not None
    ]
    return min(found, key=lambda near: near.farthest, default=None)


async def _relaxed(question: Question, known: Sequence[tuple[Shape, Facts]]) -> Relaxed | None:
    """One number near that of each group; groups stay apart, so that none is taken for another."""
    keys = {key.expression.name for key in question.keys if isinstance(key.expression, ColumnRef)}
    rows: list[tuple[Near, ...]] = []
    for asked, facts in known:
        near = await asyncio.to_thread(_nearest, question, facts.known, asked, keys)
        if near is None:
            return None
        rows.append(near)
    return Relaxed(tuple(rows), as_of(moment for _, facts in known for moment in facts.made))


def _nearest(question: Question, facts: Sequence[Fact], asked: Shape, keys: Set[str]) -> tuple[Near, ...] | None:
    known = Nearby(question.relation, facts, asked.cells, keys, additive=question.unit.column is None)
    found: list[Near] = []
    for region in asked.cells:
        # No row can be in a group that WHERE leaves out.
        nothing = Near(region, _NOTHING, _NOTHING, _NOTHING) if region.empty else None
        near = nothing or known.find(region, thorough=len(asked.cells) == 1)
        if near is None:
            return None
        found.append(near)
    return tuple(found)


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """What an analyst knows that may be put together, and when it was measured."""

    known: tuple[Fact, ...]
    made: tuple[datetime, ...]


async def facts_of(store: Releases, analyst: str, question: Question, asked: Shape) -> Mapping[int, Facts]:
    """Everything that the analyst knows of what a shape adds up: of each view the best estimate, by snapshot.

    Where nothing changes all of it is put together, under the number 0.
    """
    relation = question.relation
    shapes = await store.shapes(analyst, relation.id, relation.data_version, asked.summed, _MOST_VIEWS)
    held = await store.find(analyst, list(shapes))
    together = combines(question)
    found: dict[int, Facts] = {}
    for one in slices(question, held)[:_MOST_SNAPSHOTS]:
        facts: list[Fact] = []
        made: list[datetime] = []
        snapshot = 0
        for place, shape in shapes.items():
            there = one[place]
            grid = there.grid
            if grid is None or not there.known.precision(there.releases):
                continue
            there = await store.loaded(analyst, there, there.known.whole)
            values, variance = estimate(there.releases, there.known)
            step = Fraction(grid.sensitivity, grid.parts)
            # Rounded to a whole number of steps, and told by the middle of a step: each time by at most a half.
            rounded = _NOTHING if grid.own and len(there.known.ids) == 1 else step**2
            facts.append(Fact(shape, grid.lattice(values), variance * step**2 + rounded))
            made += [there.paid[id_] for id_ in there.known.ids]
            snapshot = 0 if together else min(there.snapshots[id_] for id_ in there.known.ids)
        if facts:
            found[snapshot] = Facts(tuple(facts), tuple(made))
    return found


def unfiltered(each: Plan, measure: int) -> str:
    """An aggregate as SQL writes it, without its FILTER."""
    return spelled.measure(each.question.measures[measure]).partition(" FILTER (WHERE ")[0]
