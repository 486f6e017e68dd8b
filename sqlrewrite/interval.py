"""The public bounds of a number that is worked out from a row, and the lattice that its sums are measured on.

Everything follows from declared bounds, types and constants; the data is never asked. The unit of the lattice:

- whole numbers: 1; ``numeric(p,s)``: 10^-s; a product has the product of the units: such values *are* on the lattice;
- floats and ``numeric`` without a scale: the power of two that cuts the largest magnitude into about 2^20 steps;
- a lattice that would need more than 2^36 steps is made coarser by powers of ten, so that sums of many rows fit int8.

Bounds are moved outwards to lattice points.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Context, Decimal
from fractions import Fraction

from sqlrewrite.catalog import Attribute
from sqlrewrite.constant import FLOATS, INTEGERS, TEXTS, base_type, decimal
from sqlrewrite.errors import NotAnswered
from sqlrewrite.question import Call, Case, Cast, ColumnRef, Expression, Literal, Source

MOST_STEPS = 2**36
FINE_STEPS = 20  # bits
_WIDE = Context(prec=2000)

FIELDS: dict[str, tuple[int, int]] = {
    "month": (1, 12), "quarter": (1, 4), "day": (1, 31), "doy": (1, 366), "dow": (0, 6), "isodow": (1, 7),
    "week": (1, 53), "hour": (0, 23), "minute": (0, 59), "second": (0, 60),
}  # fmt: skip
"""What ``extract`` gives for every timestamp; other fields have no natural bounds."""


@dataclass(frozen=True, slots=True)
class Interval:
    """``lower`` <= value <= ``upper``, both multiples of ``unit``."""

    lower: Decimal
    upper: Decimal
    unit: Fraction


@dataclass(frozen=True, slots=True)
class Reach:
    """What is known before a lattice is chosen.

    ``grain``: all values are multiples of it (None: any real number). ``sure``: the bounds hold whatever the data
    says, by type, CHECK or arithmetic; otherwise they are a declaration that the generated SQL enforces.
    """

    lower: Fraction
    upper: Fraction
    grain: Fraction | None
    sure: bool


def interval(expression: Expression, sources: Sequence[Source]) -> Interval:
    """Bounds and lattice of a numeric row expression; a missing bound is refused with the administrator's fix."""
    known = reach(expression, sources)
    return _on_lattice(known or Reach(Fraction(0), Fraction(0), Fraction(1), True))


def squares(expression: Expression, sources: Sequence[Source]) -> Interval:
    """The same for the square of the expression."""
    known = reach(expression, sources)
    return _on_lattice(squared(known) if known else Reach(Fraction(0), Fraction(0), Fraction(1), True))


def squared(known: Reach) -> Reach:
    """The reach of a square."""
    ends = known.lower**2, known.upper**2
    lower = Fraction(0) if known.lower < 0 < known.upper else min(ends)
    return Reach(lower, max(ends), None if known.grain is None else known.grain**2, known.sure)


def reach(expression: Expression, sources: Sequence[Source]) -> Reach | None:
    """The bounds of an expression, or None where it is always NULL."""
    match expression:
        case Literal(None, _):
            return None
        case Literal():
            value = decimal(expression)
            if value is None:
                raise _no_number(expression.type_name)
            exact = Fraction(value)
            return Reach(exact, exact, _places(max(0, -int(value.as_tuple().exponent))), True)
        case ColumnRef(source, name, _):
            return _column(sources[source], sources[source].relation.attributes[name])
        case Case(branches, otherwise, _):
            return _union([reach(part, sources) for part in (*(then for _, then in branches), otherwise)])
        case Cast(argument, type_name):
            return _cast(argument, type_name, sources)
        case Call():
            return _call(expression, sources)


def _on_lattice(known: Reach) -> Interval:
    magnitude = max(abs(known.lower), abs(known.upper))
    unit = known.grain
    if unit is None:
        bits = (
            math.ceil(magnitude).bit_length()
            if magnitude >= 1
            else 1 - (int(1 / magnitude) if magnitude else 1).bit_length()
        )
        unit = Fraction(2) ** (bits - FINE_STEPS)
    while magnitude / unit > MOST_STEPS:
        unit *= 10
    return Interval(
        _decimal(math.floor(known.lower / unit) * unit), _decimal(math.ceil(known.upper / unit) * unit), unit
    )


def _decimal(value: Fraction) -> Decimal:
    """Exact: the denominators are powers of two and ten."""
    return _WIDE.divide(Decimal(value.numerator), Decimal(value.denominator))


