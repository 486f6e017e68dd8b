"""A pgveil that believes for an hour what it was told of a session's settings, for tests only.

What is told at once must not hang on how quick the machine is; and what is noticed is noticed by itself, not because a
second has passed.

python tests/system/believing.py serve ...
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import proxy.express
from proxy.__main__ import main

proxy.express._BELIEVED = 3600.0  # type: ignore[misc]

if __name__ == "__main__":
    sys.exit(main())
