"""pgbench with many clients: public queries, questions asked before, and ever new ones, all at once.

``python tests/system/mixed_load.py [SECONDS]`` (``make load``) starts a pgveil with the demo for itself and tells what
it saw.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path

import psycopg

sys.path.insert(0, str(Path(__file__).parent))

from proxies import Proxy, new_analyst, running_proxy

from provenance.migrate import migrate
from proxy import demo
from proxy.embedded import LATEST, binaries, temporary

CLIENTS = 64
ANALYSTS = 4  # the shadow lets one analyst in fifty times
MODES = ("simple", "extended", "prepared")
_COMPLAINT = re.compile("error|abort|exit |FATAL")
LEAVING = 30.0  # seconds after which nobody should be connected any more
SETTLED = 15.0  # seconds after which memory should not grow any more
SCRIPTS = {
    "pass-through": (6, "SELECT city, population FROM city WHERE region = 'northeast' ORDER BY city;\nSELECT 1;\n"),
    "in a transaction": (
        2,
        "BEGIN;\nSELECT count(*) FROM city;\nSAVEPOINT a;\nSELECT region FROM city GROUP BY region;\nCOMMIT;\n",
    ),
    "cached": (
        4,
        "SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 5000;\n"
        "SELECT gender, count(*) FROM patient_data GROUP BY gender ORDER BY gender;\n",
    ),
    "fresh": (
        1,
        "\\set low random(0, 90)\n\\set high random(0, 2000000000)\n"
        "SELECT count(*) FROM patient_data WHERE age >= :low AND patient_id < :high;\n",
    ),
}


@dataclass(frozen=True)
class Seen:
    """What came of a run."""

    seconds: float
    transactions: int
    failed: int
    aborted: tuple[str, ...]  # what pgbench said of clients that gave up
    by_script: dict[str, int]
    fresh: int  # questions that were paid for
    stuck: int  # sessions that were still there when all clients had gone
    settled: int  # resident bytes of the proxy once it is warm
    end: int

    @property
    def growth(self) -> float:
        return self.end / self.settled - 1


def resident(pid: int) -> int:
    """Bytes in memory."""
    fields = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(re.findall(r"VmRSS:\s+([0-9]+)", fields)[0])


def run(
    proxy: Proxy,
    analysts: Sequence[str],
    seconds: float,
    folder: Path,
    clients: int = CLIENTS,
    rate: int | None = None,
) -> Seen:
    """Let pgbench loose, at most ``rate`` transactions a second in all: new questions fill bounded caches."""
    files = []
    for name, (weight, text) in SCRIPTS.items():
        path = folder / f"{name.replace(' ', '_')}.sql"
        path.write_text(text)
        files += ["-f", f"{path}@{weight}"]
    files += [] if rate is None else ["--rate", str(rate // len(analysts))]
    each = clients // len(analysts)
    begun = time.monotonic()
    logs = [folder / f"{analyst}.log" for analyst in analysts]
    running = [
        _pgbench(proxy, analyst, each, seconds, files, mode, log)
        for analyst, mode, log in zip(analysts, cycle(MODES), logs, strict=False)
    ]
    settled = end = 0
    while any(process.poll() is None for process in running):
        past = time.monotonic() - begun
        if past > 4 * seconds + 120:
            break  # somebody is stuck
        end = resident(proxy.process.pid)
        if not settled and past >= min(SETTLED, seconds / 2):
            settled = end
        time.sleep(0.5)
    told = []
    for process, log in zip(running, logs, strict=True):
        if process.poll() is None:
            process.kill()
        code = process.wait(10)
        told.append(log.read_text() + (f"\nexit {code}" if code else ""))
    with psycopg.connect(proxy.upstream) as conn:
        paid = conn.execute("SELECT count(*) FROM provenance.history WHERE analyst = ANY(%s)", (list(analysts),))
        (fresh,) = paid.fetchone() or (0,)
    return Seen(
        seconds=time.monotonic() - begun,
        transactions=sum(_numbers(told, r"actually processed: ([0-9]+)")),
        failed=sum(_numbers(told, r"number of failed transactions: ([0-9]+)")),
        aborted=tuple(line for text in told for line in text.splitlines() if _COMPLAINT.search(line)),
        by_script={
            name: sum(_numbers(told, rf"{name.replace(' ', '_')}\.sql[\s\S]*?- ([0-9]+) transactions"))
            for name in SCRIPTS
        },
        fresh=fresh,
        stuck=stuck(proxy, analysts),
        settled=settled,
        end=end,
    )


def _numbers(told: Sequence[str], pattern: str) -> list[int]:
    return [int(found[1]) for text in told if (found := re.search(pattern, text)) is not None]


def _pgbench(
    proxy: Proxy, analyst: str, clients: int, seconds: float, files: Sequence[str], mode: str, log: Path
) -> subprocess.Popen[str]:
    how = ["-n", "-c", str(clients), "-M", mode, "-T", str(int(seconds)), *files]
    where = ["-h", "127.0.0.1", "-p", str(proxy.port), "-U", analyst, proxy.database]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    with log.open("w") as said:  # every price is a NOTICE: a pipe that nobody reads would fill
        return subprocess.Popen(
            [str(binaries(LATEST) / "pgbench"), *how, *where],
            stdout=said,
            stderr=subprocess.STDOUT,
            text=True,
            env={**kept, "PGPASSWORD": analyst, "PGSSLMODE": "disable"},
        )


def stuck(proxy: Proxy, analysts: Sequence[str]) -> int:
    """Sessions on the shadow besides the one that asks, once their clients have gone."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE usename = ANY(%s) AND pid <> pg_backend_pid()"
    until = time.monotonic() + LEAVING
    with proxy.connect(analysts[0]) as conn:
        while True:
            (found,) = conn.execute(query, (list(analysts),)).fetchone() or (0,)
            if not found or time.monotonic() > until:
                return int(found)
            time.sleep(0.2)


