"""A charge costs the same however long the journal is."""

from __future__ import annotations

import asyncio
import logging
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg import Connection, sql

from mechanisms.loss import Coin, Loss
from provenance.ledger import Ledger
from provenance.model import Charge, Part
from proxy.embedded import Cluster

ChargeOf = Callable[..., Charge]
Pools = Callable[..., Any]

# Rows as the ledger writes them, past the triggers that would take an hour: nothing here looks at the old hashes.
LONG = """
SET session_replication_role = replica;
INSERT INTO provenance.charge (analyst, relation, relation_id, data_version, registry_version, fingerprint, question,
                               mechanism, coin, amount, epsilon, table_amount, views, view_amounts, view_tables, hash)
SELECT 'bob', 'patient', r.id, 1, 1, md5(i::text), 'SELECT count(*) FROM patient', 'tslm', 'zcdp', 1e-12, 1e-6, 1e-12,
       ARRAY[v.id], '{1e-12}', '{1e-12}', sha256(i::text::bytea)
FROM provenance.relation r, provenance.view v, generate_series(1, %s) i WHERE r.name = 'patient';
INSERT INTO provenance.charge_view SELECT id, views[1], amount, table_amount FROM provenance.charge;
UPDATE provenance.chain SET charge = (SELECT max(id) FROM provenance.charge);
SET session_replication_role = origin;
VACUUM ANALYZE provenance.charge, provenance.charge_view;
CHECKPOINT;
"""


def lengthen(dsn: str, rows: int) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("INSERT INTO provenance.view (relation) VALUES ('patient')")
        for statement in LONG.split(";")[:-1]:
            conn.execute(statement.encode(), (rows,) if "%s" in statement else None)


def viewed(conn: Connection, charge_of: ChargeOf) -> Charge:
    tiny = Decimal("1e-9")
    return replace(charge_of(conn, tiny), parts=(Part((), "count(*)", tiny, tiny),), accuracy="fine")


async def ask(ledger: Ledger, charge: Charge) -> None:
    """A fixed price, and a question with stages."""
    await ledger.charge(charge)
    receipt = await ledger.charge(replace(charge, staged=True))
    receipt = await ledger.reserve_more(receipt, Loss(Coin.ZCDP, Decimal("1e-9")))
    await ledger.settle(receipt, Loss(Coin.ZCDP, Decimal("1e-9")))


def test_no_charge_reads_the_journal_from_end_to_end(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    lengthen(ready, 5000)
    charge = viewed(owner, charge_of)

    def scans() -> dict[str, int]:
        owner.execute("SELECT pg_stat_clear_snapshot()")
        query = (
            "SELECT relname, seq_scan FROM pg_stat_user_tables WHERE relname IN ('charge', 'charge_view', 'synopsis')"
        )
        return dict(owner.execute(query).fetchall())

    async def run() -> None:
        async with pools(ready, 1) as pool:
            for _ in range(12):  # prepared by the client after five, planned generically by the server after as many
                await ask(Ledger(pool), charge)
                await Ledger(pool).remaining("alice")

    def told() -> dict[str, int]:
        """Connections tell what they read when they end."""
        others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        while owner.execute(others).fetchone() != (0,):
            time.sleep(0.02)
        return scans()

    asyncio.run(run())
    before = told()
    asyncio.run(run())
    after = told()
    assert after["charge"] == before["charge"] and after["charge_view"] == before["charge_view"]
    owner.execute("SELECT sum(epsilon) FROM provenance.charge")
    owner.execute("SELECT pg_stat_force_next_flush()")
    assert scans()["charge"] > after["charge"], "the counter counts"


@pytest.mark.slow
def test_a_charge_costs_the_same_at_a_million_rows_as_at_a_thousand(
    ledger_cluster: Cluster, ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    """Two ledgers take turns, so that whatever else the machine does hits both."""
    long = f"{psycopg.conninfo.conninfo_to_dict(ready)['dbname']}_long"
    with psycopg.connect(ledger_cluster.dsn(), autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE DATABASE {} TEMPLATE ready").format(sql.Identifier(long)))
    lengthen(ready, 1000)
    lengthen(ledger_cluster.dsn(long), 1_000_000)
    charge = viewed(owner, charge_of)

    async def run() -> tuple[list[float], list[float]]:
        times: tuple[list[float], list[float]] = ([], [])
        async with pools(ready, 1) as short_pool, pools(ledger_cluster.dsn(long), 1) as long_pool:
            ledgers = Ledger(short_pool), Ledger(long_pool)
            for turn in range(320):
                for ledger, taken in zip(ledgers, times, strict=True):
                    begun = time.perf_counter()
                    await ledger.charge(charge)
                    if turn >= 20:
                        taken.append(time.perf_counter() - begun)
        return times

    short_times, long_times = asyncio.run(run())
    short_, long_ = (statistics.quantiles(times, n=4)[0] for times in (short_times, long_times))
    told = f"a charge takes {1000 * short_:.2f} ms at a thousand rows, {1000 * long_:.2f} ms at a million"
    logging.getLogger(__name__).info(told)
    assert long_ < 2 * short_, told
