"""The privacy unit of a question: whose rows are bounded together, and what that unit is called.

A relation declares its unit as a row, as a column, or as a path: foreign keys that lead from its rows to the table that
names the unit (``Relation.unit_path``). The tables of a path are joined to every question about the relation, behind
the tables that the analyst wrote and without a name, unless the analyst joined them along the same keys.

*Guarantee*: a path is made of foreign keys, whose target columns are unique, so that following it multiplies no row. A
row whose path is broken by a NULL belongs to nobody: the inner join, or the condition that the unit is not NULL, leaves
it out. So every row that is counted belongs to exactly one unit, and removing a unit (its row, and every row of other
tables that leads to it) removes whole groups of the inner GROUP BY of ``generate``, each of which is within the bounds
that ``sensitivity`` states.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlrewrite.catalog import Catalog, Kind, Reference, Relation
from sqlrewrite.constant import INTEGERS, base_type
from sqlrewrite.errors import NotAnswered
from sqlrewrite.question import ColumnRef, Question, Source, Unit
from sqlrewrite.scope import Scope


def with_paths(sources: Sequence[Source], catalog: Catalog) -> tuple[Source, ...]:
    """The sources, and behind them the tables on the unit paths of the protected ones that are not among them."""
    found = list(sources)
    for place, source in enumerate(sources):
        path = source.relation.unit_path if source.relation.kind is Kind.PROTECTED else None
        at = place
        for step in path.steps if path is not None else ():
            joined = _along(found, at, step)
            if joined is None:
                target = catalog.by_name.get((step.schema, step.name))
                if target is None:
                    raise NotAnswered(
                        f"the privacy unit of {source.relation.qualified} is found through {step.schema}.{step.name},"
                        " which is not registered",
                        hint="the administrator registers that table: SELECT provenance.protect(...)",
                    )
                joined, on = len(found), _pairs(found[at].relation, at, step)
                found.append(Source(target, on))
            at = joined
    return tuple(found)


def unit(scope: Scope) -> Unit:
    """Whose rows are bounded together: the unit of the last protected table in the chain of foreign keys.

    The rows of a table that declares them as its units stay bounded as parts of the unit of the table that they are
    joined to: then that is the unit, and the one that is named.
    """
    holder, columns, bounds = 0, own_unit(scope.sources, 0), scope.sources[0].relation
    declared = bool(columns)
    for place, joined in enumerate(scope.sources[: len(scope.names)]):
        if place == 0 or joined.relation.kind is not Kind.PROTECTED:
            continue
        if any(left.source != holder for left, _ in joined.on):
            raise NotAnswered(
                "a protected table is joined to another than the one that leads to the privacy unit",
                hint="join along one chain of foreign keys",
            )
        parents = own_unit(scope.sources, place) or tuple(scope.ref(place, name) for _, name in joined.on)
        if declared and not _same(scope, columns, parents):
            raise NotAnswered(
                f"{scope.sources[holder].relation.qualified} and {joined.relation.qualified} have different units",
                hint="ask about one of the two tables",
            )
        holder = place
        if not declared:
            columns, bounds = parents, joined.relation
        declared = declared or not joined.relation.row_unit
    return Unit(columns, bounds.max_groups, bounds.max_rows) if columns else Unit()


def own_unit(sources: Sequence[Source], place: int) -> tuple[ColumnRef, ...]:
    """The columns that name the unit of one source, by its own declaration; none if it is the row."""
    relation = sources[place].relation
    if relation.unit_column is not None:
        return (_ref(sources, place, relation.unit_column),)
    if relation.unit_path is None:
        return ()
    at: int | None = place
    for step in relation.unit_path.steps:
        at = _along(sources, at, step) if at is not None else None
    if at is None:
        raise ValueError(f"the path of {relation.qualified} was not joined")
    return tuple(_ref(sources, at, name) for name in relation.unit_path.columns)


def is_unit(scope: Scope, bounded: Unit, column: ColumnRef) -> bool:
    """Whether counting the distinct values of a column counts privacy units."""
    if bounded.column is None:
        return False
    return {root(scope.sources, part) for part in bounded.column} == {root(scope.sources, column)}


def root(sources: Sequence[Source], column: ColumnRef) -> ColumnRef:
    """The first of the columns that a join makes equal."""
    joined = sources[column.source]
    if not joined.outer or joined.relation.kind is Kind.PROTECTED:  # a foreign key finds its row, or is NULL
        for left, name in joined.on:
            if name == column.name and base_type(left.type_name) == base_type(column.type_name):
                return root(sources, left)
    return column


def has_parts(question: Question) -> bool:
    """Whether rows of a table on the way to the unit are declared to be units of their own, and so are parts of it."""
    bounded, sources = question.unit.column, question.sources
    if bounded is None:
        return False
    named = {root(sources, column) for column in bounded}
    for place, source in enumerate(sources):
        if source.relation.kind is Kind.PROTECTED and source.relation.row_unit:
            key = {root(sources, _ref(sources, place, name)) for _, name in source.on}
            if not key or key != named:
                return True
    return False


def unit_name(question: Question) -> str:
    """What the unit is, for people: the loss that is stated is that of one of these.

    ``row of patient``, ``orders.customer_id``, or where a foreign key says whose key a column is,
    ``patient.id through visit.patient_id``.
    """
    bounded, sources = question.unit.column, question.sources
    if bounded is None:
        return f"row of {question.relation.short}"
    columns = [root(sources, column) for column in bounded]
    if len({column.source for column in columns}) > 1:
        columns = list(bounded)
    place = columns[0].source
    own, names = sources[place].relation, tuple(column.name for column in columns)
    named = _written(own, names)
    end = _target(own, names)
    if place == 0:
        return named if end is None else f"{end} through {named}"
    steps = []
    at = place
    while at != 0:
        lefts = [left for left, _ in sources[at].on]
        at = lefts[0].source
        steps.append(_written(sources[at].relation, tuple(left.name for left in lefts)))
    through = ", ".join(reversed(steps))
    return f"{named} through {through}" if end is None else f"{end} through {through}, {named}"


def _same(scope: Scope, one: Sequence[ColumnRef], other: Sequence[ColumnRef]) -> bool:
    """Whether two lists of columns hold the same values in every row: joins make them equal.

    Whole numbers of two widths are equal if PostgreSQL says so.
    """
    return {_first(scope, column) for column in one} == {_first(scope, column) for column in other}


def _first(scope: Scope, column: ColumnRef) -> tuple[int, str]:
    joined = scope.sources[column.source]
    if not joined.outer or joined.relation.kind is Kind.PROTECTED:
        for left, name in joined.on:
            kinds = {base_type(left.type_name), base_type(column.type_name)}
            if name == column.name and (len(kinds) == 1 or kinds <= set(INTEGERS)):
                return _first(scope, left)
    return column.source, column.name


def _along(sources: Sequence[Source], at: int, step: Reference) -> int | None:
    """The source that is joined to another one along a foreign key."""
    wanted = set(zip(step.columns, step.target_columns, strict=True))
    for place, source in enumerate(sources):
        relation = source.relation
        named = (relation.schema, relation.name) == (step.schema, step.name)
        pairs = {(left.name, name) for left, name in source.on if left.source == at}
        if named and pairs == wanted and len(source.on) == len(wanted):
            return place
    return None


def _pairs(relation: Relation, at: int, step: Reference) -> tuple[tuple[ColumnRef, str], ...]:
    pairs = zip(step.columns, step.target_columns, strict=True)
    on = [(ColumnRef(at, name, relation.attributes[name].type_name), target) for name, target in pairs]
    return tuple(sorted(on, key=lambda part: (part[1], part[0].source, part[0].name)))


def _ref(sources: Sequence[Source], place: int, name: str) -> ColumnRef:
    return ColumnRef(place, name, sources[place].relation.attributes[name].type_name)


def _written(relation: Relation, columns: Sequence[str]) -> str:
    return f"{relation.short}.{columns[0]}" if len(columns) == 1 else f"{relation.short} ({', '.join(columns)})"


def _target(relation: Relation, columns: Sequence[str]) -> str | None:
    """What the columns are the foreign key of."""
    for reference in relation.references:
        if set(reference.columns) == set(columns):
            short = reference.name if reference.schema == "public" else f"{reference.schema}.{reference.name}"
            targets = [reference.target_columns[reference.columns.index(name)] for name in columns]
            return f"{short}.{targets[0]}" if len(targets) == 1 else f"{short} ({', '.join(targets)})"
    return None
