"""What an analyst can do on the shadow: look, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.conninfo import make_conninfo
from psycopg.pq import ExecStatus
from shadow_world import SECRET, Built, Clusters, rows, start

from proxy.shadow import Shadow, ShadowError


@pytest.fixture(scope="module")
def clusters() -> Iterator[Clusters]:
    yield from start()


@pytest.fixture(scope="module")
def built(clusters: Clusters) -> Built:
    return Built.on(clusters)


@pytest.fixture
def alice(built: Built) -> Iterator[psycopg.Connection[Any]]:
    with built.connect() as connection:
        yield connection


def test_a_wrong_password_does_not_open_the_shadow(built: Built) -> None:
    dsn = make_conninfo(built.shadow.dsn(built.generation, "alice"), password=built.shadow.password("bob"))
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(dsn)


def test_a_protected_select_is_parsed_and_described_but_not_executed(alice: psycopg.Connection[Any]) -> None:
    pg = alice.pgconn
    query = b"SELECT name, count(*) AS n FROM patient WHERE age > $1 AND state = $2 GROUP BY name"
    assert pg.prepare(b"q", query).status == ExecStatus.COMMAND_OK
    described = pg.describe_prepared(b"q")
    assert [described.fname(i) for i in range(described.nfields)] == [b"name", b"n"]
    assert [described.ftype(i) for i in range(described.nfields)] == [1043, 20]
    assert described.param_type(0) == 21
    refused = pg.exec_prepared(b"q", [b"1", b"sad"])
    assert refused.status == ExecStatus.FATAL_ERROR
    assert refused.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"42501"


SIDE_DOORS = (
    "SELECT * FROM patient",
    "SELECT 1 FROM patient",
    "SELECT count(*) FROM patient WHERE 1=0",
    "SELECT 1 FROM patient LIMIT 0",
    "SELECT 1 WHERE EXISTS (SELECT FROM patient)",
    "SELECT (SELECT max(age) FROM patient)",
    "SELECT r.* FROM region r LEFT JOIN patient p ON p.id = r.region_id",
    "WITH p AS (SELECT * FROM patient) SELECT 1 FROM p",
    "SELECT 1 FROM region WHERE false UNION ALL SELECT 1 FROM patient",
    "TABLE patient",
    "TABLE event",
    'SELECT FROM "Sales Dept"."Order Line"',
    "SELECT tableoid, ctid FROM patient",
    "SELECT p FROM patient p",
    "SELECT * FROM patient TABLESAMPLE system (10)",
    "SELECT * FROM patient FOR UPDATE",
    "COPY patient TO STDOUT",
    "COPY (SELECT 1 FROM patient) TO STDOUT",
    "COPY patient FROM STDIN",
    "EXPLAIN SELECT * FROM patient",
    "EXPLAIN ANALYZE SELECT * FROM patient",
    "CREATE TEMP VIEW tv AS SELECT * FROM patient; SELECT * FROM tv",
    "CREATE TEMP VIEW tv WITH (security_invoker) AS SELECT * FROM patient; SELECT * FROM tv",
    "CREATE TEMP TABLE tt AS SELECT * FROM patient",
    "CREATE TEMP TABLE tt (LIKE patient)",
    "CREATE TEMP TABLE tt () INHERITS (patient)",
    "SELECT * INTO TEMP tt FROM patient",
    "CREATE FUNCTION pg_temp.f() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM patient'; SELECT pg_temp.f()",
    "CREATE FUNCTION pg_temp.f() RETURNS bigint LANGUAGE sql SECURITY DEFINER BEGIN ATOMIC"
    " SELECT count(*) FROM patient; END; SELECT pg_temp.f()",
    "CREATE FUNCTION pg_temp.f() RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS"
    " 'BEGIN RETURN (SELECT count(*) FROM patient); END'; SELECT pg_temp.f()",
    "DO $$ BEGIN PERFORM 1 FROM patient; END $$",
    "DO $$ BEGIN EXECUTE 'SELECT 1 FROM patient'; END $$",
    "SELECT query_to_xml('SELECT 1 FROM patient', true, true, '')",
    "SELECT ts_stat('SELECT to_tsvector(name) FROM patient')",
    "PREPARE q AS SELECT * FROM patient; EXECUTE q",
    "BEGIN; DECLARE c CURSOR FOR SELECT * FROM patient; FETCH c",
    "DECLARE c CURSOR WITH HOLD FOR SELECT * FROM patient",
    "INSERT INTO patient (id) VALUES (1)",
    "UPDATE patient SET age = 1",
    "DELETE FROM patient WHERE false",
    "MERGE INTO patient p USING region r ON p.id = r.region_id WHEN MATCHED THEN DELETE",
    "TRUNCATE patient",
    "ALTER TABLE patient ADD x int",
    "CREATE INDEX ON patient (age)",
    "CREATE TEMP TABLE t (x bigint); CREATE RULE r AS ON UPDATE TO t DO ALSO INSERT INTO t SELECT id FROM patient;"
    " UPDATE t SET x = 1",
    "BEGIN; LOCK TABLE patient IN ACCESS SHARE MODE",
)


@pytest.mark.parametrize("text", SIDE_DOORS)
def test_postgresql_itself_refuses_every_way_to_a_protected_table(alice: psycopg.Connection[Any], text: str) -> None:
    with pytest.raises(errors.InsufficientPrivilege):
        alice.execute(text)


@pytest.mark.parametrize("report", ["budget", "question"])
def test_a_report_that_nobody_filled_says_so_rather_than_being_empty(
    alice: psycopg.Connection[Any], report: str
) -> None:
    with pytest.raises(errors.FeatureNotSupported, match=f"veil.{report} is not filled"):
        alice.execute(f"SELECT * FROM veil.{report}".encode())


def test_a_foreign_key_cannot_ask_whether_a_key_exists(alice: psycopg.Connection[Any]) -> None:
    with pytest.raises(errors.InvalidTableDefinition):
        alice.execute("CREATE TEMP TABLE t (id bigint REFERENCES patient)")


def test_table_to_xml_shows_nothing(alice: psycopg.Connection[Any]) -> None:
    # A server without libxml gives up before it comes to the privilege.
    with pytest.raises((errors.InsufficientPrivilege, errors.FeatureNotSupported)):
        alice.execute("SELECT table_to_xml('patient', true, true, '')")


POWERS = (
    "CREATE TABLE public.t (x int)",
    "CREATE TABLE veil.t (x int)",
    'CREATE TABLE "Sales Dept".t (x int)',
    "CREATE SCHEMA mine",
    "CREATE FUNCTION public.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE TYPE public.t AS ENUM ('a')",
    "CREATE ROLE mallory",
    "CREATE DATABASE mine",
    "ALTER ROLE alice SUPERUSER",
    "ALTER ROLE alice CONNECTION LIMIT -1",
    "GRANT alice TO bob",
    "GRANT pg_read_all_data TO alice",
    "SET ROLE bob",
    "SET ROLE postgres",
    "SET SESSION AUTHORIZATION postgres",
    "SELECT * FROM pg_authid",
    "SELECT * FROM pg_shadow",
    "SELECT * FROM pg_statistic",
    "SELECT pg_read_file('PG_VERSION')",
    "SELECT pg_ls_dir('.')",
    "COPY region TO PROGRAM 'true'",
    "COPY (SELECT 1) TO '/nowhere'",
    "CREATE TEMP TABLE t (x text); COPY t FROM '/etc/hostname'",
    "SELECT lo_create(0)",
    "SELECT lo_from_bytea(0, 'x')",
    "SELECT lo_import('/etc/hostname')",
    "SELECT pg_logical_emit_message(false, 'a', 'b')",
    "SET temp_file_limit = -1",
    "SET log_statement = 'all'",
    "SET session_replication_role = replica",
    "ALTER DATABASE clinic SET veil.beta = 1",
    "ALTER SYSTEM SET work_mem = '1GB'",
    "UPDATE region SET name = 'x'",
    "DELETE FROM ward",
    "INSERT INTO region_view VALUES (9, 'x')",
    "DROP TABLE region",
    "CHECKPOINT",
)


@pytest.mark.parametrize("text", POWERS)
def test_an_analyst_is_powerless(alice: psycopg.Connection[Any], text: str) -> None:
    with pytest.raises(errors.InsufficientPrivilege):
        alice.execute(text)


def test_an_analyst_may_work_in_the_session(alice: psycopg.Connection[Any]) -> None:
    alice.execute("CREATE TEMP TABLE t AS SELECT * FROM region")
    assert alice.execute("SELECT count(*) FROM t JOIN ward ON true").fetchone() == (4,)
    alice.execute("CREATE TEMP TABLE patient AS SELECT 1 AS mine")  # hides the protected name, and is just that
    assert alice.execute("SELECT * FROM patient").fetchone() == (1,)


def test_other_sessions_texts_are_hidden(built: Built, alice: psycopg.Connection[Any]) -> None:
    with built.connect("bob") as bob:
        bob.execute("SELECT 'text of bob'")
        seen = alice.execute("SELECT query FROM pg_stat_activity WHERE usename = 'bob'").fetchall()
        assert seen == [("<insufficient privilege>",)]
        assert alice.execute("SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%text of bob%'"
                             " AND pid <> pg_backend_pid()").fetchone() == (0,)  # fmt: skip
        with pytest.raises(errors.InsufficientPrivilege):
            alice.execute("SELECT pg_terminate_backend(%s)", (bob.info.backend_pid,))


def test_a_role_that_changed_itself_is_put_right_and_one_in_order_is_not_written(clusters: Clusters) -> None:
    shadow = Shadow(clusters.shadow, "roles", SECRET)
    state = "SELECT a.xmin::text, rolpassword FROM pg_authid a WHERE rolname = 'carol'"
    asyncio.run(shadow.ensure_role("carol"))
    before = rows(clusters.shadow, state)
    asyncio.run(shadow.ensure_role("carol"))
    assert rows(clusters.shadow, state) == before
    with psycopg.connect(clusters.shadow, autocommit=True) as admin:
        admin.execute("SET ROLE carol; ALTER ROLE carol PASSWORD 'mine'; ALTER ROLE carol SET statement_timeout = 0")
        admin.execute("ALTER ROLE carol IN DATABASE postgres SET work_mem = '1GB'; RESET ROLE")
        admin.execute("ALTER ROLE carol CREATEDB; GRANT pg_read_all_data TO carol")
    asyncio.run(shadow.ensure_role("carol"))
    after = rows(clusters.shadow, state)
    assert after[0][1] == before[0][1] and after != before
    assert rows(clusters.shadow, "SELECT rolcreatedb FROM pg_roles WHERE rolname = 'carol'") == [(False,)]
    assert rows(clusters.shadow, "SELECT 1 FROM pg_auth_members WHERE member = 'carol'::regrole") == []
    config = rows(
        clusters.shadow, "SELECT setdatabase, setconfig FROM pg_db_role_setting WHERE setrole='carol'::regrole"
    )
    assert [database for database, _ in config] == [0] and "statement_timeout=10min" in config[0][1]


@pytest.mark.parametrize(
    "name", ["postgres", "pg_read_all_data", "pg_mine", "public", "none", "", "x" * 64, "stranger"]
)
def test_a_name_that_is_not_ours_to_take_is_refused(clusters: Clusters, name: str) -> None:
    with psycopg.connect(clusters.shadow, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS stranger; CREATE ROLE stranger LOGIN")
    with pytest.raises(ShadowError):
        asyncio.run(Shadow(clusters.shadow, "names", SECRET).ensure_role(name))
