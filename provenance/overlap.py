"""What the charges so far weigh at the heaviest point of the data domain, kept up to date as charges come in.

A unit lies on one point; what it has lost is the total of the charges whose region covers that point. A limit bounds
the largest such total. Finding it is NP-hard (seed 3, Thm 9), so what is kept is an upper bound, the smallest of
several safe ones:

    sweep       exact, on one attribute or a small grid
    overlap     exact, by branch and bound on the overlap graph; cut off after a fixed amount of work, and safe then too
    colouring   classes of disjoint regions (DSATUR)
    buckets     a histogram that is split where it is fullest

A charge never rebuilds anything: only points inside its own region gain weight, so the new bound is the larger of the
old one and of what its region and the ones that touch it weigh together. Weights are whole numbers of the smallest
amount of coin, so sums are exact. The work is counted in steps on sets, never by the clock: the same charges give the
same bound on every replica.

    kept = Overlap()
    kept.after([(region, weight)])    # what the bound would be
    kept.add([(region, weight)])      # the charge was committed
    kept.bound()                      # what counts against the limit
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from decimal import Decimal

from mechanisms.loss import round_down
from provenance.boxing import boxed
from provenance.buckets import Buckets
from provenance.clique import overlap
from provenance.colouring import colour_bound, colouring
from provenance.region import EVERYWHERE, Part, Region, coin, quanta
from provenance.sweep import Bound, sweep
from provenance.touching import Bits, Index, numbers
from provenance.weighing import Weights

WORK_OF_A_CHARGE = 20_000
"""Steps that each method may take for one charge: some milliseconds."""
WORK_FROM_SCRATCH = 400_000

_LEAST_WORK = 500  # for each of many parts
_SPLITS = 200
_BUCKET_AXES = 16
_MOST_INT = 1 << 61


class Overlap:
    """Weighted regions, their overlap graph, and a bound on the heaviest point."""

    __slots__ = ("_bound", "_heavy", "_index", "_near", "_numbers", "_regions", "_weights", "version")

    def __init__(self) -> None:
        self._regions: list[Region] = []
        self._numbers: dict[Region, int] = {}
        self._weights = Weights()
        self._near: list[Bits] = []
        self._index = Index()
        self._bound = 0
        self._heavy: Region | None = EVERYWHERE  # whose points bear the bound; None if no such point is known
        self.version = 0
        """How many changes were made."""

    @classmethod
    def of(cls, parts: Iterable[Part], work: int = WORK_FROM_SCRATCH) -> Overlap:
        """Many charges at once: the graph first, then one bound for all."""
        made = cls()
        for region, weight in parts:
            made._put(region, quanta(weight))
            made.version += 1
        made._bound, made._heavy = made._weights.total(made._all), None
        made.tighten(work)
        return made

    def __len__(self) -> int:
        """How many different regions bear weight."""
        return len(self._regions)

    @property
    def exact(self) -> bool:
        """Whether the bound is known to be the weight of some point."""
        return self._heavy is not None

    def bound(self) -> Decimal:
        """No point bears more.

        *Guarantee*: at least the largest total of weights over any point of the domain.
        """
        return coin(self._bound)

    def after(self, parts: Sequence[Part], work: int = WORK_OF_A_CHARGE) -> Decimal:
        """What the bound will be once these parts are added; nothing changes."""
        return self.foreseen(parts, work)[0]

    def foreseen(self, parts: Sequence[Part], work: int = WORK_OF_A_CHARGE) -> tuple[Decimal, bool]:
        """The same, and whether some point is known to bear as much."""
        bound, heavy = self._after(parts, work)
        return coin(bound), heavy is not None

    def add(self, parts: Sequence[Part], work: int = WORK_OF_A_CHARGE) -> Decimal:
        """Charge each part its weight: parts of one charge are best disjoint; where they overlap they add up."""
        self._bound, self._heavy = self._after(parts, work)
        for region, weight in parts:
            self._put(region, quanta(weight))
        self.version += 1
        return coin(self._bound)

    def without(self, parts: Sequence[Part], work: int = WORK_OF_A_CHARGE) -> Decimal:
        """What the bound will be once these parts are given back; nothing changes."""
        before, kept = self._weights.each.copy(), (self._bound, self._heavy, self.version)
        try:
            return self.give_back(parts, work)
        finally:
            self._restore(before, kept)

    def exchanged(self, parts: Sequence[Part], gained: Sequence[Part], work: int = WORK_OF_A_CHARGE) -> Decimal:
        """What the bound will be once some parts are given back and others come instead; nothing changes."""
        before, kept = self._weights.each.copy(), (self._bound, self._heavy, self.version)
        try:
            self.give_back(parts, work)
            return self.after(gained, work)
        finally:
            self._restore(before, kept)

    def _restore(self, weights: Sequence[int], kept: tuple[int, Region | None, int]) -> None:
        for number, weight in enumerate(weights):
            if self._weights.each[number] != weight:
                self._weights.change(number, weight)
        self._bound, self._heavy, self.version = kept

    def give_back(self, parts: Sequence[Part], work: int = WORK_FROM_SCRATCH) -> Decimal:
        """Take weight off regions that bear it, as a settlement does; the old bound stays safe, and is made smaller."""
        left: dict[int, int] = {}
        heaviest = self._heavy
        for region, weight in parts:
            number = self._numbers.get(region)
            if number is not None:
                left[number] = left.get(number, self._weights.each[number]) - quanta(weight, round_down)
            elif not region.empty and weight:
                raise ValueError("nothing was charged to this region")
        if any(rest < 0 for rest in left.values()):
            raise ValueError("more is given back than was charged")
        for number, rest in left.items():
            self._weights.change(number, rest)
        if heaviest is None or any(not heaviest.disjoint(region) for region, weight in parts if weight):
            self._heavy = None  # else the heaviest point bears what it bore
        self.version += 1
        return self.tighten(work)

    def tighten(self, work: int = WORK_FROM_SCRATCH) -> Decimal:
        """Look for a smaller bound over all that is charged."""
        if self._heavy is None:
            best = self._heaviest(self._weighty, EVERYWHERE, 0, work)
            self._bound = min(self._bound, best.amount)
            self._heavy = self._common(best.held, EVERYWHERE) if best.exact else None
        return coin(self._bound)

    def graph(self) -> tuple[Sequence[Region], Sequence[Bits], Weights, Index, Bits]:
        """The regions, what each overlaps, their weights, their index, and the set of all: to look at."""
        return self._regions, self._near, self._weights, self._index, self._all

    def dump(self) -> str:
        """The frozen form: what ``load`` needs to go on without comparing any two regions again."""
        content = {
            "regions": [region.text for region in self._regions],
            "weights": [str(weight) for weight in self._weights.each],
            "near": [f"{near & (1 << number) - 1:x}" for number, near in enumerate(self._near)],
            "bound": str(self._bound),
            "heavy": None if self._heavy is None else self._heavy.text,
            "version": self.version,
        }
        return json.dumps(content, separators=(",", ":"))

    @classmethod
    def load(cls, text: str) -> Overlap:
        """What ``dump`` wrote."""
        content = json.loads(text)
        made = cls()
        for written, weight, near in zip(content["regions"], content["weights"], content["near"], strict=True):
            made._append(Region.parse(written), int(weight), int(near, 16))
        made._bound, made.version, heavy = int(content["bound"]), content["version"], content["heavy"]
        made._heavy = None if heavy is None else Region.parse(heavy)
        return made

    @property
    def _all(self) -> Bits:
        return (1 << len(self._regions)) - 1

    @property
    def _weighty(self) -> Bits:
        return sum(1 << number for number, weight in enumerate(self._weights.each) if weight)

    def _put(self, region: Region, weight: int) -> None:
        if region.empty or not weight:
            return
        number = self._numbers.get(region)
        if number is None:
            self._append(region, weight, self._index.touching(region))
        else:
            self._weights.change(number, self._weights.each[number] + weight)

    def _append(self, region: Region, weight: int, near: Bits) -> None:
        number = len(self._regions)
        self._regions.append(region)
        self._numbers[region] = number
        self._weights.append(weight)
        self._index.add(region)
        bit = 1 << number
        for other in numbers(near):
            self._near[other] |= bit
        self._near.append(near)

    def _after(self, parts: Sequence[Part], work: int) -> tuple[int, Region | None]:
        """The bound, and where it is borne, once these parts are added.

        Points outside the parts keep what they bear. A part that holds the heaviest point raises the bound by its own
        weight; inside any other, it and what touches it is weighed afresh, as far as that may exceed the bound.
        """
        asked = [(region, quanta(weight)) for region, weight in parts]
        asked = [(region, weight) for region, weight in asked if weight and not region.empty]
        together = Index()
        for region, _ in asked:
            together.add(region)
        amount, heavy = self._bound, self._heavy
        for place, (region, weight) in enumerate(asked):
            beside = sum(asked[other][1] for other in numbers(together.touching(region)) if other != place)
            most = self._bound + weight + beside
            if most <= amount:
                continue
            if self._heavy is not None and not self._heavy.disjoint(region):
                amount, heavy = most, None if beside else self._heavy.intersection(region)
                continue
            inside = self._inside(region, amount - weight - beside, max(work // len(asked), _LEAST_WORK))
            borne = min(most, inside.amount + weight + beside)
            if borne > amount:
                exact = inside.exact and not beside
                amount, heavy = borne, self._common(inside.held, region) if exact else None
        return amount, heavy

    def _common(self, held: Bits, inside: Region) -> Region:
        """What some regions have in common."""
        for number in numbers(held):
            inside = inside.intersection(self._regions[number])
        return inside

    def _inside(self, region: Region, floor: int, work: int) -> Bound:
        """The heaviest point inside a region, of what is charged already; the floor if that is more."""
        floor = max(floor, 0)
        touching = self._index.touching(region)
        if self._weights.total(touching) <= floor:
            return Bound(floor, exact=True)
        return self._heaviest(touching, region, floor, work)

    def _heaviest(self, among: Bits, inside: Region, floor: int, work: int) -> Bound:
        """The smallest of the bounds, the cheap and exact ones first."""
        regions, weights = self._regions, self._weights
        best = Bound(max(floor, weights.total(among)), exact=False)
        swept = sweep(self._index, weights, among, inside, floor, work)
        if swept is not None:
            best = min(best, swept, key=_amount)
            if swept.exact:
                return swept
        classes = colouring(self._near, weights, among, 2 * work)
        if classes is not None:
            best = min(best, Bound(max(floor, colour_bound(classes, weights)), exact=False), key=_amount)
            if best.amount <= floor:
                return Bound(floor, exact=True)
        searched = overlap(regions, self._near, weights, among, inside, floor, work)
        if searched.exact:
            return searched
        best = min(best, searched, key=_amount)
        counted = bucket_bound([(regions[n].intersection(inside), weights.each[n]) for n in numbers(among)], floor)
        return best if counted is None else min(best, Bound(counted, exact=False), key=_amount)


def _amount(bound: Bound) -> int:
    return bound.amount


def bucket_bound(weighted: Sequence[tuple[Region, int]], floor: int = 0, splits: int = _SPLITS) -> int | None:
    """The bound that buckets give, at least the floor; None if there are too many attributes for boxes."""
    boxes = boxed([region for region, _ in weighted], _BUCKET_AXES)
    if boxes is None:
        return None
    unit = 1 + sum(weight for _, weight in weighted) // _MOST_INT  # counters are machine words: coarser, rounded up
    buckets = Buckets(boxes.low.min(axis=0).tolist(), boxes.high.max(axis=0).tolist(), splits)
    for row, (_, weight) in enumerate(weighted):
        buckets.add(boxes.low[row], boxes.high[row], -(-weight // unit))
    buckets.refine(splits, floor // unit)
    return max(floor, buckets.bound * unit)
