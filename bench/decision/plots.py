"""Pictures: what is gained, and the figures of the papers with our mechanism beside theirs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from bench.decision.compare import Result, questions
from bench.decision.figures import BETAS, BOUNDS, MARGINS, MIDES, PROBES, SPLITS, UNCERTAIN
from bench.decision.runs import Summary
from mechanisms.loss import Coin

Found = Mapping[str, Mapping[str, Mapping[str, Summary]]]  # figure, x, way
Read = Callable[[Summary], float | None]
_COLOURS = {
    "naive": "C7",
    "probe_naive": "C1",
    "probe": "C0",
    "probe_star": "C9",
    "probe_ent": "C2",
    "cert": "C3",
    "cert, zcdp": "C6",
    "tslm": "C7",
    "ppwlm": "C4",
    "dppwlm": "C5",
}
READS: Mapping[str, Read] = {
    "epsilon": lambda s: s.median,
    "FNR": lambda s: s.fnr,
    "FPR": lambda s: s.fpr,
    "min-entropy": lambda s: s.entropy,
}
_DATA = ("taxi", "retail", "diabetes", "flights")


def gain(figure: Any, results: Sequence[Result]) -> None:
    """Left: what ``cert`` spends over what ``probe`` spends. Right: how many questions a ledger holds."""
    left, right = figure.subplots(1, 2)
    sizes = sorted({r.cell.n for r in results})
    for shift, rival in ((-0.18, "probe"), (0.18, "probe_star")):
        boxes = [[r.ways["cert"].median / r.ways[rival].median for r in results if r.cell.n == n] for n in sizes]
        drawn = left.boxplot(boxes, positions=[n + shift for n in sizes], widths=0.3, patch_artist=True, whis=(0, 100))
        for box in drawn["boxes"]:
            box.set_facecolor(_COLOURS[rival])
        left.plot([], [], color=_COLOURS[rival], linewidth=8, label=f"cert / {rival}")
    left.axhline(1, color="black", linewidth=0.8)
    left.set_yscale("log")
    left.set_xticks(sizes, [str(n) for n in sizes])
    left.set_xlabel("sub-queries")
    left.set_title("Median epsilon, Laplace on the pure coin, by cell")
    left.legend(fontsize=8)
    for way, coin, label in (
        ("cert, zcdp", Coin.ZCDP, "cert, Gaussian on zcdp"),
        ("cert", Coin.PURE, "cert, Laplace on pure"),
        ("probe_star", Coin.PURE, "probe_star on pure"),
        ("probe", Coin.PURE, "probe on pure"),
    ):
        held = sorted((max(0.5, questions(r.ways[way], coin)) for r in results), reverse=True)
        right.plot([(i + 1) / len(held) for i in range(len(held))], held, color=_COLOURS[way], label=label)
    right.set_yscale("log")
    right.set_xlabel("share of the cells")
    right.set_title("Questions in a ledger of (10, 1e-9)")
    right.legend(fontsize=8)


def by_size(figure: Any, results: Sequence[Result]) -> None:
    """ProBE, Fig. 6: epsilon, FNR and FPR against the number of sub-queries, for conjunctions and mixed trees."""
    figure.set_size_inches(15, 13)
    axes = figure.subplots(len(_DATA), 6)
    for row, name in zip(axes, _DATA, strict=True):
        for place, (measure, kind) in enumerate((m, k) for m in ("epsilon", "FNR", "FPR") for k in ("and", "mix")):
            _against_size(row[place], [r for r in results if r.cell.data == name], measure, kind)
            row[place].set_title(f"{name}: {measure}, {'conjunction' if kind == 'and' else 'mixed'}", fontsize=9)
    axes[0][0].legend(fontsize=7)


def entropies(figure: Any, results: Sequence[Result], found: Found) -> None:
    """ProBE, Fig. 9 (min-entropy against the number of sub-queries) and Fig. 10 (averages)."""
    figure.set_size_inches(15, 9)
    axes = figure.subplots(3, 4)
    for place, name in enumerate(_DATA):
        for row, kind in enumerate(("and", "mix")):
            _against_size(axes[row][place], [r for r in results if r.cell.data == name], "min-entropy", kind)
            axes[row][place].set_title(f"{name}, {'conjunction' if kind == 'and' else 'mixed'}", fontsize=9)
            axes[row][place].set_ylabel("min-entropy / log k", fontsize=8)
    averages = found["10 averages"]
    for axis, measure in zip(axes[2], READS, strict=True):
        _lines(axis, averages, list(averages), measure, PROBES)
        axis.set_title(f"averages on retail: {measure}", fontsize=9)
        axis.set_xlabel("averages, and the guard", fontsize=8)
    axes[2][0].legend(fontsize=7)


def settings(figure: Any, found: Found) -> None:
    """ProBE, Fig. 7 (margin, trees), Fig. 8 (beta, alpha) and Table 3 (beta between the phases)."""
    figure.set_size_inches(15, 9)
    axes = figure.subplots(3, 4)
    margin = found["7 margin"]
    for axis, measure in zip(axes[0][:2], ("epsilon", "FPR"), strict=True):
        xs = [percent for percent in MARGINS if str(percent) in margin]
        ys = [READS[measure](margin[str(p)][f"naive:margin={p}"]) for p in xs]
        axis.plot(xs, ys, "o-", color=_COLOURS["naive"], label="naive")
        for way in PROBES[1:]:
            axis.axhline(READS[measure](margin[""][way]) or 0, color=_COLOURS[way], label=way)
        axis.set_title(f"retail: {measure} over naive's margin, % of range", fontsize=9)
        axis.set_yscale("log" if measure == "epsilon" else "linear")
    axes[0][0].legend(fontsize=7)
    for axis, measure in zip(axes[0][2:], ("epsilon", "FPR"), strict=True):
        for place, way in enumerate(PROBES):
            heights = [READS[measure](found["7 tree"][tree][way]) or 0 for tree in ("Q_I", "Q_II")]
            axis.bar([place - 0.2, place + 0.2], heights, 0.38, color=_COLOURS[way], edgecolor="black")
        axis.set_xticks(range(len(PROBES)), PROBES, fontsize=7)
        axis.set_title(f"retail: {measure}, Q_I beside the distributed Q_II", fontsize=9)
    for column, bound in enumerate(("beta", "alpha")):
        for place, measure in enumerate(("epsilon", "FNR", "FPR")):
            axis = axes[1 + (2 * place + column) // 4][(2 * place + column) % 4]
            _lines(axis, found[f"8 {bound}"], BOUNDS, measure, PROBES)
            axis.set_title(f"taxi: {measure} over {bound}", fontsize=9)
    for beta in BETAS:
        chosen = [split for split in SPLITS if f"{beta}, {split} %" in found["table 3"]]
        spent = [found["table 3"][f"{beta}, {split} %"][f"probe:first={split}"].median for split in chosen]
        axes[2][2].plot(chosen, spent, "o-", label=f"beta {float(beta):g}")
    axes[2][2].set_title("taxi: epsilon over % of beta in phase one", fontsize=9)
    axes[2][2].legend(fontsize=7)
    axes[2][3].axis("off")


def mide(figure: Any, found: Found) -> None:
    """MIDE, Fig. 5.6 and 5.7 (queries and thresholds) above, 5.8 (the margin) below."""
    figure.set_size_inches(15, 7)
    axes = figure.subplots(2, 4)
    for place, measure in enumerate(READS):
        asked = list(found["5.6"])
        for number, way in enumerate(MIDES):
            heights = [READS[measure](found["5.6"][x][f"{way}:u=1"]) or 0 for x in asked]
            at = [i + 0.27 * (number - 1) for i in range(len(asked))]
            axes[0][place].bar(at, heights, 0.26, color=_COLOURS[way], label=way)
        axes[0][place].set_xticks(range(len(asked)), asked, fontsize=6)
        axes[0][place].set_title(f"{measure}, u = 1", fontsize=9)
        for way in MIDES:
            xs = [u for u in UNCERTAIN if str(u) in found["5.8"]]
            ys = [READS[measure](found["5.8"][str(u)][f"{way}:u={u}"]) for u in xs]
            axes[1][place].plot(xs, ys, "o-", color=_COLOURS[way], label=way)
        axes[1][place].set_xscale("log")
        axes[1][place].set_yscale("log" if measure == "epsilon" else "linear")
        axes[1][place].set_title(f"Q3, low threshold: {measure} over u", fontsize=9)
    axes[0][0].legend(fontsize=7)


def _against_size(axis: Any, results: Sequence[Result], measure: str, kind: str) -> None:
    """One line for each way; geometric means of epsilon, plain means of rates. A single sub-query is in both kinds."""
    for way in PROBES:
        points = []
        for n in sorted({r.cell.n for r in results}):
            chosen = [r for r in results if r.cell.n == n and (r.cell.shape == kind or n == 1)]
            values = [value for r in chosen if (value := READS[measure](r.ways[way])) is not None]
            if values:
                points.append((n, _mean(values, measure == "epsilon")))
        axis.plot([n for n, _ in points], [y for _, y in points], "o-", ms=3, color=_COLOURS[way], label=way)
    _bound(axis, measure)
    axis.set_xlabel("sub-queries", fontsize=8)


def _lines(
    axis: Any, found: Mapping[str, Mapping[str, Summary]], xs: Sequence[str], measure: str, ways: Sequence[str]
) -> None:
    there = [x for x in xs if x in found]
    for way in ways:
        ys = [READS[measure](found[x][way]) for x in there]
        axis.plot(there, [math.nan if y is None else y for y in ys], "o-", ms=3, color=_COLOURS[way], label=way)
    if there and measure == "epsilon":
        axis.set_yscale("log")
    axis.tick_params(labelsize=7)


def _mean(values: Sequence[float], geometric: bool) -> float:
    return math.exp(fmean(math.log(value) for value in values)) if geometric else fmean(values)


def _bound(axis: Any, measure: str) -> None:
    if measure == "epsilon":
        axis.set_yscale("log")
    elif measure in ("FNR", "FPR"):
        axis.axhline(0.05 if measure == "FNR" else 0.1, color="black", linewidth=0.7, linestyle=":")
        axis.set_ylim(bottom=0)
    axis.tick_params(labelsize=7)
