"""What PostgreSQL itself guarantees about a table: keys, foreign keys, and bounds that a CHECK keeps."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from decimal import Decimal

from sqlrewrite.catalog import Attribute, Reference

# pg_get_expr writes a CHECK of bounds in this one way: ((age >= 0) AND (age <= 100)), casts and quotes as needed. A
# CHECK with anything else in it tells nothing.
_NAME = r'(?:"(?:[^"]|"")+"|[a-z_][a-z0-9_]*)'
_PLAIN = r"(?:'-?[0-9]+(?:\.[0-9]+)?'::[a-z0-9 ]+|-?[0-9]+(?:\.[0-9]+)?)"
_NUMBER = rf"(?:{_PLAIN}|\({_PLAIN}\)(?:::[a-z0-9 ]+)+)"
_COMPARED = rf"\({_NAME} (?:>=|<=|>|<) {_NUMBER}\)"
_CHECK = re.compile(rf"{_COMPARED}|\({_COMPARED}(?: AND {_COMPARED})*\)")
_PART = re.compile(rf"\(({_NAME}) (>=|<=|>|<) ({_NUMBER})\)")
_DIGITS = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_CASTS = re.compile(r"::([a-z0-9 ]+)")
_WHOLE = frozenset(("smallint", "integer", "bigint"))
_FLOATS = {"real": 2**24, "double precision": 2**53}
FACTS = """
WITH RECURSIVE kin (root, member) AS (
    SELECT c.oid, c.oid
    FROM ROWS FROM (pg_catalog.unnest(%(schemas)s::text[]), pg_catalog.unnest(%(names)s::text[])) AS w (schema, name)
    JOIN pg_catalog.pg_namespace n ON n.nspname = w.schema
    JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = w.name
    UNION
    SELECT k.root, e.next FROM kin k CROSS JOIN LATERAL (
        SELECT f.confrelid FROM pg_catalog.pg_constraint f WHERE f.conrelid = k.member AND f.contype = 'f'
        UNION ALL SELECT i.inhrelid FROM pg_catalog.pg_inherits i WHERE i.inhparent = k.member
        UNION ALL SELECT i.inhparent FROM pg_catalog.pg_inherits i WHERE i.inhrelid = k.member) AS e (next))
SELECT w.schema, w.name, c.relkind = 'm',
    pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(pg_catalog.concat_ws(E'\\n',
    c.oid, c.relkind, c.relhassubclass, c.relrowsecurity, c.relfilenode,
    pg_catalog.has_schema_privilege(%(reader)s, n.oid, 'USAGE'),
    pg_catalog.has_table_privilege(%(reader)s, c.oid, 'SELECT'),
    (SELECT r.rolbypassrls OR r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = %(reader)s),
    (SELECT pg_catalog.string_agg(pg_catalog.jsonb_build_array(
                a.attnum, a.attname, a.atttypid::bigint, a.atttypmod, a.attnotnull, a.attgenerated,
                a.attcollation::bigint)::text, E'\\n' ORDER BY a.attnum)
     FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
    (SELECT pg_catalog.string_agg(pg_catalog.jsonb_build_array(
                k.contype, k.convalidated, k.connoinherit, pg_catalog.to_jsonb(k) -> 'conenforced',
                pg_catalog.to_jsonb(k) -> 'conperiod', k.conkey, k.confrelid::bigint, k.confkey,
                pg_catalog.pg_get_expr(k.conbin, k.conrelid), x.indisvalid, x.indisready)::text, E'\\n' ORDER BY k.oid)
     FROM pg_catalog.pg_constraint k LEFT JOIN pg_catalog.pg_index x ON x.indexrelid = k.conindid
     WHERE k.conrelid = c.oid),
    (SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', e.enumtypid, e.enumlabel), E'\\n'
                                  ORDER BY e.enumtypid, e.enumsortorder)
     FROM pg_catalog.pg_enum e
     WHERE e.enumtypid IN (SELECT a.atttypid FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid)),
    (SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', t.tgname, t.tgenabled), E'\\n' ORDER BY t.tgname)
     FROM pg_catalog.pg_trigger t WHERE t.tgrelid = c.oid AND t.tgname LIKE '%%pgveil\\_%%'),
    (SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', f.conrelid, f.confrelid), E'\\n'
                                  ORDER BY f.conrelid, f.confrelid)
     FROM kin k JOIN pg_catalog.pg_constraint f ON f.conrelid = k.member AND f.contype = 'f' WHERE k.root = c.oid),
    (SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', i.inhrelid, i.inhparent, p.relfilenode), E'\\n'
                                  ORDER BY i.inhrelid, i.inhparent)
     FROM kin k JOIN pg_catalog.pg_inherits i ON i.inhrelid = k.member
     JOIN pg_catalog.pg_class p ON p.oid = i.inhrelid WHERE k.root = c.oid)), 'UTF8')), 'hex')
