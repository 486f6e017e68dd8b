"""A question's SELECT cut into the fragments that are read, and the text around them that is kept.

The select list, ORDER BY and WINDOW stay the analyst's own text; only the group keys and the aggregate calls in them
are replaced by columns of the released relation (``Slot``). So ``round(100.0 * sum(x) / sum(sum(x)) OVER (), 1)`` needs
no parser here: PostgreSQL computes it over released numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, product
from typing import Final, TypeAlias

from sqlrewrite.blocks import Block, Tokens, closing, is_query, items
from sqlrewrite.calls import AGGREGATES, bound_call, call_end, is_aggregate, no_aggregate
from sqlrewrite.clauses import Clauses, Fragment
from sqlrewrite.errors import NotAnswered, SyntaxNotRead, TooComplex, WouldShowRows
from sqlrewrite.lex import Kind, Token, tokens
from sqlrewrite.outputs import bare, outer_name, output
from sqlrewrite.question import Bound

MAX_SETS: Final = 64
MAX_KEYS: Final = 64
ASK_FOR_COUNTS: Final = "ask for counts: SELECT key, count(*) FROM table GROUP BY key"
_NOT_IN_WITH: Final = "rows are picked in FROM, not in WITH: SELECT key, count(*) FROM (SELECT ...) t GROUP BY key"

_OPERATORS: Final = frozenset(("and", "or", "not", "is", "in", "like", "ilike", "between", "collate", "at", "similar"))


@dataclass(frozen=True, slots=True)
class KeySlot:
    index: int


@dataclass(frozen=True, slots=True)
class AggregateSlot:
    index: int


@dataclass(frozen=True, slots=True)
class GroupingSlot:
    """GROUPING(keys): which of them are rolled up."""

    keys: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BoundSlot:
    """veil.low(aggregate) and kin: what is known of its noise."""

    index: int
    bound: Bound


Slot: TypeAlias = KeySlot | AggregateSlot | GroupingSlot | BoundSlot
Template: TypeAlias = tuple[str | Slot, ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """A question's fragments, and the SELECT that is left when they are answered: ``head`` FROM released ``rest``."""

    block: Block
    clauses: Clauses
    head: Template
    rest: Template
    distinct_keys: bool  # SELECT DISTINCT keys: no aggregate at all


