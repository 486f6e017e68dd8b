"""The session settings of pgveil, with their defaults as PostgreSQL shows them.

They are custom parameters of the shadow session, so SET LOCAL, ROLLBACK, RESET, SHOW and startup options mean
what they mean in PostgreSQL; an empty text means "unset".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "veil.beta": "0.05",
        "veil.alpha": "0.1",
        "veil.epsilon": "",
        "veil.margin": "50u",
        "veil.confidence": "0.95",
        "veil.max_epsilon": "",  # the analyst's limit
        "veil.support": "",
        "veil.mechanism": "auto",
        "veil.certify": "alpha",  # 'beta': alpha is kept for every group, and beta on average
        "veil.raw": "off",
        "veil.reuse": "off",
        "veil.on_exhausted": "error",
    }
)

_NAME: Final = re.compile(rb"\bveil\.[a-z_][a-z0-9_$]{0,100}")
_MOST: Final = 1000  # names; who writes more unknown ones learns of the first thousand


def note_unknown(text: bytes | str, known: set[str]) -> None:
    """Add the ``veil.`` names in a text that are no settings of ours: if one of them is set when a question comes, the
    question is refused."""
    small = (text.encode() if isinstance(text, str) else text).lower()
    if b"veil." in small:
        for name in map(bytes.decode, _NAME.findall(small)):
            if name not in SETTINGS and len(known) < _MOST:
                known.add(name)
