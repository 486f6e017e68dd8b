"""FROM as it is written, level by level: tables, and SELECTs in parentheses that pick among the columns of theirs.

A picking SELECT has no rows of its own making, so its tables are joined as if they stood in the outer FROM, its WHERE
holds for the whole question, and its outputs are names for expressions. On the side of a LEFT JOIN that may be missing
this is so for plain columns without a WHERE only: NULL there is the missing row's, and not what an expression makes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice
from typing import TypeAlias

from sqlglot import exp

from mechanisms.errors import Refusal
from sqlrewrite.catalog import Catalog, Relation
from sqlrewrite.constant import UNKNOWN
from sqlrewrite.errors import NotAnswered, TooComplex, UnknownRelation
from sqlrewrite.parse import conjuncts, identifier, position
from sqlrewrite.question import ColumnRef, Expression, Literal, Source
from sqlrewrite.scope import Parameters, Picked, Scope
from sqlrewrite.walk import parts

Resolve: TypeAlias = Callable[[str | None, str], Relation | None]
Build: TypeAlias = Callable[[exp.Expr, Scope], Expression]
Merged: TypeAlias = Mapping["Level", Mapping[str, tuple[int, str]]]

MAX_SOURCES = 16
MAX_SIZE = 256  # parts of an expression: each level may name one below it several times


@dataclass(frozen=True, slots=True)
class Table:
    """One table as it is written."""

    relation: Relation
    join: exp.Join | None
    node: exp.Expr

    @property
    def outer(self) -> bool:
        return self.join is not None and self.join.side == "LEFT"

    @property
    def comma(self) -> bool:
        """Whether it stands behind a comma: WHERE says what it is joined on."""
        return self.join is not None and self.join.args.get("on") is None and not self.join.args.get("using")


@dataclass(frozen=True, slots=True)
class Item:
    """What one alias of a FROM stands for: the place of a table, or a SELECT in parentheses."""

    name: str
    aliased: bool
    what: int | Level

    @property
    def places(self) -> frozenset[int]:
        match self.what:
            case int(place):
                return frozenset((place,))
            case Level(items=items):
                return frozenset(place for item in items for place in item.places)


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """One SELECT with the items of its FROM."""

    select: exp.Select
    items: tuple[Item, ...]
    outer: bool  # it is joined by a LEFT JOIN, or stands inside one that is


@dataclass(frozen=True, slots=True)
class Written:
    """A whole FROM: all its tables in the order of the text, and the level whose names each one's ON is about."""

    tables: tuple[Table, ...]
    levels: tuple[Level, ...]  # inner ones first, the question's own last
    owners: tuple[Level, ...]

    @property
    def conditions(self) -> Iterator[tuple[exp.Expr, Level]]:
        """The WHEREs inside; that of the question itself is a fragment of its own."""
        for level in self.levels[:-1]:
            where = level.select.args.get("where")
            for part in conjuncts(where.this) if where is not None else ():
                yield part, level

    def item(self, at: int) -> Item:
        return next(item for item in self.owners[at].items if at in item.places)


def written(root: exp.Select, catalog: Catalog, resolve: Resolve) -> Written:
    """Read the levels of a FROM."""
    tables: list[Table] = []
    levels: list[Level] = []
    owners: dict[int, Level] = {}

    def level(select: exp.Select, entering: exp.Join | None, outer: bool) -> Level:
        items: list[Item] = []
        joining: list[int] = []
        for join in (None, *(select.args.get("joins") or ())):
            node = select.args["from_"].this if join is None else join.this
            if join is not None:
                _plain_join(join)
                joining.append(len(tables))
            outside = join is not None and join.side.upper() == "LEFT"
            how = entering if join is None else join
            if isinstance(node, exp.Subquery):
                inner = _select(node, first=not items and entering is None, missing=outer or outside)
                items.append(Item(_alias(node) or "", True, level(inner, how, outer or outside)))
            else:
                found = _table(node, how, catalog, resolve)
                items.append(Item(_alias(node) or identifier(node.this), _alias(node) is not None, len(tables)))
                tables.append(found)
        names = [item.name for item in items]
        if len(set(names)) != len(names) or len(tables) > MAX_SOURCES:
            raise NotAnswered(
                f"each table has a name of its own, and there are at most {MAX_SOURCES}",
                hint="write FROM t AS a JOIN u AS b ON ...",
                position=position(select.args["from_"].this),
            )
        levels.append(Level(select, tuple(items), outer))
        owners.update(dict.fromkeys(joining, levels[-1]))
        return levels[-1]

    last = level(root, None, False)
    return Written(tuple(tables), tuple(levels), tuple(owners.get(at, last) for at in range(len(tables))))


def _select(node: exp.Subquery, first: bool, missing: bool) -> exp.Select:
    """The SELECT in parentheses, if it can be read as a part of the FROM that it stands in."""
    inner = node.this
    while isinstance(inner, exp.Subquery):
        inner = inner.this
    if not isinstance(inner, exp.Select) or inner.args.get("from_") is None:
        raise NotAnswered("FROM takes tables, and this is none", hint="name a table", position=position(node))
    if inner.args.get("joins") and not first:
        raise NotAnswered(
            "a SELECT in parentheses with a JOIN of its own stands first in FROM",
            hint="write FROM (SELECT ... FROM a JOIN b ON ...) x JOIN y ON ...",
            position=position(node),
        )
    if inner.args.get("where") is not None and missing:
        raise NotAnswered(
            "LEFT JOIN of a SELECT with a WHERE of its own is not answered",
            hint="put the condition into CASE, or into the outer WHERE",
            position=position(node),
        )
    return inner


