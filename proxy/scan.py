"""One scan of the protected tables for a question that has been paid for: what is measured, and when it is known.

Until its departure (``proxy.pacing``) nobody must see that a scan has ended. What is done with its rows in between is
therefore done in small pieces and in threads: if it held up the event loop, the sessions of others would feel when it
begins, without any noise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from mechanisms.release import release, release_found
from mechanisms.values import Exact, Noisy
from provenance.model import Receipt
from proxy.backend import Reader
from proxy.errors import MeasurementFailed
from proxy.plan import Plan
from proxy.runtime import House, Runtime
from sqlrewrite.cells import found
from sqlrewrite.generate import Generated

T = TypeVar("T")


async def scanned(runtime: Runtime, house: House, scan: Coroutine[Any, Any, T]) -> T:
    """What a scan returns, at its departure; a failure that may depend on rows is recorded as soon as it is there.

    It is recorded within the scan: whoever cancels while the answer waits for its departure does not prevent it.
    """

    async def watched() -> T:
        try:
            return await scan
        except MeasurementFailed as failed:
            await asyncio.shield(runtime.incidents.record(failed.charge, failed.failure, failed.statement))
            raise

    return await runtime.pacing.padded(watched(), house.scans.delayed)


async def measured(reader: Reader, receipt: Receipt, each: Plan, query: Generated) -> Noisy:
    """One look at the data, and noise on everything that it showed, at a fixed price."""
    domain = each.cells
    shares = [share for share in each.shares if share is not None]
    if domain is not None:
        exact = await reader.measure(receipt, query, lambda rows: Exact(domain.fill(rows)))
        return await asyncio.to_thread(release, exact.combine(each.weights), shares)
    presence, counted = each.presence, query.presence
    assert presence is not None and counted is not None
    groups = await reader.measure(receipt, query, lambda rows: found(each.question, counted, rows))
    statistics = groups.measures.combine(each.weights)
    passed, noisy = await asyncio.to_thread(
        release_found, statistics, groups.units, shares, presence.share, presence.threshold
    )
    named = groups.named(passed)
    # Sorted, so that the order in which PostgreSQL found them is not told.
    order = sorted(range(len(named)), key=lambda at: [(text is None, text or "") for text in named[at]])
    return Noisy(noisy.values[:, order], tuple(named[at] for at in order))
