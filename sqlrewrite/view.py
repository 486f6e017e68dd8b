"""The view behind a number: one statistic over the cells of a question.

Questions that share a statistic over the same rows and groups share the view, whatever else they ask; what was
released for one of them is known for all.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from sqlrewrite import spelled
from sqlrewrite.normal import fingerprint, frame
from sqlrewrite.question import Question, Statistic

_LONGEST = 400


@dataclass(frozen=True, slots=True)
class View:
    """What a synopsis is of: how reports call it, and what tells it from all others."""

    dimensions: tuple[str, ...]
    measure: str
    digest: str


def view_of(question: Question, place: int, context: str) -> View:
    """The view of one statistic; ``context`` is what else the numbers depend on (settings, a listed domain).

    *Guarantee*: equal digests have the same cells in the same order and the same exact numbers on the same data: the
    rows that a unit counts with are chosen by sources, filter, keys and unit, and each measure is bounded by itself.
    """
    chosen = question.statistics[place]
    alone = _alone(question, chosen)
    digest = fingerprint(alone).digest
    return View(_dimensions(question), _named(question, spelled.statistic(question, chosen)), digest + context)


def frame_of(question: Question, place: int) -> str:
    """What the digest of a statistic's view is of, but for WHERE and context (``normal.digest``)."""
    return frame(_alone(question, question.statistics[place]))


def whole_view(question: Question) -> tuple[tuple[str, ...], str]:
    """The dimensions and the measure of a question as one view: what a decision about several statistics is of."""
    text = ", ".join(spelled.statistic(question, statistic) for statistic in question.statistics) or "keys"
    return _dimensions(question), _named(question, text)


def _dimensions(question: Question) -> tuple[str, ...]:
    return tuple(spelled.expression(key.expression) for key in question.keys)


def _named(question: Question, text: str) -> str:
    if question.where is not None:
        text += f" WHERE {spelled.predicate(question.where)}"
    if question.sets != (tuple(range(len(question.keys))),):
        text += f" GROUPING SETS {question.sets}"
    if len(question.sources) > 1:
        text += " WITH " + ", ".join(source.relation.qualified for source in question.sources[1:])
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... {hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _alone(question: Question, chosen: Statistic) -> Question:
    """The question that asks for this statistic only."""
    used = [place for place, _ in chosen.terms]
    places = {old: new for new, old in enumerate(used)}
    terms = tuple((places[old], factor) for old, factor in chosen.terms)
    return replace(
        question,
        measures=tuple(question.measures[old] for old in used),
        statistics=(replace(chosen, terms=terms),),
        having=None,
        columns=(),
    )
