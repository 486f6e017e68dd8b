"""The claim without statistics: one unit more or less moves every statistic by no more than was claimed."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from survey import PERSON, SOURCES, Laboratory, Maker, column, fill

from sqlrewrite.generate import generate
from sqlrewrite.question import GroupKey, IsNull, Measure, MeasureKind, Not, Question, Statistic, Unit
from sqlrewrite.sensitivity import Contribution, sensitivity

ROWS, UNITS, TOTAL = MeasureKind.ROWS, MeasureKind.UNITS, MeasureKind.TOTAL
TOWN, SEX = GroupKey(column(0, "town"), False), GroupKey(column(1, "sex"), True)


@dataclass(frozen=True)
class Move:
    """What one unit really moved: per statistic the most in a cell, and the cells that moved in each grouping set."""

    claim: Contribution
    most: list[int]
    cells: Counter[int]

    def within(self, claim: Contribution) -> bool:
        return (
            all(moved <= bound for moved, bound in zip(self.most, claim.statistics, strict=True))
            and max(self.cells.values(), default=0) <= claim.groups
            and sum(self.cells.values()) <= claim.cells
        )


def moves(laboratory: Laboratory, rng: random.Random, databases: int, questions: int) -> list[Move]:
    """Random (question, database, neighbour) triples; half of the rows hold values far outside what is declared."""
    found = []
    maker = Maker(rng)
    for number in range(databases):
        fill(laboratory.connection, rng, rng.randrange(1, 50), hostile=0.1 if number % 2 else 0.0)
        asked = [q for q in (maker.question() for _ in range(questions)) if not any(key.open for key in q.keys)]
        grids = [laboratory.cells(q) for q in asked]
        before = [laboratory.statistics(q, grid) for q, grid in zip(asked, grids, strict=True)]
        victims = {
            False: "visit_id = (SELECT visit_id FROM visit WHERE member_id IS NOT NULL ORDER BY random() LIMIT 1)",
            True: f"member_id IN (SELECT member_id FROM member WHERE person = {rng.choice([1, 1, 2, 3])})",
        }
        after = {}
        for person, condition in victims.items():
            with laboratory.connection.transaction(force_rollback=True):
                laboratory.connection.execute(f"DELETE FROM visit WHERE {condition}")
                after[person] = [laboratory.statistics(q, grid) for q, grid in zip(asked, grids, strict=True)]
        for place, (q, grid) in enumerate(zip(asked, grids, strict=True)):
            moved = np.abs(before[place] - after[q.unit.column is not None][place])
            touched = np.flatnonzero((moved != 0).any(axis=0))
            most = moved.max(axis=1, initial=0).tolist()
            move = Move(sensitivity(q), most, Counter(grid.set_indices(touched).tolist()))
            assert move.within(move.claim), q
            found.append(move)
    return found


def smaller(claim: Contribution) -> list[Contribution]:
    """Mutants: each claims a little less."""
    return [
        replace(claim, groups=claim.groups - 1),
        replace(claim, cells=claim.cells - 1),
        replace(claim, statistics=tuple(bound - 1 for bound in claim.statistics)),
    ]


def test_one_unit_moves_every_statistic_within_the_claim_and_no_smaller_claim_would_hold(
    laboratory: Laboratory,
) -> None:
    found = moves(laboratory, random.Random(1), databases=20, questions=25)
    assert len(found) > 400
    for mutant in range(3):
        caught = sum(not move.within(smaller(move.claim)[mutant]) for move in found)
        assert caught > 20, mutant


@pytest.mark.slow
def test_one_unit_moves_every_statistic_within_the_claim_ten_thousand_times(laboratory: Laboratory) -> None:
    assert len(moves(laboratory, random.Random(2), databases=300, questions=40)) > 10_000


def ask(
    unit: Unit, keys: tuple[GroupKey, ...], measures: tuple[Measure, ...], statistics: tuple[Statistic, ...]
) -> Question:
    return Question(SOURCES, unit, None, keys, (tuple(range(len(keys))),), measures, statistics, None, ())


COUNT = Statistic(((0, 1),), 1)


def test_a_row_moves_one_cell_of_each_grouping_set() -> None:
    asked = ask(Unit(), (TOWN, SEX), (Measure(ROWS),), (COUNT,))
    assert sensitivity(asked) == Contribution(1, 1, (1,))
    assert sensitivity(replace(asked, sets=((0, 1), (0,), ()))) == Contribution(1, 3, (1,))


def test_a_person_touches_one_group_where_all_keys_are_constant_or_absent() -> None:
    unit = Unit(PERSON, 3, 5)
    assert sensitivity(ask(unit, (), (Measure(ROWS),), (COUNT,))) == Contribution(1, 1, (5,))
    assert sensitivity(ask(unit, (SEX,), (Measure(ROWS),), (COUNT,))) == Contribution(1, 1, (5,))
    assert sensitivity(ask(unit, (SEX, TOWN), (Measure(ROWS),), (COUNT,))) == Contribution(3, 3, (5,))
    everywhere = ask(Unit(PERSON, 300, 5), (TOWN,), (Measure(ROWS),), (COUNT,))
    assert sensitivity(everywhere).groups == 4  # there are no more towns
    assert "row_number" not in generate(everywhere, 1).sql


def test_a_person_moves_a_count_of_persons_by_one() -> None:
    asked = ask(Unit(PERSON, 3, 5), (TOWN,), (Measure(UNITS), Measure(ROWS)), (COUNT, Statistic(((0, -2), (1, 1)), 2)))
    assert sensitivity(asked).statistics == (1, 5)


def test_measures_over_different_rows_are_bounded_apart() -> None:
    """Disjoint filters share the bound of one row, but a person may fill both up to max_rows."""
    first, second = IsNull(column(0, "day")), Not(IsNull(column(0, "day")))
    measures = (Measure(ROWS, None, first), Measure(ROWS, None, second))
    joint = Statistic(((0, 1), (1, 1)), 1)
    assert sensitivity(ask(Unit(PERSON, 3, 5), (TOWN,), measures, (joint,))).statistics == (10,)
    assert sensitivity(ask(Unit(), (TOWN,), measures, (joint,))).statistics == (1,)


def test_what_no_unit_moves_is_given_noise_as_if_one_did() -> None:
    """sum(x * 0) is a number like any other: it has a price, and no internal error."""
    nothing = Measure(TOTAL, column(0, "rank"), None, Decimal(0), Decimal(0), Fraction(1))
    for unit in (Unit(), Unit(PERSON, 3, 5)):
        assert sensitivity(ask(unit, (TOWN,), (nothing,), (Statistic(((0, 1),), 0),))).statistics == (1,)


def test_a_linear_average_keeps_the_joint_bound_of_its_rows() -> None:
    total = Measure(TOTAL, column(0, "rank"), None, Decimal(1), Decimal(4), Fraction(1))
    asked = ask(Unit(PERSON, 3, 5), (TOWN,), (total, Measure(ROWS)), (Statistic(((0, 1), (1, -3)), 2),))
    assert sensitivity(asked).statistics == (10,)


def test_bounding_keeps_the_same_groups_whatever_the_physical_order(laboratory: Laboratory) -> None:
    rng = random.Random(3)
    fill(laboratory.connection, rng, 50)
    maker = Maker(rng)
    asked = [q for q in (maker.question(person=True) for _ in range(20)) if not any(key.open for key in q.keys)]
    grids = [laboratory.cells(q) for q in asked]
    first = [laboratory.measure(q, grid) for q, grid in zip(asked, grids, strict=True)]
    laboratory.connection.execute(
        "CREATE TEMP TABLE shuffled ON COMMIT DROP AS SELECT * FROM visit; TRUNCATE visit;"
        "INSERT INTO visit SELECT * FROM shuffled ORDER BY hashint8(visit_id + 12345)"
    )
    for q, grid, known in zip(asked, grids, first, strict=True):
        assert np.array_equal(known, laboratory.measure(q, grid))
