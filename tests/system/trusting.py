"""A pgveil that asks about tables with row level security, for tests only: policies make PostgreSQL fail on rows.

python tests/system/trusting.py serve ...

With TRUSTING_DELAY, the delay of answers is that many seconds instead of a secret one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from provenance import structure
from proxy import pacing
from proxy.__main__ import main

if __name__ == "__main__":
    structure.barred = lambda rows: {}
    if "TRUSTING_DELAY" in os.environ:
        pacing.delay = lambda source: int(float(os.environ["TRUSTING_DELAY"]) * 1_000_000)
    sys.exit(main())
