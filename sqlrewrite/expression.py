"""Row expressions: columns, constants and the short list of functions, with the type that PostgreSQL gives each.

The tree says what the analyst wrote; ``sqlrewrite.render`` writes it so that it cannot raise on data (sums of whole
numbers are widened, moments outside the calendar are NULL). What has no such form is refused here: a division by a
column, a cast from text, a regular expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from sqlglot import exp

from mechanisms.errors import Refusal
from sqlrewrite.allow import construct, refused
from sqlrewrite.constant import (
    CASTS,
    FLOATS,
    INTEGERS,
    INTERVAL,
    NUMBERS,
    TEXTS,
    TIMES,
    UNKNOWN,
    base_type,
    checked,
    constant,
    decimal,
    wider,
)
from sqlrewrite.errors import NotAnswered
from sqlrewrite.guarded import Use
from sqlrewrite.parse import Parsed, position
from sqlrewrite.question import (
    Call,
    Case,
    Cast,
    ColumnRef,
    Expression,
    Literal,
    Not,
    Predicate,
)
from sqlrewrite.render import Rendering
from sqlrewrite.scope import Scope
from sqlrewrite.term import Term
from sqlrewrite.walk import is_constant

TIMESTAMP, TIMESTAMPTZ = TIMES[1], TIMES[2]
DATE_FIELDS = frozenset(
    re.findall(r"\w+", "year month day dow isodow doy week quarter isoyear decade century millennium epoch julian")
)
TIME_FIELDS = DATE_FIELDS | frozenset(re.findall(r"\w+", "hour minute second milliseconds microseconds"))
TRUNCATIONS = frozenset(
    re.findall(
        r"\w+", "microseconds milliseconds second minute hour day week month quarter year decade century millennium"
    )
)
SPELLINGS = {"millisecond": "milliseconds", "microsecond": "microseconds"} | {
    f"{name}s": name for name in ("second", "minute", "hour", "day", "week", "month", "quarter", "year", "decade")
}
OPERATORS: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
CONDITIONS = (
    *(exp.And, exp.Or, exp.Not, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ),
    *(exp.In, exp.Between, exp.Like, exp.ILike, exp.Is),
)
TRUE, FALSE = Literal("true", "boolean"), Literal("false", "boolean")

Condition: TypeAlias = Callable[[exp.Expr, "Reader"], Predicate]


@dataclass(frozen=True, slots=True)
class Reader:
    """One fragment being read: its names, its text, and how a condition inside CASE is read."""

    scope: Scope
    parsed: Parsed
    condition: Condition
    sizing: bool = True  # off while the place of what has no size is looked for

    def constant(self, node: exp.Expr) -> Literal | None:
        return constant(node, self.scope.parameters)

    @property
    def bound(self) -> bool:
        """Whether parameters have their values; before Bind any value will do."""
        return self.scope.parameters is not None


def expression(node: exp.Expr, reader: Reader) -> Expression:
    """The row expression that a tree means."""
    found = _expression(node, reader)
    if not isinstance(found, Literal | ColumnRef):  # they have their size by what they are compared with or read for
        sized(node, reader, lambda rendering: rendering.term(found, Use.KEY))
    return found


def sized(node: exp.Expr, reader: Reader, build: Callable[[Rendering], Term]) -> None:
    """Refuse what has no public size, at the place in the text of the part that has none."""
    if not reader.sizing:
        return
    rendering = Rendering(reader.scope.sources)
    try:
        build(rendering)
    except Refusal as refusal:
        if refusal.position is None:
            refusal.position = position(_written(node, reader, rendering.failed))
        raise


def _written(node: exp.Expr, reader: Reader, failed: Expression | None) -> exp.Expr:
    """The smallest part of the text that means an expression."""
    found, plain = node, replace(reader, sizing=False)
    for part in node.walk():
        if not isinstance(part, exp.Binary | exp.Unary | exp.Func | exp.Cast | exp.Case | exp.Column | exp.Literal):
            continue
        try:
            meant = _expression(part, plain)
        except Refusal:
            continue
        both = isinstance(meant, Literal) and isinstance(failed, Literal)
        if meant == failed or (both and meant.text == failed.text):  # type: ignore[union-attr]
            found = part
    return found


def _expression(node: exp.Expr, reader: Reader) -> Expression:
    known = reader.constant(node)
    if known is not None:
        return known
    match node:
        case exp.Paren():
            return _expression(node.this, reader)
        case exp.Column():
            return reader.scope.column(node)
        case exp.Neg():
            argument = _number(_expression(node.this, reader), node)
            return Call("-", (argument,), base_type(argument.type_name))
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div() | exp.Mod():
            return _arithmetic(node, reader)
        case exp.Cast():
            return _cast(node, reader)
        case exp.Case():
            return _case(node, reader)
        case exp.Coalesce():
            arguments = [_expression(part, reader) for part in (node.this, *node.expressions)]
            typed, type_name = common(arguments, node)
            return Call("coalesce", typed, type_name)
        case exp.Abs():
            argument = _number(_expression(node.this, reader), node)
            return Call("abs", (argument,), base_type(argument.type_name))
        case exp.Round() | exp.Trunc() | exp.Floor() | exp.Ceil():
            return _rounding(node, reader)
        case exp.Lower() | exp.Upper():
            return Call(construct(node).lower(), (_text(node.this, reader),), "text")
        case exp.Length():
            return Call("length", (_text(node.this, reader),), "integer")
        case exp.Left():
            return Call("left", (_text(node.this, reader), _whole(node.expression, reader, 0, 10_000)), "text")
        case exp.TimestampTrunc():
            return _date_trunc(node, reader)
        case exp.Extract():
            return _extract(node, reader)
        case exp.WidthBucket():
            return _width_bucket(node, reader)
        case exp.AggFunc() | exp.Filter() | exp.WithinGroup():
            raise NotAnswered(
                "an aggregate stands where a value of one row is needed",
                hint="conditions on aggregates go into HAVING",
                position=position(node),
            )
    if isinstance(node, CONDITIONS):
        truth = reader.condition(node, reader)
        return Case(((truth, TRUE), (Not(truth), FALSE)), Literal(None, "boolean"), "boolean")
    raise refused(node, construct(node))


def _number(found: Expression, node: exp.Expr) -> Expression:
    if base_type(found.type_name) not in NUMBERS:
        if (
            isinstance(found, Literal)
            and found.type_name == UNKNOWN
            and (found.text is None or decimal(found) is not None)
        ):
            return Literal(found.text, "numeric" if "." in (found.text or "") else "integer")
        raise NotAnswered(
            f"a number is needed here, and this is of type {found.type_name}",
            hint="use columns of numbers",
            position=position(node),
        )
    return found


def _arithmetic(node: exp.Binary, reader: Reader) -> Expression:
    left, right = _expression(node.this, reader), _expression(node.expression, reader)
    if any(base_type(side.type_name) in (*TIMES, INTERVAL) for side in (left, right)):
        return _moved(node, left, right)
    left, right = _number(left, node), _number(right, node)
    operator = OPERATORS[type(node)]
    if operator in "/%":
        divisor = decimal(right) if isinstance(right, Literal) else None
        unknown = isinstance(right, Literal) and right.text is None and not reader.bound
        if unknown:  # before Bind any number will do
            right = Literal("1", right.type_name)
        elif not divisor:
            raise NotAnswered(
                "a division inside a row is by a constant other than zero",
                hint="divide the aggregates instead: sum(a) / sum(b)",
                position=position(node),
            )
    return Call(operator, (left, right), wider(left.type_name, right.type_name))


def _moved(node: exp.Binary, left: Expression, right: Expression) -> Expression:
    """Dates and timestamps plus or minus days and intervals, and the days between two dates."""
    if isinstance(node, exp.Add) and base_type(left.type_name) not in TIMES:
        left, right = right, left
    first, second = base_type(left.type_name), base_type(right.type_name)
    operator = OPERATORS[type(node)]
    if isinstance(node, exp.Add | exp.Sub):
        if second == UNKNOWN and isinstance(right, Literal):
            right = checked(Literal(right.text, "integer" if first == "date" else INTERVAL), node)
            second = right.type_name
        if first == "date" and second in ("integer", "smallint") and is_constant(right):
            return Call(operator, (left, right), "date")
        if first in TIMES and second == INTERVAL and is_constant(right):
            return Call(operator, (left, right), TIMESTAMP if first == "date" else first)
        if operator == "-" and first == second == "date":
            return Call("-", (left, right), "integer")
    raise NotAnswered(
        f"{first} {operator} {second} is not answered",
        hint="write date + 7, date + INTERVAL '1 month' or date - date",
        position=position(node),
    )


def _cast(node: exp.Cast, reader: Reader) -> Expression:
    argument = _expression(node.this, reader)
    target = CASTS.get(node.args["to"].this)
    if target is None or target == INTERVAL or node.args["to"].expressions:
        raise NotAnswered(
            "a cast to this type is not answered",
            hint="cast to a plain type: integer, numeric, text, date",
            position=position(node),
        )
    source = base_type(argument.type_name)
    total = (
        source == target
        or (source in NUMBERS and target in NUMBERS)
        or (source in TEXTS and target in TEXTS and target != "bpchar")
        or (source in TIMES and target in TIMES)
        or (source in (*INTEGERS, "numeric", "boolean", *TIMES) and target in ("text", "character varying"))
        or (source == "boolean" and target == "integer")
    )
    if not total:
        raise NotAnswered(
            f"a cast from {source} to {target} is not answered: it may fail on data",
            hint="compare or group by the column itself",
            position=position(node),
        )
    return argument if argument.type_name == target else Cast(argument, target)


def _case(node: exp.Case, reader: Reader) -> Expression:
    branches: list[tuple[Predicate, Expression]] = []
    for branch in node.args["ifs"]:
        when = branch.this
        if node.this is not None:
            when = exp.EQ(this=node.this.copy(), expression=when.copy())
        branches.append((reader.condition(when, reader), _expression(branch.args["true"], reader)))
    default = node.args.get("default")
    otherwise = Literal(None, UNKNOWN) if default is None else _expression(default, reader)
    typed, type_name = common([*(then for _, then in branches), otherwise], node)
    whens = tuple((when, then) for (when, _), then in zip(branches, typed[:-1], strict=True))
    return Case(whens, typed[-1], type_name)


def common(found: Sequence[Expression], node: exp.Expr) -> tuple[tuple[Expression, ...], str]:
    """The one type of several choices, by PostgreSQL's rules for CASE and coalesce; constants take it."""
    known = [part.type_name for part in found if part.type_name != UNKNOWN]
    bases = {base_type(name) for name in known}
    if not known:
        type_name = "text"
    elif len(set(known)) == 1 and len(known) == len(found):
        type_name = known[0]
    elif len(bases) == 1:
        type_name = bases.pop()
    elif bases <= set(NUMBERS):
        type_name = known[0]
        for name in known[1:]:
            type_name = wider(type_name, name)
    elif bases <= set(TEXTS):  # each turns into each: the first stays, and ELSE is the first
        type_name = base_type(known[-1] if isinstance(node, exp.Case) and found[-1].type_name != UNKNOWN else known[0])
    else:
        raise NotAnswered(
            f"the choices have different types: {', '.join(sorted(bases))}",
            hint="give all choices one type",
            position=position(node),
        )
    typed = tuple(
        checked(Literal(part.text, base_type(type_name)), node)
        if isinstance(part, Literal) and part.type_name == UNKNOWN
        else part
        for part in found
    )
    if base_type(type_name) in NUMBERS:
        for part in typed:
            if isinstance(part, Literal) and part.text is not None and decimal(part) is None:
                raise NotAnswered("a number is needed here", hint="write a number", position=position(node))
    return typed, type_name


