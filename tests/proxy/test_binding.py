"""Channel binding: the hash that both sides must agree on, and libpq itself as the other side."""

from __future__ import annotations

import base64
import datetime
import hashlib
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa
from cryptography.x509.oid import NameOID
from door import SECRET, connect, door
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import pq
from scramp import ScramClient

from proxy.auth import MECHANISM, PLUS, ScramExchange
from proxy.binding import TYPE, certificate_hash, end_point
from proxy.errors import InvalidAuthorization, ProtocolViolation
from proxy.tls import tls_context

RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
_ALGORITHM = bytes.fromhex("2a864886f70d0101")


def signed(key: Any, algorithm: hashes.HashAlgorithm | None, **more: Any) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, algorithm, **more)
    )


def pss(algorithm: hashes.HashAlgorithm) -> x509.Certificate:
    return signed(RSA, algorithm, rsa_padding=padding.PSS(padding.MGF1(algorithm), algorithm.digest_size))


def der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.DER)


@pytest.fixture(scope="module")
def verifier() -> str:
    connection = pq.PGconn.connect_start(b"host=127.0.0.1 port=1")
    try:
        return connection.encrypt_password(b"wonderland", b"alice", b"scram-sha-256").decode()
    finally:
        connection.finish()


@pytest.mark.parametrize("algorithm", [hashes.SHA224(), hashes.SHA256(), hashes.SHA384(), hashes.SHA512()])
def test_a_certificate_is_hashed_as_it_was_signed(algorithm: hashes.HashAlgorithm) -> None:
    for certificate in (signed(RSA, algorithm), signed(EC, algorithm), pss(algorithm)):
        assert certificate_hash(der(certificate)) == certificate.fingerprint(algorithm)


@pytest.mark.parametrize("weak", [b"\x04", b"\x05"], ids=["md5", "sha1"])
def test_weak_hashes_are_replaced_by_sha_256(weak: bytes) -> None:
    """RFC 5929, section 4.1; nobody signs like this any more, so the algorithm's name is put in afterwards."""
    changed = der(signed(RSA, hashes.SHA512())).replace(_ALGORITHM + b"\x0d", _ALGORITHM + weak)
    assert certificate_hash(changed) == hashlib.sha256(changed).digest()


def test_without_a_hash_that_all_agree_on_there_is_none() -> None:
    for key in (ed25519.Ed25519PrivateKey.generate(), ed448.Ed448PrivateKey.generate()):
        assert certificate_hash(der(signed(key, None))) is None
    assert certificate_hash(der(signed(RSA, hashes.SHA3_256()))) is None


_SAMPLES = [der(signed(EC, hashes.SHA256())), der(pss(hashes.SHA256()))]


_BEGINNINGS = st.sampled_from(_SAMPLES).flatmap(lambda der: st.integers(0, len(der) - 1).map(lambda n: der[:n]))


@settings(deadline=None)
@given(st.binary(max_size=64) | _BEGINNINGS)
def test_what_is_no_certificate_has_no_hash(data: bytes) -> None:
    assert certificate_hash(data) is None


@settings(deadline=None)
@given(st.sampled_from(_SAMPLES), st.data())
def test_a_damaged_certificate_never_breaks_the_reader(sample: bytes, draw: st.DataObject) -> None:
    at = draw.draw(st.integers(0, len(sample) - 1))
    damaged = bytearray(sample)
    damaged[at] = draw.draw(st.integers(0, 255))
    found = certificate_hash(bytes(damaged))
    assert found is None or len(found) in (28, 32, 48, 64)


def test_the_first_certificate_of_a_chain_counts(tmp_path: Path) -> None:
    leaf, root = signed(EC, hashes.SHA256()), signed(RSA, hashes.SHA512())
    chain = tmp_path / "chain.pem"
    pem = [each.public_bytes(serialization.Encoding.PEM) for each in (leaf, root)]
    chain.write_bytes(b"subject: somebody \xe9\n" + b"".join(pem))
    assert end_point(chain) == leaf.fingerprint(hashes.SHA256())
    chain.write_text("nothing")
    assert end_point(chain) is None


# -- the exchange ---------------------------------------------------------------------------------------------------

HASH = b"h" * 32


