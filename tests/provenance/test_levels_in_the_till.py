"""Predicate-wise loss in the till: what a settled question leaves behind is the level of each of its parts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from decimal import Decimal
from random import Random
from typing import Any

import psycopg
import pytest
from psycopg import Connection, errors
from region_books import UNLIMITED, balances, charge_on, place, wrong

from mechanisms.loss import Coin, Loss
from provenance import bounds
from provenance.errors import LimitReached, SettlementError
from provenance.extent import Interval, Members
from provenance.ledger import Ledger
from provenance.model import Charge, Receipt
from provenance.region import EVERYWHERE, Part, Region

Pools = Callable[..., Any]
ONE = Decimal("0.001")
SEXES = ("f", "m", "x")


def sex(*values: str) -> Region:
    return Region.of({"sex": Members.of(*values)})


def young(*values: str) -> Region:
    return Region.of({"age": Interval(0, 30), "sex": Members.of(*values)})


def on(conn: Connection, where: Region, amount: Decimal = ONE, **more: Any) -> Charge:
    return charge_on(place(conn), "alice", (where, amount, amount), **more)


def run(dsn: str, pools: Pools, work: Callable[[Ledger, Ledger], Awaitable[Any]]) -> Any:
    async def both() -> Any:
        async with pools(dsn) as one, pools(dsn) as other:
            return await work(Ledger(one), Ledger(other))

    return asyncio.run(both())


async def decided(ledger: Ledger, charge: Charge, reached: Decimal, levels: list[Part]) -> Receipt:
    """A decision that reserves twice and settles."""
    receipt = await ledger.reserve_more(await ledger.charge(charge), Loss(charge.loss.coin, 5 * ONE))
    await ledger.settle(receipt, Loss(charge.loss.coin, reached), levels=levels)
    return receipt


@pytest.fixture
def books(swept: str) -> Iterator[Connection]:
    with psycopg.connect(swept, autocommit=True) as conn:
        yield conn


def test_each_part_bears_its_own_level(swept: str, books: Connection, pools: Pools) -> None:
    levels = [(sex("f"), 4 * ONE), (sex("m"), ONE)]

    async def work(ledger: Ledger, other: Ledger) -> None:
        await decided(ledger, on(books, EVERYWHERE, staged=True), 4 * ONE, levels)
        assert balances(books)["alice"] == balances(books)["table"] == 4 * ONE
        for part, counts in ((sex("m"), 0), (sex("m"), 0), (sex("x"), 0), (sex("f"), ONE)):
            before = balances(books)["alice"]
            await other.charge(on(books, part))  # another proxy, which has seen nothing of it
            assert balances(books)["alice"] == before + counts
        assert not wrong(books)

    run(swept, pools, work)


def test_decisions_with_different_hard_groups_share_their_price(swept: str, books: Connection, pools: Pools) -> None:
    async def work(ledger: Ledger, other: Ledger) -> None:
        for one, hard in zip((ledger, other, ledger), SEXES, strict=True):
            easy = [each for each in SEXES if each != hard]
            levels = [(young(hard), 5 * ONE), (young(*easy), ONE)]
            await decided(one, on(books, young(*SEXES), staged=True), 5 * ONE, levels)
        assert balances(books)["alice"] == 7 * ONE  # hard once, and easy twice; in full it would be 15
        assert not wrong(books)

    run(swept, pools, work)


@pytest.mark.parametrize("seed", range(6))
def test_no_point_loses_more_than_is_counted(swept: str, books: Connection, pools: Pools, seed: int) -> None:
    """Random decisions on random parts by two proxies, one of which knows nothing of the other's: point by point."""
    random = Random(seed)
    books.execute(UNLIMITED.encode())
    books.execute("UPDATE provenance.deployment SET coin = %s", (("zcdp", "pure")[seed % 2],))

    async def work(*ledgers: Ledger) -> None:
        for _ in range(14):
            where = Region.of({"a": Interval(0, random.randint(2, 5))}) if random.random() < 0.7 else EVERYWHERE
            reached = ONE * random.randint(1, 6)
            cut = [(Region.of({"b": Members.of(*some)}), ONE * random.randint(0, 6)) for some in ((0, 1), (2,), (3, 4))]
            levels = [(where.intersection(part), min(level, reached)) for part, level in cut]
            ledger = random.choice(ledgers)
            await decided(ledger, on(books, where, staged=True), reached, levels)
            await random.choice(ledgers).charge(on(books, Region.of({"b": Members.of(random.randrange(5))})))
        assert not wrong(books)

    run(swept, pools, work)
    row = books.execute(
        "SELECT count(*) FROM provenance.charge WHERE stage = 'settle' AND cardinality(regions) > 1"
    ).fetchone()
    assert row is not None and row[0] >= 10


def test_two_who_settle_at_once_stay_within_the_truth(swept: str, books: Connection, pools: Pools) -> None:
    async def work(ledger: Ledger, other: Ledger) -> None:
        receipts = [await each.charge(on(books, EVERYWHERE, 6 * ONE, staged=True)) for each in (ledger, other)]
        levels = [(sex("f"), 4 * ONE), (sex("m"), ONE)], [(sex("f"), ONE), (sex("m"), 4 * ONE)]
        settled = zip((ledger, other), receipts, levels, strict=True)
        await asyncio.gather(*(one.settle(r, Loss(Coin.ZCDP, 4 * ONE), levels=at) for one, r, at in settled))
        assert not wrong(books) and 5 * ONE <= balances(books)["alice"] <= 8 * ONE
        await ledger.charge(on(books, sex("x")))
        assert not wrong(books)

    run(swept, pools, work)


