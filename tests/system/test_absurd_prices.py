"""Prices of more digits than Python's own decimals keep: refused as any other that is above a limit."""

from __future__ import annotations

from decimal import Decimal

import psycopg
import pytest

QUESTIONS = (
    "SELECT sum(fnlwgt) FROM adult",
    "SELECT avg(fnlwgt), sum(age) FROM adult",
    "SELECT sex, sum(fnlwgt), count(*) FILTER (WHERE age > 40) FROM adult GROUP BY sex",
    "SELECT sum(fnlwgt) FROM adult WHERE age = 30",
    "SELECT region, sum(amount) FROM orders GROUP BY region",
)


@pytest.mark.parametrize("text", QUESTIONS)
@pytest.mark.parametrize("margin", ["1", "0.000000000001"])
def test_a_price_of_forty_digits_is_above_the_limit(session: psycopg.Connection, text: str, margin: str) -> None:
    session.autocommit = True
    session.execute(f"SET veil.margin = '{margin}'".encode())
    with pytest.raises(psycopg.Error) as caught:
        session.execute(text.encode())
    assert caught.value.sqlstate in ("53400", "54000")
    session.execute(f"EXPLAIN {text}".encode())
    spent = session.execute("SELECT max(spent) FROM veil.budget").fetchone()
    assert spent is not None and Decimal(spent[0]) == 0
