"""Relaxation: what is told is what is answered, point by point; it costs nothing unless a patch is bought."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from fractions import Fraction
from random import Random

import pytest

from provenance.combine import Synopsis, from_answers, from_synopsis
from provenance.extent import Extent, Interval, Members, Value
from provenance.region import EVERYWHERE, Region
from provenance.relax import Price, Relaxed, relax
from provenance.released import Released
from provenance.space import Axis, Listed, Opaque, Space, Steps

AGE, SEX, DAY = Steps("age", 0, 8), Listed("sex", ("f", "m", "x")), Steps("day", date(2024, 1, 1), 5)
SPACE = Space((AGE, SEX, DAY))
LOOSE = Space((Steps("age", 0, 8, rest=True), Listed("sex", ("f", "m", "x"), rest=True)))


def values(axis: Axis) -> list[Value]:
    """Every value of an axis, and one beyond where there is such a thing."""
    match axis:
        case Steps():
            return [axis.value(code) for code in range(axis.size)] + ([None] if axis.rest else [])
        case Listed():
            return [*axis.members, *(["beyond"] if axis.rest else [])]
        case Opaque():
            raise AssertionError


def points(space: Space) -> list[dict[str, Value]]:
    cells = itertools.product(*(values(axis) for axis in space.axes))
    return [dict(zip(space.names, cell, strict=True)) for cell in cells]


def random_extent(random: Random, axis: Axis) -> Extent | None:
    if random.random() < 0.25:
        return None
    match axis:
        case Steps():
            low, high = sorted((random.randrange(axis.size), random.randrange(axis.size)))
            return Interval(axis.value(low), axis.value(high))
        case Listed():
            return Members(frozenset(random.sample(axis.members, random.randint(1, 2))))
        case Opaque():
            raise AssertionError


def random_region(random: Random, space: Space) -> Region:
    sides = {axis.name: random_extent(random, axis) for axis in space.axes}
    return Region.of({name: extent for name, extent in sides.items() if extent is not None})


def released(random: Random, space: Space, answers: int) -> tuple[Released, list[Region]]:
    kept, regions = Released(space), list[Region]()
    for number in range(answers):
        regions.append(random_region(random, space))
        assert kept.add(regions[-1], random.randrange(100), random.randint(1, 4)) == number
    return kept, regions


def check(found: Relaxed, regions: Sequence[Region], space: Space) -> None:
    """The terms count every point of the told region once and no other."""
    sources = [(t.factor, regions[t.source] if isinstance(t.source, int) else t.source) for t in found.terms]
    for point in points(space):
        counted = sum((factor for factor, region in sources if region.covers(point)), Fraction(0))
        assert abs(counted - found.region.covers(point)) < Fraction(1, 10**8), (point, found)


@pytest.mark.parametrize("space", [SPACE, LOOSE], ids=["closed", "with more than its codes"])
def test_a_compound_counts_every_unit_of_the_told_region_once_and_no_other(space: Space) -> None:
    relaxed_further = 0
    for seed in range(60):
        random = Random(seed)
        kept, regions = released(random, space, 40)
        asked = random_region(random, space)
        found = relax(kept, asked)
        box = space.box(asked)
        assert found is not None and box is not None
        check(found, regions, space)
        told = space.box(found.region)
        assert told is not None and found.error == space.error(told, box)
        assert found.cost == 0 and not found.patches and 1 <= len(found.terms) <= 3
        numbers = [term.source for term in found.terms if isinstance(term.source, int)]
        assert found.variance == sum(kept.variances[number] for number in numbers)
        assert found.value(kept.values) == sum(
            t.factor * kept.values[n] for t, n in zip(found.terms, numbers, strict=True)
        )
        single = relax(kept, asked, most=1)
        assert single is not None and found.error <= single.error
        relaxed_further += found.error < single.error
    assert relaxed_further > 5


def test_the_paper_s_examples() -> None:
    space = Space((Steps("age", 20, 50), Steps("income", 0, 100)))
    kept = Released(space)

    def ask(ages: tuple[int, int], incomes: tuple[int, int]) -> Region:
        return Region.of({"age": Interval(*ages), "income": Interval(*incomes)})

    kept.add(ask((30, 69), (0, 39)), 10, 2)
    kept.add(ask((30, 69), (40, 99)), 32, 2)
    whole = relax(kept, ask((30, 69), (0, 99)))
    assert whole is not None and whole.error == 0 and whole.value(kept.values) == 42 and whole.variance == 4
    kept.add(Region.of({"age": Interval(30, 69)}), 44, 1)
    upper = relax(kept, ask((30, 69), (40, 99)), most=1)
    assert upper is not None and upper.value(kept.values) == 32
    near = relax(kept, ask((30, 68), (0, 99)))
    assert near is not None and near.region == Region.of({"age": Interval(30, 69)})
    assert near.error == Fraction(1, 2 * 49), "one step of 49 on one of two axes"
    assert near.value(kept.values) == 44, "of equal ones the most precise"


def test_an_answer_can_be_what_the_compound_is_taken_from() -> None:
    kept = Released(Space((AGE,)))
    kept.add(Region.of({"age": Interval(0, 5)}), 30, 1)
    kept.add(EVERYWHERE, 100, 1)
    found = relax(kept, Region.of({"age": Interval(6, 7)}))
    assert found is not None and found.error == 0 and found.value(kept.values) == 70


def test_patches_are_bought_where_the_price_allows_and_are_part_of_the_bill() -> None:
    kept = Released(Space((AGE, SEX)))
    kept.add(Region.of({"age": Interval(0, 5)}), 50, 2)
    asked = Region.of({"age": Interval(0, 4), "sex": Members.of("f", "m")})
    offered: list[list[Region]] = []

    def price(regions: Sequence[Region]) -> Decimal | None:
        offered.append(list(regions))
        return Decimal("0.1") * len(regions)

    free = relax(kept, asked)
    assert free is not None and free.error > 0 and free.cost == 0
    assert relax(kept, asked, price=lambda regions: None) == free, "without budget nothing changes"
    found = relax(kept, asked, price=price, patch_variance=Fraction(3))
    assert found is not None and found.error == 0 and found.region == asked
    assert found.cost == Decimal("0.2") and found.variance == 2 + 2 * 3 and len(found.patches) == 2
    check(found, [Region.of({"age": Interval(0, 5)})], Space((AGE, SEX)))
    bought = dict(zip(found.patches, (Fraction(8), Fraction(5)), strict=True))
    assert found.value(kept.values, bought) == 37
    assert all(len(regions) <= 2 for regions in offered)


def up_to(most: Decimal) -> Price:
    """One for each region, while there is enough."""
    return lambda regions: Decimal(len(regions)) if len(regions) <= most else None


def test_patched_compounds_count_every_unit_once_too() -> None:
    bought = 0
    for seed in range(40):
        random = Random(seed)
        kept, regions = released(random, SPACE, 5)
        asked = random_region(random, SPACE)
        allowed = random.choice((Decimal(1), Decimal(2)))
        found = relax(kept, asked, price=up_to(allowed), patch_variance=Fraction(1))
        assert found is not None
        check(found, regions, SPACE)
        assert found.cost == len(found.patches) <= allowed
        bought += len(found.patches)
    assert bought > 10


def test_the_plan_does_not_depend_on_what_was_answered() -> None:
    for seed in range(20):
        one, other = Released(SPACE), Released(SPACE)
        random = Random(seed)
        for _ in range(30):
            region, variance = random_region(random, SPACE), random.randint(1, 3)
            one.add(region, random.randrange(100), variance)
            other.add(region, random.randrange(10**6), variance)
        asked = random_region(random, SPACE)
        assert relax(one, asked) == relax(other, asked)
        assert from_answers(one, asked) == from_answers(other, asked)


def test_without_anything_released_there_is_nothing_to_relax_to() -> None:
    kept = Released(SPACE)
    assert relax(kept, EVERYWHERE) is None and from_answers(kept, EVERYWHERE) is None
    assert kept.add(Region.of({"height": Interval(3)}), 1, 1) is None, "no axis of this space"
    kept.add(EVERYWHERE, 5, 1)
    assert relax(kept, Region.of({"age": Interval(9, 3)})) is None
    everything = relax(kept, Region.of({"age": Interval(7)}))
    assert everything is not None and everything.region == EVERYWHERE, "whatever is asked, something is answered"


def test_what_lies_beyond_the_codes_is_not_told_as_if_it_were_inside() -> None:
    kept = Released(LOOSE)
    kept.add(EVERYWHERE, 100, 1)
    kept.add(Region.of({"age": Interval(4, 7)}), 40, 1)
    found = relax(kept, Region.of({"age": Interval(0, 3)}))
    assert found is not None and found.region != Region.of({"age": Interval(0, 3)}), "NULL is in the difference"
    check(found, [EVERYWHERE, Region.of({"age": Interval(4, 7)})], LOOSE)


def test_attributes_without_a_domain_must_agree() -> None:
    space = Space((AGE, Opaque("name")))
    kept = Released(space)
    anna, bert = Members.of("Anna"), Members.of("Bert")
    kept.add(Region.of({"age": Interval(0, 3), "name": anna}), 1, 1)
    kept.add(Region.of({"age": Interval(4, 7), "name": bert}), 2, 1)
    kept.add(Region.of({"age": Interval(4, 7), "name": anna}), 4, 1)
    for found in (relax(kept, Region.of({"name": anna})), from_answers(kept, Region.of({"name": anna}))):
        assert found is not None and found.value(kept.values) == 5
        assert found.region == Region.of({"name": anna})
    assert Released(space).add(Region.of({"name": anna}), 1, 1) == 0


@pytest.mark.parametrize("space", [SPACE, LOOSE], ids=["closed", "with more than its codes"])
def test_linear_combinations_give_the_told_region(space: Space) -> None:
    better = found_some = 0
    for seed in range(40):
        random = Random(seed)
        kept, regions = released(random, space, 25)
        asked = random_region(random, space)
        found, compound = from_answers(kept, asked), relax(kept, asked)
        assert compound is not None
        if found is None:
            continue
        found_some += 1
        check(found, regions, space)
        exact = sum(
            float(t.factor) ** 2 * float(kept.variances[t.source]) for t in found.terms if isinstance(t.source, int)
        )
        assert float(found.variance) == pytest.approx(exact)
        better += (found.error, found.variance) < (compound.error, compound.variance)
    assert found_some > 20 and better > 0


def test_least_squares_uses_every_way_to_the_same_number() -> None:
    kept = Released(Space((AGE,)))
    for region, value in ((Interval(0, 3), 10), (Interval(4, 7), 20)):
        kept.add(Region.of({"age": region}), value, 1)
    kept.add(EVERYWHERE, 33, 1)
    found = from_answers(kept, EVERYWHERE)
    assert found is not None and found.error == 0
    assert found.variance == Fraction(2, 3), "1 alone, 2 by the sum, 2/3 by both"
    assert found.value(kept.values) == Fraction(2, 3) * 33 + Fraction(1, 3) * 30


def test_a_synopsis_answers_the_nearest_region_of_whole_cells() -> None:
    ages, sexes = ((0, 1), (2, 3), (4, 7)), ((1, 0), (6, 0))
    synopsis = Synopsis({"age": ages, "sex": sexes}, Fraction(5))
    cells = [
        Region.of({"age": Interval(*a), "sex": Members(frozenset(m for n, m in enumerate("fmx") if s[0] >> n & 1))})
        for a in ages
        for s in sexes
    ]
    for seed in range(60):
        random = Random(seed)
        asked = random_region(random, SPACE)
        found, box = from_synopsis(SPACE, synopsis, asked), SPACE.box(asked)
        assert found is not None and box is not None and found.variance == 5 * len(found.terms)
        check(found, cells, SPACE)
        least = min(
            SPACE.error(((ages[i][0], ages[j][1]), (sum(m for m, _ in some), 0), DAY.whole), box)
            for i in range(3)
            for j in range(i, 3)
            for some in ((sexes[0],), (sexes[1],), sexes)
        )
        assert found.error == least
    exact = from_synopsis(SPACE, synopsis, Region.of({"age": Interval(2, 7), "sex": Members.of("f")}))
    assert exact is not None and exact.error == 0 and [t.source for t in exact.terms] == [2, 4]


def test_codes_and_extents_are_two_forms_of_one_thing() -> None:
    cents = Steps("amount", Decimal("0.00"), 50_001, Decimal("0.01"))
    assert cents.span(Interval(Decimal("1.005"), 3, True, False)) == (101, 299)
    assert cents.extent((101, 299)) == Interval(Decimal("1.01"), Decimal("2.99"))
    assert DAY.span(Interval(date(2024, 1, 2), None, False)) == (2, 4) and AGE.span(Interval("a")) is None
    assert AGE.span(Members.of(3, 4)) == (3, 4) and AGE.span(Members.of(3, 5)) is None
    assert AGE.span(Members.of(-1, 7, 8)) == (7, 7) and AGE.span(Members.of(Decimal("2.5"), 9)) is None
    assert cents.span(Members.of(1, Decimal("1.01"), Decimal("1.015"))) == (100, 101)
    assert DAY.span(Members.of(date(2024, 1, 5), date(2024, 1, 6))) == (4, 4) and AGE.span(Members.of("a")) is None
    for space in (SPACE, LOOSE):
        for seed in range(50):
            region = random_region(Random(seed), space)
            box = space.box(region)
            assert box is not None
            again = space.region(box)
            assert again is not None and space.box(again) == box
            assert all(again.covers(point) == region.covers(point) for point in points(space))
    with pytest.raises(ValueError, match="different members"):
        Listed("x", (1, 1))
