"""How much parallel composition saves, and how fast that is known: the experiments of the paper on maximum overlap.

Workloads are those of seed 3: random census questions, 25 to 2,000 of them; random sets of values on 10 to 20,000
attributes of ten values each; and other distributions of what is asked. The utility gain is one minus the largest total
over a point, in shares of the sum. The paper's approximate colouring (DSATUR of networkx, on a graph made afresh) is
the anchor, in the same run on the same questions; it counts as timed out beyond 60 seconds, as in the paper.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from bench.regions import plots
from bench.regions.seeds import dsatur
from bench.regions.workloads import UNIT, VALUES, census, exponential, synthetic
from bench.rig.measure import say
from bench.rig.report import Report, Table
from provenance.clique import clique, overlap
from provenance.colouring import colour_bound, colouring
from provenance.overlap import WORK_FROM_SCRATCH, Overlap
from provenance.region import EVERYWHERE, Part, coin
from provenance.sweep import sweep

TIMEOUT = 60.0
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Size:
    """How much is run."""

    census: Sequence[int]
    sets: int  # of census questions, of each number
    anchored: Sequence[int]  # the numbers at which the anchor runs, once each
    added: int
    domains: Sequence[tuple[int, int]]  # attributes, questions
    spread: Sequence[int]


FULL = Size(
    (25, 100, 250, 500, 1000, 1500, 2000),
    6,
    (25, 100, 250, 500, 1000, 2000),
    500,
    ((10, 200), (10, 1000), (50, 200), (50, 500), (500, 200), (500, 500), (5000, 200), (20000, 100), (20000, 200)),
    (25, 50, 100, 250, 500),
)
SMOKE = Size((25, 60), 2, (25, 60), 10, ((10, 30), (300, 20)), (25,))

SPREADS: Mapping[str, Mapping[str, Any]] = {
    "uniform": {},
    "few predicates (exp 0.1)": {"predicates": exponential(0.1)},
    "few values (exp 0.1)": {"values": exponential(0.1)},
    "favourite attributes (norm 0.1)": {"favourite_attributes": 0.1},
    "favourite values (norm 0.1)": {"favourite_values": 0.1},
}
_SPREAD_ATTRIBUTES = 48  # the paper's domain of 10^48


def run(*, smoke: bool) -> Report:
    """Census questions, then domains, then other distributions."""
    size = SMOKE if smoke else FULL
    counted = [_census(queries, size) for queries in size.census]
    anchored = [_anchored(queries) for queries in size.anchored]
    added = _added(max(size.census), size.added)
    domains = [_domain(attributes, queries) for attributes, queries in size.domains]
    spread = {name: [_spread(name, t) for t in size.spread] for name in SPREADS}
    numbers = {
        "census": counted,
        "anchor": anchored,
        "added": added,
        "domains": domains,
        "distributions": {"queries": list(size.spread), "gain": spread},
    }
    return Report(
        "overlap",
        smoke,
        _tables(counted, anchored, added, domains, spread, size),
        numbers,
        lambda figure: plots.overlap(figure, counted, anchored, added),
        _notes(size),
        pictures={
            "domains": lambda figure: plots.domains(figure, domains),
            "distributions": lambda figure: plots.distributions(figure, size.spread, spread),
        },
    )


def gain(parts: Sequence[Part], amount: Any) -> float:
    """The utility gain (seed 3, Eq. 5), of what is charged to all if nothing is known to be disjoint."""
    return 1 - float(amount) / float(sum(weight for _, weight in parts))


def timed(work: Callable[[], Result]) -> tuple[Result, float]:
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def _census(queries: int, size: Size) -> dict[str, Any]:
    """Some sets of so many census questions, from scratch, with equal weights and with random ones; each method."""
    say(f"overlap: {queries} census questions")
    found: dict[str, list[float]] = {name: [] for name in ("seconds", "gain", "exact", "weighted", "weighted_gain")}
    for number in range(size.sets):
        rng = np.random.default_rng((queries, number))
        parts, heavier = census(rng, queries), census(rng, queries, weighted=True)
        kept, seconds = timed(lambda parts=parts: Overlap.of(parts))  # type: ignore[misc]
        other, longer = timed(lambda parts=heavier: Overlap.of(parts))  # type: ignore[misc]
        found["seconds"].append(seconds)
        found["gain"].append(gain(parts, kept.bound()))
        found["weighted"].append(longer)
        found["weighted_gain"].append(gain(heavier, other.bound()))
        found["exact"].append(kept.exact and other.exact)
    means = {name: statistics.fmean(values) for name, values in found.items()}
    return {
        "queries": queries,
        **means,
        "slowest": max(*found["seconds"], *found["weighted"]),
        "methods": _methods(parts),
    }


def _methods(parts: Sequence[Part]) -> dict[str, Any]:
    """Each method by itself on one set: what it finds, how long it takes, and whether it is known to be the truth."""
    kept = Overlap.of(parts, work=0)
    regions, near, weights, index, every = kept.graph()
    work = WORK_FROM_SCRATCH
    ways: dict[str, Callable[[], tuple[int | None, bool]]] = {
        "sweep": lambda: _bound(sweep(index, weights, every, EVERYWHERE, 0, work)),
        "overlap": lambda: _bound(overlap(regions, near, weights, every, EVERYWHERE, 0, work)),
        "clique": lambda: _bound(clique(near, weights, every, 0, work)),
        "colouring": lambda: (_coloured(near, weights, every), False),
    }
    found = {}
    for name, way in ways.items():
        (amount, exact), seconds = timed(way)
        told = None if amount is None else gain(parts, coin(amount))
        found[name] = {"gain": told, "finished": exact or name == "colouring", "seconds": seconds}
    return found


def _bound(found: Any) -> tuple[int | None, bool]:
    return (None, False) if found is None else (found.amount, found.exact)


def _coloured(near: Any, weights: Any, every: int) -> int | None:
    classes = colouring(near, weights, every, 10**9)
    return None if classes is None else colour_bound(classes, weights)


def _anchored(queries: int) -> dict[str, Any]:
    """One set of census questions: ours from scratch, and the paper's colouring from scratch."""
    say(f"overlap: {queries} census questions, coloured by networkx from scratch")
    parts = census(np.random.default_rng((queries, 0)), queries)
    kept, ours = timed(lambda: Overlap.of(parts))
    colours, theirs = timed(lambda: dsatur(parts))
    return {
        "queries": queries,
        "ours": {"seconds": ours, "gain": gain(parts, kept.bound()), "exact": kept.exact},
        "dsatur": {"seconds": theirs, "gain": gain(parts, colours * UNIT), "timed_out": theirs > TIMEOUT},
    }


