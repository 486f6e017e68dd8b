"""What right decisions cost: every mechanism on real data, beside each other and beside the papers' own experiments.

A cell is a question on one of seventeen workloads: 1 to 6 sub-queries in a conjunction, a disjunction or a mixed tree,
thresholds by z-score. Every mechanism runs many times on it; what counts is the median epsilon, what was delivered
(false negatives and positives, precision, denials), and how many such questions a ledger holds.

    probe        as printed, with the range of the values as scale
    probe_star   the same with the public scale that ``cert`` has
    cert         on the ``pure`` coin with Laplace noise, so that like is compared with like
    cert, zcdp   on the default coin with Gaussian noise

Three comparisons are told, since they say different things: at equal alpha, with equal scale, and at equal delivered
false positives (``probe`` leaves a part of alpha unused: its alpha is raised until it delivers what ``cert`` does).
What a denied run counts with decides about the worst cells: ``bench/decision/measures.py`` tells three measures of it.
Then the same for questions that were not looked at while ``cert`` was made (``bench/decision/held_out.py``).

``PGVEIL_BENCH_RUNS=40 make bench ONLY=decisions`` runs each mechanism so many times instead of 100;
``PGVEIL_BENCH_PART=held_out`` runs the held-out questions only, and keeps all else that the results hold.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from bench.decision import held_out, measures, plots, told
from bench.decision.cells import SELECTIVITIES, Cell, cell, shapes
from bench.decision.compare import Result
from bench.decision.figures import points
from bench.decision.pool import Pool
from bench.decision.runs import Task
from bench.decision.sources import missing
from bench.decision.ways import EVERY
from bench.decision.workloads import Workload, workloads
from bench.rig.report import Report


@dataclass(frozen=True, slots=True)
class Size:
    """How much is run."""

    single: int  # selectivities of a single sub-query, for each workload
    shapes: int  # every so many of the other shapes of a workload
    series: int  # the longest tree of the papers' figures against the number of sub-queries
    runs: int
    alphas: Sequence[str]  # at equal delivered rates
    alpha_runs: int
    figure_runs: int
    held_out: int  # questions at the most


FULL = Size(2, 7, 6, 100, ("0.02", "0.05", "0.1", "0.2", "0.35", "0.6"), 10, 100, 90)
SMOKE = Size(0, 40, 2, 2, ("0.1", "0.4"), 2, 2, 1)

SERIES = {"retail": "store x day", "taxi": "zone x month", "diabetes": "diagnosis x age", "flights": "dest x month"}


def run(*, smoke: bool) -> Report:
    """All cells, then the papers' figures."""
    gone = missing()
    if gone:
        return _skipped(gone, smoke)
    size = SMOKE if smoke else sized(os.environ.get("PGVEIL_BENCH_RUNS"))
    part = os.environ.get("PGVEIL_BENCH_PART", "")
    if part not in ("", "held_out"):
        raise ValueError(f"there is no part {part} of this bench; there is held_out")
    known = workloads()
    series, cells = asked(known, size)
    unseen = list(itertools.islice(held_out.cells(known, {one.name for one in cells}), size.held_out))
    if part:
        return _held_out(unseen, size, smoke)
    drawn = points(size.figure_runs, smoke)
    with Pool() as pool:
        results = _results(pool, cells, size)
        outcomes = pool.run([point.task for point in drawn], "decisions: the papers' figures")
        held = held_out.results(pool, unseen, size.runs)
    lines = results[: len(series)]
    found = told.by_figure([(p.figure, p.x, o) for p, o in zip(drawn, outcomes, strict=True)])
    apart = held_out.numbers(held, size.runs)
    return Report(
        "decisions",
        smoke,
        [*told.tables(results, found), *held_out.tables(held)],
        {"runs": size.runs, **told.numbers(results, found), "held_out": apart},
        lambda figure: plots.gain(figure, results),
        [*_notes(cells, size), *_measured(apart)],
        pictures={
            "probe_6": lambda figure: plots.by_size(figure, lines),
            "probe_7_8": lambda figure: plots.settings(figure, found),
            "probe_9_10": lambda figure: plots.entropies(figure, lines, found),
            "mide": lambda figure: plots.mide(figure, found),
        },
    )


def _held_out(unseen: Sequence[Cell], size: Size, smoke: bool) -> Report:
    """The held-out questions alone."""
    with Pool() as pool:
        found = held_out.results(pool, unseen, size.runs)
    held = held_out.numbers(found, size.runs)
    return Report(
        "decisions",
        smoke,
        held_out.tables(found),
        {},
        lambda _: None,
        _measured(held),
        amend=lambda old: amended(old, held, smoke),
    )


def amended(old: dict[str, Any], held: dict[str, Any], smoke: bool) -> dict[str, Any]:
    """The results with other held-out numbers, and with the measures of the cells that they hold already."""
    if old["smoke"] != smoke:
        raise ValueError("results of the smoke size and of the full size are not mixed")
    numbers = old["numbers"]
    comparisons = {**numbers["comparisons"], "measures": measures.numbers(numbers["cells"])}
    kept = [note for note in old["notes"] if not note.startswith(("denied runs", "a denied run", "held out"))]
    return {
        **old,
        "numbers": {**numbers, "comparisons": comparisons, "held_out": held},
        "notes": [*kept, *_measured(held)],
    }