def _places(scale: int) -> Fraction:
    return Fraction(10) ** -scale


def grain_of_type(type_name: str) -> Fraction | None:
    """The lattice that every value of a type lies on."""
    if base_type(type_name) in (*INTEGERS, "boolean"):
        return Fraction(1)
    declared = re.fullmatch(r"numeric\((\d+),(-?\d+)\)", type_name.replace(" ", ""))
    if declared:
        return _places(int(declared[2]))
    return Fraction(1) if re.fullmatch(r"numeric\(\d+\)", type_name.replace(" ", "")) else None


def _column(source: Source, attribute: Attribute) -> Reach:
    if base_type(attribute.type_name) not in (*INTEGERS, *FLOATS, "numeric"):
        raise _no_number(attribute.type_name)
    lower, upper = attribute.lower, attribute.upper
    if lower is None or upper is None:
        members = [Fraction(value) for value in attribute.domain or () if isinstance(value, int | Decimal)]
        if not members:
            raise _missing(source, attribute.name)
        return Reach(min(members), max(members), grain_of_type(attribute.type_name), False)
    sure = attribute.checked
    return Reach(Fraction(lower), Fraction(upper), grain_of_type(attribute.type_name), sure)


def _missing(source: Source, column: str) -> NotAnswered:
    table = f"{source.relation.schema}.{source.relation.name}".replace("'", "''")
    return NotAnswered(
        f'the column "{column}" of {source.relation.qualified} has no declared bounds',
        detail="without public bounds it is not known how far one row can move the answer",
        hint="an administrator can declare them: SELECT provenance.declare_attribute"
        f"('{table}', '{column.replace(chr(39), chr(39) * 2)}', lower, upper)",
    )


def _no_number(type_name: str) -> NotAnswered:
    return NotAnswered(f"a value of type {type_name} is not added up", hint="add up numbers only")


def _unbounded(function: str) -> NotAnswered:
    return NotAnswered(
        f"the bounds of {function} are not known here", hint="add up declared columns, with + - * and constants"
    )


def _union(parts: Sequence[Reach | None]) -> Reach | None:
    known = [part for part in parts if part is not None]
    if not known:
        return None
    return Reach(
        min(part.lower for part in known),
        max(part.upper for part in known),
        _common([part.grain for part in known]),
        all(part.sure for part in known),
    )


def _common(grains: Sequence[Fraction | None]) -> Fraction | None:
    result = Fraction(0)
    for grain in grains:
        if grain is None:
            return None
        below = result.denominator * grain.denominator
        result = Fraction(math.gcd(result.numerator * grain.denominator, grain.numerator * result.denominator), below)
    return result or None


def _product(left: Reach, right: Reach) -> Reach:
    corners = [a * b for a in (left.lower, left.upper) for b in (right.lower, right.upper)]
    grain = None if left.grain is None or right.grain is None else left.grain * right.grain
    return Reach(min(corners), max(corners), grain, left.sure and right.sure)


def _cast(argument: Expression, type_name: str, sources: Sequence[Source]) -> Reach | None:
    target = base_type(type_name)
    if target not in (*INTEGERS, *FLOATS, "numeric"):
        raise _no_number(type_name)
    if _type(argument) == "boolean":
        return Reach(Fraction(0), Fraction(1), Fraction(1), True)
    known = reach(argument, sources)
    grain = grain_of_type(type_name)
    if known is None or (grain is None and target in FLOATS) or (known.grain is None and grain is None):
        return known and Reach(known.lower, known.upper, None, known.sure)
    if grain is None:
        return known
    return _rounded(known, grain)


def _rounded(known: Reach, grain: Fraction) -> Reach:
    return Reach(math.floor(known.lower / grain) * grain, math.ceil(known.upper / grain) * grain, grain, known.sure)


def _type(expression: Expression) -> str:
    return base_type(expression.type_name)


