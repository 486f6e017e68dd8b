"""Pictures: the figures of DProvDB, with pgveil beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bench.synopsis.figures import DELTAS, EPSILONS, EQUALS, ORDERS, SIX, TAUS, TWO, Figures, Found
from bench.synopsis.runs import OURS, SMOOTH, SUMMED, SYSTEMS, THEIRS, fairness

_COLOURS = {
    OURS: "C3",
    THEIRS: "C0",
    SUMMED: "C9",
    SMOOTH: "C7",
    "vanilla": "C2",
    "sprivatesql": "C1",
    "chorusp": "C4",
    "chorus": "C5",
}


def answered(figure: Any, figures: Figures, found: Found) -> None:
    """Fig. 3 a and b: questions answered against the budget."""
    figure.set_size_inches(13, 7)
    axes = figure.subplots(2, 4, squeeze=False)
    for row, privileges in enumerate((TWO, SIX)):
        panels = [(table, order) for table in figures.size.tables for order in ORDERS]
        for axis, (table, order) in zip(axes[row], panels, strict=False):
            for system in (*SYSTEMS, SMOOTH):
                first = replace(figures.end_to_end[0], system=system, table=table, order=order, privileges=privileges)
                ys = [figures.mean(found, replace(first, epsilon=epsilon)) for epsilon in EPSILONS]
                style = ":" if system == SMOOTH else "o-"
                axis.plot(EPSILONS, ys, style, ms=3, color=_COLOURS[system], label=system)
            axis.set_title(f"{table}, {order}, {len(privileges)} analysts", fontsize=9)
            axis.set_xlabel("epsilon", fontsize=8)
            axis.tick_params(labelsize=7)
    axes[0][0].set_ylabel("questions answered")
    axes[0][0].legend(fontsize=7)


def fair(figure: Any, figures: Figures, found: Found) -> None:
    """Fig. 3 c and d, and 7: fairness against the budget, and what tau does to both."""
    figure.set_size_inches(13, 7)
    axes = figure.subplots(2, 2)
    for axis, order in zip(axes[0], ORDERS, strict=True):
        for system in SYSTEMS:
            first = replace(figures.end_to_end[0], system=system, order=order, privileges=TWO)
            ys = [
                figures.mean(found, replace(first, epsilon=epsilon), lambda one: fairness(one.answered, TWO))
                for epsilon in EPSILONS
            ]
            axis.plot(EPSILONS, ys, "o-", ms=3, color=_COLOURS[system], label=system)
        axis.set_title(f"adult, {order}: nDCFG over epsilon", fontsize=9)
    axes[0][0].legend(fontsize=7)
    for system in (OURS, THEIRS):
        for epsilon, style in zip(EPSILONS, (":", "-.", "--", "-", "-"), strict=True):
            first = replace(figures.tau[0], system=system, epsilon=epsilon)
            points = [replace(first, tau=tau) for tau in TAUS]
            label = f"{system}, {epsilon}"
            ys = [figures.mean(found, one) for one in points]
            axes[1][0].plot(TAUS, ys, style, marker=".", color=_COLOURS[system], label=label)
            scores = [figures.mean(found, one, lambda o: fairness(o.answered, TWO)) for one in points]
            axes[1][1].plot(TAUS, scores, style, marker=".", color=_COLOURS[system], label=label)
    axes[1][0].set_title("questions answered over tau", fontsize=9)
    axes[1][1].set_title("nDCFG over tau", fontsize=9)
    axes[1][0].legend(fontsize=6, ncols=2)


def searches(figure: Any, figures: Figures, found: Found) -> None:
    """Fig. 4: the budget spent in the course of a breadth-first search."""
    axes = figure.subplots(1, len(figures.size.tables), squeeze=False)[0]
    for task in figures.searches:
        axis = axes[list(figures.size.tables).index(task.table)]
        axis.plot(found[task].course, color=_COLOURS[task.system], label=task.system)
        axis.set_title(f"{task.table}: epsilon spent over questions", fontsize=9)
        axis.set_yscale("log")
    axes[0].legend(fontsize=7)


def components(figure: Any, figures: Figures, found: Found) -> None:
    """Fig. 5, 6 and 8: the size of the workload, the number of analysts, delta."""
    figure.set_size_inches(14, 7)
    axes = figure.subplots(2, 4)
    sizes = list(dict.fromkeys(task.size for task in figures.cached))
    for axis, epsilon in zip(axes.flat, EPSILONS, strict=False):
        for system in dict.fromkeys(task.system for task in figures.cached):
            first = replace(figures.cached[0], system=system, epsilon=epsilon)
            ys = [figures.mean(found, replace(first, size=size)) for size in sizes]
            axis.plot(sizes, ys, "o-", ms=3, color=_COLOURS[system], label=system)
        axis.set_title(f"epsilon {epsilon}: answered over questions each", fontsize=8)
        axis.tick_params(labelsize=7)
    axes[0][0].legend(fontsize=7)
    analysts, deltas = axes.flat[5], axes.flat[6]
    for system in (OURS, THEIRS, SUMMED, "vanilla"):
        first = replace(figures.analysts[0], system=system)
        ys = [figures.mean(found, replace(first, privileges=equals)) for equals in EQUALS]
        analysts.plot([len(equals) for equals in EQUALS], ys, "o-", ms=3, color=_COLOURS[system], label=system)
    analysts.set_title("epsilon 3.2: answered over analysts", fontsize=8)
    analysts.legend(fontsize=7)
    for system in (OURS, THEIRS, "vanilla"):
        ys = [figures.mean(found, replace(figures.delta[0], system=system, delta=delta)) for delta in DELTAS]
        deltas.plot(DELTAS, ys, "o-", ms=3, color=_COLOURS[system], label=system)
    deltas.set_title("epsilon 6.4: answered over delta", fontsize=8)
    axes.flat[7].axis("off")