def sized(runs: str | None) -> Size:
    """The full size, with as many runs as are wished for."""
    return FULL if not runs else replace(FULL, runs=int(runs), figure_runs=int(runs))


def asked(known: Sequence[Workload], size: Size) -> tuple[list[Cell], list[Cell]]:
    """The questions of the papers' figures against the number of sub-queries; and all, which begin with these."""
    series = [found for workload in known for found in _series(workload, size)]
    names = {one.name for one in series}
    return series, series + [one for one in _cells(known, size) if one.name not in names]


def _series(workload: Workload, size: Size) -> list[Cell]:
    """Conjunctions and mixed trees of all sizes at one selectivity, on one workload of each of four data sets."""
    if SERIES.get(workload.data) != workload.name:
        return []
    asked = [(n, kind) for n, kind in shapes(workload) if kind != "or" and n <= size.series]
    return [one for n, kind in asked if (one := cell(workload, n, kind, 0.02)) is not None]


def _cells(known: Sequence[Workload], size: Size) -> list[Cell]:
    """Some shapes of each workload, others of the next; selectivities and first aggregates go round."""
    chosen: list[tuple[Workload, int, str]] = []
    for place, workload in enumerate(known):
        for number, (n, kind) in enumerate(shapes(workload)):
            if n == 1:
                chosen += [(workload, n, kind)] * size.single
            elif (number + place) % size.shapes == 0:
                chosen.append((workload, n, kind))
    turns: dict[int, Iterator[int]] = {}  # each size goes round by itself
    found = []
    for workload, n, kind in chosen:
        turn = next(turns.setdefault(n, itertools.count(n)))
        found.append(cell(workload, n, kind, SELECTIVITIES[turn % len(SELECTIVITIES)], turn))
    return [one for one in found if one is not None]


def _results(pool: Pool, cells: Sequence[Cell], size: Size) -> list[Result]:
    main = pool.run([Task(cell, EVERY, size.runs) for cell in cells], "decisions: all cells")
    few = [cell for cell in cells if cell.n <= told.UP_TO]
    tasks = [Task(cell, told.RIVALS, size.alpha_runs, alpha=Decimal(a)) for cell in few for a in size.alphas]
    outcomes = iter(pool.run(tasks, "decisions: equal delivered false positives"))
    curves: dict[int, dict[str, dict[float, Any]]] = {}
    for one in few:
        for alpha in size.alphas:
            for way, summary in next(outcomes).items():
                curves.setdefault(id(one), {}).setdefault(way, {})[float(alpha)] = summary
    return [Result(cell, ways, curves.get(id(cell), {})) for cell, ways in zip(cells, main, strict=True)]


def _notes(cells: Sequence[Cell], size: Size) -> list[str]:
    groups = sorted(cell.values.shape[1] for cell in cells)
    return [
        f"{len(cells)} cells of {groups[0]} to {groups[-1]} groups, {size.runs} runs of each mechanism, beta 0.05,"
        f" alpha 0.1; a question may spend what a ledger of (10, 1e-9) holds (the papers stop at epsilon 5).",
        "thresholds lie at least half a standard deviation above the mean; lower ones, which decide among groups that"
        " lie close together, are not asked: they are dearer, and denied more often.",
        "tslm, naive, ppwlm and dppwlm promise no bound on false positives; probe estimates one, which can fail.",
        f"equal FPR: {size.alpha_runs} runs at each alpha of {', '.join(size.alphas)}; between them by interpolation.",
        "the floor is for a promise to each single group; alpha is promised on average, which may cost less.",
    ]


def _measured(held: dict[str, Any]) -> list[str]:
    """What is said of denied runs and of the held-out questions, whichever part was run."""
    return [
        "denied runs: measure (a), the headline, counts them with epsilon_max, since the papers state a cost only for a"
        " question that is not denied (the thesis, Theorems 5.4 to 5.6) and else claim epsilon_max-DP (ProBE, Theorem"
        " 5.1); this is our reading, taken after (c) was known, and where a rival mostly denies it is at most 1 by its"
        " making. (b) leaves out such cells. (c) counts denied runs with what they spent, which a ledger is really"
        " charged: its worst cells are above what was asked.",
        "denied runs are in every median and mean of a mechanism with what they spent; rates are of answered runs."
        " probe is as printed, to the letter: where its first phase keeps nearly every group, nothing is allowed to be"
        " false, and it denies.",
        held_out.note(held),
    ]


def _skipped(gone: Sequence[str], smoke: bool) -> Report:
    def draw(figure: Any) -> None:
        figure.text(0.5, 0.5, "skipped: the data is not there", ha="center")

    note = f"SKIPPED: the data sets are not there ({', '.join(gone)}); they are expected in ../shared/data."
    return Report("decisions", smoke, (), {"skipped": list(gone)}, draw, [note])
