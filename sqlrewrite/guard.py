"""The guard that an average or a ratio needs, as the analyst would write it: a condition on the size of its groups."""

from __future__ import annotations

from collections.abc import Set

from sqlglot import exp

from sqlrewrite import spelled
from sqlrewrite.aggregate import Measures, filtered
from sqlrewrite.expression import Reader
from sqlrewrite.question import MeasureKind

GUARD = 500  # what the hint proposes, times the rows of a unit: a size that an average is decided at for little


def shown(node: exp.Expr) -> str:
    """A node as PostgreSQL reads it."""
    return node.sql(dialect="postgres", normalize_functions="lower")


def proposed(wanted: Set[int], measures: Measures, reader: Reader, node: exp.Expr, text: str, most: int | None) -> str:
    """A hint with one of the counts that would be enough, at a size that leaves groups of up to ``most`` rows."""
    size, remark = GUARD * measures.unit.max_rows, ""
    if most is not None and most < size:
        size, remark = most // 2, f"; the nearer to {most}, which is the most that you ask for, the cheaper"
    if size < 1:
        return f"leave it out: groups of at most {most} rows are too small for it"
    guard = _count(wanted, measures, reader, node)
    asked = f"HAVING ({text.strip()}) AND {guard} >= {size}; or SET veil.support = {size}"
    return f"say from which size on groups count: {asked}{remark}"


def _count(wanted: Set[int], measures: Measures, reader: Reader, node: exp.Expr) -> str:
    """The count has its filter as the analyst wrote it: only so is it the same count."""
    rows = next(each for place in sorted(wanted) if (each := measures[place]).kind is MeasureKind.ROWS)
    if rows.filter is None:
        return "count(*)"
    filters = (part for part in node.find_all(exp.Filter) if filtered(part, reader)[1] == rows.filter)
    return next((f"count(*) FILTER ({shown(part.expression).strip()})" for part in filters), spelled.measure(rows))
