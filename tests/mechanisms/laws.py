"""The two laws once more, in floats and from their formulas only, and the tests that a sample has to pass."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chisquare

from mechanisms.noise import DiscreteGaussian, DiscreteLaplace, Noise

Sample = NDArray[np.int64]

LAPLACES = [
    DiscreteLaplace(Fraction(1), 1),
    DiscreteLaplace(Fraction(3), 1),
    DiscreteLaplace(Fraction(1, 20), 1),
    DiscreteLaplace(Fraction(1, 1000), 1),  # two digits
    DiscreteLaplace(Fraction("0.045590600052281057"), 7),
]
GAUSSIANS = [
    DiscreteGaussian(Fraction(1, 3)),
    DiscreteGaussian(Fraction(16)),
    DiscreteGaussian(Fraction("12345.678")),
    DiscreteGaussian(Fraction(10**6)),
]
LAWS: list[Noise] = [*LAPLACES, *GAUSSIANS]


def support(noise: Noise) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The integers that matter, and their probabilities."""
    match noise:
        case DiscreteLaplace():
            x = np.arange(-(reach := int(45 / noise.rate) + 2), reach + 1)
            weight = np.exp(-float(noise.rate) * np.abs(x))
        case DiscreteGaussian():
            x = np.arange(-(reach := int(9.5 * math.sqrt(noise.sigma2)) + 2), reach + 1)
            weight = np.exp(-(x.astype(np.float64) ** 2) / (2 * float(noise.sigma2)))
    return x, weight / weight.sum()


def fits(sample: Sample, noise: Noise) -> float:
    """The p-value of a chi-square test of the sample on about 60 cells of like probability."""
    x, p = support(noise)
    cell = np.minimum((np.cumsum(p) - p / 2) * 60, 59).astype(np.int64)
    used, cell = np.unique(cell, return_inverse=True)
    expected = np.bincount(cell, weights=p) * len(sample)
    assert expected.min() > 20
    places = np.clip(sample - x[0], 0, len(x) - 1)
    observed = np.bincount(cell[places], minlength=len(used))
    return float(chisquare(observed, expected * len(sample) / expected.sum()).pvalue)


def variance_is_off_by(sample: Sample, noise: Noise) -> float:
    """How many standard errors the sample's mean square lies from the law's variance."""
    x, p = support(noise)
    square = x.astype(np.float64) ** 2
    variance = float(p @ square)
    error = math.sqrt((float(p @ square**2) - variance**2) / len(sample))
    return (float(np.mean(sample.astype(np.float64) ** 2)) - variance) / error


def audit(at_zero: Sample, at_neighbour: Sample, noise: Noise, distance: int) -> float:
    """How many standard errors the log-ratio of one event on two neighbours exceeds what the law allows.

    The event is "the answer is at least t", with t one distance above the neighbour; for Laplace the law allows
    exactly epsilon.
    """
    t = 2 * distance
    x, p = support(noise)
    allowed = math.log(p[x >= t - distance].sum() / p[x >= t].sum())
    here, there = int((at_zero >= t).sum()), int((at_neighbour >= t).sum())
    error = math.sqrt(1 / here - 1 / len(at_zero) + 1 / there - 1 / len(at_neighbour))
    return (math.log(there / here) - allowed) / error
