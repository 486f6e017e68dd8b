"""Processes that ask and may die at any command: the parts of the state machine of the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import psycopg
from psycopg import AsyncConnection, OperationalError
from psycopg_pool import AsyncConnectionPool

from mechanisms.errors import Refusal
from mechanisms.grid import Grid
from mechanisms.loss import Coin, Loss
from mechanisms.synopsis import step
from mechanisms.values import Exact
from provenance import accountant, entries
from provenance.ledger import Ledger
from provenance.ledger_sql import STATE
from provenance.model import Charge, Receipt
from provenance.releases import Place, Releases
from provenance.synopses import Sameness, Stored, Synopses
from proxy.numbers import drawn, told
from proxy.view_updates import Move, Source, Ways
from sqlrewrite.view import View

CELLS = 3
GRID = Grid(1, 1)
VIEWS = (View(("age",), "count(*)", "by age"), View(("sex",), "count(*)", "by sex"))
COUNT: Any = SimpleNamespace(statistics=(SimpleNamespace(terms=((0, 1),)),), measures=(None,), having=True)
"""As much of a question as the release of one statistic looks at; with a HAVING it has no shape."""

# Without the triggers that forbid it: a database of its own for each example would cost more than the example does.
ANEW = """
SET session_replication_role = replica;
TRUNCATE provenance.charge, provenance.charge_loss, provenance.synopsis, provenance.spending, provenance.view,
    provenance.layer, provenance.felt CASCADE;
DELETE FROM provenance.balance WHERE scope = 'view' OR (scope = 'analyst' AND name NOT IN ('alice', 'bob'));
DELETE FROM provenance.analyst WHERE name NOT IN ('alice', 'bob');
DELETE FROM provenance.credential WHERE name LIKE 'new%';
UPDATE provenance.chain SET charge = 0, hash = sha256('');
UPDATE provenance.balance SET amount = 0, delta = 0;
UPDATE provenance.deployment SET epsilon = 8, allocation = 'max',
    period = NULL, period_began = NULL, periods_earned = 1;
