"""Random typed questions on random tables: with noise left out, the measured numbers are PostgreSQL's own.

Groups that no row has are zero in every measure. Person units are compared where nobody exceeds the bounds (each visit
has a person of its own), and beyond the bounds by the averages that scaling keeps.
"""

from __future__ import annotations

import random
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from plain_sql import plain, slack
from survey import PERSON, SOURCES, Laboratory, Maker, column, fill

from sqlrewrite.cells import Cells
from sqlrewrite.question import GroupKey, Measure, MeasureKind, Question, Unit


def expected(laboratory: Laboratory, question: Question, grid: Cells) -> np.ndarray:
    """The plain answer laid out on the cells; a key outside them fails."""
    values = np.full((len(question.measures), grid.size), Fraction(0), dtype=object)
    everything = grid.key_columns(np.arange(grid.size))
    owners = grid.set_indices(np.arange(grid.size)).tolist()
    width = len(question.keys)
    marks = [sum(1 << (width - 1 - k) for k in range(width) if k not in chosen) for chosen in question.sets]
    places = {(marks[owner], *keys): cell for cell, (owner, *keys) in enumerate(zip(owners, *everything, strict=True))}
    for mark, *row in laboratory.raw.execute(plain(question)).fetchall():
        keys = tuple(k.rstrip() if isinstance(k, str) else k for k in row[:width])
        for place, number in enumerate(row[width:]):
            values[place, places[(mark, *keys)]] = Fraction(number if number is not None else 0)
    return values


def compare(laboratory: Laboratory, question: Question, rows: int) -> None:
    grid = laboratory.cells(question)
    ours = laboratory.measure(question, grid)
    theirs = expected(laboratory, question, grid)
    for place, measure in enumerate(question.measures):
        unit = measure.unit if measure.kind in (MeasureKind.TOTAL, MeasureKind.SQUARES) else Fraction(1)
        room = slack(question, measure, rows)
        for mine, other in zip(ours[place].tolist(), theirs[place].tolist(), strict=True):
            assert abs(mine * unit - other) <= room, (question, plain(question))


def run(laboratory: Laboratory, rng: random.Random, tables: int, questions: int) -> None:
    maker = Maker(rng)
    for number in range(tables):
        person = number % 3 == 2
        rows = rng.randrange(40)
        fill(laboratory.connection, rng, rows, alone=person)
        for _ in range(questions):
            question = maker.question(person)
            if not any(key.open for key in question.keys):
                compare(laboratory, question, rows)


def test_random_questions_equal_postgresql(laboratory: Laboratory) -> None:
    run(laboratory, random.Random(7), tables=12, questions=25)


@pytest.mark.slow
def test_two_thousand_random_questions_equal_postgresql(laboratory: Laboratory) -> None:
    run(laboratory, random.Random(8), tables=80, questions=26)


def test_scaling_keeps_the_average_of_a_person_with_many_rows(laboratory: Laboratory) -> None:
    """17 rows of one person count as 3: the average moves by rounding only."""
    laboratory.connection.execute("TRUNCATE visit, member; INSERT INTO member VALUES (1, 1, 'F', 2000)")
    laboratory.connection.execute(
        "INSERT INTO visit (visit_id, member_id, town, rank, cost)"
        " SELECT i, 1, 'Ulm', 1, i * 1.37 FROM generate_series(1, 17) i"
    )
    cost = column(0, "cost")
    measures = (
        Measure(MeasureKind.TOTAL, cost, None, Decimal(0), Decimal(50), Fraction(1, 100)),
        Measure(MeasureKind.VALUES, cost),
        Measure(MeasureKind.UNITS),
    )
    key = GroupKey(column(0, "town"), False)
    question = Question(SOURCES, Unit(PERSON, 2, 3), None, (key,), ((0,),), measures, (), None, ())
    total, count, units = laboratory.measure(question, laboratory.cells(question))[:, 0].tolist()
    assert (count, units) == (3, 1)
    assert total == round(sum(137 * i for i in range(1, 18)) * Fraction(3, 17))
