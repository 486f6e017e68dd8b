"""A client that sends whatever bytes it is told to, and cuts what comes back into frames by itself."""

from __future__ import annotations

import socket
import struct
from typing import Self

from scramp import ScramClient

from proxy import messages as m

BACKEND = frozenset(b"RKSZv123nstTDCIENAVGHWcd")
"""Every type that a server may send."""

Frame = tuple[int, bytes]

PATIENCE = 60.0
"""Seconds for what must come, however busy the machine is."""


class Ended(Exception):  # noqa: N818 - an event, not a fault
    """The server closed the connection."""


def cut(data: bytes) -> tuple[list[Frame], bytes]:
    """Whole frames, and the bytes of one that is not whole."""
    found: list[Frame] = []
    at = 0
    while len(data) - at >= 5:
        stop = at + 1 + struct.unpack_from(">I", data, at + 1)[0]
        if stop > len(data):
            break
        found.append((data[at], data[at:stop]))
        at = stop
    return found, data[at:]


def startup(user: str, database: str, minor: int = 0, **more: str) -> bytes:
    return m.encode_startup({"user": user, "database": database, **more}, minor)


class Wire:
    """One connection."""

    def __init__(self, port: int, timeout: float = PATIENCE) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = b""
        self.frames: list[Frame] = []
        self.pid, self.key = 0, b""
        self.reset = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, *data: bytes) -> None:
        try:
            self.socket.sendall(b"".join(data))
        except OSError:
            self.reset = True  # what the server said before it hung up may still be read

    def more(self, timeout: float | None = None) -> None:
        """Wait for bytes; ``TimeoutError`` if none come, ``Ended`` at the end."""
        self.socket.settimeout(PATIENCE if timeout is None else timeout)
        try:
            data = self.socket.recv(1 << 16)
        except (ConnectionResetError, BrokenPipeError):
            self.reset = True
            raise Ended from None
        if not data:
            raise Ended
        found, self.rest = cut(self.rest + data)
        self.frames += found

    def frame(self, timeout: float | None = None) -> Frame:
        """The next frame."""
        while not self.frames:
            self.more(timeout)
        return self.frames.pop(0)

    def until(self, kind: int, timeout: float | None = None) -> list[Frame]:
        """Frames up to one of that type."""
        found: list[Frame] = []
        try:
            while not found or found[-1][0] != kind:
                found.append(self.frame(timeout))
        except Ended:
            raise Ended(*errors(found)) from None
        return found

    def the_rest(self, timeout: float | None = None) -> list[Frame]:
        """Frames up to the end of the connection."""
        found = []
        try:
            while True:
                found.append(self.frame(timeout))
        except Ended:
            return found

    def query(self, text: str) -> list[Frame]:
        """A simple query and its answer."""
        self.send(m.encode_query(text))
        return self.until(m.READY_FOR_QUERY)

    def begin_login(self, user: str, database: str, password: str | None = None, **more: str) -> ScramClient:
        """Up to the server's challenge, which ``answer_challenge`` answers."""
        scram = ScramClient(["SCRAM-SHA-256"], user, password or user)
        self.send(startup(user, database, **more))
        self.until(m.AUTHENTICATION)
        self.send(m.encode_sasl_initial("SCRAM-SHA-256", scram.get_client_first().encode()))
        kind, frame = self.frame()
        assert kind == m.AUTHENTICATION, errors([(kind, frame)])
        scram.set_server_first(frame[9:].decode())
        return scram

    def login(self, user: str, database: str, password: str | None = None, **more: str) -> Self:
        """All the way to ReadyForQuery."""
        scram = self.begin_login(user, database, password, **more)
        self.send(m.encode_sasl_response(scram.get_client_final().encode()))
        for kind, frame in self.until(m.READY_FOR_QUERY):
            assert kind != m.ERROR_RESPONSE, errors([(kind, frame)])
            if kind == m.BACKEND_KEY_DATA:
                self.pid, self.key = m.decode_backend_key_data(frame)
        return self


def errors(frames: list[Frame]) -> list[dict[str, str]]:
    """The fields of the ErrorResponses among them."""
    return [m.decode_fields(frame) for kind, frame in frames if kind == m.ERROR_RESPONSE]


def sqlstates(frames: list[Frame]) -> list[str]:
    return [fields["C"] for fields in errors(frames)]
