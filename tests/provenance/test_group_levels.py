"""Where what the groups of a decision lost falls: disjoint parts of its region, no group above its part's level."""

from __future__ import annotations

from decimal import Decimal
from random import Random

import numpy as np
import pytest
from test_reach import asked

from provenance.model import PredicateLoss
from provenance.reach import group_regions, reach
from proxy.levels import levels
from sqlrewrite.cells import cells

BY_AGE = "SELECT age FROM sick {} GROUP BY age HAVING count(*) > 10"


def losses(*amounts: int) -> PredicateLoss:
    distinct = tuple(sorted(set(amounts)))
    places = [distinct.index(amount) for amount in amounts]
    return PredicateLoss(tuple(Decimal(each) / 1000 for each in distinct), np.array(places, dtype=np.int64))


@pytest.mark.parametrize("where", ["", "WHERE age < 60", "WHERE paid AND age BETWEEN 20 AND 80"])
@pytest.mark.parametrize("most", [2, 3, 7, 30])
def test_every_group_lies_in_one_part_and_lost_no_more_than_its_level(where: str, most: int) -> None:
    question = asked(BY_AGE.format(where))
    domain = cells(question)
    random = Random(most)
    lost = losses(*(random.randint(1, most) for _ in range(domain.size)))
    parts, whole = levels(question, domain, 1, lost), reach(question)
    assert 2 <= len(parts) <= 4 and max(level for _, level in parts) == lost.most
    assert all(region.intersection(whole) == region for region, _ in parts)
    assert all(one.disjoint(other) for at, (one, _) in enumerate(parts) for other, _ in parts[at + 1 :])
    regions = group_regions(question, domain)
    assert regions is not None
    for region, place in zip(regions, lost.index.tolist(), strict=True):
        holding = [level for part, level in parts if not part.disjoint(region)]
        assert region.empty or len(holding) == 1
        assert region.empty or holding[0] >= lost.levels[place]
    assert min(level for _, level in parts) < lost.most, "some groups keep room"


def test_null_is_a_group_as_any_other() -> None:
    question = asked("SELECT ill FROM sick GROUP BY ill HAVING count(*) > 10")
    parts = levels(question, cells(question), 1, losses(5, 1, 3))
    told = {value: level for region, level in parts for value in dict(region.sides)["ill"].values}  # type: ignore[union-attr]
    assert told == {"flu": Decimal("0.005"), "cold": Decimal("0.001"), None: Decimal("0.003")}


def test_where_parts_cannot_be_told_apart_all_bear_the_same() -> None:
    question = asked(BY_AGE.format(""))
    domain = cells(question)
    assert levels(question, domain, 1, losses(*[4] * domain.size)) == [], "all lost the same"
    uneven = losses(*range(1, domain.size + 1))
    assert levels(question, domain, 1, uneven) and levels(question, domain, 2, uneven) == [], "a unit in two groups"
    assert levels(question, domain, 1, losses(1, 2)) == [], "losses of other groups"
    both = asked("SELECT age, paid FROM sick GROUP BY age, paid HAVING count(*) > 10")
    assert levels(both, cells(both), 1, losses(*range(1, cells(both).size + 1))) == []
