"""Min-entropy of a spend: how uncertain the luckiest adversary stays about which group a person is in.

With losses epsilon_1..epsilon_k of the groups and uniform priors, the belief p_i in group i lies between l_i =
e^-epsilon_i / sum e^epsilon and u_i = e^epsilon_i / sum e^-epsilon (thesis, Lemma 5.1; no beliefs meet the bounds of
ProBE, Eq. 53). The metric is the least entropy of such beliefs that sum to 1 (thesis, Def. 5.4), in nats.

Entropy is concave, so it is least at a vertex: every p_i stands on a bound, except one. That is a knapsack: raise some
groups from l to u within the slack 1 - sum l, and one of them in part. Groups of one loss are alike, so d distinct
losses leave at most (k+1)^d choices. They are searched best first under the chord bound (every group may be raised in
part, along the chord of its p ln p), which is itself the answer of ``entropy_bound``. Nothing is charged by these
numbers: they are for administrators and for the choice of the next level, so floats will do.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import scipy  # its parts are loaded where they are first used: a proxy starts without them
from numpy.typing import NDArray

Reals: TypeAlias = NDArray[np.float64]

_EFFORT = 500
_TOLERANCE = 1e-10  # nats; far above the rounding of the sums, far below what anybody reads


@dataclass(frozen=True, slots=True)
class _Kind:
    """Groups of one loss: how many, between which beliefs, and what raising one of them takes and gives."""

    count: int
    low: float
    width: float
    gain: float  # u ln u - l ln l
    slope: float  # gain / width: what the chord gives for each unit of slack

    def part(self, raised: float) -> float:
        """What raising one group in part gives: at most ``slope`` times that, since p ln p is convex."""
        return _xlogx(self.low + raised) - _xlogx(self.low)


def min_entropy(losses: Sequence[float], counts: Sequence[int], effort: int = _EFFORT) -> float:
    """The least entropy in nats, where ``counts[i]`` groups have lost ``losses[i]`` each.

    Exact to 1e-10 if the search ends within ``effort`` steps, as it does for levels that are some way apart; else
    the bound that it has proven by then. *Guarantee*: never above the minimum by more than 1e-10, and below it by less
    than what one group can add.
    """
    kinds, flat, slack = _kinds(losses, counts)
    return flat - _raised(kinds, slack, effort) if kinds else flat


def entropy_bound(losses: Sequence[float], counts: Sequence[float]) -> float:
    """A lower bound on ``min_entropy`` by chords, in O(d log d) for d distinct losses: off by at most one group."""
    epsilons, groups = np.asarray(losses, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    _checked(epsilons, groups)
    low, high = _beliefs(epsilons, groups)
    flat, width = scipy.special.entr(low), high - low
    slack = max(0.0, 1.0 - float(groups @ low))
    with np.errstate(invalid="ignore", divide="ignore"):
        slope = np.where(width > 0, (flat - scipy.special.entr(high)) / width, -np.inf)
    order = np.argsort(-slope)
    filled = np.diff(np.minimum(np.cumsum((groups * width)[order]), slack), prepend=0.0)
    return float(groups @ flat - filled[filled > 0] @ slope[order][filled > 0])


def normalised(entropy: float, groups: int) -> float:
    """As the papers plot it: 1 is an adversary who has learnt nothing."""
    return entropy / math.log(groups) if groups > 1 else 1.0


def _xlogx(p: float) -> float:
    return p * math.log(p) if p > 0 else 0.0


def _beliefs(epsilons: Reals, groups: Reals) -> tuple[Reals, Reals]:
    """Lemma 5.1: the least and the largest belief in a group of each loss; shifted, so that nothing overflows."""
    most, least = epsilons.max(), epsilons.min()
    ups = np.log(groups @ np.exp(epsilons - most)) + most
    downs = np.log(groups @ np.exp(least - epsilons)) - least
    return np.exp(-epsilons - ups), np.exp(np.minimum(0.0, epsilons - downs))


def _checked(epsilons: Reals, groups: Reals) -> None:
    if not groups.sum() > 0 or (groups < 0).any() or (epsilons < 0).any():
        raise ValueError("a spend is of at least one group, and no loss is negative")


def _kinds(losses: Sequence[float], counts: Sequence[int]) -> tuple[list[_Kind], float, float]:
    """The kinds by falling slope, the entropy sum while everybody stands on the lower bound, and the slack."""
    merged: dict[float, int] = {}
    for loss, count in zip(losses, counts, strict=True):
        merged[loss] = merged.get(loss, 0) + count
    epsilons, groups = np.array(list(merged)), np.array(list(merged.values()), dtype=np.float64)
    _checked(epsilons, groups)
    lows, highs = _beliefs(epsilons, groups)
    kinds, flat, floor = [], 0.0, 0.0
    for count, low, high in zip(merged.values(), lows.tolist(), highs.tolist(), strict=True):
        flat -= count * _xlogx(low)
        floor += count * low
        gain, width = _xlogx(high) - _xlogx(low), high - low
        if count and width > 0:
            kinds.append(_Kind(count, low, width, gain, gain / width))
    kinds.sort(key=lambda kind: -kind.slope)
    slack = max(0.0, 1.0 - floor)
    return (kinds, flat, slack) if slack > _TOLERANCE * _TOLERANCE else ([], flat, 0.0)


def _chords(kinds: Sequence[_Kind], start: int, room: float, partly: _Kind | None) -> float:
    """The most that the kinds from ``start`` on can give if all may be raised in part, and one more of ``partly``."""
    given = 0.0
    if partly is not None:
        if partly.width >= room:
            return partly.slope * room
        given, room = partly.gain, room - partly.width
    for kind in kinds[start:]:
        whole = kind.count * kind.width
        if whole >= room:
            return given + kind.slope * room
        given, room = given + kind.count * kind.gain, room - whole
    # The upper bounds sum to at least 1, so what is left over at the very start is rounding.
    return given if start == 0 or room <= _TOLERANCE else -math.inf


def _raised(kinds: list[_Kind], slack: float, effort: int) -> float:
    """The most that raising groups within the slack can give: best first, kind by kind.

    A node has fixed how many groups of the first kinds are raised in full; the one in part may still be of any kind of
    which not all are (``partly`` is the one with the best chord).
    """
    best, pushed = -math.inf, 0
    queue: list[tuple[float, int, int, float, float, tuple[int, ...]]] = [
        (-_chords(kinds, 0, slack, None), 0, 0, slack, 0.0, ())
    ]
    while queue:
        bound, _, kind_at, room, given, unfilled = heapq.heappop(queue)
        if -bound <= best + _TOLERANCE:
            break
        if effort <= 0:
            return -bound
        effort -= 1
        best = max(best, _completed(kinds, kind_at, room, given, unfilled))
        if kind_at + 1 == len(kinds):
            continue
        kind = kinds[kind_at]
        for raised in range(_fitting(kind, room), -1, -1):
            left = max(0.0, room - raised * kind.width)
            partly = unfilled if raised == kind.count else (*unfilled, kind_at)
            reached = given + raised * kind.gain
            hope = reached + _chords(kinds, kind_at + 1, left, kinds[partly[0]] if partly else None)
            if hope <= best + _TOLERANCE:
                break  # fewer of a better kind only give less
            pushed += 1
            heapq.heappush(queue, (-hope, pushed, kind_at + 1, left, reached, partly))
    return best


def _fitting(kind: _Kind, room: float) -> int:
    return min(kind.count, math.floor(room / kind.width * (1 + 1e-12)))


def _completed(kinds: list[_Kind], start: int, room: float, given: float, unfilled: tuple[int, ...]) -> float:
    """What a node surely gives: the rest is filled greedily, and the part is put where it gives most."""
    best = -math.inf
    for kind_at in range(start, len(kinds)):
        kind = kinds[kind_at]
        raised = _fitting(kind, room)
        room, given = max(0.0, room - raised * kind.width), given + raised * kind.gain
        if raised < kind.count:
            unfilled = (*unfilled, kind_at)
        parts = [kinds[at].part(room) for at in unfilled if room <= kinds[at].width]
        if parts:
            best = max(best, given + max(parts))
        elif room <= _TOLERANCE:
            best = max(best, given)
    return best
