"""What may be spent, and what is left: arithmetic on frozen values, without a database.

Amounts are in the deployment's coin. A limit is an (epsilon, delta); it holds if the sum of amounts is within what the
epsilon is worth at ``conversion_delta`` and the sum of deltas within ``payment_delta``.
"""

from __future__ import annotations

from decimal import ROUND_DOWN, ROUND_UP, Context, Decimal, localcontext

from mechanisms.loss import Coin, Loss, amount_within, epsilon_of
from provenance.errors import LimitReached, NotActive
from provenance.model import Allocation, Analyst, Balance, Balances, Deployment, Remaining

MOST_PRIVILEGE = 10
"""DProvDB's l_max, a constant, so that a new analyst changes nobody's limit."""

_UNIT = Decimal("1e-18")
_WIDE = Context(prec=80)


def limit(deployment: Deployment, analyst: Analyst) -> Decimal:
    """The epsilon that the analyst may learn; never above the protected database's."""
    if analyst.epsilon_limit is not None:
        return min(analyst.epsilon_limit, deployment.epsilon)
    match deployment.allocation:
        case Allocation.MAX:
            whole = MOST_PRIVILEGE
        case Allocation.SUM:
            whole = max(deployment.privileges, analyst.privilege)
    with localcontext(_WIDE):
        share = deployment.expansion * deployment.epsilon * analyst.privilege / whole
        return min(share.quantize(_UNIT, ROUND_DOWN), deployment.epsilon)


def epsilon_spent(deployment: Deployment, amount: Decimal) -> Decimal:
    """What an amount of coin means in epsilon, rounded up."""
    return epsilon_of(deployment.coin, amount, deployment.conversion_delta) if amount else Decimal(0)


def remaining(deployment: Deployment, analyst: Analyst, balances: Balances) -> Remaining:
    """What is left in epsilon, never negative."""
    return Remaining(
        analyst=_left(deployment, limit(deployment, analyst), balances.analyst),
        table=_left(deployment, deployment.epsilon, balances.table),
    )


def remaining_epsilon(deployment: Deployment, analyst: Analyst, balances: Balances) -> Decimal:
    """What the analyst can still learn under both limits."""
    return remaining(deployment, analyst, balances).epsilon


def admit(deployment: Deployment, analyst: Analyst, balances: Balances, asked: Loss) -> Balances:
    """The balances after the loss, or the refusal that names the limit in the way.

    *Guarantee*: a fixed-limit filter (Whitehouse et al. 2023): what is admitted keeps every sum within its limit,
    however the next question was chosen.
    """
    if not analyst.active:
        raise not_active(analyst.name)
    if asked.coin is not deployment.coin:
        raise ValueError(f"a loss in {asked.coin.value} cannot be charged to a ledger in {deployment.coin.value}")
    if not (asked.amount.is_finite() and asked.delta.is_finite()) or asked.amount < 0 or asked.delta < 0:
        raise ValueError("a loss is a finite number that is not negative")
    own = _after(deployment, limit(deployment, analyst), balances.analyst, asked, f'analyst "{analyst.name}"')
    table = _after(deployment, deployment.epsilon, balances.table, asked, "the protected database")
    return Balances(analyst=own, table=table)


def not_active(name: str) -> NotActive:
    """The refusal of somebody who may no longer ask, not even for what is already known."""
    return NotActive(f'analyst "{name}" is not active', hint="Ask the administrator.")


def _after(deployment: Deployment, epsilon: Decimal, balance: Balance, asked: Loss, whose: str) -> Balance:
    with localcontext(_WIDE):
        after = Balance(balance.amount + asked.amount, balance.delta + asked.delta)
    # A part that asks for nothing passes, even under a limit that was lowered below what is spent.
    if asked.amount and after.amount > worth(deployment, epsilon):
        left = _left(deployment, epsilon, balance)
        raise LimitReached(
            f"the privacy limit of {whose} is reached",
            detail=f"asked epsilon {shown(epsilon_spent(deployment, asked.amount))}, left {shown(left, ROUND_DOWN)} "
            f"of {shown(epsilon)}; asked {asked.amount.normalize():f} {asked.coin.value}.",
            hint="Ask with less accuracy (a larger veil.margin or veil.beta), repeat an earlier question, "
            "which is free, or have an administrator raise the limit.",
        )
    if asked.delta and after.delta > deployment.payment_delta:
        left = max(Decimal(0), deployment.payment_delta - balance.delta)
        raise LimitReached(
            f"the delta of {whose} is spent",
            detail=f"asked delta {asked.delta}, left {left} of {deployment.payment_delta}.",
            hint="Group by columns with a declared domain: they cost no delta.",
        )
    return after


def worth(deployment: Deployment, epsilon: Decimal) -> Decimal:
    """What an epsilon is worth in coin, rounded down."""
    if epsilon <= 0:
        return Decimal(0)
    return (
        epsilon
        if deployment.coin is Coin.PURE
        else amount_within(deployment.coin, epsilon, deployment.conversion_delta)
    )


def _left(deployment: Deployment, epsilon: Decimal, balance: Balance) -> Decimal:
    with localcontext(_WIDE):
        return max(Decimal(0), epsilon - epsilon_spent(deployment, balance.amount))


def shown(number: Decimal, rounding: str = ROUND_UP) -> str:
    """Six digits after the point, for people."""
    with localcontext(_WIDE):
        text = f"{number.quantize(Decimal('0.000001'), rounding):f}"
    return text.rstrip("0").rstrip(".")
