"""HAVING: the atoms decide on exact numbers as the text does, and no row moves a statistic beyond its bound."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from fragments import ask
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.condition import And, Leaf, atoms, holds
from mechanisms.errors import AccuracyUnreachable, Refusal
from sqlrewrite.guard import GUARD
from sqlrewrite.linear import FAR
from sqlrewrite.minimise import NEVER
from sqlrewrite.question import (
    AllOf,
    Atom,
    Call,
    ColumnRef,
    Compare,
    Expression,
    IsNull,
    KeyThreshold,
    Literal,
    Measure,
    MeasureKind,
    Not,
    Predicate,
    Question,
)

# -- a small PostgreSQL: one group of rows -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    quantity: int
    discount: Fraction
    amount: Fraction | None
    gift: bool | None
    customer_id: int
    small: int


rows = st.builds(
    Row,
    st.integers(1, 10),
    st.integers(-1000, 2050).map(lambda n: Fraction(n, 100)),
    st.none() | st.integers(0, 50000).map(lambda n: Fraction(n, 100)),
    st.none() | st.booleans(),
    st.integers(1, 3),
    st.integers(-5, 5),
)
groups = st.lists(rows, min_size=1, max_size=6)
Group = Sequence[Row]
Number = Fraction | None

OPS: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "<>": operator.ne,
}


def value(expression: Expression, row: Row) -> Number:
    match expression:
        case ColumnRef(_, name, _):
            found = getattr(row, name)
            return None if found is None else Fraction(found)
        case Literal("true" | "false" as text, _):
            return Fraction(text == "true")
        case Literal(text, _):
            return None if text is None else Fraction(text)
        case Call("*", (left, right), _):
            a, b = value(left, row), value(right, row)
            return None if a is None or b is None else a * b
    raise AssertionError(expression)


def true(predicate: Predicate, row: Row) -> bool | None:
    match predicate:
        case Compare(left, op, right):
            a, b = value(left, row), value(right, row)
            return None if a is None or b is None else OPS[op.value](a, b)
        case AllOf(parts):
            found = [true(part, row) for part in parts]
            return False if False in found else None if None in found else True
        case Not(part):
            inner = true(part, row)
            return None if inner is None else not inner
        case IsNull(argument):
            return value(argument, row) is None
    raise AssertionError(predicate)


def added(measure: Measure, row: Row) -> Fraction:
    """What one row adds, as the generated SQL does it (clamps have nothing to do here)."""
    if measure.filter is not None and true(measure.filter, row) is not True:
        return Fraction(0)
    if measure.argument is None:
        return Fraction(1)
    found = value(measure.argument, row)
    if found is None:
        return Fraction(0)
    return Fraction(1) if measure.kind is MeasureKind.VALUES else found


def measured(measure: Measure, group: Group) -> int:
    if measure.kind is MeasureKind.UNITS:
        kept = [row for row in group if measure.filter is None or true(measure.filter, row)]
        return len({row.customer_id for row in kept})
    total = sum((added(measure, row) for row in group), Fraction(0)) / measure.unit
    assert total.denominator == 1
    return int(total)


def decided(question: Question, group: Group) -> bool:
    numbers = [measured(measure, group) for measure in question.measures]

    def truth(atom: Atom) -> bool:
        statistic = question.statistics[atom.statistic]
        assert isinstance(atom.threshold, int) and abs(atom.threshold) <= FAR + 1
        return atom.direction * (sum(f * numbers[m] for m, f in statistic.terms) - atom.threshold) >= 0

    return question.having is None or holds(question.having, truth)


# -- conditions, each with its text and its meaning --------------------------------------------------------------------

Term = tuple[str, Callable[[Group], Number], bool]  # text, meaning, integer type
FILTERS: list[tuple[str, Callable[[Row], bool]]] = [
    ("", lambda row: True),
    (" FILTER (WHERE gift)", lambda row: row.gift is True),
    (" FILTER (WHERE quantity > 5)", lambda row: row.quantity > 5),
]


def total(name: str, kept: Callable[[Row], bool]) -> Callable[[Group], Number]:
    def meaning(group: Group) -> Number:
        found = [getattr(row, name) for row in group if kept(row) and getattr(row, name) is not None]
        return Fraction(sum(found)) if found else None

    return meaning


def mean(name: str, kept: Callable[[Row], bool]) -> Callable[[Group], Number]:
    def meaning(group: Group) -> Number:
        found = [getattr(row, name) for row in group if kept(row) and getattr(row, name) is not None]
        return Fraction(sum(found)) / len(found) if found else None

    return meaning


@st.composite
def aggregates(draw: st.DrawFn) -> Term:
    text, kept = draw(st.sampled_from(FILTERS))
    kind = draw(st.sampled_from(["rows", "values", "quantity", "discount", "amount", "small", "units"]))
    match kind:
        case "rows":
            return f"count(*){text}", lambda g: Fraction(sum(map(kept, g))), True
        case "values":
            return f"count(amount){text}", lambda g: Fraction(sum(kept(r) and r.amount is not None for r in g)), True
        case "units":
            return (
                f"count(DISTINCT customer_id){text}",
                lambda g: Fraction(len({r.customer_id for r in g if kept(r)})),
                True,
            )
    return f"sum({kind}){text}", total(kind, kept), kind in ("quantity", "small")


numbers = st.one_of(st.integers(-30, 60).map(Fraction), st.integers(-3000, 6000).map(lambda n: Fraction(n, 100)))


def spelt(number: Fraction) -> str:
    return str(int(number)) if number.denominator == 1 else f"{float(number):.2f}"


def constant(number: Fraction) -> Term:
    return spelt(number), lambda g: number, number.denominator == 1


def both(left: Number, right: Number, op: Callable[[Fraction, Fraction], Fraction]) -> Number:
    return None if left is None or right is None else op(left, right)


@st.composite
def linear(draw: st.DrawFn) -> Term:
    text, meaning, whole = draw(aggregates())
    match draw(st.sampled_from(["plain", "plain", "scaled", "sum", "difference", "negated"])):
        case "scaled":
            factor = draw(numbers)
            return f"{spelt(factor)} * {text}", lambda g: both(factor, meaning(g), operator.mul), False
        case "negated":
            return f"-{text}", lambda g: both(Fraction(-1), meaning(g), operator.mul), whole
        case "sum":
            other, second, whole2 = draw(aggregates())
            return f"({text} + {other})", lambda g: both(meaning(g), second(g), operator.add), whole and whole2
        case "difference":
            other, second, whole2 = draw(aggregates())
            return f"({text} - {other})", lambda g: both(meaning(g), second(g), operator.sub), whole and whole2
    return text, meaning, whole


def divided(left: Number, right: Number, cut: bool) -> Number:
    if left is None or not right:  # a division by zero is not true either
        return None
    return Fraction(math.trunc(left / right)) if cut else left / right


@st.composite
def ratios(draw: st.DrawFn) -> Term:
    kind = draw(st.sampled_from(["avg", "ratio", "ratio", "percent"]))
    if kind == "avg":
        text, kept = draw(st.sampled_from(FILTERS))
        name = draw(st.sampled_from(["quantity", "discount", "amount"]))
        return f"avg({name}){text}", mean(name, kept), False
    text, meaning, whole = draw(aggregates())
    below, under, whole2 = draw(aggregates().filter(lambda term: "discount" not in term[0] and "small" not in term[0]))
    if kind == "percent":
        return (
            f"100.0 * {text} / nullif({below}, 0)",
            lambda g: divided(both(Fraction(100), meaning(g), operator.mul), under(g), False),
            False,
        )
    return f"{text} / {below}", lambda g: divided(meaning(g), under(g), whole and whole2), False


Condition = tuple[str, Callable[[Group], bool | None]]


@st.composite
def comparisons(draw: st.DrawFn) -> Condition:
    op = draw(st.sampled_from([">", ">=", "<", "<="]))
    if draw(st.booleans()):
        sides = [draw(ratios()), constant(draw(numbers))]
    else:
        sides = [draw(linear()), draw(linear()) if draw(st.booleans()) else constant(draw(numbers))]
    if draw(st.booleans()):
        sides.reverse()
    (left, first, _), (right, second, _) = sides

    def truth(group: Group) -> bool | None:
        a, b = first(group), second(group)
        return None if a is None or b is None else OPS[op](a, b)

    return f"{left} {op} {right}", truth


@st.composite
def ranges(draw: st.DrawFn) -> Condition:
    text, meaning, _ = draw(st.one_of(linear(), ratios()))
    low, high, without = draw(numbers), draw(numbers), draw(st.booleans())

    def truth(group: Group) -> bool | None:
        found = meaning(group)
        return None if found is None else (low <= found <= high) is not without

    return f"{text} {'NOT ' * without}BETWEEN {spelt(low)} AND {spelt(high)}", truth


def joined(parts: list[Condition], word: str) -> Condition:
    decisive = word == "OR"

    def truth(group: Group) -> bool | None:
        found = [meaning(group) for _, meaning in parts]
        return decisive if decisive in found else None if None in found else not decisive

    return f" {word} ".join(f"({text})" for text, _ in parts), truth


def negated(part: Condition) -> Condition:
    def truth(group: Group) -> bool | None:
        found = part[1](group)
        return None if found is None else not found

    return f"NOT ({part[0]})", truth


conditions = st.recursive(
    comparisons() | ranges(),
    lambda inner: st.one_of(
        st.builds(joined, st.lists(inner, min_size=2, max_size=3), st.sampled_from(["AND", "OR"])),
        inner.map(negated),
    ),
    max_leaves=4,
)


@settings(max_examples=250, deadline=None)
@given(conditions, st.lists(groups, min_size=3, max_size=8))
def test_the_atoms_decide_as_the_text_does(condition: Condition, several: list[Group]) -> None:
    text, truth = condition
    try:
        # A guard of one row is no restriction on a group that has one.
        question = ask(keys=["city"], having=f"({text}) AND count(*) >= 1", support=1)
    except Refusal as refusal:
        assert any(word in refusal.message for word in ("linear form", "too many digits", "ways to be true")), text
        return
    for group in several:
        assert decided(question, group) is (truth(group) is True), text


@settings(max_examples=150, deadline=None)
@given(conditions, groups, st.integers(0, 5))
def test_one_row_never_moves_a_statistic_beyond_its_bound(condition: Condition, group: Group, place: int) -> None:
    try:
        question = ask(keys=["city"], having=f"({condition[0]}) AND count(*) >= 1", support=1)
    except Refusal:
        return
    without = [row for at, row in enumerate(group) if at != place % len(group)]
    for statistic in question.statistics:
        moved = sum(
            factor * (measured(question.measures[m], group) - measured(question.measures[m], without))
            for m, factor in statistic.terms
        )
        assert abs(moved) <= statistic.row_bound, condition[0]


@settings(max_examples=150, deadline=None)
@given(conditions, groups, st.integers(1, 3))
def test_one_person_moves_a_statistic_by_at_most_a_bound_for_each_row(
    condition: Condition, group: Group, person: int
) -> None:
    try:
        question = ask(keys=["city"], having=f"({condition[0]}) AND count(*) >= 1", support=1)
    except Refusal:
        return
    without = [row for row in group if row.customer_id != person]
    for statistic in question.statistics:
        moved = sum(
            factor * (measured(question.measures[m], group) - measured(question.measures[m], without))
            for m, factor in statistic.terms
        )
        assert abs(moved) <= statistic.row_bound * (len(group) - len(without)), condition[0]


@pytest.mark.parametrize(
    "text", ["count(*) > count(DISTINCT customer_id)", "count(*) - count(DISTINCT customer_id) > 3"]
)
def test_a_second_row_of_a_person_moves_what_the_first_does_not(text: str) -> None:
    # The first row adds to both counts and cancels; the second adds to one: a bound of 0 would leave it without noise.
    assert [statistic.row_bound for statistic in having(text).statistics] == [1]


@pytest.mark.parametrize("op", [">", ">=", "<", "<="])
@pytest.mark.parametrize("bound", ["-2", "-1", "-0.5", "0", "0.5", "1", "2"])
def test_integer_division_cuts_towards_zero(op: str, bound: str) -> None:
    question = having(f"sum(small) / count(*) {op} {bound} AND count(*) >= 1")
    for sums in range(-10, 11):
        group = [
            Row(1, Fraction(0), None, None, 1, part)
            for part in (sums // 4, (sums + 1) // 4, (sums + 2) // 4, (sums + 3) // 4)
        ]
        assert sum(row.small for row in group) == sums
        assert decided(question, group) is OPS[op](Fraction(math.trunc(Fraction(sums, 4))), Fraction(bound))


def having(text: str, **more: Any) -> Question:
    return ask(keys=["city"], having=text, **more)


def statistic(text: str) -> tuple[tuple[tuple[int, int], ...], int, int]:
    question = having(text)
    found = [atom for atom in atoms(question.having) if atom.average] if question.having else []
    found = found or list(atoms(question.having)) if question.having else []
    assert isinstance(found[0].threshold, int)
    chosen = question.statistics[found[0].statistic]
    return chosen.terms, chosen.row_bound, found[0].direction * found[0].threshold


@pytest.mark.parametrize(
    ("text", "row_bound"),
    [
        ("count(*) > 5", 1),
        ("sum(amount) > 5", 50_000),
        ("avg(amount) > 200 AND count(*) > 9", 30_000),  # 500 - 200, in hundredths
        ("count(*) FILTER (WHERE gift) > 0.5 * count(*)", 1),
        ("sum(amount) FILTER (WHERE gift) > 0.5 * sum(amount)", 50_000),
        ("percentile_cont(0.5) WITHIN GROUP (ORDER BY amount) > 20 AND count(*) > 9", 1),
        ("percentile_disc(0.9) WITHIN GROUP (ORDER BY amount) > 20 AND count(*) > 9", 9),
        ("count(*) / count(DISTINCT customer_id) >= 5 AND count(*) > 9", 4),
    ],
)
def test_the_bound_of_a_row_is_joint(text: str, row_bound: int) -> None:
    assert statistic(text)[1] == row_bound


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("count(*) > 5", "count(*) >= 6"),
        ("5 < count(*)", "count(*) >= 6"),
        ("count(*) > 5.5", "count(*) >= 6"),
        ("NOT count(*) <= 5", "count(*) > 5"),
        ("count(*) BETWEEN 5 AND 9", "count(*) >= 5 AND count(*) <= 9"),
        ("count(*) NOT BETWEEN 5 AND 9", "count(*) < 5 OR count(*) > 9"),
        ("count(*) > 5 AND count(*) > 3", "count(*) > 5"),
        ("count(*) > 5 OR count(*) > 3", "count(*) > 3"),
        ("count(*) > 5 AND 1 = 1", "count(*) > 5"),
        ("count(*) > 5 OR 1 = 0", "count(*) > 5"),
        ("count(*) > 2 + 3", "count(*) > 5"),
        ("count(*) * 2 > 10", "count(*) > 5"),
        ("count(*) / 2 >= 3", "count(*) >= 6"),
        ("count(*) / 2 > 2.5", "count(*) >= 6"),
        ("count(*) - 5 > 0", "count(*) > 5"),
        ("-count(*) < -5", "count(*) > 5"),
        ("count(*)::numeric > 5", "count(*) > 5"),
        ("count(quantity) > 5", "count(*) > 5"),
        ("sum(quantity) > 5", "5 < sum(quantity)"),
        ("count(*) > 5 AND (count(*) > 3 OR sum(quantity) > 7)", "count(*) > 5"),
        (
            "avg(quantity) > 3 AND count(*) > 9",
            "sum(quantity) / count(*)::numeric > 3 AND count(*) > 9",
        ),
        ("sum(quantity) / count(*) >= 3 AND count(*) > 9", "avg(quantity) >= 3 AND count(*) > 9"),
        ("count(*) > 9 AND avg(quantity) > 3", "3 < avg(quantity) AND 10 <= count(*)"),
    ],
)
def test_one_meaning_has_one_form(text: str, same: str) -> None:
    one, other = having(text), having(same)
    assert _bare(one) == _bare(other)


def _bare(question: Question) -> Any:
    assert question.having is not None
    found = sorted((a.statistic, a.direction, str(a.threshold), a.average) for a in atoms(question.having))
    return question.statistics, question.measures, found


@pytest.mark.parametrize("order", [1, -1])
def test_a_plain_comparison_does_not_need_a_guard_because_a_ratio_says_the_same(order: int) -> None:
    parts = ["count(*) > 0", "100.0 * count(*) / nullif(count(*) FILTER (WHERE gift), 0) > 0"][::order]
    assert not any(atom.average for atom in atoms(having(" OR ".join(parts)).having))  # type: ignore[arg-type]
    parts = ["2 * count(*) FILTER (WHERE gift) > count(*)", "1.0 * count(*) FILTER (WHERE gift) / count(*) > 0.5"][
        ::order
    ]
    assert not any(atom.average for atom in atoms(having(" AND ".join(parts)).having))  # type: ignore[arg-type]


def test_equal_aggregates_share_one_statistic() -> None:
    question = having("count(*) > 5 AND (count(*) < 100 OR sum(quantity) > 3) AND sum(quantity) < 900")
    assert len(question.statistics) == 2
    shown = ask(keys=["city"], aggregates=["count(*)", "sum(quantity)"], having="count(*) > 5")
    assert len(shown.statistics) == 2


@pytest.mark.parametrize(
    "text",
    [
        "avg(discount) > 5",
        "avg(discount) > 5 OR count(*) > 100",
        "avg(discount) > 5 AND count(*) >= 0",
        "avg(discount) FILTER (WHERE gift) > 5 AND count(*) > 100",
        "avg(amount) FILTER (WHERE quantity > 2 AND city <> 'Ulm') > 5",
        "sum(amount) FILTER (WHERE gift) / count(*) FILTER (WHERE quantity > 2) > 5",
        "avg(amount) >= 5",
        "sum(amount) / sum(quantity) > 5",
        "1.0 * count(*) FILTER (WHERE gift) / count(*) > 0.2",
        "percentile_cont(0.5) WITHIN GROUP (ORDER BY amount) > 20",
        "(avg(discount) > 5 AND count(*) > 9) OR (avg(quantity) > 3 AND sum(quantity) > 99)",
    ],
)
def test_an_average_needs_a_guard(text: str) -> None:
    with pytest.raises(AccuracyUnreachable) as caught:
        having(text)
    assert caught.value.sqlstate == "54000"
    hint = caught.value.hint or ""
    assert f"({text}) AND count(*)" in hint
    pasted = having(hint[hint.index("HAVING ") + len("HAVING ") : hint.index(";")])
    assert any(atom.threshold == GUARD * pasted.unit.max_rows for atom in atoms(pasted.having))  # type: ignore[arg-type]
    supported = having(text, support=30)
    assert any(atom.threshold == 30 for atom in atoms(supported.having)) if supported.having else False


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("avg(discount) > 5 AND count(*) < 100", 49),
        ("avg(discount) > 5 AND count(*) <= 2", 1),
        ("avg(amount) > 5 AND count(amount) <= 100", 50),
        ("avg(discount) FILTER (WHERE gift) > 5 AND count(*) < 100", 49),
        ("(avg(discount) > 5 AND count(*) < 100) OR count(*) > 900", 49),
        ("avg(amount) > 5 OR (avg(discount) > 5 AND count(*) < 100)", 49),
    ],
)
def test_the_guard_that_is_proposed_leaves_the_groups_that_are_asked_for(text: str, size: int) -> None:
    with pytest.raises(AccuracyUnreachable) as caught:
        having(text)
    hint = caught.value.hint or ""
    pasted = having(hint[hint.index("HAVING ") + len("HAVING ") : hint.index(";")])
    assert any(atom.average for atom in atoms(pasted.having))  # type: ignore[arg-type]
    assert any(atom.direction > 0 and atom.threshold == size for atom in atoms(pasted.having))  # type: ignore[arg-type]
    assert f"SET veil.support = {size};" in hint and having(text, support=size).having not in (None, NEVER)


@pytest.mark.parametrize("most", [0, 1])
def test_no_guard_is_proposed_where_none_can_help(most: int) -> None:
    with pytest.raises(AccuracyUnreachable) as caught:
        having(f"avg(discount) > 5 AND count(*) <= {most}")
    assert "HAVING" not in (caught.value.hint or "") and "leave it out" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "text",
    [
        "avg(discount) > 5 AND count(*) >= 10",
        "avg(amount) > 5 AND count(amount) >= 10",
        "avg(amount) > 5 AND count(*) >= 10",
        "count(*) >= 10 AND (avg(discount) > 5 OR avg(quantity) > 3)",
        "(avg(discount) > 5 AND count(*) > 9) OR count(*) > 100",
        "avg(discount) FILTER (WHERE gift) > 5 AND count(*) FILTER (WHERE gift) > 9",
        "sum(amount) / sum(quantity) > 5 AND count(*) > 9",
        "sum(amount) / count(*) > 5 AND count(*) > 9",
        "count(*) / count(DISTINCT customer_id) > 5 AND count(DISTINCT customer_id) > 9",
        "NOT (avg(discount) > 5 OR count(*) < 10)",
        "count(*) BETWEEN 10 AND 50 AND avg(discount) > 5",
    ],
)
def test_a_guard_in_the_same_conjunction_is_enough(text: str) -> None:
    assert any(atom.average for atom in atoms(having(text).having))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "false",
        "count(*) > NULL",
        "count(*) > 5 AND 1 = 0",
        "count(*) > 500 AND count(*) < 400",
        "count(*) > 5 AND count(*) < 6",
        "count(*) < 0",
        "NOT count(*) >= 0",
        "count(*) >= 1e40",
        "count(*) BETWEEN 9 AND 8",
        "sum(quantity) < 0",
        "sum(amount) > 5 AND sum(amount) < 5.01",
        "avg(amount) > 500.5",
        "avg(discount) > 5 AND avg(discount) < 4",
        "avg(discount) >= 5 AND 4 > sum(discount) / count(*)",
        "percentile_cont(0.5) WITHIN GROUP (ORDER BY amount) > 20 AND"
        " percentile_cont(0.5) WITHIN GROUP (ORDER BY amount) < 10",
        "(count(*) > 9 OR count(*) < 3) AND count(*) > 3 AND count(*) <= 9",
        "(count(*) > 9 AND count(*) < 3) OR (sum(quantity) > 9 AND sum(quantity) < 9)",
        "NOT (count(*) > 5 OR count(*) <= 5)",
    ],
)
def test_what_no_data_can_make_true_is_never_true(text: str) -> None:
    question = having(text)
    assert question.having == NEVER and not question.statistics and not question.measures


@pytest.mark.parametrize(
    "text",
    [
        "true",
        "count(*) >= 0",
        "count(*) > -1",
        "count(*) < 1e40",
        "count(*) > 5 OR count(*) <= 5",
        "count(*) > 5 OR count(*) < 6",
        "NOT (count(*) > 500 AND count(*) < 400)",
        "sum(quantity) >= 0",
        "sum(quantity) > 5 OR sum(quantity) <= 5",
        "avg(quantity) <= 10",
        "count(amount) >= 0 AND (count(*) >= 7 OR count(*) < 8)",
    ],
)
def test_what_every_group_satisfies_is_no_condition(text: str) -> None:
    question = having(text)
    assert question.having is None and not question.statistics


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("sum(amount) >= 0", "count(amount) > 0"),  # NULL where no row has an amount
        ("sum(amount) > -5", "count(amount) > 0"),
        ("avg(amount) <= 500", "count(amount) > 0"),
        ("sum(quantity) FILTER (WHERE gift) >= 0", "count(*) FILTER (WHERE gift) > 0"),
        ("count(*) > 5 OR (count(*) > 500 AND count(*) < 400)", "count(*) > 5"),
        ("count(*) > 5 AND (count(*) < 3 OR sum(quantity) > 7)", "count(*) > 5 AND sum(quantity) > 7"),
        ("(avg(discount) > 5 AND count(*) < 0) OR count(*) > 9", "count(*) > 9"),
        ("count(*) > 9 AND (sum(quantity) > 5 OR sum(quantity) <= 5)", "count(*) > 9"),
    ],
)
def test_what_is_decided_by_itself_leaves_the_rest(text: str, same: str) -> None:
    assert _bare(having(text)) == _bare(having(same))


@pytest.mark.parametrize(
    "text",
    [
        "count(*) > 0",  # groups that are empty are answered too
        "count(*) < 1",
        "sum(discount) >= 0",
        "avg(discount) > 5 AND avg(discount) < 6 AND count(*) > 9",
        "(avg(amount) > 5 OR avg(amount) < 6) AND count(*) > 9",
        "count(*) > 5 AND count(*) < 7",
        "count(*) > 5 OR count(*) < 5",
        "count(*) > 5 OR sum(quantity) <= 5",
        "count(*) > 5 AND count(*) FILTER (WHERE gift) < 3",
    ],
)
def test_what_the_data_decide_is_a_decision(text: str) -> None:
    assert list(atoms(having(text).having))  # type: ignore[arg-type]


@pytest.mark.parametrize("sets", [((),), ((0,), ())])
def test_a_sum_over_no_rows_is_null_and_satisfies_nothing(sets: tuple[tuple[int, ...], ...]) -> None:
    """A question without keys has a group without rows: what holds of every number is still not sure there."""
    keys = ["city"] if len(sets) > 1 else []
    for text in ("sum(quantity) >= 0", "sum(quantity) > 5 OR sum(quantity) <= 5"):
        assert ask(keys=keys, sets=sets, having=text).having is not None
    for text in ("count(*) >= 0", "count(*) > 5 OR count(*) <= 5"):
        assert ask(keys=keys, sets=sets, having=text).having is None
    assert ask(keys=keys, sets=sets, having="sum(quantity) < 0").having == NEVER


def test_a_threshold_of_a_public_table_may_be_null() -> None:
    def asked(text: str) -> Question:
        source = "orders o JOIN city c ON o.city = c.city"
        return ask(source, keys=["o.city", "c.population"], having=text)

    assert asked("count(*) > c.population AND count(*) <= c.population").having == NEVER
    assert asked("count(*) >= c.population AND count(*) <= c.population").having not in (None, NEVER)
    assert asked("count(*) > c.population OR count(*) <= c.population").having not in (None, NEVER)


def test_a_guard_that_is_asked_for_stands_beside_an_average_that_is_always_true() -> None:
    assert _bare(having("avg(quantity) <= 10", support=30)) == _bare(having("count(*) >= 30"))


REFUSED = [
    ("count(*) = 5", "0A000"),
    ("count(*) <> 5", "0A000"),
    ("count(*) IN (5, 6)", "0A000"),
    ("count(*) IS NULL", "0A000"),
    ("count(*) IS DISTINCT FROM 5", "0A000"),
    ("min(amount) > 5", "0A000"),
    ("max(amount) > 5", "0A000"),
    ("stddev(amount) > 5", "0A000"),
    ("variance(amount) > 5", "0A000"),
    ("string_agg(city, '') > 'a'", "42501"),
    ("count(DISTINCT category) > 5", "0A000"),
    ("sum(rating) > 5", "0A000"),
    ("count(*) > quantity", "0A000"),
    ("count(*) > 'many'", "0A000"),
    ("count(*) > 'NaN'", "0A000"),
    ("count(*) > 1 / 0", "0A000"),
    ("count(*) / 0 > 1", "0A000"),
    ("count(*) * count(*) > 5", "0A000"),
    ("sum(amount) / sum(discount) > 5 AND count(*) > 9", "0A000"),
    ("avg(amount) > avg(discount) AND count(*) > 9", "0A000"),
    ("avg(amount) > count(*) AND count(*) > 9", "0A000"),
    ("100 * (count(*) FILTER (WHERE gift) / count(*)) > 5 AND count(*) > 9", "0A000"),
    ("abs(sum(discount)) > 5", "0A000"),
    ("round(avg(amount), 2) > 5 AND count(*) > 9", "0A000"),
    ("coalesce(sum(amount), 5) > 5", "0A000"),
    ("percentile_cont(0.5) WITHIN GROUP (ORDER BY amount DESC) > 5 AND count(*) > 9", "0A000"),
    ("percentile_cont(0) WITHIN GROUP (ORDER BY amount) > 5 AND count(*) > 9", "0A000"),
    ("percentile_cont(ARRAY[0.5]) WITHIN GROUP (ORDER BY amount) > 5 AND count(*) > 9", "0A000"),
    ("percentile_cont(0.5) WITHIN GROUP (ORDER BY amount) > avg(amount) AND count(*) > 9", "0A000"),
    ("count(*) > (SELECT 5)", "0A000"),
    ("city = 'Ulm' OR count(*) > 5", "0A000"),
    ("bool_or(gift)", "0A000"),
    ("avg(amount) > 5.12345678901234 AND count(*) > 9", "0A000"),
    ("count(*)::integer::text > '5'", "0A000"),
    ("avg(amount)::integer > 5 AND count(*) > 9", "0A000"),
    ("count(*) > 5 GROUP BY city", "0A000"),
    ("sum(count(*)) > 5", "0A000"),
    ("count(*) OVER () > 5", "0A000"),
]


@pytest.mark.parametrize(("text", "sqlstate"), REFUSED)
def test_a_condition_without_a_linear_form_is_refused(text: str, sqlstate: str) -> None:
    with pytest.raises(Refusal) as caught:
        having(text)
    assert caught.value.sqlstate == sqlstate, caught.value.message


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
    assert having("count(*) > $1", parameters=[bound]).having == having(f"count(*) >= {threshold}").having


@pytest.mark.parametrize(
    "text",
    ["count(*) > $1", "avg(amount) > $1 AND count(*) > $2", "sum(amount) / $1 > 3", "count(*) BETWEEN $1 AND $2",
     "percentile_cont($1) WITHIN GROUP (ORDER BY amount) > $2 AND count(*) >= 9"],
)  # fmt: skip
def test_before_bind_the_structure_is_read_with_any_number(text: str) -> None:
    assert having(text, parameters=None).having is not None


def ward(text: str) -> Any:
    question = ask("patients p JOIN ward w ON p.disease = w.disease", keys=["p.disease", "w.capacity"], having=text)
    assert isinstance(question.having, Leaf)
    return question.having.atom


@pytest.mark.parametrize(
    ("text", "direction", "threshold"),
    [
        ("count(*) > w.capacity", 1, KeyThreshold(1, Fraction(1), True)),
        ("count(*) > capacity", 1, KeyThreshold(1, Fraction(1), True)),
        ("w.capacity <= count(*)", 1, KeyThreshold(1, Fraction(1), False)),
        ("count(*) < 0.9 * w.capacity", -1, KeyThreshold(1, Fraction(9, 10), True)),
        ("count(*) / 0.9 >= w.capacity", 1, KeyThreshold(1, Fraction(9, 10), False)),
        ("sum(age) > 30 * w.capacity", 1, KeyThreshold(1, Fraction(30), True)),
        ("NOT count(*) > w.capacity", -1, KeyThreshold(1, Fraction(1), False)),
    ],
)
def test_a_public_column_that_is_grouped_by_is_a_threshold(text: str, direction: int, threshold: KeyThreshold) -> None:
    atom = ward(text)
    assert (atom.direction, atom.threshold) == (direction, threshold)


@pytest.mark.parametrize(
    "text",
    ["count(*) > w.capacity + 5", "avg(age) > w.capacity AND count(*) > 9", "count(*) > w.floor", "count(*) > p.age",
     "count(*) > w.capacity * w.capacity"],
)  # fmt: skip
def test_other_columns_are_no_thresholds(text: str) -> None:
    with pytest.raises(Refusal) as caught:
        ward(text)
    assert caught.value.sqlstate == "0A000"


def test_a_condition_on_keys_moves_into_where() -> None:
    moved = having("city = 'Ulm' AND count(*) > 5")
    assert moved.where == ask(where="city = 'Ulm'").where
    assert moved.having == having("count(*) > 5").having
    with pytest.raises(Refusal):
        ask(keys=["city", "gift"], sets=((0,), (1,)), having="city = 'Ulm' AND count(*) > 5")


def test_a_sum_that_may_be_null_is_not_taken_for_zero() -> None:
    assert isinstance(having("sum(amount) < 100").having, And)
    assert isinstance(having("sum(amount) > 100").having, Leaf)
    assert isinstance(having("sum(quantity) < 100").having, Leaf)
    assert isinstance(having("coalesce(sum(amount), 0) < 100").having, Leaf)
    cancelled = having("sum(amount) - sum(amount) >= 0").having
    assert isinstance(cancelled, Leaf) and cancelled.atom.threshold == 1
    assert isinstance(having("sum(quantity) + sum(amount) - sum(amount) > 5").having, And)
