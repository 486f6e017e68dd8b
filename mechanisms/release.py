"""The one place of noise: exact numbers go in, noisy ones come out."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from mechanisms import values
from mechanisms.sampler import Source, draw
from mechanisms.threshold import Share
from mechanisms.values import Exact, Noisy, Passed

LARGEST = 2**62
"""Exact numbers are clamped to this; draws stay within 2**50, so a sum never leaves 64 bits."""


def release(exact: Exact, shares: Sequence[Share], source: Source = os.urandom) -> Noisy:
    """One share's noise for each aggregate row, an independent draw for each cell.

    *Guarantee*: row i is ``shares[i].epsilon``-DP for an aggregate that one privacy unit moves by at most
    ``shares[i].noise.sensitivity`` in one cell. Nothing here can fail or wrap around because of the data: clamping to
    2**62 moves no two numbers apart, so the price holds even for numbers that no registered bound allows.
    """
    rows, cells = exact.shape
    if len(shares) != rows:
        raise ValueError(f"{rows} aggregates need as many shares, not {len(shares)}")
    # Drawn before the exact numbers are opened: what the sampler does cannot depend on them.
    noise = np.empty((rows, cells), dtype=np.int64)
    for row, share in enumerate(shares):
        noise[row] = draw(share.noise, cells, source)
    return Noisy(np.clip(exact.open_for_release(), -LARGEST, LARGEST) + noise)


def release_found(
    statistics: Exact,
    presence: Exact,
    shares: Sequence[Share],
    presence_share: Share,
    threshold: int,
    source: Source = os.urandom,
) -> tuple[Passed, Noisy]:
    """Noise for groups whose keys nobody knew before: a group is named only if its noisy number of units passes.

    *Guarantee*: a group that one unit alone brings into being has one unit in it, so it is named with probability
    at most P[1 + X >= threshold], which ``key_threshold`` makes at most delta over the groups that a unit can touch;
    groups that are there with and without the unit pay ``presence_share`` and ``shares`` as usual (stability-based
    selection, Korolova et al. 2009).
    """
    counted = release(presence, [presence_share], source).row(0)
    noisy = release(statistics, shares, source)
    passed = np.flatnonzero(counted >= threshold).astype(np.int64)
    return Passed(passed, values._RELEASE), Noisy(noisy.values[:, passed])
