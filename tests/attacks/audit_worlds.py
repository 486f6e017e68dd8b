"""What the audit of decisions is held on: single looks, and every mechanism on small problems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy as np
from decision_audit import World, at_once, losses, number, seeded
from loss_proofs import Losses, loss_factor, moment_factor, pure_factor, zcdp_factor

from mechanisms import decision
from mechanisms.certify import cert
from mechanisms.condition import And, Condition, Leaf, Or
from mechanisms.decision import Fresh, Problem, Refine, Solver
from mechanisms.grid import Grid
from mechanisms.loss import Coin
from mechanisms.mirror import answered, mirrored
from mechanisms.noise import DiscreteGaussian, DiscreteLaplace
from mechanisms.number import number_at
from mechanisms.probe import probe, probe_ent, probe_naive
from mechanisms.progressive import dppwlm, ppwlm
from mechanisms.shifted import naive, tslm
from mechanisms.threshold import Share
from mechanisms.verdicts import Tuning

ROUNDING = 1e-6  # of floats, and of the integral over a choice's noise


def factor(coin: Coin, ours: Losses, theirs: Losses, sure: float) -> float:
    """What the frequencies of two neighbours prove, the worse of both ways."""
    proved = {Coin.PURE: pure_factor, Coin.ZCDP: zcdp_factor}[coin]
    return max(proved(ours, theirs.reversed(), sure), proved(theirs, ours.reversed(), sure))


# -- One look ----------------------------------------------------------------------------------------------------------

ONE_CELL = np.ones(1, dtype=np.bool_)


def lonely(coin: Coin, sensitivity: int) -> Problem:
    """One statistic in one cell."""
    return Problem((sensitivity,), (), Leaf(0), (), (), 1, Decimal("0.1"), Decimal("0.1"), coin)


@dataclass(frozen=True, slots=True)
class Shot:
    """What is released at once, and how far one unit moves the number behind it."""

    coin: Coin
    sensitivity: int
    what: Share | tuple[Refine | Fresh, ...]

    def losses(self, here: int, there: int, runs: int, seed: object) -> Losses:
        source, problem, parts = seeded(seed), lonely(self.coin, self.sensitivity), []
        databases = np.array([[here]]), np.array([[there]])
        for start in range(0, runs, 250_000):
            many = min(250_000, runs - start)
            if isinstance(self.what, Share):
                shown = number(self.what, here, self.coin, many, source)
            else:
                shown = at_once(problem, self.what, databases[0], many, source)
            parts.append(losses(shown, problem, *databases))
        return Losses.joined(parts)

    def factor(self, here: int, there: int, runs: int, sure: float) -> float:
        told = [self.losses(*pair, runs, f"{self} {pair}") for pair in ((here, there), (there, here))]
        return factor(self.coin, told[0], told[1], sure)


def on_grid(sensitivity: int, parts: int, sigma2: int) -> Share:
    noise = DiscreteGaussian(Fraction(sigma2))
    return Share(noise, 0, noise.loss(parts), None, Grid(sensitivity, parts))


def refines(parts: int, *levels: int) -> tuple[Refine, ...]:
    return tuple(Refine(0, ONE_CELL, level, parts) for level in levels)


LAPLACE = DiscreteLaplace(Fraction(1), 3)
SHOTS = {
    "a Laplace number": Shot(Coin.PURE, 4, number_at(Coin.PURE, 4, Decimal(1), Decimal("0.95"))),
    "a Gaussian number": Shot(Coin.ZCDP, 4, number_at(Coin.ZCDP, 4, Decimal("0.5"), Decimal("0.95"))),
    "a wide sum": Shot(Coin.ZCDP, 50_000, number_at(Coin.ZCDP, 50_000, Decimal("0.5"), Decimal("0.95"))),
    "a wide sum on few parts": Shot(Coin.ZCDP, 50_000, on_grid(50_000, 4, 20)),
    "a fresh draw": Shot(Coin.PURE, 3, (Fresh(0, ONE_CELL, LAPLACE),)),
    "a fresh draw paid in rho": Shot(Coin.ZCDP, 3, (Fresh(0, ONE_CELL, LAPLACE),)),
    "a Laplace level": Shot(Coin.PURE, 50, refines(3, 500)),
    "two Laplace levels": Shot(Coin.PURE, 3, refines(3, 460, 500)),
    "a Gaussian level": Shot(Coin.ZCDP, 50, refines(6, 460)),
    "two Gaussian levels": Shot(Coin.ZCDP, 8, refines(8, 420, 460)),
}
PLACES: dict[str, Callable[[int], int]] = {
    "an empty group": lambda moved: 0,
    "the end of a grid cell": lambda moved: moved - 1,
    "far away": lambda moved: 10**9,
}


# -- Mechanisms --------------------------------------------------------------------------------------------------------


def margins(problem: Problem) -> list[int]:
    return [3 if problem.sensitivities[test.statistic] == 1 else 8 for test in problem.tests]


QUICK = Tuning(ratio=1.02**16, add=0.4)  # so that both statistics are looked at
MECHANISMS: dict[str, Callable[[Problem], Solver]] = {
    "tslm": lambda problem: tslm(problem, margins(problem)),
    "naive": naive,
    "ppwlm": lambda problem: ppwlm(problem, margins(problem)),
    "dppwlm": lambda problem: dppwlm(problem, margins(problem)),
    "probe_naive": probe_naive,
    "probe": probe,
    "probe_ent": probe_ent,
    "cert": partial(cert, tuning=QUICK),
    "cert mirrored": lambda problem: answered(cert(mirrored(problem), QUICK), problem),
}
TESTS = (decision.Test(0, 1, 6, 6, 24), decision.Test(1, 1, 15, 15, 60))
BOTH: Condition[int] = And((Leaf(0), Leaf(1)))
EITHER: Condition[int] = Or((Leaf(0), Leaf(1)))


def sets(*tests: tuple[int, ...]) -> tuple[frozenset[int], ...]:
    return tuple(map(frozenset, tests))


def asked(shape: str, coin: Coin) -> Problem:
    """A count against 6 and a sum against 15 of which one unit moves 3."""
    rest = (Decimal("0.2"), Decimal("0.8"), coin)
    match shape:
        case "one group":
            return Problem((1,), TESTS[:1], Leaf(0), sets((0,)), sets((0,)), 1, *rest)
        case "four groups":
            return Problem((1, 3), TESTS, BOTH, sets((0, 1)), sets((0,), (1,)), 4, *rest)
        case "units in two groups":
            return Problem((1, 3), TESTS, EITHER, sets((0,), (1,)), sets((0, 1)), 3, *rest, touched=2)
        case "filters apart":
            return Problem((1, 3), TESTS, BOTH, sets((0, 1)), sets((0,), (1,)), 2, *rest, together=((0,), (1,)))
    raise ValueError(shape)


# Empty groups, groups at a threshold or just below, and groups far away; certificates want clearer ones.
NEAR = {
    "one group": [[5]],
    "four groups": [[0, 1, 5, 14], [0, 4, 15, 40]],
    "units in two groups": [[0, 2, 5], [0, 3, 14]],
    "filters apart": [[2, 5], [4, 15]],
}
CLEAR = {
    "one group": [[9]],
    "four groups": [[0, 1, 10, 12], [0, 4, 30, 36]],
    "units in two groups": [[0, 1, 10], [0, 3, 30]],
    "filters apart": [[0, 11], [2, 30]],
}
UNIT = {
    "one group": [[1]],
    "four groups": [[0, 0, 1, 0], [0, 0, 3, 0]],
    "units in two groups": [[0, 1, 1], [0, 3, 3]],
    "filters apart": [[0, 1], [0, 0]],
}
CAPS = {Coin.PURE: Decimal(4), Coin.ZCDP: Decimal(3)}


def world(name: str, shape: str, coin: Coin) -> World:
    numbers = (CLEAR if "cert" in name else NEAR)[shape]
    return World(asked(shape, coin), np.array(numbers), MECHANISMS[name], CAPS[coin])


def likelihood(coin: Coin, told: Losses, sure: float) -> float:
    return loss_factor(told) if coin is Coin.PURE else moment_factor(told, sure)
