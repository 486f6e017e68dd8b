"""What may be spent, and what is left: arithmetic on frozen values, without a database.

Amounts are in the deployment's coin. A limit is an (epsilon, delta); it holds if the sum of amounts is within what the
epsilon is worth at ``conversion_delta`` and the sum of deltas within ``payment_delta``. ``fold`` does what the
database's triggers do: it takes the rows of the journal, one by one, into balances.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_DOWN, ROUND_UP, Context, Decimal, Inexact, InvalidOperation, localcontext

from mechanisms.loss import Coin, Loss, amount_within, epsilon_of
from provenance.errors import LimitReached, NotActive, SettlementError
from provenance.model import (
    Account,
    Allocation,
    Analyst,
    Balance,
    Balances,
    Books,
    Deployment,
    Entry,
    Remaining,
    Stage,
)

MOST_PRIVILEGE = 10
"""DProvDB's l_max, a constant, so that a new analyst changes nobody's limit."""

_UNIT = Decimal("1e-18")
_WIDE = Context(prec=80)
_EXACT = Context(prec=200, traps=[InvalidOperation, Inexact])


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


def less(whole: Loss, part: Loss) -> Loss:
    """What is left of a loss without a part of it, to the last digit; a part that is more than the whole is an error.

    *Guarantee*: what was paid less what was reached is what comes back: never more than was paid.
    """
    if whole.coin is not part.coin:
        raise SettlementError(f"{part.coin.value} is no part of {whole.coin.value}")
    if part.amount > whole.amount or part.delta > whole.delta:
        raise SettlementError(f"{part} is more than {whole}")
    return Loss(whole.coin, _EXACT.subtract(whole.amount, part.amount), _EXACT.subtract(whole.delta, part.delta))


def settle(balances: Balances, back: Loss) -> Balances:
    """The balances after a settlement: both limits regain the same."""
    amount, delta = back.amount.copy_negate(), back.delta.copy_negate()
    return Balances(analyst=_moved(balances.analyst, amount, delta), table=_moved(balances.table, amount, delta))


def fold(journal: Iterable[Entry]) -> Books:
    """What the rows of a journal add up to; a row that the database would not have taken is an error."""
    table, analysts, questions = Balance(), dict[str, Balance](), dict[int, Account]()
    for entry in journal:
        questions[entry.question] = _follow(questions.get(entry.question), entry)
        table = _moved(table, entry.amount, entry.delta)
        analysts[entry.analyst] = _moved(analysts.get(entry.analyst, Balance()), entry.amount, entry.delta)
    return Books(table, analysts, questions)


def _follow(before: Account | None, entry: Entry) -> Account:
    """The question's account after one more row."""
    wrong = SettlementError(f"the journal cannot hold {entry} after {before}")
    if not (entry.amount.is_finite() and entry.delta.is_finite()):
        raise wrong
    sign = -1 if entry.stage is Stage.SETTLE else 1
    if sign * entry.amount < 0 or sign * entry.delta < 0:
        raise wrong
    if before is None:
        if entry.id != entry.question or entry.stage is Stage.SETTLE:
            raise wrong
        return Account(entry.analyst, entry.stage is Stage.RESERVE, False, Balance(entry.amount, entry.delta))
    if not before.staged or before.settled or entry.stage is Stage.CHARGE or entry.analyst != before.analyst:
        raise wrong
    net = _moved(before.net, entry.amount, entry.delta)
    if net.amount < 0 or net.delta < 0:
        raise wrong
    return Account(before.analyst, True, entry.stage is Stage.SETTLE, net)


def _moved(balance: Balance, amount: Decimal, delta: Decimal) -> Balance:
    return Balance(_EXACT.add(balance.amount, amount), _EXACT.add(balance.delta, delta))


def not_active(name: str) -> NotActive:
    """The refusal of somebody who may no longer ask, not even for what is already known."""
    return NotActive(f'analyst "{name}" is not active', hint="Ask the administrator.")


def _after(deployment: Deployment, epsilon: Decimal, balance: Balance, asked: Loss, whose: str) -> Balance:
    after = _moved(balance, asked.amount, asked.delta)
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
