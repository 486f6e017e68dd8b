"""The till: a charge goes in, and a receipt comes out once the charge is committed.

A question with stages reserves before each of them and settles once, at the end: ``charge_all`` with ``Charge.staged``,
``reserve_more``, ``settle``.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

from psycopg import AsyncConnection, OperationalError
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool

from mechanisms.loss import Coin, Loss
from provenance import accountant, model
from provenance.errors import (
    CommitUnknownError,
    LedgerUnreachable,
    LimitReached,
    NotActive,
    NotSettledError,
    SettlementError,
    StaleCatalog,
)
from provenance.model import (
    Allocation,
    Analyst,
    Balance,
    Balances,
    Charge,
    Deployment,
    PredicateLoss,
    Receipt,
    Remaining,
    Settled,
    Stage,
)

log = logging.getLogger(__name__)
Pool = AsyncConnectionPool[AsyncConnection[TupleRow]]

# 'table' sorts behind 'analyst', so that everybody takes the table's lock first: no deadlock.
_LOCK = """
SELECT scope, amount, delta FROM provenance.balance
WHERE (scope = 'table' AND name = '') OR (scope = 'analyst' AND name = %s)
ORDER BY scope DESC FOR UPDATE"""

# A statement of its own: its snapshot is taken when the lock is held, so that it sees every earlier charge and change.
STATE = """
SELECT d.coin, d.epsilon, d.delta, d.allocation, d.expansion, d.conversion_delta, d.payment_delta, d.registry_version,
       (SELECT coalesce(sum(o.privilege), 0) FROM provenance.analyst o WHERE o.active)::bigint,
       a.name, a.privilege, a.epsilon_limit, a.settings, a.active
FROM provenance.deployment d LEFT JOIN provenance.analyst a ON a.name = %s"""

_RELATION = "SELECT data_version, label FROM provenance.relation WHERE id = %s AND active"

_INSERT = """
INSERT INTO provenance.charge (analyst, relation, relation_id, data_version, registry_version, fingerprint, question,
                               mechanism, coin, amount, delta, epsilon, bill, stage)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) RETURNING id"""

# What was ever reserved for the question that a receipt is for, and whether it is settled.
_HELD = """
SELECT h.amount, h.delta, h.settled FROM provenance.charge c CROSS JOIN LATERAL (
    SELECT sum(m.amount) AS amount, sum(m.delta) AS delta, bool_or(m.stage = 'settle') AS settled
    FROM provenance.charge m WHERE m.id = c.id OR m.question_of = c.id) h
WHERE c.id = %s AND c.question_of IS NULL AND c.stage = 'reserve' AND c.analyst = %s AND c.relation_id = %s
  AND c.data_version = %s AND c.registry_version = %s AND c.fingerprint = %s"""

_FOLLOW = """
INSERT INTO provenance.charge (analyst, relation, relation_id, data_version, registry_version, fingerprint, question,
                               mechanism, coin, question_of, stage, amount, delta, epsilon, bill)
SELECT c.analyst, c.relation, c.relation_id, c.data_version, c.registry_version, c.fingerprint, c.question,
       c.mechanism, c.coin, c.id, %s, %s, %s, %s, %s
