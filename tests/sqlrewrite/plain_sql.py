"""A typed question as plain SQL, written apart from ``sqlrewrite.render``: nothing clamped, widened or bounded."""

from __future__ import annotations

from fractions import Fraction

from sqlrewrite.constant import base_type
from sqlrewrite.interval import reach
from sqlrewrite.question import (
    AllOf,
    Always,
    Among,
    AnyOf,
    Call,
    Case,
    Cast,
    ColumnRef,
    Compare,
    Expression,
    IsNull,
    Like,
    Literal,
    Measure,
    MeasureKind,
    Not,
    Predicate,
    Question,
)  # fmt: skip


def plain(question: Question) -> str:
    """The question as an analyst would write it, one SELECT for all grouping sets."""
    keys = [sql(key.expression) for key in question.keys]
    outputs = [f"GROUPING({', '.join(keys)})"] if keys else ["0"]
    for key, written in zip(question.keys, keys, strict=True):
        base = base_type(key.expression.type_name)
        outputs.append(f"({written})::text" if base == "public.mood" else written)
    for m in question.measures:
        kept = f" FILTER (WHERE {condition(m.filter)})" if m.filter is not None else ""
        argument = sql(m.argument) if m.argument is not None else "*"
        match m.kind:
            case MeasureKind.ROWS | MeasureKind.VALUES:
                outputs.append(f"count({argument}){kept}")
            case MeasureKind.UNITS:
                outputs.append(f"count(DISTINCT t1.person){kept}")
            case MeasureKind.TOTAL:
                outputs.append(f"sum(({argument})::numeric){kept}")
            case MeasureKind.SQUARES:
                outputs.append(f"sum(({argument})::numeric * ({argument})::numeric){kept}")
    join = "LEFT JOIN" if question.sources[2].outer else "JOIN"
    text_ = f"SELECT {', '.join(outputs)} FROM visit t0 JOIN member t1 USING (member_id)"
    text_ += f" {join} town t2 ON t0.town = t2.name"
    conditions = [condition(question.where)] if question.where is not None else []
    conditions += ["t1.person IS NOT NULL"] if question.unit.column else []
    text_ += f" WHERE {' AND '.join(conditions)}" if conditions else ""
    if keys:
        sets = ", ".join(f"({', '.join(keys[k] for k in chosen)})" for chosen in question.sets)
        text_ += f" GROUP BY GROUPING SETS ({sets})"
    return text_


def sql(e: Expression) -> str:
    match e:
        case Literal(None, type_name):
            return f"NULL::{type_name}"
        case Literal(value, type_name):
            return f"'{str(value).replace(chr(39), chr(39) * 2)}'::{type_name}"
        case ColumnRef(source, name, _):
            return f't{source}."{name}"'
        case Cast(argument, type_name):
            return f"({sql(argument)})::{type_name}"
        case Case(branches, otherwise, _):
            return (
                f"CASE {' '.join(f'WHEN {condition(w)} THEN {sql(t)}' for w, t in branches)} ELSE {sql(otherwise)} END"
            )
        case Call("extract", (field, moment), _):
            return f"extract({field.text} from {sql(moment)})"  # type: ignore[union-attr]
        case Call("+" | "-" | "*" | "/" | "%" as operator, (left, right), _):
            return f"({sql(left)} {operator} {sql(right)})"
        case Call(function, arguments, _):
            return f"{function}({', '.join(map(sql, arguments))})"


def condition(p: Predicate) -> str:
    match p:
        case Compare(left, op, right):
            return f"({sql(left)} {op.value} {sql(right)})"
        case Among(argument, values):
            return f"({sql(argument)} IN ({', '.join(map(sql, values))}))"
        case Like(argument, pattern, fold):
            return f"({sql(argument)} {'ILIKE' if fold else 'LIKE'} {sql(pattern)})"
        case IsNull(argument):
            return f"({sql(argument)} IS NULL)"
        case Always(value):
            return str(value)
        case Not(part):
            return f"(NOT {condition(part)})"
        case AllOf(parts):
            return f"({' AND '.join(map(condition, parts))})"
        case AnyOf(parts):
            return f"({' OR '.join(map(condition, parts))})"


def slack(question: Question, measure: Measure, rows: int) -> Fraction:
    """How far rounding to the lattice may take a sum of so many rows."""
    known = reach(measure.argument, question.sources) if measure.argument is not None else None
    if (
        measure.kind not in (MeasureKind.TOTAL, MeasureKind.SQUARES)
        or known is None
        or (
            known.grain is not None
            and ((known.grain ** (2 if measure.kind is MeasureKind.SQUARES else 1)) / measure.unit).denominator == 1
        )
    ):
        return Fraction(0)
    return rows * measure.unit
