"""Channel binding: what ties a login to the TLS connection on which it happens (RFC 5929, tls-server-end-point).

The data is a hash of the server's certificate, made with the hash of the certificate's own signature. Both sides must
choose the same one, so only algorithms are listed here for which libpq, JDBC and the like agree; for all others
(Ed25519 has no hash of its own, and libpq fails there) channel binding is not offered: clients log in without it.
"""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final

TYPE: Final = "tls-server-end-point"

_OID, _FIRST_FIELD = 0x06, 0xA0
_RSA, _ECDSA, _HASH = "2a864886f70d0101", "2a8648ce3d04", "6086480165030402"
_PSS: Final = bytes.fromhex(_RSA + "0a")

# A certificate signed over MD5 or SHA-1 is hashed with SHA-256 instead.
_SIGNATURES: Final = {
    bytes.fromhex(oid): name
    for oid, name in (
        *((_RSA + "04", "sha256"), (_RSA + "05", "sha256"), (_RSA + "0e", "sha224"), (_RSA + "0b", "sha256")),
        *((_RSA + "0c", "sha384"), (_RSA + "0d", "sha512")),
        *((_ECDSA + "01", "sha256"), (_ECDSA + "0301", "sha224"), (_ECDSA + "0302", "sha256")),
        *((_ECDSA + "0303", "sha384"), (_ECDSA + "0304", "sha512")),
    )
}
_HASHES: Final = {
    bytes.fromhex(oid): name
    for oid, name in (
        *(("2b0e03021a", "sha256"), (_HASH + "04", "sha224"), (_HASH + "01", "sha256")),
        *((_HASH + "02", "sha384"), (_HASH + "03", "sha512")),
    )
}
_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def end_point(certificates: Path | str) -> bytes | None:
    """The binding data of the first certificate in a PEM file, which is the one that a client gets to see."""
    found = _CERTIFICATE.search(Path(certificates).read_text("latin-1"))
    return None if found is None else certificate_hash(ssl.PEM_cert_to_DER_cert(found[0]))


def certificate_hash(der: bytes) -> bytes | None:
    """The hash of a certificate by the algorithm of its signature; None if that has none that all agree on."""
    try:
        ((_, certificate),) = _parts(der)
        _, (_, algorithm), _ = _parts(certificate)
        name = _signature_hash(list(_parts(algorithm)))
    except ValueError:  # not the DER that was expected
        return None
    return None if name is None else hashlib.new(name, der).digest()


def _signature_hash(algorithm: list[tuple[int, bytes]]) -> str | None:
    (kind, oid), *parameters = algorithm
    if kind != _OID or oid != _PSS:
        return _SIGNATURES.get(oid)
    # RSASSA-PSS-params: the hash is the first field, [0], and SHA-1 where it is left out.
    fields = dict(_parts(parameters[0][1])) if parameters else {}
    if _FIRST_FIELD not in fields:
        return "sha256"
    ((_, chosen),) = _parts(fields[_FIRST_FIELD])
    (_, oid), *_ = _parts(chosen)
    return _HASHES.get(oid)


def _parts(der: bytes) -> Iterator[tuple[int, bytes]]:
    """The (tag, content) pairs that stand one behind the other; ``ValueError`` if they are not whole."""
    at = 0
    while at < len(der):
        if at + 2 > len(der):
            raise ValueError("a head without a length")
        tag, size, at = der[at], der[at + 1], at + 2
        if size >= 0x80:
            words = size & 0x7F
            size, at = int.from_bytes(der[at : at + words], "big"), at + words
        if at + size > len(der):
            raise ValueError("a part that is longer than the whole")
        yield tag, der[at : at + size]
        at += size
