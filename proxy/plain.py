"""Bound parameters that are read here as PostgreSQL reads them: whole numbers and texts, the most common ones.

All others go to the shadow (``proxy.conversation``), and so does whatever PostgreSQL would refuse.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_INTEGERS: Final = {21: 2, 23: 4, 20: 8}  # oid -> bytes: int2, int4, int8
_TEXTS: Final = frozenset((25, 1043))  # text, varchar
_DIGITS: Final = re.compile(rb"-?[0-9]{1,18}")


def each_format(formats: Sequence[int], count: int) -> tuple[int, ...]:
    """The format of each parameter: Bind may tell none, one for all, or one each."""
    return tuple(formats) if len(formats) == count else tuple(formats[:1] or (0,)) * count


def plain_text(oid: int, value: bytes | None, format_: int) -> str | None:
    """The text that PostgreSQL would print for a parameter sent in UTF-8; None where it has to be asked."""
    if value is None:
        return None
    width = _INTEGERS.get(oid)
    if width is not None:
        if format_:
            return str(int.from_bytes(value, "big", signed=True)) if len(value) == width else None
        number = int(value) if _DIGITS.fullmatch(value) else None
        return str(number) if number is not None and -(1 << 8 * width - 1) <= number < 1 << 8 * width - 1 else None
    if oid not in _TEXTS or b"\0" in value:
        return None
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return None
