"""What may be spent, and what is left: arithmetic on frozen values, without a database.

Amounts are in the deployment's coin. A limit is an (epsilon, delta); it holds if the sum of amounts is within what the
epsilon is worth at ``conversion_delta`` and the sum of deltas within ``payment_delta``. Where there are periods, both
count once for each that has begun (``grown``); what was spent never comes back. ``fold`` does what the database's
triggers do: it takes the rows of the journal, one by one, into balances.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import ROUND_DOWN, ROUND_UP, Context, Decimal, Inexact, InvalidOperation, localcontext
from fractions import Fraction

from mechanisms.loss import Coin, Loss, amount_within, epsilon_of
from provenance.errors import LimitReached, NotActive, SettlementError, paused
from provenance.model import (
    Account,
    Allocation,
    Analyst,
    Balance,
    Balances,
    Books,
    Deployment,
    Entry,
    Grant,
    Lending,
    Limited,
    Remaining,
    Room,
    Stage,
    View,
)

MOST_PRIVILEGE = 10
"""DProvDB's l_max, a constant, so that a new analyst changes nobody's limit."""

_UNIT = Decimal("1e-18")
_WIDE = Context(prec=80)
EXACT = Context(prec=200, traps=[InvalidOperation, Inexact])
"""Sums of what was spent lose no digit."""


def limit(deployment: Deployment, analyst: Analyst) -> Decimal:
    """The epsilon that the analyst may learn, all periods together; never above the protected database's."""
    if analyst.epsilon_limit is not None:
        return grown(deployment, analyst.epsilon_limit)
    match deployment.allocation:
        case Allocation.MAX:
            whole = MOST_PRIVILEGE
        case Allocation.SUM:
            whole = max(deployment.privileges, analyst.privilege)
    with localcontext(_WIDE):
        share = deployment.expansion * deployment.epsilon * analyst.privilege / whole
    return grown(deployment, share.quantize(_UNIT, ROUND_DOWN, _WIDE))


def grown(deployment: Deployment, epsilon: Decimal) -> Decimal:
    """What a limit of so much epsilon allows, all periods together: the coin that it is worth for each of them.

    *Guarantee*: never above the protected database's, and that is what as many deployments on the same people, one
    after the other, would lose together.
    """
    most = min(epsilon, deployment.epsilon)
    if deployment.periods == 1:
        return most
    return epsilon_spent(deployment, EXACT.multiply(worth(deployment, most), Decimal(deployment.periods)))


def epsilon_spent(deployment: Deployment, amount: Decimal) -> Decimal:
    """What an amount of coin means in epsilon, rounded up."""
    return epsilon_of(deployment.coin, amount, deployment.conversion_delta) if amount else Decimal(0)


def remaining(deployment: Deployment, analyst: Analyst, balances: Balances) -> Remaining:
    """What is left in epsilon, never negative."""
    own, of_table = _limits(deployment, analyst, balances)
    return Remaining(left_of(deployment, *own), left_of(deployment, *of_table), of_table[0])


def room(deployment: Deployment, analyst: Analyst, balances: Balances) -> Room:
    """What is left in coin, never negative.

    *Guarantee*: whoever spends the half has at least half of ``remaining`` left.
    """
    both = _limits(deployment, analyst, balances)
    return Room(
        whole=min(_within(deployment, most, spent) for most, spent in both),
        half=min(_within(deployment, most - left_of(deployment, most, spent) / 2, spent) for most, spent in both),
    )


def _limits(
    deployment: Deployment, analyst: Analyst, balances: Balances
) -> tuple[tuple[Decimal, Balance], tuple[Decimal, Balance]]:
    """The analyst's limit with what counts against it, and the same of the protected database."""
    own, spare = limit(deployment, analyst), spare_of(balances.lending)
    if spare:
        own = epsilon_spent(deployment, EXACT.add(worth(deployment, own), spare))
    return (own, _counted(balances)), (
        grown(deployment, deployment.epsilon),
        balances.coalition or balances.table,
    )


def remaining_epsilon(deployment: Deployment, analyst: Analyst, balances: Balances) -> Decimal:
    """What the analyst can still learn under both limits."""
    return remaining(deployment, analyst, balances).epsilon


