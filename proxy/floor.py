"""The least price of a scan: what a question costs at least if protected rows are read for it.

Time depends on every row that is read, so a question that reads is charged at least ``deployment.scan_floor`` of the
analyst's limit, on the whole relation; an analyst then sees no more timings than 1 / ``scan_floor``. A question that
would be cheaper gets the accuracy that the least price buys. All of this follows from the text, the settings, the
registry and the analyst's limit: nothing here has seen data. (Also here: how groups of an unknown domain are hidden,
whose price is raised like any other.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_DOWN, Decimal
from functools import lru_cache
from typing import TYPE_CHECKING

from mechanisms.accuracy import Accuracy
from mechanisms.apportion import Ask, at_least, own_epsilon
from mechanisms.errors import AccuracyUnreachable
from mechanisms.loss import (
    QUANTUM,
    WIDE,
    Coin,
    Loss,
    amount_within,
    epsilon_of,
    exact_difference,
    exact_product,
    exact_sum,
    round_down,
)
from mechanisms.threshold import Share, key_threshold
from provenance.accountant import shown
from provenance.model import Felt
from provenance.plan import Cost
from provenance.reach import reach
from provenance.region import EVERYWHERE
from sqlrewrite.errors import NotAnswered
from sqlrewrite.question import Question

if TYPE_CHECKING:
    from proxy.plan import Plan
    from proxy.runtime import House
    from proxy.view_updates import Move

_NONE = Decimal(0)
_OPEN_QUESTIONS = 100
"""How many questions over unknown domains the deployment's delta pays for."""


@dataclass(frozen=True, slots=True)
class Presence:
    """How groups of an unknown domain are hidden: noise on their number of units, and from where on they are named."""

    share: Share
    threshold: int
    delta: Decimal


def payment_of(question: Question, house: House) -> Decimal:
    """The delta that hides single units in groups of an unknown domain: a hundredth of what may be paid in all."""
    delta = (house.versions.payment_delta / _OPEN_QUESTIONS).quantize(QUANTUM, ROUND_DOWN)
    if delta <= 0:
        raise NotAnswered(
            "a key has no declared domain, and this deployment pays no delta to hide single groups",
            hint="The administrator can declare the domain: SELECT provenance.declare_attribute("
            f"'{question.relation.qualified}', column, members => ARRAY[...]).",
        )
    return delta


@lru_cache(maxsize=256)
def floor_amount(coin: Coin, limit: Decimal, delta: Decimal, fraction: Decimal) -> Decimal:
    """The least price of a scan, in coin, for an analyst with this limit in epsilon.

    *Guarantee*: no more than 1 / ``fraction`` scans fit in what the limit is worth, as long as so many times the last
    digit of the ledger (1e-18) is less than one scan.
    """
    if limit <= 0 or fraction <= 0:
        return Decimal(0)
    worth = limit if coin is Coin.PURE else amount_within(coin, limit, delta)
    return max(QUANTUM, round_down(WIDE.multiply(worth, fraction)))


