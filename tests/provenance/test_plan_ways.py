from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.loss import QUANTUM, Coin
from mechanisms.synopsis import FRESH, Known, Partial, Release
from provenance.plan import Apart, Cost, Derive, Measure, OnView, Refine, Reuse, plan

steady = settings(derandomize=True, deadline=None, max_examples=150)
ONE, TWO = Release(1, Fraction(400)), Release(2, Fraction(100))
OWN = OnView("orders(city)", (ONE, TWO), Known(frozenset((1, 2))), Fraction(1, 100), sensitivity=1)
FREE = Decimal(0)


def paid(precision: Fraction, summed: bool = False) -> Decimal:
    """Half the precision, and a quantum for sums of noise."""
    return Decimal(precision.numerator) / Decimal(2 * precision.denominator) + summed * QUANTUM


def test_who_knows_enough_reuses_it_for_nothing() -> None:
    found = plan([OWN], Coin.ZCDP).chosen
    assert isinstance(found, Reuse) and found.view == "orders(city)" and found.step.idle
    assert found.cost == Cost(FREE, FREE)


def test_who_knows_less_than_was_released_derives_and_the_database_pays_nothing() -> None:
    found = plan([replace(OWN, known=Known(frozenset((1,))))], Coin.ZCDP).chosen
    assert isinstance(found, Derive)
    assert found.step.partial is not None and found.step.partial[0] == 2
    assert found.cost.database == 0
    assert found.cost.analyst == pytest.approx(
        paid(Fraction(1, 100) - Fraction(1, 400), summed=True), rel=Decimal("1e-8")
    )


def test_beyond_what_was_released_the_view_is_refined_and_both_pay_what_is_new_to_them() -> None:
    known = Known(frozenset((1,)), Partial(2, Fraction(100)))
    found = plan([replace(OWN, known=known, precision=Fraction(1, 50))], Coin.ZCDP).chosen
    assert isinstance(found, Refine) and found.step.take == (2, FRESH)
    assert found.cost.database == paid(Fraction(1, 50) - Fraction(1, 80))
    assert found.cost.analyst == paid(Fraction(1, 50) - Fraction(1, 400) - Fraction(1, 200), summed=True)


def test_the_first_question_of_a_view_measures_it() -> None:
    found = plan([replace(OWN, releases=(), known=Known())], Coin.ZCDP).chosen
    assert isinstance(found, Measure) and found.step is not None and found.step.grow == 100
    assert found.cost == Cost(paid(Fraction(1, 100)), paid(Fraction(1, 100)))


def test_a_measure_apart_is_taken_where_it_is_cheapest_and_a_view_where_it_is_known() -> None:
    nothing = replace(OWN, releases=(), known=Known(), touched=3)
    apart = Apart(Decimal("0.005"))
    found = plan([nothing, apart], Coin.ZCDP)
    assert found.chosen == Measure(None, None, Cost(apart.amount, apart.amount))
    assert [choice.view for choice in found.others] == ["orders(city)"]
    assert isinstance(plan([apart, OWN], Coin.ZCDP).chosen, Reuse)


def test_a_wider_view_that_is_known_beats_a_narrow_one_that_is_not() -> None:
    narrow = replace(OWN, view="orders(city)", releases=(), known=Known())
    wide = replace(OWN, view="orders(city, kind)", precision=Fraction(4, 500))  # four cells for each city
    found = plan([narrow, wide], Coin.ZCDP)
    assert isinstance(found.chosen, Reuse) and found.chosen.view == "orders(city, kind)"
    assert [choice.word for choice in found.others] == ["measure"]


def test_deriving_beats_a_release_that_is_a_little_cheaper_for_the_analyst_alone() -> None:
    derive = replace(OWN, known=Known())
    apart = Apart(Decimal("0.0049"))
    found = plan([apart, derive], Coin.ZCDP)
    assert isinstance(found.chosen, Derive) and found.chosen.cost.analyst > apart.amount


def test_among_equals_the_way_that_was_named_first_is_taken() -> None:
    again = replace(OWN, view="another")
    assert [plan(ways, Coin.ZCDP).chosen.view for ways in ([OWN, again], [again, OWN])] == ["orders(city)", "another"]


def test_a_way_that_does_not_fit_is_taken_only_if_none_does() -> None:
    derive, apart = replace(OWN, known=Known()), Apart(Decimal("0.0049"))
    left = Cost(analyst=Decimal("0.00495"), database=Decimal(1))
    assert plan([derive, apart], Coin.ZCDP, left).chosen == Measure(None, None, Cost(apart.amount, apart.amount))
    nothing = Cost(FREE, FREE)
    assert isinstance(plan([derive, apart], Coin.ZCDP, nothing).chosen, Derive)
    assert isinstance(plan([OWN, apart], Coin.ZCDP, nothing).chosen, Reuse)


def test_what_a_unit_touches_and_moves_is_in_the_price() -> None:
    known = Known(frozenset((1,)))
    once = plan([replace(OWN, known=known)], Coin.ZCDP).chosen.cost.analyst - QUANTUM
    more = plan([replace(OWN, known=known, sensitivity=3, touched=2)], Coin.ZCDP).chosen.cost.analyst - QUANTUM
    assert abs(more - 18 * once) < 20 * QUANTUM


def test_explain_tells_every_way_and_its_prices() -> None:
    told = plan([Apart(Decimal("0.005")), OWN], Coin.ZCDP).lines()
    assert told == [
        "reuse on orders(city): 0 for the analyst, 0 for the protected database",
        "measure apart: 0.005 for the analyst, 0.005 for the protected database",
    ]


def test_on_a_ledger_of_pure_epsilon_there_are_no_synopses_to_grow() -> None:
    assert plan([Apart(Decimal("0.1"))], Coin.PURE).chosen.view is None
    with pytest.raises(ValueError, match="pure"):
        plan([replace(OWN, releases=(), known=Known())], Coin.PURE)
    with pytest.raises(ValueError, match="at least one way"):
        plan([], Coin.ZCDP)


@steady
@given(
    wishes=st.lists(st.fractions(min_value=Fraction(1, 10**5), max_value=Fraction(1, 20)), min_size=1, max_size=4),
    apart=st.decimals(min_value=Decimal("0.000001"), max_value=Decimal("0.1"), places=9),
)
def test_no_other_way_is_cheaper_than_the_chosen_one(wishes: list[Fraction], apart: Decimal) -> None:
    ways = [replace(OWN, view=str(i), known=Known(), precision=wish) for i, wish in enumerate(wishes)]
    found = plan([*ways, Apart(apart)], Coin.ZCDP)
    assert len(found.others) == len(wishes)
    assert all(found.chosen.cost.both <= other.cost.both for other in found.others)
    assert found.chosen.cost.database <= found.chosen.cost.analyst


def test_what_the_question_pays_for_the_view_already_is_not_counted_twice() -> None:
    fresh = replace(OWN, releases=(), known=Known())
    before = plan([fresh], Coin.ZCDP).chosen.cost
    again = plan([replace(fresh, owed=before), Apart(Decimal("0.001"))], Coin.ZCDP).chosen
    assert again.view == "orders(city)" and again.cost == Cost(FREE, FREE)
    finer = plan([replace(fresh, precision=Fraction(1, 50), owed=before)], Coin.ZCDP).chosen
    assert finer.cost == Cost(paid(Fraction(1, 100)), paid(Fraction(1, 100)))
