"""The anchor: the last link of the journal that this process has seen, in a file outside of PostgreSQL.

The journal is a hash chain (``0011_chain.sql``). After each commit the proxy writes the row's id and hash and what had
been spent with it; a ledger that does not hold that row any more was restored from an older copy, and budgets would
come back with it. Every charge looks for the row first. A row that is missing is reported to ``provenance.gap``, and
nothing is charged, by any proxy, until an administrator has accepted it as spent.

The file is renamed into place and not synced: it must outlive the proxy and the database, not the machine's power.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from provenance.errors import LedgerGap
from provenance.model import Balance

log = logging.getLogger(__name__)

_PRESENT = """
SELECT h.charge, encode(h.hash, 'hex'), coalesce(c.at, '-infinity')::text, d.coin,
       (SELECT jsonb_object_agg(b.name, jsonb_build_array(b.amount::text, b.delta::text))
        FROM provenance.balance b WHERE b.scope = 'analyst'),
       t.amount::text, t.delta::text,
       (SELECT encode(seen.hash, 'hex') FROM provenance.charge seen WHERE seen.id = %s)
FROM provenance.chain h CROSS JOIN provenance.deployment d
JOIN provenance.balance t ON t.scope = 'table' AND t.name = ''
LEFT JOIN provenance.charge c ON c.id = h.charge"""

_REPORT = "SELECT provenance.report_gap(%s, decode(%s, 'hex'), %s::timestamptz, %s, %s, %s)"

Total = tuple[str, str]  # an amount of coin, and a delta


@dataclass(frozen=True, slots=True)
class Anchor:
    """A row of the journal, and what had been spent when it was made."""

    ledger: str  # which one
    charge: int  # 0: the journal was empty
    hash: str
    at: str
    coin: str
    table: Total
    analysts: Mapping[str, Total]

    def holds(self, found: str | None) -> bool:
        """Whether a ledger with this hash in that row is the one that was seen."""
        return self.charge == 0 or self.hash == found


@dataclass(frozen=True, slots=True)
class Link:
    """What a committed row of the journal tells about itself."""

    charge: int
    hash: str
    at: str


class Witness:
    """What this process has seen of the ledger; without a file, nothing."""

    def __init__(self, file: Path | None = None, ledger: str = "", replica: str = "a proxy") -> None:
        self._file, self._ledger, self._replica = file, ledger, replica
        self._seen = None if file is None else _read(file, ledger)
        self._silent = False

    @property
    def seen(self) -> Anchor | None:
        """What the ledger must hold; taken before it is looked for, since other charges move it meanwhile."""
        return self._seen

    def saw(self, link: Link, coin: str, table: Balance, analyst: str, own: Balance) -> None:
        """A charge was committed."""
        before = self._seen
        if self._file is None or (before is not None and link.charge <= before.charge):
            return
        others = {} if before is None else before.analysts
        totals = {**others, analyst: _total(own)}
        self._keep(Anchor(self._ledger, link.charge, link.hash, link.at, coin, _total(table), totals))

    async def vouch(self, conn: AsyncConnection[TupleRow]) -> None:
        """Look for the anchor in the ledger and move it to the present head; a row that is missing is reported.

        *Guarantee*: the anchor moves past a missing row only once its gap was accepted, which books as spent
        whatever the anchor says beyond what the ledger knows.
        """
        seen = self._seen
        row = await (await conn.execute(_PRESENT, (None if seen is None else seen.charge,))).fetchone()
        if row is None:
            raise LedgerGap("the ledger has no chain", hint="Restore the provenance schema from a backup.")
        if seen is not None and not seen.holds(row[7]):
            totals = Jsonb({"table": seen.table, "analysts": dict(seen.analysts)})
            claim = (seen.charge, seen.hash, seen.at, seen.coin, totals, self._replica)
            told = await (await conn.execute(_REPORT, claim)).fetchone()
            if told is None or not told[0]:
                log.error("charge %d is not in the ledger, which was restored from an older copy", seen.charge)
                raise gap()
            row = await (await conn.execute(_PRESENT, (None,))).fetchone() or row
            log.warning("the gap of charge %d was accepted as spent", seen.charge)
        if self._seen is not seen:
            return  # a charge of this process was committed in between
        totals_now = {name: (amount, delta) for name, (amount, delta) in (row[4] or {}).items()}
        present = Anchor(self._ledger, int(row[0]), row[1], row[2], row[3], (row[5], row[6]), totals_now)
        if present != seen:
            self._keep(present)

    def _keep(self, anchor: Anchor) -> None:
        self._seen = anchor
        if self._file is None:
            return
        beside = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        try:
            beside.write_text(json.dumps({each.name: getattr(anchor, each.name) for each in fields(anchor)}))
            beside.replace(self._file)
            self._silent = False
        except OSError as failure:
            if not self._silent:
                log.error("the anchor %s cannot be written: %s", self._file, failure.strerror)
            self._silent = True


def gap() -> LedgerGap:
    """The refusal."""
    return LedgerGap(
        "the ledger lacks charges that were made: it was restored from an older copy",
        detail="Nothing that costs is answered until what is missing counts as spent.",
        hint="An administrator looks at provenance.gap and accepts it: SELECT provenance.accept_gap(id).",
    )


def _total(balance: Balance) -> Total:
    return str(balance.amount), str(balance.delta)


def _read(file: Path, ledger: str) -> Anchor | None:
    """The anchor of the last run; a file that cannot be understood is an error, since it may hide a gap."""
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        told: dict[str, Any] = json.loads(file.read_text())
        anchor = Anchor(**told)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as wrong:
        raise LedgerGap(
            f"the anchor {file} cannot be read",
            hint="If the ledger is known to be the latest, remove the file.",
        ) from wrong
    if anchor.ledger != ledger:
        raise LedgerGap(f"the anchor {file} is of another ledger", hint="Give each deployment a file of its own.")
    analysts = {name: (str(amount), str(delta)) for name, (amount, delta) in anchor.analysts.items()}
    return replace(anchor, table=(str(anchor.table[0]), str(anchor.table[1])), analysts=analysts)
