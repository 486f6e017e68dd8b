"""Budgets that are lent: the grantee learns more, the grantor can spend less, and the sum of both stays what it was."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import Connection, errors

from mechanisms.loss import Coin, Loss, amount_within
from provenance import accountant
from provenance.errors import LimitReached
from provenance.ledger import Ledger
from provenance.model import Balance, Balances, Charge, Grant, Lending

HALF = Decimal("5e-10")
UNIT = Decimal("1e-18")
ALICE, BOB = (amount_within(Coin.ZCDP, Decimal(epsilon), HALF) for epsilon in (1, 4))
LENT = amount_within(Coin.ZCDP, Decimal("0.5"), HALF)

ChargeOf = Callable[..., Charge]
Pools = Callable[..., Any]


@pytest.fixture
def ready(swept: str) -> str:
    """One database for all tests here, which is swept before each."""
    return swept


def till(dsn: str, pools: Pools, ask: Callable[[Ledger], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with pools(dsn) as pool:
            return await ask(Ledger(pool))

    return asyncio.run(run())


def pay(dsn: str, pools: Pools, *charges: Charge) -> None:
    till(dsn, pools, lambda ledger: ledger.charge_all(charges))


def grant(conn: Connection, text: str = "'bob', 'alice', 0.5") -> int:
    row = conn.execute(f"SELECT provenance.grant_budget({text})".encode()).fetchone()
    assert row is not None
    return int(row[0])


def used(conn: Connection) -> list[Decimal]:
    return [row[0] for row in conn.execute("SELECT used FROM provenance.grant_of_budget ORDER BY id")]


def test_a_grantee_learns_what_was_granted_beyond_the_own_limit_and_not_one_digit_more(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    grant(owner)
    pay(ready, pools, charge_of(owner, ALICE))
    assert used(owner) == [0], "the own limit comes first"
    with pytest.raises(LimitReached, match='analyst "alice"'):
        pay(ready, pools, charge_of(owner, LENT + UNIT))
    pay(ready, pools, charge_of(owner, LENT))
    assert used(owner) == [LENT]
    with pytest.raises(LimitReached, match='analyst "alice"'):
        pay(ready, pools, charge_of(owner, UNIT))
    assert owner.execute("SELECT grants, grant_amounts FROM provenance.charge ORDER BY id").fetchall() == [
        ([], []),
        ([1], [LENT]),
    ]
    assert owner.execute("SELECT broken, reason FROM provenance.verify_chain()").fetchone() == (None, None)


def test_what_was_lent_and_used_counts_against_the_grantor(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    grant(owner)
    pay(ready, pools, charge_of(owner, ALICE + LENT))
    with pytest.raises(LimitReached, match='analyst "bob"'):
        pay(ready, pools, charge_of(owner, BOB - LENT + UNIT, "bob"))
    pay(ready, pools, charge_of(owner, BOB - LENT, "bob"))
    assert owner.execute("SELECT amount FROM provenance.balance WHERE name = 'alice'").fetchone() == (ALICE + LENT,)
    left = till(ready, pools, lambda ledger: ledger.remaining("bob"))
    assert left.analyst < Decimal("1e-12")


def test_a_grantor_who_has_spent_everything_lends_nothing(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    grant(owner)
    pay(ready, pools, charge_of(owner, BOB - UNIT, "bob"), charge_of(owner, UNIT, "bob"))
    pay(ready, pools, charge_of(owner, ALICE))
    with pytest.raises(LimitReached):
        pay(ready, pools, charge_of(owner, UNIT))


@pytest.mark.parametrize(
    "end",
    [
        "SELECT provenance.revoke_grant(1)",
        "UPDATE provenance.grant_of_budget SET until = clock_timestamp()",
        "UPDATE provenance.analyst SET active = false WHERE name = 'bob'",
    ],
)
def test_a_grant_ends_and_what_was_used_stays_used(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf, end: str
) -> None:
    grant(owner)
    half = (LENT / 2).quantize(UNIT)
    pay(ready, pools, charge_of(owner, ALICE + half))
    owner.execute(end.encode())
    with pytest.raises(LimitReached):
        pay(ready, pools, charge_of(owner, UNIT))
    assert used(owner) == [half]
    assert till(ready, pools, lambda ledger: ledger.remaining("alice")).analyst < Decimal("1e-12")


def test_what_a_stage_did_not_reach_comes_back_to_the_grant_first(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    grant(owner)

    async def ask(ledger: Ledger) -> None:
        receipt = await ledger.charge(replace(charge_of(owner, ALICE - UNIT), staged=True))
        receipt = await ledger.reserve_more(receipt, Loss(Coin.ZCDP, LENT))
        assert used(owner) == [LENT - UNIT]
        settled = await ledger.settle(receipt, Loss(Coin.ZCDP, ALICE + 2 * UNIT))
        assert used(owner) == [2 * UNIT]
        assert settled.remaining == await ledger.remaining("alice")
        receipt = await ledger.charge(replace(charge_of(owner, LENT - 2 * UNIT), staged=True))
        await ledger.settle(receipt, Loss.nothing(Coin.ZCDP))
        assert used(owner) == [2 * UNIT]

    till(ready, pools, ask)


def test_two_grants_are_used_in_the_order_in_which_they_end(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    owner.execute("SELECT provenance.create_analyst('carol', 'carol', 10)")
    grant(owner, "'bob', 'alice', 0.5")
    grant(owner, "'carol', 'alice', 0.5, now() + interval '1 hour'")
    pay(ready, pools, charge_of(owner, ALICE + LENT + UNIT))
    assert used(owner) == [UNIT, LENT]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("SELECT provenance.grant_budget('bob', 'alice', 4.1)", errors.CheckViolation),
        ("SELECT provenance.grant_budget('bob', 'alice', 0)", errors.CheckViolation),
        ("SELECT provenance.grant_budget('bob', 'bob', 1)", errors.CheckViolation),
        ("SELECT provenance.grant_budget('bob', 'nobody', 1)", errors.ForeignKeyViolation),
        ("SELECT provenance.grant_budget('bob', 'alice', 1, now() - interval '1 s')", errors.InvalidParameterValue),
        ("SELECT provenance.revoke_grant(99)", errors.UndefinedObject),
        ("DELETE FROM provenance.grant_of_budget", errors.InsufficientPrivilege),
        ("UPDATE provenance.grant_of_budget SET grantee = 'admin'", errors.ObjectNotInPrerequisiteState),
        ("UPDATE provenance.grant_of_budget SET used = -1", errors.CheckViolation),
    ],
)
def test_grants_that_make_no_sense_are_refused(sandbox: Connection, text: str, error: type[Exception]) -> None:
    grant(sandbox)
    with pytest.raises(error), sandbox.transaction():
        sandbox.execute(text.encode())


DRAW = """
INSERT INTO provenance.charge (analyst, relation, relation_id, data_version, registry_version, fingerprint, question,
                               mechanism, coin, amount, epsilon, grants, grant_amounts)
