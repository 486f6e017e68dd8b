"""The generated statement: one scan, nothing that raises, and nothing done that types and CHECKs already guarantee."""

from __future__ import annotations

import random
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from survey import DAYS, PERSON, SOURCES, VISIT, Laboratory, Maker, column, fill, text, whole

from mechanisms.values import _RELEASE, Passed
from sqlrewrite.catalog import Attribute
from sqlrewrite.cells import found
from sqlrewrite.errors import NotAnswered
from sqlrewrite.generate import generate
from sqlrewrite.interval import interval, squares
from sqlrewrite.question import (
    Among,
    Call,
    Cast,
    Compare,
    Comparison,
    Expression,
    GroupKey,
    Like,
    Literal,
    Measure,
    MeasureKind,
    Predicate,
    Question,
    Source,
    Unit,
)  # fmt: skip
from sqlrewrite.render import Rendering

COUNT = Measure(MeasureKind.ROWS)
COST = column(0, "cost")


def total(argument: Expression, kind: MeasureKind = MeasureKind.TOTAL) -> Measure:
    known = (squares if kind is MeasureKind.SQUARES else interval)(argument, SOURCES)
    return Measure(kind, argument, None, known.lower, known.upper, known.unit)


def ask(
    measures: tuple[Measure, ...], keys: tuple[GroupKey, ...] = (), where: Predicate | None = None,
    unit: Unit | None = None, sources: tuple[Source, ...] = SOURCES,
) -> Question:  # fmt: skip
    return Question(sources, unit or Unit(), where, keys, (tuple(range(len(keys))),), measures, (), None, ())


def test_nothing_raises_on_hostile_data(laboratory: Laboratory) -> None:
    rng = random.Random(11)
    maker = Maker(rng)
    for _ in range(6):
        fill(laboratory.connection, rng, 60, hostile=0.5)
        for _ in range(40):
            question = maker.question()
            generated = generate(question, 1)
            rows = laboratory.raw.execute(generated.sql, generated.parameters).fetchall()
            if not any(key.open for key in question.keys):
                laboratory.cells(question).fill(rows)


TOTAL_EXPRESSIONS: list[Expression] = [
    Call("*", (column(0, "stock"), column(0, "stock")), "bigint"),
    Call("*", (column(0, "load"), Call("*", (column(0, "load"), column(0, "load")), "numeric")), "numeric"),
    Call("*", (column(0, "rate"), column(0, "rate")), "double precision"),
    Call("+", (column(0, "score"), column(0, "score")), "integer"),
    Call("-", (column(0, "stock"),), "bigint"),
    Call("abs", (column(0, "rank"),), "smallint"),
    Call("/", (column(0, "stock"), whole(-1)), "bigint"),
    Call("/", (column(0, "load"), Literal("0.001", "numeric")), "numeric"),
    Call("%", (column(0, "load"), whole(7)), "numeric"),
    Cast(column(0, "rate"), "smallint"),
    Cast(column(0, "rate"), "bigint"),
    Cast(column(0, "rate"), "real"),
    Cast(column(0, "load"), "double precision"),
    Cast(column(0, "load"), "numeric(4,1)"),
    Cast(column(0, "stock"), "integer"),
    Cast(column(0, "day"), "timestamp without time zone"),
    Cast(column(0, "seen"), "timestamp with time zone"),
    Call("date_trunc", (text("millennium"), column(0, "seen")), "timestamp without time zone"),
    Call("date_trunc", (text("week"), column(0, "till")), "timestamp with time zone"),
    Call("date_trunc", (text("month"), column(0, "day")), "timestamp with time zone"),
    Call("-", (column(0, "day"), whole(1_200_000)), "date"),
    Call(
        "date_trunc",
        (
            text("millennium"),
            Call("-", (column(0, "seen"), Literal("180000 weeks", "interval")), column(0, "seen").type_name),
        ),
        "timestamp without time zone",
    ),
    Call("-", (column(0, "seen"), Literal("3500 years", "interval")), "timestamp without time zone"),
    Call("extract", (text("epoch"), column(0, "till")), "numeric"),
    Call("width_bucket", (column(0, "rate"), Literal("-0.5", "numeric"), whole(1), whole(5)), "integer"),
    Call("width_bucket", (column(0, "load"), whole(0), whole(10), whole(5)), "integer"),
    Call("round", (column(0, "load"), whole(2)), "numeric"),
    Call("round", (column(0, "rate"),), "double precision"),
    Call("greatest", (column(0, "rate"), column(0, "load"), column(0, "score")), "double precision"),
    Call("nullif", (column(0, "rate"), column(0, "load")), "double precision"),
    Call("left", (column(0, "note"), whole(2)), "text"),
]


