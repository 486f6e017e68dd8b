"""Regions as boxes of whole numbers: each attribute's places in order, by their rank among the ones that are named."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np

from provenance.buckets import Boxes
from provenance.extent import Extent, Interval, Members
from provenance.region import Region

_NULL = -1


def boxed(regions: Sequence[Region], most_axes: int) -> Boxes | None:
    """A box for each region, which holds it; None without attributes, or with more than so many.

    *Guarantee*: regions with a common point have boxes with a common code. A set becomes the span of its values, so
    boxes may overlap where regions do not.
    """
    names = sorted({name for region in regions for name, _ in region.sides})
    if not names or len(names) > most_axes:
        return None
    low, high = (np.empty((len(regions), len(names)), np.int64, order="F") for _ in range(2))
    for axis, name in enumerate(names):
        extents = [region.on(name) for region in regions]
        kind = next((extent.kind for extent in extents if extent is not None and extent.kind is not None), None)
        same = [e if e is not None and (e.kind is None or e.kind is kind) else None for e in extents]
        places = sorted({place for extent in same if extent is not None for place in _named(extent)})
        for row, extent in enumerate(same):
            low[row, axis], high[row, axis] = _span(extent, places)
    return Boxes(low, high)


def _named(extent: Extent) -> list[Any]:
    match extent:
        case Interval(first=first, last=last):
            return [place for place in (first, last) if place is not None]
        case Members(values):
            return [(value, 0) for value in values if value is not None]


def _span(extent: Extent | None, places: Sequence[Any]) -> tuple[int, int]:
    """From code to code; below and above all named places there is one code each, and one below these for NULL."""
    match extent:
        case None:
            return _NULL, len(places) + 1
        case Interval(first=first, last=last):
            start = 0 if first is None else 1 + bisect_left(places, first)
            return start, len(places) + 1 if last is None else 1 + bisect_left(places, last)
        case Members(values):
            codes = [_NULL if value is None else 1 + bisect_left(places, (value, 0)) for value in values]
            return min(codes, default=0), max(codes, default=_NULL)
