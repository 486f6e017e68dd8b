"""``pgveil status``: is everything reachable, which replicas are there, and who has how much left."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from proxy.demo import DATABASE
from proxy.embedded import PORT
from proxy.settings import Settings

_BUDGET = """
SELECT analyst, round(spent, 6), round("limit", 6), round("left", 6)
FROM provenance.budget WHERE view = 'all' ORDER BY 1"""
_TOTAL = 'SELECT round(spent, 6), round("limit", 6), round("left", 6) FROM provenance.total'
_RELATIONS = """
SELECT b.relation, round(b.spent, 6), round(b."limit", 6), round(b."left", 6),
       coalesce(b.noise_magnitude::text, 'as asked')
FROM provenance.relation_budget b JOIN provenance.relation r ON r.label = b.relation AND r.active
WHERE r.epsilon_limit IS NOT NULL ORDER BY 1"""
_ASSUMED = "SELECT label FROM provenance.relation WHERE active AND unit_assumed ORDER BY 1"
_DEPLOYMENT = """
SELECT coin, epsilon, delta, allocation, registry_version, period::text, provenance.periods(),
       provenance.next_period()::timestamptz(0)
FROM provenance.deployment"""
_CHARGES = """
SELECT count(*), max(at)::timestamptz(0), (SELECT count(*) FROM provenance.view)
FROM provenance.charge WHERE question_of IS NULL"""
_CHAIN = """
SELECT h.charge, h.charge = 0 OR EXISTS (SELECT FROM provenance.charge c WHERE c.id = h.charge AND c.hash = h.hash),
       encode(substr(h.hash, 1, 6), 'hex'),
       ARRAY(SELECT g.id FROM provenance.gap g WHERE g.accepted_at IS NULL ORDER BY g.id)
FROM provenance.chain h"""
_INCIDENTS = """
SELECT analyst, count(*), provenance.is_paused(analyst) FROM provenance.incident
WHERE resolved_at IS NULL GROUP BY analyst ORDER BY analyst"""
_PREFIX = "pgveil serve "
_REPLICAS = """
SELECT name, date_trunc('second', clock_timestamp() - started_at)::text, trouble FROM provenance.replica
WHERE seen_at > clock_timestamp() - interval '15 seconds' ORDER BY 1"""


def replica_name() -> str:
    """How this process is known among the proxies."""
    return f"{socket.gethostname()[:38]}/{os.getpid()}"


def application_name() -> str:
    """How a proxy calls itself at its databases: one name for each process (63 bytes at most)."""
    return f"{_PREFIX}{replica_name()}"


def demo_dsn(home: Path) -> str | None:
    """Where the demo of that home has its protected database, if it is running."""
    sockets = home / "protected" / "socket"
    if not (sockets / f".s.PGSQL.{PORT}").exists():
        return None
    return make_conninfo("", host=str(sockets.resolve()), port=PORT, dbname=DATABASE, user="postgres")


def status(settings: Settings) -> tuple[str, bool]:
    """A report for people, and whether all is well."""
    lines: list[str] = []
    listening = _listening(*settings.address)
    lines.append(f"proxy       {settings.listen}: {'accepts connections' if listening else 'does not answer'}")
    upstream = _reachable(settings.upstream_dsn)
    lines.append(f"protected   {'reachable' if upstream else 'not reachable'}")
    try:
        with psycopg.connect(settings.provenance_dsn, connect_timeout=5) as conn:
            coin, epsilon, delta, allocation, version, *growth = conn.execute(_DEPLOYMENT).fetchone() or ("?",) * 8
            charges, last, views = conn.execute(_CHARGES).fetchone() or (0, None, 0)
            head, whole, digest, gaps = conn.execute(_CHAIN).fetchone() or (0, False, "", [])
            total = conn.execute(_TOTAL).fetchall()
            budget = conn.execute(_BUDGET).fetchall()
            replicas = conn.execute(_REPLICAS).fetchall()
            relations = conn.execute(_RELATIONS).fetchall()
            incidents = conn.execute(_INCIDENTS).fetchall()
            assumed = [row[0] for row in conn.execute(_ASSUMED).fetchall()]
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        lines.append("provenance  reachable, but not initialised: run pgveil init")
        return "\n".join(lines), False
    except psycopg.Error:
        lines.append("provenance  not reachable")
        return "\n".join(lines), False
    lines.append(
        f"provenance  coin {coin}, epsilon {epsilon}, delta {delta}, allocation {allocation}, version {version}"
    )
    lines += _periods(*growth)
    lines.append(f"ledger      {charges} charges on {views} views" + (f", the last at {last}" if last else ""))
    lines.append(f"chain       {_chain(head, whole, digest, gaps)}")
    named = [f"{name} (up {up})" + (f": {trouble}" if trouble else "") for name, up, trouble in replicas]
    lines.append(f"replicas    {len(replicas)} seen" + (f": {', '.join(named)}" if named else ""))
    lines += [f"incidents   {_incident(*row)}" for row in incidents]
    lines += [f"units       {_assumed(table)}" for table in assumed]
    rows = [*budget, *(("all together", *row) for row in total)]
    lines += ["", *_table(("analyst", "spent", "limit", "left"), rows)]
    if relations:
        lines += ["", *_table(("relation", "spent", "limit", "left", "noise"), relations)]
    return "\n".join(lines), listening and upstream and whole and not gaps


def _assumed(table: str) -> str:
    """A table that was registered before the unit of a table that references a protected one had to be declared."""
    return (
        f"WARNING: each row of {table} is assumed to be a unit, although it may reference a protected table:"
        f" SELECT provenance.protect('{table}', unit => ...)"
    )


def _periods(period: str | None, begun: int, later: object) -> list[str]:
    """How limits grow, if they do or did."""
    if period is None:
        return [] if begun == 1 else [f"periods     {begun}, and no more: limits are what so many are worth"]
    return [f"periods     {begun} of {period}; limits grow again at {later}"]


def _incident(analyst: str, count: int, paused: bool) -> str:
    """Security incidents of one analyst that no administrator has resolved."""
    effect = f"; paused until SELECT provenance.resume_analyst('{analyst}')" if paused else ""
    return f"{count} unresolved of analyst {analyst}: SELECT * FROM provenance.incident{effect}"


def _chain(head: int, whole: bool, digest: str, gaps: Sequence[int]) -> str:
    """The last link, and whether something is missing; all links are checked by provenance.verify_chain()."""
    if gaps:
        calls = ", ".join(f"provenance.accept_gap({each})" for each in gaps)
        return f"charges are missing, and nothing is charged until they are accepted as spent: SELECT {calls}"
    if not whole:
        return f"charge {head} is missing: SELECT * FROM provenance.verify_chain()"
    return f"whole, at charge {head} ({digest})" if head else "empty"


def _listening(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=3):
            return True
    except OSError:
        return False


def _reachable(dsn: str) -> bool:
    try:
        with psycopg.connect(dsn, connect_timeout=5) as conn:
            conn.execute("SELECT 1")
        return True
    except psycopg.Error:
        return False


def _table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    cells = [list(header), *[[str(value) for value in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    return ["  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip() for row in cells]
