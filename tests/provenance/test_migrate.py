"""Migrations run once, in order, whoever starts them."""

from __future__ import annotations

import subprocess
import sys

import psycopg
import pytest

from provenance import migrate as module
from provenance.errors import MigrationError
from provenance.migrate import migrate, migrations

PROGRAM = "import sys; from provenance.migrate import migrate; print(len(migrate(sys.argv[1])))"


def test_a_second_run_applies_nothing(empty: str) -> None:
    assert migrate(empty) == list(migrations())
    assert migrate(empty) == []


def test_names_are_numbered_without_gaps() -> None:
    assert [name[:4] for name in migrations()] == [f"{n:04}" for n in range(1, len(migrations()) + 1)]


def test_processes_that_start_together_apply_each_file_once(empty: str) -> None:
    racers = [subprocess.Popen([sys.executable, "-c", PROGRAM, empty], stdout=subprocess.PIPE) for _ in range(3)]
    counts = sorted(int(racer.communicate(timeout=240)[0]) for racer in racers)
    assert counts == [0, 0, len(migrations())]


def test_an_edited_file_is_an_error(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    migrate(empty)
    edited = {name: text + "-- edited\n" for name, text in migrations().items()}
    monkeypatch.setattr(module, "migrations", lambda: edited)
    with pytest.raises(MigrationError, match=r"0001_tables\.sql was changed"):
        migrate(empty)


def test_a_database_that_is_newer_is_an_error(empty: str) -> None:
    migrate(empty)
    with psycopg.connect(empty) as conn:
        conn.execute("INSERT INTO provenance.migration (name, checksum) VALUES ('9999_later.sql', '')")
    with pytest.raises(MigrationError, match=r"newer .* 9999_later\.sql"):
        migrate(empty)


def test_a_file_that_fails_leaves_nothing(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = migrations()
    broken = dict(list(files.items())[:1]) | {"0002_broken.sql": "CREATE TABLE provenance.half (); SELECT 1/0;"}
    monkeypatch.setattr(module, "migrations", lambda: broken)
    with pytest.raises(psycopg.errors.DivisionByZero):
        migrate(empty)
    with psycopg.connect(empty) as conn:
        assert conn.execute("SELECT to_regclass('provenance.half')").fetchone() == (None,)
        assert conn.execute("SELECT name FROM provenance.migration").fetchall() == [("0001_tables.sql",)]


def test_every_function_view_and_table_has_a_comment(shared: str) -> None:
    with psycopg.connect(shared) as conn:
        bare = conn.execute(
            "SELECT relname::text FROM pg_class WHERE relnamespace = 'provenance'::regnamespace"
            " AND relkind IN ('r', 'v') AND obj_description(oid, 'pg_class') IS NULL UNION ALL"
            " SELECT proname::text FROM pg_proc WHERE pronamespace = 'provenance'::regnamespace "
            " AND prorettype <> 'trigger'::regtype"
            " AND obj_description(oid, 'pg_proc') IS NULL"
        ).fetchall()
    assert bare == []


OLD_CHARGE = """
SELECT provenance.create_analyst('alice', 'alice', 1);
CREATE TABLE public.patient (id int);
SELECT provenance.protect('patient');
INSERT INTO provenance.charge (analyst, relation, relation_id, data_version, registry_version, fingerprint, question,
                               mechanism, coin, amount, delta, epsilon, bill)
SELECT 'alice', label, id, 1, 1, 'f', 'q', 'tslm', 'zcdp', amount, 1e-12, 0.1, '{"beta": 1}'
FROM provenance.relation, unnest('{0.001,0.002}'::numeric[]) amount
"""


def test_charges_from_before_stages_stay_as_they_were(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = migrations()
    old = {name: text for name, text in files.items() if name < "0007"}
    with monkeypatch.context() as past:
        past.setattr(module, "migrations", lambda: old)
        assert migrate(empty) == list(old)
    reports = [
        "SELECT id, at, analyst, relation, question, mechanism, epsilon, delta, coin, charged, data_version,"
        " registry_version, bill FROM provenance.history ORDER BY id",
        "SELECT analyst, relation, questions, spent, coin, charged, delta FROM provenance.matrix",
        "SELECT * FROM provenance.budget",
        'SELECT spent, "limit", "left", coin, amount, delta_spent, delta_limit FROM provenance.total',
        "SELECT * FROM provenance.balance ORDER BY scope",
    ]
    with psycopg.connect(empty, autocommit=True) as conn:
        conn.execute(OLD_CHARGE)
        before = [conn.execute(report.encode()).fetchall() for report in reports]
        assert migrate(empty) == [name for name in files if name not in old]
        assert migrate(empty) == []
        assert [conn.execute(report.encode()).fetchall() for report in reports] == before
        assert len(before[0]) == 2
        rows = conn.execute("SELECT stage, question_of FROM provenance.charge").fetchall()
        assert rows == [("charge", None)] * 2
        assert conn.execute("SELECT stages, settled FROM provenance.history").fetchall() == [(1, True)] * 2
        refund = (
            "INSERT INTO provenance.charge (analyst, relation, relation_id, data_version, registry_version,"
            " fingerprint, question, mechanism, coin, amount, epsilon, stage, question_of)"
            " SELECT analyst, relation, relation_id, data_version, registry_version, fingerprint, question, mechanism,"
            " coin, -amount, 0, 'settle', id FROM provenance.charge LIMIT 1"
        )
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="first reservation"):
            conn.execute(refund)
        conn.execute(OLD_CHARGE.split(";")[3])  # a proxy of the older version goes on charging meanwhile
        conn.execute("SET ROLE pgveil_admin")
        assert conn.execute("SELECT count(*) FROM provenance.history").fetchone() == (4,)
        assert conn.execute("SELECT count(*) FROM provenance.charge_loss").fetchone() == (0,)


def test_a_server_that_is_too_old_is_refused(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OLDEST_SERVER", 990_000)
    for prepare in (module.migrate, module.admit_reader):
        with pytest.raises(MigrationError, match="needs PostgreSQL 99 or later"):
            prepare(empty)
