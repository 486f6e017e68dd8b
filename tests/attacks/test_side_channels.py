"""Attack: learn what others pay from what is left for all, or rows from the statistics of the server.

Two analysts share a database; one pays, and everything that the other can see without paying is compared. An
administrator calls whatever PostgreSQL has that counts rows, blocks or bytes.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from attack_world import Hospital, build, proxy_here
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from provenance.migrate import migrate
from provenance.model import Remaining
from proxy.postmaster import binaries

KNOWN = "SELECT count(*) FROM patient WHERE ward = 'north'"
DEAR = "SELECT count(*) FROM patient WHERE ward = 'south'"


@pytest.fixture(scope="module")
def shared(postgres, shadow_server) -> Iterator[Hospital]:  # type: ignore[no-untyped-def]
    """A hospital whose database limit is 10: everybody with the largest privilege may spend all of it."""
    dsn = build(postgres.new_database("shared"), victim=False)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("UPDATE provenance.deployment SET epsilon = 10")
    with proxy_here(dsn, shadow_server.admin_dsn) as hospital:
        yield hospital


def pay(hospital: Hospital, payer: psycopg.Connection[Any], epsilon: str, age: int) -> Decimal:
    """Somebody asks something; returns what is left in the database, which only the owner sees."""
    payer.execute(f"SET veil.epsilon = {epsilon}".encode())
    payer.execute(f"SELECT count(*) FROM patient WHERE age > {age}".encode())
    with psycopg.connect(hospital.upstream) as conn:
        row = conn.execute('SELECT "left" FROM provenance.total').fetchone()
    assert row is not None
    return Decimal(row[0])


def seen(session: psycopg.Connection[Any]) -> list[str]:
    """All that an analyst sees for nothing: bills, explanations of questions of many prices, reports, refusals."""
    found: list[str] = []

    def see(notice: Any) -> None:
        found.append(f"{notice.message_primary} {notice.message_detail}")

    session.add_notice_handler(see)
    for text in (KNOWN, "SELECT * FROM veil.budget", "SELECT * FROM veil.question"):
        session.execute("SET veil.epsilon = 0.01")
        found.append(str(session.execute(text.encode()).fetchall()))
    # What fits into the database together with epsilon 3 of others is between 9 and 10: rho adds up, not epsilon.
    for epsilon in ("0.01", "1", "6.8", *(f"9.{tenth:02}" for tenth in range(0, 100, 7))):
        session.execute(f"SET veil.epsilon = {epsilon}".encode())
        for form in ("", "(FORMAT JSON)"):
            found.append(f"{epsilon} {session.execute(f'EXPLAIN {form} {DEAR}'.encode()).fetchall()}")
    session.execute("SET veil.epsilon = 9.9")
    try:
        session.execute(DEAR.encode())
    except psycopg.Error as refusal:
        found.append(f"{refusal} {refusal.diag.message_detail} {refusal.diag.message_hint}")
    session.remove_notice_handler(see)
    return found


@pytest.fixture
def pair(shared: Hospital, names: Callable[[], str]) -> Iterator[tuple[psycopg.Connection[Any], ...]]:
    """Who looks, who has nothing to spend, and who pays; of the database between 6 and 7 tenths are left."""
    watcher, poor, payer = names(), names(), names()
    for name, limit in ((watcher, "10"), (poor, "0.011"), (payer, "10")):
        shared.new_analyst(name, limit)
    with shared.connect(watcher) as one, shared.connect(poor) as two, shared.connect(payer) as three:
        for session in (one, two):
            session.execute("SET veil.epsilon = 0.01")
            session.execute(KNOWN.encode())
        yield one, two, three


def test_what_others_pay_shows_in_tenths_only(
    shared: Hospital, pair: tuple[psycopg.Connection[Any], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher, poor, payer = pair
    left = pay(shared, payer, "3", 1)
    assert Decimal(6) < left < 7
    before = seen(watcher), seen(poor)
    assert any("at most epsilon 7 left in the database" in line for line in before[0])
    refusal = before[0][-1]  # of a question that the own limit allows
    assert "limit of the protected database is reached" in refusal and "asked epsilon 9.9" in refusal
    assert " left " not in refusal and "count" not in refusal.split("asked epsilon", 1)[1]
    after = pay(shared, payer, "1", 2)
    assert 6 < after < left
    assert (seen(watcher), seen(poor)) == before
    # Mutant: what is left is shown to the last digit.
    with monkeypatch.context() as bug:
        bug.setattr(Remaining, "shared", property(lambda self: self.table))
        told = seen(watcher)
        pay(shared, payer, "0.05", 3)
        assert seen(watcher) != told
    # Mutant: EXPLAIN decides by the exact remainder, and so finds it by bisection.
    with monkeypatch.context() as bug:
        bug.setattr("provenance.shared.rounded", lambda deployment, balances, *, up: balances)
        bug.setattr("provenance.outlook.rounded", lambda deployment, balances, *, up: balances)
        told = seen(watcher)
        pay(shared, payer, "1.5", 4)
        assert seen(watcher) != told
    # A step of the shared limit is seen, and nothing else.
    assert pay(shared, payer, "3", 5) < 6
    assert seen(watcher) != before[0]
    assert any("at most epsilon 6 left in the database" in line for line in seen(watcher))
    assert seen(poor) == before[1], "whoever has nothing to spend sees nothing of others"


# -- administrators ----------------------------------------------------------------------------------------------------

COUNTERS = [
    "SELECT n_live_tup, n_tup_ins FROM pg_stat_user_tables",
    "SELECT * FROM pg_stat_all_tables",
    "SELECT * FROM pg_stat_sys_tables",
    "SELECT * FROM pg_stat_xact_user_tables",
    "SELECT * FROM pg_stat_user_indexes",
    "SELECT * FROM pg_statio_user_tables",
    "SELECT * FROM pg_statio_all_indexes",
    "SELECT tup_returned, tup_fetched FROM pg_stat_database",
    "SELECT * FROM pg_stat_io",
    "SELECT * FROM pg_stat_wal",
    "SELECT * FROM pg_stat_bgwriter",
    "SELECT * FROM pg_stat_slru",
    "SELECT * FROM pg_stat_progress_analyze",
    "SELECT * FROM pg_stat_progress_vacuum",
    "SELECT * FROM pg_locks",
    "SELECT pg_stat_get_live_tuples('public.patient'::regclass)",
    "SELECT pg_stat_get_tuples_inserted('public.patient'::regclass)",
    "SELECT pg_stat_get_blocks_fetched('public.patient'::regclass)",
    "SELECT pg_relation_size('public.patient')",
    "SELECT pg_relation_size('public.patient', 'fsm')",
    "SELECT pg_table_size('public.patient')",
    "SELECT pg_indexes_size('public.patient')",
    "SELECT pg_total_relation_size('public.patient')",
    "SELECT pg_database_size(current_database())",
    "SELECT pg_tablespace_size('pg_default')",
    "SELECT pg_current_wal_lsn()",
    "SELECT pg_current_wal_insert_lsn()",
    "SELECT * FROM pg_control_checkpoint()",
    "SELECT * FROM pg_replication_slots",
    "SELECT lo_create(0)",
    "SELECT lo_from_bytea(0, 'abc')",
    "SELECT lo_get(1)",
    "SELECT lo_open(1, 131072)",
    "SELECT loread(0, 10)",
]


def test_an_administrator_counts_no_rows(shared: Hospital) -> None:
    with shared.connect("keeper") as admin:
        for text in COUNTERS:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                admin.execute(text.encode())
        # What is left to administrators works as before.
        assert admin.execute("SELECT count(*) > 0 FROM provenance.relation").fetchone() == (True,)
        assert admin.execute("SELECT count(*) > 0 FROM pg_stat_activity").fetchone() == (True,)
        others = "SELECT count(*) FROM pg_stat_activity WHERE usename <> current_user AND query !~ 'insufficient'"
        assert admin.execute(others.encode()).fetchone() == (0,)


def _numbers_in(admin: psycopg.Connection[Any], view: str) -> set[str]:
    """Every number that a view of the system catalog shows to an administrator."""
    query = sql.SQL("SELECT coalesce(string_agg(v::text, ' '), '') FROM pg_catalog.{} v")
    try:
        (shown,) = admin.execute(query.format(sql.Identifier(view))).fetchone() or ("",)
    except psycopg.Error:
        return set()
    return set(re.findall("[0-9]+", shown))


def test_nothing_else_of_the_catalog_counts_rows(shared: Hospital) -> None:
    """Every view of statistics is asked: what answers an administrator tells nothing of the tables' rows."""
    with shared.connect("keeper") as admin, psycopg.connect(shared.upstream, autocommit=True) as owner:
        names = [row[0] for row in owner.execute("SELECT viewname FROM pg_views WHERE schemaname = 'pg_catalog'")]
        before = {name: _numbers_in(admin, name) for name in names}
        owner.execute("INSERT INTO patient (id, ward) SELECT 900000 + n, 'north' FROM generate_series(1, 77777) n")
        owner.execute("SELECT pg_stat_force_next_flush()")
        (total,) = owner.execute("SELECT count(*)::text FROM patient").fetchone() or ("",)
        for name in names:  # a role's oid may be the same number, and was there before
            assert not {"77777", total} & (_numbers_in(admin, name) - before[name]), name
        assert before["pg_roles"] and before["pg_stat_activity"]
        owner.execute("DELETE FROM patient WHERE id > 900000")


