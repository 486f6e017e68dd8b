"""A forwarder that writes down what a client sends, and the means to say it again, here or to the shadow itself."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from raw_wire import Frame, Wire, cut

from proxy import messages as m

_PASSWORD, _QUERY, _SYNC, _TERMINATE, _PARSE, _EXECUTE = b"pQSXPE"
_NOT_COMPARED = frozenset((m.PARAMETER_STATUS, m.BACKEND_KEY_DATA, m.NOTICE_RESPONSE))


@dataclass
class Said:
    """What one connection said: the parameters it came with, and every message after it was let in."""

    parameters: dict[str, str] = field(default_factory=dict)
    frames: list[Frame] = field(default_factory=list)
    rest: bytes = b""

    def take(self, data: bytes) -> None:
        self.rest += data
        while not self.parameters and len(self.rest) >= 8:
            size, code = struct.unpack_from(">II", self.rest)
            if len(self.rest) < size:
                return
            body, self.rest = self.rest[8:size], self.rest[size:]
            if code >> 16 == 3:  # and not a request for encryption or a cancel
                words = body.decode().split("\0")
                self.parameters = dict(zip(words[::2], words[1::2], strict=False))
                self.parameters.pop("", None)
        if self.parameters:
            frames, self.rest = cut(self.rest)
            self.frames += [frame for frame in frames if frame[0] not in (_PASSWORD, _TERMINATE)]

    def rounds(self) -> list[list[Frame]]:
        """The messages, cut where the client waits for ReadyForQuery."""
        found: list[list[Frame]] = [[]]
        for frame in self.frames:
            found[-1].append(frame)
            if frame[0] in (_QUERY, _SYNC):
                found.append([])
        return found[:-1]

    def fetches(self) -> int:
        """How often a limited number of rows was asked for: FETCH in SQL, or Execute with a limit."""
        limited = [frame for kind, frame in self.frames if kind == _EXECUTE and frame[-4:] != bytes(4)]
        return len(limited) + sum(text.upper().startswith("FETCH") for text in self.texts())

    def texts(self) -> list[str]:
        """The statements."""
        found = []
        for kind, frame in self.frames:
            if kind == _QUERY:
                found.append(frame[5:-1].decode())
            elif kind == _PARSE:
                found.append(frame[5:].split(b"\0")[1].decode())
        return found


@contextmanager
def recorder(to: int | Path) -> Iterator[tuple[int, list[Said]]]:
    """A port that leads to another one or to a socket in the file system, and what was said there."""
    said: list[Said] = []
    open_sockets: list[socket.socket] = []
    server = socket.create_server(("127.0.0.1", 0))

    def forward(source: socket.socket, target: socket.socket, note: Said | None) -> None:
        try:
            while data := source.recv(1 << 16):
                if note is not None:
                    note.take(data)
                target.sendall(data)
        except OSError:
            pass
        for one in (source, target):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def accept() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            behind = _opened(to)
            open_sockets.extend((client, behind))
            said.append(Said())
            threading.Thread(target=forward, args=(client, behind, said[-1]), daemon=True).start()
            threading.Thread(target=forward, args=(behind, client, None), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield server.getsockname()[1], said
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        for one in open_sockets:
            one.close()


def _opened(to: int | Path) -> socket.socket:
    if isinstance(to, int):
        return socket.create_connection(("127.0.0.1", to))
    found = socket.socket(socket.AF_UNIX)
    found.connect(str(to))
    return found


class Direct(Wire):
    """A connection to the shadow's own socket, where nobody asks for a password."""

    def __init__(self, folder: str, port: str) -> None:
        self.socket = _opened(Path(folder) / f".s.PGSQL.{port}")
        self.rest = b""
        self.frames: list[Frame] = []
        self.pid, self.key, self.reset = 0, b"", False

    def enter(self, parameters: dict[str, str]) -> None:
        self.send(m.encode_startup(parameters))
        self.until(m.READY_FOR_QUERY)


def answers(wire: Wire, said: Said) -> list[list[Frame]]:
    """Say it again, and what is answered to each round, without what belongs to the connection alone."""
    found = []
    for messages in said.rounds():
        wire.send(*(frame for _, frame in messages))
        found.append([frame for frame in wire.until(m.READY_FOR_QUERY) if frame[0] not in _NOT_COMPARED])
    return found
