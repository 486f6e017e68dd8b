"""A region in the words of SQL: what a notice tells, and what anybody can run where the rows may be read."""

from __future__ import annotations

import re
from datetime import date, datetime
from decimal import Decimal

from provenance.extent import Extent, Interval, Members, Value
from provenance.region import Region
from sqlrewrite.term import quoted

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")


def told(region: Region) -> str:
    """The condition that exactly the rows of a region meet."""
    if region.empty:
        return "false"
    return " AND ".join(_side(_name(name), extent) for name, extent in region.sides) or "true"


def _name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quoted(name)


def _side(name: str, extent: Extent) -> str:
    match extent:
        case Members(values):
            listed = sorted(_literal(value) for value in values if value is not None)
            parts = [f"{name} = {listed[0]}" if len(listed) == 1 else f"{name} IN ({', '.join(listed)})"] * bool(listed)
            parts += [f"{name} IS NULL"] * (None in values)
            return parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})"
        case Interval(None, None):
            return f"{name} IS NOT NULL"
        case Interval(low, high, True, True) if low is not None and high is not None:
            return f"{name} BETWEEN {_literal(low)} AND {_literal(high)}"
        case Interval(low, high, low_closed, high_closed):
            ends = ((low, ">=" if low_closed else ">"), (high, "<=" if high_closed else "<"))
            return " AND ".join(f"{name} {op} {_literal(end)}" for end, op in ends if end is not None)


def _literal(value: Value) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | Decimal():
            return format(value, "f") if isinstance(value, Decimal) else str(value)
        case datetime():
            return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case _:
            return "'" + str(value).replace("'", "''") + "'"
