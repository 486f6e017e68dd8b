"""A ledger that has grown: many views, many charges."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
import torture
from pace import pace
from proxies import new_analyst, start_proxy
from psycopg_pool import AsyncConnectionPool

from mechanisms.loss import Coin, Loss
from provenance.chain import Witness
from provenance.ledger import Ledger
from provenance.model import Charge, Part

GIGABYTE = 2**30

# Every view with a charge, through the triggers that any charge goes through.
VIEWS = """
INSERT INTO provenance.view (relation, dimensions, measure, registered)
SELECT 'visit', '{ward}', 'number ' || i, false FROM generate_series(1, %(views)s) i"""
PAID = """
INSERT INTO provenance.charge (analyst, relation, relation_id, data_version, registry_version, fingerprint, question,
                               mechanism, coin, amount, epsilon, views, view_amounts, view_tables)
SELECT %(analyst)s, 'visit', v.relation_id, 1, d.registry_version, v.measure, v.measure, 'gaussian', 'zcdp', 0.001,
       0.25, ARRAY[v.id], '{0.001}', '{0.001}'
FROM provenance.view v CROSS JOIN provenance.deployment d WHERE v.measure LIKE 'number %%' ORDER BY v.id"""
RELEASES = """
COPY provenance.release (relation_id, data_version, digest, dimensions, measure, sensitivity, parts, variance, cells,
                         values, charge, snapshot) FROM STDIN (FORMAT binary)"""
KNOWN = "COPY provenance.knowledge (analyst, release, added, values) FROM STDIN (FORMAT binary)"

# In a process that has all of the product loaded: what it weighs with the values of every view in its hands.
TOUCH = """
import asyncio, json, resource, sys, time
import proxy.__main__, proxy.runtime, proxy.server
from psycopg_pool import AsyncConnectionPool
from mechanisms.synopsis import estimate
from provenance.releases import Place, Releases

