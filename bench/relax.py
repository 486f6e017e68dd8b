"""Answers when the budget is gone: the experiments of the paper on query relaxation, as printed and as built here.

The static database of seed 4: every answer has Laplace noise of magnitude 2,000, at most epsilon * 1,000 answers may
touch a point, and a question is a rectangle on two of four attributes. Capacity is how many questions are answered
before that limit; whatever is refused is relaxed to a compound of at most xi answers, with artificial patches where the
limit still allows them. Relax as printed runs beside ours on the same questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.decision.groups import DATA
from bench.decision.sources import ADULT
from bench.regions import plots
from bench.regions.static import (
    Tally,
    admitted,
    by_buckets,
    disjointly,
    exactly,
    most_answers,
    popularity_limit,
    serve,
)
from bench.regions.workloads import SPACE, census_rows, rectangles
from bench.rig.measure import say
from bench.rig.report import Report, Table
from provenance.region import Region

EPSILON, VOLUME, TERMS = 0.3, 0.04, 3
"""The paper's defaults (Table 2)."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is run."""

    queries: int
    buckets: Sequence[int]
    few: int  # questions of each point of a series
    epsilons: Sequence[float]
    volumes: Sequence[float]
    terms: Sequence[int]


FULL = Size(20_000, (100, 1_000, 10_000), 1_500, (0.1, 0.2, 0.3, 0.5), (0.01, 0.04, 0.16), (1, 2, 3, 5))
SMOKE = Size(200, (10, 50), 80, (0.02, 0.04), (0.16,), (3,))


def run(*, smoke: bool) -> Report:
    """Capacity, the whole workload, then the series."""
    size = SMOKE if smoke else FULL
    centres: dict[str, NDArray[np.int64] | None] = {"uniform": None}
    if (DATA / ADULT).is_file():
        centres["data"] = census_rows()
    epsilon = 0.02 if smoke else EPSILON
    progress = {name: _progress(name, rows, size, epsilon) for name, rows in centres.items()}
    whole = {name: _both(name, _drawn(rows, size.queries, VOLUME), epsilon, TERMS) for name, rows in centres.items()}
    series: dict[str, dict[str, list[Any]]] = {"xi": {}, "epsilon": {}, "volume": {}}
    for name, rows in centres.items():
        few = _drawn(rows, size.few, VOLUME)
        # Fewer questions meet a limit that is smaller in proportion: the share that is refused is as in the whole.
        share = size.few / size.queries
        series["xi"][name] = [_both(f"{name}, xi {xi}", few, epsilon * share, xi) for xi in size.terms]
        series["epsilon"][name] = [_both(f"{name}, epsilon {e}", few, e * share, TERMS) for e in size.epsilons]
        series["volume"][name] = [
            _both(f"{name}, volume {v}", _drawn(rows, size.few, v), epsilon * share, TERMS) for v in size.volumes
        ]
    told = {"xi": list(size.terms), "epsilon": list(size.epsilons), "volume": list(size.volumes)}
    capacity = {name: _capacity(rows, size) for name, rows in centres.items()}
    return Report(
        "relax",
        smoke,
        _tables(progress, whole, series, told, capacity),
        {"progress": progress, "whole": whole, "series": series, "at": told, "capacity": capacity},
        lambda figure: plots.relaxing(figure, progress, whole),
        _notes(size, "data" in centres),
        pictures={
            "capacity": lambda figure: plots.capacity(figure, capacity, told),
            "series": lambda figure: plots.series(figure, series, told),
        },
    )


def _drawn(rows: NDArray[np.int64] | None, queries: int, volume: float) -> list[Region]:
    return list(rectangles(np.random.default_rng(5), queries, volume, rows))


