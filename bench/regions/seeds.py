"""The two papers' algorithms as printed: DSATUR of networkx on a graph made afresh, and Relax with one compound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import networkx as nx

from provenance.region import Part
from provenance.relax import straightening
from provenance.released import Fit, Released
from provenance.space import Box


def dsatur(parts: Sequence[Part]) -> int:
    """Seed 3, Algorithm 2: the number of colours of the query graph, made pair by pair."""
    graph = nx.Graph()
    graph.add_nodes_from(range(len(parts)))
    graph.add_edges_from(
        (one, other) for one in range(len(parts)) for other in range(one) if not parts[one][0].disjoint(parts[other][0])
    )
    return 1 + max(nx.greedy_color(graph, strategy="DSATUR").values())


@dataclass(frozen=True, slots=True)
class Printed:
    """What Relax gives: the error, the size of the compound, and the patches that it bought."""

    error: float
    size: int
    patches: tuple[Box, ...]


def relax_as_printed(released: Released, asked: Box, most: int, affordable: Callable[[Sequence[Box]], bool]) -> Printed:
    """Seed 4, Figures 6 and 9: from the nearest answer, always the one patch that lowers the error most."""
    space = released.space
    first = released.nearest(released.errors(asked), 1)[0]
    box, used, bought = released.boxes[first], {first}, list[Box]()
    error = float(space.error(box, asked))
    while len(used) + len(bought) < most:
        best: tuple[float, Box, int | None, Box] | None = None
        for patches in released.patches(box):
            if patches.fit is Fit.AROUND:
                continue
            for number, low, high in zip(patches.numbers, patches.low, patches.high, strict=True):
                if number not in used:
                    left = (*box[: patches.axis], (int(low), int(high)), *box[patches.axis + 1 :])
                    found = float(space.error(left, asked))
                    if found < error - 1e-12 and (best is None or found < best[0]):
                        best = (found, left, int(number), left)
        for place, axis in enumerate(space.axes):
            for _, patch, result in straightening(axis, box[place], asked[place]):
                left = (*box[:place], result, *box[place + 1 :])
                found = float(space.error(left, asked))
                artificial = (*box[:place], patch, *box[place + 1 :])
                if found < (error if best is None else best[0]) - 1e-12 and affordable([*bought, artificial]):
                    best = (found, left, None, artificial)
        if best is None:
            break
        error, box = best[0], best[1]
        if best[2] is None:
            bought.append(best[3])
        else:
            used.add(best[2])
    return Printed(error, len(used) + len(bought), tuple(bought))
