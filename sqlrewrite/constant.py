"""Constants of the analyst's text: values with the type that PostgreSQL gives them.

A constant is a number, a string, TRUE, FALSE, NULL or a parameter, with parentheses, a minus sign or a cast
around it. Nothing here looks at a column's data; the type decides whether a comparison with a column is total.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from sqlglot import exp

from sqlrewrite.allow import SHAPE, construct, refused
from sqlrewrite.errors import NotAnswered
from sqlrewrite.parse import position
from sqlrewrite.question import Literal

UNKNOWN = "unknown"
INTEGERS = ("smallint", "integer", "bigint")
FLOATS = ("real", "double precision")
NUMBERS = (*INTEGERS, "numeric", *FLOATS)
TEXTS = ("text", "character varying", "bpchar")
TIMES = ("date", "timestamp without time zone", "timestamp with time zone")

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
}

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
    return None


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
        return Decimal(text)
    except InvalidOperation:  # an exponent beyond all bounds
        return None


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
    if column in ("bit", "bit varying"):
        raise _mismatch(node, column, asked)
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
    value = decimal(literal)
    if value is not None and math.isinf(float(value)):
        raise NotAnswered(
            "the constant is too large for the column", hint="write a smaller number", position=position(node)
        )


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
        raise NotAnswered("a minus sign stands before something that is no number", hint=f"write {SHAPE}")
    text = inner.text.strip()
    text = text[1:] if text.startswith("-") else "-" + text.removeprefix("+")
    return Literal(text, inner.type_name)


def _cast(node: exp.Cast, parameters: Sequence[Literal] | None) -> Literal | None:
    inner = constant(node.this, parameters)
    if inner is None:
        return None
    target = CASTS.get(node.args["to"].this)
    if target is None:
        raise NotAnswered(
            "a cast to this type is not answered",
            hint="write the constant as a plain quoted string: it takes the column's type",
            position=position(node),
        )
    if inner.text is None or inner.type_name in (UNKNOWN, target):
        return Literal(inner.text, target)
    value = decimal(inner) if target in NUMBERS else None
    if value is None or (target in INTEGERS and (abs(value) >= 2**63 or value != value.to_integral_value())):
        # PostgreSQL would round, or format the number as text: rules that are not worth repeating here.
        raise NotAnswered(
            f"a cast of this constant to {target} is not answered",
            hint="write the value that you mean, without a cast",
            position=position(node),
        )
    return Literal(format(value.to_integral_value(), "f") if target in INTEGERS else inner.text, target)
