"""Synopses of a view: a hidden global one that all share, and what each analyst knows of it (coin ``zcdp``).

The *global synopsis* is a list of independent discrete-Gaussian releases F_1, F_2, ... of the view's cells, with
variances s_i and precisions q_i = 1/s_i. It grows by one fresh release; precisions add, and prices Delta^2 q_i / 2 do
too: no friction, and two that grow it at the same time append two releases.

An analyst *knows* some releases whole and at most one, F, through added noise: L = F + e with e of variance v, which
has precision 1/(s + v). Nothing that analysts know, together, tells more than the releases do. To learn more, the one
that is known in part comes first (``bridge``), then whole releases in order, then a part of the next; only if all of
them are not enough does the global synopsis have to grow.

*Guarantee*: what an analyst knows of a view costs Delta^2/2 times its precision, for each cell that a unit touches, and
less than one quantum (1e-18) more for each step.

*Proof.* The law of L - truth is exp(-z^2 / 2(s+v)) times theta(z v/(s+v)) of ``bridge``, with w = s v / (s+v): it lies
pointwise within a factor exp(+-eta) of a discrete Gaussian of variance s + v. By ``bridge`` all that was shown on the
way is processing of L, up to such a factor for each step. With w >= 4, m steps have eta <= 2.2e-34 m together. Laws
within exp(+-eta) of each other are eta^2/2-zCDP (Bun and Steinke 2016, Prop. 3.3), the c cells that a unit touches are
independent, and closeness adds like distance (ibid., Lemma 5.2): if D_a(P,R) <= a x^2/2 and D_a(R,Q) <= a y^2/2 for all
orders a, then D_a(P,Q) <= a (x+y)^2/2. So with rho = c Delta^2 / 2(s+v) the loss is (sqrt(2 rho) + 2 eta sqrt(c))^2 / 2
= rho + 2 eta sqrt(2 rho c) + 2 eta^2 c, and the excess is below m quanta as long as rho c < 1e29. (For the like see
Kairouz, Liu, Steinke 2021.) Where w would be below 4, the release is taken whole, and nothing is a sum.

The best estimate from all that is known has weights in proportion to the precisions; rounding it is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np

from mechanisms import bridge
from mechanisms.loss import QUANTUM, WIDE, Coin
from mechanisms.noise import MAX_SIGMA2, DiscreteGaussian
from mechanisms.sampler import Source, draw
from mechanisms.values import Lattice

FRESH = -1
"""In a ``Step``, the release that does not exist yet: the one that ``grow`` asks for."""
_GRAIN = 2**64  # the precision of a fresh release is a whole number of these parts, so that sums stay short
_SHORT = 64  # bits of a variance that is taken as it is
_BITS = 30  # of the variance of added noise: rounding it down learns less than a billionth more
_NONE = Fraction(0)


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """One release of the global synopsis; without values where only the price matters."""

    id: int
    variance: Fraction
    values: Lattice | None = None

    @property
    def precision(self) -> Fraction:
        """Precisions of independent releases add."""
        return 1 / self.variance


@dataclass(frozen=True, slots=True, eq=False)
class Partial:
    """A release known through added noise of this variance; the values are release + noise."""

    release: int
    added: Fraction
    values: Lattice | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What an analyst knows of a view."""

    whole: frozenset[int] = frozenset()
    partial: Partial | None = None

    @property
    def ids(self) -> frozenset[int]:
        """The releases of which something is known."""
        return self.whole if self.partial is None else self.whole | {self.partial.release}

    def precision(self, releases: Sequence[Release]) -> Fraction:
        """The precision of the best estimate from all of it."""
        return sum((precision for _, precision in _weights(_by_id(releases), self)), _NONE)


@dataclass(frozen=True, slots=True)
class Step:
    """What must be done so that an analyst has the precision asked for; with nothing to do, it is there already."""

    take: tuple[int, ...]  # releases to be known whole
    partial: tuple[int, Fraction] | None  # a release, and the variance of the noise that is to remain added to it
    grow: Fraction | None  # the variance of the fresh release wanted
    precision: Fraction  # the analyst's, afterwards
    learned: Fraction  # of which new to the analyst
    new: Fraction  # precision new to the global synopsis

    @property
    def idle(self) -> bool:
        """Whether the analyst knows enough."""
        return not self.learned


