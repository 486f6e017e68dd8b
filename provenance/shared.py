"""What an analyst sees of limits that are shared with others: the protected database's, a coalition's, a view's.

How much of such a limit is left says what others have paid a moment ago. An analyst sees the own remainder exactly, and
that of a shared limit only in tenths of it, and only where it is smaller than the own one. EXPLAIN, which costs nothing
and could be asked again and again with another price, decides by tenths as well.

*Guarantee*: everything here is a function of the analyst's own balance and of ``ceil(10 * left / limit)`` or ``floor``
of it for each shared limit. So between two steps nothing that an analyst can see without paying depends on what others
pay; over the life of a limit there are ten steps. What remains: whether a question that the own limit allows is refused
(53400), which an analyst learns by asking it, and pays for if it is not refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from provenance.accountant import grown, left_of, worth
from provenance.errors import LimitReached
from provenance.model import STEPS, Balance, Balances, Deployment

_LEAST = Decimal("1e-18")


def rounded(deployment: Deployment, balances: Balances, *, up: bool) -> Balances:
    """The balances as if of each shared limit as many tenths were left as are begun (``up``) or whole."""
    most = grown(deployment, deployment.epsilon)
    group = balances.coalition
    return replace(
        balances,
        table=_rounded(deployment, most, balances.table, up),
        coalition=None if group is None else _rounded(deployment, most, group, up),
        views={
            id_: one
            if one.epsilon_limit is None
            else replace(one, spent=_amount(deployment, grown(deployment, one.epsilon_limit), one.spent, up))
            for id_, one in balances.views.items()
        },
        relations={
            id_: replace(one, spent=_amount(deployment, grown(deployment, one.epsilon_limit), one.spent, up))
            for id_, one in balances.relations.items()
        },
    )


def foreseen(
    deployment: Deployment, balances: Balances, refusal: Callable[[Balances], LimitReached | None]
) -> LimitReached | None:
    """What can be said beforehand of a question: nothing against it, a refusal, or that there may be one.

    ``refusal`` says what balances would refuse it.
    """
    sure = refusal(rounded(deployment, balances, up=True))
    if sure is not None:
        return sure
    maybe = refusal(rounded(deployment, balances, up=False))
    if maybe is None:
        return None
    return LimitReached(
        f"{maybe.message}, or will be soon",
        detail="What is left of a limit that others share is shown in tenths: the question may be answered or refused.",
        hint=maybe.hint,
    )


def _rounded(deployment: Deployment, most: Decimal, balance: Balance, up: bool) -> Balance:
    delta = deployment.payment_delta * deployment.periods
    spent = delta - _tenths(delta - balance.delta, delta, up)
    return Balance(_amount(deployment, most, balance.amount, up), spent)


def _amount(deployment: Deployment, most: Decimal, spent: Decimal, up: bool) -> Decimal:
    left = _tenths(left_of(deployment, most, Balance(spent)), most, up)
    amount = worth(deployment, most - left)
    # Every worth is rounded down, and what is spent is not understated; what counts for nothing fits all the same.
    return amount if up else min(amount + _LEAST, worth(deployment, most))


def _tenths(left: Decimal, most: Decimal, up: bool) -> Decimal:
    if most <= 0 or left <= 0:
        return Decimal(0)
    whole = (left * STEPS / most).to_integral_value(ROUND_CEILING if up else ROUND_FLOOR)
    return most * whole / STEPS
