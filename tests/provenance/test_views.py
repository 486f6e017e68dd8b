"""Row, column and table limits: what an analyst learns, what a view loses, and what the protected database loses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import Connection, errors

from mechanisms.loss import Coin, Loss, amount_within
from provenance import accountant
from provenance.entries import Held
from provenance.errors import LimitReached, StaleCatalog, StaleSynopsis
from provenance.ledger import Ledger
from provenance.model import Charge, Entry, Part, Receipt, Verdict

HALF = Decimal("5e-10")
UNIT = Decimal("1e-18")

ChargeOf = Callable[..., Charge]
Pools = Callable[..., Any]
Journal = Callable[[Connection], list[Entry]]
Balanced = Callable[[Connection, list[Entry]], None]


@pytest.fixture
def ready(swept: str) -> str:
    """One database for all tests here, which is swept before each."""
    return swept


def part(
    amount: str, table: str | None = None, dimensions: Sequence[str] = ("age",), measure: str = "count(*)"
) -> Part:
    return Part(tuple(dimensions), measure, Decimal(amount), Decimal(amount if table is None else table))


def till(dsn: str, pools: Pools, ask: Callable[[Ledger], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with pools(dsn) as pool:
            return await ask(Ledger(pool))

    return asyncio.run(run())


def pay(dsn: str, pools: Pools, *charges: Charge, also: Sequence[Any] = ()) -> list[Receipt]:
    paid: list[Receipt] = till(dsn, pools, lambda ledger: ledger.charge_all(charges, also))
    return paid


def balances(conn: Connection) -> dict[str, Decimal]:
    return dict(conn.execute("SELECT scope || name, amount FROM provenance.balance").fetchall())


def views(conn: Connection) -> list[tuple[Any, ...]]:
    return conn.execute("SELECT relation, dimensions, measure FROM provenance.view ORDER BY id").fetchall()


def test_analyst_view_and_table_lose_what_each_of_them_loses(
    swept: str, pools: Pools, charge_of: ChargeOf, journal_of: Journal, books_balance: Balanced
) -> None:
    with psycopg.connect(swept, autocommit=True) as conn:
        charge = replace(charge_of(conn, "0.003"), table=Decimal("0.001"), parts=(part("0.002", "0.0005"),))
        pay(swept, pools, charge, replace(charge, table=Decimal(0), parts=(part("0.003", "0"),)))
        (view,) = conn.execute("SELECT id FROM provenance.view").fetchone() or (None,)
        now = balances(conn)
        assert now["analystalice"] == Decimal("0.006")
        assert now["table"] == Decimal("0.001")
        assert now[f"view{view}"] == Decimal("0.0005")
        assert conn.execute("SELECT * FROM provenance.spending").fetchall() == [("alice", view, Decimal("0.005"))]
        rows = conn.execute("SELECT view, amount, table_amount FROM provenance.charge_view ORDER BY charge").fetchall()
        assert rows == [(view, Decimal("0.002"), Decimal("0.0005")), (view, Decimal("0.003"), Decimal(0))]
        books_balance(conn, journal_of(conn))


def test_a_view_is_made_by_its_first_question_whatever_the_order_of_its_dimensions(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    owner.execute("INSERT INTO provenance.view (relation, dimensions) VALUES ('patient', '{sex,age}')")
    first = replace(charge_of(owner, "0.001"), parts=(part("0.001", None, ("sex", "age")), part("0.001", None, ())))
    again = replace(first, parts=(part("0.001", None, ("age", "sex")),))
    pay(ready, pools, first, again)
    pay(ready, pools, again)
    assert views(owner) == [("patient", ["age", "sex"], "count(*)"), ("patient", [], "count(*)")]
    assert [row[0] for row in owner.execute("SELECT provenance.view_label(id) FROM provenance.view ORDER BY id")] == [
        "patient (age, sex): count(*)",
        "patient: count(*)",
    ]


def test_a_refused_question_makes_no_view(ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf) -> None:
    with pytest.raises(LimitReached):
        pay(ready, pools, replace(charge_of(owner, "5"), parts=(part("5"),)))
    with pytest.raises(StaleCatalog):
        pay(ready, pools, replace(charge_of(owner, "0.001"), relation_id=99, parts=(part("0.001"),)))
    assert views(owner) == []


def test_the_limit_of_a_view_holds_to_the_last_digit_and_is_named(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    owner.execute("INSERT INTO provenance.view (relation, dimensions, epsilon_limit) VALUES ('patient', '{age}', 0.3)")
    most = amount_within(Coin.ZCDP, Decimal("0.3"), HALF)
    one = replace(charge_of(owner, most, "bob"), parts=(Part(("age",), "count(*)", most, most),))
    over = replace(charge_of(owner, most + UNIT, "bob"), parts=(Part(("age",), "count(*)", most + UNIT, most + UNIT),))
    with pytest.raises(LimitReached, match=r"view patient \(age\): count\(\*\)") as refused:
        pay(ready, pools, over)
    assert refused.value.sqlstate == "53400" and "left" not in (refused.value.detail or "")  # others share the view
    pay(ready, pools, one)
    last = replace(charge_of(owner, UNIT), parts=(Part(("age",), "count(*)", UNIT, UNIT),))
    with pytest.raises(LimitReached, match="view patient"):
        pay(ready, pools, last)
    pay(ready, pools, replace(last, table=Decimal(0), parts=(Part(("age",), "count(*)", UNIT, Decimal(0)),)))
    owner.execute("UPDATE provenance.view SET epsilon_limit = NULL")
    pay(ready, pools, last)
    owner.execute("UPDATE provenance.view SET epsilon_limit = 0.1")
    with pytest.raises(LimitReached, match="view patient"):
        pay(ready, pools, last)


def test_two_questions_of_one_statement_share_the_limit_of_their_view(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    owner.execute("INSERT INTO provenance.view (relation, dimensions, epsilon_limit) VALUES ('patient', '{age}', 0.3)")
    half = (amount_within(Coin.ZCDP, Decimal("0.3"), HALF) / 2).quantize(UNIT) + UNIT
    charge = replace(charge_of(owner, half), parts=(Part(("age",), "count(*)", half, half),))
    with pytest.raises(LimitReached, match="view patient"):
        pay(ready, pools, charge, charge)
    assert balances(owner)["table"] == 0
    pay(ready, pools, charge)


def test_the_verdict_minds_views_and_makes_none(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    owner.execute("INSERT INTO provenance.view (relation, dimensions, epsilon_limit) VALUES ('patient', '{age}', 0.1)")
    charge = charge_of(owner, "0.01")

    def verdict(table: str, *parts: Part) -> LimitReached | None:
        asked = replace(charge, table=Decimal(table), parts=parts)
        told = till(ready, pools, lambda ledger: ledger.verdict([asked]))
        assert isinstance(told, Verdict)
        return told.refusal

    assert verdict("0", part("0.01", "0")) is None
    refused = verdict("0.01", part("0.01"))
    assert refused is not None and "view patient" in refused.message
    assert verdict("0.01", part("0.01", None, ("sex",))) is None
    assert len(views(owner)) == 1 and balances(owner)["table"] == 0


def test_stages_keep_the_proportions_of_the_first_reservation(
    swept: str, pools: Pools, charge_of: ChargeOf, journal_of: Journal, books_balance: Balanced
) -> None:
    with psycopg.connect(swept, autocommit=True) as conn:
        charge = replace(
            charge_of(conn, "0.003"), staged=True, table=Decimal("0.001"), parts=(part("0.0015", "0.001"),)
        )

        async def ask(ledger: Ledger) -> None:
            receipt = await ledger.charge(charge)
            receipt = await ledger.reserve_more(receipt, Loss(Coin.ZCDP, Decimal("0.003")))
            assert balances(conn)["table"] == Decimal("0.002")
            await ledger.settle(receipt, Loss(Coin.ZCDP, Decimal("0.0001")))

        till(swept, pools, ask)
        now = balances(conn)
        third = Decimal("0.000033333333333334")
        assert now["analystalice"] == Decimal("0.0001") and now["table"] == third
        spent = conn.execute("SELECT amount FROM provenance.spending WHERE amount > 0").fetchall()
        assert spent == [(Decimal("0.00005"),)]
        assert conn.execute("SELECT sum(table_amount) FROM provenance.charge_view").fetchone() == (third,)
        books_balance(conn, journal_of(conn))


def test_the_limit_of_a_view_stops_a_question_between_its_stages(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    owner.execute("INSERT INTO provenance.view (relation, dimensions, epsilon_limit) VALUES ('patient', '{age}', 0.3)")
    charge = replace(charge_of(owner, "0.0005"), staged=True, parts=(part("0.0005"),))

    async def ask(ledger: Ledger) -> None:
        receipt = await ledger.charge(charge)
        with pytest.raises(LimitReached, match="view patient") as refused:
            await ledger.reserve_more(receipt, Loss(Coin.ZCDP, Decimal("0.002")))
        assert "Already reserved" in (refused.value.detail or "")
        await ledger.settle(receipt, Loss.nothing(Coin.ZCDP))

    till(ready, pools, ask)
    assert set(balances(owner).values()) == {0}


amounts = st.decimals(0, 1, places=20)


@given(first=amounts, table=amounts, own=amounts, released=amounts, more=amounts, kept=amounts)
def test_proportions_are_rounded_against_us_and_never_beyond_the_analyst(
    first: Decimal, table: Decimal, own: Decimal, released: Decimal, more: Decimal, kept: Decimal
) -> None:
    table, own = min(first, table), min(first, own)
    released = min(table, own, released)
    charge = Charge(
        *("alice", 1, 1, 1, "f", "q", "cert", Loss(Coin.ZCDP, first)),
        staged=True,
        table=table,
        parts=(Part((), "count(*)", own, released),),
    )
    held = Held(charge.loss, table, ((7, own, released),))
    whole = held.loss + Loss(Coin.ZCDP, more)
    grown, parts = held.grown(charge, whole.amount)
    assert 0 <= grown <= more and 0 <= parts[7][0] <= more and 0 <= parts[7][1] <= grown
    later = Held(whole, table + grown, ((7, own + parts[7][0], released + parts[7][1]),))
    assert later.table >= accountant.in_proportion(table, first, whole.amount) - UNIT
    net = min(kept, whole.amount)
    back, parts = later.grown(charge, net)
    assert net - whole.amount <= back <= 0 and back <= parts[7][1] <= 0
    assert later.table + back >= min(later.table, accountant.in_proportion(table, first, net))
    assert later.parts[0][2] + parts[7][1] >= min(later.parts[0][2], accountant.in_proportion(released, first, net))


LEARN = "UPDATE provenance.analyst SET privilege = 2 WHERE name = 'alice' AND privilege = %s RETURNING name"


def test_what_is_stored_with_a_charge_is_stored_with_it_or_not_at_all(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    charge = replace(charge_of(owner, "0"), parts=(part("0"),))
    with pytest.raises(StaleSynopsis) as stale:
        pay(ready, pools, charge, also=[(LEARN, (1,)), (LEARN, (7,))])
    assert isinstance(stale.value, StaleCatalog) and stale.value.sqlstate == "40001"
    privilege = "SELECT privilege FROM provenance.analyst WHERE name = 'alice'"
    assert owner.execute("SELECT count(*) FROM provenance.charge").fetchone() == (0,)
    assert owner.execute(privilege).fetchone() == (1,)
    with pytest.raises(LimitReached):
        pay(ready, pools, charge_of(owner, "5"), also=[(LEARN, (1,))])
    assert owner.execute(privilege).fetchone() == (1,)
    (receipt,) = pay(ready, pools, charge, also=[(LEARN, (1,))])
    assert receipt.paid.amount == 0
    assert owner.execute(privilege).fetchone() == (2,)


def test_statements_beside_a_charge_see_its_row(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    owner.execute("CREATE TABLE IF NOT EXISTS public.seen (id bigint)")
    keep = "INSERT INTO public.seen SELECT id FROM provenance.charge WHERE id = currval('provenance.charge_id_seq')"
    (receipt,) = pay(ready, pools, charge_of(owner, "0.001"), also=[(f"{keep} RETURNING id", ())])
    assert owner.execute("SELECT id FROM public.seen").fetchall() == [(receipt.id,)]
    with pytest.raises(ValueError, match="one row"):
        pay(ready, pools, charge_of(owner, "0.001"), also=[("SELECT generate_series(1, 2)", ())])
    assert owner.execute("SELECT count(*) FROM provenance.charge").fetchone() == (1,)


KEEP = """
INSERT INTO provenance.synopsis (analyst, relation, relation_id, data_version, fingerprint, accuracy, aggregates, cells,
                                 values, charge)
