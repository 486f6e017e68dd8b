"""Many clients of several analysts and proxies on the table's limit: not one question too many, and none too few."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
import torture
from proxies import Proxy, charges, new_analyst, running_proxy
from torture import books_balance

from mechanisms.loss import Coin, amount_within, epsilon_of

DELTA = Decimal("0.0000000005")  # half of the deployment's converts coin into epsilon

PRICE = "-c veil.epsilon=0.01"


def question(number: int) -> str:
    """All different, all at the same fixed price."""
    return f"SELECT ward FROM visit WHERE id > {number // 500} GROUP BY ward HAVING count(*) > {20 + number % 500}"


async def rush(proxies: list[Proxy], who: list[str], clients: int, attempts: int) -> Counter[str]:
    """How the attempts ended: answered, or with which SQLSTATE; every client has every n-th question."""
    ended: Counter[str] = Counter()
    ready = asyncio.Barrier(clients)

    async def client(number: int) -> None:
        dsn = proxies[number % len(proxies)].dsn(who[number % len(who)], connect_timeout=60, options=PRICE)
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as session:
            await ready.wait()
            for each in range(number, attempts, clients):
                try:
                    await session.execute(question(each))
                    ended["answered"] += 1
                except psycopg.Error as error:
                    ended[error.sqlstate or "lost"] += 1

    await asyncio.gather(*(client(number) for number in range(clients)))
    return ended


@pytest.mark.parametrize(
    ("clients", "replicas", "attempts", "fitting"),
    [
        (12, 2, 300, 77),
        pytest.param(64, 4, 20_000, 4_000, marks=(pytest.mark.slow, pytest.mark.timeout(2400))),
    ],
)
def test_exactly_what_fits_is_answered_to_many_clients_of_many_proxies(
    clients: int,
    replicas: int,
    attempts: int,
    fitting: int,
    postgres: Any,
    shadow_server: Any,
    tmp_path: Path,
    record_testsuite_property: Any,
) -> None:
    world = torture.build(postgres.new_database("torture"))
    first = new_analyst(world, mechanism="tslm")
    with ExitStack() as stack:
        environment = {"PGVEIL_READERS": "2"}
        proxies = [
            stack.enter_context(
                running_proxy(world, shadow_server.admin_dsn, tmp_path / f"{number}.log", environment=environment)
            )
            for number in range(replicas)
        ]
        with proxies[0].connect(first, options=PRICE) as session:
            session.execute(question(0))
        ((_, _, each, _),) = charges(world, first)
        limit = epsilon_of(Coin.ZCDP, (1 + fitting) * each, DELTA)
        assert (1 + fitting) * each <= amount_within(Coin.ZCDP, limit, DELTA) < (2 + fitting) * each
        with psycopg.connect(world, autocommit=True) as conn:
            conn.execute("UPDATE provenance.deployment SET epsilon = %s", (limit,))
        who = [new_analyst(world, mechanism="tslm") for _ in range(6)]
        begun = time.monotonic()
        ended = asyncio.run(rush(proxies, who, clients, attempts))
        record_testsuite_property("attempts in a second", attempts / (time.monotonic() - begun))
    assert ended == {"answered": fitting, "53400": attempts - fitting}
    rows = [row for name in who for row in charges(world, name)]
    assert len(rows) == fitting and {row[2] for row in rows} == {each}
    assert len({row[3] for row in rows}) == fitting
    books_balance(world)
    for log in tmp_path.glob("*.log"):
        assert "Traceback" not in log.read_text()
