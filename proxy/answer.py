"""The route of one question.

    text -> Clauses -> Question -> Shares -> Plan -> Charge -> Receipt -> Exact -> Noisy -> rows

One door in, one till, one look at the data, one place of noise, one door out. Everything before the till is a function
of the text, the settings and the public catalog (``proxy.plan``); everything after the noise is post-processing,
which the shadow does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from mechanisms.condition import And, Condition, Leaf, Or
from mechanisms.release import release, release_found
from mechanisms.threshold import Share, decide
from mechanisms.values import Exact, Lattice, Noisy
from provenance.errors import StaleCatalog
from provenance.model import Charge, Receipt
from provenance.synopses import Sameness
from proxy.backend import Reader
from proxy.bill import Groups, bill, sentence
from proxy.conversation import Conversation, Reading
from proxy.plan import Plan, StatementPlan, plan
from proxy.runtime import House, Runtime
from proxy.wishes import Wishes
from sqlrewrite.catalog import Key
from sqlrewrite.cells import found, key_text
from sqlrewrite.finish import Released, array_text
from sqlrewrite.generate import generate
from sqlrewrite.question import Atom, KeyThreshold
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
        for each, noisy in zip(planned.plans, known, strict=True)
        if noisy is None and not each.free
    }
    fresh: dict[Sameness, tuple[Receipt, Noisy]] = {}
    if owed:
        async with runtime.backend.reader() as reader:  # there before the till: what cannot be read costs nothing
            receipts = await runtime.ledger.charge_all([_charge(asker, house, each, text) for each in owed.values()])
            for (same, each), receipt in zip(owed.items(), receipts, strict=True):
                released = await _measure(reader, receipt, each, house.seed, reading)
                fresh[same] = receipt, await runtime.synopses.keep(same, released, receipt)
        remaining = receipts[-1].remaining
    else:
        remaining = await runtime.ledger.remaining(asker.name)
    arrays: list[str] = []
    notices: list[tuple[str, str]] = []
    billed: set[Sameness] = set()
    for each, part, before in zip(planned.plans, planned.parts, known, strict=True):
        same = sameness(asker, each)
        receipt_, noisy = fresh.get(same, (None, before)) if not each.free else (None, None)
        receipt_ = receipt_ if same not in billed else None
        billed.add(same)
        groups = _groups(each, noisy)
        kept = _kept(each, groups)
        clip = not wishes.raw and planned.top is each.cut.block
        arrays += _columns(each, part, groups, kept, clip)
        entry = bill(each, groups, kept, receipt_, remaining, text)
        notices.append((sentence(entry), entry.json()))
    return Answered(tuple(arrays), tuple(notices))


async def _measure(reader: Reader, receipt: Receipt, each: Plan, seed: int, reading: Reading) -> Noisy:
    """One look at the data, and noise on everything that it showed."""
    query, domain = generate(each.question, seed), each.cells
    if domain is not None:
        exact = await reader.measure(receipt, query, lambda rows: Exact(domain.fill(rows)), reading.carried)
        return release(exact.combine(each.weights), each.shares)
    presence, counted = each.presence, query.presence
    assert presence is not None and counted is not None
    groups = await reader.measure(receipt, query, lambda rows: found(each.question, counted, rows), reading.carried)
    statistics = groups.measures.combine(each.weights)
    passed, noisy = release_found(statistics, groups.units, each.shares, presence.share, presence.threshold)
    named = groups.named(passed)
    # Sorted, so that the order in which PostgreSQL found them is not told.
    order = sorted(range(len(named)), key=lambda at: [(text is None, text or "") for text in named[at]])
    return Noisy(noisy.values[:, order], tuple(named[at] for at in order))


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
    """What an answer is stored under: the question, the data, and the noise."""
    shares = (*each.shares, *((each.presence.share,) if each.presence is not None else ()))
    way = "/".join(f"{share.noise}+{share.shift}" for share in shares)
    relation = each.question.relation
    return Sameness(asker.name, relation.id, relation.data_version, each.digest, way)


def _charge(asker: Asker, house: House, each: Plan, text: str) -> Charge:
    same = sameness(asker, each)
    return Charge(
        analyst=asker.name,
        relation_id=same.relation_id,
        data_version=same.data_version,
        registry_version=house.catalog.version,
        fingerprint=same.fingerprint,
        question=text,
        mechanism=each.mechanism,
        loss=each.loss,
        epsilon=each.epsilon,
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
            share: Share = each.shares[atom.statistic]
            return decide(groups.noisy.row(atom.statistic), atom.direction, _threshold(atom, groups), share)
        case And(parts):
            return reduce(np.logical_and, (_holds(part, each, groups) for part in parts))
        case Or(parts):
            return reduce(np.logical_or, (_holds(part, each, groups) for part in parts))


def _threshold(atom: Atom, groups: Groups) -> int | Lattice:
    """An atom's threshold: one number, or a public number of each group (a NULL there keeps no group, as in SQL)."""
    wanted = atom.threshold
    if not isinstance(wanted, KeyThreshold):
        return wanted
    numbers = groups.keys[wanted.key]
    return np.array([_on_lattice(number, wanted, atom.direction) for number in numbers], dtype=np.int64)


def _on_lattice(number: Key, wanted: KeyThreshold, direction: int) -> int:
    """The nearest whole lattice number on the qualifying side."""
    if number is None:
        return direction * 2**62
    told = Decimal(str(number))
    if not told.is_finite():  # NaN sorts above every number
        above = -1 if told.is_infinite() and told < 0 else 1
        return (above if wanted.factor > 0 else -above) * 2**62
    exact = Fraction(told) * wanted.factor
    whole = math.ceil(exact) if direction > 0 else math.floor(exact)
    limit = whole + direction if wanted.strict and whole == exact else whole
    return max(-(2**62), min(2**62, limit))


def _masks(each: Plan, part: Released, call: tuple[int, ...], sets: NDArray[np.int64]) -> list[str]:
    """GROUPING(keys): a bit for each key that the row's grouping set leaves out, the first key highest."""
    masks = [
        sum((part.places[key] not in keys) << place for place, key in enumerate(reversed(call)))
        for keys in each.question.sets
    ]
    return [str(masks[index]) for index in sets.tolist()]


def _columns(each: Plan, part: Released, groups: Groups, kept: NDArray[np.int64], clip: bool) -> Sequence[str]:
    chosen = kept.tolist()
    keys = [array_text([key_text(column[at]) for at in chosen]) for column in groups.keys]
    values = [
        array_text(column_texts(each.question, column, groups.noisy, kept, clip)) for column in each.question.columns
    ]
    masks = [array_text(_masks(each, part, call, groups.sets[kept])) for call in part.groupings]
    return [*keys, *values, *masks]
