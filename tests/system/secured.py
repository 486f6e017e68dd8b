"""Certificates, and somebody in between who has another one."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from proxy import messages as m


def make_certificate(folder: Path, *names: str) -> tuple[Path, Path]:
    """A key and a self-signed certificate for these names."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    now = datetime.datetime.now(datetime.UTC)
    others = [x509.DNSName(name) for name in names] + [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(others), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    chain, secret = folder / "cert.pem", folder / "key.pem"
    chain.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    secret.touch(0o600)
    secret.write_bytes(pem)
    return chain, secret


def careless_tls() -> ssl.SSLContext:
    """A client's side that believes every certificate and says that it speaks PostgreSQL's protocol."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["postgresql"])
    return context


@contextmanager
def man_in_the_middle(port: int, certificate: tuple[Path, Path], strip: bool = False) -> Iterator[int]:
    """The port of a relay that speaks TLS on both sides, reads all that passes, and may take back the offer of channel
    binding."""
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(*certificate)
    offered, left = (m.encode_authentication_sasl(names) for names in ((_PLUS, _PLAIN), (_PLAIN,)))

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data.replace(offered, left) if strip else data)
        except OSError:
            pass
        finally:
            writer.close()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(8) == m.encode_ssl_request()
        writer.write(b"S")
        await writer.start_tls(own)
        there, away = await asyncio.open_connection("127.0.0.1", port, ssl=careless_tls())
        await asyncio.gather(pump(reader, away), pump(there, writer))

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(meet, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(_end(server), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


_PLAIN, _PLUS = "SCRAM-SHA-256", "SCRAM-SHA-256-PLUS"


async def _end(server: asyncio.Server) -> None:
    server.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=10)
