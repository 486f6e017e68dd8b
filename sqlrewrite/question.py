"""The typed question: the only thing that decides what is charged and what SQL is generated.

A misreading of the analyst's text can therefore give a private answer to another question, never a leak. All values are
frozen, hashable and in a normal form, so that equal questions are equal values (``sqlrewrite.normal.fingerprint``).

    Question
    ├── sources      the protected table, and what is joined to it
    ├── where        Predicate over row expressions
    ├── keys         row expressions that make the groups
    ├── sets         which keys group together (one set unless GROUPING SETS, ROLLUP or CUBE)
    ├── measures     sums over rows that the protected database computes, side by side, in one scan
    ├── statistics   integer combinations of measures: what gets noise
    ├── having       Condition[Atom]: statistics against thresholds
    └── columns      the aggregates that the analyst wrote, as formulas over released statistics
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import TypeAlias

from mechanisms.condition import Condition
from sqlrewrite.catalog import Relation


class Comparison(Enum):
    GT = ">"
    GE = ">="
    LT = "<"
    LE = "<="
    EQ = "="
    NE = "<>"

    __hash__ = object.__hash__  # that of an Enum is a function in Python, and conditions are hashed all the time


# -- row expressions: total (they cannot raise on data), typed, over the columns of the sources ------------------------


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant of the analyst's text or a bound parameter, by value and PostgreSQL type; ``None`` is NULL."""

    text: str | None
    type_name: str


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column of ``Question.sources[source]``."""

    source: int
    name: str
    type_name: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function or operator of the short list in ``sqlrewrite.expression``, applied to expressions."""

    function: str  # 'date_trunc', 'extract', 'width_bucket', 'lower', '+', '-', '*', '/', '%', ...
    arguments: tuple[Expression, ...]
    type_name: str


@dataclass(frozen=True, slots=True)
class Cast:
    argument: Expression
    type_name: str


@dataclass(frozen=True, slots=True)
class Case:
    """CASE WHEN predicate THEN expression ... ELSE otherwise END; no ELSE is a NULL literal."""

    branches: tuple[tuple[Predicate, Expression], ...]
    otherwise: Expression
    type_name: str


Expression: TypeAlias = Literal | ColumnRef | Call | Cast | Case


# -- predicates --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Compare:
    """left op right: at least one side is no constant; a constant stands on the right."""

    left: Expression
    op: Comparison
    right: Expression


@dataclass(frozen=True, slots=True)
class Among:
    """expression IN (constants), sorted and without repetition."""

    argument: Expression
    values: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Like:
    """expression LIKE (or ILIKE) a constant pattern."""

    argument: Expression
    pattern: Literal
    fold_case: bool


@dataclass(frozen=True, slots=True)
class IsNull:
    argument: Expression


@dataclass(frozen=True, slots=True)
class Always:
    """TRUE or FALSE, written as a constant condition (WHERE 1 = 0, WHERE false)."""

    value: bool


@dataclass(frozen=True, slots=True)
class Not:
    part: Predicate


@dataclass(frozen=True, slots=True)
class AllOf:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple[Predicate, ...]


Predicate: TypeAlias = Compare | Among | Like | IsNull | Always | Not | AllOf | AnyOf


# -- sources -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    """A table of FROM. ``sources[0]`` is protected and holds (or leads to) the rows that are counted.

    ``on`` pairs columns of earlier sources with columns of this one. Joining never multiplies rows of what stands
    before: the columns on this side are unique (a public table's key, or the parent's key of a declared foreign key).
    """

    relation: Relation
    on: tuple[tuple[ColumnRef, str], ...] = ()
    outer: bool = False  # LEFT JOIN


@dataclass(frozen=True, slots=True)
class Unit:
    """Whose contribution is bounded: all rows with one value of ``column``; ``None`` is a single row.

    One unit counts in at most ``max_groups`` groups of each grouping set and with at most ``max_rows`` rows in each.
    """

    column: tuple[ColumnRef, ...] | None = None
    max_groups: int = 1
    max_rows: int = 1


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A row expression that makes groups, and its public domain where it is a plain declared column.

    ``domain`` (NULL included where it can occur) is None for an expression or a public table's column, whose domain
    is worked out from those of its columns (``sqlrewrite.domain``), and for a column that has none declared (``open``).
    """

    expression: Expression
    constant_per_unit: bool
    open: bool = False