def test_the_server_goes_on(shared: Hospital) -> None:
    """The owner, autovacuum's work, ANALYZE and psql's \\d of an administrator."""
    with psycopg.connect(shared.upstream, autocommit=True) as owner:
        owner.execute("VACUUM ANALYZE patient")
        assert owner.execute("SELECT n_live_tup > 0 FROM pg_stat_user_tables WHERE relname = 'patient'").fetchone()
    told = subprocess.run(
        [
            *(str(binaries() / "psql"), "-h", "127.0.0.1", "-p", str(shared.port), "-U", "keeper", "-X", "-v"),
            *("ON_ERROR_STOP=1", "-c", "\\d provenance.relation", "-c", "\\dt provenance.*", "-c", "\\du", "-c", "\\l"),
            *("-d", str(conninfo_to_dict(shared.upstream)["dbname"])),
        ],
        env={**os.environ, "PGPASSWORD": "keeper", "PGSSLMODE": "disable"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert "unit_path" in told.stdout


def test_it_is_closed_again_and_by_the_right_role_only(postgres, caplog: pytest.LogCaptureFixture) -> None:  # type: ignore[no-untyped-def]
    """Whoever is no superuser initialises all the same, and is told; a superuser then closes it. Mutant: it is open."""
    dsn = postgres.new_database("closing")
    open_ = "SELECT has_function_privilege('pgveil_admin', 'pg_relation_size(regclass, text)', 'EXECUTE')"
    role = f"modest_{os.getpid()}"
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(f"CREATE ROLE {role} LOGIN CREATEROLE PASSWORD '{role}'".encode())
        name = conn.info.dbname
        conn.execute(f'GRANT ALL ON DATABASE "{name}" TO {role}; ALTER DATABASE "{name}" OWNER TO {role}'.encode())
        for granted in ("pgveil_admin", "pgveil_reader"):
            exists = conn.execute("SELECT FROM pg_roles WHERE rolname = %s", (granted,)).fetchone() is not None
            conn.execute(
                f"{'' if exists else f'CREATE ROLE {granted};'} GRANT {granted} TO {role} WITH ADMIN OPTION".encode()
            )
        assert conn.execute(open_.encode()).fetchone() == (True,)
        with caplog.at_level("WARNING"):
            migrate(make_conninfo(dsn, user=role, password=role))
        assert "close_side_channels" in caplog.text
        assert conn.execute(open_.encode()).fetchone() == (True,)
        assert conn.execute("SELECT provenance.close_side_channels()").fetchone() == ([],)
        assert conn.execute(open_.encode()).fetchone() == (False,)
        kept = "SELECT has_function_privilege(%s, 'pg_relation_size(regclass, text)', 'EXECUTE')"
        assert conn.execute(kept, (role,)).fetchone() == conn.execute(kept, ("pg_monitor",)).fetchone() == (True,)
        conn.execute("GRANT EXECUTE ON FUNCTION pg_relation_size(regclass, text) TO PUBLIC")
    caplog.clear()
    migrate(dsn)  # at every start
    with psycopg.connect(dsn, autocommit=True) as conn:
        assert conn.execute(open_.encode()).fetchone() == (False,)
    assert caplog.text == ""
