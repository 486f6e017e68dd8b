"""Functions and operators of numbers as terms: whole numbers in int8 where their ranges show that it cannot overflow,
else in numeric; the range and the digits of each result follow from those of its arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Protocol

from sqlrewrite.bounded import Range, of_type
from sqlrewrite.constant import INTEGERS, decimal
from sqlrewrite.errors import NotAnswered
from sqlrewrite.question import Expression, Literal
from sqlrewrite.term import INT8, WIDTHS, Form, Term

_ZERO = Range(Fraction(0), Fraction(0))


class Binding(Protocol):
    """What writes constants as parameters."""

    def bind(self, text: str | None, type_name: str) -> str: ...

    def number(self, value: int | Decimal, type_name: str) -> str: ...

    def exact(self, term: Term, of: Expression | None = None) -> Term: ...


def arithmetic(
    function: str, parts: Sequence[Expression], terms: Sequence[Term], result: str, binding: Binding
) -> Term:
    """A call whose arguments are all numbers."""
    whole = all(term.form is Form.WHOLE for term in terms)
    if function in ("+", "-", "*") and len(terms) in (1, 2):
        return _operator(function, parts, terms, whole, binding)
    if function in ("/", "%", "div", "mod") and len(terms) == 2:
        return _division(function, parts, terms, whole, result, binding)
    if function == "abs" and len(terms) == 1:
        known = abs(_range(terms[0]))
        if whole and known.most <= INT8:
            sql = f"(pg_catalog.abs({terms[0].sql}::int8))"
            return Term(
                sql, Form.WHOLE, terms[0].cost + 2, known, known=terms[0].present, known_cost=terms[0].presence_cost
            )
        term = binding.exact(terms[0], parts[0])
        sql = f"(pg_catalog.abs({term.sql}))"
        return Term(
            sql, Form.NUMERIC, term.cost + 5, abs(_range(term)), known=term.present, known_cost=term.presence_cost
        )
    if function in ("round", "trunc", "floor", "ceil", "ceiling", "sign") and len(terms) == 1:
        if terms[0].form is Form.FLOAT and function == "round":  # halves go to the even number there
            return Term(f"(pg_catalog.round({terms[0].sql}::float8))", Form.FLOAT, terms[0].cost + 2)
        term = binding.exact(terms[0], parts[0])
        sql = f"(pg_catalog.{function}({term.sql}))"
        return Term(
            sql,
            Form.NUMERIC,
            term.cost + 10,
            _range(term).rounded(0),
            known=term.present,
            known_cost=term.presence_cost,
        )
    if function in ("round", "trunc") and len(terms) == 2 and isinstance(parts[1], Literal):
        places = decimal(parts[1])
        if places is None or abs(places) > 100 or places != int(places):
            raise NotAnswered(f"{function} takes up to 100 places", hint="write round(x, 2)")
        term = binding.exact(terms[0], parts[0])
        sql = f"(pg_catalog.{function}({term.sql}, {terms[1].sql}))"
        return Term(
            sql,
            Form.NUMERIC,
            term.cost + 10,
            _range(term).rounded(int(places)),
            known=term.present,
            known_cost=term.presence_cost,
        )
    raise NotAnswered(f"the function {function} is not answered", hint="use it on the answer, around the question")


def whole_number(term: Term, target: str, binding: Binding) -> Term:
    """A cast to a whole number, NULL where the type cannot hold it."""
    width = WIDTHS[target]
    if term.form is Form.WHOLE and term.range is not None and term.range.fits(width):
        return Term(f"({term.sql}::{target})", Form.WHOLE, term.cost + 1, term.range)
    kind = {Form.WHOLE: "int8", Form.NUMERIC: "numeric", Form.FLOAT: "float8"}[term.form]
    # A float next to 2^63 is already outside.
    low, high = (-width, width - 1) if width < 2**63 or kind != "float8" else (-92 * 10**17, 92 * 10**17)
    inside = f"({term.sql} >= {binding.number(low, kind)}) AND ({term.sql} <= {binding.number(high, kind)})"
    sql = f"(CASE WHEN {inside} THEN ({term.sql}::{target}) END)"
    return Term(sql, Form.WHOLE, 3 * term.cost + 20, Range(Fraction(-width), Fraction(width - 1)))


def precise(term: Term, type_name: str, binding: Binding) -> Term:
    """A cast to ``numeric(p,s)``, NULL where the type cannot hold it."""
    if type_name == "numeric":
        return term
    known = of_type(type_name)
    if known is None:
        raise NotAnswered(f"a cast to {type_name} is not answered", hint="cast to numeric")
    most = _decimal(known.upper)
    low, high = (binding.number(end, "numeric") for end in (-most, most))
    inside = f"({term.sql} >= {low}) AND ({term.sql} <= {high})"
    return Term(f"(CASE WHEN {inside} THEN ({term.sql}::{type_name}) END)", Form.NUMERIC, 3 * term.cost + 20, known)


def _decimal(value: Fraction) -> Decimal:
    places = len(str(value.denominator)) - 1
    return Decimal(int(value * 10**places)).scaleb(-places, Context(prec=100))


def width_bucket(parts: Sequence[Expression], terms: Sequence[Term], binding: Binding) -> Term:
    """The bucket of a number between two constants."""
    if len(parts) != 4 or not all(isinstance(part, Literal) for part in parts[1:]):
        raise NotAnswered("width_bucket needs constant bounds", hint="write width_bucket(x, low, high, count)")
    low, high, buckets = (decimal(part) if isinstance(part, Literal) else None for part in parts[1:])
    if low is None or high is None or buckets is None or low == high or not 0 < buckets < 2**31 - 1:
        raise NotAnswered(
            "width_bucket needs two different bounds and at least one bucket", hint="write width_bucket(x, 0, 100, 10)"
        )
    # The overload that PostgreSQL would choose.
    several = terms[0].form is not Form.FLOAT and any(term.form is Form.NUMERIC for term in terms[:3])
    kind = "numeric" if several else "float8"
    value = f"({terms[0].sql}::{kind})"
    ends = ", ".join(f"({term.sql}::{kind})" for term in terms[1:3])
    if kind == "float8" and float(low) == float(high):
        raise NotAnswered("the bounds of width_bucket are too close together", hint="write width_bucket(x, 0, 100, 10)")
    # NaN raises in width_bucket.
    if terms[0].form is not Form.WHOLE:
        value = f"(CASE WHEN ({value} <> {binding.bind('NaN', kind)}) THEN {value} END)"
    return Term(
        f"(pg_catalog.width_bucket({value}, {ends}, ({terms[3].sql}::int4)))",
        Form.WHOLE,
        2 * terms[0].cost + 60,
        Range(Fraction(0), Fraction(int(buckets) + 1)),
    )


def _range(term: Term) -> Range:
    """Of a number that is not only compared."""
    return term.range or _ZERO


def _operator(function: str, parts: Sequence[Expression], terms: Sequence[Term], whole: bool, binding: Binding) -> Term:
    if len(terms) == 1:
        terms, parts = [Term(binding.number(0, "int8"), Form.WHOLE, 0, _ZERO, known=()), *terms], [parts[0], *parts]
    if not whole:
        terms = [binding.exact(term, part) for term, part in zip(terms, parts, strict=True)]
    left, right = (_range(term) for term in terms)
    known = left * right if function == "*" else left + (right if function == "+" else -right)
    cost = sum(term.cost for term in terms)
    present = tuple(dict.fromkeys(part for term in terms for part in term.present))
    presence_cost = sum(term.presence_cost for term in terms)
    if whole and known.most <= INT8:
        sql = f"(({terms[0].sql}::int8) {function} ({terms[1].sql}::int8))"
        return Term(sql, Form.WHOLE, cost + 2, known, known=present, known_cost=presence_cost)
    first, second = (binding.exact(term) for term in terms)
    sql = f"({first.sql} {function} {second.sql})"
    return Term(sql, Form.NUMERIC, first.cost + second.cost + 10, known, known=present, known_cost=presence_cost)


def _division(
    function: str, parts: Sequence[Expression], terms: Sequence[Term], whole: bool, result: str, binding: Binding
) -> Term:
    divisor = decimal(parts[1]) if isinstance(parts[1], Literal) else None
    if not divisor:
        raise NotAnswered(
            "a division inside the question is by a constant other than zero",
            hint="divide the aggregates instead: sum(a) / sum(b)",
        )
    by, places = Fraction(divisor), max(0, -int(divisor.as_tuple().exponent))
    if whole and abs(by) > 1 and function in ("/", "%"):
        known = _range(terms[0])
        return Term(
            f"(({terms[0].sql}::int8) {function} ({terms[1].sql}::int8))",
            Form.WHOLE,
            terms[0].cost + 3,
            known.truncated(by) if function == "/" else known.remainder(by, 0),
            known=terms[0].present,
            known_cost=terms[0].presence_cost,
        )
    left, right = (binding.exact(term, part) for term, part in zip(terms, parts, strict=True))
    known, cost = _range(left), left.cost + right.cost
    if function in ("%", "mod"):
        rest = known.remainder(by, places)
        sql = f"(pg_catalog.mod({left.sql}, {right.sql}))"
        return Term(sql, Form.NUMERIC, cost + 40, rest, known=left.present, known_cost=left.presence_cost)
    if function == "div" or result in INTEGERS:
        cut = known.truncated(by)
        sql = f"(pg_catalog.div({left.sql}, {right.sql}))"
        return Term(sql, Form.NUMERIC, cost + 40, cut, known=left.present, known_cost=left.presence_cost)
    shared = known.quotient(by)
    scale = binding.bind(str(shared.scale), "int4")
    sql = f"(pg_catalog.round(({left.sql} / {right.sql}), {scale}))"
    return Term(sql, Form.NUMERIC, cost + 60, shared, known=left.present, known_cost=left.presence_cost)
