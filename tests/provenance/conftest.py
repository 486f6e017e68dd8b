"""One cluster for all tests here, and a new database for each; fixtures are plain facts about a small deployment."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg_pool import AsyncConnectionPool

from mechanisms.loss import Coin, Loss
from provenance.accountant import fold
from provenance.migrate import migrate
from provenance.model import Balance, Charge, Entry, Stage
from proxy.embedded import Cluster, temporary

_numbers = itertools.count(1)

TABLES = """
CREATE TYPE mood AS ENUM ('good', 'bad');
CREATE TABLE patient (id int PRIMARY KEY, age int NOT NULL, sex text, mood mood, seen date, fee numeric(8,2), ok bool);
INSERT INTO patient SELECT i, i % 100, 'f', 'good', '2024-01-01', 1.5, true FROM generate_series(1, 50) i;
CREATE TABLE orders (order_id int, customer_id int NOT NULL, city text, at timestamp);
CREATE TABLE city (city text PRIMARY KEY, region text);
INSERT INTO city VALUES ('Oslo', 'N'), ('Bergen', 'W'), ('Hamar', 'N');
CREATE TABLE secret_notes (note text);
"""

REGISTERED = """
UPDATE provenance.deployment SET epsilon = 10;
SELECT provenance.protect('patient', size_hint => 100);
SELECT provenance.protect('orders', 'customer_id', 3, 2);
SELECT provenance.publish('city');
SELECT provenance.declare_attribute('patient', 'age', 0, 100, 1);
SELECT provenance.create_analyst('alice', 'alice', 1);
SELECT provenance.create_analyst('bob', 'bob', 4);
SELECT provenance.create_administrator('admin', 'admin');
"""


@pytest.fixture(scope="session")
def ledger_cluster() -> Iterator[Cluster]:
    with temporary({"fsync": "off"}) as cluster:
        with psycopg.connect(cluster.dsn(), autocommit=True) as conn:
            conn.execute("CREATE DATABASE ready")
        migrate(cluster.dsn("ready"))
        with psycopg.connect(cluster.dsn("ready"), autocommit=True) as conn:
            conn.execute(TABLES + REGISTERED)
        yield cluster


def _database(cluster: Cluster, template: str) -> Iterator[str]:
    name = f"ledger_{next(_numbers)}"
    with psycopg.connect(cluster.dsn(), autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template)))
    yield cluster.dsn(name)  # not dropped: that would cost a checkpoint, and the cluster is thrown away


@pytest.fixture
def empty(ledger_cluster: Cluster) -> Iterator[str]:
    """The DSN of a database without anything."""
    yield from _database(ledger_cluster, "template1")


@pytest.fixture
def ready(ledger_cluster: Cluster) -> Iterator[str]:
    """The DSN of a migrated database with tables, analysts and an administrator."""
    yield from _database(ledger_cluster, "ready")


@pytest.fixture
def owner(ready: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(ready, autocommit=True) as conn:
        yield conn


@pytest.fixture(scope="session")
def shared(ledger_cluster: Cluster) -> Iterator[str]:
    """A ready database for tests that leave no trace."""
    yield from _database(ledger_cluster, "ready")


@pytest.fixture
def sandbox(shared: str) -> Iterator[psycopg.Connection]:
    """The owner's connection to the shared database, inside a transaction that is rolled back."""
    with psycopg.connect(shared, autocommit=True) as conn, conn.transaction(force_rollback=True):
        yield conn


