"""DProvDB's questions: random ranges and breadth-first searches, with the accuracy that each asks for.

A question is a range count on one attribute. It is a sum of so many bins of the attribute's histogram view, and asks
for an expected squared error of at most ``variance``, in rows squared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from bench.decision.groups import DATA

RRQ, BFS = "workloads/dprovdb_rrq.parquet", "workloads/dprovdb_eqw_bfs.parquet"
TABLES = ("adult", "orders")
BINS = 50
"""Of each view."""
DOMAINS = {"adult": (1.0, 140.0), "orders": (500.0, 600_000.0)}  # of age and o_totalprice, where the searches begin
RUNS = 4


@dataclass(frozen=True, slots=True)
class Asked:
    """One question of an analyst's list."""

    view: int
    bins: int
    variance: int


def missing() -> list[str]:
    """The files that this bench reads and that are not there."""
    return [file for file in (RRQ, BFS) if not (DATA / file).is_file()]


@cache
def _ranges(table: str, run: int) -> tuple[tuple[str, ...], tuple[tuple[int, int], ...]]:
    """The attributes, and of each question its attribute's place and its bins."""
    columns = pq.read_table(
        DATA / RRQ,
        columns=["attribute", "view_bins", "query_no"],
        filters=[("table_name", "=", table), ("run", "=", run)],
    ).sort_by("query_no")
    attributes = columns["attribute"].to_pylist()
    views = tuple(sorted(set(attributes)))
    places = {view: place for place, view in enumerate(views)}
    return views, tuple(
        (places[attribute], bins) for attribute, bins in zip(attributes, columns["view_bins"].to_pylist(), strict=True)
    )


def views(table: str) -> int:
    """How many views the table has."""
    return len(_ranges(table, 1)[0])


def ranges(table: str, run: int, size: int, start: int, step: int) -> list[Asked]:
    """The first questions of a run; the i-th asks for the variance start - i*step, and never for less than 1."""
    return [Asked(view, bins, max(start - i * step, 1)) for i, (view, bins) in enumerate(_ranges(table, run)[1][:size])]


def search(table: str) -> list[Asked]:
    """The nodes of a breadth-first search, the nearest to the root first."""
    rows = pq.read_table(DATA / BFS, filters=[("table_name", "=", table)]).sort_by("node").to_pylist()
    low, high = DOMAINS[table]
    width = (high - low) / BINS
    return [
        Asked(0, max(1, round((row["ub_excl"] - row["lb_excl"]) / width)), row["variance_req"])
        for row in sorted(rows, key=lambda row: (row["depth"], row["node"]))
    ]


def turns(order: str, analysts: int, size: int, seed: int) -> Sequence[int]:
    """Who asks next: in turn, or anybody who has questions left."""
    everybody = np.tile(np.arange(analysts), size)
    match order:
        case "round-robin":
            return [int(who) for who in everybody]
        case "random":
            return [int(who) for who in np.random.default_rng(seed).permutation(everybody)]
        case _:
            raise ValueError(order)
