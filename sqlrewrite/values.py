"""Released statistics to the texts of an answer's columns: counts, sums, averages and spreads."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from fractions import Fraction
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mechanisms.values import Noisy
from sqlrewrite.question import AggregateValue, Form, Question

WIDE: Final = Context(prec=100, rounding=ROUND_HALF_UP)
_ZERO: Final = Decimal(0)
_FLOATS: Final = frozenset(("double precision", "real"))
_INTEGERS: Final = frozenset(("bigint", "integer", "smallint"))


def statistic_of(question: Question, terms: tuple[tuple[int, int], ...]) -> int:
    """Which statistic has these terms; whatever a shown aggregate is computed from is one."""
    for index, statistic in enumerate(question.statistics):
        if statistic.terms == terms:
            return index
    raise ValueError(f"{terms} is not released")


def column_texts(
    question: Question, column: AggregateValue, noisy: Noisy, kept: NDArray[np.int64], clip: bool
) -> list[str | None]:
    """One column of the answer over the kept cells; ``clip`` shows no negative count, sum of non-negatives or
    variance.
    """
    rows = [noisy.row(statistic_of(question, terms))[kept] for terms in column.wanted]
    units = [question.measures[measure].unit for measure in column.measures]
    floor = clip and question.measures[column.measures[0]].lower >= 0
    if column.form is Form.COUNT:
        return [str(max(0, int(n)) if floor else int(n)) for n in rows[0]]
    with localcontext(WIDE):
        return [
            text(_value(column, cell, units, floor), column.type_name)
            for cell in zip(*(row.tolist() for row in rows), strict=True)
        ]


def _value(column: AggregateValue, cell: Sequence[int], units: Sequence[Fraction], floor: bool) -> Decimal | None:
    """An aggregate with as many decimals as PostgreSQL shows of it."""
    form = column.form
    if form not in (Form.COUNT, Form.SUM):
        *squared, released, n = cell
        # An average is of the sum as it is, a spread of the sum about the centre, whichever was released.
        if form is Form.AVG:
            released += 0 if column.plain else column.centre * n
        else:
            released -= column.centre * n if column.plain else 0
        cell = (*squared, released, n)
    numbers = [decimal(value * unit, unit) for value, unit in zip(cell, units, strict=True)]
    if form is Form.SUM:
        return max(_ZERO.quantize(numbers[0]), numbers[0]) if floor else numbers[0]
    if form is Form.AVG:
        total, count = numbers
        return None if count <= 0 else _divided(total, count)
    squares, total, count = numbers
    sample = form in (Form.VAR_SAMP, Form.STDDEV_SAMP)
    if count < (2 if sample else 1):
        return None
    spread = count * squares - total * total
    if spread <= 0:
        return _ZERO
    variance = _divided(spread, count * (count - 1 if sample else count))
    if form in (Form.VAR_SAMP, Form.VAR_POP):
        return variance
    return variance.sqrt().quantize(variance)


def decimal(value: Fraction, unit: Fraction) -> Decimal:
    """A multiple of the unit, with the decimals of the unit."""
    exact = Decimal(value.numerator) / Decimal(value.denominator)
    return exact.quantize(Decimal(1).scaleb(-_decimals(unit.denominator)))


@cache
def _decimals(denominator: int) -> int:
    """How many decimals a fraction has; of one that has no end, sixteen."""
    return next((n for n in range(16) if 10**n % denominator == 0), 16)


def _divided(one: Decimal, other: Decimal) -> Decimal:
    """A quotient with PostgreSQL's number of decimals (select_div_scale: 16 significant digits, in groups of four)."""
    (weight, first), (below, second) = _leading(one), _leading(other)
    weight -= below + (first <= second)
    scale = max(16 - 4 * weight, -_exponent(one), -_exponent(other), 0)
    return (one / other).quantize(Decimal(1).scaleb(-scale))


def _leading(value: Decimal) -> tuple[int, int]:
    """The place and the value of the first digit to the base 10,000."""
    if not value:
        return 0, 0
    weight = value.adjusted() // 4
    return weight, int(abs(value).scaleb(-4 * weight))


def _exponent(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)  # neither infinite nor NaN
    return exponent


def text(value: Decimal | None, type_name: str) -> str | None:
    """How PostgreSQL writes a value of a numeric type."""
    if value is None:
        return None
    if type_name in _FLOATS:
        return repr(float(value))
    if type_name in _INTEGERS:
        return str(int(value.to_integral_value()))
    return f"{value:f}"
