"""Columns as terms: what their types leave open is closed here, so that everything around them has a public size.

- ``numeric`` without a precision (up to 131,072 digits before and 16,383 after the point, NaN, infinity) and floats
  enter arithmetic within a public window (``sqlrewrite.bounded.kept``), rounded to its places, and as NULL outside;
- of a text as many characters as count (``sqlrewrite.limits``) are taken by ``left``, which reads no more than those
  of a text that is stored out of line; ``octet_length`` of a text or bytea, ``pg_column_size`` and
  ``pg_column_compression`` (PostgreSQL 14) read none;
- a value of another type without a stated size is NULL where it is large or compressed;
- moments are within the years 1 to 9999, or NULL, and so are intervals that the shadow may be unable to read.

*Guarantee*: no value of a column makes what is done with its term fail, or take longer than the term's cost tells.
Ordinary values are what they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from fractions import Fraction

from sqlrewrite.bounded import Range, kept, of_type
from sqlrewrite.catalog import Attribute
from sqlrewrite.constant import FLOATS, INTEGERS, NAMED, NUMBERS, TEXTS, TIMES, base_type
from sqlrewrite.errors import NotAnswered
from sqlrewrite.limits import (
    CONSTANT_LENGTH,
    DOMAIN_LENGTH,
    EQUAL_BYTES,
    KEY_DIGITS,
    KEY_PLACES,
    OTHER_BYTES,
    PADDED_BYTES,
    STORED_BYTES,
    TEXT_LENGTH,
    UNIT_BYTES,
)
from sqlrewrite.term import CALENDAR, Form, Term, form_of

Bind = Callable[[str | None, str], str]

FIXED = frozenset(
    (*INTEGERS, *FLOATS, *TIMES, "boolean", "uuid", "interval", "oid", "money", "macaddr", "macaddr8")
) | frozenset(f"time {zone} time zone" for zone in ("with", "without"))
"""Types whose values all have one size."""
_NOTHING = Range(Fraction(0), Fraction(0))
LONGEST_SPAN = "178956970 years"  # both ends are finite in every version; infinity, from PostgreSQL 17 on, is beyond
INDEXED_BYTES = 2712  # of a key: a btree holds none that is longer, so no longer value finds a partner


class Use(Enum):
    """What a column is read for."""

    PRESENCE = "presence"  # whether it is NULL
    COMPARISON = "comparison"
    KEY = "key"  # groups are made of it
    VALUE = "value"  # an argument of a function or of arithmetic


def column(name: str, type_name: str, attribute: Attribute | None, use: Use, bind: Bind) -> Term:
    """A column, by what is declared about it and what it is read for."""
    base = base_type(type_name)
    if use is Use.PRESENCE:
        return Term(name, form_of(base), 1)
    if base in TEXTS:
        return _text(name, type_name, attribute, bind)
    if base == "numeric" and of_type(type_name) is None:
        return _numeric(name, attribute, use, bind)
    if base in CALENDAR and use is Use.VALUE:
        low, high = (bind(end, base) for end in CALENDAR[base])
        return Term(f"(CASE WHEN ({name} >= {low}) AND ({name} <= {high}) THEN {name} END)", Form.OTHER, 5)
    if base == "interval" and use is not Use.COMPARISON:
        low, high = (bind(end, base) for end in (f"-{LONGEST_SPAN}", LONGEST_SPAN))
        return Term(f"(CASE WHEN ({name} >= {low}) AND ({name} <= {high}) THEN {name} END)", Form.OTHER, 5, None, 100)
    if base in NAMED and use is not Use.COMPARISON:
        raise NotAnswered(
            f"values of the type {base} are names of this server's objects and are not answered",
            hint="group by another column",
        )
    if base in FIXED or base in NUMBERS:
        return Term(name, form_of(base), 1, of_type(type_name), 100)
    return Term(_small(name, base, OTHER_BYTES, bind), Form.OTHER, 5 + OTHER_BYTES // 16, None, 10 * OTHER_BYTES)


def listed(name: str, type_name: str) -> Term:
    """A value that was worked out from public ones and stands under a name."""
    form = form_of(base_type(type_name))
    window = of_type(type_name) or kept(None, None)
    return Term(name, form, 1, window if form in (Form.WHOLE, Form.NUMERIC) else None, TEXT_LENGTH, True)


def unit(name: str, type_name: str, bind: Bind) -> Term:
    """The column that names a privacy unit: one that is too long names none, and its rows count nowhere.

    It is not cut: two units would become one, whose rows one of them could move further than it may.
    """
    base = base_type(type_name)
    if base in FIXED or (base in TEXTS and _declared_length(type_name)) or of_type(type_name) is not None:
        return Term(name, form_of(base), 1)
    return Term(_small(name, base, UNIT_BYTES, bind), form_of(base), 5)


def joined(name: str, type_name: str, bind: Bind) -> str:
    """The column of a protected table that another table's key is looked up by."""
    base = base_type(type_name)
    if base in FIXED or (base in TEXTS and _declared_length(type_name)) or of_type(type_name) is not None:
        return name
    return _small(name, base, INDEXED_BYTES, bind)


