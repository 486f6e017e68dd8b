"""Functions of texts and moments as terms, choices among terms, and what a LIKE pattern costs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from sqlrewrite.bounded import Range
from sqlrewrite.constant import TEXTS, base_type
from sqlrewrite.errors import NotAnswered, OutOfRange
from sqlrewrite.interval import FIELDS
from sqlrewrite.limits import PATTERN_LENGTH, PATTERN_WILDCARDS
from sqlrewrite.question import Call, Expression, Literal
from sqlrewrite.term import Form, Term, collated, joint_range, quoted

RUN_START, RUN_BYTE = 4000, 800  # picoseconds of LIKE: for a place where a run may begin, for each byte of the run
_JULIAN = Range(Fraction(0), Fraction(10**7), 32)  # a quotient: PostgreSQL gives it 16 digits or more
_FIELD = Range(Fraction(-(10**13)), Fraction(10**13), 6)


def chosen(sql: str, form: Form, terms: Sequence[Term], cost: int) -> Term:
    """One of several terms."""
    length, written = max(term.length for term in terms), all(term.written for term in terms)
    return Term(sql, form, cost + sum(term.cost for term in terms), joint_range(terms), length, written)


def function_of(call: Call, terms: Sequence[Term]) -> Term:
    """A function of texts or moments that cannot raise on what reaches it, the literals being checked already."""
    last, cost = terms[0], sum(term.cost for term in terms)
    sql = f"(pg_catalog.{quoted(call.function)}({', '.join(term.sql for term in terms)}))"
    match call.function:
        case "lower" | "upper":  # a letter may become three
            return Term(sql, Form.OTHER, cost + last.length // 2, None, 3 * last.length, last.written)
        case "left":
            most = terms[1].range.upper if terms[1].range is not None else 0
            return Term(sql, Form.OTHER, cost + last.length // 4, None, min(last.length, int(most)), last.written)
        case "length":
            return Term(sql, Form.WHOLE, cost + last.length // 2, Range(Fraction(0), Fraction(last.length)))
        case "date_trunc":
            return Term(sql, Form.OTHER, cost + 40)
        case "date_part":
            return Term(sql, Form.FLOAT, cost + 20)
        case "extract":
            field = call.arguments[0].text if isinstance(call.arguments[0], Literal) else ""
            ends, scale = FIELDS.get(field or ""), 6 if field == "second" else 0
            named = None if ends is None else Range(Fraction(ends[0]), Fraction(ends[1]), scale)
            julian = field == "julian"
            return Term(sql, Form.NUMERIC, cost + (150 if julian else 30), named or (_JULIAN if julian else _FIELD))
    raise NotAnswered(f"the function {call.function} is not answered", hint="use it on the answer, around the question")


def of_one_collation(sql: str, parts: Sequence[Expression]) -> str:
    """Columns of two collations have none together, which PostgreSQL says only once it compares a row."""
    several = sum(base_type(part.type_name) in TEXTS and not isinstance(part, Literal) for part in parts) > 1
    return collated(sql) if several else sql


def pattern_cost(pattern: str, term: Term, fold_case: bool) -> int:
    """What LIKE costs on a text: a character is looked at once for each place where the pattern may begin."""
    if re.search(r"(?<!\\)(?:\\\\)*\\$", pattern):
        raise NotAnswered("a LIKE pattern ends with a backslash", hint="write the backslash twice")
    wildcards = re.findall(r"%+", pattern)
    if len(pattern) > PATTERN_LENGTH or len(wildcards) > PATTERN_WILDCARDS:
        raise OutOfRange(
            f"a LIKE pattern has at most {PATTERN_LENGTH} characters and {PATTERN_WILDCARDS} times %",
            hint="write a shorter pattern, or several conditions",
        )
    if not term.written:
        raise NotAnswered(
            "LIKE compares a column of text, and this text is made of other values",
            hint="compare the values themselves: x BETWEEN 10 AND 19",
        )
    runs = [_run_bytes(run) for run in pattern.split("%")]
    cost = term.cost + 5 + runs[0] // 4
    if any(runs[1:]):
        # Each run begins after the one before it, so a place of the text begins at most one of them.
        cost += term.length * (RUN_START + RUN_BYTE * max(runs[1:])) // 10_000
    return cost + ((term.length + len(pattern)) // 2 if fold_case else 0)


def _run_bytes(run: str) -> int:
    """The bytes that are compared for a run of a LIKE pattern; an underscore passes over up to four."""
    return len(run.encode()) + run.count("_")
