"""beta divided among tests: never more is handed out than was given, and Eq. 25 is the cheapest split."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from decision_problems import TREES, problem
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.condition import And, Condition, Leaf, Or
from mechanisms.errors import AccuracyUnreachable
from mechanisms.split import by_implicants, equal, occurrences, proportional

LEAVES = st.integers(0, 4).map(Leaf)
SOME_TREES: st.SearchStrategy[Condition[int]] = st.recursive(
    LEAVES,
    lambda parts: st.one_of(
        st.lists(parts, min_size=2, max_size=3).map(lambda p: And(tuple(p))),
        st.lists(parts, min_size=2, max_size=3).map(lambda p: Or(tuple(p))),
    ),
    max_leaves=8,
)
BETAS = st.decimals(Decimal("1e-9"), Decimal("0.999"), places=12)


@given(SOME_TREES, BETAS, st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), min_size=5, max_size=5))
def test_no_more_is_handed_out_than_was_given(
    tree: Condition[int], beta: Decimal, moved_and_margins: list[tuple[int, int]]
) -> None:
    moved, margins = zip(*moved_and_margins, strict=True)
    asked = problem(tree, 10, sensitivities=moved)
    counts = occurrences(tree, len(asked.tests))
    for split in (proportional(asked, beta, margins[: len(asked.tests)]), equal(asked, beta)):
        given_out = sum(o * b for o, b in zip(counts, split, strict=True))
        assert beta - Decimal("1e-15") < given_out <= beta
        assert all((b > 0) == (o > 0) for o, b in zip(counts, split, strict=True))
    sharper = by_implicants(asked, beta)
    assert max(sum(sharper[i] for i in implicant) for implicant in asked.implicants) <= beta


def test_a_disjunction_needs_no_split_by_implicants() -> None:
    assert set(by_implicants(problem(TREES["disjunction"], 10), Decimal("0.05"))) == {Decimal("0.05")}
    assert set(by_implicants(problem(TREES["mixed"], 10), Decimal("0.05"))) == {Decimal("0.025")}


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 500)), min_size=3, max_size=3), st.data())
def test_no_split_is_cheaper_than_the_proportional_one(
    moved_and_margins: list[tuple[int, int]], data: st.DataObject
) -> None:
    moved, margins = zip(*moved_and_margins, strict=True)
    asked = problem(TREES["repeated"], 10, sensitivities=moved)
    counts = occurrences(asked.tree, 3)

    def price(betas: list[float]) -> float:
        return sum(o * d * math.log(1 / (2 * b)) / u for o, d, u, b in zip(counts, moved, margins, betas, strict=True))

    weights = data.draw(st.lists(st.floats(0.01, 1), min_size=3, max_size=3))
    total = sum(o * w for o, w in zip(counts, weights, strict=True))
    best = price([float(b) for b in proportional(asked, Decimal("0.05"), margins)])
    assert best <= price([0.05 * w / total for w in weights]) * (1 + 1e-9)


def test_example_4_1_of_probe_a_distributed_tree_counts_the_repeated_query_twice() -> None:
    """Q1 or (Q2 and Q3): b_1 + b_2 + b_3 <= beta (21); distributed: 2 b_1 + b_2 + b_3 <= beta (22)."""
    grouped, distributed = (problem(TREES[name], 10) for name in ("mixed", "repeated"))
    assert occurrences(grouped.tree, 3) == (1, 1, 1)
    assert occurrences(distributed.tree, 3) == (2, 1, 1)
    beta, margins = Decimal("0.06"), (10, 10, 10)
    assert proportional(grouped, beta, margins) == (Decimal("0.02"),) * 3
    assert proportional(distributed, beta, margins) == (Decimal("0.015"),) * 3
    assert equal(distributed, beta) == (Decimal("0.015"),) * 3


def test_a_test_with_a_smaller_margin_gets_more_of_beta() -> None:
    """Eq. 16: beta_1 = u_2 D_1 beta / (u_1 D_2 + u_2 D_1)."""
    asked = problem(And((Leaf(0), Leaf(1))), 10, sensitivities=(2, 3))
    assert proportional(asked, Decimal("0.05"), (10, 60)) == (Decimal("0.04"), Decimal("0.01"))


def test_example_c_1_of_probe_what_the_first_query_left_goes_to_the_other_three() -> None:
    """A 3-step run of the first of four queries that ends after its first step uses beta_1/3."""
    asked = problem(And(tuple(Leaf(i) for i in range(4))), 10)
    beta, margins = Decimal("0.12"), (7, 7, 7, 7)
    first = proportional(asked, beta, margins)[0]
    assert first == Decimal("0.03")
    left = beta - first / 3
    assert left == Decimal("0.11")
    rest = proportional(asked, left, margins, frozenset((1, 2, 3)))
    assert rest[0] == 0
    assert all(Decimal("0.0366666666") < b < Decimal("0.0366666667") for b in rest[1:])
    assert first / 3 + sum(rest) <= beta


def test_a_part_that_vanishes_is_refused() -> None:
    asked = problem(And((Leaf(0), Leaf(1))), 10)
    with pytest.raises(AccuracyUnreachable) as refusal:
        proportional(asked, Decimal("1e-9"), (10, 10**12))
    assert refusal.value.hint
