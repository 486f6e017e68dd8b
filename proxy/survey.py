"""Reading a blueprint out of pg_catalog: the catalog queries, and the pure function that makes sense of the rows.

The queries work on PostgreSQL 12 and later, under ``search_path = pg_catalog`` (so that ``format_type`` is plain).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from proxy.blueprint import (
    Blueprint,
    Column,
    CopiedType,
    DomainType,
    EnumType,
    ForeignKey,
    Table,
    UniqueKey,
    quoted,
)
from sqlrewrite.catalog import Catalog, Kind

Row: TypeAlias = Mapping[str, Any]

RELATIONS = """
SELECT c.oid::int8 AS oid, n.nspname AS schema, c.relname AS name, obj_description(c.oid, 'pg_class') AS comment
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE (n.nspname, c.relname) IN (SELECT * FROM unnest(%s::name[], %s::name[]))
  AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relpersistence <> 't'
"""

COLUMNS = """
SELECT attrelid::int8 AS relation, attnum AS number, attname AS name, atttypid::int8 AS type,
       format_type(atttypid, atttypmod) AS formatted, attnotnull AS not_null,
       col_description(attrelid, attnum) AS comment
FROM pg_attribute WHERE attrelid = ANY(%s::int8[]::oid[]) AND attnum > 0 AND NOT attisdropped
ORDER BY attrelid, attnum
"""

# ``native``: made by initdb, so it is on every PostgreSQL; an extension's type never is.
TYPES = """
WITH RECURSIVE wanted(oid) AS (
    SELECT atttypid FROM pg_attribute WHERE attrelid = ANY(%s::int8[]::oid[]) AND attnum > 0 AND NOT attisdropped
    UNION
    SELECT below FROM wanted JOIN pg_type t ON t.oid = wanted.oid
    CROSS JOIN LATERAL (VALUES (t.typelem), (t.typbasetype)) AS v(below) WHERE below <> 0
)
SELECT t.oid::int8 AS oid, n.nspname AS schema, t.typname AS name, t.typtype::text AS kind,
       t.oid < 16384 AND n.nspname = 'pg_catalog' AS native,
       EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_type'::regclass AND d.objid = t.oid
               AND d.deptype = 'e') AS extension,
       CASE WHEN EXISTS (SELECT FROM pg_type e WHERE e.typarray = t.oid) THEN t.typelem::int8 END AS element,
       t.typbasetype::int8 AS base, format_type(t.typbasetype, t.typtypmod) AS base_formatted,
       t.typnotnull AS not_null,
       ARRAY(SELECT enumlabel::text FROM pg_enum WHERE enumtypid = t.oid ORDER BY enumsortorder) AS labels
FROM wanted JOIN pg_type t ON t.oid = wanted.oid JOIN pg_namespace n ON n.oid = t.typnamespace
"""

# A foreign key to a partitioned table has one more row per partition, which is not a constraint of its own.
# ``conexclop`` marks temporal keys, which need an extension. to_jsonb: the column is younger than version 12.
CONSTRAINTS = """
SELECT k.conname AS name, k.contype::text AS kind, k.conrelid::int8 AS relation, k.conkey::int4[] AS columns,
       k.confrelid::int8 AS target, k.confkey::int4[] AS target_columns, k.confmatchtype = 'f' AS match_full,
       k.confupdtype::text AS on_update, k.confdeltype::text AS on_delete,
       k.condeferrable AS deferrable, k.condeferred AS deferred,
       coalesce((to_jsonb(i) ->> 'indnullsnotdistinct')::boolean, false) AS nulls_not_distinct
FROM pg_constraint k LEFT JOIN pg_index i ON i.indexrelid = k.conindid AND k.contype IN ('p', 'u')
WHERE k.conrelid = ANY(%s::int8[]::oid[]) AND k.contype IN ('p', 'u', 'f') AND k.conexclop IS NULL
  AND NOT EXISTS (SELECT FROM pg_constraint above
                  WHERE k.contype = 'f' AND above.oid = k.conparentid AND above.conrelid = k.conrelid)
