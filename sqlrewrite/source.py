"""FROM: the protected table, what is joined to it, whose contribution is bounded, and what names mean.

A join never multiplies the rows of what stands before it: on the new side its columns are unique (the key of a public
table) or are what a declared foreign key points to. So one row of the protected table stays one row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from sqlglot import exp

from sqlrewrite.catalog import Attribute, Catalog, Kind, Reference, Relation
from sqlrewrite.constant import INTEGERS, base_type
from sqlrewrite.errors import NotAnswered, UnknownColumn, UnknownRelation, WouldShowRows
from sqlrewrite.parse import Parsed, bare, conjuncts, identifier, position
from sqlrewrite.question import ColumnRef, Literal, Source, Unit

Resolve: TypeAlias = Callable[[str | None, str], Relation | None]
Parameters: TypeAlias = Sequence[Literal] | None

SYSTEM_COLUMNS = frozenset(("ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"))
ASK_FOR_COUNTS = "ask for counts: SELECT key, count(*) FROM table GROUP BY key"
MAX_SOURCES = 16


@dataclass(frozen=True, slots=True)
class Scope:
    """What names mean inside the question."""

    sources: tuple[Source, ...]
    names: tuple[str, ...]  # the alias of each source
    aliased: tuple[bool, ...]
    parameters: Parameters
    merged: Mapping[str, int] = field(default_factory=dict)  # columns of USING, and the source that they come from

    def attribute(self, column: ColumnRef) -> Attribute:
        return self.sources[column.source].relation.attributes[column.name]

    def column(self, node: exp.Column) -> ColumnRef:
        """The column that a name means; whole rows and system columns are rows too."""
        if not isinstance(node.this, exp.Identifier):
            raise WouldShowRows("a whole row would be shown", hint=ASK_FOR_COUNTS, position=position(node))
        name = identifier(node.this)
        places = self._places(node)
        found = [place for place in places if name in self.sources[place].relation.attributes]
        if node.args.get("table") is None and name in self.merged:
            found = [self.merged[name]]
        if len(found) == 1:
            return self.ref(found[0], name)
        if found:
            raise NotAnswered(
                f'the column "{name}" is in several tables', hint="write table.column", position=position(node)
            )
        if name in SYSTEM_COLUMNS or (node.args.get("table") is None and name in self.names):
            raise WouldShowRows(
                f'"{name}" would show a private row or its place', hint=ASK_FOR_COUNTS, position=position(node)
            )
        known = [column for place in places for column in self.sources[place].relation.attributes]
        raise UnknownColumn(
            f'column "{name}" does not exist', hint="the columns are " + ", ".join(known), position=position(node)
        )

    def ref(self, place: int, name: str) -> ColumnRef:
        return ColumnRef(place, name, self.sources[place].relation.attributes[name].type_name)

    def _places(self, node: exp.Column) -> Sequence[int]:
        table, schema = node.args.get("table"), node.args.get("db")
        if table is None:
            return range(len(self.sources))
        wanted = identifier(table)
        for place, name in enumerate(self.names):
            right = schema is None or (
                not self.aliased[place] and identifier(schema) == self.sources[place].relation.schema
            )
            if name == wanted and right:
                return (place,)
        raise UnknownRelation(
            f'there is no table "{wanted}" in this question',
            hint="the tables are called " + ", ".join(self.names),
            position=position(node),
        )


@dataclass(frozen=True, slots=True)
class _Table:
    """One table of FROM as it is written."""

    relation: Relation
    name: str
    aliased: bool
    join: exp.Join | None
    node: exp.Expr

    @property
    def outer(self) -> bool:
        return self.join is not None and self.join.side == "LEFT"


def source(
    parsed: Parsed, catalog: Catalog, resolve: Resolve, parameters: Parameters
) -> tuple[Scope, tuple[exp.Expr, ...]]:
    """The scope of a question, and the conditions of ON that are no join columns: they belong to WHERE."""
    first = parsed.root.args["from_"].this
    joins: list[exp.Join] = parsed.root.args.get("joins") or []
    tables = [_table(first, None, catalog, resolve)]
    for join in joins:
        _plain_join(join)
        tables.append(_table(join.this, join, catalog, resolve))
    names = [table.name for table in tables]
    if len(set(names)) != len(names) or len(tables) > MAX_SOURCES:
        raise NotAnswered(
            f"each table has a name of its own, and there are at most {MAX_SOURCES}",
            hint="write FROM t AS a JOIN u AS b ON ...",
            position=position(first),
        )
    if all(table.relation.kind is Kind.PUBLIC for table in tables):
        raise NotAnswered("there is no protected table here", hint="PostgreSQL answers public tables without noise")
    return _joined(tables, parameters)


def unit(scope: Scope) -> Unit:
    """Whose rows are bounded together: the unit of the last protected table in the chain of foreign keys."""
    holder, columns = 0, _own_unit(scope, 0)
    declared = bool(columns)
    for place, joined in enumerate(scope.sources):
        if place == 0 or joined.relation.kind is not Kind.PROTECTED:
            continue
        if any(left.source != holder for left, _ in joined.on):
            raise NotAnswered(
                "a protected table is joined to another than the one that leads to the privacy unit",
                hint="join along one chain of foreign keys",
            )
        parents = _own_unit(scope, place) or tuple(scope.ref(place, name) for _, name in joined.on)
        if declared and {root(scope, column) for column in columns} != {root(scope, column) for column in parents}:
            raise NotAnswered(
                f"{scope.sources[holder].relation.qualified} and {joined.relation.qualified} have different units",
                hint="ask about one of the two tables",
            )
        holder, columns = place, columns if declared else parents
        declared = declared or joined.relation.unit_column is not None
    relation = scope.sources[holder].relation
    if not columns:
        return Unit()
    own = scope.sources[columns[0].source].relation
    bounds = own if own.unit_column is not None else relation
    return Unit(columns, bounds.max_groups, bounds.max_rows)


def is_unit(scope: Scope, bounded: Unit, column: ColumnRef) -> bool:
    """Whether counting the distinct values of a column counts privacy units."""
    if bounded.column is None:
        return False
    return {root(scope, part) for part in bounded.column} == {root(scope, column)}


def _own_unit(scope: Scope, place: int) -> tuple[ColumnRef, ...]:
    column = scope.sources[place].relation.unit_column
    return () if column is None else (scope.ref(place, column),)


def root(scope: Scope, column: ColumnRef) -> ColumnRef:
    """The first of the columns that a join makes equal."""
    joined = scope.sources[column.source]
    if not joined.outer or joined.relation.kind is Kind.PROTECTED:  # a foreign key finds its row, or is NULL
        for left, name in joined.on:
            if name == column.name and base_type(left.type_name) == base_type(column.type_name):
                return root(scope, left)
    return column


def _table(node: exp.Expr, join: exp.Join | None, catalog: Catalog, resolve: Resolve) -> _Table:
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
        raise NotAnswered(
            "FROM takes tables, and this is none", hint="write FROM table JOIN table ON ...", position=position(node)
        )
    schema = identifier(node.args["db"]) if node.args.get("db") else None
    name = identifier(node.this)
    shown = name if schema is None else f"{schema}.{name}"
    relation = resolve(schema, name)
    if relation is None or catalog.by_name.get((relation.schema, relation.name)) != relation:
        raise UnknownRelation(
            f'relation "{shown}" is not registered', hint="\\dt lists the tables", position=position(node)
        )
    alias = node.args.get("alias")
    return _Table(relation, identifier(alias.this) if alias else name, alias is not None, join, node)


def _plain_join(join: exp.Join) -> None:
    side, kind = join.side.upper(), join.kind.upper()
    if side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER"):
        raise NotAnswered(
            f"{side or kind} JOIN is not answered about protected rows",
            hint="write JOIN or LEFT JOIN, the protected table first; every group of the domain is answered anyway",
            position=position(join),
        )
    if join.args.get("on") is None and not join.args.get("using"):
        raise NotAnswered(
            "tables with a comma between them are not answered",
            hint="write FROM a JOIN b ON a.key = b.key",
            position=position(join),
        )


def _joined(tables: Sequence[_Table], parameters: Parameters) -> tuple[Scope, tuple[exp.Expr, ...]]:
    """The tables in an order in which none multiplies rows: the written one, or another for plain joins."""
    written = Scope((), tuple(t.name for t in tables), tuple(t.aliased for t in tables), parameters)
    pairs, rest, merged = _conditions(tables, written)
    protected = [place for place, table in enumerate(tables) if table.relation.kind is Kind.PROTECTED]
    movable = 1 + next((n for n, table in enumerate(tables[1:]) if table.outer), len(tables) - 1)
    refusal: NotAnswered | None = None
    for first in sorted(protected):
        if first >= movable:
            continue
        order, why = _order(first, tables, pairs, movable)
        if order is not None:
            sources = _sources(order, tables, pairs)
            place = {old: new for new, old in enumerate(order)}
            scope = Scope(
                sources,
                tuple(tables[old].name for old in order),
                tuple(tables[old].aliased for old in order),
                parameters,
                {name: place[old] for name, old in merged.items()},
            )
            return scope, tuple(rest)
        refusal = refusal or why
    raise refusal or NotAnswered(
        "a LEFT JOIN of a protected table is not answered",
        hint="write the protected table first: FROM protected LEFT JOIN public ON ...",
        position=position(tables[-1].node),
    )


@dataclass(frozen=True, slots=True)
class _Pair:
    """An equality of two columns in the join of table ``at``."""

    left: ColumnRef  # sources are places as written
    right: ColumnRef
    at: int


def _conditions(tables: Sequence[_Table], written: Scope) -> tuple[list[_Pair], list[exp.Expr], dict[str, int]]:
    pairs: list[_Pair] = []
    rest: list[exp.Expr] = []
    merged: dict[str, int] = {}
    for at, table in enumerate(tables):
        scope = replace(written, sources=tuple(Source(t.relation) for t in tables[: at + 1]), merged=merged)
        if table.join is None:
            continue
        for name in table.join.args.get("using") or ():
            left, right = _using(identifier(name), at, scope, name)
            merged = {**merged, left.name: left.source}
            pairs.append(_Pair(left, right, at))
        on = table.join.args.get("on")
        for part in conjuncts(on) if on is not None else ():
            sides = (bare(part.this), bare(part.expression)) if isinstance(part, exp.EQ) else ()
            columns = [scope.column(side) for side in sides if isinstance(side, exp.Column)]
            if len(columns) == 2 and [column.source for column in columns].count(at) == 1:
                _joinable(columns[0], columns[1], part)
                pairs.append(_Pair(columns[0], columns[1], at))
            elif table.outer:
                raise NotAnswered(
                    "LEFT JOIN ... ON takes equalities of columns only",
                    hint="put the other condition into WHERE or CASE",
                    position=position(part),
                )
            else:
                rest.append(part)
    return pairs, rest, merged


def _using(name: str, at: int, scope: Scope, node: exp.Expr) -> tuple[ColumnRef, ColumnRef]:
    found = [place for place in range(at) if name in scope.sources[place].relation.attributes]
    if name in scope.merged:
        found = [scope.merged[name]]
    if len(found) != 1 or name not in scope.sources[at].relation.attributes:
        raise UnknownColumn(
            f'the column "{name}" of USING must be in exactly one table on each side',
            hint="write ON a.column = b.column",
            position=position(node),
        )
    left, right = scope.ref(found[0], name), scope.ref(at, name)
    if base_type(left.type_name) != base_type(right.type_name):
        raise NotAnswered(
            f'the columns "{name}" have different types', hint="write ON a.column = b.column", position=position(node)
        )
    return left, right


def _joinable(left: ColumnRef, right: ColumnRef, node: exp.Expr) -> None:
    first, second = base_type(left.type_name), base_type(right.type_name)
    # char(n) takes 'a' and 'a ' for one, so a unique varchar may match it twice.
    for family in ((*INTEGERS, "numeric"), ("text", "character varying")):
        if first in family and second in family:
            return
    if first != second:
        raise NotAnswered(
            f"columns of types {first} and {second} are not joined",
            hint="join columns of the same type",
            position=position(node),
        )


def _order(
    first: int, tables: Sequence[_Table], pairs: Sequence[_Pair], movable: int
) -> tuple[list[int] | None, NotAnswered | None]:
    """Tables from ``first`` on, each joined on a key to what stands before; plain joins may change places."""
    order, why = [first], None
    waiting = [place for place in range(len(tables)) if place != first]
    while waiting:
        for place in waiting:
            early = [other for other in waiting if other < place]
            if place >= movable and early:  # from the first LEFT JOIN on the written order stands
                continue
            why = _multiplies(place, order, tables, pairs)
            if why is None:
                order.append(place)
                waiting.remove(place)
                break
        else:
            return None, why
    return order, None


def _touching(place: int, order: Sequence[int], pairs: Sequence[_Pair]) -> list[tuple[ColumnRef, ColumnRef]]:
    """(column before, column of this table) of every equality between them."""
    found = []
    for pair in pairs:
        for one, other in ((pair.left, pair.right), (pair.right, pair.left)):
            if other.source == place and one.source in order:
                found.append((one, other))
    return found


def _multiplies(
    place: int, order: Sequence[int], tables: Sequence[_Table], pairs: Sequence[_Pair]
) -> NotAnswered | None:
    table = tables[place]
    touching = _touching(place, order, pairs)
    where = position(table.node)
    if table.relation.kind is Kind.PROTECTED:
        if any(tables[other].relation == table.relation for other in order):
            return NotAnswered(
                f"{table.relation.qualified} is joined with itself", hint="ask about its rows once", position=where
            )
        for origin, declared in _references(tables, order):
            if (declared.schema, declared.name) != (table.relation.schema, table.relation.name):
                continue
            wanted = set(zip(declared.columns, declared.target_columns, strict=True))
            if wanted == {(left.name, right.name) for left, right in touching if left.source == origin} and len(
                touching
            ) == len(wanted):
                return None
        return NotAnswered(
            f"{table.relation.qualified} is joined without a declared foreign key",
            hint="protected tables are joined along a FOREIGN KEY: child.key = parent.key",
            position=where,
        )
    columns = {right.name for _, right in touching}
    if any(set(key) <= columns for key in table.relation.unique):
        return None
    shown = ", ".join(sorted(columns)) or "..."
    return NotAnswered(
        f"{table.relation.qualified} is joined on columns that are not known to be unique",
        hint=f"join on its key, or let the administrator add one: ALTER TABLE {table.relation.qualified}"
        f" ADD PRIMARY KEY ({shown}) and run SELECT provenance.refresh('{table.relation.qualified}')",
        position=where,
    )


def _references(tables: Sequence[_Table], order: Sequence[int]) -> list[tuple[int, Reference]]:
    return [(place, reference) for place in order for reference in tables[place].relation.references]


def _sources(order: Sequence[int], tables: Sequence[_Table], pairs: Sequence[_Pair]) -> tuple[Source, ...]:
    place = {old: new for new, old in enumerate(order)}
    sources = [Source(tables[order[0]].relation)]
    for new, old in enumerate(order[1:], 1):
        on = sorted(
            {
                (replace(left, source=place[left.source]), right.name)
                for left, right in _touching(old, order[:new], pairs)
            },
            key=lambda part: (part[1], part[0].source, part[0].name),
        )
        sources.append(Source(tables[old].relation, tuple(on), tables[old].outer))
    return tuple(sources)
