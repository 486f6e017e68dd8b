"""Limits of single relations: a question is admitted if no point of the data becomes too popular (query relaxation)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import Any

import psycopg
import pytest
from psycopg import Connection, errors
from region_books import UNLIMITED, charge_on, place

from mechanisms.loss import Coin, Loss
from mechanisms.number import price_of_magnitude
from provenance.errors import LimitReached
from provenance.extent import Interval
from provenance.ledger import Ledger
from provenance.model import Charge
from provenance.region import EVERYWHERE, Region

Pools = Callable[..., Any]
NOISE = Decimal(10)
ONE = price_of_magnitude(Coin.PURE, NOISE)  # what an answer costs everybody in its region


def box(ages: tuple[int, int], fees: tuple[int, int]) -> Region:
    return Region.of({"age": Interval(*ages), "fee": Interval(*fees)})


def on(conn: Connection, where: Region, amount: Decimal = ONE, analyst: str = "alice", **more: Any) -> Charge:
    return charge_on(place(conn, more.pop("relation", "patient")), analyst, (where, amount, amount), **more)


def answered(dsn: str, pools: Pools, *charges: Charge) -> list[str | None]:
    """What the till says to each, and that it says it beforehand too: None, or why not."""

    async def work() -> list[str | None]:
        said: list[str | None] = []
        async with pools(dsn) as pool:
            ledger = Ledger(pool)
            for charge in charges:
                foreseen = (await ledger.verdict([charge])).refusal
                try:
                    await ledger.charge(charge)
                    said.append(None)
                except LimitReached as refusal:
                    said.append(refusal.message)
                assert said[-1] == (None if foreseen is None else foreseen.message)
        return said

    return asyncio.run(work())


@pytest.fixture
def books(ready: str) -> Iterator[Connection]:
    """A pure ledger, in which three answers of the fixed noise may touch one point of ``patient``."""
    with psycopg.connect(ready, autocommit=True) as conn:
        conn.execute("UPDATE provenance.deployment SET coin = 'pure'")
        conn.execute("UPDATE provenance.analyst SET epsilon_limit = 10")
        conn.execute("SELECT provenance.limit_relation('patient', %s, %s)", (3 * ONE, NOISE))
        yield conn


REFUSED = "the privacy limit of relation patient is reached"


def popularity(conn: Connection, relation: str = "patient") -> Any:
    row = conn.execute(
        'SELECT popularity, spent, "left" FROM provenance.relation_budget WHERE relation = %s', (relation,)
    ).fetchone()
    assert row is not None
    return row


def test_example_4_of_query_relaxation(ready: str, books: Connection, pools: Pools) -> None:
    """The paper's q1 to q4, where three answers may touch a point: all are answered. Where q1, q3 and q4 meet nothing
    more is, and beside it everything else is, to the limit."""
    q1, q2, q3 = box((20, 50), (40, 70)), box((30, 69), (0, 39)), box((30, 69), (40, 99))
    q4 = box((0, 100), (40, 99))
    assert answered(ready, pools, *(on(books, q) for q in (q1, q2, q3, q4))) == [None] * 4
    assert popularity(books) == (3, 3 * ONE, 0)
    q5 = box((50, 69), (70, 99))  # the corner of the point that three have touched
    asked = (q5, box((51, 69), (70, 99)), box((51, 69), (70, 99)), box((0, 100), (0, 39)), EVERYWHERE)
    assert answered(ready, pools, *(on(books, q) for q in asked)) == [REFUSED, None, REFUSED, None, REFUSED]
    assert popularity(books) == (3, 3 * ONE, 0)


def test_no_point_is_more_popular_than_the_bound_allows_and_nothing_else_is_refused(
    ready: str, books: Connection, pools: Pools
) -> None:
    """Against a counter for every point: the bounds that decide are exact here, so both say the same each time."""
    random, counters = Random(4), {(a, f): 0 for a in range(12) for f in range(12)}
    charges, expected = [], []
    for _ in range(120):
        (a, b), (c, d) = (sorted(random.choices(range(12), k=2)) for _ in range(2))
        inside = [(age, fee) for age in range(a, b + 1) for fee in range(c, d + 1)]
        admitted = all(counters[point] < 3 for point in inside)
        for point in inside:
            counters[point] += admitted
        charges.append(on(books, box((a, b), (c, d)), analyst=random.choice(("alice", "bob"))))
        expected.append(None if admitted else REFUSED)
    assert answered(ready, pools, *charges) == expected
    assert 10 < expected.count(None) < 110 and popularity(books)[0] == 3 == max(counters.values())


def test_other_relations_have_their_own_limits(ready: str, books: Connection, pools: Pools) -> None:
    orders = [on(books, EVERYWHERE, relation="orders") for _ in range(5)]
    assert answered(ready, pools, *orders, *(on(books, EVERYWHERE) for _ in range(4))) == [None] * 8 + [REFUSED]
    books.execute("SELECT provenance.limit_relation('orders', %s)", (5 * ONE,))
    assert answered(ready, pools, on(books, EVERYWHERE, relation="orders")) == [
        "the privacy limit of relation orders is reached"
    ]
    books.execute("SELECT provenance.limit_relation('orders', NULL)")
    assert answered(ready, pools, on(books, EVERYWHERE, relation="orders")) == [None]
    assert popularity(books, "orders")[0] is None and popularity(books, "orders")[1] == 6 * ONE


def test_new_data_and_another_registration_are_about_the_same_people(
    ready: str, books: Connection, pools: Pools
) -> None:
    assert answered(ready, pools, on(books, box((0, 1), (0, 1)))) == [None]
    books.execute("SELECT provenance.refresh('patient')")
    assert answered(ready, pools, on(books, box((5, 6), (5, 6)))) == [None]
    books.execute("UPDATE provenance.relation SET active = false WHERE name = 'patient'")
    books.execute("SELECT provenance.protect('patient')")
    books.execute("SELECT provenance.limit_relation('patient', %s, %s)", (3 * ONE, NOISE))
    said = answered(ready, pools, *(on(books, box((at, at), (0, 9))) for at in (1, 2, 1)))
    assert said == [None, None, REFUSED] and popularity(books)[0] == 3


def test_stages_of_a_question_stay_within_the_limit_too(ready: str, books: Connection, pools: Pools) -> None:
    async def work() -> None:
        async with pools(ready) as pool:
            ledger = Ledger(pool)
            receipt = await ledger.charge(on(books, box((0, 9), (0, 9)), staged=True))
            receipt = await ledger.reserve_more(receipt, Loss(Coin.PURE, 2 * ONE))
            with pytest.raises(LimitReached, match="relation patient"):
                await ledger.reserve_more(receipt, Loss(Coin.PURE, ONE))
            await ledger.charge(on(books, box((10, 19), (0, 9))))
            await ledger.settle(receipt, Loss(Coin.PURE, 2 * ONE))
            await ledger.charge(on(books, EVERYWHERE))
            with pytest.raises(LimitReached, match="relation patient"):
                await ledger.charge(on(books, box((0, 0), (0, 0))))

    asyncio.run(work())
    assert popularity(books)[0] == 3


def test_charges_of_one_statement_count_together(ready: str, books: Connection, pools: Pools) -> None:
    async def work() -> None:
        async with pools(ready) as pool:
            ledger = Ledger(pool)
            one = on(books, EVERYWHERE)
            several = [replace(one, fingerprint=f"{at}") for at in range(4)]
            with pytest.raises(LimitReached, match="relation patient"):
                await ledger.charge_all(several)
            assert popularity(books)[0] == 0
            await ledger.charge_all(several[:3])

    asyncio.run(work())
    assert popularity(books)[0] == 3


def test_many_proxies_together_admit_exactly_what_fits(ready: str, books: Connection, pools: Pools) -> None:
    """Four ledgers at once, forty attempts on four disjoint regions: three answers each, and not one more. Who was
    overtaken too often is refused; once it is quiet nothing is."""

    async def work() -> tuple[int, int]:
        async with pools(ready) as one, pools(ready) as two, pools(ready) as three, pools(ready) as four:
            ledgers = [Ledger(pool) for pool in (one, two, three, four)]

            async def attempt(number: int) -> bool:
                where = box((10 * (number % 4), 10 * (number % 4) + 9), (0, 9))
                charge = replace(on(books, where, analyst=("alice", "bob")[number % 2]), fingerprint=str(number))
                try:
                    await ledgers[number % 4 if number % 3 else number % 2].charge(charge)
                except LimitReached as refusal:
                    assert refusal.message == REFUSED
                    return False
                return True

            crowded = sum(await asyncio.gather(*(attempt(number) for number in range(40))))
            return crowded, sum([await attempt(number) for number in range(40, 56)])

    crowded, quiet = asyncio.run(work())
    assert 4 <= crowded <= 12 and crowded + quiet == 12
    assert popularity(books)[0] == 3


def test_what_was_lost_with_a_ledger_counts_for_every_relation(ready: str, books: Connection, pools: Pools) -> None:
    books.execute(
        "INSERT INTO provenance.gap (charge, hash, coin, at, totals, replica)"
        """ VALUES (9, sha256('x'), 'pure', now(), '{"analysts": {}, "table": []}', 'one')"""
    )
    books.execute("SELECT provenance.book_gap(g, 'alice', %s, 0, %s) FROM provenance.gap g", (2 * ONE, 2 * ONE))
    books.execute("UPDATE provenance.gap SET accepted_at = now()")
    assert answered(ready, pools, on(books, box((0, 1), (0, 1))), on(books, box((0, 1), (0, 1)))) == [None, REFUSED]


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("SELECT provenance.limit_relation('patient', 11)", errors.CheckViolation),
        ("SELECT provenance.limit_relation('patient', -1)", errors.CheckViolation),
        ("SELECT provenance.limit_relation('patient', NULL, 5)", errors.CheckViolation),
        ("SELECT provenance.limit_relation('patient', 1, 0)", errors.CheckViolation),
        ("SELECT provenance.limit_relation('patient', 1, 1e9)", errors.CheckViolation),
        ("SELECT provenance.limit_relation('city', 1)", errors.CheckViolation),
        ("SELECT provenance.limit_relation('nothing', 1)", errors.UndefinedTable),
        ("UPDATE provenance.relation SET kind = 'public' WHERE name = 'patient'", errors.CheckViolation),
    ],
)
def test_nonsense_is_not_taken(books: Connection, statement: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        books.execute(statement.encode())


def test_an_administrator_sets_limits_and_sees_them(books: Connection) -> None:
    books.execute("SET ROLE pgveil_admin")
    books.execute("SELECT provenance.limit_relation('patient', 2, 100)")
    books.execute("UPDATE provenance.relation SET epsilon_limit = 1 WHERE name = 'patient'")
    rows = books.execute(
        'SELECT relation, "limit", noise_magnitude, popularity FROM provenance.relation_budget'
    ).fetchall()
    assert ("patient", 1, 100, 0) in rows
    before = books.execute("SELECT registry_version FROM provenance.deployment").fetchone()
    books.execute("SELECT provenance.limit_relation('patient', 2, 50)")
    after = books.execute("SELECT registry_version FROM provenance.deployment").fetchone()
    assert before is not None and after is not None and after[0] > before[0], "proxies hear of it"


@pytest.mark.parametrize("coin", list(Coin))
@pytest.mark.parametrize("magnitude", ["0.001", "1", "17.5", "2000", "13000"])
def test_the_report_knows_the_price_of_noise(sandbox: Connection, coin: Coin, magnitude: str) -> None:
    row = sandbox.execute("SELECT provenance.price_of_noise(%s, %s)", (coin.value, Decimal(magnitude))).fetchone()
    assert row is not None and abs(row[0] / price_of_magnitude(coin, Decimal(magnitude)) - 1) < Decimal("1e-8")


def test_the_same_holds_in_rho(ready: str, books: Connection, pools: Pools) -> None:
    books.execute("UPDATE provenance.deployment SET coin = 'zcdp'")
    books.execute(UNLIMITED.encode())
    books.execute("SELECT provenance.limit_relation('patient', 1, 10)")
    price = price_of_magnitude(Coin.ZCDP, NOISE)
    said = answered(ready, pools, *(on(books, box((0, 9), (0, 9)), price) for _ in range(12)))
    allowed = said.count(None)
    assert 0 < allowed < 12 and said == [None] * allowed + [REFUSED] * (12 - allowed)
    count, spent, left = popularity(books)
    assert count == allowed and spent <= 1 and left == 1 - spent
    assert answered(ready, pools, on(books, box((10, 19), (0, 9)), price)) == [None]


JOINED = "the privacy limit of relation orders is reached"


def test_a_question_counts_against_the_limits_of_all_that_it_joins(ready: str, books: Connection, pools: Pools) -> None:
    """In full, wherever it falls in the first: what is told of a patient's rows by way of another table is told."""
    books.execute("SELECT provenance.limit_relation('orders', %s)", (4 * ONE,))
    orders = place(books, "orders")[0]
    joined = [replace(on(books, box((at, at), (0, 9))), beside=(orders,)) for at in range(5)]
    assert answered(ready, pools, *joined) == [None] * 4 + [JOINED]
    assert popularity(books)[0] == 1 and popularity(books, "orders")[1:] == (4 * ONE, 0)
    assert answered(ready, pools, on(books, EVERYWHERE, relation="orders")) == [JOINED]
    assert answered(ready, pools, on(books, box((9, 9), (0, 9)))) == [None]
    (checked,) = books.execute("SELECT reason FROM provenance.verify_chain()").fetchall()
    assert checked[0] is None