ORDER BY k.conrelid, k.contype, k.conname
"""

# Whose rows come with a relation's: of its children, of what a view reads, and (a partition's rows are its
# parent's) of its parents.
SOURCES = """
WITH RECURSIVE
below(relation, source) AS (
    SELECT r, r FROM unnest(%(public)s::int8[]::oid[]) r
    UNION
    SELECT b.relation, e.source FROM below b JOIN (
        SELECT inhparent AS reader, inhrelid AS source FROM pg_inherits
        UNION ALL
        SELECT w.ev_class, d.refobjid FROM pg_rewrite w JOIN pg_depend d
        ON d.classid = 'pg_rewrite'::regclass AND d.objid = w.oid AND d.refclassid = 'pg_class'::regclass
    ) e ON e.reader = b.source
),
above(relation, source) AS (
    SELECT r, r FROM unnest(%(public)s::int8[]::oid[]) r
    UNION
    SELECT a.relation, i.inhparent FROM above a JOIN pg_inherits i ON i.inhrelid = a.source
)
SELECT relation::int8 AS public, source::int8 AS protected
FROM (SELECT * FROM below UNION SELECT * FROM above) both_ways
WHERE source = ANY(%(protected)s::int8[]::oid[])
"""

# Their values mean something only inside their own cluster, or need a library that the shadow may lack.
_UNPORTABLE = re.compile("xml|aclitem|reg[a-z]+")
_ACTIONS = {"a": "NO ACTION", "r": "RESTRICT", "c": "CASCADE", "n": "SET NULL", "d": "SET DEFAULT"}


@dataclass(slots=True)
class _Types:
    """Names types as the shadow shall show them, and keeps those that must be made there, in order."""

    rows: Mapping[int, Row]
    copied: dict[int, CopiedType] = field(default_factory=dict)

    def shown(self, oid: int, formatted: str) -> str:
        row = self.rows[oid]
        element = row["element"]
        if row["native"]:
            if not _UNPORTABLE.fullmatch((self.rows[element] if element else row)["name"]):
                return formatted
            return "text[]" if element else "text"
        if element:
            return self.shown(element, "text") + "[]"
        if row["extension"] or row["kind"] not in "ed":
            return "text"
        if oid not in self.copied:
            self.copied[oid] = self._copy(row)
        return f"{quoted(row['schema'])}.{quoted(row['name'])}"

    def _copy(self, row: Row) -> CopiedType:
        if row["kind"] == "e":
            return EnumType(row["schema"], row["name"], tuple(row["labels"]))
        return DomainType(row["schema"], row["name"], self.shown(row["base"], row["base_formatted"]), row["not_null"])


def assemble(
    catalog: Catalog,
    relations: Iterable[Row],
    columns: Iterable[Row],
    types: Iterable[Row],
    constraints: Sequence[Row],
) -> Blueprint:
    """The blueprint that these catalog rows describe; a registered relation that is not there is left out."""
    found = {row["oid"]: row for row in sorted(relations, key=lambda row: (row["schema"], row["name"]))}
    namer = _Types({row["oid"]: row for row in types})
    shown: defaultdict[int, dict[int, Column]] = defaultdict(dict)
    # By name, not by oid: the same schema restored from a dump is the same blueprint.
    order = {oid: place for place, oid in enumerate(found)}
    for row in sorted(columns, key=lambda row: (order[row["relation"]], row["number"])):
        column = Column(row["name"], namer.shown(row["type"], row["formatted"]), row["not_null"], row["comment"])
        shown[row["relation"]][row["number"]] = column

    def names(relation: int, numbers: Iterable[int]) -> tuple[str, ...]:
        return tuple(shown[relation][number].name for number in numbers)

    keys: defaultdict[int, list[UniqueKey]] = defaultdict(list)
    for row in constraints:
        if row["kind"] != "f":
            of = row["relation"]
            keys[of].append(
                UniqueKey(
                    row["name"],
                    names(of, row["columns"]),
                    row["kind"] == "p",
                    row["nulls_not_distinct"],
                    row["deferrable"],
                    row["deferred"],
                )
            )

    foreign: defaultdict[int, list[ForeignKey]] = defaultdict(list)
    for row in constraints:
        if row["kind"] == "f" and row["target"] in found:
            of, target = row["relation"], row["target"]
            target_columns = names(target, row["target_columns"])
            # A foreign key may rest on a bare unique index, which is not copied: then it cannot be either.
            if any(set(key.columns) == set(target_columns) and not key.deferrable for key in keys[target]):
                foreign[of].append(
                    ForeignKey(
                        row["name"],
                        names(of, row["columns"]),
                        found[target]["schema"],
                        found[target]["name"],
                        target_columns,
                        row["match_full"],
                        _ACTIONS[row["on_update"]],
                        _ACTIONS[row["on_delete"]],
                        row["deferrable"],
                        row["deferred"],
                    )
                )

    tables = []
    for oid, row in found.items():
        relation = catalog.by_name[row["schema"], row["name"]]
        public = relation.kind is Kind.PUBLIC
        tables.append(
            Table(
                row["schema"],
                row["name"],
                public,
                relation.data_version if public else None,
                tuple(shown[oid].values()),
                tuple(keys[oid]),
                tuple(foreign[oid]),
                row["comment"],
            )
        )
    copied = tuple(namer.copied.values())
    schemas = dict.fromkeys(sorted({each.schema for each in (*tables, *copied)}))
    return Blueprint(catalog.version, tuple(schemas), copied, tuple(tables))
