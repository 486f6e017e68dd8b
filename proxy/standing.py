"""How things stand before a question: the registry's versions and what the analyst has left, in one round trip.

What is left is worked out by the ledger only when something that it follows from has changed: the journal, the limits
of the deployment or of the analyst, who else is there, the grants. A grant may also end by itself, so that nothing is
believed for longer than a second. The till, of course, believes nothing.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from mechanisms.loss import Coin
from provenance.accountant import not_active
from provenance.ledger import Ledger
from provenance.model import Remaining
from provenance.outlook import Pool, connected
from provenance.registry import Versions
from provenance.synopses import Sameness
from proxy.lookout import Lookout, Row, Silent

_BELIEVED: Final = 1.0  # seconds

# A row that was changed has another place or another transaction. Charges are numbered in the order of their commits,
# since they are made under the till's lock.
_SEEN: Final = """
SELECT d.registry_version, d.coin, d.conversion_delta, d.payment_delta,
       (SELECT jsonb_object_agg(r.id, r.data_version) FROM provenance.relation r WHERE r.active)::text,
       a.active,
       concat_ws(' ', d.ctid, d.xmin, a.ctid, a.xmin,
                 (SELECT sum(o.privilege) FROM provenance.analyst o WHERE o.active),
                 (SELECT string_agg(concat_ws(' ', g.ctid, g.xmin), ' ' ORDER BY g.id)
                  FROM provenance.grant_of_budget g WHERE a.name IN (g.grantor, g.grantee)),
                 (SELECT coalesce(max(c.id), 0) FROM provenance.charge c)),
       (SELECT concat_ws(' ', b.ctid, b.xmin) FROM provenance.balance b WHERE b.scope = 'analyst' AND b.name = a.name),
       {}
FROM provenance.deployment d LEFT JOIN provenance.analyst a ON a.name = %(analyst)s"""

_LOOK: Final = _SEEN.format("false")
_PROBE: Final = _SEEN.format(
    """EXISTS (SELECT FROM provenance.synopsis s WHERE s.analyst = a.name AND s.relation_id = %(relation)s
                   AND s.data_version = %(version)s AND s.fingerprint = %(same)s AND s.accuracy = %(accuracy)s)
           OR EXISTS (SELECT FROM provenance.release r
                      JOIN provenance.knowledge k ON k.analyst = a.name AND k.release = r.id
                      WHERE r.relation_id = %(relation)s AND r.data_version = %(version)s
                      AND r.digest = ANY (string_to_array(%(own)s, ' ')))"""
)

# What the least price of a scan is a fraction of: the analyst's limit of one period, with what is lent to the analyst.
_LIMIT: Final = """
SELECT least(d.epsilon, coalesce(a.epsilon_limit, d.expansion * d.epsilon * a.privilege / CASE d.allocation
           WHEN 'max' THEN 10
           ELSE greatest(a.privilege, (SELECT sum(o.privilege) FROM provenance.analyst o WHERE o.active)) END)
         + coalesce((SELECT sum(g.epsilon) FROM provenance.grant_of_budget g
                     WHERE g.grantee = a.name AND NOT g.revoked AND g.until > clock_timestamp()), 0))
FROM provenance.deployment d JOIN provenance.analyst a ON a.name = %s"""

_VALUES: Final = ("analyst", "relation", "version", "same", "accuracy", "own")


def _numbered(statement: str) -> str:
    for place, name in enumerate(_VALUES, 1):
        statement = statement.replace(f"%({name})s", f"${place}")
    return statement


LOOKS: Final = (_numbered(_LOOK), _numbered(_PROBE))
"""What a ``Lookout`` is asked."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What may stand in the way of answering a new question from a registered view: its answer, and its own views."""

    same: Sameness
    own: Sequence[str]

    @property
    def values(self) -> dict[str, Any]:
        same, own = self.same, " ".join(self.own)  # a digest has no blanks; as a list it would take longer to send
        where = {"relation": same.relation_id, "version": same.data_version}
        return {"analyst": same.analyst, **where, "same": same.fingerprint, "accuracy": same.accuracy, "own": own}


