"""New questions whose answers are known already: a mould, what the analyst knows, and one look at how things stand.

    text without constants -> mould + constants -> the question, its cells -> releases that are known whole -> rows

*Guarantee*: what ``proxy.free`` says of free numbers; and the numbers are those that the long way (``proxy.answer``)
would give. The look sees, in one statement, that the analyst is active, that registry and data are those of the house,
that the analyst has paid for nothing since the knowledge in memory was read, that no answer to the question is stored,
and that nothing is known of its own view. Where one of these fails the question goes the long way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from operator import itemgetter

import numpy as np

from mechanisms.errors import Refusal
from mechanisms.grid import Grid
from mechanisms.synopsis import Known, Release
from mechanisms.threshold import Share
from mechanisms.values import Noisy
from provenance.releases import Held, Place, Releases
from provenance.snapshots import as_of, combines, slices
from provenance.synopses import Sameness, Stored
from proxy.asker import Answered, Asker, sameness
from proxy.conversation import Conversation
from proxy.free import enough
from proxy.mould import Asked, Mould, Sheet, marks, mould
from proxy.numbers import Candidate, candidate, finer, finer_name, place_of, row
from proxy.plan import Plan, StatementPlan, asked_in, blocks_of, setting_digest
from proxy.reading import Reading
from proxy.rows import Rendered, rendered
from proxy.runtime import House, Runtime
from proxy.standing import Begun, Probe
from proxy.wider import Derivable, Enumerate
from proxy.wishes import Wishes
from sqlrewrite.canonical import canonical
from sqlrewrite.domain import DomainQuery
from sqlrewrite.finish import finish, released
from sqlrewrite.normal import fingerprint
from sqlrewrite.question import Literal, Question

_BESIDE = 100  # what a mould weighs beside its cells, in cells
_FORMS, _SUMS = (
    32,
    4096,
)  # of questions from the same views, and of numbers of cells, for which it is known what is enough


@dataclass(frozen=True, slots=True, eq=False)
class Knowledge:
    """What an analyst knew of some views after having paid for all that ``paid`` stands for."""

    paid: str
    held: Mapping[Place, Held]
    order: dict[tuple[Sheet, ...], Sequence[tuple[int, Sheet]]] = field(default_factory=dict)
    alone: list[Knowledge] = field(default_factory=list)  # the same by snapshot, where that is asked for
    tried: dict[tuple[Sheet, int], _Enough | None] = field(default_factory=dict)

    def combined(self, question: Question) -> Sequence[Knowledge]:
        """What may be combined for a question with each other, in the order in which ``numbers.ways`` looks at it."""
        if combines(question):
            return (self,)
        if not self.alone:
            self.alone.extend(Knowledge(self.paid, one) for one in slices(question, self.held))
        return self.alone

    def in_order(self, each: Plan, share: Share, several: tuple[Sheet, ...]) -> Sequence[tuple[int, Sheet]]:
        """The sheets of which something is known, each with the first release that is, in that order."""
        if several not in self.order:
            if (
                len(self.order) >= _FORMS
            ):  # they hold the moulds of their forms, which nobody else may remember any more
                self.order.clear()
                self.tried.clear()
            places = [(place_of(each, sheet.base.view), sheet) for sheet in several]
            known = [(self.held[p].known.whole | self.held[finer(p, share.grid)].known.whole, s) for p, s in places]
            self.order[several] = sorted(((min(whole), s) for whole, s in known if whole), key=itemgetter(0))
        return self.order[several]

    def enough(self, each: Plan, share: Share, sheet: Sheet, view: Derivable) -> _Enough | None:
        """The releases that are enough for sums of so many cells, worked out once; None if all of them are not."""
        key = sheet, view.rollup.most
        if key not in self.tried:
            if len(self.tried) >= _SUMS:
                self.tried.clear()
            place = place_of(each, view.view)
            one = candidate(share, self.held, place, view.view, view.question, view.cells, 0, view)
            known = enough(one.held, one.precision)
            self.tried[key] = None if known is None else _Enough.of(one, known)
        return self.tried[key]


@dataclass(frozen=True, slots=True, eq=False)
class _Enough:
    """Releases that are precise enough, on their grid."""

    grid: Grid
    releases: tuple[Release, ...]
    known: Known
    last: int
    made: tuple[datetime, ...]

    @classmethod
    def of(cls, one: Candidate, known: Known) -> _Enough:
        releases = tuple(each for each in one.held.releases if each.id in known.whole)
        made = tuple(one.held.paid[each.id] for each in releases)
        return cls(one.grid, releases, known, max(known.whole), made)


@dataclass(frozen=True, slots=True, eq=False)
class Ready:
    """A mould with what is the same for all questions out of it: where their views are filed, and how accurate."""

    mould: Mould
    places: tuple[Place, ...]
    accuracy: str

    def probe(self, asker: Asker, asked: Asked) -> Probe:
        plan = self.mould.plan
        relation, shares = plan.question.relation, [share for share in plan.shares if share is not None]
        own = [
            name for name, share in zip(asked.own, shares, strict=True) for name in (name, finer_name(name, share.grid))
        ]
        same = Sameness(asker.name, relation.id, relation.data_version, asked.digest, self.accuracy)
        return Probe(same, own)


async def at_once(runtime: Runtime, asker: Asker, text: str, reading: Reading, shadow: Conversation) -> Answered | None:
    """The answer to a question that is known to follow from what the analyst knows; None: go the long way."""
    house, wishes = runtime.house, Wishes.read(reading.settings)
    form, values = _form(text, reading)
    ready: Ready | None = house.moulds.get(_key(form, reading, wishes)) or None
    if ready is None:
        return None
    told = partial(_known, runtime, asker, house, ready, wishes)
    known = await told(shadow.enumerate, values)
    if known is None:
        return None
    planned, part = ready.mould.planned, ready.mould.planned.parts[0]
    await shadow.prepare(planned.sql, reading, len(part.types))
    bill = known.bill(None, await runtime.standing.remaining(asker.name), text)
    again = None if part.as_is is None else partial(told, _not_listed)
    return Answered(tuple(known.arrays), (bill,), again, open=True, weight=_weight(ready.mould))


async def _not_listed(wanted: DomainQuery) -> list[tuple[str | None, ...]]:
    raise LookupError


def _known(
    runtime: Runtime,
    asker: Asker,
    house: House,
    ready: Ready,
    wishes: Wishes,
    enumerate_: Enumerate,
    values: Sequence[Literal],
) -> Awaitable[Rendered | None]:
    """What a question out of a mould shows, if it follows from what the analyst knows, and nothing has changed.

    The look is on its way when this returns; the numbers are put together meanwhile.
    """
    knowledge: Knowledge | None = house.known.get((asker.name, ready.places))
    if knowledge is None or any(value.text is None for value in values):
        return _unknown()
    asked = ready.mould.asked(values)
    begun = runtime.standing.begin(asker.name, ready.probe(asker, asked))
    return _looked(runtime, house, ready, wishes, enumerate_, knowledge, asked, begun)


async def _unknown() -> None:
    return None


async def _looked(
    runtime: Runtime,
    house: House,
    ready: Ready,
    wishes: Wishes,
    enumerate_: Enumerate,
    knowledge: Knowledge,
    asked: Asked,
    begun: Begun,
) -> Rendered | None:
    found = await _numbers(house, ready.mould, asked, knowledge, enumerate_)
    if found is None:
        return None
    known = rendered(ready.mould.plan, ready.mould.planned.parts[0], found, wishes, True, house.shown)
    look = await runtime.standing.end(begun)
    if look.versions != house.versions or look.paid != knowledge.paid or look.answered:
        return None
    return known


async def remember(
    runtime: Runtime,
    asker: Asker,
    house: House,
    planned: StatementPlan,
    reading: Reading,
    shadow: Conversation,
    wishes: Wishes,
    text: str,
) -> None:
    """Keep what ``at_once`` needs, after a statement was answered from what the analyst knows."""
    form, values = _form(text, reading)
    if reading.circumstances is None or reading.wrapper is not None or not values or len(planned.plans) > 1:
        return
    key = _key(form, reading, wishes)
    ready: Ready | bool | None = house.moulds.get(key)
    if ready is None:
        made = await _mould(house, planned, reading, shadow, wishes, form, values)
        ready = made is not None and Ready(made, _places(made), sameness(asker, made.plan).accuracy)
        house.moulds.put(key, ready, _BESIDE if made is None else _weight(made))
    if not isinstance(ready, Ready):
        return  # False: no mould can be made of it
    look = await runtime.standing.look(asker.name)
    before: Knowledge | None = house.known.get((asker.name, ready.places))
    if before is None or before.paid != look.paid:
        held = await _loaded(runtime.releases, asker.name, ready.places)
        size = sum(each.values.size for one in held.values() for each in one.releases if each.values is not None)
        house.known.put((asker.name, ready.places), Knowledge(look.paid, held), _BESIDE + size)


def _form(text: str, reading: Reading) -> tuple[str, tuple[Literal, ...]]:
    """The text without its constants, and them: those of the text, or those that were bound."""
    return (text, reading.parameters) if reading.lifted is None else (reading.lifted.text, reading.lifted.values)


def _key(form: str, reading: Reading, wishes: Wishes) -> Hashable:
    return form, None if reading.lifted is None else reading.lifted.types, reading.form, wishes


async def _mould(
    house: House,
    planned: StatementPlan,
    reading: Reading,
    shadow: Conversation,
    wishes: Wishes,
    form: str,
    values: Sequence[Literal],
) -> Mould | None:
    marked = marks(values, form)
    if marked is None:
        return None
    try:
        blocks = blocks_of(form, reading, house)
        found = [asked_in(form, block, reading, house, wishes, marked) for block in blocks]
    except Refusal:  # with other constants it is no question that we answer, or not the same
        return None
    if len(found) != 1:
        return None
    taken, asked = found[0]
    question, places = canonical(asked, fingerprint(asked))
    if reading.lifted is not None and finish(form, [released(question, taken, places)], 0) != planned.sql:
        return None  # a constant stands in what PostgreSQL finishes, too
    settings = partial(setting_digest, reading=reading)
    every = reading.lifted is not None
    return await mould(planned, values, question, marked, every, settings, shadow.enumerate, house.casts)


def _weight(made: Mould) -> int:
    return _BESIDE + 2 * sum(sheet.base.cells.size for several in made.sheets for sheet in several)


def _places(made: Mould) -> tuple[Place, ...]:
    """Where the releases of its views may be filed."""
    found: list[Place] = []
    for share, several in zip(made.plan.shares, made.sheets, strict=True):
        assert share is not None
        for sheet in several:
            place = place_of(made.plan, sheet.base.view)
            found += (place, finer(place, share.grid))
    return tuple(dict.fromkeys(found))


async def _loaded(store: Releases, analyst: str, places: Sequence[Place]) -> dict[Place, Held]:
    held = await store.find(analyst, places)
    whole = {place: replace(one, known=replace(one.known, partial=None), parts={}) for place, one in held.items()}
    return {place: await store.loaded(analyst, one, one.known.whole) for place, one in whole.items()}


async def _numbers(
    house: House, made: Mould, asked: Asked, knowledge: Knowledge, enumerate_: Enumerate
) -> Stored | None:
    """The numbers of a question, if releases that are known whole are enough for all of them; worked out once."""
    found: Stored | None = house.known.get((asked, knowledge))
    if found is None:
        found = await _summed(made, asked, knowledge, enumerate_)
        if found is not None:
            house.known.put((asked, knowledge), found, _BESIDE + int(found.noisy.values.size))
    return found


async def _summed(made: Mould, asked: Asked, knowledge: Knowledge, enumerate_: Enumerate) -> Stored | None:
    for one in knowledge.combined(made.plan.question):
        if (found := await _from(made, asked, one, enumerate_)) is not None:
            return found
    return None


async def _from(made: Mould, asked: Asked, knowledge: Knowledge, enumerate_: Enumerate) -> Stored | None:
    rows, names, moments = [], [], list[datetime]()
    for share, several in zip(made.plan.shares, made.sheets, strict=True):
        assert share is not None
        best: tuple[_Enough, Derivable] | None = None
        for first, sheet in knowledge.in_order(made.plan, share, several):
            if best is not None and first > best[0].last:
                break  # of several views the one that was known first: no later one is looked at
            view = await sheet.narrowed(asked.filled, enumerate_)
            found = None if view is None else knowledge.enough(made.plan, share, sheet, view)
            if view is not None and found is not None and (best is None or found.last < best[0].last):
                best = found, view
        if best is None:
            return None
        taken, view = best
        rows.append(row(taken.grid, taken.releases, taken.known, view))
        names.append(f"reuse on {view.label}")
        moments += taken.made
    return Stored(Noisy(np.array(rows, dtype=np.int64)), facts={"ways": names, "as_of": as_of(moments)})
