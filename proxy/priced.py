"""One question with what it would cost now, for EXPLAIN."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal

from mechanisms.loss import Loss, epsilon_of
from provenance.model import Charge, Felt
from provenance.reach import beside
from provenance.told import told
from proxy.asker import Asker
from proxy.floor import felt_of
from proxy.patched import Offer
from proxy.plan import Plan
from proxy.relaxed import Relaxed
from proxy.runtime import House
from proxy.view_updates import Ways


@dataclass(frozen=True, slots=True)
class Priced:
    """One question with what it would cost now."""

    plan: Plan
    known: bool  # free, or answered before
    ways: Ways | None
    nearby: Relaxed | None = None
    offer: Offer | None = None

    @property
    def expected(self) -> Loss:
        """What it usually costs: a fixed price, what is new in its views, or what decisions like it took."""
        if self.known:
            return Loss.nothing(self.plan.loss.coin)
        if self.ways is not None:
            return self.ways.loss
        staged = self.plan.staged
        return self.plan.loss if staged is None else self.at_least(self.plan.loss + staged.usual())

    @property
    def table(self) -> Decimal:
        """What the protected database would lose, in coin."""
        return self.expected.amount if self.known or self.ways is None else self.ways.table

    @property
    def felt(self) -> tuple[Felt, ...]:
        """Where that would fall."""
        if self.known or self.ways is None:
            return felt_of(self.plan.question, self.expected.amount, self.table, self.plan.floor)
        return self.ways.felt

    @property
    def least(self) -> float | None:
        """The least price of its scan, as epsilon; None where there is none, or nothing is read."""
        each = self.plan
        if self.known or not each.floor or (self.ways is not None and not self.ways.looks):
            return None
        return float(epsilon_of(each.loss.coin, each.floor, each.conversion_delta))

    @property
    def regions(self) -> list[str]:
        """Whom it would cost more than the least price of its scan, as conditions."""
        above = self.felt[1:] if self.least is not None and len(self.felt) > 1 else self.felt
        return list(dict.fromkeys(told(each.region) if each.region.sides else "everybody" for each in above))

    def at_least(self, loss: Loss) -> Loss:
        """What a decision costs that would reach this loss."""
        return replace(loss, amount=max(loss.amount, self.plan.floor))

    def charge(self, asker: Asker, house: House) -> Charge:
        """As much of it as the limits are about."""
        relation, parts = self.plan.question.relation, () if self.ways is None else self.ways.parts
        return Charge(
            *(asker.name, relation.id, relation.data_version, house.catalog.version, self.plan.digest, ""),
            *(self.plan.mechanism, self.expected),
            table=self.table,
            parts=parts,
            felt=self.felt,
            beside=beside(self.plan.question),
        )

    @property
    def epsilon(self) -> float:
        """Its own, if it costs that."""
        return self.at(self.expected)

    def at(self, loss: Loss) -> float:
        """The question's own epsilon at a loss."""
        each = self.plan
        if self.known or not loss.amount:
            return 0.0
        converted = each.staged is not None or self.ways is not None
        return float(epsilon_of(loss.coin, loss.amount, each.conversion_delta) if converted else each.epsilon)
