"""TLS that begins with the client's first byte, on every event loop that pgveil may run on."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from proxy.tls import names_protocol, secure, tls_context

RUNNERS: list[Callable[..., Any]] = [asyncio.run, uvloop.run]


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    folder: Path = tmp_path_factory.mktemp("loops")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(built.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (folder / "key.pem").write_bytes(pem)
    return tls_context(folder / "cert.pem", folder / "key.pem")


class Echo(asyncio.Protocol):
    """Secures a connection from its first byte on, and says back what it reads then."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context
        self.secured: asyncio.Transport | None = None
        self.named: bool | None = None
        self.early = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.plain = transport

    def data_received(self, data: bytes) -> None:
        if self.secured is not None:
            self.secured.write(data)
        elif not hasattr(self, "task"):
            self.plain.pause_reading()  # type: ignore[attr-defined]
            self.task = asyncio.get_running_loop().create_task(self.begin(data))
        else:
            self.early += data

    async def begin(self, hello: bytes) -> None:
        self.secured = await secure(self.plain, self, self.context, hello)  # type: ignore[arg-type]
        self.named = names_protocol(self.secured)
        self.secured.write(self.early)


@pytest.mark.parametrize("run", RUNNERS, ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("named", [True, False])
def test_what_was_read_before_is_not_lost(run: Callable[..., Any], named: bool, context: ssl.SSLContext) -> None:
    async def both() -> tuple[bytes, bool | None]:
        loop = asyncio.get_running_loop()
        served: list[Echo] = []

        def new() -> Echo:
            served.append(Echo(context))
            return served[-1]

        server = await loop.create_server(new, "127.0.0.1", 0)
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        if named:
            client.set_alpn_protocols(["postgresql"])
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        writer.write(b"first words")
        heard = await reader.readexactly(len(b"first words"))
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()
        await served[0].task
        return heard, served[0].named

    assert run(both()) == (b"first words", named)


@pytest.mark.parametrize("run", RUNNERS, ids=["asyncio", "uvloop"])
def test_what_is_no_handshake_ends_in_an_error(run: Callable[..., Any], context: ssl.SSLContext) -> None:
    async def both() -> bytes:
        loop = asyncio.get_running_loop()
        served: list[Echo] = []

        def new() -> Echo:
            served.append(Echo(context))
            return served[-1]

        server = await loop.create_server(new, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
        writer.write(b"\x16\x03\x01\x00\x05hello")
        heard = await reader.read()
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()
        with pytest.raises((ssl.SSLError, OSError)):
            await served[0].task
        return heard

    assert b"hello" not in run(both())