def admit(
    deployment: Deployment,
    analyst: Analyst,
    balances: Balances,
    asked: Loss,
    table: Decimal | None = None,
    views: Mapping[int, Decimal] | None = None,
    counted: tuple[Decimal, Decimal] | None = None,
    relations: Sequence[int] = (),
) -> Balances:
    """The balances after the loss, or the refusal that names the limit in the way.

    ``table`` is what the protected database itself loses (None: as much as the analyst learns), ``views`` what the
    global synopsis of each view loses. ``counted`` is by how much the balances of the analyst and of the protected
    database move (None: in full): not at all where other regions have lost more, down where a bound became tighter.
    ``relations`` are what the question reads: the first, if it has a limit of its own, moves as the protected database
    does, and any other in full, since nothing is known of where it is touched.

    *Guarantee*: a fixed-limit filter (Whitehouse et al. 2023): what is admitted keeps every sum within its limit,
    however the next question was chosen.
    """
    if not analyst.active:
        raise not_active(analyst.name)
    if analyst.paused:
        raise paused(analyst.name)
    if asked.coin is not deployment.coin:
        raise ValueError(f"a loss in {asked.coin.value} cannot be charged to a ledger in {deployment.coin.value}")
    if not (asked.amount.is_finite() and asked.delta.is_finite()) or asked.amount < 0 or asked.delta < 0:
        raise ValueError("a loss is a finite number that is not negative")
    lost = asked if table is None else Loss(asked.coin, table, asked.delta)
    more, of_table = (asked.amount, lost.amount) if counted is None else counted
    if more > asked.amount or of_table > lost.amount:
        raise ValueError("a charge counts at most what it costs")
    own, before, spare = limit(deployment, analyst), _counted(balances), spare_of(balances.lending)
    _after(deployment, own, before, asked, more, f'analyst "{analyst.name}"', spare)
    over = EXACT.subtract(EXACT.add(before.amount, more), max(before.amount, worth(deployment, own)))
    group, most = balances.coalition, grown(deployment, deployment.epsilon)
    if group is None:
        _after(deployment, most, balances.table, lost, of_table, "the protected database", shared=True)
    else:
        # Others may have paid for what the group learns now, so that it counts as the analyst's (DProvDB, section 7).
        group = _after(deployment, most, group, asked, more, f'the coalition of analyst "{analyst.name}"', shared=True)
    after = {id_: _view_after(deployment, balances.views[id_], lost) for id_, lost in (views or {}).items()}
    return Balances(
        analyst=_moved(balances.analyst, more, asked.delta),
        table=_moved(balances.table, of_table, lost.delta),
        views={**balances.views, **after},
        lending=_drawn(balances.lending, max(over, Decimal(0))),
        coalition=group,
        relations=_limited_after(deployment, balances.relations, relations, lost, of_table),
    )


def _limited_after(
    deployment: Deployment, limited: Mapping[int, Limited], read: Sequence[int], lost: Loss, counted: Decimal
) -> Mapping[int, Limited]:
    """The relations that have a limit of their own after a question that reads some of them, or the refusal."""
    after, asked = dict(limited), replace(lost, delta=Decimal(0))
    for place, relation in enumerate(read):
        one = limited.get(relation)
        if one is not None:
            most, more = grown(deployment, one.epsilon_limit), lost.amount if place else counted
            spent = _after(deployment, most, Balance(one.spent), asked, more, f"relation {one.label}", shared=True)
            after[relation] = replace(one, spent=spent.amount)
    return after


def spare_of(lending: Lending) -> Decimal:
    """What can be drawn from grants, in coin: no grantor gives more than is there."""
    rooms: dict[str, Decimal] = {}
    total = Decimal(0)
    for grant in lending.grants:
        room = rooms.get(grant.grantor, grant.room)
        taken = min(grant.left, room)
        rooms[grant.grantor] = EXACT.subtract(room, taken)
        total = EXACT.add(total, taken)
    return total


def draws(before: Lending, after: Lending) -> dict[int, Decimal]:
    """What each grant has paid in between."""
    paid = zip(before.grants, after.grants, strict=True)
    return {was.id: EXACT.subtract(was.left, now.left) for was, now in paid if was.left != now.left}


def returned(paid: Mapping[int, Decimal], back: Decimal) -> dict[int, Decimal]:
    """What each grant gets back of what it paid for a question: grants first, the last one first of all."""
    given: dict[int, Decimal] = {}
    for id_, amount in reversed(list(paid.items())):
        given[id_] = min(amount, back)
        back = EXACT.subtract(back, given[id_])
    return {id_: amount for id_, amount in given.items() if amount}


