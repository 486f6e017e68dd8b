"""A question with its keys in canonical order, so that two spellings share one layout of cells and so one stored
answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mechanisms.condition import And, Condition, Leaf, Or
from sqlrewrite.normal import Fingerprint
from sqlrewrite.question import Atom, KeyThreshold, Question


def canonical(question: Question, print_: Fingerprint) -> tuple[Question, Mapping[int, int]]:
    """The same question with sorted keys and grouping sets, and where each key of the text went."""
    places = {old: new for new, old in enumerate(print_.key_order)}
    return (
        replace(
            question,
            keys=tuple(question.keys[old] for old in print_.key_order),
            sets=tuple(sorted(tuple(sorted(places[key] for key in keys)) for keys in question.sets)),
            having=None if question.having is None else _moved(question.having, places),
        ),
        places,
    )


def _moved(condition: Condition[Atom], places: Mapping[int, int]) -> Condition[Atom]:
    match condition:
        case Leaf(atom):
            if isinstance(atom.threshold, KeyThreshold):
                return Leaf(replace(atom, threshold=replace(atom.threshold, key=places[atom.threshold.key])))
            return condition
        case And(parts):
            return And(tuple(_moved(part, places) for part in parts))
        case Or(parts):
            return Or(tuple(_moved(part, places) for part in parts))