class _Scissors:
    """Keys and aggregates found so far in one block."""

    def __init__(self, text: str, tables: Mapping[str, frozenset[str]]) -> None:
        self.text = text
        self.aliases = frozenset(tables)
        self.columns = frozenset(column for columns in tables.values() for column in columns)
        held = Counter(column for columns in tables.values() for column in columns)
        self.ambiguous = frozenset(column for column, times in held.items() if times > 1)
        self.keys: list[Tokens] = []
        self.key_forms: list[tuple[str, ...]] = []
        self.key_starts: set[str] = set()
        self.aggregates: list[Fragment] = []
        self.aggregate_forms: list[tuple[str, ...]] = []

    def fragment(self, these: Tokens) -> Fragment:
        return Fragment(self.text[these[0].start : these[-1].stop], these[0].start)

    def form(self, these: Tokens) -> tuple[str, ...]:
        """The same for two spellings of one expression: names folded, qualifiers left out where they add nothing."""
        return tuple(token.form for token, _ in self._unqualified(these))

    def _unqualified(self, these: Tokens) -> Iterator[tuple[Token, int]]:
        """Tokens with their index, ``alias.`` left out."""
        at = 0
        while at < len(these):
            if (
                these[at].name in self.aliases
                and at + 2 < len(these)
                and these[at + 1].kind is Kind.DOT
                and these[at + 2].name not in self.ambiguous
                and (at == 0 or these[at - 1].kind is not Kind.DOT)
            ):
                at += 2
                continue
            yield these[at], at
            at += 1

    def key(self, these: Tokens) -> int:
        these = bare(these)
        form = self.form(these)
        if form not in self.key_forms:
            if len(self.keys) == MAX_KEYS:
                raise TooComplex(f"more than {MAX_KEYS} group keys", hint="Group by fewer of them.")
            self.keys.append(these)
            self.key_forms.append(form)
            self.key_starts.add(form[0])
        return self.key_forms.index(form)

    def aggregate(self, these: Tokens) -> int:
        form = self.form(these)
        if form not in self.aggregate_forms:
            self.aggregates.append(self.fragment(these))
            self.aggregate_forms.append(form)
        return self.aggregate_forms.index(form)

    def slots(self, these: Tokens) -> list[tuple[int, int, Slot]]:
        """(start, stop, slot) in these tokens' indices, from left to right."""
        found: list[tuple[int, int, Slot]] = []
        at = inner = 0
        while at < len(these):
            if these[at].kind is Kind.OPEN and at >= inner and is_query(these[at + 1 : closing(these, at)]):
                inner = closing(these, at)  # the aggregates of a subquery are its own
            step = self._slot(these, at, at < inner)
            if step is None:
                at += 1
                continue
            stop, slot = step
            found.append((at, stop, slot))
            at = stop
        return found

    def _slot(self, these: Tokens, at: int, below: bool) -> tuple[int, Slot] | None:
        token = these[at]
        behind = at + 1 < len(these) and these[at + 1].kind is Kind.OPEN
        after_dot = at > 0 and these[at - 1].kind is Kind.DOT
        if behind and token.word == "grouping" and not after_dot:
            close = closing(these, at + 1)
            wanted = tuple(self.key(item) for item in items(these[at + 2 : close]))
            return close + 1, GroupingSlot(wanted)
        bound = bound_call(these, at) if token.name == "veil" else None
        if bound is not None and not below:
            close = closing(these, at + 3)
            inside = bare(these[at + 4 : close])
            if not is_aggregate(inside):
                raise no_aggregate(bound, token.start + 1)
            return close + 1, BoundSlot(self.aggregate(inside), bound)
        if behind and token.word in AGGREGATES and not after_dot and not below:
            stop = call_end(these, at)
            if stop < len(these) and these[stop].word == "over":
                return None  # a window function: what is inside it may be an aggregate
            return stop, AggregateSlot(self.aggregate(these[at:stop]))
        if below and not (token.name in self.aliases and at + 1 < len(these) and these[at + 1].kind is Kind.DOT):
            return None  # a bare name in a subquery is one of its own columns
        return self._key_slot(these, at, after_dot)

    def _key_slot(self, these: Tokens, at: int, after_dot: bool) -> tuple[int, Slot] | None:
        if after_dot and not (at >= 2 and these[at - 2].name in self.aliases):
            return None
        if these[at].form not in self.key_starts and these[at].name not in self.aliases:
            return None  # most tokens: a text may have thousands
        longest: tuple[int, int] | None = None
        most = max(map(len, self.key_forms), default=0)
        rest = list(islice(self._unqualified(these[at : at + 3 * most]), most))  # alias.name is three tokens for one
        for index, form in enumerate(self.key_forms):
            if len(rest) < len(form) or tuple(token.form for token, _ in rest[: len(form)]) != form:
                continue
            stop = at + rest[len(form) - 1][1] + 1
            if len(form) == 1 and stop < len(these) and these[stop].kind in (Kind.OPEN, Kind.DOT):
                continue  # a function or a qualifier of that name
            if longest is None or len(form) > longest[0]:
                longest = (len(form), index)
                end = stop
        if longest is None:
            return None
        self._stands_alone(these, at, end, longest[1])
        return end, KeySlot(longest[1])

    def _stands_alone(self, these: Tokens, at: int, stop: int, index: int) -> None:
        """With keys a and a / 10, ``2 * a / 10`` has no a / 10 in it: operators beside such a key are refused."""
        form = self.key_forms[index]
        inner = (key for place, key in enumerate(self.key_forms) if place != index and len(key) < len(form))
        if not any(form[i : i + len(key)] == key for key in inner for i in range(len(form))):
            return
        for beside in (*these[max(0, at - 1) : at], *these[stop : stop + 1]):
            if beside.kind is Kind.SIGN or beside.word in _OPERATORS:
                raise NotAnswered(
                    "it is not clear whether a group key or a part of it stands here",
                    hint="Write the group key in parentheses.",
                    position=these[at].start + 1,
                )

    def template(self, these: Tokens) -> Template:
        """The text of these tokens with its slots taken out."""
        if not these:
            return ()
        pieces: list[str | Slot] = []
        at = these[0].start
        for start, stop, slot in self.slots(these):
            pieces += [self.text[at : these[start].start], slot]
            at = these[stop - 1].stop
        pieces.append(self.text[at : these[-1].stop])
        return tuple(pieces)


