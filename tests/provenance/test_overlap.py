"""Overlap: no bound is below the heaviest point, exact ones are that point, and a charge adds without rebuilding."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from random import Random

import networkx as nx
import numpy as np
import pytest
from overlap_sets import Part, random_set, region, truth, weight

from provenance import touching
from provenance.boxing import boxed
from provenance.buckets import Buckets
from provenance.clique import clique, overlap
from provenance.colouring import colour_bound, colouring
from provenance.extent import Interval, Members
from provenance.overlap import Overlap, bucket_bound
from provenance.region import EVERYWHERE, Region, coin, quanta
from provenance.sweep import sweep
from provenance.touching import Bits, Index, numbers
from provenance.weighing import Weights

PLENTY = 10**9
TENTH = Decimal("0.1")


def graph(parts: list[Part]) -> tuple[list[Region], list[Bits], Weights, Index]:
    """The regions with something in them, what each overlaps, and their weights; made pair by pair."""
    regions = [region for region, _ in parts if not region.empty]
    near = [
        sum(1 << j for j, other in enumerate(regions) if i != j and not r.disjoint(other))
        for i, r in enumerate(regions)
    ]
    weights, index = Weights(), Index()
    for each, amount in parts:
        if not each.empty:
            weights.append(quanta(amount))
            index.add(each)
    return regions, near, weights, index


def bounds(parts: list[Part]) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """All exact methods, and all that need not be."""
    regions, near, weights, index = graph(parts)
    every = (1 << len(regions)) - 1
    swept = sweep(index, weights, every, EVERYWHERE, 0, PLENTY)
    little = sweep(index, weights, every, EVERYWHERE, 0, 40)
    classes = colouring(near, weights, every, PLENTY)
    assert swept is not None and classes is not None
    counted = bucket_bound(list(zip(regions, weights.each, strict=True)), 0, 30)
    total = sum(weights.each)
    grown = Overlap()
    for part in parts:
        foretold = grown.after([part])
        assert grown.add([part]) == foretold == grown.bound()
    exact = {
        "sweep": swept.amount,
        "branch and bound": overlap(regions, near, weights, every, EVERYWHERE, 0, PLENTY).amount,
        "all at once": quanta(Overlap.of(parts).bound()),
        "one by one": quanta(grown.bound()),
    }
    safe = {
        "clique": clique(near, weights, every, 0, PLENTY).amount,
        "colouring": colour_bound(classes, weights),
        "buckets": total if counted is None else counted,
        "sweep, cut off": total if little is None else little.amount,
        "branch and bound, cut off": overlap(regions, near, weights, every, EVERYWHERE, 0, 7).amount,
        "with little work": quanta(Overlap.of(parts, work=5).bound()),
        "one by one with little work": quanta(_grown(parts, 5).bound()),
    }
    return exact, safe


def _grown(parts: list[Part], work: int) -> Overlap:
    kept = Overlap()
    for part in parts:
        kept.add([part], work)
    return kept


def check(seed: int) -> None:
    parts = random_set(Random(seed))
    heaviest = truth(parts)
    exact, safe = bounds(parts)
    assert exact == dict.fromkeys(exact, heaviest), seed
    assert not {name: bound for name, bound in safe.items() if bound < heaviest}, seed


@pytest.mark.parametrize("block", range(3))
def test_no_bound_is_below_the_heaviest_point(block: int) -> None:
    for seed in range(100 * block, 100 * block + 100):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_no_bound_is_below_the_heaviest_point_in_ten_thousand_sets(block: int) -> None:
    for seed in range(1000 + 500 * block, 1500 + 500 * block):
        check(seed)


def test_a_colouring_without_the_overlaps_would_be_noticed() -> None:
    regions, near, weights, _ = graph([(EVERYWHERE, TENTH), (Region.of({"x": Interval(3)}), TENTH)])
    right, wrong = colouring(near, weights, 3, PLENTY), colouring([0, 0], weights, 3, PLENTY)
    assert right is not None and wrong is not None
    heaviest = truth([(each, TENTH) for each in regions])
    assert colour_bound(wrong, weights) < heaviest == colour_bound(right, weights)


def test_an_index_that_forgets_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(self: Index, region: Region) -> Bits:
        return 0

    monkeypatch.setattr(touching.Index, "touching", forgetful)
    with pytest.raises(AssertionError):
        for seed in range(20):
            check(seed)


def test_the_index_finds_what_overlaps_and_nothing_else() -> None:
    random = Random(3)
    for _ in range(200):
        index, known = Index(), list[Region]()
        for _ in range(15):
            new = region(random, "abc")
            assert index.touching(new) == sum(1 << i for i, old in enumerate(known) if not old.disjoint(new))
            if not new.empty:
                index.add(new)
                known.append(new)


def test_regions_on_very_many_attributes_are_compared_by_themselves() -> None:
    random = Random(5)
    index, known = Index(), list[Region]()
    for _ in range(60):
        share = random.choice((1, 3, 150, 250))
        names = random.sample(range(300), share)
        new = Region.of({f"a{n}": Members.of(*random.sample(range(60), random.choice((1, 50)))) for n in names})
        assert index.touching(new) == sum(1 << i for i, old in enumerate(known) if not old.disjoint(new))
        index.add(new)
        known.append(new)
    every = (1 << 60) - 1
    assert index.places(every, EVERYWHERE, PLENTY) is None


def test_forty_disjoint_questions_weigh_as_much_as_one_and_overlapping_ones_add_up() -> None:
    kept = Overlap()
    for disease in range(40):
        kept.add([(Region.of({"disease": Members.of(disease)}), TENTH)])
    assert kept.bound() == TENTH and kept.exact
    assert kept.after([(Region.of({"age": Interval(0, 30)}), TENTH)]) == 2 * TENTH
    assert kept.add([(Region.of({"age": Interval(0, 30)}), TENTH)]) == 2 * TENTH
    assert kept.add([(Region.of({"age": Interval(31, 60)}), TENTH)]) == 2 * TENTH
    assert kept.add([(EVERYWHERE, TENTH)]) == 3 * TENTH and kept.exact


def test_parts_of_one_charge_that_are_disjoint_count_once() -> None:
    groups = [(Region.of({"g": Members.of(g)}), coin(g + 1)) for g in range(10)]
    kept = Overlap()
    assert kept.add(groups) == coin(10) and kept.exact and kept.version == 1
    assert kept.add(groups[:5]) == coin(10) and kept.add(groups[5:]) == coin(20)
    overlapping = [(Region.of({"x": Interval(0, 5)}), TENTH), (Region.of({"x": Interval(3, 9)}), TENTH)]
    fresh = Overlap()
    assert fresh.after(overlapping) == fresh.add(overlapping) == 2 * TENTH


def test_parts_are_bounded_also_where_they_overlap() -> None:
    for seed in range(20):
        random = Random(seed)
        kept, every = Overlap(), list[Part]()
        for _ in range(3):
            parts = random_set(random)[:4]
            every += parts
            foretold = kept.after(parts)
            assert kept.add(parts) == foretold
        heaviest = truth(every)
        assert quanta(kept.bound()) >= heaviest
        if kept.exact:
            assert quanta(kept.bound()) == heaviest


def test_what_touches_nothing_costs_nothing() -> None:
    kept = Overlap()
    assert kept.add([(Region.of({"x": Interval(3, 2)}), TENTH), (EVERYWHERE, Decimal(0))]) == 0
    assert len(kept) == 0 and kept.exact and Overlap.of([]).bound() == 0


def test_what_is_given_back_makes_room() -> None:
    for seed in range(20):
        random = Random(seed)
        parts = random_set(random)
        kept = Overlap.of(parts)
        back = [(region, amount / 2) for region, amount in parts if random.random() < 0.5]
        left = [*parts, *((region, -amount) for region, amount in back)]
        kept.give_back(back)
        names = {region for region, _ in parts}
        # What is given back is rounded down: at most one smallest amount stays for each.
        rest = [(region, sum((a for r, a in left if r == region), Decimal(0))) for region in names]
        heaviest = truth(rest)
        assert heaviest <= quanta(kept.bound()) <= heaviest + len(back)
    with pytest.raises(ValueError, match="more is given back"):
        Overlap.of([(EVERYWHERE, TENTH)]).give_back([(EVERYWHERE, 2 * TENTH)])
    with pytest.raises(ValueError, match="nothing was charged"):
        Overlap.of([(EVERYWHERE, TENTH)]).give_back([(Region.of({"x": Interval(2)}), TENTH)])


def test_what_was_written_goes_on_as_if_it_had_never_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(60):
        parts = random_set(Random(seed))
        half = len(parts) // 2
        first = Overlap()
        for part in parts[:half]:
            first.add([part])
        second = Overlap.load(first.dump())
        assert second.dump() == first.dump() and second.version == half
        for part in parts[half:]:
            assert second.add([part]) == first.add([part])
        assert second.dump() == first.dump()
    kept = Overlap.of(random_set(Random(7))).dump()
    monkeypatch.setattr(Region, "disjoint", None)
    monkeypatch.setattr(Index, "touching", None)
    assert Overlap.load(kept).dump() == kept, "nothing is compared again"


def test_a_new_charge_compares_itself_only(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Overlap.of([(Region.of({"x": Members.of(n)}), TENTH) for n in range(300)])
    asked: list[Region] = []
    plain = Index.touching
    monkeypatch.setattr(Index, "touching", lambda self, region: asked.append(region) or plain(self, region))
    new = Region.of({"x": Interval(5, 8)})
    kept.add([(new, TENTH)])
    assert set(asked) == {new}, "the overlap graph is not made again"


def test_the_same_charges_give_the_same_bound_on_every_machine() -> None:
    random = Random(11)
    parts = [(region(random, "abcdefgh"), weight(random)) for _ in range(150)]
    one, other = Overlap(), Overlap()
    for part in parts:
        one.add([part])
        other.add([part])
    assert one.dump() == other.dump()


def test_buckets_keep_every_point_within_the_limit() -> None:
    rng = np.random.default_rng(2)
    for most in (1, 10, 200):
        buckets, grid = Buckets([0, 0], [19, 14], most), np.zeros((20, 15), np.int64)
        taken = 0
        for _ in range(400):
            low = rng.integers(0, (20, 15))
            high = np.minimum(low + rng.integers(0, 6, 2), (19, 14))
            units = int(rng.integers(1, 4))
            room = buckets.room(low, high, 12)
            if buckets.process(low, high, units, 12):
                assert room >= units
                grid[low[0] : high[0] + 1, low[1] : high[1] + 1] += units
                taken += 1
            else:
                assert room < units
            assert grid.max() <= buckets.bound <= 12
        assert len(buckets) <= most + 8 and taken
    assert taken > 40


def test_more_buckets_take_more() -> None:
    taken = []
    for most in (1, 20, 500):
        rng = np.random.default_rng(4)
        buckets = Buckets([0, 0], [99, 99], most)
        low = rng.integers(0, 80, (600, 2))
        taken.append(sum(buckets.process(each, each + 20, 1, 10) for each in low))
    assert taken == sorted(taken) and taken[2] > 2 * taken[0]


def test_a_bucket_that_everything_covers_is_not_split() -> None:
    buckets = Buckets([0], [9], 100)
    box = np.array([0]), np.array([9])
    assert buckets.process(*box, 5, 5) and len(buckets) == 1 and not buckets.split(0)
    assert not buckets.process(*box, 1, 5) and buckets.bound == 5


def test_boxes_hold_their_regions() -> None:
    for seed in range(200):
        regions = [region for region, _ in random_set(Random(seed)) if not region.empty]
        boxes = boxed(regions, 3)
        if boxes is None:
            assert not any(region.sides for region in regions)
            continue
        for i, one in enumerate(regions):
            hit = boxes.touching(boxes.low[i], boxes.high[i])
            assert all(hit[j] for j, other in enumerate(regions) if not one.disjoint(other))
    assert boxed([Region.of({f"a{n}": Interval(1) for n in range(5)})], 4) is None


def test_totals_are_exact_for_any_weights() -> None:
    random = Random(1)
    weights, plain = Weights(), list[int]()
    for _ in range(200):
        plain.append(random.choice((7, random.randrange(10**25))))
        weights.append(plain[-1])
        change = random.randrange(len(plain))
        plain[change] = random.choice((0, random.randrange(10**20)))
        weights.change(change, plain[change])
        bits = random.getrandbits(len(plain))
        assert weights.total(bits) == sum(plain[n] for n in numbers(bits))
    heavy = weights.heaviest_first(bits)
    assert [plain[n] for n in heavy] == sorted((plain[n] for n in numbers(bits) if plain[n]), reverse=True)


def test_a_census_workload_is_solved_exactly() -> None:
    random = Random(6)
    sizes = {"age": 5, "marital": 4, "race": 7, "gender": 2}
    parts = []
    for _ in range(800):
        sides = {name: random.randint(0, size) for name, size in sizes.items()}
        chosen = {name: Members.of(value) for name, value in sides.items() if value < sizes[name]}
        parts.append((Region.of({"income": Interval(0, 150 * random.randint(1, 5000), True, False), **chosen}), TENTH))
    kept = Overlap.of(parts[:700])
    for part in parts[700:]:
        kept.add([part])
    assert kept.exact and kept.bound() == Overlap.of(parts).bound()
    cells = [(a, m, r, g) for a in range(5) for m in range(4) for r in range(7) for g in range(2)]
    points = [dict(zip(("age", "marital", "race", "gender"), cell, strict=True)) | {"income": 1} for cell in cells]
    assert kept.bound() == max(sum(w for region, w in parts if region.covers(point)) for point in points)


def test_a_domain_of_twenty_thousand_attributes_is_no_obstacle() -> None:
    rng = np.random.default_rng(8)
    values = [Members.of(*np.flatnonzero(rng.random(10) < share).tolist(), 0) for share in rng.random(50)]
    values += [Members.of(int(n)) for n in range(10)]
    parts = []
    for _ in range(40):
        chosen = np.sort(rng.choice(20_000, int(rng.integers(1, 20_000)), replace=False))
        picks = rng.integers(0, len(values), len(chosen))
        parts.append((Region.of({f"a{n:05d}": values[p] for n, p in zip(chosen, picks, strict=True)}), TENTH))
    kept = Overlap.of(parts)
    assert kept.exact and TENTH <= kept.bound() <= 2


def test_values_of_different_kinds_on_one_attribute_add_up() -> None:
    number, text, other = (Region.of({"x": Members.of(value)}) for value in (1, "1", "2"))
    for order in ((number, text, other), (text, number, other), (text, other, number)):
        parts = [(each, TENTH) for each in order]
        grown = Overlap()
        for part in parts:
            grown.add([part])
        assert grown.bound() >= 2 * TENTH and Overlap.of(parts).bound() >= 2 * TENTH


def test_the_colouring_needs_about_as_many_classes_as_that_of_networkx() -> None:
    random = Random(12)
    for size in (20, 60, 120):
        plain = nx.gnp_random_graph(size, random.random(), seed=random.randrange(10**6))
        near = [sum(1 << other for other in plain[node]) for node in range(size)]
        weights = Weights()
        for _ in range(size):
            weights.append(1)
        classes = colouring(near, weights, (1 << size) - 1, PLENTY)
        assert classes is not None and sum(classes) == (1 << size) - 1
        assert all(not near[one] & held for held in classes for one in numbers(held))
        theirs = 1 + max(nx.greedy_color(plain, strategy="DSATUR").values())
        assert len(classes) <= theirs + 2
        assert colouring(near, weights, (1 << size) - 1, 0) is None, "more work than is allowed"


@pytest.mark.parametrize("seed", range(30))
def test_what_would_be_left_is_foreseen_and_changes_nothing(seed: int) -> None:
    random = Random(seed)
    parts = random_set(random)
    kept = Overlap.of(parts)
    before = kept.dump()
    given = [part for part in parts if not part[0].empty][:1]
    foreseen = kept.without(given)
    assert kept.dump() == before
    assert kept.give_back(given) == foreseen
    rest = [(where, weight) for where, weight in parts if (where, weight) not in given[:1]]
    extra = sum(1 for part in parts if part in given) - len(given)
    rest += given * extra
    assert quanta(foreseen) == truth(rest) if rest else foreseen == 0


def test_what_would_be_left_of_a_region_that_bears_nothing_is_an_error() -> None:
    kept = Overlap.of([(Region.of({"a": Members.of(1)}), Decimal(1))])
    before = kept.dump()
    with pytest.raises(ValueError, match="nothing was charged"):
        kept.without([(Region.of({"a": Members.of(2)}), Decimal(1))])
    assert kept.dump() == before
