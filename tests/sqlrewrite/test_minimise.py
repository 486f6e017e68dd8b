"""Prime implicants and implicates, against all truth assignments."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.condition import And, Condition, Leaf, Or, atoms, holds
from sqlrewrite.errors import TooComplex
from sqlrewrite.minimise import ALWAYS, NEVER, implies, minimise, prime_implicants, prime_implicates
from sqlrewrite.question import Atom

LETTERS = [Atom(place, 1, 0, "") for place in range(5)]


def trees(leaves: st.SearchStrategy[Atom]) -> st.SearchStrategy[Condition[Atom]]:
    return st.recursive(
        leaves.map(Leaf),
        lambda inner: st.lists(inner, min_size=1, max_size=4).flatmap(
            lambda parts: st.sampled_from([And(tuple(parts)), Or(tuple(parts))])
        ),
        max_leaves=10,
    )


def brute(tree: Condition[Atom], conjunctions: bool) -> set[frozenset[Atom]]:
    """The least sets that force the tree to be true (or, all being false, to be false)."""
    forcing = [
        frozenset(chosen)
        for size in range(len(LETTERS) + 1)
        for chosen in combinations(LETTERS, size)
        if holds(tree, lambda atom, chosen=chosen: (atom in chosen) is conjunctions) is conjunctions  # type: ignore[misc]
    ]
    return {one for one in forcing if not any(other < one for other in forcing)}


@settings(deadline=None)
@given(trees(st.sampled_from(LETTERS)))
def test_the_prime_terms_are_those_of_all_assignments(tree: Condition[Atom]) -> None:
    assert set(prime_implicants(tree)) == brute(tree, conjunctions=True)
    assert set(prime_implicates(tree)) == brute(tree, conjunctions=False)


thresholds = st.builds(
    Atom, st.integers(0, 2), st.sampled_from([1, -1]), st.integers(-2, 2), st.just(""), st.just(False)
)


def decided(tree: Condition[Atom], values: tuple[int, ...]) -> bool:
    def truth(atom: Atom) -> bool:
        assert isinstance(atom.threshold, int)
        return atom.direction * (values[atom.statistic] - atom.threshold) >= 0

    return holds(tree, truth)


@settings(deadline=None)
@given(trees(thresholds))
def test_the_smallest_tree_decides_alike_on_all_numbers(tree: Condition[Atom]) -> None:
    small = minimise(tree)
    assert sum(1 for _ in atoms(small)) <= sum(1 for _ in atoms(tree))
    implicants, implicates = prime_implicants(tree), prime_implicates(tree)
    every = {decided(tree, values) for values in product(range(-3, 4), repeat=3)}
    assert (small == NEVER) is (every == {False}) and (small == ALWAYS) is (every == {True})
    for values in product(range(-3, 4), repeat=3):
        wanted = decided(tree, values)
        assert decided(small, values) is wanted
        assert any(all(decided(Leaf(atom), values) for atom in term) for term in implicants) is wanted
        assert all(any(decided(Leaf(atom), values) for atom in term) for term in implicates) is wanted


def at_least(threshold: int, statistic: int = 0) -> Leaf[Atom]:
    return Leaf(Atom(statistic, 1, threshold, ""))


def test_a_dominated_atom_collapses() -> None:
    assert minimise(And((at_least(5), at_least(3)))) == at_least(5)
    assert minimise(Or((at_least(5), at_least(3)))) == at_least(3)
    assert minimise(Or((at_least(5), And((at_least(7), at_least(1, 1)))))) == at_least(5)
    assert implies(at_least(5).atom, at_least(3).atom) and not implies(at_least(3).atom, at_least(5).atom)


def test_a_common_factor_is_taken_out() -> None:
    a, b, c = (at_least(0, place) for place in range(3))
    assert minimise(Or((And((a, b)), And((a, c))))) == And((a, Or((b, c))))


def test_too_many_ways_to_be_true_are_refused() -> None:
    pairs = [(at_least(0, 2 * place), at_least(0, 2 * place + 1)) for place in range(8)]
    with pytest.raises(TooComplex):
        minimise(And(tuple(Or(pair) for pair in pairs)))
    few = Or(tuple(And(pair) for pair in pairs))  # eight ways to be true, 256 to be false
    assert minimise(few) == few
