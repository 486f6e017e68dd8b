"""Questions that were not looked at while ``cert`` was made: other shapes, aggregates and selectivities.

``cert`` was made with the other cells of the bench in sight, so its gain there may be a gain on those cells only. The
data sets and the aggregates are the same here; which of them are asked together, in which tree and at which
thresholds is not. The choice is by rule, made before any of them was run, and nothing was changed after.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from bench.decision import measures, told
from bench.decision.cells import Cell, cell, shapes
from bench.decision.compare import Result, broken, denials
from bench.decision.pool import Pool
from bench.decision.runs import Task
from bench.decision.workloads import Workload
from bench.rig.report import Table, machine

WAYS = (*measures.RIVALS, "cert")
SELECTIVITIES = (0.007, 0.015, 0.03, 0.07)  # between those of the other cells
_EVERY, _PLACES = 7, (3, 5)  # of the shapes of a workload; the other cells take place 0
_SINGLE = 2  # questions of one sub-query for each workload


def cells(known: Sequence[Workload], taken: Collection[str]) -> Iterator[Cell]:
    """Questions whose names are not among those that are taken."""
    turns: dict[int, Iterator[int]] = {}
    names = set(taken)
    for workload, n, kind in _asked(known):
        turn = next(turns.setdefault(n, itertools.count(n + 1)))
        found = cell(workload, n, kind, SELECTIVITIES[turn % len(SELECTIVITIES)], turn)
        if found is not None and found.name not in names:
            names.add(found.name)
            yield found


def _asked(known: Sequence[Workload]) -> Iterator[tuple[Workload, int, str]]:
    for place, workload in enumerate(known):
        for number, (n, kind) in enumerate(shapes(workload)):
            if n == 1:
                yield from [(workload, n, kind)] * _SINGLE
            elif (number + place) % _EVERY in _PLACES:
                yield workload, n, kind


def results(pool: Pool, asked: Sequence[Cell], runs: int) -> list[Result]:
    """The papers' mechanisms and ours on each."""
    outcomes = pool.run([Task(cell, WAYS, runs) for cell in asked], "decisions: held out")
    return [Result(cell, ways, {}) for cell, ways in zip(asked, outcomes, strict=True)]


def tables(found: Sequence[Result]) -> list[Table]:
    """As they are told of the other cells."""
    title = "Held out: questions not looked at while cert was made"
    return [measures.table(told.cells(found), title), told.ways(found, title)]


def numbers(found: Sequence[Result], runs: int) -> dict[str, Any]:
    """What was measured, with when and where, since this part can be run by itself."""
    asked = told.cells(found)
    return {
        "runs": runs,
        "day": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "measures": measures.numbers(asked),
        "denials": {way: denials(found, way, lambda _: True) for way in WAYS},
        "cells above alpha and above beta": {way: broken(found, way) for way in WAYS},
        "cells": asked,
    }


def note(held: dict[str, Any]) -> str:
    """Which part was run when."""
    return (
        f"held out: {len(held['cells'])} questions not looked at while cert was made, {held['runs']} runs of"
        f" {', '.join(WAYS)}, run on {held['day']}; the same data sets and aggregates as the other cells."
    )
