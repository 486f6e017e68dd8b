"""The fragments of one question, as ``sqlrewrite.cut`` finds them and ``sqlrewrite.read`` reads them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece of the analyst's text; ``start`` is its 0-based place in the statement."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Clauses:
    """A question's SELECT in pieces; ordinals and output names in GROUP BY have been resolved."""

    from_: Fragment
    where: Fragment | None
    keys: tuple[Fragment, ...]
    sets: tuple[tuple[int, ...], ...]  # indices into keys
    having: Fragment | None
    aggregates: tuple[Fragment, ...]  # distinct aggregate calls outside HAVING
