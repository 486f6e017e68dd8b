"""Real proxies in real processes, for the system tests."""

from __future__ import annotations

import itertools
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

CASES = Path(__file__).parents[1] / "sqlrewrite" / "cases"
_numbers = itertools.count(1)
PATIENCE = 60  # seconds for what must happen, however busy the machine is


@dataclass
class Proxy:
    """A running ``pgveil serve``."""

    process: subprocess.Popen[str]
    port: int
    database: str
    upstream: str
    log: Path
    lines: list[str] = field(default_factory=list)

    def dsn(self, user: str, password: str | None = None, **more: Any) -> str:
        """How a client gets in; the password is the name unless told otherwise."""
        options = {"host": "127.0.0.1", "port": self.port, "sslmode": "disable", "connect_timeout": PATIENCE, **more}
        return make_conninfo(dbname=self.database, user=user, password=password or user, **options)

    def connect(self, user: str, **more: Any) -> psycopg.Connection[Any]:
        """A psycopg session of an analyst, in autocommit mode unless told otherwise."""
        autocommit = more.pop("autocommit", True)
        return psycopg.connect(self.dsn(user, **more), autocommit=autocommit)

    def kill(self) -> None:
        """kill -9."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE)

    def stop(self) -> int:
        """SIGTERM, and its exit code."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                return self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(PATIENCE)
                raise
        return self.process.returncode


def start_proxy(
    upstream: str,
    shadow: str,
    log: Path,
    *,
    options: tuple[str, ...] = (),
    program: tuple[str, ...] = ("-m", "proxy"),
    environment: Mapping[str, str] | None = None,
) -> Proxy:
    """Start ``pgveil serve`` on a free port and wait until it is ready."""
    command = [sys.executable, *program, "serve", "--upstream", upstream, "--shadow", shadow]
    command += ["--listen", "127.0.0.1:0", "--log-level", "INFO", *options]
    with log.open("a") as errors:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PGVEIL_ANCHOR": str(log.with_suffix(".anchor")), **(environment or {})},
        )
    said: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_listen, args=(process, said), daemon=True).start()
    while True:
        try:
            line = said.get(timeout=3 * PATIENCE)
        except queue.Empty:
            process.kill()
            raise AssertionError(f"the proxy did not become ready:\n{log.read_text()}") from None
        if line is None:
            raise AssertionError(f"the proxy ended with {process.wait()}:\n{log.read_text()}")
        if "pgveil ready" in line:
            database = str(conninfo_to_dict(upstream)["dbname"])
            return Proxy(process, int(line.rpartition(":")[2]), database, upstream, log)


def _listen(process: subprocess.Popen[str], said: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    with process.stdout as stdout:
        for line in stdout:
            said.put(line)
    said.put(None)


@contextmanager
def running_proxy(upstream: str, shadow: str, log: Path, **more: Any) -> Iterator[Proxy]:
    """A proxy that is stopped at the end, whatever happened."""
    proxy = start_proxy(upstream, shadow, log, **more)
    try:
        yield proxy
    finally:
        proxy.stop()


def new_analyst(upstream: str, epsilon: str | None = None, privilege: int = 10, **settings: str) -> str:
    """A fresh analyst, so that tests do not share budgets; the password is the name."""
    name = f"analyst_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(upstream, autocommit=True) as conn:
        conn.execute("SELECT provenance.create_analyst(%s, %s, %s)", (name, name, privilege))
        if epsilon is not None:
            conn.execute("UPDATE provenance.analyst SET epsilon_limit = %s WHERE name = %s", (epsilon, name))
        if settings:
            from psycopg.types.json import Jsonb

            values = {f"veil.{key}": value for key, value in settings.items()}
            conn.execute("UPDATE provenance.analyst SET settings = %s WHERE name = %s", (Jsonb(values), name))
    return name


def forget(upstream: str, *relations: str) -> None:
    """New data: what other analysts have paid for is no answer any more, so that the next question reads the table."""
    with psycopg.connect(upstream, autocommit=True) as conn:
        for relation in relations or ("patient_data",):
            conn.execute("SELECT provenance.refresh(%s)", (relation,))


@contextmanager
def scans_held(upstream: str) -> Iterator[psycopg.Connection[Any]]:
    """Questions about patient_data are charged meanwhile, and wait before they read the table.

    The measuring snapshot locks the table before the charge; its indexes are locked when the measuring statement is
    planned, which is after the charge.
    """
    with psycopg.connect(upstream) as conn:
        conn.execute("REINDEX INDEX patient_data_pkey")
        yield conn


def scans_waiting(upstream: str) -> list[int]:
    """The processes of the protected database that wait for the end of ``scans_held``."""
    with psycopg.connect(upstream) as conn:
        query = "SELECT pid FROM pg_locks WHERE relation = 'patient_data_pkey'::regclass AND NOT granted"
        return [pid for (pid,) in conn.execute(query)]


def charges(upstream: str, analyst: str) -> list[tuple[Any, ...]]:
    """The questions that one analyst paid for: id, epsilon, amount, question; rows for scans of decisions left out."""
    with psycopg.connect(upstream) as conn:
        return conn.execute(
            "SELECT id, epsilon, charged, question FROM provenance.history"
            " WHERE analyst = %s AND mechanism <> 'scan' ORDER BY id",
            (analyst,),
        ).fetchall()