@pytest.mark.parametrize("expression", TOTAL_EXPRESSIONS, ids=repr)
def test_an_expression_gives_a_value_or_null_on_every_value_of_its_columns(
    laboratory: Laboratory, expression: Expression
) -> None:
    fill(laboratory.connection, random.Random(5), 120, hostile=0.7)
    rendering = Rendering(SOURCES)
    sql = f"SELECT count({rendering.expression(expression)}) FROM {rendering.tables()}"
    laboratory.raw.execute(sql, rendering.parameters)


@pytest.mark.parametrize(
    "predicate",
    [
        Compare(column(0, "load"), Comparison.GT, column(0, "rate")),
        Compare(column(0, "rate"), Comparison.LT, Call("*", (column(0, "load"), whole(2)), "numeric")),
        Compare(column(0, "stock"), Comparison.EQ, column(0, "rate")),
        Compare(column(0, "day"), Comparison.GE, column(0, "till")),
        Compare(column(0, "seen"), Comparison.LE, Literal("2024-01-01", "date")),
        Among(column(0, "score"), (whole(1), Literal(None, "integer"))),
        Like(column(0, "note"), text("%\\\\"), False),
    ],
    ids=repr,
)
def test_a_condition_holds_or_not_on_every_value_of_its_columns(laboratory: Laboratory, predicate: Predicate) -> None:
    fill(laboratory.connection, random.Random(6), 120, hostile=0.7)
    rendering = Rendering(SOURCES)
    sql = f"SELECT count(*) FROM {rendering.tables()} WHERE {rendering.predicate(predicate)}"
    laboratory.raw.execute(sql, rendering.parameters)


@pytest.mark.parametrize(
    "part",
    [
        Call("/", (column(0, "score"), whole(0)), "integer"),
        Call("/", (column(0, "score"), column(0, "rank")), "integer"),
        Cast(column(0, "note"), "integer"),
        Cast(column(0, "note"), "date"),
        Call("+", (column(0, "day"), whole(2_000_000_000)), "date"),
        Call("+", (column(0, "day"), column(0, "score")), "date"),
        Call("-", (Call("-", (column(0, "day"), whole(1_000_000)), "date"), whole(1_000_000)), "date"),
        Call("-", (column(0, "seen"), Literal("9999 years", "interval")), "timestamp without time zone"),
        Call("+", (column(0, "seen"), Literal("9 millennia", "interval")), "timestamp without time zone"),
        Call("ln", (column(0, "cost"),), "numeric"),
        Call("width_bucket", (COST, whole(1), whole(1), whole(5)), "integer"),
    ],
    ids=repr,
)
def test_what_could_raise_is_refused(part: Expression) -> None:
    with pytest.raises(NotAnswered):
        Rendering(SOURCES).expression(part)


def test_a_like_pattern_that_could_raise_is_refused() -> None:
    with pytest.raises(NotAnswered):
        Rendering(SOURCES).predicate(Like(column(0, "note"), text("a\\\\\\"), False))


