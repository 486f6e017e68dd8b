"""The mirrored decision: alpha is kept for every single group, and beta on average.

The groups that do not qualify are the ones that qualify for the negated tree. So the mirrored decision is the plain one
about the negation, with alpha and beta in each other's place, and its answer is the complement.
"""

from __future__ import annotations

from dataclasses import replace

from mechanisms.condition import And, Condition, Leaf, Or
from mechanisms.decision import Decision, Problem, Solver, Test


def mirrored(problem: Problem) -> Problem:
    """The decision about the negated tree."""
    return replace(
        problem,
        tests=tuple(_negated(test) for test in problem.tests),
        tree=_dual(problem.tree),
        implicants=problem.implicates,
        implicates=problem.implicants,
        beta=problem.alpha,
        alpha=problem.beta,
    )


def answered(solver: Solver, problem: Problem) -> Solver:
    """The complement of what a mechanism decides about the negation.

    *Guarantee*: a group that does not qualify is kept with probability at most alpha, for every database; the expected
    share of qualifying groups that are missed is at most beta, where the mechanism certifies at all.
    """
    decision: Decision = yield from solver
    return Decision(
        kept=~decision.kept,
        beta=problem.beta,
        alpha=problem.alpha,
        expected_false=float(problem.alpha) * problem.cells,
        uncertain=decision.uncertain,
        betas=(problem.beta,) * len(problem.tests),
    )


def _negated(test: Test) -> Test:
    return Test(test.statistic, -test.direction, test.threshold - test.direction, test.scale, test.span)


def _dual(tree: Condition[int]) -> Condition[int]:
    match tree:
        case Leaf():
            return tree
        case And(parts):
            return Or(tuple(map(_dual, parts)))
        case Or(parts):
            return And(tuple(map(_dual, parts)))
