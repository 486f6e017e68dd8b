"""How things stand before a question: the registry's versions and what the analyst has left, in one round trip.

What is left is worked out by the ledger only when something that it follows from has changed: the journal, the limits
of the deployment or of the analyst, who else is there, the grants. A grant may also end by itself, so that nothing is
believed for longer than a second. The till, of course, believes nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from mechanisms.loss import Coin
from provenance.accountant import not_active
from provenance.ledger import Ledger
from provenance.model import Remaining
from provenance.outlook import Pool, connected
from provenance.registry import Versions

_BELIEVED: Final = 1.0  # seconds

# A row that was changed has another place or another transaction. Charges are numbered in the order of their commits,
# since they are made under the till's lock.
_LOOK: Final = """
SELECT d.registry_version, d.coin, d.conversion_delta, d.payment_delta,
       (SELECT jsonb_object_agg(r.id, r.data_version) FROM provenance.relation r WHERE r.active),
       a.active,
       concat_ws(' ', d.ctid, d.xmin, a.ctid, a.xmin, (SELECT max(c.id) FROM provenance.charge c),
                 (SELECT sum(o.privilege) FROM provenance.analyst o WHERE o.active),
                 (SELECT string_agg(concat_ws(' ', g.ctid, g.xmin), ' ' ORDER BY g.id)
                  FROM provenance.grant_of_budget g WHERE a.name IN (g.grantor, g.grantee)))
FROM provenance.deployment d LEFT JOIN provenance.analyst a ON a.name = %s"""


@dataclass(frozen=True, slots=True)
class _Left:
    """What an analyst had left when things stood like this."""

    mark: str
    at: float
    remaining: Remaining


class Standing:
    """What was last seen of each analyst."""

    def __init__(self, pool: Pool, ledger: Ledger) -> None:
        self._pool = pool
        self._ledger = ledger
        self._marks: dict[str, str] = {}
        self._left: dict[str, _Left] = {}

    async def look(self, analyst: str) -> Versions:
        """The registry's versions; who is not active any more is refused, whatever is asked."""
        async with connected(self._pool) as conn:
            row = await (await conn.execute(_LOOK, (analyst,))).fetchone()
        if row is None or not row[5]:
            raise not_active(analyst)
        self._marks[analyst] = row[6]
        data = {int(key): int(value) for key, value in (row[4] or {}).items()}
        return Versions(int(row[0]), Coin(row[1]), row[2], row[3], data)

    async def remaining(self, analyst: str) -> Remaining:
        """What the analyst had left at the last look, for the bill of an answer that was free."""
        mark, now = self._marks.get(analyst), time.monotonic()
        left = self._left.get(analyst)
        if left is None or left.mark != mark or now - left.at > _BELIEVED:
            remaining = await self._ledger.remaining(analyst)
            if mark is None:
                return remaining
            left = self._left[analyst] = _Left(mark, now, remaining)
        return left.remaining
