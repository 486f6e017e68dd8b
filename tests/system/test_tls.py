"""TLS with a certificate that the test makes: the proxy's own, whatever the shadow speaks."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import psycopg
import pytest
from proxies import Proxy
from raw_wire import Ended, Wire, sqlstates
from secured import make_certificate

from proxy import messages as m


def test_a_careful_client_verifies_the_certificate(secure: Proxy, certificate: tuple[Path, Path], analyst: str) -> None:
    options = {"sslmode": "verify-full", "sslrootcert": str(certificate[0]), "channel_binding": "prefer"}
    for host in ("localhost", "127.0.0.1"):
        with secure.connect(analyst, host=host, hostaddr="127.0.0.1", **options) as conn:
            assert conn.pgconn.ssl_in_use
            assert conn.execute("SELECT gender FROM patient_data GROUP BY gender HAVING count(*) > 20000").fetchall()
            rows = conn.execute("SELECT repeat('x', 1000) FROM generate_series(1, 5000)").fetchall()
            assert len(rows) == 5000


def test_a_certificate_of_another_is_not_believed(secure: Proxy, analyst: str, tmp_path: Path) -> None:
    stranger, _ = make_certificate(tmp_path, "localhost")
    with pytest.raises(psycopg.OperationalError, match="certificate verify failed"):
        secure.connect(analyst, sslmode="verify-full", sslrootcert=str(stranger), host="localhost")


def test_a_client_without_tls_is_served_too(secure: Proxy, analyst: str) -> None:
    with secure.connect(analyst, sslmode="disable") as conn:
        assert not conn.pgconn.ssl_in_use
        assert conn.execute("SELECT 1").fetchone() == (1,)


def test_a_proxy_without_a_certificate_says_no(proxy: Proxy, analyst: str) -> None:
    with pytest.raises(psycopg.OperationalError, match="does not support SSL"):
        proxy.connect(analyst, sslmode="require")
    with proxy.connect(analyst, sslmode="prefer") as conn:
        assert conn.execute("SELECT 1").fetchone() == (1,)


def handshake(proxy: Proxy, least: ssl.TLSVersion, most: ssl.TLSVersion) -> str | None:
    """The version that is agreed upon."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")  # or the client itself would refuse what is old
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        context.minimum_version, context.maximum_version = least, most
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as plain:
        plain.sendall(m.encode_ssl_request())
        assert plain.recv(1) == b"S"
        with context.wrap_socket(plain) as secured:
            return secured.version()


def test_tls_is_1_2_or_later(secure: Proxy) -> None:
    version = ssl.TLSVersion
    assert handshake(secure, version.TLSv1_2, version.TLSv1_2) == "TLSv1.2"
    assert handshake(secure, version.TLSv1_2, version.TLSv1_3) == "TLSv1.3"
    with pytest.raises(ssl.SSLError, match=r"(?i)alert protocol version|EOF occurred"):
        handshake(secure, version.TLSv1_1, version.TLSv1_1)


def test_bytes_before_tls_are_refused(secure: Proxy, analyst: str) -> None:
    """CVE-2021-23214: somebody in between injects a statement before the encryption starts."""
    with Wire(secure.port) as wire:
        wire.send(m.encode_ssl_request() + m.encode_startup({"user": analyst, "database": secure.database}))
        assert sqlstates(wire.the_rest()) == ["08P01"]


def test_a_second_request_for_tls_is_refused(secure: Proxy) -> None:
    with Wire(secure.port) as wire:
        wire.send(m.encode_gssenc_request())
        assert wire.socket.recv(1) == b"N"
        wire.send(m.encode_gssenc_request())
        assert sqlstates(wire.the_rest()) == ["08P01"]


@pytest.mark.parametrize("garbage", [b"\x16\x03\x01\x00\x05hello", b"GET / HTTP/1.0\r\n\r\n", bytes(64)])
def test_a_handshake_of_garbage_ends_the_connection(secure: Proxy, analyst: str, garbage: bytes) -> None:
    with Wire(secure.port) as wire:
        wire.send(m.encode_ssl_request())
        assert wire.socket.recv(1) == b"S"
        wire.send(garbage)
        with pytest.raises(Ended):
            while True:
                wire.more()
    with secure.connect(analyst, sslmode="require") as conn:
        assert conn.execute("SELECT 1").fetchone() == (1,)


def test_a_cancel_request_may_come_encrypted_or_not(secure: Proxy, analyst: str) -> None:
    for mode in ("require", "disable"):
        with secure.connect(analyst, sslmode=mode) as conn:
            over = threading.Event()

            def cancel(conn: psycopg.Connection = conn, over: threading.Event = over) -> None:
                while not over.wait(0.2):  # one that comes before the statement cancels nothing
                    conn.cancel_safe(timeout=60)

            thread = threading.Thread(target=cancel)
            thread.start()
            with pytest.raises(psycopg.errors.QueryCanceled, match="user request"):
                conn.execute("SELECT pg_sleep(120)")
            over.set()
            thread.join()
            assert conn.execute("SELECT 1").fetchone() == (1,)


def test_a_key_without_its_certificate_is_a_mistake_on_the_command_line(
    upstream: str, certificate: tuple[Path, Path]
) -> None:
    command = [sys.executable, "-m", "proxy", "serve", "--upstream", upstream, "--tls-key", str(certificate[1])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=Path(__file__).parents[2])
    assert done.returncode == 2 and "go together" in done.stderr and "Traceback" not in done.stderr
