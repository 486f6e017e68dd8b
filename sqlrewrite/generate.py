"""A question to the one SELECT that the protected database runs: one statement, one scan.

Output columns: ``g`` (only with several grouping sets: PostgreSQL's GROUPING() of all keys, which tells the set), k0,
k1, ... (keys), m0, m1, ... (measures as lattice numbers, int8; NULL is 0). With an open key the number of units in
each group is there too (``Generated.presence``).

Each measure is clamped after its expression and summed in exact arithmetic. What a type or a CHECK already guarantees
is not done again: that is the difference between 1.2 and 2 times the plain query.

For a person unit there are two levels: first the sums of each (person, group), then those of each group. A person with
n rows in a measure, more than ``max_rows``, counts as ``max_rows`` rows of their own average: averages stay unbiased.
Of a person's groups those with the smallest keyed hash are kept: the same ones each time, whatever the physical order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import date

from sqlrewrite.amount import FAR, NARROW, amount
from sqlrewrite.cells import key_text
from sqlrewrite.constant import FLOATS, INTEGERS, TEXTS, TIMES, base_type
from sqlrewrite.question import ColumnRef, Measure, MeasureKind, Question
from sqlrewrite.render import Rendering
from sqlrewrite.sensitivity import can_be_null, declared, domain_size, groups_per_unit
from sqlrewrite.term import CALENDAR

AS_THEY_ARE = frozenset((*INTEGERS, "numeric", "boolean", *TEXTS, *TIMES))
HASHED = frozenset((*AS_THEY_ARE, *FLOATS, "uuid"))
HASHES = {"smallint": "hashint2extended", "integer": "hashint4extended", "bigint": "hashint8extended"} | {
    "text": "hashtextextended"
}
_PARAMETER = re.compile(r'"(?:[^"]|"")*"|\$([0-9]+)')  # or a name in quotes, which may hold anything
SUMS = (MeasureKind.TOTAL, MeasureKind.SQUARES)


@dataclass(frozen=True, slots=True)
class Generated:
    """A statement with $1, $2, ... and the parameters in text form.

    ``presence`` is the measure that counts the units of a group, where a key is open; it may stand after the
    question's own measures. ``casts`` has the type of each parameter.
    """

    sql: str
    parameters: tuple[str | None, ...]
    presence: int | None = None
    casts: tuple[str, ...] = ()

    @property
    def constants(self) -> str:
        """A statement that reads the parameters as this one does, and no table."""
        return f"SELECT {', '.join(f'${n}::{cast}' for n, cast in enumerate(self.casts, 1))}"


def generate(question: Question, seed: int) -> Generated:
    """The measuring statement of a question; ``seed`` keys the hash that picks a person's groups.

    *Guarantee*: nothing in it can raise on data, and the bounds of ``sensitivity`` hold for its rows.
    """
    measures, presence = _with_presence(question)
    if not measures:
        raise ValueError("a question without a measure measures nothing")
    statement = _Statement(question, measures, seed)
    sql = statement.by_row() if question.unit.column is None else statement.by_person()
    return _used(Generated(sql, tuple(statement.rendering.parameters), presence, tuple(statement.rendering.casts)))


def _used(made: Generated) -> Generated:
    """A statement with only the parameters that occur in it: PostgreSQL cannot infer the type of the others."""
    found = list(dict.fromkeys(int(place) for place in _PARAMETER.findall(made.sql) if place))
    if len(found) == len(made.parameters):
        return made
    places = {old: new for new, old in enumerate(found, 1)}
    return replace(
        made,
        sql=_PARAMETER.sub(lambda hit: f"${places[int(hit[1])]}" if hit[1] else hit[0], made.sql),
        parameters=tuple(made.parameters[old - 1] for old in found),
        casts=tuple(made.casts[old - 1] for old in found),
    )


def _with_presence(question: Question) -> tuple[tuple[Measure, ...], int | None]:
    if not any(key.open for key in question.keys):
        return question.measures, None
    wanted = Measure(MeasureKind.ROWS if question.unit.column is None else MeasureKind.UNITS)
    if wanted in question.measures:
        return question.measures, question.measures.index(wanted)
    return (*question.measures, wanted), len(question.measures)


class _Statement:
    """The parts that both levels use, each rendered once: PostgreSQL must see equal keys as equal."""

    def __init__(self, question: Question, measures: tuple[Measure, ...], seed: int) -> None:
        self.question = question
        self.measures = measures
        self.seed = seed
        self.rendering = Rendering(question.sources)
        self.types = [base_type(key.expression.type_name) for key in question.keys]
        self.keys = [
            _grouped(self.rendering.expression(key.expression), type_name)
            for key, type_name in zip(question.keys, self.types, strict=True)
        ]
        self.names = [f"k{place}" for place in range(len(self.keys))]
        self.sets = distinct_sets(question)

    def by_row(self) -> str:
        shown = [f"{_shown(key, t)} AS {name}" for key, t, name in zip(self.keys, self.types, self.names, strict=True)]
        totals = [f"{self._row_total(measure)} AS m{place}" for place, measure in enumerate(self.measures)]
        mark = [f"GROUPING({', '.join(self.keys)})::int4 AS g"] if len(self.sets) > 1 else []
        sql = f"SELECT {', '.join(mark + shown + totals)} FROM {self.rendering.tables()}{self._where([])}"
        return sql + self._group_by([], self.keys) + self._having(self.keys)

    def by_person(self) -> str:
        """Rows (z), sums of each person and group (p), the groups that a person keeps (q), sums of each group.

        With one grouping set the rows are sorted by person and hash first, which serves both the inner groups and the
        ranking: half the time of hashing the inner groups, whose number PostgreSQL underestimates.
        """
        units = [self.rendering.unit(column) for column in self.question.unit.column or ()]
        people = [f"u{place}" for place in range(len(units))]
        several, spreads = len(self.sets) > 1, self._spreads()
        marks = ["g"] if several else []
        rows = [f"{unit} AS {name}" for unit, name in zip(units, people, strict=True)]
        # Before the inner groups, values that are equal must have one hash, or a person would be split in two.
        alike = all(base_type(column.type_name) in HASHED for column in self.question.unit.column or ())
        hashed = ["h"] if spreads and not several and alike else []
        rows += [f"{self._hash(units, [], self.keys)} AS h" for _ in hashed]
        rows += [f"{key} AS {name}" for key, name in zip(self.keys, self.names, strict=True)]
        sums: list[str] = []
        totals = [self._person_total(measure, place, rows, sums) for place, measure in enumerate(self.measures)]
        somebody = [f"({unit} IS NOT NULL)" for unit in units]
        sql = f"SELECT {', '.join(rows)} FROM {self.rendering.tables()}{self._where(somebody)}"
        order = [*people, *hashed, *self.names]
        if hashed:
            sql += f" ORDER BY {', '.join(str(place) for place in range(1, len(order) + 1))} OFFSET 0"
        inner = [f"z.{name}" for name in order]
        inner += [f"GROUPING({self._listed('z', self.names)})::int4 AS g"] if several else []
        owned = [f"z.{name}" for name in people]
        keys = [f"z.{name}" for name in self.names]
        sql = f"SELECT {', '.join(inner + sums)} FROM ({sql}) AS z"
        sql += self._group_by([*owned, *(f"z.{name}" for name in hashed)], keys) + self._having(keys)
        groups = [*marks, *self.names]
        keep = ""
        if spreads:
            own = ([f"p.{name}" for name in names] for names in (people, marks, self.names))
            hash_ = "p.h" if hashed else self._hash(*own)
            part, ties = self._listed("p", [*people, *marks]), self._listed("p", self.names)
            rank = f"pg_catalog.row_number() OVER (PARTITION BY {part} ORDER BY {hash_}, {ties}) AS r"
            sql = f"SELECT p.*, {rank} FROM ({sql}) AS p"
            keep = f" WHERE (q.r <= {self.rendering.number(self.question.unit.max_groups, 'int8')})"
        shown = [f"q.{mark}" for mark in marks]
        shown += [f"{_shown(f'q.{name}', t)} AS {name}" for name, t in zip(self.names, self.types, strict=True)]
        shown += [f"{total} AS m{place}" for place, total in enumerate(totals)]
        grouped = f" GROUP BY {self._listed('q', groups)}" if groups else ""
        return f"SELECT {', '.join(shown)} FROM ({sql}) AS q{keep}{grouped}"

    def _listed(self, alias: str, names: list[str]) -> str:
        return ", ".join(f"{alias}.{name}" for name in names)

    def _spreads(self) -> bool:
        """Whether a unit may have more groups than it may touch; dropped groups outside the domain touch nothing."""
        question = self.question
        for keys in self.sets:
            loose = [question.keys[key] for key in keys if not question.keys[key].constant_per_unit]
            known = all(domain_size(question.sources, key.expression) is not None for key in loose)
            if loose and not (known and groups_per_unit(question, keys) < question.unit.max_groups):
                return True
        return False

    def _hash(self, units: list[str], marks: list[str], keys: list[str]) -> str:
        """A keyed hash of a person's group, one field after the other.

        The unit is part of it: otherwise everybody would drop the same groups, and those would look empty.
        """
        expressions = [*(self.question.unit.column or ()), *(key.expression for key in self.question.keys)]
        # An expression may be rendered in a wider type than its own (a product of integers is int8).
        known = [
            (base_type(e.type_name), can_be_null(self.question.sources, e) or not isinstance(e, ColumnRef))
            for e in expressions
        ]
        known[len(units) : len(units)] = [("integer", False) for _ in marks]
        result = self.rendering.number(self.seed, "int8")
        for field, (type_name, nullable) in zip([*units, *marks, *keys], known, strict=True):
            function = HASHES.get(type_name)
            if function is not None and not nullable and not marks:
                result = f"pg_catalog.{function}({field}, {result})"
            else:  # slower, but for every type, and for NULL
                hashed = field if type_name in HASHED else f"({field}::text)"
                result = f"pg_catalog.hash_record_extended(ROW({hashed}), {result})"
        return result

    def _where(self, parts: list[str]) -> str:
        if self.question.where is not None:
            parts = [*parts, self.rendering.predicate(self.question.where)]
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def _group_by(self, units: list[str], keys: list[str]) -> str:
        if len(self.sets) > 1:
            sets = ", ".join(f"({', '.join([*units, *(keys[key] for key in chosen)])})" for chosen in self.sets)
            return f" GROUP BY GROUPING SETS ({sets})"
        everything = [*units, *keys]
        return f" GROUP BY {', '.join(everything)}" if everything else ""

    def _having(self, keys: list[str]) -> str:
        """Moments outside the domain stay behind: Python cannot hold infinity or 44 BC, and its error would tell.

        Looked at once for each group, not for each row.
        """
        guards = []
        for key, sql, type_name in zip(self.question.keys, keys, self.types, strict=True):
            if type_name not in TIMES:
                continue
            attribute = declared(self.question.sources, key.expression)
            known = [value for value in (attribute.domain or () if attribute else ()) if isinstance(value, date)]
            ends = (key_text(min(known)), key_text(max(known))) if known else CALENDAR[type_name]
            low, high = (self.rendering.bind(end, type_name) for end in ends)
            guards.append(f"(({sql} IS NULL) OR (({sql} >= {low}) AND ({sql} <= {high})))")
        return f" HAVING {' AND '.join(guards)}" if guards else ""

    def _filter(self, measure: Measure, also: list[str]) -> str:
        kept = self._kept(measure, also)
        return f" FILTER (WHERE {kept})" if kept else ""

    def _count(self, measure: Measure) -> str:
        """How many rows enter a measure."""
        return f"pg_catalog.count(*){self._filter(measure, self._present(measure))}"

    def _present(self, measure: Measure) -> list[str]:
        """The conditions under which the argument of a count is something."""
        if measure.argument is None or not can_be_null(self.question.sources, measure.argument):
            return []
        return self.rendering.present(measure.argument)

    def _row_total(self, measure: Measure) -> str:
        if measure.kind not in SUMS:
            return self._count(measure)
        value = amount(measure, self.question.sources, self.rendering)
        return value.lattice(f"pg_catalog.sum({value.sql}){self._filter(measure, value.conditions)}")

    def _person_total(self, measure: Measure, place: int, rows: list[str], sums: list[str]) -> str:
        """The outer aggregate of a measure; ``rows`` and ``sums`` get what it needs of the levels below."""
        if measure.kind in SUMS:
            value = amount(measure, self.question.sources, self.rendering, whole=True)
            kept = self._kept(measure, value.conditions)
            one = f"(CASE WHEN {kept} THEN {value.sql} END)" if kept else value.sql
            name = _add(rows, one, f"v{place}")
            n = _add(sums, f"pg_catalog.count(z.{name})", f"n{place}")
            total = _add(sums, f"pg_catalog.sum(z.{name})", f"s{place}")
            return value.lattice(
                f"pg_catalog.sum({value.scaled(f'q.{total}', f'q.{n}', self.question.unit.max_rows)})", wide=True
            )
        kept = self._kept(measure, self._present(measure))
        flag = f" FILTER (WHERE z.{_add(rows, f'({kept})', f'b{place}')})" if kept else ""
        n = _add(sums, f"pg_catalog.count(*){flag}", f"n{place}")
        if measure.kind is MeasureKind.UNITS:
            return f"pg_catalog.count(*) FILTER (WHERE (q.{n} > 0))" if kept else "pg_catalog.count(*)"
        most = self.rendering.number(self.question.unit.max_rows, "int8")
        if self.question.unit.max_rows > NARROW:
            return f"least(pg_catalog.sum(least(q.{n}, {most})), {self.rendering.number(FAR, 'numeric')})::int8"
        return f"pg_catalog.sum(least(q.{n}, {most})::int4)"  # int4: PostgreSQL sums it in int8

    def _kept(self, measure: Measure, also: list[str]) -> str:
        parts = ([] if measure.filter is None else [self.rendering.predicate(measure.filter)]) + also
        return " AND ".join(parts)


def _add(columns: list[str], sql: str, name: str) -> str:
    """The name of an output column; an equal one is there once."""
    for known in columns:
        if known.startswith(f"{sql} AS ") and " AS " not in known[len(sql) + 4 :]:
            return known[len(sql) + 4 :]
    columns.append(f"{sql} AS {name}")
    return name


def distinct_sets(question: Question) -> list[tuple[int, ...]]:
    """The grouping sets without repetition, keys in order."""
    return list(dict.fromkeys(tuple(sorted(set(keys))) for keys in question.sets))


def _grouped(column: str, type_name: str) -> str:
    """A key as it is grouped and read: in a form in which equal means identical.

    GROUP BY shows any one of the values that it takes for equal ('1 day' and '24:00:00', 'a' and 'A' under some
    collations): one row more could give a whole group another key, and so another cell. Floats are read as numeric;
    keys of a type that has no Python form in ``Key`` as text, as domains are.
    """
    if type_name in FLOATS:
        return f"({column}::numeric)"
    if type_name in TEXTS:
        return f'({column} COLLATE "C")'
    return column if type_name in AS_THEY_ARE else f'(({column})::text COLLATE "C")'


def _shown(column: str, type_name: str) -> str:
    """Equal numerics have several spellings (1 and 1.00), of which a group would show any one."""
    return f"pg_catalog.trim_scale({column})" if type_name == "numeric" or type_name in FLOATS else column