def step(
    releases: Sequence[Release], known: Known, precision: Fraction, least: Fraction = _NONE, floor: Fraction = _NONE
) -> Step:
    """The way to this precision that grows the global synopsis least, and then teaches the analyst least.

    Where it has to grow, it grows by at least the part ``least`` of what it has, so that many small wishes do not leave
    many small releases; the analyst learns no more for that. Nor does it grow by less precision than ``floor``, which
    is what the least price of a scan buys; that is all for the analyst, who pays for it.
    """
    first = None if known.partial is None else known.partial.release
    order = sorted(
        (release for release in releases if release.id not in known.whole), key=lambda release: release.id != first
    )
    at_first = have = known.precision(releases)
    whole = sum((release.precision for release in releases), _NONE)
    grown = None
    if precision > whole:
        grown = Release(FRESH, fresh_variance(max(precision - whole, least * whole, floor)))
        order.append(grown)
        # Without such rounding all is for the analyst: the database then never pays more than she does.
        precision = precision if least else whole + grown.precision
    take: list[int] = []
    partial = None
    for release in order:
        if have >= precision:
            break
        before = known.partial if release.id == first else None
        told = _NONE if before is None else 1 / (release.variance + before.added)
        gained = release.precision - told
        added = None if have + gained <= precision else _added(release, before, told + precision - have)
        if added is None:
            take.append(release.id)
            have += gained
        else:
            partial = release.id, added
            have += 1 / (release.variance + added) - told
    return Step(
        tuple(take),
        partial,
        None if grown is None else grown.variance,
        have,
        have - at_first,
        _NONE if grown is None else grown.precision,
    )