def test_sums_are_clamped_after_the_expression(laboratory: Laboratory) -> None:
    laboratory.connection.execute("TRUNCATE visit, member; INSERT INTO member VALUES (1, 1, 'F', 2000)")
    laboratory.connection.execute(
        "INSERT INTO visit (visit_id, member_id, town, rank, score, cost, rate, load) VALUES"
        " (1, 1, 'Ulm', 32767, 2147483647, 9999.99, 'Infinity', 'Infinity'), (2, 1, 'Ulm', 1, NULL, NULL, 'NaN', 'NaN')"
    )
    named = [total(column(0, name)) for name in ("rank", "score", "cost", "rate", "load")]
    named.append(total(Call("*", (column(0, "score"), column(0, "rank")), "integer")))
    named.append(total(COST, MeasureKind.SQUARES))
    question = ask(tuple(named))
    measured = laboratory.measure(question, laboratory.cells(question))[:, 0].tolist()
    real = [value * m.unit for value, m in zip(measured, named, strict=True)]
    # NaN is above every number, as PostgreSQL sorts it; NULL is nothing.
    assert real == [4 + 1, 10, 50, 2, 20, 40, 2500]


def test_a_type_or_check_that_guarantees_bounds_saves_the_clamp() -> None:
    checked = replace(VISIT, attributes={**VISIT.attributes, "cost": replace(VISIT.attributes["cost"], checked=True)})
    sources = (Source(checked), *SOURCES[1:])
    sql = generate(ask((total(COST), COUNT), sources=sources), 1).sql
    assert 'CASE WHEN (t0."cost"' not in sql and "least" not in sql
    assert 'CASE WHEN (t0."cost"' in generate(ask((total(COST), COUNT)), 1).sql
    assert "round" not in generate(ask((total(COST), total(column(0, "score")))), 1).sql


def test_constants_travel_as_parameters_and_names_are_quoted() -> None:
    asked = ask(
        (COUNT,),
        (GroupKey(column(1, "Born In"), False, True),),
        Compare(column(0, "note"), Comparison.EQ, text("'; DROP TABLE visit; --")),
    )
    generated = generate(asked, 1)
    assert "DROP" not in generated.sql
    assert "'; DROP TABLE visit; --" in generated.parameters
    assert 't1."Born In"' in generated.sql


def test_one_statement_scans_the_protected_table_once() -> None:
    town, day = GroupKey(column(0, "town"), False), GroupKey(column(0, "day"), False)
    filtered = Measure(MeasureKind.ROWS, None, Compare(column(0, "score"), Comparison.GT, whole(1)))
    for unit in (Unit(), Unit(PERSON, 2, 3)):
        asked = replace(ask((COUNT, filtered, total(COST)), (town, day), unit=unit), sets=((0, 1), (0,), ()))
        assert generate(asked, 1).sql.count('"public"."visit"') == 1


def test_a_person_keeps_other_groups_under_another_seed(laboratory: Laboratory) -> None:
    fill(laboratory.connection, random.Random(1), 60)
    asked = ask((COUNT,), (GroupKey(column(0, "day"), False),), unit=Unit(PERSON, 1, 1))
    grid = laboratory.cells(asked)

    def measured(seed: int) -> list[int]:
        generated = generate(asked, seed)
        return grid.fill(laboratory.raw.execute(generated.sql, generated.parameters).fetchall())[0].tolist()

    assert measured(1) == measured(1)
    assert len({tuple(measured(seed)) for seed in range(8)}) > 1


