"""The session settings of pgveil, with their defaults as PostgreSQL shows them.

They are custom parameters of the shadow session, so SET LOCAL, ROLLBACK, RESET, SHOW and startup options mean
what they mean in PostgreSQL; an empty text means "unset".
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

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