def test_a_limit_has_room_where_little_was_lost(swept: str, books: Connection, pools: Pools) -> None:
    async def work(ledger: Ledger, other: Ledger) -> None:
        whole = on(books, EVERYWHERE, 2 * ONE, staged=True)
        await decided(ledger, whole, 6 * ONE, [(sex("f"), 6 * ONE), (sex("m"), ONE)])
        books.execute("UPDATE provenance.analyst SET epsilon_limit = provenance.epsilon_of('zcdp', 0.0061, 0.5e-9)")
        for _ in range(5):
            await other.charge(on(books, sex("m")))
        for full in (sex("f"), sex("m"), EVERYWHERE):
            with pytest.raises(LimitReached):
                await other.charge(on(books, full))
        assert not wrong(books)

    run(swept, pools, work)


@pytest.mark.parametrize(
    "levels",
    [
        [(sex("f"), 5 * ONE)],  # more than the question reached
        [(sex("f"), -ONE)],
        [(sex("f"), ONE), (sex("f", "m"), ONE)],  # a unit in both
        [(Region.of({"age": Interval(0, 60)}), ONE)],  # beyond the question's region
    ],
)
def test_levels_that_cannot_be_are_not_booked(swept: str, books: Connection, pools: Pools, levels: Any) -> None:
    async def work(ledger: Ledger, _: Ledger) -> None:
        receipt = await ledger.charge(on(books, young(*SEXES), 4 * ONE, staged=True))
        with pytest.raises(SettlementError):
            await ledger.settle(receipt, Loss(Coin.ZCDP, 2 * ONE), levels=levels)
        assert balances(books)["alice"] == 4 * ONE and not wrong(books)

    run(swept, pools, work)


SETTLE = """
INSERT INTO provenance.charge (analyst, relation, relation_id, data_version, registry_version, fingerprint, question,
    mechanism, coin, amount, epsilon, table_amount, stage, question_of, regions, region_amounts, region_tables)
SELECT c.analyst, c.relation, c.relation_id, c.data_version, c.registry_version, c.fingerprint, c.question, c.mechanism,
    c.coin, -0.002, 0, -0.002, 'settle', c.id, %s, %s, %s FROM provenance.charge c ORDER BY c.id DESC LIMIT 1"""


@pytest.mark.parametrize(
    ("regions", "amounts"),
    [
        ([young("f"), sex("f")], ["-0.004", "0.002"]),  # reserved elsewhere
        ([sex("f", "m"), sex("f")], ["-0.003", "0.002"]),  # not all of it comes off
        ([sex("f", "m"), sex("f")], ["-0.005", "0.002"]),  # more than was reserved comes off
        ([sex("f", "m"), sex("f")], ["-0.004", "0.003"]),  # more than was reached stays
        ([sex("f", "m"), sex("f")], ["-0.004", "-0.001"]),
    ],
)
def test_the_books_refuse_what_they_can_see_to_be_wrong(
    swept: str, books: Connection, pools: Pools, regions: list[Region], amounts: list[str]
) -> None:
    run(swept, pools, lambda ledger, _: ledger.charge(on(books, sex("f", "m"), 4 * ONE, staged=True)))
    numbers = [Decimal(each) for each in amounts]
    with pytest.raises(errors.CheckViolation):
        books.execute(SETTLE, ([region.text for region in regions], numbers, numbers))
    right = [Decimal("-0.004"), Decimal("0.002")]
    books.execute(SETTLE, ([sex("f", "m").text, sex("f").text], right, right))
    assert not wrong(books)


def test_a_part_that_has_no_name_in_the_books_leaves_the_whole_as_it_was(
    swept: str, books: Connection, pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MOST_BYTES", 40)

    async def work(ledger: Ledger, _: Ledger) -> None:
        long_ = sex("f" * 60)
        await decided(ledger, on(books, EVERYWHERE, staged=True), 3 * ONE, [(long_, 3 * ONE), (sex("m"), ONE)])
        assert balances(books)["alice"] == 3 * ONE
        await ledger.charge(on(books, sex("m")))
        assert balances(books)["alice"] == 4 * ONE and not wrong(books)

    run(swept, pools, work)


def test_a_till_that_forgets_the_levels_is_noticed(
    swept: str, books: Connection, pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes off the region and goes nowhere: the books refuse to count less than a part has lost."""
    plain = bounds.Overlap.exchanged
    monkeypatch.setattr(bounds.Overlap, "exchanged", lambda self, parts, gained, work=0: plain(self, parts, ()))
    with pytest.raises(errors.CheckViolation):
        levels = [(sex("f"), 4 * ONE), (sex("m"), ONE)]
        run(swept, pools, lambda one, _: decided(one, on(books, EVERYWHERE, staged=True), 4 * ONE, levels))


def test_the_example_of_the_thesis_costs_0_6_in_the_till(swept: str, books: Connection, pools: Pools) -> None:
    """(0.1, 0.5) and then (0.5, 0.1) cost 0.6 in each of two predicates, where whole questions would cost 1.0."""
    books.execute("UPDATE provenance.deployment SET coin = 'pure'")
    books.execute("UPDATE provenance.analyst SET epsilon_limit = 1.05")
    low, high = Decimal("0.1"), Decimal("0.5")

    async def work(ledger: Ledger, other: Ledger) -> None:
        for one, levels in ((ledger, (low, high)), (other, (high, low))):
            receipt = await one.charge(on(books, EVERYWHERE, Decimal("0.55"), staged=True))
            parts = [(sex("f"), levels[0]), (sex("m"), levels[1])]
            await one.settle(receipt, Loss(Coin.PURE, high), levels=parts)
        assert balances(books)["alice"] == balances(books)["table"] == Decimal("0.6")
        assert not wrong(books)

    run(swept, pools, work)
