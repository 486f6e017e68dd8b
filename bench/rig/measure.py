"""Rivals measured in turn, and their ratios.

A busy neighbour slows a minute of the machine, not one of the rivals: so they take turns in short rounds, each round
gives one quotient, and the median of the quotients is the result.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

Sample = TypeVar("Sample")


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of the rounds' quotients, and how far they lie apart."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}..{self.high:.2f})"

    def as_json(self) -> dict[str, float]:
        return {"median": self.median, "low": self.low, "high": self.high}


def interleave(
    ways: Mapping[str, Callable[[], Sample]], rounds: int, label: str = "", quiet: bool = False
) -> dict[str, list[Sample]]:
    """Call every way once per round, and start each round with another one."""
    samples: dict[str, list[Sample]] = {name: [] for name in ways}
    order = list(ways)
    for number in range(rounds):
        if not quiet:
            say(f"{label}: round {number + 1} of {rounds}")
        turn = number % len(order)
        for name in order[turn:] + order[:turn]:
            samples[name].append(ways[name]())
    return samples


def ratio(over: Sequence[float], under: Sequence[float]) -> Ratio:
    """One thing over another, round by round."""
    quotients = [a / b for a, b in zip(over, under, strict=True)]
    return Ratio(statistics.median(quotients), min(quotients), max(quotients))


def say(text: str) -> None:
    """Progress."""
    print(f"bench: {text}", file=sys.stderr, flush=True)
