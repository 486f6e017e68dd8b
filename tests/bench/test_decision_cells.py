"""The questions of the bench ``decisions``: what is counted, what is true, and how their trees are read."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from bench.decision import sources
from bench.decision.cells import SELECTIVITIES, Cell, at_z, cell, shaped, shapes
from bench.decision.groups import Groups, codes
from bench.decision.workloads import Workload
from bench.decisions import run
from mechanisms.condition import And, Leaf, Or, atoms, holds
from mechanisms.decision import Test as Atom
from mechanisms.loss import Coin

RNG = np.random.default_rng(20)
ROWS = 40_000
KEY = np.minimum(RNG.geometric(0.008, ROWS) - 1, 399)
VALUE = RNG.integers(0, 120, ROWS)
PERSON = RNG.integers(0, 500, ROWS)
FILTERS = [RNG.random(ROWS) < share for share in (0.7, 0.5, 0.4, 0.3)]


@pytest.fixture(scope="module")
def totals() -> Workload:
    groups = Groups(codes(KEY, range(400)))
    filtered = (groups.rows(f"filter {i}", where) for i, where in enumerate(FILTERS))
    return Workload("made up", "none", (groups.rows(), groups.sum("sum", VALUE, 100), *filtered))


@pytest.fixture(scope="module")
def averages() -> Workload:
    groups = Groups(codes(KEY, range(400)))
    parts = (groups.average("value", VALUE, 10, 100), groups.average("filter", 100 * FILTERS[0], 0, 100))
    return Workload("made up averages", "none", (groups.rows(),), parts, support=60)


def usual() -> dict[int, float]:
    """The average of each group with 60 rows and more."""
    clamped = VALUE.clip(10, 100)
    return {group: float(clamped[group == KEY].mean()) for group in range(400) if np.sum(group == KEY) >= 60}


def centre(z: float) -> int:
    means = np.array(list(usual().values()))
    return round(float(means.mean() + z * means.std()))


def test_sums_and_distinct_people_are_those_of_the_rows() -> None:
    groups = Groups(codes(KEY, range(400)))
    where = FILTERS[0]
    people, clamped = groups.people("people", PERSON, where).values, groups.sum("sum", VALUE, 100, where).values
    spent = groups.spent("spent", PERSON, VALUE, 150).values
    for group in (0, 7, 60, 399):
        rows = group == KEY
        assert people[group] == len(set(PERSON[rows & where]))
        assert clamped[group] == VALUE[rows & where].clip(0, 100).sum()
        each = [VALUE[rows & (one == PERSON)].sum() for one in set(PERSON[rows])]
        assert spent[group] == sum(min(150, one) for one in each)


def test_groups_of_two_keys_are_their_product_and_other_values_fall_out() -> None:
    one, other = np.array([3, 5, 3, 9]), np.array(["b", "a", "a", "b"], dtype=object)
    groups = Groups(codes(one, (3, 5)), codes(other))
    assert groups.size == 4 and groups.place.tolist() == [1, 2, 0, -1]
    assert groups.rows().values.tolist() == [1, 1, 1, 0]


def test_a_person_stays_in_as_many_groups_as_it_may() -> None:
    bounded = Groups(codes(KEY, range(400))).bounded(PERSON, 4)
    kept: dict[int, set[int]] = {}
    for person, place in zip(PERSON, bounded.place, strict=True):
        if place >= 0:
            kept.setdefault(int(person), set()).add(int(place))
    assert max(map(len, kept.values())) == 4 and len(kept) == len(set(PERSON))
    inside = bounded.place >= 0
    for person in list(kept)[:50]:
        rows = (person == PERSON) & np.isin(KEY, list(kept[person]))
        assert inside[rows].all(), "all rows of a group that is kept are kept"


@pytest.mark.parametrize("n", [3, 4, 5, 6])
def test_a_mixed_tree_has_both_operators_and_every_leaf_once(n: int) -> None:
    tree = shaped("mix", range(n), "seed")
    assert sorted(atoms(tree)) == list(range(n))
    assert "And" in repr(tree) and "Or" in repr(tree)
    assert tree == shaped("mix", range(n), "seed") and isinstance(shaped("or", range(n), ""), Or)


def test_thresholds_let_about_the_wanted_share_qualify(totals: Workload, averages: Workload) -> None:
    asked = 0
    for workload in (totals, averages):
        for place, (n, kind) in enumerate(shapes(workload)):
            for target in SELECTIVITIES:
                one = cell(workload, n, kind, target, place)
                if one is None:
                    continue
                asked += 1
                assert one.n == n and one.truth.sum() >= 2 and target / 2.5 <= one.selectivity <= target * 2.5
    assert asked > 60


def test_truth_and_prime_terms_are_those_of_the_tree(totals: Workload) -> None:
    one = cell(totals, 5, "mix", 0.05)
    assert one is not None
    for group in range(0, 400, 17):
        found = [bool(one.values[t.statistic, group] >= t.threshold) for t in one.tests]
        assert one.truth[group] == holds(one.tree, found.__getitem__)
    problem = one.problem(Coin.PURE)
    for passed in product((False, True), repeat=5):
        true = holds(one.tree, passed.__getitem__)
        assert true == any(all(passed[atom] for atom in term) for term in problem.implicants)
        assert true == all(any(passed[atom] for atom in term) for term in problem.implicates)


def test_an_average_is_a_centred_sum_behind_its_guard(averages: Workload) -> None:
    one = at_z(averages, 2, "and", 0.5)
    means, c = usual(), centre(0.5)
    expected = {group for group, mean in means.items() if mean >= c}
    assert set(np.flatnonzero(one.truth).tolist()) == expected and 0 < len(expected) < len(means)
    assert one.sensitivities == (1, max(c - 10, 100 - c)) and one.tests[1].scale == 60 * one.sensitivities[1]


def test_no_unit_moves_a_statistic_by_more_than_its_sensitivity(totals: Workload, averages: Workload) -> None:
    without = Groups(codes(KEY, range(400)))
    for row in RNG.choice(ROWS, 20, replace=False):
        rest = without.only(np.arange(ROWS) != row)
        for whole, part in (
            (totals.totals[0], rest.rows()),
            (totals.totals[1], rest.sum("sum", VALUE, 100)),
        ):
            assert 0 <= np.abs(whole.values - part.values).sum() <= whole.sensitivity
        one = at_z(averages, 2, "and", 0.5)
        average = rest.average("value", VALUE, 10, 100)
        moved = one.values[1] - (average.sums - centre(0.5) * average.rows)
        assert 0 < np.abs(moved).sum() <= one.sensitivities[1]


def test_the_floor_is_by_the_nearest_pair_of_groups() -> None:
    values = np.array([[100, 90, 4], [50, 10, 300]])
    tests = (Atom(0, +1, 95, 95, 96), Atom(1, +1, 40, 40, 290))
    one = Cell("w", "d", "and", 0.0, values, (1, 10), tests, And((Leaf(0), Leaf(1))))
    assert one.truth.tolist() == [True, False, False]
    assert one.floor() == pytest.approx(np.log(0.9 / 0.05) / (10 + 4)), "ten units of one and four of the other"


def test_without_the_data_the_bench_says_so_and_skips(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr(sources, "DATA", tmp_path)
    report = run(smoke=True)
    assert "SKIPPED" in report.notes[0] and sources.TAXI in report.numbers["skipped"]
