"""Aggregate calls in a text: their names, where a call ends, and the calls that ask for the noise of one.

``veil.low(aggregate)``, ``veil.high`` and ``veil.stddev`` are read off with their aggregate and answered from the noise
that it was released with.
"""

from __future__ import annotations

import re
from typing import Final

from sqlrewrite.blocks import Tokens, closing
from sqlrewrite.errors import NotAnswered
from sqlrewrite.lex import Kind
from sqlrewrite.question import Bound

# Every aggregate that PostgreSQL brings: those that are not answered are refused by name.
AGGREGATES: Final = frozenset(
    re.findall(
        r"\w+",
        """count sum avg min max variance var_samp var_pop stddev stddev_samp stddev_pop percentile_cont percentile_disc
        mode array_agg string_agg json_agg jsonb_agg json_object_agg jsonb_object_agg json_arrayagg json_objectagg
        xmlagg json_agg_strict jsonb_agg_strict bool_and bool_or every bit_and bit_or bit_xor any_value corr covar_pop
        covar_samp regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy
        range_agg range_intersect_agg""",
    )
)
_BOUNDS: Final = {bound.value: bound for bound in Bound}


def bound_call(these: Tokens, at: int) -> Bound | None:
    """Which of them is called here."""
    if at + 3 >= len(these) or these[at].name != "veil" or these[at + 1].kind is not Kind.DOT:
        return None
    if these[at + 3].kind is not Kind.OPEN or (at > 0 and these[at - 1].kind is Kind.DOT):
        return None
    return _BOUNDS.get(these[at + 2].name or "")


def no_aggregate(bound: Bound, position: int | None) -> NotAnswered:
    """They are read off the noise of a question's aggregate, and there is none here."""
    return NotAnswered(
        f"veil.{bound.value} takes one aggregate of a question about protected rows",
        hint=f"Write veil.{bound.value}(count(*)) in the select list or ORDER BY of the SELECT that counts the rows.",
        position=position,
    )


def is_aggregate(these: Tokens) -> bool:
    """Whether they are one aggregate call and nothing else."""
    return (
        len(these) > 2
        and these[0].word in AGGREGATES
        and these[1].kind is Kind.OPEN
        and call_end(these, 0) == len(these)
    )


def call_end(these: Tokens, at: int) -> int:
    """Behind an aggregate call: its parentheses, WITHIN GROUP (...) and FILTER (...)."""
    stop = closing(these, at + 1) + 1
    if stop + 2 < len(these) and these[stop].word == "within" and these[stop + 1].word == "group":
        stop = closing(these, stop + 2) + 1
    if stop + 1 < len(these) and these[stop].word == "filter" and these[stop + 1].kind is Kind.OPEN:
        stop = closing(these, stop + 1) + 1
    return stop
