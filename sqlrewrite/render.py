"""Row expressions and predicates as SQL that cannot raise on any data.

Names are quoted and qualified (``t0``, ``t1``, ... are the sources), every part is in parentheses, every constant is a
bind parameter with its type. PostgreSQL raises where a number overflows, a float is out of range or a date leaves the
calendar; here instead

- whole numbers are added and multiplied in int8 where their types show that it cannot overflow, else in numeric;
- floats are turned into numeric before arithmetic, and nothing is ever turned into a float;
- a cast to a narrower type, a moment outside the years 1 to 9999 inside a function, and a numeric without a declared
  precision beyond 1e100 inside arithmetic give NULL.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal

from sqlrewrite.constant import FLOATS, INTEGERS, NUMBERS, TEXTS, TIMES, base_type, decimal
from sqlrewrite.errors import NotAnswered
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
    Not,
    Predicate,
    Source,
)
from sqlrewrite.term import (
    CALENDAR,
    INT8,
    MOST_YEARS,
    WIDTHS,
    Form,
    Term,
    cast_type,
    collated,
    form_of,
    joint,
    narrow,
    numeric,
    quoted,
    years,
)

SAME_TYPE = frozenset(
    {"lower", "upper", "initcap", "btrim", "ltrim", "rtrim", "replace", "left", "right", "substr", "substring", "lpad"}
    | {"rpad", "reverse", "length", "char_length", "character_length", "octet_length", "concat", "||", "starts_with"}
    | {"strpos", "date_trunc", "date_part", "extract", "to_char", "date_bin", "isfinite", "make_interval"}
)
"""Functions of texts and moments that cannot raise on what reaches them, given literals that the reader has checked."""


class Rendering:
    """Writes the parts of one statement; equal constants share one parameter, so that equal texts are equal SQL."""

    __slots__ = ("_known", "_places", "_sources", "parameters")

    def __init__(self, sources: Sequence[Source], known: Mapping[Expression, str] | None = None) -> None:
        self._sources = sources
        self._known = known or {}  # expressions that stand under a name already
        self._places: dict[tuple[str | None, str], str] = {}
        self.parameters: list[str | None] = []

    def bind(self, text: str | None, type_name: str) -> str:
        """A constant as a parameter."""
        known = self._places.get((text, type_name))
        if known is None:
            self.parameters.append(text)
            known = self._places[text, type_name] = f"${len(self.parameters)}::{cast_type(type_name)}"
        return known

    def number(self, value: int | Decimal, type_name: str) -> str:
        """A number as a parameter."""
        return self.bind(format(value, "f") if isinstance(value, Decimal) else str(value), type_name)

    def tables(self) -> str:
        """FROM: the sources under their aliases."""
        parts = []
        for place, source in enumerate(self._sources):
            table = f"{quoted(source.relation.schema)}.{quoted(source.relation.name)} AS t{place}"
            if place == 0:
                parts.append(table)
                continue
            if not source.on:
                raise ValueError("a joined table needs its key")
            pairs = " AND ".join(self._pair(left, f"t{place}.{quoted(right)}") for left, right in source.on)
            parts.append(f"{'LEFT' if source.outer else 'INNER'} JOIN {table} ON ({pairs})")
        return " ".join(parts)

    def expression(self, expression: Expression) -> str:
        """An expression in parentheses."""
        return self.term(expression).sql

    def term(self, expression: Expression, inside: bool = False) -> Term:
        """An expression with its form; ``inside`` a function its columns are kept away from what would raise."""
        name = self._known.get(expression)
        if name is not None:
            base = base_type(expression.type_name)
            return Term(name, form_of(base), WIDTHS.get(base, 0))
        match expression:
            case Literal(None, "unknown"):
                return Term("NULL", Form.OTHER)
            case Literal(text, type_name):
                return self._literal(text, "text" if type_name == "unknown" else type_name)
            case ColumnRef():
                return self._column(expression, inside)
            case Case(branches, otherwise, type_name):
                return self._case(branches, otherwise, type_name)
            case Cast(argument, type_name):
                return self._cast(argument, type_name)
            case Call():
                return self._call(expression)

    def predicate(self, part: Predicate) -> str:
        """A condition in parentheses."""
        match part:
            case Compare(left, op, right):
                first, second = self._comparable(left, right)
                return f"({first} {op.value} {second})"
            case Among(argument, values):
                if not values:
                    return "(false)"
                return f"({self.expression(argument)} IN ({', '.join(self.expression(value) for value in values)}))"
            case Like(argument, pattern, fold_case):
                if re.search(r"(?<!\\)(?:\\\\)*\\$", pattern.text or ""):
                    raise NotAnswered("a LIKE pattern ends with a backslash", hint="write the backslash twice")
                word = "ILIKE" if fold_case else "LIKE"
                return f"({collated(self.expression(argument))} {word} {self.bind(pattern.text, 'text')})"
            case IsNull(argument):
                return f"({self.expression(argument)} IS NULL)"
            case Always(value):
                return "(true)" if value else "(false)"
            case Not(inner):
                return f"(NOT {self.predicate(inner)})"
            case AllOf(parts):
                return f"({' AND '.join(self.predicate(inner) for inner in parts) or 'true'})"
            case AnyOf(parts):
                return f"({' OR '.join(self.predicate(inner) for inner in parts) or 'false'})"

    def _pair(self, left: ColumnRef, right: str) -> str:
        """Under a collation that takes 'a' for 'A' a key that is unique byte by byte would match twice."""
        one, other = self._name(left), right
        if base_type(left.type_name) in TEXTS:
            one, other = collated(one), collated(other)
        return f"({one} = {other})"

    def _name(self, column: ColumnRef) -> str:
        return f"t{column.source}.{quoted(column.name)}"

    def _literal(self, text: str | None, type_name: str) -> Term:
        base = base_type(type_name)
        most = 0
        if base in INTEGERS:
            most = abs(int(text)) if text is not None else 0
        return Term(self.bind(text, type_name), form_of(base), most)

    def _column(self, column: ColumnRef, inside: bool) -> Term:
        name, base = self._name(column), base_type(column.type_name)
        term = Term(name, form_of(base), WIDTHS.get(base, 0))
        if not inside or self._sources[column.source].relation.attributes[column.name].checked:
            return term
        if base in CALENDAR:
            low, high = (self.bind(end, base) for end in CALENDAR[base])
            return Term(f"(CASE WHEN ({name} >= {low}) AND ({name} <= {high}) THEN {name} END)", Form.OTHER)
        if base == "numeric" and not narrow(column.type_name):
            low, high = (self.bind(end, "numeric") for end in ("-1e100", "1e100"))
            return Term(f"(CASE WHEN ({name} >= {low}) AND ({name} <= {high}) THEN {name} END)", Form.NUMERIC)
        return term

    def _case(self, branches: Sequence[tuple[Predicate, Expression]], otherwise: Expression, type_name: str) -> Term:
        terms = self._alike([*(then for _, then in branches), otherwise])
        whens = " ".join(
            f"WHEN {self.predicate(when)} THEN {term.sql}" for (when, _), term in zip(branches, terms, strict=False)
        )
        form, most = joint(terms)
        sql = f"(CASE {whens} ELSE {terms[-1].sql} END)"
        if form is Form.OTHER:
            sql = _of_one_collation(f"({sql}::{cast_type(type_name)})", [*(then for _, then in branches), otherwise])
        return Term(sql, form, most)

    def _alike(self, parts: Sequence[Expression]) -> list[Term]:
        """Terms that PostgreSQL may choose between without turning a numeric into a float."""
        terms = [self.term(part, inside=True) for part in parts]
        form, _ = joint([t for t, part in zip(terms, parts, strict=True) if part != Literal(None, part.type_name)])
        if form is Form.OTHER:
            return [term if term.form is Form.OTHER else Term("NULL", Form.OTHER) for term in terms]
        kind = {Form.WHOLE: "int8", Form.NUMERIC: "numeric", Form.FLOAT: "float8"}[form]
        return [Term(f"({term.sql}::{kind})", form, term.most) for term in terms]

    def _comparable(self, left: Expression, right: Expression) -> tuple[str, str]:
        first, second = self.term(left), self.term(right)
        if {first.form, second.form} == {Form.NUMERIC, Form.FLOAT} and not isinstance(right, Literal):
            first, second = numeric(first), numeric(second)
        elif first.form is Form.NUMERIC and second.form is Form.FLOAT:
            second = numeric(second)
        if base_type(left.type_name) in TEXTS and not (isinstance(left, Literal) or isinstance(right, Literal)):
            return collated(first.sql), collated(second.sql)
        return first.sql, second.sql

    def _cast(self, argument: Expression, type_name: str) -> Term:
        source, target = base_type(argument.type_name), base_type(type_name)
        term = self.term(argument, inside=True)
        if target in FLOATS and source in NUMBERS:
            return term if term.form is Form.FLOAT else numeric(term)
        if source in NUMBERS and target in INTEGERS:
            return self._whole(term, target)
        if source in NUMBERS and target == "numeric":
            return self._precise(numeric(term), type_name)
        total = (
            (source in TEXTS and target in TEXTS)
            or (source in TIMES and target in (*TIMES, *TEXTS))
            or (source == "boolean" and target in ("integer", *TEXTS))
            or (source == "integer" and target == "boolean")
            or (source in (*INTEGERS, "numeric") and target in TEXTS)
            or source == target
        )
        if not total:
            raise NotAnswered(
                f"a cast from {source} to {target} may fail on data", hint="write the condition on the column itself"
            )
        return Term(f"({term.sql}::{cast_type(type_name)})", form_of(target), WIDTHS.get(target, 0))

    def _whole(self, term: Term, target: str) -> Term:
        width = WIDTHS[target]
        if term.form is Form.WHOLE and term.most < width:
            return Term(f"({term.sql}::{target})", Form.WHOLE, term.most)
        kind = {Form.WHOLE: "int8", Form.NUMERIC: "numeric", Form.FLOAT: "float8"}[term.form]
        # A float next to 2^63 is already outside.
        low, high = (-width, width - 1) if width < 2**63 or kind != "float8" else (-92 * 10**17, 92 * 10**17)
        inside = f"({term.sql} >= {self.number(low, kind)}) AND ({term.sql} <= {self.number(high, kind)})"
        return Term(f"(CASE WHEN {inside} THEN ({term.sql}::{target}) END)", Form.WHOLE, width)

    def _precise(self, term: Term, type_name: str) -> Term:
        declared = re.fullmatch(r"numeric\((\d+)(?:,(-?\d+))?\)", type_name.replace(" ", ""))
        if declared is None:
            return term
        precision, scale = int(declared[1]), int(declared[2] or 0)
        most = Decimal(10**precision - 1).scaleb(-scale)
        inside = f"({term.sql} >= {self.number(-most, 'numeric')}) AND ({term.sql} <= {self.number(most, 'numeric')})"
        return Term(f"(CASE WHEN {inside} THEN ({term.sql}::{type_name}) END)", Form.NUMERIC)

    def _call(self, call: Call) -> Term:
        function, parts = call.function, call.arguments
        if function in ("coalesce", "greatest", "least"):
            terms = self._alike(parts)
            form, most = joint(terms)
            sql = f"({function}({', '.join(term.sql for term in terms)}))"
            return Term(_of_one_collation(sql, parts), form, most)
        if function == "nullif" and len(parts) == 2:
            first = self.term(parts[0], inside=True)
            left, right = self._comparable(parts[0], parts[1])
            return Term(f"(CASE WHEN ({left} = {right}) THEN NULL ELSE {first.sql} END)", first.form, first.most)
        if function == "width_bucket":
            return self._width_bucket(parts)
        terms = [self.term(part, inside=True) for part in parts]
        if all(term.form is not Form.OTHER for term in terms) and function not in ("to_char",):
            return self._arithmetic(function, parts, terms, base_type(call.type_name))
        if function in ("+", "-") and len(parts) == 2:
            return self._shift(call, terms)
        if function not in SAME_TYPE:
            raise NotAnswered(
                f"the function {function} is not answered", hint="use it on the answer, around the question"
            )
        arguments = ", ".join(term.sql for term in terms)
        form = form_of(base_type(call.type_name))
        if function == "||":
            return Term(f"({' || '.join(term.sql for term in terms)})", Form.OTHER)
        most = WIDTHS["integer"] if form is Form.WHOLE else 0
        return Term(f"(pg_catalog.{quoted(function)}({arguments}))", form, most)

    def _shift(self, call: Call, terms: Sequence[Term]) -> Term:
        """A moment moved by a constant, or the days between two."""
        kinds = [base_type(part.type_name) for part in call.arguments]
        for part, kind in zip(call.arguments, kinds, strict=True):
            if kind in (*INTEGERS, "interval") and not isinstance(part, Literal):
                raise NotAnswered(
                    "a date is moved by a constant only", hint="write date + 7 or date + interval '1 day'"
                )
        if not all(kind in (*TIMES, *INTEGERS, "interval") for kind in kinds):
            raise NotAnswered(
                f"{kinds[0]} {call.function} {kinds[1]} is not answered", hint="compare the columns instead"
            )
        if years(call) > MOST_YEARS:
            raise NotAnswered("a date is moved too far", hint=f"move it by less than {MOST_YEARS} years")
        form = form_of(base_type(call.type_name))
        return Term(f"({terms[0].sql} {call.function} {terms[1].sql})", form, 2**31 if form is Form.WHOLE else 0)

    def _width_bucket(self, parts: Sequence[Expression]) -> Term:
        if len(parts) != 4 or not all(isinstance(part, Literal) for part in parts[1:]):
            raise NotAnswered("width_bucket needs constant bounds", hint="write width_bucket(x, low, high, count)")
        low, high, buckets = (decimal(part) if isinstance(part, Literal) else None for part in parts[1:])
        if low is None or high is None or buckets is None or low == high or not 0 < buckets < 2**31 - 1:
            raise NotAnswered("width_bucket needs two different bounds and at least one bucket")
        terms = [self.term(part, inside=True) for part in parts]
        # The overload that PostgreSQL would choose.
        exact = terms[0].form is not Form.FLOAT and any(term.form is Form.NUMERIC for term in terms[:3])
        kind = "numeric" if exact else "float8"
        value = f"({terms[0].sql}::{kind})"
        ends = ", ".join(f"({term.sql}::{kind})" for term in terms[1:3])
        if kind == "float8" and any(math.isinf(float(end)) for end in (low, high)):
            raise NotAnswered("the bounds of width_bucket are too large", hint="write smaller numbers")
        # NaN raises in width_bucket.
        if terms[0].form is not Form.WHOLE:
            value = f"(CASE WHEN ({value} <> {self.bind('NaN', kind)}) THEN {value} END)"
        return Term(f"(pg_catalog.width_bucket({value}, {ends}, ({terms[3].sql}::int4)))", Form.WHOLE, int(buckets) + 1)

    def _arithmetic(self, function: str, parts: Sequence[Expression], terms: Sequence[Term], result: str) -> Term:
        whole = all(term.form is Form.WHOLE for term in terms)
        if function in ("+", "-", "*") and len(terms) in (1, 2):
            if len(terms) == 1:
                terms = [Term(self.number(0, "int8"), Form.WHOLE, 0), *terms]
            most = terms[0].most * terms[1].most if function == "*" else terms[0].most + terms[1].most
            if whole and most <= INT8:
                return Term(f"(({terms[0].sql}::int8) {function} ({terms[1].sql}::int8))", Form.WHOLE, most)
            left, right = (numeric(term).sql for term in terms)
            return Term(f"({left} {function} {right})", Form.NUMERIC)
        if function in ("/", "%", "div", "mod") and len(terms) == 2:
            return self._division(function, parts[1], terms, whole, result)
        if function == "abs" and len(terms) == 1:
            if whole and terms[0].most <= INT8:
                return Term(f"(pg_catalog.abs({terms[0].sql}::int8))", Form.WHOLE, terms[0].most)
            return Term(f"(pg_catalog.abs({numeric(terms[0]).sql}))", Form.NUMERIC)
        if function in ("round", "trunc", "floor", "ceil", "ceiling", "sign") and len(terms) == 1:
            if terms[0].form is Form.FLOAT and function == "round":  # halves go to the even number there
                return Term(f"(pg_catalog.round({terms[0].sql}::float8))", Form.FLOAT)
            return Term(f"(pg_catalog.{function}({numeric(terms[0]).sql}))", Form.NUMERIC)
        if function in ("round", "trunc") and len(terms) == 2 and isinstance(parts[1], Literal):
            places = decimal(parts[1])
            if places is None or abs(places) > 100 or places != int(places):
                raise NotAnswered(f"{function} takes up to 100 places")
            return Term(f"(pg_catalog.{function}({numeric(terms[0]).sql}, {terms[1].sql}))", Form.NUMERIC)
        raise NotAnswered(f"the function {function} is not answered", hint="use it on the answer, around the question")

    def _division(self, function: str, by: Expression, terms: Sequence[Term], whole: bool, result: str) -> Term:
        divisor = decimal(by) if isinstance(by, Literal) else None
        if divisor is None or abs(divisor) < Decimal("1e-50"):
            raise NotAnswered(
                "a division inside the question is by a constant other than zero",
                hint="divide the aggregates instead: sum(a) / sum(b)",
            )
        native = whole and abs(divisor) > 1 and function in ("/", "%")
        if native:
            most = terms[0].most if function == "/" else int(abs(divisor))
            return Term(f"(({terms[0].sql}::int8) {function} ({terms[1].sql}::int8))", Form.WHOLE, most)
        left, right = (numeric(term).sql for term in terms)
        if function in ("%", "mod"):
            return Term(f"(pg_catalog.mod({left}, {right}))", Form.NUMERIC)
        if function == "div" or result in INTEGERS:
            return Term(f"(pg_catalog.div({left}, {right}))", Form.NUMERIC)
        return Term(f"({left} / {right})", Form.NUMERIC)


def _of_one_collation(sql: str, parts: Sequence[Expression]) -> str:
    """Columns of two collations have none together, which PostgreSQL says only once it compares a row."""
    several = sum(base_type(part.type_name) in TEXTS and not isinstance(part, Literal) for part in parts) > 1
    return collated(sql) if several else sql
