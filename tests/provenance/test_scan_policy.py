"""``deployment.timing`` and ``deployment.scan_floor``: who may set them to what, and that a change is seen."""

from __future__ import annotations

from decimal import Decimal

import pytest
from psycopg import Connection, errors

from provenance.scans import ScanPolicy


def policy(conn: Connection) -> ScanPolicy:
    row = conn.execute(ScanPolicy.QUERY.encode()).fetchone()
    assert row is not None
    return ScanPolicy.of(row)


def version(conn: Connection) -> int:
    row = conn.execute("SELECT registry_version FROM provenance.deployment").fetchone()
    assert row is not None
    return int(row[0])


def test_answers_are_delayed_and_scans_have_a_price_by_default(sandbox: Connection) -> None:
    assert policy(sandbox) == ScanPolicy(True, Decimal(1) / 4000) == ScanPolicy()


@pytest.mark.parametrize(
    ("change", "after"),
    [
        ("timing = 'immediate'", ScanPolicy(False, Decimal("0.00025"))),
        ("scan_floor = 0.5", ScanPolicy(True, Decimal("0.5"))),
        ("scan_floor = 0", ScanPolicy(True, Decimal(0))),
    ],
)
def test_an_administrator_may_change_them_and_the_registry_moves(
    sandbox: Connection, change: str, after: ScanPolicy
) -> None:
    before = version(sandbox)
    sandbox.execute("SET ROLE pgveil_admin")
    sandbox.execute(f"UPDATE provenance.deployment SET {change}".encode())
    sandbox.execute("RESET ROLE")
    assert policy(sandbox) == after and version(sandbox) == before + 1
    sandbox.execute(f"UPDATE provenance.deployment SET {change}".encode())
    assert version(sandbox) == before + 1, "nothing has changed"


@pytest.mark.parametrize(
    "change", ["timing = 'later'", "timing = NULL", "scan_floor = -0.1", "scan_floor = 1.1", "scan_floor = 'NaN'"]
)
def test_what_means_nothing_is_refused(sandbox: Connection, change: str) -> None:
    with pytest.raises(errors.IntegrityError), sandbox.transaction():
        sandbox.execute(f"UPDATE provenance.deployment SET {change}".encode())
