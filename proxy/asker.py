"""Who asks, what makes two of their questions the same, and what they are told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from provenance.synopses import Sameness
from proxy.plan import Plan
from proxy.rows import Rendered
from sqlrewrite.question import Literal

Again: TypeAlias = Callable[[Sequence[Literal]], Awaitable[Rendered | None]]
"""The same statement again, with these constants: what it shows now, or None where that is not known any more. It
begins one look at how things stand, which whoever waits sees the end of, and asks the shadow nothing."""


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks."""

    name: str


@dataclass(frozen=True, slots=True)
class Answered:
    """The arrays that the prepared finishing statement takes, and what each question cost."""

    arrays: tuple[str, ...]
    notices: tuple[tuple[str, str], ...]  # (message, bill as JSON), one for each question
    again: Again | None = None  # if it was free, and is shown as it was released
    open: bool = False  # ``again`` takes the constants of the text
    weight: int = 0  # of what ``again`` holds


def sameness(asker: Asker, each: Plan) -> Sameness:
    """What an answer is stored under: the question, the data, the noise, and how far a decision leans."""
    ways = [f"{share.noise}{share.grid}+{0 if share.beta is None else share.shift}" for share in each.paid]
    way = "/".join([each.staged.way, *ways] if each.staged is not None else ways)
    relation = each.question.relation
    return Sameness(asker.name, relation.id, relation.data_version, each.digest, way)
