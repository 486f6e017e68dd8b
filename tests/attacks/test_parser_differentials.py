"""Texts that sqlglot and PostgreSQL read differently: refused by whoever minds, and free."""

from __future__ import annotations

import psycopg
import pytest
from attack_statements import DIFFERENTIALS
from attack_world import Hospital, Thief, sqlstate

NATIVE = ("SAVEPOINT patient", "LISTEN patient", "UNLISTEN patient", "CLOSE ALL", "DISCARD PLANS", "RESET ALL")


@pytest.mark.parametrize("sql", DIFFERENTIALS.values(), ids=DIFFERENTIALS.keys())
def test_a_text_with_two_readings_is_refused_at_no_cost(thief: Thief, sql: str) -> None:
    state = sqlstate(thief.session, sql)
    assert state is not None and state not in ("XX000", "58000", "no answer")
    assert thief.charges() == []


@pytest.mark.parametrize("sql", NATIVE)
def test_commands_that_sqlglot_takes_for_columns_stay_postgresqls(thief: Thief, sql: str) -> None:
    with thief.session.transaction():
        assert sqlstate(thief.session, sql) is None


def test_strings_that_end_elsewhere_are_refused(session: psycopg.Connection, hospital: Hospital, spy: str) -> None:
    """With standard_conforming_strings off a backslash lets PostgreSQL read on where sqlglot stops."""
    session.execute("SET standard_conforming_strings = off")
    assert sqlstate(session, "SELECT count(*) FROM patient WHERE name = '\\' OR name = ' OR age = 1 --'") is not None
    assert hospital.charges(spy) == []


def test_a_temporary_table_of_the_same_name_is_just_a_temporary_table(
    session: psycopg.Connection, hospital: Hospital, spy: str
) -> None:
    """Attack: search_path shadowing, of the table and of the catalogs that the proxy asks."""
    session.execute("CREATE TEMP TABLE patient (name text)")
    session.execute("INSERT INTO patient VALUES ('mine')")
    assert session.execute("SELECT name FROM patient").fetchall() == [("mine",)]
    assert session.execute("SELECT count(*) FROM patient").fetchall() == [(1,)]
    assert hospital.charges(spy) == []
    for catalog in ("pg_locks", "pg_class", "pg_namespace"):
        session.execute(f"CREATE TEMP TABLE {catalog} (pid int, relation oid, oid oid, relname name, nspname name)")
    session.execute("CREATE TYPE pg_temp.text AS (a int)")
    session.execute("SET search_path = pg_temp, public")
    session.execute("SELECT count(*) FROM public.patient")
    assert len(hospital.charges(spy)) == 1
    assert sqlstate(session, "SELECT name FROM public.patient") == "42501"


def test_a_statement_prepared_under_another_search_path_is_asked_again(
    session: psycopg.Connection, hospital: Hospital, spy: str
) -> None:
    """Attack: Parse under one search_path, Execute under another."""
    session.execute("CREATE TEMP TABLE visit (person text)")
    session.execute("SET search_path = public, pg_temp")
    session.prepare_threshold = 0
    question = "SELECT count(*) FROM visit"
    session.execute(question)
    assert len(hospital.charges(spy)) == 1
    session.execute("SET search_path = pg_temp, public")
    assert session.execute(question).fetchall() == [(0,)]
    session.execute("SET search_path = public, pg_temp")
    session.execute(question)
    assert len(hospital.charges(spy)) == 1


def test_a_name_of_the_proxys_own_statement_only_spoils_the_thiefs_session(session: psycopg.Connection) -> None:
    """Attack: prepare a statement under the name that the proxy uses, to have its asides answered by it."""
    session.execute("PREPARE \"__veil\" AS SELECT '{}'::json")
    state = sqlstate(session, "SELECT count(*) FROM patient")
    assert state in (None, "42P05")
    session.execute("DEALLOCATE ALL")
    assert sqlstate(session, "SELECT count(*) FROM patient") is None
