"""PostgreSQL's names of client encodings, as Python's codecs."""

from __future__ import annotations

from typing import Final

from proxy import messages as m
from sqlrewrite.errors import NotAnswered

_LATIN: Final = {1: 1, 2: 2, 3: 3, 4: 4, 5: 9, 6: 10, 7: 13, 8: 14, 9: 15, 10: 16}  # LATIN5 is ISO 8859-9, and so on
_CODECS: Final = (
    {"UTF8": "utf-8", "SQL_ASCII": "utf-8"}
    | {f"LATIN{ours}": f"iso8859-{theirs}" for ours, theirs in _LATIN.items()}
    | {f"WIN{page}": f"cp{page}" for page in (866, 874, 1250, 1251, 1252, 1253, 1254, 1255, 1256, 1257, 1258)}
)


def codec(encoding: str) -> str:
    """The codec of a client encoding; a question in one that is not listed is refused."""
    try:
        return _CODECS[encoding]
    except KeyError:
        raise NotAnswered(
            f"questions cannot be read in the client encoding {encoding}", hint="SET client_encoding = 'UTF8'."
        ) from None


def recoded(frame: bytes, encoding: str) -> bytes:
    """A frame that we wrote in UTF-8, as this client reads it; what its encoding lacks becomes a question mark."""
    known = _CODECS.get(encoding, "ascii")
    return frame if known == "utf-8" else m.encode(frame[0], frame[5:].decode().encode(known, "replace"))
