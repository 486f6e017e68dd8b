"""The route of one question.

    text -> Clauses -> Question -> Shares -> Plan -> Charge -> Receipt -> Exact -> Noisy -> rows

One door in, one till, one look at the data, one place of noise, one door out. Everything before the till is a function
of the text, the settings and the public catalog (``proxy.plan``); everything after the noise is post-processing,
which the shadow does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from mechanisms.condition import And, Condition, Leaf, Or
from mechanisms.course import Course
from mechanisms.errors import Refusal
from mechanisms.release import Staged, release, release_found
from mechanisms.threshold import decide as beyond
from mechanisms.values import Exact, Noisy
from provenance.errors import StaleCatalog
from provenance.model import Charge, PredicateLoss, Receipt, Remaining
from provenance.synopses import Sameness, Stored
from proxy.backend import Reader
from proxy.bill import Groups, bill, promised, sentence
from proxy.conversation import Conversation, Reading
from proxy.plan import Plan, StatementPlan, plan
from proxy.runtime import House, Runtime
from proxy.staging import Paid, decide, give_back, reserved, settle
from proxy.wishes import Wishes
from sqlrewrite.bounds import Told, bound_texts
from sqlrewrite.catalog import Key
from sqlrewrite.cells import found, key_text
from sqlrewrite.finish import Released, array_text
from sqlrewrite.generate import generate
from sqlrewrite.problem import thresholds
from sqlrewrite.question import Atom
from sqlrewrite.values import column_texts

_RETRIES = 10  # registry changes that one question outlives


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks."""

    name: str


@dataclass(frozen=True, slots=True)
class Answered:
    """The arrays that the prepared finishing statement takes, and what each question cost."""

    arrays: tuple[str, ...]
    notices: tuple[tuple[str, str], ...]  # (message, bill as JSON), one for each question


async def answer(runtime: Runtime, asker: Asker, text: str, reading: Reading, shadow: Conversation) -> Answered:
    """Answer every question of a statement, or refuse it; the finishing statement is prepared on the shadow before
    the till.
    """
    wishes = Wishes.read(reading.settings)
    for attempt in range(_RETRIES):
        house = await runtime.current()
        planned = await plan(text, reading, house, wishes, shadow.enumerate)
        await shadow.prepare(planned.sql, reading, sum(len(part.types) for part in planned.parts))
        try:
            return await _answer(runtime, asker, house, planned, reading, wishes, text)
        except StaleCatalog:
            if attempt + 1 == _RETRIES:
                raise
            await runtime.refresh()
    raise AssertionError("unreachable")


async def _answer(
    runtime: Runtime, asker: Asker, house: House, planned: StatementPlan, reading: Reading, wishes: Wishes, text: str
) -> Answered:
    known = [await runtime.synopses.find(sameness(asker, each)) if not each.free else None for each in planned.plans]
    # By what makes questions the same: one that stands twice in a statement is paid once.
    owed = {
        sameness(asker, each): each
        for each, stored in zip(planned.plans, known, strict=True)
        if stored is None and not each.free
    }
    fresh: dict[Sameness, tuple[Paid, Stored]] = {}
    remaining: Remaining | None = None
    if any(each.staged is not None for each in owed.values()):
        left = (await runtime.ledger.remaining(asker.name)).epsilon
        owed = {same: each.within(left) for same, each in owed.items()}
    if owed:
        courses = [each.staged.course(each.loss) if each.staged is not None else None for each in owed.values()]
        charges = [
            _charge(asker, house, each, course, text) for each, course in zip(owed.values(), courses, strict=True)
        ]
        async with runtime.backend.reader() as reader:  # there before the till: what cannot be read costs nothing
            receipts = await runtime.ledger.charge_all(charges)
            waiting = dict(zip(owed, zip(courses, receipts, strict=True), strict=True))
            for same, each in owed.items():
                course, receipt = waiting.pop(same)
                try:
                    if course is None:
                        noisy = await _measure(reader, receipt, each, house, reading)
                        paid, stored = Paid.at_once(receipt), Stored(noisy)
                    else:
                        paid, stored = await _decide(runtime, reader, receipt, each, course, house, reading)
                except Refusal:
                    # The statement is refused: decisions that have not begun have looked at nothing.
                    await give_back(runtime.ledger, [later for begun, later in waiting.values() if begun is not None])
                    raise
                fresh[same] = paid, await runtime.synopses.keep(same, stored, receipt)
                remaining = paid.remaining
    remaining = remaining or await runtime.ledger.remaining(asker.name)
    arrays: list[str] = []
    notices: list[tuple[str, str]] = []
    billed: set[Sameness] = set()
    for each, part, before in zip(planned.plans, planned.parts, known, strict=True):
        same = sameness(asker, each)
        paid_, stored_ = fresh.get(same, (None, before)) if not each.free else (None, None)
        paid_ = paid_ if same not in billed else None
        billed.add(same)
        groups = _groups(each, None if stored_ is None else stored_.noisy)
        kept = stored_.kept if stored_ is not None and stored_.kept is not None else _kept(each, groups)
        clip = not wishes.raw and planned.top is each.cut.block
        arrays += _columns(each, part, groups, kept, clip, wishes.accuracy.confidence)
        entry = bill(each, groups, kept, paid_, {} if stored_ is None else stored_.facts, remaining, text)
        notices.append((sentence(entry), entry.json()))
    return Answered(tuple(arrays), tuple(notices))


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
    paid = await settle(runtime.ledger, receipt, staged, each.loss, decision, facts, each_group, delta)
    return paid, Stored(Noisy(values), kept, facts)


