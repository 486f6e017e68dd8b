"""Cells: a public order, found by key, filled at the speed of a million rows."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pytest
from survey import DAYS, SOURCES, TOWNS, VISIT, column, text

from sqlrewrite.catalog import Attribute
from sqlrewrite.cells import FAR, MAX_CELLS, cells, key_text
from sqlrewrite.errors import NotAnswered
from sqlrewrite.question import Call, ColumnRef, GroupKey, Measure, MeasureKind, Question, Source, Unit

COUNT = Measure(MeasureKind.ROWS)
TOWN, DAY, WARD = (GroupKey(column(0, name), False) for name in ("town", "day", "ward"))


def ask(*keys: GroupKey, sets: tuple[tuple[int, ...], ...] | None = None, measures: int = 1) -> Question:
    sets = (tuple(range(len(keys))),) if sets is None else sets
    return Question(SOURCES, Unit(), None, keys, sets, (COUNT,) * measures, (), None, ())


def test_a_scalar_has_one_cell() -> None:
    grid = cells(ask())
    assert grid.size == 1
    assert grid.fill([(7,)]).tolist() == [[7]]
    assert grid.fill([]).tolist() == [[0]]
    assert grid.key_columns(np.array([0])) == []


def test_the_cells_are_the_product_of_the_domains_the_last_key_fastest() -> None:
    grid = cells(ask(TOWN, DAY))
    assert grid.size == 4 * 7
    columns = grid.key_columns(np.arange(grid.size))
    assert list(zip(*columns, strict=True)) == list(itertools.product(TOWNS, (*DAYS, None)))
    values = grid.fill([("Bonn", DAYS[2], 5), ("Jena", None, 2), ("undeclared", DAYS[0], 9), ("Ulm", None, None)])
    assert {int(cell): int(values[0, cell]) for cell in np.flatnonzero(values[0])} == {7 + 2: 5, 27: 2}


def test_two_spellings_of_one_key_share_a_cell() -> None:
    assert cells(ask(WARD)).fill([("A   ", 2), ("A", 3), ("B1  ", 1), (None, 4)]).tolist() == [[5, 1, 4]]


def test_grouping_sets_follow_one_another() -> None:
    grid = cells(ask(TOWN, DAY, sets=((0, 1), (0,), (), (0,)), measures=2))
    assert grid.size == 28 + 4 + 1 + 4
    rows = [(0, "Ulm", DAYS[0], 1, 10), (0, "Ulm", None, 2, 20), (1, "Ulm", None, 3, 30), (3, None, None, 4, 40)]
    values = grid.fill(rows)
    assert {int(c): int(values[0, c]) for c in np.flatnonzero(values[0])} == {0: 1, 6: 2, 28: 3, 32: 4, 33: 3}
    assert (values[1] == values[0] * 10).all()
    at = np.array([33, 0, 28, 32])
    assert grid.set_indices(at).tolist() == [3, 0, 1, 2]
    assert grid.key_columns(at) == [["Ulm", "Ulm", "Ulm", None], [None, DAYS[0], None, None]]


def test_listed_keys_come_as_text_and_meet_typed_rows() -> None:
    month = GroupKey(Call("date_trunc", (text("month"), column(0, "day")), "timestamp with time zone"), False)
    fourth = GroupKey(Call("/", (column(0, "score"),), "integer"), False)
    paid = GroupKey(column(0, "paid"), False)
    listed = [("2024-01-31T23:00:00.000000", "-1", "true"), (None, "2", "false"), (None, None, None)]
    grid = cells(ask(month, fourth, paid), listed)
    moment = datetime(2024, 1, 31, 23, tzinfo=UTC)
    assert grid.fill([(moment, -1, True, 5), (None, Decimal("2.0"), False, 6), (None, 2, True, 7)]).tolist() == [
        [5, 6, 0]
    ]
    assert grid.key_columns(np.array([0]))[0] == [moment]
    projected = cells(ask(month, fourth, sets=((0, 1), (0,))), [row[:2] for row in listed])
    assert projected.size == 3 + 2


def test_numbers_beyond_all_bounds_are_cut_off_on_both_sides() -> None:
    assert cells(ask(TOWN)).fill([("Ulm", 2**80), ("Bonn", -(2**80)), ("Kiel", Decimal(3))])[0].tolist() == [
        FAR,
        -FAR,
        3,
        0,
    ]


def test_too_many_cells_are_refused_before_they_are_made() -> None:
    wide = {**VISIT.attributes, "score": Attribute("score", "integer", True, tuple(range(2000)))}
    sources = (Source(replace(VISIT, attributes=wide)), *SOURCES[1:])
    key = GroupKey(ColumnRef(0, "score", "integer"), False)
    asked = replace(ask(key, key, key), sources=sources)
    started = time.process_time()
    with pytest.raises(NotAnswered):
        cells(asked)
    assert time.process_time() - started < 1
    with pytest.raises(NotAnswered):
        cells(ask(TOWN), [("Ulm",)] * (MAX_CELLS + 1))


def test_a_million_rows_fill_a_million_cells_within_seconds() -> None:
    wide = {**VISIT.attributes, "score": Attribute("score", "integer", True, tuple(range(1000)))}
    wide["rank"] = Attribute("rank", "smallint", True, tuple(range(1000)))
    sources = (Source(replace(VISIT, attributes=wide)), *SOURCES[1:])
    keys = tuple(GroupKey(ColumnRef(0, name, "integer"), False) for name in ("score", "rank"))
    grid = cells(replace(ask(*keys, measures=2), sources=sources))
    rows = [(i // 1000, i % 1000, i, -i) for i in range(1_000_000)]
    started = time.process_time()
    values = grid.fill(rows)
    columns = grid.key_columns(np.arange(grid.size))
    assert time.process_time() - started < 30
    assert (values[0] == np.arange(1_000_000)).all() and (values[1] == -values[0]).all()
    assert columns[0][123_456] == 123 and columns[1][123_456] == 456


def test_keys_are_written_so_that_postgresql_reads_them_back() -> None:
    assert [key_text(v) for v in (None, True, DAYS[0], Decimal("1E+2"), 7, "x")] == [
        None, "true", "2024-01-29", "100", "7", "x",
    ]  # fmt: skip
