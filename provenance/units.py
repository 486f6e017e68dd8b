"""Whether the unit of each registered table is declared, and where a declared path leads: read from foreign keys.

``provenance.protect`` looks at the same things, but where the ledger is in a database of its own it cannot, and a
foreign key may be added later. So they are looked at here whenever the catalog is loaded.

*Guarantee*: a table without a declared unit is answered about only if none of its rows can lead to a protected table by
foreign keys, its partitions' and heirs' included; else it stays in the catalog with the reason for which every question
about it is refused. A path is followed along validated foreign keys only. What is not told by a foreign key (a column
that merely holds a person's number) is not known to anybody but the administrator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlrewrite.catalog import Kind, Reference, UnitPath

Name: TypeAlias = tuple[str, str]
"""Schema and table."""

FOREIGN_KEYS = """
WITH RECURSIVE kin(member, whole) AS (
    SELECT k.oid, k.oid FROM pg_catalog.pg_class k WHERE k.relkind IN ('r', 'p', 'f')
    UNION SELECT kin.member, i.inhparent FROM kin JOIN pg_catalog.pg_inherits i ON i.inhrelid = kin.whole)
SELECT DISTINCT n.nspname, c.relname, tn.nspname, t.relname
FROM pg_catalog.pg_constraint f
JOIN kin one ON one.member = f.conrelid
JOIN kin other ON other.member = f.confrelid
JOIN pg_catalog.pg_class c ON c.oid = one.whole
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_class t ON t.oid = other.whole
JOIN pg_catalog.pg_namespace tn ON tn.oid = t.relnamespace
WHERE f.contype = 'f' AND c.oid <> t.oid
ORDER BY 1, 2, 3, 4"""
"""Every foreign key, validated or not, also as one of the tables that its two are partitions or heirs of."""


@dataclass(frozen=True, slots=True)
class Declared:
    """What the registry says of one active table."""

    name: Name
    kind: str
    declared: bool  # its unit is, or it was registered before that was asked for
    path: Mapping[str, Any] | None


def parents(tables: Collection[Declared], keys: Iterable[tuple[str, str, str, str]]) -> dict[Name, frozenset[Name]]:
    """The other protected tables that each protected table leads to by foreign keys, directly or through others."""
    kinds = {table.name: table.kind for table in tables}
    targets: dict[Name, set[Name]] = {}
    for schema, name, target_schema, target in keys:
        if kinds.get((schema, name)) != Kind.PUBLIC.value:  # what is published is the same whoever is there
            targets.setdefault((schema, name), set()).add((target_schema, target))
    found: dict[Name, frozenset[Name]] = {}
    for table in tables:
        reached: set[Name] = set()
        waiting = [table.name] if table.kind == Kind.PROTECTED.value else []
        while waiting:
            fresh = targets.get(waiting.pop(), set()) - reached
            reached |= fresh
            waiting += fresh
        protected = (each for each in reached - {table.name} if kinds.get(each) == Kind.PROTECTED.value)
        found[table.name] = frozenset(protected)
    return found


def undeclared(tables: Collection[Declared], leads_to: Mapping[Name, Collection[Name]]) -> dict[Name, str]:
    """The protected tables without a declared unit that lead to another protected table, and why that is refused."""
    found: dict[Name, str] = {}
    for table in tables:
        if leads_to[table.name] and not table.declared:
            names = ", ".join(".".join(each) for each in sorted(leads_to[table.name]))
            found[table.name] = f"it references the protected table {names}, and its unit is not declared"
    return found


def path_of(
    table: Declared, references: Mapping[Name, Sequence[Reference]], columns: Mapping[Name, Collection[str]]
) -> UnitPath | str | None:
    """The path to the unit as foreign keys, or why it cannot be followed; None if no path is declared.

    ``columns`` are the tables that can be read, with the columns that questions may name.
    """
    if table.path is None:
        return None
    at, steps = table.name, []
    for step in table.path["steps"]:
        target = (step["schema"], step["table"])
        key = _along(references.get(at, ()), target, step["columns"])
        if key is None or target not in columns:
            return f"its unit is found from {'.'.join(at)} along a foreign key to {'.'.join(target)}, which is missing"
        steps.append(key)
        at = target
    end, names = table.path.get("of"), tuple(table.path["columns"])
    if end is not None and _along(references.get(at, ()), (end["schema"], end["table"]), names) is None:
        return f"its unit is a row of {end['schema']}.{end['table']}, and no foreign key of {'.'.join(at)} leads there"
    if missing := set(names) - set(columns[at]):
        return f"its unit is named by {'.'.join(at)}.{min(missing)}, which is missing"
    return UnitPath(tuple(steps), names)


def _along(references: Iterable[Reference], target: Name, columns: Collection[str]) -> Reference | None:
    for each in references:
        if (each.schema, each.name) == target and set(each.columns) == set(columns):
            return each
    return None
