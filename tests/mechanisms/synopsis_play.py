"""A view of which the truth is 0 everywhere, and analysts who ask: everything that was shown is kept."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from seeded_source import seeded

from mechanisms.noise import DiscreteGaussian
from mechanisms.sampler import Source, draw
from mechanisms.synopsis import FRESH, Known, Partial, Release, advanced, draw_partial, step
from mechanisms.values import Lattice

Drawn = Callable[[Release, Partial | None, Fraction, Source], Partial]


def redrawn(release: Release, before: Partial | None, added: Fraction, source: Source) -> Partial:
    """A mutant: fresh noise is added to the release, whatever the analyst has seen of it."""
    return draw_partial(release, None, added, source)


class Play:
    """The route without a ledger; ``at`` is the truth of every cell, ``drawn`` is how parts are drawn."""

    def __init__(self, cells: int, seed: str, drawn: Drawn = draw_partial, at: int = 0, narrower: int = 100) -> None:
        self.cells, self.source, self.drawn, self.at = cells, seeded(seed), drawn, at
        self.narrower = Fraction(narrower, 100)  # a mutant's releases are so many percent as wide as they claim
        self.releases: list[Release] = []
        self.known: dict[str, Known] = {}
        self.shown: dict[str, list[Lattice]] = {}
        self.paid: dict[str, Fraction] = {}  # in precision

    def ask(self, who: str, variance: Fraction) -> None:
        known = self.known.get(who, Known())
        found = step(self.releases, known, 1 / variance)
        if found.grow is not None:
            noise = draw(DiscreteGaussian(found.grow).scaled(self.narrower), self.cells, self.source)
            self.releases.append(Release(len(self.releases), found.grow, noise + self.at))
        fresh = len(self.releases) - 1
        partial = None
        if found.partial is not None:
            place = fresh if found.partial[0] == FRESH else found.partial[0]
            before = known.partial if known.partial is not None and known.partial.release == place else None
            partial = self.drawn(self.releases[place], before, found.partial[1], self.source)
            assert partial.values is not None
            self._show(who, partial.values)
        for taken in found.take:
            values = self.releases[fresh if taken == FRESH else taken].values
            assert values is not None
            self._show(who, values)
        self.known[who] = advanced(known, found, partial, fresh)
        self.paid[who] = self.paid.get(who, Fraction(0)) + found.learned

    def _show(self, who: str, values: Lattice) -> None:
        self.shown.setdefault(who, []).append(values)

    @property
    def everything(self) -> Fraction:
        """The precision of the global synopsis."""
        return sum((release.precision for release in self.releases), Fraction(0))


def sharpest(shown: list[Lattice]) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], float]:
    """The weights of the best unbiased combination of what was shown, and its variance, from the sample itself.

    Minimise w C w with weights that add up to one; least squares, since the same numbers may be there twice.
    """
    samples = np.array(shown, dtype=np.float64)
    covariance = np.atleast_2d(np.cov(samples))
    n = len(samples)
    system = np.block([[covariance, np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
    weights = np.linalg.lstsq(system, np.append(np.zeros(n), 1.0), rcond=1e-9)[0][:n]
    return weights, float(weights @ covariance @ weights)
