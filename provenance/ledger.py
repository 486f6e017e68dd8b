"""The till: a charge goes in, and a receipt comes out once the charge is committed.

A question with stages reserves before each of them and settles once, at the end: ``charge_all`` with ``Charge.staged``,
``reserve_more``, ``settle``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

from psycopg import AsyncConnection, OperationalError
from psycopg.rows import TupleRow

from mechanisms.loss import Loss
from provenance import accountant, entries, model
from provenance import ledger_sql as sql
from provenance.bounds import Quoted, blind, layers_of
from provenance.chain import Anchor, Link, Witness, gap
from provenance.entries import Counting, Held
from provenance.errors import (
    CommitUnknownError,
    LedgerGap,
    LedgerUnreachable,
    LimitReached,
    NotActive,
    NotSettledError,
    SettlementError,
    StaleSynopsis,
)
from provenance.model import (
    Analyst,
    Balances,
    Charge,
    Deployment,
    PredicateLoss,
    Receipt,
    Settled,
    Stage,
)
from provenance.outlook import Again, Attempt, Outlook, Pool, connected
from provenance.region import EVERYWHERE, Part

Statement = tuple[str, Sequence[Any]]


class Ledger(Outlook):
    """Charges against the limits, from any number of processes at once."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self._witness = Witness()

    def remember(self, witness: Witness) -> None:
        """From now on, charge only what this witness vouches for."""
        self._witness = witness

    async def vouch(self) -> None:
        """Look whether the ledger is the one that this process has seen, and move the anchor to its present end."""
        async with connected(self.pool) as conn:
            await self._witness.vouch(conn)

    async def charge(self, charge: Charge) -> Receipt:
        """Pay for one question; see ``charge_all``."""
        (receipt,) = await self.charge_all([charge])
        return receipt

    async def charge_all(self, charges: Sequence[Charge], also: Sequence[Statement] = ()) -> list[Receipt]:
        """Pay for the questions of one analyst's statement in one transaction: for all of them or for none.

        The statements of ``also`` run in it after the charges, and each must return one row; where one returns none,
        what the question was planned on has changed: StaleSynopsis, and nothing is spent.

        *Guarantee*: a receipt exists only if the charge is committed and every limit holds with it included; a
        connection lost at COMMIT gives no receipt, and what it may have committed stays spent.
        """
        try:
            return await self._charged(charges, also)
        except LedgerGap:
            self.bounds.forget()
            await self.vouch()  # an administrator may have accepted it: once more, if so
        return await self._charged(charges, also)

    async def reserve_more(self, receipt: Receipt, loss: Loss, epsilon: Decimal | None = None) -> Receipt:
        """Pay for the next stage of a staged question; ``epsilon`` is the whole question's own loss, if known better.

        *Guarantee*: as for ``charge_all``; the new receipt proves the sum. The versions are those of the first
        reservation, whatever has changed since: a question goes on with the numbers that it read.
        """
        charge, paid = receipt.charge, receipt.paid + loss
        foreseen = Held.foreseen(receipt).grown(charge, paid.amount)[0]

        async def turn(attempt: Attempt) -> Receipt:
            quoted = self.bounds.more(charge, loss.amount, foreseen, attempt.tight)
            async with self._transaction() as conn:
                deployment, analyst, before, held, counting = await self._held(conn, receipt)
                table, parts = held.grown(charge, (held.loss + loss).amount)
                quoted = _about(quoted, held, charge, loss.amount, table)
                views = {view: released for view, (_, released) in parts.items()}
                counted = counting.count(quoted, loss.amount, table)
                try:
                    balances = accountant.admit(
                        *(deployment, analyst, before, loss, table, views, counted, charge.relations)
                    )
                except (LimitReached, NotActive) as refusal:
                    if isinstance(refusal, LimitReached) and not attempt.decides(counting):
                        raise Again from None
                    told = _told(refusal.detail, receipt, deployment)
                    raise type(refusal)(refusal.message, detail=told, hint=refusal.hint) from None
                if not attempt.counts(counting):
                    raise Again
                own = accountant.epsilon_spent(deployment, paid.amount) if epsilon is None else epsilon
                draws = accountant.draws(before.lending, balances.lending)
                row = entries.stage_of(
                    *(Stage.RESERVE, loss, own, {}, table, parts, draws, quoted, counted, receipt.id)
                )
                await self._committed(conn, [(sql.FOLLOW, row)], (deployment, analyst), balances, counting)
                remaining = accountant.remaining(deployment, analyst, balances)
                added = loss if receipt.added is None else receipt.added + loss
                return Receipt(receipt.id, charge, own, remaining, model._TILL, added)

        return await self.in_turns(layers_of(charge), turn)

    async def settle(
        self,
        receipt: Receipt,
        reached: Loss,
        epsilon: Decimal | None = None,
        bill: Mapping[str, Any] | None = None,
        groups: PredicateLoss | None = None,
        levels: Sequence[Part] = (),
    ) -> Settled:
        """Give back what was reserved and not reached; after it the question's net is ``reached``.

        ``levels`` says what disjoint parts of the question's region have lost, where that is less for some of them;
        what lies in none of them has lost nothing.

        *Guarantee*: at most what the receipt proves comes back, and only once. What the receipt does not prove (a
        reservation whose COMMIT was lost) stays spent; if this settlement's own fate is unknown, it counts as not made.
        """
        back = accountant.less(receipt.paid, reached)
        if groups is not None and groups.most > reached.amount:
            raise SettlementError(f"a group lost {groups.most} in a question that reached {reached.amount}")
        foreseen = Held.foreseen(receipt).grown(receipt.charge, reached.amount)[0]
        _check(levels, reached, receipt.charge)

        async def turn(attempt: Attempt) -> Settled:
            amount = back.amount.copy_negate()
            quoted = self.bounds.more(receipt.charge, amount, foreseen)
            levelled = (
                self.bounds.levelled(receipt.charge, receipt.paid.amount, back.amount, levels) if levels else None
            )
            async with self._transaction() as conn:
                deployment, analyst, balances, held, counting = await self._held(conn, receipt)
                net = accountant.less(held.loss, back)
                table, parts = held.grown(receipt.charge, net.amount)
                quoted = _about(quoted, held, receipt.charge, amount, table)
                if levelled is not None and net == reached and levelled.regions[:1] == list(held.regions):
                    quoted = levelled
                counted = counting.count(quoted, amount, table)
                if not (attempt.last or counting.fits or quoted.own.everywhere):
                    raise Again
                own = accountant.epsilon_spent(deployment, net.amount) if epsilon is None or net != reached else epsilon
                given = accountant.returned(held.grants, min(back.amount, counted[0].copy_negate()))
                balances = accountant.settle(balances, back, table.copy_negate(), given, counted)
                row = entries.stage_of(
                    *(Stage.SETTLE, back, own, bill or {}, table, parts, given, quoted, counted, receipt.id)
                )
                rows: list[Statement] = [(sql.LEVELS if quoted.own.gained else sql.FOLLOW, row)]
                if groups is not None:
                    rows.append((sql.LOSSES, entries.losses_of(receipt.id, groups)))
                await self._committed(conn, rows, (deployment, analyst), balances, counting)
                return Settled(receipt.id, net, own, accountant.remaining(deployment, analyst, balances))

        try:
            return await self.in_turns(layers_of(receipt.charge), turn)
        except (CommitUnknownError, LedgerUnreachable, LedgerGap) as lost:
            raise NotSettledError(
                "the ledger could not be told what the question reached: what was reserved stays spent",
                hint="Ask again later; if it lasts, tell the administrator.",
            ) from lost

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[AsyncConnection[TupleRow]]:
        async with connected(self.pool, autocommit=False) as conn:
            try:
                yield conn
            except BaseException:
                if not conn.closed:
                    await conn.rollback()
                raise

    async def _charged(self, charges: Sequence[Charge], also: Sequence[Statement]) -> list[Receipt]:
        if any(charge.analyst != charges[0].analyst for charge in charges):
            raise ValueError("a statement has one analyst")

        async def turn(attempt: Attempt) -> list[Receipt]:
            quotes = self.bounds.quotes(charges, attempt.tight)
            async with self._transaction() as conn:
                return await self._charge(conn, charges, also, quotes, attempt)

        return await self.in_turns((layer for charge in charges for layer in layers_of(charge)), turn)

    async def _charge(
        self,
        conn: AsyncConnection[TupleRow],
        charges: Sequence[Charge],
        also: Sequence[Statement],
        quotes: Sequence[Quoted],
        attempt: Attempt,
    ) -> list[Receipt]:
        name = charges[0].analyst
        wanted = entries.layers_wanted((layer for charge in charges for layer in layers_of(charge)), self.bounds)
        parts = [(charge.relation_id, part) for charge in charges for part in charge.parts]
        seen = self._witness.seen
        async with conn.pipeline():  # first round trip: BEGIN, lock, read
            locked = await conn.execute(sql.LOCK, (name,))
            state = await conn.execute(sql.STATE, (name,))
            more = await conn.execute(sql.CIRCUMSTANCES, {"analyst": name, "charge": seen and seen.charge})
            layers = await conn.execute(sql.LAYERS, (wanted,))
            relations = [await conn.execute(sql.RELATION, (charge.relation_id,)) for charge in charges]
            limited = await conn.execute(sql.LIMITED, ([id_ for charge in charges for id_ in charge.relations],))
            joined = await conn.execute(
                sql.VERSIONS, ([id_ for charge in charges for id_, _ in charge.joined_versions],)
            )
            answered = [
                await conn.execute(sql.ANSWERED, entries.same_of(each)) for each in charges if each.accuracy is not None
            ]
            views = await conn.execute(sql.OPEN_VIEWS, (entries.wanted(parts),)) if parts else None
            circumstances = _vouched(seen, await more.fetchone())
            deployment, analyst = entries.state_of(await state.fetchone(), name)
            labels = [
                entries.label_of(charge, deployment, await relation.fetchone())
                for charge, relation in zip(charges, relations, strict=True)
            ]
            entries.check_joined(charges, await joined.fetchall())
            if any([await each.fetchone() is not None for each in answered]):
                raise StaleSynopsis("the question was answered meanwhile", hint="Ask again: it is free.")
            opened = await views.fetchall() if views is not None else []
            totals, bounded = await locked.fetchall(), await limited.fetchall()
            balances = entries.balances_of(totals, circumstances, deployment, analyst, opened, bounded)
            counting = Counting(entries.stands_of(await layers.fetchall()))
        ids = iter([int(row[1]) for row in opened])
        rows: list[Statement] = []
        epsilons: list[Decimal] = []
        for charge, label, quoted in zip(charges, labels, quotes, strict=True):
            own = {next(ids): part.table for part in charge.parts}
            before = balances.lending
            counted = counting.count(quoted, charge.loss.amount, charge.table_amount)
            try:
                balances = accountant.admit(
                    *(deployment, analyst, balances, charge.loss, charge.table_amount, own, counted, charge.relations)
                )
            except LimitReached:
                if attempt.decides(counting):
                    raise
                raise Again from None
            draws = accountant.draws(before, balances.lending)
            converted = accountant.epsilon_spent(deployment, charge.loss.amount)
            epsilons.append(converted if charge.epsilon is None else charge.epsilon)
            rows.append((sql.INSERT, entries.row_of(charge, label, epsilons[-1], list(own), draws, quoted, counted)))
            if charge.groups is not None:
                rows.append((sql.LOSSES, entries.losses_of(None, charge.groups)))
        if not attempt.counts(counting):
            raise Again
        remaining = accountant.remaining(deployment, analyst, balances)
        made = await self._committed(conn, rows, (deployment, analyst), balances, counting, also)
        return [
            Receipt(id_, charge, epsilon, remaining, model._TILL)
            for id_, charge, epsilon in zip(made, charges, epsilons, strict=True)
        ]

    async def _held(
        self, conn: AsyncConnection[TupleRow], receipt: Receipt
    ) -> tuple[Deployment, Analyst, Balances, Held, Counting]:
        """Lock the till, and read it with what was reserved for a question that is staged and not settled."""
        charge = receipt.charge
        if not charge.staged:
            raise SettlementError("a fixed price is paid for good")
        versions = (charge.relation_id, charge.data_version, charge.registry_version)
        seen = self._witness.seen
        async with conn.pipeline():
            locked = await conn.execute(sql.LOCK, (charge.analyst,))
            state = await conn.execute(sql.STATE, (charge.analyst,))
            more = await conn.execute(sql.CIRCUMSTANCES, {"analyst": charge.analyst, "charge": seen and seen.charge})
            layers = await conn.execute(sql.LAYERS, (entries.layers_wanted(layers_of(charge), self.bounds),))
            limited = await conn.execute(sql.LIMITED, (list(charge.relations),))
            question = await conn.execute(sql.HELD, (receipt.id, charge.analyst, *versions, charge.fingerprint))
            views = await conn.execute(sql.HELD_VIEWS, (receipt.id,)) if charge.parts else None
            circumstances = _vouched(seen, await more.fetchone())
            deployment, analyst = entries.state_of(await state.fetchone(), charge.analyst)
            row = await question.fetchone()
            parts = await views.fetchall() if views is not None else []
            totals, bounded = await locked.fetchall(), await limited.fetchall()
            balances = entries.balances_of(totals, circumstances, deployment, analyst, parts, bounded)
            counting = Counting(entries.stands_of(await layers.fetchall()))
        if row is None:
            raise SettlementError(f"charge {receipt.id} is no reservation of this question")
        if row[2]:
            raise SettlementError(f"the question of charge {receipt.id} is settled")
        return deployment, analyst, balances, entries.held_of(charge, row, parts), counting

    async def _committed(
        self,
        conn: AsyncConnection[TupleRow],
        rows: Sequence[Statement],
        state: tuple[Deployment, Analyst],
        balances: Balances,
        counting: Counting,
        also: Sequence[Statement] = (),
    ) -> list[int]:
        """Append rows and commit; triggers move the balances to those given. Returns the ids of the journal.

        One round trip; two where other statements must have found what they expect before the commit.
        """
        try:
            async with conn.pipeline():
                inserted = [await conn.execute(statement, row) for statement, row in rows]
                if also:
                    beside = [await conn.execute(statement, row) for statement, row in also]
                    for each in beside:
                        _expect_one(await each.fetchall())
                await conn.commit()
                told = [await one.fetchone() for one in inserted]
        except OperationalError as lost:
            if conn.closed or conn.broken:
                raise CommitUnknownError(
                    "the connection to the ledger was lost at COMMIT: the charge counts as spent",
                    hint="Ask again later; if it lasts, tell the administrator.",
                ) from lost
            raise
        links = [Link(int(row[0]), row[1], row[2]) for row in told if row is not None and row[1] is not None]
        if None in told or not links:
            raise CommitUnknownError("the ledger did not confirm the charge")
        self.bounds.committed(counting.booked)
        deployment, analyst = state
        self._witness.saw(links[-1], deployment.coin.value, balances.table, analyst.name, balances.analyst)
        return [link.charge for link in links]