@pytest.mark.parametrize(
    ("mechanism", "header", "refused"),
    [
        (PLUS, f"p={TYPE},,", None),
        (PLUS, "n,,", ProtocolViolation),
        (PLUS, "y,,", ProtocolViolation),
        (PLUS, "p=tls-unique,,", ProtocolViolation),
        (PLUS, "p=tls-exporter,,", ProtocolViolation),
        (PLUS, "p,,", ProtocolViolation),
        (MECHANISM, "n,,", None),
        (MECHANISM, "y,,", InvalidAuthorization),
        (MECHANISM, f"p={TYPE},,", ProtocolViolation),
        ("SCRAM-SHA-1", "n,,", ProtocolViolation),
    ],
)
def test_flags_must_fit_what_was_offered_and_chosen(
    verifier: str, mechanism: str, header: str, refused: type[Exception] | None
) -> None:
    exchange = ScramExchange("alice", verifier, SECRET, HASH)
    assert exchange.mechanisms == (PLUS, MECHANISM)
    if refused is None:
        assert exchange.first(f"{header}n=,r=abc".encode(), mechanism).startswith(b"r=abc")
    else:
        with pytest.raises(refused):
            exchange.first(f"{header}n=,r=abc".encode(), mechanism)


def test_without_tls_binding_cannot_be_chosen(verifier: str) -> None:
    exchange = ScramExchange("alice", verifier, SECRET)
    assert exchange.mechanisms == (MECHANISM,)
    with pytest.raises(ProtocolViolation, match="invalid SASL authentication mechanism"):
        exchange.first(f"p={TYPE},,n=,r=abc".encode(), PLUS)


@pytest.mark.parametrize("known", [True, False])
def test_another_certificate_does_not_pass(verifier: str, known: bool) -> None:
    exchange = ScramExchange("alice", verifier if known else None, SECRET, HASH)
    client = ScramClient([PLUS], "alice", "wonderland", channel_binding=(TYPE, b"x" * 32))
    client.set_server_first(exchange.first(client.get_client_first().encode(), PLUS).decode())
    with pytest.raises(InvalidAuthorization, match=r"^SCRAM channel binding check failed$") as caught:
        exchange.final(client.get_client_final().encode())
    assert caught.value.sqlstate == "28000"


def test_the_binding_cannot_be_left_out_in_the_second_message(verifier: str) -> None:
    exchange = ScramExchange("alice", verifier, SECRET, HASH)
    nonce = exchange.first(f"p={TYPE},,n=,r=abc".encode(), PLUS).split(b",")[0]
    with pytest.raises(InvalidAuthorization):
        exchange.final(b"c=biws," + nonce + b",p=" + base64.b64encode(b"p" * 32))


# -- libpq ----------------------------------------------------------------------------------------------------------


def served_with(folder: Path, key: Any, certificate: x509.Certificate) -> tuple[Path, Path]:
    chain, secret = folder / "cert.pem", folder / "key.pem"
    chain.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    return chain, secret


@pytest.mark.parametrize("kind", ["rsa-sha256", "rsa-sha512", "pss-sha384", "ec-sha384"])
def test_libpq_binds_to_certificates_of_every_kind(verifier: str, kind: str, tmp_path: Path) -> None:
    key, certificate = {
        "rsa-sha256": lambda: (RSA, signed(RSA, hashes.SHA256())),
        "rsa-sha512": lambda: (RSA, signed(RSA, hashes.SHA512())),
        "pss-sha384": lambda: (RSA, pss(hashes.SHA384())),
        "ec-sha384": lambda: (EC, signed(EC, hashes.SHA384())),
    }[kind]()
    chain, secret = served_with(tmp_path, key, certificate)
    with door(verifier, tls_context(chain, secret), end_point(chain)) as served:
        connect(served, sslmode="require", channel_binding="require").close()
    assert served.chosen == PLUS


def test_libpq_logs_in_without_binding_where_the_certificate_has_no_hash(verifier: str, tmp_path: Path) -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    chain, secret = served_with(tmp_path, key, signed(key, None))
    with door(verifier, tls_context(chain, secret), end_point(chain)) as served:
        connect(served, sslmode="require", channel_binding="prefer").close()
    assert served.chosen == MECHANISM


def test_libpq_that_does_not_want_binding_goes_without(verifier: str, tmp_path: Path) -> None:
    chain, secret = served_with(tmp_path, EC, signed(EC, hashes.SHA256()))
    with door(verifier, tls_context(chain, secret), end_point(chain)) as served:
        connect(served, sslmode="require", channel_binding="disable").close()
    assert served.chosen == MECHANISM


def test_libpq_hears_that_the_password_is_wrong_and_not_the_binding(verifier: str, tmp_path: Path) -> None:
    chain, secret = served_with(tmp_path, EC, signed(EC, hashes.SHA256()))
    with (
        door(verifier, tls_context(chain, secret), end_point(chain)) as served,
        pytest.raises(psycopg.OperationalError, match='password authentication failed for user "alice"'),
    ):
        connect(served, "rabbit", sslmode="require", channel_binding="require")
