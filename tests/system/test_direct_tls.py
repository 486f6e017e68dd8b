"""TLS from the first byte (PostgreSQL 17): by libpq where it can, and by hand where libpq would not."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from proxies import Proxy
from psycopg import pq
from raw_wire import Ended, Wire, cut, startup
from secured import careless_tls

from proxy import messages as m

libpq = pytest.mark.skipif(pq.version() < 170000, reason="libpq before 17 always asks first")


@libpq
def test_libpq_begins_with_tls(secure: Proxy, certificate: tuple[Path, Path], analyst: str) -> None:
    options = {"sslmode": "verify-full", "sslrootcert": str(certificate[0]), "sslnegotiation": "direct"}
    with secure.connect(analyst, host="localhost", hostaddr="127.0.0.1", channel_binding="require", **options) as conn:
        assert conn.pgconn.ssl_in_use
        assert conn.execute("SELECT gender FROM patient_data GROUP BY gender HAVING count(*) > 20000").fetchall()
        assert len(conn.execute("SELECT repeat('x', 1000) FROM generate_series(1, 5000)").fetchall()) == 5000


@contextmanager
def cancelling(conn: psycopg.Connection) -> Iterator[None]:
    """Cancel what the connection does, again and again: a request that comes before its statement is lost."""
    done = threading.Event()

    def insist() -> None:
        while not done.wait(0.3):
            conn.cancel_safe()

    thread = threading.Thread(target=insist)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@libpq
def test_a_cancel_request_may_begin_with_tls(secure: Proxy, analyst: str) -> None:
    with secure.connect(analyst, sslmode="require", sslnegotiation="direct") as conn:
        conn.execute("SET statement_timeout = '60s'")
        with cancelling(conn), pytest.raises(psycopg.errors.QueryCanceled, match="user request"):
            conn.execute("SELECT pg_sleep(100)")


@libpq
def test_a_proxy_without_a_certificate_hangs_up(proxy: Proxy, analyst: str) -> None:
    with pytest.raises(psycopg.OperationalError):
        proxy.connect(analyst, sslmode="require", sslnegotiation="direct")
    with Wire(proxy.port) as wire:
        wire.send(b"\x16\x03\x01\x00\x05hello")
        assert wire.the_rest() == [] and wire.rest == b""


class Slow:
    """A TLS client over a socket, whose every byte may be sent by itself."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing)

    def __enter__(self) -> Slow:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def flush(self, step: int) -> None:
        data = self.outgoing.read()
        for at in range(0, len(data), step):
            self.socket.sendall(data[at : at + step])

    def handshake(self, step: int = 1 << 16) -> None:
        while True:
            try:
                self.tls.do_handshake()
                self.flush(step)
                return
            except ssl.SSLWantReadError:
                self.flush(step)
                self.more()

    def more(self) -> None:
        data = self.socket.recv(1 << 16)
        if not data:
            raise Ended
        self.incoming.write(data)

    def send(self, data: bytes, step: int = 1 << 16) -> None:
        self.tls.write(data)
        self.flush(step)

    def frame(self) -> tuple[int, bytes]:
        data = b""
        while True:
            try:
                piece = self.tls.read(1 << 16)
            except ssl.SSLWantReadError:
                self.more()
                continue
            if not piece:  # the server said goodbye
                raise Ended
            data += piece
            frames, _ = cut(data)
            if frames:
                return frames[0]


@pytest.mark.parametrize("step", [1, 7, 1 << 16])
def test_bytes_may_come_in_pieces(secure: Proxy, analyst: str, step: int) -> None:
    with Slow(secure.port, careless_tls()) as client:
        client.handshake(step)
        assert client.tls.selected_alpn_protocol() == "postgresql"
        client.send(startup(analyst, secure.database), step)
        assert client.frame() == (
            m.AUTHENTICATION,
            m.encode_authentication_sasl(["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"]),
        )


@pytest.mark.parametrize("named", [None, "http/1.1"])
def test_who_does_not_name_the_protocol_is_hung_up_on(secure: Proxy, analyst: str, named: str | None) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if named is not None:
        context.set_alpn_protocols([named])
    with Slow(secure.port, context) as client, pytest.raises((Ended, OSError)):
        client.handshake()
        client.send(startup(analyst, secure.database))
        client.frame()


def test_a_client_that_asked_first_need_not_name_the_protocol(secure: Proxy, analyst: str) -> None:
    """libpq before 17 sends no ALPN."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with Slow(secure.port, context) as client:
        client.socket.sendall(m.encode_ssl_request())
        assert client.socket.recv(1) == b"S"
        client.handshake()
        client.send(startup(analyst, secure.database))
        assert client.frame()[0] == m.AUTHENTICATION


def test_plain_bytes_behind_the_handshake_are_not_read(secure: Proxy, analyst: str) -> None:
    """Neither right behind the ClientHello nor behind the handshake."""
    for early in (True, False):
        with Slow(secure.port, careless_tls()) as client:
            if early:
                with pytest.raises(ssl.SSLWantReadError):
                    client.tls.do_handshake()
                client.socket.sendall(client.outgoing.read() + startup(analyst, secure.database))
            else:
                client.handshake()
                client.socket.sendall(startup(analyst, secure.database))
            said = b""
            try:
                while data := client.socket.recv(1 << 16):
                    said += data
            except ConnectionResetError:
                pass
            assert b"SCRAM" not in said
    with secure.connect(analyst, sslmode="require") as conn:
        assert conn.execute("SELECT 1").fetchone() == (1,)


def test_tls_cannot_begin_behind_a_refused_request(secure: Proxy) -> None:
    with Wire(secure.port) as wire:
        wire.send(m.encode_gssenc_request())
        assert wire.socket.recv(1) == b"N"
        wire.send(b"\x16\x03\x01\x02\x00\x01")
        ((kind, frame),) = wire.the_rest()
        assert kind == m.ERROR_RESPONSE and m.decode_fields(frame)["C"] == "08P01"


def test_tls_inside_tls_is_refused(secure: Proxy) -> None:
    with Slow(secure.port, careless_tls()) as client:
        client.handshake()
        client.send(b"\x16\x03\x01\x02\x00\x01")
        kind, frame = client.frame()
        assert kind == m.ERROR_RESPONSE and m.decode_fields(frame)["C"] == "08P01"


# -- protocol 3.2 -----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(pq.version() < 180000, reason="libpq before 18 speaks protocol 3.0 only")
@pytest.mark.parametrize("options", [{"min_protocol_version": "3.2"}, {"max_protocol_version": "latest"}])
@pytest.mark.parametrize("mode", ["disable", "require"])
def test_libpq_speaks_3_2_and_cancels_with_a_long_key(
    secure: Proxy, analyst: str, options: dict[str, str], mode: str
) -> None:
    options = {"max_protocol_version": "latest", **options}
    with secure.connect(analyst, sslmode=mode, **options) as conn:
        conn.execute("SET statement_timeout = '60s'")
        with cancelling(conn), pytest.raises(psycopg.errors.QueryCanceled, match="user request"):
            conn.execute("SELECT pg_sleep(100)")


@pytest.mark.parametrize(("minor", "length"), [(0, 4), (2, 32)])
def test_the_key_is_as_long_as_the_version_allows(secure: Proxy, analyst: str, minor: int, length: int) -> None:
    with Wire(secure.port) as wire:
        wire.login(analyst, secure.database, minor=minor)  # type: ignore[arg-type]
        assert len(wire.key) == length