@dataclass(frozen=True, slots=True)
class Floor:
    """The least price of a scan, and how it is told as epsilon."""

    amount: Decimal
    coin: Coin
    delta: Decimal

    @property
    def epsilon(self) -> Decimal:
        return epsilon_of(self.coin, self.amount, self.delta)

    def price(self, accuracy: Accuracy) -> Accuracy:
        """A price that was asked for (``veil.epsilon``), raised to the floor."""
        if accuracy.epsilon is None or not self.amount or accuracy.epsilon >= self.epsilon:
            return accuracy
        return replace(accuracy, epsilon=self.epsilon)

    def tried(self, priced: Callable[[Accuracy], tuple[Share, ...]], accuracy: Accuracy) -> tuple[Share, ...]:
        """The shares at this accuracy; where its price is too small for any answer, those at the floor."""
        try:
            return priced(accuracy)
        except AccuracyUnreachable:
            enough = self.price(accuracy)
            if enough is accuracy:
                raise
            return priced(enough)

    def refusal(self, accuracy: Accuracy) -> AccuracyUnreachable | None:
        """Why a question that has to be measured costs more than the analyst lets it spend."""
        most = accuracy.max_epsilon
        if most is None or not self.amount or self.epsilon <= most:
            return None
        return AccuracyUnreachable(
            "a question that reads protected rows costs more than one question may spend",
            detail=f"needed: epsilon {shown(self.epsilon)}, the least price of a scan; allowed: {most}",
            hint=f"SET veil.max_epsilon = '{shown(self.epsilon)}' or higher, or ask for what you already know.",
        )

    def raised(self, base: Plan, asks: tuple[Ask, ...], accuracy: Accuracy, longest: int, views: bool) -> Plan:
        """The plan with the floor in it.

        Where its numbers come from views (``views``), what is known already may be enough for what was asked for: the
        plan keeps its accuracy, and ``Plan.raised`` has that of a measurement. A decision in stages may cost more than
        it now seems, so its floor is looked after when it is charged and settled (``proxy.charging``).
        """
        base = replace(base, floor=self.amount)
        if base.staged is not None or base.loss.amount >= self.amount:
            return base
        if base.question.relation.noise_magnitude is not None:
            finer = replace(base, loss=replace(base.loss, amount=self.amount), epsilon=self.epsilon)
        else:
            finer = self._finer(base, asks, accuracy, longest)
        return replace(base, raised=finer) if views else finer

    def _finer(self, base: Plan, asks: tuple[Ask, ...], accuracy: Accuracy, longest: int) -> Plan:
        touched = base.contribution.cells
        bought = at_least(asks, base.paid, self.amount, accuracy, longest=longest, touched=touched, coin=self.coin)
        following, presence = iter(bought), base.presence
        shares = tuple(None if share is None else next(following) for share in base.shares)
        if presence is not None:
            last = next(following)
            presence = replace(presence, share=last, threshold=key_threshold(last, presence.delta, touched))
        return replace(
            base,
            shares=shares,
            presence=presence,
            loss=Loss(self.coin, max(self.amount, exact_product(_sum(bought, self.coin), touched)), base.loss.delta),
            epsilon=own_epsilon(bought, touched, self.delta),
        )


def _sum(shares: tuple[Share, ...], coin: Coin) -> Decimal:
    return exact_sum(share.loss(coin).amount for share in shares)


def felt_of(question: Question, amount: Decimal, table: Decimal, floor: Decimal) -> tuple[Felt, ...]:
    """Where a price falls: as much as the floor everywhere, and what is above it on the question's own region."""
    region = reach(question)
    if not floor or not amount or region == EVERYWHERE:
        return (Felt(region, amount, table),)
    least = Felt(EVERYWHERE, min(floor, amount), min(floor, table))
    above = Felt(region, exact_difference(amount, least.amount), exact_difference(table, least.table))
    return (least, above) if above.amount else (least,)


# -- Scans of views: the moves of ``proxy.numbers`` that read data, by the statement that reads it --------------------


def below(scans: Sequence[Sequence[Move]], floor: Decimal) -> Cost:
    """What is paid on top of all moves, since each scan costs at least the floor."""

    def missing(costs: Iterable[Decimal]) -> Decimal:
        return max(_NONE, exact_difference(floor, exact_sum(costs)))

    analyst = exact_sum(missing(move.cost.analyst for move in scan) for scan in scans)
    return Cost(analyst, exact_sum(missing(move.cost.database for move in scan) for scan in scans))


def bought_by(moves: Sequence[Move], floor: Decimal) -> tuple[Decimal, ...]:
    """What the floor of its scan buys for each number, whose move this is, in proportion to what each costs without."""
    together: dict[int, Decimal] = {}
    for move in moves:
        if move.step.grow is not None:
            before = together.get(id(move.question), _NONE)
            together[id(move.question)] = exact_sum((before, move.cost.database))
    return tuple(
        WIDE.divide(WIDE.multiply(floor, move.cost.database), together[id(move.question)])
        if move.step.grow is not None
        else _NONE
        for move in moves
    )


def felt_by(moves: Iterable[Move], scans: Sequence[Sequence[Move]], floor: Decimal) -> tuple[Felt, ...]:
    """Where moves are felt: of what those of a scan cost, as much as the floor falls everywhere instead.

    *Guarantee*: no unit loses less than without the floor, since what is taken from all moves of a scan together is at
    most what falls everywhere for it.
    """
    taken = {id(scan[0].question): (floor, floor) for scan in scans}
    least = exact_product(floor, len(scans))
    felt = [Felt(EVERYWHERE, least, least)] if least else []
    for move in moves:
        one = move.felt
        if move.step.grow is not None:
            own, table = taken[id(move.question)]
            amount = max(_NONE, exact_difference(one.amount, own))
            lost = max(_NONE, exact_difference(one.table, table))
            taken[id(move.question)] = (
                exact_difference(own, exact_difference(one.amount, amount)),
                exact_difference(table, exact_difference(one.table, lost)),
            )
            one = Felt(one.region, amount, lost)
        if one.amount:
            felt.append(one)
    return tuple(felt)
