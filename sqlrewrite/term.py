"""Pieces of generated SQL: a number knows how it is held, a moment how far its constants move it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from sqlrewrite.constant import FLOATS, INTEGERS
from sqlrewrite.question import Call, Case, Cast, Expression, Literal

INT8 = 2**63 - 1
WIDTHS = {"smallint": 2**15, "integer": 2**31, "bigint": 2**63}
CALENDAR = {
    "date": ("0001-01-01", "9999-12-31"),
    "timestamp without time zone": ("0001-01-02 00:00:00", "9999-12-30 23:59:59.999999"),
    "timestamp with time zone": ("0001-01-02 00:00:00+00", "9999-12-30 23:59:59.999999+00"),
}
"""The years that both PostgreSQL and Python hold, a day inside for time zones."""
MOST_YEARS = 3500  # below year 1 PostgreSQL has 4,713 more, and date_trunc may take 1,000 of them


class Form(Enum):
    """How a number is held in the generated SQL."""

    WHOLE = "whole"
    NUMERIC = "numeric"
    FLOAT = "float"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Term:
    """A piece of SQL; ``most`` bounds the magnitude of a whole number, by type alone."""

    sql: str
    form: Form
    most: int = 0


def quoted(name: str) -> str:
    """A name as a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def collated(sql: str) -> str:
    """A text under the database's own collation.

    A comparison of two collations, and LIKE under one that is not deterministic, raise only once a row is there.
    """
    return f'({sql} COLLATE pg_catalog."default")'


def cast_type(type_name: str) -> str:
    """``character`` alone would mean one character: format_type writes it for a column of unknown length."""
    return "bpchar" if type_name == "character" else type_name


def years(expression: Expression) -> int:
    """At least the years by which the constants of an expression move a moment, all together."""
    match expression:
        case Call(function, arguments, _):
            return sum(years(argument) for argument in arguments) + 1000 * (function == "date_trunc")
        case Cast(argument, _):
            return years(argument)
        case Case(branches, otherwise, _):
            return sum(years(part) for part in (*(then for _, then in branches), otherwise))
        case Literal(text=str(text), type_name=type_name) if type_name in INTEGERS:
            return abs(int(text)) // 365
        case Literal(text=str(text), type_name="interval"):
            if re.search(r"(?i)mil|cent|dec|c", text):
                return MOST_YEARS + 1
            amount = sum(map(int, re.findall(r"\d+", text)))
            return amount if re.search(r"(?i)y|mon|p", text) else amount // 52  # at most weeks
    return 0


def form_of(base: str) -> Form:
    if base in INTEGERS:
        return Form.WHOLE
    if base in FLOATS:
        return Form.FLOAT
    return Form.NUMERIC if base == "numeric" else Form.OTHER


def numeric(term: Term) -> Term:
    return term if term.form is Form.NUMERIC else Term(f"({term.sql}::numeric)", Form.NUMERIC)


def joint(terms: Sequence[Term]) -> tuple[Form, int]:
    forms = {term.form for term in terms}
    for form in (Form.NUMERIC, Form.FLOAT, Form.WHOLE):
        if form in forms:
            return form, max(term.most for term in terms) if form is Form.WHOLE else 0
    return Form.OTHER, 0


def narrow(type_name: str) -> bool:
    declared = re.search(r"\((\d+)", type_name)
    return declared is not None and int(declared[1]) <= 100
