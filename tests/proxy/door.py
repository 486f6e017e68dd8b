"""A server that only logs clients in, for libpq itself as the client."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
from psycopg.conninfo import make_conninfo

from mechanisms.errors import Refusal
from proxy import messages as m
from proxy.auth import ScramExchange, new_cancel_key
from proxy.codec import LOGIN_LIMITS, Frames, SSLRequest, Startup, StartupMessage, StartupReader
from proxy.errors import error_fields

SECRET = b"m" * 32


@dataclass
class Door:
    """A server that knows how to log one client in, and nothing else."""

    verifier: str | None
    tls: ssl.SSLContext | None = None
    binding: bytes | None = None
    port: int = 0
    chosen: str | None = None
    packets: list[Startup] = field(default_factory=list)
    problem: BaseException | None = None

    def serve(self, listener: socket.socket) -> None:
        try:
            self._greet(listener.accept()[0])
        except BaseException as error:
            self.problem = error

    def _greet(self, connection: socket.socket) -> None:
        connection.settimeout(60)
        reader = StartupReader()
        while True:
            packet = reader.feed(connection.recv(8192))
            if packet is None:
                continue
            self.packets.append(packet)
            if isinstance(packet, StartupMessage):
                break
            reader.refuse_leftover()
            if isinstance(packet, SSLRequest) and self.tls is not None:
                connection.sendall(b"S")
                connection = self.tls.wrap_socket(connection, server_side=True)
            else:
                connection.sendall(b"N")
        with connection:
            self._login(connection, packet)

    def _login(self, connection: socket.socket, packet: StartupMessage) -> None:
        frames = Frames(10_000, LOGIN_LIMITS)
        minor = min(packet.minor, m.LATEST_MINOR)
        if minor != packet.minor or packet.unknown_options:
            connection.sendall(m.encode_negotiate_protocol_version(minor, packet.unknown_options))
        exchange = ScramExchange(packet.parameters["user"], self.verifier, SECRET, self.binding)
        connection.sendall(m.encode_authentication_sasl(exchange.mechanisms))
        try:
            initial = m.decode_sasl_initial(receive(connection, frames))
            self.chosen = initial.mechanism
            connection.sendall(m.encode_sasl_continue(exchange.first(initial.data, initial.mechanism)))
            final = m.decode_sasl_response(receive(connection, frames))
            connection.sendall(m.encode_sasl_final(exchange.final(final.data)))
        except Refusal as refusal:
            connection.sendall(error_fields(refusal, "FATAL"))
            return
        connection.sendall(
            m.encode_authentication_ok()
            + m.encode_parameter_status("server_version", "18.0")
            + m.encode_parameter_status("client_encoding", "UTF8")
            + m.encode_backend_key_data(7, new_cancel_key(32 if minor >= 2 else 4))
            + m.encode_ready_for_query(m.IDLE)
        )
        assert receive(connection, frames) == m.encode_terminate()


def receive(connection: socket.socket, frames: Frames) -> bytes:
    while True:
        for _, frame in frames.feed(connection.recv(8192)):
            return frame


@contextmanager
def door(verifier: str | None, tls: ssl.SSLContext | None = None, binding: bytes | None = None) -> Iterator[Door]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        served = Door(verifier, tls, binding, listener.getsockname()[1])
        thread = threading.Thread(target=served.serve, args=(listener,))
        thread.start()
        try:
            yield served
        finally:
            thread.join()
    assert served.problem is None


def connect(served: Door, password: str = "wonderland", **options: str) -> psycopg.Connection[tuple[object, ...]]:
    place = {"host": "127.0.0.1", "port": str(served.port), "user": "alice", "dbname": "demo", "password": password}
    settings = {"sslmode": "disable", "gssencmode": "disable", "connect_timeout": "60", **options}
    return psycopg.connect(make_conninfo(**place, **settings))
