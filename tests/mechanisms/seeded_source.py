"""A source of bytes that is the same in every run: SHAKE-256 of a seed and a counter."""

from __future__ import annotations

import hashlib
from itertools import count

from mechanisms.sampler import Source


def seeded(seed: str) -> Source:
    """A stream of its own for each seed."""
    calls = count()

    def source(n: int) -> bytes:
        return hashlib.shake_256(f"{seed}/{next(calls)}".encode()).digest(n)

    return source
