"""Refusals that come from reading the statement: each class is one SQLSTATE, each use one sentence."""

from __future__ import annotations

from mechanisms.errors import Refusal


class SyntaxNotRead(Refusal):
    """One of the two readers does not accept the text."""

    sqlstate = "42601"


class UnknownRelation(Refusal):
    """A name that is no registered relation."""

    sqlstate = "42P01"


class UnknownColumn(Refusal):
    """A name that is no column of the relation."""

    sqlstate = "42703"


class NotAnswered(Refusal):
    """SQL that pgveil does not answer about protected rows."""

    sqlstate = "0A000"


class OutOfRange(Refusal):
    """A number or a text that is larger than one row's work may be."""

    sqlstate = "22003"


class TooManyGroups(NotAnswered):
    """More possible groups than are answered one by one: only those that pass a threshold can be."""


class WouldShowRows(Refusal):
    """The statement would show private rows as they are."""

    sqlstate = "42501"


class NotYours(Refusal):
    """What belongs to another analyst."""

    sqlstate = "42501"


class NotKept(Refusal):
    """An answer would be kept where its analyst may keep nothing."""

    sqlstate = "42501"


class WouldWrite(Refusal):
    """The statement would change protected rows."""

    sqlstate = "25006"


class TooComplex(Refusal):
    """A statement that is too long or too deep to be read safely."""

    sqlstate = "54001"
