"""Noise that is made narrower after it was shown: the wider noise becomes the narrower plus independent rest.

An analyst who was shown F + e, with noise e of variance s, and needs less gets F + a with a of variance t < s, such
that e = a + b with b independent of a and F. Whoever sees both sees F + a and then noise: the pair costs what F + a
costs. A redraw of a from scratch would not do: the average of both is sharper than either.

*The law.* For independent discrete Gaussians a and b of variances t and s - t, completing the square gives

    exp(-a^2 / 2t) exp(-(e-a)^2 / 2(s-t)) = exp(-e^2 / 2s) exp(-(a - e t/s)^2 / 2w),      w = t (s-t) / s,

so a given e is the discrete Gaussian on the integers with the centre e t/s and variance w. With t/s = j/64 there are 64
fractional parts of a centre, and a small table for each.

*What is exact, what nearly.* ``narrowed`` draws a given e within total variation 2**-200 of that law. The first e
is drawn as a discrete Gaussian, while a + b is one only up to the factor theta(e t/s), theta(c) being the sum of
exp(-(x-c)^2 / 2w) over the integers x. By Poisson summation theta lies within a factor 1 +- 2.1 exp(-2 pi^2 w) of
sqrt(2 pi w) whatever c is. So after any number of steps the joint law of all that was shown and the ideal one, in which
everything is F + (the last a) and independent rest, differ pointwise by a factor within exp(+-eta), eta being at most
4.3 exp(-2 pi^2 w) for each step: below 2.2e-34, since w >= 4 is required (``FEWEST``). ``synopsis`` says what it costs.

*Proof of the bound 2**-200.* As in ``sampler``: a centred table has the same rounding and cutting errors, and its total
mass is at least 1 since w >= 4. From w = 128 on, a is X + Y with X of variance 8 around the fractional centre and Y of
variance w - 8 around 0: by (6) there, with a bell of variance 8 (1 - 8/w) >= 7.5, whatever the shift.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

import numpy as np

from mechanisms.fixed import BITS, exp_down
from mechanisms.noise import NEGLIGIBLE, DiscreteGaussian
from mechanisms.sampler import Source, Table, draw
from mechanisms.values import Lattice

FEWEST = Fraction(4)
"""The smallest variance, in lattice units squared, that sums of discrete Gaussians are taken for Gaussian at."""
PARTS = 64
"""A variance is brought to so many parts of the one before."""
_NEAR = Fraction(8)  # the variance of the part that has the fractional centre, where the noise is wide
_WIDE = Fraction(128)


def between(wide: Fraction, narrow: Fraction) -> Fraction:
    """The variance of the narrow noise where the wide one is known."""
    return narrow * (wide - narrow) / wide


def reachable(wide: Fraction, most: Fraction) -> Fraction | None:
    """The largest variance up to ``most`` that the wide noise can be brought to; None where there is none.

    It is wide * j/64 / 2^n with j from 32 to 63: less than a thirty-second below what was asked, unless ``FEWEST`` asks
    for a longer step.
    """
    if not 0 < most < wide:
        return None
    halved = wide
    while 2 * most < halved:
        halved /= 2
    # The variance in between is largest at one half: where that does not do, nothing does.
    for parts in range(int(PARTS * most / halved), PARTS // 2 - 1, -1):
        narrow = halved * parts / PARTS
        if _passable(_way(wide, narrow)):
            return narrow
    return None


def stations(wide: Fraction, narrow: Fraction) -> tuple[Fraction, ...]:
    """The variances on the way from wide to narrow noise, each j/64 of the one before; both ends are included."""
    if not 0 < narrow < wide or not _passable(way := _way(wide, narrow)):
        raise ValueError(f"noise of variance {wide} cannot be brought to {narrow}")
    return way


def _way(wide: Fraction, narrow: Fraction) -> tuple[Fraction, ...]:
    """Halve as often as possible, up to six times at once, and then the rest."""
    found = [wide]
    while 2 * narrow <= found[-1]:
        found.append(found[-1] / min(PARTS, 1 << int(found[-1] / narrow).bit_length() - 1))
    return (*found, narrow) if found[-1] != narrow else tuple(found)


def _passable(way: tuple[Fraction, ...]) -> bool:
    return all(
        (after * PARTS / before).denominator == 1 and between(before, after) >= FEWEST
        for before, after in pairwise(way)
    )


def narrowed(noise: Lattice, wide: Fraction, narrow: Fraction, source: Source) -> Lattice:
    """Narrower noise for each cell, given the wider.

    *Guarantee*: given the new noise, the old one is the new one plus noise that is independent of it, up to the factor
    that the head of this file bounds; each draw is within total variation 2**-200 of its law.
    """
    found = noise
    for before, after in pairwise(stations(wide, narrow)):
        shifted = found * int(after * PARTS / before)
        whole = shifted // PARTS
        found = whole + _around(shifted - whole * PARTS, between(before, after), source)
    return found


def _around(parts: Lattice, variance: Fraction, source: Source) -> Lattice:
    """A discrete Gaussian around parts/64 for each cell."""
    near = _NEAR if variance >= _WIDE else variance
    # One word for each cell, whatever its centre: the bytes that are taken tell nothing.
    bits = np.frombuffer(source(8 * len(parts)), dtype=">u8").astype(np.uint64)
    drawn = np.empty(len(parts), dtype=np.int64)
    for part in np.flatnonzero(np.bincount(parts, minlength=PARTS)):
        here = np.flatnonzero(parts == part)
        table, first = centred_table(near, int(part))
        drawn[here] = table.cells_of(bits[here], source) + first
    if variance >= _WIDE:
        drawn += draw(DiscreteGaussian(variance - near), len(parts), source)
    return drawn


@lru_cache(maxsize=2048)  # at most 0.02 MB each
def centred_table(variance: Fraction, parts: int) -> tuple[Table, int]:
    """The discrete Gaussian of this variance around parts/64, and the integer of its first cell."""
    centre = Fraction(parts, PARTS)
    below, above = _side(centre, variance), _side(1 - centre, variance)  # at 0, -1, ... and at 1, 2, ...
    return Table.of([*reversed(below), *above]), 1 - len(below)


def _side(start: Fraction, variance: Fraction) -> list[int]:
    """exp(-(start + x)^2 / (2 variance)) for x = 0, 1, ... in fixed point from below, until negligible.

    As ``noise.gaussian_masses``: the x-th is off by at most 2 (x+1)^2 units.
    """
    mass = exp_down(start * start / (2 * variance))
    ratio, shrink = exp_down((2 * start + 1) / (2 * variance)), exp_down(1 / variance)
    masses = []
    while mass >= NEGLIGIBLE:
        masses.append(mass)
        mass = mass * ratio >> BITS
        ratio = ratio * shrink >> BITS
    return masses
