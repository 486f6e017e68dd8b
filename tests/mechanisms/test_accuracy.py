from __future__ import annotations

from decimal import Decimal

import pytest

from mechanisms.accuracy import Accuracy, Margin, number
from mechanisms.errors import BadSetting

GOOD = {
    "beta": Decimal("0.05"),
    "alpha": Decimal("0.1"),
    "margin": Margin(Decimal(50), True),
    "confidence": Decimal("0.95"),
}


@pytest.mark.parametrize(
    ("text", "sensitivity", "lattice"),
    [("50u", 1, 50), ("50u", 7, 350), ("12.5", 7, 12), ("0.5u", 3, 1), (" 1e2 ", 1, 100), ("0", 5, 0), (".5", 1, 0)],
)
def test_a_margin_is_a_number_or_a_multiple_of_what_one_unit_moves(text: str, sensitivity: int, lattice: int) -> None:
    assert Margin.parse(text).lattice(sensitivity) == lattice


@pytest.mark.parametrize(
    "text",
    ["", "u", "fifty", "-1", "-1u", "50uu", "50 %", "nan", "inf", "1e99", "1e999999", "1e-19", "9" * 30, "٥", "1_0"],
)
def test_a_margin_that_means_nothing_is_a_bad_setting(text: str) -> None:
    with pytest.raises(BadSetting, match=r"veil\.margin") as refusal:
        Margin.parse(text)
    assert refusal.value.sqlstate == "22023"
    assert refusal.value.hint


def test_a_margin_is_told_as_it_was_given() -> None:
    assert [str(Margin.parse(text)) for text in ("50u", "12.5", "1e3")] == ["50u", "12.5", "1000"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("beta", "0"), ("beta", "1"), ("alpha", "-0.1"), ("alpha", "1"), ("confidence", "1"), ("confidence", "0"),
     ("epsilon", "0"), ("max_epsilon", "-1")],
)  # fmt: skip
def test_a_probability_or_price_out_of_range_is_a_bad_setting(name: str, value: str) -> None:
    with pytest.raises(BadSetting, match=name):
        Accuracy(**{**GOOD, name: Decimal(value)})  # type: ignore[arg-type]


def test_the_defaults_are_in_range() -> None:
    accuracy = Accuracy(**GOOD)  # type: ignore[arg-type]
    assert (accuracy.epsilon, accuracy.max_epsilon) == (None, None)


def test_a_number_keeps_its_digits() -> None:
    assert number("beta", "0.050000000000000001") == Decimal("0.050000000000000001")
    assert number("epsilon", "1e-18") == Decimal("1e-18")
