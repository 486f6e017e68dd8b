"""The shadow on two real clusters: what is copied, what is not, and how generations come and go."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from shadow_world import ANALYSTS, CANARY, CATALOG, PG_DUMP, SECRET, Built, Clusters, ensure, relation, rows, start

from proxy import shadow as shadow_module
from proxy.blueprint import Blueprint, Column, Table, ddl, fingerprint, literal
from proxy.shadow import Generation, Shadow, ShadowError, read_blueprint
from proxy.veil_settings import SETTINGS
from sqlrewrite.catalog import Catalog, Kind


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


def databases(clusters: Clusters, like: str) -> set[str]:
    with psycopg.connect(clusters.shadow) as connection:
        found = connection.execute("SELECT datname FROM pg_database WHERE datname LIKE %s", (like,)).fetchall()
    return {name for (name,) in found}


def test_the_first_generation_has_the_databases_own_name_and_the_analyst_is_current_user(built: Built) -> None:
    with built.connect('O"dd Name') as connection:
        assert connection.execute("SELECT current_database(), current_user, session_user").fetchone() == (
            "clinic",
            'O"dd Name',
            'O"dd Name',
        )


def test_columns_look_as_upstream_to_an_analyst(built: Built, alice: psycopg.Connection[Any]) -> None:
    query = """SELECT table_schema, table_name, column_name, is_nullable, data_type, domain_schema, domain_name,
        udt_schema, udt_name, character_maximum_length, numeric_precision, numeric_scale, datetime_precision
        FROM information_schema.columns WHERE (table_schema, table_name) IN
        (('public', 'patient'), ('Sales Dept', 'Order Line'), ('public', 'event'), ('public', 'region'))
        AND column_name NOT IN ('composite', 'p', 'kind') ORDER BY 1, 2, ordinal_position"""
    shown = alice.execute(query).fetchall()
    assert shown == rows(built.clusters.protected, query)
    assert len(shown) > 20


def test_keys_and_comments_look_as_upstream(built: Built, alice: psycopg.Connection[Any]) -> None:
    keys = """SELECT k.conrelid::regclass::text, k.conname, pg_get_constraintdef(k.oid) FROM pg_constraint k
        WHERE k.conrelid IN ('patient'::regclass, '"Sales Dept"."Order Line"'::regclass, 'event'::regclass,
        'region'::regclass, 'ward'::regclass) AND contype IN ('p', 'u', 'f') ORDER BY 1, 2"""
    shown = alice.execute(keys).fetchall()
    assert shown == rows(built.clusters.protected, keys)
    assert len(shown) == 10
    comments = """SELECT objoid::regclass::text, objsubid, description FROM pg_description
        WHERE classoid = 'pg_class'::regclass AND objsubid < 5 AND objoid IN
        ('patient'::regclass, '"Sales Dept"."Order Line"'::regclass) ORDER BY 1, 2"""
    assert alice.execute(comments).fetchall() == rows(built.clusters.protected, comments)
    labels = "SELECT enum_range(NULL::mood)::text"
    assert alice.execute(labels).fetchall() == rows(built.clusters.protected, labels)
    constraints = "SELECT count(*) FROM information_schema.table_constraints WHERE constraint_type <> 'CHECK'"
    assert alice.execute(constraints).fetchone() == (10,)


def test_types_that_the_shadow_lacks_are_text(alice: psycopg.Connection[Any]) -> None:
    query = """SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
        WHERE attrelid IN ('patient'::regclass, 'region'::regclass) AND attname IN ('composite', 'kind', 'p')"""
    assert {shown for _, shown in alice.execute(query)} == {"text"}


def test_partitioned_tables_and_views_are_plain_tables_and_the_unregistered_is_absent(
    alice: psycopg.Connection[Any],
) -> None:
    query = """SELECT relname, relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
        WHERE relkind NOT IN ('i', 'I', 't') AND nspname NOT LIKE 'pg%' AND nspname <> 'information_schema'"""
    assert set(alice.execute(query).fetchall()) == {
        *((name, "r") for name in ("patient", "Order Line", "event", "region", "ward", "region_view")),
        *((name, "v") for name in ("budget", "question")),  # pgveil's own reports
    }


def test_public_rows_are_copied_as_they_are(built: Built, alice: psycopg.Connection[Any]) -> None:
    for query in (
        "SELECT region_id, name, area::text, labels, feeling, since, kind::text, p::text FROM region ORDER BY 1",
        "SELECT * FROM ward ORDER BY 1",
        "SELECT * FROM region_view ORDER BY 1",
    ):
        shown = alice.execute(query).fetchall()
        assert shown == rows(built.clusters.protected, query)
        assert len(shown) == 2


def test_protected_tables_are_empty_and_no_canary_is_anywhere(built: Built) -> None:
    with built.owner() as owner:
        for table in ("patient", '"Sales Dept"."Order Line"', "event"):
            assert owner.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
            assert owner.execute(f"SELECT reltuples FROM pg_class WHERE oid = '{table}'::regclass").fetchone() == (-1,)
        owner.execute("CHECKPOINT")
    dump = subprocess.run(
        [PG_DUMP, make_conninfo(built.clusters.shadow, dbname="clinic")],
        check=True,
        capture_output=True,
    ).stdout
    assert b"tab" in dump  # the search can find a public row
    for word in (CANARY.encode(), CANARY.upper().encode(), b"8675309", b"4242.42"):
        assert word not in dump
    files = [path for path in built.clusters.shadow_data.rglob("*") if path.is_file()]
    contents = [path.read_bytes() for path in files]
    assert any(b"and a \\ line" in content for content in contents)
    assert not [path for path, content in zip(files, contents, strict=True) if CANARY.encode() in content]


def test_settings_have_defaults_and_obey_transactions(built: Built, alice: psycopg.Connection[Any]) -> None:
    def shown(name: str) -> str:
        row = alice.execute(f"SHOW {name}").fetchone()
        assert row is not None
        return str(row[0])

    assert {name: shown(name) for name in SETTINGS} == dict(SETTINGS)
    with alice.transaction(force_rollback=True):
        alice.execute("SET LOCAL veil.beta = 0.01")
        assert shown("veil.beta") == "0.01"
    alice.execute("SET veil.beta = 0.2")
    alice.execute("RESET veil.beta")
    assert shown("veil.beta") == "0.05"
    assert shown("temp_file_limit") == "1GB"
    with built.connect(options="-c veil.beta=0.3") as other:
        assert other.execute("SHOW veil.beta").fetchone() == ("0.3",)


def test_a_restart_finds_the_generation_and_new_analysts_are_let_in(clusters: Clusters) -> None:
    first = ensure(Shadow(clusters.shadow, "again", SECRET), clusters, CATALOG, ("alice",))
    oid = rows(clusters.shadow, "SELECT oid FROM pg_database WHERE datname = 'again'")
    with pytest.raises(psycopg.OperationalError, match=r"permission denied for database|authentication failed"):
        psycopg.connect(Shadow(clusters.shadow, "again", SECRET).dsn(first, "bob"))
    restarted = Shadow(clusters.shadow, "again", SECRET)
    assert ensure(restarted, clusters, CATALOG, ("alice", "bob", "dora")) == first
    assert rows(clusters.shadow, "SELECT oid FROM pg_database WHERE datname = 'again'") == oid
    for analyst in ("alice", "bob", "dora"):
        psycopg.connect(restarted.dsn(first, analyst)).close()


def test_a_new_registry_makes_a_new_generation_and_the_old_one_goes_when_nobody_is_on_it(clusters: Clusters) -> None:
    shadow = Shadow(clusters.shadow, "evolve", SECRET)
    first = ensure(shadow, clusters, CATALOG)
    fewer = Catalog(2, CATALOG.relations[3:])
    with psycopg.connect(shadow.dsn(first, "alice"), autocommit=True) as session:
        second = ensure(shadow, clusters, fewer)
        assert second.database_name == "evolve_2" and second.catalog_version == 2
        assert session.execute("SELECT count(*) FROM region").fetchone() == (2,)
        assert ensure(shadow, clusters, fewer) == second
        assert databases(clusters, "evolve%") == {"evolve", "evolve_2"}
        # A proxy that is behind must not take away what a newer one made.
        assert ensure(shadow, clusters, CATALOG) == first
        assert databases(clusters, "evolve%") == {"evolve", "evolve_2"}
    wait_until_left(clusters, "evolve")
    assert ensure(shadow, clusters, fewer) == second
    assert databases(clusters, "evolve%") == {"evolve_2"}
    third = ensure(shadow, clusters, Catalog(3, CATALOG.relations))
    assert third.database_name == "evolve"  # free again
    assert databases(clusters, "evolve%") == {"evolve"}


def wait_until_left(clusters: Clusters, database: str) -> None:
    with psycopg.connect(clusters.shadow, autocommit=True) as admin:
        for _ in range(6000):
            query = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'"
            if admin.execute(query, (database,)).fetchone() == (0,):
                return
            admin.execute("SELECT pg_sleep(0.01)")
    raise AssertionError(f"somebody is still on {database}")


def test_a_refreshed_public_table_is_copied_anew_and_a_protected_one_changes_nothing(clusters: Clusters) -> None:
    shadow = Shadow(clusters.shadow, "fresh", SECRET)
    first = ensure(shadow, clusters, CATALOG)
    protected = Catalog(1, (replace(CATALOG.relations[0], data_version=2), *CATALOG.relations[1:]))
    assert ensure(shadow, clusters, protected) == first
    public = Catalog(1, (*CATALOG.relations[:3], replace(CATALOG.relations[3], data_version=2), *CATALOG.relations[4:]))
    assert ensure(shadow, clusters, public).fingerprint != first.fingerprint


BUILDER = """
import asyncio, sys
from proxy.shadow import Shadow
from sqlrewrite.catalog import Catalog, Kind, Relation
catalog = Catalog(1, (Relation(1, "public", "region", Kind.PUBLIC, {}),))
asyncio.run(Shadow(sys.argv[1], "broken", sys.argv[3].encode()).ensure(sys.argv[2], catalog, []))
"""


def test_what_a_killed_builder_left_is_dropped_and_a_strangers_database_is_not(clusters: Clusters) -> None:
    catalog = Catalog(1, (relation(1, "region", Kind.PUBLIC),))
    workshop = "SELECT count(*) FROM pg_stat_activity WHERE datname LIKE 'pgveil\\_building%'"
    left = "SELECT count(*) FROM pg_database WHERE datname LIKE 'pgveil\\_building%'"
    with psycopg.connect(clusters.shadow, autocommit=True) as admin, psycopg.connect(clusters.protected) as upstream:
        admin.execute("CREATE DATABASE broken")
        upstream.execute("LOCK TABLE region")  # the builder stops in the middle: at the rows of this table
        command = [sys.executable, "-c", BUILDER, clusters.shadow, clusters.protected, SECRET.decode()]
        with subprocess.Popen(command, cwd=Path(shadow_module.__file__).parents[1]) as builder:
            while admin.execute(workshop).fetchone() == (0,):
                assert builder.poll() is None
                admin.execute("SELECT pg_sleep(0.01)")
            builder.kill()
        upstream.rollback()
        assert admin.execute(left).fetchone() == (1,)
        generation = ensure(Shadow(clusters.shadow, "broken", SECRET), clusters, catalog)
        assert generation.database_name == "broken_2"
        assert admin.execute(left).fetchone() == (0,)
        assert rows(make_conninfo(clusters.shadow, dbname="broken_2"), "SELECT count(*) FROM region") == [(2,)]
        assert databases(clusters, "broken%") == {"broken", "broken_2"}


def test_builders_that_come_together_build_once(clusters: Clusters) -> None:
    async def together() -> list[Generation]:
        proxies = [Shadow(clusters.shadow, "race", SECRET) for _ in range(4)]
        return await asyncio.gather(*(each.ensure(clusters.protected, CATALOG, ANALYSTS) for each in proxies))

    assert len(set(asyncio.run(together()))) == 1
    assert databases(clusters, "race%") == {"race"}


@pytest.mark.parametrize(
    ("public", "protected"),
    [("leaky_view", "patient"), ("event", "event_2024"), ("event_2024", "event")],
)
def test_a_public_relation_that_shares_rows_with_a_protected_one_is_refused(
    clusters: Clusters, public: str, protected: str
) -> None:
    catalog = Catalog(1, (relation(1, public, Kind.PUBLIC), relation(2, protected, Kind.PROTECTED)))
    with pytest.raises(ShadowError, match=f"public.{public} is registered as public"):
        ensure(Shadow(clusters.shadow, "leak", SECRET), clusters, catalog)


def test_a_protected_table_is_never_the_source_of_a_copy(clusters: Clusters) -> None:
    async def copy() -> None:
        async with (
            await psycopg.AsyncConnection.connect(clusters.protected) as upstream,
            await psycopg.AsyncConnection.connect(clusters.shadow) as target,
        ):
            blueprint = await read_blueprint(upstream, CATALOG)
            patient = next(table for table in blueprint.tables if table.name == "patient")
            await shadow_module._copy(upstream, target, patient)

    with pytest.raises(ShadowError, match="is protected"):
        asyncio.run(copy())


def test_an_open_connection_serves_as_upstream(clusters: Clusters, built: Built) -> None:
    async def with_connection() -> Generation:
        async with await psycopg.AsyncConnection.connect(clusters.protected, autocommit=True) as upstream:
            return await built.shadow.ensure(upstream, CATALOG, ["alice"])

    assert asyncio.run(with_connection()) == built.generation


def test_the_fingerprint_tells_every_change_that_matters() -> None:
    table = Table("s", "t", True, 1, (Column("c", "text", False),), comment="x")
    blueprint = Blueprint(1, ("s",), (), (table,))
    others = [
        replace(blueprint, version=2),
        replace(blueprint, tables=(replace(table, data_version=2),)),
        replace(blueprint, tables=(replace(table, public=False, data_version=None),)),
        replace(blueprint, tables=(replace(table, comment="y"),)),
        replace(blueprint, tables=(replace(table, columns=(Column("c", "text", True),)),)),
    ]
    assert len({fingerprint(each) for each in (blueprint, *others)}) == 6
    assert fingerprint(blueprint) == fingerprint(Blueprint(1, ("s",), (), (replace(table),)))


def test_names_and_texts_cannot_leave_their_quotes() -> None:
    table = Table('s"; DROP', "t'", False, None, (Column('c"', "text", False, comment="it's \\' ; --"),))
    statements = ddl(Blueprint(1, (), (), (table,)))
    assert 'CREATE TABLE "s""; DROP"."t\'" ("c""" text)' in statements
    assert literal("it's \\' ; --") == "E'it''s \\\\'' ; --'"
