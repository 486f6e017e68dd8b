"""Probes: tools ask for the shape of an answer by throwing the answer away, or by asking for no row at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from sqlrewrite.blocks import Block, Name, Tokens, closing, outline
from sqlrewrite.lex import Kind, tokens
from sqlrewrite.outputs import bare

_UNSPLIT: Final = frozenset(("or", "between", "case"))
"""Words at whose level an AND may not be the AND of the whole condition."""

_NO_ALIAS: Final = frozenset(
    ("join", "inner", "left", "right", "full", "cross", "natural", "outer", "on", "using", "tablesample")
)


def is_probe(block: Block) -> bool:
    """Whether the answer is thrown away whatever it is: LIMIT 0 here, or LIMIT 0 or a false WHERE around it."""
    inner: Block | None = block
    below = block
    while inner is not None:
        limit = [t.text for t in inner.clause("limit")] or [t.text for t in inner.tail.get("limit", ())]
        if limit == ["0"]:
            return True
        if inner is not block and never(inner.clause("where")):
            # SELECT (question), count(*) FROM t WHERE false still has a row, with the question's answer in it.
            from_ = inner.clause("from")
            if from_ and from_[0].start <= below.start < from_[-1].stop:
                return True
        below, inner = inner, inner.parent
    return False


def never(where: Tokens) -> bool:
    """Whether a condition is false by its text alone: FALSE, 1 = 0, 1 <> 1, or these AND something."""
    these = bare(where)
    parts: list[list[str]] = [[]]
    depth = 0
    for token in these:
        depth += (token.kind is Kind.OPEN) - (token.kind is Kind.CLOSE)
        if not depth and token.word in _UNSPLIT:
            return False
        if not depth and token.word == "and":
            parts.append([])
        else:
            parts[-1].append(token.text if token.word is None else token.word)
    return any(_false(part) for part in parts)


def _false(part: list[str]) -> bool:
    while len(part) > 2 and part[0] == "(" and part[-1] == ")" and not {"(", ")"} & set(part[1:-1]):
        part = part[1:-1]
    match part:
        case ["false"]:
            return True
        case [left, "=", right] if left.isdigit() and right.isdigit():
            return int(left) != int(right)
        case [left, "<" | "!", ">" | "=" as last, right] if left.isdigit() and right.isdigit():
            return int(left) == int(right) and part[1] + last in ("<>", "!=")
    return False


def emptied(text: str, protected: Callable[[Name], Name | None]) -> str | None:
    """The statement with a relation without rows in place of each protected table, if nobody could tell the difference.

    A SELECT whose WHERE is false has no row to look at, and what LIMIT 0 throws away is not seen: there, and only
    there, an empty table gives the answer that the real one gives. ``protected`` tells what a name means, if it is
    protected.

    *Guarantee*: the statement still runs where nothing private is; if this is wrong, an answer is wrong, not a secret.
    """
    edits: list[tuple[int, int, str]] = []
    real = set()
    these = tokens(text)
    unseen = _thrown_away(these)
    for block in outline(text).blocks:
        names = {name: found for name, _ in block.tables if (found := protected(name)) is not None}
        if not names:
            continue
        if not (unseen or is_probe(block) or never(block.clause("where"))):
            return None
        real |= set(names.values())
        if "table" in block.clauses:  # TABLE name has no alias
            start, stop, name, _ = next(_named(block.clause("table")))
            edits.append((block.start, stop, f"SELECT * FROM {_nothing(names[name])} AS {_quoted(name[1])}"))
            continue
        for start, stop, name, alias in _named(block.clause("from")):
            if name in names:
                known = "" if alias else f" AS {_quoted(name[1])}"
                edits.append((start, stop, f"{_nothing(names[name])}{known}"))
    if not edits:
        return None
    for first, dot, second, last in zip(these, these[1:], these[2:], these[3:], strict=False):
        # schema.table.column: the relation in its place has no schema
        if dot.kind is last.kind is Kind.DOT and (first.name, second.name) in real:
            edits.append((first.start, second.start, ""))
    pieces: list[str] = []
    at = 0
    for start, stop, instead in sorted(edits):
        pieces += [text[at:start], instead]
        at = stop
    return "".join([*pieces, text[at:]])


def _thrown_away(these: Tokens) -> bool:
    """Whether the whole statement ends with LIMIT 0, and changes nothing on the way."""
    while these and these[-1].kind is Kind.END:
        these = these[:-1]
    writes = any(token.word in ("insert", "update", "delete", "merge", "into", "create") for token in these)
    return not writes and [token.text.lower() for token in these[-2:]] == ["limit", "0"]


def _nothing(name: Name) -> str:
    """A relation of the table's shape, without rows."""
    schema, table = (_quoted(part or "") for part in name)
    return f"pg_catalog.unnest('{{}}'::{schema}.{table}[])"


def _named(from_: Tokens) -> Iterator[tuple[int, int, Name, bool]]:
    """The relations that a FROM clause names: from where to where, the name, and whether an alias follows."""
    at, expecting = 0, True
    while at < len(from_):
        token = from_[at]
        if token.kind is Kind.COMMA or token.word == "join":
            expecting = True
        elif token.kind is Kind.OPEN:
            close = closing(from_, at)
            if expecting and from_[at + 1].word not in ("select", "with", "values", "table"):
                yield from _named(from_[at + 1 : close])
            expecting, at = False, close
        elif expecting and token.name is not None and token.word not in ("only", "lateral"):
            parts, last = [token.name], at
            while last + 2 < len(from_) and from_[last + 1].kind is Kind.DOT and from_[last + 2].name is not None:
                last += 2
                parts.append(from_[last].name or "")
            behind = from_[last + 1] if last + 1 < len(from_) else None
            alias = behind is not None and behind.name is not None and behind.word not in _NO_ALIAS
            if behind is None or behind.kind is not Kind.OPEN:
                name: Name = (parts[-2], parts[-1]) if len(parts) > 1 else (None, parts[0])
                yield token.start, from_[last].stop, name, alias
            expecting, at = False, last
        at += 1


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
