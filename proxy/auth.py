"""Who is there: SCRAM-SHA-256 on both sides, with channel binding on the server's, and cancel keys.

The cryptography is scramp's. Two things about PostgreSQL's dialect are handled here: the user name inside the SCRAM
message is ignored (libpq leaves it empty, which scramp would refuse; the StartupMessage's name counts), and
somebody who does not exist is led through the same exchange against a made-up verifier.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from typing import Any, Final

from scramp import ScramClient, ScramException, ScramMechanism
from scramp.core import ServerError

from proxy.binding import TYPE
from proxy.errors import AuthenticationFailed, InvalidAuthorization, ProtocolViolation

MECHANISM: Final = "SCRAM-SHA-256"
PLUS: Final = f"{MECHANISM}-PLUS"  # with channel binding
ITERATIONS: Final = 4096  # PostgreSQL's own default; a mock verifier must look like the usual one
_VERIFIER: Final = re.compile(r"SCRAM-SHA-256\$(\d{1,8}):([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+):([A-Za-z0-9+/=]+)")


@dataclass(frozen=True, slots=True, repr=False)
class Verifier:
    """What is stored of a password: enough to check a proof, not enough to make one."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes


def parse_verifier(text: str) -> Verifier | None:
    """Read ``SCRAM-SHA-256$4096:salt$stored:server``; ``None`` if it is nothing that can be checked against."""
    found = _VERIFIER.fullmatch(text)
    if found is None:
        return None
    try:
        salt, stored, server = (base64.b64decode(part, validate=True) for part in found.groups()[1:])
    except binascii.Error:
        return None
    iterations = int(found[1])
    if not ITERATIONS <= iterations <= 10_000_000 or len(salt) < 12 or len(stored) != 32 or len(server) != 32:
        return None  # scramp's own bounds
    return Verifier(iterations, salt, stored, server)


def mock_verifier(user: str, mock_secret: bytes) -> str:
    """A verifier that nobody has a password for, always the same for one name."""
    name = user.encode("utf-8", "surrogateescape")
    salt, stored, server = (
        base64.b64encode(hmac.digest(mock_secret, label + name, hashlib.sha256)[:size]).decode()
        for label, size in ((b"salt\0", 16), (b"stored\0", 32), (b"server\0", 32))
    )
    return f"{MECHANISM}${ITERATIONS}:{salt}${stored}:{server}"


