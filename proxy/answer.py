"""The route of one question.

    text -> Clauses -> Question -> Shares -> Plan -> Charge -> Receipt -> Exact -> Noisy -> rows

One door in, one till, one look at the data, one place of noise, one door out. Everything before the till is a function
of the text, the settings and the public catalog (``proxy.plan``); everything after the noise is post-processing,
which the shadow does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial, reduce

import numpy as np

from mechanisms.course import Course
from mechanisms.errors import AccuracyUnreachable, Refusal
from mechanisms.loss import Loss, epsilon_of
from mechanisms.release import Staged, release, release_found
from mechanisms.values import Exact, Noisy
from provenance.errors import LimitReached, StaleCatalog
from provenance.model import Charge, Felt, Part, PredicateLoss, Receipt, Remaining
from provenance.reach import beside, reach
from provenance.releases import Place
from provenance.synopses import Sameness, Stored
from proxy.alone import filed
from proxy.asker import Again, Answered, Asker, sameness
from proxy.backend import Reader
from proxy.bill import promised
from proxy.conversation import Conversation
from proxy.levels import levels
from proxy.numbers import Ways, drawn, recalled, told, ways
from proxy.patched import Buyer
from proxy.plan import Plan, StatementPlan, shares_views
from proxy.reading import Reading
from proxy.rehearsal import NOTHING, skipped
from proxy.relaxed import Unpaid, instead, unrelaxed
from proxy.remembered import remembered
from proxy.reuse import from_known
from proxy.rows import Rendered, rendered
from proxy.runtime import House, Runtime
from proxy.staging import Paid, decide, give_back, reserved, settle
from proxy.standing import Begun
from proxy.warm import remember
from proxy.wishes import Wishes
from sqlrewrite.cells import Cells, found
from sqlrewrite.generate import generate
from sqlrewrite.question import Literal, Question
from sqlrewrite.view import whole_view

_RETRIES = 10  # registry changes that one question outlives
_BESIDE = 200  # what a remembered answer weighs beside its numbers, in numbers


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """One question before the till: a decision in stages, numbers from synopses, or a measurement of its own."""

    plan: Plan
    course: Course | None
    ways: Ways | None
    charge: Charge

    @property
    def looks(self) -> bool:
        """Whether the data must be read."""
        return self.ways is None or self.ways.looks


async def answer(runtime: Runtime, asker: Asker, text: str, reading: Reading, shadow: Conversation) -> Answered:
    """Answer every question of a statement, or refuse it; the finishing statement is prepared on the shadow before
    the till.
    """
    wishes = Wishes.read(reading.settings)
    for attempt in range(_RETRIES):
        house = await runtime.current(asker.name)
        planned = await remembered(text, reading, house, wishes, shadow.enumerate)
        arrays = sum(len(part.types) for part in planned.parts)
        await shadow.prepare(planned.sql, reading, arrays)
        if await skipped(text, planned.sql, reading, arrays, shadow):
            return Answered((NOTHING,) * arrays, ())
        try:
            async with runtime.turns.of(sameness(asker, each) for each in planned.plans if not each.free):
                try:
                    answered, free = await _answer(runtime, asker, house, planned, reading, wishes, text, {})
                except Unpaid as unpaid:
                    buyer = Buyer(runtime, asker, house, reading, wishes, shadow.enumerate)
                    bought = await _bought(buyer, planned, unpaid, text) if wishes.relax else {}
                    given = await instead(runtime, planned, wishes, unpaid)
                    answered, free = await _answer(
                        *(runtime, asker, house, planned, reading, wishes, text),
                        {same: (bought.get(same), stored) for same, stored in given.items()},
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
        # The reader is there before the till: what cannot be read costs nothing.
        async with runtime.backend.reader() if any(one.looks for one in asked.values()) else nullcontext() as reader:
            also = [statement for one in asked.values() if one.ways is not None for statement in one.ways.also]
            try:
                receipts = await runtime.ledger.charge_all([one.charge for one in asked.values()], also)
            except LimitReached as refusal:
                raise Unpaid(refusal, {same: one.plan for same, one in asked.items()}) from None
            waiting = dict(zip(asked, receipts, strict=True))
            for same, one in asked.items():
                receipt = waiting.pop(same)
                try:
                    paid, stored = await _told(runtime, reader, receipt, one, house, reading)
                except Refusal:
                    # The statement is refused: decisions that have not begun have looked at nothing.
                    await give_back(runtime.ledger, [waiting[later] for later in waiting if asked[later].course])
                    raise
                fresh[same] = paid, await runtime.synopses.keep(same, stored, receipt)
                remaining = receipt.remaining if paid is None else paid.remaining
    return fresh, free, remaining


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
        course = each.staged.course(each.loss) if each.staged is not None else None
        found = await ways(runtime.releases, asker.name, each) if shares_views(each) else None
        if found is not None and found.free:
            noisy = await recalled(runtime.releases, asker.name, found)
            noisy.values.setflags(write=False)  # several answers share it from now on
            free[same] = Stored(noisy, facts={"ways": found.names})
            house.known.put(same, (paid, free[same]), _BESIDE + int(noisy.values.size))
            continue
        if found is not None and (taken & found.moves.keys() or found.dearer_than(each.most)):
            found = None  # another question of the statement moves the view, or it would cost too much
        if found is None:
            each.refuse_if_dear()
        if found is not None:
            taken |= found.moves.keys()
            found = await drawn(runtime.releases, asker.name, found)
        asked[same] = Asked(each, course, found, _charge(asker, house, each, course, found, text))
    return asked, free


async def _told(
    runtime: Runtime, reader: Reader | None, receipt: Receipt, one: Asked, house: House, reading: Reading
) -> tuple[Paid | None, Stored]:
    """What one question tells for its receipt; nothing is paid where nothing is new to the analyst."""
    if one.ways is None:
        assert reader is not None
        if one.course is not None:
            return await _decide(runtime, reader, receipt, one.plan, one.course, house, reading)
        noisy = await _measure(reader, receipt, one.plan, house, reading)
        await filed(runtime.releases, receipt, one.plan, noisy)
        return Paid.at_once(receipt), Stored(noisy)

    async def measure(question: Question, domain: Cells) -> Exact:
        assert reader is not None
        query = generate(question, house.seed)
        return await reader.measure(receipt, query, lambda rows: Exact(domain.fill(rows)), reading.carried)

    noisy = await told(runtime.releases, receipt, one.ways, measure)
    return Paid.at_once(receipt) if receipt.paid.amount else None, Stored(noisy, facts={"ways": one.ways.names})


async def _measure(reader: Reader, receipt: Receipt, each: Plan, house: House, reading: Reading) -> Noisy:
    """One look at the data, and noise on everything that it showed, at a fixed price."""
    query, domain = generate(each.question, house.seed), each.cells
    shares = [share for share in each.shares if share is not None]
    if domain is not None:
        exact = await reader.measure(receipt, query, lambda rows: Exact(domain.fill(rows)), reading.carried)
        return release(exact.combine(each.weights), shares)
    presence, counted = each.presence, query.presence
    assert presence is not None and counted is not None
    groups = await reader.measure(receipt, query, lambda rows: found(each.question, counted, rows), reading.carried)
    statistics = groups.measures.combine(each.weights)
    passed, noisy = release_found(statistics, groups.units, shares, presence.share, presence.threshold)
    named = groups.named(passed)
    # Sorted, so that the order in which PostgreSQL found them is not told.
    order = sorted(range(len(named)), key=lambda at: [(text is None, text or "") for text in named[at]])
    return Noisy(noisy.values[:, order], tuple(named[at] for at in order))


async def _decide(
    runtime: Runtime, reader: Reader, receipt: Receipt, each: Plan, course: Course, house: House, reading: Reading
) -> tuple[Paid, Stored]:
    """One look at the data, a decision in stages, and the numbers of the groups that it keeps."""
    domain, planned = each.cells, each.staged
    assert domain is not None and planned is not None
    query = generate(each.question, house.seed)
    exact = await reader.measure(receipt, query, lambda rows: Exact(domain.fill(rows)), reading.carried)
    statistics = exact.combine(each.weights)
    staged, delta = Staged(statistics, planned.asked), each.conversion_delta
    decision, receipt = await decide(runtime.ledger, receipt, course, staged, each.loss, planned.most, delta)
    kept = np.flatnonzero(decision.kept).astype(np.int64)
    shown = np.array([place for place, share in enumerate(each.shares) if share is not None], dtype=np.int64)
    values = np.zeros((len(each.shares), domain.size), dtype=np.int64)
    if shown.size:
        chosen = statistics.combine(np.eye(len(each.shares), dtype=np.int64)[shown])
        numbers = release(chosen, [share for share in each.shares if share is not None])
        # The numbers of groups that are not kept are drawn and thrown away: nobody has seen them.
        values[np.ix_(shown, kept)] = numbers.values[:, kept]
    each_group = each.loss.amount / each.contribution.cells
    facts = promised(decision)
    where = partial(levels, each.question, domain, each.contribution.cells)
    paid = await settle(runtime.ledger, receipt, staged, each.loss, decision, facts, each_group, delta, where)
    return paid, Stored(Noisy(values), kept, facts)


def _charge(asker: Asker, house: House, each: Plan, course: Course | None, found: Ways | None, text: str) -> Charge:
    same = sameness(asker, each)
    fixed = course is None or each.staged is None
    loss, table = each.loss, None
    parts = _parts(each, loss.amount)
    if found is not None:
        loss, table, parts = found.loss, found.table, found.parts
    elif course is not None and each.staged is not None:
        loss = reserved(course, each.loss, each.staged.most)
        parts = _parts(each, loss.amount)
    felt = (Felt(reach(each.question), loss.amount, loss.amount),) if found is None else found.felt
    groups = None
    if fixed and each.cells is not None:
        groups = PredicateLoss.uniform(loss.amount / each.contribution.cells, each.cells.size)
    return Charge(
        analyst=asker.name,
        relation_id=same.relation_id,
        data_version=same.data_version,
        registry_version=house.catalog.version,
        fingerprint=same.fingerprint,
        question=text,
        mechanism=each.mechanism,
        loss=loss,
        epsilon=each.epsilon if fixed and found is None else None,
        staged=not fixed,
        groups=groups,
        table=table,
        parts=parts,
        accuracy=same.accuracy,
        felt=felt,
        beside=beside(each.question),
    )


def _parts(each: Plan, amount: Decimal) -> tuple[Part, ...]:
    """A question with noise of its own is one view to the ledger: all its statistics together."""
    dimensions, measure = whole_view(each.question)
    return (Part(dimensions, measure, amount, amount),)
