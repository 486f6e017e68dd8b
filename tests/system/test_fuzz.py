"""Mutated streams of real clients against a real proxy: no crash, no hang, no traceback, no unhandled exception.

A failure names its worker, its round and the bytes; the seed is fixed, so it can be repeated.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from mutations import CONVERSATIONS, FENCE, TO_THE_FENCE, Stream, knocks, mutate, mutate_knock
from proxies import Proxy, new_analyst, running_proxy
from raw_wire import BACKEND, Ended, Frame, Wire

from proxy import messages as m

SEED = 20260101
WORKERS = 4
BATCH = 750  # mutated messages between two looks at the proxy's health
PATIENCE = 60.0  # for an answer that must come
GLANCE = 0.03  # for an answer that need not come, since the framing is broken

_TRACEBACK = re.compile(rb'Traceback|File "|\.py\b|asyncio|psycopg|sqlglot')
_UNHANDLED = re.compile(r"Traceback|never retrieved|Exception in|Fatal error|incident|Unhandled|was never awaited")


@dataclass
class Findings:
    """What the workers saw."""

    sent: int = 0
    fences: int = 0
    endings: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


class Fuzzer:
    """One stream of mutated messages over as many connections as it takes."""

    def __init__(self, proxy: Proxy, analyst: str, seed: int) -> None:
        self.proxy, self.analyst = proxy, analyst
        self.rng = random.Random(seed)
        self.knocks = knocks(analyst, proxy.database)
        self.found = Findings()
        self.wire: Wire | None = None
        self.said: list[bytes] = []  # on this connection, so that a fault can be repeated

    def work(self, messages: int) -> Findings:
        self.found = Findings()
        while self.found.sent < messages and not self.found.faults:
            roll = self.rng.random()
            if roll < 0.12:
                self.knock()
            elif roll < 0.14:
                self.half_a_login()
            else:
                self.converse()
        return self.found

    def close(self) -> None:
        if self.wire is not None:
            self.wire.close()
            self.wire = None

    def knock(self) -> None:
        """Before the login."""
        stream = mutate_knock(self.rng, self.knocks)
        with Wire(self.proxy.port) as wire:
            if stream.data[:8] == m.encode_ssl_request():
                wire.send(stream.data[:8])
                assert wire.socket.recv(1) == b"N"
                stream = Stream(stream.data[8:], stream.mutated, stream.tame)
            self.found.sent += stream.mutated
            wire.send(stream.data)
            self.read(wire, stream, GLANCE)

    def half_a_login(self) -> None:
        """A real challenge, a mutated proof."""
        with Wire(self.proxy.port) as wire:
            scram = wire.begin_login(self.analyst, self.proxy.database)
            final = bytearray(m.encode_sasl_response(scram.get_client_final().encode()))
            final[self.rng.randrange(5, len(final))] ^= 1 << self.rng.randrange(8)
            stream = Stream(bytes(final), 1, True)
            self.found.sent += 1
            wire.send(stream.data)
            self.read(wire, stream, PATIENCE)

    def converse(self) -> None:
        """After the login; a connection that survives is used again."""
        if self.wire is None:
            self.wire = Wire(self.proxy.port).login(self.analyst, self.proxy.database)
            self.said.clear()
        stream = mutate(self.rng, CONVERSATIONS, wild=self.rng.random() < 0.1)
        self.found.sent += stream.mutated
        self.said.append(stream.data)
        self.wire.send(stream.data, TO_THE_FENCE)
        if not self.read(self.wire, stream, PATIENCE if stream.tame else GLANCE):
            self.close()

    def read(self, wire: Wire, stream: Stream, patience: float) -> bool:
        """Everything that comes back, up to the fence; whether the connection can be used again."""
        try:
            while True:
                frame = wire.frame(patience)
                self.judge(frame, stream)
                if frame[0] == m.DATA_ROW and FENCE.encode() in frame[1]:
                    wire.until(m.READY_FOR_QUERY)
                    self.found.fences += 1
                    return True
        except Ended:
            self.found.endings += 1
            if wire.rest and not wire.reset:
                self.fault(f"half a frame at the end: {wire.rest[:80]!r}", stream)
        except TimeoutError:
            if patience == PATIENCE:
                self.fault("no answer", stream)
        return False

    def judge(self, frame: Frame, stream: Stream) -> None:
        kind, data = frame
        if kind not in BACKEND:
            self.fault(f"no message of a server: {data[:80]!r}", stream)
        elif kind in (m.ERROR_RESPONSE, m.NOTICE_RESPONSE):
            fields = m.decode_fields(data)
            self.found.answers[fields["C"]] += 1
            # PostgreSQL's own XX000 ("cache lookup failed") names the line of its source; ours is an incident.
            if not fields["M"] or (fields["C"].startswith("XX") and "F" not in fields):
                self.fault(f"{fields}", stream)
            # The analyst's own words may come back in a message; a stack never does.
            if _TRACEBACK.search(data) and not _TRACEBACK.search(stream.data):
                self.fault(f"a stack: {data[:400]!r}", stream)

    def fault(self, what: str, stream: Stream) -> None:
        self.found.faults.append(f"{what}\n  after {stream.data!r}\n  on a connection that had seen {self.said!r}")


def look(proxy: Proxy, healthy: str, pid: int) -> None:
    """The proxy is the same process, serves others, and complains of nothing."""
    assert proxy.process.poll() is None and proxy.process.pid == pid
    began = time.monotonic()
    with Wire(proxy.port) as wire:
        wire.login(healthy, proxy.database)
        assert m.DATA_ROW in [kind for kind, _ in wire.query("SELECT 1")]
    assert time.monotonic() - began < 30.0, "a healthy client waits"
    complaints = [line for line in proxy.log.read_text().splitlines() if _UNHANDLED.search(line)]
    assert not complaints, "\n".join([*complaints[:5], proxy.log.read_text()[-6000:]])


def fuzz(proxy: Proxy, messages: int, seed: int) -> Findings:
    """Send so many mutated messages from several clients at once."""
    analysts = [new_analyst(proxy.upstream) for _ in range(WORKERS)]
    healthy, pid, total = new_analyst(proxy.upstream), proxy.process.pid, Findings()
    fuzzers = [Fuzzer(proxy, analyst, seed + i) for i, analyst in enumerate(analysts)]
    try:
        with ThreadPoolExecutor(WORKERS) as pool:
            while total.sent < messages:
                for found in pool.map(lambda each: each.work(BATCH // WORKERS), fuzzers):
                    total.sent += found.sent
                    total.fences += found.fences
                    total.endings += found.endings
                    total.answers += found.answers
                    total.faults += found.faults
                look(proxy, healthy, pid)
                assert not total.faults, "\n".join(total.faults)
    finally:
        for each in fuzzers:
            each.close()
    return total


@pytest.fixture(scope="module")
def victim(new_upstream: Callable[[], str], shadow_server, tmp_path_factory) -> Iterator[Proxy]:  # type: ignore[no-untyped-def]
    """A proxy and a ledger of its own: its log tells of nothing else, and nobody else pays for mutated questions."""
    log: Path = tmp_path_factory.mktemp("fuzz") / "proxy.log"
    with running_proxy(new_upstream(), shadow_server.admin_dsn, log) as running:
        yield running


def test_three_thousand_mutated_messages_do_no_harm(victim: Proxy) -> None:
    found = fuzz(victim, 3_000, SEED)
    # The streams must have gone somewhere: answered, refused natively, refused by us, hung up.
    assert found.fences > 50 and found.endings > 50
    assert {"00000", "08P01", "42501", "42601"} <= found.answers.keys()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_hundred_thousand_mutated_messages_do_no_harm(victim: Proxy) -> None:
    before = psutil.Process(victim.process.pid).memory_info().rss
    found = fuzz(victim, 100_000, SEED + 1000)
    assert found.sent >= 100_000
    assert psutil.Process(victim.process.pid).memory_info().rss - before < 200 << 20, "memory grows with hostile input"