def _groups(each: Plan, noisy: Noisy | None) -> Groups:
    """The groups of an answer with their keys as texts and the grouping set that each belongs to."""
    statistics = len(each.question.statistics)
    if each.cells is not None:
        size = each.cells.size
        return Groups(
            noisy or Noisy(np.zeros((statistics, size), dtype=np.int64)),
            each.cells.key_columns(np.arange(size, dtype=np.int64)),
            each.cells.set_indices(np.arange(size, dtype=np.int64)),
        )
    keys = noisy.keys if noisy is not None and noisy.keys is not None else ()
    columns: list[list[Key]] = [[key[place] for key in keys] for place in range(len(each.question.keys))]
    sets = np.array([int(key[-1] or 0) for key in keys], dtype=np.int64)
    return Groups(noisy or Noisy(np.zeros((statistics, 0), dtype=np.int64)), columns, sets)


def sameness(asker: Asker, each: Plan) -> Sameness:
    """What an answer is stored under: the question, the data, the noise, and how far a decision leans."""
    ways = [f"{share.noise}{share.grid}+{0 if share.beta is None else share.shift}" for share in each.paid]
    way = "/".join([each.staged.way, *ways] if each.staged is not None else ways)
    relation = each.question.relation
    return Sameness(asker.name, relation.id, relation.data_version, each.digest, way)


def _charge(asker: Asker, house: House, each: Plan, course: Course | None, text: str) -> Charge:
    same = sameness(asker, each)
    fixed = course is None or each.staged is None
    groups = None
    if fixed and each.cells is not None:
        groups = PredicateLoss.uniform(each.loss.amount / each.contribution.cells, each.cells.size)
    return Charge(
        analyst=asker.name,
        relation_id=same.relation_id,
        data_version=same.data_version,
        registry_version=house.catalog.version,
        fingerprint=same.fingerprint,
        question=text,
        mechanism=each.mechanism,
        loss=each.loss if course is None or each.staged is None else reserved(course, each.loss, each.staged.most),
        epsilon=each.epsilon if fixed else None,
        staged=not fixed,
        groups=groups,
    )


def _kept(each: Plan, groups: Groups) -> NDArray[np.int64]:
    """Which groups the answer shows."""
    if each.empty:
        scalar = [index for index, keys in enumerate(each.question.sets) if not keys]
        return np.flatnonzero(np.isin(groups.sets, scalar)).astype(np.int64)
    if each.probe:
        return np.zeros(0, dtype=np.int64)
    if each.question.having is None:
        return np.arange(groups.size, dtype=np.int64)
    return np.flatnonzero(_holds(each.question.having, each, groups)).astype(np.int64)


def _holds(condition: Condition[Atom], each: Plan, groups: Groups) -> NDArray[np.bool_]:
    match condition:
        case Leaf(atom):
            share = each.shares[atom.statistic]
            assert share is not None
            return beyond(groups.noisy.row(atom.statistic), atom.direction, thresholds(atom, groups.keys), share)
        case And(parts):
            return reduce(np.logical_and, (_holds(part, each, groups) for part in parts))
        case Or(parts):
            return reduce(np.logical_or, (_holds(part, each, groups) for part in parts))


def _masks(each: Plan, part: Released, call: tuple[int, ...], sets: NDArray[np.int64]) -> list[str]:
    """GROUPING(keys): a bit for each key that the row's grouping set leaves out, the first key highest."""
    masks = [
        sum((part.places[key] not in keys) << place for place, key in enumerate(reversed(call)))
        for keys in each.question.sets
    ]
    return [str(masks[index]) for index in sets.tolist()]


def _columns(
    each: Plan, part: Released, groups: Groups, kept: NDArray[np.int64], clip: bool, confidence: Decimal
) -> Sequence[str]:
    chosen = kept.tolist()
    columns = each.question.columns
    keys = [array_text([key_text(column[at]) for at in chosen]) for column in groups.keys]
    values = [array_text(column_texts(each.question, column, groups.noisy, kept, clip)) for column in columns]
    masks = [array_text(_masks(each, part, call, groups.sets[kept])) for call in part.groupings]
    told = Told(each.question, groups.noisy, None if each.free else each.shares, kept, confidence, clip)
    bounds = [array_text(bound_texts(told, columns[index], bound)) for index, bound in part.bounds]
    return [*keys, *values, *masks, *bounds]
