"""How long a question takes, and how accurate its answer is: every release and every part is really drawn."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from bench.synopsis.ours import Pgveil
from bench.synopsis.runs import OURS, Task, limits, questions, run_task
from bench.synopsis.workload import BINS, turns, views
from mechanisms.sampler import Source


@dataclass(frozen=True, slots=True)
class Kind:
    """Questions that were answered in the same way."""

    questions: int
    median: float  # milliseconds
    slowest: float  # of a hundred


@dataclass(frozen=True, slots=True)
class Timed:
    """What one run took, and what it delivered."""

    kinds: dict[str, Kind]
    of_asked: float  # the mean of squared error / what was asked
    of_promised: float  # and / the variance that the answer was known to have
    others: dict[str, float]  # milliseconds a question, of the rivals' accounts alone


def timed(task: Task, rivals: Sequence[str], copies: int, source: Source = os.urandom) -> Timed:
    """Ask everything with real noise: once for the clock, and once on many copies for the errors."""
    taken: dict[str, list[float]] = {}
    for kind, millis, _, _ in _asked(task, 1, source):
        taken.setdefault(kind, []).append(millis)
    errors = [(asked, promised) for _, _, asked, promised in _asked(task, copies, source) if asked is not None]
    others = {name: run_task(_as(task, name)).micros / 1e3 for name in rivals if name != OURS}
    of_asked, of_promised = (statistics.fmean(one) for one in zip(*errors, strict=True))
    return Timed({kind: _kind(times) for kind, times in taken.items()}, of_asked, of_promised, others)


def _asked(task: Task, copies: int, source: Source) -> Iterator[tuple[str, float, float | None, float]]:
    """How each question was answered, the milliseconds it took, and its squared error over what was asked, promised."""
    asked = questions(task)
    ledger = Pgveil(Decimal(task.epsilon), Decimal(task.delta), limits(task), views(task.table), source, copies)
    places = [0] * len(task.privileges)
    for who in turns(task.order, len(task.privileges), len(asked), task.run):
        question = asked[places[who]]
        places[who] += 1
        begun = time.perf_counter()
        if not ledger.ask(who, question):
            yield "refuse", 1e3 * (time.perf_counter() - begun), None, 0.0
            continue
        # Ranges all over the view: its cells err independently.
        errors = ledger.shown(who, question, 11 * places[who] % (BINS - question.bins + 1))
        millis = 1e3 * (time.perf_counter() - begun)
        square = float(np.mean(errors**2))
        kind = "reuse" if ledger.last is None else ledger.last.word
        yield kind, millis, square / question.variance, square / ledger.promised(who, question)


def _as(task: Task, system: str) -> Task:
    return Task(system, task.table, task.run, task.epsilon, task.privileges, task.order, task.size)


def _kind(times: list[float]) -> Kind:
    return Kind(len(times), statistics.median(times), sorted(times)[int(0.99 * len(times))])
