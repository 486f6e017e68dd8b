"""New questions whose answers are known already: a mould, what the analyst knows, and one look at how things stand.

    text without constants -> mould + constants -> the question, its cells -> releases that are known whole -> rows

*Guarantee*: what ``proxy.free`` says of free numbers; and the numbers are those that the long way (``proxy.answer``)
would give. The look sees, in one statement, that the analyst is active, that registry and data are those of the house,
that the analyst has paid for nothing since the knowledge in memory was read, that no answer to the question is stored,
and that nothing is known of its own view. Where one of these fails the question goes the long way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from mechanisms.errors import Refusal
from mechanisms.values import Noisy
from provenance.releases import Held, Place, Releases
from provenance.synopses import Sameness, Stored
from proxy.asker import Answered, Asker, sameness
from proxy.conversation import Conversation
from proxy.free import enough
from proxy.mould import Cast, Mould, marks, mould
from proxy.numbers import candidate, finer, finer_name, place_of, registered, row
from proxy.plan import Plan, StatementPlan, asked_in, blocks_of, setting_digest
from proxy.reading import Reading
from proxy.rows import rendered
from proxy.runtime import House, Runtime
from proxy.standing import Probe
from proxy.wishes import Wishes
from sqlrewrite.canonical import canonical
from sqlrewrite.finish import finish, released
from sqlrewrite.normal import fingerprint
from sqlrewrite.question import Literal

_BESIDE = 100  # what a mould weighs beside its cells, in cells


@dataclass(frozen=True, slots=True, eq=False)
class Knowledge:
    """What an analyst knew of some views after having paid for all that ``paid`` stands for."""

    paid: str
    held: Mapping[Place, Held]


@dataclass(frozen=True, slots=True, eq=False)
class Ready:
    """A mould with what is the same for all questions out of it: where their views are filed, and how accurate."""

    mould: Mould
    places: tuple[Place, ...]
    accuracy: str

    def probe(self, asker: Asker, cast: Cast) -> Probe:
        relation, shares = cast.plan.question.relation, [share for share in cast.plan.shares if share is not None]
        own = [
            name for name, share in zip(cast.own, shares, strict=True) for name in (name, finer_name(name, share.grid))
        ]
        same = Sameness(asker.name, relation.id, relation.data_version, cast.plan.digest, self.accuracy)
        return Probe(same, own)


async def at_once(runtime: Runtime, asker: Asker, text: str, reading: Reading, shadow: Conversation) -> Answered | None:
    """The answer to a question that is known to follow from what the analyst knows; None: go the long way."""
    house, wishes = runtime.house, Wishes.read(reading.settings)
    form, values = _form(text, reading)
    ready: Ready | None = house.moulds.get(_key(form, reading, wishes)) or None
    if ready is None or any(value.text is None for value in values):
        return None
    knowledge: Knowledge | None = house.known.get((asker.name, ready.places))
    if knowledge is None:
        return None
    cast = await ready.mould.cast(values, shadow.enumerate)
    if cast is None:
        return None
    planned, part = ready.mould.planned, ready.mould.planned.parts[0]
    looking = asyncio.create_task(runtime.standing.look(asker.name, ready.probe(asker, cast)))
    try:
        await asyncio.sleep(0)  # the look is on its way while the numbers are put together
        found = _numbers(house, cast, knowledge)
        known = None if found is None else rendered(cast.plan, part, found, wishes, True, house.shown)
        look = await looking
    finally:
        looking.cancel()
    if known is None or look.versions != house.versions or look.paid != knowledge.paid or look.answered:
        return None
    await shadow.prepare(planned.sql, reading, len(part.types))
    arrays, notice = known.told(None, await runtime.standing.remaining(asker.name), text)
    return Answered(tuple(arrays), (notice,))


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
    whole = {place: replace(one, known=replace(one.known, partial=None)) for place, one in held.items()}
    return {place: await store.loaded(analyst, one, one.known.whole) for place, one in whole.items()}


def _numbers(house: House, cast: Cast, knowledge: Knowledge) -> Stored | None:
    """The numbers of a question, if releases that are known whole are enough for all of them; worked out once."""
    found: Stored | None = house.known.get((cast, knowledge))
    if found is None:
        found = _summed(cast.plan, knowledge.held)
        if found is not None:
            house.known.put((cast, knowledge), found, _BESIDE + int(found.noisy.values.size))
    return found


def _summed(each: Plan, held: Mapping[Place, Held]) -> Stored | None:
    rows, names = [], []
    for at, share in enumerate(each.shares):
        assert share is not None
        views = [candidate(share, held, *view) for view in registered(each, at)]
        known = [(one, taken) for one in views if (taken := enough(one.held, one.precision)) is not None]
        if not known:
            return None
        one, taken = min(known, key=lambda pair: max(pair[1].whole))
        rows.append(row(one.grid, one.held.releases, taken, one.wider))
        names.append(f"reuse on {one.label}")
    return Stored(Noisy(np.array(rows, dtype=np.int64)), facts={"ways": names})