def _vouched(seen: Anchor | None, circumstances: TupleRow | None) -> TupleRow:
    """The circumstances, if this is the ledger that was seen before, and nothing is known to be missing in it."""
    if circumstances is None or circumstances[1] or not (seen is None or seen.holds(circumstances[0])):
        raise gap()
    return circumstances


def _expect_one(rows: Sequence[TupleRow]) -> None:
    if not rows:
        raise StaleSynopsis("what the question was planned on has changed meanwhile", hint="Ask again.")
    if len(rows) > 1:
        raise ValueError("a statement beside a charge returns one row")


def _about(quoted: Quoted, held: Held, charge: Charge, amount: Decimal, table: Decimal) -> Quoted:
    """The quote, if it is about the regions that the question was booked on."""
    return quoted if quoted.regions == list(held.regions) else blind(charge, held.regions, amount, table)


def _check(levels: Sequence[Part], reached: Loss, charge: Charge) -> None:
    """No part has lost more than the question reached, and a unit lies in one of them at most."""
    whole = charge.felt[0].region if len(charge.felt) == 1 else EVERYWHERE
    for place, (region, level) in enumerate(levels):
        if not 0 <= level <= reached.amount or region.empty or region.intersection(whole) != region:
            raise SettlementError(f"{level} is no level of a part of a question that reached {reached.amount}")
        if any(not region.disjoint(other) for other, _ in levels[place + 1 :]):
            raise SettlementError("the parts of a question that have lost different amounts are disjoint")


def _told(detail: str | None, receipt: Receipt, deployment: Deployment) -> str:
    """A refusal in the middle of a question says what the question holds already."""
    paid = receipt.paid
    held = accountant.shown(accountant.epsilon_spent(deployment, paid.amount))
    reserved = f"Already reserved for this question: epsilon {held}, {paid.amount.normalize():f} {paid.coin.value}."
    return reserved if detail is None else f"{detail} {reserved}"
