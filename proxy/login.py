"""Logging in at a PostgreSQL as one of its clients, and cancelling there."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from psycopg.conninfo import conninfo_to_dict

from proxy import messages as m
from proxy.auth import MECHANISM, ScramLogin
from proxy.codec import Frames
from proxy.link import Link, LinkLost, Listener, ShadowError

_LIMIT = 1 << 30
_TIMEOUT = 20.0


@dataclass(frozen=True, slots=True)
class Target:
    """Where a PostgreSQL listens."""

    host: str
    port: int
    sslmode: str = "disable"
    sslrootcert: str | None = None

    @classmethod
    def from_dsn(cls, dsn: str) -> Target:
        parts = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
        host = parts.get("host", "/var/run/postgresql").split(",")[0]
        port = int(parts.get("port", "5432").split(",")[0])
        mode = "disable" if host.startswith("/") else parts.get("sslmode", "prefer")
        return cls(host, port, mode, parts.get("sslrootcert"))

    @property
    def socket_path(self) -> str | None:
        return f"{self.host}/.s.PGSQL.{self.port}" if self.host.startswith("/") else None


@dataclass(frozen=True, slots=True)
class Greeting:
    """What the server said at login: its parameters as they were sent, and how to cancel there."""

    parameters: bytes
    pid: int
    key: bytes


async def connect(
    target: Target, listener: Listener, *, user: str, database: str, password: str, parameters: Mapping[str, str]
) -> tuple[Link, Greeting]:
    """A logged-in link; a native refusal (unknown database, bad option) is raised as ``ShadowError``."""
    async with asyncio.timeout(_TIMEOUT):
        link = await _open(target, listener)
        try:
            return link, await _login(link, user, database, password, parameters)
        except BaseException:
            if link.transport is not None:
                link.transport.abort()
            raise


async def _open(target: Target, listener: Listener) -> Link:
    loop = asyncio.get_running_loop()
    if target.socket_path is not None:
        _, link = await loop.create_unix_connection(lambda: Link(listener), target.socket_path)
        return link
    transport, link = await loop.create_connection(lambda: Link(listener), target.host, target.port)
    if target.sslmode in ("disable", "allow"):
        return link
    transport.write(m.encode_ssl_request())
    reply = await _chunk(link)
    if reply == b"S":
        secured = await loop.start_tls(transport, link, _client_tls(target), server_hostname=target.host)
        assert secured is not None
        link.transport = secured
    elif target.sslmode != "prefer":
        transport.abort()
        raise ConnectionError(f"sslmode={target.sslmode}, but the server at {target.host} offers no TLS")
    return link


def _client_tls(target: Target) -> ssl.SSLContext:
    """libpq's meaning of sslmode: only verify-ca and verify-full look at the certificate."""
    context = ssl.create_default_context(cafile=target.sslrootcert)
    context.check_hostname = target.sslmode == "verify-full"
    if target.sslmode not in ("verify-ca", "verify-full"):
        context.verify_mode = ssl.CERT_NONE
    return context


async def _chunk(link: Link) -> bytes:
    assert link.capture is not None
    data = await link.capture.get()
    if not data:
        raise LinkLost
    return data


async def _login(link: Link, user: str, database: str, password: str, parameters: Mapping[str, str]) -> Greeting:
    link.write(m.encode_startup({"user": user, "database": database, **parameters}))
    frames = Frames(_LIMIT)
    scram = ScramLogin(user, password)
    told = b""
    pid, key = 0, b""
    while True:
        for kind, frame in frames.feed(await _chunk(link)):
            match kind:
                case m.AUTHENTICATION:
                    reply = _authenticate(scram, frame, password)
                    if reply:
                        link.write(reply)
                case m.PARAMETER_STATUS:
                    told += frame
                    link.note_parameter(frame)
                case m.BACKEND_KEY_DATA:
                    pid, key = m.decode_backend_key_data(frame)
                case m.ERROR_RESPONSE:
                    raise ShadowError(frame)
                case m.READY_FOR_QUERY:
                    link.capture = None
                    return Greeting(told, pid, key)
                case _:
                    told += frame if kind == m.NOTICE_RESPONSE else b""


def _authenticate(scram: ScramLogin, frame: bytes, password: str) -> bytes | None:
    asked = m.decode_authentication(frame)
    match asked.code:
        case m.AUTH_OK:
            return None
        case m.AUTH_CLEARTEXT:
            return m.encode_password(password.encode())
        case m.AUTH_SASL:
            return m.encode_sasl_initial(MECHANISM, scram.first())
        case m.AUTH_SASL_CONTINUE:
            return m.encode_sasl_response(scram.final(asked.data))
        case m.AUTH_SASL_FINAL:
            scram.finish(asked.data)
            return None
        case _:
            raise ConnectionError(f"the server asks for authentication method {asked.code}; pgveil knows {MECHANISM}")


async def cancel(target: Target, greeting: Greeting) -> None:
    """Ask the server to cancel what that link is running."""
    async with asyncio.timeout(_TIMEOUT):
        if target.socket_path is not None:
            reader, writer = await asyncio.open_unix_connection(target.socket_path)
        else:
            reader, writer = await asyncio.open_connection(target.host, target.port)
        try:
            writer.write(m.encode_cancel(greeting.pid, greeting.key))
            await reader.read()  # the server hangs up when the signal is on its way
        finally:
            writer.close()
