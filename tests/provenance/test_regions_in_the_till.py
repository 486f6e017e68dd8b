"""Parallel composition in the till: what counts is the largest total over any point of the data domain."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from decimal import Decimal
from random import Random
from typing import Any

import psycopg
import pytest
from psycopg import Connection
from region_books import UNLIMITED, balances, charge_on, heaviest, place, random_charge, some_levels, weights, wrong

from mechanisms.loss import QUANTUM, Coin, Loss
from provenance import accountant, bounds
from provenance.bounds import Bounds, Quote
from provenance.entries import Counting, deployment_of
from provenance.errors import LimitReached
from provenance.extent import Interval, Members
from provenance.ledger import Ledger
from provenance.ledger_sql import STATE
from provenance.model import Charge, Felt, Receipt
from provenance.region import EVERYWHERE, Region

Pools = Callable[..., Any]
ONE = Decimal("0.001")
TWO = Decimal("0.002")


def ages(low: int, high: int) -> Region:
    return Region.of({"age": Interval(low, high)})


def sex(*values: str) -> Region:
    return Region.of({"sex": Members.of(*values)})


class Slow(Ledger):
    """Something else may happen between its look at the books and its turn at the till."""

    meanwhile: Callable[[], Awaitable[Any]] | None = None

    async def _look(self, layers: Any) -> None:
        await super()._look(layers)
        work, self.meanwhile = self.meanwhile, None
        if work is not None:
            await work()


def run(dsn: str, pools: Pools, work: Callable[[Slow, Slow], Awaitable[Any]]) -> Any:
    """With the ledgers of two proxies."""

    async def both() -> Any:
        async with pools(dsn) as one, pools(dsn) as other:
            return await work(Slow(one), Slow(other))

    return asyncio.run(both())


def paid(dsn: str, pools: Pools, *charges: Charge) -> None:
    async def work(ledger: Slow, _: Slow) -> None:
        for charge in charges:
            await ledger.charge(charge)

    run(dsn, pools, work)


def on(conn: Connection, where: Region, amount: Decimal = ONE, analyst: str = "alice", **more: Any) -> Charge:
    return charge_on(place(conn), analyst, (where, amount, amount), **more)


@pytest.fixture
def books(swept: str) -> Any:
    with psycopg.connect(swept, autocommit=True) as conn:
        yield conn


def test_forty_charges_on_disjoint_regions_count_as_one(swept: str, books: Connection, pools: Pools) -> None:
    paid(swept, pools, *(on(books, ages(at, at)) for at in range(40)))
    assert balances(books) == {"alice": ONE, "bob": 0, "table": ONE}
    assert not wrong(books)
    told = books.execute("SELECT sum(charged), sum(counted), sum(table_counted) FROM provenance.history").fetchone()
    assert told == (40 * ONE, ONE, ONE)


def test_charges_that_share_a_point_add_up_there(swept: str, books: Connection, pools: Pools) -> None:
    paid(swept, pools, on(books, ages(0, 10)), on(books, ages(20, 30)), on(books, ages(10, 20)), on(books, sex("f")))
    assert balances(books)["alice"] == 3 * ONE  # at 10, or at 20
    assert not wrong(books)


def test_what_falls_everywhere_adds_up_with_everything(swept: str, books: Connection, pools: Pools) -> None:
    plain = charge_on(place(books), "alice", (EVERYWHERE, ONE, ONE))
    paid(swept, pools, on(books, ages(0, 1)), plain, on(books, ages(2, 3), TWO), Charge(*_bare(plain)))
    assert balances(books)["alice"] == 2 * ONE + TWO
    assert not wrong(books)


def _bare(charge: Charge) -> tuple[Any, ...]:
    """The same without a word about regions."""
    return (
        *(charge.analyst, charge.relation_id, charge.data_version, charge.registry_version),
        *(charge.fingerprint, charge.question, charge.mechanism, charge.loss),
    )


def test_the_parts_of_one_charge_fall_where_they_fall(swept: str, books: Connection, pools: Pools) -> None:
    both = charge_on(place(books), "alice", (sex("f"), ONE, ONE), (sex("m"), TWO, Decimal(0)))
    paid(swept, pools, both, both)
    assert balances(books) == {"alice": 2 * TWO, "bob": 0, "table": 2 * ONE}
    assert not wrong(books)


def test_relations_and_versions_of_the_data_add_up(swept: str, books: Connection, pools: Pools) -> None:
    paid(swept, pools, on(books, ages(0, 1)))
    books.execute("SELECT provenance.refresh('patient')")
    paid(swept, pools, on(books, ages(2, 3)), charge_on(place(books, "orders"), "alice", (ages(4, 5), ONE, ONE)))
    assert balances(books)["alice"] == balances(books)["table"] == 3 * ONE
    assert not wrong(books)


def test_the_table_counts_what_all_analysts_learn_at_one_point(swept: str, books: Connection, pools: Pools) -> None:
    paid(swept, pools, on(books, ages(0, 5)), on(books, ages(5, 9), analyst="bob"), on(books, ages(7, 8), TWO, "bob"))
    assert balances(books) == {"alice": ONE, "bob": ONE + TWO, "table": ONE + TWO}
    assert not wrong(books)


def test_a_question_with_stages_gives_back_where_it_was_reserved(swept: str, books: Connection, pools: Pools) -> None:
    async def work(ledger: Slow, other: Slow) -> None:
        await other.charge(on(books, ages(0, 1), TWO))
        receipt = await ledger.charge(on(books, ages(2, 3), ONE, staged=True))
        assert balances(books)["alice"] == TWO
        receipt = await ledger.reserve_more(receipt, Loss(Coin.ZCDP, 4 * ONE))
        assert balances(books)["alice"] == 5 * ONE
        assert not wrong(books)
        settled = await ledger.settle(receipt, Loss(Coin.ZCDP, ONE / 2))
        assert settled.loss.amount == ONE / 2 and balances(books)["alice"] == balances(books)["table"] == TWO

    run(swept, pools, work)
    assert not wrong(books)


def test_who_was_not_quick_enough_counts_in_full_and_the_next_charge_makes_up_for_it(
    swept: str, books: Connection, pools: Pools
) -> None:
    async def work(ledger: Slow, other: Slow) -> None:
        await ledger.charge(on(books, ages(0, 1)))
        ledger.meanwhile = lambda: other.charge(on(books, ages(2, 3)))
        await ledger.charge(on(books, ages(4, 5)))
        assert balances(books)["alice"] == 2 * ONE
        await ledger.charge(on(books, ages(6, 7)))
        assert balances(books)["alice"] == ONE

    run(swept, pools, work)
    assert not wrong(books)


def test_a_limit_refuses_only_what_exceeds_it_by_the_best_bound(swept: str, books: Connection, pools: Pools) -> None:
    books.execute("UPDATE provenance.analyst SET epsilon_limit = 0.5 WHERE name = 'alice'")
    worth = _worth(books, "0.5")

    async def work(ledger: Slow, other: Slow) -> None:
        await ledger.charge(on(books, ages(0, 1), worth))
        assert (await ledger.verdict([on(books, ages(2, 3), worth)])).refusal is None
        ledger.meanwhile = lambda: other.charge(on(books, ages(2, 3), worth))
        await ledger.charge(on(books, ages(4, 5), worth))
        with pytest.raises(LimitReached, match="alice"):
            await ledger.charge(on(books, ages(5, 6)))
        verdict = await other.verdict([on(books, ages(5, 6))])
        assert verdict.refusal is not None and verdict.analyst == ONE

    run(swept, pools, work)
    assert balances(books)["alice"] == worth
    assert not wrong(books)


def test_below_a_limit_that_was_lowered_nothing_more_is_learned_anywhere(
    swept: str, books: Connection, pools: Pools
) -> None:
    paid(swept, pools, on(books, ages(0, 1), Decimal("0.01")))
    books.execute("UPDATE provenance.analyst SET epsilon_limit = 0.1 WHERE name = 'alice'")
    with pytest.raises(LimitReached):
        paid(swept, pools, on(books, ages(2, 3), Decimal("0.005")))


def _worth(conn: Connection, epsilon: str) -> Decimal:
    row = conn.execute(STATE, (None,)).fetchone()
    assert row is not None
    return accountant.worth(deployment_of(row), Decimal(epsilon))


def test_beyond_the_most_regions_a_new_one_counts_everywhere(
    swept: str, books: Connection, pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MOST_REGIONS", 3)

    async def work(ledger: Slow, other: Slow) -> None:
        for at in range(3):
            await ledger.charge(on(books, ages(at, at)))
        receipt = await other.charge(on(books, ages(9, 9), staged=True))
        assert balances(books)["alice"] == 2 * ONE
        await ledger.charge(on(books, ages(1, 1)))
        assert balances(books)["alice"] == 3 * ONE
        await other.settle(receipt, Loss.nothing(Coin.ZCDP))
        assert balances(books)["alice"] == 2 * ONE

    run(swept, pools, work)
    assert books.execute("SELECT count(*) FROM provenance.felt").fetchone() == (8,)
    assert not wrong(books)


def test_a_region_with_a_long_text_is_booked_wider(swept: str, books: Connection, pools: Pools) -> None:
    many = Region.of({"age": Interval(0, 5), "sex": Members(frozenset(f"{at:0100}" for at in range(40)))})
    paid(swept, pools, on(books, many), on(books, ages(6, 7)), on(books, sex("f")))
    assert balances(books)["alice"] == 2 * ONE
    assert not wrong(books)


def test_many_changes_are_taken_up_at_once(swept: str, books: Connection, pools: Pools) -> None:
    async def work(ledger: Slow, other: Slow) -> None:
        for at in range(bounds.MANY + 20):
            await ledger.charge(on(books, ages(at, at)))
        await other.charge(on(books, ages(0, 5)))

    run(swept, pools, work)
    assert balances(books)["alice"] == 2 * ONE
    assert not wrong(books)


ROW = """
INSERT INTO provenance.charge (analyst, relation, relation_id, data_version, registry_version, fingerprint, question,
    mechanism, coin, amount, epsilon, table_amount, stage, question_of, regions, region_amounts, region_tables, counted,
    table_counted)
