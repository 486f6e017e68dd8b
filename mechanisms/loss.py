"""Loss is what is spent: an additive amount of one coin, and beside it an additive delta.

The coin is chosen once per deployment. Under ``pure`` it is epsilon itself; under ``zcdp`` it is rho, of which an
epsilon-DP step costs epsilon^2/2 (Bun and Steinke 2016, Prop. 1.4). Limits are given and shown as (epsilon, delta):
``epsilon_of`` and ``amount_within`` translate. All numbers are decimals of 18 places, rounded against us.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import (
    ROUND_CEILING,
    ROUND_FLOOR,
    ROUND_HALF_EVEN,
    Context,
    Decimal,
    DivisionByZero,
    Inexact,
    InvalidOperation,
    Overflow,
)
from enum import Enum
from functools import lru_cache, reduce

QUANTUM = Decimal("1e-18")
_TRAPS = [InvalidOperation, DivisionByZero, Overflow]
WIDE = Context(prec=60, rounding=ROUND_HALF_EVEN, traps=_TRAPS)
"""Sixty digits: for results that are rounded to 18 places afterwards, never before."""
_EXACT = Context(prec=200, traps=[*_TRAPS, Inexact])
# Far above the error of a few correctly rounded operations at 60 digits, far below half a quantum.
_SLACK = Decimal("1e-36")


def exact_sum(amounts: Iterable[Decimal]) -> Decimal:
    """Add up amounts without rounding, however large they are; Python's own context would round to 28 digits."""
    return reduce(_EXACT.add, amounts, Decimal(0))


def exact_difference(amount: Decimal, less: Decimal) -> Decimal:
    """Subtract one amount from another without rounding."""
    return _EXACT.subtract(amount, less)


def exact_product(amount: Decimal, times: int) -> Decimal:
    """Multiply an amount without rounding."""
    return _EXACT.multiply(amount, Decimal(times))


class Coin(Enum):
    ZCDP = "zcdp"
    PURE = "pure"


def round_up(amount: Decimal) -> Decimal:
    """The smallest number of 18 places that is not below ``amount``."""
    return amount.quantize(QUANTUM, rounding=ROUND_CEILING, context=_ROUNDING)


def round_down(amount: Decimal) -> Decimal:
    """The largest number of 18 places that is not above ``amount``."""
    return amount.quantize(QUANTUM, rounding=ROUND_FLOOR, context=_ROUNDING)


_ROUNDING = Context(prec=200, traps=_TRAPS)


@dataclass(frozen=True, slots=True)
class Loss:
    """An amount of coin, and the delta that was paid beside it."""

    coin: Coin
    amount: Decimal
    delta: Decimal = Decimal(0)

    def __post_init__(self) -> None:
        for number in (self.amount, self.delta):
            if not number.is_finite() or number < 0:
                raise ValueError("a loss is a finite number that is not negative")

    def __add__(self, other: Loss) -> Loss:
        """Composition: both parts add, exactly."""
        if self.coin is not other.coin:
            raise ValueError(f"{self.coin.value} and {other.coin.value} do not add up")
        return Loss(self.coin, _EXACT.add(self.amount, other.amount), _EXACT.add(self.delta, other.delta))

    @classmethod
    def nothing(cls, coin: Coin) -> Loss:
        """What a free answer costs."""
        return cls(coin, Decimal(0))

    @classmethod
    def of_pure_step(cls, epsilon: Decimal, coin: Coin) -> Loss:
        """What a step that is epsilon-differentially private costs in this coin, rounded up."""
        match coin:
            case Coin.PURE:
                return cls(coin, round_up(epsilon))
            case Coin.ZCDP:
                return cls(coin, round_up(_EXACT.multiply(_EXACT.multiply(epsilon, epsilon), Decimal("0.5"))))


@lru_cache(maxsize=65536)
def epsilon_of(coin: Coin, amount: Decimal, delta: Decimal) -> Decimal:
    """What this amount of coin means as epsilon at this delta, rounded up.

    *Guarantee*: an amount of zcdp implies (epsilon, delta)-DP; the bound is the optimal one over all Rényi orders
    (Canonne, Kamath, Steinke 2020), and it holds for every order, so an inexact optimum costs nothing.
    """
    if not amount.is_finite() or amount < 0:
        raise ValueError("an amount of coin is a finite number that is not negative")
    match coin:
        case Coin.PURE:
            return round_up(amount)
        case Coin.ZCDP:
            if amount == 0:
                return round_up(Decimal(0))
            epsilon, _ = _convert(amount, _log_inverse(delta))
            return max(round_up(Decimal(0)), round_up(WIDE.add(epsilon, _SLACK)))