SELECT %s, label, id, 1, 1, 'f', 'q', 'tslm', 'zcdp', 0.001, 0.1, %s, %s FROM provenance.relation WHERE name = 'patient'
"""


@pytest.mark.parametrize(
    ("who", "grants", "amounts"),
    [
        ("bob", [1], ["0.001"]),
        ("alice", [1], ["0.002"]),
        ("alice", [1], ["-0.001"]),
        ("alice", [1, 1], ["0.0005", "0.0005"]),
        ("alice", [7], ["0.001"]),
        ("alice", [1], []),
    ],
)
def test_a_row_that_draws_on_what_is_not_its_own_is_not_taken(
    sandbox: Connection, who: str, grants: list[int], amounts: list[str]
) -> None:
    first = grant(sandbox)
    ids = [first if id_ == 1 else 99 for id_ in grants]
    with pytest.raises(errors.CheckViolation), sandbox.transaction():
        sandbox.execute(DRAW, (who, ids, [Decimal(amount) for amount in amounts]))
    sandbox.execute(DRAW, ("alice", [first], [Decimal("0.001")]))


amounts = st.decimals(0, 1, places=6)
grants = st.lists(st.tuples(st.sampled_from(["bob", "carol"]), amounts), max_size=4)


@given(grants=grants, rooms=st.tuples(amounts, amounts), share=amounts)
def test_drawing_never_takes_more_than_a_grant_or_its_grantor_has(
    grants: list[tuple[str, Decimal]], rooms: tuple[Decimal, Decimal], share: Decimal
) -> None:
    room = dict(zip(("bob", "carol"), rooms, strict=True))
    before = Lending(grants=tuple(Grant(i, who, left, room[who]) for i, (who, left) in enumerate(grants)))
    spare = accountant.spare_of(before)
    assert spare <= sum((left for _, left in grants), Decimal(0)) and spare <= sum(rooms)
    amount = (spare * share).quantize(Decimal("1e-12"), "ROUND_DOWN")
    after = accountant._drawn(before, amount)
    paid = accountant.draws(before, after)
    assert sum(paid.values(), Decimal(0)) == amount and all(paid.values())
    assert accountant.spare_of(after) == spare - amount
    for who in room:
        assert sum((paid.get(i, Decimal(0)) for i, (by, _) in enumerate(grants) if by == who), Decimal(0)) <= room[who]
    back = accountant.returned(paid, amount)
    assert back == paid
    balances = Balances(Balance(amount), Balance(amount), lending=after)
    again = accountant.settle(balances, Loss(Coin.ZCDP, amount), grants=back).lending
    assert [each.left for each in again.grants] == [each.left for each in before.grants] and again.drawn == 0


LOST = """
SELECT provenance.report_gap(999, sha256('lost'), clock_timestamp(), 'zcdp', jsonb_build_object(
    'table', jsonb_build_array(%(all)s::text, '0'),
    'analysts', jsonb_build_object('alice', jsonb_build_array(%(all)s::text, '0'))), 'a proxy')"""


def test_what_was_drawn_before_a_ledger_was_restored_is_not_drawn_again(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    """Attack: the grant that comes back with the older copy is unused, though its grantee has learned all of it."""
    grant(owner)
    owner.execute(LOST, {"all": ALICE + LENT})
    owner.execute("SELECT provenance.accept_gap(id) FROM provenance.gap")
    assert owner.execute("SELECT amount FROM provenance.balance WHERE name = 'alice'").fetchone() == (ALICE + LENT,)
    with pytest.raises(LimitReached, match='analyst "alice"'):
        pay(ready, pools, charge_of(owner, UNIT))
    grant(owner)  # an administrator who looks into it may lend again
    pay(ready, pools, charge_of(owner, LENT))
    with pytest.raises(LimitReached, match='analyst "alice"'):
        pay(ready, pools, charge_of(owner, UNIT))