SELECT 'alice', 'patient', r.id, r.data_version, 1, 'f00d', 'SELECT 1', 'tslm', 'zcdp', %(amount)s, 0, %(amount)s,
    %(stage)s, %(of)s, %(regions)s, %(amounts)s, %(amounts)s, %(counted)s, %(counted)s
FROM provenance.relation r WHERE r.label = 'patient' RETURNING id"""


def row(conn: Connection, amount: Decimal, regions: list[str], **more: Any) -> int:
    """Somebody else's charge."""
    values = {"stage": "charge", "of": None, "counted": None, "amounts": [amount] * len(regions)}
    found = conn.execute(ROW, {**values, "amount": amount, "regions": regions, **more}).fetchone()
    assert found is not None
    return int(found[0])


def test_whoever_inserts_a_row_it_counts_in_full(swept: str, books: Connection, pools: Pools) -> None:
    row(books, ONE, [])
    row(books, ONE, [ages(0, 1).text])
    row(books, ONE, [ages(2, 3).text])
    assert balances(books)["alice"] == 3 * ONE
    assert not wrong(books)
    paid(swept, pools, on(books, ages(4, 5)))
    assert balances(books)["alice"] == 2 * ONE
    assert not wrong(books)


def test_the_books_refuse_what_they_can_see_to_be_wrong(books: Connection) -> None:
    row(books, TWO, [ages(0, 1).text])
    first = row(books, TWO, [ages(2, 3).text], stage="reserve")
    rows: list[dict[str, Any]] = [
        {"amount": ONE, "regions": [ages(0, 1).text], "counted": 2 * ONE},  # more than it costs
        {"amount": ONE, "regions": [ages(0, 1).text], "counted": -3 * ONE},  # less than the region has lost
        {"amount": ONE, "regions": [ages(4, 5).text], "counted": -3 * ONE},  # less than another one has
        {"amount": ONE, "regions": [ages(4, 5).text], "amounts": [TWO]},
        {"amount": ONE, "regions": [ages(4, 5).text], "amounts": []},
        {"amount": ONE, "regions": [ages(4, 5).text], "amounts": [ONE / 2], "stage": "reserve"},
        {"amount": -ONE, "regions": [ages(0, 1).text], "stage": "settle", "of": first},  # given back elsewhere
        {"amount": -ONE, "regions": [ages(2, 3).text], "stage": "settle", "of": first, "counted": ONE},
        {"amount": Decimal(0), "regions": [], "counted": -ONE},
    ]
    before = balances(books)
    for values in rows:
        with pytest.raises(psycopg.errors.CheckViolation):
            row(books, **values)
    assert balances(books) == before
    # What is given back on a region lowers nothing by itself.
    row(books, -ONE, [ages(2, 3).text], stage="settle", of=first)
    assert balances(books) == before
    assert not wrong(books)


