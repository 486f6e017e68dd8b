"""A bound takes as much work as it may, and no more: whoever asks what a limit refuses keeps nobody waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from random import Random
from typing import Any

import psycopg
import pytest
from region_books import charge_on, place

from provenance import clique
from provenance.bounds import Kept, layers_of
from provenance.errors import LimitReached
from provenance.extent import Interval, Members
from provenance.ledger import Ledger
from provenance.overlap import WORK_OF_A_CHARGE, Overlap
from provenance.region import Part, Region, coin, quanta
from provenance.touching import Bits, numbers

ONE = Decimal("0.001")
ALL = Decimal(100)


def tangled(random: Random) -> Region:
    """Sets of many values and wide intervals on a few of many attributes: nearly everything touches everything."""
    sides: dict[str, Interval | Members] = {}
    for name in random.sample("abcdefgh", 3):
        low, high = sorted(random.sample(range(100), 2))
        some = Members(frozenset(random.sample(range(40), 12)))
        sides[name] = some if random.random() < 0.5 else Interval(low, high)
    return Region.of(sides)


def parts(count: int) -> list[Part]:
    random = Random(3)
    return [(tangled(random), coin(random.randint(1, 10**15))) for _ in range(count)]


def test_the_work_of_a_charge_is_not_the_square_of_all_that_was_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a thousand cheap questions on tangled regions, after which every charge of anybody takes seconds."""
    kept, steps = Overlap.of(parts(800), work=500), 0

    def counted(bits: Bits) -> Iterator[int]:
        nonlocal steps
        for number in numbers(bits):
            steps += 1
            yield number

    monkeypatch.setattr(clique, "numbers", counted)
    kept.foreseen([(tangled(Random(4)), coin(10**18))])
    assert steps < 2 * WORK_OF_A_CHARGE


def test_regions_in_another_order_overlap_as_before() -> None:
    near = Overlap.of(parts(60), work=0).graph()[1]
    for count in (1, 7, 8, 9, 60):
        order = Random(count).sample(range(60), count)
        moved = clique._renumbered(near, order)
        assert moved == [
            sum(1 << place for place, other in enumerate(order) if near[number] >> other & 1) for number in order
        ]


def test_a_smaller_bound_is_looked_for_once_and_beside_everything_else(
    swept: str, pools: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: what a limit refuses is asked again and again, and everybody waits for the bound."""
    made, where = Kept.of, list[int]()

    def of(version: int, amounts: Mapping[str, Decimal]) -> Kept:
        where.append(threading.get_ident())
        return made(version, amounts)

    async def work() -> None:
        async with pools(swept) as pool:
            ledger = Ledger(pool)
            for region, _ in parts(40):
                await ledger.charge(charge_on(at, "alice", (region, ONE / 100, ONE / 100)))
            own, table = (ledger.bounds.kept(layer) for layer in layers_of(charge_on(at, "alice")))
            own.overlap, table.overlap = (loose(each) for each in (own, table))
            monkeypatch.setattr(Kept, "of", of)
            monkeypatch.setattr(Overlap, "foreseen", lambda kept, parts, work: (ALL, False))
            for region, _ in parts(3):
                with pytest.raises(LimitReached, match="alice"):
                    await ledger.charge(charge_on(at, "alice", (region, ALL, ALL)))
            assert ledger.bounds.kept(layers_of(charge_on(at, "alice"))[0]).overlap.bound() < own.overlap.bound()

    with psycopg.connect(swept, autocommit=True) as books:
        at = place(books)
        asyncio.run(work())
    assert len(where) == 2, "two layers"
    assert threading.get_ident() not in where


def loose(kept: Kept) -> Overlap:
    """The overlap as it is known with no work at all: everything may lie on one point."""
    weighed = [(Region.parse(text), amount) for text, amount in kept.amounts.items()]
    found = Overlap.of(weighed, work=0)
    found._bound = sum(quanta(amount) for _, amount in weighed)
    return found


def test_a_limit_that_refuses_by_the_best_bound_that_is_found_has_spoken(
    swept: str, pools: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: refusals are free, so each must be quick, also where nobody knows whether the bound is the truth."""
    looked = list[int]()

    def unsure(kept: Overlap, parts: list[Part], work: int) -> tuple[Decimal, bool]:
        looked.append(work)
        return ALL, False

    async def work() -> None:
        async with pools(swept) as pool:
            ledger = Ledger(pool)
            await ledger.charge(charge_on(at, "alice", (Region(), ONE, ONE)))
            monkeypatch.setattr(Overlap, "foreseen", unsure)
            with pytest.raises(LimitReached, match="alice"):
                await ledger.charge(charge_on(at, "alice", (Region(), ALL, ALL)))

    with psycopg.connect(swept, autocommit=True) as books:
        at = place(books)
        asyncio.run(work())
    assert len(looked) == 4, "two layers: as a charge is, and once more with all the work"