def test_what_a_joined_question_gives_back_comes_off_all_limits(ready: str, books: Connection, pools: Pools) -> None:
    books.execute("SELECT provenance.limit_relation('orders', %s)", (3 * ONE,))
    joined = replace(on(books, EVERYWHERE, staged=True), beside=(place(books, "orders")[0],))

    async def work() -> None:
        async with pools(ready) as pool:
            ledger = Ledger(pool)
            receipt = await ledger.reserve_more(await ledger.charge(joined), Loss(Coin.PURE, 2 * ONE))
            with pytest.raises(LimitReached, match="relation"):
                await ledger.reserve_more(receipt, Loss(Coin.PURE, ONE))
            assert popularity(books, "orders")[1] == 3 * ONE
            await ledger.settle(receipt, Loss(Coin.PURE, 2 * ONE))
            assert popularity(books, "orders")[1] == 2 * ONE
            await ledger.charge(on(books, EVERYWHERE, relation="orders"))
            with pytest.raises(LimitReached, match="relation orders"):
                await ledger.charge(on(books, EVERYWHERE, relation="orders"))

    asyncio.run(work())


def test_a_stage_is_about_what_the_question_joined(ready: str, books: Connection, pools: Pools) -> None:
    joined = replace(on(books, EVERYWHERE, staged=True), beside=(place(books, "orders")[0],))
    assert answered(ready, pools, joined) == [None]
    with pytest.raises(errors.CheckViolation):
        books.execute(
            "INSERT INTO provenance.charge (analyst, relation, relation_id, data_version, registry_version,"
            " fingerprint, question, mechanism, coin, amount, epsilon, table_amount, stage, question_of, regions,"
            " region_amounts, region_tables) SELECT c.analyst, c.relation, c.relation_id, c.data_version,"
            " c.registry_version, c.fingerprint, c.question, c.mechanism, c.coin, -c.amount, 0, -c.amount, 'settle',"
            " c.id, c.regions,"
            " ARRAY[-c.amount], ARRAY[-c.amount] FROM provenance.charge c"
        )
