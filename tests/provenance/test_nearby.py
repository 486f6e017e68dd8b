"""The number of a nearby region: what is told is what was counted, row by row, whatever was known."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from provenance.extent import Interval, Members, Value
from provenance.nearby import Fact, Nearby, space_of
from provenance.region import EVERYWHERE, Region
from provenance.shape import Shape
from provenance.space import Listed, Opaque, Steps
from sqlrewrite.catalog import Attribute, Kind, Relation

DAYS = tuple(date(2024, 1, 1) + timedelta(days=day) for day in range(5))
SICK = Relation(
    1, "public", "sick", Kind.PROTECTED,
    {
        a.name: a
        for a in (
            Attribute("age", "integer", True, lower=Decimal(0), upper=Decimal(9), checked=True),
            Attribute("ill", "text", False, ("cold", "flu"), bytewise=True),
            Attribute("day", "date", True, DAYS),
            Attribute("note", "text", False, bytewise=True),
        )
    },
)  # fmt: skip
ROWS = [
    dict(zip(SICK.attributes, row, strict=True))
    for row in itertools.product(range(10), ("cold", "flu", "other", None), DAYS, ("x", None))
]


def count(region: Region, weights: list[int]) -> int:
    return sum(weight for row, weight in zip(ROWS, weights, strict=True) if region.covers(row))


def fact(weights: list[int], *regions: Region, variance: int = 4) -> Fact:
    return Fact(Shape("rows", regions), np.array([count(region, weights) for region in regions]), Fraction(variance))


def aged(low: int, high: int) -> Region:
    return Region.of({"age": Interval(low, high)})


def random_region(random: Random) -> Region:
    sides: dict[str, Interval | Members] = {}
    if random.random() < 0.7:
        low, high = sorted(random.choices(range(10), k=2))
        sides["age"] = Interval(low, high)
    if random.random() < 0.5:
        sides["ill"] = Members(frozenset(random.sample(("cold", "flu", None), random.randint(1, 2))))
    if random.random() < 0.3:
        sides["day"] = Interval(*sorted(random.choices(DAYS, k=2)))
    if random.random() < 0.1:
        sides["note"] = random.choice((Members.of("x"), Members.of(None), Interval()))
    return Region.of(sides)


@pytest.mark.parametrize("seed", range(40))
def test_a_number_without_noise_is_the_count_of_the_told_region(seed: int) -> None:
    random = Random(seed)
    weights = [random.randrange(50) for _ in ROWS]
    facts = [fact(weights, random_region(random)) for _ in range(random.randint(1, 25))]
    around = random_region(random)
    cells = [around.intersection(Region.of({"ill": Members.of(value)})) for value in ("cold", "flu", None)]
    facts.append(fact(weights, *cells))
    asked = random_region(random)
    near = Nearby(SICK, facts, [asked]).find(asked)
    assert near is not None
    assert abs(near.value - count(near.region, weights)) < Fraction(1, 1000), (asked, near)
    assert near.error >= 0 and (near.error > 0 or count(near.region, weights) == count(asked, weights))


def test_the_cells_of_a_histogram_are_added_up() -> None:
    weights = [1] * len(ROWS)
    by_age = fact(weights, *(aged(age, age) for age in range(10)))
    asked = aged(2, 6)
    near = Nearby(SICK, [by_age], [asked]).find(asked)
    assert near is not None and (near.region, near.error, near.variance) == (asked, 0, 5 * 4)
    assert near.value == count(asked, weights)


def test_of_equally_near_ones_the_most_precise_is_taken() -> None:
    weights = [1] * len(ROWS)
    asked = aged(2, 6)
    facts = [fact(weights, *(aged(age, age) for age in range(10))), fact(weights, asked, variance=9)]
    near = Nearby(SICK, facts, [asked]).find(asked)
    assert near is not None and near.error == 0 and near.variance < 9, "both together are better than each"


def test_groups_are_not_relaxed_into_each_other() -> None:
    weights = [1] * len(ROWS)
    known = fact(weights, *(Region.of({"ill": Members.of(value)}) for value in ("cold", None)))
    cold, flu = (Region.of({"ill": Members.of(value), "age": Interval(0, 8)}) for value in ("cold", "flu"))
    free, kept = Nearby(SICK, [known], [cold, flu]), Nearby(SICK, [known], [cold, flu], {"ill"})
    assert free.find(flu) is not None
    assert kept.find(flu) is None
    near = kept.find(cold)
    assert near is not None and near.region == Region.of({"ill": Members.of("cold")})
    assert near.error == free.find(cold).error == Fraction(1, 9) / 3  # type: ignore[union-attr]


def test_what_is_not_told_exactly_on_an_axis_is_not_used() -> None:
    weights = [1] * len(ROWS)
    known = [fact(weights, Region.of({"ill": Interval()})), fact(weights, Region.of({"ill": Members.of("other")}))]
    assert Nearby(SICK, known, [EVERYWHERE]).find(EVERYWHERE) is None


def test_nothing_is_near_if_nothing_is_known() -> None:
    assert Nearby(SICK, [], [EVERYWHERE]).find(EVERYWHERE) is None


def test_one_value_of_a_column_with_a_billion_is_found_at_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: an analyst whom a limit refuses asks for one number after the other, and keeps the proxy counting."""
    bill = Attribute("bill", "bigint", False, lower=Decimal(0), upper=Decimal(10**9))
    billed = replace(SICK, attributes={"bill": bill})
    asked, looked, steps = Region.of({"bill": Members.of(7, 8)}), Steps.value, iter(range(1000))

    def value(axis: Steps, code: int) -> Value:
        assert next(steps, None) is not None, "it counts"
        return looked(axis, code)

    monkeypatch.setattr(Steps, "value", value)
    known = [Fact(Shape("rows", (asked,)), np.array([5]), Fraction(1))]
    near = Nearby(billed, known, [asked]).find(asked)
    assert near is not None and (near.value, near.error) == (5, 0)


def test_declared_columns_are_axes_and_others_if_they_are_mentioned() -> None:
    age, ill, day = space_of(SICK, ()).axes
    assert age == Steps("age", 0, 10, 1, False), "NOT NULL and a CHECK: there is nothing else"
    assert ill == Listed("ill", ("cold", "flu", None), rest=True)
    assert day == Steps("day", DAYS[0], 5, 1, True)
    assert space_of(SICK, ["note"]).axes[-1] == Opaque("note")
    fee = Attribute("fee", "numeric(6,2)", False, lower=Decimal(0), upper=Decimal("2.5"))
    gaps = Attribute("gaps", "date", True, DAYS[::2])
    flag = Attribute("flag", "boolean", False)
    other = replace(SICK, attributes={a.name: a for a in (fee, gaps, flag)})
    assert space_of(other, ["gaps"]).axes == (
        Steps("fee", Decimal("0.00"), 251, Decimal("0.01"), True),
        Opaque("gaps"),
        Listed("flag", (False, True, None)),
    )


def test_a_shape_is_stored_and_read() -> None:
    around = Region.of({"age": Interval(3, None), "note": Members.of("ü\"'")})
    cells = tuple(around.intersection(Region.of({"ill": Members.of(value)})) for value in ("cold", "flu", None))
    for shape in (Shape("rows", cells), Shape("rows", (EVERYWHERE,)), Shape("rows", (around,))):
        assert Shape.parse("rows", shape.text) == shape
    assert Shape("rows", cells).text.count("age") == 1, "what all cells share stands once"
