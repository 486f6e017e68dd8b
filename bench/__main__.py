"""Run benches by name, print their tables, and keep numbers and pictures."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path

import bench
from bench.rig.report import Report, print_report, write

RESULTS = Path(__file__).parent / "results"


def names() -> list[str]:
    """Every bench there is: the modules of this package itself."""
    return sorted(
        module.name for module in pkgutil.iter_modules(bench.__path__) if not module.ispkg and module.name[0] != "_"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; 2 if there is no such bench."""
    known = names()
    parser = argparse.ArgumentParser(prog="python -m bench", description=f"Benches: {', '.join(known)}.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which benches; all if none is named")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: shows that it runs, not how fast")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="DIR", help="where JSON and pictures go")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in known]
    if unknown:
        print(f"there is no bench {' or '.join(unknown)}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    for name in options.names or known:
        report: Report = importlib.import_module(f"bench.{name}").run(smoke=options.smoke)
        print_report(report)
        for path in write(report, options.out):
            print(f"wrote {path}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
