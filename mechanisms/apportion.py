"""A question's accuracy divided among its statistics: which noise each of them gets, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from mechanisms.accuracy import Accuracy
from mechanisms.errors import AccuracyUnreachable
from mechanisms.loss import WIDE, round_down
from mechanisms.threshold import Share, for_interval, interval_at, tslm, tslm_at


@dataclass(frozen=True, slots=True)
class Ask:
    """What is wanted of one statistic, in lattice numbers."""

    sensitivity: int  # the most that one unit moves it in one cell
    margin: int
    decided: bool  # an atom of HAVING compares it
    shown: bool  # its value is part of the answer


def apportion(asks: Sequence[Ask], accuracy: Accuracy, *, longest: int, touched: int) -> tuple[Share, ...]:
    """One share for each statistic.

    ``longest`` is the size of the largest prime implicant of the HAVING tree, ``touched`` the number of cells that
    one unit moves. *Guarantee*: a group that truly qualifies satisfies every atom of some prime implicant, and is
    missed only if one of them is missed: at most ``longest`` times beta/longest (union bound; the noises may be
    shared).
    """
    if not asks:
        return ()
    beta = round_down(WIDE.divide(accuracy.beta, Decimal(max(1, longest))))
    if accuracy.epsilon is not None:
        each = round_down(WIDE.divide(accuracy.epsilon, Decimal(len(asks) * touched)))
        return tuple(_at(ask, each, beta, accuracy.confidence) for ask in asks)
    shares = tuple(_cheapest(ask, beta, accuracy.confidence) for ask in asks)
    total = sum((share.epsilon for share in shares), Decimal(0)) * touched
    if accuracy.max_epsilon is not None and total > accuracy.max_epsilon:
        factor = WIDE.divide(total, accuracy.max_epsilon)
        raise AccuracyUnreachable(
            "the accuracy asked for costs more than one question may spend",
            detail=f"needed: epsilon {total:.6f}; allowed: {accuracy.max_epsilon}",
            hint=f"A margin about {factor:.2f} times as wide would do (veil.margin), or SET veil.epsilon.",
        )
    return shares


def _cheapest(ask: Ask, beta: Decimal, confidence: Decimal) -> Share:
    if not ask.decided:
        return for_interval(ask.sensitivity, ask.margin, confidence)
    share = tslm(ask.sensitivity, ask.margin, beta)
    if not ask.shown:
        return share
    number = for_interval(ask.sensitivity, ask.margin, confidence)
    return share if share.epsilon >= number.epsilon else tslm_at(ask.sensitivity, number.epsilon, beta)


def _at(ask: Ask, epsilon: Decimal, beta: Decimal, confidence: Decimal) -> Share:
    if ask.decided:
        return tslm_at(ask.sensitivity, epsilon, beta)
    return interval_at(ask.sensitivity, epsilon, confidence)