async def stumble(random: Random, conn: Connection, ledgers: tuple[Slow, Slow], steps: int) -> None:
    """Charges, stages and settlements by two proxies, of which the one may be quicker than the other."""
    attributes, where = "abc"[: random.randint(1, 3)], place(conn)
    open_: list[Receipt] = []

    def meanwhile(quick: Slow) -> Callable[[], Awaitable[Any]]:
        name = random.choice(("alice", "bob"))
        return lambda: quick.charge(random_charge(random, place(conn), name, attributes))

    for _ in range(steps):
        ledger, other = random.sample(ledgers, 2)
        ledger.meanwhile = meanwhile(other) if random.random() < 0.3 else None
        match random.randrange(6):
            case 0 if open_:
                which = random.randrange(len(open_))
                open_[which] = await ledger.reserve_more(open_[which], Loss(Coin(where[3]), Decimal("0.02")))
            case 1 | 2 if open_:
                receipt = open_.pop(random.randrange(len(open_)))
                reached = (receipt.paid.amount * random.randint(0, 4) / 4).quantize(QUANTUM)
                levels = some_levels(random, receipt, reached) if random.random() < 0.7 else ()
                await ledger.settle(receipt, Loss(Coin(where[3]), reached), levels=levels)
            case 3:
                conn.execute("SELECT provenance.refresh('patient')")
                where = place(conn)
            case _:
                name = random.choice(("alice", "bob"))
                count = random.choice((1, 1, 2))
                charges = [random_charge(random, where, name, attributes) for _ in range(count)]
                receipts = await ledger.charge_all(charges)
                open_ += [receipt for receipt in receipts if receipt.charge.staged]


