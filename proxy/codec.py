"""Bytes into frames: where one message ends and the next begins, and nothing about what is inside.

``Frames`` splits the typed messages of either direction, ``StartupReader`` the untyped packets with which a connection
opens. Both take the bytes as they come, cut anywhere, and check a length as soon as they have it, so that
nobody can make us wait for a message that we would refuse.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from proxy import messages as m
from proxy.errors import ProtocolViolation, UndecodableText, UnsupportedProtocol

_length_at = struct.Struct(">I").unpack_from

STARTUP_LIMIT: Final = 10_000  # MAX_STARTUP_PACKET_LENGTH
SMALL_LIMIT: Final = 10_000  # PQ_SMALL_MESSAGE_LIMIT: messages of names and numbers
LARGE_LIMIT: Final = 0x3FFFFFFF  # PQ_LARGE_MESSAGE_LIMIT: PostgreSQL's own largest allocation
SASL_LIMIT: Final = 2_048  # a SCRAM message is at most 1,024 bytes long there, plus the mechanism's name

EMPTY_LIMIT: Final = 4  # the length word alone

TLS_HANDSHAKE: Final = b"\x16"
"""How a client begins that speaks TLS without asking (PostgreSQL 17); no packet is long enough to begin like this."""

FRONTEND_LIMITS: Final[Mapping[int, int]] = (
    dict.fromkeys(m.FRONTEND_NAMES, SMALL_LIMIT)
    | dict.fromkeys((m.QUERY, m.PARSE, m.BIND, m.FUNCTION_CALL, m.COPY_DATA), LARGE_LIMIT)
    # Checked here because a Flush has no answer of its own: PostgreSQL's complaint about a body would find nobody
    # waiting, and every later answer would be taken for another.
    | dict.fromkeys((m.SYNC, m.FLUSH, m.COPY_DONE, m.TERMINATE), EMPTY_LIMIT)
)
"""What a client may send once it is known."""

LOGIN_LIMITS: Final[Mapping[int, int]] = {m.PASSWORD: SASL_LIMIT, m.TERMINATE: EMPTY_LIMIT}
"""What a client may send before it is known: a second StartupMessage, for one, ends here."""


class Frames:
    """A byte stream as (type byte, whole frame) pairs.

    ``limit`` bounds the length word of every message. With ``limits`` a type that is not in it is refused, and one
    that is has its own bound besides. Both may be changed between two calls of ``feed``.
    """

    __slots__ = ("_need", "limit", "limits", "rest")

    def __init__(self, limit: int, limits: Mapping[int, int] | None = None) -> None:
        self.limit = limit
        self.limits = limits
        self.rest = bytearray()  # grows in place: a large message in many pieces costs linear time
        self._need = 0  # how long ``rest`` must be before it is worth another look

    @property
    def pending(self) -> int:
        """Bytes of an unfinished message."""
        return len(self.rest)

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The messages that these bytes complete."""
        rest = self.rest
        if rest:
            rest += data
            if len(rest) < self._need:
                return []
            data = bytes(rest)
            rest.clear()
        frames: list[tuple[int, bytes]] = []
        start = 0
        end = len(data)
        while end - start >= 5:
            kind = data[start]
            (length,) = _length_at(data, start + 1)
            if length > self.limit or length < 4:
                raise self._bad_length(kind, length)
            if self.limits is not None and length > self.limits.get(kind, 0):
                raise self._bad_length(kind, length)
            stop = start + length + 1
            if stop > end:
                rest += data[start:] if start else data
                self._need = length + 1
                return frames
            frames.append((kind, data[start:stop]))  # a whole ``bytes`` sliced in full is not copied
            start = stop
        if start < end:
            rest += data[start:] if start else data
            self._need = 5
        return frames

    def _bad_length(self, kind: int, length: int) -> ProtocolViolation:
        if self.limits is not None and kind not in self.limits:
            return ProtocolViolation(f"unexpected message type 0x{kind:02X}")
        return ProtocolViolation("invalid message length", detail=f"Message type 0x{kind:02X}, length {length}.")