FROM provenance.charge c WHERE c.id = %s RETURNING id"""

_LOSSES = """
INSERT INTO provenance.charge_loss (charge, levels, level_of, groups, min_entropy)
VALUES (coalesce(%s, currval('provenance.charge_id_seq')), %s, %s, %s, %s) RETURNING charge"""

_BALANCES = """
SELECT scope, amount, delta FROM provenance.balance
WHERE (scope = 'table' AND name = '') OR (scope = 'analyst' AND name = %s)"""


@asynccontextmanager
async def connected(pool: Pool, *, autocommit: bool = True) -> AsyncIterator[AsyncConnection[TupleRow]]:
    """A connection of the pool; one that breaks, or cannot be had, is a refusal.

    A single statement needs no BEGIN and no COMMIT: in autocommit mode they save two of four round trips.
    """
    try:
        async with pool.connection() as conn:
            if conn.info.transaction_status is not TransactionStatus.IDLE:
                await conn.rollback()  # a task that was cancelled in the middle left it so
            await conn.set_autocommit(autocommit)
            yield conn
    except OperationalError as failure:
        log.error("a database of pgveil's does not answer: %s [%s]", type(failure).__name__, failure.sqlstate)
        raise LedgerUnreachable(
            "pgveil cannot reach one of its databases",
            detail="What was charged for the question stays charged.",
            hint="Ask again later; if it lasts, tell the administrator.",
        ) from failure


class Ledger:
    """Charges against the limits, from any number of processes at once."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def charge(self, charge: Charge) -> Receipt:
        """Pay for one question; see ``charge_all``."""
        (receipt,) = await self.charge_all([charge])
        return receipt

    async def charge_all(self, charges: Sequence[Charge]) -> list[Receipt]:
        """Pay for the questions of one analyst's statement in one transaction: for all of them or for none.

        *Guarantee*: a receipt exists only if the charge is committed and every limit holds with it included; a
        connection lost at COMMIT gives no receipt, and what it may have committed stays spent.
        """
        async with self._transaction() as conn:
            return await self._charge(conn, charges)

    async def reserve_more(self, receipt: Receipt, loss: Loss, epsilon: Decimal | None = None) -> Receipt:
        """Pay for the next stage of a staged question; ``epsilon`` is the whole question's own loss, if known better.

        *Guarantee*: as for ``charge_all``; the new receipt proves the sum. The versions are those of the first
        reservation, whatever has changed since: a question goes on with the numbers that it read.
        """
        async with self._transaction() as conn:
            deployment, analyst, balances, _ = await _held(conn, receipt)
            try:
                balances = accountant.admit(deployment, analyst, balances, loss)
            except (LimitReached, NotActive) as refusal:
                raise type(refusal)(
                    refusal.message, detail=_told(refusal.detail, receipt, deployment), hint=refusal.hint
                ) from None
            paid = receipt.paid + loss
            own = accountant.epsilon_spent(deployment, paid.amount) if epsilon is None else epsilon
            await _committed(
                conn, [(_FOLLOW, (Stage.RESERVE.value, loss.amount, loss.delta, own, Jsonb({}), receipt.id))]
            )
            remaining = accountant.remaining(deployment, analyst, balances)
            added = loss if receipt.added is None else receipt.added + loss
            return Receipt(receipt.id, receipt.charge, own, remaining, model._TILL, added)

    async def settle(
        self,
        receipt: Receipt,
        reached: Loss,
        epsilon: Decimal | None = None,
        bill: Mapping[str, Any] | None = None,
        groups: PredicateLoss | None = None,
    ) -> Settled:
        """Give back what was reserved and not reached; after it the question's net is ``reached``.

        *Guarantee*: at most what the receipt proves comes back, and only once. What the receipt does not prove (a
        reservation whose COMMIT was lost) stays spent; if this settlement's own fate is unknown, it counts as not made.
        """
        back = accountant.less(receipt.paid, reached)
        if groups is not None and groups.most > reached.amount:
            raise SettlementError(f"a group lost {groups.most} in a question that reached {reached.amount}")
        try:
            async with self._transaction() as conn:
                deployment, analyst, balances, held = await _held(conn, receipt)
                net = accountant.less(held, back)
                own = accountant.epsilon_spent(deployment, net.amount) if epsilon is None or net != reached else epsilon
                amounts = (back.amount.copy_negate(), back.delta.copy_negate())
                rows = [(_FOLLOW, (Stage.SETTLE.value, *amounts, own, Jsonb(dict(bill or {})), receipt.id))]
                if groups is not None:
                    rows.append((_LOSSES, _losses(receipt.id, groups)))
                await _committed(conn, rows)
                remaining = accountant.remaining(deployment, analyst, accountant.settle(balances, back))
                return Settled(receipt.id, net, own, remaining)
        except (CommitUnknownError, LedgerUnreachable) as lost:
            raise NotSettledError(
                "the ledger could not be told what the question reached: what was reserved stays spent",
                hint="Ask again later; if it lasts, tell the administrator.",
            ) from lost

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[AsyncConnection[TupleRow]]:
        async with connected(self._pool, autocommit=False) as conn:
            try:
                yield conn
            except BaseException:
                if not conn.closed:
                    await conn.rollback()
                raise

    async def verdict(self, analyst: str, asked: Loss) -> LimitReached | None:
        """What the till would say to such a charge now; nothing is spent and nothing is locked."""
        async with connected(self._pool) as conn, conn.pipeline():
            state = await conn.execute(STATE, (analyst,))
            totals = await conn.execute(_BALANCES, (analyst,))
            deployment, who = _read_state(await state.fetchone(), analyst)
            balances = _balances(await totals.fetchall())
        try:
            accountant.admit(deployment, who, balances, asked)
        except LimitReached as refusal:
            return refusal
        return None

    async def remaining(self, analyst: str) -> Remaining:
        """What an active analyst has left: for the bill of an answer that was free."""
        async with connected(self._pool) as conn, conn.pipeline():
            state = await conn.execute(STATE, (analyst,))
            totals = await conn.execute(_BALANCES, (analyst,))
            deployment, who = _read_state(await state.fetchone(), analyst)
            if not who.active:
                raise accountant.not_active(analyst)
            return accountant.remaining(deployment, who, _balances(await totals.fetchall()))

    async def _charge(self, conn: AsyncConnection[TupleRow], charges: Sequence[Charge]) -> list[Receipt]:
        name = charges[0].analyst
        if any(charge.analyst != name for charge in charges):
            raise ValueError("a statement has one analyst")
        async with conn.pipeline():  # first round trip: BEGIN, lock, read
            locked = await conn.execute(_LOCK, (name,))
            state = await conn.execute(STATE, (name,))
            relations = [await conn.execute(_RELATION, (charge.relation_id,)) for charge in charges]
            deployment, analyst = _read_state(await state.fetchone(), name)
            labels = [
                _check_versions(charge, deployment, await relation.fetchone())
                for charge, relation in zip(charges, relations, strict=True)
            ]
            balances = _balances(await locked.fetchall())
        epsilons: list[Decimal] = []
        for charge in charges:
            balances = accountant.admit(deployment, analyst, balances, charge.loss)
            converted = accountant.epsilon_spent(deployment, charge.loss.amount)
            epsilons.append(converted if charge.epsilon is None else charge.epsilon)
        remaining = accountant.remaining(deployment, analyst, balances)
        rows: list[tuple[str, tuple[Any, ...]]] = []
        for charge, label, epsilon in zip(charges, labels, epsilons, strict=True):
            rows.append((_INSERT, _row(charge, label, epsilon)))
            if charge.groups is not None:
                rows.append((_LOSSES, _losses(None, charge.groups)))
        ids = dict.fromkeys(await _committed(conn, rows))  # the losses of groups stand under the id before
        return [
            Receipt(id_, charge, epsilon, remaining, model._TILL)
            for id_, charge, epsilon in zip(ids, charges, epsilons, strict=True)
        ]


