"""Whole numbers are compared as PostgreSQL compares them, cell by cell of a registered view."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import psycopg
import pytest

from proxy.mould import Sheet, _numbers
from proxy.recent import Recent
from proxy.wider import Derivable
from sqlrewrite.catalog import Attribute, Histogram, Kind, Relation
from sqlrewrite.derive import Rollup, Wider, wider
from sqlrewrite.normal import condition_text, digest, fingerprint, frame, normalise
from sqlrewrite.question import (
    AllOf,
    Among,
    AnyOf,
    ColumnRef,
    Compare,
    Comparison,
    Literal,
    Measure,
    MeasureKind,
    Not,
    Predicate,
    Question,
    Source,
    Statistic,
    Unit,
)
from sqlrewrite.view import View, frame_of, view_of

TYPES = {"n": "integer", "small": "smallint", "big": "bigint", "word": "text"}
EDGES = (-(2**15), 2**15 - 1, -(2**31), 2**31 - 1, -(2**63), 2**63 - 1)
STAY = Relation(
    1,
    "public",
    "stay",
    Kind.PROTECTED,
    {
        "n": Attribute("n", "integer", False, (-3, 0, 2, 5, 9)),
        "small": Attribute("small", "smallint", True, (-1, 0, 1)),
        "big": Attribute("big", "bigint", False, (0, 7, 2**40)),
        "word": Attribute("word", "text", False, ("a", "b")),
    },
    histograms=(Histogram(("n", "small", "big", "word"), "count(*)"),),
)
COLUMNS = {name: ColumnRef(0, name, type_name) for name, type_name in TYPES.items()}
ASKED = Question(
    (Source(STAY),), Unit(), None, (), ((),), (Measure(MeasureKind.ROWS),), (Statistic(((0, 1),), 1),), None, ()
)  # fmt: skip


def condition(dice: random.Random, depth: int = 2) -> Predicate:
    column = COLUMNS[dice.choice(("n", "small", "big"))]

    def constant() -> Literal:
        number = dice.choice((*range(-4, 11), *EDGES))
        wide = "smallint" if abs(number) < 2**15 else "integer" if abs(number) < 2**31 else "bigint"
        return Literal(str(number), dice.choice((wide, "bigint")))

    if depth and dice.random() < 0.4:
        kind = dice.choice((AllOf, AnyOf))
        return kind(tuple(condition(dice, depth - 1) for _ in range(dice.randint(1, 3))))
    if dice.random() < 0.3:
        return Among(column, tuple(constant() for _ in range(dice.randint(1, 4))))
    return Compare(column, dice.choice(list(Comparison)), constant())


def told(where: Predicate) -> Wider:
    found = wider(replace(ASKED, where=where), 0, STAY.histograms[0])
    assert found is not None
    return found


@pytest.fixture(scope="module")
def sheet() -> Sheet:
    found = told(Compare(COLUMNS["n"], Comparison.GE, Literal("0", "integer")))
    everything = Rollup(np.zeros(found.cells.size, dtype=np.int64), 1)
    base = Derivable(View((), "", ""), found.question, found.cells, everything, STAY.histograms[0])
    return Sheet(base, ASKED, 0, _numbers(base), Recent(1000))


def test_whole_numbers_are_compared_as_postgresql_compares_them(database: str, sheet: Sheet) -> None:
    dice, some = random.Random(500), 0
    with psycopg.connect(database, autocommit=True) as conn:
        cursor = psycopg.RawCursor(conn)
        for _ in range(500):
            where = condition(dice)
            listing = told(where).listing
            rows = cursor.execute(listing.sql, listing.parameters).fetchall()
            mask = sheet.compared(where)
            assert mask is not None and mask.tolist() == [row[0] == "true" for row in rows], where
            some += 0 < mask.sum() < mask.size
    assert some > 200


@pytest.mark.parametrize(
    "where",
    [
        Compare(COLUMNS["word"], Comparison.EQ, Literal("a", "text")),
        Compare(COLUMNS["n"], Comparison.GT, Literal("1.5", "numeric")),
        Compare(COLUMNS["n"], Comparison.GT, Literal(None, "integer")),
        Not(Compare(COLUMNS["n"], Comparison.GT, Literal("1", "integer"))),
        AnyOf((Compare(COLUMNS["n"], Comparison.GT, Literal("1", "integer")), Not(Among(COLUMNS["n"], ())))),
    ],
    ids=["text", "numeric", "null", "not", "or not"],
)
def test_everything_else_is_asked_of_the_shadow(sheet: Sheet, where: Predicate) -> None:
    assert sheet.compared(where) is None


def test_a_frame_and_a_condition_make_the_fingerprint() -> None:
    dice = random.Random(3)
    for _ in range(50):
        where = normalise(condition(dice))
        question = replace(ASKED, where=where)
        assert digest(frame(ASKED), condition_text(where)) == fingerprint(question).digest
        assert digest(frame_of(ASKED, 0), condition_text(where)) == view_of(question, 0, "").digest
