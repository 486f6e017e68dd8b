"""The journal is a chain, and a ledger that has lost a part of it is noticed: nothing that was spent comes back."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import Connection, errors, sql
from psycopg_pool import AsyncConnectionPool

from mechanisms.loss import Coin, Loss
from provenance import migrate as module
from provenance.chain import Witness
from provenance.errors import LedgerGap, NotSettledError, StaleCatalog
from provenance.ledger import Ledger
from provenance.migrate import migrate, migrations
from provenance.model import Charge, Part
from proxy.embedded import Cluster

ChargeOf = Callable[..., Charge]
Pools = Callable[..., Any]

# Past the triggers, as one who has broken in would do it.
FORGED = "SET session_replication_role = replica"


def pay(dsn: str, pools: Pools, *charges: Charge, witness: Witness | None = None) -> None:
    async def run() -> None:
        async with pools(dsn) as pool:
            ledger = Ledger(pool)
            ledger.remember(witness or Witness())
            for charge in charges:
                await ledger.charge(charge)

    asyncio.run(run())


def verdict(conn: Connection) -> tuple[Any, ...]:
    found = conn.execute("SELECT charges, broken, reason FROM provenance.verify_chain()").fetchone()
    assert found is not None
    return tuple(found)


def balances(conn: Connection) -> dict[str, Decimal]:
    return dict(conn.execute("SELECT scope || name, amount FROM provenance.balance WHERE amount > 0").fetchall())


def test_each_row_is_hashed_with_the_one_before(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    pay(ready, pools, *(charge_of(owner, amount) for amount in ("0.001", "0.002", "0.003")))
    last = hashlib.sha256(b"").digest()
    for text, found in owner.execute("SELECT provenance.charge_text(c), c.hash FROM provenance.charge c ORDER BY id"):
        last = hashlib.sha256(last + text.encode()).digest()
        assert found == last
    assert owner.execute("SELECT charge, hash FROM provenance.chain").fetchone() == (3, last)
    assert verdict(owner) == (3, None, None)


def test_the_text_of_a_row_does_not_depend_on_the_session(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    pay(ready, pools, replace(charge_of(owner, "0.001"), bill={"b": 1, "a": [0.5]}, question="SELECT 'ä'"))
    text = "SELECT provenance.charge_text(c) FROM provenance.charge c"
    plain = owner.execute(text).fetchone()
    owner.execute("SET timezone = 'Asia/Kolkata'; SET datestyle = 'German'; SET extra_float_digits = 0")
    assert owner.execute(text).fetchone() == plain
    assert verdict(owner) == (1, None, None)


@pytest.mark.parametrize(
    ("forgery", "broken"),
    [
        ("UPDATE provenance.charge SET amount = 0, table_amount = 0, counted = 0, table_counted = 0 WHERE id = 2", 2),
        ("UPDATE provenance.charge SET counted = 0 WHERE id = 3", 3),
        ("UPDATE provenance.charge SET regions = '{x}', region_amounts = '{0}', region_tables = '{0}' WHERE id = 4", 4),
        ("UPDATE provenance.charge SET analyst = 'bob' WHERE id = 3", 3),
        ("UPDATE provenance.charge SET bill = '{}' WHERE id = 1", 1),
        ("UPDATE provenance.charge SET table_amount = 0, table_counted = 0 WHERE id = 4", 4),
        ("UPDATE provenance.charge SET views = '{7}', view_amounts = '{0}', view_tables = '{0}' WHERE id = 2", 2),
        ("DELETE FROM provenance.charge WHERE id = 2", 3),
        ("DELETE FROM provenance.charge WHERE id = 1", 2),
        ("DELETE FROM provenance.charge WHERE id = 4", 4),
        ("TRUNCATE provenance.charge CASCADE", 4),
        ("UPDATE provenance.charge SET hash = sha256('x') WHERE id = 3", 3),
        ("UPDATE provenance.chain SET charge = 3", 3),
    ],
)
def test_the_first_row_that_was_touched_is_told(
    swept: str, pools: Pools, charge_of: ChargeOf, forgery: str, broken: int
) -> None:
    with psycopg.connect(swept, autocommit=True) as conn:
        conn.execute("ALTER SEQUENCE provenance.charge_id_seq RESTART")
        pay(swept, pools, *(charge_of(conn, "0.001") for _ in range(4)))
        conn.execute(FORGED)
        conn.execute(forgery.encode())
        assert verdict(conn)[1] == broken


@pytest.mark.parametrize("scope", ["table", "analyst", "view"])
def test_a_balance_that_was_touched_is_told(swept: str, pools: Pools, charge_of: ChargeOf, scope: str) -> None:
    with psycopg.connect(swept, autocommit=True) as conn:
        part = Part((), "count(*)", Decimal("0.001"), Decimal("0.001"))
        pay(swept, pools, replace(charge_of(conn, "0.001"), parts=(part,)))
        assert verdict(conn) == (1, None, None)
        conn.execute("UPDATE provenance.balance SET amount = 0 WHERE scope = %s AND amount > 0", (scope,))
        assert scope in verdict(conn)[2]


def test_rows_stand_in_the_order_of_the_chain_whoever_drew_a_number_first(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    """Somebody beside the ledger draws an id, waits for the till, and comes second: the row takes a later id."""
    charge = charge_of(owner, "0.001")
    insert = (
        "INSERT INTO provenance.charge (analyst, relation, relation_id, data_version, registry_version, fingerprint,"
        " question, mechanism, coin, amount, epsilon) VALUES ('alice', 'patient', %s, 1, 1, 'f', 'q', 'tslm', 'zcdp',"
        " 0.001, 0.1) RETURNING id"
    )

    async def run() -> int:
        async with (
            await psycopg.AsyncConnection.connect(ready) as first,
            await psycopg.AsyncConnection.connect(ready) as second,
        ):
            await first.execute("SELECT FROM provenance.balance WHERE scope = 'table' FOR UPDATE")
            late = asyncio.create_task(second.execute(insert, (charge.relation_id,)))
            while not await _waits(first):
                await asyncio.sleep(0.01)
            row = await (await first.execute(insert, (charge.relation_id,))).fetchone()
            await first.commit()
            after = await (await late).fetchone()
            await second.commit()
            assert row is not None and after is not None and after[0] > row[0]
            return int(after[0])

    last = asyncio.run(run())
    assert owner.execute("SELECT charge FROM provenance.chain").fetchone() == (last,)
    assert verdict(owner) == (2, None, None)


async def _waits(conn: psycopg.AsyncConnection[Any]) -> bool:
    row = await (await conn.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")).fetchone()
    return row is not None and row[0] > 0


def test_charges_from_before_the_chain_are_linked_by_the_migration(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = migrations()
    with monkeypatch.context() as past:
        past.setattr(module, "migrations", lambda: {name: text for name, text in files.items() if name < "0008"})
        migrate(empty)
    with psycopg.connect(empty, autocommit=True) as conn:
        conn.execute("SELECT provenance.create_analyst('alice', 'alice', 1)")
        conn.execute("CREATE TABLE patient (id int); SELECT provenance.protect('patient')")
        conn.execute(
            "INSERT INTO provenance.charge (analyst, relation, relation_id, data_version, registry_version,"
            " fingerprint, question, mechanism, coin, amount, epsilon)"
            " SELECT 'alice', label, id, 1, 1, 'f', 'q', 'tslm', 'zcdp', 0.001, 0.1 FROM provenance.relation,"
            " generate_series(1, 20)"
        )
        migrate(empty)
        assert verdict(conn) == (20, None, None)
        with pytest.raises(errors.InsufficientPrivilege):
            conn.execute("UPDATE provenance.charge SET amount = 0")


# A ledger that is put back to an older copy of itself, with a file that remembers.


@pytest.fixture
def anchor(tmp_path: Path) -> Path:
    return tmp_path / "home" / "anchor.json"


Move = Callable[[str], Awaitable[None]]


@pytest.fixture
def restorable(ready: str, ledger_cluster: Cluster) -> Move:
    """``backup`` copies the database, ``restore`` puts the copy in its place; all connections are cut, as in life."""
    name = str(psycopg.conninfo.conninfo_to_dict(ready)["dbname"])
    copy = f"{name}_copy"

    def alone(conn: Connection, database: str) -> None:
        """Nobody comes in, and everybody leaves: also those who were just coming."""
        conn.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(sql.Identifier(database)))
        end = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s"
        while conn.execute(end, (database,)).fetchall():
            time.sleep(0.02)

    def move(what: str) -> None:
        here, there = sql.Identifier(name), sql.Identifier(copy)
        with psycopg.connect(ledger_cluster.dsn(), autocommit=True) as conn:
            alone(conn, name)
            if what == "backup":
                conn.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(there, here))
                conn.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(here))
            else:
                conn.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(here))
                conn.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(there, here))

    async def run(what: str) -> None:
        await asyncio.to_thread(move, what)

    return run


@asynccontextmanager
async def till(dsn: str, anchor: Path, replica: str = "one") -> AsyncIterator[Ledger]:
    check = AsyncConnectionPool.check_connection  # as the proxy's own: a connection that died is replaced
    async with AsyncConnectionPool(dsn, min_size=1, max_size=2, open=False, check=check) as pool:
        ledger = Ledger(pool)
        ledger.remember(Witness(anchor, "ledger", replica))
        yield ledger


def once(dsn: str, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as conn:
        cursor = conn.execute(query.encode(), parameters)
        return cursor.fetchall() if cursor.description else []


def made(dsn: str, charge_of: ChargeOf, amount: str, analyst: str = "alice", **more: Any) -> Charge:
    with psycopg.connect(dsn, autocommit=True) as conn:
        return replace(charge_of(conn, amount, analyst), **more)


def test_the_anchor_says_what_the_ledger_said_last(ready: str, pools: Pools, charge_of: ChargeOf, anchor: Path) -> None:
    async def run() -> None:
        async with till(ready, anchor) as ledger:
            await ledger.vouch()
            await ledger.charge(made(ready, charge_of, "0.001", table=Decimal("0.0004")))
            receipt = await ledger.charge(made(ready, charge_of, "0.002", "bob", staged=True))
            await ledger.settle(receipt, Loss(Coin.ZCDP, Decimal("0.0005")))

    asyncio.run(run())
    told = json.loads(anchor.read_text())
    ((id_, digest),) = once(ready, "SELECT charge, encode(hash, 'hex') FROM provenance.chain")
    assert (told["ledger"], told["charge"], told["hash"], told["coin"]) == ("ledger", id_, digest, "zcdp")
    assert Decimal(told["table"][0]) == Decimal("0.0009")
    assert {name: Decimal(total[0]) for name, total in told["analysts"].items()} == {
        "alice": Decimal("0.001"),
        "bob": Decimal("0.0005"),
    }
    assert [path.name for path in anchor.parent.iterdir()] == [anchor.name], "written aside and renamed"


def test_an_older_copy_is_noticed_and_what_it_lacks_counts_as_spent(
    ready: str, pools: Pools, charge_of: ChargeOf, anchor: Path, restorable: Move
) -> None:
    lost = made(ready, charge_of, "0.003", "bob", table=Decimal("0.001"))

    async def run() -> None:
        async with till(ready, anchor) as ledger:
            await ledger.vouch()
            await ledger.charge(made(ready, charge_of, "0.001"))
            await restorable("backup")
            await ledger.charge(made(ready, charge_of, "0.002"))
            await ledger.charge(lost)
            once(ready, "SELECT provenance.create_analyst('later', 'later', 10)")
            await ledger.charge(made(ready, charge_of, "0.004", "later"))
            before = once(ready, "SELECT scope || name, amount FROM provenance.balance ORDER BY 1")
            await restorable("restore")
            for _ in range(2):
                with pytest.raises(LedgerGap) as refused:
                    await ledger.charge(made(ready, charge_of, "0.001"))
                assert refused.value.sqlstate == "58000" and "accept_gap" in (refused.value.hint or "")
            assert once(ready, "SELECT count(*) FROM provenance.charge") == [(1,)]
            ((gap,),) = once(ready, "SELECT id FROM provenance.gap WHERE accepted_at IS NULL")
            stale = made(ready, charge_of, "0.0001")
            booked = once(ready, "SELECT * FROM provenance.accept_gap(%s)", gap)
            assert [(who, amount) for who, amount, _ in booked] == [
                ("alice", Decimal("0.002")),
                ("bob", Decimal("0.003")),
                ("later", Decimal("0.004")),
            ]
            assert once(ready, "SELECT scope || name, amount FROM provenance.balance ORDER BY 1") == before
            with pytest.raises(StaleCatalog):
                await ledger.charge(stale)  # the data version has moved: old synopses are not refined
            await ledger.charge(made(ready, charge_of, "0.0001"))

    asyncio.run(run())
    assert once(ready, "SELECT charges, broken, reason FROM provenance.verify_chain()") == [(5, None, None)]
    assert once(ready, "SELECT active FROM provenance.analyst WHERE name = 'later'") == [(False,)]
    assert once(ready, "SELECT DISTINCT mechanism FROM provenance.history ORDER BY 1") == [("gap",), ("tslm",)]


def test_an_older_copy_is_noticed_at_the_start_and_by_looking(
    ready: str, pools: Pools, charge_of: ChargeOf, anchor: Path, restorable: Move
) -> None:
    asyncio.run(restorable("backup"))

    async def first() -> None:
        async with till(ready, anchor) as ledger:
            await ledger.charge(made(ready, charge_of, "0.002"))

    async def second() -> None:
        async with till(ready, anchor, "two") as ledger:
            with pytest.raises(LedgerGap):
                await ledger.vouch()
            with pytest.raises(LedgerGap):
                await ledger.charge(made(ready, charge_of, "0.001"))
        async with pools(ready) as pool:
            with pytest.raises(LedgerGap):  # one without an anchor is told by those who have one
                await Ledger(pool).charge(made(ready, charge_of, "0.001"))

    async def third() -> None:
        async with till(ready, anchor) as ledger:
            await ledger.charge(made(ready, charge_of, "0.001"))

    asyncio.run(first())
    asyncio.run(restorable("restore"))
    asyncio.run(second())
    assert once(ready, "SELECT replica, charge FROM provenance.gap") == [("two", 1)]
    once(ready, "SELECT provenance.accept_gap(id) FROM provenance.gap")
    asyncio.run(third())
    assert once(ready, "SELECT amount FROM provenance.balance WHERE name = 'alice'") == [(Decimal("0.003"),)]


def test_what_came_after_the_copy_was_put_back_comes_on_top(
    ready: str, pools: Pools, charge_of: ChargeOf, anchor: Path, restorable: Move
) -> None:
    """A proxy without an anchor charges before anybody notices: its charge hides nothing of what was lost."""
    asyncio.run(restorable("backup"))

    async def run() -> None:
        async with till(ready, anchor) as ledger:
            await ledger.charge(made(ready, charge_of, "0.002"))
            await restorable("restore")
            async with pools(ready) as pool:
                await Ledger(pool).charge(made(ready, charge_of, "0.0015"))
            with pytest.raises(LedgerGap):
                await ledger.charge(made(ready, charge_of, "0.001"))

    asyncio.run(run())
    once(ready, "SELECT provenance.accept_gap(id) FROM provenance.gap")
    spent = dict(once(ready, "SELECT scope, amount FROM provenance.balance WHERE amount > 0"))
    assert spent == {"analyst": Decimal("0.0035"), "table": Decimal("0.0035")}


def test_two_proxies_that_miss_the_same_charges_have_them_booked_once(
    ready: str, pools: Pools, charge_of: ChargeOf, tmp_path: Path, restorable: Move
) -> None:
    asyncio.run(restorable("backup"))

    async def run() -> None:
        async with till(ready, tmp_path / "a") as one, till(ready, tmp_path / "b", "two") as two:
            await one.charge(made(ready, charge_of, "0.002"))
            await two.charge(made(ready, charge_of, "0.001", "bob"))
            await restorable("restore")
            for ledger in (one, two):
                with pytest.raises(LedgerGap):
                    await ledger.charge(made(ready, charge_of, "0.001"))
            gaps = once(ready, "SELECT id FROM provenance.gap ORDER BY id")
            assert len(gaps) == 2
            once(ready, "SELECT provenance.accept_gap(%s)", gaps[0][0])
            with pytest.raises(LedgerGap):  # the other one has not been accepted
                await one.charge(made(ready, charge_of, "0.001"))
            once(ready, "SELECT provenance.accept_gap(%s)", gaps[1][0])
            for ledger in (one, two):
                await ledger.charge(made(ready, charge_of, "0.0001"))

    asyncio.run(run())
    spent = dict(once(ready, "SELECT scope || name, amount FROM provenance.balance WHERE amount > 0"))
    assert spent == {"table": Decimal("0.0032"), "analystalice": Decimal("0.0022"), "analystbob": Decimal("0.001")}


def test_a_gap_counts_for_every_view_those_to_come_too(
    ready: str, pools: Pools, charge_of: ChargeOf, anchor: Path, restorable: Move
) -> None:
    once(ready, "INSERT INTO provenance.view (relation, dimensions) VALUES ('patient', '{age}')")
    asyncio.run(restorable("backup"))
    part = Part(("sex",), "count(*)", Decimal("0.002"), Decimal("0.002"))

    async def run() -> None:
        async with till(ready, anchor) as ledger:
            await ledger.charge(made(ready, charge_of, "0.002", parts=(part,)))
            await restorable("restore")
            with pytest.raises(LedgerGap):
                await ledger.vouch()
            once(ready, "SELECT provenance.accept_gap(id) FROM provenance.gap")
            small = replace(part, amount=Decimal("0.0001"), table=Decimal("0.0001"))
            await ledger.charge(made(ready, charge_of, "0.0001", parts=(small,)))

    asyncio.run(run())
    rows = once(ready, "SELECT amount FROM provenance.balance WHERE scope = 'view' ORDER BY name")
    assert rows == [(Decimal("0.002"),), (Decimal("0.0021"),)]
    assert once(ready, "SELECT broken, reason FROM provenance.verify_chain()") == [(None, None)]


def test_a_question_that_was_under_way_is_answered_at_what_it_reserved(
    ready: str, pools: Pools, charge_of: ChargeOf, anchor: Path, restorable: Move
) -> None:
    asyncio.run(restorable("backup"))

    async def run() -> None:
        async with till(ready, anchor) as ledger:
            receipt = await ledger.charge(made(ready, charge_of, "0.002", staged=True))
            await restorable("restore")
            with pytest.raises(LedgerGap):
                await ledger.reserve_more(receipt, Loss(Coin.ZCDP, Decimal("0.001")))
            with pytest.raises(NotSettledError):
                await ledger.settle(receipt, Loss.nothing(Coin.ZCDP))

    asyncio.run(run())


def test_a_gap_is_accepted_once_and_only_if_it_is_there(ready: str, owner: Connection) -> None:
    owner.execute(
        "SELECT provenance.report_gap(7, sha256('x'), now(), 'zcdp',"
        ' \'{"table": ["0.5", "0"], "analysts": {}}\', \'one\')'
    )
    assert owner.execute("SELECT * FROM provenance.accept_gap(1)").fetchall() == [(None, Decimal("0.5"), Decimal(0))]
    assert balances(owner) == {"table": Decimal("0.5")}
    with pytest.raises(errors.ObjectNotInPrerequisiteState):
        owner.execute("SELECT provenance.accept_gap(1)")
    with pytest.raises(errors.UndefinedObject):
        owner.execute("SELECT provenance.accept_gap(2)")
    assert verdict(owner) == (1, None, None)


@pytest.mark.parametrize("text", ["", "{", "{}", '{"charge": 1}', "[]"])
def test_an_anchor_that_cannot_be_read_stops_the_proxy(anchor: Path, text: str) -> None:
    anchor.parent.mkdir()
    anchor.write_text(text)
    with pytest.raises(LedgerGap, match="cannot be read"):
        Witness(anchor, "ledger")


def test_an_anchor_of_another_ledger_is_not_believed(
    ready: str, pools: Pools, charge_of: ChargeOf, anchor: Path
) -> None:
    pay(ready, pools, made(ready, charge_of, "0.001"), witness=Witness(anchor, "ledger"))
    Witness(anchor, "ledger")
    with pytest.raises(LedgerGap, match="another ledger"):
        Witness(anchor, "other")


def test_an_anchor_that_cannot_be_written_stops_nobody(
    ready: str, pools: Pools, charge_of: ChargeOf, anchor: Path, caplog: pytest.LogCaptureFixture
) -> None:
    witness = Witness(anchor, "ledger")
    anchor.parent.rmdir()
    pay(ready, pools, made(ready, charge_of, "0.001"), made(ready, charge_of, "0.001"), witness=witness)
    assert [record.message.split(":")[0] for record in caplog.records] == [f"the anchor {anchor} cannot be written"]


def test_many_charges_at_once_raise_no_false_alarm(ready: str, pools: Pools, charge_of: ChargeOf, anchor: Path) -> None:
    charge = made(ready, charge_of, "0.00001")

    async def run() -> None:
        async with pools(ready, 8) as pool:
            ledger = Ledger(pool)
            ledger.remember(Witness(anchor, "ledger"))
            looks = [ledger.vouch() for _ in range(10)]
            await asyncio.gather(*(ledger.charge(charge) for _ in range(60)), *looks)

    asyncio.run(run())
    ((id_,),) = once(ready, "SELECT charge FROM provenance.chain")
    assert json.loads(anchor.read_text())["charge"] == id_ == 60
    assert once(ready, "SELECT count(*) FROM provenance.gap") == [(0,)]