def text_length(type_name: str, attribute: Attribute | None) -> tuple[int, bool]:
    """How many characters of a text column count, and whether its type leaves room for more."""
    declared = _declared_length(type_name)
    if declared:
        return declared, False
    if attribute is None or attribute.domain is None:
        return TEXT_LENGTH, True
    longest = max((len(value) for value in attribute.domain if isinstance(value, str)), default=0)
    return max(DOMAIN_LENGTH, longest + 1), True


def exact(term: Term, bind: Bind, attribute: Attribute | None = None) -> Term:
    """A number as numeric, within its range."""
    if term.form is Form.FLOAT:
        window = _window(attribute)
        within = f"(pg_catalog.abs({term.sql}) <= {bind(_plain(window), 'float8')})"
        value = f"pg_catalog.round(({term.sql}::numeric), {bind(str(window.scale), 'int4')})"
        sql = f"(CASE WHEN {within} THEN {value} END)"
        return Term(sql, Form.NUMERIC, 2 * term.cost + 75, window, known=(within,), known_cost=term.cost + 2)
    if term.form is Form.NUMERIC:
        return term
    sql = f"({term.sql}::numeric)"
    return Term(
        sql, Form.NUMERIC, term.cost + 5, term.range or _NOTHING, known=term.present, known_cost=term.presence_cost
    )


def _numeric(name: str, attribute: Attribute | None, use: Use, bind: Bind) -> Term:
    large = _large(name, bind(str(STORED_BYTES), "int4"))
    if use is Use.COMPARISON:
        return Term(f"(CASE WHEN {large} THEN NULL ELSE {name} END)", Form.NUMERIC, 5)
    window = _key_window() if use is Use.KEY else _window(attribute)
    within = f"(pg_catalog.abs({name}) <= {bind(_plain(window), 'numeric')})"
    value = f"pg_catalog.round({name}, {bind(str(window.scale), 'int4')})"
    value = f"pg_catalog.trim_scale({value})" if use is Use.KEY else value
    sql = f"(CASE WHEN {large} THEN NULL WHEN {within} THEN {value} END)"
    return Term(
        sql, Form.NUMERIC, 30, window, known=(f"(CASE WHEN {large} THEN false ELSE {within} END)",), known_cost=15
    )


def clamped(name: str, attribute: Attribute | None, low: str, high: str, bind: Bind) -> Term:
    """A column of numeric without a precision between bounds; what is too large to be looked at is the upper one."""
    window = _window(attribute)
    large = _large(name, bind(str(STORED_BYTES), "int4"))
    value = f"pg_catalog.round({name}, {bind(str(window.scale), 'int4')})"
    arms = f"WHEN {large} THEN {high} WHEN ({name} < {low}) THEN {low} WHEN ({name} > {high}) THEN {high}"
    return Term(f"(CASE {arms} ELSE {value} END)", Form.NUMERIC, 30, window)


