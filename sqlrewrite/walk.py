"""What stands inside expressions and predicates."""

from __future__ import annotations

from collections.abc import Iterator

from sqlrewrite.question import (
    AllOf,
    Always,
    Among,
    AnyOf,
    Call,
    Case,
    Cast,
    ColumnRef,
    Compare,
    Expression,
    IsNull,
    Like,
    Not,
    Predicate,
)


def parts(found: Expression) -> Iterator[Expression]:
    """An expression and all below it, conditions of CASE included."""
    yield found
    match found:
        case Call(_, arguments, _):
            for argument in arguments:
                yield from parts(argument)
        case Cast(argument, _):
            yield from parts(argument)
        case Case(branches, otherwise, _):
            for when, then in branches:
                for inside in operands(when):
                    yield from parts(inside)
                yield from parts(then)
            yield from parts(otherwise)


def operands(found: Predicate) -> Iterator[Expression]:
    """The row expressions directly inside a predicate."""
    match found:
        case Compare(left, _, right):
            yield from (left, right)
        case Among(argument, values):
            yield from (argument, *values)
        case Like(argument, pattern, _):
            yield from (argument, pattern)
        case IsNull(argument):
            yield argument
        case Not(part):
            yield from operands(part)
        case AllOf(several) | AnyOf(several):
            for part in several:
                yield from operands(part)
        case Always():
            return


def columns(found: Expression) -> set[ColumnRef]:
    """The columns that an expression reads."""
    return {part for part in parts(found) if isinstance(part, ColumnRef)}


def is_constant(found: Expression) -> bool:
    return not columns(found)