def _added(queries: int, more: int) -> dict[str, Any]:
    """What one question more takes, once so many are known; and what a restart takes."""
    say(f"overlap: {more} questions more, one by one")
    parts = census(np.random.default_rng(9), queries + more)
    kept = Overlap.of(parts[:queries])
    millis = []
    for part in parts[queries:]:
        _, seconds = timed(lambda part=part: kept.add([part]))  # type: ignore[misc]
        millis.append(1000 * seconds)
    again = Overlap.of(parts)
    text, written = timed(kept.dump)
    loaded, read = timed(lambda: Overlap.load(text))
    if loaded.bound() != kept.bound():
        raise ValueError("what was written is not what was read")
    millis.sort()
    return {
        "known": queries,
        "added": more,
        "mean_millis": statistics.fmean(millis),
        "p99_millis": millis[len(millis) * 99 // 100],
        "most_millis": millis[-1],
        "exact": kept.exact,
        "as_from_scratch": kept.bound() == again.bound(),
        "bytes": len(text),
        "write_seconds": written,
        "read_seconds": read,
    }


def _domain(attributes: int, queries: int) -> dict[str, Any]:
    """Random sets of values on many attributes."""
    say(f"overlap: a domain of 10^{attributes}, {queries} questions")
    parts = synthetic(np.random.default_rng((attributes, queries)), attributes, queries)
    kept, ours = timed(lambda: Overlap.of(parts))
    found: dict[str, Any] = {
        "attributes": attributes,
        "queries": queries,
        "seconds": ours,
        "gain": gain(parts, kept.bound()),
        "exact": kept.exact,
    }
    if queries <= 200:  # beyond, a colouring of a dense graph takes networkx minutes
        colours, theirs = timed(lambda: dsatur(parts))
        found["dsatur"] = {"seconds": theirs, "gain": gain(parts, colours * UNIT)}
    return found


def _spread(name: str, queries: int) -> float:
    """The gain on questions with another distribution."""
    say(f"overlap: {queries} questions, {name}")
    rng = np.random.default_rng((queries, 3))
    parts = synthetic(rng, _SPREAD_ATTRIBUTES, queries, **SPREADS[name])
    return gain(parts, Overlap.of(parts).bound())


def _tables(
    counted: Sequence[Mapping[str, Any]],
    anchored: Sequence[Mapping[str, Any]],
    added: Mapping[str, Any],
    domains: Sequence[Mapping[str, Any]],
    spread: Mapping[str, Sequence[float]],
    size: Size,
) -> list[Table]:
    return [
        Table(
            "Random census questions from scratch (seed 3: Fig. 4, 5, 6)",
            ("questions", "seconds", "weighted, s", "slowest, s", "gain", "weighted gain", "exact"),
            [
                (
                    f"{row['queries']:,}",
                    *(f"{row[key]:.3f}" for key in ("seconds", "weighted", "slowest")),
                    *(f"{row[key]:.1%}" for key in ("gain", "weighted_gain", "exact")),
                )
                for row in counted
            ],
        ),
        Table(
            "One set of census questions, and the paper's colouring on the same set",
            ("questions", "ours, s", "dsatur, s", "ours, gain", "dsatur, gain"),
            [
                (
                    f"{row['queries']:,}",
                    f"{row['ours']['seconds']:.3f}",
                    f"{row['dsatur']['seconds']:.3f}{' (timed out)' if row['dsatur']['timed_out'] else ''}",
                    *(f"{row[way]['gain']:.2%}" for way in ("ours", "dsatur")),
                )
                for row in anchored
            ],
        ),
        Table(
            "Each method by itself on the last of these sets",
            ("questions", *(f"{way}, s" for way in counted[0]["methods"]), "finished"),
            [
                (
                    f"{row['queries']:,}",
                    *(f"{way['seconds']:.3f}" for way in row["methods"].values()),
                    ", ".join(name for name, way in row["methods"].items() if way["finished"]),
                )
                for row in counted
            ],
        ),
        Table(
            f"One question more, after {added['known']:,}",
            ("mean, ms", "99 %, ms", "most, ms", "exact", "restart, s", "kB"),
            [
                (
                    *(f"{added[key]:.2f}" for key in ("mean_millis", "p99_millis", "most_millis")),
                    str(added["exact"]),
                    f"{added['read_seconds']:.2f}",
                    f"{added['bytes'] / 1000:,.0f}",
                )
            ],
        ),
        Table(
            "Random sets of values on many attributes (seed 3: Fig. 1, 3)",
            ("domain", "questions", "ours, s", "gain", "exact", "dsatur, s", "dsatur gain"),
            [
                (
                    f"10^{row['attributes']}",
                    f"{row['queries']:,}",
                    f"{row['seconds']:.2f}",
                    f"{row['gain']:.1%}",
                    str(row["exact"]),
                    *((f"{row['dsatur']['seconds']:.2f}", f"{row['dsatur']['gain']:.1%}") if "dsatur" in row else "--"),
                )
                for row in domains
            ],
        ),
        Table(
            "Utility gain with other distributions, 48 attributes (seed 3: Fig. 7)",
            ("distribution", *(str(queries) for queries in size.spread)),
            [(name, *(f"{value:.1%}" for value in values)) for name, values in spread.items()],
        ),
    ]


def _notes(size: Size) -> list[str]:
    return [
        f"{size.sets} sets of each number of census questions (the paper: 30); times are means.",
        "exact: the bound is the weight of some point; the work is cut off after a fixed number of steps, not by time.",
        f"attributes have {VALUES} values each, so a domain of m attributes has 10^m points.",
        "dsatur: networkx, the graph made pair by pair with the same test of disjointness; it counts as timed out"
        " beyond 60 s, and is run to its end all the same.",
    ]
