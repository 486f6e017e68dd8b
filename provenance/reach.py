"""The region that a question touches: what WHERE, FILTER and the groups say of the columns of the charged relation.

A condition that compares a bare column with constants gives an extent; every other condition is passed over, which
only makes the region larger. Read are columns of whole numbers, numeric, dates, timestamps without zone, truth values,
and texts that are equal only if identical (``Attribute.bytewise``; texts have no intervals). The types that are left
out have values that are equal and not identical (char(n), floats, citext), or an order or a reading that a session can
change.

PostgreSQL sorts NaN above all numbers, and the infinite ones at the ends: an interval without a bound holds them, one
with a bound there does not, so they need no form of their own. A comparison is true of no NULL: what it says of a
column that nothing else is known of is the interval without bounds.

Regions are those of one relation and its units: an attribute's name in another relation's region means something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import reduce

import numpy as np

from provenance.extent import Extent, Interval, Members, Value, hull, intersection
from provenance.region import EVERYWHERE, Region
from sqlrewrite.catalog import Attribute, Changes, Key, Kind, Relation
from sqlrewrite.cells import Cells
from sqlrewrite.constant import INTEGERS, base_type, decimal
from sqlrewrite.normal import normalise
from sqlrewrite.question import (
    AllOf,
    Always,
    Among,
    AnyOf,
    ColumnRef,
    Compare,
    Comparison,
    IsNull,
    Literal,
    Not,
    Predicate,
    Question,
)

NOWHERE = Region.of({"": Members(frozenset())})
"""No unit: a condition that nothing meets."""
MOST_GROUPS = 10_000

_NUMERIC, _DATE, _TIMESTAMP, _BOOLEAN = "numeric", "date", "timestamp without time zone", "boolean"
_TEXTS = ("text", "character varying")
_STEPWISE = (*INTEGERS, _DATE)
_NOT_NULL = Interval()
_DAY = re.compile(r"\s*([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})\s*")
_MOMENT = re.compile(
    r"\s*([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})[ T]([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,6}))?)?\s*"
)
_WORDS = {"true": True, "t": True, "yes": True, "on": True, "1": True} | {
    "false": False, "f": False, "no": False, "off": False, "0": False
}  # fmt: skip


def reach(question: Question, statistic: int | None = None) -> Region:
    """What the answer depends on; of one statistic, what that number depends on.

    *Guarantee*: every unit that can change the answer lies in the region. For a unit of many rows only attributes that
    are constant in it restrict the region (``separating``).
    """
    return _felt(_touched(question, statistic), separating(question))


def exact_region(question: Question, statistic: int) -> Region | None:
    """The rows that one number counts, told exactly; None where they have no form as a region.

    *Guarantee*: a row of the charged relation counts if and only if it lies in the region.
    """
    filters = {question.measures[place].filter for place, _ in question.statistics[statistic].terms}
    if len(filters) != 1 or len(question.sources) != 1 or any(key.open for key in question.keys):
        return None
    parts = [part for part in (question.where, *filters) if part is not None]
    if not _exact(normalise(AllOf(tuple(parts))), question.relation):
        return None
    return _touched(question, statistic)


def beside(question: Question) -> tuple[int, ...]:
    """The other protected relations that a question is about: those that it joins, and those that its rows lead to.

    *Guarantee*: a limit of a relation bears every question whose answer a unit of it can move by rows of its own or, by
    foreign keys, of other tables.
    """
    read = [each.relation for each in question.sources if each.relation.kind is Kind.PROTECTED]
    others = [*(other.id for other in read), *(parent for other in read for parent in other.parents)]
    return tuple(dict.fromkeys(id_ for id_ in others if id_ != question.relation.id))


def joined_versions(question: Question) -> tuple[tuple[int, int], ...]:
    """The protected relations that a question joins, each with the data version that it was planned on."""
    joined = (each.relation for each in question.sources[1:] if each.relation.kind is Kind.PROTECTED)
    return tuple((relation.id, relation.data_version) for relation in joined)


def separating(question: Question) -> frozenset[str]:
    """The columns in which a unit has one value at all times that the ledger counts together.

    A row that stays as it is (``Changes.FROZEN``, ``Changes.APPEND``) has one value in each of its columns; one that
    may be updated has one in those that are declared immutable. A person has one value in the column that names the
    person, and in those that are declared constant in it, if rows stay as they are or the column is immutable as well.
    Where the unit is known through a join only, none: what is declared of one relation is so for its own unit.

    *Guarantee*: of two regions that differ in these columns only, no unit is in one at one time and in the other at
    another, as long as the data version is the same and the declarations are true. See ``provenance`` for the proof
    that the ledger's bound then holds for every unit.
    """
    relation, unit = question.relation, question.unit.column
    stays = relation.changes is not Changes.ANY
    fixed = {name: each for name, each in relation.attributes.items() if stays or each.immutable}
    if unit is None:
        return frozenset(fixed)
    if any(column.source != 0 for column in unit):
        return frozenset()
    constant = {name for name, each in fixed.items() if each.constant_per_unit}
    return frozenset(constant | {column.name for column in unit})


def group_regions(question: Question, cells: Cells, most: int = MOST_GROUPS) -> list[Region] | None:
    """The region of each group, in the order of the cells: what ``reach`` tells, and that its keys have these values.

    None where all groups have to share the region of the question: with several grouping sets a row lies in a group of
    each, open keys have no cells, and more than ``most`` regions are not made. Keys that are no bare column, or do not
    separate units, leave groups with one region: of these a unit touches as many as ``sensitivity`` says, for which
    ``region.unit_parts`` asks.

    *Guarantee*: every unit that can change what is told of a group lies in its region.
    """
    if len(cells.blocks) != 1 or cells.size > most or any(key.open for key in question.keys):
        return None
    around, names = reach(question), separating(question)
    found = [around] * cells.size
    for name, extents in key_extents(question, cells):
        if name in names:
            found = [_with(region, name, extent) for region, extent in zip(found, extents, strict=True)]
    return found


def key_extents(question: Question, cells: Cells) -> list[tuple[str, list[Members | None]]]:
    """For each key that is a bare column what it is in each cell; None where the value has no form."""
    columns = cells.key_columns(np.arange(cells.size, dtype=np.int64))
    return [
        (attribute.name, [_extent_of_key(value, attribute) for value in column])
        for key, column in zip(question.keys, columns, strict=True)
        if isinstance(key.expression, ColumnRef)
        and (attribute := _readable(key.expression, question.relation)) is not None
    ]


def _felt(region: Region, names: frozenset[str]) -> Region:
    """The region as units see it; that nothing is touched holds whatever separates them."""
    return NOWHERE if region.empty else region.separating(names)


def _with(region: Region, name: str, extent: Extent | None) -> Region:
    if extent is None or region.empty:
        return region
    mine = region.on(name)
    both = extent if mine is None else intersection(mine, extent)
    return NOWHERE if both.empty else Region.of({**dict(region.sides), name: both})


def _touched(question: Question, statistic: int | None) -> Region:
    """The rows that enter the answer."""
    where = Always(True) if question.where is None else question.where
    chosen = question.statistics if statistic is None else (question.statistics[statistic],)
    # Whether a group of an open key is shown at all depends on all its rows, filtered or not.
    filters: Iterable[Predicate | None] = {question.measures[place].filter for one in chosen for place, _ in one.terms}
    if not filters or any(key.open for key in question.keys):
        filters = (None,)
    parts = (where if kept is None else AllOf((where, kept)) for kept in filters)
    found = reduce(_either, (_told(normalise(part), question.relation) for part in parts))
    return NOWHERE if found.empty else _one_form(found, question.relation)


def _one_form(region: Region, relation: Relation) -> Region:
    """From 3 to 3 is the set of 3, and all but NULL is everything where there is no NULL."""
    sides: dict[str, Extent] = {}
    for name, extent in region.sides:
        if isinstance(extent, Interval) and extent.low is not None and extent.first == extent.last:
            sides[name] = Members.of(extent.low)
        elif extent != _NOT_NULL or not relation.attributes[name].not_null:
            sides[name] = extent
    return Region.of(sides)


def _told(part: Predicate, relation: Relation) -> Region:
    """What rows must be like for a condition in normal form to be true of them."""
    match part:
        case Always(value):
            return EVERYWHERE if value else NOWHERE
        case AllOf(parts):
            region = reduce(Region.intersection, (_told(inner, relation) for inner in parts), EVERYWHERE)
            return _without(region, parts, relation)
        case AnyOf(parts):
            return reduce(_either, (_told(inner, relation) for inner in parts), NOWHERE)
        case _:
            column, extent = _leaf(part, relation)
            return EVERYWHERE if extent is None else Region.of({column: extent})


def _exact(part: Predicate, relation: Relation) -> bool:
    """Whether ``_told`` says no less than the condition does."""
    match part:
        case Always():
            return True
        case AllOf(parts):
            return all(_exact(inner, relation) for inner in parts)
        case AnyOf(parts):
            # Of sets of one column the union has a form; normal form has made them one but for NULL.
            told = [_leaf(inner, relation) for inner in parts]
            sets = all(isinstance(extent, Members) for _, extent in told)
            return sets and len({column for column, _ in told}) == 1
        case Not(IsNull(ColumnRef() as column)):
            return _readable(column, relation) is not None
        case _:
            return _leaf(part, relation)[1] not in (None, _NOT_NULL)


def _leaf(part: Predicate, relation: Relation) -> tuple[str, Extent | None]:
    """The column that one condition is about, and what it says of it; None is nothing."""
    match part:
        case (
            Compare(ColumnRef() as column, _, Literal())
            | Among(ColumnRef() as column)
            | IsNull(ColumnRef() as column)
            | Not(Among(ColumnRef() as column) | IsNull(ColumnRef() as column))
        ):
            attribute = _readable(column, relation)
        case _:
            return "", None
    if attribute is None:
        return "", None
    kind = base_type(attribute.type_name)
    match part:
        case Compare(_, op, Literal() as constant):
            return column.name, _compared(kind, op, _value(constant, kind))
        case Among(_, values):
            return column.name, _listed(kind, [_value(each, kind) for each in values])
        case IsNull():
            return column.name, Members.of(None)
        case _:
            return column.name, _NOT_NULL


def _readable(column: ColumnRef, relation: Relation) -> Attribute | None:
    """The attribute behind a column of the charged relation, if equal values of it are one value."""
    attribute = relation.attributes[column.name] if column.source == 0 else None
    if attribute is None:
        return None
    kind = base_type(attribute.type_name)
    plain = kind in (*INTEGERS, _NUMERIC, _DATE, _TIMESTAMP, _BOOLEAN)
    return attribute if plain or (kind in _TEXTS and attribute.bytewise) else None


def _compared(kind: str, op: Comparison, value: Value) -> Extent:
    """Values of which the comparison with a constant is true; one that is not read (None) leaves all but NULL."""
    if value is None:
        return _NOT_NULL
    match op:
        case Comparison.EQ:
            return _listed(kind, [value])
        case Comparison.NE:
            return Members.of(not value) if isinstance(value, bool) else _NOT_NULL
    if kind in _TEXTS or kind == _BOOLEAN:
        return _NOT_NULL
    closed = op in (Comparison.GE, Comparison.LE)
    up = op in (Comparison.GE, Comparison.GT)
    found = Interval(value, None, closed) if up else Interval(None, value, True, closed)
    try:
        return found.stepwise() if kind in _STEPWISE else found
    except OverflowError:  # beyond the last day
        return found


def _listed(kind: str, values: Sequence[Value]) -> Extent:
    if None in values:
        return _NOT_NULL
    return Members(frozenset(value for value in values if kind not in INTEGERS or isinstance(value, int)))


def _without(region: Region, parts: Sequence[Predicate], relation: Relation) -> Region:
    """The region without what the parts of an AND exclude, where it is a set."""
    sides = dict(region.sides)
    for part in parts:
        match part:
            case Compare(ColumnRef() as column, Comparison.NE, Literal() as constant):
                excluded: Sequence[Literal] = (constant,)
            case Not(Among(ColumnRef() as column, excluded)):
                pass
            case _:
                continue
        attribute, mine = _readable(column, relation), sides.get(column.name)
        if attribute is not None and isinstance(mine, Members):
            kind = base_type(attribute.type_name)
            sides[column.name] = Members(mine.values - {_value(each, kind) for each in excluded} - {None})
    return Region.of(sides)


def _either(one: Region, other: Region) -> Region:
    """A region that holds both."""
    if one.empty or other.empty:
        return other if one.empty else one
    sides = {name: _union(extent, theirs) for name, extent in one.sides if (theirs := other.on(name)) is not None}
    return Region.of({name: extent for name, extent in sides.items() if extent is not None})


def _union(one: Extent, other: Extent) -> Extent | None:
    """An extent that holds both; None is everything."""
    match one, other:
        case (Members(values), Interval() as interval) | (Interval() as interval, Members(values)):
            if None in values:
                return None
            return _NOT_NULL if interval == _NOT_NULL else hull(interval, Interval(min(values), max(values)))  # type: ignore[type-var]
    return hull(one, other)


def _value(literal: Literal, kind: str) -> Value:
    """The value of a constant as PostgreSQL compares it with a column of this type; None where that is not known.

    Nothing is read that a setting could change, or that PostgreSQL would round or cut first.
    """
    text, given = literal.text, literal.type_name
    if text is None:
        return None
    if kind in (*INTEGERS, _NUMERIC) and given in (*INTEGERS, _NUMERIC):
        return _whole(decimal(literal))
    if kind in _TEXTS and given in _TEXTS:
        return text
    if kind == _BOOLEAN and given == _BOOLEAN:
        return _WORDS.get(text)
    if kind in (_DATE, _TIMESTAMP) and given in (_DATE, kind):
        # A date beside a timestamp is its midnight; a date that is written with a time of day is not read.
        return _moment(text, kind, given)
    return None


def _whole(number: Decimal | None) -> int | Decimal | None:
    return int(number) if number is not None and number == number.to_integral_value() else number


def _moment(text: str, kind: str, given: str) -> date | datetime | None:
    day = _DAY.fullmatch(text)
    moment = _MOMENT.fullmatch(text) if given == _TIMESTAMP else None
    try:
        if day is not None:
            found = date(*map(int, day.groups()))
            return found if kind == _DATE else datetime(found.year, found.month, found.day)
        if moment is not None:
            *fields, fraction = moment.groups(default="0")
            year, month, number, hour, minute, second = map(int, fields)
            return datetime(year, month, number, hour, minute, second, int(fraction.ljust(6, "0")))
    except ValueError:  # 24:00 and a sixtieth second are times to PostgreSQL
        return None
    return None


def _extent_of_key(value: Key, attribute: Attribute) -> Members | None:
    """A key as the set of its value; None where it has no form."""
    kind = base_type(attribute.type_name)
    match value:
        case None:
            return Members.of(None)
        case bool():
            fits = kind == _BOOLEAN
        case int():
            fits = kind in (*INTEGERS, _NUMERIC)
        case Decimal():
            fits = kind in (*INTEGERS, _NUMERIC) and value.is_finite()
        case datetime():
            fits = kind == _TIMESTAMP and value.tzinfo is None
        case date():
            fits = kind == _DATE
        case _:
            fits = kind in _TEXTS
    return Members.of(value) if fits else None
