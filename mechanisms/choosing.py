"""Which of several clauses refutes enough of the cells: AboveThreshold on soft counts in whole numbers.

*Guarantee* (Dwork and Roth 2014, Alg. 1, on the lattice): the index that comes out is ``epsilon``-DP. A unit moves
every soft count by at most s, up or down; the threshold gets noise for s at epsilon/2 and each count noise for 2 s at
epsilon/2, that is for s at epsilon/4. Counts move either way, so the sharper bound for monotone counts does not hold.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from mechanisms.decision import Choose, Problem, Test
from mechanisms.noise import MIN_RATE, DiscreteLaplace
from mechanisms.sampler import Source, draw
from mechanisms.values import Lattice

_FAR = 2**62  # the numbers that come here are clamped to this
_NARROW = 2**40
_BITS = 20


def above_threshold(request: Choose, problem: Problem, numbers: Lattice, source: Source) -> int | None:
    """The first clause whose noisy soft count reaches the noisy share of the cells; called by ``release`` alone."""
    bits, moves = _resolution(request, problem)
    half, quarter = Fraction(request.epsilon) / 2, Fraction(request.epsilon) / 4
    # As many draws as clauses, whichever is chosen, and before the numbers are looked at.
    raised = int(draw(DiscreteLaplace(half, moves), 1, source)[0])
    noise = draw(DiscreteLaplace(quarter, moves), len(request.clauses), source)
    needed = math.floor(Fraction(request.share) * problem.cells * 2**bits) + raised
    for index, clause in enumerate(request.clauses):
        if soft_count(clause, problem, numbers, bits) + int(noise[index]) >= needed:
            return index
    return None


def soft_count(clause: frozenset[int], problem: Problem, numbers: Lattice, bits: int) -> int:
    """The sum over the cells of the least refutation among the clause's tests, in units of 2**-bits."""
    least = np.full(problem.cells, 1 << bits, dtype=np.int64)
    for test in clause:
        asked = problem.tests[test]
        np.minimum(least, _refutation(asked, numbers[asked.statistic], bits), out=least)
    return int(least.sum())


def moved(test: Test, sensitivity: int, bits: int) -> int:
    """How far one unit moves the refutation of one cell: floor(d 2 / scale) moves by at most the ceiling."""
    return min(1 << bits, -(-(sensitivity << bits + 1) // test.scale))


def _refutation(test: Test, numbers: Lattice, bits: int) -> Lattice:
    """clip((threshold - value) / (scale/2), 0, 1), signed by the direction, rounded down to units of 2**-bits."""
    scale = min(test.scale, _FAR // 2)
    threshold = np.asarray(np.clip(test.threshold, -_FAR, _FAR), dtype=np.int64)
    # Clipped before it is subtracted, so that the difference lies between 0 and the scale.
    match test.direction:
        case 1:
            distance = threshold - np.clip(numbers, threshold - scale, threshold)
        case -1:
            distance = np.clip(numbers, threshold, threshold + scale) - threshold
        case _:
            raise ValueError("a direction is +1 or -1")
    wide = distance.astype(object) if scale > _NARROW else distance
    units: Lattice = np.minimum(wide * 2 ** (bits + 1) // test.scale, 1 << bits).astype(np.int64)
    return units


def _resolution(request: Choose, problem: Problem) -> tuple[int, int]:
    """In how fine units to count, and how many of them one unit moves a soft count."""
    tests = {problem.tests[test] for clause in request.clauses for test in clause}
    if not request.clauses or not all(request.clauses) or any(test.scale < 1 for test in tests):
        raise ValueError("a choice is among clauses with tests of positive scale")
    for bits in range(_BITS, -1, -1):
        worst = max(moved(test, problem.sensitivities[test.statistic], bits) for test in tests)
        if Fraction(request.epsilon) / 4 / (problem.touched * worst) >= MIN_RATE:
            return bits, problem.touched * worst
    raise ValueError("the choice is too cheap for noise of 64 bits")
