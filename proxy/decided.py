"""A HAVING that a staged mechanism decides: the plan of it, before anything is read.

Which questions are staged: those with a HAVING over public groups, unless the analyst fixed the price
(``veil.epsilon``) or asked for ``tslm``, whose price is fixed, or the administrator fixed the noise of the relation;
then each statistic has its share beforehand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

import numpy as np

from mechanisms.accuracy import Accuracy, Margin
from mechanisms.certify import foreseen
from mechanisms.condition import And
from mechanisms.condition import atoms as atoms_of
from mechanisms.course import Course
from mechanisms.decision import Problem
from mechanisms.errors import AccuracyUnreachable
from mechanisms.loss import Coin, Loss, amount_within
from mechanisms.mirror import mirrored
from mechanisms.named import solver
from proxy.wishes import Wishes
from sqlrewrite.cells import Cells
from sqlrewrite.errors import NotAnswered
from sqlrewrite.problem import problem
from sqlrewrite.question import Atom, KeyThreshold, Question
from sqlrewrite.sensitivity import Contribution

_BEST = "cert"
_FIXED = "tslm"
_NO_CAP = Decimal(10) ** 6
_ALPHAS = (Decimal("0.1"), Decimal("0.05"), Decimal("0.02"), Decimal("0.01"))


@dataclass(frozen=True, slots=True, eq=False)
class Decided:
    """One decision, ready to begin."""

    problem: Problem
    atoms: tuple[Atom, ...]  # of the problem's tests
    mechanism: str
    margins: tuple[int, ...]
    mirror: bool
    most: Decimal  # what the whole question may spend, in coin
    capped: Decimal | None  # the same as the epsilon that the analyst set; None: only the limits bound it

    @property
    def way(self) -> str:
        """What tells two ways to decide the same question apart."""
        asked = f"{self.mechanism}{'~' if self.mirror else ''}/{self.problem.alpha}/{self.problem.beta}"
        told_margins = self.mechanism in ("ppwlm", "dppwlm")
        return f"{asked}/{','.join(map(str, self.margins))}" if told_margins else asked

    @property
    def asked(self) -> Problem:
        """What the mechanism itself decides, and its releases are about."""
        return mirrored(self.problem) if self.mirror else self.problem

    def within(self, half: Decimal) -> Decided:
        """The same, with at most half of what the analyst has left, unless the analyst said how much.

        A decision that cannot be certified would else go on until nothing is left for any other question.
        """
        return self if self.capped is not None or half <= 0 else replace(self, most=half)

    def course(self, fixed: Loss) -> Course:
        """The decision at its start; what does not fit at all is refused here, before the till."""
        left = self.most - fixed.amount
        if left <= 0:
            raise AccuracyUnreachable(
                "the numbers asked for leave nothing of what the question may spend for its decision",
                hint="Write a larger veil.margin, or SET veil.max_epsilon higher.",
            )
        return Course(self.asked, solver(self.mechanism, self.problem, self.margins, mirror=self.mirror), left)

    def usual(self) -> Loss:
        """What the decision usually costs: of the papers' mechanisms, their first stage."""
        if self.mechanism == _BEST:
            return foreseen(self.asked, self.asked.alpha)
        return Course(self.asked, solver(self.mechanism, self.problem, self.margins, mirror=self.mirror), _NO_CAP).need

    def prices(self) -> dict[str, Loss]:
        """What the decision usually costs at some alphas; for ``cert`` only, whose price depends on it."""
        if self.mechanism != _BEST or self.mirror:
            return {}
        return {str(alpha): foreseen(self.problem, alpha) for alpha in _ALPHAS}


def is_staged(question: Question, domain: Cells | None, wishes: Wishes) -> bool:
    """Whether a staged mechanism decides this question; a wish that cannot be met is a refusal."""
    if question.having is None:
        return False
    named = wishes.mechanism is not None and wishes.mechanism != _FIXED
    if wishes.accuracy.epsilon is not None and (named or wishes.mirror):
        raise NotAnswered(
            "veil.epsilon fixes the price of a decision, which only tslm can do",
            hint="RESET veil.epsilon and bound the price with veil.max_epsilon, or SET veil.mechanism = auto.",
        )
    fixed = question.relation.noise_magnitude is not None
    if (domain is None or fixed or wishes.mechanism == _FIXED) and (named or wishes.mirror):
        why = "over keys without a declared domain" if domain is None else "with tslm"
        why = "on a relation with fixed noise" if fixed else why
        raise NotAnswered(
            f"a decision {why} has a fixed price and bounds beta only",
            hint="SET veil.mechanism = auto and RESET veil.certify; declared domains are decided with both bounds.",
        )
    return domain is not None and not fixed and wishes.mechanism != _FIXED and wishes.accuracy.epsilon is None


def decided(
    question: Question,
    touched: Contribution,
    domain: Cells,
    accuracy: Accuracy,
    wishes: Wishes,
    coin: Coin,
    delta: Decimal,
) -> Decided:
    """The plan of a staged decision; ``delta`` turns the coin into epsilon."""
    named = any(isinstance(atom.threshold, KeyThreshold) for atom in atoms_of(question.having or And(())))
    keys = domain.key_columns(np.arange(domain.size, dtype=np.int64)) if named else ()
    asked, atoms = problem(question, touched, keys, domain.size, accuracy.beta, accuracy.alpha, coin)
    most = _NO_CAP if accuracy.max_epsilon is None else _worth(coin, accuracy.max_epsilon, delta)
    margins = tuple(_margin(question, touched, atom, accuracy.margin) for atom in atoms)
    return Decided(asked, atoms, wishes.mechanism or _BEST, margins, wishes.mirror, most, accuracy.max_epsilon)


def _worth(coin: Coin, epsilon: Decimal, delta: Decimal) -> Decimal:
    return epsilon if coin is Coin.PURE else amount_within(coin, epsilon, delta)


def _margin(question: Question, touched: Contribution, atom: Atom, margin: Margin) -> int:
    """veil.margin for the mechanisms that are told one, at least one lattice number."""
    if margin.in_units:
        return max(1, margin.lattice(touched.statistics[atom.statistic]))
    measure, coefficient = question.statistics[atom.statistic].terms[0]
    return max(1, math.floor(Fraction(margin.amount) * abs(coefficient) / question.measures[measure].unit))