SELECT analyst, relation, relation_id, data_version, fingerprint, 'fine', 0, 0, '', id FROM provenance.charge
"""


def test_an_answer_that_was_stored_is_never_paid_again(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    charge = replace(charge_of(owner, "0.001"), accuracy="fine")
    pay(ready, pools, charge)
    owner.execute(KEEP)
    with pytest.raises(StaleSynopsis, match="answered meanwhile"):
        pay(ready, pools, charge)
    pay(ready, pools, replace(charge, accuracy="finer"), replace(charge, analyst="alice", fingerprint="beef"))
    with pytest.raises(StaleSynopsis):
        pay(ready, pools, replace(charge, accuracy="finest"), charge)
    pay(ready, pools, replace(charge, analyst="bob"))
    assert owner.execute("SELECT count(*) FROM provenance.charge").fetchone() == (4,)


def test_sessions_that_ask_the_same_at_once_pay_once_if_the_answer_comes_with_the_charge(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    charge = replace(charge_of(owner, "0.0001"), accuracy="fine")
    store = f"{KEEP} WHERE id = currval('provenance.charge_id_seq') RETURNING id"

    async def run() -> list[Any]:
        async with pools(ready, 4) as one, pools(ready, 4) as two:
            asked = [Ledger(each).charge_all([charge], [(store, ())]) for each in (one, two) for _ in range(8)]
            return await asyncio.gather(*asked, return_exceptions=True)

    told = asyncio.run(run())
    assert sum(isinstance(one, list) for one in told) == 1
    assert all(isinstance(one, list | StaleSynopsis) for one in told)
    assert owner.execute("SELECT count(*) FROM provenance.charge").fetchone() == (1,)


def test_charges_on_the_same_views_in_any_order_never_block_each_other_for_good(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf, journal_of: Journal, books_balance: Balanced
) -> None:
    """Views that are new and old, named in both orders, by two analysts, while limits change: no deadlock, no slip."""
    names = [("age",), ("sex",), ("age", "sex"), (), ("mood",)]
    parts = [part("0.0001", None, name) for name in names]
    asked = [
        replace(charge_of(owner, "0.0001", ("alice", "bob")[i % 2]), parts=tuple(parts[:: 1 - 2 * (i // 2 % 2)]))
        for i in range(24)
    ]

    async def change(dsn: str) -> None:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
            for _ in range(10):
                async with conn.transaction():
                    await conn.execute("UPDATE provenance.view SET epsilon_limit = 5")
                    await conn.execute("UPDATE provenance.deployment SET expansion = 1")

    async def run() -> list[Any]:
        async with pools(ready, 6) as one, pools(ready, 6) as two:
            paid = [Ledger((one, two)[i % 2]).charge(charge) for i, charge in enumerate(asked)]
            return await asyncio.gather(change(ready), *paid, return_exceptions=True)

    told = asyncio.run(asyncio.wait_for(run(), 120))
    assert [one for one in told if isinstance(one, BaseException)] == []
    assert len(views(owner)) == len(names)
    books_balance(owner, journal_of(owner))


def test_a_view_that_a_question_has_made_can_be_registered_with_a_limit(
    ready: str, owner: Connection, pools: Pools, charge_of: ChargeOf
) -> None:
    pay(ready, pools, replace(charge_of(owner, "0.001"), parts=(part("0.001", None, ("sex", "age")),)))
    known = "SELECT id, registered, epsilon_limit FROM provenance.view"
    ((id_, registered, _),) = owner.execute(known).fetchall()
    assert not registered
    call = "SELECT provenance.register_view('patient', %s, epsilon_limit => %s)"
    assert owner.execute(call, (["sex", "age"], 2)).fetchone() == (id_,)
    assert owner.execute(known).fetchall() == [(id_, True, 2)]
    assert owner.execute("SELECT amount FROM provenance.balance WHERE scope = 'view'").fetchone() == (Decimal("0.001"),)
    owner.execute(call, (["age", "sex"], None))
    assert owner.execute(known).fetchall() == [(id_, True, None)]
    with pytest.raises(errors.CheckViolation, match="above the limit"):
        owner.execute(call, (["age"], 11))


def row(conn: Connection, **more: Any) -> int:
    """A row of the journal, inserted past the ledger."""
    values = {
        "analyst": "alice",
        "relation": "patient",
        "data_version": 1,
        "registry_version": 1,
        "fingerprint": "f",
        "question": "q",
        "mechanism": "tslm",
        "coin": "zcdp",
        "amount": Decimal("0.001"),
        "epsilon": Decimal("0.1"),
        **more,
    }
    query = f"""
        INSERT INTO provenance.charge (relation_id, {", ".join(values)})
        SELECT r.id, {", ".join("%s" for _ in values)} FROM provenance.relation r WHERE r.label = %s RETURNING id"""
    found = conn.execute(query.encode(), (*values.values(), values["relation"])).fetchone()
    assert found is not None
    return int(found[0])


def view_of(conn: Connection, relation: str = "patient") -> int:
    found = conn.execute("INSERT INTO provenance.view (relation) VALUES (%s) RETURNING id", (relation,)).fetchone()
    assert found is not None
    return int(found[0])


SMALL, LARGE = Decimal("0.001"), Decimal("0.002")


@pytest.mark.parametrize(
    "wrong",
    [
        {"table_amount": LARGE},
        {"table_amount": -SMALL},
        {"view_amounts": [LARGE], "view_tables": [SMALL]},
        {"view_amounts": [SMALL], "view_tables": [LARGE]},
        {"view_amounts": [-SMALL], "view_tables": [SMALL]},
        {"view_amounts": [SMALL], "view_tables": []},
        {"view_amounts": [SMALL], "view_tables": [SMALL], "relation": "orders"},
        {"view_amounts": [SMALL, SMALL], "view_tables": [SMALL, SMALL], "twice": True},
    ],
)
def test_a_row_of_the_journal_that_makes_no_sense_is_not_taken(sandbox: Connection, wrong: dict[str, Any]) -> None:
    view = view_of(sandbox)
    twice = wrong.pop("twice", False)
    if "view_amounts" in wrong:
        wrong["views"] = [view, view] if twice else [view]
    with pytest.raises(errors.CheckViolation), sandbox.transaction():
        row(sandbox, **wrong)


def test_nobody_takes_back_from_a_view_more_than_the_question_reserved(sandbox: Connection) -> None:
    view = view_of(sandbox)
    row(sandbox, views=[view], view_amounts=[SMALL], view_tables=[SMALL])
    held = row(sandbox, stage="reserve", views=[view], view_amounts=[SMALL / 2], view_tables=[SMALL / 2])
    back = {"stage": "settle", "question_of": held, "amount": -SMALL, "views": [view]}
    with pytest.raises(errors.CheckViolation, match="to view"), sandbox.transaction():
        row(sandbox, **back, view_amounts=[-SMALL], view_tables=[-SMALL])
    with pytest.raises(errors.CheckViolation, match="than was reserved for charge"), sandbox.transaction():
        row(sandbox, **{**back, "amount": -LARGE}, view_amounts=[-SMALL / 2], view_tables=[-SMALL / 2])
    row(sandbox, **back, view_amounts=[-SMALL / 2], view_tables=[-SMALL / 2])
    assert sandbox.execute("SELECT amount FROM provenance.spending").fetchone() == (SMALL,)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("UPDATE provenance.charge_view SET amount = 0", errors.InsufficientPrivilege),
        ("DELETE FROM provenance.charge_view", errors.InsufficientPrivilege),
        ("TRUNCATE provenance.charge_view", errors.InsufficientPrivilege),
        ("UPDATE provenance.view SET measure = 'sum(age)'", errors.ObjectNotInPrerequisiteState),
        ("UPDATE provenance.view SET dimensions = '{age}'", errors.ObjectNotInPrerequisiteState),
        ("DELETE FROM provenance.view", errors.ForeignKeyViolation),
        ("UPDATE provenance.view SET epsilon_limit = 11", errors.CheckViolation),
        ("UPDATE provenance.view SET epsilon_limit = -1", errors.CheckViolation),
        ("INSERT INTO provenance.view (relation, measure) VALUES ('patient', '')", errors.CheckViolation),
        ("INSERT INTO provenance.view (relation, dimensions) VALUES ('patient', '{NULL}')", errors.CheckViolation),
        ("INSERT INTO provenance.view (relation) VALUES ('nowhere')", errors.UndefinedTable),
        ("INSERT INTO provenance.charge_view SELECT id, views[1], 0.001, 0 FROM provenance.charge", errors.Error),
    ],
)
def test_what_was_learned_about_a_view_stays_in_the_books(
    sandbox: Connection, text: str, error: type[psycopg.Error]
) -> None:
    view = view_of(sandbox)
    row(sandbox, views=[view], view_amounts=[SMALL], view_tables=[SMALL])
    with pytest.raises(error), sandbox.transaction():
        sandbox.execute(text.encode())
    sandbox.execute("UPDATE provenance.view SET epsilon_limit = 10")


def test_a_row_beside_the_journal_counts_nothing(sandbox: Connection) -> None:
    view = view_of(sandbox)
    charge = row(sandbox)
    with pytest.raises(errors.CheckViolation, match="nothing of the kind"), sandbox.transaction():
        sandbox.execute("INSERT INTO provenance.charge_view VALUES (%s, %s, 0.001, 0.001)", (charge, view))


@pytest.mark.parametrize(
    "wrong",
    [
        {"table": Decimal("0.002")},
        {"table": Decimal("-0.001")},
        {"parts": (part("0.002"),)},
        {"parts": (part("0.0005", "0.0006"),)},
        {"parts": (part("0.001", "0.0006"),), "table": Decimal("0.0005")},
        {"parts": (part("0.001", None, ("a", "b")), part("0.001", None, ("b", "a")))},
    ],
)
def test_a_charge_that_makes_no_sense_cannot_be_made(sandbox: Connection, charge_of: ChargeOf, wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"at most|once"):
        replace(charge_of(sandbox, "0.001"), **wrong)


@pytest.mark.parametrize("measure", ["max(age)", "avg(age)", "COUNT(*)", "count", "sum()", "age", "min(age), count(*)"])
def test_a_measure_of_which_no_view_can_be_kept_is_not_registered(ready: str, measure: str) -> None:
    with psycopg.connect(ready) as conn, pytest.raises(errors.InvalidParameterValue) as refusal:
        conn.execute("SELECT provenance.register_view('patient', '{age}', measure => %s)", (measure,))
    assert "count(*)" in (refusal.value.diag.message_hint or "") and "sum(" in (refusal.value.diag.message_hint or "")


@pytest.mark.parametrize("measure", ["count(*)", "count(age)", "count(DISTINCT patient_id)", "sum(age)"])
def test_counts_and_sums_are_registered(ready: str, measure: str) -> None:
    with psycopg.connect(ready) as conn:
        assert conn.execute("SELECT provenance.register_view('patient', '{age}', measure => %s)", (measure,)).fetchone()
        conn.rollback()


def test_a_view_that_a_question_has_made_is_registered_whatever_it_is_called(ready: str) -> None:
    with psycopg.connect(ready) as conn:
        made = "INSERT INTO provenance.view (relation, measure, registered) VALUES ('patient', %s, false)"
        conn.execute(made, ("-50 * count(*) + sum(age)",))
        call = "SELECT provenance.register_view('patient', '{}', measure => %s)"
        assert conn.execute(call, ("-50 * count(*) + sum(age)",)).fetchone()
        conn.rollback()
