"""A staged decision and the till: before each stage what it may spend is reserved, and at the end what it reached is
settled.

Reservations grow with what was spent, so that a question holds little more than it needs and still takes only a few
turns at the till. A question that ends in a refusal has spent what it reached: that is settled and told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np

from mechanisms.account import Index
from mechanisms.course import Course
from mechanisms.decision import Decision, Mask
from mechanisms.entropy import entropy_bound, min_entropy, normalised
from mechanisms.errors import AccuracyUnreachable, Refusal
from mechanisms.loss import Coin, Loss, epsilon_of, exact_difference, exact_product, exact_sum
from mechanisms.release import Staged
from provenance.accountant import shown
from provenance.errors import LimitReached, NotActive, NotSettledError
from provenance.ledger import Ledger
from provenance.model import PredicateLoss, Receipt, Remaining
from provenance.region import Part

log = logging.getLogger("pgveil")

_NONE = Decimal(0)
_AHEAD = 2
"""How many times its next need a question reserves."""
_EXACT_GROUPS = 2000
"""With more groups than this the min-entropy is bounded rather than computed."""


@dataclass(frozen=True, slots=True)
class Paid:
    """What a question cost in the end, and what is left."""

    loss: Loss
    epsilon: Decimal  # the question's own loss
    remaining: Remaining

    @classmethod
    def at_once(cls, receipt: Receipt) -> Paid:
        """At a fixed price; also of a question that could not be settled: all that was reserved stays spent."""
        return cls(receipt.paid, receipt.epsilon, receipt.remaining)


def reserved(course: Course, fixed: Loss, most: Decimal, credit: Decimal = _NONE) -> Loss:
    """What is reserved before anything is read: the fixed part of the question, and room for its first stages.

    ``credit``, here and below, is what the row of the scan has paid of it (``proxy.charging``).
    """
    return Loss(fixed.coin, max(_NONE, _ahead(fixed, course.need, most) - credit), fixed.delta)


async def decide(
    ledger: Ledger,
    receipt: Receipt,
    course: Course,
    staged: Staged,
    fixed: Loss,
    most: Decimal,
    delta: Decimal,
    credit: Decimal = _NONE,
) -> tuple[Decision, Receipt]:
    """Bring a decision to its end, reserving on the way; ``most`` bounds the whole question.

    *Guarantee*: nothing is released that the receipt and the credit do not cover; a refusal is raised after what was
    spent is settled, and tells it.
    """
    course.measured(staged)
    try:
        while True:
            paid = Loss(
                fixed.coin, max(_NONE, exact_difference(exact_sum((receipt.paid.amount, credit)), fixed.amount))
            )
            # In a thread: a decision about many groups takes seconds, and other sessions go on meanwhile.
            decision = await asyncio.to_thread(course.advance, paid)
            if decision is not None:
                return decision, receipt
            receipt = await _reserve(ledger, receipt, course, fixed, most, credit)
    except (AccuracyUnreachable, LimitReached, NotActive) as refusal:
        raise await _told(ledger, receipt, staged, refusal, delta, credit) from None


async def settle(
    ledger: Ledger,
    receipt: Receipt,
    staged: Staged,
    fixed: Loss,
    decision: Decision,
    bill: Mapping[str, Any],
    numbers: Decimal,
    delta: Decimal,
    levels: Callable[[PredicateLoss], Sequence[Part]] = lambda groups: (),
    credit: Decimal = _NONE,
) -> Paid:
    """Give back what was not reached; ``numbers`` is what each kept group lost beside the decision.

    ``levels`` tells where what groups lost falls.
    """
    spent = staged.spent()
    reached = Loss(
        spent.coin, max(_NONE, exact_difference(exact_sum((spent.amount, fixed.amount)), credit)), fixed.delta
    )
    groups = predicate_loss(*staged.cells(), decision.kept, numbers, spent.coin, delta)
    if credit:  # every group bears the scan already
        beyond = tuple(max(_NONE, exact_difference(level, credit)) for level in groups.levels)
        groups = replace(groups, levels=beyond)
    try:
        settled = await ledger.settle(receipt, reached, None, bill, groups, levels(groups))
    except NotSettledError:
        log.error("charge %s could not be settled: all that was reserved stays spent", receipt.id)
        return Paid.at_once(receipt)
    return Paid(settled.loss, settled.epsilon, settled.remaining)


async def give_back(ledger: Ledger, receipts: Sequence[Receipt]) -> None:
    """Settle decisions that never began: nothing was read for them."""
    for receipt in receipts:
        try:
            await ledger.settle(receipt, Loss.nothing(receipt.paid.coin), None, {"refused": "not begun"})
        except NotSettledError:
            log.error("charge %s could not be settled: all that was reserved stays spent", receipt.id)


def predicate_loss(
    losses: tuple[Decimal, ...], index: Index, kept: Mask, numbers: Decimal, coin: Coin, delta: Decimal
) -> PredicateLoss:
    """What each group lost, with the min-entropy of it (1: an adversary has learnt nothing)."""
    both = (*losses, *(exact_sum((loss, numbers)) for loss in losses))
    places = index + len(losses) * kept
    used, renamed = np.unique(places, return_inverse=True)
    levels = tuple(both[place] for place in used.tolist())
    counts = np.bincount(renamed, minlength=len(levels)).tolist()
    epsilons = [float(epsilon_of(coin, level, delta) if coin is Coin.ZCDP and level else level) for level in levels]
    least = min_entropy if len(index) <= _EXACT_GROUPS else entropy_bound
    entropy = normalised(least(epsilons, counts), len(index)) if len(index) else 1.0
    return PredicateLoss(levels, renamed.astype(np.int64), entropy)


def _ahead(fixed: Loss, need: Loss, most: Decimal) -> Decimal:
    exactly = exact_sum((fixed.amount, need.amount))
    return max(exactly, min(exact_sum((fixed.amount, exact_product(need.amount, _AHEAD))), most))


async def _reserve(
    ledger: Ledger, receipt: Receipt, course: Course, fixed: Loss, most: Decimal, credit: Decimal
) -> Receipt:
    """Room for the next stages, or at least for the next one."""
    held = exact_sum((receipt.paid.amount, credit))
    wanted = exact_difference(_ahead(fixed, course.need, most), held)
    least = exact_difference(exact_sum((fixed.amount, course.need.amount)), held)
    try:
        return await ledger.reserve_more(receipt, Loss(fixed.coin, wanted))
    except LimitReached:
        if wanted == least:
            raise
    return await ledger.reserve_more(receipt, Loss(fixed.coin, least))


async def _told(
    ledger: Ledger, receipt: Receipt, staged: Staged, refusal: Refusal, delta: Decimal, credit: Decimal
) -> Refusal:
    """The refusal, with what was spent before it; what was reserved beyond that is given back."""
    spent_ = staged.spent()
    reached = Loss(spent_.coin, max(_NONE, exact_difference(spent_.amount, credit)), spent_.delta)
    try:
        settled = await ledger.settle(receipt, reached, None, {"refused": refusal.message})
        epsilon, charged = settled.epsilon, settled.loss
    except NotSettledError:
        charged = receipt.paid
        epsilon = epsilon_of(charged.coin, charged.amount, delta)
    if credit:
        charged = charged + Loss(charged.coin, credit)
        epsilon = epsilon_of(charged.coin, charged.amount, delta)
    spent = f"spent on the way: epsilon {shown(epsilon)}, {charged.amount.normalize():f} {charged.coin.value}"
    detail = spent if refusal.detail is None or isinstance(refusal, LimitReached) else f"{refusal.detail}; {spent}"
    kind = AccuracyUnreachable if isinstance(refusal, AccuracyUnreachable) else type(refusal)
    return kind(refusal.message, detail=detail, hint=refusal.hint)
