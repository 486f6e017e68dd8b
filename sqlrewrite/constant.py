"""Constants of the analyst's text: values with the type that PostgreSQL gives them.

A constant is a number, a string, TRUE, FALSE, NULL, an interval or a parameter, with parentheses, a minus sign or a
cast around it, or arithmetic of such numbers. Nothing here looks at a column's data; the type decides whether a
comparison with a column is total.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date
from decimal import Context, Decimal, InvalidOperation
from fractions import Fraction

from sqlglot import exp

from sqlrewrite import moments
from sqlrewrite.account import interval_text
from sqlrewrite.allow import CONSTRUCTS, SHAPE, construct, refused
from sqlrewrite.errors import NotAnswered, OutOfRange
from sqlrewrite.parse import position
from sqlrewrite.question import Literal

UNKNOWN = "unknown"
INTEGERS = ("smallint", "integer", "bigint")
FLOATS = ("real", "double precision")
NUMBERS = (*INTEGERS, "numeric", *FLOATS)
TEXTS = ("text", "character varying", "bpchar")
WIDTHS = {"smallint": 2**15, "integer": 2**31, "bigint": 2**63}
TIMES = ("date", "timestamp without time zone", "timestamp with time zone")

PARTIAL = ("bit", "bit varying", "box", "circle", "line", "lseg", "path", "point", "polygon")
"""Types whose comparison can raise: of bits of different lengths, of areas that leave the range of floats."""

NAMED = (
    *("regclass", "regcollation", "regconfig", "regdatabase", "regdictionary", "regnamespace", "regoper"),
    *("regoperator", "regproc", "regprocedure", "regrole", "regtype", "aclitem"),
)
"""Types whose text names objects of the server: a constant would tell whether such an object exists."""

INCOMPARABLE = ("json", "jsonpath", "pg_node_tree", "refcursor", "txid_snapshot", "pg_snapshot", "xid", "xml")
"""Types without an operator for equality, or for order."""

CASTS = {
    exp.DType.SMALLINT: "smallint",
    exp.DType.INT: "integer",
    exp.DType.BIGINT: "bigint",
    exp.DType.DECIMAL: "numeric",
    exp.DType.FLOAT: "real",
    exp.DType.DOUBLE: "double precision",
    exp.DType.TEXT: "text",
    exp.DType.VARCHAR: "character varying",
    exp.DType.BPCHAR: "bpchar",
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMP: "timestamp without time zone",
    exp.DType.TIMESTAMPTZ: "timestamp with time zone",
    exp.DType.BOOLEAN: "boolean",
    exp.DType.UUID: "uuid",
    exp.DType.INTERVAL: "interval",
}
INTERVAL = "interval"
MOMENTS = {
    "StrToDate": "date",
    "StrToTime": "timestamp with time zone",
    "UnixToTime": "timestamp with time zone",
    "TimestampFromParts": "timestamp without time zone",
    "Anonymous": "date",  # make_date: no other is let in
}
"""Functions of constants, and what they give."""

# Moments that mean the same under every DateStyle and on every day ('today' and '1/2/2025' do not).
_MOMENT = re.compile(
    r"\s*[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
    r"(?:[ T][0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?(?: ?(?:Z|UTC|[+-][0-9]{2}(?::?[0-9]{2})?))?)?\s*"
)
_SPAN = re.compile(
    r"\s*[+-]?[0-9]{1,6}(?:\.[0-9]{1,6})? ?"
    r"(?:seconds?|secs?|minutes?|mins?|hours?|days?|weeks?|mons?|months?|years?)"
    r"(?: [0-9]{1,6} ?(?:seconds?|minutes?|hours?|days?|weeks?|mons?|months?|years?))*\s*"
    r"|\s*[0-9]{1,6} days?, [0-9]{1,2}:[0-9]{2}:[0-9]{2}\s*|\s*[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?\s*",
    re.IGNORECASE,
)

MOST_EXPONENT = 400
_WIDE = Context(prec=2000)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def constant(node: exp.Expr, parameters: Sequence[Literal] | None) -> Literal | None:
    """The constant that this expression is, or None where it is something else.

    With ``parameters`` None (Parse and Describe, before Bind) a parameter is an untyped NULL.
    """
    match node:
        case exp.Paren():
            return constant(node.this, parameters)
        case exp.Literal(is_string=True):
            return Literal(node.name, UNKNOWN)
        case exp.Literal():
            return Literal(node.name, number_type(node.name))
        case exp.Null():
            return Literal(None, UNKNOWN)
        case exp.Boolean():
            return Literal("true" if node.this else "false", "boolean")
        case exp.Parameter():
            return _parameter(node, parameters)
        case exp.Neg():
            return _negative(node, parameters)
        case exp.Cast():
            return _cast(node, parameters)
        case exp.Interval():
            return checked(Literal(interval_text(node), INTERVAL), node)
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div() | exp.Mod():
            return _arithmetic(node, parameters)
        case exp.StrToDate() | exp.StrToTime() | exp.UnixToTime() | exp.TimestampFromParts() | exp.Anonymous():
            return _moment(node, parameters)
    return None


def _moment(node: exp.Expr, parameters: Sequence[Literal] | None) -> Literal | None:
    """to_date, to_timestamp and kin of constants; of anything else they are no constant."""
    type_name = MOMENTS[construct(node)]
    given = node.expressions or [part for name, part in node.args.items() if part is not None and name != "format"]
    found = [constant(part, parameters) for part in given]
    if any(each is None for each in found):
        return None
    if any(each is not None and each.text is None for each in found):
        return Literal(None, type_name)
    known = [each for each in found if each is not None]
    if isinstance(node, exp.StrToDate | exp.StrToTime):
        moment = moments.read(known[0].text or "", node.args["format"].name)
    else:
        numbers = [number for each in known if (number := decimal(each)) is not None]
        several = len(numbers) == len(known)
        one = isinstance(node, exp.UnixToTime)
        moment = None if not several else moments.since_epoch(numbers[0]) if one else moments.made(numbers)
    if moment is None:
        raise NotAnswered(
            f"{CONSTRUCTS[construct(node)]} of this constant is not answered",
            hint="write DATE '2025-01-31' or TIMESTAMP '2025-01-31 12:00:00'",
            position=position(node),
        )
    return Literal(moments.spelt(moment.date() if type_name == "date" else moment), type_name)


def checked(literal: Literal, node: exp.Expr) -> Literal:
    """A moment or a span that means the same in every session, or a refusal."""
    type_name, text = base_type(literal.type_name), literal.text
    if type_name in NAMED:
        raise NotAnswered(
            f"constants of the type {type_name} are not answered: they would tell which objects the server has",
            hint="compare another column",
            position=position(node),
        )
    if text is None or (type_name not in TIMES and type_name != INTERVAL):
        return literal
    if type_name == INTERVAL:
        if _SPAN.fullmatch(text) is None or ("-" in text and len(re.findall(r"[a-z]+", text.lower())) > 1):
            raise NotAnswered(
                "this interval is not read",
                hint="write INTERVAL '3 months' or '1 day 2 hours'",
                position=position(node),
            )
        return literal
    if text.strip() in ("infinity", "-infinity"):
        return literal
    try:
        if _MOMENT.fullmatch(text) is None:
            raise ValueError(text)
        date(*map(int, re.split(r"[ T]", text.strip())[0].split("-")))
    except ValueError:
        raise NotAnswered(
            "a date is read as YYYY-MM-DD, with a time as YYYY-MM-DD HH:MM:SS",
            hint="write DATE '2025-01-31', or pass it as a parameter",
            position=position(node),
        ) from None
    return literal


def _arithmetic(node: exp.Binary, parameters: Sequence[Literal] | None) -> Literal | None:
    """Numbers are worked out as PostgreSQL does; moments are left to it."""
    left, right = constant(node.this, parameters), constant(node.expression, parameters)
    if left is None or right is None:
        return None
    if parameters is None and node.find(exp.Parameter) is not None:
        return Literal(None, UNKNOWN)
    if not {left.type_name, right.type_name} <= {*INTEGERS, "numeric", *FLOATS}:
        return None
    type_name = wider(left.type_name, right.type_name)
    if left.text is None or right.text is None:
        return Literal(None, type_name)
    first, second = decimal(left), decimal(right)
    known = first is not None and second is not None
    value = _worked(node, Fraction(first or 0), Fraction(second or 0), type_name) if known else None
    if value is None or (type_name in INTEGERS and abs(value) >= WIDTHS[type_name]):
        raise NotAnswered(
            "this constant cannot be worked out: a division by zero, or a number that is too large",
            hint="write the number itself",
            position=position(node),
        )
    found = Literal(spelt(value), type_name)
    if decimal(found) is None:
        raise OutOfRange(
            "numeric value out of range: this constant has too many digits",
            hint="write a smaller number",
            position=position(node),
        )
    return found


def _worked(node: exp.Binary, left: Fraction, right: Fraction, type_name: str) -> Fraction | None:
    match node:
        case exp.Add():
            return left + right
        case exp.Sub():
            return left - right
        case exp.Mul():
            return left * right
        case exp.Div() if right:
            return Fraction(math.trunc(left / right)) if type_name in INTEGERS else left / right
        case exp.Mod() if right:
            return left - right * math.trunc(left / right)
    return None


def spelt(value: Fraction) -> str:
    """A number in digits; one that has no end is cut after 30 places."""
    places = next((n for n in range(31) if (value * 10**n).denominator == 1), 30)
    digits = Decimal(round(value * 10**places))
    return format(digits.scaleb(-places, _WIDE), "f")


def wider(left: str, right: str) -> str:
    """The type of arithmetic on two types of numbers."""
    first, second = base_type(left), base_type(right)
    if first in FLOATS or second in FLOATS:
        return "real" if first == second == "real" else "double precision"
    return max(first, second, key=(*INTEGERS, "numeric").index)


def number_type(text: str) -> str:
    """The type of a numeric constant, by PostgreSQL's lexical rule."""
    if re.fullmatch(r"-?[0-9]+", text) is None:
        return "numeric"
    if len(text) > 20:
        return "numeric"
    value = int(text)
    if -(2**31) <= value < 2**31:
        return "integer"
    return "bigint" if -(2**63) <= value < 2**63 else "numeric"


