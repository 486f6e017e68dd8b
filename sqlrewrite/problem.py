"""A question's HAVING as a decision in numbers: the tests, the tree over them, and their public scales.

Scales tune accuracy and never privacy: they come from the text, the declared bounds and the size hint alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import combinations

import numpy as np

from mechanisms.condition import And, Condition, Leaf, Or, atoms
from mechanisms.decision import Problem, Test
from mechanisms.loss import Coin
from mechanisms.values import Lattice
from sqlrewrite.catalog import Key
from sqlrewrite.constant import INTEGERS, base_type
from sqlrewrite.minimise import minimise, order, prime_implicants, prime_implicates
from sqlrewrite.question import (
    AllOf,
    Among,
    Atom,
    Compare,
    Comparison,
    Expression,
    KeyThreshold,
    Literal,
    MeasureKind,
    Predicate,
    Question,
)
from sqlrewrite.sensitivity import Contribution

_FAR = 2**62
_COUNTS = (MeasureKind.ROWS, MeasureKind.VALUES, MeasureKind.UNITS)
_TYPICAL = 50
"""A sum that may be of either sign is looked at up to this many units from its threshold."""


def problem(
    question: Question,
    touched: Contribution,
    keys: Sequence[Sequence[Key]],
    cells: int,
    beta: Decimal,
    alpha: Decimal,
    coin: Coin,
) -> tuple[Problem, tuple[Atom, ...]]:
    """What a mechanism decides, and the atoms of its tests; ``keys`` are the public groups, column by column."""
    assert question.having is not None
    tree = minimise(question.having)
    implicants, implicates = prime_implicants(question.having), prime_implicates(question.having)
    # An implicant may name an atom that the smallest tree writes by another one: those have tests too.
    named = (atom for term in (*implicants, *implicates) for atom in sorted(term, key=order))
    used = tuple(dict.fromkeys((*atoms(tree), *named)))
    place = {atom: index for index, atom in enumerate(used)}
    found = Problem(
        sensitivities=tuple(max(1, moved) for moved in touched.statistics),
        tests=tuple(_test(question, touched, atom, keys, cells, implicants) for atom in used),
        tree=_renamed(tree, place),
        implicants=tuple(frozenset(place[atom] for atom in term) for term in implicants),
        implicates=tuple(frozenset(place[atom] for atom in term) for term in implicates),
        cells=cells,
        beta=beta,
        alpha=alpha,
        coin=coin,
        touched=touched.cells,
        together=moved_together(question),
    )
    return found, used


def thresholds(atom: Atom, keys: Sequence[Sequence[Key]]) -> int | Lattice:
    """An atom's threshold: one number, or a public number of each group (a NULL there keeps no group, as in SQL)."""
    wanted = atom.threshold
    if not isinstance(wanted, KeyThreshold):
        return wanted
    return np.array([_on_lattice(number, wanted, atom.direction) for number in keys[wanted.key]], dtype=np.int64)


def moved_together(question: Question) -> tuple[tuple[int, ...], ...] | None:
    """The largest sets of statistics that one row can be counted in at once; None where all may be.

    *Guarantee*: two statistics are apart only if every measure of one has a filter that no row passes together with
    that of any measure of the other; and only for row units, since a person has many rows.
    """
    many = len(question.statistics)
    if question.unit.column is not None or many < 2:
        return None
    import networkx as nx  # a fifth of the time in which a proxy starts, and few questions need it

    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(many))
    graph.add_edges_from(pair for pair in combinations(range(many), 2) if not _apart(question, *pair))
    found = tuple(sorted(tuple(sorted(clique)) for clique in nx.find_cliques(graph)))
    return None if found == (tuple(range(many)),) else found


def _apart(question: Question, one: int, other: int) -> bool:
    filters = [
        [_required(question.measures[measure].filter) for measure, _ in question.statistics[index].terms]
        for index in (one, other)
    ]
    return all(
        any(not (left[column] & right[column]) for column in left.keys() & right.keys())
        for left in filters[0]
        for right in filters[1]
    )