def _table(node: exp.Expr, join: exp.Join | None, catalog: Catalog, resolve: Resolve) -> Table:
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
    if relation.refused is not None:
        raise NotAnswered(
            f'no question about "{shown}" is answered: {relation.refused}',
            hint=relation.remedy,
            position=position(node),
        )
    return Table(relation, join, node)


def _alias(node: exp.Expr) -> str | None:
    alias = node.args.get("alias")
    return identifier(alias.this) if alias else None


def _plain_join(join: exp.Join) -> None:
    side, kind = join.side.upper(), join.kind.upper()
    if side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER"):
        raise NotAnswered(
            f"{side or kind} JOIN is not answered about protected rows",
            hint="write JOIN or LEFT JOIN, the protected table first; every group of the domain is answered anyway",
            position=position(join),
        )


@dataclass(frozen=True, slots=True)
class Scopes:
    """The scopes of a FROM's levels over one order of its tables."""

    from_: Written
    sources: tuple[Source, ...]
    order: Sequence[int]  # the place in the text of each source
    parameters: Parameters
    merged: Merged
    build: Build
    _known: dict[Level, dict[str, Callable[[], Expression]]] = field(init=False, default_factory=dict)

    def of(self, level: Level) -> Scope:
        """What names mean at one level; tables that are not among the sources are left out."""
        names: list[str | None] = [None] * len(self.order)
        aliased = [False] * len(self.order)
        picked: dict[str, Picked] = {}
        for item in level.items:
            match item.what:
                case int(place) if place in self.order:
                    names[self.order.index(place)] = item.name
                    aliased[self.order.index(place)] = item.aliased
                case Level() if item.places <= set(self.order):
                    picked[item.name] = Picked(self._outputs(item.what))
        merged = {
            name: self._ref(place, column)
            for name, (place, column) in self.merged.get(level, {}).items()
            if place in self.order
        }
        return Scope(self.sources, tuple(names), tuple(aliased), self.parameters, merged, picked)

    def _ref(self, place: int, name: str) -> ColumnRef:
        at = self.order.index(place)
        return ColumnRef(at, name, self.sources[at].relation.attributes[name].type_name)

    def _outputs(self, level: Level) -> dict[str, Callable[[], Expression]]:
        """Each is worked out once: nested SELECTs that name one twice would double the work at every level."""
        if level in self._known:
            return self._known[level]
        scope = self.of(level)
        found: dict[str, Callable[[], Expression]] = {}
        for node in level.select.expressions:
            several = self._star(node, level) or {_name(node): cache(partial(self._output, node, level, scope))}
            for name, output in several.items():
                found[name] = partial(_ambiguous, name) if name in found else output
        self._known[level] = found
        return found

    def _star(self, node: exp.Expr, level: Level) -> dict[str, Callable[[], Expression]]:
        """The outputs of * or alias.*; none if it is another expression."""
        whole = isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
        if not whole and not isinstance(node, exp.Star):
            return {}
        wanted = identifier(node.args["table"]) if whole and node.args.get("table") else None
        found: dict[str, Callable[[], Expression]] = {}
        merged = self.merged.get(level, {}) if wanted is None else {}
        for item in level.items:
            if wanted is None or item.name == wanted:
                for name, output in self.columns(item).items():
                    found[name] = partial(_ambiguous, name) if name in found else output
        for name, (place, column) in merged.items():
            found[name] = partial(self._ref, place, column)
        return found

    def columns(self, item: Item) -> dict[str, Callable[[], Expression]]:
        """Every column of one item."""
        match item.what:
            case int(place):
                names = self.sources[self.order.index(place)].relation.attributes
                return {name: partial(self._ref, place, name) for name in names}
            case Level():
                return self._outputs(item.what)

    def _output(self, node: exp.Expr, level: Level, scope: Scope) -> Expression:
        try:
            found = self.build(node.this if isinstance(node, exp.Alias) else node, scope)
        except Refusal as refusal:
            refusal.position = None  # it is one in FROM, and another fragment is being read
            raise
        if next(islice(parts(found), MAX_SIZE, None), None) is not None:
            raise TooComplex(
                f"an output of a SELECT in FROM has more than {MAX_SIZE} parts", hint="simplify the expressions"
            )
        if level.outer and not isinstance(found, ColumnRef):
            raise NotAnswered(
                "an expression of a SELECT on the right of a LEFT JOIN is not answered",
                hint="write the expression in the outer SELECT",
            )
        if isinstance(found, Literal) and found.type_name == UNKNOWN and found.text is not None:
            return Literal(found.text, "text")
        return found


def _name(node: exp.Expr) -> str:
    match node:
        case exp.Alias():
            return identifier(node.args["alias"])
        case exp.Column(this=exp.Identifier()):
            return identifier(node.this)
    return "?column?"


def _ambiguous(name: str) -> Expression:
    raise NotAnswered(f'the column "{name}" is there twice', hint="give one of them another name: AS ...")
