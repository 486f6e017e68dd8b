"""HAVING: the atoms decide exactly as the expression does."""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal

import pytest
import sqlglot
from clinic import ask
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from mechanisms.condition import holds
from sqlrewrite.decompose import FAR, decompose
from sqlrewrite.question import Atom, Literal

OPS: dict[str, Callable[[Decimal, Decimal], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
Reading = tuple[str, Callable[[Decimal], bool]]

numbers = st.one_of(
    st.integers(-20, 20).map(Decimal),
    st.decimals(-20, 20, places=2),
    st.sampled_from([Decimal("1e30"), Decimal("-1e30")]),
)


def spelt(number: Decimal) -> str:
    return format(number, "f")


@st.composite
def comparisons(draw: st.DrawFn) -> Reading:
    op, number, flipped = draw(st.sampled_from(list(OPS))), draw(numbers), draw(st.booleans())
    if flipped:
        return f"{spelt(number)} {op} count(*)", lambda n: OPS[op](number, n)
    return f"count(*) {op} {spelt(number)}", lambda n: OPS[op](n, number)


@st.composite
def ranges(draw: st.DrawFn) -> Reading:
    low, high, without = draw(numbers), draw(numbers), draw(st.booleans())
    word = "NOT BETWEEN" if without else "BETWEEN"
    return f"count(*) {word} {spelt(low)} AND {spelt(high)}", lambda n: (low <= n <= high) is not without


def joined(parts: list[Reading], word: str) -> Reading:
    every = all if word == "AND" else any
    return f" {word} ".join(f"({text})" for text, _ in parts), lambda n: every(truth(n) for _, truth in parts)


def negation(part: Reading) -> Reading:
    return f"NOT ({part[0]})", lambda n: not part[1](n)


trees = st.recursive(
    comparisons() | ranges(),
    lambda inner: st.one_of(
        st.builds(joined, st.lists(inner, min_size=2, max_size=4), st.sampled_from(["AND", "OR"])),
        inner.map(negation),
    ),
    max_leaves=8,
)


@given(trees, st.lists(st.integers(-25, 25), min_size=5, max_size=20))
def test_the_atoms_decide_as_the_text_does(reading: Reading, counts: list[int]) -> None:
    text, truth = reading
    node = sqlglot.parse_one(f"SELECT 1 HAVING {text}", dialect="postgres").args["having"].this
    condition = decompose(node, lambda part: 0 if isinstance(part, exp.Count) else None, [])

    for count in counts:

        def decided(atom: Atom, count: int = count) -> bool:
            assert abs(atom.threshold) <= FAR + 1
            return atom.direction * (count - atom.threshold) >= 0

        assert holds(condition, decided) == truth(Decimal(count)), text


@pytest.mark.parametrize(
    ("bound", "threshold"),
    [
        (Literal("500", "bigint"), 501),
        (Literal("500.5", "numeric"), 501),
        (Literal("500.5", "double precision"), 501),
        (Literal("-3", "integer"), -2),
    ],
)
def test_a_bound_parameter_is_a_threshold(bound: Literal, threshold: int) -> None:
    question = ask("SELECT gender FROM patient_data GROUP BY 1 HAVING count(*) > $1", [bound])
    assert question.having == ask(f"SELECT gender FROM patient_data GROUP BY 1 HAVING count(*) >= {threshold}").having


def test_before_bind_the_structure_is_read_with_any_number() -> None:
    question = ask(
        "SELECT gender FROM patient_data WHERE age > $1 AND note = $2::text GROUP BY 1 HAVING count(*) > $3 LIMIT $4"
    )
    assert question.having is not None
    assert question.shape.limit is None
