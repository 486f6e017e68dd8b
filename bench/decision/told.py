"""The tables of the bench, and its numbers for programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from bench.decision import measures
from bench.decision.cells import Cell
from bench.decision.compare import (
    Quotient,
    Result,
    answered,
    at_equal_rates,
    broken,
    denials,
    ledgers,
    questions,
    quotient,
    with_a_price,
)
from bench.decision.figures import BETAS, SPLITS
from bench.decision.measures import RIVALS
from bench.decision.plots import Found
from bench.decision.runs import Summary
from bench.rig.report import Table
from mechanisms.loss import Coin

UP_TO = 4  # sub-queries, at equal delivered rates
SELECTIVE = (0.0075, 0.015, 0.035, 0.055, 1.0)
COINS = {"cert, zcdp": Coin.ZCDP}


def tables(results: Sequence[Result], found: Found) -> list[Table]:
    """Everything that is printed."""
    return [
        measures.table(cells(results), "What a denied run counts with"),
        _ratios(results),
        ways(results, "All mechanisms"),
        _denied(results),
        _held(results),
        _floors(results),
        _table_3(found),
    ]


def numbers(results: Sequence[Result], found: Found) -> dict[str, Any]:
    """Everything that was measured, with four digits."""
    figures = {
        figure: {x: {way: _flat(summary) for way, summary in ways.items()} for x, ways in points.items()}
        for figure, points in found.items()
    }
    return {"comparisons": comparisons(results), "cells": cells(results), "figures": figures}


def cells(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Each cell as it is written."""
    return [
        {
            "workload": f"{r.cell.data}: {r.cell.workload}",
            "n": r.cell.n,
            "shape": r.cell.shape,
            "groups": r.cell.values.shape[1],
            "z": r.cell.z,
            "selectivity": _short(r.cell.selectivity),
            "floor": _short(r.cell.floor()),
            "ways": {way: _flat(summary) for way, summary in r.ways.items()},
            "alphas": {
                way: {str(alpha): [_short(s.median), _short(s.fpr)] for alpha, s in curve.items()}
                for way, curve in r.curves.items()
            },
        }
        for r in results
    ]


def comparisons(results: Sequence[Result]) -> dict[str, Any]:
    """The ratios that are promised, by name."""
    sizes = sorted({r.cell.n for r in results})
    few = [r for r in results if r.cell.n <= UP_TO]
    told: dict[str, Any] = {"measures": measures.numbers(cells(results))}
    for rival in RIVALS:
        told[f"cert / {rival}"] = {
            **{str(n): _json(quotient(results, "cert", rival, _of_size(n))) for n in sizes},
            "all": _json(quotient(results, "cert", rival, lambda _: True)),
        }
        told[f"cert / {rival}, price of an answer"] = {
            label: _json(answered(results, "cert", rival, chosen)) for label, chosen in _by_size(results)
        }
        told[f"cells where {rival} mostly denies"] = {
            label: _missing(results, rival, chosen) for label, chosen in _by_size(results)
        }
        equal = at_equal_rates(few, "cert", rival)
        told[f"cert / {rival}, equal FPR"] = {"met": _json(equal.met), "with the nearest": _json(equal.every)}
    told["denials"] = {
        way: {
            "selectivity <= 0.055": denials(results, way, _between(0, SELECTIVE[-2])),
            f"n <= {UP_TO}": denials(results, way, lambda c: c.n <= UP_TO),
        }
        for way in results[0].ways
    }
    default, pure, probe = ("cert, zcdp", Coin.ZCDP), ("cert", Coin.PURE), ("probe", Coin.PURE)
    there = with_a_price(results, "probe")
    told["ledger"] = {
        "cert on zcdp / cert on pure": _json(ledgers(results, default, pure)),
        "cert on zcdp / probe on pure": _json(ledgers(results, default, probe)),
        "cert on pure / probe on pure": _json(ledgers(results, pure, probe)),
        "cert on zcdp / probe on pure, where it answers": _json(ledgers(there, default, probe)),
        "cert on pure / probe on pure, where it answers": _json(ledgers(there, pure, probe)),
    }
    return told


def _ratios(results: Sequence[Result]) -> Table:
    rows = [(label, *_against(results, chosen)) for label, chosen in _by_size(results)]
    few = [r for r in results if r.cell.n <= UP_TO]
    equal = [at_equal_rates(few, "cert", rival) for rival in RIVALS]
    for label, pair in (
        (f"n <= {UP_TO}, equal FPR", [each.met for each in equal]),
        ("  with its nearest elsewhere", [each.every for each in equal]),
    ):
        rows.append((label, *(part for each in pair for part in _range(each))))
    return Table(
        "Median epsilon of cert over a rival's, Laplace on the pure coin, geometric mean over cells; a denial counts"
        " with what it spent",
        ("", "cert/probe", "cells, range", "cert/probe_star", "cells, range"),
        rows,
    )


def _missing(results: Sequence[Result], rival: str, chosen: Callable[[Cell], bool]) -> int:
    """In how many of the chosen cells a rival denies more than half of its runs."""
    there = [r for r in results if chosen(r.cell)]
    return len(there) - len(with_a_price(there, rival))


def _by_size(results: Sequence[Result]) -> list[tuple[str, Callable[[Cell], bool]]]:
    sizes = sorted({r.cell.n for r in results})
    return [*((f"n = {n}", _of_size(n)) for n in sizes), ("all", lambda _: True)]


def _against(results: Sequence[Result], chosen: Callable[[Cell], bool]) -> list[str]:
    """cert over each rival."""
    return [part for rival in RIVALS for part in _range(quotient(results, "cert", rival, chosen))]


