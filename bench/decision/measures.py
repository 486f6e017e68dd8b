"""What a denied run counts with: three measures of ``cert`` over a rival, cell by cell, beside what was asked.

(a) A denied run counts with epsilon_max. This is the headline. The papers state a cost only for an answer: "If the
query is not denied, its ex-post DP cost is ..." (the thesis, Theorems 5.4 to 5.6); else they claim epsilon_max-DP
(there, and ProBE, Theorem 5.1). How their experiments count a denied run they do not say: this is our reading, taken
after (c) was known. Where a rival mostly denies, the quotient is at most 1 by its making, since no answer of ours costs
more than epsilon_max: such cells cannot speak against ``cert``. Hence (b).

(b) Only cells in which the rival answers at least every second run, and its denied runs there at what they spent.
Nothing here rests on epsilon_max, except that a denied run of ``cert`` still counts with it.

(c) Every cell, denied runs at what they spent: what a ledger is really charged. By it the worst cells miss what was
asked, all of them cells in which the rival denies 99 to 100 % of its runs: ``probe`` denies after its first phase where
that keeps nearly every group, so its median is the price of saying no. But the charge is real, so it is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.decision.compare import ANSWERING, Quotient
from bench.rig.report import Table

RIVALS = ("probe", "probe_star")
ASKED: Mapping[int, float] = {1: 3.0, 3: 1.5, 6: 1.0}
"""What the worst cell may be at the most, by the number of sub-queries."""
Told = Mapping[str, Any]  # a cell as it is written to the results


@dataclass(frozen=True, slots=True)
class Measure:
    """One way over another in one cell; None where the cell does not count."""

    name: str
    quotient: Callable[[Told, Told], float | None]


def _where_it_answers(ours: Told, theirs: Told) -> float | None:
    return float(ours["answer"] / theirs["median"]) if theirs["denied"] <= ANSWERING else None


MEASURES = (
    Measure("denied = epsilon_max", lambda ours, theirs: float(ours["answer"] / theirs["answer"])),
    Measure("where it answers", _where_it_answers),
    Measure("denied = spent", lambda ours, theirs: float(ours["median"] / theirs["median"])),
)


@dataclass(frozen=True, slots=True)
class Worst:
    """A measure over some cells: the geometric mean, the worst cell, and how many lie above a limit."""

    quotient: Quotient
    cell: Told
    above: int

    @classmethod
    def of(cls, cells: Sequence[Told], rival: str, measure: Measure, limit: float) -> Worst | None:
        every = [(measure.quotient(cell["ways"]["cert"], cell["ways"][rival]), cell) for cell in cells]
        found = [(quotient, cell) for quotient, cell in every if quotient is not None]
        if not found:
            return None
        quotients = [quotient for quotient, _ in found]
        worst = max(found, key=lambda pair: pair[0])[1]
        return cls(Quotient.of(quotients), worst, sum(quotient > limit for quotient in quotients))


def numbers(cells: Sequence[Told]) -> dict[str, Any]:
    """By rival, by number of sub-queries, by measure; from the cells as they are written, so also from old results."""
    return {rival: {label: _numbers(some, rival, n) for label, n, some in _by_size(cells)} for rival in RIVALS}


def _numbers(cells: Sequence[Told], rival: str, n: int | None) -> dict[str, Any]:
    told: dict[str, Any] = {
        "cells": len(cells),
        "mostly denied": _mostly_denied(cells, rival),
        "asked": None if n is None else ASKED.get(n),
    }
    for measure in MEASURES:
        worst = Worst.of(cells, rival, measure, _limit(n))
        told[measure.name] = worst and {
            "cells": worst.quotient.cells,
            "mean": round(worst.quotient.mean, 4),
            "worst": round(worst.quotient.worst, 4),
            "above": worst.above,
            "worst cell": _name(worst.cell),
            "denied there": worst.cell["ways"][rival]["denied"],
        }
    return told


def table(cells: Sequence[Told], title: str) -> Table:
    """Geometric mean, worst cell, and cells above what was asked (above 1 where nothing was), by each measure."""
    rows = []
    for rival in RIVALS:
        for label, n, some in _by_size(cells):
            found = [Worst.of(some, rival, measure, _limit(n)) for measure in MEASURES]
            asked = "" if n not in ASKED else f"{ASKED[n]:.1f}"
            rows.append((f"{rival}, {label}", asked, *map(_text, found), str(_mostly_denied(some, rival))))
    return Table(
        f"{title}. Epsilon of cert over a rival's: geometric mean, worst cell, cells above what was asked (or above 1)",
        ("", "asked", *(f"({letter}) {m.name}" for letter, m in zip("abc", MEASURES, strict=True)), "mostly denied"),
        rows,
    )


def _text(worst: Worst | None) -> str:
    if worst is None:
        return ""
    q = worst.quotient
    return f"{q.mean:.2f}, {q.worst:.2f}, {worst.above} of {q.cells}"


def _by_size(cells: Sequence[Told]) -> list[tuple[str, int | None, Sequence[Told]]]:
    sizes = sorted({cell["n"] for cell in cells})
    return [*((f"n = {n}", n, [cell for cell in cells if cell["n"] == n]) for n in sizes), ("all", None, cells)]


def _limit(n: int | None) -> float:
    return 1.0 if n is None else ASKED.get(n, 1.0)


def _mostly_denied(cells: Sequence[Told], rival: str) -> int:
    return sum(cell["ways"][rival]["denied"] > ANSWERING for cell in cells)


def _name(cell: Told) -> str:
    return f"{cell['workload']}, {cell['n']} {cell['shape']}, z {cell['z']:g}"