def _rounding(node: exp.Expr, reader: Reader) -> Expression:
    argument = _number(_expression(node.this, reader), node)
    function = construct(node).lower()
    places = node.args.get("decimals")
    if places is not None:
        if base_type(argument.type_name) in FLOATS:
            raise NotAnswered(
                f"{function} with places needs a numeric", hint="cast the column: x::numeric", position=position(node)
            )
        return Call(function, (argument, _whole(places, reader, -30, 30)), "numeric")
    # For whole numbers PostgreSQL prefers the function of double precision.
    return Call(function, (argument,), "numeric" if base_type(argument.type_name) == "numeric" else "double precision")


def _text(node: exp.Expr, reader: Reader) -> Expression:
    found = _expression(node, reader)
    if isinstance(found, Literal) and found.type_name == UNKNOWN:
        return Literal(found.text, "text")
    if base_type(found.type_name) not in TEXTS:
        raise NotAnswered("a text is needed here", hint="use a column of text", position=position(node))
    return found


def _whole(node: exp.Expr, reader: Reader, low: int, high: int) -> Literal:
    found = reader.constant(node)
    if found is not None and found.text is None and not reader.bound:
        return Literal(str(max(low, 1)), "integer")
    value = decimal(found) if found is not None else None
    if value is None or value != int(value) or not low <= value <= high:
        raise NotAnswered(
            f"a constant whole number from {low} to {high} is needed here",
            hint="write the number itself",
            position=position(node),
        )
    return Literal(str(int(value)), "integer")


