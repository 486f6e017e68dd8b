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
    counts = sorted(int(racer.communicate(timeout=60)[0]) for racer in racers)
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
