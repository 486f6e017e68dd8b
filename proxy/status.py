"""``pgveil status``: is everything reachable, and who has how much left."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import psycopg

from proxy.settings import Settings

_BUDGET = """
SELECT analyst, round(spent, 6), round("limit", 6), round("left", 6) FROM provenance.budget ORDER BY 1, 2"""
_DEPLOYMENT = "SELECT coin, epsilon, delta, allocation, registry_version FROM provenance.deployment"
_CHARGES = "SELECT count(*), max(at)::timestamptz(0) FROM provenance.charge"


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
    except psycopg.Error as error:
        lines.append(f"provenance  not reachable: {type(error).__name__}")
        return "\n".join(lines), False
    lines.append(
        f"provenance  coin {coin}, epsilon {epsilon}, delta {delta}, allocation {allocation}, version {version}"
    )
    lines.append(f"ledger      {charges} charges" + (f", the last at {last}" if last else ""))
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
