"""A PostgreSQL that pgveil starts by itself, from the server that a wheel carries.

    directory/
    ├── lock           held (flock) while a pgveil uses the directory
    ├── data/          the cluster; it appears by one rename, so a broken initdb is never mistaken for it
    ├── socket/        or a link to a short private directory, when this path is too long for a socket
    └── postgres.log

The server listens on a Unix socket only, in a directory that nobody else can enter, and is a direct child
that dies with its parent. Whatever a killed pgveil leaves behind is cleared by the next start.
"""

from __future__ import annotations

import fcntl
import locale
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import IO, Self

from psycopg.conninfo import make_conninfo

from proxy.postmaster import (
    LATEST,
    OLDEST,
    STOP_SECONDS,
    STOP_WORDS,
    Account,
    EmbeddedError,
    account_for,
    binaries,
    end_leftovers,
    spawn,
)

__all__ = ["LATEST", "OLDEST", "Cluster", "ClusterInUseError", "EmbeddedError", "binaries", "temporary"]

PORT = 5432  # only part of the socket's file name
SOCKET_LIMIT = 103  # bytes that sun_path holds everywhere (macOS; Linux has 107)
LOG_LIMIT = 4 << 20
START_SECONDS = 120.0  # crash recovery included

DEFAULTS: Mapping[str, str] = MappingProxyType(
    {
        "listen_addresses": "",
        "port": str(PORT),
        "unix_socket_permissions": "0700",
        "shared_buffers": "128MB",
        "fsync": "on",  # the ledger must survive a power cut
        "wal_level": "minimal",  # one server, no replicas
        "max_wal_senders": "0",
        "log_min_messages": "log",  # an ERROR may quote a value of a row
        "log_min_error_statement": "panic",
        "log_checkpoints": "off",
    }
)


class ClusterInUseError(EmbeddedError):
    """Another pgveil holds the directory."""