@dataclass(frozen=True, slots=True)
class SSLRequest:
    """May we speak TLS?"""


@dataclass(frozen=True, slots=True)
class GSSENCRequest:
    """May we speak GSSAPI encryption?"""


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Stop what the session with this number and secret is doing."""

    pid: int
    key: bytes


@dataclass(frozen=True, slots=True)
class StartupMessage:
    """Who the client is and what it wants."""

    major: int
    minor: int
    parameters: Mapping[str, str]

    @property
    def unknown_options(self) -> tuple[str, ...]:
        """Protocol extensions that the client asks for; we know none."""
        return tuple(name for name in self.parameters if name.startswith("_pq_."))


Startup: TypeAlias = SSLRequest | GSSENCRequest | CancelRequest | StartupMessage


class StartupReader:
    """The untyped packets at the start of a connection, one at a time.

    ``feed`` returns the next whole packet or ``None``; ``feed(b"")`` looks again at what is left. ``leftover`` is what
    came behind the packet: behind a StartupMessage it belongs to ``Frames``; behind an SSLRequest it was sent before
    TLS, perhaps by somebody in between, and the connection must end (CVE-2021-23214, CVE-2021-23222):
    ``refuse_leftover``.
    """

    __slots__ = ("_asked", "_rest", "limit")

    def __init__(self, limit: int = STARTUP_LIMIT) -> None:
        self.limit = limit
        self._rest = b""
        self._asked: set[int] = set()

    @property
    def leftover(self) -> bytes:
        """Bytes that arrived and are not yet part of a packet."""
        return self._rest

    @property
    def untouched(self) -> bool:
        """Whether nothing has come yet: then the first byte tells a TLS handshake from a packet."""
        return not self._rest and not self._asked

    def refuse_leftover(self) -> None:
        """To be called before the answer to an encryption request."""
        if self._rest:
            raise ProtocolViolation(
                "received unencrypted data after an encryption request",
                detail="This is a bug of the client or the mark of an attempted man-in-the-middle attack.",
            )

    def feed(self, data: bytes) -> Startup | None:
        """The next packet, if it is whole."""
        self._rest += data
        if len(self._rest) < 4:
            return None
        (length,) = _length_at(self._rest)
        if not 8 <= length <= self.limit:
            raise ProtocolViolation("invalid length of startup packet")
        if len(self._rest) < length:
            return None
        packet, self._rest = self._rest[:length], self._rest[length:]
        return self._decode(packet)

    def _decode(self, packet: bytes) -> Startup:
        (code,) = _length_at(packet, 4)
        if code in (m.SSL_CODE, m.GSSENC_CODE):
            if len(packet) != 8 or code in self._asked:
                raise ProtocolViolation("invalid encryption request")
            self._asked.add(code)
            return SSLRequest() if code == m.SSL_CODE else GSSENCRequest()
        if code == m.CANCEL_CODE:
            if not 4 <= len(packet) - 12 <= 256:
                raise ProtocolViolation("invalid length of cancel request")
            (pid,) = _length_at(packet, 8)
            return CancelRequest(pid, packet[12:])
        major, minor = code >> 16, code & 0xFFFF
        if major != 3:
            raise UnsupportedProtocol(
                f"unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.{m.LATEST_MINOR}"
            )
        return StartupMessage(major, minor, _parameters(packet))


def _parameters(packet: bytes) -> dict[str, str]:
    if packet[8:] == b"\0":
        return {}
    if packet[-2:] != b"\0\0" or len(packet) < 11:
        raise ProtocolViolation("invalid startup packet layout: expected terminator as last byte")
    try:
        words = packet[8:-2].decode("utf-8").split("\0")
    except UnicodeDecodeError:
        raise UndecodableText("a startup parameter is not valid UTF-8") from None
    if len(words) % 2 or "" in words[::2]:
        raise ProtocolViolation("invalid startup packet layout: a parameter lacks its name or its value")
    return dict(zip(words[::2], words[1::2], strict=True))