def fresh_variance(precision: Fraction) -> Fraction:
    """The variance of a release of at least this precision: as wide as noise may be, and told in few digits."""
    exactly = 1 / precision
    if exactly.numerator.bit_length() <= _SHORT and exactly.denominator.bit_length() <= _SHORT:
        return min(MAX_SIGMA2, exactly)
    parts = -(-precision.numerator * _GRAIN // precision.denominator)
    return min(MAX_SIGMA2, Fraction(_GRAIN, parts))


def draw_partial(release: Release, before: Partial | None, added: Fraction, source: Source) -> Partial:
    """The release through noise of this variance: added afresh, or what the analyst has, with the noise narrowed.

    *Guarantee*: looks at released numbers only, so it costs the database nothing; for the analyst see the head.
    """
    if release.values is None:
        raise ValueError("a part of a release needs its values")
    if before is None:
        _wide_enough(release, added)
        return Partial(release.id, added, release.values + draw(DiscreteGaussian(added), len(release.values), source))
    if before.release != release.id or before.values is None:
        raise ValueError("what is known in part is known of this release")
    _wide_enough(release, added)
    noise = bridge.narrowed(before.values - release.values, before.added, added, source)
    return Partial(release.id, added, release.values + noise)


def advanced(known: Known, done: Step, partial: Partial | None = None, fresh: int = FRESH) -> Known:
    """What the analyst knows after the step; ``fresh`` is the id that the fresh release got."""
    whole = known.whole | {fresh if taken == FRESH else taken for taken in done.take}
    if done.partial is not None:
        wanted, added = done.partial
        release = fresh if wanted == FRESH else wanted
        if partial is not None and (partial.release, partial.added) != (release, added):
            raise ValueError("the part that was drawn is not the one of this step")
        return Known(whole, partial if partial is not None else Partial(release, added))
    kept = known.partial
    return Known(whole, None if kept is not None and kept.release in whole else kept)


def estimate(releases: Sequence[Release], known: Known) -> tuple[Lattice, Fraction]:
    """The best estimate from all that the analyst knows, rounded to the lattice, and its variance before rounding."""
    there = _by_id(releases)
    sources = list(_weights(there, known))
    if not sources:
        raise ValueError("nothing is known of this view")
    values = []
    for source, _ in sources:
        if source.values is None:
            raise ValueError("an estimate needs the values of what is known")
        values.append(source.values)
    if len(sources) == 1:
        return values[0], 1 / sources[0][1]
    common = math.lcm(*(precision.denominator for _, precision in sources))
    weights = [int(precision * common) for _, precision in sources]
    return _mean(values, weights), Fraction(common, sum(weights))


def _mean(values: Sequence[Lattice], weights: Sequence[int]) -> Lattice:
    """The weighted mean, rounded to nearest and halves up, exactly."""
    first, *others = values
    total = sum(weights)
    # Floats see only how far releases lie apart. Below 2**30 they err by less than 1e-6 for each release, so that they
    # round right unless they are near a half: such cells are computed again in whole numbers.
    apart = np.zeros(len(first))
    sure = np.full(len(first), len(values) < 1000)
    for other, weight in zip(others, weights[1:], strict=True):
        apart += float(Fraction(weight, total)) * (other - first)
        sure &= np.abs(other - first) < 2**30
    found: Lattice = first + np.floor(apart + 0.5).astype(np.int64)
    for cell in np.flatnonzero(~sure | (np.abs(apart - np.floor(apart) - 0.5) < 1e-3)):
        exactly = sum(weight * int(each[cell]) for each, weight in zip(values, weights, strict=True))
        found[cell] = (2 * exactly + total) // (2 * total)
    return found


def price(precision: Fraction, sensitivity: int, touched: int, coin: Coin, *, summed: bool = True) -> Decimal:
    """What learning this precision costs in coin: Delta^2/2 for each cell that a unit touches, rounded up.

    One quantum more pays for sums of discrete Gaussians being nearly, not exactly, discrete Gaussians; where all
    that is learned are releases as they were drawn, nothing is ``summed``.
    """
    if coin is not Coin.ZCDP:
        raise ValueError("Gaussian noise cannot be paid for in pure epsilon")
    if precision < 0 or sensitivity < 1 or touched < 1:
        raise ValueError("a price is for a precision that is not negative, and for a unit that can be seen")
    if not precision:
        return Decimal(0)
    exact = precision * (sensitivity * sensitivity * touched * 10**18) / 2
    return WIDE.multiply(Decimal(-(-exact.numerator // exact.denominator) + summed), QUANTUM)


def _by_id(releases: Sequence[Release]) -> dict[int, Release]:
    return {release.id: release for release in releases}


def _weights(there: Mapping[int, Release], known: Known) -> list[tuple[Release | Partial, Fraction]]:
    """Everything that is known, with its precision: independent of each other."""
    found: list[tuple[Release | Partial, Fraction]] = [(there[i], there[i].precision) for i in sorted(known.whole)]
    if known.partial is not None:
        found.append((known.partial, _partly(there, known.partial)))
    return found


def _partly(there: Mapping[int, Release], partial: Partial | None) -> Fraction:
    return _NONE if partial is None else 1 / (there[partial.release].variance + partial.added)


def _added(release: Release, before: Partial | None, precision: Fraction) -> Fraction | None:
    """The variance of the noise through which the release has this precision; None where it is to be taken whole."""
    added = min(MAX_SIGMA2, 1 / precision - release.variance)
    if before is None:
        unit = Fraction(2) ** (added.numerator.bit_length() - added.denominator.bit_length() - _BITS)
        told: Fraction | None = added // unit * unit
    else:
        told = bridge.reachable(before.added, added)
    return told if told is not None and _parallel(release.variance, told) >= bridge.FEWEST else None


def _parallel(one: Fraction, other: Fraction) -> Fraction:
    return one * other / (one + other) if other else _NONE


def _wide_enough(release: Release, added: Fraction) -> None:
    if _parallel(release.variance, added) < bridge.FEWEST:
        raise ValueError("so little noise is not added: the release is taken whole")
