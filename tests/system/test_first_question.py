"""The first ten minutes of a newcomer: one question, its price, and the budget that stays spent."""

from __future__ import annotations

import json

import psycopg
import pytest
from proxies import Proxy, charges

HAVING = "SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 1500"


def bill_of(session: psycopg.Connection, question: str) -> tuple[list[tuple], dict]:
    notices = []
    session.add_notice_handler(lambda d: notices.append((d.message_primary, d.message_detail)))
    rows = session.execute(question).fetchall()
    (told,) = [detail for message, detail in notices if message.startswith("veil:")]
    return rows, json.loads(told)


def test_the_having_question_is_answered_with_its_price(proxy: Proxy, upstream: str, analyst: str) -> None:
    with proxy.connect(analyst) as session:
        rows, bill = bill_of(session, HAVING)
    with psycopg.connect(upstream) as direct:
        exact = dict(direct.execute("SELECT disease, count(*) FROM patient_data GROUP BY 1").fetchall())
    answered = {row[0] for row in rows}
    assert {d for d, n in exact.items() if n > 4000} <= answered
    assert not {d for d, n in exact.items() if n < 100} & answered
    (charge,) = charges(upstream, analyst)
    assert bill["charged"] == f"{charge[2].normalize():f}"
    assert bill["mechanism"] == "cert" and (bill["beta"], bill["alpha"]) == (0.05, 0.1)
    assert 0 <= bill["expected_false"] <= 4 and len(bill["atoms"]) == 1
    assert bill["groups"] == 40 and bill["returned"] == len(rows)
    assert bill["epsilon"] == pytest.approx(float(charge[1]))
    assert set(bill) >= {
        *("question", "mechanism", "epsilon", "delta", "coin", "charged", "beta", "alpha", "groups", "returned"),
        *("expected_false", "atoms", "reused", "remaining_epsilon"),
    }


def test_the_same_question_again_is_free_and_the_same(proxy: Proxy, upstream: str, analyst: str) -> None:
    with proxy.connect(analyst) as session:
        first, _ = bill_of(session, "SELECT disease, count(*) FROM patient_data GROUP BY disease")
        with proxy.connect(analyst) as other:
            again, bill = bill_of(other, "select count(*) AS n, p.disease from patient_data p group by 2")
    assert {(d, n) for d, n in first} == {(d, n) for n, d in again}
    assert bill["reused"] is True and bill["epsilon"] == 0 and bill["charged"] == "0"
    assert len(charges(upstream, analyst)) == 1


def test_rows_are_refused_with_a_hint(session: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege) as refused:
        session.execute("SELECT * FROM patient_data")
    assert "count(*)" in (refused.value.diag.message_hint or "")
    assert refused.value.diag.statement_position == "8"
    assert session.execute("SELECT 1").fetchone() == (1,)
