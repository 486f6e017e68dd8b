"""Groups of analysts who are declared not to collude have the limit of the protected database each for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from psycopg import Connection, errors

from mechanisms.loss import Coin, Loss, amount_within
from provenance.errors import LimitReached
from provenance.ledger import Ledger
from provenance.model import Charge, Part, Remaining

HALF = Decimal("5e-10")
UNIT = Decimal("1e-18")
WHOLE = amount_within(Coin.ZCDP, Decimal(1), HALF)

ChargeOf = Callable[..., Charge]
Pools = Callable[..., Any]

# Everybody may use all of the table's epsilon of 1.
EQUAL = """
UPDATE provenance.deployment SET epsilon = 1;
UPDATE provenance.analyst SET privilege = 10;
SELECT provenance.create_analyst('carol', 'carol', 10);
"""
GROUPS = """
INSERT INTO provenance.coalition VALUES ('inside', 'employees'), ('outside', 'another country');
UPDATE provenance.analyst SET coalition = CASE name WHEN 'carol' THEN 'outside' ELSE 'inside' END;
"""

# What the proxy that noticed it had seen of the protected database, and of no analyst.
LOST = """
SELECT provenance.report_gap(999, sha256('lost'), clock_timestamp(), 'zcdp', jsonb_build_object(
    'table', jsonb_build_array(%s::text, '1e-12'), 'analysts', '{}'::jsonb), 'a proxy')"""


@pytest.fixture
def ready(swept: str) -> str:
    """One database for all tests here, which is swept before each."""
    return swept


def pay(dsn: str, pools: Pools, charge: Charge) -> Remaining:
    async def run() -> Remaining:
        async with pools(dsn) as pool:
            return (await Ledger(pool).charge(charge)).remaining

    return asyncio.run(run())


@pytest.fixture
def equal(owner: Connection) -> Connection:
    owner.execute(EQUAL)
    return owner


def test_without_groups_everybody_shares_the_table(
    ready: str, equal: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    pay(ready, pools, charge_of(equal, WHOLE, "alice"))
    equal.execute("INSERT INTO provenance.coalition VALUES ('empty')")  # declares nothing yet
    for name in ("bob", "carol"):
        with pytest.raises(LimitReached, match="the protected database"):
            pay(ready, pools, charge_of(equal, UNIT, name))


def test_each_group_has_a_table_limit_of_its_own(
    ready: str, equal: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    equal.execute(GROUPS)
    pay(ready, pools, charge_of(equal, WHOLE - UNIT, "alice"))
    with pytest.raises(LimitReached, match='the coalition of analyst "bob"'):
        pay(ready, pools, charge_of(equal, 2 * UNIT, "bob"))
    left = pay(ready, pools, charge_of(equal, WHOLE - UNIT, "carol"))
    assert left.table < Decimal("1e-12")
    assert pay(ready, pools, charge_of(equal, UNIT, "bob")).table < Decimal("1e-12")
    with pytest.raises(LimitReached, match="coalition"):
        pay(ready, pools, charge_of(equal, UNIT, "bob"))


def test_what_a_group_learns_from_a_synopsis_of_others_counts_in_full(
    ready: str, equal: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    """The table lost nothing by it, but this group did not know it before."""
    equal.execute(GROUPS)
    part = Part((), "count(*)", WHOLE, WHOLE)
    pay(ready, pools, replace(charge_of(equal, WHOLE, "alice"), parts=(part,)))
    known = replace(charge_of(equal, WHOLE, "carol"), table=Decimal(0), parts=(replace(part, table=Decimal(0)),))
    pay(ready, pools, known)
    equal.execute("SELECT provenance.create_analyst('dora', 'dora', 10)")
    equal.execute("UPDATE provenance.analyst SET coalition = 'outside' WHERE name = 'dora'")
    small = replace(charge_of(equal, UNIT, "dora"), table=Decimal(0))
    with pytest.raises(LimitReached, match="coalition"):
        pay(ready, pools, small)
    assert equal.execute("SELECT amount FROM provenance.balance WHERE scope = 'table'").fetchone() == (WHOLE,)


def test_those_without_a_group_are_one(ready: str, equal: Connection, pools: Pools, charge_of: ChargeOf) -> None:
    equal.execute("INSERT INTO provenance.coalition VALUES ('outside')")
    equal.execute("UPDATE provenance.analyst SET coalition = 'outside' WHERE name = 'carol'")
    pay(ready, pools, charge_of(equal, WHOLE, "alice"))
    with pytest.raises(LimitReached, match="coalition"):
        pay(ready, pools, charge_of(equal, UNIT, "bob"))
    pay(ready, pools, charge_of(equal, WHOLE, "carol"))


def test_who_has_learned_something_in_a_group_stays_in_it(
    ready: str, equal: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    equal.execute(GROUPS)
    equal.execute("UPDATE provenance.analyst SET coalition = 'outside' WHERE name = 'bob'")
    pay(ready, pools, charge_of(equal, UNIT, "bob"))
    for group in ("'inside'", "NULL"):
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match="cannot leave"):
            equal.execute(f"UPDATE provenance.analyst SET coalition = {group} WHERE name = 'bob'".encode())
    with pytest.raises(errors.ForeignKeyViolation):
        equal.execute("UPDATE provenance.analyst SET coalition = 'nowhere' WHERE name = 'alice'")
    with pytest.raises(errors.ForeignKeyViolation):
        equal.execute("DELETE FROM provenance.coalition")


def test_what_was_lost_of_nobody_known_counts_for_every_group(
    ready: str, equal: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    """Attack: a ledger is restored, and the group that had spent everything begins anew beside the others."""
    equal.execute(GROUPS)
    equal.execute(LOST, (WHOLE - UNIT,))
    equal.execute("SELECT provenance.accept_gap(id) FROM provenance.gap")
    for name in ("alice", "carol"):
        with pytest.raises(LimitReached, match="coalition"):
            pay(ready, pools, charge_of(equal, 2 * UNIT, name))
        assert pay(ready, pools, charge_of(equal, UNIT, name)).table < Decimal("1e-12")
    with pytest.raises(LimitReached, match="the delta of the coalition"):
        pay(ready, pools, replace(charge_of(equal, "0", "bob"), loss=Loss(Coin.ZCDP, Decimal(0), HALF)))
