"""One aggregate against one threshold: noise, shift and price in one object.

``tslm`` (threshold shift Laplace mechanism; MIDE; ProBE section 3.2) adds Laplace noise and moves the
threshold by the margin, so that a group that qualifies is rarely missed. The papers' price Delta ln(1/(2 beta))/u is
for continuous noise; on the lattice a miss at margin u needs the noise to be at least u + 1, so the price here is the
smallest epsilon with P[X >= u+1] <= beta, which is a little lower and is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mechanisms.errors import AccuracyUnreachable
from mechanisms.grid import Grid
from mechanisms.loss import QUANTUM, WIDE, Coin, Loss, epsilon_of, round_up
from mechanisms.noise import MIN_RATE, DiscreteGaussian, DiscreteLaplace, Noise
from mechanisms.values import Lattice


@dataclass(frozen=True, slots=True)
class Share:
    """The noise that one aggregate gets, how far a decision leans (or an interval reaches), and what it costs.

    ``price`` is the epsilon of Laplace noise and the rho of Gaussian noise. ``beta`` is the promised bound on a miss;
    it is ``None`` where the share is for a number and ``shift`` is half the width of its interval. ``placed`` is the
    grid that the noise lives on: Gaussian noise says which, Laplace noise lives on the lattice itself.
    """

    noise: Noise
    shift: int
    price: Decimal
    beta: Decimal | None
    placed: Grid | None = None

    def __post_init__(self) -> None:
        # Noise and price can only be made together: a share whose noise is narrower than its price cannot exist.
        if self.shift < 0 or Fraction(self.price) < self._cost():
            raise ValueError("a share costs at least what its noise does, and leans to one side only")

    def _cost(self) -> Fraction:
        match self.noise, self.placed:
            case DiscreteLaplace(epsilon, _), None:
                return epsilon
            case DiscreteGaussian(sigma2), Grid(_, parts):
                return Fraction(parts * parts, 2) / sigma2
            case _:
                raise ValueError("Gaussian noise lives on a grid, Laplace noise on the lattice")

    @property
    def grid(self) -> Grid:
        """Where the noise lives."""
        match self.noise, self.placed:
            case DiscreteLaplace(_, sensitivity), _:
                return Grid(sensitivity, sensitivity)
            case _, Grid() as grid:
                return grid
        raise AssertionError("unreachable")

    @property
    def sensitivity(self) -> int:
        """How far one privacy unit may move the aggregate in one cell, in lattice numbers."""
        return self.grid.sensitivity

    @property
    def epsilon(self) -> Decimal:
        """The price of Laplace noise; Gaussian noise has one at a delta only."""
        if not isinstance(self.noise, DiscreteLaplace):
            raise ValueError("Gaussian noise has an epsilon at a delta only")
        return self.price

    def epsilon_at(self, delta: Decimal) -> Decimal:
        """The price as the epsilon of (epsilon, delta)-DP."""
        match self.noise:
            case DiscreteLaplace():
                return self.price
            case DiscreteGaussian():
                return epsilon_of(Coin.ZCDP, self.price, delta)

    def loss(self, coin: Coin) -> Loss:
        """What the ledger is asked for, rounded up; Gaussian noise has no price on a ``pure`` ledger."""
        match self.noise, coin:
            case DiscreteLaplace(), _:
                return Loss.of_pure_step(self.price, coin)
            case DiscreteGaussian(), Coin.ZCDP:
                return Loss(coin, round_up(self.price))
        raise ValueError("Gaussian noise cannot be paid for in pure epsilon")


def tslm(sensitivity: int, margin: int, beta: Decimal, *, max_epsilon: Decimal | None = None) -> Share:
    """The cheapest share that decides with this margin.

    *Guarantee*: for every truly qualifying group, P[missed] <= beta, exactly on the lattice; the release is
    ``epsilon``-DP.
    """
    return _cheapest(sensitivity, margin, beta, beta, max_epsilon)


def tslm_at(sensitivity: int, epsilon: Decimal, beta: Decimal) -> Share:
    """The share at a given price, with the smallest shift that keeps P[missed] <= beta."""
    noise = _noise_at(sensitivity, epsilon)
    return Share(noise, noise.shift(beta), round_up(epsilon), beta)


def for_interval(sensitivity: int, margin: int, confidence: Decimal, *, max_epsilon: Decimal | None = None) -> Share:
    """The cheapest share whose number lies within the margin of the truth.

    *Guarantee*: P[|X| > margin] <= 1 - confidence.
    """
    return _cheapest(sensitivity, margin, one_side(confidence), None, max_epsilon)


def interval_at(sensitivity: int, epsilon: Decimal, confidence: Decimal) -> Share:
    """The share at a given price, with the smallest interval of this confidence."""
    noise = _noise_at(sensitivity, epsilon)
    return Share(noise, noise.shift(one_side(confidence)), round_up(epsilon), None)


def key_threshold(presence: Share, delta: Decimal, touched: int) -> int:
    """From which noisy number of units on a group of an unknown domain is named.

    *Guarantee*: touched * P[1 + X >= threshold] <= delta for the presence share's noise X.
    """
    return presence.noise.shift(WIDE.divide(delta, Decimal(touched))) + 2


def decide(noisy: Lattice, direction: int, threshold: int | Lattice, share: Share) -> NDArray[np.bool_]:
    """Which groups are kept: "aggregate >= threshold" (+1) or "aggregate <= threshold" (-1), leaning by the shift."""
    match direction:
        case 1:
            return noisy >= threshold - share.shift
        case -1:
            return noisy <= threshold + share.shift
        case _:
            raise ValueError("a direction is +1 or -1")


def uncertain(noisy: Lattice, direction: int, threshold: int, share: Share) -> int:
    """How many groups are kept but lie within the shift of the threshold, so that they may well be false.

    A group beyond that is false only if its noise exceeds the shift, which has probability beta at most.
    """
    beyond = decide(noisy, direction, threshold + 2 * direction * share.shift, share)
    return int(np.count_nonzero(decide(noisy, direction, threshold, share) & ~beyond))


def one_side(confidence: Decimal) -> Decimal:
    """What may lie beyond an interval on each side of it."""
    return WIDE.divide(WIDE.subtract(Decimal(1), confidence), Decimal(2))


def reachable(margin: int, bound: Decimal) -> None:
    """Refuse what no noise can do."""
    if margin < 0:
        raise AccuracyUnreachable(
            "a margin below zero cannot be met",
            detail=f"asked: {margin}",
            hint="The smallest margin is one that rounds down to 0 on the aggregate's lattice.",
        )
    if not 0 < bound < 1:
        raise AccuracyUnreachable(
            "noise always errs sometimes: the bound must lie between 0 and 1",
            detail=f"asked: {bound}",
            hint="Write a smaller confidence or a larger beta.",
        )


def _noise_at(sensitivity: int, epsilon: Decimal) -> DiscreteLaplace:
    smallest = _price(MIN_RATE, sensitivity)
    if epsilon < smallest:
        raise AccuracyUnreachable(
            "the epsilon is too small for any answer",
            detail=f"asked: {epsilon:f}; one privacy unit moves the aggregate by {sensitivity}",
            hint=f"The smallest epsilon that can be used is {smallest:f}.",
        )
    return DiscreteLaplace(Fraction(epsilon), sensitivity)


@lru_cache(maxsize=4096)
def _cheapest(
    sensitivity: int, margin: int, bound: Decimal, beta: Decimal | None, max_epsilon: Decimal | None
) -> Share:
    """The smallest epsilon of 18 places with P[X >= margin + 1] <= bound."""
    reachable(margin, bound)
    price = _price(max(MIN_RATE, _rate(margin, bound)), sensitivity)
    while DiscreteLaplace(Fraction(price), sensitivity).tail(margin + 1) > Fraction(bound):
        price = WIDE.add(price, QUANTUM)
    if max_epsilon is not None and price > max_epsilon:
        reached = _noise_at(sensitivity, max_epsilon).shift(bound)
        raise AccuracyUnreachable(
            "the accuracy asked for costs more than one question may spend",
            detail=f"needed: {price:f}; allowed: {max_epsilon:f}",
            hint=f"The smallest margin within that is {reached} lattice units ({-(-reached // sensitivity)}u).",
        )
    return Share(DiscreteLaplace(Fraction(price), sensitivity), margin, price, beta)


def _rate(margin: int, bound: Decimal) -> Fraction:
    """The root of (margin+1) r + ln(bound) + ln(1 + exp(-r)) = 0: where y^(margin+1) / (1+y) is the bound.

    The left side is convex, grows in r, and is at least 0 at the start, so Newton falls onto the root from the right.
    """
    steps, log = Decimal(margin + 1), WIDE.ln(bound)
    rate = WIDE.divide(WIDE.minus(log), steps)
    for _ in range(20):
        y = WIDE.exp(WIDE.minus(rate))
        one_y = WIDE.add(Decimal(1), y)
        excess = WIDE.add(WIDE.fma(steps, rate, log), WIDE.ln(one_y))
        step = WIDE.divide(excess, WIDE.subtract(steps, WIDE.divide(y, one_y)))
        rate = WIDE.subtract(rate, step)
        if rate <= 0:
            return Fraction(0)  # a bound of one half or more is met by any noise
        if abs(step) < WIDE.multiply(rate, Decimal("1e-45")):
            break
    return Fraction(rate)


def _price(rate: Fraction, sensitivity: int) -> Decimal:
    """rate * sensitivity as an epsilon, rounded up to 18 places."""
    scaled = rate * sensitivity * 10**18
    return WIDE.multiply(Decimal(-(-scaled.numerator // scaled.denominator)), QUANTUM)
