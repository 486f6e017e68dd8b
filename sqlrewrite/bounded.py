"""What a number can be by type: its range and its places after the point, and how arithmetic changes them.

This is another thing than ``sqlrewrite.interval``, which is about *declared* bounds and what one row adds to a sum:
here is only what can stand in the generated SQL whatever the data, after the guards of ``sqlrewrite.guarded``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from sqlrewrite.limits import (
    DECLARED_DIGITS,
    DECLARED_RESERVE,
    KEPT_DIGITS,
    KEPT_PLACES,
    MOST_DIGITS,
    STORED_DIGITS,
)

_WHOLE = {"smallint": 2**15, "integer": 2**31, "bigint": 2**63}
_NUMERIC = re.compile(r"numeric\((\d+)(?:,(-?\d+))?\)")


@dataclass(frozen=True, slots=True)
class Range:
    """``lower`` <= value <= ``upper`` (or NULL, or NaN), written with at most ``scale`` places after the point."""

    lower: Fraction
    upper: Fraction
    scale: int = 0

    @property
    def most(self) -> Fraction:
        """The largest magnitude."""
        return max(abs(self.lower), abs(self.upper))

    @property
    def whole_digits(self) -> int:
        """Before the point."""
        return _digits(math.floor(self.most)) if self.most >= 1 else 0

    @property
    def digits(self) -> int:
        return self.whole_digits + self.scale

    def fits(self, width: int) -> bool:
        """Whether every value is a whole number of a two's complement type."""
        return self.scale == 0 and -width <= self.lower and self.upper < width

    def __neg__(self) -> Range:
        return Range(-self.upper, -self.lower, self.scale)

    def __add__(self, other: Range) -> Range:
        return Range(self.lower + other.lower, self.upper + other.upper, max(self.scale, other.scale))

    def __mul__(self, other: Range) -> Range:
        ends = [a * b for a in (self.lower, self.upper) for b in (other.lower, other.upper)]
        return Range(min(ends), max(ends), self.scale + other.scale)

    def __abs__(self) -> Range:
        return Range(Fraction(0), self.most, self.scale)

    def quotient(self, divisor: Fraction) -> Range:
        """Divided by a constant other than zero, and rounded to the places that are left.

        PostgreSQL gives a quotient at least 16 significant digits, however small it is: so it is rounded to a scale
        that does not depend on the value, at least that of the dividend and as many places as the divisor moves it.
        """
        ends = sorted((self.lower / divisor, self.upper / divisor))
        bare = Range(ends[0], ends[1])
        moved = _digits(math.floor(abs(divisor)))
        scale = min(max(16, self.scale + moved), MOST_DIGITS - bare.whole_digits - 1)
        return bare.rounded(max(scale, 0))

    def truncated(self, divisor: Fraction) -> Range:
        """Divided by a constant, without what is after the point."""
        ends = sorted((self.lower / divisor, self.upper / divisor))
        return Range(Fraction(math.trunc(ends[0])), Fraction(math.trunc(ends[1])))

    def remainder(self, divisor: Fraction, scale: int) -> Range:
        """What is left of a division by a constant with so many places."""
        most = min(abs(divisor), self.most)
        return Range(
            -most if self.lower < 0 else Fraction(0), most if self.upper > 0 else Fraction(0), max(self.scale, scale)
        )

    def rounded(self, places: int) -> Range:
        """Rounded, upwards or downwards, to places after (or, negative, before) the point."""
        step = Fraction(10) ** -places
        return Range(math.floor(self.lower / step) * step, math.ceil(self.upper / step) * step, max(places, 0))


def _digits(number: int) -> int:
    """Of a whole number that is not negative; of one beyond all limits perhaps one too many."""
    bits = number.bit_length()
    return len(str(number)) if bits < 2000 else bits * 30103 // 100000 + 1


def union(ranges: Sequence[Range]) -> Range:
    """What one of several numbers can be."""
    return Range(
        min(each.lower for each in ranges), max(each.upper for each in ranges), max(each.scale for each in ranges)
    )


def of_constant(value: Decimal) -> Range:
    """One number."""
    return Range(Fraction(value), Fraction(value), max(0, -int(value.as_tuple().exponent)))


def of_type(type_name: str) -> Range | None:
    """Every finite number of a type; None where the type does not tell, or has more digits than enter arithmetic."""
    bare = type_name.replace(" ", "")
    width = _WHOLE.get(bare)
    if width is not None:
        return Range(Fraction(-width), Fraction(width - 1))
    declared = _NUMERIC.fullmatch(bare)
    if declared is None:
        return None
    precision, scale = int(declared[1]), int(declared[2] or 0)
    most = (10**precision - 1) * Fraction(10) ** -scale
    known = Range(-most, most, max(scale, 0))
    return known if known.digits <= STORED_DIGITS else None


def kept(lower: Decimal | None, upper: Decimal | None) -> Range:
    """What is kept of a number whose type does not tell its range: declared bounds move the window.

    *Guarantee*: it depends on the declaration only. A value outside is NULL in arithmetic; places beyond are rounded.
    """
    top, places = KEPT_DIGITS - KEPT_PLACES, KEPT_PLACES
    if lower is not None and upper is not None:
        most = max(abs(lower), abs(upper))
        if most:
            # 10^e is the least power of ten from the bound on.
            exponent = most.adjusted() + (most != Decimal(1).scaleb(most.adjusted()))
            top = exponent + DECLARED_RESERVE
            places = max(0, DECLARED_DIGITS - top)
    most_kept = Fraction(10) ** top
    return Range(-most_kept, most_kept, places)
