"""Sixty-four pgbench clients for a minute: no error, nobody is stuck, and memory stays what it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from mixed_load import ANALYSTS, CLIENTS, SCRIPTS, answers, run
from proxies import charges, new_analyst, running_proxy

RATE = 180
"""Transactions a second, which slow machines reach too: each new question is remembered with some 12 kB until caches
are full, and memory is compared at one load."""


@pytest.mark.slow
def test_sixty_four_clients_for_a_minute(new_upstream: Callable[[], str], shadow_server, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    upstream = new_upstream()
    with psycopg.connect(upstream, autocommit=True) as conn:
        # Nobody reaches the limit, and answers leave at once: it is the load that is measured.
        conn.execute("UPDATE provenance.deployment SET epsilon = 1000000, scan_floor = 0, timing = 'immediate'")
    analysts = [new_analyst(upstream, "100000") for _ in range(ANALYSTS)]
    with running_proxy(upstream, shadow_server.admin_dsn, tmp_path / "proxy.log") as proxy:
        seen = run(proxy, analysts, 60, tmp_path, rate=RATE)
        assert answers(proxy, analysts[0])
    assert seen.aborted == () and seen.failed == 0 and seen.stuck == 0
    assert set(seen.by_script) == set(SCRIPTS) and min(seen.by_script.values()) > 0
    assert seen.transactions >= CLIENTS
    # Each analyst pays once for each of the two questions that all repeat, and once for each new one.
    paid = sum(len(charges(upstream, analyst)) for analyst in analysts)
    assert paid == seen.fresh <= seen.by_script["fresh"] + 2 * ANALYSTS
    assert seen.growth < 0.15, (seen.settled, seen.end)
