"""Tasks on all cores, with a bar that tells how far they are."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from bench.decision.runs import Summary, Task, run_task
from bench.rig.measure import say

_BAR = 30
_EVERY = 30.0  # seconds between lines where nobody looks at a terminal


class Pool:
    """Worker processes that stay, since each has tables of noise to build first."""

    def __init__(self) -> None:
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        # Fresh processes: a fork of a process in which libraries have started threads may hang.
        self._workers = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.shutdown(cancel_futures=True)

    def run(self, tasks: Sequence[Task], label: str) -> list[dict[str, Summary]]:
        """The outcome of each task, in their order."""
        found: list[dict[str, Summary]] = [{} for _ in tasks]
        progress = _Progress(label, len(tasks))
        places = {self._workers.submit(run_task, task): place for place, task in enumerate(tasks)}
        for done in as_completed(places):
            found[places[done]] = done.result()
            progress.step()
        progress.end()
        return found


class _Progress:
    """A bar on a terminal, a line now and then elsewhere."""

    def __init__(self, label: str, whole: int) -> None:
        self.label, self.whole, self.done = label, whole, 0
        self.begun = self.told = time.monotonic()
        self.live = sys.stderr.isatty()

    def step(self) -> None:
        self.done += 1
        now = time.monotonic()
        left = (now - self.begun) / self.done * (self.whole - self.done)
        filled = _BAR * self.done // self.whole
        line = f"{self.label} [{'#' * filled}{'.' * (_BAR - filled)}] {self.done}/{self.whole}, {left:.0f} s left"
        if self.live:
            print(f"\rbench: {line}   ", end="", file=sys.stderr, flush=True)
        elif now - self.told >= _EVERY:
            self.told = now
            say(line)

    def end(self) -> None:
        if self.live:
            print(file=sys.stderr)
        say(f"{self.label}: {self.whole} tasks in {time.monotonic() - self.begun:.0f} s")
