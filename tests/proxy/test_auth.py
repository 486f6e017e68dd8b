"""Logins: libpq's own client against our server side, our client against the edges, and nobody can tell who exists."""

from __future__ import annotations

import base64
import datetime
import ssl
import statistics
import time
from pathlib import Path

import psycopg
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from door import SECRET, connect, door
from psycopg import pq

from mechanisms.errors import Refusal
from proxy.auth import (
    ScramExchange,
    ScramLogin,
    mock_verifier,
    new_cancel_key,
    parse_verifier,
)
from proxy.codec import SSLRequest, StartupMessage
from proxy.errors import AuthenticationFailed, ProtocolViolation, error_fields
from proxy.tls import tls_context


@pytest.fixture(scope="module")
def verifier() -> str:
    """Made by libpq, as psql's \\password makes it; it needs a connection object, but no server."""
    connection = pq.PGconn.connect_start(b"host=127.0.0.1 port=1")
    try:
        return connection.encrypt_password(b"wonderland", b"alice", b"scram-sha-256").decode()
    finally:
        connection.finish()


def login(exchange: ScramExchange, password: str = "wonderland", user: str = "alice") -> None:
    client = ScramLogin(user, password)
    client.finish(exchange.final(client.final(exchange.first(client.first()))))


def test_the_right_password_passes_on_both_sides(verifier: str) -> None:
    login(ScramExchange("alice", verifier, SECRET))


def test_a_wrong_password_fails_in_postgresql_s_words(verifier: str) -> None:
    with pytest.raises(AuthenticationFailed, match=r'^password authentication failed for user "alice"$') as caught:
        login(ScramExchange("alice", verifier, SECRET), "rabbit")
    assert caught.value.sqlstate == "28P01"
    assert caught.value.detail is None
    assert caught.value.hint is None


def shape(server_first: bytes) -> tuple[list[str], list[int], str]:
    parts = server_first.decode().split(",")
    return [p[:2] for p in parts], [len(p) for p in parts], parts[2]


def test_an_unknown_user_looks_like_a_wrong_password(verifier: str) -> None:
    known, unknown = ScramExchange("alice", verifier, SECRET), ScramExchange("mallory", None, SECRET)
    first = ScramLogin("x", "y").first()
    assert shape(known.first(first)) == shape(unknown.first(first))
    words = []
    for user, stored in (("alice", verifier), ("mallory", None), ("broken", "md5abc"), ("broken", "")):
        with pytest.raises(AuthenticationFailed) as caught:
            login(ScramExchange(user, stored, SECRET), "rabbit")
        words.append(error_fields(caught.value, "FATAL").replace(user.encode(), b"?")[5:])
    assert len(set(words)) == 1


def test_an_unknown_user_has_the_same_salt_each_time_and_another_than_others() -> None:
    def salt(user: str, secret: bytes) -> str:
        answer = ScramExchange(user, None, secret).first(ScramLogin("x", "y").first())
        return answer.decode().split(",")[1]

    assert salt("mallory", SECRET) == salt("mallory", SECRET)
    assert len({salt("mallory", SECRET), salt("mallet", SECRET), salt("mallory", b"other")}) == 3