UPDATE provenance.analyst SET epsilon_limit = NULL, active = true;
UPDATE provenance.relation SET data_version = 1;
SET session_replication_role = origin;
"""


class Fuse:
    """Cuts a connection at its n-th command from now on; at COMMIT it may do so when the server has already done it."""

    def __init__(self, owner: psycopg.Connection) -> None:
        self.owner, self.behind = owner, False
        self.left: int | None = None

    def burn(self, conn: AsyncConnection[Any]) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                self.left = None
                self.owner.execute("SELECT pg_terminate_backend(%s, 5000)", (conn.info.backend_pid,))


def mortal(fuse: Fuse) -> type[AsyncConnection[Any]]:
    class Mortal(AsyncConnection[Any]):
        async def execute(self, *told: Any, **more: Any) -> Any:
            fuse.burn(self)
            return await super().execute(*told, **more)

        async def commit(self) -> None:
            lit = fuse.left is not None and fuse.behind
            if not lit:
                fuse.burn(self)
            await super().commit()
            if lit:
                fuse.left = None
                await self.close()
                raise OperationalError("the connection was lost behind COMMIT")

    return Mortal


@dataclass
class Asked:
    """A question for numbers that is planned, and perhaps paid."""

    charge: Charge
    same: Sameness
    ways: Ways
    receipt: Receipt | None = None


@dataclass
class Process:
    """What one proxy has in memory: gone when it dies."""

    dsn: str
    fuse: Fuse
    staged: list[Receipt] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)

    async def start(self) -> None:
        check = AsyncConnectionPool.check_connection
        self.pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
            self.dsn, connection_class=mortal(self.fuse), min_size=1, max_size=2, open=False, check=check, timeout=20
        )
        await self.pool.open()
        self.ledger, self.releases, self.synopses = Ledger(self.pool), Releases(self.pool), Synopses(self.pool)
        self.staged, self.asked = [], []


class Desk:
    """Two processes and their analysts: what they do, and what an owner sees of it in a ready database."""

    def __init__(self, dsn: str) -> None:
        self.owner = psycopg.connect(dsn, autocommit=True)
        self.owner.execute(ANEW)
        self.runner = asyncio.Runner()
        self.processes = [Process(dsn, Fuse(self.owner)) for _ in range(2)]
        for each in self.processes:
            self.runner.run(each.start())
        self.analysts = ["alice", "bob"]
        self.begun = 1  # periods
        self.paid: dict[int, tuple[str, Decimal]] = {}  # what receipts prove
        self.reached: dict[int, Decimal] = {}  # what settled questions have cost
        self.shown: dict[Sameness, bytes] = {}
        self.drawn: set[tuple[Any, ...]] = set()  # (analyst, release, how often it was drawn before)

    def close(self) -> None:
        for each in self.processes:
            self.runner.run(each.pool.close())
        self.runner.close()
        self.owner.close()

    def who(self, number: int) -> str:
        return self.analysts[number % len(self.analysts)]

    def charge_of(self, who: str, amount: Decimal, fingerprint: str = "f") -> Charge:
        row = self.owner.execute(
            "SELECT r.id, r.data_version, d.registry_version FROM provenance.relation r, provenance.deployment d"
            " WHERE r.label = 'patient' AND r.active"
        ).fetchone()
        assert row is not None
        relation, data, registry = row
        return Charge(who, relation, data, registry, fingerprint, "SELECT 1", "tslm", Loss(Coin.ZCDP, amount))

    def now(self, *work: Awaitable[Any]) -> list[Any]:
        """What came of it: values, and refusals of the kinds that a client may see."""

        async def together() -> list[Any]:
            return await asyncio.gather(*work, return_exceptions=True)

        found = self.runner.run(together())
        for one in found:
            if isinstance(one, BaseException) and not isinstance(one, Refusal):
                raise one
        return found

    async def pay(self, at: Process, charge: Charge, also: Any = ()) -> Receipt:
        (receipt,) = await at.ledger.charge_all([charge], also)
        self.paid[receipt.id] = charge.analyst, charge.loss.amount
        fresh = self.charge_of(charge.analyst, Decimal(0))
        assert (charge.data_version, charge.registry_version) == (fresh.data_version, fresh.registry_version), "stale"
        for _, (analyst, release, _, _, before) in also:
            assert (analyst, release, before) not in self.drawn, "two draws that started from the same state"
            self.drawn.add((analyst, release, before))
        return receipt

    async def plan(self, at: Process, who: str, view: View, variance: int) -> Asked | None:
        """As a proxy does it: None where the same question was answered before."""
        charge = self.charge_of(who, Decimal(0), view.digest)
        same = Sameness(who, charge.relation_id, charge.data_version, view.digest, str(variance))
        stored = await at.synopses.find(same)
        if stored is not None:
            assert stored.noisy.values.tobytes() == self.shown.setdefault(same, stored.noisy.values.tobytes())
            return None
        place = Place(charge.relation_id, charge.data_version, view.digest)
        held = (await at.releases.find(who, [place]))[place]
        done = step(held.releases, held.known, Fraction(1, variance))
        move = Move(place, view, COUNT, SimpleNamespace(), 0, GRID, held, 1, done, "")  # type: ignore[arg-type]
        ways = await drawn(at.releases, who, Ways({place: move}, (Source(place, None, None),), ()))
        charge = replace(charge, loss=ways.loss, table=ways.table, parts=ways.parts, accuracy=same.accuracy)
        return Asked(charge, same, ways)

    async def tell(self, at: Process, one: Asked) -> None:
        async def measure(question: Any, cells: Any) -> Exact:
            return Exact(np.zeros((1, CELLS), dtype=np.int64))

        assert one.receipt is not None
        noisy = await told(at.releases, one.receipt, one.ways, measure)
        kept = await at.synopses.keep(one.same, Stored(noisy), one.receipt)
        values = kept.noisy.values.tobytes()
        assert self.shown.setdefault(one.same, values) == values, "noise is seen once"

    async def ask(self, at: Process, who: str, view: View, variance: int) -> None:
        one = await self.plan(at, who, view, variance)
        if one is not None:
            one.receipt = await self.pay(at, one.charge, one.ways.also)
            await self.tell(at, one)

    def one_of(self, kind: str, place: int) -> tuple[Process, int] | None:
        """One of the questions that are under way, if there is any, and whose it is.

        No precondition instead: which rules there are must not depend on what a cut connection did.
        """
        all_ = [(each, at) for each in self.processes for at in range(len(getattr(each, kind)))]
        return all_[place % len(all_)] if all_ else None

    def administer(self, text: str, *values: Any) -> None:
        """A limit above the table's is refused, and so changes nothing."""
        try:
            self.owner.execute(text, values)
        except psycopg.errors.CheckViolation:
            pass

    def state(self, who: str) -> tuple[Any, Any]:
        deployment, analyst = entries.state_of(self.owner.execute(STATE, (who,)).fetchone(), who)
        assert deployment.periods == self.begun
        return deployment, analyst

    def spent(self) -> dict[tuple[str, str], Decimal]:
        rows = self.owner.execute("SELECT scope, name, amount FROM provenance.balance").fetchall()
        return {(scope, name): amount for scope, name, amount in rows}

    def rooms(self, who: str, learned: bool, lost: bool, parts: list[int]) -> list[Decimal]:
        """What is left under each limit, in coin: the analyst's, the table's, those of views."""
        deployment, analyst = self.state(who)
        spent = self.spent()
        found = []
        if learned:
            found.append(accountant.worth(deployment, accountant.limit(deployment, analyst)) - spent["analyst", who])
        if lost:
            whole = accountant.grown(deployment, deployment.epsilon)
            found.append(accountant.worth(deployment, whole) - spent["table", ""])
        for view in parts:
            row = self.owner.execute("SELECT epsilon_limit FROM provenance.view WHERE id = %s", (view,)).fetchone()
            if row is not None and row[0] is not None:
                most = accountant.grown(deployment, row[0])
                found.append(accountant.worth(deployment, most) - spent["view", str(view)])
        return found

    def left(self, charge: Charge) -> Decimal | None:
        """By how much a charge fits under the limit that is nearest; None for somebody who may not ask."""
        if not self.state(charge.analyst)[1].active:
            return None
        own = self.rooms(charge.analyst, True, False, [])[0] - charge.loss.amount
        table = self.rooms(charge.analyst, False, True, [])[0] - charge.table_amount
        views = [own, table]
        for part in charge.parts:
            found = self.owner.execute(
                "SELECT id FROM provenance.view WHERE dimensions = %s AND measure = %s",
                (sorted(part.dimensions), part.measure),
            ).fetchall()
            views += [room - part.table for room in self.rooms(charge.analyst, False, False, [id_ for (id_,) in found])]
        return min(views)

    def payments(self) -> tuple[dict[tuple[Any, ...], Fraction], dict[tuple[Any, ...], Fraction]]:
        """What was paid for numbers of each view and data version: by each analyst, and by the table."""
        paid: dict[tuple[Any, ...], Fraction] = {}
        lost: dict[tuple[Any, ...], Fraction] = {}
        for who, dimensions, version, amount, table in self.owner.execute(
            "SELECT c.analyst, v.dimensions, c.data_version, p.amount, p.table_amount FROM provenance.charge_view p"
            " JOIN provenance.charge c ON c.id = p.charge JOIN provenance.view v ON v.id = p.view"
            " WHERE c.fingerprint <> 'f'"
        ):
            paid[who, dimensions[0], version] = paid.get((who, dimensions[0], version), Fraction(0)) + Fraction(amount)
            lost[dimensions[0], version] = lost.get((dimensions[0], version), Fraction(0)) + Fraction(table)
        return paid, lost