def unlimited(conn: Connection, coin: str) -> None:
    conn.execute(UNLIMITED)
    conn.execute("UPDATE provenance.deployment SET coin = %s", (coin,))


def stumbled(swept: str, conn: Connection, pools: Pools, seed: int, steps: int = 12) -> list[str]:
    """What is wrong with the books after a random walk."""
    unlimited(conn, "pure" if seed % 2 else "zcdp")
    run(swept, pools, lambda one, other: stumble(Random(seed), conn, (one, other), steps))
    return wrong(conn)


@pytest.mark.parametrize("seed", range(12))
def test_no_point_loses_more_than_is_counted(swept: str, books: Connection, pools: Pools, seed: int) -> None:
    assert not stumbled(swept, books, pools, seed)


def test_what_is_counted_is_the_truth_where_nobody_interferes(swept: str, books: Connection, pools: Pools) -> None:
    random, where = Random(5), place(books)
    books.execute(UNLIMITED)
    charges = [random_charge(random, where, "alice", "ab") for _ in range(12)]
    paid(swept, pools, *charges)
    truths = {layer[0]: heaviest(weighted) for layer, weighted in weights(books).items()}
    assert balances(books) == {"alice": truths["analyst"], "bob": 0, "table": truths["table"]}


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "the version is not compared": lambda patch: patch.setattr(Quote, "fits", lambda *_: True),
    "what came back is taken off twice": lambda patch: patch.setattr(Bounds, "committed", _twice(Bounds.committed)),
    "a settlement counts in full": lambda patch: patch.setattr(Quote, "everywhere", True),
    "versions of the data are one": lambda patch: patch.setattr(Counting, "_one", _merged(Counting._one)),
}


