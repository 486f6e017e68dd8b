"""What holds for scans, that is for questions that read protected rows: when they may answer, and the least price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class ScanPolicy:
    """The columns ``timing`` and ``scan_floor`` of the deployment."""

    QUERY: ClassVar[str] = "SELECT timing, scan_floor FROM provenance.deployment"

    delayed: bool = True
    floor: Decimal = Decimal("0.00025")  # of the analyst's own limit

    @classmethod
    def of(cls, row: Sequence[Any]) -> ScanPolicy:
        return cls(row[0] != "immediate", Decimal(row[1]))
