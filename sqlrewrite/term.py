"""Pieces of generated SQL, each with its public size: a range and digits for numbers, a length for texts, a cost.

*Guarantee*: there is no ``Term`` beyond the limits: the constructor refuses. Sizes follow from types, declared bounds
and constants only. A number of up to ``MOST_DIGITS`` digits cannot overflow in ``numeric``, nor (``Form.WHOLE``) in
int8, and costs a bounded time in each operation; so a statement that was planned neither fails nor dwells on a row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from sqlrewrite.bounded import Range, of_type, union
from sqlrewrite.constant import FLOATS, INTEGERS
from sqlrewrite.errors import OutOfRange, TooComplex
from sqlrewrite.limits import MOST_COST, MOST_DIGITS
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
    """A piece of SQL that is evaluated for a row.

    ``range`` is that of a number; None for other types, for a float, and for a column that is only compared.
    ``length`` is the most characters of a text, ``written`` whether all of them come from columns of text and
    constants. ``cost`` is in units of ``sqlrewrite.limits``. ``known`` tells more cheaply than the term itself, at
    ``known_cost``, whether it is NULL.
    """

    sql: str
    form: Form
    cost: int
    range: Range | None = None
    length: int = 0
    written: bool = False
    known: tuple[str, ...] | None = None
    known_cost: int = 0

    @property
    def presence_cost(self) -> int:
        """Of the conditions of ``present``."""
        return self.cost + 1 if self.known is None else self.known_cost

    @property
    def present(self) -> tuple[str, ...]:
        """Conditions that are all true exactly where the term is not NULL."""
        return (f"({self.sql} IS NOT NULL)",) if self.known is None else self.known

    def __post_init__(self) -> None:
        if self.range is not None and self.range.digits > MOST_DIGITS:
            raise too_many_digits(self.range)
        if self.cost > MOST_COST:
            raise too_costly()


def too_many_digits(found: Range) -> OutOfRange:
    return OutOfRange(
        f"numeric value out of range: it may have {found.digits} digits, and a row's numbers have at most"
        f" {MOST_DIGITS}",
        hint="use smaller constants or fewer factors, or cut the factors first: round(x, 2), x::integer",
    )


def too_costly() -> TooComplex:
    return TooComplex(
        "the statement is too complex: it would do too much work for each row",
        hint="ask in several questions; shorten lists and CASE, or join a public table that holds the values",
    )


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


def joint(terms: Sequence[Term]) -> Form:
    """The form that several choices have together."""
    forms = {term.form for term in terms}
    return next((form for form in (Form.NUMERIC, Form.FLOAT, Form.WHOLE) if form in forms), Form.OTHER)


def joint_range(terms: Sequence[Term]) -> Range | None:
    known = [term.range for term in terms if term.range is not None]
    return union(known) if known else None


def narrow(type_name: str) -> bool:
    """Whether a number of this type enters arithmetic as it is."""
    return of_type(type_name) is not None