# -- what is measured and released -------------------------------------------------------------------------------------


class MeasureKind(Enum):
    ROWS = "rows"  # count(*)
    VALUES = "values"  # count(x)
    UNITS = "units"  # count(DISTINCT unit)
    TOTAL = "total"  # sum(x)
    SQUARES = "squares"  # sum(x * x)


@dataclass(frozen=True, slots=True)
class Measure:
    """A sum over the rows of a group, on a lattice: the measured number is an integer multiple of ``unit``.

    One row adds between ``lower`` and ``upper`` (in real units; for counts 0 and 1).
    """

    kind: MeasureKind
    argument: Expression | None = None
    filter: Predicate | None = None
    lower: Decimal = Decimal(0)
    upper: Decimal = Decimal(1)
    unit: Fraction = Fraction(1)


@dataclass(frozen=True, slots=True)
class Statistic:
    """An integer combination of measures, taken on their lattice numbers: what noise is added to.

    ``terms`` are (measure index, coefficient). ``row_bound`` is the most by which one row can move it, in lattice
    numbers (worked out jointly: for sum(x) - c count(x) it is the largest |x - c|).
    """

    terms: tuple[tuple[int, int], ...]
    row_bound: int


@dataclass(frozen=True, slots=True)
class Atom:
    """One statistic against one threshold, both on the lattice.

    ``direction`` +1 reads "statistic >= threshold", -1 reads "statistic <= threshold": the strict comparisons of SQL
    have been moved by one lattice unit. ``threshold`` is one whole number, or the index of the key (a column of a
    public table) that holds it, with the factor that brings it onto the lattice and whether the comparison was strict.
    """

    statistic: int
    direction: int
    threshold: int | KeyThreshold
    text: str  # as the analyst wrote the aggregate: for bills and EXPLAIN; no part of what makes atoms equal
    average: bool = False  # the linear form of an average, ratio or quantile: it needs a guard on the group's size


@dataclass(frozen=True, slots=True)
class KeyThreshold:
    """A threshold that is a public number of the group: ``key`` times ``factor``."""

    key: int
    factor: Fraction
    strict: bool


class Form(Enum):
    """How the value of an aggregate follows from released measures."""

    COUNT = "count"  # measures: n
    SUM = "sum"  # measures: s
    AVG = "avg"  # measures: s, n
    VAR_SAMP = "var_samp"  # measures: q, s, n
    VAR_POP = "var_pop"
    STDDEV_SAMP = "stddev_samp"
    STDDEV_POP = "stddev_pop"


class Bound(Enum):
    """What is told of an aggregate's noise: ``veil.low(agg)`` and kin."""

    LOW = "low"
    HIGH = "high"
    STDDEV = "stddev"


@dataclass(frozen=True, slots=True)
class AggregateValue:
    """An aggregate that the analyst wrote outside HAVING: a formula over released measures, and its SQL type.

    The sum of an average or a spread is released without ``centre`` (a lattice number, the middle of the declared
    bounds) for each value, which halves how far one row moves it; ``plain``: as it is. Squares are of what is left
    without the centre.
    """

    form: Form
    measures: tuple[int, ...]
    type_name: str
    text: str
    centre: int = 0
    plain: bool = False

    @property
    def wanted(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The terms of the statistics that it is computed from, in the order of ``measures``."""
        if self.form in (Form.COUNT, Form.SUM):
            return tuple(((place, 1),) for place in self.measures)
        *squares, total, count = self.measures
        as_it_is = self.plain or not self.centre
        summed = ((total, 1),) if as_it_is else tuple(sorted(((total, 1), (count, -self.centre))))
        return (*(((place, 1),) for place in squares), summed, ((count, 1),))


@dataclass(frozen=True, slots=True)
class Question:
    """SELECT columns FROM sources WHERE filter GROUP BY keys HAVING having."""

    sources: tuple[Source, ...]
    unit: Unit
    where: Predicate | None
    keys: tuple[GroupKey, ...]
    sets: tuple[tuple[int, ...], ...]  # indices into keys; ((0, 1),) for GROUP BY a, b; ((),) for a scalar
    measures: tuple[Measure, ...]
    statistics: tuple[Statistic, ...]
    having: Condition[Atom] | None
    columns: tuple[AggregateValue, ...]

    @property
    def relation(self) -> Relation:
        """The protected table that is charged."""
        return self.sources[0].relation
