"""What each group lost is kept with the charge, and administrators read it in plain SQL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import Connection, errors
from psycopg.types.json import Jsonb

from mechanisms.loss import Coin, Loss
from provenance.errors import SettlementError
from provenance.ledger import Ledger
from provenance.model import Charge, PredicateLoss

ChargeOf = Callable[..., Charge]
Pools = Callable[..., Any]


@pytest.fixture
def ready(swept: str) -> str:
    return swept


def stored(conn: Connection, charge: int) -> list[Decimal]:
    rows = conn.execute("SELECT place, loss FROM provenance.group_losses(%s)", (charge,)).fetchall()
    assert [row[0] for row in rows] == list(range(len(rows)))
    return [row[1] for row in rows]


def paid(conn: Connection) -> int:
    row = conn.execute(
        "INSERT INTO provenance.charge (analyst, relation, relation_id, data_version, registry_version, fingerprint,"
        " question, mechanism, coin, amount, epsilon, bill)"
        " SELECT 'alice', label, id, 1, 1, 'f', 'q', 'tslm', 'zcdp', 1000000, 1, %s FROM provenance.relation"
        " WHERE label = 'patient' RETURNING id",
        (Jsonb({}),),
    ).fetchone()
    assert row is not None
    return int(row[0])


def keep(conn: Connection, groups: PredicateLoss) -> int:
    charge = paid(conn)
    conn.execute(
        "INSERT INTO provenance.charge_loss VALUES (%s, %s, %s, %s, %s)",
        (charge, list(groups.levels), groups.packed(), groups.groups, groups.min_entropy),
    )
    return charge


@given(
    levels=st.lists(st.decimals(0, 1000, places=18), min_size=1, max_size=5, unique=True),
    picks=st.lists(st.integers(0, 4), max_size=40),
)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_losses_are_read_as_they_were_written(sandbox: Connection, levels: list[Decimal], picks: list[int]) -> None:
    index = np.array([pick % len(levels) for pick in picks], dtype=np.int64)
    with sandbox.transaction(force_rollback=True):
        charge = keep(sandbox, PredicateLoss(tuple(levels), index))
        assert stored(sandbox, charge) == [levels[place] for place in index]


@pytest.mark.parametrize("count", [1, 2, 256, 257, 65536])
def test_any_number_of_levels_up_to_two_bytes_is_kept(sandbox: Connection, count: int) -> None:
    levels = tuple(Decimal(n).scaleb(-3) for n in range(count))
    index = np.array([0, count - 1, count // 2, 0])
    assert stored(sandbox, keep(sandbox, PredicateLoss(levels, index))) == [levels[place] for place in index]


def test_a_hundred_thousand_groups_are_small_and_quick_to_read(sandbox: Connection) -> None:
    """Most groups are decided at one of the first levels, so that PostgreSQL can compress their places."""
    index = np.random.default_rng(5).choice(4, size=100_000, p=[0.9, 0.06, 0.03, 0.01])
    charge = keep(sandbox, PredicateLoss(tuple(map(Decimal, "1234")), index, 11.5))
    size = sandbox.execute("SELECT pg_column_size(level_of) FROM provenance.charge_loss").fetchone()
    assert size is not None and size[0] < 50_000
    sandbox.execute("SET LOCAL statement_timeout = '30s'")
    row = sandbox.execute("SELECT count(*), sum(loss) FROM provenance.group_losses(%s)", (charge,)).fetchone()
    assert row == (100_000, int((index + 1).sum()))


def test_a_settlement_keeps_what_each_group_lost(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    reached = Loss(Coin.ZCDP, Decimal("0.0015"))
    groups = PredicateLoss((Decimal("0.0001"), Decimal("0.0015")), np.array([1, 0, 0]), 0.75)

    async def run() -> int:
        async with pools(ready) as pool:
            ledger = Ledger(pool)
            receipt = await ledger.charge(replace(charge_of(owner, "0.002"), staged=True))
            above = PredicateLoss.uniform(Decimal("0.001500000000000001"), 3)
            with pytest.raises(SettlementError, match="a group lost"):
                await ledger.settle(receipt, reached, groups=above)
            await ledger.settle(receipt, reached, groups=groups)
            return receipt.id

    charge = asyncio.run(run())
    assert stored(owner, charge) == [Decimal("0.0015"), Decimal("0.0001"), Decimal("0.0001")]
    assert owner.execute("SELECT min_entropy FROM provenance.history").fetchone() == (0.75,)


def test_fixed_prices_keep_one_level_and_the_count(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    one, two = (charge_of(owner, amount) for amount in ("0.001", "0.002"))
    asked = [
        replace(one, groups=PredicateLoss.uniform(Decimal("0.001"), 40)),
        two,
        replace(two, groups=PredicateLoss.uniform(Decimal("0.0002"), 3, 1.0)),
    ]

    async def run() -> list[int]:
        async with pools(ready) as pool:
            return [receipt.id for receipt in await Ledger(pool).charge_all(asked)]

    first, second, third = asyncio.run(run())
    rows = owner.execute("SELECT charge, levels, level_of, groups FROM provenance.charge_loss ORDER BY 1").fetchall()
    assert rows == [(first, [Decimal("0.001")], b"", 40), (third, [Decimal("0.0002")], b"", 3)]
    assert stored(owner, second) == [] and stored(owner, third) == [Decimal("0.0002")] * 3


def test_what_makes_no_sense_is_no_predicate_loss(owner: Connection, charge_of: ChargeOf) -> None:
    one = Decimal(1)
    for levels, index, entropy in (
        ((one,), np.array([0, 1]), None),
        ((one,), np.array([-1]), None),
        ((), np.array([0]), None),
        ((Decimal(-1),), np.array([0]), None),
        ((Decimal("NaN"),), np.array([0]), None),
        ((one,), np.array([[0]]), None),
        ((one,), np.array([0.0]), None),
        ((one,), np.array([0]), float("nan")),
    ):
        with pytest.raises(ValueError):
            PredicateLoss(levels, index, entropy)  # type: ignore[arg-type]
    charge = charge_of(owner, "0.001")
    with pytest.raises(ValueError, match="none above it"):
        replace(charge, groups=PredicateLoss.uniform(Decimal("0.0011"), 1))
    with pytest.raises(ValueError, match="fixed price"):
        replace(charge, staged=True, groups=PredicateLoss.uniform(Decimal("0.001"), 1))


NONSENSE = {
    "a level above the charge": ("'{1000001}', '', 1, 0", "23514"),
    "a negative level": ("'{-1}', '', 1, 0", "23514"),
    "no level": ("'{}', '', 1, 0", "23514"),
    "an unknown level": ("'{NULL}', '', 1, 0", "23514"),
    "an endless level": ("'{Infinity}', '', 1, 0", "23514"),
    "too few places": ("'{1,2}', '\\x00', 2, 0", "23514"),
    "an endless entropy": ("'{1}', '', 1, 'Infinity'", "23514"),
}


@pytest.mark.parametrize("case", NONSENSE)
def test_the_database_keeps_nonsense_out(sandbox: Connection, case: str) -> None:
    values, sqlstate = NONSENSE[case]
    charge = paid(sandbox)
    with pytest.raises(errors.Error) as caught, sandbox.transaction():
        sandbox.execute(f"INSERT INTO provenance.charge_loss VALUES ({charge}, {values})".encode())
    assert caught.value.sqlstate == sqlstate


def test_an_administrator_reads_losses_and_writes_none(sandbox: Connection) -> None:
    charge = keep(sandbox, PredicateLoss.uniform(Decimal(1), 2))
    sandbox.execute("SET LOCAL ROLE pgveil_admin")
    assert stored(sandbox, charge) == [1, 1]
    assert sandbox.execute("SELECT count(*) FROM provenance.charge_loss").fetchone() == (1,)
    for statement in (
        f"INSERT INTO provenance.charge_loss VALUES ({charge}, '{{0}}', '', 1)",
        "DELETE FROM provenance.charge_loss",
    ):
        with pytest.raises(errors.InsufficientPrivilege), sandbox.transaction():
            sandbox.execute(statement.encode())
