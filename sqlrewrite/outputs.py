"""Output columns as PostgreSQL sees them: where the expression ends and the alias begins, and the name without one."""

from __future__ import annotations

import re
from typing import Final

from sqlrewrite.blocks import Tokens, closing, outside
from sqlrewrite.errors import SyntaxNotRead
from sqlrewrite.lex import Kind

_NEVER_ALIAS: Final = frozenset(
    re.findall(
        r"\w+",
        """end null true false unknown precision varying zone isnull notnull asc desc first last and or not is in like
        ilike between over rows range groups current row preceding following unbounded filter within from""",
    )
)
_BEFORE_OPERANDS: Final = frozenset(
    ("distinct", "all", "double", "character", "time", "case", "when", "then", "else", "interval")
)


def output(item: Tokens) -> tuple[Tokens, str | None]:
    """An expression and its alias, with or without AS."""
    if not item:
        raise SyntaxNotRead("the select list has an empty item")
    if len(item) > 2 and item[-2].word == "as":
        return item[:-2], item[-1].name
    if len(item) > 1 and item[-1].name is not None and _may_be_alias(item):
        return item[:-1], item[-1].name
    return item, None


def _may_be_alias(item: Tokens) -> bool:
    last, before = item[-1], item[-2]
    if last.word in _NEVER_ALIAS:
        return False
    if before.kind in (Kind.DOT, Kind.SIGN, Kind.COMMA, Kind.OPEN):
        return False  # a qualified name, a type behind ::, an operand
    if before.word is not None and before.word in _NEVER_ALIAS - {"end", "null", "true", "false", "precision", "zone"}:
        return False
    return before.word not in _BEFORE_OPERANDS


def outer_name(expression: Tokens) -> str:
    """PostgreSQL's FigureColname for the few shapes that matter here."""
    these = bare(expression)
    for at in outside(these):
        if at + 2 < len(these) and these[at].text == ":" and these[at + 1].text == ":":
            inner = outer_name(these[:at])
            return inner if inner != "?column?" else (these[at + 2].name or "?column?")
    if these[0].word == "case":
        return "case"
    if these[0].word == "cast" and len(these) > 2 and these[1].kind is Kind.OPEN:
        at = next((i for i in range(2, len(these)) if these[i].word == "as"), len(these) - 1)
        inner = outer_name(these[2:at])
        return inner if inner != "?column?" else (these[at + 1].name or "?column?")
    if len(these) > 1 and these[1].kind is Kind.OPEN and closing(these, 1) == len(these) - 1:
        return these[0].name or "?column?"
    chain = these[::2]
    if all(token.name is not None for token in chain) and all(t.kind is Kind.DOT for t in these[1::2]):
        return chain[-1].name or "?column?"
    return "?column?"


def bare(these: Tokens) -> Tokens:
    while len(these) > 2 and these[0].kind is Kind.OPEN and closing(these, 0) == len(these) - 1:
        these = these[1:-1]
    return these
