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
SELECT analyst, round(spent, 6), round("limit", 6), round("left", 6) FROM provenance.budget ORDER BY 1, 2"""
_DEPLOYMENT = "SELECT coin, epsilon, delta, allocation, registry_version FROM provenance.deployment"
_CHARGES = "SELECT count(*), max(at)::timestamptz(0) FROM provenance.charge WHERE question_of IS NULL"
_PREFIX = "pgveil serve "
_REPLICAS = """
SELECT DISTINCT substr(application_name, %s) FROM pg_stat_activity
WHERE datname = current_database() AND starts_with(application_name, %s) ORDER BY 1"""


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
            coin, epsilon, delta, allocation, version = conn.execute(_DEPLOYMENT).fetchone() or ("?",) * 5
            charges, last = conn.execute(_CHARGES).fetchone() or (0, None)
            budget = conn.execute(_BUDGET).fetchall()
            replicas = [row[0] for row in conn.execute(_REPLICAS, (len(_PREFIX) + 1, _PREFIX)).fetchall()]
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        lines.append("provenance  reachable, but not initialised: run pgveil init")
        return "\n".join(lines), False
    except psycopg.Error:
        lines.append("provenance  not reachable")
        return "\n".join(lines), False
    lines.append(
        f"provenance  coin {coin}, epsilon {epsilon}, delta {delta}, allocation {allocation}, version {version}"
    )
    lines.append(f"ledger      {charges} charges" + (f", the last at {last}" if last else ""))
    lines.append(f"replicas    {len(replicas)} seen" + (f": {', '.join(replicas)}" if replicas else ""))
    lines += ["", *_table(("analyst", "spent", "limit", "left"), budget)]
    return "\n".join(lines), listening and upstream


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
