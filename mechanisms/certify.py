"""``cert``: decisions that carry a certificate, on a public schedule of noise levels (ours; ALGORITHMS.md section 2).

*Clause lemma.* Let C be a prime implicate: a set of tests one of which holds wherever the tree does. To refute a
qualifying group through C, that one test must be refuted wrongly; so every test of C may run at the full bound, however
many there are. With P clauses in use each gets beta/P. Dually, prime implicants and alpha prove that a group qualifies.

*Left out.* The step at which group j is tested is decided by the noise of all other groups: it is the first step at
which they are decided well enough. The noise that j is tested with is therefore exactly as drawn, whatever was looked
at on the way: refining and looking cost no beta, only tests do. (Nearly all groups are tested at the same step.)

*Certificate.* Groups that are not refuted are kept. How many of them do not qualify, and how many groups do not
qualify in all, is bounded from the released numbers (``verdicts``); the answer stands once the first is at most about
alpha times the second, so that E[false/N; answered] <= alpha.

*Guarantee*: each group that qualifies is missed with probability at most beta, for every database; alpha as above; the
loss is that of the levels reached (``Account``), and these are a function of released numbers only.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np

from mechanisms.account import Account
from mechanisms.credit import credit
from mechanisms.decision import CapReached, Choose, Decision, Problem, Refine, Reply, Request, Solver
from mechanisms.errors import AccuracyUnreachable
from mechanisms.field import Field
from mechanisms.loss import WIDE, Coin, Loss, round_down
from mechanisms.noise import MIN_RATE
from mechanisms.verdicts import Tuning, Verdicts

_USUAL = Decimal("0.04")
"""A schedule for larger bounds than this would end before anything can be proven."""
_CAREFUL = {150: Decimal("0.02"), 600: Decimal("0.05")}
"""Below so many groups no larger beta is used: it would prove too little about how many do not qualify."""
_FEW = 150
"""With fewer groups than this a decision is dearer."""


def cert(problem: Problem, tuning: Tuning = Tuning()) -> Solver:  # noqa: B008 (frozen)
    """Refine on the public schedule until the decisions can be certified; see the module's page."""
    if not problem.cells:
        nobody = np.zeros(0, dtype=np.bool_)
        return Decision(nobody, problem.beta, problem.alpha, 0.0, (0,) * len(problem.tests), _betas(problem))
    clauses = sorted(problem.implicates, key=lambda clause: (_cost(problem, clause), sorted(clause)))
    if len(clauses) > 1:
        first = yield from _choose(problem, clauses, tuning)
        if first is not None:
            clauses.insert(0, clauses.pop(first))
    field = Field(problem)
    main = _main(problem, tuning)
    verdicts = Verdicts(problem.cells, problem.alpha, main, tuning)
    wrong = divided(verdicts.wrong - verdicts.late_wrong, len(problem.implicants))
    try:
        for used, refines in _schedule(field, clauses, main, tuning):
            field.take(refines, (yield refines))
            negative = field.refuted(clauses[:used], divided(main, used))
            proven = field.proven(problem.implicants, wrong) & ~negative
            credits = credit(field, verdicts.rate) if verdicts.promising(negative) else np.zeros(problem.cells)
            if verdicts.look(negative, proven, credits):
                break
        yield from _late_looks(field, clauses, verdicts, problem.beta - main, tuning)
    except CapReached:
        raise _uncertified(problem, verdicts, "within what the question may spend") from None
    if not verdicts.certified:
        raise _uncertified(problem, verdicts, "at the finest noise that it is worth")
    kept = ~verdicts.refuted
    return Decision(
        kept=kept,
        beta=problem.beta,
        alpha=problem.alpha,
        expected_false=min(float(problem.alpha) * problem.cells, verdicts.expected_false),
        uncertain=tuple(
            int(np.count_nonzero(kept & ~field.beyond(test, main, proven=True))) for test in range(len(problem.tests))
        ),
        betas=_betas(problem),
    )


def foreseen(problem: Problem, alpha: Decimal, tuning: Tuning = Tuning()) -> Loss:  # noqa: B008 (frozen)
    """What such a decision usually costs: by the public scales, and by how far real data had to be refined.

    On the real data of the bench the shift at the end was some three times alpha of the scale; with few groups hardly
    one may stay undecided, and it is less.
    """
    asked = replace(problem, alpha=alpha)
    clauses = sorted(asked.implicates, key=lambda clause: (_cost(asked, clause), sorted(clause)))
    few = min(1.0, asked.cells / _FEW)
    used = clauses[0] if few == 1 or len(asked.implicants) == 1 else frozenset[int]().union(*clauses)
    field, main = Field(asked), _main(asked, tuning)
    everyone = np.ones(asked.cells, dtype=np.bool_)
    levels = field.levels_for(used, min(tuning.first, max(tuning.last, 3 * float(alpha) * few)), main)
    refines = [Refine(statistic, everyone, level, field.parts[statistic]) for statistic, level in levels.items()]
    return Account(asked).after(refines)


def _choose(
    problem: Problem, clauses: Sequence[frozenset[int]], tuning: Tuning
) -> Generator[tuple[Request, ...], tuple[Reply, ...], int | None]:
    """Which clause goes first: one that refutes most groups by itself makes the others superfluous."""
    price = tuning.choosing_pure if problem.coin is Coin.PURE else tuning.choosing_zcdp
    epsilon = Decimal(price * problem.touched * _cost(problem, clauses[0])).quantize(Decimal("1e-12"))
    if Fraction(epsilon) < 4 * problem.touched * MIN_RATE:
        return None  # cheaper than any noise
    (reply,) = yield (Choose(tuple(clauses), tuning.refuting, epsilon),)
    assert reply is None or isinstance(reply, int)
    return reply