def _twice(committed: Any) -> Any:
    def mutant(self: Bounds, booked: Any) -> None:
        committed(self, booked)
        for quote, _, fitted in booked:
            if fitted and quote.amount < 0:
                for where, weight in quote.parts:
                    kept = self.kept(quote.layer)
                    kept.change(where.text, where, max(kept.amounts.get(where.text, weight) - weight, Decimal(0)))

    return mutant


def _merged(one: Any) -> Any:
    """What an older version of the data has lost is thought to bear what is asked now."""
    spare: dict[tuple[str, str], Decimal] = {}

    def mutant(self: Counting, quote: Quote, amount: Decimal) -> Decimal:
        counted = one(self, quote, amount)
        key = quote.layer.scope, quote.layer.name
        if quote.layer.data_version > 1 and counted > 0:
            return max(counted - spare.get(key, Decimal(0)), Decimal(0))
        spare[key] = max(spare.get(key, Decimal(0)), counted)
        return counted

    return mutant


@pytest.mark.parametrize("name", MUTANTS)
def test_a_till_that_cheats_is_noticed(
    swept: str,
    books: Connection,
    pools: Pools,
    sweep: Callable[[], None],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    MUTANTS[name](monkeypatch)
    for seed in range(40):
        sweep()
        try:
            if stumbled(swept, books, pools, seed):
                return
        except psycopg.errors.CheckViolation:
            return  # the books themselves have noticed
    pytest.fail("nobody has noticed")


@pytest.mark.parametrize(
    ("felt", "staged"),
    [
        (((ages(0, 1), TWO, ONE),), False),  # more than the loss
        (((ages(0, 1), ONE, TWO),), False),
        (((ages(0, 1), ONE, ONE), (ages(1, 2), ONE, ONE)), False),  # at 1 more than the loss
        (((ages(0, 1), ONE / 2, ONE / 2),), True),  # a stage falls in full
        (((ages(0, 1), ONE, ONE), (ages(2, 3), ONE, ONE)), True),
    ],
)
def test_a_charge_that_says_something_impossible_is_not_made(felt: Any, staged: bool) -> None:
    parts = tuple(Felt(*one) for one in felt)
    with pytest.raises(ValueError, match=r"loses? at most|in full"):
        Charge("alice", 1, 1, 1, "f", "SELECT 1", "tslm", Loss(Coin.ZCDP, ONE), staged=staged, felt=parts)
    Charge("alice", 1, 1, 1, "f", "SELECT 1", "tslm", Loss(Coin.ZCDP, ONE), felt=_disjoint())


def _disjoint() -> tuple[Felt, ...]:
    """Groups that each lose the whole, none of them twice."""
    return tuple(Felt(ages(at, at), ONE, ONE) for at in range(5))


LOST = """
SELECT provenance.report_gap(999, sha256('lost'), %s, 'zcdp', jsonb_build_object(
    'table', jsonb_build_array(%s::text, '0'),
    'analysts', jsonb_build_object('alice', jsonb_build_array(%s::text, '0'))), 'a proxy')"""


def test_what_was_lost_with_a_ledger_and_what_came_after_it_add_up(swept: str, books: Connection, pools: Pools) -> None:
    """Lost was a charge that counted nothing; what came after the copy fell on the same people, as if it were new."""

    async def work(ledger: Slow, _: Slow) -> None:
        receipt = await ledger.charge(on(books, ages(0, 1), staged=True))
        at = books.execute("SELECT clock_timestamp()").fetchone()
        # In the ledger that was lost, somebody charged as much for ages from 2 to 3: together they counted ONE.
        assert at is not None
        await ledger.charge(on(books, ages(2, 3)))
        await ledger.settle(receipt, Loss(Coin.ZCDP, ONE / 2))
        assert balances(books)["alice"] == balances(books)["table"] == ONE
        books.execute(LOST, (*at, ONE, ONE))
        books.execute("SELECT provenance.accept_gap(id) FROM provenance.gap")

    run(swept, pools, work)
    assert balances(books)["alice"] == balances(books)["table"] == 2 * ONE  # at 2: what was lost, and what came after
    assert books.execute("SELECT reason FROM provenance.verify_chain()").fetchone() == (None,)