@pytest.mark.parametrize("unit", [Unit(), Unit(PERSON, 2, 2)], ids=["row", "person"])
def test_an_open_key_brings_the_number_of_units_of_each_group(laboratory: Laboratory, unit: Unit) -> None:
    laboratory.connection.execute(
        "TRUNCATE visit, member; INSERT INTO member VALUES (1, 1, 'F', 2000), (2, 2, 'M', 1950), (3, 1, 'F', 2000);"
        "INSERT INTO visit (visit_id, member_id, town, rank, note, score) VALUES (1, 1, 'Ulm', 1, 'a', 1),"
        " (2, 3, 'Ulm', 1, 'a', 2), (3, 2, 'Ulm', 1, 'a', 3), (4, 2, 'Ulm', 1, NULL, 4), (5, 2, 'Atlantis', 1, 'a', 5)"
    )
    keys = (GroupKey(column(0, "note"), False, True), GroupKey(column(0, "town"), False))
    asked = ask((total(column(0, "score")),), keys, unit=unit)
    generated = generate(asked, 1)
    assert generated.presence == 1
    rows = laboratory.raw.execute(generated.sql, generated.parameters).fetchall()
    groups = found(asked, generated.presence, rows)
    measures, units = groups.measures.open_for_release(), groups.units.open_for_release()
    everybody = Passed(np.arange(units.shape[1]), _RELEASE)  # as if every group had passed the threshold
    names = [(note, town) for note, town, _ in groups.named(everybody)]
    told = dict(zip(names, zip(measures[0].tolist(), units[0].tolist(), strict=True), strict=True))
    if unit.column is None:
        assert told == {("a", "Ulm"): (6, 3), (None, "Ulm"): (4, 1)}
    else:
        assert told[("a", "Ulm")][1] in (1, 2) and ("a", "Atlantis") not in told


def test_found_groups_have_no_text_form() -> None:
    asked = ask((COUNT,), (GroupKey(column(0, "note"), False, True),))
    private = found(asked, 0, [("secret", 5)])
    assert "secret" not in repr(private)
    for show in (str, "{}".format, lambda f: f == f):
        with pytest.raises(TypeError):
            show(private)


def test_sums_beyond_int8_are_cut_off_and_do_not_raise(laboratory: Laboratory) -> None:
    wide = replace(
        VISIT,
        attributes={**VISIT.attributes, "stock": Attribute("stock", "bigint", False, None, Decimal(0), Decimal(2**62))},
    )
    sources = (Source(wide), *SOURCES[1:])
    known = interval(column(0, "stock"), sources)
    assert known.unit > 1  # such a lattice is coarse
    fine = Measure(MeasureKind.TOTAL, column(0, "stock"), None, Decimal(0), Decimal(2**62), Fraction(1))
    laboratory.connection.execute("TRUNCATE visit, member; INSERT INTO member VALUES (1, 1, 'F', 2000)")
    laboratory.connection.execute(
        "INSERT INTO visit (visit_id, member_id, town, rank, stock)"
        f" SELECT i, 1, 'Ulm', 1, {2**62} FROM generate_series(1, 9) i"
    )
    coarse = Measure(MeasureKind.TOTAL, column(0, "stock"), None, known.lower, known.upper, known.unit)
    for unit in (Unit(), Unit(PERSON, 1, 9)):
        asked = ask((fine, coarse), sources=sources, unit=unit)
        values = laboratory.measure(asked, laboratory.cells(asked))[:, 0].tolist()
        assert values[0] == 2**62
        assert abs(values[1] * known.unit - 9 * 2**62) <= 9 * known.unit


def test_days_outside_the_calendar_stay_behind(laboratory: Laboratory) -> None:
    laboratory.connection.execute(
        "TRUNCATE visit, member; INSERT INTO member VALUES (1, 1, 'F', 2000);"
        "INSERT INTO visit (visit_id, member_id, town, rank, day) SELECT row_number() OVER (), 1, 'Ulm', 1, d::date"
        " FROM unnest(ARRAY['infinity', '-infinity', '0044-03-15 BC', '2024-01-30', '1999-01-01']) d"
    )
    for unit in (Unit(), Unit(PERSON, 9, 9)):
        asked = ask((COUNT,), (GroupKey(column(0, "day"), False),), unit=unit)
        grid = laboratory.cells(asked)
        assert grid.size == len(DAYS) + 1
        assert np.flatnonzero(laboratory.measure(asked, grid)[0]).tolist() == [1]
