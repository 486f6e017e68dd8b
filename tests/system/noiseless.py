"""A pgveil without noise, for tests only: the release step is replaced before the proxy starts.

    python tests/system/noiseless.py serve ...

Everything else is the product: what it answers must be what PostgreSQL answers.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np

import mechanisms.release
import proxy.answer
from proxy.__main__ import main


def no_noise(noise: Any, count: int, source: Any) -> Any:
    return np.zeros(count, dtype=np.int64)


def no_lean(row: Any, direction: int, threshold: Any, share: Any) -> Any:
    return row >= threshold if direction > 0 else row <= threshold


if __name__ == "__main__":
    mechanisms.release.draw = no_noise
    proxy.answer.decide = no_lean
    sys.exit(main())
