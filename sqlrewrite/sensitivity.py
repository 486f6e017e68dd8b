"""How far one privacy unit can move the measured numbers: the claim that noise and price rest on."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sqlrewrite.question import Question


@dataclass(frozen=True, slots=True)
class Contribution:
    """One unit changes at most ``groups`` cells, each by at most ``per_cell``.

    Noise is calibrated to ``per_cell``; the whole question costs ``groups`` times the loss of one cell.
    """

    per_cell: int
    groups: int


def sensitivity(question: Question) -> Contribution:
    """The bounds of a question, from the registry alone.

    *Guarantee*: ``generate`` enforces these same numbers in SQL, so they hold for every database.
    """
    relation = question.relation
    if relation.unit_column is None:
        return Contribution(per_cell=1, groups=1)
    # A person's rows agree in the columns that are constant for a person, so only the others spread them.
    spread = math.prod(len(key.keys or ()) for key in question.keys if not key.constant_per_unit)
    return Contribution(per_cell=relation.max_rows, groups=max(1, min(relation.max_groups, spread)))
