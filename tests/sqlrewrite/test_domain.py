"""The possible values of derived keys, listed from public things alone."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from survey import DAYS, SOURCES, Laboratory, column, text, whole

from sqlrewrite.domain import domain_query, is_open
from sqlrewrite.errors import NotAnswered
from sqlrewrite.question import (
    Call,
    Case,
    Cast,
    Compare,
    Comparison,
    Expression,
    GroupKey,
    Literal,
    Measure,
    MeasureKind,
    Question,
    Unit,
)  # fmt: skip

ZONE, NINE = column(2, "zone"), Literal("9", "numeric")


def ask(*expressions: Expression, outer: bool = False) -> Question:
    keys = tuple(GroupKey(e, False, is_open(e, SOURCES)) for e in expressions)
    sources = (*SOURCES[:2], replace(SOURCES[2], outer=outer))
    return Question(sources, Unit(), None, keys, (tuple(range(len(keys))),), (Measure(MeasureKind.ROWS),), (), None, ())


def listed(laboratory: Laboratory, question: Question) -> list[tuple[str | None, ...]]:
    wanted = domain_query(question)
    assert wanted is not None
    laboratory.connection.execute("SET LOCAL search_path = ''; SET LOCAL datestyle = 'German'")
    assert "visit" not in wanted.sql and "member" not in wanted.sql
    return laboratory.raw.execute(wanted.sql, wanted.parameters).fetchall()


def test_plain_declared_columns_need_no_query() -> None:
    assert domain_query(ask()) is None
    assert domain_query(ask(column(0, "town"), column(0, "day"), column(0, "feeling"))) is None


@pytest.mark.parametrize(
    ("expression", "values"),
    [
        (ZONE, ["north", "south", "west", None]),
        (Call("lower", (column(0, "town"),), "text"), ["bonn", "jena", "kiel", "ulm"]),
        (Call("/", (column(0, "score"), whole(4)), "integer"), ["-1", "0", "1", "2", None]),
        (Call("width_bucket", (column(0, "rate"), whole(0), whole(1), whole(2)), "integer"),
         ["0", "1", "2", "3", None]),
        (Call("extract", (text("quarter"), column(0, "seen")), "numeric"), ["1", "2", "3", "4", None]),
        (Call("extract", (text("month"), column(0, "day")), "numeric"), ["1", "2", None]),
        (Cast(column(0, "paid"), "integer"), ["0", "1", None]),
        (Call("+", (column(0, "day"), whole(1)), "date"),
         [f"{d.isoformat()}T00:00:00.000000" for d in sorted(DAYS)[1:]] + ["2024-02-04T00:00:00.000000", None]),
        (Call("date_trunc", (text("month"), column(0, "day")), "timestamp with time zone"),
         ["2023-12-31T23:00:00.000000", "2024-01-31T23:00:00.000000", None]),
        (Case(((Compare(column(0, "cost"), Comparison.GT, NINE), text("dear")),), text("cheap"), "text"),
         ["cheap", "dear"]),
    ],
    ids=repr,
)  # fmt: skip
def test_a_derived_key_has_the_image_of_its_columns(
    laboratory: Laboratory, expression: Expression, values: list[str | None]
) -> None:
    assert [row[0] for row in listed(laboratory, ask(expression))] == values


def test_keys_that_hang_together_are_listed_together(laboratory: Laboratory) -> None:
    pairs = [("Bonn", "west"), ("Jena", None), ("Kiel", "north"), ("Ulm", "south")]
    assert listed(laboratory, ask(column(0, "town"), ZONE)) == pairs
    months = Call("extract", (text("month"), column(0, "day")), "numeric")
    assert len(listed(laboratory, ask(column(0, "day"), months))) == len(DAYS) + 1


def test_an_outer_join_may_show_null(laboratory: Laboratory) -> None:
    laboratory.connection.execute("DELETE FROM town WHERE zone IS NULL")
    assert [row[0] for row in listed(laboratory, ask(ZONE))] == ["north", "south", "west"]
    assert [row[0] for row in listed(laboratory, ask(ZONE, outer=True))] == ["north", "south", "west", None]
    both = listed(laboratory, ask(column(0, "town"), ZONE, outer=True))
    assert ("Jena", None) in both and len(both) == 4


def test_a_key_over_undeclared_values_is_open() -> None:
    for expression in (
        column(0, "note"),
        Call("lower", (column(0, "note"),), "text"),
        Call("date_trunc", (text("month"), column(0, "seen")), "timestamp without time zone"),
    ):
        assert is_open(expression, SOURCES)
        assert domain_query(ask(expression)) is None


def test_too_many_combinations_are_refused_or_shortened_to_the_image() -> None:
    day, born, score = column(0, "day"), column(1, "Born In"), column(0, "score")
    dear = Compare(column(0, "stock"), Comparison.GT, whole(1))
    short = Case(((dear, text("a")),), text("b"), "text")
    many = Call("*", (Call("*", (born, born), "integer"), Call("*", (score, column(0, "rank")), "integer")), "integer")
    assert domain_query(ask(short, many, Cast(day, "text"))) is not None
    wide = replace(SOURCES[1].relation.attributes["Born In"], lower=Decimal(0), upper=Decimal(900_000))
    relation = replace(SOURCES[1].relation, attributes={**SOURCES[1].relation.attributes, "Born In": wide})
    asked = ask(Call("+", (born, score), "integer"))
    with pytest.raises(NotAnswered):
        domain_query(replace(asked, sources=(SOURCES[0], replace(SOURCES[1], relation=relation), SOURCES[2])))