@lru_cache(maxsize=4096)
def amount_within(coin: Coin, epsilon: Decimal, delta: Decimal) -> Decimal:
    """The largest amount of coin that means at most this epsilon at this delta; an epsilon of zero allows nothing.

    *Guarantee*: ``epsilon_of(coin, amount_within(coin, e, d), d) <= e``.
    """
    if not epsilon.is_finite() or epsilon < 0:
        raise ValueError("epsilon is a finite number that is not negative")
    match coin:
        case Coin.PURE:
            return round_down(epsilon)
        case Coin.ZCDP:
            log = _log_inverse(delta)
            if epsilon == 0:
                return round_down(Decimal(0))
            amount = round_down(max(Decimal(0), _invert(epsilon, log)))
            while amount > 0 and epsilon_of(coin, amount, delta) > epsilon:
                amount = _EXACT.subtract(amount, QUANTUM)
            while epsilon_of(coin, above := _EXACT.add(amount, QUANTUM), delta) <= epsilon:
                amount = above
            return amount


def _log_inverse(delta: Decimal) -> Decimal:
    if not 0 < delta < 1:
        raise ValueError("under zcdp an epsilon is told at a delta between 0 and 1")
    return WIDE.minus(WIDE.ln(delta))


def _convert(rho: Decimal, log: Decimal) -> tuple[Decimal, Decimal]:
    """The bound at the best order a + 1, with that a.

    At order a + 1 the bound is (a+1) rho + (log - ln(1+a))/a - ln(1 + 1/a); its derivative vanishes where
    rho a^2 + ln(1+a) = log. The left side grows with a, so the optimum is one root; it is found in floats and
    polished by two Newton steps in decimals, so that the bound is optimal to some 60 digits.
    """
    a = Decimal(_float_root(float(rho), float(log)))
    one = Decimal(1)
    for _ in range(2):
        one_a = WIDE.add(one, a)
        excess = WIDE.subtract(WIDE.fma(rho, WIDE.multiply(a, a), WIDE.ln(one_a)), log)
        slope = WIDE.fma(WIDE.multiply(rho, a), Decimal(2), WIDE.divide(one, one_a))
        a = WIDE.subtract(a, WIDE.divide(excess, slope))
    one_a = WIDE.add(one, a)
    log_one_a = WIDE.ln(one_a)
    rest = WIDE.divide(WIDE.subtract(log, log_one_a), a)
    return WIDE.add(WIDE.fma(one_a, rho, rest), WIDE.ln(WIDE.divide(a, one_a))), a


def _float_root(rho: float, log: float) -> float:
    """The a with rho a^2 + ln(1+a) = log, to float precision: one of the two terms is at least half of ``log``."""
    low, high = math.sqrt(log / (2 * rho)), math.sqrt(log / rho)
    if log < 700:  # beyond, exp overflows, and the square root is the smaller bound anyway
        low, high = min(low, math.expm1(log / 2)), min(high, math.expm1(log))
    else:
        low = min(low, math.expm1(min(log / 2, 700)))
    for _ in range(60):
        middle = math.sqrt(low) * math.sqrt(high)
        if rho * middle * middle + math.log1p(middle) < log:
            low = middle
        else:
            high = middle
    return high


def _invert(epsilon: Decimal, log: Decimal) -> Decimal:
    """The rho whose bound is epsilon, by Newton.

    The bound is concave in rho (a minimum of lines) with slope a + 1, so from a start at the left, which the closed
    form rho + 2 sqrt(rho log) gives, every step stays at the left and the convergence is quadratic.
    """
    root = WIDE.subtract(WIDE.sqrt(WIDE.add(log, epsilon)), WIDE.sqrt(log))
    rho = max(WIDE.multiply(root, root), QUANTUM)
    for _ in range(64):
        reached, a = _convert(rho, log)
        step = WIDE.divide(WIDE.subtract(epsilon, reached), WIDE.add(Decimal(1), a))
        rho = max(WIDE.add(rho, step), QUANTUM)
        if abs(step) < Decimal("1e-24"):
            break
    return rho