def decimal(literal: Literal) -> Decimal | None:
    """The finite number that a literal holds, or None."""
    if literal.text is None or literal.type_name not in (*NUMBERS, UNKNOWN):
        return None
    text = literal.text.strip(" ")
    if _NUMBER.fullmatch(text) is None:
        return None
    try:
        value = Decimal(text)
    except InvalidOperation:  # an exponent beyond all bounds
        return None
    # Exact arithmetic on 1e1000000 would take for ever.
    far = value.adjusted() > MOST_EXPONENT or int(value.as_tuple().exponent) < -MOST_EXPONENT
    return None if far else value


def base_type(type_name: str) -> str:
    """A type without its length or precision: a cast to ``varchar(3)`` would cut the constant."""
    bare = re.sub(r"\([^)]*\)", "", type_name)
    bare = re.sub(r" +", " ", bare).strip()
    return "bpchar" if bare == "character" else bare


def fit(literal: Literal, type_name: str, node: exp.Expr) -> Literal:
    """The literal typed for a comparison with a column of this type.

    *Guarantee*: the comparison cannot raise on any value of the column (no numeric column is turned into a
    float, no text is parsed): whether a question fails does not depend on the data.
    """
    column = base_type(type_name)
    typed = Literal(literal.text, column) if literal.type_name == UNKNOWN else literal
    asked = base_type(typed.type_name)
    if column in (*PARTIAL, *INCOMPARABLE):
        raise _mismatch(node, column, asked)
    checked(typed, node)
    if column in FLOATS and asked in NUMBERS:
        _within_float(typed, node)
    for family in ((*INTEGERS, *FLOATS), TEXTS, TIMES):
        if column in family and asked in family:
            return typed
    if column in (*INTEGERS, *FLOATS) and asked == "numeric":
        return typed
    if column == "numeric" and asked in INTEGERS:
        return typed
    # An array looks for its elements' operator only once two values are there to compare: an error would tell of a row.
    if column == asked and not column.endswith("[]"):
        return typed
    raise _mismatch(node, column, asked)


