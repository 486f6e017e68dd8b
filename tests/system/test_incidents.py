"""Failures of the protected database: the time limit is public, everything else that may depend on rows is an incident.

Row security policies make a real PostgreSQL fail, or take long, on the rows of a table. Such tables are refused; the
proxy here is one that asks about them all the same.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from proxies import PATIENCE, Proxy, new_analyst, running_proxy

from provenance.migrate import migrate

SCHEMA = """
CREATE TABLE visit (id int PRIMARY KEY, ward text NOT NULL, secret int NOT NULL);
INSERT INTO visit SELECT i, 'north', i FROM generate_series(1, 300) i;
"""
TRUSTING = (str(Path(__file__).with_name("trusting.py")),)
TERMINATE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event = 'PgSleep' AND pid <> pg_backend_pid()"""


@pytest.fixture(scope="module")
def clinic(postgres, shadow_server, tmp_path_factory) -> Iterator[Proxy]:  # type: ignore[no-untyped-def]
    dsn = postgres.new_database("clinic")
    migrate(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(SCHEMA)
        conn.execute("UPDATE provenance.deployment SET epsilon = 1000")
        conn.execute("SELECT provenance.protect('visit')")
        conn.execute("SELECT provenance.create_administrator('boss', 'boss')")
    log = tmp_path_factory.mktemp("clinic") / "proxy.log"
    seconds = {"PGVEIL_QUESTION_SECONDS": "1"}
    with running_proxy(dsn, shadow_server.admin_dsn, log, environment=seconds, program=TRUSTING) as proxy:
        yield proxy


@pytest.fixture
def owner(clinic: Proxy) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(clinic.upstream, autocommit=True) as conn:
        yield conn
        conn.execute("DROP POLICY IF EXISTS trap ON visit")
        conn.execute("ALTER TABLE visit DISABLE ROW LEVEL SECURITY")
        conn.execute("UPDATE provenance.deployment SET incident_limit = 3")


def trap(owner: psycopg.Connection[Any], condition: str) -> None:
    owner.execute("ALTER TABLE visit ENABLE ROW LEVEL SECURITY")
    owner.execute(f"CREATE POLICY trap ON visit USING ({condition})".encode())


def spent(owner: psycopg.Connection[Any], name: str) -> Any:
    row = owner.execute(
        "SELECT amount FROM provenance.balance WHERE scope = 'analyst' AND name = %s", (name,)
    ).fetchone()
    return row and row[0]


def ask(session: psycopg.Connection[Any], number: int) -> Any:
    row = session.execute(f"SELECT count(*) FROM visit WHERE id < {1000 + number}".encode()).fetchone()
    return row and row[0]


def test_failures_that_may_depend_on_rows_pause_the_analyst(clinic: Proxy, owner: psycopg.Connection[Any]) -> None:
    name, other = new_analyst(clinic.upstream), new_analyst(clinic.upstream)
    with clinic.connect(name) as session:
        before = ask(session, 0)
        trap(owner, "100 / (secret - 7) IS NOT NULL")
        for number in (1, 2, 3):
            was = spent(owner, name)
            with pytest.raises(psycopg.errors.SystemError) as failed:
                ask(session, number)
            assert failed.value.diag.message_primary == "the protected database could not answer"
            assert "division" not in str(failed.value)
            assert spent(owner, name) > was  # charged
        was = spent(owner, name)
        with pytest.raises(psycopg.Error) as paused:
            ask(session, 4)
        assert paused.value.sqlstate == "55000" and "resume_analyst" in (paused.value.diag.message_hint or "")
        assert spent(owner, name) == was
        assert ask(session, 0) == before  # what is known already costs nothing and is shown
        with clinic.connect(other) as innocent, pytest.raises(psycopg.errors.SystemError):
            ask(innocent, 5)  # one incident of another analyst does not pause that one
        found = owner.execute(
            "SELECT i.failure, i.statement, c.question FROM provenance.incident i"
            " JOIN provenance.charge c ON c.id = i.charge WHERE i.analyst = %s ORDER BY i.id",
            (name,),
        ).fetchall()
        assert [row[0] for row in found] == ["22012"] * 3
        assert all('"visit"' in row[1] and "1000" not in row[1].split(" -- ")[0] for row in found)
        assert [row[2][-4:] for row in found] == ["1001", "1002", "1003"]
        assert "security incident" in clinic.log.read_text() and "22012" in clinic.log.read_text()
        owner.execute("DROP POLICY trap ON visit")
        with clinic.connect("boss") as boss:
            assert boss.execute("SELECT provenance.resume_analyst(%s)", (name,)).fetchone() == (3,)
            left = boss.execute(
                "SELECT count(*) FROM provenance.incident WHERE analyst = %s AND resolved_at IS NULL", (other,)
            )
            assert left.fetchone() == (1,)
        ask(session, 6)


def test_the_number_of_incidents_that_pause_is_the_administrators(
    clinic: Proxy, owner: psycopg.Connection[Any]
) -> None:
    owner.execute("UPDATE provenance.deployment SET incident_limit = 1")
    trap(owner, "100 / (secret - 7) IS NOT NULL")
    with clinic.connect(new_analyst(clinic.upstream)) as session:
        for state in ("58000", "55000"):
            with pytest.raises(psycopg.Error) as refused:
                ask(session, 1)
            assert refused.value.sqlstate == state


def test_an_incident_is_recorded_although_the_analyst_cancels(
    clinic: Proxy, owner: psycopg.Connection[Any], shadow_server: Any, tmp_path: Path
) -> None:
    """The answer waits for its departure after the failure: a cancel in between changes nothing."""
    name = new_analyst(clinic.upstream)
    trap(owner, "100 / (secret - 7) IS NOT NULL")
    slow = running_proxy(
        *(clinic.upstream, shadow_server.admin_dsn, tmp_path / "slow.log"),
        environment={"TRUSTING_DELAY": "4"},
        program=TRUSTING,
    )
    with slow as proxy, proxy.connect(name) as session:
        cancel = threading.Timer(2, session.cancel)
        cancel.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            ask(session, 20)
        cancel.join(PATIENCE)
    found = owner.execute("SELECT failure FROM provenance.incident WHERE analyst = %s", (name,)).fetchall()
    assert found == [("22012",)]


def test_the_time_limit_is_charged_and_is_no_incident(clinic: Proxy, owner: psycopg.Connection[Any]) -> None:
    name = new_analyst(clinic.upstream)
    trap(owner, "secret <> 7 OR pg_catalog.pg_sleep(20) IS NOT NULL")
    with clinic.connect(name) as session:
        with pytest.raises(psycopg.errors.QueryCanceled) as late:
            ask(session, 1)
        assert "time limit of 1 seconds" in str(late.value) and "charged" in (late.value.diag.message_detail or "")
    assert spent(owner, name) > 0
    count = owner.execute("SELECT count(*) FROM provenance.incident WHERE analyst = %s", (name,)).fetchone()
    assert count == (0,)


def test_a_lost_connection_is_no_incident(clinic: Proxy, owner: psycopg.Connection[Any]) -> None:
    name = new_analyst(clinic.upstream)
    trap(owner, "secret <> 7 OR pg_catalog.pg_sleep(0.9) IS NOT NULL")

    def terminate() -> None:
        with psycopg.connect(clinic.upstream, autocommit=True) as conn:
            while conn.execute(TERMINATE).fetchone() is None:
                time.sleep(0.01)

    killer = threading.Thread(target=terminate, daemon=True)
    killer.start()
    with clinic.connect(name) as session, pytest.raises(psycopg.errors.SystemError):
        ask(session, 1)
    killer.join(PATIENCE)
    assert spent(owner, name) > 0
    count = owner.execute("SELECT count(*) FROM provenance.incident WHERE analyst = %s", (name,)).fetchone()
    assert count == (0,)


def test_only_administrators_resume(clinic: Proxy, owner: psycopg.Connection[Any]) -> None:
    with clinic.connect("boss") as boss, pytest.raises(psycopg.errors.UndefinedObject):
        boss.execute("SELECT provenance.resume_analyst('nobody')")
    with clinic.connect("boss") as boss, pytest.raises(psycopg.errors.InsufficientPrivilege):
        boss.execute("DELETE FROM provenance.incident")
