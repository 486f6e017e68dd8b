"""exp(-x) in fixed point, from below: the one transcendental number that the laws of noise are built from.

No float enters the law of the noise (THREATS.md, arithmetic); everything is an integer with a known error.
"""

from __future__ import annotations

from fractions import Fraction

BITS = 384  # a number v stands for v / 2**BITS
ONE = 1 << BITS
_GUARD = 64
_WIDE = BITS + _GUARD


def exp_down(x: Fraction) -> int:
    """A fixed-point v with v <= exp(-x) * 2**BITS < v + 2, for x >= 0.

    *Proof.* With z = x / 2**k < 2**-16 rounded up, 40 terms of the alternating series leave a remainder below one
    unit of the wide scale; each term is off by at most 3 units (its own rounding, and what it inherits times z/n),
    so the sum less 128 units lies below exp(-z) by at most 256. Rounding z up costs one more. A squaring rounded
    down keeps the bound and at most doubles the error plus one: after k <= 27 squarings it is below 2**36, far below
    the 64 guard bits.
    """
    if x < 0:
        raise ValueError("exp_down takes x >= 0")
    if x >= 2 * BITS:
        return 0  # exp(-768) < 2**-1000
    halvings = max(0, x.numerator.bit_length() - x.denominator.bit_length() + 17)
    z = -((-x.numerator << _WIDE) // (x.denominator << halvings))
    total = term = 1 << _WIDE
    for n in range(1, 40):
        term = -((term * z >> _WIDE) // n)
        total += term
    value = max(0, total - 128)
    for _ in range(halvings):
        value = value * value >> _WIDE
    return value >> _GUARD
