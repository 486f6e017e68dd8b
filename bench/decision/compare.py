"""The comparisons: spending side by side, at equal delivered false positives, denials, and questions per ledger."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from bench.decision.cells import ALPHA, BETA, Cell
from bench.decision.runs import LEDGER_DELTA, LEDGER_EPSILON, Summary
from mechanisms.loss import Coin, amount_within

ANSWERING = 0.5
"""Where a larger share of the runs is denied, what is spent is the price of saying no."""


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """A cell and what each way came to there; ``curves`` are the same ways over a grid of alphas."""

    cell: Cell
    ways: Mapping[str, Summary]
    curves: Mapping[str, Mapping[float, Summary]]


@dataclass(frozen=True, slots=True)
class Quotient:
    """One way over another: geometric mean over cells, smallest and largest."""

    cells: int
    mean: float
    best: float
    worst: float

    @classmethod
    def of(cls, quotients: Sequence[float]) -> Quotient:
        logs = [math.log(quotient) for quotient in quotients]
        return cls(len(logs), math.exp(fmean(logs)), min(quotients), max(quotients))


@dataclass(frozen=True, slots=True)
class Matched:
    """What a rival spends when it delivers the same share of false positives; ``met`` tells whether it can."""

    spent: float
    met: bool


@dataclass(frozen=True, slots=True)
class Equal:
    """At equal delivered rates: over cells where the rival can deliver the same, and with its nearest elsewhere."""

    met: Quotient | None
    every: Quotient | None


def quotient(results: Iterable[Result], over: str, under: str, chosen: Callable[[Cell], bool]) -> Quotient | None:
    """Median spending of one way over another's, in the chosen cells."""
    found = [r.ways[over].median / r.ways[under].median for r in results if chosen(r.cell)]
    return Quotient.of(found) if found else None


def answered(results: Iterable[Result], over: str, under: str, chosen: Callable[[Cell], bool]) -> Quotient | None:
    """The price of one way's answers over another's, in the chosen cells.

    Where the rival mostly denies its price is censored at what a question may spend, so that the quotient is at most
    this.
    """
    found = [r.ways[over].answer / r.ways[under].answer for r in results if chosen(r.cell)]
    return Quotient.of(found) if found else None


def priced(summary: Summary) -> bool:
    """Whether at least every second run was answered; else what it spends is the price of saying no, and no price."""
    return summary.denied <= ANSWERING


def with_a_price(results: Iterable[Result], way: str) -> list[Result]:
    """The cells in which a way has a price to compare with."""
    return [result for result in results if priced(result.ways[way])]


def matched(result: Result, rival: str, wanted: float) -> Matched | None:
    """The rival's median spending at the alpha at which it delivers ``wanted``, between the alphas that were run.

    More false positives are never dearer for the rival than fewer: where the measured curve says otherwise (noise, or
    denials), the cheaper and more accurate point stands for the dearer one. Where it mostly denies it has no price.
    """
    points = sorted((s.fpr, s.median) for s in result.curves[rival].values() if s.fpr is not None and priced(s))
    if not points:
        return None
    rates = np.array([rate for rate, _ in points])
    spent = np.minimum.accumulate(np.array([amount for _, amount in points]))
    met = bool(rates[0] <= wanted <= rates[-1])
    return Matched(float(np.exp(np.interp(wanted, rates, np.log(spent)))), met)


def at_equal_rates(results: Iterable[Result], over: str, rival: str) -> Equal:
    """One way over a rival that delivers the same share of false positives."""
    met, every = [], []
    for result in results:
        rate = result.ways[over].fpr
        found = matched(result, rival, rate) if rate is not None and rival in result.curves else None
        if found is None:
            continue
        every.append(result.ways[over].median / found.spent)
        if found.met:
            met.append(every[-1])
    return Equal(Quotient.of(met) if met else None, Quotient.of(every) if every else None)


def denials(results: Iterable[Result], way: str, chosen: Callable[[Cell], bool]) -> float | None:
    """The mean share of denied runs in the chosen cells."""
    found = [result.ways[way].denied for result in results if chosen(result.cell)]
    return fmean(found) if found else None


def questions(summary: Summary, coin: Coin) -> float:
    """How many of a cell's question a ledger of (10, 1e-9) holds, at the median price."""
    match coin:
        case Coin.PURE:
            return math.floor(float(LEDGER_EPSILON) / summary.median)
        case Coin.ZCDP:
            return math.floor(float(amount_within(coin, LEDGER_EPSILON, LEDGER_DELTA)) / summary.median)


def ledgers(results: Iterable[Result], over: tuple[str, Coin], under: tuple[str, Coin]) -> Quotient | None:
    """How many times as many questions one ledger holds as another; a cell that does not fit once counts as one."""
    found = [
        max(1.0, questions(r.ways[over[0]], over[1])) / max(1.0, questions(r.ways[under[0]], under[1])) for r in results
    ]
    return Quotient.of(found) if found else None


def broken(results: Iterable[Result], way: str) -> tuple[int, int]:
    """In how many cells the mean FPR is above alpha, and the mean FNR above beta by more than four standard errors.

    Each positive group is a coin of its own; the errors of false positives are not, so those are taken as they are.
    """
    false, missed = 0, 0
    for result in results:
        summary, positives = result.ways[way], int(result.cell.truth.sum())
        if summary.fpr is None or summary.fnr is None:
            continue
        beta, coins = float(BETA), summary.runs * (1 - summary.denied) * positives
        false += summary.fpr > float(ALPHA)
        missed += summary.fnr > beta + 4 * math.sqrt(beta * (1 - beta) / coins)
    return false, missed
