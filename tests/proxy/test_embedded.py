"""Clusters keep their data, refuse company, and survive the death of their parent."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest

from proxy.embedded import Cluster, ClusterInUseError, temporary
from proxy.postmaster import EmbeddedError

PARENT = """
import sys, time
from pathlib import Path
from proxy.embedded import Cluster
cluster = Cluster(Path(sys.argv[1]))
cluster.start()
print(cluster.pid, flush=True)
time.sleep(600)
"""


# Not below pytest's own directory: as root the server runs as another user, who must be able to pass, and every
# pytest that starts closes that directory again.
@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """One directory for most tests here, so that initdb runs once."""
    with tempfile.TemporaryDirectory(prefix="pgveil-test-") as name:
        yield Path(name) / "cluster"


@pytest.fixture
def fresh() -> Iterator[Path]:
    """A directory in which no cluster was ever made."""
    with tempfile.TemporaryDirectory(prefix="pgveil-test-") as name:
        yield Path(name)


@contextmanager
def parent_process(home: Path, program: str = PARENT) -> Iterator[tuple[subprocess.Popen[str], int]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", program, str(home)], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def gone(pid: int, seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def test_a_restart_keeps_the_data(home: Path) -> None:
    with Cluster(home) as cluster:
        assert cluster.is_running()
        with psycopg.connect(cluster.dsn()) as connection:
            connection.execute("DROP TABLE IF EXISTS kept")
            connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        pid = cluster.pid
    assert not cluster.is_running()
    assert gone(pid)
    with Cluster(home) as cluster, psycopg.connect(cluster.dsn()) as connection:
        assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)


def test_the_server_is_utf8_durable_and_has_no_tcp_port(home: Path) -> None:
    with Cluster(home, settings={"max_connections": "17"}) as cluster, psycopg.connect(cluster.dsn()) as connection:
        names = ["server_encoding", "fsync", "listen_addresses", "max_connections", "TimeZone"]
        values = [connection.execute("SELECT current_setting(%s)", [name]).fetchone() for name in names]
        assert values == [("UTF8",), ("on",), ("",), ("17",), ("UTC",)]
        assert connection.execute("SELECT upper('ä')").fetchone() == ("Ä",)
        ours = psutil.Process(cluster.pid)
        assert not [c for p in (ours, *ours.children()) for c in p.net_connections("inet") if c.status == "LISTEN"]


def test_nobody_else_can_enter_the_socket_directory(home: Path) -> None:
    with Cluster(home) as cluster:
        assert stat.S_IMODE(cluster.socket_path.parent.stat().st_mode) == 0o700
        assert cluster.socket_path.is_socket()


def test_a_second_start_on_the_same_directory_is_refused_at_once(home: Path) -> None:
    with Cluster(home):
        begun = time.monotonic()
        with pytest.raises(ClusterInUseError, match=f"process {os.getpid()}.*PGVEIL_HOME"):
            Cluster(home).start()
        assert time.monotonic() - begun < 30
    with Cluster(home) as cluster:
        assert cluster.is_running()


def test_another_process_is_refused_too(home: Path) -> None:
    with parent_process(home) as (process, _), pytest.raises(ClusterInUseError, match=f"process {process.pid}"):
        Cluster(home).start()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell a child of its parent's death")
def test_a_killed_parent_takes_its_server_along(home: Path) -> None:
    with parent_process(home) as (process, postmaster):
        process.kill()
        process.wait()
        assert gone(postmaster)


def test_kill_9_of_the_parent_never_blocks_the_next_start(home: Path) -> None:
    with parent_process(home) as (process, _):
        with psycopg.connect(_dsn(home)) as connection:
            connection.execute("DROP TABLE IF EXISTS survivor")
            connection.execute("CREATE TABLE survivor AS SELECT 7 AS n")
        process.kill()
        process.wait()
    with Cluster(home) as cluster, psycopg.connect(cluster.dsn()) as connection:
        assert connection.execute("SELECT n FROM survivor").fetchone() == (7,)


def test_a_server_that_outlived_its_parent_is_stopped_first(home: Path) -> None:
    orphaning = PARENT.replace(
        "cluster = ", "import proxy.postmaster as p; p.follow_parent = lambda word: None; cluster = "
    )
    with parent_process(home, orphaning) as (process, postmaster):
        process.kill()
        process.wait()
        assert not gone(postmaster, 0.3)
    with Cluster(home) as cluster:
        assert cluster.pid != postmaster
        assert gone(postmaster)


def test_kill_9_of_the_server_never_blocks_the_next_start(home: Path) -> None:
    with Cluster(home) as cluster:
        os.kill(cluster.pid, signal.SIGKILL)
        assert gone(cluster.pid)
        assert not cluster.is_running()
    with Cluster(home) as cluster:
        assert cluster.is_running()


@pytest.mark.parametrize("first_line", [str(os.getpid()), ""], ids=["of another program", "empty"])
def test_a_stale_process_file_never_blocks_the_start(home: Path, first_line: str) -> None:
    with Cluster(home):
        pass
    (home / "data" / "postmaster.pid").write_text(f"{first_line}\n{home / 'data'}\n0\n" if first_line else "")
    (home / "socket").mkdir()
    (home / "socket" / ".s.PGSQL.5432.lock").write_text(f"{os.getpid()}\n")
    with Cluster(home) as cluster:
        assert cluster.is_running()


def test_a_half_made_cluster_is_made_again(fresh: Path) -> None:
    half = fresh / "data.new-killed"
    half.mkdir()
    (half / "PG_VERSION").write_text("18\n")
    with Cluster(fresh) as cluster, psycopg.connect(cluster.dsn()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert not half.exists()


def test_a_path_too_long_for_a_socket_gets_a_short_private_one(fresh: Path) -> None:
    home = fresh / ("deep" * 20) / "with, comma"
    with Cluster(home) as cluster, psycopg.connect(cluster.dsn()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
        short = cluster.socket_path.parent
        assert stat.S_IMODE(short.stat().st_mode) == 0o700
    assert not short.exists()


def test_a_server_that_cannot_start_says_why_and_gives_the_directory_back(home: Path) -> None:
    with pytest.raises(EmbeddedError, match="no_such_setting"):
        Cluster(home, settings={"no_such_setting": "1"}).start()
    with Cluster(home) as cluster:
        assert cluster.is_running()


def test_what_a_failing_statement_quotes_stays_out_of_the_log(home: Path) -> None:
    with Cluster(home) as cluster:
        with psycopg.connect(cluster.dsn()) as connection, pytest.raises(psycopg.Error):
            connection.execute("SELECT 'canary-4711'::int")
        assert "canary-4711" not in cluster.log_path.read_text()


def test_a_temporary_cluster_leaves_nothing() -> None:
    with temporary() as cluster:
        place, pid = cluster.directory, cluster.pid
    assert not place.exists()
    assert gone(pid)


def _dsn(home: Path) -> str:
    socket = home / "socket"
    place = socket.readlink() if socket.is_symlink() else socket
    return f"host={place} user=postgres dbname=postgres"