def _call(call: Call, sources: Sequence[Source]) -> Reach | None:
    match call.function, call.arguments:
        case "width_bucket", (_, _, _, Literal() as buckets):
            return Reach(Fraction(0), Fraction(decimal(buckets) or 0) + 1, Fraction(1), True)
        case "extract" | "date_part", (Literal(text=str(field)), moment):
            return _field(field.lower(), moment, sources)
        case "length" | "char_length" | "character_length", (ColumnRef(source, name, type_name),):
            return _length(sources[source], name, type_name)
        case "sign", (_,):
            return Reach(Fraction(-1), Fraction(1), Fraction(1), True)
        case "-", (ColumnRef() as left, ColumnRef() as right) if _type(left) == _type(right) == "date":
            first, second = _days(left, sources), _days(right, sources)
            return Reach(Fraction(first[0] - second[1]), Fraction(first[1] - second[0]), Fraction(1), False)
    parts = [reach(argument, sources) for argument in call.arguments]
    if call.function in ("coalesce", "greatest", "least"):
        return _union(parts)  # greatest and least ignore NULL: any argument may be the one that is left
    if call.function == "nullif":
        return parts[0]
    known = [part for part in parts if part is not None]
    return _arithmetic(call, known) if len(known) == len(parts) else None


def _arithmetic(call: Call, known: Sequence[Reach]) -> Reach:
    match call.function, known:
        case "+", (one,):
            return one
        case "-", (one,):
            return Reach(-one.upper, -one.lower, one.grain, one.sure)
        case "+", (left, right):
            return _sum(left, right)
        case "-", (left, right):
            return _sum(left, Reach(-right.upper, -right.lower, right.grain, right.sure))
        case "*", (left, right):
            return _product(left, right)
        case (("/" | "div"), (left, Reach(lower=divisor, upper=same))) if divisor == same != 0:
            return _quotient(left, divisor, _type(call) in INTEGERS or call.function == "div")
        case (("%" | "mod"), (left, Reach(lower=divisor, upper=same, grain=grain))) if divisor == same != 0:
            most = abs(divisor)
            return Reach(
                -most if left.lower < 0 else Fraction(0), most if left.upper > 0 else Fraction(0),
                _common([left.grain, grain]), left.sure,
            )  # fmt: skip
        case "abs", (one,):
            low = Fraction(0) if one.lower <= 0 <= one.upper else min(abs(one.lower), abs(one.upper))
            return Reach(low, max(abs(one.lower), abs(one.upper)), one.grain, one.sure)
        case (("round" | "trunc"), (one, Reach(lower=places))):
            return _rounded(one, _places(int(places)))
        case (("round" | "trunc" | "floor" | "ceil" | "ceiling"), (one,)):
            return _rounded(one, Fraction(1))
    raise _unbounded(call.function)


def _sum(left: Reach, right: Reach) -> Reach:
    return Reach(
        left.lower + right.lower,
        left.upper + right.upper,
        _common([left.grain, right.grain]),
        left.sure and right.sure,
    )


def _quotient(left: Reach, divisor: Fraction, whole: bool) -> Reach:
    ends = sorted((left.lower / divisor, left.upper / divisor))
    if whole:  # towards zero
        return Reach(Fraction(math.trunc(ends[0])), Fraction(math.trunc(ends[1])), Fraction(1), left.sure)
    return Reach(ends[0], ends[1], None, left.sure)


def _days(column: ColumnRef, sources: Sequence[Source]) -> tuple[int, int]:
    source = sources[column.source]
    domain = source.relation.attributes[column.name].domain
    days = [value.toordinal() for value in domain or () if isinstance(value, date)]
    if not days:
        raise _missing(source, column.name)
    return min(days), max(days)


def _field(field: str, moment: Expression, sources: Sequence[Source]) -> Reach:
    if field in FIELDS:
        lower, upper = FIELDS[field]
        return Reach(Fraction(lower), Fraction(upper), _places(6) if field == "second" else Fraction(1), True)
    if field in ("year", "isoyear") and isinstance(moment, ColumnRef):
        source = sources[moment.source]
        years = [v.year for v in source.relation.attributes[moment.name].domain or () if isinstance(v, date)]
        if not years:
            raise _missing(source, moment.name)
        slack = field == "isoyear"
        return Reach(Fraction(min(years) - slack), Fraction(max(years) + slack), Fraction(1), False)
    raise _unbounded(f"extract({field} ...)")


def _length(source: Source, name: str, type_name: str) -> Reach:
    if base_type(type_name) not in TEXTS:
        raise _no_number(type_name)
    declared = re.search(r"\((\d+)\)", type_name)
    if declared:
        return Reach(Fraction(0), Fraction(int(declared[1])), Fraction(1), True)
    members = [len(value) for value in source.relation.attributes[name].domain or () if isinstance(value, str)]
    if not members:
        raise _missing(source, name)
    return Reach(Fraction(min(members)), Fraction(max(members)), Fraction(1), False)