def _mismatch(node: exp.Expr, column: str, asked: str) -> NotAnswered:
    return NotAnswered(
        f"a column of type {column} is not compared with a constant of type {asked}",
        hint="write the constant in the column's own type, or as a plain quoted string",
        position=position(node),
    )


def _within_float(literal: Literal, node: exp.Expr) -> None:
    """PostgreSQL turns the constant into a float, perhaps only once a row is there to be compared."""
    value = decimal(literal)
    if value is not None and not within(value, "double precision"):
        raise NotAnswered(
            "the constant is too large or too close to zero for the column",
            hint="write another number",
            position=position(node),
        )


def within(value: Decimal, type_name: str) -> bool:
    """Whether a type of floats holds a number without overflow or underflow; other types hold all."""
    if type_name not in FLOATS:
        return True
    least, most = (Decimal("1e-37"), Decimal("3e38")) if type_name == "real" else (Decimal("1e-307"), Decimal("1e308"))
    return not value or least <= abs(value) <= most


def _parameter(node: exp.Parameter, parameters: Sequence[Literal] | None) -> Literal:
    if not isinstance(node.this, exp.Literal) or node.this.is_string:
        raise refused(node, construct(node))
    if parameters is None:
        return Literal(None, UNKNOWN)
    index = int(node.this.name)
    if not 1 <= index <= len(parameters):
        raise NotAnswered(f"there is no parameter ${index}", hint="number the parameters from $1")
    return parameters[index - 1]