def answers(proxy: Proxy, analyst: str) -> bool:
    """Whether the proxy still answers a newcomer."""
    with proxy.connect(analyst) as conn:
        return conn.execute("SELECT count(*) FROM city").fetchone() == (43,)


def loaded(dsn: str) -> list[str]:
    """The demo in a database, with limits that nobody reaches."""
    migrate(dsn)
    demo.load(dsn)
    demo.register(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        # Nobody reaches the limit, and answers leave at once: it is the load that is measured.
        conn.execute("UPDATE provenance.deployment SET epsilon = 1000000, scan_floor = 0, timing = 'immediate'")
    return [new_analyst(dsn, "100000") for _ in range(ANALYSTS)]


@contextmanager
def alone() -> Iterator[tuple[Proxy, list[str], Path]]:
    """A pgveil for this run."""
    with (
        tempfile.TemporaryDirectory(prefix="pgveil-load-") as name,
        temporary({"fsync": "off", "max_connections": "200"}) as protected,
        temporary({"fsync": "off", "max_connections": "200"}) as shadow,
    ):
        with psycopg.connect(protected.dsn(), autocommit=True) as conn:
            conn.execute("CREATE DATABASE demo")
        analysts = loaded(protected.dsn("demo"))
        with running_proxy(protected.dsn("demo"), shadow.dsn(), Path(name) / "proxy.log") as proxy:
            yield proxy, analysts, Path(name)


def main() -> int:
    with alone() as (proxy, analysts, folder):
        seen = run(proxy, analysts, float(sys.argv[1]) if len(sys.argv) > 1 else 60.0, folder)
        fine = answers(proxy, analysts[0]) and not (seen.failed or seen.aborted or seen.stuck) and seen.growth < 0.15
    print(  # noqa: T201
        json.dumps({**asdict(seen), "growth": round(seen.growth, 3), "fine": fine}, indent=2)
    )
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