def _drawn(lending: Lending, amount: Decimal) -> Lending:
    """After an amount beyond the analyst's own limit was drawn."""
    grants: list[Grant] = []
    rooms: dict[str, Decimal] = {}
    left = amount
    for grant in lending.grants:
        room = rooms.get(grant.grantor, grant.room)
        taken = min(grant.left, room, left)
        rooms[grant.grantor], left = EXACT.subtract(room, taken), EXACT.subtract(left, taken)
        grants.append(replace(grant, left=EXACT.subtract(grant.left, taken), room=room))
    grants = [replace(grant, room=rooms[grant.grantor]) for grant in grants]
    return Lending(lending.given, EXACT.add(lending.drawn, amount), tuple(grants))


def _counted(balances: Balances) -> Balance:
    """What counts against the analyst's own limit; what others lent may be more than has been learned in the end."""
    lending = balances.lending
    own = EXACT.add(EXACT.subtract(balances.analyst.amount, lending.drawn), lending.given)
    return replace(balances.analyst, amount=max(own, Decimal(0)))


def _view_after(deployment: Deployment, view: View, asked: Decimal) -> View:
    """The view after its global synopsis has cost so much more, or the refusal."""
    loss = Loss(deployment.coin, asked)
    if view.epsilon_limit is None:
        # Water-filling: a view loses no more than the protected database does, whose limit was looked at.
        return replace(view, spent=EXACT.add(view.spent, asked))
    most = grown(deployment, view.epsilon_limit)
    spent = _after(deployment, most, Balance(view.spent), loss, asked, f"view {view.label}", shared=True)
    return replace(view, spent=spent.amount)