def _begins_with(text: str) -> bool:
    """Whether common table expressions lead the statement."""
    these = tokens(text)
    return bool(these) and these[0].word == "with"


def cut(text: str, block: Block, tables: Mapping[str, frozenset[str]]) -> Cut:
    """Take a question apart; ``tables`` are the columns of each relation in its FROM, by alias."""
    if "table" in block.clauses:
        raise WouldShowRows("TABLE would show private rows", hint=ASK_FOR_COUNTS, position=block.start + 1)
    if "for" in block.clauses:
        raise NotAnswered(
            "FOR UPDATE or FOR SHARE is not answered about protected rows",
            hint="Leave it out.",
            position=block.clauses["for"][0].start + 1 if block.clauses["for"] else None,
        )
    scissors = _Scissors(text, tables)
    quantifier, on, selected = _quantifier(block.clause("select"))
    outputs = [output(item) for item in items(selected)]
    if not outputs:
        raise NotAnswered("the select list is empty", hint=ASK_FOR_COUNTS, position=block.start + 1)
    for token in selected:
        if token.word == "into":
            raise NotAnswered(
                "SELECT INTO is not answered about protected rows",
                hint="write CREATE TEMP TABLE name AS SELECT ...",
                position=token.start + 1,
            )
    for expression, _ in outputs:
        _no_star(expression)
    sets = _group_by(block.clause("group"), outputs, scissors) if "group" in block.clauses else ((),)
    parts = [scissors.slots(expression) for expression, _ in outputs]
    order = [scissors.slots(item) for item in items(block.clause("order"))]
    window = scissors.slots(block.clause("window"))
    asks = bool(scissors.aggregates) or "having" in block.clauses or "group" in block.clauses
    distinct_keys = not asks and quantifier == "DISTINCT " and not on
    if distinct_keys:
        sets = (tuple(dict.fromkeys(scissors.key(expression) for expression, _ in outputs)),)
        parts = [scissors.slots(expression) for expression, _ in outputs]
    elif not asks:
        raise WouldShowRows(
            "the statement would show private rows one by one",
            hint=_NOT_IN_WITH if _begins_with(text) else ASK_FOR_COUNTS,
            position=outputs[0][0][0].start + 1,
        )
    del parts, order, window  # they were read for the aggregates in them; the templates read them again
    clauses = Clauses(
        from_=scissors.fragment(block.clause("from")),
        where=scissors.fragment(block.clause("where")) if block.clause("where") else None,
        keys=tuple(scissors.fragment(key) for key in scissors.keys),
        sets=sets,
        having=scissors.fragment(block.clause("having")) if block.clause("having") else None,
        aggregates=tuple(scissors.aggregates),
    )
    head: list[str | Slot] = [f"SELECT {quantifier}"]
    if on:
        head += ["ON (", *scissors.template(on), ") "]
    for place, (expression, alias) in enumerate(outputs):
        head += [", " if place else "", *scissors.template(expression)]
        name = alias if alias is not None else _natural_name(expression, scissors)
        if name is not None:
            head.append(f' AS "{name.replace(chr(34), chr(34) * 2)}"')
    names = {alias or _natural_name(e, scissors) or outer_name(e) for e, alias in outputs}
    return Cut(block, clauses, tuple(head), tuple(_rest(block, names, scissors)), distinct_keys)


def _rest(block: Block, names: set[str], scissors: _Scissors) -> Iterator[str | Slot]:
    """WINDOW, ORDER BY, LIMIT and their kin, over released numbers."""
    if "window" in block.clauses:
        yield " WINDOW "
        yield from scissors.template(block.clause("window"))
    if "order" in block.clauses:
        yield " ORDER BY "
        for place, item in enumerate(items(block.clause("order"))):
            yield ", " if place else ""
            # PostgreSQL takes a bare name for an output column first.
            if item and item[0].name in names and (len(item) == 1 or item[1].word in ("asc", "desc", "nulls")):
                yield scissors.text[item[0].start : item[-1].stop]
            else:
                yield from scissors.template(item)
    for word in ("limit", "offset", "fetch"):
        these = block.clause(word)
        if word in block.clauses:
            yield f" {word.upper()} " + (scissors.text[these[0].start : these[-1].stop] if these else "")


# -- the select list --------------------------------------------------------------------------------------------------