def ways(results: Sequence[Result], title: str) -> Table:
    """What each mechanism spent and delivered."""
    rows = []
    for way in results[0].ways:
        summaries = [r.ways[way] for r in results]
        false, missed = broken(results, way)
        rows.append(
            (
                way,
                f"{_geometric([s.median for s in summaries]):.3g}",
                f"{_geometric([s.mean for s in summaries]):.3g}",
                f"{_geometric([s.p95 for s in summaries]):.3g}",
                *(_average([getattr(s, name) for s in summaries]) for name in ("fnr", "fpr", "precision")),
                f"{100 * fmean(s.denied for s in summaries):.1f} %",
                _average([s.entropy for s in summaries]),
                f"{fmean(s.millis for s in summaries):.1f}",
                f"{false}/{missed}",
            )
        )
    return Table(
        f"{title}: {len(results)} cells (spent: geometric mean over cells of epsilon; of rho for zcdp)",
        ("", "median", "mean", "p95", "FNR", "FPR", "precision", "denied", "min-entropy", "ms", "cells FPR>a/FNR>b"),
        rows,
    )


def _denied(results: Sequence[Result]) -> Table:
    bins = list(zip((0.0, *SELECTIVE[:-1]), SELECTIVE, strict=True))
    header = [f"{100 * low:g}-{100 * high:g} %" if high < 1 else f"above {100 * low:g} %" for low, high in bins]
    chosen = [*(_between(low, high) for low, high in bins), _between(0, SELECTIVE[-2]), lambda cell: cell.n <= UP_TO]
    rows = []
    for way in results[0].ways:
        shares = [denials(results, way, some) for some in chosen]
        rows.append((way, *("" if share is None else f"{100 * share:.2f} %" for share in shares)))
    return Table("Denied runs by selectivity", ("", *header, "up to 5.5 %", f"n <= {UP_TO}"), rows)


def _held(results: Sequence[Result]) -> Table:
    rows = []
    for way in ("cert, zcdp", "cert", "probe_star", "probe"):
        coin = COINS.get(way, Coin.PURE)
        held = [questions(r.ways[way], coin) for r in results]
        against = [ledgers(results, (way, coin), (other, Coin.PURE)) for other in ("cert", "probe")]
        rows.append(
            (
                f"{way.removesuffix(', zcdp')} on {coin.value}",
                f"{_geometric([max(1.0, number) for number in held]):.0f}",
                f"{median(n * (1 - r.ways[way].denied) for n, r in zip(held, results, strict=True)):.0f}",
                *("" if q is None else f"{q.mean:.1f}" for q in against),
            )
        )
    return Table(
        "Questions in a ledger of (10, 1e-9): geometric mean over cells, and over other ledgers",
        ("", "questions", "answers (median)", "/ cert on pure", "/ probe on pure"),
        rows,
    )


def _floors(results: Sequence[Result]) -> Table:
    rows = []
    sizes = sorted({r.cell.n for r in results})
    for n in sizes:
        chosen = [r for r in results if r.cell.n == n]
        floors = [r.cell.floor() for r in chosen]
        spent = [_geometric([r.ways[way].median for r in chosen]) for way in ("cert", "probe_star", "probe")]
        rows.append((f"n = {n}", f"{_geometric(floors):.3g}", *(f"{amount:.3g}" for amount in spent)))
    return Table(
        "Epsilon beside the floor of a promise to each single group (geometric means)",
        ("", "floor", "cert", "probe_star", "probe"),
        rows,
    )


def _table_3(found: Found) -> Table:
    rows = []
    for beta in BETAS:
        for split in SPLITS:
            ways = found["table 3"].get(f"{beta}, {split} %")
            if ways is not None:
                s = ways[f"probe:first={split}"]
                rates = ("" if rate is None else f"{rate:.2g}" for rate in (s.fnr, s.fpr))
                rows.append((f"{float(beta):g}", str(split), str(100 - split), f"{s.median:.3g}", *rates))
    return Table(
        "ProBE, Table 3: beta between the phases (taxi, a disjunction of two)",
        ("beta", "phase one %", "phase two %", "epsilon", "FNR", "FPR"),
        rows,
    )


def _of_size(n: int) -> Callable[[Cell], bool]:
    return lambda cell: cell.n == n


def _between(low: float, high: float) -> Callable[[Cell], bool]:
    return lambda cell: low < cell.selectivity <= high


def _range(found: Quotient | None) -> tuple[str, str]:
    if found is None:
        return "", ""
    return f"{found.mean:.2f}", f"{found.cells}, {found.best:.2f}..{found.worst:.2f}"


def _json(found: Quotient | None) -> dict[str, float] | None:
    if found is None:
        return None
    return {
        "cells": found.cells,
        "mean": round(found.mean, 4),
        "best": round(found.best, 4),
        "worst": round(found.worst, 4),
    }


def _flat(summary: Summary) -> dict[str, Any]:
    return {name: _short(value) for name, value in summary.as_json().items() if value is not None}


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _geometric(values: Sequence[float]) -> float:
    return math.exp(fmean(math.log(value) for value in values))


def _average(values: Sequence[float | None]) -> str:
    there = [value for value in values if value is not None]
    return f"{fmean(there):.3f}" if there else ""


def by_figure(points: Sequence[tuple[str, str, Mapping[str, Summary]]]) -> Found:
    """Outcomes by figure and place on its axis."""
    found: dict[str, dict[str, Mapping[str, Summary]]] = {}
    for figure, x, ways in points:
        found.setdefault(figure, {})[x] = ways
    return found
