"""Random questions as the two papers draw them; every draw is seeded, so that two runs ask the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import cache

import numpy as np
from numpy.typing import NDArray

from bench.decision.groups import codes, columns
from bench.decision.sources import ADULT
from provenance.extent import Extent, Interval, Members
from provenance.region import Part, Region
from provenance.space import Space, Steps

UNIT = Decimal("0.01")
"""What each question of a workload is charged."""

CENSUS = {"age": 5, "marital": 4, "race": 7, "gender": 2}
_INCOMES, _WIDTH = 5000, 150


def census(rng: np.random.Generator, queries: int, weighted: bool = False) -> list[Part]:
    """Seed 3, section 7.2: income below a bound, and of each other attribute one value or all."""
    parts: list[Part] = []
    for _ in range(queries):
        sides: dict[str, Extent] = {"income": Interval(0, _WIDTH * int(rng.integers(1, _INCOMES + 1)), True, False)}
        for name, size in CENSUS.items():
            value = int(rng.integers(0, size + 1))
            if value < size:
                sides[name] = Members.of(value)
        weight = Decimal(int(rng.integers(1, 10**9))) / 10**11 if weighted else UNIT
        parts.append((Region.of(sides), weight))
    return parts


VALUES = 10

Draws = Callable[[np.random.Generator, int, int], NDArray[np.int64]]
"""From 1 to a largest number, so many of them."""


def uniform(rng: np.random.Generator, most: int, times: int) -> NDArray[np.int64]:
    return rng.integers(1, most + 1, times)


def exponential(scale: float) -> Draws:
    """Small numbers mostly; the scale is in shares of the largest."""
    return lambda rng, most, times: np.clip(np.ceil(rng.exponential(scale * most, times)), 1, most).astype(np.int64)


def synthetic(
    rng: np.random.Generator,
    attributes: int,
    queries: int,
    *,
    predicates: Draws = uniform,
    values: Draws = uniform,
    favourite_attributes: float | None = None,
    favourite_values: float | None = None,
) -> list[Part]:
    """Seed 3, section 7.1: random attributes of ten values each, random sets of values.

    Favourites are drawn by a normal distribution around the middle, with a deviation in shares of the whole.
    """
    found: list[Part] = []
    for _ in range(queries):
        count = int(predicates(rng, attributes, 1)[0])
        chosen = np.argsort(_keys(rng, (1, attributes), favourite_attributes)[0])[:count]
        sizes = values(rng, VALUES, count)
        order = np.argsort(_keys(rng, (count, VALUES), favourite_values), axis=1)
        bits = np.where(np.arange(VALUES) < sizes[:, None], 1 << order, 0).sum(axis=1)
        sides = {_name(int(a)): _members(int(b)) for a, b in zip(chosen, bits, strict=True)}
        found.append((Region.of(sides), UNIT))
    return found


def _keys(rng: np.random.Generator, shape: tuple[int, int], deviation: float | None) -> NDArray[np.float64]:
    """Sorting by these draws without putting back: by exponential races, the likelier the earlier."""
    if deviation is None:
        return rng.random(shape)
    places = (np.arange(shape[1]) + 0.5) / shape[1]
    likely = np.exp(-((places - 0.5) ** 2) / (2 * deviation**2)) + 1e-12
    return rng.exponential(1.0, shape) / likely


@cache
def _name(attribute: int) -> str:
    return f"a{attribute:05d}"


@cache
def _members(bits: int) -> Members:
    return Members.of(*(value for value in range(VALUES) if bits >> value & 1))


AXES = {"age": 79, "education": 14, "occupation": 23, "income": 100}
"""The domain sizes of seed 4's census."""
SPACE = Space(tuple(Steps(name, 0, size) for name, size in AXES.items()))


def rectangles(
    rng: np.random.Generator, queries: int, volume: float, rows: NDArray[np.int64] | None
) -> Iterator[Region]:
    """Seed 4, section 5: two random attributes, an interval of equal share on each, centred on a row or anywhere."""
    names = list(AXES)
    for _ in range(queries):
        row = None if rows is None else rows[int(rng.integers(len(rows)))]
        sides: dict[str, Extent] = {}
        for axis in rng.choice(len(names), 2, replace=False).tolist():
            size = AXES[names[axis]]
            length = round(volume**0.5 * (size - 1))
            centre = int(rng.integers(size)) if row is None else int(row[axis])
            low = min(max(centre - length // 2, 0), size - 1 - length)
            sides[names[axis]] = Interval(low, low + length)
        yield Region.of(sides)


@cache
def census_rows() -> NDArray[np.int64]:
    """Rows of the UCI Adult census on those domains: the paper's own extract is not to be had.

    Age, years of education, occupation and, in the place of income, weekly hours, each stretched to the paper's size.
    """
    age, education, occupation, hours = columns(ADULT, "age", "education_num", "occupation", "hours_per_week")
    found = []
    for values, size in zip((age, education, codes(occupation)[0], hours), AXES.values(), strict=True):
        numbers = np.asarray(values, np.float64)
        low, high = numbers.min(), numbers.max()
        found.append(np.rint((numbers - low) / (high - low) * (size - 1)).astype(np.int64))
    return np.stack(found, axis=1)
