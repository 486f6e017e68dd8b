"""What veil.low, veil.high and veil.stddev tell of a released aggregate, as the texts of an answer's columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext

import numpy as np
from numpy.typing import NDArray

from mechanisms.interval import (
    Reals,
    Row,
    Spread,
    deviation,
    half_width,
    ratio,
    ratio_deviation,
    variance,
    variance_deviation,
)
from mechanisms.threshold import Share
from mechanisms.values import Noisy
from sqlrewrite.aggregate import row_range
from sqlrewrite.finish import bound_type
from sqlrewrite.question import AggregateValue, Bound, Form, Question
from sqlrewrite.values import WIDE, column_texts, decimal, statistic_of, text

_SAMPLES = (Form.VAR_SAMP, Form.STDDEV_SAMP)
_ROOTS = (Form.STDDEV_SAMP, Form.STDDEV_POP)


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """Released numbers of a question's kept cells; no shares where nothing was measured, and so nothing is noisy."""

    question: Question
    noisy: Noisy
    shares: Sequence[Share | None] | None
    kept: NDArray[np.int64]
    confidence: Decimal
    clip: bool

    def row(self, terms: tuple[tuple[int, int], ...], measure: int) -> Row:
        assert self.shares is not None
        place = statistic_of(self.question, terms)
        share = self.shares[place]
        assert share is not None  # what is shown has one
        return Row(self.noisy.row(place)[self.kept], share, self.question.measures[measure].unit)


def bound_texts(told: Told, column: AggregateValue, bound: Bound) -> list[str | None]:
    """One column of the answer: an end of the interval at the confidence, or the standard deviation of the noise.

    The interval is of the number as it was released; its ends are clipped at 0 only where the number itself is.
    """
    if told.shares is None:
        values = column_texts(told.question, column, told.noisy, told.kept, told.clip)
        return ["0" if bound is Bound.STDDEV else value for value in values]
    match column.form:
        case Form.COUNT | Form.SUM:
            return _exact(told, column, bound)
        case Form.AVG:
            return _texts(_average(told, column, bound), column)
        case _:
            return _texts(_spread(told, column, bound), column)


def _exact(told: Told, column: AggregateValue, bound: Bound) -> list[str | None]:
    row = told.row(column.wanted[0], column.measures[0])
    if bound is Bound.STDDEV:
        return _texts(np.full(len(told.kept), deviation(row.share) * float(row.unit)), column)
    half = half_width(row.share, told.confidence) * (1 if bound is Bound.HIGH else -1)
    floor = told.clip and told.question.measures[column.measures[0]].lower >= 0
    ends = [max(0, n + half) if floor else n + half for n in row.lattice.tolist()]
    with localcontext(WIDE):
        return [text(decimal(end * row.unit, row.unit), bound_type(column.type_name)) for end in ends]


def _average(told: Told, column: AggregateValue, bound: Bound) -> Reals:
    top, bottom = (told.row(terms, place) for terms, place in zip(column.wanted, column.measures, strict=True))
    unit = float(top.unit)
    low, high = (end * unit for end in row_range(told.question.measures[column.measures[0]]))
    middle = 0.0 if column.plain else column.centre * unit
    if bound is Bound.STDDEV:
        return ratio_deviation(top, bottom)
    ends = ratio(top, bottom, told.confidence, (low - middle, high - middle))
    return middle + ends[bound is Bound.HIGH]


def _spread(told: Told, column: AggregateValue, bound: Bound) -> Reals:
    rows = [told.row(terms, place) for terms, place in zip(column.wanted, column.measures, strict=True)]
    unit = float(rows[1].unit)
    low, high = (end * unit for end in row_range(told.question.measures[column.measures[1]]))
    centre, less = column.centre * unit, int(column.form in _SAMPLES)
    spread = Spread(rows[0], rows[1], rows[2], less, centre if column.plain else 0.0)
    if bound is Bound.STDDEV:
        found, noise = variance_deviation(spread)
        if column.form not in _ROOTS:
            return noise
        return np.asarray(noise / (2 * np.sqrt(np.where(found > 0, found, np.nan))), dtype=np.float64)
    # No values spread wider than half of them at each end; a sample of two counts twice.
    ends = variance(spread, told.confidence, ((high - low) / 2) ** 2 * (1 + less))
    end = ends[bound is Bound.HIGH]
    return np.sqrt(end) if column.form in _ROOTS else end


def _texts(numbers: Reals, column: AggregateValue) -> list[str | None]:
    """Sixteen digits, and NULL where there is no number."""
    type_name = bound_type(column.type_name)
    return [None if np.isnan(n) else text(Decimal(repr(n)), type_name) for n in numbers.tolist()]
