"""Tables and numbers of the bench."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from bench.rig.report import Table
from bench.synopsis.figures import DELTAS, EPSILONS, EQUALS, ORDERS, SIX, TAUS, TWO, Figures, Found
from bench.synopsis.runs import OURS, SMOOTH, SUMMED, SYSTEMS, THEIRS, Task, fairness, proportional
from bench.synopsis.timed import Timed

PUBLISHED = {"dprovdb": 3.46, "vanilla": 1.37, "sprivatesql": 1.94, "chorus": 119.04, "chorusp": 120.62}
"""Milliseconds a question, from the paper's Table 2: another machine, and the time of the database is in it."""


def tables(figures: Figures, found: Found, timed: Timed) -> list[Table]:
    """In the order of the paper."""
    ends = [
        _end_to_end(figures, found, table, privileges) for table in figures.size.tables for privileges in (TWO, SIX)
    ]
    return [
        *ends,
        _worst(figures, found),
        _fair(figures, found),
        _searches(figures, found),
        _cached(figures, found),
        _analysts(figures, found),
        _tau(figures, found),
        _delta(figures, found),
        _times(timed),
    ]


def ratio(figures: Figures, found: Found, point: Task, rival: str = THEIRS) -> float:
    """Ours over theirs: questions answered, means over the lists."""
    theirs = figures.mean(found, replace(point, system=rival))
    return figures.mean(found, replace(point, system=OURS)) / max(theirs, 1.0)


def single(figures: Figures, found: Found, rival: str = THEIRS) -> list[tuple[float, Task]]:
    """Ours over theirs on each list by itself, the smallest first."""
    points = [one for point in figures.end_to_end if point.system == OURS for one in figures.repeated(point)]
    quotients = [(found[one].total / max(found[replace(one, system=rival)].total, 1), one) for one in points]
    return sorted(quotients, key=lambda pair: pair[0])


def _point(figures: Figures, **what: Any) -> Task:
    """A point of the first figure."""
    return replace(figures.end_to_end[0], **what)


def _end_to_end(figures: Figures, found: Found, table: str, privileges: tuple[int, ...]) -> Table:
    rows = []
    for system in (*SYSTEMS, SMOOTH):
        at = [
            _point(figures, system=system, table=table, privileges=privileges, epsilon=epsilon, order=order)
            for epsilon in EPSILONS
            for order in ORDERS
        ]
        rows.append([system, *(f"{figures.mean(found, one):,.0f}" for one in at)])
    here = [
        _point(figures, table=table, privileges=privileges, epsilon=epsilon, order=order)
        for epsilon in EPSILONS
        for order in ORDERS
    ]
    rows.append(["pgveil / dprovdb", *(f"{ratio(figures, found, one):.2f}" for one in here)])
    rows.append(["pgveil / no friction", *(f"{ratio(figures, found, one, SMOOTH):.2f}" for one in here)])
    asked = figures.end_to_end[0].size * len(privileges)
    return Table(
        f"{table}, {len(privileges)} analysts: answered of {asked:,}, by epsilon (rr: round-robin, rnd: random)",
        ["", *(f"{epsilon} {'rr' if order == ORDERS[0] else 'rnd'}" for epsilon in EPSILONS for order in ORDERS)],
        rows,
    )


def _worst(figures: Figures, found: Found) -> Table:
    rows = []
    for rival in (THEIRS, SMOOTH):
        for epsilon in EPSILONS:
            quotients = [q for q, one in single(figures, found, rival) if one.epsilon == epsilon]
            fewer = sum(q < 1 for q in quotients)
            mean = fmean(quotients)
            rows.append([f"{rival}, {epsilon}", f"{quotients[0]:.2f}", f"{mean:.2f}", f"{fewer} of {len(quotients)}"])
    return Table("List by list: pgveil over its rival", ["rival, epsilon", "smallest", "mean", "fewer"], rows)


def _fair(figures: Figures, found: Found) -> Table:
    rows = []
    for system in SYSTEMS:
        points = [
            one
            for epsilon in EPSILONS
            for one in figures.repeated(_point(figures, system=system, privileges=TWO, epsilon=epsilon))
        ]
        scores = {
            epsilon: fmean(fairness(found[one].answered, TWO) for one in points if one.epsilon == epsilon)
            for epsilon in EPSILONS
        }
        fair = sum(proportional(found[one].spent_by, TWO) for one in points)
        low, high = (sum(found[one].spent_by[who] / TWO[who] for one in points) for who in (0, 1))
        told = [*(f"{scores[epsilon]:.2f}" for epsilon in EPSILONS), f"{fair} of {len(points)}", f"{low / high:.3f}"]
        rows.append([system, *told])
    return Table(
        "Fairness, adult, round-robin, privileges 1 and 4: nDCFG by epsilon; in how many runs the low one spends no"
        " more for each privilege than the high one; and that ratio",
        ["", *EPSILONS, "proportional", "low/high"],
        rows,
    )


