from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mechanisms.fixed import BITS, exp_down

DIGITS = Context(prec=400)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.fractions(min_value=0, max_value=800))
@example(Fraction(0))
@example(Fraction(1, 2**60))
@example(Fraction(2**16 - 1, 2**16))
@example(Fraction(767))
@example(Fraction(1))
def test_the_exponential_lies_within_two_units_above(x: Fraction) -> None:
    # The oracle is libmpdec's correctly rounded exp at 400 digits.
    power = DIGITS.exp(DIGITS.divide(Decimal(-x.numerator), Decimal(x.denominator)))
    truth = DIGITS.multiply(power, Decimal(2**BITS))
    assert exp_down(x) <= truth < exp_down(x) + 2


def test_a_negative_argument_is_a_bug() -> None:
    with pytest.raises(ValueError, match="x >= 0"):
        exp_down(Fraction(-1))
