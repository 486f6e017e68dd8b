"""Load by pgbench, and whose processor time it took."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]
from psycopg.conninfo import conninfo_to_dict

from proxy.embedded import binaries

_SETTLE_SECONDS = 0.05  # for backends whose client has just gone, so that their time is counted


@dataclass(frozen=True, slots=True)
class Load:
    """What the clients do, how many they are, and for how long (or how often, if ``seconds`` is 0)."""

    statement: str
    clients: int
    seconds: int
    mode: str = "simple"  # or extended, prepared
    reconnect: bool = False  # a new connection for each transaction
    transactions: int = 50  # of each client, if they are counted


@dataclass(frozen=True, slots=True)
class Run:
    """Transactions per second, and the processor seconds of each party."""

    rate: float
    transactions: int
    processor: Mapping[str, float]

    def micros(self, party: str, start: Run | None = None) -> float:
        """Processor time of a party per transaction in microseconds, less what ``start`` (logging in) took."""
        spent, count = self.processor.get(party, 0.0), self.transactions
        if start is not None:
            spent, count = spent - start.processor.get(party, 0.0), count - start.transactions
        return 1e6 * max(spent, 0.0) / max(count, 1)


def pgbench(dsn: str, load: Load, parties: Mapping[str, int]) -> Run:
    """One run; ``parties`` are process ids (their children included) whose processor time is wanted."""
    with tempfile.NamedTemporaryFile("w", prefix="pgveil-", suffix=".sql") as script:
        script.write(load.statement + ";\n")
        script.flush()
        command = [str(binaries() / "pgbench"), "--no-vacuum", "--file", script.name, "--protocol", load.mode]
        command += ["--client", str(load.clients), "--jobs", "1"]
        command += ["--time", str(load.seconds)] if load.seconds else ["--transactions", str(load.transactions)]
        if load.reconnect:
            command.append("--connect")
        before, own = _spent(parties), _children()
        done = subprocess.run(
            command, capture_output=True, text=True, env=_environment(dsn), cwd=Path(script.name).parent
        )
        if done.returncode != 0:
            raise RuntimeError(f"pgbench failed:\n{done.stderr.strip()}")
        time.sleep(_SETTLE_SECONDS)
        spent = {name: after - before[name] for name, after in _spent(parties).items()}
        spent["pgbench"] = _children() - own
    rate = re.search(r"^tps = ([\d.]+)", done.stdout, re.MULTILINE)
    count = re.search(r"actually processed: (\d+)", done.stdout)
    if rate is None or count is None:
        raise RuntimeError(f"pgbench said something new:\n{done.stdout}")
    return Run(float(rate[1]), int(count[1]), spent)


def _environment(dsn: str) -> dict[str, str]:
    login = {name: str(value) for name, value in conninfo_to_dict(dsn).items()}
    given = {
        "PGHOST": login["host"],
        "PGPORT": login["port"],
        "PGUSER": login["user"],
        "PGDATABASE": login["dbname"],
        "PGPASSWORD": login.get("password", ""),
        "PGSSLMODE": "disable",  # neither proxy has a certificate here: save the question
        "PGGSSENCMODE": "disable",
    }
    return {**{k: v for k, v in os.environ.items() if not k.startswith("PG")}, **given}


def _spent(parties: Mapping[str, int]) -> dict[str, float]:
    return {name: _tree(psutil.Process(pid)) for name, pid in parties.items()}


def _tree(root: psutil.Process) -> float:
    """Processor seconds of a process, of its living children, and of those that it has outlived."""
    times = root.cpu_times()
    total = float(times.user + times.system + times.children_user + times.children_system)
    for child in root.children():
        try:
            theirs = child.cpu_times()
        except psutil.NoSuchProcess:  # it ended just now
            continue
        total += theirs.user + theirs.system
    return total


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