def _quantifier(these: Tokens) -> tuple[str, Tokens, Tokens]:
    if these and these[0].word == "all":
        return "", (), these[1:]
    if these and these[0].word == "distinct":
        if len(these) > 2 and these[1].word == "on" and these[2].kind is Kind.OPEN:
            close = closing(these, 2)
            return "DISTINCT ", these[3:close], these[close + 1 :]
        return "DISTINCT ", (), these[1:]
    return "", (), these


def _no_star(expression: Tokens) -> None:
    last = expression[-1]
    if last.kind is Kind.SIGN and last.text == "*" and (len(expression) == 1 or expression[-2].kind is Kind.DOT):
        raise WouldShowRows("SELECT * would show private rows", hint=ASK_FOR_COUNTS, position=expression[0].start + 1)


def _natural_name(expression: Tokens, scissors: _Scissors) -> str | None:
    """The name that PostgreSQL gives to an output that is one slot (perhaps cast), which the slot's column would
    lose.
    """
    found = scissors.slots(expression)
    if not found or found[0][0] != 0 or not _only_casts(expression[found[0][1] :]):
        inner = bare(expression)
        if len(inner) < len(expression):
            return _natural_name(inner, scissors)
        return None
    _, stop, slot = found[0]
    if isinstance(slot, KeySlot):
        return outer_name(expression[:stop])
    return slot.bound.value if isinstance(slot, BoundSlot) else expression[0].word


def _only_casts(these: Tokens) -> bool:
    return not these or (len(these) > 2 and these[0].text == ":" and these[1].text == ":")


# -- GROUP BY ---------------------------------------------------------------------------------------------------------


def _group_by(
    these: Tokens, outputs: Sequence[tuple[Tokens, str | None]], scissors: _Scissors
) -> tuple[tuple[int, ...], ...]:
    if these and these[0].word in ("all", "distinct"):
        raise NotAnswered(
            f"GROUP BY {these[0].text.upper()} is not answered", hint="Name the keys.", position=these[0].start + 1
        )
    sets: list[tuple[int, ...]] = [()]
    for item in items(these):
        if not item:
            raise SyntaxNotRead("GROUP BY has an empty item")
        sets = [(*left, *right) for left, right in product(sets, _element(item, outputs, scissors))]
        if len(sets) > MAX_SETS:
            raise TooComplex(f"more than {MAX_SETS} grouping sets", hint="Ask for fewer of them.")
    return tuple(tuple(dict.fromkeys(keys)) for keys in sets)


def _element(item: Tokens, outputs: Sequence[tuple[Tokens, str | None]], scissors: _Scissors) -> list[tuple[int, ...]]:
    """The grouping sets of one item of GROUP BY."""
    if item[0].word in ("rollup", "cube") and len(item) > 1 and item[1].kind is Kind.OPEN:
        parts = [_plain(part, outputs, scissors) for part in items(item[2 : closing(item, 1)])]
        if item[0].word == "rollup":
            return [tuple(k for part in parts[:size] for k in part) for size in range(len(parts), -1, -1)]
        if len(parts) > 6:
            raise TooComplex(f"CUBE of {len(parts)} keys", hint="Use GROUPING SETS with the sets that you need.")
        chosen = (some for size in range(len(parts), -1, -1) for some in combinations(parts, size))
        return [tuple(k for part in some for k in part) for some in chosen]
    if item[0].word == "grouping" and len(item) > 2 and item[1].word == "sets":
        inner = items(item[3 : closing(item, 2)])
        return [one for part in inner for one in _element(part, outputs, scissors)]
    return [_plain(item, outputs, scissors)]


def _plain(item: Tokens, outputs: Sequence[tuple[Tokens, str | None]], scissors: _Scissors) -> tuple[int, ...]:
    """One expression, or several in parentheses that group together."""
    if item and item[0].kind is Kind.OPEN and closing(item, 0) == len(item) - 1:
        return tuple(k for part in items(item[1:-1]) for k in _plain(part, outputs, scissors))
    if len(item) == 1 and item[0].kind is Kind.NUMBER:
        place = int(item[0].text) if item[0].text.isdigit() else 0
        if not 1 <= place <= len(outputs):
            raise SyntaxNotRead(
                f"GROUP BY position {item[0].text} is not in the select list", position=item[0].start + 1
            )
        item = outputs[place - 1][0]
    elif len(item) == 1 and item[0].name is not None and item[0].name not in scissors.columns:
        named = [expression for expression, alias in outputs if alias == item[0].name]
        item = named[0] if named else item
    return (scissors.key(item),)
