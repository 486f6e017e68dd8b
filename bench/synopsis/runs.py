"""One run: a system, its analysts, and a list of questions that each of them asks."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from bench.synopsis.analytic import Price
from bench.synopsis.ours import Pgveil
from bench.synopsis.rivals import Chorus, DProvDB, NoFriction, PrivateSQL, System, Vanilla
from bench.synopsis.workload import Asked, ranges, search, turns, views

OURS, THEIRS = "pgveil", "dprovdb"
SYSTEMS = (OURS, THEIRS, "vanilla", "sprivatesql", "chorusp", "chorus")
SMOOTH = "no friction"
"""DProvDB without friction: nobody's system; it tells friction from how epsilons add up."""
SUMMED = "dprovdb, l_sum"
"""DProvDB with limits in proportion to the sum of privileges (Def. 10)."""


@dataclass(frozen=True, slots=True)
class Task:
    """What is run; a size of 0 is the breadth-first search."""

    system: str
    table: str
    run: int
    epsilon: str
    privileges: tuple[int, ...]
    order: str = "round-robin"
    size: int = 4000
    start: int = 3000
    step: int = 1
    delta: str = "1e-9"
    tau: str = "1"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it; ``course`` is the epsilon spent after each question of a search."""

    answered: tuple[int, ...]  # by each analyst
    spent: float
    spent_by: tuple[float, ...]
    releases: int
    micros: float  # for each question asked
    course: tuple[float, ...] = field(default=())

    @property
    def total(self) -> int:
        return sum(self.answered)


def limits(task: Task) -> list[Decimal]:
    """The epsilon of each analyst: Def. 11 with expansion tau where noise is shared, else Def. 10."""
    epsilon, privileges = Decimal(task.epsilon), task.privileges
    match task.system:
        case "pgveil" | "dprovdb" | "no friction":
            return [min(epsilon, Decimal(task.tau) * epsilon * one / max(privileges)) for one in privileges]
        case "chorus" | "sprivatesql":
            return [epsilon for _ in privileges]
        case _:
            return [epsilon * one / sum(privileges) for one in privileges]


def system(task: Task) -> System:
    """An empty ledger."""
    several = 1 if task.size == 0 else views(task.table)
    if task.system == OURS:
        return Pgveil(Decimal(task.epsilon), Decimal(task.delta), limits(task), several)
    kinds: dict[str, type[DProvDB | Vanilla | PrivateSQL]] = {
        THEIRS: DProvDB,
        SUMMED: DProvDB,
        SMOOTH: NoFriction,
        "vanilla": Vanilla,
        "chorus": Chorus,
        "chorusp": Chorus,
        "sprivatesql": PrivateSQL,
    }
    made = kinds[task.system]
    return made(Price(float(task.delta)), float(task.epsilon), [float(one) for one in limits(task)], several)


def questions(task: Task) -> list[Asked]:
    """The list that every analyst has."""
    return ranges(task.table, task.run, task.size, task.start, task.step) if task.size else search(task.table)


def run_task(task: Task) -> Outcome:
    """Everybody asks everything; what is refused is not asked again."""
    asked = questions(task)
    ledger = system(task)
    order = turns(task.order, len(task.privileges), len(asked), task.run)
    places, answered, course = [0] * len(task.privileges), [0] * len(task.privileges), []
    begun = time.perf_counter()
    for who in order:
        answered[who] += ledger.ask(who, asked[places[who]])
        places[who] += 1
        if not task.size:
            course.append(ledger.spent())
    taken = time.perf_counter() - begun
    return Outcome(
        tuple(answered),
        ledger.spent(),
        tuple(ledger.spent_by(who) for who in range(len(task.privileges))),
        ledger.releases(),
        1e6 * taken / len(order),
        tuple(course),
    )


def fairness(answered: Sequence[float], privileges: Sequence[int]) -> float:
    """nDCFG: each answer counts 1 / log2(1 + 1/privilege), and the sum is divided by the number of answers."""
    total = sum(answered)
    gain = sum(n / math.log2(1 / one + 1) for n, one in zip(answered, privileges, strict=True))
    return gain / total if total else 0.0


def proportional(spent_by: Sequence[float], privileges: Sequence[int]) -> bool:
    """Proportional fairness (Def. 7): nobody has spent more for each privilege than one who has more privileges."""
    pairs = sorted(zip(privileges, spent_by, strict=True))
    return all(
        low / small <= high / large * (1 + 1e-9) + 1e-9
        for i, (small, low) in enumerate(pairs)
        for large, high in pairs[i + 1 :]
        if large > small
    )
