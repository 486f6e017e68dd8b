"""A pgveil that tells nothing at once, for tests only: every question is planned, looked up and finished anew.

python tests/system/longway.py serve ...
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import proxy.asking
from proxy.__main__ import main
from proxy.express import Express


async def never(*_: Any) -> None:
    return None


proxy.asking.at_once = never  # type: ignore[assignment]
Express.sure = lambda _: False  # type: ignore[method-assign,assignment,return-value,misc]

if __name__ == "__main__":
    sys.exit(main())
