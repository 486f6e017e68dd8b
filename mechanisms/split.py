"""A bound on misses divided among the tests of a tree: the papers' apportionments, and the sharper one of ours.

Every split is computed in fractions and rounded down, so that what is handed out is never more than what was given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

from mechanisms.condition import Condition, atoms
from mechanisms.decision import Problem
from mechanisms.errors import AccuracyUnreachable
from mechanisms.loss import QUANTUM, WIDE


def occurrences(tree: Condition[int], tests: int) -> tuple[int, ...]:
    """How often each test stands in the tree: the o_i of ProBE, section 4.3."""
    found = Counter(atoms(tree))
    return tuple(found[test] for test in range(tests))


def proportional(
    problem: Problem, beta: Decimal, margins: Sequence[int], among: frozenset[int] | None = None
) -> tuple[Decimal, ...]:
    """The split that makes the sum of the prices Delta_i ln(1/(2 beta_i)) / u_i smallest (ProBE, Eq. 25).

    beta_i = beta (Delta_i/u_i) / sum_y o_y Delta_y/u_y; with ``among``, over these tests alone.
    *Guarantee*: sum o_i beta_i <= beta.
    """
    weights = [
        Fraction(problem.sensitivities[test.statistic], u) for test, u in zip(problem.tests, margins, strict=True)
    ]
    return _divided(problem, beta, weights, among)


def equal(problem: Problem, beta: Decimal) -> tuple[Decimal, ...]:
    """The naive split: the same for every occurrence. *Guarantee*: sum o_i beta_i <= beta."""
    return _divided(problem, beta, [Fraction(1)] * len(problem.tests), None)


def by_implicants(problem: Problem, beta: Decimal) -> tuple[Decimal, ...]:
    """The same for every test, divided by the longest prime implicant only: a disjunction needs no split.

    *Guarantee*: a group that qualifies satisfies every test of some prime implicant, and is missed only if one of them
    is: the sum of beta_i over any prime implicant is at most beta.
    """
    longest = max(len(implicant) for implicant in problem.implicants)
    return (_positive(Fraction(beta) / longest),) * len(problem.tests)


def _divided(
    problem: Problem, beta: Decimal, weights: Sequence[Fraction], among: frozenset[int] | None
) -> tuple[Decimal, ...]:
    counts = occurrences(problem.tree, len(problem.tests))
    taking = [count > 0 and (among is None or test in among) for test, count in enumerate(counts)]
    total = sum((o * w for o, w, takes in zip(counts, weights, taking, strict=True) if takes), Fraction(0))
    return tuple(
        _positive(Fraction(beta) * weight / total) if takes else Decimal(0)
        for weight, takes in zip(weights, taking, strict=True)
    )


def _positive(share: Fraction) -> Decimal:
    """A share rounded down to 18 places; one that vanishes cannot be kept by any noise."""
    units = share.numerator * 10**18 // share.denominator
    if units <= 0:
        raise AccuracyUnreachable(
            "beta is too small to be divided among the conditions of this decision",
            detail=f"a part would be {float(share):.1e}; the smallest is 1e-18",
            hint="SET veil.beta higher, or ask with fewer conditions.",
        )
    return WIDE.multiply(Decimal(units), QUANTUM)
