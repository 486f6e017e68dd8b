"""Numbers with noise of their own, as on a pure ledger: in no synopsis, but others are put together from them."""

from __future__ import annotations

from fractions import Fraction

from mechanisms.noise import DiscreteLaplace
from mechanisms.values import Noisy
from provenance.model import Receipt
from provenance.releases import Fresh, Place, Releases
from provenance.shape import shape_of
from proxy.plan import Plan
from sqlrewrite.view import view_of

_UP = Fraction(10**9 + 1, 10**9)  # what a float may lack


async def filed(store: Releases, receipt: Receipt, each: Plan, noisy: Noisy) -> None:
    """File what was told, each number under a name that no view has: nothing is ever refined from it."""
    if each.cells is None or each.question.having is not None:
        return
    relation = each.question.relation
    for at, share in enumerate(each.shares):
        shape = shape_of(each.question, at, each.cells)
        if shape is None or share is None or not isinstance(share.noise, DiscreteLaplace) or not share.grid.own:
            continue
        view = view_of(each.question, at, each.context)
        place = Place(relation.id, relation.data_version, f"{view.digest}/alone/{receipt.id}")
        variance = Fraction(share.noise.deviation**2) * _UP
        fresh = Fresh(place, view.dimensions, view.measure, share.grid, variance, noisy.row(at), shape)
        await store.append(receipt.charge.analyst, fresh, None, receipt)