def _text(name: str, type_name: str, attribute: Attribute | None, bind: Bind) -> Term:
    length, longer = text_length(type_name, attribute)
    padded = base_type(type_name) == "bpchar"
    if not longer:
        return Term(name, Form.OTHER, 1 + (_trimming(length) if padded else 0), None, length, True)
    most = bind(str(length), "int4")
    short = f"(pg_catalog.octet_length({name}) <= {most})"
    if padded:
        readable(type_name, PADDED_BYTES)
        cut = f"(pg_catalog.left({name}::text, {most})::bpchar)"
        longer_one = f"(pg_catalog.octet_length({name}) <= {bind(str(PADDED_BYTES), 'int4')})"
        sql = f"(CASE WHEN {short} THEN {name} WHEN {longer_one} THEN {cut} END)"
        return Term(sql, Form.OTHER, 4 + length // 4 + _trimming(PADDED_BYTES), None, length, True)
    sql = f"(CASE WHEN {short} THEN {name} ELSE pg_catalog.left({name}, {most}) END)"
    return Term(sql, Form.OTHER, 4 + length // 4, None, length, True)


def padding(type_name: str) -> int:
    """What it costs to find the trailing blanks of a long bpchar for one comparison with a constant."""
    if base_type(type_name) != "bpchar":
        return 0
    readable(type_name, CONSTANT_LENGTH)  # then its values have at most EQUAL_BYTES, and the comparison is exact
    return EQUAL_BYTES // 16


def _trimming(length: int) -> int:
    """What PostgreSQL takes to turn a bpchar into a text: it looks at each character, and removes trailing blanks."""
    return 2 * length // 3


def readable(type_name: str, most: int) -> None:
    """Refuse a ``character(n)`` whose values, padded to n characters, may be longer than what is read."""
    found = re.search(r"\((\d+)\)", type_name)
    if found is not None and int(found[1]) > most:
        raise NotAnswered(
            f"values of the type {type_name} are too long for this",
            hint=f"a column of character(n) is read with n up to {most}; use character varying instead",
        )


def _small(name: str, base: str, most: int, bind: Bind) -> str:
    """A value whose size is read without the value itself, or NULL where it is too large.

    ``octet_length`` of text and bytea is the size before compression. No function tells it of other types, so a
    compressed value is NULL there: PostgreSQL compresses only in rows of more than 2,000 bytes.
    """
    limit = bind(str(most), "int4")
    if base in TEXTS or base == "bytea":
        return f"(CASE WHEN (pg_catalog.octet_length({name}) <= {limit}) THEN {name} END)"
    return f"(CASE WHEN {_large(name, limit)} THEN NULL ELSE {name} END)"


def _large(name: str, limit: str) -> str:
    """Whether a value of any type is stored in more bytes, or compressed."""
    size = f"pg_catalog.pg_column_size({name})"
    return f"(({size} > {limit}) OR (pg_catalog.pg_column_compression({name}) IS NOT NULL))"


def _window(attribute: Attribute | None) -> Range:
    return kept(None, None) if attribute is None else kept(attribute.lower, attribute.upper)


def _key_window() -> Range:
    most = Fraction(10) ** KEY_DIGITS
    return Range(-most, most, KEY_PLACES)


def _plain(window: Range) -> str:
    return f"1e{len(str(window.upper.numerator)) - len(str(window.upper.denominator))}"


def _declared_length(type_name: str) -> int:
    """Of ``character varying(n)`` and ``character(n)``, where it is short enough; else 0."""
    found = re.search(r"\((\d+)\)", type_name)
    return int(found[1]) if found is not None and int(found[1]) <= TEXT_LENGTH else 0