async def main(dsn, analyst, relation, views):
    async with AsyncConnectionPool(dsn, min_size=1, max_size=2, open=False) as pool:
        store, seen, times = Releases(pool), 0, []
        for again in range(2):
            for number in range(1, views + 1):
                begun = time.perf_counter()
                place = Place(relation, 1, f"view {number}")
                held = (await store.find(analyst, [place]))[place]
                part = () if held.known.partial is None else (held.known.partial.release,)
                held = await store.loaded(analyst, held, {*held.known.whole, *part})
                seen += len(estimate(held.releases, held.known)[0])
                times.append(time.perf_counter() - begun)
    weight = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps([seen, weight, sorted(times)[len(times) // 2]]))

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
"""


def fill(dsn: str, analyst: str, views: int, cells: int) -> int:
    """So many views of so many cells, half of them known whole and half in part; returns the relation."""
    dice = np.random.default_rng(1)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(VIEWS, {"views": views})
        conn.execute(PAID, {"analyst": analyst})
        found = conn.execute(
            "SELECT v.relation_id, v.measure, c.charge FROM provenance.charge_view c"
            " JOIN provenance.view v ON v.id = c.view JOIN provenance.charge r ON r.id = c.charge"
            " WHERE r.analyst = %s ORDER BY c.charge",
            (analyst,),
        ).fetchall()
        with conn.cursor() as cursor, cursor.copy(RELEASES) as copy:
            kinds = "int8 int8 text text[] text numeric int8 text int4 bytea int8 int8"
            copy.set_types(kinds.split())
            for number, (relation, measure, charge) in enumerate(found, 1):
                values = dice.integers(-2000, 2000, cells).astype("<i8").tobytes()
                row = (relation, 1, f"view {number}", ["ward"], measure, Decimal(1), 1, "500", cells, values, charge)
                copy.write_row((*row, charge))
        ids = conn.execute("SELECT id FROM provenance.release ORDER BY id").fetchall()
        with conn.cursor() as cursor, cursor.copy(KNOWN) as copy:
            copy.set_types(["text", "int8", "text", "bytea"])
            for number, (id_,) in enumerate(ids):
                values = dice.integers(-2000, 2000, cells).astype("<i8").tobytes()
                copy.write_row((analyst, id_, *((None, None) if number % 2 else ("300", values))))
        conn.execute("ANALYZE")
    return int(found[0][0])


def started(dsn: str, shadow: str, log: Path, question: str, who: str) -> tuple[float, float]:
    """How long a proxy takes to be ready and to answer, and what it weighs then."""
    begun = time.monotonic()
    proxy = start_proxy(dsn, shadow, log)
    took = time.monotonic() - begun
    try:
        with proxy.connect(who) as session:
            session.execute(question)
        status = Path(f"/proc/{proxy.process.pid}/status").read_text()
        return took, float(status.split("VmRSS:")[1].split()[0]) * 1024
    finally:
        proxy.stop()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_views_start_soon_and_stay_light(
    postgres: Any, shadow_server: Any, tmp_path: Path, record_testsuite_property: Any
) -> None:
    views, cells = 1_000, 10_000
    dsn = torture.build(postgres.new_database("torture"))
    who = new_analyst(dsn)
    begin = partial(started, dsn, shadow_server.admin_dsn, tmp_path / "proxy.log", who=who)
    empty, _ = begin(question=torture.NUMBERS.format(1))
    owner = new_analyst(dsn)
    relation = fill(dsn, owner, views, cells)
    full, weight = begin(question=torture.NUMBERS.format(2))
    assert full < max(5 * pace(), 2 * empty), (empty, full)  # or what a start takes beside all that runs here
    assert weight < GIGABYTE
    command = [sys.executable, "-c", TOUCH, dsn, owner, str(relation), str(views)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=600)
    assert done.returncode == 0, done.stderr
    seen, most, each = json.loads(done.stdout)
    record_testsuite_property("seconds to start, without views and with them", (empty, full))
    record_testsuite_property("bytes of the proxy, and with all views; seconds for one of them", (weight, most, each))
    assert seen == 2 * views * cells and most < GIGABYTE, most


# A journal as it would be after so many questions; without triggers, since each would take its turn.
JOURNAL = """
SET session_replication_role = replica;
INSERT INTO provenance.view (relation, relation_id, dimensions, measure, registered)
SELECT 'visit', r.id, '{{ward}}', 'sum ' || i, false FROM generate_series(1, 50) i CROSS JOIN provenance.relation r;
INSERT INTO provenance.balance (scope, name) SELECT 'view', v.id::text FROM provenance.view v;
INSERT INTO provenance.charge (analyst, relation, relation_id, data_version, registry_version, fingerprint, question,
                               mechanism, coin, amount, epsilon, table_amount, views, view_amounts, view_tables, hash)
SELECT '{analyst}', 'visit', r.id, 1, 1, md5(i::text), 'SELECT ' || i, 'tslm', 'zcdp', 0.000001, 0.1, 0.000001,
       ARRAY[(SELECT min(v.id) FROM provenance.view v) + i % 50], '{{0.000001}}', '{{0.000001}}',
       sha256(i::text::bytea)
FROM generate_series(1, {rows}) i CROSS JOIN provenance.relation r;
INSERT INTO provenance.charge_view (charge, view, amount, table_amount)
SELECT c.id, c.views[1], c.amount, c.table_amount FROM provenance.charge c;
INSERT INTO provenance.spending (analyst, view, amount)
SELECT c.analyst, c.views[1], sum(c.amount) FROM provenance.charge c GROUP BY 1, 2;
UPDATE provenance.chain SET (charge, hash) = (SELECT c.id, c.hash FROM provenance.charge c ORDER BY c.id DESC LIMIT 1);
UPDATE provenance.balance SET amount = (SELECT sum(c.amount) FROM provenance.charge c)
WHERE scope = 'table' OR name = '{analyst}';
SET session_replication_role = origin;
"""


def grown(postgres: Any, rows: int) -> tuple[str, Charge]:
    """A database whose journal has so many rows, and a charge that can be made in it again and again."""
    dsn = torture.build(postgres.new_database("torture"))
    who = new_analyst(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(JOURNAL.format(analyst=who, rows=rows))
        conn.execute("VACUUM ANALYZE")
        found = conn.execute(
            "SELECT r.id, r.data_version, d.registry_version FROM provenance.relation r, provenance.deployment d"
        ).fetchone()
    assert found is not None
    relation, data, registry = found
    each = Decimal("0.000001")
    part = Part(("ward",), "sum 7", each, each)
    loss = Loss(Coin.ZCDP, each)
    return dsn, Charge(who, relation, data, registry, "f", "?", "tslm", loss, parts=(part,), accuracy="any")


async def timed(few: tuple[str, Charge], many: tuple[str, Charge], turns: int, place: Path) -> tuple[float, float]:
    """Medians of a charge in either, in turns, so that whatever else the machine does is the same for both."""
    times: tuple[list[float], list[float]] = ([], [])
    async with (
        AsyncConnectionPool(few[0], min_size=1, max_size=1, open=False) as one,
        AsyncConnectionPool(many[0], min_size=1, max_size=1, open=False) as other,
    ):
        ledgers = [Ledger(one), Ledger(other)]
        for number, ledger in enumerate(ledgers):
            ledger.remember(Witness(place / f"{number}.json", "ledger"))
        for turn in range(turns + 20):
            for ledger, (_, charge), found in zip(ledgers, (few, many), times, strict=True):
                begun = time.perf_counter()
                await ledger.charge(charge)
                if turn >= 20:
                    found.append(time.perf_counter() - begun)
    return statistics.median(times[0]), statistics.median(times[1])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_charge_costs_the_same_however_long_the_journal_is(
    postgres: Any, tmp_path: Path, record_testsuite_property: Any
) -> None:
    short, long = grown(postgres, 1_000), grown(postgres, 1_000_000)
    few, many = asyncio.run(timed(short, long, 500, tmp_path))
    record_testsuite_property("seconds for a charge: after a thousand, after a million", (few, many))
    assert many < 2 * few, (few, many)
