"""Real servers for a bench: a protected PostgreSQL, a shadow, a proxy, and a pgbouncer where there is one.

All of them run in processes of their own and are gone afterwards. Both proxies listen on TCP and reach the shadow by
the same Unix socket, as the same role in the same database.
"""

from __future__ import annotations

import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from bench.rig.measure import say
from provenance.migrate import migrate
from proxy import demo_data
from proxy.embedded import OLDEST, Cluster, temporary
from proxy.postmaster import account_for, follow_parent, spawn

ROOT = Path(__file__).parents[2]
ANALYST = "bench"  # and its password
DATABASE = "hospital"
_READY_SECONDS = 90.0
_STOP_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Scene:
    """Where everybody listens."""

    protected: Cluster
    upstream: str  # the DSN of the protected database
    shadow: Cluster
    shadow_database: str
    proxy: subprocess.Popen[str]
    port: int

    @property
    def dsn(self) -> str:
        """How the analyst connects."""
        login = {"user": ANALYST, "password": ANALYST, "dbname": DATABASE}
        return make_conninfo("", host="127.0.0.1", port=self.port, sslmode="disable", **login)

    @property
    def shadow_dsn(self) -> str:
        """The analyst's role on the shadow itself, with no proxy between."""
        return self.shadow.dsn(self.shadow_database, ANALYST)


@contextmanager
def scene(patients: int, launcher: Sequence[str] = ("proxy",)) -> Iterator[Scene]:
    """A proxy in front of so many patients; ``launcher`` is the module (and its arguments) that starts it."""
    with ExitStack() as stack:
        say("starting PostgreSQL twice")
        protected = stack.enter_context(temporary())
        shadow = stack.enter_context(temporary({"max_connections": "300"}, version=OLDEST))
        with psycopg.connect(protected.dsn(), autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {DATABASE}")
        upstream = protected.dsn(DATABASE)
        migrate(upstream)
        say(f"loading {patients:,} patients")
        hospital(upstream, patients)
        process, port = stack.enter_context(_proxy(upstream, shadow.dsn(), launcher))
        login = make_conninfo("", host="127.0.0.1", port=port, user=ANALYST, password=ANALYST, dbname=DATABASE)
        with psycopg.connect(login) as session:
            row = session.execute("SELECT current_database()").fetchone()
        assert row is not None
        with psycopg.connect(shadow.dsn(), autocommit=True) as admin:
            # An analyst may hold 64 backends; here all ways are the same analyst, and pgbouncer keeps its own open.
            admin.execute(f"ALTER ROLE {ANALYST} CONNECTION LIMIT -1")
        yield Scene(protected, upstream, shadow, row[0], process, port)


def hospital(dsn: str, patients: int) -> None:
    """The demo's ``patient_data`` (its first rows), registered, and an analyst who is far from every limit."""
    with psycopg.connect(dsn) as conn:
        conn.execute("CREATE TABLE ward (disease text PRIMARY KEY, capacity integer NOT NULL)")
        conn.execute(
            "CREATE TABLE patient_data (patient_id integer NOT NULL, age integer NOT NULL, gender text NOT NULL,"
            " disease text NOT NULL, disease_type text NOT NULL)"
        )
        for table, rows in (("ward", demo_data.wards()), ("patient_data", islice(demo_data.patients(), patients))):
            with conn.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN".encode()) as copy:
                for row in rows:
                    copy.write_row(row)
        conn.execute("ALTER TABLE patient_data ADD PRIMARY KEY (patient_id)")
        conn.execute("SELECT provenance.publish('ward')")
        conn.execute("SELECT provenance.protect('patient_data', size_hint => %s, changes => 'frozen')", [patients])
        conn.execute("SELECT provenance.declare_attribute('patient_data', 'disease', members_from => 'ward.disease')")
        # A least price of a scan that is a fraction of so large a limit would change what is measured.
        conn.execute("UPDATE provenance.deployment SET epsilon = 1000000, scan_floor = 0")
        conn.execute("SELECT provenance.create_analyst(%s, %s, 10)", [ANALYST, ANALYST])
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("VACUUM ANALYZE")


@contextmanager
def _proxy(upstream: str, shadow: str, launcher: Sequence[str]) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-m", *launcher, "serve", "--upstream", upstream, "--shadow", shadow]
    command += ["--listen", "127.0.0.1:0", "--log-level", "WARNING"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        preexec_fn=follow_parent(signal.SIGTERM),
    )
    try:
        yield process, _port_of(process)
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


def _port_of(process: subprocess.Popen[str]) -> int:
    said: queue.Queue[str | None] = queue.Queue()

    def listen() -> None:
        assert process.stdout is not None
        with process.stdout as stdout:
            for line in stdout:
                said.put(line)
        said.put(None)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        line = said.get(timeout=_READY_SECONDS)
        if line is None:
            raise RuntimeError(f"the proxy ended with {process.wait()} before it was ready")
        if "pgveil ready" in line:
            return int(line.rpartition(":")[2])


def pgbouncer_program() -> str | None:
    """Where pgbouncer is installed, if it is (Debian puts it where only root looks)."""
    return shutil.which("pgbouncer", path=os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin")))


@contextmanager
def pgbouncer(program: str, shadow: Cluster, user: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A pgbouncer in front of the shadow, one server connection per client as pgveil has it; its process and port."""
    # It refuses to be root, and the shadow's socket is for the shadow's own account: it runs as that one.
    account = account_for(shadow.directory / "data")
    with tempfile.TemporaryDirectory(prefix="pgveil-bouncer-") as name, ExitStack() as stack:
        place = Path(name)
        port = _free_port()
        settings = place / "pgbouncer.ini"
        settings.write_text(
            "[databases]\n"
            f"* = host={shadow.socket_path.parent} port=5432 user={user}\n"
            "[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            "auth_type = any\npool_mode = session\nmax_client_conn = 500\ndefault_pool_size = 200\n"
            "ignore_startup_parameters = extra_float_digits,options\nlog_connections = 0\nlog_disconnections = 0\n"
        )
        if account is not None:
            account.own(place)
            account.own(settings)
            account.admit(settings)
        log = stack.enter_context((place / "pgbouncer.log").open("wb"))
        process = spawn([program, settings], account, signal.SIGTERM, stdout=log, stderr=log)
        try:
            _await_port(process, port, place / "pgbouncer.log")
            yield process, port
        finally:
            process.terminate()  # at once, with no wait for its clients
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _await_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"pgbouncer did not start:\n{log.read_text(errors='replace')}") from None
            time.sleep(0.02)
