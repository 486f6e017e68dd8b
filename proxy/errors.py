"""Refusals of the wire, and the one place where a refusal becomes bytes.

Refusal (mechanisms.errors)
├── ProtocolViolation        08P01   bytes that are no PostgreSQL message, or come at the wrong time
│   ├── UnsupportedProtocol  0A000   a protocol version that nobody speaks any more
│   └── UndecodableText      08P01   a statement that is not UTF-8
├── AuthenticationFailed     28P01   wrong password or unknown user: nobody can tell which
├── InvalidAuthorization     28000   no user name, or one that may not connect like this
├── NoSuchDatabase           3D000   the proxy serves one database
├── TooManyConnections       53300
├── QueryCancelled           57014
├── AdminShutdown            57P01
├── DatabaseUnreachable      58000   provenance or shadow do not answer: nothing was read, nothing was charged
├── ProtectedDatabaseUnusable 58000  it cannot be reached, or the question cannot run there: nothing was charged
├── ConstantNotRead          22P02   a constant is no value of the type that it is compared with: nothing was charged
├── ProtectedDatabaseFailed  58000   fixed text: nothing of the database's own message passes
│   └── MeasurementFailed    58000   the same to the analyst; recorded as a security incident
├── DeadlineExceeded         57014   the time limit of every question; charged
└── Incident                 XX000   our bug: a number for the client, the stack for the log
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import struct
import traceback

from mechanisms.errors import Refusal

log = logging.getLogger("pgveil")

_TEXT_LIMIT = 8_000  # libpq refuses an ErrorResponse of more than 30,000 bytes while it logs in
_DETAIL_LIMIT = 1_000_000  # a notice's detail is JSON, and cutting it would spoil it


class ProtocolViolation(Refusal):
    """The client sent what the protocol does not allow; the connection ends."""

    sqlstate = "08P01"


class UnsupportedProtocol(ProtocolViolation):
    """The client asks for another major version of the protocol."""

    sqlstate = "0A000"


class UndecodableText(ProtocolViolation):
    """The message is whole, but its text is not UTF-8."""


class AuthenticationFailed(Refusal):
    """The proof does not fit, or there is nobody whom it could fit."""

    sqlstate = "28P01"


class InvalidAuthorization(Refusal):
    """The session cannot even be tried."""

    sqlstate = "28000"


class NoSuchDatabase(Refusal):
    """The proxy serves one database, and this is not its name."""

    sqlstate = "3D000"


class TooManyConnections(Refusal):
    """The proxy or the shadow has no room for another session."""

    sqlstate = "53300"


class QueryCancelled(Refusal):
    """The statement was cancelled; what it was charged stays charged."""

    sqlstate = "57014"

    def __init__(self, message: str = "canceling statement due to user request", *, detail: str | None = None) -> None:
        super().__init__(message, detail=detail)


class AdminShutdown(Refusal):
    """The proxy is going down."""

    sqlstate = "57P01"

    def __init__(self) -> None:
        super().__init__("terminating connection due to administrator command")


class DatabaseUnreachable(Refusal):
    """One of pgveil's own databases does not answer, so that nobody can be let in."""

    sqlstate = "58000"

    def __init__(self) -> None:
        super().__init__(
            "pgveil cannot reach one of its databases",
            hint="Try again in a moment; if it lasts, tell the administrator.",
        )


class ProtectedDatabaseFailed(Refusal):
    """The protected database did not answer.

    *Guarantee*: the text is fixed, so that no error of the database can carry a private value to the client.
    """

    sqlstate = "58000"

    def __init__(self) -> None:
        super().__init__(
            "the protected database could not answer",
            detail="What was charged for the question stays charged.",
            hint="Ask again later; if it lasts, tell the administrator.",
        )


class MeasurementFailed(ProtectedDatabaseFailed):
    """A failure that may depend on private rows: to the analyst like any other, to the administrator an incident."""

    def __init__(self, charge: int, failure: str, statement: str) -> None:
        super().__init__()
        self.charge = charge
        self.failure = failure  # SQLSTATE, or the class of the error that reading the result raised
        self.statement = statement


