"""A pgveil with one planted bug, for tests only: the fault is put in before the proxy starts.

    python tests/attacks/faulty_proxy.py FAULT serve ...

Everything else is the product, prices and bills above all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import proxy.plan
from mechanisms.noise import Noise
from mechanisms.sampler import Source, draw
from mechanisms.values import Lattice
from proxy.__main__ import main
from sqlrewrite.question import Question
from sqlrewrite.sensitivity import Contribution, sensitivity


def narrow_noise() -> None:
    """Ten percent too little noise wherever some is drawn, at the price of all of it."""

    def narrower(noise: Noise, n: int, source: Source) -> Lattice:
        return draw(noise.scaled(Fraction(9, 10)), n, source)

    for name, module in list(sys.modules.items()):
        if name.startswith("mechanisms.") and name != draw.__module__ and getattr(module, "draw", None) is draw:
            setattr(module, "draw", narrower)  # noqa: B010 (a module, which has it only perhaps)


def a_row_too_few() -> None:
    """A unit is said to move a number by one less than it does."""

    def less(question: Question) -> Contribution:
        told = sensitivity(question)
        return replace(told, statistics=tuple(max(1, moved - 1) for moved in told.statistics))

    proxy.plan.sensitivity = less


def a_group_too_few() -> None:
    """A unit is said to lie in one group less than it does."""

    def less(question: Question) -> Contribution:
        told = sensitivity(question)
        return replace(told, groups=max(1, told.groups - 1), cells=max(1, told.cells - 1))

    proxy.plan.sensitivity = less


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__: fault for fault in (narrow_noise, a_row_too_few, a_group_too_few)
}

if __name__ == "__main__":
    FAULTS[sys.argv.pop(1)]()
    sys.exit(main())
