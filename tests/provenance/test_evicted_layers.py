"""What is remembered of a layer is all that the books say of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from region_books import UNLIMITED, balances, charge_on, place, wrong

from provenance.bounds import MANY, Layer, layers_of
from provenance.extent import Interval
from provenance.ledger import Ledger
from provenance.outlook import Outlook
from provenance.region import Region

ONE = Decimal("0.001")


def ages(low: int, high: int) -> Region:
    return Region.of({"age": Interval(low, high)})


class Crowded(Ledger):
    """Other analysts' layers push all others out of memory right after the next look has asked."""

    crowd = False

    async def _look(self, layers: Any) -> None:
        if self.crowd:
            self.crowd = False
            asyncio.get_running_loop().call_soon(self._push)
        await Outlook._look(self, layers)

    def _push(self) -> None:
        for number in range(500):
            self.bounds.learn(Layer("analyst", f"a{number}", 1, 1), 0, 1, [("{}", ONE)])


@pytest.mark.parametrize("others", [1, MANY + 5])
def test_a_layer_that_is_dropped_during_a_look_is_read_again(
    swept: str, pools: Callable[..., Any], others: int
) -> None:
    with psycopg.connect(swept, autocommit=True) as books:
        books.execute(UNLIMITED)
        at = place(books)

        async def work() -> None:
            async with pools(swept) as one, pools(swept) as other:
                ledger, second = Crowded(one), Ledger(other)
                await ledger.charge(charge_on(at, "alice", (ages(0, 50), ONE, ONE)))
                for number in range(others):
                    await second.charge(charge_on(at, "alice", (ages(60 + 2 * number, 60 + 2 * number), ONE, ONE)))
                ledger.crowd = True
                last = charge_on(at, "alice", (ages(10, 20), ONE, ONE))
                await ledger.charge(last)
                assert ledger.bounds.kept(layers_of(last)[0]).version in (0, others + 2)

        asyncio.run(work())
        assert balances(books)["alice"] == balances(books)["table"] == 2 * ONE
        assert not wrong(books)


def test_a_region_that_somebody_wrote_in_another_way_counts_beside_the_usual_one(
    swept: str, pools: Callable[..., Any]
) -> None:
    with psycopg.connect(swept, autocommit=True) as books:
        books.execute(UNLIMITED)
        at = place(books)

        async def work() -> None:
            async with pools(swept) as one:
                ledger = Ledger(one)
                await ledger.charge(charge_on(at, "alice", (ages(0, 50), ONE, ONE)))
                books.execute(
                    "INSERT INTO provenance.charge (analyst, relation, relation_id, data_version, registry_version,"
                    " fingerprint, question, mechanism, coin, amount, delta, epsilon, bill, stage, table_amount,"
                    " regions, region_amounts, region_tables) SELECT analyst, relation, relation_id, data_version,"
                    " registry_version, fingerprint, question, mechanism, coin, amount, delta, epsilon, bill, stage,"
                    " table_amount, %s, region_amounts, region_tables FROM provenance.charge",
                    (['{"age": {"to": 50, "from": 0}}'],),
                )
                await ledger.charge(charge_on(at, "alice", (ages(10, 20), ONE, ONE)))

        asyncio.run(work())
        assert balances(books)["alice"] == balances(books)["table"] == 3 * ONE
        assert not wrong(books)
