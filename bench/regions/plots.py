"""Pictures of the benches ``overlap`` and ``relax``: the papers' figures, ours beside theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]
_COLOURS = {"ours": "C3", "printed": "C0", "dsatur": "C0"}


def overlap(figure: Any, counted: Rows, anchored: Rows, added: Mapping[str, Any]) -> None:
    """Left: seconds against questions. Right: utility gain."""
    left, right = figure.subplots(1, 2)
    x = [row["queries"] for row in counted]
    left.plot(x, [row["seconds"] for row in counted], "o-", color="C3", label="pgveil, from scratch")
    left.plot(x, [row["weighted"] for row in counted], "s--", color="C6", label="pgveil, all weights different")
    at = [row["queries"] for row in anchored]
    left.plot(
        at, [row["dsatur"]["seconds"] for row in anchored], "^-", color="C0", label="DSATUR (networkx), from scratch"
    )
    left.plot([added["known"]], [added["mean_millis"] / 1000], "*", color="C2", markersize=12, label="pgveil, one more")
    left.axhline(60, color="black", linewidth=0.8, linestyle=":")
    left.set_yscale("log")
    left.set_xlabel("census questions")
    left.set_ylabel("seconds")
    left.set_title("Time to know the maximum overlap")
    left.legend(fontsize=8)
    right.plot(x, [100 * row["gain"] for row in counted], ":", color="C3", label="pgveil, mean of some sets")
    for way, marker, label in (("ours", "o", "pgveil, one set each"), ("dsatur", "^", "DSATUR, the same set")):
        gains = [100 * row[way]["gain"] for row in anchored]
        right.plot(at, gains, marker, color=_COLOURS[way], fillstyle="none", markersize=9, label=label)
    right.set_xlabel("census questions")
    right.set_ylabel("utility gain, %")
    right.set_title("What parallel composition saves")
    right.legend(fontsize=8)


def domains(figure: Any, rows: Rows) -> None:
    """Seconds against the size of the domain; a ring where the bound is exact."""
    axes = figure.subplots()
    for queries in sorted({row["queries"] for row in rows}):
        some = [row for row in rows if row["queries"] == queries]
        (line,) = axes.plot(
            [row["attributes"] for row in some],
            [row["seconds"] for row in some],
            "o-",
            label=f"pgveil, {queries:,} questions",
        )
        rival = [row for row in some if "dsatur" in row]
        if rival:
            x, y = [row["attributes"] for row in rival], [row["dsatur"]["seconds"] for row in rival]
            axes.plot(x, y, "^:", color=line.get_color(), label=f"DSATUR (networkx), {queries:,} questions")
        exact = [row for row in some if row["exact"]]
        x, y = [row["attributes"] for row in exact], [row["seconds"] for row in exact]
        axes.plot(x, y, "o", color=line.get_color(), markersize=14, fillstyle="none")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("attributes of ten values each: log10 of the domain's size (ring: exact)")
    axes.set_ylabel("seconds")
    axes.legend(fontsize=8)


def distributions(figure: Any, queries: Sequence[int], gains: Mapping[str, Sequence[float]]) -> None:
    axes = figure.subplots()
    for name, values in gains.items():
        axes.plot(queries, [100 * value for value in values], "o-", label=name)
    axes.set_xlabel("questions on 48 attributes")
    axes.set_ylabel("utility gain, %")
    axes.legend(fontsize=8)


def relaxing(figure: Any, progress: Mapping[str, Mapping[str, Any]], whole: Mapping[str, Mapping[str, Any]]) -> None:
    """How many are answered as they come; and what relaxing the rest costs in error."""
    panels = figure.subplots(1, len(progress) + 1)
    for axes, (name, found) in zip(panels, progress.items(), strict=False):
        for way in found:
            if way not in ("asked", "most"):
                axes.plot(found["asked"], found[way], color={"exact": "C3", "disjoint": "C7"}.get(way), label=way)
        axes.axhline(found["most"], color="black", linewidth=0.8, linestyle=":", label="Lemma 3")
        axes.set_xlabel("questions asked")
        axes.set_title(f"Answered, {name} centres")
        axes.legend(fontsize=7)
    last = panels[-1]
    for place, way in enumerate(("printed", "ours")):
        heights = [100 * both[way]["mean_error"] for both in whole.values()]
        last.bar([n + 0.4 * place for n in range(len(whole))], heights, 0.4, color=_COLOURS[way], label=way)
    last.set_xticks([n + 0.2 for n in range(len(whole))], list(whole))
    last.set_title("Mean relaxation error, %")
    last.legend(fontsize=8)


def capacity(
    figure: Any, found: Mapping[str, Mapping[str, Sequence[int]]], told: Mapping[str, Sequence[float]]
) -> None:
    for axes, what in zip(figure.subplots(1, 2), ("epsilon", "volume"), strict=True):
        for name, values in found.items():
            axes.plot(told[what], values[what], "o-", label=f"{name} centres")
        axes.set_xlabel(what)
        axes.set_title("Questions answered")
        axes.legend(fontsize=8)


def series(
    figure: Any, found: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]], told: Mapping[str, Sequence[float]]
) -> None:
    """Error, size of the compound and time, each against xi, epsilon and volume."""
    figure.set_size_inches(10, 9)
    panels = figure.subplots(3, 3)
    reads = (("mean_error", "mean error, %", 100), ("mean_terms", "terms", 1), ("millis", "ms per question", 1))
    for column, what in enumerate(found):
        for row, (key, label, factor) in enumerate(reads):
            axes = panels[row][column]
            for name, points in found[what].items():
                for way in ("printed", "ours"):
                    values = [factor * both[way][key] for both in points]
                    style = "o-" if name == "data" else "s--"
                    axes.plot(told[what], values, style, color=_COLOURS[way], label=f"{way}, {name}", markersize=4)
            axes.set_xlabel(what)
            axes.set_ylabel(label)
    panels[0][0].legend(fontsize=7)
