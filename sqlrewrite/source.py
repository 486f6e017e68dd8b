"""FROM: the protected table, and what is joined to it.

A join never multiplies the rows of what stands before it: on the new side its columns are unique (the key of a public
table) or are what a declared foreign key points to. So one row of the protected table stays one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from mechanisms.errors import Refusal
from sqlrewrite.catalog import Catalog, Kind, Reference
from sqlrewrite.constant import INTEGERS, base_type
from sqlrewrite.derived import Build, Level, Resolve, Scopes, Table, Written, written
from sqlrewrite.errors import NotAnswered, UnknownColumn
from sqlrewrite.parse import Parsed, bare, conjuncts, identifier, position
from sqlrewrite.question import ColumnRef, Source
from sqlrewrite.scope import Parameters, Scope
from sqlrewrite.unit import with_paths


@dataclass(frozen=True, slots=True)
class From:
    """A FROM that was read: the names of the question, and the conditions inside it that are no join columns."""

    scope: Scope
    conditions: tuple[tuple[exp.Expr, Scope], ...]  # they belong to WHERE
    joining: frozenset[int]  # the parts of WHERE that join tables with a comma between them


def source(
    parsed: Parsed,
    catalog: Catalog,
    resolve: Resolve,
    parameters: Parameters,
    build: Build,
    where: Sequence[exp.Expr],
) -> From:
    """The tables of a question; ``build`` reads a row expression, ``where`` are the parts of its WHERE."""
    from_ = written(parsed.root, catalog, resolve)
    if all(table.relation.kind is Kind.PUBLIC for table in from_.tables):
        raise NotAnswered("there is no protected table here", hint="PostgreSQL answers public tables without noise")
    return _joined(from_, catalog, parameters, build, where)


def _joined(from_: Written, catalog: Catalog, parameters: Parameters, build: Build, where: Sequence[exp.Expr]) -> From:
    """The tables in an order in which none multiplies rows: the written one, or another for plain joins."""
    tables = from_.tables
    pairs, rest, merged = _conditions(from_, parameters, build)
    every = Scopes(from_, tuple(Source(t.relation) for t in tables), range(len(tables)), parameters, merged, build)
    inside = list(from_.conditions)
    equal = {id(part): pair for part, level in inside if (pair := _comma(part, every.of(level), from_)) is not None}
    own = every.of(from_.levels[-1])
    joining = {at: pair for at, part in enumerate(where) if (pair := _comma(part, own, from_)) is not None}
    pairs += [*equal.values(), *joining.values()]
    rest += [(part, level) for part, level in inside if id(part) not in equal]
    protected = [place for place, table in enumerate(tables) if table.relation.kind is Kind.PROTECTED]
    movable = 1 + next((n for n, table in enumerate(tables[1:]) if table.outer), len(tables) - 1)
    refusal: NotAnswered | None = None
    for first in sorted(protected):
        if first >= movable:
            continue
        order, why = _order(first, tables, pairs, movable)
        if order is not None:
            sources = with_paths(_sources(order, tables, pairs), catalog)
            scopes = Scopes(from_, sources, order, parameters, merged, build)
            conditions = tuple((part, scopes.of(level)) for part, level in rest)
            return From(scopes.of(from_.levels[-1]), conditions, frozenset(joining))
        refusal = refusal or why
    raise refusal or NotAnswered(
        "a LEFT JOIN of a protected table is not answered",
        hint="write the protected table first: FROM protected LEFT JOIN public ON ...",
        position=position(tables[-1].node),
    )


@dataclass(frozen=True, slots=True)
class _Pair:
    """An equality of two columns that a join is made on."""

    left: ColumnRef  # sources are places as written
    right: ColumnRef


def _conditions(
    from_: Written, parameters: Parameters, build: Build
) -> tuple[list[_Pair], list[tuple[exp.Expr, Level]], dict[Level, dict[str, tuple[int, str]]]]:
    pairs: list[_Pair] = []
    rest: list[tuple[exp.Expr, Level]] = []
    merged: dict[Level, dict[str, tuple[int, str]]] = {}
    for at, table in enumerate(from_.tables):
        if table.join is None:
            continue
        level = from_.owners[at]
        known = tuple(Source(each.relation) for each in from_.tables[: at + 1])
        before = Scopes(from_, known[:at], range(at), parameters, merged, build)
        scopes = replace(before, sources=known, order=range(at + 1))
        for name in table.join.args.get("using") or ():
            left, right = _using(name, before.of(level), scopes, at)
            merged.setdefault(level, {})[identifier(name)] = (left.source, left.name)
            pairs.append(_Pair(left, right))
        scope = scopes.of(level)
        on = table.join.args.get("on")
        for part in conjuncts(on) if on is not None else ():
            sides = (bare(part.this), bare(part.expression)) if isinstance(part, exp.EQ) else ()
            named = [scope.column(side) for side in sides if isinstance(side, exp.Column)]
            columns = [column for column in named if isinstance(column, ColumnRef)]
            if len(columns) == 2 and [column.source for column in columns].count(at) == 1:
                _joinable(columns[0], columns[1], part)
                pairs.append(_Pair(columns[0], columns[1]))
            elif table.outer:
                raise NotAnswered(
                    "LEFT JOIN ... ON takes equalities of columns only",
                    hint="put the other condition into WHERE or CASE",
                    position=position(part),
                )
            else:
                rest.append((part, level))
    return pairs, rest, merged


def _comma(part: exp.Expr, scope: Scope, from_: Written) -> _Pair | None:
    """The equality of columns that joins a table behind a comma, if a part of WHERE is one."""
    sides = (bare(part.this), bare(part.expression)) if isinstance(part, exp.EQ) else ()
    if not any(table.comma for table in from_.tables) or not all(isinstance(side, exp.Column) for side in sides):
        return None
    try:
        left, right = (scope.column(side) for side in sides if isinstance(side, exp.Column))
        if not isinstance(left, ColumnRef) or not isinstance(right, ColumnRef) or left.source == right.source:
            return None
        _joinable(left, right, part)
    except (Refusal, ValueError):  # then WHERE is refused, or it is a condition like others
        return None
    return _Pair(left, right) if any(from_.tables[side.source].comma for side in (left, right)) else None


def _using(node: exp.Identifier, before: Scope, scopes: Scopes, at: int) -> tuple[ColumnRef, ColumnRef]:
    name = identifier(node)
    output = scopes.columns(scopes.from_.item(at)).get(name)
    left = before.column(exp.Column(this=node.copy())) if output is not None else None
    right = output() if output is not None else None
    if not isinstance(left, ColumnRef) or not isinstance(right, ColumnRef):
        raise UnknownColumn(
            f'the column "{name}" of USING must be in exactly one table on each side',
            hint="write ON a.column = b.column",
            position=position(node),
        )
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
    first: int, tables: Sequence[Table], pairs: Sequence[_Pair], movable: int
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
    place: int, order: Sequence[int], tables: Sequence[Table], pairs: Sequence[_Pair]
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


def _references(tables: Sequence[Table], order: Sequence[int]) -> list[tuple[int, Reference]]:
    return [(place, reference) for place in order for reference in tables[place].relation.references]


def _sources(order: Sequence[int], tables: Sequence[Table], pairs: Sequence[_Pair]) -> tuple[Source, ...]:
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