class Cluster:
    """One PostgreSQL cluster in one directory."""

    def __init__(
        self,
        directory: Path,
        *,
        settings: Mapping[str, str] = MappingProxyType({}),
        superuser: str = "postgres",
        version: int = LATEST,
    ) -> None:
        self.directory = directory.absolute()
        self.superuser = superuser
        self._settings = dict(settings)
        self._version = version
        self._data = self.directory / "data"
        self._name = "pgveil-" + sha256(os.fsencode(self._data)).hexdigest()[:12]
        self._lock: IO[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._sockets: Path | None = None

    def start(self) -> None:
        """Make the cluster on first use, clear what a killed predecessor left, and wait until it takes connections."""
        if self._lock is not None:
            raise EmbeddedError(f"{self.directory} is already started")
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock = _take(self.directory / "lock")
        try:
            account = account_for(self._data)
            end_leftovers(self._data, self._name)
            self._initialise(account)
            self._sockets = _socket_directory(self.directory / "socket", account)
            self._launch(account)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Shut down in order (fast, then immediate, then kill) and give the directory back."""
        if self._process is not None:
            for word in STOP_WORDS:
                if self._process.poll() is None:
                    self._process.send_signal(word)
                try:
                    self._process.wait(STOP_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    continue
            self._process = None
        if self._sockets is not None:
            _forget_sockets(self.directory / "socket")
            self._sockets = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The postmaster's process id."""
        if self._process is None:
            raise EmbeddedError(f"{self.directory} is not started")
        return self._process.pid

    @property
    def socket_path(self) -> Path:
        """The Unix socket itself."""
        if self._sockets is None:
            raise EmbeddedError(f"{self.directory} is not started")
        return self._sockets / f".s.PGSQL.{PORT}"

    @property
    def log_path(self) -> Path:
        return self.directory / "postgres.log"

    def dsn(self, dbname: str = "postgres", user: str | None = None) -> str:
        """A libpq connection string for one database."""
        host = str(self.socket_path.parent)
        return make_conninfo("", host=host, port=PORT, dbname=dbname, user=user or self.superuser)

    def _initialise(self, account: Account | None) -> None:
        for half_done in self.directory.glob("data.new-*"):
            shutil.rmtree(half_done)
        if self._data.exists():
            return
        made = Path(tempfile.mkdtemp(prefix="data.new-", dir=self.directory))
        if account:
            account.own(made)
            account.admit(made)
            account.admit_to_binaries(self._version)
        command: list[str | Path] = [binaries(self._version) / "initdb", "-D", made, "-U", self.superuser]
        command += ["--encoding=UTF8", "--auth-local=trust", "--auth-host=reject", "--set", "timezone=UTC"]
        if self._version >= 17:
            command += ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        else:
            command += ["--locale=C", f"--lc-ctype={_utf8_ctype()}"]
        if self._version >= 17 and sys.platform == "linux":
            command += ["--sync-method=syncfs"]
        done = spawn(command, account, signal.SIGTERM, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            output, _ = done.communicate()
        except BaseException:
            done.kill()
            raise
        if done.returncode != 0:
            raise EmbeddedError(f"initdb failed:\n{output.decode(errors='replace').strip()}")
        made.rename(self._data)

    def _launch(self, account: Account | None) -> None:
        assert self._sockets is not None
        if account:
            account.admit(self._data)
            account.admit_to_binaries(self._version)
        settings = {**DEFAULTS, "cluster_name": self._name, **self._settings}
        settings["unix_socket_directories"] = f'"{self._sockets}"'
        command: list[str | Path] = [binaries(self._version) / "postgres", "-D", self._data]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        if self.log_path.exists() and self.log_path.stat().st_size > LOG_LIMIT:
            self.log_path.replace(self.log_path.with_suffix(".log.1"))
        with self.log_path.open("ab") as log:
            # SIGQUIT: a killed parent is a crash, and the write-ahead log is made for crashes.
            self._process = spawn(command, account, signal.SIGQUIT, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = "\n".join(self.log_path.read_text(errors="replace").splitlines()[-8:])
                raise EmbeddedError(f"PostgreSQL did not start in {self._data}; the end of {self.log_path}:\n{tail}")
            time.sleep(0.01)

    def _ready(self) -> bool:
        # What pg_ctl does: the eighth line of the postmaster's own file tells its state.
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0].strip() == str(self.pid) and lines[7].strip() == "ready"


def _take(path: Path) -> IO[str]:
    lock = path.open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read().strip()
        lock.close()
        raise ClusterInUseError(
            f"{path.parent} is in use by another pgveil (process {holder}): stop it, or set PGVEIL_HOME elsewhere"
        ) from None
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def _socket_directory(wanted: Path, account: Account | None) -> Path:
    """A private directory whose socket path fits in sun_path and in libpq's host lists."""
    _forget_sockets(wanted)
    if len(os.fsencode(wanted / f".s.PGSQL.{PORT}")) <= SOCKET_LIMIT and not set(str(wanted)) & set(',"\\\n'):
        wanted.mkdir(mode=0o700)
        place = wanted
    else:
        runtime = None if account else os.environ.get("XDG_RUNTIME_DIR")
        place = Path(tempfile.mkdtemp(prefix="pgveil-", dir=runtime))
        if len(os.fsencode(place / f".s.PGSQL.{PORT}")) > SOCKET_LIMIT:
            place.rmdir()
            raise EmbeddedError(f"{place.parent} is too long for a Unix socket: set TMPDIR to a shorter path")
        wanted.symlink_to(place)
    if account:
        account.own(place)
        account.admit(place)
    return place


def _forget_sockets(place: Path) -> None:
    if place.is_symlink():
        target = place.readlink()
        place.unlink()
        if target.name.startswith("pgveil-"):
            shutil.rmtree(target, ignore_errors=True)
    elif place.exists():
        shutil.rmtree(place)


@contextmanager
def temporary(settings: Mapping[str, str] = MappingProxyType({}), version: int = LATEST) -> Iterator[Cluster]:
    """A cluster that leaves nothing behind."""
    with (
        tempfile.TemporaryDirectory(prefix="pgveil-") as name,
        Cluster(Path(name), settings=settings, version=version) as cluster,
    ):
        yield cluster


def _utf8_ctype() -> str:
    """A locale under which letters beyond ASCII have cases, where the system has one."""
    before = locale.setlocale(locale.LC_CTYPE)
    for name in ("C.UTF-8", "en_US.UTF-8"):
        try:
            locale.setlocale(locale.LC_CTYPE, name)
        except locale.Error:
            continue
        locale.setlocale(locale.LC_CTYPE, before)
        return name
    return "C"