FROM ROWS FROM (pg_catalog.unnest(%(schemas)s::text[]), pg_catalog.unnest(%(names)s::text[])) AS w (schema, name)
JOIN pg_catalog.pg_namespace n ON n.nspname = w.schema
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = w.name
WHERE c.oid = pg_catalog.to_regclass(pg_catalog.format('%%I.%%I', w.schema, w.name))"""
"""Schema, name, whether it is a materialized view, and the digest of everything about a table that sensitivities and
generated SQL rely on: its identity, columns, types, NOT NULL, keys, foreign keys, CHECKs, storage, privileges, labels
of enums, the triggers of ``set_changes``, and all foreign keys by which its rows lead to other tables, through others
and through partitions and heirs too. Parameters: ``reader`` (the reading role), ``schemas``, ``names``.

It is read with the catalog, and read again inside the snapshot in which a question is measured: both must agree.
to_regclass looks at the catalogs as they are now, the rest at the snapshot: a table that was dropped and made again in
between has no row."""
_RANGES = {"smallint": 2**15, "integer": 2**31, "bigint": 2**63}


@dataclass(slots=True)
class Constraints:
    """The validated constraints of one table."""

    unique: set[tuple[str, ...]] = field(default_factory=set)
    references: list[Reference] = field(default_factory=list)
    lower: dict[str, Decimal] = field(default_factory=dict)
    upper: dict[str, Decimal] = field(default_factory=dict)

    def add(
        self,
        kind: str,
        columns: list[str],
        target_schema: str | None,
        target: str | None,
        target_columns: list[str],
        check: str | None,
    ) -> None:
        """One row of pg_constraint."""
        match kind:
            case "p" | "u":
                self.unique.add(tuple(sorted(columns)))
            case "f" if target_schema is not None and target is not None:
                self.references.append(Reference(tuple(columns), target_schema, target, tuple(target_columns)))
            case "c" if check is not None:
                self._bounds(check)

    def checked(self, attribute: Attribute) -> Attribute:
        """The column, marked where a CHECK or its type keeps it within its declared bounds.

        *Guarantee*: NaN and infinity do not pass a CHECK on both sides, so no value lies outside.
        """
        low, high = self.lower.get(attribute.name), self.upper.get(attribute.name)
        reach = _RANGES.get(attribute.type_name)
        if reach is not None:
            low = Decimal(-reach) if low is None else low
            high = Decimal(reach - 1) if high is None else high
        if attribute.lower is None or attribute.upper is None or low is None or high is None:
            return attribute
        return replace(attribute, checked=low >= attribute.lower and high <= attribute.upper)

    def _bounds(self, check: str) -> None:
        """A conjunction of comparisons with constants, and nothing else, tells bounds."""
        if _CHECK.fullmatch(check) is None:
            return
        found = [(column, sign, _constant(number)) for column, sign, number in _PART.findall(check)]
        for column, sign, value in found:
            name = column[1:-1].replace('""', '"') if column.startswith('"') else column
            if value is None:
                continue
            if sign.startswith(">"):
                self.lower[name] = max(self.lower.get(name, value), value)
            else:
                self.upper[name] = min(self.upper.get(name, value), value)


def _constant(written: str) -> Decimal | None:
    """The number that a constant of a CHECK stands for; None where a cast may change it.

    ``(10.5)::integer`` is 11, and ``(0.1)::real`` is not 0.1.
    """
    digits = _DIGITS.search(written)
    if digits is None:
        return None
    value = Decimal(digits.group())
    for cast in _CASTS.findall(written):
        whole = value == value.to_integral_value()
        if cast == "numeric" or (cast in _WHOLE and whole):
            continue
        if not whole or abs(value) > _FLOATS.get(cast, -1):
            return None
    return value