class ScramExchange:
    """The server's side of one login.

    *Guarantee*: for an unknown or inactive user (``verifier`` is ``None``) the messages have the same form, the salt
    is as stable, and the work is the same as for a wrong password: the mock verifier is made in either case.
    """

    def __init__(self, user: str, verifier: str | None, mock_secret: bytes, binding: bytes | None = None) -> None:
        mock = mock_verifier(user, mock_secret)
        known = parse_verifier(mock if verifier is None else verifier)
        self._doomed = verifier is None or known is None
        if known is None:
            known = parse_verifier(mock)
            assert known is not None
        self._keys = (known.salt, known.stored_key, known.server_key, known.iterations)
        self._user = user
        self._binding = binding
        self._server: Any = None
        self.mechanisms = (MECHANISM,) if binding is None else (PLUS, MECHANISM)

    def first(self, data: bytes | None, mechanism: str = MECHANISM) -> bytes:
        """Client-first in, server-first out."""
        if mechanism not in self.mechanisms:
            raise ProtocolViolation("client selected an invalid SASL authentication mechanism")
        if self._server is not None:
            raise ProtocolViolation("malformed SCRAM message", detail="The exchange has begun already.")
        if data is None:
            raise ProtocolViolation("malformed SCRAM message", detail="The client's first message is missing.")
        message = _text(data)
        header, comma, bare = _split_header(message)
        self._check_flag(header.partition(",")[0], mechanism)
        name, _, rest = bare.partition(",")
        if not name.startswith("n="):
            raise ProtocolViolation("malformed SCRAM message", detail="The user name attribute is missing.")
        bound = (TYPE, self._binding) if mechanism == PLUS else None
        self._server = ScramMechanism(mechanism).make_server(lambda _: self._keys, bound)
        try:
            self._server.set_client_first(f"{header}{comma}n=*,{rest}")
            self._server.client_first_bare = bare  # the proof is over what the client really sent
            answer: str = self._server.get_server_first()
        except ScramException as error:
            raise _malformed(error) from None
        return answer.encode()

    def _check_flag(self, flag: str, mechanism: str) -> None:
        """What the client says of channel binding must fit what it chose and what it was offered.

        *Guarantee*: a client that could bind and was made to believe that we cannot (``y``) is not let in.
        """
        if flag.startswith("p"):
            if mechanism != PLUS:
                raise ProtocolViolation(
                    "malformed SCRAM message",
                    detail=f"The client selected {MECHANISM} without channel binding, "
                    "but the SCRAM message includes channel binding data.",
                )
            if flag != f"p={TYPE}":
                raise ProtocolViolation(f'unsupported SCRAM channel-binding type "{flag[2:]}"')
        elif mechanism == PLUS:
            raise ProtocolViolation(
                "malformed SCRAM message",
                detail=f"The client selected {PLUS}, but the SCRAM message does not include channel binding data.",
            )
        elif flag == "y" and PLUS in self.mechanisms:
            raise InvalidAuthorization(
                "SCRAM channel binding negotiation error",
                detail="The client supports SCRAM channel binding but thinks the server does not. "
                "However, this server does support channel binding.",
            )

    def final(self, data: bytes) -> bytes:
        """Client-final in, server-final out: the user is who it says."""
        if self._server is None:
            raise ProtocolViolation("malformed SCRAM message", detail="The client's first message is missing.")
        try:
            self._server.set_client_final(_text(data))
            answer: str = self._server.get_server_final()
        except ScramException as error:
            if error.server_error is ServerError.INVALID_PROOF:
                raise self._failed() from None
            if error.server_error is ServerError.CHANNEL_BINDINGS_DONT_MATCH and self._server.m.name == PLUS:
                raise InvalidAuthorization("SCRAM channel binding check failed") from None
            raise _malformed(error) from None
        if self._doomed:
            raise self._failed()
        return answer.encode()

    def _failed(self) -> AuthenticationFailed:
        return AuthenticationFailed(f'password authentication failed for user "{self._user}"')


def _split_header(message: str) -> tuple[str, str, str]:
    """The gs2 header (flag and authorisation name), the comma behind it, and the bare message."""
    flag, first, behind = message.partition(",")
    name, second, bare = behind.partition(",")
    if not second:
        raise ProtocolViolation("malformed SCRAM message", detail="The header is not whole.")
    return f"{flag}{first}{name}", second, bare


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ProtocolViolation("malformed SCRAM message", detail="It is not valid UTF-8.") from None


def _malformed(error: ScramException) -> ProtocolViolation:
    reason = error.server_error.value if error.server_error is not None else "other-error"
    return ProtocolViolation("malformed SCRAM message", detail=f"The reason is {reason}.")


class ScramLogin:
    """The client's side, for our own login at a PostgreSQL that asks for SCRAM."""

    def __init__(self, user: str, password: str) -> None:
        try:
            self._client: Any = ScramClient([MECHANISM], user, password)
        except ScramException as error:
            raise _not_logged_in(error) from None

    def first(self) -> bytes:
        """Client-first."""
        message: str = self._client.get_client_first()
        return message.encode()

    def final(self, server_first: bytes) -> bytes:
        """Server-first in, client-final out."""
        try:
            self._client.set_server_first(server_first.decode())
            message: str = self._client.get_client_final()
        except (ScramException, UnicodeDecodeError) as error:
            raise _not_logged_in(error) from None
        return message.encode()

    def finish(self, server_final: bytes) -> None:
        """Server-final in: the server knows the password too."""
        try:
            self._client.set_server_final(server_final.decode())
        except (ScramException, UnicodeDecodeError) as error:
            raise _not_logged_in(error) from None


def _not_logged_in(error: Exception) -> ConnectionError:
    return ConnectionError(f"SCRAM login failed: {error}")


def new_cancel_key(length: int) -> bytes:
    """A secret for BackendKeyData: 4 bytes before protocol 3.2, up to 256 from there."""
    return secrets.token_bytes(length)
