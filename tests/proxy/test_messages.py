"""Messages: there and back again, and no byte string that a decoder chokes on."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy import messages as m
from proxy.errors import ProtocolViolation, UndecodableText

names = st.binary(max_size=70).map(lambda raw: raw.replace(b"\0", b"_").decode("utf-8", "surrogateescape"))
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
oids = st.lists(st.integers(0, 2**32 - 1), max_size=5).map(tuple)
formats = st.lists(st.integers(-(2**15), 2**15 - 1), max_size=4).map(tuple)
values = st.lists(st.none() | st.binary(max_size=20), max_size=5).map(tuple)
kinds = st.sampled_from([m.STATEMENT, m.PORTAL])
fields = st.builds(
    m.Field,
    names,
    st.integers(0, 2**32 - 1),
    st.integers(-(2**15), 2**15 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(-(2**15), 2**15 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 1),
)


def binds() -> st.SearchStrategy[m.Bind]:
    def fitting(bind: m.Bind) -> bool:
        return len(bind.formats) <= 1 or len(bind.formats) == len(bind.values)

    return st.builds(m.Bind, names, names, formats, values, formats).filter(fitting)


def well_framed(frame: bytes, kind: int) -> bytes:
    assert frame[0] == kind
    assert int.from_bytes(frame[1:5], "big") == len(frame) - 1
    return frame


@given(texts)
def test_query_round_trip(text: str) -> None:
    assert m.decode_query(well_framed(m.encode_query(text), m.QUERY)) == m.Query(text)


@given(st.builds(m.Parse, names, texts, oids))
def test_parse_round_trip(x: m.Parse) -> None:
    assert m.decode_parse(well_framed(m.encode_parse(x.name, x.text, x.oids), m.PARSE)) == x


@given(binds())
def test_bind_round_trip(x: m.Bind) -> None:
    raw = m.encode_bind(x.portal, x.statement, x.formats, x.values, x.result_formats)
    assert m.decode_bind(well_framed(raw, m.BIND)) == x


@given(kinds, names, st.integers(-(2**31), 2**31 - 1))
def test_describe_close_and_execute_round_trip(kind: str, name: str, limit: int) -> None:
    assert m.decode_describe(well_framed(m.encode_describe(kind, name), m.DESCRIBE)) == m.Describe(kind, name)
    assert m.decode_close(well_framed(m.encode_close(kind, name), m.CLOSE)) == m.Close(kind, name)
    assert m.decode_execute(well_framed(m.encode_execute(name, limit), m.EXECUTE)) == m.Execute(name, limit)


@given(st.none() | st.binary())
def test_sasl_round_trip(data: bytes | None) -> None:
    raw = well_framed(m.encode_sasl_initial("SCRAM-SHA-256", data), m.PASSWORD)
    assert m.decode_sasl_initial(raw) == m.SASLInitialResponse("SCRAM-SHA-256", data)
    assert m.decode_sasl_response(m.encode_sasl_response(data or b"")) == m.SASLResponse(data or b"")


def test_password_and_empty_messages() -> None:
    assert m.decode_password(m.encode_password("käse")) == m.PasswordMessage("käse".encode())
    for raw in (m.encode_sync(), m.encode_flush(), m.encode_terminate()):
        m.decode_empty(raw)
        with pytest.raises(ProtocolViolation):
            m.decode_empty(raw + b"\0")


@given(st.lists(fields, max_size=4).map(tuple))
def test_row_description_round_trip(row: tuple[m.Field, ...]) -> None:
    assert m.decode_row_description(well_framed(m.encode_row_description(row), m.ROW_DESCRIPTION)) == row


@given(oids, values)
def test_parameter_description_and_data_row_round_trip(types: tuple[int, ...], row: tuple[bytes | None, ...]) -> None:
    assert m.decode_parameter_description(m.encode_parameter_description(types)) == types
    assert m.decode_data_row(well_framed(m.encode_data_row(row), m.DATA_ROW)) == list(row)


def test_backend_messages_have_the_bytes_of_the_manual() -> None:
    assert m.encode_authentication_ok() == b"R\0\0\0\x08\0\0\0\0"
    assert m.encode_authentication_sasl(["SCRAM-SHA-256"]) == b"R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0"
    assert m.encode_sasl_continue(b"r=x") == b"R\0\0\0\x0b\0\0\0\x0br=x"
    assert m.encode_sasl_final(b"v=x") == b"R\0\0\0\x0b\0\0\0\x0cv=x"
    assert m.encode_ready_for_query(m.IDLE) == b"Z\0\0\0\x05I"
    assert m.encode_command_complete("SELECT 1") == b"C\0\0\0\x0dSELECT 1\0"
    assert m.encode_negotiate_protocol_version(2, ["_pq_.x"]) == b"v\0\0\0\x13\0\x03\0\x02\0\0\0\x01_pq_.x\0"
    assert m.PARSE_COMPLETE_FRAME + m.BIND_COMPLETE_FRAME + m.CLOSE_COMPLETE_FRAME == (
        b"1\0\0\0\x042\0\0\0\x043\0\0\0\x04"
    )
    assert m.NO_DATA_FRAME + m.EMPTY_QUERY_FRAME + m.PORTAL_SUSPENDED_FRAME == b"n\0\0\0\x04I\0\0\0\x04s\0\0\0\x04"
    assert m.encode_cancel(7, b"key!") == b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x07key!"
    assert m.encode_ssl_request() == b"\0\0\0\x08\x04\xd2\x16\x2f"


def test_what_a_server_says_at_login_is_read_back() -> None:
    assert m.decode_authentication(m.encode_sasl_continue(b"r=1")) == (m.AUTH_SASL_CONTINUE, b"r=1")
    assert m.decode_backend_key_data(m.encode_backend_key_data(2**32 - 1, b"k" * 32)) == (2**32 - 1, b"k" * 32)
    assert m.decode_parameter_status(m.encode_parameter_status("TimeZone", "UTC")) == ("TimeZone", "UTC")
    assert m.decode_command_complete(m.encode_command_complete("BEGIN")) == "BEGIN"


def test_a_string_with_a_nul_is_never_sent() -> None:
    attempts: list[Callable[[], bytes]] = [
        lambda: m.encode_query("select 1\0drop"),
        lambda: m.encode_parse("", "a\0b"),
        lambda: m.encode_startup({"user": "a\0database\0postgres"}),
        lambda: m.encode_describe(m.STATEMENT, "\0"),
    ]
    for attempt in attempts:
        with pytest.raises(ValueError, match="NUL"):
            attempt()


def test_text_follows_the_client_s_encoding() -> None:
    raw = m.encode_query("sélect", "latin-1")
    assert m.decode_query(raw, "latin-1").text == "sélect"
    with pytest.raises(UndecodableText) as caught:
        m.decode_query(raw)
    assert caught.value.sqlstate == "08P01"


def test_counts_up_to_65535_are_read() -> None:
    x = m.decode_bind(m.encode_bind("", "", (), [b"1"] * 65_535, ()))
    assert len(x.values) == 65_535


FRONTEND_SAMPLES: list[tuple[bytes, Callable[[bytes], Any]]] = [
    (m.encode_query("select 'é', 1"), m.decode_query),
    (m.encode_parse("s1", "select $1::int, 'ü'", [23, 0]), m.decode_parse),
    (m.encode_bind("p1", "s1", [0, 1], [b"12", None], [1]), m.decode_bind),
    (m.encode_bind("", "", [1], [b"\0\0\0\x05", b"", None], []), m.decode_bind),
    (m.encode_describe(m.PORTAL, "p1"), m.decode_describe),
    (m.encode_close(m.STATEMENT, "s1"), m.decode_close),
    (m.encode_execute("p1", 100), m.decode_execute),
    (m.encode_sync(), m.decode_empty),
    (m.encode_sasl_initial("SCRAM-SHA-256", b"n,,n=,r=abc"), m.decode_sasl_initial),
    (m.encode_sasl_response(b"c=biws,r=abc,p=AAAA"), m.decode_sasl_response),
    (m.encode_password(b"secret"), m.decode_password),
]


def reframed(body: bytes, kind: int) -> bytes:
    return m.encode(kind, body)


def message_or_violation(decode: Callable[[bytes], Any], frame: bytes) -> bool:
    """Whether it was read; any other exception is a failure of the test."""
    try:
        decode(frame)
    except ProtocolViolation:
        return False
    return True


@pytest.mark.parametrize(("frame", "decode"), FRONTEND_SAMPLES)
def test_every_truncation_is_refused_cleanly(frame: bytes, decode: Callable[[bytes], Any]) -> None:
    read = [message_or_violation(decode, reframed(frame[5:end], frame[0])) for end in range(5, len(frame))]
    if decode is not m.decode_sasl_response:  # its body is opaque
        assert not any(read)


@pytest.mark.parametrize(("frame", "decode"), FRONTEND_SAMPLES)
def test_trailing_bytes_are_refused(frame: bytes, decode: Callable[[bytes], Any]) -> None:
    if decode is not m.decode_sasl_response:
        assert not message_or_violation(decode, reframed(frame[5:] + b"\0", frame[0]))
        assert not message_or_violation(decode, reframed(frame[5:] + b"abc\0", frame[0]))


@pytest.mark.parametrize(("frame", "decode"), FRONTEND_SAMPLES)
def test_every_single_byte_mutation_is_a_message_or_a_violation(frame: bytes, decode: Callable[[bytes], Any]) -> None:
    for at in range(5, len(frame)):
        for value in (0, 1, 0x7F, 0x80, 0xC3, 0xFE, 0xFF, frame[at] ^ 1, frame[at] ^ 0x80):
            message_or_violation(decode, frame[:at] + bytes((value,)) + frame[at + 1 :])


def test_random_bodies_are_messages_or_violations(randomly_seeded: random.Random) -> None:
    for _ in range(4_000):
        frame, decode = randomly_seeded.choice(FRONTEND_SAMPLES)
        body = bytearray(frame[5:])
        for _ in range(randomly_seeded.randint(1, 6)):
            at = randomly_seeded.randint(0, len(body))
            match randomly_seeded.randint(0, 2):
                case 0:
                    body[at:at] = randomly_seeded.randbytes(randomly_seeded.randint(1, 4))
                case 1:
                    del body[at : at + randomly_seeded.randint(1, 4)]
                case _:
                    body[at : at + 1] = randomly_seeded.randbytes(1)
        message_or_violation(decode, reframed(bytes(body), frame[0]))


@pytest.fixture
def randomly_seeded() -> random.Random:
    return random.Random(random.getrandbits(64))  # pytest-randomly seeds and prints the outer one


@given(st.binary(max_size=60))
def test_backend_decoders_meet_garbage_with_a_violation(body: bytes) -> None:
    for decode in (
        m.decode_row_description,
        m.decode_parameter_description,
        m.decode_data_row,
        m.decode_fields,
        m.decode_authentication,
        m.decode_backend_key_data,
        m.decode_parameter_status,
        m.decode_command_complete,
    ):
        message_or_violation(decode, reframed(body, 0x54))


@pytest.mark.parametrize(
    ("body", "decode"),
    [
        (b"\0\0\0\0\0\x01\x7f\xff\xff\xff\0\0", m.decode_bind),  # a value of 2 GiB
        (b"\0\0\0\0\0\x01\xff\xff\xff\xfe\0\0", m.decode_bind),  # a length of -2
        (b"\0\0\xff\xff", m.decode_bind),  # 65,535 formats, none there
        (b"\0\0\0\x02\0\0\0\0\0\x01\0\0\0\0\0\0", m.decode_bind),  # two formats, one parameter
        (b"\0select\0\xff\xff", m.decode_parse),
        (b"Xname\0", m.decode_describe),
        (b"\xc3name\0", m.decode_close),
        (b"select 1\0; drop\0", m.decode_query),
        (b"select '\xff'\0", m.decode_query),
        (b"", m.decode_query),
    ],
)
def test_lies_about_lengths_and_kinds_are_violations(body: bytes, decode: Callable[[bytes], Any]) -> None:
    assert not message_or_violation(decode, reframed(body, 0x51))
