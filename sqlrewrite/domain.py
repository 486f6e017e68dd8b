"""The possible values of keys that are worked out: a query that the shadow runs over public things only.

The key expressions are applied to every combination of the declared domains of the columns they read, joined with the
public tables they read. A column without a declared domain still makes a known set of keys where the function has a
finite image whatever its argument (``width_bucket``, ``extract(month ...)``, CASE with constant results), or where it
is a whole number with declared bounds. Anything else is open.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from sqlrewrite.catalog import Key, Kind
from sqlrewrite.cells import MAX_CELLS, key_text
from sqlrewrite.constant import FLOATS, INTEGERS, TIMES, base_type, decimal
from sqlrewrite.errors import TooManyGroups
from sqlrewrite.interval import FIELDS
from sqlrewrite.question import (
    AllOf,
    Always,
    Call,
    Case,
    Cast,
    ColumnRef,
    Expression,
    GroupKey,
    Literal,
    Predicate,
    Question,
    Source,
)
from sqlrewrite.render import Rendering
from sqlrewrite.sensitivity import declared
from sqlrewrite.term import CALENDAR, cast_type, quoted
from sqlrewrite.walk import columns, operands

MOST_COMBINATIONS = 5_000_000
MOST_LIMITED = 100_000
"""Of more combinations of plain columns all are answered: to list them would take longer than to count."""


@dataclass(frozen=True, slots=True)
class DomainQuery:
    """A statement over public tables and constants, and its parameters in text form; keys come back as text.

    Moments are written in UTC as 2024-05-17T00:00:00.000000, whatever the session's settings are.
    """

    sql: str
    parameters: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A part of a key expression whose values are known by themselves; None: the rows of a public table."""

    expression: Expression
    values: tuple[str | None, ...] | None


class _Open(Exception):  # noqa: N818 (a verdict, not a fault)
    """The values of an expression are not public."""


def is_open(expression: Expression, sources: Sequence[Source]) -> bool:
    """Whether the possible values of a key are unknown."""
    try:
        _leaves(expression, sources)
    except _Open:
        return True
    return False


def domain_query(question: Question) -> DomainQuery | None:
    """The query that lists the possible keys; None where it is their whole product of declared columns, or one is open.

    Groups that WHERE itself leaves out are not listed: that they are empty is public.
    """
    plain = all(declared(question.sources, key.expression) for key in question.keys)
    if any(key.open for key in question.keys) or (plain and not (question.keys and _limits(question, question.keys))):
        return None
    for short in (False, True):
        leaves: dict[Expression, Leaf] = {}
        for key in question.keys:
            try:
                found = _leaves(key.expression, question.sources, short)
            except _Open:
                return None
            leaves.update((leaf.expression, leaf) for leaf in found)
        combinations = math.prod(len(leaf.values) for leaf in leaves.values() if leaf.values is not None)
        if plain and combinations > MOST_LIMITED:
            return None
        if combinations <= MOST_COMBINATIONS:
            return _listing(question, list(leaves.values()))
    raise TooManyGroups(
        "the keys are worked out from too many combinations of column values",
        hint="group by fewer columns, or by the columns themselves",
    )


def _listing(question: Question, leaves: list[Leaf]) -> DomainQuery:
    known = [leaf for leaf in leaves if leaf.values is not None]
    names = {leaf.expression: f"d{place}.v" for place, leaf in enumerate(known)}
    rendering = Rendering(question.sources, names)
    parts = [_axis(rendering, leaf, place) for place, leaf in enumerate(known)]
    public = {leaf.expression for leaf in leaves if isinstance(leaf.expression, ColumnRef) and leaf.values is None}
    tables = sorted({column.source for column in public})
    sql = " CROSS JOIN ".join(parts) or "(SELECT) AS d"
    for place in tables:
        sql += _table(question.sources[place], place, names, tables, public)
    keys = [rendering.expression(key.expression) for key in question.keys]
    named = ", ".join(f"{key} AS k{place}" for place, key in enumerate(keys))
    types = [base_type(key.expression.type_name) for key in question.keys]
    shown = ", ".join(f"{_text(f'k.k{place}', t)} AS k{place}" for place, t in enumerate(types))
    inside = [
        f"((k.k{place} IS NULL) OR ((k.k{place} >= {low}) AND (k.k{place} <= {high})))"
        for place, t in enumerate(types)
        if t in TIMES
        for low, high in [[rendering.bind(end, t) for end in CALENDAR[t]]]
    ]
    where = f" WHERE {' AND '.join(inside)}" if inside else ""
    order = ", ".join(f"k.k{place}" for place in range(len(keys)))
    listed = {leaf.expression for leaf in leaves}
    told = [rendering.predicate(part) for part in _conjuncts(question) if _reads(part) <= listed]
    limited = f" WHERE {' AND '.join(f'(({part}) IS TRUE)' for part in told)}" if told else ""
    rows = f"SELECT {shown} FROM (SELECT DISTINCT {named} FROM {sql}{limited}) AS k{where} ORDER BY {order}"
    return DomainQuery(f"{rows} LIMIT {MAX_CELLS + 1}", tuple(rendering.parameters))


def _conjuncts(question: Question) -> tuple[Predicate, ...]:
    """The parts of WHERE that every counted row satisfies."""
    match question.where:
        case None | Always():
            return ()
        case AllOf(parts):
            return parts
        case part:
            return (part,)