# Without the triggers that forbid it: a database of its own for each of many tests would cost more than they do.
SWEEP = """
SET session_replication_role = replica;
TRUNCATE provenance.charge, provenance.charge_loss, provenance.synopsis, provenance.spending, provenance.view,
    provenance.grant_of_budget, provenance.gap, provenance.replica,
    provenance.layer, provenance.felt RESTART IDENTITY CASCADE;
DELETE FROM provenance.balance WHERE scope = 'view' OR (scope = 'analyst' AND name NOT IN ('alice', 'bob'));
DELETE FROM provenance.analyst WHERE name NOT IN ('alice', 'bob');
DELETE FROM provenance.credential WHERE name NOT IN ('alice', 'bob', 'admin');
UPDATE provenance.analyst SET privilege = CASE name WHEN 'alice' THEN 1 ELSE 4 END, epsilon_limit = NULL, active = true,
    coalition = NULL;
DELETE FROM provenance.coalition;
UPDATE provenance.balance SET amount = 0, delta = 0;
UPDATE provenance.chain SET charge = 0, hash = sha256('');
UPDATE provenance.deployment SET coin = 'zcdp', epsilon = 10, delta = 1e-9, allocation = 'max', expansion = 1,
    period = NULL, period_began = NULL, periods_earned = 1;
UPDATE provenance.relation SET active = true, data_version = 1;
UPDATE provenance.attribute SET upper = 100 WHERE relation = 'patient' AND name = 'age';
"""


@pytest.fixture(scope="session")
def used(ledger_cluster: Cluster) -> Iterator[str]:
    yield from _database(ledger_cluster, "ready")


@pytest.fixture
def sweep(used: str) -> Callable[[], None]:
    """Makes the used database one in which nothing has been spent."""

    def anew() -> None:
        with psycopg.connect(used, autocommit=True) as conn:
            conn.execute(SWEEP)

    return anew


@pytest.fixture
def swept(used: str, sweep: Callable[[], None]) -> str:
    """A ready database in which nothing has been spent; others have used it before."""
    sweep()
    return used


@pytest.fixture
def pools() -> Callable[..., Any]:
    @asynccontextmanager
    async def opened(dsn: str, size: int = 4) -> AsyncIterator[AsyncConnectionPool[Any]]:
        async with AsyncConnectionPool(dsn, min_size=1, max_size=size, open=False) as pool:
            yield pool

    return opened


@pytest.fixture
def charge_of() -> Callable[..., Charge]:
    def make(
        conn: psycopg.Connection, amount: str | Decimal, analyst: str = "alice", relation: str = "patient"
    ) -> Charge:
        row = conn.execute(
            "SELECT r.id, r.data_version, d.registry_version, d.coin"
            " FROM provenance.relation r, provenance.deployment d WHERE r.label = %s AND r.active",
            (relation,),
        ).fetchone()
        assert row is not None
        loss = Loss(Coin(row[3]), Decimal(amount), Decimal(0))
        return Charge(analyst, row[0], row[1], row[2], "f00d", "SELECT 1", "tslm", loss, bill={"question": "SELECT 1"})

    return make


@pytest.fixture
def journal_of() -> Callable[[psycopg.Connection], list[Entry]]:
    """The journal as the accountant reads it."""

    def read(conn: psycopg.Connection) -> list[Entry]:
        rows = conn.execute(
            "SELECT id, coalesce(question_of, id), analyst, stage, amount, delta, table_amount,"
            " views, view_amounts, view_tables, counted, table_counted FROM provenance.charge ORDER BY id"
        ).fetchall()
        return [
            Entry(
                *row[:3],
                Stage(row[3]),
                *row[4:7],
                dict(zip(row[7], zip(row[8], row[9], strict=True), strict=True)),
                *row[10:],
            )
            for row in rows
        ]

    return read


@pytest.fixture
def books_balance() -> Callable[[psycopg.Connection, list[Entry]], None]:
    """The balances that the triggers keep are the fold of the journal."""

    def check(conn: psycopg.Connection, journal: list[Entry]) -> None:
        books = fold(journal)
        for scope, name, amount, delta in conn.execute("SELECT scope, name, amount, delta FROM provenance.balance"):
            match scope:
                case "table":
                    folded = books.table
                case "analyst":
                    folded = books.analysts.get(name, Balance())
                case _:
                    folded = Balance(books.views.get(int(name), Decimal(0)))
            assert Balance(amount, delta) == folded, (scope, name)
        learned = {(row[0], row[1]): row[2] for row in conn.execute("SELECT * FROM provenance.spending")}
        assert learned == books.spending

    return check
