"""How far one privacy unit can move the measured numbers: the claim that noise and price rest on."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from fractions import Fraction

from sqlrewrite.catalog import Attribute, Kind
from sqlrewrite.constant import INTEGERS, base_type
from sqlrewrite.question import (
    Call,
    Case,
    Cast,
    ColumnRef,
    Expression,
    Literal,
    Measure,
    MeasureKind,
    Question,
    Source,
    Statistic,
)
from sqlrewrite.unit import has_parts


@dataclass(frozen=True, slots=True)
class Contribution:
    """One unit changes ``statistics[i]`` by at most that in a cell, in at most ``groups`` cells of each grouping set.

    ``cells`` is the most cells over all grouping sets together. Noise is calibrated to ``statistics``; the whole
    question costs ``cells`` times the loss of one cell.
    """

    groups: int
    cells: int
    statistics: tuple[int, ...]


def sensitivity(question: Question) -> Contribution:
    """The bounds of a question, from the registry alone.

    *Guarantee*: ``generate`` enforces these numbers in SQL, so they hold for every pair of databases that differ in one
    unit, provided that keys declared constant for a unit are so. A row lies in one cell of each grouping set.
    """
    spread = [groups_per_unit(question, keys) for keys in question.sets]
    if has_parts(question):
        # Rows of a child table may be units of their own: one of them can push another group of its person out.
        loose = [any(not question.keys[key].constant_per_unit for key in keys) for keys in question.sets]
        spread = [max(2, groups) if spreads else groups for groups, spreads in zip(spread, loose, strict=True)]
    # What no unit moves (sum(x * 0)) is said to move by one: noise is made for a unit that can be seen.
    moves = tuple(max(1, _statistic(question, statistic)) for statistic in question.statistics)
    return Contribution(max(spread), sum(spread), moves)


def groups_per_unit(question: Question, keys: tuple[int, ...]) -> int:
    """The most cells of one grouping set that one unit touches."""
    unit = question.unit
    if unit.column is None:
        return 1
    loose = [question.keys[key] for key in keys if not question.keys[key].constant_per_unit]
    # A unit's rows agree in the keys that are constant for it: only the others spread them, within their domains.
    sizes = [domain_size(question.sources, key.expression) for key in loose]
    spread = math.prod(size for size in sizes if size is not None) if None not in sizes else unit.max_groups
    return max(1, min(unit.max_groups, spread))


def domain_size(sources: tuple[Source, ...], expression: Expression) -> int | None:
    """How many groups a plain declared column makes."""
    attribute = declared(sources, expression)
    return None if attribute is None or attribute.keys is None else len(attribute.keys)


def declared(sources: tuple[Source, ...], expression: Expression) -> Attribute | None:
    """The attribute behind a key that is a plain column of a protected table, where its domain is declared.

    Behind a LEFT JOIN a column may be NULL whatever was declared: its domain is worked out (``sqlrewrite.domain``).
    """
    if not isinstance(expression, ColumnRef):
        return None
    source = sources[expression.source]
    attribute = source.relation.attributes[expression.name]
    plain = source.relation.kind is Kind.PROTECTED and not source.outer and attribute.domain is not None
    return attribute if plain else None


def lattice_bounds(measure: Measure) -> tuple[int, int]:
    """What one row can add to a measure, in lattice numbers; rounded inwards, as ``generate`` clamps."""
    if measure.kind not in (MeasureKind.TOTAL, MeasureKind.SQUARES):
        return 0, 1
    return (
        math.ceil(Fraction(measure.lower) / measure.unit),
        math.floor(Fraction(measure.upper) / measure.unit),
    )


def rows_of(sources: tuple[Source, ...], measure: Measure) -> Hashable:
    """What decides which rows enter a measure: its filter, and its argument where that can be NULL.

    A person's rows beyond ``max_rows`` are scaled down per such class, so measures of one class keep their ratio.
    """
    nullable = measure.argument is not None and can_be_null(sources, measure.argument)
    squares = measure.kind is MeasureKind.SQUARES  # beyond all bounds it is NULL where its argument is not
    return measure.filter, measure.argument if nullable else None, squares


def can_be_null(sources: tuple[Source, ...], expression: Expression) -> bool:
    """Whether an expression may be NULL, as far as types tell."""
    match expression:
        case Literal(text, _):
            return text is None
        case ColumnRef(source, name, _):
            return sources[source].outer or not sources[source].relation.attributes[name].not_null
        case Case(branches, otherwise, _):
            return any(can_be_null(sources, part) for part in (*(then for _, then in branches), otherwise))
        case Call("coalesce", arguments, _):
            return all(can_be_null(sources, argument) for argument in arguments)
        case Call("+" | "-" | "*" | "/" | "%" | "abs", arguments, "smallint" | "integer" | "bigint"):
            dated = any(base_type(argument.type_name) not in INTEGERS for argument in arguments)
            return dated or any(can_be_null(sources, argument) for argument in arguments)
        case Call() | Cast():
            return True  # out of all bounds they are


def _statistic(question: Question, statistic: Statistic) -> int:
    if question.unit.column is None:
        return statistic.row_bound
    most = question.unit.max_rows
    low = high = 0
    classes: set[Hashable] = set()
    rounded = 0
    for index, coefficient in statistic.terms:
        measure = question.measures[index]
        ends = [coefficient * end * most for end in lattice_bounds(measure)]
        if measure.kind is MeasureKind.UNITS:
            ends = [0, coefficient]
            classes.add("units")
        else:
            classes.add(rows_of(question.sources, measure))
        if measure.kind in (MeasureKind.TOTAL, MeasureKind.SQUARES):
            rounded += abs(coefficient)
        low, high = low + min(*ends, 0), high + max(*ends, 0)
    apart = max(-low, high)
    if len(classes) != 1 or "units" in classes:
        return apart
    # One class: at most max_rows times the bound of a row; each scaled sum was rounded by at most a half.
    together = most * statistic.row_bound + rounded // 2
    return min(apart, together)
