"""Runs on all cores, with a bar that tells how far they are."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from bench.rig.measure import say
from bench.synopsis.runs import Outcome, Task, run_task

_BAR = 30
_EVERY = 30.0  # seconds between lines where nobody looks at a terminal


def run_all(tasks: Sequence[Task], label: str) -> dict[Task, Outcome]:
    """The outcome of every task; the same task in two figures is run once."""
    wanted = list(dict.fromkeys(tasks))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    begun = told = time.monotonic()
    found: dict[Task, Outcome] = {}
    with ProcessPoolExecutor(cores, mp_context=multiprocessing.get_context("spawn")) as pool:
        # The longest first, so that no core waits for the last one.
        ordered = sorted(wanted, key=lambda task: -task.size * len(task.privileges))
        places = {pool.submit(run_task, task): task for task in ordered}
        for done in as_completed(places):
            found[places[done]] = done.result()
            now = time.monotonic()
            if sys.stderr.isatty():
                filled = _BAR * len(found) // len(wanted)
                bar = f"[{'#' * filled}{'.' * (_BAR - filled)}] {len(found)}/{len(wanted)}"
                print(f"\rbench: {label} {bar}   ", end="", file=sys.stderr, flush=True)
            elif now - told >= _EVERY:
                told = now
                say(f"{label}: {len(found)} of {len(wanted)}")
    if sys.stderr.isatty():
        print(file=sys.stderr)
    say(f"{label}: {len(wanted)} runs in {time.monotonic() - begun:.0f} s")
    return found
