"""Regions: what is disjoint is proven to be, what is written can be read, what has many forms has one text."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from overlap_sets import POINTS, extent

from provenance.extent import Extent, Interval, Members, disjoint, hull, intersection
from provenance.region import EVERYWHERE, Region, coin, fewer_parts, quanta, unit_parts

extents = st.integers(0, 10**9).map(lambda seed: extent(Random(seed)))


@given(extents, extents)
def test_extents_are_disjoint_exactly_if_no_value_lies_in_both(one: Extent, other: Extent) -> None:
    shared = [value for value in POINTS if value in one and value in other]
    assert disjoint(one, other) == disjoint(other, one) == (not shared)
    assert [value for value in POINTS if value in intersection(one, other)] == shared


@given(extents, extents)
def test_a_hull_holds_both(one: Extent, other: Extent) -> None:
    around = hull(one, other)
    assert around is None or all(value in around for value in POINTS if value in one or value in other)


@given(st.lists(extents, max_size=3))
def test_what_is_written_is_read_again(sides: list[Extent]) -> None:
    region = Region.of(dict(zip("abc", sides, strict=False)))
    assert Region.parse(region.text) == region and Region.parse(region.text).text == region.text
    assert region.empty == any(side.empty for side in sides)


def test_equal_regions_have_equal_texts() -> None:
    paris = timezone(timedelta(hours=1))
    pairs = [
        (Members.of(Decimal("1.50"), 2), Members.of(Decimal("2.0"), Decimal("1.5"))),
        (Interval(None, 3, False, True), Interval(None, Decimal("3.000"))),
        (Interval(datetime(2024, 1, 1, 1, tzinfo=paris)), Interval(datetime(2024, 1, 1, tzinfo=UTC))),
    ]
    for one, other in pairs:
        assert Region.of({"x": one}) == Region.of({"x": other})
        assert Region.of({"x": one}).text == Region.of({"x": other}).text
    forth, back = Region.of({"x": pairs[0][0], "y": Members.of("a")}), (("y", Members.of("a")), ("x", pairs[0][1]))
    assert forth == Region(back) and forth.text == Region(back).text and hash(forth) == hash(Region(back))


def test_every_kind_of_value_comes_back_as_it_was() -> None:
    values = (
        7,
        -(10**30),
        Decimal("0.1"),
        Decimal("1E+60"),
        date(2024, 2, 29),
        datetime(2024, 2, 29, 12, 30),
        "é\"'",
        True,
    )
    for value in values:
        region = Region.of({"x": Members.of(value, None), "y": Interval(value, None, False)})
        again = Region.parse(region.text)
        assert again == region and type(again.on("y").low) is type(value)  # type: ignore[union-attr]


@pytest.mark.parametrize("value", [1.5, Decimal("NaN"), Decimal("Infinity"), b"x"])
def test_what_cannot_be_ordered_exactly_bounds_no_region(value: object) -> None:
    with pytest.raises(ValueError, match="cannot bound"):
        Members.of(value)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cannot bound"):
        Interval(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ['{"x":{"in":[1.5]}}', '{"x":{"at":3}}', '{"x":{"in":[1],"from":2}}', '{"x":3}'])
def test_a_text_that_is_no_region_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r" is no |cannot bound"):
        Region.parse(text)


def test_values_of_different_kinds_are_never_told_apart() -> None:
    number, text, day = Members.of(1), Members.of("1"), Interval(date(2024, 1, 1))
    assert not disjoint(number, text) and not disjoint(number, day) and not disjoint(text, day)
    assert intersection(number, text) == number and hull(number, text) is None
    assert disjoint(Members.of(None), day) and disjoint(Members.of(None), Interval()), "NULL lies in no interval"
    with pytest.raises(ValueError, match="one kind"):
        Members.of(1, "1")
    with pytest.raises(ValueError, match="one interval"):
        Interval(1, "2")


def test_neighbouring_half_open_intervals_are_disjoint_and_closed_ones_are_not() -> None:
    ends = (date(2024, 1, 1), date(2024, 7, 1), date(2025, 1, 1))
    for a, b, c in ((0, 5, 9), ("a", "m", "z"), ends, (Decimal("0.1"), Decimal("0.25"), Decimal("0.3"))):
        assert disjoint(Interval(a, b, True, False), Interval(b, c))
        assert not disjoint(Interval(a, b), Interval(b, c))


def test_over_whole_numbers_and_days_open_ends_step_inwards() -> None:
    assert Interval(3, 5, False, False).stepwise() == Interval(4, 4)
    assert Interval(Decimal("3.5"), Decimal("5.5"), False, False).stepwise() == Interval(4, 5)
    assert Interval(Decimal(3), None, False).stepwise() == Interval(4)
    assert Interval(date(2024, 2, 28), date(2024, 3, 1), False, False).stepwise() == Interval(*[date(2024, 2, 29)] * 2)
    assert Interval(3, 4, False, False).stepwise().empty
    with pytest.raises(ValueError, match="no steps"):
        Interval("a", "b").stepwise()


def test_regions_are_disjoint_if_they_are_on_some_attribute() -> None:
    one = Region.of({"city": Members.of("Rome"), "age": Interval(0, 30)})
    assert one.disjoint(Region.of({"age": Interval(31)})) and not one.disjoint(Region.of({"age": Interval(30)}))
    assert not one.disjoint(Region.of({"sex": Members.of("f")})) and not one.disjoint(EVERYWHERE)
    nothing = Region.of({"age": Interval(3, 2)})
    assert nothing.empty and nothing.disjoint(EVERYWHERE) and EVERYWHERE.disjoint(nothing)
    with pytest.raises(ValueError, match="one extent"):
        Region((("a", Interval()), ("a", Interval())))


def test_for_persons_only_what_is_constant_separates() -> None:
    rome, oslo = (Region.of({"city": Members.of(city), "born": Interval(1990)}) for city in ("Rome", "Oslo"))
    assert rome.disjoint(oslo) and not rome.separating({"born"}).disjoint(oslo.separating({"born"}))
    tenth = Decimal("0.1")
    parts = [(rome, tenth), (oslo, 2 * tenth), (Region.of({"city": Members.of("Bonn"), "born": Interval(1990)}), tenth)]
    assert unit_parts(parts, {"city", "born"}, 1) == parts
    felt = Region.of({"born": Interval(1990)})
    assert unit_parts(parts, {"born"}, 2) == [(felt, Decimal("0.3"))], "a person lies in two of the three cities"
    assert unit_parts(parts, {"born"}, 9) == [(felt, Decimal("0.4"))]


def test_many_parts_become_one_at_the_highest_level() -> None:
    parts = [(Region.of({"day": Members.of(day), "x": Interval(day, 40)}), Decimal(day + 1)) for day in range(5)]
    assert fewer_parts(parts, 5) == parts
    merged = fewer_parts(parts, 4)
    assert merged == [(Region.of({"day": Members.of(*range(5)), "x": Interval(0, 40)}), Decimal(5))]
    assert fewer_parts([*parts, (Region.of({"x": Interval(3)}), Decimal(1))], 2) == [
        (Region.of({"x": Interval(0)}), Decimal(5))
    ]


@given(st.decimals(0, 10**12, places=25))
@settings(max_examples=50)
def test_amounts_are_rounded_up_and_never_down(weight: Decimal) -> None:
    assert weight <= coin(quanta(weight)) and quanta(coin(quanta(weight))) == quanta(weight)


@pytest.mark.parametrize("weight", ["-0.1", "NaN", "Infinity"])
def test_a_weight_is_a_finite_number_that_is_not_negative(weight: str) -> None:
    with pytest.raises(ValueError, match="finite"):
        quanta(Decimal(weight))
