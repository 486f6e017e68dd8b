"""What pieces of a relaxed question are foretold to cost is what the till is asked for."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from types import SimpleNamespace as Thing
from typing import Any

import pytest

from mechanisms.loss import Coin, Loss
from provenance.model import Charge
from provenance.region import EVERYWHERE
from provenance.releases import Place
from proxy import floor, patched
from sqlrewrite.catalog import Kind

OWN, SHARED, FLOOR = Decimal("0.3"), Decimal("0.01"), Decimal("0.002")
VIEW = Place(1, 1, "a histogram")


def found() -> Any:
    loss = Loss(Coin.ZCDP, SHARED)
    return Thing(moves={VIEW: None}, free=False, dearer_than=lambda at_most: at_most is not None and at_most < SHARED,
                 loss=loss, table=SHARED, parts=(), felt=())  # fmt: skip


def piece(most: Decimal | None = None) -> Any:
    relation = Thing(id=1, data_version=1, kind=Kind.PROTECTED, parents=())
    source = Thing(relation=relation)
    return Thing(question=Thing(relation=relation, sources=(source,)), loss=Loss(Coin.ZCDP, OWN), digest="d",
                 mechanism="gaussian", most=most, refuse_if_dear=lambda: None, floor=FLOOR,
                 raised=None)  # fmt: skip


@pytest.fixture
def price(monkeypatch: pytest.MonkeyPatch) -> Any:
    async def ways(*_: Any) -> Any:
        return found()

    monkeypatch.setattr(patched, "ways", ways)
    monkeypatch.setattr(patched, "shares_views", lambda each: True)
    monkeypatch.setattr(floor, "reach", lambda question: EVERYWHERE)
    nobody: Any = Thing(name="alice", releases=None, catalog=Thing(version=1))
    buyer = patched.Buyer(nobody, nobody, nobody, nobody, nobody, nobody)

    def priced(*pieces: Any) -> list[Decimal]:
        async def charges() -> list[Charge]:
            taken: set[Place] = set()
            return [await buyer._charge(each, taken) for each in pieces]

        return [charge.loss.amount for charge in asyncio.run(charges())]

    return priced


def test_of_two_pieces_that_move_one_view_the_second_costs_noise_of_its_own(price: Any) -> None:
    """As on the way to the till (``answer._asked``): else both together could cost more than veil.max_epsilon."""
    assert price(piece(), piece()) == [SHARED, OWN]


def test_a_view_that_would_cost_too_much_is_left_alone(price: Any) -> None:
    assert price(piece(Decimal("0.001")), piece()) == [OWN, SHARED]
