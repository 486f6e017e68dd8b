"""Decisions on noise that was already shown (``veil.reuse = on``): free, where every statistic they need is known.

Each atom leans by what the known noise exceeds with its part of beta. That bounds misses for thresholds and groups that
were not chosen from these numbers; whoever picks them after looking has no such promise, and the bill says so.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import numpy as np

from mechanisms.loss import WIDE, round_down
from mechanisms.noise import DiscreteGaussian
from mechanisms.synopsis import estimate
from mechanisms.threshold import Share
from mechanisms.values import Lattice, Noisy
from provenance.releases import Held, Place, Releases
from provenance.snapshots import as_of, slices
from provenance.synopses import Stored
from proxy.plan import Plan
from proxy.rows import groups_of, kept_of
from sqlrewrite.minimise import prime_implicants
from sqlrewrite.view import view_of

_PROMISE = "noise that was shown before: beta holds for thresholds that were not chosen from these numbers"


async def from_known(store: Releases, analyst: str, each: Plan) -> Stored | None:
    """The decision from what the analyst knows of its views; None where something is not known."""
    having, relation = each.question.having, each.question.relation
    if having is None or each.cells is None:
        return None
    longest = max(len(part) for part in prime_implicants(having))
    beta = round_down(WIDE.divide(each.beta, longest))
    views = [view_of(each.question, at, each.context) for at in range(len(each.question.statistics))]
    places = [Place(relation.id, relation.data_version, view.digest) for view in views]
    slices_ = slices(each.question, await store.find(analyst, places))
    held = next(
        (one for one in slices_ if all(one[place].known.precision(one[place].releases) for place in places)), {}
    )
    rows: list[Lattice] = []
    shares: list[Share] = []
    moments: list[datetime] = []
    for place in places:
        there = held.get(place, Held())
        grid = there.grid
        if grid is None:
            return None
        there = await store.loaded(analyst, there, there.known.whole)
        moments += [there.paid[id_] for id_ in there.known.ids]
        values, variance = estimate(there.releases, there.known)
        noise = DiscreteGaussian(variance)
        rows.append(grid.lattice(values))
        shares.append(Share(noise, grid.half_width(noise.shift(beta)), noise.loss(grid.parts), beta, grid))
    noisy = Noisy(np.array(rows, dtype=np.int64))
    leaning = replace(each, shares=tuple(shares), staged=None)
    kept = kept_of(leaning, groups_of(leaning, noisy))
    tests = 0 if each.staged is None else len(each.staged.atoms)
    facts = {"ways": ["reuse"] * len(rows), "promise": _PROMISE, "as_of": as_of(moments)}
    return Stored(noisy, kept, {**facts, "betas": [float(beta)] * tests, "uncertain": [None] * tests})
