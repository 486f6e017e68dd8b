"""Which SELECTs of a statement are questions, and which only pick columns and rows for the question around them.

BI tools ask ``SELECT city, count(*) FROM (SELECT city, amount FROM orders WHERE ...) t GROUP BY city``. The inner one
shows nothing by itself: it is read as a part of the outer one's FROM (``sqlrewrite.derived``), to any depth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from sqlrewrite.blocks import Block, Name, Outline, Tokens, items
from sqlrewrite.calls import AGGREGATES
from sqlrewrite.errors import NotAnswered
from sqlrewrite.lex import Kind
from sqlrewrite.outputs import bare, outer_name, output

_PICKS: Final = frozenset(("select", "from", "where", "order"))


def questions(outline: Outline, is_protected: Callable[[Name], bool]) -> list[Block]:
    """The SELECTs that are asked about protected rows; one inside another is refused.

    A SELECT that reads a protected relation and only picks among its columns and rows belongs to the SELECT in whose
    FROM it stands.
    """
    found: list[Block] = []
    for block in outline.blocks:
        if any(is_protected(name) for name, _ in block.tables):
            while (around := _around(block)) is not None:
                block = around
            if block not in found:
                found.append(block)
    for block in found:
        outer = block.parent
        while outer is not None:
            if outer in found:
                raise NotAnswered(
                    "a question inside another question is not answered",
                    hint="Ask the inner one first, or join a public table.",
                    position=block.start + 1,
                )
            outer = outer.parent
    return sorted(found, key=outline.blocks.index)


def columns(
    outline: Outline, block: Block, named: Callable[[Name], frozenset[str] | None]
) -> Mapping[str, frozenset[str]]:
    """The columns that a FROM gives, by alias; ``named`` are those of a relation."""
    found = {alias: known for name, alias in block.tables if (known := named(name)) is not None}
    for query, alias in block.nested:
        inner = next((each for each in outline.blocks if each.parent is block and each.tokens == bare(query)), None)
        if inner is not None:
            below = columns(outline, inner, named)
            found[alias] = frozenset(name for item in items(inner.clause("select")) for name in _outputs(item, below))
    return found


def _around(block: Block) -> Block | None:
    """The SELECT that a picking one belongs to."""
    outer = block.parent
    if outer is None or not _picks(block):
        return None
    return outer if any(bare(query) == block.tokens for query, _ in outer.nested) else None


def _picks(block: Block) -> bool:
    """Whether a SELECT has as many rows as its WHERE keeps, each made from one row of its FROM."""
    selected = block.clause("select")
    if block.tail or not block.clauses.keys() <= _PICKS or (selected and selected[0].word == "distinct"):
        return False
    return not any(
        token.word in ("over", "into")
        or (token.word in AGGREGATES and place + 1 < len(selected) and selected[place + 1].kind is Kind.OPEN)
        for place, token in enumerate(selected)
    )


def _outputs(item: Tokens, below: Mapping[str, frozenset[str]]) -> frozenset[str]:
    expression, alias = output(item)
    if alias is None and expression[-1].text == "*":
        several = below.values() if len(expression) == 1 else [below.get(expression[0].name or "", frozenset())]
        return frozenset(name for names in several for name in names)
    return frozenset((alias if alias is not None else outer_name(expression),))
