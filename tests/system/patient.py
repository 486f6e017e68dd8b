"""A pgveil whose secret delay is some seconds, for tests only: what waits for it can be told from what does not.

python tests/system/patient.py serve ...
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from mechanisms.sampler import Source
from proxy import pacing
from proxy.__main__ import main

DELAY = 2.0  # seconds, and up to a quarter more for the grid


def fixed(source: Source) -> int:
    return int(DELAY * 1_000_000)


if __name__ == "__main__":
    pacing.delay = fixed
    sys.exit(main())
