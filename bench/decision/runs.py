"""Runs of every mechanism on a cell, and what they come to."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from statistics import fmean, median
from typing import Any

import numpy as np

from bench.decision.cells import ALPHA, BETA, Cell
from bench.decision.ways import way
from mechanisms.decision import Mask
from mechanisms.entropy import min_entropy, normalised
from mechanisms.errors import AccuracyUnreachable
from mechanisms.loss import Coin, amount_within
from mechanisms.release import Staged
from mechanisms.sampler import Source
from mechanisms.solve import Solved, solve
from mechanisms.values import Exact

LEDGER_EPSILON, LEDGER_DELTA = Decimal(10), Decimal("5e-10")
"""A ledger of (10, 1e-9): half of the delta is for the conversion, as in a deployment."""
_ENTROPIES, _EFFORT = 5, 100  # min-entropy hardly differs between runs, and to the last digit it is dearer than they


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """Runs of some ways on one cell."""

    cell: Cell
    ways: Sequence[str]
    runs: int
    beta: Decimal = BETA
    alpha: Decimal = ALPHA


@dataclass(frozen=True, slots=True)
class Summary:
    """What a mechanism spent and delivered on one cell; a denied run counts with what it spent, and with no rates.

    ``answer`` is the price of an answer: the median where a denied run counts with the most that a question may spend,
    since its answer would take more.
    """

    runs: int
    median: float  # of the amounts spent: epsilon under ``pure``, rho under ``zcdp``
    mean: float
    p95: float
    fnr: float | None
    fpr: float | None
    precision: float | None
    denied: float
    entropy: float | None  # as a share of log k: 1 where nothing was learnt
    millis: float
    answer: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Rates:
    """What one answer delivered."""

    fnr: float
    fpr: float
    precision: float | None  # None where nothing was returned

    @classmethod
    def of(cls, kept: Mask, truth: Mask) -> Rates:
        right = int(np.count_nonzero(kept & truth))
        returned, positives = int(np.count_nonzero(kept)), int(np.count_nonzero(truth))
        return cls(
            1 - right / positives if positives else 0.0,
            (returned - right) / max(1, len(truth) - positives),
            right / returned if returned else None,
        )


def run_task(task: Task) -> dict[str, Summary]:
    """Every way of a task."""
    return {name: run_way(name, task) for name in task.ways}


def run_way(name: str, task: Task) -> Summary:
    """One way, again and again with fresh noise."""
    chosen, cell, truth = way(name), task.cell, task.cell.truth
    problem, exact = cell.problem(chosen.coin, task.beta, task.alpha), Exact(cell.values)
    source, cap = source_of(f"{cell.name}/{name}/{task.beta}/{task.alpha}"), most(chosen.coin)
    spent: list[float] = []
    answers: list[float] = []
    rates: list[Rates] = []
    entropies: list[float] = []
    seconds = 0.0
    for _ in range(task.runs):
        begun = time.perf_counter()
        try:
            solved = solve(chosen.make(problem), Staged(exact, problem, source), cap)
        except AccuracyUnreachable as refusal:
            seconds += time.perf_counter() - begun
            assert refusal.spent is not None
            spent.append(float(refusal.spent.amount))
            answers.append(float(cap))
            continue
        seconds += time.perf_counter() - begun
        spent.append(float(solved.loss.amount))
        answers.append(spent[-1])
        rates.append(Rates.of(solved.decision.kept, truth))
        if chosen.coin is Coin.PURE and len(entropies) < _ENTROPIES:
            entropies.append(_entropy(solved))
    return Summary(
        task.runs,
        median(spent),
        fmean(spent),
        float(np.percentile(spent, 95)),
        _mean([rate.fnr for rate in rates]),
        _mean([rate.fpr for rate in rates]),
        _mean([rate.precision for rate in rates if rate.precision is not None]),
        1 - len(rates) / task.runs,
        _mean(entropies),
        1e3 * seconds / task.runs,
        median(answers),
    )


def most(coin: Coin) -> Decimal:
    """What one question may spend, in coin: all that the ledger holds."""
    return amount_within(coin, LEDGER_EPSILON, LEDGER_DELTA)


def source_of(seed: str) -> Source:
    """Bytes that are the same in every run of the bench; in production they are the operating system's."""
    return np.random.default_rng(list(seed.encode())).bytes


def _entropy(solved: Solved) -> float:
    """Min-entropy of the predicate-wise losses, over what it is when nothing is spent."""
    counts = np.bincount(solved.cells, minlength=len(solved.losses))
    least = min_entropy([float(loss) for loss in solved.losses], counts.tolist(), _EFFORT)
    return normalised(least, len(solved.cells))


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
