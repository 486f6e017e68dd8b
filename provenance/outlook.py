"""What the till would say, before it is locked: bounds of what the books say now, the verdict on charges, what is left.

Bounds (``provenance.bounds``) are computed here, outside of any lock, and used at the till for the version of the books
that they were computed for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeVar

from psycopg import AsyncConnection, OperationalError
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from mechanisms.loss import Loss, exact_sum
from provenance import accountant, entries
from provenance import ledger_sql as sql
from provenance.bounds import MANY, Bounds, Kept, Layer, layers_of
from provenance.entries import Counting
from provenance.errors import LedgerUnreachable, LimitReached
from provenance.model import Analyst, Balances, Charge, Deployment, Remaining, Room, Verdict
from provenance.shared import foreseen, rounded

log = logging.getLogger(__name__)
Pool = AsyncConnectionPool[AsyncConnection[TupleRow]]
T = TypeVar("T")
_TURNS = 4
"""How often a charge is quoted anew, where the quote decides and others were quicker."""


class Again(Exception):  # noqa: N818 - no error: the next turn
    """A smaller bound may be found: nothing is spoken or spent."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A turn at the till, and what it may still hope for."""

    looked: bool  # the memory was brought up to date just before
    tight: bool = False  # and before that, smaller bounds were looked for
    best: bool = False  # and nothing has changed since: none will be found
    last: bool = False

    def decides(self, counting: Counting) -> bool:
        """Whether a limit that refuses now refuses for good: there is no smaller bound, or none that can be found."""
        return self.last or (counting.fits and (counting.sure or self.best))

    def counts(self, counting: Counting) -> bool:
        """Whether what is counted may be written: what fits, and in full what nobody could have foreseen."""
        return self.looked or counting.fits


@asynccontextmanager
async def connected(pool: Pool, *, autocommit: bool = True) -> AsyncIterator[AsyncConnection[TupleRow]]:
    """A connection of the pool; one that breaks, or cannot be had, is a refusal.

    A single statement needs no BEGIN and no COMMIT: in autocommit mode they save two of four round trips.
    """
    try:
        async with pool.connection() as conn:
            if conn.info.transaction_status is not TransactionStatus.IDLE:
                await conn.rollback()  # a task that was cancelled in the middle left it so
            if conn.autocommit != autocommit:
                await conn.set_autocommit(autocommit)
            yield conn
    except OperationalError as failure:
        log.error("a database of pgveil's does not answer: %s [%s]", type(failure).__name__, failure.sqlstate)
        raise LedgerUnreachable(
            "pgveil cannot reach one of its databases",
            detail="What was charged for the question stays charged.",
            hint="Ask again later; if it lasts, tell the administrator.",
        ) from failure


