"""Limits as arithmetic: no sequence of admitted losses passes a limit, and none that fits is refused."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.loss import Coin, Loss, epsilon_of
from provenance import accountant
from provenance.errors import LimitReached, NotActive, SettlementError
from provenance.model import Account, Allocation, Analyst, Balance, Balances, Deployment, Entry, Room, Stage

ZCDP = Deployment(
    Coin.ZCDP, Decimal(10), Decimal("1e-9"), Allocation.MAX, Decimal(1), Decimal("5e-10"), Decimal("5e-10"), 1, 15
)
PURE = replace(ZCDP, coin=Coin.PURE, conversion_delta=Decimal(0), payment_delta=Decimal("1e-9"))
ALICE = Analyst("alice", 1, None, {}, True)
NOTHING = Balances(Balance(), Balance())
amounts = st.decimals(min_value=0, max_value=Decimal("0.5"), places=18)


@pytest.mark.parametrize(
    ("deployment", "analyst", "limit"),
    [
        (ZCDP, ALICE, "1"),
        (ZCDP, replace(ALICE, privilege=4), "4"),
        (ZCDP, replace(ALICE, privilege=10), "10"),
        (ZCDP, replace(ALICE, epsilon_limit=Decimal("2.5")), "2.5"),
        (ZCDP, replace(ALICE, epsilon_limit=Decimal(99)), "10"),
        (replace(ZCDP, expansion=Decimal(3)), ALICE, "3"),
        (replace(ZCDP, expansion=Decimal(30)), ALICE, "10"),
        (replace(ZCDP, allocation=Allocation.SUM), ALICE, "0.666666666666666666"),
        (replace(ZCDP, allocation=Allocation.SUM, privileges=0), ALICE, "10"),
    ],
)
def test_a_limit_follows_from_privilege_and_never_passes_the_table(
    deployment: Deployment, analyst: Analyst, limit: str
) -> None:
    assert accountant.limit(deployment, analyst) == Decimal(limit)


@pytest.mark.parametrize("deployment", [ZCDP, PURE], ids=["zcdp", "pure"])
@given(asked=st.lists(amounts, max_size=12))
def test_admitted_losses_never_pass_a_limit(deployment: Deployment, asked: list[Decimal]) -> None:
    balances = NOTHING
    for amount in asked:
        try:
            after = accountant.admit(deployment, ALICE, balances, Loss(deployment.coin, amount, Decimal(0)))
        except LimitReached:
            worth = accountant.worth(deployment, Decimal(1))
            assert balances.analyst.amount + amount > worth
            continue
        assert after.analyst.amount == balances.analyst.amount + amount
        balances = after
    total = balances.analyst.amount
    assert epsilon_of(deployment.coin, total, deployment.conversion_delta) <= 1
    assert 0 <= accountant.remaining_epsilon(deployment, ALICE, balances) <= 1


def test_delta_is_paid_from_its_own_part() -> None:
    paid = accountant.admit(ZCDP, ALICE, NOTHING, Loss(Coin.ZCDP, Decimal(0), Decimal("5e-10")))
    with pytest.raises(LimitReached, match="delta"):
        accountant.admit(ZCDP, ALICE, paid, Loss(Coin.ZCDP, Decimal(0), Decimal("1e-20")))


def test_small_questions_leave_more_than_their_sum() -> None:
    """Ten decisions of epsilon 0.5 in zcdp cost less than 5."""
    bob = replace(ALICE, privilege=10)
    balances = NOTHING
    for _ in range(10):
        balances = accountant.admit(ZCDP, bob, balances, Loss.of_pure_step(Decimal("0.1"), Coin.ZCDP))
    single = accountant.epsilon_spent(ZCDP, Decimal("0.005"))
    assert accountant.remaining_epsilon(ZCDP, bob, balances) > 10 - 10 * single


def test_remaining_is_never_negative() -> None:
    over = Balances(Balance(Decimal(5)), Balance(Decimal(5)))
    left = accountant.remaining(ZCDP, ALICE, over)
    assert (left.analyst, left.table, left.epsilon) == (0, 0, 0)


@pytest.mark.parametrize("deployment", [ZCDP, PURE], ids=["zcdp", "pure"])
@given(spent=st.decimals(min_value=0, max_value=Decimal("0.02"), places=18))
def test_half_of_the_room_leaves_half_of_the_epsilon(deployment: Deployment, spent: Decimal) -> None:
    before = Balances(Balance(spent), Balance(spent))
    room = accountant.room(deployment, ALICE, before)
    left = accountant.remaining_epsilon(deployment, ALICE, before)
    assert 0 <= room.half <= room.whole
    for share, least in ((room.half, left / 2), (room.whole, Decimal(0))):
        paid = accountant.admit(deployment, ALICE, before, Loss(deployment.coin, share))
        after = accountant.remaining_epsilon(deployment, ALICE, paid)
        assert least <= after <= least + Decimal("1e-12")


def test_late_in_a_budget_half_of_it_is_worth_more_than_the_epsilon_alone() -> None:
    late = Balances(*[Balance(accountant.worth(ZCDP, Decimal("0.95")))] * 2)
    alone = accountant.worth(ZCDP, accountant.remaining_epsilon(ZCDP, ALICE, late) / 2)
    assert accountant.room(ZCDP, ALICE, late).half > 5 * alone
    over = Balances(Balance(Decimal(5)), Balance(Decimal(5)))
    assert accountant.room(ZCDP, ALICE, over) == Room(Decimal(0), Decimal(0))


def test_what_asks_for_nothing_is_admitted_under_any_limit() -> None:
    over = Balances(Balance(Decimal(5), Decimal("0.1")), Balance(Decimal(5), Decimal("0.1")))
    assert accountant.admit(ZCDP, ALICE, over, Loss.nothing(Coin.ZCDP)) == over
    with pytest.raises(LimitReached):
        accountant.admit(ZCDP, ALICE, over, Loss(Coin.ZCDP, Decimal("1e-18")))


def test_inactive_analysts_and_foreign_coins_are_not_admitted() -> None:
    with pytest.raises(NotActive):
        accountant.admit(ZCDP, replace(ALICE, active=False), NOTHING, Loss.nothing(Coin.ZCDP))
    with pytest.raises(ValueError, match="pure"):
        accountant.admit(ZCDP, ALICE, NOTHING, Loss.nothing(Coin.PURE))


# A move is (who, what, how much of what may be): eight analysts open, extend and settle their questions in any order.
moves = st.lists(
    st.tuples(st.integers(0, 7), st.sampled_from(["charge", "open", "more", "settle"]), st.decimals(0, 1, places=18)),
    max_size=60,
)


@pytest.mark.parametrize("deployment", [ZCDP, PURE], ids=["zcdp", "pure"])
@given(moves=moves)
def test_no_interleaving_of_reserve_and_settle_passes_a_limit(
    deployment: Deployment, moves: list[tuple[int, str, Decimal]]
) -> None:
    deployment = replace(deployment, epsilon=Decimal(2))
    people = [Analyst(f"a{i}", 1, Decimal("0.5"), {}, True) for i in range(8)]
    own, table = accountant.worth(deployment, Decimal("0.5")), accountant.worth(deployment, Decimal(2))
    balances = {person.name: Balance() for person in people}
    together, paid, journal = Balance(), dict[int, tuple[str, Loss]](), list[Entry]()
    for who, what, share in moves:
        name = people[who].name
        before = Balances(balances[name], together)
        mine = [question for question, (asker, _) in paid.items() if asker == name]
        amount = (own * share).quantize(Decimal("1e-18"))
        row = len(journal) + 1
        if what == "settle":
            if not mine:
                continue
            question = mine[-1]
            held = paid.pop(question)[1]
            reached = Loss(held.coin, (held.amount * share).quantize(Decimal("1e-18"), "ROUND_DOWN"))
            back = accountant.less(held, reached)
            after = accountant.settle(before, back)
            journal.append(Entry(row, question, name, Stage.SETTLE, -back.amount))
        else:
            asked = Loss(deployment.coin, amount)
            try:
                after = accountant.admit(deployment, people[who], before, asked)
            except LimitReached:
                assert before.analyst.amount + amount > own or together.amount + amount > table
                continue
            question = mine[-1] if what == "more" and mine else row
            journal.append(Entry(row, question, name, Stage.CHARGE if what == "charge" else Stage.RESERVE, amount))
            if what != "charge":
                paid[question] = name, paid.get(question, (name, Loss.nothing(deployment.coin)))[1] + asked
        balances[name], together = after.analyst, after.table
        assert after.analyst.amount <= own and after.table.amount <= table
    books = accountant.fold(journal)
    assert books.table == together
    assert all(books.analysts.get(name, Balance()) == balance for name, balance in balances.items())
    assert sum(account.net.amount for account in books.questions.values()) == together.amount
    assert {question for question, account in books.questions.items() if account.staged and not account.settled} == set(
        paid
    )


def entry(row: int, question: int, stage: Stage, amount: str, analyst: str = "alice", delta: str = "0") -> Entry:
    return Entry(row, question, analyst, stage, Decimal(amount), Decimal(delta))


OPEN = [entry(1, 1, Stage.RESERVE, "3"), entry(2, 1, Stage.RESERVE, "4")]
CLOSED = [*OPEN, entry(3, 1, Stage.SETTLE, "-5")]


def test_a_journal_folds_into_the_net_of_each_question() -> None:
    books = accountant.fold([*CLOSED, entry(4, 4, Stage.CHARGE, "1", "bob")])
    assert books.questions == {
        1: Account("alice", True, True, Balance(Decimal(2))),
        4: Account("bob", False, False, Balance(Decimal(1))),
    }
    assert books.analysts == {"alice": Balance(Decimal(2)), "bob": Balance(Decimal(1))}
    assert books.table == Balance(Decimal(3))
    assert accountant.fold(OPEN).table == Balance(Decimal(7)), "what is not settled stays spent"


@pytest.mark.parametrize(
    ("before", "row"),
    [
        ([], entry(1, 1, Stage.CHARGE, "-1")),
        ([], entry(1, 1, Stage.RESERVE, "1", delta="-1e-12")),
        ([], entry(1, 1, Stage.SETTLE, "-1")),
        ([], entry(1, 7, Stage.RESERVE, "1")),
        ([], entry(1, 1, Stage.CHARGE, "NaN")),
        (OPEN, entry(3, 1, Stage.SETTLE, "1")),
        (OPEN, entry(3, 1, Stage.SETTLE, "-7.000000000000000001")),
        (OPEN, entry(3, 1, Stage.SETTLE, "-1", delta="-1e-12")),
        (OPEN, entry(3, 1, Stage.SETTLE, "-1", "bob")),
        (OPEN, entry(3, 1, Stage.CHARGE, "1")),
        (CLOSED, entry(4, 1, Stage.SETTLE, "0")),
        (CLOSED, entry(4, 1, Stage.RESERVE, "1")),
        ([entry(1, 1, Stage.CHARGE, "3")], entry(2, 1, Stage.SETTLE, "-1")),
        ([entry(1, 1, Stage.CHARGE, "3")], entry(2, 1, Stage.RESERVE, "1")),
    ],
)
def test_a_journal_that_no_ledger_writes_is_not_folded(before: list[Entry], row: Entry) -> None:
    accountant.fold(before)
    with pytest.raises(SettlementError):
        accountant.fold([*before, row])


def test_what_comes_back_is_exact_at_any_number_of_digits() -> None:
    paid = Loss(Coin.ZCDP, Decimal("1.000000000000000000000000000000000000001"), Decimal("1e-50"))
    reached = Loss(Coin.ZCDP, Decimal("0.000000000000000000000000000000000000001"))
    back = accountant.less(paid, reached)
    assert back == Loss(Coin.ZCDP, Decimal(1), Decimal("1e-50"))
    assert accountant.settle(Balances(Balance(paid.amount, paid.delta), Balance(paid.amount, paid.delta)), back) == (
        Balances(Balance(reached.amount), Balance(reached.amount))
    )
