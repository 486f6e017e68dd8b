"""From what is wished to the precision of a view's cells, and back: by price (epsilon, delta) or by accuracy.

*By price.* Let one unit move ``touched`` cells by ``sensitivity`` each, and m^2 = sensitivity^2 touched p. Gaussian
noise of precision p is (epsilon, delta)-DP iff  Phi(m/2 - epsilon/m) - e^epsilon Phi(-m/2 - epsilon/m) <= delta  (the
analytic condition: Balle and Wang 2018, Thm 8). A ledger in ``zcdp`` adds up m^2/2 and converts the sum, so this says
what a wish means, and what one question costs by itself; it is not what the ledger goes by.

*By accuracy.* A number that is a sum of cells with weights w has variance |w|^2/p. For a margin, a discrete Gaussian of
deviation at least 2 and a normal one can be drawn together at most 11/12 of a lattice unit apart (``interval``); the
weights of a combination of releases add up to one, so each cell lies that close to a normal one, and one half farther
once it is rounded to the lattice: the number lies within 17/12 |w|_1 of a normal one of that variance.

Searches are in floats, which only say where to look; what is returned was checked in decimals of 80 digits and is
rounded against us: a price up, a precision that is paid for down, a precision that accuracy needs up. Each is within
1e-6 of the best, in proportion, and monotone. What is known already need not be learned (``synopsis.step``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import TypeAlias

from mechanisms.errors import AccuracyUnreachable
from mechanisms.loss import WIDE, Coin, epsilon_of, round_up

_STEP = 2.0**-26  # of the logarithms that results have: some 1.5e-8
_GRAIN = 2**64  # parts of a precision: those of ``synopsis``
_MOST = 10_000  # the largest m^2: beyond epsilon 5000 nothing is promised that anybody could tell
_APART = Fraction(11, 12) + Fraction(1, 2)


@dataclass(frozen=True, slots=True)
class SquaredError:
    """An expected squared error, in lattice units squared."""

    most: Fraction


@dataclass(frozen=True, slots=True)
class Within:
    """At most this far from the truth, in lattice units, with this confidence."""

    margin: Fraction
    confidence: Decimal


Wish: TypeAlias = SquaredError | Within


def epsilon_for(precision: Fraction, sensitivity: int, touched: int, delta: Decimal) -> Decimal:
    """The smallest epsilon of cells with this precision, rounded up; 0 where delta alone covers it."""
    _checked(delta)
    square = precision * sensitivity * sensitivity * touched
    if square > _MOST:  # it promises nothing any more: the bound of the coin is close enough
        return epsilon_of(Coin.ZCDP, WIDE.divide(Decimal(square.numerator), Decimal(2 * square.denominator)), delta)
    return _epsilon(square, delta)


def precision_for(epsilon: Decimal, delta: Decimal, sensitivity: int, touched: int) -> Fraction:
    """The largest precision of cells that is (epsilon, delta)-DP, rounded down."""
    _checked(delta)
    if not 0 <= epsilon <= _MOST / 2:
        raise _unreachable(f"an epsilon lies between 0 and {_MOST // 2}", f"asked: {epsilon}")
    return Fraction(math.floor(_square(epsilon, delta) / (sensitivity * sensitivity * touched) * _GRAIN), _GRAIN)


def precision_wanted(wish: Wish, weights: Sequence[int]) -> Fraction:
    """The smallest precision of cells at which their sum with these weights is as accurate as wished, rounded up.

    *Guarantee*: P[|answer - truth| > margin] <= 1 - confidence, if all noise has a deviation of at least 2 units.
    """
    squares = sum(weight * weight for weight in weights)
    match wish:
        case SquaredError(most):
            if most <= 0:
                raise _unreachable("an expected squared error must be above zero")
            return squares / most
        case Within(margin, confidence):
            left = margin - slack(weights)
            if left <= 0:
                raise _unreachable("the margin is as small as the lattice itself", f"asked {margin} lattice units")
            return squares * (quantile(confidence) / left) ** 2


def margin_of(precision: Fraction, weights: Sequence[int], confidence: Decimal) -> Fraction:
    """How far a sum of cells of this precision may lie from the truth, rounded up: the inverse for a margin."""
    squares = sum(weight * weight for weight in weights)
    ratio = squares / precision
    # The root of a fraction from above, to 64 bits beyond the point.
    root = Fraction(math.isqrt((ratio.numerator << 128) // ratio.denominator) + 1, 2**64)
    return quantile(confidence) * root + slack(weights)


def slack(weights: Sequence[int]) -> Fraction:
    """How far a sum of noise in cells, each rounded, may lie from the normal one drawn along with it."""
    return _APART * sum(abs(weight) for weight in weights)


@lru_cache(maxsize=1024)
def quantile(confidence: Decimal) -> Fraction:
    """The z with P[|N| > z] <= 1 - confidence, from above: floats are right to some 1e-13 here."""
    if not 0 < confidence < 1:
        raise _unreachable("noise always errs sometimes: a confidence lies between 0 and 1", f"asked: {confidence}")
    beyond = float((1 - Fraction(confidence)) / 2)
    return Fraction(-NormalDist().inv_cdf(beyond)) * (1 + Fraction(1, 10**10))


@lru_cache(maxsize=4096)
def _epsilon(square: Fraction, delta: Decimal) -> Decimal:
    if square <= 0 or _holds(Decimal(0), square, delta):
        return Decimal(0)
    wide = float(square)

    def in_floats(log: float) -> bool:
        return _float_delta(math.exp(log), wide) <= float(delta)

    def surely(log: float) -> bool:
        return _holds(_decimal(log), square, delta)

    # At the upper end the condition holds for any delta that a float can tell from 0.
    return round_up(_decimal(_turn(in_floats, surely, -30.0, math.log(wide / 2 + 60 * math.sqrt(wide) + 1))))


@lru_cache(maxsize=4096)
def _square(epsilon: Decimal, delta: Decimal) -> Fraction:
    def in_floats(log: float) -> bool:
        return _float_delta(float(epsilon), math.exp(log)) > float(delta)

    def surely(log: float) -> bool:
        return not _holds(epsilon, Fraction(_decimal(log)), delta)

    return Fraction(_decimal(_turn(in_floats, surely, -120.0, 30.0) - _STEP))


def _turn(in_floats: Callable[[float], bool], surely: Callable[[float], bool], low: float, high: float) -> float:
    """The first number of the grid between low and high at which a test that turns true once is true."""
    first, last = math.floor(low / _STEP), math.ceil(high / _STEP)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if in_floats(middle) else (middle, high)
    place = round(high / _STEP)
    while place < last and not surely(place * _STEP):
        place += 1
    while place > first and surely((place - 1) * _STEP):
        place -= 1
    return place * _STEP


@lru_cache(maxsize=65536)
def _decimal(log: float) -> Decimal:
    return WIDE.exp(Decimal(log))


def _float_delta(epsilon: float, square: float) -> float:
    m = math.sqrt(square)
    return math.exp(_log_tail(epsilon / m - m / 2)) - math.exp(epsilon + _log_tail(epsilon / m + m / 2))


def _log_tail(x: float) -> float:
    """ln P[N > x] in floats."""
    if x < 30:
        return math.log(math.erfc(x / math.sqrt(2)) / 2)
    return -x * x / 2 - math.log(x * math.sqrt(2 * math.pi)) - 1 / (x * x)


def _holds(epsilon: Decimal, square: Fraction, delta: Decimal) -> bool:
    """Whether the analytic condition holds, in decimals with far more digits than the answer needs."""
    with localcontext(WIDE) as here:
        here.prec = 80
        m = (Decimal(square.numerator) / Decimal(square.denominator)).sqrt()
        return normal_tail(epsilon / m - m / 2) - epsilon.exp() * normal_tail(epsilon / m + m / 2) <= delta


def normal_tail(x: Decimal) -> Decimal:
    """P[N > x] in the digits of the context: a series near 0, a continued fraction far from it."""
    if x < 0:
        return 1 - normal_tail(-x)
    bell = (-x * x / 2).exp() / _ROOT_TWO_PI
    if x < 9:
        # P[0 < N < x] = bell * (x + x^3/3 + x^5/(3*5) + ...): all terms are positive.
        term, total, odd = x, x, 1
        while term > total * Decimal("1e-79"):
            odd += 2
            term = term * x * x / odd
            total += term
        return Decimal("0.5") - bell * total
    rest = x
    for k in range(400, 0, -1):
        rest = x + k / rest
    return bell / rest


_ROOT_TWO_PI = Decimal(
    "2.506628274631000502415765284811045253006986740609938316629923576342293654607841974946595838378057"
)


def _checked(delta: Decimal) -> None:
    if not 0 < delta < 1:
        raise _unreachable("Gaussian noise has an epsilon at a delta between 0 and 1 only", f"asked: {delta}")


def _unreachable(why: str, detail: str | None = None) -> AccuracyUnreachable:
    return AccuracyUnreachable(
        why, detail=detail, hint="Ask for a larger margin, or for a number that is made of fewer cells."
    )
