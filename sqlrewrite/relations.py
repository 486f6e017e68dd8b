"""The relations that a text names, as sqlglot sees them: one half of "two readers must agree"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import TypeAlias

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from sqlrewrite.parse import MAX_BYTES, fold, is_bounded

Name: TypeAlias = tuple[str | None, str]
"""(schema, relation); the schema is None where the text gives none."""

_NAME = r'(?:"(?:[^"]|"")+"|[A-Za-z_\x80-\U0010ffff][\w$]*)'
_CHAIN = re.compile(rf"{_NAME}(?:\s*\.\s*{_NAME})*")
_PART = re.compile(_NAME)


def relations(text: str) -> set[Name]:
    """Every relation named anywhere in the text, names of common table expressions left out where they hide it.

    A text that sqlglot cannot read, or holds as an opaque command, gives every name-like word (``mentions``):
    the answer may be too large, never too small.
    """
    if len(text) > MAX_BYTES or not is_bounded(text):
        return mentions(text)
    try:
        roots = [root for root in sqlglot.parse(text, dialect="postgres") if root is not None]
        found: set[Name] = set()
        for root in roots:
            if root.find(exp.Command) is not None:
                return mentions(text)
            found.update(_tables(root, frozenset()))
        return found
    except (SqlglotError, RecursionError, TypeError, AttributeError, ValueError, IndexError, KeyError):
        return mentions(text)  # the compiled parser stumbles over half an expression with an error of Python's


def mentions(text: str) -> set[Name]:
    """Every word of the text that could name a relation, quoted or not, also inside strings and comments."""
    found: set[Name] = set()
    for chain in set(_CHAIN.findall(text)):
        parts = [_unquoted(part) for part in _PART.findall(chain)]
        found.add((None, parts[0]))
        found.update(pairwise(parts))
    return found


def _tables(node: exp.Expr, hidden: frozenset[str]) -> Iterator[Name]:
    """Tables below a node, ``hidden`` being the expressions of WITH that are in scope."""
    with_ = node.args.get("with_")
    if isinstance(with_, exp.With):
        names = frozenset(_name(cte.args["alias"].this) for cte in with_.expressions)
        seen = hidden | names if with_.args.get("recursive") else hidden
        for cte in with_.expressions:
            yield from _tables(cte.this, seen)
            seen |= {_name(cte.args["alias"].this)}
        hidden |= names
    if isinstance(node, exp.Insert | exp.Update | exp.Delete | exp.Merge):
        # The target of a write is a real table even where WITH has the same name.
        target = node.this.this if isinstance(node.this, exp.Schema) else node.this
        if isinstance(target, exp.Table):
            yield from _table(target, frozenset())
    if isinstance(node, exp.Table):
        yield from _table(node, hidden)
    for field, value in node.args.items():
        if field in ("with_", "locks"):
            continue
        for child in value if isinstance(value, list) else (value,):
            if isinstance(child, exp.Expr):
                yield from _tables(child, hidden)


def _table(node: exp.Table, hidden: frozenset[str]) -> Iterator[Name]:
    if not isinstance(node.this, exp.Identifier):
        return
    schema = node.args.get("db")
    name = _name(node.this)
    if schema is not None:
        yield _name(schema), name
    elif name not in hidden:
        yield None, name


def _name(node: exp.Expr) -> str:
    return node.name if node.args.get("quoted") else fold(node.name)


def _unquoted(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else fold(part)