def test_even_the_right_proof_for_the_mock_does_not_open_the_door(
    verifier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.auth.mock_verifier", lambda user, secret: verifier)
    with pytest.raises(AuthenticationFailed):
        login(ScramExchange("mallory", None, SECRET), "wonderland")


def test_known_and_unknown_users_take_the_same_time(verifier: str) -> None:
    first = b"n,,n=,r=rOprNGfwEbeRWgbNEkqO"
    proof = base64.b64encode(b"p" * 32)

    def seconds(user: str, stored: str | None) -> float:
        start = time.perf_counter()
        exchange = ScramExchange(user, stored, SECRET)
        nonce = exchange.first(first).split(b",")[0]
        try:
            exchange.final(b"c=biws," + nonce + b",p=" + proof)
        except AuthenticationFailed:
            return time.perf_counter() - start
        raise AssertionError("a random proof was accepted")

    ratios = []
    for _ in range(10):  # a busy machine may spoil some rounds, not all
        times = [(seconds("alice", verifier), seconds("mallo", None)) for _ in range(400)]
        known, unknown = (statistics.median(side) for side in zip(*times, strict=True))
        ratios.append(known / unknown)
        if 0.8 < ratios[-1] < 1.25:
            return
    raise AssertionError(ratios)


@pytest.mark.parametrize(
    ("header", "accepted"),
    [(b"n,,", True), (b"y,,", True), (b"p=tls-server-end-point,,", False), (b"x,,", False), (b"n,a=bob,", False)],
)
def test_channel_binding_flags(verifier: str, header: bytes, accepted: bool) -> None:
    exchange = ScramExchange("alice", verifier, SECRET)
    if accepted:
        assert exchange.first(header + b"n=,r=abc").startswith(b"r=abc")
        return
    with pytest.raises(ProtocolViolation):
        exchange.first(header + b"n=,r=abc")


def test_a_flag_that_changes_between_the_messages_is_refused(verifier: str) -> None:
    exchange = ScramExchange("alice", verifier, SECRET)
    nonce = exchange.first(b"y,,n=,r=abc").split(b",")[0]
    with pytest.raises(ProtocolViolation):
        exchange.final(b"c=biws," + nonce + b",p=" + base64.b64encode(b"p" * 32))  # biws is 'n,,'


@pytest.mark.parametrize(
    "first",
    [None, b"", b"n", b"n,,", b"n,,n=", b"n,,n=,r=", b"n,,r=abc", b"n,,m=x,n=,r=abc", b"n,,n=,r=a\xff", b"n,,n=,r=a b"],
)
def test_a_malformed_first_message_is_a_violation(verifier: str, first: bytes | None) -> None:
    with pytest.raises(ProtocolViolation) as caught:
        ScramExchange("alice", verifier, SECRET).first(first)
    assert caught.value.sqlstate == "08P01"


@pytest.mark.parametrize(
    "final",
    [
        b"",
        b"c=biws",
        b"c=biws,r=other,p=AAAA",
        b"c=biws,{r}",
        b"c=biws,{r},p=",
        b"c=biws,{r},p=!!!!",
        b"c=!!,{r},p=AAAA",
        b"c=biws,{r},p=\xff",
        "c=biws,{r},p=ÄÄÄÄ".encode(),
        b"{r},c=biws,p=AAAA",
    ],
)
def test_a_malformed_final_message_is_a_violation(verifier: str, final: bytes) -> None:
    exchange = ScramExchange("alice", verifier, SECRET)
    nonce = exchange.first(b"n,,n=,r=abc").split(b",")[0]
    with pytest.raises(ProtocolViolation):
        exchange.final(final.replace(b"{r}", nonce))


def test_messages_out_of_order_are_refused(verifier: str) -> None:
    with pytest.raises(Refusal):
        ScramExchange("alice", verifier, SECRET).final(b"c=biws,r=abc,p=AAAA")
    exchange = ScramExchange("alice", verifier, SECRET)
    exchange.first(b"n,,n=,r=abc")
    with pytest.raises(Refusal):
        exchange.first(b"n,,n=,r=abc")


def test_a_failed_exchange_cannot_be_tried_again(verifier: str) -> None:
    exchange = ScramExchange("alice", verifier, SECRET)
    client = ScramLogin("alice", "wonderland")
    right = client.final(exchange.first(client.first()))
    nonce = right.split(b",")[1]
    with pytest.raises(AuthenticationFailed):
        exchange.final(b"c=biws," + nonce + b",p=" + base64.b64encode(b"p" * 32))
    with pytest.raises(Refusal):
        exchange.final(right)


def test_verifiers_are_read_strictly(verifier: str) -> None:
    read = parse_verifier(verifier)
    assert read is not None
    assert read.iterations == 4096
    assert (len(read.salt), len(read.stored_key), len(read.server_key)) == (16, 32, 32)
    for bad in ("", "md5" + "a" * 32, verifier[:-4], verifier + "x", verifier.replace("4096", "1"), verifier + "\n"):
        assert parse_verifier(bad) is None
    mock = parse_verifier(mock_verifier("x", SECRET))
    assert mock is not None
    assert (len(mock.salt), len(mock.stored_key), mock.iterations) == (16, 32, 4096)
    assert "key" not in repr(read)


def test_our_own_login_notices_a_server_that_does_not_know_the_password(verifier: str) -> None:
    client = ScramLogin("alice", "wonderland")
    exchange = ScramExchange("alice", verifier, SECRET)
    exchange.final(client.final(exchange.first(client.first())))
    with pytest.raises(ConnectionError):
        client.finish(b"v=" + base64.b64encode(b"x" * 32))
    for answer in (b"", b"e=other-error", b"r=short", b"\xff"):
        other = ScramLogin("alice", "wonderland")
        other.first()
        with pytest.raises(ConnectionError):
            other.final(answer)


def test_cancel_keys_have_their_length_and_never_repeat() -> None:
    assert [len(new_cancel_key(n)) for n in (4, 32, 256)] == [4, 32, 256]
    assert len({new_cancel_key(32) for _ in range(100)}) == 100


# -- libpq itself as the client -----------------------------------------------------------------------------------


def test_libpq_logs_in(verifier: str) -> None:
    with door(verifier) as served:
        connect(served).close()
    (packet,) = served.packets
    assert isinstance(packet, StartupMessage)
    assert packet.parameters["user"] == "alice"
    assert packet.parameters["database"] == "demo"


def test_libpq_with_a_wrong_password_hears_no(verifier: str) -> None:
    for stored in (verifier, None):
        with (
            door(stored) as served,
            pytest.raises(psycopg.OperationalError, match='password authentication failed for user "alice"'),
        ):
            connect(served, "rabbit")


@pytest.mark.skipif(pq.version() < 180000, reason="libpq before 18 speaks protocol 3.0 only")
@pytest.mark.parametrize("version", ["3.0", "3.2", "latest"])
def test_libpq_logs_in_with_each_protocol_version(verifier: str, version: str) -> None:
    with door(verifier) as served:
        connect(served, max_protocol_version=version).close()
    packet = served.packets[-1]
    assert isinstance(packet, StartupMessage)
    assert packet.minor == (0 if version == "3.0" else 2)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
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
    folder = tmp_path_factory.mktemp("tls")
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return cert_file, key_file


def test_libpq_logs_in_over_tls(verifier: str, certificate: tuple[Path, Path]) -> None:
    with door(verifier, tls_context(*certificate)) as served, connect(served, sslmode="require") as connection:
        assert connection.pgconn.ssl_in_use
    assert served.packets[0] == SSLRequest()


def test_libpq_goes_on_in_the_clear_when_tls_is_not_offered(verifier: str) -> None:
    with door(verifier) as served:
        connect(served, sslmode="prefer").close()
    assert served.packets[0] == SSLRequest()


def test_old_tls_is_not_spoken(certificate: tuple[Path, Path]) -> None:
    context = tls_context(*certificate)
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert context.num_tickets == 0
