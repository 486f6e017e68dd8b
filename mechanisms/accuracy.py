"""What an analyst asks for: the ``veil.`` settings of one question as checked numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Decimal

from mechanisms.errors import BadSetting

# Below 10^18 with 18 places: what the ledger's NUMERIC holds, and no text can make us compute with 10^999999.
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:[eE][+-]?[0-9]{1,2})?", re.ASCII)
_LARGEST = Decimal(10) ** 18
_FINEST = -18


def number(name: str, text: str) -> Decimal:
    """The value of a numeric setting, or 22023."""
    stripped = text.strip()
    if _NUMBER.fullmatch(stripped):
        value = Decimal(stripped)
        exponent = value.normalize().as_tuple().exponent
        if abs(value) < _LARGEST and isinstance(exponent, int) and exponent >= _FINEST:
            return value
    also = ", or '50u' for 50 times what one privacy unit moves" if name == "margin" else ""
    raise BadSetting(
        f"veil.{name} is not a number that can be used: {text[:40]!r}",
        hint=f"Write a number below 10^18 with at most 18 decimals, as in SET veil.{name} = '0.05'{also}.",
    )


@dataclass(frozen=True, slots=True)
class Margin:
    """Half the width of an interval: a number of the aggregate's own, or a multiple of what one unit moves."""

    amount: Decimal
    in_units: bool

    @classmethod
    def parse(cls, text: str) -> Margin:
        """``'50u'`` or ``'12.5'``."""
        stripped = text.strip()
        in_units = stripped[-1:] in ("u", "U")
        amount = number("margin", stripped[:-1] if in_units else stripped)
        if amount < 0:
            raise BadSetting(
                f"veil.margin must not be negative: {text[:40]!r}",
                hint="Write SET veil.margin = '50u' for 50 times what one privacy unit can move the aggregate.",
            )
        return cls(amount, in_units)

    def lattice(self, sensitivity: int) -> int:
        """The margin in lattice units, rounded down, for an aggregate that one unit moves by ``sensitivity``."""
        amount = self.amount * sensitivity if self.in_units else self.amount
        return int(amount.to_integral_value(rounding=ROUND_FLOOR))

    def __str__(self) -> str:
        return f"{self.amount:f}{'u' if self.in_units else ''}"


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The accuracy of one question; with ``epsilon`` set it is a question at a given price instead."""

    beta: Decimal
    alpha: Decimal
    margin: Margin
    confidence: Decimal
    epsilon: Decimal | None = None
    max_epsilon: Decimal | None = None

    def shared(self, questions: int) -> Accuracy:
        """The accuracy of one of several questions that one statement combines: a miss in any may be a miss of all."""
        if questions == 1:
            return self
        return replace(self, beta=(self.beta / questions).quantize(Decimal("1e-18"), ROUND_FLOOR))

    def capped(self) -> Accuracy:
        """The same where the noise is fixed: the price that was asked for is the most that may be paid."""
        if self.epsilon is None:
            return self
        most = self.epsilon if self.max_epsilon is None else min(self.epsilon, self.max_epsilon)
        return replace(self, epsilon=None, max_epsilon=most)

    def __post_init__(self) -> None:
        for name in ("beta", "alpha", "confidence"):
            value = getattr(self, name)
            if not 0 < value < 1:
                raise BadSetting(
                    f"veil.{name} must lie between 0 and 1, both excluded: {value}",
                    hint=f"Write RESET veil.{name} for the default.",
                )
        for name in ("epsilon", "max_epsilon"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise BadSetting(f"veil.{name} must be above 0: {value}", hint=f"Write RESET veil.{name} to unset it.")