class ProtectedDatabaseUnusable(Refusal):
    """The protected database cannot be reached, or the generated SQL cannot run there; known before the charge."""

    sqlstate = "58000"

    def __init__(self) -> None:
        super().__init__(
            "the protected database could not answer",
            detail="Nothing was charged.",
            hint="Ask again later; if it lasts, tell the administrator.",
        )


class ConstantNotRead(Refusal):
    """The protected database does not take a constant or parameter of the question for a value of its type.

    *Guarantee*: it is read there before the charge and before any row is, so that this depends on the text only.
    """

    sqlstate = "22P02"

    def __init__(self) -> None:
        super().__init__(
            "a constant or parameter is not a value of the type that it is used as",
            detail="Nothing was charged.",
            hint="Compare a column with a value of its own type, within what its domain allows.",
        )


class DeadlineExceeded(Refusal):
    """The question took longer than any question may; whether it did may depend on rows, so it is charged."""

    sqlstate = "57014"

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the question did not end within the time limit of {seconds:g} seconds",
            detail="It was charged: how long a question takes depends on the data.",
            hint="Ask for fewer groups or rows, or ask the administrator for a longer PGVEIL_QUESTION_SECONDS.",
        )


class Incident(Refusal):
    """A bug of ours: the client gets a number, the log has the rest."""

    sqlstate = "XX000"

    def __init__(self) -> None:
        self.number = secrets.token_hex(6)
        super().__init__(
            f"internal error, incident {self.number}",
            hint="The administrator finds this number in the log.",
        )


def as_refusal(error: BaseException) -> Refusal:
    """What the client is told about any exception.

    *Guarantee*: the text of an unknown exception goes neither to the client nor to the log, since it may
    quote a private value; the log gets its class, its SQLSTATE if it has one, and the stack.
    """
    if isinstance(error, Refusal):
        return error
    if isinstance(error, asyncio.CancelledError):
        return QueryCancelled()
    incident = Incident()
    log.error("incident %s: %s", incident.number, _story(error))
    return incident


def _story(error: BaseException) -> str:
    told: list[str] = []
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        sqlstate = getattr(cause, "sqlstate", None)
        name = f"{type(cause).__module__}.{type(cause).__qualname__}"
        stack = "".join(traceback.format_tb(cause.__traceback__))
        told.append(f"{name}{f' [{sqlstate}]' if sqlstate else ''}\n{stack}")
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return "caused by ".join(told)


def error_fields(refusal: Refusal, severity: str = "ERROR") -> bytes:
    """The ErrorResponse of a refusal."""
    position = None if refusal.position is None else str(refusal.position)
    return _response(
        b"E",
        (b"S", severity, _TEXT_LIMIT),
        (b"V", severity, _TEXT_LIMIT),
        (b"C", refusal.sqlstate, _TEXT_LIMIT),
        (b"M", refusal.message, _TEXT_LIMIT),
        (b"D", refusal.detail, _TEXT_LIMIT),
        (b"H", refusal.hint, _TEXT_LIMIT),
        (b"P", position, _TEXT_LIMIT),
    )


def notice(message: str, detail: str | None = None, hint: str | None = None, sqlstate: str = "00000") -> bytes:
    """A NoticeResponse of severity NOTICE."""
    return _response(
        b"N",
        (b"S", "NOTICE", _TEXT_LIMIT),
        (b"V", "NOTICE", _TEXT_LIMIT),
        (b"C", sqlstate, _TEXT_LIMIT),
        (b"M", message, _TEXT_LIMIT),
        (b"D", detail, _DETAIL_LIMIT),
        (b"H", hint, _TEXT_LIMIT),
    )


def _response(kind: bytes, *fields: tuple[bytes, str | None, int]) -> bytes:
    body = b"".join(code + _safe(text, limit) + b"\0" for code, text, limit in fields if text is not None)
    return kind + struct.pack(">I", len(body) + 5) + body + b"\0"


def _safe(text: str, limit: int) -> bytes:
    """UTF-8 without NUL (which would end the field and let the rest forge other fields), cut at a whole character."""
    encoded = text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace")
    if len(encoded) <= limit:
        return encoded
    return encoded[:limit].decode("utf-8", "ignore").encode() + b"..."