def _unit(node: exp.Expr, known: frozenset[str], type_name: str) -> str:
    name = node.name.lower()
    name = SPELLINGS.get(name, name)
    if name not in known:
        raise NotAnswered(
            f'"{name}" of {type_name} is not answered', hint="use " + ", ".join(sorted(known)), position=position(node)
        )
    return name


def _moment(node: exp.Expr, reader: Reader) -> Expression:
    found = _expression(node, reader)
    if base_type(found.type_name) not in TIMES:
        raise NotAnswered("a date or timestamp is needed here", hint="use a column of dates", position=position(node))
    return found


def _date_trunc(node: exp.TimestampTrunc, reader: Reader) -> Expression:
    argument = _moment(node.this, reader)
    unit = _unit(node.args["unit"], TRUNCATIONS, argument.type_name)
    # PostgreSQL takes a date as a timestamp with time zone: that type is preferred.
    type_name = TIMESTAMPTZ if base_type(argument.type_name) == "date" else base_type(argument.type_name)
    return Call("date_trunc", (Literal(unit, "text"), argument), type_name)


def _extract(node: exp.Extract, reader: Reader) -> Expression:
    argument = _moment(node.expression, reader)
    date = base_type(argument.type_name) == "date"
    field = _unit(node.this, DATE_FIELDS if date else TIME_FIELDS, argument.type_name)
    if reader.parsed.called(node) == "date_part":
        return Call("date_part", (Literal(field, "text"), argument), "double precision")
    return Call("extract", (Literal(field, "text"), argument), "numeric")


def _width_bucket(node: exp.WidthBucket, reader: Reader) -> Expression:
    argument = _number(_expression(node.this, reader), node)
    ends: list[Literal] = []
    for name in ("min_value", "max_value"):
        end = reader.constant(node.args[name])
        if end is not None and end.text is None and not reader.bound:
            end = Literal(str(len(ends)), "integer")
        if end is None or decimal(end) is None:
            raise NotAnswered("the bounds of width_bucket are constants", hint="write width_bucket(x, 0, 100, 10)")
        ends.append(Literal(end.text, "integer" if end.type_name == UNKNOWN else end.type_name))
    if decimal(ends[0]) == decimal(ends[1]):
        raise NotAnswered("the bounds of width_bucket are different", hint="write width_bucket(x, 0, 100, 10)")
    return Call("width_bucket", (argument, *ends, _whole(node.args["num_buckets"], reader, 1, 1_000_000)), "integer")
