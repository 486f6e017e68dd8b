"""A pgveil without noise, for tests only: the release step is replaced before the proxy starts.

    python tests/system/noiseless.py serve ...

Everything else is the product: what it answers must be what PostgreSQL answers.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np

import mechanisms.named
import mechanisms.release
import proxy.answer
import proxy.numbers
import proxy.rows
from mechanisms.decision import Decision, Fresh, Problem, Solver
from mechanisms.grid import Grid
from mechanisms.noise import DiscreteLaplace
from mechanisms.shifted import combined
from mechanisms.synopsis import Partial, Release
from proxy.__main__ import main


def no_noise(noise: Any, count: int, source: Any) -> Any:
    return np.zeros(count, dtype=np.int64)


def no_lean(row: Any, direction: int, threshold: Any, share: Any) -> Any:
    return row >= threshold if direction > 0 else row <= threshold


def certain(problem: Problem, margins: Sequence[int]) -> Solver:
    """The decision on the numbers themselves: what is left is how HAVING was read."""
    everyone = np.ones(problem.cells, dtype=np.bool_)
    used = sorted({test.statistic for test in problem.tests})
    flat = [DiscreteLaplace(Fraction(problem.sensitivities[of], 2**40), problem.sensitivities[of]) for of in used]
    replies = yield tuple(Fresh(of, everyone, noise) for of, noise in zip(used, flat, strict=True))
    numbers = dict(zip(used, replies, strict=True))
    found = {
        at: no_lean(numbers[test.statistic], test.direction, test.threshold, None)
        for at, test in enumerate(problem.tests)
    }
    kept = combined(problem.tree, found)
    many = len(problem.tests)
    return Decision(kept, problem.beta, problem.alpha, 0.0, (0,) * many, (problem.beta,) * many)


def as_it_is(grid: Grid, row: Any) -> Any:
    return row


def whole(release: Release, before: Partial | None, added: Fraction, source: Any) -> Partial:
    """What one analyst gets of a release that another has paid for."""
    assert release.values is not None
    return Partial(release.id, added, release.values)


if __name__ == "__main__":
    mechanisms.release.draw = no_noise
    Grid.numbers = Grid.lattice = as_it_is  # type: ignore[method-assign]
    proxy.rows.beyond = no_lean
    proxy.numbers.draw_partial = whole
    mechanisms.named.MECHANISMS = {**mechanisms.named.MECHANISMS, "cert": certain}
    sys.exit(main())
