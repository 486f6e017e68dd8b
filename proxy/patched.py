"""Patches that may be bought: where a limit refuses a question, a piece of it may still be within all limits.

An answer that is known, straightened at an edge by a piece that is measured now, lies nearer to the question (query
relaxation, section 4.3). Which pieces are wanted depends on public regions and on what the ledger allows; a piece is a
question like any other: planned, charged, measured and remembered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from mechanisms.errors import Refusal
from mechanisms.interval import deviation
from mechanisms.loss import Loss, epsilon_of, exact_sum
from provenance.model import Charge, Felt, Part
from provenance.nearby import Fact, Nearby
from provenance.reach import beside
from provenance.region import Region
from provenance.relax import Price, Relaxed
from provenance.releases import Place
from provenance.shape import Shape, shape_of
from provenance.snapshots import combines
from provenance.synopses import Sameness
from provenance.told import told
from proxy.asker import Asker, sameness
from proxy.floor import felt_of
from proxy.numbers import ways
from proxy.plan import Plan, shares_views
from proxy.reading import Reading
from proxy.relaxed import facts_of, unfiltered
from proxy.remembered import remembered
from proxy.runtime import House, Runtime
from proxy.wider import Enumerate
from proxy.wishes import Wishes
from sqlrewrite.term import quoted

_MOST_LOOKS = 40
"""How often the ledger is asked what it would say, for one question."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What would be answered if some pieces were bought, and what they cost, in coin."""

    relaxed: Relaxed
    plans: Mapping[Sameness, Plan]
    cost: Decimal

    @property
    def bought(self) -> list[str]:
        """The pieces."""
        return [told(region) for region in self.relaxed.patches]


@dataclass(slots=True)
class Buyer:
    """Looks for pieces on behalf of one who asks; nothing is spent here."""

    runtime: Runtime
    asker: Asker
    house: House
    reading: Reading
    wishes: Wishes
    enumerate_: Enumerate
    exact: bool = True  # False: limits that analysts share are looked at as EXPLAIN does
    _looks: int = 0

    async def offer(self, each: Plan) -> Offer | None:
        """Pieces that bring the answer nearer to the question than all that is known; None if there are none."""
        question, (share, *others) = each.question, each.shares or (None,)
        single = each.cells is not None and each.cells.size == 1 and not question.keys and not others
        if not single or share is None or question.having is not None or question.unit.column is not None:
            return None
        if not combines(question):  # what is measured now is not put together with what was measured before
            return None
        assert each.cells is not None
        asked = shape_of(question, 0, each.cells)
        known = {} if asked is None else await facts_of(self.runtime.releases, self.asker.name, question, asked)
        if asked is None or not known:
            return None
        (facts,) = known.values()
        self._looks, loop = 0, asyncio.get_running_loop()

        def price(regions: Sequence[Region]) -> Decimal | None:
            return asyncio.run_coroutine_threadsafe(self._price(each, regions), loop).result()

        variance = Fraction(deviation(share) ** 2)
        found = await asyncio.to_thread(_nearer, each, facts.known, asked, price, variance)
        if found is None:
            return None
        plans = await self._plans(each, found.patches)
        return Offer(found, plans, found.cost)

    async def _plans(self, each: Plan, regions: Sequence[Region]) -> dict[Sameness, Plan]:
        """Each piece as a question."""
        relation, aggregate = each.question.relation, unfiltered(each, each.question.statistics[0].terms[0][0])
        name = (relation.schema, relation.name)
        read = replace(
            self.reading,
            resolved={name: name},
            seen=frozenset({name}),
            parameters=(),
            parameter_oids=(),
            in_block=False,
            wrapper=None,
            lifted=None,
        )
        found: dict[Sameness, Plan] = {}
        floor = await self.runtime.floor(self.asker.name, self.house)
        for region in regions:
            text = f"SELECT {aggregate} FROM {quoted(name[0])}.{quoted(name[1])} WHERE {told(region)}"
            (piece,) = (await remembered(text, read, self.house, self.wishes, self.enumerate_, floor)).plans
            found[sameness(self.asker, piece)] = piece
        return found

    async def _price(self, each: Plan, regions: Sequence[Region]) -> Decimal | None:
        """What pieces cost together; None if some limit, or the analyst, does not allow it."""
        self._looks += 1
        if self._looks > _MOST_LOOKS:
            return None
        try:
            pieces = await self._plans(each, regions)
            taken: set[Place] = set()
            charges = {same: await self._charge(piece, taken) for same, piece in pieces.items()}
        except Refusal:
            return None
        for same, charge in charges.items():
            if charge.loss.amount and await self.runtime.synopses.find(same) is not None:
                return None  # known long since, and too long ago to be looked at: it cannot be paid for again
        owed = [charge for charge in charges.values() if charge.loss.amount]
        cost = exact_sum(charge.loss.amount for charge in owed)
        wanted, coin = self.wishes.accuracy, each.loss.coin
        most = wanted.max_epsilon if wanted.epsilon is None else wanted.epsilon
        if most is not None and cost and epsilon_of(coin, cost, each.conversion_delta) > most:
            return None
        refused = bool(owed) and (await self.runtime.ledger.verdict(owed, exact=self.exact)).refusal is not None
        return None if refused else cost

    async def _charge(self, piece: Plan, taken: set[Place]) -> Charge:
        """What the till would be asked for; of two pieces that move one view, the second has noise of its own."""
        relation = piece.question.relation
        found = await ways(self.runtime.releases, self.asker.name, piece) if shares_views(piece) else None
        if found is not None and not found.free:
            if taken & found.moves.keys() or found.dearer_than(piece.most):
                found = None
            else:
                taken.update(found.moves)
        paid = piece if found is not None else piece.raised or piece
        loss, table = paid.loss, paid.loss.amount
        parts: tuple[Part, ...] = ()
        felt: tuple[Felt, ...] = felt_of(piece.question, loss.amount, loss.amount, piece.floor)
        if found is not None:
            loss, table, parts, felt = found.loss, found.table, found.parts, found.felt
            loss = Loss.nothing(loss.coin) if found.free else loss
        if loss.amount:
            piece.refuse_if_dear()
        return Charge(
            *(self.asker.name, relation.id, relation.data_version, self.house.catalog.version, piece.digest, ""),
            *(piece.mechanism, loss),
            table=min(table, loss.amount),
            parts=parts if loss.amount else (),
            felt=felt if loss.amount else (),
            beside=beside(piece.question),
        )


def _nearer(each: Plan, facts: Sequence[Fact], asked: Shape, price: Price, variance: Fraction) -> Relaxed | None:
    """The compound with pieces, if it lies nearer than all that can be had for nothing."""
    (region,) = asked.cells
    known = Nearby(each.question.relation, facts, asked.cells)
    free = known.find(region)
    if free is not None and not free.error:
        return None
    found = known.patched(region, price, variance)
    return found if found is not None and (free is None or found.error < free.error) else None
