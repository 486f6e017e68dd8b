"""Starts the agents and asks them."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matrix import SQL, Client
from proxies import Proxy


@dataclass(frozen=True)
class Unsupported:
    """The client has no means for a check."""

    reason: str


class Failed(Exception):  # noqa: N818 - it is what the client said, not what we say
    """The client reported an error."""

    def __init__(self, text: str, sqlstate: str | None) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


class Agent:
    """A client that runs in a process of its own and does one check after the other."""

    def __init__(self, client: Client, errors: Path) -> None:
        self.client = client
        self.errors = errors
        with errors.open("w") as said:
            self.process = subprocess.Popen(
                client.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                env={**os.environ, **client.environment, "PYTHONDONTWRITEBYTECODE": "1"},
            )
        self._replies: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self.version = str(self.ask("version"))

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stdout:
            for line in stdout:
                self._replies.put(line)
        self._replies.put("")

    def begin(self, check: str, **request: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"check": check, **SQL, **request}) + "\n")
        self.process.stdin.flush()

    def end(self, seconds: float = 120.0) -> Any:
        """What came of the check; ``Failed`` if the client met an error."""
        try:
            line = self._replies.get(timeout=seconds)
        except queue.Empty:
            raise AssertionError(f"{self.client.name} says nothing:\n{self.errors.read_text()}") from None
        if not line:
            raise AssertionError(f"{self.client.name} ended {self.process.wait(10)}:\n{self.errors.read_text()}")
        reply = json.loads(line)
        if "unsupported" in reply:
            return Unsupported(reply["unsupported"])
        if "error" in reply:
            raise Failed(reply["error"], reply["state"])
        return reply["value"]

    def ask(self, check: str, **request: str) -> Any:
        self.begin(check, **request)
        return self.end()

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5)


def place(proxy: Proxy, user: str, ca: Path | None = None, **more: str) -> dict[str, str]:
    """How a client gets in; the password is the name unless told otherwise."""
    who = {"user": user, "password": user, "database": proxy.database}
    return {"host": "localhost" if ca else "127.0.0.1", "port": str(proxy.port), **who, "ca": str(ca or ""), **more}
