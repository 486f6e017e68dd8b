"""Which releases may be combined: those that estimate the same numbers.

An average of releases, a sum of some of them, or the quotient of two of them says something about the data only if all
of them were measured on the same rows. Those of one transaction were. Those of different transactions were only if
nothing has changed in between, and that is believed of tables that are declared frozen, as long as their data version
is the same. So for every other table what is known of its views is looked at snapshot by snapshot: an answer comes from
the releases of one snapshot, or from a measurement that has all the precision by itself.

*Guarantee*: every number of an answer, and what it is put together from, is an unbiased estimate on one state of the
rows, if the declarations are true. Which snapshot is taken depends on ids, variances and prices only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from mechanisms.synopsis import Known, Partial
from provenance.releases import Held, Place
from sqlrewrite.catalog import Changes, Kind
from sqlrewrite.question import Question


def combines(question: Question) -> bool:
    """Whether releases of different snapshots are combined: nothing that the question reads changes meanwhile.

    A public table may change at any time: what is measured reads it as it is then.
    """
    relations = (source.relation for source in question.sources)
    return all(each.kind is Kind.PROTECTED and each.changes is Changes.FROZEN for each in relations)


def slices(question: Question, held: Mapping[Place, Held]) -> list[Mapping[Place, Held]]:
    """What may be combined with each other: everything, or the releases of each snapshot, the latest first."""
    if combines(question):
        return [held]
    found = {snapshot for each in held.values() for snapshot in each.snapshots.values()}
    return [{place: of(each, snapshot) for place, each in held.items()} for snapshot in sorted(found, reverse=True)]


def of(held: Held, snapshot: int) -> Held:
    """What there is of a view in one snapshot, and what the analyst knows of that."""
    releases = tuple(each for each in held.releases if held.snapshots.get(each.id) == snapshot)
    ids = {each.id for each in releases}
    parts = {id_: added for id_, added in held.parts.items() if id_ in ids}
    partial = next((Partial(id_, added) for id_, added in sorted(parts.items())), None)
    return replace(held, releases=releases, known=Known(held.known.whole & ids, partial), parts=parts)


def unmeasured(held: Mapping[Place, Held]) -> Mapping[Place, Held]:
    """The same views on the same grids, as if nothing had been released: what is measured now stands by itself."""
    return {place: replace(each, releases=(), known=Known(), parts={}) for place, each in held.items()}


def as_of(moments: Iterable[datetime]) -> str | None:
    """When the oldest of these was, as answers tell it; None of none.

    *Guarantee*: moments at which something was charged are public; when a measurement ended is not, since how long it
    takes depends on rows. So these are times of charges, and the data is at least as recent.
    """
    first = min(moments, default=None)
    return None if first is None else first.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
