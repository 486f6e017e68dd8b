"""to_date, to_timestamp, make_date and make_timestamp of constants: the moment that they mean, worked out exactly.

Only texts that fill their format to the digit are read. PostgreSQL takes others too, by rules of its own that are not
repeated here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Final

# sqlglot's form of a format, and PostgreSQL's.
FORMATS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "%Y-%m-%d": "YYYY-MM-DD",
        "%Y%m%d": "YYYYMMDD",
        "%m/%d/%Y": "MM/DD/YYYY",
        "%d/%m/%Y": "DD/MM/YYYY",
        "%d.%m.%Y": "DD.MM.YYYY",
        "%Y-%m-%d %H:%M": "YYYY-MM-DD HH24:MI",
        "%Y-%m-%d %H:%M:%S": "YYYY-MM-DD HH24:MI:SS",
        '%Y-%m-%d"T"%H:%M:%S': 'YYYY-MM-DD"T"HH24:MI:SS',
        "%Y-%m-%d %H:%M:%S.%f": "YYYY-MM-DD HH24:MI:SS.US",
    }
)
_DIGITS: Final = {"%Y": "[0-9]{4}", "%m": "[0-9]{2}", "%d": "[0-9]{2}", "%f": "[0-9]{6}"}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FAR: Final = Decimal(10) ** 11  # seconds: some three thousand years


def read(text: str, format_: str) -> datetime | None:
    """The moment that a text means in one of the formats, or None."""
    if format_ not in FORMATS:
        return None
    plain = format_.replace('"', "")
    shape = re.sub(r"%[A-Za-z]", lambda found: _DIGITS.get(found[0], "[0-9]{2}"), plain.replace(".", r"\."))
    if re.fullmatch(shape, text) is None:
        return None
    try:
        return datetime.strptime(text, plain)
    except ValueError:  # the 31st of February
        return None


def made(parts: Sequence[Decimal]) -> datetime | None:
    """make_date(year, month, day) or make_timestamp(year, month, day, hour, minute, seconds), or None."""
    *whole, last = (*parts, Decimal(0)) if len(parts) == 3 else parts
    if any(part != int(part) for part in whole) or last * 10**6 != int(last * 10**6) or not 0 <= last < 60:
        return None
    try:
        return datetime(*map(int, whole)) + timedelta(microseconds=int(last * 10**6))  # type: ignore[arg-type]
    except (ValueError, OverflowError):
        return None


def since_epoch(seconds: Decimal) -> datetime | None:
    """to_timestamp(seconds since 1970), if it falls on a microsecond; or None."""
    if abs(seconds) > _FAR or seconds * 10**6 != int(seconds * 10**6):
        return None
    try:
        return _EPOCH + timedelta(microseconds=int(seconds * 10**6))
    except OverflowError:
        return None


def spelt(moment: datetime | date) -> str:
    """A moment in the one form that means the same under every DateStyle."""
    return moment.isoformat(" ") if isinstance(moment, datetime) else moment.isoformat()
