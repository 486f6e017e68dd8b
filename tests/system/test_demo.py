"""``pgveil demo`` as a newcomer runs it: one home, started, stopped, killed and started again."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from proxy.demo import TABLES

QUESTION = "SELECT disease, count(*) FROM patient_data GROUP BY disease ORDER BY disease"


@dataclass
class Demo:
    """A running ``pgveil demo`` with a process group of its own, as under a shell."""

    process: subprocess.Popen[str]
    home: Path
    lines: list[str] = field(default_factory=list)

    @property
    def loaded(self) -> list[str]:
        """What it told of tables that it filled."""
        return [line for line in self.lines if "demo: loaded" in line]

    def connect(self, user: str = "alice") -> psycopg.Connection:
        (port,) = re.findall(r"pgveil ready on 127\.0\.0\.1:(\d+)", "\n".join(self.lines))
        return psycopg.connect(
            f"host=127.0.0.1 port={port} dbname=demo user={user} password={user} sslmode=disable", autocommit=True
        )

    def protected(self) -> psycopg.Connection:
        """The protected database itself, past the proxy."""
        socket = (self.home / "protected" / "socket").resolve()
        return psycopg.connect(make_conninfo(host=str(socket), dbname="demo", user="postgres"), autocommit=True)

    def end(self, word: signal.Signals) -> int:
        os.kill(self.process.pid, word)
        return self.process.wait(60)

    def interrupt(self) -> int:
        """Ctrl-C: the terminal signals the whole group."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(60)


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """Not below pytest's directory: as root the servers run as another user, who must be able to pass."""
    with tempfile.TemporaryDirectory(prefix="pgveil-demo-") as name:
        yield Path(name) / "home"


@contextmanager
def demo(home: Path) -> Iterator[Demo]:
    process = subprocess.Popen(
        [sys.executable, "-m", "proxy", "demo", "--home", str(home), "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=Path(__file__).parents[2],
        start_new_session=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("PGVEIL")},
    )
    running = Demo(process, home)
    said: queue.Queue[str] = queue.Queue()

    def listen() -> None:
        assert process.stdout is not None
        with process.stdout as stdout:
            for line in stdout:
                said.put(line.rstrip())
        said.put("")

    threading.Thread(target=listen, daemon=True).start()
    try:
        while not any("Ctrl-C" in line for line in running.lines):
            running.lines.append(said.get(timeout=240))
            assert process.poll() is None, "\n".join(running.lines)
        yield running
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(60)


def servers(home: Path) -> list[str]:
    """The PostgreSQL processes that belong to this home: postmasters by their directory, others by their title."""
    titles = [
        f"postgres: pgveil-{sha256(os.fsencode(home / name / 'data')).hexdigest()[:12]}:"
        for name in ("protected", "shadow")
    ]
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or [])
        if process.info["status"] != psutil.STATUS_ZOMBIE and (
            ("postgres" in line and f"-D {home}/" in line) or line.startswith(tuple(titles))
        ):
            found.append(line)
    return found


def gone(home: Path, seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while servers(home):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def checksums(conn: psycopg.Connection) -> dict[str, tuple[int, str]]:
    """Rows and a digest of every table of the demo, independent of the order of rows on disk."""
    found = {}
    for table in TABLES:
        query = f"SELECT count(*), md5(string_agg(md5(t::text), '' ORDER BY md5(t::text))) FROM public.{table.name} t"
        row = conn.execute(query.encode()).fetchone()
        assert row is not None
        found[table.name] = (row[0], row[1])
    return found


def spent(conn: psycopg.Connection) -> list[tuple[object, ...]]:
    return conn.execute("SELECT name, amount FROM provenance.balance ORDER BY scope, name").fetchall()


def test_a_demo_survives_stop_kill_and_ctrl_c(home: Path, demo_template: str) -> None:
    expected = 0 if home.exists() else len(TABLES)  # another test may have made it
    with demo(home) as first:
        told = "\n".join(first.lines)
        assert len(first.loaded) == expected
        assert "pgveil ready" in told and re.search(r"PGPASSWORD=alice psql -h 127\.0\.0\.1 -p \d+ -U alice demo", told)
        with first.connect() as session:
            rows = session.execute(QUESTION).fetchall()
        assert len(rows) == 40 and servers(home)
        with first.protected() as direct:
            before = spent(direct)
            with psycopg.connect(demo_template) as other:  # a second demo, loaded elsewhere
                assert checksums(direct) == checksums(other)
        assert first.end(signal.SIGTERM) == 0
    assert servers(home) == []

    with demo(home) as second:
        assert not second.loaded, "what is there is not loaded again"
        told_again: list[str] = []
        with second.connect() as session, second.protected() as direct:
            assert spent(direct) == before
            session.add_notice_handler(lambda notice: told_again.append(notice.message_primary or ""))
            assert session.execute(QUESTION).fetchall() == rows
            assert "no cost" in told_again[0] and spent(direct) == before
            session.execute("SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 4000")
            before = spent(direct)
        second.end(signal.SIGKILL)
    assert gone(home)

    with demo(home) as third:
        assert not third.loaded
        with third.connect() as session, third.protected() as direct:
            assert spent(direct) == before
            assert session.execute(QUESTION).fetchall() == rows
        assert third.interrupt() == 0
    assert servers(home) == []


@pytest.mark.slow
def test_two_demos_have_the_same_data_and_know_nothing_of_each_other(home: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="pgveil-demo-") as name, demo(home) as one, demo(Path(name)) as two:
        with one.protected() as left, two.protected() as right:
            assert checksums(left) == checksums(right)
            secret = "SELECT value FROM provenance.secret"
            assert left.execute(secret).fetchone() != right.execute(secret).fetchone()
        assert one.end(signal.SIGTERM) == 0
        with two.connect() as session:
            assert session.execute("SELECT count(*) FROM city").fetchone() == (43,)
        assert two.interrupt() == 0
        assert servers(home) == servers(Path(name)) == []


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.7, 2.0])
def test_a_demo_killed_while_it_is_made_is_made_by_the_next_start(after: float) -> None:
    with tempfile.TemporaryDirectory(prefix="pgveil-demo-") as name:
        place = Path(name) / "home"
        command = [sys.executable, "-m", "proxy", "demo", "--home", str(place), "--listen", "127.0.0.1:0"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=Path(__file__).parents[2]) as process:
            time.sleep(after)
            process.kill()
        assert gone(place)
        with demo(place) as risen:
            with risen.protected() as direct:
                assert {table: rows for table, (rows, _) in checksums(direct).items()}["orders"] == 300_000
            assert risen.end(signal.SIGTERM) == 0
        assert servers(place) == []