def _reads(part: Predicate) -> set[Expression]:
    """The columns that a condition is about."""
    return {column for operand in operands(part) for column in columns(operand)}


def _limits(question: Question, keys: Sequence[GroupKey]) -> bool:
    """Whether WHERE leaves out some groups by their keys alone."""
    plain = {key.expression for key in keys}
    return any(read and read <= plain for read in map(_reads, _conjuncts(question)))


def _axis(rendering: Rendering, leaf: Leaf, place: int) -> str:
    values = rendering.bind(array(leaf.values or ()), "text[]")
    cast = cast_type(leaf.expression.type_name)
    return f"(SELECT (a.v::{cast}) AS v FROM pg_catalog.unnest({values}) AS a(v)) AS d{place}"


def _table(source: Source, place: int, names: dict[Expression, str], tables: list[int], public: set[ColumnRef]) -> str:
    """A public table, joined as in the question where the other side of its key is listed too."""
    table = f"{quoted(source.relation.schema)}.{quoted(source.relation.name)}"
    pairs = []
    for left, right in source.on:
        if left in names:
            pairs.append(f"({names[left]} = t{place}.{quoted(right)})")
        elif left.source in tables and left.source < place:
            pairs.append(f"(t{left.source}.{quoted(left.name)} = t{place}.{quoted(right)})")
    if pairs and len(pairs) == len(source.on):
        return f" {'LEFT' if source.outer else 'INNER'} JOIN {table} AS t{place} ON ({' AND '.join(pairs)})"
    if not source.outer:
        return f" CROSS JOIN {table} AS t{place}"
    used = sorted({column.name for column in public if column.source == place})
    columns = ", ".join(quoted(name) for name in used)
    nothing = ", ".join("NULL" for _ in used)  # what an unmatched row shows
    return f" CROSS JOIN (SELECT {columns} FROM {table} UNION ALL SELECT {nothing}) AS t{place}"


def _leaves(expression: Expression, sources: Sequence[Source], short: bool = False) -> list[Leaf]:
    """The parts whose values are known; ``short`` takes a function's image before its arguments' values."""
    image = _image(expression)
    if short and image is not None:
        return [Leaf(expression, image)]
    match expression:
        case Literal():
            return []
        case ColumnRef(place, name, _):
            return [_column(expression, sources[place], name)]
        case Cast(argument, _):
            return _leaves(argument, sources, short)
        case Call(_, arguments, _):
            parts: Sequence[Expression] = arguments
        case Case(branches, otherwise, _):
            conditions = [inner for when, _ in branches for inner in operands(when)]
            parts = [*conditions, *(then for _, then in branches), otherwise]
    try:
        return [leaf for part in parts for leaf in _leaves(part, sources, short)]
    except _Open:
        if image is None:
            raise
        return [Leaf(expression, image)]


def _column(column: ColumnRef, source: Source, name: str) -> Leaf:
    if source.relation.kind is Kind.PUBLIC:
        return Leaf(column, None)
    attribute = source.relation.attributes[name]
    values: Sequence[Key] | None = attribute.domain
    if values is None and base_type(attribute.type_name) in INTEGERS:
        low, high = attribute.lower, attribute.upper
        if low is not None and high is not None and high - low < MAX_CELLS:
            values = range(int(low.to_integral_value("ROUND_CEILING")), int(high) + 1)
    if values is None:
        raise _Open
    nothing = [] if attribute.not_null and not source.outer else [None]
    return Leaf(column, (*(key_text(value) for value in values), *nothing))


def _image(expression: Expression) -> tuple[str | None, ...] | None:
    """All values of a function whatever its arguments, NULL among them."""
    match expression:
        case Call("width_bucket", (_, _, _, Literal() as buckets), _):
            most = int(decimal(buckets) or Decimal(0))
            return (*map(str, range(most + 2)), None) if most < MAX_CELLS else None
        case Call("extract" | "date_part", (Literal(text=str(field)), _), _) if field in FIELDS and field != "second":
            low, high = FIELDS[field]
            return (*map(str, range(low, high + 1)), None)
        case Case(branches, otherwise, _):
            results = [*(then for _, then in branches), otherwise]
            texts = [part.text for part in results if isinstance(part, Literal)]
            return tuple(dict.fromkeys(texts)) if len(texts) == len(results) else None
    return None


def axis_type(expression: Expression) -> str:
    """The type that listed values of an expression are cast to."""
    return cast_type(expression.type_name)


def shown_text(rendering: Rendering, expression: Expression) -> str:
    """An expression as ``cells`` reads it."""
    return _text(rendering.expression(expression), base_type(expression.type_name))


def _text(column: str, type_name: str) -> str:
    if type_name in FLOATS:
        return f"({column}::numeric::text)"
    if type_name not in TIMES:
        return f"({column}::text)"
    utc = f"({column} AT TIME ZONE 'UTC')" if type_name.endswith("with time zone") else f"({column}::timestamp)"
    return f"""pg_catalog.to_char({utc}, 'YYYY-MM-DD"T"HH24:MI:SS.US')"""


def array(values: Sequence[str | None]) -> str:
    """The text of a one-dimensional array: every element quoted, NULL bare."""
    return "{" + ",".join("NULL" if value is None else _element(value) for value in values) + "}"


def _element(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
