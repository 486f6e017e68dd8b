"""A ledger that is put back to an older copy, under a running proxy and between two runs: no budget comes back."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from proxies import Proxy, charges, new_analyst, running_proxy, start_proxy
from psycopg import Connection, sql
from psycopg.conninfo import conninfo_to_dict

from provenance.migrate import migrate

ROOT = Path(__file__).parents[2]
NORTH = "SELECT count(*) FROM visit WHERE ward = 'north'"
BOTH = "SELECT count(*) FROM visit WHERE ward IN ('north', 'south')"  # the south alone would be free after the north
WARDS = "SELECT ward, count(*) FROM visit GROUP BY ward"

Move = Callable[[str], None]


@pytest.fixture
def protected(postgres) -> str:  # type: ignore[no-untyped-def]
    dsn: str = postgres.new_database("protected")
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("CREATE TABLE visit (id int, ward text NOT NULL)")
        conn.execute("INSERT INTO visit SELECT i, 'north' FROM generate_series(1, 3000) i")
    return dsn


@pytest.fixture
def ledger(postgres) -> str:  # type: ignore[no-untyped-def]
    dsn: str = postgres.new_database("ledger")
    migrate(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("SELECT provenance.create_administrator('admin', 'admin'), provenance.protect('visit')")
        conn.execute("SELECT provenance.declare_attribute('visit', 'ward', members => '{north,south}')")
    return dsn


@pytest.fixture
def move(postgres, ledger: str) -> Move:  # type: ignore[no-untyped-def]
    """``backup`` copies the ledger's database, ``restore`` puts the copy in its place, whoever is connected."""
    name = str(conninfo_to_dict(ledger)["dbname"])
    copy = f"{name}_copy"

    def alone(conn: Connection[Any], database: str) -> None:
        conn.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(sql.Identifier(database)))
        end = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s"
        while conn.execute(end, (database,)).fetchall():
            time.sleep(0.02)

    def run(what: str) -> None:
        here, there = sql.Identifier(name), sql.Identifier(copy)
        with psycopg.connect(postgres.admin_dsn, autocommit=True) as conn:
            alone(conn, name)
            if what == "backup":
                conn.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(there, here))
                conn.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(here))
            else:
                conn.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(here))
                conn.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(there, here))

    return run


@pytest.fixture
def house(protected: str, ledger: str, shadow_server, tmp_path: Path) -> Iterator[Proxy]:  # type: ignore[no-untyped-def]
    log = tmp_path / "proxy.log"
    with running_proxy(protected, shadow_server.admin_dsn, log, options=("--provenance", ledger)) as running:
        yield running


def eventually(ask: Callable[[], Any]) -> Any:
    """The answer once the proxy has its connections again: a refusal of 58000 that tells of no gap passes.

    Who is refused at the door is told no SQLSTATE by psycopg.
    """
    for _ in range(240):
        try:
            return ask()
        except psycopg.Error as refused:
            unreachable = refused.sqlstate == "58000" or "cannot reach one of its databases" in str(refused)
            if not unreachable or "older copy" in str(refused):
                raise
            time.sleep(0.25)
    raise AssertionError("the proxy did not come back")


def spent(ledger: str, who: str) -> Any:
    with psycopg.connect(ledger) as conn:
        row = conn.execute("SELECT amount FROM provenance.balance WHERE name = %s", (who,)).fetchone()
    assert row is not None
    return row[0]


def status(protected: str, ledger: str, proxy: Proxy) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "proxy", "status", "--upstream", protected, "--provenance", ledger]
    command += ["--listen", f"127.0.0.1:{proxy.port}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)


def test_an_older_ledger_under_a_running_proxy_is_refused_until_the_gap_is_accepted(
    house: Proxy, protected: str, ledger: str, move: Move
) -> None:
    who = new_analyst(ledger)
    with house.connect(who) as session:
        session.execute(NORTH)
        move("backup")
        eventually(lambda: session.execute(BOTH))
    before = spent(ledger, who)
    move("restore")
    assert spent(ledger, who) < before, "the copy is older"
    with eventually(lambda: house.connect(who)) as session:
        with pytest.raises(psycopg.Error, match="restored from an older copy") as refused:
            eventually(lambda: session.execute(WARDS))
        assert refused.value.sqlstate == "58000"
        hint = refused.value.diag.message_hint
        assert hint is not None and "provenance.accept_gap" in hint
        assert len(charges(ledger, who)) == 1, "nothing was charged"
        told = status(protected, ledger, house)
        assert told.returncode == 1 and "provenance.accept_gap(1)" in told.stdout
        with eventually(lambda: house.connect("admin")) as admin:
            admin.execute("SELECT provenance.accept_gap(id) FROM provenance.gap WHERE accepted_at IS NULL")
        assert spent(ledger, who) == before
        eventually(lambda: session.execute(WARDS))
    assert spent(ledger, who) > before
    told = status(protected, ledger, house)
    assert told.returncode == 0 and "whole, at charge" in told.stdout, told.stdout


def test_an_older_ledger_is_refused_by_a_proxy_that_starts_on_it(
    protected: str,
    ledger: str,
    move: Move,
    shadow_server,  # type: ignore[no-untyped-def]
    tmp_path: Path,
) -> None:
    who = new_analyst(ledger)
    move("backup")
    log = tmp_path / "proxy.log"

    def start() -> Proxy:
        return start_proxy(protected, shadow_server.admin_dsn, log, options=("--provenance", ledger))

    first = start()
    with first.connect(who) as session:
        session.execute(NORTH)
    before = spent(ledger, who)
    first.kill()
    move("restore")
    second = start()
    try:
        with second.connect(who) as session, pytest.raises(psycopg.Error, match="restored from an older copy"):
            session.execute(WARDS)
        with psycopg.connect(ledger, autocommit=True) as conn:
            assert conn.execute("SELECT trouble IS NOT NULL FROM provenance.replica").fetchall() == [(True,)]
            conn.execute("SELECT provenance.accept_gap(id) FROM provenance.gap")
        with second.connect(who) as session:
            session.execute(WARDS)
    finally:
        second.stop()
    assert spent(ledger, who) > before
    with psycopg.connect(ledger) as conn:
        assert conn.execute("SELECT broken, reason FROM provenance.verify_chain()").fetchone() == (None, None)


def test_a_proxy_that_was_killed_goes_on_where_it_was(
    protected: str,
    ledger: str,
    shadow_server,  # type: ignore[no-untyped-def]
    tmp_path: Path,
) -> None:
    """Nothing was restored, so nothing is missing, however the proxy ended."""
    who = new_analyst(ledger)
    log = tmp_path / "proxy.log"
    for question in (NORTH, BOTH):
        proxy = start_proxy(protected, shadow_server.admin_dsn, log, options=("--provenance", ledger))
        with proxy.connect(who) as session:
            session.execute(question)
        proxy.kill()
    assert len(charges(ledger, who)) == 2
    with psycopg.connect(ledger) as conn:
        assert conn.execute("SELECT count(*) FROM provenance.gap").fetchone() == (0,)
