"""What a released view is a picture of: what is added up, over which rows, told apart by which values.

Answers can be put together only if they add up the same thing and each row counts in them once and in full. That is so
for a row unit. A person's rows are bounded in each question by itself: such numbers are not added up, and only those of
questions with the same bounds and keys stand for each other. Only questions about one table whose conditions have a
form as a region, grouped by columns of it, have a shape.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from provenance.reach import exact_region, key_extents
from provenance.region import Region
from sqlrewrite.cells import Cells
from sqlrewrite.normal import measure_form
from sqlrewrite.question import Question

MOST_CELLS = 2_000
"""Of more cells a shape is not kept."""


@dataclass(frozen=True, slots=True)
class Shape:
    """``summed`` names what is added up; ``cells`` are the regions of the view's numbers, one after the other."""

    summed: str
    cells: tuple[Region, ...]

    @property
    def text(self) -> str:
        """As it is stored: what all cells share stands once, and then what each has beside it."""
        shared = dict(self.cells[0].sides)
        for cell in self.cells[1:]:
            shared = {name: extent for name, extent in shared.items() if cell.on(name) == extent}
        alone = [Region(tuple(side for side in cell.sides if side[0] not in shared)).text for cell in self.cells]
        return json.dumps([Region.of(shared).text, alone], separators=(",", ":"))

    @classmethod
    def parse(cls, summed: str, text: str) -> Shape:
        """The shape that has this text."""
        shared, alone = json.loads(text)
        around = Region.parse(shared)
        return cls(summed, tuple(Region((*around.sides, *Region.parse(each).sides)) for each in alone))


def shape_of(question: Question, statistic: int, cells: Cells, most: int = MOST_CELLS) -> Shape | None:
    """The shape of one statistic over the cells of a question; None where it has none.

    *Guarantee*: a row adds to the exact number of a cell what ``summed`` says, if it lies in the cell's region, and
    nothing otherwise; for a person unit, as far as the bounds on persons let it.
    """
    terms = question.statistics[statistic].terms
    if len(terms) != 1 or terms[0][1] != 1 or question.having is not None:
        return None
    if len(cells.blocks) != 1 or not 0 < cells.size <= most:
        return None
    around = exact_region(question, statistic)
    keys = key_extents(question, cells)
    if around is None or len(keys) != len(question.keys):
        return None
    regions = [around] * cells.size
    for name, extents in keys:
        sides = [Region.of({name: extent}) for extent in extents if extent is not None]
        if len(sides) != cells.size:
            return None
        regions = [region.intersection(side) for region, side in zip(regions, sides, strict=True)]
    form = measure_form(replace(question.measures[terms[0][0]], filter=None))
    unit = question.unit
    if unit.column is not None:
        persons = sorted(column.name for column in unit.column)
        form = [*form, persons, unit.max_groups, unit.max_rows, sorted(name for name, _ in keys)]
    return Shape(_digest(form), tuple(regions))


def _digest(form: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(form).encode()).hexdigest()
