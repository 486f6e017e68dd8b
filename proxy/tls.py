"""TLS on the client's side: what we speak, and how a connection that has begun in the clear is secured."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Final, cast

ALPN: Final = "postgresql"


def tls_context(cert: Path | str, key: Path | str) -> ssl.SSLContext:
    """TLS 1.2 or later, and no session tickets, as PostgreSQL does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.set_alpn_protocols([ALPN])
    context.load_cert_chain(cert, key)
    return context


async def secure(
    transport: asyncio.Transport, protocol: asyncio.Protocol, context: ssl.SSLContext, hello: bytes = b""
) -> asyncio.Transport:
    """The same connection under TLS; ``hello`` is what was read already of a client that began with it, unasked.

    *Guarantee*: what the client sends in the clear from here on reaches nobody but the TLS layer, which refuses it.
    """
    loop = asyncio.get_running_loop()
    starting = loop.create_task(
        loop.start_tls(transport, protocol, context, server_side=True, ssl_handshake_timeout=10)
    )
    if hello:
        await asyncio.sleep(0)  # start_tls has put its protocol in place, and lets it begin in the next turn
        if not starting.done():
            loop.call_soon(_feed, transport, hello)
    return cast(asyncio.Transport, await starting)  # uvloop's transports are not of that class


def _feed(transport: asyncio.Transport, data: bytes) -> None:
    """Hand a transport's protocol what was read before it was in place."""
    protocol = cast(asyncio.BufferedProtocol, transport.get_protocol())
    while data and not transport.is_closing():
        room = memoryview(protocol.get_buffer(len(data)))
        count = min(len(room), len(data))
        room[:count] = data[:count]
        protocol.buffer_updated(count)
        data = data[count:]


def names_protocol(transport: asyncio.Transport) -> bool:
    """Whether the client said, inside TLS, that it speaks PostgreSQL's protocol.

    Who begins with TLS must: else a browser could be led here to say something (the ALPACA attack).
    """
    agreed: str | None = transport.get_extra_info("ssl_object").selected_alpn_protocol()
    return agreed == ALPN
