"""The skeleton of a statement: which SELECTs it is made of, and where their clauses stand.

Only structure is read here, from tokens: parentheses, set operators and the keywords that begin a clause. Everything
that is not a question stays text and is PostgreSQL's to understand, so this file may be ignorant of almost all of
SQL. What it gets wrong cannot leak: a question's meaning comes from its typed reading alone, and the finishing
statement runs where nothing private is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

from sqlrewrite.errors import SyntaxNotRead, TooComplex
from sqlrewrite.lex import Kind, Token, tokens

Name: TypeAlias = tuple[str | None, str]
Tokens: TypeAlias = tuple[Token, ...]

MAX_LENGTH: Final = 64 * 1024
MAX_TOKENS: Final = 6000
MAX_DEPTH: Final = 64
_SET_OPERATORS: Final = frozenset(("union", "intersect", "except"))
_CLAUSES: Final = ("from", "where", "group", "having", "window", "order", "limit", "offset", "fetch", "for")
_TAIL: Final = ("order", "limit", "offset", "fetch", "for")
_JOINS: Final = frozenset(("join", "inner", "left", "right", "full", "cross", "natural", "outer", "on", "using"))


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """One SELECT: its tokens by clause (keywords left out), and the query that it stands in."""

    tokens: Tokens
    clauses: dict[str, Tokens]
    tables: tuple[tuple[Name, str], ...]  # (relation, alias or name) read by its own FROM
    nested: tuple[tuple[Tokens, str], ...]  # (query, alias) of each query in parentheses that stands in its FROM
    parent: Block | None
    tail: dict[str, Tokens]  # ORDER BY, LIMIT, ... of the set operation it is a branch of; empty if it is none

    @property
    def start(self) -> int:
        return self.tokens[0].start

    @property
    def stop(self) -> int:
        return self.tokens[-1].stop

    def clause(self, name: str) -> Tokens:
        return self.clauses.get(name, ())


@dataclass(frozen=True, slots=True)
class Outline:
    """Every SELECT of a statement, outermost first."""

    text: str
    blocks: tuple[Block, ...]

    def names(self) -> frozenset[Name]:
        """Every relation that some FROM names (common table expressions left out where they hide it)."""
        return frozenset(name for block in self.blocks for name, _ in block.tables)


def outline(text: str) -> Outline:
    """Read the skeleton of one statement."""
    if len(text) > MAX_LENGTH:
        raise TooComplex(
            f"a statement with a question may be at most {MAX_LENGTH} characters long",
            hint="Load long lists into a temporary table, and join the answer with it.",
        )
    everything = tokens(text)
    _small(everything)
    while everything and everything[-1].kind is Kind.END:
        everything = everything[:-1]
    for token in everything:
        if token.kind is Kind.END:
            raise SyntaxNotRead("a question is one statement", hint="Send them one by one.", position=token.start + 1)
    return Outline(text, tuple(_query(everything, frozenset(), None)))


def _small(these: Tokens) -> None:
    if len(these) > MAX_TOKENS:
        raise TooComplex(
            f"a statement with a question may have at most {MAX_TOKENS} words and signs",
            hint="Load long lists into a temporary table, and join the answer with it.",
            position=these[MAX_TOKENS].start + 1,
        )
    depth = 0
    for token in these:
        depth += (token.kind is Kind.OPEN) - (token.kind is Kind.CLOSE)
        if depth > MAX_DEPTH:
            raise TooComplex(
                f"a statement with a question may be at most {MAX_DEPTH} parentheses deep",
                hint="Simplify the expressions.",
                position=token.start + 1,
            )


def _query(these: Tokens, hidden: frozenset[str], parent: Block | None) -> Iterator[Block]:
    """The SELECTs of a query expression: [WITH ...] branch [set operator branch ...] [ORDER BY ...]."""
    if not these:
        return
    body = these
    if these[0].word == "with":
        body, hidden, inner = _with(these, hidden, parent)
        yield from inner
    if body and body[0].word in ("insert", "create"):
        end = next((i for i in outside(body) if _ends_query(body, i)), len(body))
        yield from _inside(body[end:], hidden, parent)
        body = body[:end]
    branches, tail_at = _branches(body)
    tail = _cut(body[tail_at:], _TAIL) if len(branches) > 1 else {}
    for branch in branches:
        if len(branches) == 1:
            branch = body  # ORDER BY and LIMIT belong to the only SELECT
        if not branch:
            continue
        if branch[0].kind is Kind.OPEN:
            close = closing(branch, 0)
            yield from _query(branch[1:close], hidden, parent)
            yield from _inside(branch[close + 1 :], hidden, parent)
        elif branch[0].word == "select":
            yield from _select(branch, hidden, parent, tail)
        elif branch[0].word == "table":
            name, _ = _table_name(branch[1:])
            if name is not None and not (name[0] is None and name[1] in hidden):
                yield Block(branch, {"table": branch[1:]}, ((name, name[1]),), (), parent, tail)
        else:  # VALUES, INSERT, UPDATE, ...: their parts are looked into
            yield from _inside(branch, hidden, parent)
    if tail:
        yield from _inside(body[tail_at:], hidden, parent)


def _with(these: Tokens, hidden: frozenset[str], parent: Block | None) -> tuple[Tokens, frozenset[str], list[Block]]:
    """Common table expressions: each hides relations of its name from what follows (and from itself if RECURSIVE)."""
    found: list[Block] = []
    at = 1
    recursive = at < len(these) and these[at].word == "recursive"
    at += recursive
    names: list[tuple[str, Tokens]] = []
    while at < len(these):
        name = these[at].name
        at += 1
        if at < len(these) and these[at].kind is Kind.OPEN:  # column names
            at = closing(these, at) + 1
        while at < len(these) and these[at].kind is not Kind.OPEN:  # AS [NOT] MATERIALIZED
            at += 1
        if name is None or at >= len(these):
            return (), hidden, found
        close = closing(these, at)
        names.append((name, these[at + 1 : close]))
        at = close + 1
        while at < len(these) and these[at].word in ("search", "cycle"):
            while at < len(these) and these[at].kind is not Kind.COMMA and these[at].word != "select":
                at += 1
        if at < len(these) and these[at].kind is Kind.COMMA:
            at += 1
            continue
        break
    seen = hidden | {name for name, _ in names} if recursive else hidden
    for name, inner in names:
        found.extend(_query(inner, seen, parent))
        seen = seen | {name}
    return these[at:], seen, found


def _branches(body: Tokens) -> tuple[list[Tokens], int]:
    """The branches of set operators at this level, and where the common ORDER BY, LIMIT, ... begin."""
    branches: list[Tokens] = []
    start = at = 0
    last = 0
    while at < len(body):
        token = body[at]
        if token.kind is Kind.OPEN:
            at = closing(body, at) + 1
            continue
        if token.word in _SET_OPERATORS:
            branches.append(body[start:at])
            at += 1
            if at < len(body) and body[at].word in ("all", "distinct"):
                at += 1
            start = last = at
            continue
        at += 1
    tail_at = len(body)
    if branches:
        tail_at = next((i for i in outside(body, last) if _begins(body, i, _TAIL)), len(body))
    branches.append(body[start:tail_at])
    return branches, tail_at


def _select(branch: Tokens, hidden: frozenset[str], parent: Block | None, tail: dict[str, Tokens]) -> Iterator[Block]:
    clauses = _cut(branch, _CLAUSES)
    tables: list[tuple[Name, str]] = []
    nested: list[tuple[Tokens, str]] = []
    _from(clauses.get("from", ()), hidden, tables, nested)
    block = Block(branch, clauses, tuple(tables), tuple(nested), parent, tail)
    yield block
    yield from _inside(branch[1:], hidden, block)


def _ends_query(these: Tokens, at: int) -> bool:
    """What stands behind the query of INSERT or CREATE TABLE AS: ON CONFLICT, RETURNING, WITH [NO] DATA."""
    after = these[at + 1].word if at + 1 < len(these) else None
    match these[at].word:
        case "returning":
            return True
        case "on":
            return after == "conflict"
        case "with":
            return after in ("data", "no")
    return False


def _inside(these: Tokens, hidden: frozenset[str], parent: Block | None) -> Iterator[Block]:
    """Queries in parentheses, at any depth of expressions."""
    at = 0
    while at < len(these):
        if these[at].kind is Kind.OPEN:
            close = closing(these, at)
            inner = these[at + 1 : close]
            if is_query(inner):
                yield from _query(inner, hidden, parent)
            else:
                yield from _inside(inner, hidden, parent)
            at = close + 1
        elif these[at].word == "select" and at and these[at - 1].kind is not Kind.DOT:  # INSERT ... SELECT, AS SELECT
            yield from _query(these[at:], hidden, parent)
            return
        else:
            at += 1


def is_query(inner: Tokens) -> bool:
    first = next((token for token in inner if token.kind is not Kind.OPEN), None)
    return first is not None and first.word in ("select", "with", "values", "table")


def _from(
    these: Tokens, hidden: frozenset[str], found: list[tuple[Name, str]], nested: list[tuple[Tokens, str]]
) -> None:
    """The relations that a FROM clause reads itself, joins in parentheses included, and the queries in it."""
    expecting = True
    at = 0
    while at < len(these):
        token = these[at]
        if token.kind is Kind.COMMA or token.word == "join":
            expecting = True
            at += 1
        elif token.kind is Kind.OPEN:
            close = closing(these, at)
            inner = these[at + 1 : close]
            if expecting and not is_query(inner):
                _from(inner, hidden, found, nested)
            elif expecting and not (at and these[at - 1].word == "lateral"):
                nested.append((inner, _alias(these[close + 1 :]) or ""))
            expecting = False
            at = close + 1
        elif expecting and token.word in ("only", "lateral"):
            at += 1
        elif expecting and token.name is not None:
            name, used = _table_name(these[at:])
            at += used
            function = at < len(these) and these[at].kind is Kind.OPEN
            if name is not None and not function and not (name[0] is None and name[1] in hidden):
                found.append((name, _alias(these[at:]) or name[1]))
            expecting = False
        else:
            at += 1


def _table_name(these: Tokens) -> tuple[Name | None, int]:
    parts = [these[0].name] if these else []
    at = 1
    while at + 1 < len(these) and these[at].kind is Kind.DOT and these[at + 1].name is not None:
        parts.append(these[at + 1].name)
        at += 2
    match parts:
        case [str(name)]:
            return (None, name), at
        case [*_, str(schema), str(name)]:
            return (schema, name), at
    return None, max(at, 1)


def _alias(these: Tokens) -> str | None:
    at = 0
    if these and these[0].kind is Kind.SIGN and these[0].text == "*":
        at = 1
    if at < len(these) and these[at].word == "as":
        return these[at + 1].name if at + 1 < len(these) else None
    if at < len(these) and these[at].name is not None and these[at].word not in _JOINS | {"tablesample"}:
        return these[at].name
    return None


# -- places ---------------------------------------------------------------------------------------------------------


def closing(these: Sequence[Token], at: int) -> int:
    """The index of the bracket that closes the one at ``at``."""
    depth = 0
    for i in range(at, len(these)):
        if these[i].kind is Kind.OPEN:
            depth += 1
        elif these[i].kind is Kind.CLOSE:
            depth -= 1
            if depth == 0:
                return i
    raise SyntaxNotRead("a parenthesis is not closed", position=these[at].start + 1)


def outside(these: Tokens, at: int = 0) -> Iterator[int]:
    """The indices of the tokens outside parentheses, from ``at`` on."""
    while at < len(these):
        if these[at].kind is Kind.OPEN:
            at = closing(these, at) + 1
        else:
            yield at
            at += 1


def _begins(these: Tokens, at: int, clauses: Sequence[str]) -> bool:
    """Whether a clause begins here, and not IS DISTINCT FROM, WITHIN GROUP or a name behind a dot."""
    word = these[at].word
    if word not in clauses:
        return False
    before = these[at - 1] if at else None
    if before is None:
        return True
    if before.kind is Kind.DOT or before.word == "as":
        return False
    if word == "from":
        return before.word != "distinct" or at < 2 or these[at - 2].word not in ("is", "not")
    if word == "group":
        return before.word != "within"
    return True


def _cut(these: Tokens, clauses: Sequence[str]) -> dict[str, Tokens]:
    """The tokens by clause; what stands before the first one is the clause that the first token names (or '')."""
    starts = [i for i in outside(these) if _begins(these, i, clauses)]
    parts: dict[str, Tokens] = {}
    first = these[: starts[0]] if starts else these
    if first and first[0].word == "select":
        parts["select"] = first[1:]
    for start, stop in pairwise([*starts, len(these)]):
        word = these[start].word or ""
        skip = 2 if word in ("group", "order") and start + 1 < stop and these[start + 1].word == "by" else 1
        parts[word] = these[start + skip : stop]
    return parts


def items(these: Tokens) -> list[Tokens]:
    """The parts between commas at this level."""
    found: list[Tokens] = []
    start = 0
    for i in outside(these):
        if these[i].kind is Kind.COMMA:
            found.append(these[start:i])
            start = i + 1
    if these[start:] or found:
        found.append(these[start:])
    return found