def _negative(node: exp.Neg, parameters: Sequence[Literal] | None) -> Literal | None:
    inner = constant(node.this, parameters)
    if inner is None or inner.text is None:
        return inner
    value = decimal(inner) if inner.type_name in NUMBERS else None
    if value is None:
        raise NotAnswered(
            "a minus sign stands before something that is no number", hint=f"write {SHAPE}", position=position(node)
        )
    text = inner.text.strip()
    text = text[1:] if text.startswith("-") else "-" + text.removeprefix("+")
    return Literal(text, inner.type_name)


def _cast(node: exp.Cast, parameters: Sequence[Literal] | None) -> Literal | None:
    inner = constant(node.this, parameters)
    if inner is None:
        return None
    target = CASTS.get(node.args["to"].this)
    if target is None or node.args["to"].expressions:
        raise NotAnswered(
            "a cast to this type is not answered",
            hint="write the constant as a plain quoted string: it takes the column's type",
            position=position(node),
        )
    if inner.text is None or inner.type_name in (UNKNOWN, target):
        return checked(Literal(inner.text, target), node)
    value = decimal(inner) if target in NUMBERS else None
    if value is None or (target in INTEGERS and (abs(value) >= 2**63 or value != value.to_integral_value())):
        # PostgreSQL would round, or format the number as text: rules that are not worth repeating here.
        raise NotAnswered(
            f"a cast of this constant to {target} is not answered",
            hint="write the value that you mean, without a cast",
            position=position(node),
        )
    return Literal(format(value.to_integral_value(), "f") if target in INTEGERS else inner.text, target)
