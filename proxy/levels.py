"""What the groups of a decision have lost, as parts of its region: each group bears its own level in the till."""

from __future__ import annotations

from decimal import Decimal

from provenance.extent import Members
from provenance.model import PredicateLoss
from provenance.reach import key_extents, reach, separating
from provenance.region import Part, Region
from sqlrewrite.cells import Cells
from sqlrewrite.question import Question

_MOST = 4
"""Parts of one decision: beyond, levels are rounded up to the next one that is kept."""
_MOST_GROUPS = 2000


def levels(question: Question, cells: Cells, touched: int, groups: PredicateLoss) -> list[Part]:
    """Disjoint parts of the question's region with what a unit in each of them has lost; none: all lost the same.

    For questions about rows that are grouped by one column: a row lies in one group (a unit touches one cell), and one
    in no group of the domain has lost nothing.

    *Guarantee*: no unit has lost more than the level of the part that it lies in.
    """
    if cells.size > _MOST_GROUPS or len(set(groups.levels)) < 2 or groups.groups != cells.size:
        return []
    if question.unit.column is not None or touched != 1 or len(cells.blocks) != 1:
        return []
    keys = key_extents(question, cells)
    if len(question.keys) != 1 or len(keys) != 1 or keys[0][0] not in separating(question):
        return []
    name, extents = keys[0]
    around, kept = reach(question), _kept(groups)
    members: dict[Decimal, set[object]] = {level: set() for level in kept}
    for place, extent in zip(groups.index.tolist(), extents, strict=True):
        if extent is None:
            return []
        lost = groups.levels[place]
        members[min(level for level in kept if level >= lost)] |= extent.values
    parts = [
        (around.intersection(Region.of({name: Members(frozenset(values))})), level)  # type: ignore[arg-type]
        for level, values in members.items()
        if values
    ]
    if any(region.intersection(around) != region for region, _ in parts):
        return []  # a part that the books could not see to lie in the whole
    return [(region, level) for region, level in parts if not region.empty]


def _kept(groups: PredicateLoss) -> list[Decimal]:
    """The levels that are told apart: the highest of all, and of each share of the groups."""
    found = sorted(groups.levels[place] for place in groups.index.tolist())
    ends = {max(len(found) * (share + 1) // _MOST, 1) - 1 for share in range(_MOST)}
    return sorted({found[end] for end in ends})
