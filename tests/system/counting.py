"""A pgveil that counts its round trips, for tests only: SIGUSR1 has it write them to the file that COUNTS names.

python tests/system/counting.py serve ...
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from psycopg import AsyncCursor

from proxy.__main__ import main
from proxy.link import Link
from proxy.lookout import Lookout

COUNTED: Counter[str] = Counter()


def count(of: type[Any], method: str, name: str) -> None:
    real = getattr(of, method)

    def counted(*arguments: Any, **more: Any) -> Any:
        COUNTED[name] += 1
        return real(*arguments, **more)

    setattr(of, method, counted)


def tell(*_: object) -> None:
    place = Path(os.environ["COUNTS"])
    place.with_suffix(".new").write_text(json.dumps(COUNTED))
    place.with_suffix(".new").rename(place)


if __name__ == "__main__":
    count(AsyncCursor, "execute", "provenance")  # a warm answer reads no private row, so these are all
    count(Lookout, "ask", "provenance")
    count(Link, "ask", "shadow")
    signal.signal(signal.SIGUSR1, tell)
    sys.exit(main())
