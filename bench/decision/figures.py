"""The experiments of the papers, on our data: which questions, which settings.

ProBE: Fig. 7 (u of the naive mechanism; a tree and its distributed form), 8 (beta and alpha), 10 (averages), Table 3
(beta between the phases). MIDE: Fig. 5.6 to 5.8 (high, medium, low thresholds; the margin u, which it calls alpha).
ProBE's Fig. 6 and 9 are the grid of all cells by the number of sub-queries, so they need no runs of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np

from bench.decision.cells import Cell, at_z, cell
from bench.decision.groups import Groups, codes, most_frequent
from bench.decision.runs import Task
from bench.decision.sources import retail, taxi
from bench.decision.workloads import store_day, store_week_averages, zone_month
from mechanisms.condition import And, Leaf, Or
from mechanisms.decision import Test
from mechanisms.values import Lattice

PROBES = ("naive", "probe_naive", "probe", "probe_ent", "cert")
MIDES = ("tslm", "ppwlm", "dppwlm")
MARGINS = (5, 10, 15, 20, 25, 30)  # per cent of the range
BOUNDS = ("0.025", "0.05", "0.075", "0.1", "0.125", "0.15")
SPLITS = (10, 40, 50, 60, 90)  # per cent of beta for phase one
BETAS = ("0.05", "0.0005", "0.000005")
HIGHS = {"high": 1.1, "medium": 1.0, "low": 0.9}  # of the most that there was before
UNCERTAIN = (1, 5, 10, 20, 50, 100, 200)


@dataclass(frozen=True, slots=True)
class Point:
    """One place on the x axis of a figure."""

    figure: str
    x: str
    task: Task


def points(runs: int, smoke: bool) -> list[Point]:
    """Every figure; ``smoke`` takes the ends of each axis."""
    every = [*_margins(runs), *_trees(runs), *_bounds(runs), *_averages(runs), *_splits(runs), *_mide(runs)]
    if not smoke:
        return every
    names = dict.fromkeys(point.figure for point in every)
    ends = [[point for point in every if point.figure == name] for name in names]
    return [point for found in ends for point in (found[0], found[-1])]


def _margins(runs: int) -> Iterator[Point]:
    """Fig. 7 a-b: Q1 or (Q2 and Q3)."""
    asked = _grouped()
    yield Point("7 margin", "", Task(asked, PROBES[1:], runs))
    for percent in MARGINS:
        yield Point("7 margin", str(percent), Task(asked, (f"naive:margin={percent}",), runs))


def _trees(runs: int) -> Iterator[Point]:
    """Fig. 7 c-d: the same question as a tree of three and of four leaves."""
    grouped = _grouped()
    a, b, c = (Leaf(place) for place in range(3))
    distributed = replace(grouped, tree=And((Or((a, b)), Or((a, c)))))
    yield Point("7 tree", "Q_I", Task(grouped, PROBES, runs))
    yield Point("7 tree", "Q_II", Task(distributed, PROBES, runs))


def _grouped() -> Cell:
    a, b, c = (Leaf(place) for place in range(3))
    return replace(at_z(store_day(), 3, "mix", 2.0), tree=Or((a, And((b, c)))))


def _bounds(runs: int) -> Iterator[Point]:
    """Fig. 8: a disjunction of three on taxi."""
    asked = at_z(zone_month(), 3, "or", 2.0)
    for bound in BOUNDS:
        yield Point("8 beta", bound, Task(asked, PROBES, runs, beta=Decimal(bound)))
    for bound in BOUNDS:
        yield Point("8 alpha", bound, Task(asked, PROBES, runs, alpha=Decimal(bound)))


def _averages(runs: int) -> Iterator[Point]:
    """Fig. 10: a conjunction of one to six averages on retail, and the guard."""
    workload = store_week_averages()
    for averages in range(1, 1 + len(workload.averages)):
        asked = cell(workload, 1 + averages, "and", 0.02)
        if asked is not None:
            yield Point("10 averages", str(averages), Task(asked, PROBES, runs))


def _splits(runs: int) -> Iterator[Point]:
    """Table 3: a disjunction of two on taxi."""
    asked = at_z(zone_month(), 2, "or", 2.0)
    for beta in BETAS:
        for percent in SPLITS:
            task = Task(asked, (f"probe:first={percent}",), runs, beta=Decimal(beta))
            yield Point("table 3", f"{beta}, {percent} %", task)


def _mide(runs: int) -> Iterator[Point]:
    """Fig. 5.6 and 5.7 at u = 1, and 5.8 over u."""
    asked = {
        name: (values, reference)
        for name, values, reference in (("Q1", *_weeks(27, 34)), ("Q2", *_weeks(46, 53)), *_months())
    }
    for name, (values, reference) in asked.items():
        for high, factor in HIGHS.items():
            found = _against("taxi" if name in ("Q3", "Q4") else "retail", name, values, reference, factor)
            yield Point("5.6", f"{name}{high[0].upper()}", Task(found, [f"{way}:u=1" for way in MIDES], runs))
    low = _against("taxi", "Q3", *asked["Q3"], HIGHS["low"])
    for u in UNCERTAIN:
        yield Point("5.8", str(u), Task(low, [f"{way}:u={u}" for way in MIDES], runs))


def _weeks(first: int, last: int) -> tuple[Lattice, Lattice]:
    """Rows of 43 stores in some weeks, and the most that each had in one of the first 26."""
    r = retail()
    stores = codes(r.store, most_frequent(r.store, 43))
    before = Groups(stores, codes(r.week, range(1, 27))).rows().values.reshape(43, -1).max(axis=1)
    asked = Groups(stores, codes(r.week, range(first, last))).rows().values
    return asked, np.repeat(before, last - first)


def _months() -> Sequence[tuple[str, Lattice, Lattice]]:
    """Trips of 34 zones by month, before and after the lockdown of March 2020, and the most in a month of 2018."""
    t = taxi()
    zones = codes(t.zone, most_frequent(t.zone, 34))
    before = Groups(zones, codes(t.month, range(12))).rows().values.reshape(34, -1).max(axis=1)
    spans = {"Q3": range(12, 26), "Q4": range(26, 36)}
    return [
        (name, Groups(zones, codes(t.month, months)).rows().values, np.repeat(before, len(months)))
        for name, months in spans.items()
    ]


def _against(data: str, name: str, values: Lattice, reference: Lattice, factor: float) -> Cell:
    """Which groups reach their own threshold: a share of what is usual there at the most."""
    thresholds = np.maximum(1, np.rint(factor * reference)).astype(np.int64)
    test = Test(0, +1, thresholds, int(np.median(thresholds)), max(1, int(values.max() - values.min())))
    return Cell(name, data, "and", factor, values[None, :], (1,), (test,), Leaf(0))
