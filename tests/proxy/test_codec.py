"""Bytes cut anywhere give the same messages, and no length can hurt."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy import messages as m
from proxy.codec import (
    FRONTEND_LIMITS,
    LOGIN_LIMITS,
    CancelRequest,
    Frames,
    GSSENCRequest,
    SSLRequest,
    Startup,
    StartupMessage,
    StartupReader,
)
from proxy.errors import ProtocolViolation, UndecodableText, UnsupportedProtocol

parameter = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
parameters = st.dictionaries(parameter.filter(bool), parameter, max_size=5)
frame = st.one_of(
    parameter.map(m.encode_query),
    st.builds(m.encode_parse, parameter, parameter, st.lists(st.integers(0, 2**32 - 1), max_size=3)),
    st.builds(m.encode_bind, parameter, parameter, st.just(()), st.lists(st.none() | st.binary(), max_size=3)),
    st.builds(m.encode_describe, st.sampled_from("SP"), parameter),
    st.builds(m.encode_execute, parameter),
    st.just(m.encode_sync()),
    st.just(m.encode_flush()),
    st.binary(max_size=200).map(lambda data: m.encode(m.COPY_DATA, data)),
    st.just(m.encode(m.COPY_DONE)),
    st.just(m.encode_terminate()),
)
opening: st.SearchStrategy[list[bytes]] = st.one_of(
    st.just([]), st.just([m.encode_ssl_request()]), st.just([m.encode_gssenc_request(), m.encode_ssl_request()])
)


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(stream), *(place % (len(stream) + 1) for place in places)})
    return [stream[a:b] for a, b in pairwise(edges)]


def converse(chunks: list[bytes]) -> tuple[list[Startup], list[tuple[int, bytes]]]:
    """Read a connection as the server does: packets up to the StartupMessage, then frames."""
    reader, frames = StartupReader(), Frames(1_000_000, FRONTEND_LIMITS)
    packets: list[Startup] = []
    typed: list[tuple[int, bytes]] = []
    started = False
    for chunk in chunks:
        if started:
            typed += frames.feed(chunk)
            continue
        packet = reader.feed(chunk)
        while packet is not None:
            packets.append(packet)
            if isinstance(packet, StartupMessage):
                started = True
                typed += frames.feed(reader.leftover)
                break
            packet = reader.feed(b"")
    assert frames.pending == 0
    return packets, typed


@given(
    opening, parameters, st.integers(0, 9), st.lists(frame, max_size=8), st.lists(st.integers(0, 10_000), max_size=40)
)
def test_any_split_of_a_connection_gives_the_same_messages(
    requests: list[bytes], params: dict[str, str], minor: int, sent: list[bytes], places: list[int]
) -> None:
    stream = b"".join(requests) + m.encode_startup(params, minor) + b"".join(sent)
    packets, typed = converse(cut(stream, places))
    assert packets[-1] == StartupMessage(3, minor, params)
    assert len(packets) == len(requests) + 1
    assert typed == [(raw[0], raw) for raw in sent]


@given(st.lists(frame, max_size=6))
def test_byte_by_byte_is_no_different(sent: list[bytes]) -> None:
    frames = Frames(1_000_000)
    got = [found for i in b"".join(sent) for found in frames.feed(bytes((i,)))]
    assert got == [(raw[0], raw) for raw in sent]


def test_a_chunk_that_is_one_frame_is_not_copied() -> None:
    raw = m.encode_query("select 1")
    ((_, found),) = Frames(100).feed(raw)
    assert found is raw


@pytest.mark.parametrize("length", [0, 1, 3, 101, 2**31, 2**32 - 1])
def test_a_bad_length_is_refused_with_the_header_alone(length: int) -> None:
    with pytest.raises(ProtocolViolation):
        Frames(100).feed(b"Q" + length.to_bytes(4, "big"))


def test_a_bad_length_is_refused_when_the_header_comes_in_pieces() -> None:
    frames = Frames(100)
    assert frames.feed(m.encode_sync() + b"Q\0\0") == [(m.SYNC, m.encode_sync())]
    with pytest.raises(ProtocolViolation):
        frames.feed(b"\xff\xff")


def test_the_limit_itself_is_allowed_and_can_be_raised() -> None:
    raw = m.encode_query("x" * 95)
    assert len(Frames(100).feed(raw)) == 1
    frames = Frames(99)
    frames.limit = 100
    assert len(frames.feed(raw)) == 1


def test_small_messages_have_small_limits_and_unknown_types_none() -> None:
    with pytest.raises(ProtocolViolation, match="length"):
        Frames(1 << 30, FRONTEND_LIMITS).feed(b"S" + (20_000).to_bytes(4, "big"))
    assert Frames(1 << 30, FRONTEND_LIMITS).feed(b"d" + (20_000).to_bytes(4, "big")) == []
    with pytest.raises(ProtocolViolation, match="0x47"):
        Frames(1 << 30, FRONTEND_LIMITS).feed(b"GET / HTTP/1.1\r\n")


def test_a_second_startup_message_during_login_is_refused() -> None:
    with pytest.raises(ProtocolViolation, match="0x00"):
        Frames(10_000, LOGIN_LIMITS).feed(m.encode_startup({"user": "alice"}))


def test_a_query_before_login_is_refused_by_its_type() -> None:
    with pytest.raises(ProtocolViolation, match="0x51"):
        Frames(10_000, LOGIN_LIMITS).feed(b"Q\0\0\0\x20")


def test_a_large_message_in_many_pieces_costs_linear_time() -> None:
    def seconds(size: int) -> float:
        raw = m.encode(m.COPY_DATA, bytes(size))
        frames = Frames(1 << 30)
        start = time.process_time()  # not the clock on the wall: the machine may be busy
        got = [found for at in range(0, len(raw), 256) for found in frames.feed(raw[at : at + 256])]
        took = time.process_time() - start
        assert got == [(m.COPY_DATA, raw)]
        return took

    small = min(seconds(1 << 18) for _ in range(5))
    large = min(seconds(1 << 22) for _ in range(3))
    assert large < 16 * small * 8  # quadratic would be 16 times 16


def test_cancel_requests_carry_keys_of_4_to_256_bytes() -> None:
    for size in (4, 32, 256):
        reader = StartupReader()
        assert reader.feed(m.encode_cancel(4_000_000_000, b"k" * size)) == CancelRequest(4_000_000_000, b"k" * size)
        assert reader.leftover == b""
    for size in (0, 3, 257):
        with pytest.raises(ProtocolViolation):
            StartupReader().feed(m.encode_cancel(1, b"k" * size))


def test_bytes_behind_an_encryption_request_are_seen() -> None:
    for raw, request in ((m.encode_ssl_request(), SSLRequest()), (m.encode_gssenc_request(), GSSENCRequest())):
        reader = StartupReader()
        assert reader.feed(raw) == request
        reader.refuse_leftover()
        reader = StartupReader()
        assert reader.feed(raw + b"\x16") == request
        assert reader.leftover == b"\x16"
        with pytest.raises(ProtocolViolation, match="unencrypted"):
            reader.refuse_leftover()


def test_encryption_is_asked_for_once() -> None:
    reader = StartupReader()
    reader.feed(m.encode_ssl_request())
    with pytest.raises(ProtocolViolation):
        reader.feed(m.encode_ssl_request())


def test_protocol_options_are_told_apart_from_settings() -> None:
    packet = StartupReader().feed(m.encode_startup({"user": "a", "_pq_.fast": "1", "_pq_.x": ""}, 5))
    assert isinstance(packet, StartupMessage)
    assert packet.minor == 5
    assert packet.unknown_options == ("_pq_.fast", "_pq_.x")


def startup(body: bytes, code: int = 3 << 16) -> bytes:
    return (len(body) + 8).to_bytes(4, "big") + code.to_bytes(4, "big") + body


@pytest.mark.parametrize(
    "packet",
    [
        startup(b""),
        startup(b"user\0alice\0"),
        startup(b"user\0alice"),
        startup(b"user\0\0"),
        startup(b"user\0alice\0database\0\0"),
        startup(b"\0alice\0\0"),
        startup(b"user\0al\0\0ice\0\0"),
        startup(b"\0\0"),
        startup(b"user\0alice\0\0junk"),
        startup(b"x", m.SSL_CODE),
        b"\0\0\0\x07",
        b"\0\0\0\0",
        b"\0\0\x27\x11",
        b"\x16\x03\x01\x02\0\x01\0",  # a TLS hello without a request
        b"GET / HTTP/1.1\r\n",
    ],
)
def test_malformed_startup_packets_are_violations(packet: bytes) -> None:
    with pytest.raises(ProtocolViolation) as caught:
        StartupReader().feed(packet)
    assert caught.value.sqlstate == "08P01"


def test_old_and_future_protocols_are_named() -> None:
    for major in (2, 4):
        with pytest.raises(UnsupportedProtocol, match=rf"{major}\.7: server supports 3\.0 to 3\.2"):
            StartupReader().feed(startup(b"whatever", major << 16 | 7))


def test_parameters_must_be_utf8() -> None:
    with pytest.raises(UndecodableText):
        StartupReader().feed(startup(b"user\0\xff\xfe\0\0"))


def test_values_may_be_empty() -> None:
    assert StartupReader().feed(startup(b"options\0\0user\0a\0\0")) == StartupMessage(
        3, 0, {"options": "", "user": "a"}
    )
    assert StartupReader().feed(startup(b"\0")) == StartupMessage(3, 0, {})


@given(st.binary(max_size=80), st.booleans())
def test_garbage_is_a_packet_a_violation_or_patience(body: bytes, framed: bool) -> None:
    packet = startup(body[4:], int.from_bytes(body[:4].rjust(4, b"\0"), "big")) if framed else body
    try:
        StartupReader().feed(packet)
    except ProtocolViolation:
        pass


@given(parameters, st.integers(0, 200), st.integers(0, 255))
def test_a_mutated_startup_message_is_a_packet_a_violation_or_patience(
    params: dict[str, str], at: int, value: int
) -> None:
    raw = bytearray(m.encode_startup(params))
    raw[at % len(raw)] = value
    try:
        StartupReader().feed(bytes(raw))
    except ProtocolViolation:
        pass
