"""The route of one question.

    text -> Clauses -> Question -> Shares -> Plan -> Charge -> Receipt -> Exact -> Noisy -> rows

One door in, one till, one look at the data, one place of noise, one door out. Everything before the till is a function
of the text, the settings and the public catalog (``proxy.plan``); everything after the noise is post-processing,
which the shadow does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial, reduce
from typing import TypeVar

import numpy as np

from mechanisms.course import Course
from mechanisms.errors import AccuracyUnreachable, Refusal
from mechanisms.loss import WIDE, Loss, epsilon_of
from mechanisms.release import Staged, release
from mechanisms.values import Exact, Noisy
from provenance.errors import LimitReached, StaleCatalog
from provenance.model import Charge, Receipt, Remaining
from provenance.releases import Place
from provenance.synopses import Sameness, Stored
from proxy.alone import filed
from proxy.asker import Again, Answered, Asker, sameness
from proxy.backend import Reader
from proxy.bill import promised
from proxy.charging import charge_of, credit, with_scan, with_scans
from proxy.conversation import Conversation
from proxy.levels import levels
from proxy.numbers import drawn, recalled, told, ways
from proxy.patched import Buyer
from proxy.plan import Plan, StatementPlan, shares_views
from proxy.reading import Reading
from proxy.rehearsal import NOTHING, skipped
from proxy.relaxed import Unpaid, instead, unrelaxed
from proxy.remembered import remembered
from proxy.reuse import from_known
from proxy.rows import Rendered, rendered
from proxy.runtime import House, Runtime
from proxy.scan import measured, scanned
from proxy.staging import Paid, decide, give_back, settle
from proxy.standing import Begun
from proxy.trial import Trial
from proxy.view_updates import Ways
from proxy.warm import remember
from proxy.wishes import Wishes
from sqlrewrite.cells import Cells
from sqlrewrite.generate import Generated, generate
from sqlrewrite.question import Literal, Question

T = TypeVar("T")

_RETRIES = 10  # registry changes that one question outlives
_BESIDE = 200  # what a remembered answer weighs beside its numbers, in numbers


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """One question before the till: a decision in stages, numbers from synopses, or a measurement of its own."""

    plan: Plan
    course: Course | None
    ways: Ways | None
    charge: Charge
    measured: tuple[tuple[Question, Generated], ...]  # what the protected database is asked; none: no data is read

    @property
    def query(self) -> Generated:
        """The one statement of a question with noise of its own."""
        ((_, query),) = self.measured
        return query

    def query_of(self, question: Question) -> Generated:
        """The statement that measures the views of this question."""
        return next(query for measured, query in self.measured if measured is question)


async def answer(runtime: Runtime, asker: Asker, text: str, reading: Reading, shadow: Conversation) -> Answered:
    """Answer every question of a statement, or refuse it; the finishing statement is prepared and tried on the
    shadow before the till.
    """
    wishes = Wishes.read(reading.settings)
    for attempt in range(_RETRIES):
        house = await runtime.current(asker.name)
        floor = await runtime.floor(asker.name, house)
        planned = await remembered(text, reading, house, wishes, shadow.enumerate, floor)
        arrays = sum(len(part.types) for part in planned.parts)
        await shadow.prepare(planned.sql, reading, arrays)
        if await skipped(text, planned.sql, reading, arrays, shadow):
            return Answered((NOTHING,) * arrays, ())
        trial = Trial(planned, reading, wishes, shadow)
        try:
            async with runtime.turns.of(sameness(asker, each) for each in planned.plans if not each.free):
                try:
                    answered, free = await _answer(runtime, asker, house, planned, reading, wishes, text, {}, trial)
                except Unpaid as unpaid:
                    buyer = Buyer(runtime, asker, house, reading, wishes, shadow.enumerate)
                    bought = await _bought(buyer, planned, unpaid, text) if wishes.relax else {}
                    given = await instead(runtime, planned, wishes, unpaid)
                    answered, free = await _answer(
                        *(runtime, asker, house, planned, reading, wishes, text),
                        {same: (bought.get(same), stored) for same, stored in given.items()},
                        trial,
                    )
            if free:
                await remember(runtime, asker, house, planned, reading, shadow, wishes, text)
            return answered
        except AccuracyUnreachable as refusal:
            raise unrelaxed(refusal, wishes) from None
        except StaleCatalog:
            if attempt + 1 == _RETRIES:
                raise
            await runtime.refresh()
    raise AssertionError("unreachable")


async def _answer(
    runtime: Runtime,
    asker: Asker,
    house: House,
    planned: StatementPlan,
    reading: Reading,
    wishes: Wishes,
    text: str,
    given: Mapping[Sameness, tuple[Bought | None, Stored]],
    trial: Trial,
) -> tuple[Answered, bool]:
    """The answer, and whether some of it was free and not stored; ``given`` stands for what cannot be paid."""
    known = [
        given[same][1]
        if (same := sameness(asker, each)) in given
        else await known_to(runtime, asker, house, each, wishes.reuse)
        for each in planned.plans
    ]
    # By what makes questions the same: one that stands twice in a statement is paid once.
    owed = {
        sameness(asker, each): each
        for each, stored in zip(planned.plans, known, strict=True)
        if stored is None and not each.free
    }
    fresh: dict[Sameness, tuple[Paid | None, Stored]] = {
        same: (bought.paid, replace(stored, facts={**stored.facts, "bought": bought.regions}))
        for same, (bought, stored) in given.items()
        if bought is not None
    }
    free: dict[Sameness, Stored] = {}
    remaining = next((paid.remaining for paid, _ in fresh.values() if paid is not None), None)
    if any(each.staged is not None for each in owed.values()):
        half = (await runtime.ledger.room(asker.name)).half
        owed = {same: each.within(half) for same, each in owed.items()}
    if owed:
        await trial.passed()
        async with runtime.turns.everywhere(owed):
            for same in [*owed]:  # another proxy may have been quicker
                if (stored := await runtime.synopses.find(same)) is not None:
                    fresh[same] = None, stored
                    del owed[same]
            if owed:
                paid_for, free, left_after = await _pay(runtime, asker, house, owed, reading, text)
                fresh.update(paid_for)
                remaining = left_after or remaining
    remaining = remaining or await runtime.standing.remaining(asker.name)
    arrays: list[str] = []
    notices: list[tuple[str, str]] = []
    billed: set[Sameness] = set()
    again: Again | None = None
    weight = 0
    for each, part, before in zip(planned.plans, planned.parts, known, strict=True):
        same = sameness(asker, each)
        paid_, stored_ = fresh.get(same, (None, before)) if not each.free else (None, None)
        paid_ = paid_ if same not in billed else None
        billed.add(same)
        top = planned.top is each.cut.block
        shown = rendered(each, part, stored_, wishes, top, house.shown)
        arrays += shown.arrays
        notices.append(shown.bill(paid_, remaining, text))
        if part.as_is is not None and before is not None and same not in given:
            free_since: tuple[str, Stored] | None = house.known.get(same)
            if free_since is not None and free_since[1] is before:
                again = partial(_again, runtime, asker, house, shown, free_since[0])
            elif before is await runtime.synopses.find(same):
                again = partial(_again, runtime, asker, house, shown, None)
            weight = shown.weight
    return Answered(tuple(arrays), tuple(notices), again, weight=weight), bool(free)


def _again(
    runtime: Runtime, asker: Asker, house: House, shown: Rendered, paid: str | None, values: Sequence[Literal]
) -> Awaitable[Rendered | None]:
    """A stored answer never changes, nor does a free one while the analyst has ``paid`` for nothing else; what may have
    are the registry, the data, and whether the analyst may ask.
    """
    return _unless_changed(runtime, house, shown, paid, runtime.standing.begin(asker.name))


async def _unless_changed(
    runtime: Runtime, house: House, shown: Rendered, paid: str | None, begun: Begun
) -> Rendered | None:
    look = await runtime.standing.end(begun)
    return shown if look.versions == house.versions and paid in (None, look.paid) else None


@dataclass(frozen=True, slots=True)
class Bought:
    """Pieces that were paid for so that a question could be relaxed less."""

    paid: Paid
    regions: list[str]


async def _bought(buyer: Buyer, planned: StatementPlan, unpaid: Unpaid, text: str) -> dict[Sameness, Bought]:
    """Buy the pieces that bring refused questions nearer; those that cannot be had any more are left alone."""
    found: dict[Sameness, Bought] = {}
    for same, each in unpaid.owed.items() if not any(part.bounds for part in planned.parts) else ():
        offer = await buyer.offer(each)
        if offer is None:
            continue
        try:
            fresh, _, left = await _pay(buyer.runtime, buyer.asker, buyer.house, offer.plans, buyer.reading, text)
        except Unpaid:
            continue  # others were quicker
        losses = [paid.loss for paid, _ in fresh.values() if paid is not None]
        if losses and left is not None:
            total = reduce(Loss.__add__, losses)
            epsilon = epsilon_of(total.coin, total.amount, each.conversion_delta)
            found[same] = Bought(Paid(total, epsilon, left), offer.bought)
    return found


async def _pay(
    runtime: Runtime, asker: Asker, house: House, owed: Mapping[Sameness, Plan], reading: Reading, text: str
) -> tuple[dict[Sameness, tuple[Paid | None, Stored]], dict[Sameness, Stored], Remaining | None]:
    """Pay for all of these together and measure them; the second part of the result is what was free."""
    remaining: Remaining | None = None
    asked, free = await _asked(runtime, asker, house, owed, text)
    fresh: dict[Sameness, tuple[Paid | None, Stored]] = {same: (None, stored) for same, stored in free.items()}
    if asked:
        # The snapshot is there before the charge, and every statement is prepared: what cannot run costs nothing.
        async with _snapshot(runtime, asked.values(), reading) as reader:
            charges = with_scans((one.charge, one.plan) for one in asked.values())
            also = [statement for one in asked.values() if one.ways is not None for statement in one.ways.also]
            try:
                receipts = await runtime.ledger.charge_all(charges, also)
            except LimitReached as refusal:
                raise Unpaid(refusal, {same: one.plan for same, one in asked.items()}) from None
            waiting, began = dict(zip(asked, receipts, strict=False)), datetime.now(UTC)  # rows of scans come last
            for same, one in asked.items():
                receipt = waiting.pop(same)
                try:
                    paid, stored = await _told(runtime, reader, receipt, one, house)
                except Refusal:
                    # The statement is refused: decisions that have not begun have looked at nothing.
                    await give_back(runtime.ledger, [waiting[later] for later in waiting if asked[later].course])
                    raise
                fresh[same] = paid, await runtime.synopses.keep(same, stored.measured(began), receipt)
                remaining = receipt.remaining if paid is None else paid.remaining
    return fresh, free, remaining


def _snapshot(runtime: Runtime, asked: Iterable[Asked], reading: Reading) -> AbstractAsyncContextManager[Reader | None]:
    """The snapshot that these questions are measured in; none where no data is read."""
    measured = [each for one in asked for each in one.measured]
    if not measured:
        return nullcontext()
    tables = {source.relation.id: source.relation for question, _ in measured for source in question.sources}
    return runtime.backend.snapshot([*tables.values()], [query for _, query in measured], reading.carried)


async def known_to(runtime: Runtime, asker: Asker, house: House, each: Plan, reuse: bool) -> Stored | None:
    """What answers a question at no cost: the same one, asked before, or noise that was shown before.

    One that was free is not stored; it is remembered for as long as the analyst pays for nothing.
    """
    if each.free:
        return None
    same = sameness(asker, each)
    before: tuple[str, Stored] | None = house.known.get(same)
    if before is not None and before[0] == runtime.standing.paid(asker.name):
        return before[1]
    stored = await runtime.synopses.find(same)
    if stored is None and reuse and each.staged is not None:
        return await from_known(runtime.releases, asker.name, each)
    return stored


async def _asked(
    runtime: Runtime, asker: Asker, house: House, owed: Mapping[Sameness, Plan], text: str
) -> tuple[dict[Sameness, Asked], dict[Sameness, Stored]]:
    """Everything that a statement owes, ready for the till; and what turns out to be free."""
    asked: dict[Sameness, Asked] = {}
    free: dict[Sameness, Stored] = {}
    paid = runtime.standing.paid(asker.name)  # before anything is looked up: knowing more does no harm
    taken: set[Place] = set()
    for same, each in owed.items():
        if each.staged is not None:
            each.refuse_if_dear()
        course = each.staged.course(each.loss) if each.staged is not None else None
        found = await ways(runtime.releases, asker.name, each) if shares_views(each) else None
        if found is not None and found.free:
            noisy = await recalled(runtime.releases, asker.name, found)
            noisy.values.setflags(write=False)  # several answers share it from now on
            free[same] = Stored(noisy, facts=found.facts)
            house.known.put(same, (paid, free[same]), _BESIDE + int(noisy.values.size))
            continue
        if found is not None and (taken & found.moves.keys() or found.dearer_than(each.most)):
            found = None  # another question of the statement moves the view, or it would cost too much
        if found is None:
            each.refuse_if_dear()
            each = each.raised or each
        if found is not None:
            taken |= found.moves.keys()
            found = await drawn(runtime.releases, asker.name, found)
        charge = charge_of(same, house, each, course, found, text)
        questions = [each.question] if found is None else found.measured
        measured = tuple((question, generate(question, house.seed)) for question in questions)
        asked[same] = Asked(each, course, found, charge, measured)
    return asked, free


async def _told(
    runtime: Runtime, reader: Reader | None, receipt: Receipt, one: Asked, house: House
) -> tuple[Paid | None, Stored]:
    """What one question tells for its receipt; nothing is paid where nothing is new to the analyst."""
    if one.ways is None:
        assert reader is not None
        if one.course is not None:
            return await _decide(runtime, reader, receipt, one, one.course, house)
        noisy = await scanned(runtime, house, measured(reader, receipt, one.plan, one.query))
        await filed(runtime.releases, receipt, one.plan, noisy)
        return Paid.at_once(receipt), Stored(noisy)

    async def measure(question: Question, domain: Cells) -> Exact:
        assert reader is not None
        scan = reader.measure(receipt, one.query_of(question), lambda rows: Exact(domain.fill(rows)))
        return await scanned(runtime, house, scan)

    noisy = await told(runtime.releases, receipt, one.ways, measure)
    return Paid.at_once(receipt) if receipt.paid.amount else None, Stored(noisy, facts=one.ways.facts)


async def _decide(
    runtime: Runtime, reader: Reader, receipt: Receipt, one: Asked, course: Course, house: House
) -> tuple[Paid, Stored]:
    """One look at the data, a decision in stages, and the numbers of the groups that it keeps."""
    each = one.plan
    domain, planned = each.cells, each.staged
    assert domain is not None and planned is not None
    scan = reader.measure(receipt, one.query, lambda rows: Exact(domain.fill(rows)))
    statistics = (await scanned(runtime, house, scan)).combine(each.weights)
    staged, delta = Staged(statistics, planned.asked), each.conversion_delta
    scan_paid, fixed = credit(each), each.loss
    decision, receipt = await decide(runtime.ledger, receipt, course, staged, fixed, planned.most, delta, scan_paid)
    kept = np.flatnonzero(decision.kept).astype(np.int64)
    shown = np.array([place for place, share in enumerate(each.shares) if share is not None], dtype=np.int64)
    values = np.zeros((len(each.shares), domain.size), dtype=np.int64)
    if shown.size:
        chosen = statistics.combine(np.eye(len(each.shares), dtype=np.int64)[shown])
        numbers = release(chosen, [share for share in each.shares if share is not None])
        # The numbers of groups that are not kept are drawn and thrown away: nobody has seen them.
        values[np.ix_(shown, kept)] = numbers.values[:, kept]
    each_group = WIDE.divide(each.loss.amount, Decimal(each.contribution.cells))
    facts = promised(decision)
    where = partial(levels, each.question, domain, each.contribution.cells)
    paid = await settle(runtime.ledger, receipt, staged, fixed, decision, facts, each_group, delta, where, scan_paid)
    return with_scan(paid, each), Stored(Noisy(values), kept, facts)
