"""One side waits for the other: a slow reader or a flood never makes the proxy keep what it cannot pass on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
from proxies import Proxy, forget, scans_held
from raw_wire import Wire

from proxy import messages as m

COUNTS = "SELECT gender, count(*) FROM patient_data GROUP BY gender ORDER BY 1"
SPARE = 24 << 20  # bytes: buffers of sockets, of both event loops' ends, and what Python takes in one go


@contextmanager
def flat(proxy: Proxy) -> Iterator[None]:
    """The proxy's memory does not grow meanwhile."""
    process = psutil.Process(proxy.process.pid)
    before = process.memory_info().rss
    yield
    assert process.memory_info().rss - before < SPARE


def flood(wire: Wire, data: bytes, most: int) -> int:
    """Send until the other side takes no more; how many bytes it took."""
    wire.socket.settimeout(0.5)
    sent = 0
    try:
        while sent < most:
            sent += wire.socket.send(data)
    except TimeoutError:
        pass
    return sent


@pytest.fixture
def wire(proxy: Proxy, analyst: str) -> Iterator[Wire]:
    with Wire(proxy.port) as one:
        yield one.login(analyst, proxy.database)


def test_a_slow_reader_gets_all_and_costs_no_memory(proxy: Proxy, wire: Wire, analyst: str) -> None:
    with flat(proxy):
        wire.send(m.encode_query("SELECT n, repeat('x', 100) FROM generate_series(1, 400000) AS n"))
        time.sleep(1.0)
        with proxy.connect(analyst) as other:  # nobody else waits
            assert other.execute("SELECT 1").fetchone() == (1,)
    frames = wire.until(m.READY_FOR_QUERY)
    assert sum(kind == m.DATA_ROW for kind, _ in frames) == 400_000
    assert frames[-2] == (m.COMMAND_COMPLETE, m.encode_command_complete("SELECT 400000"))


def test_a_client_that_never_reads_can_be_left(proxy: Proxy, analyst: str) -> None:
    with flat(proxy):
        for _ in range(3):
            with Wire(proxy.port) as wire:
                wire.login(analyst, proxy.database)
                wire.send(m.encode_query("SELECT repeat('x', 1000) FROM generate_series(1, 5000000)"))
                time.sleep(0.2)
    with proxy.connect(analyst) as conn:
        assert conn.execute("SELECT 1").fetchone() == (1,)


def test_a_flood_waits_for_a_busy_shadow(proxy: Proxy, wire: Wire) -> None:
    text = m.encode_query(f"SELECT length('{'x' * 10_000}')")
    with flat(proxy):
        wire.send(m.encode_query("SELECT pg_sleep(60)"))
        assert flood(wire, text * 10, 100 << 20) < 60 << 20


def test_a_flood_waits_for_a_question(proxy: Proxy, wire: Wire, upstream: str) -> None:
    text = m.encode_query(f"SELECT length('{'x' * 10_000}')")
    forget(upstream)
    with scans_held(upstream):
        wire.send(m.encode_query(COUNTS))
        with flat(proxy):
            assert flood(wire, text, 100 << 20) < 60 << 20
    assert m.DATA_ROW in [kind for kind, _ in wire.until(m.READY_FOR_QUERY)]
