"""The messages of PostgreSQL's protocol 3.0 to 3.2 that pgveil reads or writes, as values.

A decoder takes a whole frame (type byte, length, body) as ``codec.Frames`` cuts it, and is strict: every length must
fit, nothing may be left over, or it is a ``ProtocolViolation``. An encoder returns a whole frame. The text
of a statement must be valid in the client's encoding; names of statements, portals and columns are only compared and
passed on, so any bytes in them survive. Formats are in chapter "Message Formats" of the PostgreSQL manual.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from proxy.body import Body

LATEST_MINOR: Final = 2
SSL_CODE: Final = 1234 << 16 | 5679
GSSENC_CODE: Final = 1234 << 16 | 5680
CANCEL_CODE: Final = 1234 << 16 | 5678

# From the client.
BIND, CLOSE, DESCRIBE, EXECUTE, FLUSH, PARSE, SYNC = b"BCDEHPS"
QUERY, FUNCTION_CALL, TERMINATE, PASSWORD = b"QFXp"
COPY_DATA, COPY_DONE, COPY_FAIL = b"dcf"  # the first two also from the server

FRONTEND_NAMES: Final[Mapping[int, str]] = (
    {BIND: "Bind", CLOSE: "Close", DESCRIBE: "Describe", EXECUTE: "Execute", FLUSH: "Flush", PARSE: "Parse"}
    | {SYNC: "Sync", QUERY: "Query", FUNCTION_CALL: "FunctionCall", TERMINATE: "Terminate", PASSWORD: "password"}
    | {COPY_DATA: "CopyData", COPY_DONE: "CopyDone", COPY_FAIL: "CopyFail"}
)

# From the server.
AUTHENTICATION, BACKEND_KEY_DATA, PARAMETER_STATUS, READY_FOR_QUERY, NEGOTIATE_PROTOCOL_VERSION = b"RKSZv"
PARSE_COMPLETE, BIND_COMPLETE, CLOSE_COMPLETE, NO_DATA, PORTAL_SUSPENDED = b"123ns"
PARAMETER_DESCRIPTION, ROW_DESCRIPTION, DATA_ROW, COMMAND_COMPLETE, EMPTY_QUERY_RESPONSE = b"tTDCI"
ERROR_RESPONSE, NOTICE_RESPONSE, NOTIFICATION_RESPONSE, FUNCTION_CALL_RESPONSE = b"ENAV"
COPY_IN_RESPONSE, COPY_OUT_RESPONSE, COPY_BOTH_RESPONSE = b"GHW"

STATEMENT, PORTAL = "SP"  # what Describe and Close are about
IDLE, IN_TRANSACTION, IN_FAILED_TRANSACTION = b"ITE"  # what ReadyForQuery says

AUTH_OK, AUTH_CLEARTEXT, AUTH_MD5, AUTH_SASL, AUTH_SASL_CONTINUE, AUTH_SASL_FINAL = 0, 3, 5, 10, 11, 12

_u16 = struct.Struct(">H")
_u32 = struct.Struct(">I")
_i32 = struct.Struct(">i")
_field = struct.Struct(">IhIhih")


@dataclass(frozen=True, slots=True)
class Query:
    text: str


@dataclass(frozen=True, slots=True)
class Parse:
    name: str
    text: str
    oids: tuple[int, ...]  # 0: PostgreSQL finds the type


@dataclass(frozen=True, slots=True)
class Bind:
    portal: str
    statement: str
    formats: tuple[int, ...]  # none: all text; one: for all; else one each
    values: tuple[bytes | None, ...]
    result_formats: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Describe:
    kind: str  # STATEMENT or PORTAL
    name: str


@dataclass(frozen=True, slots=True)
class Execute:
    portal: str
    limit: int  # rows; 0 or less: all


@dataclass(frozen=True, slots=True)
class Close:
    kind: str  # STATEMENT or PORTAL
    name: str


@dataclass(frozen=True, slots=True)
class SASLInitialResponse:
    mechanism: str
    data: bytes | None


@dataclass(frozen=True, slots=True)
class SASLResponse:
    data: bytes


@dataclass(frozen=True, slots=True)
class PasswordMessage:
    password: bytes


@dataclass(frozen=True, slots=True)
class Field:
    """One column of a RowDescription."""

    name: str
    table_oid: int
    column: int
    type_oid: int
    type_size: int
    typmod: int
    format: int


class AuthenticationRequest(NamedTuple):
    code: int  # AUTH_OK and kin
    data: bytes


def decode_query(frame: bytes, encoding: str = "utf-8") -> Query:
    r = Body(frame, "Query")
    text = r.text(encoding)
    r.finish()
    return Query(text)


def decode_parse(frame: bytes, encoding: str = "utf-8") -> Parse:
    r = Body(frame, "Parse")
    name, text = r.label(), r.text(encoding)
    oids = r.many("I")
    r.finish()
    return Parse(name, text, oids)


def decode_bind(frame: bytes) -> Bind:
    r = Body(frame, "Bind")
    portal, statement = r.label(), r.label()
    formats = r.many("h")
    values = tuple(r.values())
    result_formats = r.many("h")
    r.finish()
    if len(formats) > 1 and len(formats) != len(values):
        raise r.bad(f"It has {len(formats)} parameter formats but {len(values)} parameters.")
    return Bind(portal, statement, formats, values, result_formats)


def decode_describe(frame: bytes) -> Describe:
    return Describe(*_kind_and_name(frame, "Describe"))


def decode_close(frame: bytes) -> Close:
    return Close(*_kind_and_name(frame, "Close"))


def _kind_and_name(frame: bytes, message: str) -> tuple[str, str]:
    r = Body(frame, message)
    kind, name = chr(r.byte()), r.label()
    r.finish()
    if kind not in (STATEMENT, PORTAL):
        raise r.bad(f"Subtype {ord(kind)} is neither a statement nor a portal.")
    return kind, name


def decode_execute(frame: bytes) -> Execute:
    r = Body(frame, "Execute")
    portal, limit = r.label(), r.i32()
    r.finish()
    return Execute(portal, limit)


def decode_empty(frame: bytes) -> None:
    """Sync, Flush, Terminate and CopyDone have no body."""
    Body(frame, FRONTEND_NAMES.get(frame[0], "empty")).finish()


def decode_sasl_initial(frame: bytes) -> SASLInitialResponse:
    r = Body(frame, "SASLInitialResponse")
    mechanism, data = r.text(), r.value()
    r.finish()
    return SASLInitialResponse(mechanism, data)


def decode_sasl_response(frame: bytes) -> SASLResponse:
    return SASLResponse(frame[5:])


def decode_password(frame: bytes) -> PasswordMessage:
    r = Body(frame, "password")
    password = r.string()
    r.finish()
    return PasswordMessage(password)


def decode_row_description(frame: bytes) -> tuple[Field, ...]:
    r = Body(frame, "RowDescription")
    fields = []
    for _ in range(r.u16()):
        name = r.label()
        fields.append(Field(name, *_field.unpack_from(frame, r.take(_field.size))))
    r.finish()
    return tuple(fields)


def decode_parameter_description(frame: bytes) -> tuple[int, ...]:
    r = Body(frame, "ParameterDescription")
    oids = r.many("I")
    r.finish()
    return oids


def decode_data_row(frame: bytes) -> list[bytes | None]:
    r = Body(frame, "DataRow")
    values = r.values()
    r.finish()
    return values


def decode_fields(frame: bytes) -> dict[str, str]:
    """The fields of an ErrorResponse or NoticeResponse, by their one-letter codes."""
    r = Body(frame, "ErrorResponse")
    fields: dict[str, str] = {}
    while code := r.byte():
        fields[chr(code)] = r.string().decode("utf-8", "replace")
    r.finish()
    return fields


def decode_authentication(frame: bytes) -> AuthenticationRequest:
    r = Body(frame, "Authentication")
    return AuthenticationRequest(r.u32(), r.rest())


def decode_backend_key_data(frame: bytes) -> tuple[int, bytes]:
    r = Body(frame, "BackendKeyData")
    return r.u32(), r.rest()


def decode_parameter_status(frame: bytes) -> tuple[str, str]:
    r = Body(frame, "ParameterStatus")
    name, value = r.text(), r.text()
    r.finish()
    return name, value


def decode_command_complete(frame: bytes) -> str:
    r = Body(frame, "CommandComplete")
    tag = r.text()
    r.finish()
    return tag


def encode(kind: int, body: bytes = b"") -> bytes:
    """A frame of any type."""
    return b"%c%b%b" % (kind, _u32.pack(len(body) + 4), body)


def _string(value: bytes | str) -> bytes:
    raw = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    if b"\0" in raw:
        raise ValueError("a string of the protocol cannot hold a NUL")
    return raw + b"\0"


def _numbers(code: str, numbers: Sequence[int]) -> bytes:
    return struct.pack(f">H{len(numbers)}{code}", len(numbers), *numbers)


def _values(values: Sequence[bytes | None]) -> bytes:
    parts = [_u16.pack(len(values))]
    for value in values:
        parts.append(b"\xff\xff\xff\xff" if value is None else _u32.pack(len(value)) + value)
    return b"".join(parts)


def encode_query(text: str, encoding: str = "utf-8") -> bytes:
    return encode(QUERY, _string(text.encode(encoding)))


def encode_parse(name: str, text: str, oids: Sequence[int] = (), encoding: str = "utf-8") -> bytes:
    return encode(PARSE, _string(name) + _string(text.encode(encoding)) + _numbers("I", oids))


def encode_bind(
    portal: str,
    statement: str,
    formats: Sequence[int] = (),
    values: Sequence[bytes | None] = (),
    result_formats: Sequence[int] = (),
) -> bytes:
    head = _string(portal) + _string(statement) + _numbers("h", formats)
    return encode(BIND, head + _values(values) + _numbers("h", result_formats))


def encode_describe(kind: str, name: str) -> bytes:
    return encode(DESCRIBE, _string(kind + name))


def encode_execute(portal: str, limit: int = 0) -> bytes:
    return encode(EXECUTE, _string(portal) + _i32.pack(limit))


def encode_close(kind: str, name: str) -> bytes:
    return encode(CLOSE, _string(kind + name))


encode_sync = partial(encode, SYNC)
encode_flush = partial(encode, FLUSH)
encode_terminate = partial(encode, TERMINATE)
encode_sasl_response = partial(encode, PASSWORD)


def _packet(code: int, body: bytes = b"") -> bytes:
    return struct.pack(">II", len(body) + 8, code) + body


encode_ssl_request = partial(_packet, SSL_CODE)
encode_gssenc_request = partial(_packet, GSSENC_CODE)


def encode_startup(parameters: Mapping[str, str], minor: int = 0) -> bytes:
    pairs = b"".join(_string(name) + _string(value) for name, value in parameters.items())
    return _packet(3 << 16 | minor, pairs + b"\0")


def encode_cancel(pid: int, key: bytes) -> bytes:
    return _packet(CANCEL_CODE, _u32.pack(pid) + key)


def encode_sasl_initial(mechanism: str, data: bytes | None) -> bytes:
    value = b"\xff\xff\xff\xff" if data is None else _u32.pack(len(data)) + data
    return encode(PASSWORD, _string(mechanism) + value)


def encode_password(password: bytes | str) -> bytes:
    return encode(PASSWORD, _string(password))


def encode_authentication(code: int, data: bytes = b"") -> bytes:
    return encode(AUTHENTICATION, _u32.pack(code) + data)


encode_authentication_ok = partial(encode_authentication, AUTH_OK)
encode_sasl_continue = partial(encode_authentication, AUTH_SASL_CONTINUE)
encode_sasl_final = partial(encode_authentication, AUTH_SASL_FINAL)


def encode_authentication_sasl(mechanisms: Iterable[str]) -> bytes:
    return encode_authentication(AUTH_SASL, b"".join(map(_string, mechanisms)) + b"\0")


def encode_parameter_status(name: str, value: str) -> bytes:
    return encode(PARAMETER_STATUS, _string(name) + _string(value))


def encode_backend_key_data(pid: int, key: bytes) -> bytes:
    return encode(BACKEND_KEY_DATA, _u32.pack(pid) + key)


def encode_ready_for_query(status: int) -> bytes:
    return encode(READY_FOR_QUERY, bytes((status,)))


def encode_negotiate_protocol_version(minor: int, unknown: Sequence[str]) -> bytes:
    """The version goes out in full (3 << 16 | minor), as PostgreSQL sends it and libpq reads it."""
    names = b"".join(map(_string, unknown))
    return encode(NEGOTIATE_PROTOCOL_VERSION, struct.pack(">II", 3 << 16 | minor, len(unknown)) + names)


PARSE_COMPLETE_FRAME: Final = encode(PARSE_COMPLETE)
BIND_COMPLETE_FRAME: Final = encode(BIND_COMPLETE)
CLOSE_COMPLETE_FRAME: Final = encode(CLOSE_COMPLETE)
NO_DATA_FRAME: Final = encode(NO_DATA)
EMPTY_QUERY_FRAME: Final = encode(EMPTY_QUERY_RESPONSE)
PORTAL_SUSPENDED_FRAME: Final = encode(PORTAL_SUSPENDED)


def encode_parameter_description(oids: Sequence[int]) -> bytes:
    return encode(PARAMETER_DESCRIPTION, _numbers("I", oids))


def encode_row_description(fields: Sequence[Field]) -> bytes:
    parts = [_u16.pack(len(fields))]
    for f in fields:
        numbers = _field.pack(f.table_oid, f.column, f.type_oid, f.type_size, f.typmod, f.format)
        parts.append(_string(f.name) + numbers)
    return encode(ROW_DESCRIPTION, b"".join(parts))


def encode_data_row(values: Sequence[bytes | None]) -> bytes:
    return encode(DATA_ROW, _values(values))


def encode_command_complete(tag: str) -> bytes:
    return encode(COMMAND_COMPLETE, _string(tag))
