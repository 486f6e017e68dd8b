"""What goes on beside the questions of a proxy: hearing of changes, and being heard of.

``watch`` calls back when an administrator has changed something, so that what is kept in memory can be forgotten at
once. ``vigil`` looks every few seconds whether the ledger is still the one that this proxy has seen, and lets it know
that the proxy is there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NoReturn

from psycopg import Error

from mechanisms.errors import Refusal
from provenance.errors import LedgerGap
from provenance.ledger import Ledger
from provenance.outlook import Pool, connected

log = logging.getLogger(__name__)

CHANNEL: Final = "pgveil"
EVERYTHING: Final = ""
"""The notice after a connection: whatever has changed before was not heard."""

_HEARTBEAT = "SELECT provenance.heartbeat(%s, %s)"


async def watch(pool: Pool, tell: Callable[[str], None], *, pause: float = 1.0) -> NoReturn:
    """Call ``tell`` with the name of each table that changes, until cancelled; with ``EVERYTHING`` once it listens, and
    again whenever the connection was lost and came back.

    *Guarantee*: a change that is committed after ``tell(EVERYTHING)`` is told, or ``EVERYTHING`` is told again.
    """
    while True:
        try:
            async with connected(pool) as conn:
                try:
                    await conn.execute(f"LISTEN {CHANNEL}")
                    tell(EVERYTHING)
                    async for notice in conn.notifies():
                        tell(notice.payload)
                finally:
                    await conn.close()  # the pool makes another one, which does not listen
        except (Refusal, Error):
            log.warning("changes are not heard: the ledger does not answer")
        await asyncio.sleep(pause)


async def beat(pool: Pool, ledger: Ledger, replica: str) -> None:
    """Look after the anchor, and be heard of, once."""
    try:
        trouble = None
        try:
            await ledger.vouch()
        except LedgerGap as gap:
            trouble = gap.message
        async with connected(pool) as conn:
            await conn.execute(_HEARTBEAT, (replica, trouble))
    except (Refusal, Error) as failure:
        log.warning("the ledger does not answer: %s", type(failure).__name__)


async def vigil(pool: Pool, ledger: Ledger, replica: str, *, pause: float = 2.0) -> NoReturn:
    """The same every few seconds, until cancelled."""
    while True:
        await asyncio.sleep(pause)
        await beat(pool, ledger, replica)
