"""A question to the one SELECT that the protected database runs.

Names are quoted and qualified, every part is in parentheses, every constant is a bind parameter with its type:
the statement means the same under any search_path. The output columns are k0, k1, ... (keys) and a0, ... (int8).

For a person unit the contribution is bounded here. A count keeps min(rows, max_rows) of a person's rows in a
group, whichever they are; of a person's groups those with the smallest keyed hash are kept, so the same ones each
time and whatever the physical order.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from sqlrewrite.catalog import Attribute
from sqlrewrite.cells import key_text
from sqlrewrite.constant import INTEGERS, TEXTS, TIMES, base_type
from sqlrewrite.question import AllOf, Among, AnyOf, Compare, IsNull, Literal, Not, Predicate, Question
from sqlrewrite.sensitivity import sensitivity

AS_THEY_ARE = frozenset((*INTEGERS, "numeric", "boolean", *TEXTS, *TIMES))


@dataclass(frozen=True, slots=True)
class Generated:
    """A statement with $1, $2, ... and the parameters in text form."""

    sql: str
    parameters: tuple[str | None, ...]


class _Binds:
    """Constants in the order in which the statement names them."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values: list[str | None] = []

    def bind(self, text: str | None, type_name: str) -> str:
        self.values.append(text)
        return f"${len(self.values)}::{type_name}"


def generate(question: Question, seed: int) -> Generated:
    """The measuring statement of a question; ``seed`` keys the hash that picks a person's groups.

    *Guarantee*: nothing in it can raise on data, and the bounds of ``sensitivity`` hold for its rows.
    """
    if not question.aggregates:
        raise ValueError("a question without an aggregate measures nothing")
    binds = _Binds()
    if question.relation.unit_column is None:
        return Generated(_by_row(question, binds), tuple(binds.values))
    return Generated(_by_person(question, question.relation.unit_column, seed, binds), tuple(binds.values))


def quoted(name: str) -> str:
    """A name as a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def _by_row(question: Question, binds: _Binds) -> str:
    keys = [_shown(_column(key.name), t) for key, t in zip(question.keys, _types(question), strict=True)]
    outputs = [f"{key} AS k{place}" for place, key in enumerate(keys)]
    counts = [f"pg_catalog.count(*)::int8 AS a{place}" for place in range(len(question.aggregates))]
    sql = f"SELECT {', '.join(outputs + counts)} FROM {_table(question)} AS t{_where(question, [], binds)}"
    return sql + (f" GROUP BY {', '.join(keys)}" if keys else "")


def _by_person(question: Question, unit_column: str, seed: int, binds: _Binds) -> str:
    bounds = sensitivity(question)
    unit = _column(unit_column)
    columns = [_shown(_column(key.name), t) for key, t in zip(question.keys, _types(question), strict=True)]
    names = [f"k{place}" for place in range(len(columns))]
    keys = [f"{column} AS {name}" for column, name in zip(columns, names, strict=True)]
    rows = f"least(pg_catalog.count(*), {binds.bind(str(bounds.per_cell), 'int8')}) AS n"
    inner = (
        f"SELECT {', '.join([f'{unit} AS u', *keys, rows])} FROM {_table(question)} AS t"
        f"{_where(question, [f'({unit} IS NOT NULL)'], binds)} GROUP BY {', '.join([unit, *columns])}"
    )
    total = [f"coalesce(pg_catalog.sum(g.n), 0)::int8 AS a{place}" for place in range(len(question.aggregates))]
    if not names:
        return f"SELECT {', '.join(total)} FROM ({inner}) AS g"
    person = ", ".join(f"p.{name}" for name in names)
    # The unit is part of the hash: otherwise everybody would drop the same groups, and those would look empty.
    rank = (
        "pg_catalog.row_number() OVER (PARTITION BY p.u ORDER BY"
        f' pg_catalog.hashtextextended((ROW(p.u, {person})::text) COLLATE "C", {binds.bind(str(seed), "int8")}),'
        f' (ROW({person})::text) COLLATE "C") AS r'
    )
    outputs = [f"g.{name} AS {name}" for name in names] + total
    return (
        f"SELECT {', '.join(outputs)} FROM (SELECT {person}, p.n, {rank} FROM ({inner}) AS p) AS g"
        f" WHERE (g.r <= {binds.bind(str(bounds.groups), 'int8')})"
        f" GROUP BY {', '.join(f'g.{name}' for name in names)}"
    )


def _where(question: Question, parts: list[str], binds: _Binds) -> str:
    everything = [*parts, *(guard for key in question.keys for guard in _guard(key, binds))]
    if question.where is not None:
        everything.append(_predicate(question.where, binds))
    return f" WHERE {' AND '.join(everything)}" if everything else ""


def _guard(key: Attribute, binds: _Binds) -> list[str]:
    """Dates outside the domain stay behind: Python cannot hold infinity or 44 BC, and an error would tell of them."""
    type_name = base_type(key.type_name)
    if type_name not in TIMES:
        return []
    column = _column(key.name)
    known = [value for value in key.domain or () if isinstance(value, date)]
    if not known:
        return [f"({column} IS NULL)"]
    low, high = (binds.bind(key_text(end(known)), type_name) for end in (min, max))
    return [f"(({column} IS NULL) OR (({column} >= {low}) AND ({column} <= {high})))"]


def _predicate(part: Predicate, binds: _Binds) -> str:
    match part:
        case Compare(column, op, value):
            return f"({_column(column)} {op.value} {_literal(value, binds)})"
        case Among(column, values):
            return f"({_column(column)} IN ({', '.join(_literal(value, binds) for value in values)}))"
        case IsNull(column):
            return f"({_column(column)} IS NULL)"
        case Not(inner):
            return f"(NOT {_predicate(inner, binds)})"
        case AllOf(parts):
            return f"({' AND '.join(_predicate(inner, binds) for inner in parts)})"
        case AnyOf(parts):
            return f"({' OR '.join(_predicate(inner, binds) for inner in parts)})"


def _types(question: Question) -> list[str]:
    return [base_type(key.type_name) for key in question.keys]


def _shown(column: str, type_name: str) -> str:
    """A key as it is read and grouped: in a form in which equal means identical.

    GROUP BY shows any one of the values that it takes for equal ('1 day' and '24:00:00', 'a' and 'A' under some
    collations): one row more could give a whole group another key, and so another cell.
    """
    if type_name in TEXTS:
        return f'({column} COLLATE "C")'
    return column if type_name in AS_THEY_ARE else f'(({column})::text COLLATE "C")'


def _literal(value: Literal, binds: _Binds) -> str:
    return binds.bind(value.text, value.type_name)


def _table(question: Question) -> str:
    return f"{quoted(question.relation.schema)}.{quoted(question.relation.name)}"


def _column(name: str) -> str:
    return f"t.{quoted(name)}"
