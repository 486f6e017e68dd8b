"""Security incidents: failures of the protected database that may depend on private rows.

Generated SQL cannot fail on any row (``sqlrewrite.render``), so a failure means that a rule has a hole. Each one is
written down beside the charge of its question; the ledger refuses the analyst's next charge once there are
``deployment.incident_limit`` of them that no administrator has resolved (``Analyst.paused``).
"""

from __future__ import annotations

import logging

from provenance.errors import LedgerUnreachable
from provenance.outlook import Pool, connected

log = logging.getLogger(__name__)

_REPORT = "SELECT provenance.report_incident(%s, %s, %s)"


class Incidents:
    """Writes incidents into ``provenance.incident``."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def record(self, charge: int, failure: str, statement: str) -> None:
        """Record a failure of the question that was charged; where that is impossible, the log alone has it."""
        try:
            async with connected(self._pool) as conn:
                await conn.execute(_REPORT, (charge, failure, statement))
        except LedgerUnreachable:
            log.error("the security incident of charge %s could not be recorded", charge)
