"""How many questions a budget answers: DProvDB's experiments on its own workloads, with pgveil beside it.

Two or six analysts ask the same lists of random range counts; every question says how accurate it must be, and becomes
more demanding as the list goes on. What a limit refuses is passed over. What counts is the number of answers.

    pgveil        the planner under the ledger's limits: precisions and rho add up; a part of a release by a bridge
    dprovdb       as printed: additive Gaussian, epsilons add up, a growing synopsis pays for its friction
    no friction   nobody's system: dprovdb if growing a synopsis cost no more than having had it so from the start
    vanilla       a synopsis for each analyst;  sprivatesql  all views released once, nobody's limit is kept
    chorus        every question by itself;  chorusp  with a limit for each analyst
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bench.rig.measure import say
from bench.rig.report import Report
from bench.synopsis import plots, told
from bench.synopsis.figures import FULL, SMOKE, Figures, Found, figures
from bench.synopsis.runs import OURS, SYSTEMS, THEIRS
from bench.synopsis.timed import Timed, timed
from bench.synopsis.workers import run_all
from bench.synopsis.workload import missing


def run(*, smoke: bool) -> Report:
    """Every figure of the paper."""
    gone = missing()
    if gone:
        return _skipped(gone, smoke)
    asked = figures(SMOKE if smoke else FULL)
    found = run_all(asked.tasks(), "synopses")
    say("synopses: with real noise")
    clock = timed(replace(asked.end_to_end[0], system=OURS, table="adult", epsilon="3.2"), SYSTEMS, asked.size.copies)
    return Report(
        "synopses",
        smoke,
        told.tables(asked, found, clock),
        {"runs": asked.size.runs, **told.numbers(asked, found, clock)},
        lambda figure: plots.answered(figure, asked, found),
        _notes(asked, found, clock),
        pictures={
            "fairness": lambda figure: plots.fair(figure, asked, found),
            "searches": lambda figure: plots.searches(figure, asked, found),
            "components": lambda figure: plots.components(figure, asked, found),
        },
    )


def _notes(asked: Figures, found: Found, clock: Timed) -> list[str]:
    lowest = min(told.ratio(asked, found, point) for point in asked.end_to_end if point.system == OURS)
    fewer = [one for quotient, one in told.single(asked, found) if quotient < 1]
    most = max(
        found[one].releases for point in asked.end_to_end if point.system == THEIRS for one in asked.repeated(point)
    )
    return [
        f"pgveil / dprovdb, means over {asked.size.runs} lists: at least {lowest:.2f} at every epsilon, order, table"
        f" and number of analysts; on single lists it answered fewer in {len(fewer)} of"
        f" {len(told.single(asked, found))} runs"
        + (f", all at epsilon {', '.join(sorted({one.epsilon for one in fewer}))}." if fewer else "."),
        "at small budgets the order of questions decides: who spends on a view that is asked rarely has nothing left"
        " for the one that is asked often, and a system that cannot afford the rare one at all is lucky.",
        f"delta: pgveil promises (epsilon, 1e-9) for everything together, and uses half of it here; the others pay 1e-9"
        f" for each release, and dprovdb made up to {most}.",
        "limits of analysts: Def. 11 (privilege / largest privilege) for pgveil and dprovdb, Def. 10 (/ sum of"
        " privileges) for vanilla and chorusp; chorus and sprivatesql know the table's limit only, so that under"
        " sprivatesql an analyst of privilege 1 learns as much as one of privilege 4.",
        f"with all noise drawn on {asked.size.copies:,} copies of each view, the squared error of pgveil's answers"
        f" was on average {clock.of_promised:.3f} of the variance that they were told to have, and"
        f" {clock.of_asked:.2f} of what was asked for: most questions find more than they ask for.",
        "dprovdb is Algorithm 4 as printed. The program published with it (as we read it) answers from a global"
        " synopsis that is accurate enough without charging the analyst, and charges a growing one the larger of two"
        " epsilons instead of their sum: its counts can be higher than the printed algorithm allows.",
    ]


def _skipped(gone: Sequence[str], smoke: bool) -> Report:
    def draw(figure: Any) -> None:
        figure.text(0.5, 0.5, "skipped: the workloads are not there", ha="center")

    note = f"SKIPPED: the workloads are not there ({', '.join(gone)}); they are expected in ../shared/data."
    return Report("synopses", smoke, (), {"skipped": list(gone)}, draw, [note])