def _progress(name: str, rows: NDArray[np.int64] | None, size: Size, epsilon: float) -> dict[str, Any]:
    """How many of the first questions are answered, by each way of admission."""
    boxes = [box for region in _drawn(rows, size.queries, VOLUME) if (box := SPACE.box(region)) is not None]
    limit = popularity_limit(epsilon)
    ways = {
        "exact": exactly(limit),
        **{f"{most:,} buckets": by_buckets(limit, most) for most in reversed(size.buckets)},
        "disjoint": disjointly(),
    }
    steps = list(range(size.queries // 20 - 1, size.queries, size.queries // 20))
    found: dict[str, Any] = {"asked": [step + 1 for step in steps], "most": most_answers(epsilon, VOLUME)}
    for way, admit in ways.items():
        say(f"relax: capacity of {way}, {name}")
        counted = admitted(boxes, admit)
        found[way] = [counted[step] for step in steps]
    return found


def _capacity(rows: NDArray[np.int64] | None, size: Size) -> dict[str, list[int]]:
    """How many of all questions are answered, by exact admission."""

    def of(epsilon: float, volume: float) -> int:
        boxes = [box for region in _drawn(rows, size.queries, volume) if (box := SPACE.box(region)) is not None]
        return admitted(boxes, exactly(popularity_limit(epsilon)))[-1]

    say("relax: capacity against epsilon and volume")
    return {
        "epsilon": [of(epsilon, VOLUME) for epsilon in size.epsilons],
        "volume": [of(EPSILON, volume) for volume in size.volumes],
    }


def _both(name: str, queries: Sequence[Region], epsilon: float, terms: int) -> dict[str, Any]:
    """The same questions relaxed by the paper's algorithm and by ours."""
    say(f"relax: {name}")
    limit = max(1, popularity_limit(epsilon))
    ways = {way: serve(queries, limit, terms, printed=way == "printed") for way in ("printed", "ours")}
    return {way: _summary(tally) for way, tally in ways.items()}


def _summary(tally: Tally) -> dict[str, Any]:
    errors = np.sort(np.array(tally.errors)) if tally.errors else np.zeros(1)
    return {
        "answered": tally.answered,
        "relaxed": tally.relaxed,
        "without_an_answer": tally.nothing,
        "bought": tally.bought,
        "mean_error": tally.mean_error,
        "p99_error": float(errors[len(errors) * 99 // 100]),
        "exact": tally.exact / max(1, tally.relaxed),
        "mean_terms": tally.mean_terms,
        "millis": tally.millis,
        "most_millis": 1000 * tally.worst,
    }


def _tables(
    progress: Mapping[str, Mapping[str, Any]],
    whole: Mapping[str, Mapping[str, Any]],
    series: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]],
    told: Mapping[str, Sequence[float]],
    capacity: Mapping[str, Mapping[str, Sequence[int]]],
) -> list[Table]:
    ways = [way for way in next(iter(progress.values())) if way not in ("asked", "most")]
    quality = ("answered", "relaxed", "without answer", "mean error", "99 % error", "exactly", "terms", "ms")
    return [
        Table(
            "Questions answered before relaxation (seed 4: Fig. 11)",
            ("centres", "asked", *ways, "Lemma 3"),
            [
                (name, f"{p['asked'][-1]:,}", *(f"{p[way][-1]:,}" for way in ways), f"{p['most']:,.0f}")
                for name, p in progress.items()
            ],
        ),
        Table(
            "Questions answered, exact admission (seed 4: Fig. 12)",
            ("centres", *(f"eps {e}" for e in told["epsilon"]), *(f"vol {v:.0%}" for v in told["volume"])),
            [(name, *(f"{n:,}" for n in (*found["epsilon"], *found["volume"]))) for name, found in capacity.items()],
        ),
        Table(
            f"The whole workload, xi {TERMS} (seed 4: Fig. 13-16)",
            ("centres, way", *quality),
            [_row(f"{name}, {way}", summary) for name, both in whole.items() for way, summary in both.items()],
        ),
        *(
            Table(
                f"Relaxation against {what} (seed 4: Fig. {figure})",
                (f"centres, {what}, way", *quality),
                [
                    _row(f"{name}, {x}, {way}", summary)
                    for name, points in series[what].items()
                    for x, both in zip(told[what], points, strict=True)
                    for way, summary in both.items()
                ],
            )
            for what, figure in (("xi", "13, 16c"), ("epsilon", "14, 16a"), ("volume", "15, 16b"))
        ),
    ]


def _row(name: str, summary: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        name,
        *(f"{summary[key]:,}" for key in ("answered", "relaxed", "without_an_answer")),
        *(f"{summary[key]:.4%}" for key in ("mean_error", "p99_error")),
        f"{summary['exact']:.1%}",
        f"{summary['mean_terms']:.2f}",
        f"{summary['millis']:.2f}",
    )


def _notes(size: Size, data: bool) -> list[str]:
    notes = [
        f"{size.queries:,} questions, lambda 2,000, epsilon {EPSILON}, volume {VOLUME:.0%}; the series have"
        f" {size.few:,} questions, and a limit that is smaller in the same proportion; with so many fewer answers to"
        " draw on, their errors are larger than those of the whole workload.",
        "exact: a counter for each of the 2.5 million points admits all that the limit allows; the buckets of the paper"
        " must refuse some of it.",
        "the paper gives its relaxation errors as curves only, without numbers: Relax as printed, on the same questions"
        " with the same answers to begin with, stands for them.",
    ]
    if data:
        return [
            *notes,
            "data: centres are rows of UCI Adult, stretched to the paper's domain sizes; the paper's were IPUMS.",
        ]
    return [*notes, "SKIPPED: centres drawn from data; the UCI Adult file is not there (../shared/data)."]