class Outlook:
    """Looks at the books and locks nothing."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.bounds = Bounds()

    async def in_turns(self, layers: Iterable[Layer], turn: Callable[[Attempt], Awaitable[T]]) -> T:
        """A turn at the till with bounds of what the books say now; another one where a smaller bound decides.

        Where nobody else has been at the till for some charges, the first turn is taken without a look.

        *Guarantee*: no bound is computed while the till is locked, and a limit refuses only what exceeds it by the
        best bound that can be found, or after that many turns in which others were quicker.
        """
        wanted = list(dict.fromkeys(layers))
        if self.bounds.alone(wanted):
            with suppress(Again):
                return await turn(Attempt(looked=False))
        for turns in range(_TURNS - 1):
            if turns:
                await self._tighten(wanted)
            await self._look(wanted)
            with suppress(Again):
                return await turn(Attempt(True, turns > 0, turns > 0 and self.bounds.tight(wanted)))
        await self._tighten(wanted)
        await self._look(wanted)
        return await turn(Attempt(True, True, last=True))

    async def _look(self, layers: Sequence[Layer]) -> None:
        """Bring the memory up to date."""
        async with connected(self.pool) as conn:
            since = {layer: self.bounds.kept(layer).version for layer in layers}
            rows = await conn.execute(sql.CHANGES, (entries.layers_wanted(layers, self.bounds),))
            found = entries.changes_of(await rows.fetchall())
        for layer, (version, changes) in found.items():
            if len(changes) < MANY:
                self.bounds.learn(layer, since[layer], version, changes.items())
            elif since[layer] <= (kept := self.bounds.kept(layer)).version < version:
                anew = await asyncio.to_thread(Kept.of, version, {**kept.amounts, **changes})
                self.bounds.keep(layer, anew)

    async def _tighten(self, layers: Sequence[Layer]) -> None:
        """Look for smaller bounds, in a thread: it may take seconds, and refusals are free."""
        for layer in layers:
            kept = self.bounds.kept(layer)
            if not self.bounds.tight([layer]):
                anew = await asyncio.to_thread(Kept.of, kept.version, dict(kept.amounts))
                if self.bounds.kept(layer).version == anew.version:  # else it was changed, or dropped, meanwhile
                    self.bounds.keep(layer, anew)

    async def verdict(self, charges: Sequence[Charge], *, exact: bool = True) -> Verdict:
        """What the till would say to the charges of one statement now; nothing is spent and nothing is locked.

        Unless ``exact`` it says no more of the limits that analysts share than ``provenance.shared`` lets it.
        """
        analyst = charges[0].analyst
        parts = [(charge.relation_id, part) for charge in charges for part in charge.parts]
        wanted = [layer for charge in charges for layer in layers_of(charge)]

        async def turn(attempt: Attempt) -> Verdict:
            quotes = self.bounds.quotes(charges, attempt.tight)
            async with connected(self.pool) as conn, conn.pipeline():
                state = await conn.execute(sql.STATE, (analyst,))
                totals = await conn.execute(sql.BALANCES, (analyst,))
                more = await conn.execute(sql.CIRCUMSTANCES, {"analyst": analyst, "charge": None})
                layers = await conn.execute(sql.LAYERS, (entries.layers_wanted(wanted, self.bounds),))
                limited = await conn.execute(sql.LIMITED, ([id_ for charge in charges for id_ in charge.relations],))
                views = await conn.execute(sql.LOOK_AT_VIEWS, (entries.wanted(parts),)) if parts else None
                deployment, who = entries.state_of(await state.fetchone(), analyst)
                counting = Counting(entries.stands_of(await layers.fetchall()))
                found = await views.fetchall() if views is not None else []
                spent, others, bounded = await totals.fetchall(), await more.fetchone(), await limited.fetchall()
                balances = entries.balances_of(spent, others, deployment, who, found, bounded)
            counts = [
                counting.count(quoted, charge.loss.amount, charge.table_amount)
                for charge, quoted in zip(charges, quotes, strict=True)
            ]
            moved = exact_sum(own for own, _ in counts), exact_sum(table for _, table in counts)

            def refusal(balances: Balances) -> LimitReached | None:
                try:
                    for charge, counted in zip(charges, counts, strict=True):
                        balances = accountant.admit(
                            *(deployment, who, balances, charge.loss, charge.table_amount, None, counted),
                            relations=charge.relations,
                        )
                    for place, view, *_ in found:
                        balances = accountant.admit(
                            *(deployment, who, balances, Loss.nothing(deployment.coin), Decimal(0)),
                            {int(view): parts[int(place) - 1][1].table},
                        )
                except LimitReached as refused:
                    return refused
                return None

            told = refusal(balances) if exact else foreseen(deployment, balances, refusal)
            if not (attempt.counts(counting) if told is None else attempt.decides(counting)):
                raise Again
            return Verdict(told, *moved)

        return await self.in_turns(wanted, turn)

    async def remaining(self, analyst: str) -> Remaining:
        """What an active analyst has left: for the bill of an answer that was free."""
        return accountant.remaining(*await self._standing(analyst))

    async def room(self, analyst: str) -> Room:
        """The same in coin: for a decision, whose price is not known beforehand, and for EXPLAIN."""
        deployment, who, balances = await self._standing(analyst)
        return accountant.room(deployment, who, rounded(deployment, balances, up=True))

    async def _standing(self, analyst: str) -> tuple[Deployment, Analyst, Balances]:
        async with connected(self.pool) as conn, conn.pipeline():
            state = await conn.execute(sql.STATE, (analyst,))
            totals = await conn.execute(sql.BALANCES, (analyst,))
            more = await conn.execute(sql.CIRCUMSTANCES, {"analyst": analyst, "charge": None})
            deployment, who = entries.state_of(await state.fetchone(), analyst)
            if not who.active:
                raise accountant.not_active(analyst)
            balances = entries.balances_of(await totals.fetchall(), await more.fetchone(), deployment, who)
            return deployment, who, balances
