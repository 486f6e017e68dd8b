"""Reports tell in epsilon what the ledger counts in coin."""

from __future__ import annotations

from decimal import Decimal

import pytest
from psycopg import Connection, errors

from mechanisms.loss import Coin, epsilon_of

PAY = """
INSERT INTO provenance.charge (analyst, relation, relation_id, data_version, registry_version, fingerprint, question,
                               mechanism, coin, amount, epsilon)
SELECT %s, label, id, 1, 1, 'f', 'SELECT 1', 'tslm', 'zcdp', %s, 0.1 FROM provenance.relation WHERE label = %s
"""


@pytest.mark.parametrize("delta", ["0.1", "1e-5", "5e-10", "1e-30"])
def test_epsilon_in_sql_is_epsilon_in_python(sandbox: Connection, delta: str) -> None:
    amounts = [Decimal(f"{m}e{e}") for e in range(-9, 4) for m in ("1", "3.7")]
    query = "SELECT provenance.epsilon_of('zcdp', a, %s) FROM unnest(%s::numeric[]) WITH ORDINALITY t(a, o) ORDER BY o"
    rows = sandbox.execute(query, (Decimal(delta), amounts)).fetchall()
    for amount, (found,) in zip(amounts, rows, strict=True):
        true = epsilon_of(Coin.ZCDP, amount, Decimal(delta))
        assert abs(found - true) <= Decimal("1e-6") * true + Decimal("1e-12"), (amount, found, true)
        assert found >= true - Decimal("1e-12"), (amount, found, true)


def test_pure_coin_is_epsilon_and_nothing_is_nothing(sandbox: Connection) -> None:
    row = sandbox.execute("SELECT provenance.epsilon_of('pure', 1.25, 0), provenance.epsilon_of('zcdp', 0, 1e-9)")
    assert row.fetchone() == (Decimal("1.25"), 0)


@pytest.mark.parametrize("call", ["epsilon_of('gold', 1, 0.1)", "epsilon_of('zcdp', 1, 0)", "epsilon_of('zcdp', 1, 1)"])
def test_what_has_no_epsilon_is_an_error(sandbox: Connection, call: str) -> None:
    with pytest.raises(errors.InvalidParameterValue), sandbox.transaction():
        sandbox.execute(f"SELECT provenance.{call}".encode())


def test_reports_add_up(sandbox: Connection) -> None:
    for analyst, amount, relation in (
        ("alice", "0.001", "patient"),
        ("alice", "0.002", "orders"),
        ("bob", "0.004", "orders"),
    ):
        sandbox.execute(PAY, (analyst, Decimal(amount), relation))

    def epsilon(amount: str) -> float:
        return float(epsilon_of(Coin.ZCDP, Decimal(amount), Decimal("5e-10")))

    budget = sandbox.execute(
        'SELECT analyst, view, spent, "limit", "left" FROM provenance.budget ORDER BY 1'
    ).fetchall()
    assert [(row[0], row[1], row[3]) for row in budget] == [("alice", "all", 1), ("bob", "all", 4)]
    assert [float(row[2]) for row in budget] == pytest.approx([epsilon("0.003"), epsilon("0.004")])
    assert all(row[4] == row[3] - row[2] for row in budget)
    total = sandbox.execute('SELECT spent, "limit", amount FROM provenance.total').fetchone()
    assert (
        total is not None and float(total[0]) == pytest.approx(epsilon("0.007")) and total[1:] == (10, Decimal("0.007"))
    )
    matrix = sandbox.execute(
        "SELECT analyst, relation, questions, spent FROM provenance.matrix ORDER BY 1, 2"
    ).fetchall()
    assert [row[:3] for row in matrix] == [
        ("alice", "orders", 1),
        ("alice", "patient", 1),
        ("bob", "orders", 1),
        ("bob", "patient", 0),
    ]
    assert float(matrix[0][3]) == pytest.approx(epsilon("0.002")) and matrix[3][3] == 0
    history = sandbox.execute(
        "SELECT analyst, relation, question, charged FROM provenance.history ORDER BY id"
    ).fetchall()
    assert history[-1] == ("bob", "orders", "SELECT 1", Decimal("0.004"))


def test_allocation_by_sum_shows_in_the_budget(sandbox: Connection) -> None:
    sandbox.execute("UPDATE provenance.deployment SET allocation = 'sum'")
    assert sandbox.execute('SELECT "limit" FROM provenance.budget ORDER BY analyst').fetchall() == [(2,), (8,)]
    sandbox.execute("UPDATE provenance.deployment SET expansion = 3")
    assert sandbox.execute('SELECT "limit" FROM provenance.budget ORDER BY analyst').fetchall() == [(6,), (10,)]