def _schedule(
    field: Field, clauses: Sequence[frozenset[int]], main: Decimal, tuning: Tuning
) -> Iterator[tuple[int, tuple[Refine, ...]]]:
    """The public steps: how many clauses are in use, and what is refined for it.

    It ends where shifts are a small part of the scales: finer noise costs more than such a decision is worth.
    """
    everyone = np.ones(field.problem.cells, dtype=np.bool_)
    for used, named, share in _shares(clauses, tuning):
        wanted = field.levels_for(named, share, min(_USUAL, divided(main, used)))
        steps = tuple(
            Refine(statistic, everyone, level, field.parts[statistic])
            for statistic, level in sorted(wanted.items())
            if level > field.levels[statistic]
        )
        if steps:
            yield used, steps


def _shares(clauses: Sequence[frozenset[int]], tuning: Tuning) -> Iterator[tuple[int, frozenset[int], float]]:
    """How many clauses are in use, which tests are refined, and to which share of their scales."""
    many, together = len(clauses), frozenset[int]().union(*clauses)
    # Groups may be far larger than the threshold: then all is decided by noise that costs next to nothing.
    for halvings in range(tuning.coarse, 0, -1):
        alone = halvings < tuning.coarse / 2
        yield 1 if alone else many, clauses[0] if alone else together, tuning.first * 2**halvings
    for used in range(1, many + 1):
        share, last = tuning.first, used == many
        while share >= (tuning.last if last else tuning.add):
            # The last clause takes all others along once it has come as far as they have.
            yield used, together if last and share < tuning.add else clauses[used - 1], share
            share /= tuning.ratio**2 if share > tuning.hasty else tuning.ratio


def _late_looks(
    field: Field, clauses: Sequence[frozenset[int]], verdicts: Verdicts, beta: Decimal, tuning: Tuning
) -> Generator[tuple[Request, ...], tuple[Reply, ...], None]:
    """Test what is undecided again, on a grid of shares that is fixed beforehand.

    Each place of the grid has its own part of beta and of ``wrong``, whether it is used or not: which of them are used
    depends on all the noise, the mistake at each of them does not. So a clause is tried where all its numbers stand at
    that very place: a number that has gone further than the grid stopped where its own noise may have had a say.
    """
    together = frozenset[int]().union(*clauses)
    bound = divided(beta, tuning.looks * len(clauses))
    wrong = divided(verdicts.late_wrong, tuning.looks * len(field.problem.implicants))
    for look in range(tuning.looks):
        if verdicts.certified or not verdicts.settled:
            return
        wanted = field.levels_for(together, tuning.late * tuning.finer**look, bound)
        there = {statistic for statistic, level in wanted.items() if level >= field.levels[statistic]}
        tried = [clause for clause in clauses if field.statistics(clause) <= there]
        named = field.statistics(frozenset[int]().union(*tried))
        if all(wanted[statistic] == field.levels[statistic] for statistic in named):
            continue
        steps = tuple(
            Refine(statistic, verdicts.undecided, wanted[statistic], field.parts[statistic])
            for statistic in sorted(named)
        )
        field.take(steps, (yield steps))
        proofs = [implicant for implicant in field.problem.implicants if field.statistics(implicant) <= named]
        negative, proven = field.refuted(tried, bound), field.proven(proofs, wrong)
        verdicts.look_again(negative, proven, divided(beta, tuning.looks))


def _betas(problem: Problem) -> tuple[Decimal, ...]:
    """Each test may run at all of beta (clause lemma)."""
    return (problem.beta,) * len(problem.tests)


def _main(problem: Problem, tuning: Tuning) -> Decimal:
    """The bound of the main tests."""
    most = min([problem.beta, *(bound for cells, bound in _CAREFUL.items() if problem.cells < cells)])
    return round_down(most * tuning.main)


def divided(bound: Decimal, parts: int) -> Decimal:
    """A bound's equal parts, rounded down."""
    return round_down(WIDE.divide(bound, Decimal(parts)))


def _cost(problem: Problem, clause: frozenset[int]) -> float:
    """What refuting through this clause costs, up to a factor: by public scales alone."""
    dearest: dict[int, float] = {}
    for test in map(problem.tests.__getitem__, clause):
        price = problem.sensitivities[test.statistic] / max(1, test.scale)
        dearest[test.statistic] = max(price, dearest.get(test.statistic, 0.0))
    return sum(dearest.values())


def _uncertified(problem: Problem, verdicts: Verdicts, where: str) -> AccuracyUnreachable:
    smallest = verdicts.smallest_alpha
    hint = (
        f"At this price alpha {smallest:.2g} would have been met: SET veil.alpha = {smallest:.2g}."
        if float(problem.alpha) < smallest < 1
        else "Allow more with veil.max_epsilon, or ask for fewer or larger groups."
    )
    return AccuracyUnreachable(
        f"alpha {problem.alpha} could not be certified {where}",
        detail=f"groups that may be false: {verdicts.expected_false:.1f} of {problem.cells}",
        hint=hint + " What was spent stays charged.",
    )
