"""Plans that were made before: reading and pricing a statement is the dearest part of an answer that is free."""

from __future__ import annotations

from decimal import Decimal

from proxy.plan import StatementPlan, plan
from proxy.reading import Reading
from proxy.runtime import House
from proxy.wider import Enumerate
from proxy.wishes import Wishes
from sqlrewrite.domain import DomainQuery

_BESIDE_CELLS = 50
"""What a plan weighs beside its groups, in groups."""


async def remembered(
    text: str, reading: Reading, house: House, wishes: Wishes, enumerate_: Enumerate, floor: Decimal = Decimal(0)
) -> StatementPlan:
    """``plan``, worked out once for each statement in each house.

    *Guarantee*: a plan is found again only where all that ``plan`` reads is the same: the text, the values and types of
    its parameters, what its names mean, the settings of the session, the wishes, and the analyst's least price of a
    scan. Registry and data versions are the house's, and plans are forgotten with it. For a session with temporary
    objects nothing is remembered.
    """
    if reading.circumstances is None:
        return await plan(text, reading, house, wishes, enumerate_, floor)

    async def listed(wanted: DomainQuery) -> list[tuple[str | None, ...]]:
        """Derived keys list the same values to everybody with the same public tables and settings."""
        asked = (wanted, reading.circumstances)
        values: list[tuple[str | None, ...]] | None = house.listings.get(asked)
        if values is None:
            values = await enumerate_(wanted)
            house.listings.put(asked, values, len(values) + 1)
        return values

    key = (text, reading.meaning, wishes, floor)
    found: StatementPlan | None = house.plans.get(key)
    if found is None:
        found = await plan(text, reading, house, wishes, listed, floor)
        house.plans.put(key, found, _weight(text, found))
    return found


def _weight(text: str, planned: StatementPlan) -> int:
    cells = sum(each.cells.size for each in planned.plans if each.cells is not None)
    return _BESIDE_CELLS + len(text) // 100 + cells