def _required(filter_: Predicate | None) -> Mapping[Expression, frozenset[int]]:
    """The whole numbers that an expression must be one of for a row to pass.

    Of whole numbers alone: other types have equal values that are written differently.
    """
    match filter_:
        case Compare(left, Comparison.EQ, Literal() as right) if (numbers := _whole((right,))) is not None:
            return {left: numbers} if base_type(left.type_name) in INTEGERS else {}
        case Among(argument, values) if (numbers := _whole(values)) is not None:
            return {argument: numbers} if base_type(argument.type_name) in INTEGERS else {}
        case AllOf(parts):
            found: dict[Expression, frozenset[int]] = {}
            for part in parts:
                for column, numbers in _required(part).items():
                    found[column] = found.get(column, numbers) & numbers
            return found
        case _:
            return {}


def _whole(literals: Sequence[Literal]) -> frozenset[int] | None:
    if any(literal.text is None or base_type(literal.type_name) not in INTEGERS for literal in literals):
        return None
    return frozenset(int(literal.text or "0") for literal in literals)


def _test(
    question: Question,
    touched: Contribution,
    atom: Atom,
    keys: Sequence[Sequence[Key]],
    cells: int,
    implicants: Sequence[frozenset[Atom]],
) -> Test:
    limit = thresholds(atom, keys)
    typical = abs(limit) if isinstance(limit, int) else int(np.median(np.abs(limit))) if len(limit) else 1
    moved = max(1, touched.statistics[atom.statistic])
    average = max(1, (question.relation.size_hint or 0) // max(1, cells))  # rows of a group, if they were all alike
    terms = question.statistics[atom.statistic].terms
    measure = question.measures[terms[0][0]]
    if atom.average:
        scale = _guarded(atom, question, implicants) * moved
    elif len(terms) == 1 and measure.kind in _COUNTS:
        scale = typical if atom.direction > 0 else max(typical, average)
    elif len(terms) == 1 and measure.lower >= 0 and atom.direction > 0:
        scale = typical
    else:
        scale = max(typical, min(average, _TYPICAL) * moved)
    scale = max(1, min(scale, _FAR))
    return Test(atom.statistic, atom.direction, limit, scale, min(_FAR, max(2 * scale, average * moved)))


def _guarded(atom: Atom, question: Question, implicants: Sequence[frozenset[Atom]]) -> int:
    """The size of group that the guard of an average asks for: the smallest over the ways to be true."""
    sizes = []
    for term in implicants:
        if atom not in term:
            continue
        counts = [
            other.threshold
            for other in term
            if isinstance(other.threshold, int) and other.direction > 0 and _is_count(question, other)
        ]
        sizes.append(max(counts, default=1))
    return max(1, min(sizes, default=1))


def _is_count(question: Question, atom: Atom) -> bool:
    terms = question.statistics[atom.statistic].terms
    return len(terms) == 1 and terms[0][1] == 1 and question.measures[terms[0][0]].kind in _COUNTS


def _renamed(condition: Condition[Atom], place: Mapping[Atom, int]) -> Condition[int]:
    match condition:
        case Leaf(atom):
            return Leaf(place[atom])
        case And(parts):
            return And(tuple(_renamed(part, place) for part in parts))
        case Or(parts):
            return Or(tuple(_renamed(part, place) for part in parts))


def _on_lattice(number: Key, wanted: KeyThreshold, direction: int) -> int:
    """The nearest whole lattice number on the qualifying side."""
    if number is None:
        return direction * _FAR
    told = Decimal(str(number))
    if not told.is_finite():  # NaN sorts above every number
        above = -1 if told.is_infinite() and told < 0 else 1
        return (above if wanted.factor > 0 else -above) * _FAR
    exact = Fraction(told) * wanted.factor
    whole = math.ceil(exact) if direction > 0 else math.floor(exact)
    limit = whole + direction if wanted.strict and whole == exact else whole
    return max(-_FAR, min(_FAR, limit))
