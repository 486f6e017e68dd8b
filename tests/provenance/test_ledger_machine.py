"""Any interleaving of questions, refreshes, new limits, new analysts and crashes: no limit is passed, nothing is lost.

A state machine on a real PostgreSQL. Two processes ask for several analysts through the real till and the real stores;
what lies between two steps of a question (planned, paid, measured) is a place where another step may come in, or where
the process may die. A fuse cuts a connection at its n-th command, COMMIT included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from ledger_processes import VIEWS, Asked, Desk
from region_books import wrong

from mechanisms.loss import Coin, Loss
from provenance import accountant
from provenance.errors import (
    CommitUnknownError,
    LedgerUnreachable,
    LimitReached,
    NotActive,
    NotSettledError,
    SettlementError,
    StaleCatalog,
)
from provenance.extent import Interval, Members
from provenance.model import Entry, Felt, Part, Receipt
from provenance.region import Region
from sqlrewrite.view import View

whose = st.integers(0, 5)
process = st.integers(0, 1)
views = st.integers(0, len(VIEWS) - 1)
variances = st.sampled_from((60, 75, 150, 400, 900, 2500, 9000, 30000))
amounts = st.integers(1, 9000).map(lambda number: Decimal(number).scaleb(-6))
meanwhile = st.sampled_from(("", "another", "another", "new data", "new data", "new registry", "crash"))
epsilons = st.sampled_from((None, *map(Decimal, ("0.05", "0.1", "0.3", "0.5", "1", "2", "4"))))
some = st.integers(0, 7)
places = st.sampled_from(
    (
        None,
        *(Region.of({"a": Members.of(*values)}) for values in ((0,), (1,), (0, 1), (4, None))),
        *(Region.of({"a": Interval(low, high)}) for low, high in ((0, 2), (3, None))),
        Region.of({"a": Members.of(0), "b": Interval(1, 2)}),
    )
)
TURNS: dict[str, Any] = {
    "at": process,
    "number": whose,
    "view": views,
    "variance": variances,
    "before": meanwhile,
    "after": meanwhile,
    "other": variances,
}
caps = st.sampled_from((0, 0, 0, 1, 4, 20))
behinds = st.booleans()
fuses = st.one_of(st.none(), st.none(), st.integers(1, 14))


class Books(Desk, RuleBasedStateMachine):
    """``dsn`` is a ready database; others have used it before."""

    def __init__(self, dsn: str, journal: Callable[..., list[Entry]], balanced: Callable[..., None]) -> None:
        RuleBasedStateMachine.__init__(self)
        Desk.__init__(self, dsn)
        self.journal, self.balanced = journal, balanced
        self.seen: list[tuple[Any, ...]] = []  # the journal when it was last looked at

    def teardown(self) -> None:
        self.close()

    # -- rules ---------------------------------------------------------------------------------------------------------

    @initialize(variance=st.sampled_from((150, 400, 900)))
    def bob_knows_something(self, variance: int) -> None:
        """So that there are views, with releases from which others can learn a part."""
        for view in VIEWS:
            assert self.now(self.ask(self.processes[0], "bob", view, variance)) == [None]

    @rule(
        at=process,
        number=whose,
        amount=amounts,
        view=views,
        part=st.integers(0, 4),
        cap=caps,
        fuse=fuses,
        behind=behinds,
        where=places,
    )
    def fixed(
        self,
        at: int,
        number: int,
        amount: Decimal,
        view: int,
        part: int,
        cap: int,
        fuse: int | None,
        behind: bool,
        where: Region | None,
    ) -> None:
        """A price that is paid at once, a part of it by the database; the view may just have got a limit."""
        if cap:
            self.limit(1, number, view, Decimal(cap) / 20)
        charge = self.charge_of(self.who(number), amount)
        if part:
            table = amount / part
            charge = replace(charge, table=table, parts=(Part(VIEWS[view].dimensions, "count(*)", amount, table),))
        if where is not None:
            charge = replace(charge, felt=(Felt(where, charge.loss.amount, charge.table_amount),))
        left, which = self.left(charge), self.processes[at]
        which.fuse.left, which.fuse.behind = fuse, behind
        (came,) = self.now(self.pay(which, charge))
        which.fuse.left = None
        match came:
            case Receipt():
                assert left is not None and (left >= 0 or where is not None), "it did not fit"
            case LimitReached():
                assert left is not None and left < 0, "it would have fitted"
            case NotActive():
                assert left is None
            case _:
                assert fuse is not None and isinstance(came, CommitUnknownError | LedgerUnreachable), came

    @rule(at=process, number=whose, amount=amounts, fuse=fuses, where=places)
    def begin(self, at: int, number: int, amount: Decimal, fuse: int | None, where: Region | None) -> None:
        """The first stage of a question."""
        which, charge = self.processes[at], replace(self.charge_of(self.who(number), amount), staged=True)
        charge = replace(charge, table=amount / 2, parts=(Part(("age",), "count(*)", amount, amount / 2),))
        if where is not None:
            charge = replace(charge, felt=(Felt(where, amount, amount / 2),))
        which.fuse.left = fuse
        (came,) = self.now(self.pay(which, charge))
        which.fuse.left = None
        if isinstance(came, Receipt):
            which.staged.append(came)

    @rule(place=some, amount=amounts, fuse=fuses, behind=behinds)
    def go_on(self, place: int, amount: Decimal, fuse: int | None, behind: bool) -> None:
        """The next stage; one whose fate is unknown is not proven by the receipt, and stays spent."""
        if (found := self.one_of("staged", place)) is None:
            return
        which, at = found
        which.fuse.left, which.fuse.behind = fuse, behind
        (came,) = self.now(which.ledger.reserve_more(which.staged[at], Loss(Coin.ZCDP, amount)))
        which.fuse.left = None
        if isinstance(came, Receipt):
            which.staged[at] = came

    @rule(place=some, percent=st.integers(0, 100), fuse=fuses, behind=behinds)
    def settle(self, place: int, percent: int, fuse: int | None, behind: bool) -> None:
        if (found := self.one_of("staged", place)) is None:
            return
        which, at = found
        receipt = which.staged.pop(at)
        reached = Loss(Coin.ZCDP, receipt.paid.amount * percent / 100)
        which.fuse.left, which.fuse.behind = fuse, behind
        (came,) = self.now(which.ledger.settle(receipt, reached))
        which.fuse.left = None
        if isinstance(came, NotSettledError):
            return
        assert came.loss.amount >= reached.amount
        self.reached[receipt.id] = came.loss.amount
        with pytest.raises(SettlementError):
            self.runner.run(which.ledger.settle(receipt, Loss.nothing(Coin.ZCDP)))

    @rule(at=process, number=whose, view=views, variance=variances)
    def planned(self, at: int, number: int, view: int, variance: int) -> None:
        """Numbers are wanted; they will be paid for in another step, if the process lives."""
        which = self.processes[at]
        (one,) = self.now(self.plan(which, self.who(number), VIEWS[view], variance))
        if isinstance(one, Asked):
            which.asked.append(one)

    @rule(place=some, fuse=fuses, behind=behinds)
    def onward(self, place: int, fuse: int | None, behind: bool) -> None:
        """What was planned is paid; what was paid is measured and told."""
        if (found := self.one_of("asked", place)) is None:
            return
        which, at = found
        one = which.asked[at]
        which.fuse.left, which.fuse.behind = fuse, behind
        if one.receipt is None:
            (came,) = self.now(self.pay(which, one.charge, one.ways.also))
            which.asked.pop(at)
            if isinstance(came, Receipt):
                which.asked.append(replace(one, receipt=came))
        else:
            self.now(self.tell(which, one))
            which.asked.pop(at)
        which.fuse.left = None

    @rule(**TURNS)
    def in_between(self, at: int, number: int, view: int, variance: int, before: str, after: str, other: int) -> None:
        """A question, with something that happens between its plan, its payment and its answer."""
        which, who = self.processes[at], self.who(number)
        (one,) = self.now(self.plan(which, who, VIEWS[view], variance))
        if one is None:
            return
        changed = self.happens(before, at, who, VIEWS[view], other)
        (came,) = self.now(self.pay(which, one.charge, one.ways.also))
        assert not changed or isinstance(came, StaleCatalog | NotActive), came
        if isinstance(came, Receipt):
            self.happens(after, at, who, VIEWS[view], other)
            self.now(self.tell(which, replace(one, receipt=came)))

    @rule(**TURNS)
    def in_between_again(self, **told: Any) -> None:
        """Twice among the rules, since it is where most can go wrong."""
        self.in_between(**told)

    def happens(self, what: str, at: int, who: str, view: View, variance: int) -> bool:
        """Whether the question is about something that is not there any more."""
        match what:
            case "another":
                self.now(self.ask(self.processes[1 - at], who, view, variance))
            case "crash":
                self.crash(1 - at)
            case "":
                pass
            case _:
                self.refresh(what == "new registry")
        return what in ("new data", "new registry")

    @rule(first=whose, second=whose, view=views, one=variances, other=variances)
    def at_once(self, first: int, second: int, view: int, one: int, other: int) -> None:
        """Two processes answer about the same view."""
        here, there = self.processes
        came = self.now(
            self.ask(here, self.who(first), VIEWS[view], one), self.ask(there, self.who(second), VIEWS[view], other)
        )
        assert all(each is None or isinstance(each, LimitReached | NotActive | StaleCatalog) for each in came), came

    @rule(at=process)
    def crash(self, at: int) -> None:
        """kill -9: connections break wherever they are, and memory is gone."""
        which = self.processes[at]

        async def again() -> None:
            await which.pool.close()
            await which.start()

        self.owner.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid = ANY(%s)",
            ([conn.info.backend_pid for conn in which.pool._pool],),
        )
        self.runner.run(again())

    @rule(registry=st.booleans())
    def refresh(self, registry: bool) -> None:
        if registry:
            self.owner.execute("UPDATE provenance.relation SET size_hint = 1 + coalesce(size_hint, 0) WHERE id = 1")
        else:
            self.owner.execute("SELECT provenance.refresh('patient')")

    @rule(scope=st.integers(0, 2), number=whose, view=views, epsilon=epsilons)
    def limit(self, scope: int, number: int, view: int, epsilon: Decimal | None) -> None:
        """Of an analyst, a view or all; one above the table's is refused, and none takes the limit away."""
        match scope:
            case 0:
                text, values = "UPDATE provenance.analyst SET epsilon_limit = %s WHERE name = %s", (self.who(number),)
            case 1:
                text = "UPDATE provenance.view SET epsilon_limit = %s WHERE dimensions = %s"
                values = (list(VIEWS[view].dimensions),)  # type: ignore[assignment]
            case _:
                text, values = "UPDATE provenance.deployment SET epsilon = greatest(%s, 1)", ()  # type: ignore[assignment]
        self.administer(text, epsilon, *values)

    @rule(length=st.sampled_from(("1 day", "7 days", None)), passed=st.integers(0, 2))
    def time_passes(self, length: str | None, passed: int) -> None:
        """A period is set, and some of them pass; or there are none any more."""
        self.owner.execute("UPDATE provenance.deployment SET period = %s", (length,))
        if length is not None:
            self.owner.execute("UPDATE provenance.deployment SET period_began = period_began - %s * period", (passed,))
            self.begun += passed

    @rule(privilege=st.integers(1, 10), allocation=st.sampled_from(("max", "sum")))
    def somebody_comes(self, privilege: int, allocation: str) -> None:
        if len(self.analysts) < 5:
            self.analysts.append(f"new{len(self.analysts)}")
            self.owner.execute("SELECT provenance.create_analyst(%s, 'x', %s)", (self.analysts[-1], privilege))
            self.owner.execute("UPDATE provenance.deployment SET allocation = %s", (allocation,))

    @rule(number=whose, active=st.booleans())
    def somebody_goes(self, number: int, active: bool) -> None:
        self.owner.execute("UPDATE provenance.analyst SET active = %s WHERE name = %s", (active, self.who(number)))

    # -- what is always true -------------------------------------------------------------------------------------------

    @invariant()
    def the_books_are_right(self) -> None:
        journal = self.journal(self.owner)
        self.balanced(self.owner, journal)
        assert not wrong(self.owner), "no point has lost more than is counted, and the chain is whole"
        rows = {entry.id: (entry.analyst, entry.amount) for entry in journal}
        assert all(rows.get(id_) == proof for id_, proof in self.paid.items()), "a receipt without a charge"
        accounts = accountant.fold(journal).questions
        for id_, reached in self.reached.items():
            assert accounts[id_].settled and accounts[id_].net.amount == reached

    @invariant()
    def nothing_is_lost_and_no_limit_is_passed(self) -> None:
        rows = self.owner.execute(
            "SELECT id, hash, analyst, amount, table_amount, views, view_tables FROM provenance.charge ORDER BY id"
        ).fetchall()
        assert rows[: len(self.seen)] == self.seen, "the journal only grows"
        for _, _, who, amount, table, parts, lost in rows[len(self.seen) :]:
            grown = [view for view, more in zip(parts, lost, strict=True) if more > 0]
            assert all(room >= 0 for room in self.rooms(who, amount > 0, table > 0, grown)), "a limit was passed"
        self.seen = rows

    @invariant()
    def a_release_is_of_the_data_that_it_was_paid_for(self) -> None:
        assert not self.owner.execute(
            "SELECT FROM provenance.release r JOIN provenance.charge c ON c.id = r.charge"
            " JOIN provenance.relation l ON l.id = r.relation_id"
            " WHERE (r.data_version, r.relation_id) <> (c.data_version, c.relation_id)"
            " OR r.data_version <> l.data_version"
        ).fetchall()

    @invariant()
    def what_is_known_is_paid_for(self) -> None:
        """Precision times 1/2, in exact numbers: by analysts for what they know, by the table for what there is."""
        known = self.owner.execute(
            "SELECT k.analyst, r.dimensions, r.data_version, r.variance, k.added FROM provenance.knowledge k"
            " JOIN provenance.release r ON r.id = k.release"
        ).fetchall()
        learned: dict[tuple[Any, ...], Fraction] = {}
        parts: dict[tuple[Any, ...], int] = {}
        for who, dimensions, version, variance, added in known:
            key = (who, dimensions[0], version)
            told = Fraction(variance) + (Fraction(added) if added is not None else 0)
            learned[key] = learned.get(key, Fraction(0)) + 1 / (2 * told)
            parts[key] = parts.get(key, 0) + (added is not None)
        assert all(count <= 1 for count in parts.values()), "at most one release is known in part"
        paid, lost = self.payments()
        assert all(precision <= paid.get(key, 0) for key, precision in learned.items()), "known and not paid for"
        there: dict[tuple[Any, ...], Fraction] = {}
        for dimensions, version, variance in self.owner.execute(
            "SELECT dimensions, data_version, variance FROM provenance.release"
        ):
            there[dimensions[0], version] = there.get((dimensions[0], version), Fraction(0)) + 1 / (
                2 * Fraction(variance)
            )
        assert all(precision <= lost.get(key, 0) for key, precision in there.items()), "released and not paid for"


def run(dsn: str, journal: Any, balanced: Any, examples: int, steps: int, **more: Any) -> None:
    run_state_machine_as_test(
        lambda: Books(dsn, journal, balanced),  # type: ignore[arg-type]
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            phases=(
                Phase.explicit,
                Phase.generate,
            ),  # to shrink one that depends on time would take longer than to read it
            suppress_health_check=list(HealthCheck),
            **more,
        ),
    )


def test_no_interleaving_passes_a_limit_or_loses_a_charge(ready: str, journal_of: Any, books_balance: Any) -> None:
    run(ready, journal_of, books_balance, 12, 25, derandomize=True, database=None)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_no_long_interleaving_does_either(ready: str, journal_of: Any, books_balance: Any) -> None:
    run(ready, journal_of, books_balance, 150, 60, print_blob=True)
