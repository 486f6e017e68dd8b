"""The table behind a registered relation: whether it is still the same one, and whether it can be asked about at all.

Declarations of changes (``frozen``, ``append``, immutable columns) are about rows. A table that was dropped and made
again, a column whose name now stands for another one, and a table that was rewritten have other rows in other places
without any UPDATE that a trigger could refuse. What the table was when the catalog was last read is kept in
``provenance.relation_structure``, and a difference that can move rows is a new data version (``note_structure``).

*Guarantee*: charges on a relation share a data version only while its oid, the numbers and types of its columns, for
tables that are declared frozen, append or with immutable columns also its storage (and that of its partitions), and for
enforced ones the triggers, are as they were whenever a question was planned. What happens to a table and is undone
between two questions is not seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sqlrewrite.catalog import Relation

STRUCTURE = """
SELECT w.schema, w.name, pg_catalog.jsonb_build_object(
    'oid', c.oid::bigint,
    'columns', (SELECT coalesce(pg_catalog.jsonb_object_agg(
                           a.attname, pg_catalog.jsonb_build_array(a.attnum, a.atttypid::bigint)), '{}')
                FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
    'storage', (WITH RECURSIVE kin (oid) AS (
                    SELECT c.oid
                    UNION SELECT i.inhrelid FROM kin JOIN pg_catalog.pg_inherits i ON i.inhparent = kin.oid)
                SELECT pg_catalog.jsonb_object_agg(k.oid::text, p.relfilenode::bigint)
                FROM kin k JOIN pg_catalog.pg_class p ON p.oid = k.oid),
    'triggers', (SELECT coalesce(pg_catalog.jsonb_agg(pg_catalog.concat_ws(' ', t.tgname, t.tgenabled)), '[]')
                 FROM pg_catalog.pg_trigger t WHERE t.tgrelid = c.oid AND t.tgname LIKE '%%pgveil\\_%%'))::text
FROM ROWS FROM (pg_catalog.unnest(%(schemas)s::text[]), pg_catalog.unnest(%(names)s::text[])) AS w (schema, name)
JOIN pg_catalog.pg_namespace n ON n.nspname = w.schema
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = w.name"""
NOTE = "SELECT provenance.note_structure(%s, %s::jsonb)"

BARRED = """
SELECT w.schema, w.name,
       c.relrowsecurity AND NOT (SELECT r.rolbypassrls OR r.rolsuper FROM pg_catalog.pg_roles r
                                 WHERE r.rolname = %(reader)s),
       NOT (pg_catalog.has_schema_privilege(%(reader)s, n.oid, 'USAGE')
            AND pg_catalog.has_table_privilege(%(reader)s, c.oid, 'SELECT'))
FROM ROWS FROM (pg_catalog.unnest(%(schemas)s::text[]), pg_catalog.unnest(%(names)s::text[])) AS w (schema, name)
JOIN pg_catalog.pg_namespace n ON n.nspname = w.schema
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = w.name"""
"""Tables that cannot be asked about. A policy of row level security runs with every row: it may fail on one, look at
other rows, and cost any time."""

Reason = tuple[str, str]
"""Why no question about a table is answered, and what to do about it."""


def barred(rows: Iterable[Any]) -> dict[tuple[str, str], Reason]:
    """The tables that cannot be asked about, from what ``BARRED`` returns."""
    found: dict[tuple[str, str], Reason] = {}
    for schema, name, policies, unreadable in rows:
        if policies:
            found[schema, name] = (
                "row level security is enabled on it",
                "Its policies would decide, row by row, what is counted. As a superuser, ALTER ROLE pgveil_reader"
                " BYPASSRLS lets pgveil count all rows.",
            )
        elif unreadable:
            found[schema, name] = (
                "pgveil has no right to read it",
                f"As the owner of the table: GRANT USAGE ON SCHEMA {schema}, and GRANT SELECT ON {schema}.{name}, TO"
                " pgveil_reader.",
            )
    return found


def refused(relation: Relation, reason: Reason | None) -> Relation:
    """The relation, refused for this reason unless it already is for another."""
    if reason is None or relation.refused is not None:
        return relation
    return replace(relation, refused=reason[0], remedy=reason[1])