@dataclass(frozen=True, slots=True)
class Look:
    """How things stand: versions, a mark that changes with every charge of the analyst, and what a probe found."""

    versions: Versions
    paid: str
    answered: bool


@dataclass(frozen=True, slots=True, eq=False)
class Begun:
    """A look that was begun."""

    analyst: str
    values: Mapping[str, Any]
    asked: asyncio.Future[Row | None] | None


@dataclass(frozen=True, slots=True)
class _Left:
    """What an analyst had left when things stood like this."""

    mark: str
    at: float
    remaining: Remaining


@lru_cache(maxsize=8)
def _versions(registry: str, coin: str, conversion: str, payment: str, data: str | None) -> Versions:
    of_relation = {int(key): int(value) for key, value in json.loads(data or "{}").items()}
    return Versions(int(registry), Coin(coin), Decimal(conversion), Decimal(payment), of_relation)


class Standing:
    """What was last seen of each analyst."""

    def __init__(self, pool: Pool, ledger: Ledger, lookout: Lookout | None = None) -> None:
        self._pool, self._lookout = pool, lookout
        self._ledger = ledger
        self._marks: dict[str, str] = {}
        self._paid: dict[str, str] = {}
        self._limits: dict[str, tuple[str, float, Decimal]] = {}
        self._left: dict[str, _Left] = {}

    def begin(self, analyst: str, probe: Probe | None = None) -> Begun:
        """Begin a look, which ``look`` ends: there may be other things to do meanwhile."""
        values = {"analyst": analyst} if probe is None else probe.values
        asked = None
        if self._lookout is not None:
            asked = self._lookout.ask(probe is not None, [str(value) for value in values.values()])
        return Begun(analyst, values, asked)

    async def look(self, analyst: str) -> Look:
        """How things stand; who is not active any more is refused, whatever is asked."""
        return await self.end(self.begin(analyst))

    async def end(self, begun: Begun) -> Look:
        """The same for a look that was begun."""
        analyst = begun.analyst
        row = await self._quickly(begun) or await self._surely(begun.values)
        if row is None or not row[5]:
            raise not_active(analyst)
        self._marks[analyst], self._paid[analyst] = row[6], row[7] or ""
        return Look(_versions(*row[:5]), self._paid[analyst], bool(row[8]))

    async def _quickly(self, begun: Begun) -> tuple[Any, ...] | None:
        """The row by the lookout, if it tells one."""
        if begun.asked is None:
            return None
        try:
            row = await begun.asked
        except Silent:
            return None
        if row is None:
            return None
        texts = [None if value is None else value.decode() for value in row]
        return (*texts[:5], texts[5] == "t", *texts[6:8], texts[8] == "t")

    async def _surely(self, values: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """The same by the pool."""
        async with connected(self._pool) as conn:
            row = await (await conn.execute(_LOOK if len(values) == 1 else _PROBE, values)).fetchone()
        return row if row is None else (*map(str, row[:4]), *row[4:])

    def paid(self, analyst: str) -> str:
        """A mark that changes with every charge of the analyst, as it was last seen."""
        return self._paid.get(analyst, "")

    async def limit(self, analyst: str) -> Decimal:
        """The epsilon of one period that the analyst may learn, grants included, as things stood at the last look."""
        mark, now = self._marks.get(analyst, "").rpartition(" ")[0], time.monotonic()  # charges do not change it
        known = self._limits.get(analyst)
        if known is None or known[0] != mark or now - known[1] > _BELIEVED:
            async with connected(self._pool) as conn:
                row = await (await conn.execute(_LIMIT, (analyst,))).fetchone()
            known = self._limits[analyst] = mark, now, Decimal(0) if row is None else row[0]
        return known[2]

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
