"""Reserve before each stage, settle once: a limit is never passed, and what is not settled stays spent."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg import Connection
from psycopg_pool import AsyncConnectionPool

from mechanisms.loss import Coin, Loss, amount_within, epsilon_of
from provenance import model
from provenance.errors import CommitUnknownError, LimitReached, NotActive, NotSettledError, SettlementError
from provenance.ledger import Ledger
from provenance.model import Charge, Entry, Receipt, Settled

HALF = Decimal("5e-10")  # of the delta of 1e-9 converts
ALICE = amount_within(Coin.ZCDP, Decimal(1), HALF)
UNIT = Decimal("1e-18")

ChargeOf = Callable[..., Charge]
Pools = Callable[..., Any]
Play = Callable[[Ledger], Any]


@pytest.fixture
def ready(swept: str) -> str:
    return swept


@pytest.fixture
def play(ready: str, pools: Pools) -> Callable[[Play], Any]:
    """Run a short piece with a ledger."""

    def run(piece: Play) -> Any:
        async def main() -> Any:
            async with pools(ready) as pool:
                return await piece(Ledger(pool))

        return asyncio.run(main())

    return run


@pytest.fixture
def staged(owner: Connection, charge_of: ChargeOf) -> ChargeOf:
    def make(amount: str | Decimal, analyst: str = "alice") -> Charge:
        return replace(charge_of(owner, amount, analyst), staged=True)

    return make


def rho(amount: str | Decimal, delta: str = "0") -> Loss:
    return Loss(Coin.ZCDP, Decimal(amount), Decimal(delta))


def spent(conn: Connection, name: str = "alice") -> Decimal:
    rows = dict(conn.execute("SELECT scope || name, amount FROM provenance.balance").fetchall())
    return Decimal(rows[f"analyst{name}"])


def amounts(conn: Connection) -> list[tuple[Any, ...]]:
    return conn.execute("SELECT stage, amount FROM provenance.charge ORDER BY id").fetchall()


def test_a_question_costs_what_it_reached(
    play: Any,
    staged: ChargeOf,
    owner: Connection,
    journal_of: Callable[[Connection], list[Entry]],
    books_balance: Callable[..., None],
) -> None:
    async def piece(ledger: Ledger) -> tuple[Receipt, Receipt, Settled]:
        first = await ledger.charge(staged("0.001"))
        more = await ledger.reserve_more(first, rho("0.002", "1e-12"))
        return first, more, await ledger.settle(more, rho("0.0015"), bill={"returned": 3})

    first, more, end = play(piece)
    assert (first.id, first.charge) == (more.id, more.charge) == (end.id, first.charge)
    assert more.paid == rho("0.003", "1e-12")
    assert more.epsilon == epsilon_of(Coin.ZCDP, Decimal("0.003"), HALF) == 1 - more.remaining.analyst
    assert end.loss == rho("0.0015")
    assert end.epsilon == epsilon_of(Coin.ZCDP, Decimal("0.0015"), HALF) == 1 - end.remaining.analyst
    assert end.epsilon == 10 - end.remaining.table
    assert amounts(owner) == [
        ("reserve", Decimal("0.001")),
        ("reserve", Decimal("0.002")),
        ("settle", Decimal("-0.0015")),
    ]
    assert spent(owner) == Decimal("0.0015")
    books_balance(owner, journal_of(owner))


def test_settling_all_that_was_reserved_gives_nothing_back(play: Any, staged: ChargeOf, owner: Connection) -> None:
    async def piece(ledger: Ledger) -> Settled:
        receipt = await ledger.charge(staged("0.001"))
        return await ledger.settle(receipt, receipt.paid, epsilon=Decimal("0.04"))

    end = play(piece)
    assert (end.loss, end.epsilon) == (rho("0.001"), Decimal("0.04"))
    assert spent(owner) == Decimal("0.001")
    assert owner.execute("SELECT epsilon FROM provenance.history").fetchone() == (Decimal("0.04"),)


@pytest.mark.parametrize("coin", [Coin.ZCDP, Coin.PURE])
@pytest.mark.parametrize("missing", [Decimal(0), UNIT])
def test_a_limit_holds_as_many_reservations_as_fit_to_the_last_digit(
    play: Any, staged: ChargeOf, owner: Connection, coin: Coin, missing: Decimal
) -> None:
    piece, steps = Decimal("0.000123456789012347"), 7
    owner.execute("UPDATE provenance.deployment SET coin = %s", (coin.value,))
    limit = epsilon_of(coin, piece * steps, HALF) - missing
    owner.execute("UPDATE provenance.analyst SET epsilon_limit = %s WHERE name = 'alice'", (limit,))

    async def asked(ledger: Ledger) -> int:
        receipt = await ledger.charge(staged(piece))
        for passed in range(1, 2 * steps):
            try:
                receipt = await ledger.reserve_more(receipt, Loss(coin, piece))
            except LimitReached as refusal:
                held = (
                    rf"Already reserved for this question: epsilon \S+, {(piece * passed).normalize():f} {coin.value}\."
                )
                assert re.search(held, refusal.detail or ""), refusal.detail
                return passed
        raise AssertionError("no limit")

    fit = steps if not missing else steps - 1
    assert play(asked) == fit
    assert spent(owner) == fit * piece


def test_pure_epsilons_add_up(play: Any, staged: ChargeOf, owner: Connection) -> None:
    owner.execute("UPDATE provenance.deployment SET coin = 'pure', delta = 0")

    async def piece(ledger: Ledger) -> tuple[Receipt, Settled]:
        receipt = await ledger.charge(staged("0.1"))
        for step in ("0.2", "0.3"):
            receipt = await ledger.reserve_more(receipt, Loss(Coin.PURE, Decimal(step)))
        return receipt, await ledger.settle(receipt, Loss(Coin.PURE, Decimal("0.25")))

    receipt, end = play(piece)
    assert (receipt.epsilon, receipt.remaining.analyst) == (Decimal("0.6"), Decimal("0.4"))
    assert (end.epsilon, end.remaining.analyst, end.remaining.table) == (
        Decimal("0.25"),
        Decimal("0.75"),
        Decimal("9.75"),
    )


def test_what_is_given_back_can_be_spent_again(play: Any, staged: ChargeOf) -> None:
    async def piece(ledger: Ledger) -> None:
        first = await ledger.charge(staged(ALICE))
        with pytest.raises(LimitReached):
            await ledger.charge(staged(UNIT))
        await ledger.settle(first, rho(ALICE - UNIT))
        await ledger.charge(staged(UNIT))
        with pytest.raises(LimitReached):
            await ledger.charge(staged(UNIT))

    play(piece)


def test_a_question_is_settled_once_and_then_closed(play: Any, staged: ChargeOf, owner: Connection) -> None:
    async def piece(ledger: Ledger) -> None:
        receipt = await ledger.charge(staged("0.001"))
        await ledger.settle(receipt, rho("0.0005"))
        with pytest.raises(SettlementError, match="is settled"):
            await ledger.settle(receipt, rho("0"))
        with pytest.raises(SettlementError, match="is settled"):
            await ledger.reserve_more(receipt, rho("0.001"))

    play(piece)
    assert spent(owner) == Decimal("0.0005")


def test_two_settlements_at_once_give_back_once(play: Any, staged: ChargeOf, owner: Connection) -> None:
    async def piece(ledger: Ledger) -> list[Any]:
        receipt = await ledger.charge(staged("0.001"))
        ends = (ledger.settle(receipt, rho("0.0004")) for _ in range(4))
        return await asyncio.gather(*ends, return_exceptions=True)

    ends = [type(end) for end in play(piece)]
    assert (ends.count(Settled), ends.count(SettlementError)) == (1, 3)
    assert spent(owner) == Decimal("0.0004")


@pytest.mark.parametrize(
    "reached",
    [rho(Decimal("0.001") + UNIT), rho("0.001", "1e-30"), Loss(Coin.PURE, Decimal("0.001"))],
    ids=["amount", "delta", "coin"],
)
def test_more_than_was_reserved_is_not_settled(play: Any, staged: ChargeOf, owner: Connection, reached: Loss) -> None:
    async def piece(ledger: Ledger) -> None:
        receipt = await ledger.charge(staged("0.001"))
        with pytest.raises(SettlementError):
            await ledger.settle(receipt, reached)

    play(piece)
    assert amounts(owner) == [("reserve", Decimal("0.001"))]


def test_a_fixed_price_is_paid_for_good(play: Any, owner: Connection, charge_of: ChargeOf) -> None:
    charge = charge_of(owner, "0.001")

    async def piece(ledger: Ledger) -> None:
        receipt = await ledger.charge(charge)
        with pytest.raises(SettlementError, match="for good"):
            await ledger.settle(receipt, rho("0"))
        with pytest.raises(SettlementError, match="for good"):
            await ledger.reserve_more(receipt, rho("0.001"))

    play(piece)
    assert amounts(owner) == [("charge", Decimal("0.001"))]


def test_nobody_settles_the_question_of_another(play: Any, staged: ChargeOf, owner: Connection) -> None:
    """A receipt from another ledger may name any row of this one."""

    async def piece(ledger: Ledger) -> None:
        alice = await ledger.charge(staged("0.001"))
        for other in (
            replace(alice.charge, analyst="bob"),
            replace(alice.charge, fingerprint="beef"),
            replace(alice.charge, data_version=2),
        ):
            foreign = Receipt(alice.id, other, alice.epsilon, alice.remaining, model._TILL)
            with pytest.raises(SettlementError, match="no reservation of this question"):
                await ledger.settle(foreign, rho("0"))
            with pytest.raises(SettlementError, match="no reservation of this question"):
                await ledger.reserve_more(foreign, rho("0.001"))

    play(piece)
    assert spent(owner) == Decimal("0.001")


def test_an_older_receipt_gives_back_only_what_it_proves(play: Any, staged: ChargeOf, owner: Connection) -> None:
    """What was added behind its back, as by a reservation whose COMMIT was lost, stays spent."""

    async def piece(ledger: Ledger) -> Settled:
        first = await ledger.charge(staged("0.001"))
        await ledger.reserve_more(first, rho("0.004"))
        return await ledger.settle(first, rho("0.0002"), epsilon=Decimal("0.0001"))

    end = play(piece)
    assert end.loss == rho("0.0042")
    assert end.epsilon == epsilon_of(Coin.ZCDP, Decimal("0.0042"), HALF), "the net, not what the caller believes"
    assert spent(owner) == Decimal("0.0042")


def test_changes_of_the_registry_do_not_stop_a_question_that_has_read(
    play: Any, staged: ChargeOf, owner: Connection
) -> None:
    async def piece(ledger: Ledger) -> Settled:
        receipt = await ledger.charge(staged("0.001"))
        owner.execute("SELECT provenance.refresh('patient')")
        owner.execute("UPDATE provenance.relation SET active = false WHERE name = 'patient'")
        receipt = await ledger.reserve_more(receipt, rho("0.001"))
        return await ledger.settle(receipt, rho("0.0015"))

    assert play(piece).loss == rho("0.0015")


def test_an_analyst_who_was_stopped_reserves_no_more_and_still_gets_back(
    play: Any, staged: ChargeOf, owner: Connection
) -> None:
    async def piece(ledger: Ledger) -> None:
        receipt = await ledger.charge(staged("0.001"))
        owner.execute("UPDATE provenance.analyst SET active = false")
        with pytest.raises(NotActive) as caught:
            await ledger.reserve_more(receipt, rho("0.001"))
        assert "Already reserved" in (caught.value.detail or "")
        await ledger.settle(receipt, rho("0.0005"))

    play(piece)
    assert spent(owner) == Decimal("0.0005")


def test_a_lowered_limit_stops_the_next_stage_and_not_the_settlement(
    play: Any, staged: ChargeOf, owner: Connection
) -> None:
    async def piece(ledger: Ledger) -> None:
        receipt = await ledger.charge(staged("0.01"))
        owner.execute("UPDATE provenance.analyst SET epsilon_limit = 0.1")
        with pytest.raises(LimitReached):
            await ledger.reserve_more(receipt, rho(UNIT))
        end = await ledger.settle(receipt, rho("0.009"))
        assert end.remaining.analyst == 0

    play(piece)
    assert spent(owner) == Decimal("0.009")


CUT = """
CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER cut AFTER INSERT ON provenance.charge DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION cut();
"""


def test_a_settlement_lost_at_commit_leaves_the_reservation(play: Any, staged: ChargeOf, owner: Connection) -> None:
    async def piece(ledger: Ledger) -> None:
        receipt = await ledger.charge(staged("0.001"))
        owner.execute(CUT)
        with pytest.raises(NotSettledError) as caught:
            await ledger.settle(receipt, rho("0"))
        assert isinstance(caught.value, CommitUnknownError) and caught.value.sqlstate == "58000"
        with pytest.raises(CommitUnknownError) as more:
            await ledger.reserve_more(receipt, rho("0.001"))
        assert not isinstance(more.value, NotSettledError)
        assert spent(owner) == Decimal("0.001")
        owner.execute("DROP FUNCTION cut CASCADE")
        await ledger.settle(receipt, rho("0.0004"))

    play(piece)
    assert spent(owner) == Decimal("0.0004")


def test_a_ledger_that_is_away_settles_nothing(ready: str, owner: Connection, pools: Pools, staged: ChargeOf) -> None:
    async def run() -> None:
        async with pools(ready) as pool:
            receipt = await Ledger(pool).charge(staged("0.001"))
        nowhere = psycopg.conninfo.make_conninfo(ready, host="/nowhere")
        async with AsyncConnectionPool(nowhere, min_size=0, max_size=1, open=False, timeout=0.2) as away:
            with pytest.raises(NotSettledError):
                await Ledger(away).settle(receipt, rho("0"))

    asyncio.run(run())
    assert spent(owner) == Decimal("0.001")


def test_a_cancelled_settlement_leaves_the_reservation_and_the_till_open(
    ready: str, play: Any, staged: ChargeOf, owner: Connection
) -> None:
    async def piece(ledger: Ledger) -> None:
        receipt = await ledger.charge(staged("0.001"))
        with psycopg.connect(ready) as till:
            till.execute("SELECT FROM provenance.balance FOR UPDATE")
            waiting = asyncio.create_task(ledger.settle(receipt, rho("0")))
            await asyncio.sleep(0.2)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert spent(owner) == Decimal("0.001")
        await asyncio.wait_for(ledger.settle(receipt, rho("0.0001")), 60)

    play(piece)
    assert spent(owner) == Decimal("0.0001")