def _searches(figures: Figures, found: Found) -> Table:
    systems = list(dict.fromkeys(task.system for task in figures.searches))
    rows = []
    for system in systems:
        ended = [found[task] for task in figures.searches if task.system == system]
        rows.append([system, *(f"{one.course[-1]:.3f}" for one in ended), *(f"{one.releases}" for one in ended)])
    names = list(figures.size.tables)
    return Table(
        "Breadth-first search by two analysts: the epsilon spent in the end, and the releases",
        ["", *names, *(f"{name}, releases" for name in names)],
        rows,
    )


def _cached(figures: Figures, found: Found) -> Table:
    asked = {task.size: task for task in figures.cached}
    rows = []
    for system in dict.fromkeys(task.system for task in figures.cached):
        for epsilon in (EPSILONS[0], EPSILONS[3]):
            at = [replace(asked[size], system=system, epsilon=epsilon) for size in asked]
            rows.append([f"{system}, {epsilon}", *(f"{figures.mean(found, one):,.0f}" for one in at)])
    return Table("Cached synopses: answered, by questions for each of two analysts", ["", *map(str, asked)], rows)


def _analysts(figures: Figures, found: Found) -> Table:
    first = figures.analysts[0]
    rows = [
        [system, *(f"{figures.mean(found, replace(first, system=system, privileges=p)):,.0f}" for p in EQUALS)]
        for system in (OURS, THEIRS, SUMMED, "vanilla")
    ]
    return Table(
        "Additive and vanilla, epsilon 3.2: answered, by equal analysts", ["", *(f"{len(p)}" for p in EQUALS)], rows
    )


def _tau(figures: Figures, found: Found) -> Table:
    rows = []
    for system in (OURS, THEIRS):
        for epsilon in EPSILONS:
            at = [replace(figures.tau[0], system=system, epsilon=epsilon, tau=tau) for tau in TAUS]
            cells = [
                f"{figures.mean(found, one):,.0f} ({figures.mean(found, one, lambda o: fairness(o.answered, TWO)):.2f})"
                for one in at
            ]
            rows.append([f"{system}, {epsilon}", *cells])
    return Table("Expansion tau, round-robin: answered (nDCFG)", ["", *TAUS], rows)


def _delta(figures: Figures, found: Found) -> Table:
    rows = [
        [
            system,
            *(f"{figures.mean(found, replace(figures.delta[0], system=system, delta=delta)):,.0f}" for delta in DELTAS),
        ]
        for system in (OURS, THEIRS, "vanilla")
    ]
    return Table("Delta, epsilon 6.4, round-robin: answered", ["", *DELTAS], rows)


def _times(timed: Timed) -> Table:
    rows = [
        [f"pgveil, {kind}", f"{one.questions:,}", f"{one.median:.3f}", f"{one.slowest:.3f}", ""]
        for kind, one in timed.kinds.items()
    ]
    rows += [[name, "", f"{millis:.4f}", "", f"{PUBLISHED[name]:.2f}"] for name, millis in timed.others.items()]
    return Table(
        "Milliseconds a question: pgveil with all noise drawn, but no server and no disk; the others' accounts alone",
        ["", "questions", "median", "99 of 100", "published"],
        rows,
    )


def numbers(figures: Figures, found: Found, timed: Timed) -> dict[str, Any]:
    """For programs."""

    def several(points: Sequence[Task]) -> list[dict[str, Any]]:
        return [
            {
                "system": point.system,
                "table": point.table,
                "epsilon": float(point.epsilon),
                "delta": float(point.delta),
                "tau": float(point.tau),
                "order": point.order,
                "privileges": list(point.privileges),
                "questions": point.size * len(point.privileges),
                "answered": figures.mean(found, point),
                "ndcfg": fmean(fairness(found[one].answered, point.privileges) for one in figures.repeated(point)),
                "answered_by_list": [found[one].total for one in figures.repeated(point)],
                "spent_by_list": [round(found[one].spent, 6) for one in figures.repeated(point)],
            }
            for point in points
        ]

    return {
        "end_to_end": several(figures.end_to_end),
        "cached": several(figures.cached),
        "analysts": several(figures.analysts),
        "tau": several(figures.tau),
        "delta": several(figures.delta),
        "searches": [
            {"system": task.system, "table": task.table, "course": list(found[task].course)}
            for task in figures.searches
        ],
        "ratio": {
            f"{point.table}, {len(point.privileges)} analysts, {point.epsilon}, {point.order}": {
                "dprovdb": ratio(figures, found, point),
                "no friction": ratio(figures, found, point, SMOOTH),
            }
            for point in figures.end_to_end
            if point.system == OURS
        },
        "time": {
            "pgveil": {
                kind: {"questions": one.questions, "median_millis": one.median} for kind, one in timed.kinds.items()
            },
            "accounts_millis": timed.others,
            "squared_error_over_asked": timed.of_asked,
            "squared_error_over_promised": timed.of_promised,
        },
    }
