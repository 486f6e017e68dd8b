"""Exact and noisy numbers are different types, so that one cannot be shown for the other.

``Exact`` has no text form, no equality and no pickle: the only function that opens it is
``mechanisms.release.release``. A row is one measured aggregate, a column is one cell of the public domain;
numbers are integer multiples of a public lattice unit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

Lattice = NDArray[np.int64]


class Exact:
    """Measured numbers that nobody may see."""

    __slots__ = ("__values",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, values: Lattice) -> None:
        if values.ndim != 2 or values.dtype != np.int64:
            raise TypeError("Exact holds a two-dimensional int64 array")
        self.__values = values

    @property
    def shape(self) -> tuple[int, int]:
        """Aggregates and cells: both are public."""
        return self.__values.shape[0], self.__values.shape[1]

    def combine(self, weights: Lattice) -> Exact:
        """Integer combinations of the rows, one for each row of ``weights``; still nobody may see them.

        Computed in whole numbers of any size and clamped to 62 bits at the end: clamping the result moves no two
        results apart, so what one unit changes stays bounded as claimed.
        """
        if np.array_equal(weights, np.eye(self.__values.shape[0], dtype=np.int64)):
            return self
        exact = weights.astype(object) @ self.__values.astype(object)
        return Exact(np.clip(exact, -(2**62), 2**62).astype(np.int64))

    def open_for_release(self) -> Lattice:
        """The numbers themselves; called by ``release`` and by nothing else (a test says so)."""
        return self.__values

    def __repr__(self) -> str:
        return f"<Exact {self.shape[0]}x{self.shape[1]}>"

    def __eq__(self, other: object) -> NoReturn:
        raise TypeError("exact numbers are not compared")

    def __format__(self, spec: str) -> NoReturn:
        raise TypeError("exact numbers have no text form")

    __str__ = __format__  # type: ignore[assignment]

    def __reduce__(self) -> NoReturn:
        raise TypeError("exact numbers are not copied out")


_RELEASE = object()


@dataclass(frozen=True, slots=True, eq=False)
class Passed:
    """Which groups of an unknown domain may be named: only ``release_found`` says so."""

    indices: NDArray[np.int64]
    told_by: object = field(repr=False)

    def __post_init__(self) -> None:
        if self.told_by is not _RELEASE:
            raise TypeError("which groups may be named is for the release to say")


@dataclass(frozen=True, slots=True, eq=False)
class Noisy:
    """Released numbers: anything computed from them is free.

    ``keys`` are the texts of the groups' keys where the release found them, rather than a public domain.
    """

    values: Lattice
    keys: tuple[tuple[str | None, ...], ...] | None = None

    def row(self, aggregate: int) -> Lattice:
        """One aggregate over all cells."""
        row: Lattice = self.values[aggregate]
        return row