async def _held(conn: AsyncConnection[TupleRow], receipt: Receipt) -> tuple[Deployment, Analyst, Balances, Loss]:
    """Lock the till, and read it with what was reserved for a question that is staged and not settled."""
    charge = receipt.charge
    if not charge.staged:
        raise SettlementError("a fixed price is paid for good")
    versions = (charge.relation_id, charge.data_version, charge.registry_version)
    async with conn.pipeline():
        locked = await conn.execute(_LOCK, (charge.analyst,))
        state = await conn.execute(STATE, (charge.analyst,))
        question = await conn.execute(_HELD, (receipt.id, charge.analyst, *versions, charge.fingerprint))
        deployment, analyst = _read_state(await state.fetchone(), charge.analyst)
        balances = _balances(await locked.fetchall())
        row = await question.fetchone()
    if row is None:
        raise SettlementError(f"charge {receipt.id} is no reservation of this question")
    if row[2]:
        raise SettlementError(f"the question of charge {receipt.id} is settled")
    return deployment, analyst, balances, Loss(charge.loss.coin, row[0], row[1])


async def _committed(conn: AsyncConnection[TupleRow], rows: Sequence[tuple[str, tuple[Any, ...]]]) -> list[int]:
    """Append rows and commit, in one round trip; a trigger moves the balances. Returns the ids."""
    try:
        async with conn.pipeline():
            inserted = [await conn.execute(statement, row) for statement, row in rows]
            await conn.commit()
            told = [await one.fetchone() for one in inserted]
    except OperationalError as lost:
        if conn.closed or conn.broken:
            raise CommitUnknownError(
                "the connection to the ledger was lost at COMMIT: the charge counts as spent",
                hint="Ask again later; if it lasts, tell the administrator.",
            ) from lost
        raise
    ids = [int(row[0]) for row in told if row is not None]
    if len(ids) != len(rows):
        raise CommitUnknownError("the ledger did not confirm the charge")
    return ids