def in_proportion(part: Decimal, whole: Decimal, total: Decimal) -> Decimal:
    """As much of the total as the part is of the whole, rounded up; of nothing everything is all of it."""
    if part == whole or not whole:
        return total
    exactly = Fraction(part) * Fraction(total) / Fraction(whole)
    return min(total, EXACT.multiply(Decimal(-(-exactly.numerator * 10**18 // exactly.denominator)), _UNIT))


def less(whole: Loss, part: Loss) -> Loss:
    """What is left of a loss without a part of it, to the last digit; a part that is more than the whole is an error.

    *Guarantee*: what was paid less what was reached is what comes back: never more than was paid.
    """
    if whole.coin is not part.coin:
        raise SettlementError(f"{part.coin.value} is no part of {whole.coin.value}")
    if part.amount > whole.amount or part.delta > whole.delta:
        raise SettlementError(f"{part} is more than {whole}")
    return Loss(whole.coin, EXACT.subtract(whole.amount, part.amount), EXACT.subtract(whole.delta, part.delta))


def settle(
    balances: Balances,
    back: Loss,
    table: Decimal | None = None,
    grants: Mapping[int, Decimal] | None = None,
    counted: tuple[Decimal, Decimal] | None = None,
) -> Balances:
    """The balances after a settlement, and the grants with what came back to them; views are left as they were."""
    delta = back.delta.copy_negate()
    in_full = back.amount.copy_negate(), (back.amount if table is None else table).copy_negate()
    amount, lost = in_full if counted is None else counted
    lending, given = balances.lending, grants or {}
    more = tuple(replace(each, left=EXACT.add(each.left, given.get(each.id, Decimal(0)))) for each in lending.grants)
    for came_back in given.values():
        lending = replace(lending, drawn=EXACT.subtract(lending.drawn, came_back))
    return replace(
        balances,
        analyst=_moved(balances.analyst, amount, delta),
        table=_moved(balances.table, lost, delta),
        lending=replace(lending, grants=more),
        coalition=None if balances.coalition is None else _moved(balances.coalition, amount, delta),
    )


def fold(journal: Iterable[Entry]) -> Books:
    """What the rows of a journal add up to; a row that the database would not have taken is an error."""
    table, analysts, questions = Balance(), dict[str, Balance](), dict[int, Account]()
    views, spending = dict[int, Decimal](), dict[tuple[str, int], Decimal]()
    for entry in journal:
        questions[entry.question] = _follow(questions.get(entry.question), entry)
        lost = entry.amount if entry.table is None else entry.table
        if not min(entry.amount, Decimal(0)) <= lost <= max(entry.amount, Decimal(0)):
            raise SettlementError(f"the journal cannot hold {entry}")
        own, of_table = entry.counted, entry.table_counted
        own, of_table = entry.amount if own is None else own, lost if of_table is None else of_table
        if own > max(entry.amount, Decimal(0)) or of_table > max(lost, Decimal(0)):
            raise SettlementError(f"the journal cannot hold {entry}")
        table = _moved(table, of_table, entry.delta)
        analysts[entry.analyst] = _moved(analysts.get(entry.analyst, Balance()), own, entry.delta)
        for view, (learned, released) in entry.parts.items():
            views[view] = EXACT.add(views.get(view, Decimal(0)), released)
            key = entry.analyst, view
            spending[key] = EXACT.add(spending.get(key, Decimal(0)), learned)
    return Books(table, analysts, questions, views, spending)


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
    return Balance(EXACT.add(balance.amount, amount), EXACT.add(balance.delta, delta))


def not_active(name: str) -> NotActive:
    """The refusal of somebody who may no longer ask, not even for what is already known."""
    return NotActive(f'analyst "{name}" is not active', hint="Ask the administrator.")


def _after(
    deployment: Deployment,
    epsilon: Decimal,
    balance: Balance,
    asked: Loss,
    counted: Decimal,
    whose: str,
    spare: Decimal = Decimal(0),
    shared: bool = False,
) -> Balance:
    """The balance once the loss is counted. Where a limit was lowered below it, nothing more is lost, at no point."""
    after = _moved(balance, counted, asked.delta)
    most = worth(deployment, epsilon)
    # What is above the limit already (it was lowered) takes nothing from what others lend.
    most = EXACT.add(max(most, balance.amount), spare) if spare else most
    # Of a shared limit a refusal says neither what is left nor how much counts: others move both.
    # A part that asks for nothing passes, even under a limit that was lowered below what is spent.
    if asked.amount and after.amount > most:
        epsilon = epsilon_spent(deployment, most) if spare else epsilon
        left = f", left {shown(left_of(deployment, epsilon, balance), ROUND_DOWN)} of {shown(epsilon)}"
        counts = f", of which {max(counted, Decimal(0)).normalize():f} count" if counted != asked.amount else ""
        raise LimitReached(
            f"the privacy limit of {whose} is reached",
            detail=f"asked epsilon {shown(epsilon_spent(deployment, asked.amount))}{'' if shared else left}"
            f"; asked {asked.amount.normalize():f} {asked.coin.value}{'' if shared else counts}.",
            hint="Ask with less accuracy (a larger veil.margin or veil.beta), repeat an earlier question, "
            f"which is free,{_until(deployment)} or have an administrator raise the limit.",
        )
    delta = EXACT.multiply(deployment.payment_delta, Decimal(deployment.periods))
    if asked.delta and after.delta > delta:
        left = "" if shared else f", left {max(Decimal(0), delta - balance.delta)} of {delta}"
        raise LimitReached(
            f"the delta of {whose} is spent",
            detail=f"asked delta {asked.delta}{left}.",
            hint="Group by columns with a declared domain: they cost no delta.",
        )
    return after


def _until(deployment: Deployment) -> str:
    return "" if deployment.next_period is None else f" wait until the limit grows ({deployment.next_period}),"


def worth(deployment: Deployment, epsilon: Decimal) -> Decimal:
    """What an epsilon is worth in coin, rounded down."""
    if epsilon <= 0:
        return Decimal(0)
    pure = deployment.coin is Coin.PURE
    return epsilon if pure else amount_within(deployment.coin, epsilon, deployment.conversion_delta)


def left_of(deployment: Deployment, epsilon: Decimal, balance: Balance) -> Decimal:
    """What is left of an epsilon, never negative."""
    with localcontext(_WIDE):
        return max(Decimal(0), epsilon - epsilon_spent(deployment, balance.amount))


def _within(deployment: Deployment, epsilon: Decimal, balance: Balance) -> Decimal:
    """The coin that can be spent until an epsilon is reached."""
    left = max(Decimal(0), EXACT.subtract(worth(deployment, epsilon), balance.amount))
    return left.quantize(_UNIT, ROUND_DOWN, _WIDE)


def shown(number: Decimal, rounding: str = ROUND_UP) -> str:
    """Six digits after the point, for people."""
    with localcontext(_WIDE):
        text = f"{number.quantize(Decimal('0.000001'), rounding):f}"
    return text.rstrip("0").rstrip(".")
