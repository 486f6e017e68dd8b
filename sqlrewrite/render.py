"""Row expressions and predicates as SQL that cannot raise on any data, nor take long on any.

Names are quoted and qualified (``t0``, ``t1``, ... are the sources), every part is in parentheses, every constant is a
bind parameter with its type. PostgreSQL raises where a number overflows, a float is out of range or a date leaves the
calendar; here instead

- whole numbers are added and multiplied in int8 where their ranges show that it cannot overflow, else in numeric;
- floats are turned into numeric before arithmetic, and nothing is ever turned into a float;
- a cast to a narrower type, a moment outside the years 1 to 9999 inside a function, and a number beyond what
  arithmetic keeps (``sqlrewrite.guarded``) give NULL.

Every part is a ``Term``, which refuses what is beyond the limits. ``Rendering.failed`` is then the expression that is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction

from mechanisms.errors import Refusal
from sqlrewrite import guarded
from sqlrewrite.arithmetic import arithmetic, precise, whole_number, width_bucket
from sqlrewrite.bounded import Range, of_constant
from sqlrewrite.catalog import Attribute, Kind
from sqlrewrite.constant import FLOATS, INTEGERS, NUMBERS, TEXTS, TIMES, base_type, decimal, within
from sqlrewrite.errors import NotAnswered, OutOfRange
from sqlrewrite.functions import chosen, function_of, of_one_collation, pattern_cost
from sqlrewrite.guarded import Use
from sqlrewrite.limits import CONSTANT_LENGTH, EQUAL_BYTES, MEMBER_COST, TEXT_LENGTH
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
    Comparison,
    Expression,
    IsNull,
    Like,
    Literal,
    Not,
    Predicate,
    Source,
)
from sqlrewrite.term import (
    MOST_YEARS,
    WIDTHS,
    Form,
    Term,
    cast_type,
    collated,
    form_of,
    joint,
    quoted,
    years,
)

_HASHED_MEMBERS = 9  # from so many on PostgreSQL hashes a list, and what is looked up in it
_WHOLE = re.compile(r" *[+-]?[0-9]+ *")
_NO_NUMBER = re.compile(r" *[+-]?(?:nan|inf|infinity) *", re.IGNORECASE)


class Rendering:
    """Writes the parts of one statement; equal constants share one parameter, so that equal texts are equal SQL."""

    __slots__ = ("_known", "_places", "_sources", "casts", "failed", "parameters")

    def __init__(self, sources: Sequence[Source], known: Mapping[Expression, str] | None = None) -> None:
        self._sources = sources
        self._known = known or {}  # expressions that stand under a name already
        self._places: dict[tuple[str | None, str], str] = {}
        self.parameters: list[str | None] = []
        self.casts: list[str] = []  # the type of each
        self.failed: Expression | None = None

    def bind(self, text: str | None, type_name: str) -> str:
        """A constant as a parameter."""
        known = self._places.get((text, type_name))
        if known is None:
            self.parameters.append(text)
            self.casts.append(cast_type(type_name))
            known = self._places[text, type_name] = f"${len(self.parameters)}::{cast_type(type_name)}"
        return known

    def number(self, value: int | Decimal, type_name: str) -> str:
        """A number as a parameter."""
        return self.bind(format(value, "f") if isinstance(value, Decimal) else str(value), type_name)

    def exact(self, term: Term, of: Expression | None = None) -> Term:
        """A number as numeric, within its range; ``of`` may be the column that it is."""
        if isinstance(of, Literal) and term.form is Form.FLOAT:
            return Term(
                f"({term.sql}::numeric)", Form.NUMERIC, 0, term.range, known=term.present, known_cost=term.presence_cost
            )
        return guarded.exact(term, self.bind, self.attribute(of))

    def attribute(self, of: Expression | None) -> Attribute | None:
        """What is declared about a column."""
        if not isinstance(of, ColumnRef):
            return None
        return self._sources[of.source].relation.attributes[of.name]

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
        """A key, in parentheses."""
        return self.term(expression, Use.KEY).sql

    def unit(self, column: ColumnRef) -> str:
        """A column that names the privacy unit."""
        return guarded.unit(self.name(column), column.type_name, self.bind).sql

    def present(self, expression: Expression) -> list[str]:
        """Conditions that are all true exactly where an expression is not NULL."""
        return list(self.term(expression, Use.PRESENCE).present)

    def predicate(self, part: Predicate) -> str:
        """A condition in parentheses."""
        return self.clause(part).sql

    def term(self, expression: Expression, use: Use = Use.VALUE) -> Term:
        """An expression with its size, by what it is read for."""
        try:
            return self._term(expression, use)
        except Refusal:
            self.failed = self.failed or expression
            raise

    def _term(self, expression: Expression, use: Use) -> Term:
        name = self._known.get(expression)
        if name is not None and not isinstance(expression, ColumnRef):
            return guarded.listed(name, expression.type_name)
        if name is not None:
            return guarded.column(name, expression.type_name, self.attribute(expression), use, self.bind)
        match expression:
            case Literal(None, "unknown"):
                return Term("NULL", Form.OTHER, 0, written=True)
            case Literal(text, type_name):
                return self._literal(text, "text" if type_name == "unknown" else type_name)
            case ColumnRef(_, _, type_name):
                return guarded.column(self.name(expression), type_name, self.attribute(expression), use, self.bind)
            case Case(branches, otherwise, type_name):
                return self._case(branches, otherwise, type_name)
            case Cast(argument, type_name):
                return self._cast(argument, type_name)
            case Call():
                return self._call(expression)

    def clause(self, part: Predicate) -> Term:
        """A condition with its cost."""
        match part:
            case Compare():
                return self._compare(part)
            case Among():
                return self._among(part)
            case Like():
                return self._like(part)
            case IsNull(argument):
                term = self.term(argument, Use.PRESENCE)
                return Term(f"({term.sql} IS NULL)", Form.OTHER, term.cost + 1)
            case Always(value):
                return Term("(true)" if value else "(false)", Form.OTHER, 0)
            case Not(inner):
                term = self.clause(inner)
                return Term(f"(NOT {term.sql})", Form.OTHER, term.cost + 1)
            case AllOf(parts):
                return self._connected(" AND ", parts, "true")
            case AnyOf(parts):
                return self._connected(" OR ", parts, "false")

    def _connected(self, word: str, parts: Sequence[Predicate], nothing: str) -> Term:
        terms = [self.clause(inner) for inner in parts]
        sql = f"({word.join(term.sql for term in terms) or nothing})"
        return Term(sql, Form.OTHER, sum(term.cost + 1 for term in terms))

    def _compare(self, part: Compare) -> Term:
        left, op, right = part.left, part.op, part.right
        equality = op in (Comparison.EQ, Comparison.NE)
        if isinstance(left, ColumnRef) and isinstance(right, Literal) and equality and left not in self._known:
            attribute = self.attribute(left)
            if base_type(left.type_name) in TEXTS and guarded.text_length(left.type_name, attribute)[1]:
                value = self.term(right)
                sql = f"({self.name(left)} {op.value} {value.sql})"
                sql = sql if self._lengths_first(left) else self._short(left, sql, op is Comparison.NE)
                return Term(sql, Form.OTHER, 10 + value.length // 8 + guarded.padding(left.type_name))
        first, second = self.comparable(left, right)
        longest = max(first.length, second.length) // 8 if base_type(left.type_name) in TEXTS else 0
        return Term(f"({first.sql} {op.value} {second.sql})", Form.OTHER, first.cost + second.cost + 5 + longest)

    def _among(self, part: Among) -> Term:
        if not part.values:
            return Term("(false)", Form.OTHER, 0)
        column, cost = part.argument, MEMBER_COST * len(part.values) + 5
        text = isinstance(column, ColumnRef) and base_type(column.type_name) in TEXTS and column not in self._known
        if isinstance(column, ColumnRef) and text and guarded.text_length(column.type_name, self.attribute(column))[1]:
            values = [self.term(value) for value in part.values]
            sql = f"({self.name(column)} IN ({', '.join(value.sql for value in values)}))"
            hashed = len(values) >= _HASHED_MEMBERS
            if hashed or not self._lengths_first(column):
                sql = self._short(column, sql, False)
            cost += guarded.padding(column.type_name) * (2 if hashed else len(values))
            cost += sum(value.length // 16 for value in values)
            return Term(sql, Form.OTHER, cost + 5)
        term = self.term(column, Use.COMPARISON)
        members = [self._beside(value, term) for value in part.values]
        cost += term.cost + sum(member.length // 16 for member in members)
        return Term(f"({term.sql} IN ({', '.join(member.sql for member in members)}))", Form.OTHER, cost)

    def _lengths_first(self, column: ColumnRef) -> bool:
        """Whether texts of different lengths are told apart without being read; a bpchar is read as a whole."""
        attribute = self.attribute(column)
        return attribute is not None and attribute.bytewise and base_type(column.type_name) != "bpchar"

    def _short(self, column: ColumnRef, sql: str, otherwise: bool) -> str:
        """A comparison with constants, which a text that is longer than all of them need not be read for."""
        most = self.bind(str(EQUAL_BYTES), "int4")
        longer = f"(pg_catalog.octet_length({self.name(column)}) > {most})"
        return f"(CASE WHEN {longer} THEN {str(otherwise).lower()} ELSE {sql} END)"

    def _like(self, part: Like) -> Term:
        term = self.term(part.argument, Use.COMPARISON)
        word = "ILIKE" if part.fold_case else "LIKE"
        cost = pattern_cost(part.pattern.text or "", term, part.fold_case)
        return Term(f"({collated(term.sql)} {word} {self.bind(part.pattern.text, 'text')})", Form.OTHER, cost)

    def _pair(self, left: ColumnRef, right: str) -> str:
        """Under a collation that takes 'a' for 'A' a key that is unique byte by byte would match twice."""
        one, other = self.name(left), right
        if self._sources[left.source].relation.kind is Kind.PROTECTED:
            one = guarded.joined(one, left.type_name, self.bind)
        if base_type(left.type_name) in TEXTS:
            one, other = collated(one), collated(other)
        return f"({one} = {other})"

    def name(self, column: ColumnRef) -> str:
        """A column under the alias of its table."""
        return self._known.get(column) or f"t{column.source}.{quoted(column.name)}"

    def _literal(self, text: str | None, type_name: str) -> Term:
        base, known = base_type(type_name), Range(Fraction(0), Fraction(0))
        if base in NUMBERS and text is not None:
            value = decimal(Literal(text, base))
            if value is None:
                raise OutOfRange(
                    "numeric value out of range: the constant is no finite number of up to 400 digits",
                    hint="write a smaller number",
                )
            known = of_constant(value)
            inside = _WHOLE.fullmatch(text) and known.fits(WIDTHS[base]) if base in INTEGERS else within(value, base)
            if not inside:
                raise OutOfRange(f"the constant is out of the range of {base}", hint="write another number")
        if len(text or "") > CONSTANT_LENGTH:
            raise OutOfRange(
                f"a constant has at most {CONSTANT_LENGTH} characters", hint="compare the beginning: left(x, 100)"
            )
        size = known if base in NUMBERS else None
        present = None if text is None else ()
        return Term(self.bind(text, type_name), form_of(base), 0, size, len(text or ""), True, present)

    def _case(self, branches: Sequence[tuple[Predicate, Expression]], otherwise: Expression, type_name: str) -> Term:
        parts = [*(then for _, then in branches), otherwise]
        terms, conditions = self._alike(parts), [self.clause(when) for when, _ in branches]
        whens = " ".join(f"WHEN {when.sql} THEN {term.sql}" for when, term in zip(conditions, terms, strict=False))
        sql, form = f"(CASE {whens} ELSE {terms[-1].sql} END)", joint(terms)
        if form is Form.OTHER:
            sql = of_one_collation(f"({sql}::{cast_type(type_name)})", parts)
        return chosen(sql, form, terms, sum(when.cost + 1 for when in conditions))

    def _alike(self, parts: Sequence[Expression]) -> list[Term]:
        """Terms that PostgreSQL may choose between without turning a numeric into a float."""
        terms = [self.term(part) for part in parts]
        form = joint([t for t, part in zip(terms, parts, strict=True) if part != Literal(None, part.type_name)])
        if form is Form.OTHER:
            return [term if term.form is Form.OTHER else Term("NULL", Form.OTHER, 0, written=True) for term in terms]
        if form is Form.NUMERIC:
            terms = [self.exact(term, part) for term, part in zip(terms, parts, strict=True)]
            return [Term(f"({term.sql}::numeric)", form, term.cost, term.range) for term in terms]
        kind = {Form.WHOLE: "int8", Form.FLOAT: "float8"}[form]
        known = [None if form is Form.FLOAT else term.range for term in terms]
        return [Term(f"({t.sql}::{kind})", form, t.cost + 1, r) for t, r in zip(terms, known, strict=True)]

    def _beside(self, value: Literal, term: Term) -> Term:
        """A constant that is compared with a term; only there it may be infinite, or as large as a float."""
        number = base_type(value.type_name) in NUMBERS
        if number and _NO_NUMBER.fullmatch(value.text or "") and base_type(value.type_name) not in INTEGERS:
            return Term(self.bind(value.text, value.type_name), form_of(base_type(value.type_name)), 5)
        if (
            term.form is Form.FLOAT
            and base_type(value.type_name) in ("numeric", *FLOATS)
            and decimal(value) is not None
        ):
            kind = "real" if value.type_name == "real" else "double precision"
            if not within(decimal(value) or Decimal(0), kind):
                raise OutOfRange(f"the constant is out of the range of {kind}", hint="write another number")
            return Term(self.bind(value.text, kind), Form.FLOAT, 5)
        literal = self.term(value)
        if not number and 0 < term.length <= literal.length and term.length >= TEXT_LENGTH:
            raise OutOfRange(
                f"of a text {term.length} characters count, and the constant has more",
                hint="compare the beginning: left(x, 100)",
            )
        return literal

    def comparable(self, left: Expression, right: Expression) -> tuple[Term, Term]:
        """Two sides of a comparison that is total."""
        first = self.term(left, Use.COMPARISON)
        second = self._beside(right, first) if isinstance(right, Literal) else self.term(right, Use.COMPARISON)
        if {first.form, second.form} == {Form.NUMERIC, Form.FLOAT} and not isinstance(right, Literal):
            first, second = self.exact(first, left), self.exact(second, right)
        elif first.form is Form.NUMERIC and second.form is Form.FLOAT:
            second = Term(f"({second.sql}::numeric)", Form.NUMERIC, 5)
        if base_type(left.type_name) in TEXTS and not (isinstance(left, Literal) or isinstance(right, Literal)):
            first, second = (Term(collated(t.sql), t.form, t.cost, None, t.length) for t in (first, second))
        return first, second

    def _cast(self, argument: Expression, type_name: str) -> Term:
        source, target = base_type(argument.type_name), base_type(type_name)
        term = self.term(argument)
        if target in FLOATS and source in NUMBERS:
            return term if term.form is Form.FLOAT else self.exact(term, argument)
        if source in NUMBERS and target in INTEGERS:
            return whole_number(term, target, self)
        if source in NUMBERS and target == "numeric":
            return precise(self.exact(term, argument), type_name, self)
        total = (
            (source in TEXTS and target in TEXTS)
            or (source in TIMES and target in (*TIMES, *TEXTS))
            or (source == "boolean" and target in ("integer", *TEXTS))
            or (source in (*INTEGERS, "numeric") and target in TEXTS)
            or source == target
        )
        if not total:
            raise NotAnswered(
                f"a cast from {source} to {target} may fail on data", hint="write the condition on the column itself"
            )
        sql, written = f"({term.sql}::{cast_type(type_name)})", source in TEXTS and term.written
        known = Range(Fraction(0), Fraction(1)) if target == "integer" else None
        length = term.length if source in TEXTS else 100
        return Term(sql, form_of(target), term.cost + (2 if written else 40), known, length, written)

    def _call(self, call: Call) -> Term:
        function, parts = call.function, call.arguments
        if function in ("coalesce", "greatest", "least"):
            terms = self._alike(parts)
            sql = f"({function}({', '.join(term.sql for term in terms)}))"
            return chosen(of_one_collation(sql, parts), joint(terms), terms, len(terms))
        if function == "nullif" and len(parts) == 2:
            first, (left, right) = self.term(parts[0]), self.comparable(parts[0], parts[1])
            sql = f"(CASE WHEN ({left.sql} = {right.sql}) THEN NULL ELSE {first.sql} END)"
            cost = first.cost + left.cost + right.cost + 5
            return Term(sql, first.form, cost, first.range, first.length, first.written)
        terms = [self.term(part) for part in parts]
        if function == "width_bucket":
            return width_bucket(parts, terms, self)
        if all(term.form is not Form.OTHER for term in terms):
            return arithmetic(function, parts, terms, base_type(call.type_name), self)
        if function in ("+", "-") and len(parts) == 2:
            return self._shift(call, terms)
        return function_of(call, terms)

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
        known = Range(Fraction(-(10**7)), Fraction(10**7)) if form is Form.WHOLE else None
        cost = terms[0].cost + terms[1].cost + 30
        return Term(f"({terms[0].sql} {call.function} {terms[1].sql})", form, cost, known)