def _told(detail: str | None, receipt: Receipt, deployment: Deployment) -> str:
    """A refusal in the middle of a question says what the question holds already."""
    paid = receipt.paid
    held = accountant.shown(accountant.epsilon_spent(deployment, paid.amount))
    reserved = f"Already reserved for this question: epsilon {held}, {paid.amount.normalize():f} {paid.coin.value}."
    return reserved if detail is None else f"{detail} {reserved}"


def deployment_of(row: TupleRow) -> Deployment:
    """The deployment as a row of ``STATE`` tells it."""
    return Deployment(
        Coin(row[0]), row[1], row[2], Allocation(row[3]), row[4], row[5], row[6], int(row[7]), int(row[8])
    )


def analyst_of(row: TupleRow) -> Analyst:
    """The analyst as a row of ``STATE`` tells it."""
    settings = {key: value if isinstance(value, str) else str(value) for key, value in row[12].items()}
    return Analyst(row[9], row[10], row[11], settings, row[13])


def _read_state(row: TupleRow | None, name: str) -> tuple[Deployment, Analyst]:
    if row is None or row[9] is None:
        raise NotActive(f'there is no analyst "{name}"')
    return deployment_of(row), analyst_of(row)


def _check_versions(charge: Charge, deployment: Deployment, relation: TupleRow | None) -> str:
    if relation is None or charge.registry_version != deployment.registry_version:
        raise StaleCatalog("the registry has changed since the question was read", hint="Ask again.")
    if charge.data_version != relation[0]:
        raise StaleCatalog("the data have been refreshed since the question was read", hint="Ask again.")
    if charge.loss.coin is not deployment.coin:
        raise StaleCatalog("the coin of the deployment has changed since the question was priced", hint="Ask again.")
    return str(relation[1])


def _balances(rows: list[TupleRow]) -> Balances:
    by_scope = {scope: Balance(amount, delta) for scope, amount, delta in rows}
    return Balances(analyst=by_scope["analyst"], table=by_scope["table"])


def _row(charge: Charge, label: str, epsilon: Decimal) -> tuple[Any, ...]:
    return (
        *(charge.analyst, label, charge.relation_id, charge.data_version, charge.registry_version),
        *(charge.fingerprint, charge.question, charge.mechanism),
        *(charge.loss.coin.value, charge.loss.amount, charge.loss.delta, epsilon, Jsonb(dict(charge.bill))),
        (Stage.RESERVE if charge.staged else Stage.CHARGE).value,
    )


def _losses(charge: int | None, groups: PredicateLoss) -> tuple[Any, ...]:
    return (charge, list(groups.levels), groups.packed(), groups.groups, groups.min_entropy)
