"""Views: which numbers are the same, and how reports call them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fragments import ask

from sqlrewrite.catalog import Histogram
from sqlrewrite.cells import cells
from sqlrewrite.derive import rollup, wider
from sqlrewrite.question import MeasureKind, Question
from sqlrewrite.view import View, view_of, whole_view


def counted(question: Question, context: str = "") -> View:
    """The view of the number of rows, or of whatever stands first."""
    places = [
        place
        for place, statistic in enumerate(question.statistics)
        if len(statistic.terms) == 1 and question.measures[statistic.terms[0][0]].kind is MeasureKind.ROWS
    ]
    return view_of(question, places[0], context)


@pytest.mark.parametrize(
    "other",
    [
        {"keys": ["city"], "aggregates": ["count(*)", "sum(amount)"]},
        {"keys": ["city"], "aggregates": ["avg(quantity)", "count(*)"]},
        {"keys": ["city"], "having": "count(*) > 500"},
        {"keys": ["city"], "having": "count(*) > 20 AND sum(quantity) > 9", "aggregates": ["count(*)"]},
    ],
)
def test_a_statistic_is_one_view_whatever_is_asked_beside_it(other: dict[str, Any]) -> None:
    assert counted(ask(keys=["city"], aggregates=["count(*)"])) == counted(ask(**other))


@pytest.mark.parametrize(
    "other",
    [
        {"keys": ["gift"], "aggregates": ["count(*)"]},
        {"keys": [], "aggregates": ["count(*)"]},
        {"keys": ["city"], "where": "quantity > 3", "aggregates": ["count(*)"]},
        {"keys": ["city", "gift"], "sets": ((0,), (1,)), "aggregates": ["count(*)"]},
    ],
)
def test_other_rows_or_groups_are_another_view(other: dict[str, Any]) -> None:
    assert counted(ask(keys=["city"], aggregates=["count(*)"])).digest != counted(ask(**other)).digest


def test_other_settings_are_another_view() -> None:
    question = ask(keys=["city"], aggregates=["count(*)"])
    assert counted(question, "/TimeZone=UTC").digest != counted(question).digest


def test_reports_call_a_view_by_its_sql() -> None:
    question = ask(
        keys=["city"], where="quantity BETWEEN 2 AND 8 AND city <> 'Ulm'", aggregates=["count(*) FILTER (WHERE gift)"]
    )
    view = view_of(question, 0, "")
    assert view.dimensions == ("city",)
    assert view.measure.startswith("count(*) FILTER (WHERE gift") and "city <> 'Ulm'" in view.measure
    assert "quantity >= 2" in view.measure and whole_view(question) == (("city",), view.measure)


def test_a_long_filter_is_cut_off_and_still_told_apart() -> None:
    def measure(last: int) -> str:
        members = ", ".join(f"'town number {n}'" for n in (*range(60), last))
        return view_of(ask(keys=["city"], where=f"city IN ({members})", aggregates=["count(*)"]), 0, "").measure

    assert len(measure(100)) < 450 and measure(100) != measure(101)


def derived(histogram: Histogram, **asked: Any) -> bool:
    return wider(ask(**{"from_": "patients", "aggregates": ["count(*)"], **asked}), 0, histogram) is not None


BY_DISEASE = Histogram(("disease",), "count(*)")


def test_questions_over_the_dimensions_alone_are_derived() -> None:
    assert derived(BY_DISEASE)
    assert derived(BY_DISEASE, where="disease IN ('flu', 'cold')", keys=["upper(disease)"])
    assert derived(BY_DISEASE, aggregates=["count(*) FILTER (WHERE disease <> 'flu')"])


@pytest.mark.parametrize(
    "asked",
    [
        {"where": "age > 3"},
        {"keys": ["age"]},
        {"aggregates": ["count(*) FILTER (WHERE age > 3)"]},
        {"aggregates": ["sum(age)"]},
        {"keys": ["disease"], "sets": ((0,), ())},
    ],
)
def test_what_another_column_decides_is_not(asked: dict[str, Any]) -> None:
    assert not derived(BY_DISEASE, **asked)


def test_a_person_unit_is_not_derived() -> None:
    # A person's rows are bounded per group, and wider views have other groups.
    assert not derived(Histogram(("city",), "count(*)"), from_="orders")


def test_the_cells_of_the_view_are_added_up_by_group() -> None:
    question = ask(from_="patients", keys=["disease"], aggregates=["count(*)"])
    found = wider(question, 0, BY_DISEASE)
    assert found is not None
    # Of four cells (NULL is one of them) two count, and one lies outside the question's groups.
    rows = [("true", "gout"), ("false", "cold"), ("true", "flu"), ("true", "elsewhere")]
    sums = rollup(rows, cells(question))
    groups = dict(
        zip(cells(question).key_columns(np.arange(sums.size))[0], sums.add_up(np.array([5, 7, 11, 13])), strict=True)
    )
    assert {key: n for key, n in groups.items() if n} == {"gout": 5, "flu": 11} and sums.most == 1
