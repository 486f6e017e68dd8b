"""Fairness as DProvDB measures it, and what each analyst and each view has left."""

from __future__ import annotations

from decimal import Decimal

import psycopg
import pytest
from psycopg import Connection

from mechanisms.loss import Coin, epsilon_of

PAY = """
INSERT INTO provenance.charge (analyst, relation, relation_id, data_version, registry_version, fingerprint, question,
                               mechanism, coin, amount, epsilon, table_amount, views, view_amounts, view_tables)
SELECT %s, label, id, 1, 1, 'f', 'SELECT 1', 'tslm', 'zcdp', %s, 0.1, 0, %s, %s, %s
FROM provenance.relation WHERE label = 'patient' RETURNING id
"""


def pay(conn: Connection, analyst: str, amount: str, views: list[int] | None = None) -> None:
    ids = views or []
    conn.execute(PAY, (analyst, Decimal(amount), ids, [Decimal(amount)] * len(ids), [Decimal(0)] * len(ids)))


def epsilon(amount: str) -> float:
    return float(epsilon_of(Coin.ZCDP, Decimal(amount), Decimal("5e-10")))


def test_ndcfg_is_that_of_the_example_in_the_paper(sandbox: Connection) -> None:
    """DProvDB, example 7: privileges 1, 2 and 4; 10, 3 and 0 questions give 1.16, and 2, 4 and 7 give 2.35."""
    sandbox.execute("UPDATE provenance.analyst SET privilege = CASE name WHEN 'alice' THEN 1 ELSE 2 END")
    sandbox.execute("SELECT provenance.create_analyst('carol', 'carol', 4)")
    for (first, second, third), wanted in (((10, 3, 0), 1.16), ((2, 4, 7), 2.35)):
        with sandbox.transaction(force_rollback=True):
            for name, count in (("alice", first), ("bob", second), ("carol", third)):
                for _ in range(count):
                    pay(sandbox, name, "0.0001")
            rows = sandbox.execute(
                "SELECT analyst, questions, gain, ndcfg FROM provenance.fairness ORDER BY 1"
            ).fetchall()
        assert [row[:2] for row in rows] == [("alice", first), ("bob", second), ("carol", third)]
        assert {round(float(row[3]), 2) for row in rows} == {wanted}
        assert float(rows[0][2]) == pytest.approx(first)


def test_an_unfair_share_is_told(sandbox: Connection) -> None:
    query = "SELECT analyst, proportional, ndcfg FROM provenance.fairness ORDER BY 1"
    assert sandbox.execute(query).fetchall() == [("alice", True, None), ("bob", True, None)]
    pay(sandbox, "alice", "0.001")
    assert [row[:2] for row in sandbox.execute(query).fetchall()] == [("alice", True), ("bob", False)]
    pay(sandbox, "bob", "0.02")
    assert [row[:2] for row in sandbox.execute(query).fetchall()] == [("alice", True), ("bob", True)]
    ratios = sandbox.execute("SELECT spent_per_privilege FROM provenance.fairness ORDER BY analyst").fetchall()
    assert [float(row[0]) for row in ratios] == pytest.approx([epsilon("0.001"), epsilon("0.02") / 4])


@pytest.fixture
def viewed(sandbox: Connection) -> Connection:
    sandbox.execute(
        "INSERT INTO provenance.view (relation, dimensions, epsilon_limit)"
        " VALUES ('patient', '{age}', 0.7), ('patient', '{}', NULL)"
    )
    ids = [row[0] for row in sandbox.execute("SELECT id FROM provenance.view ORDER BY id").fetchall()]
    pay(sandbox, "alice", "0.001", ids)
    pay(sandbox, "alice", "0.001", ids[:1])
    pay(sandbox, "bob", "0.003", ids[1:])
    return sandbox


def test_the_budget_has_a_line_for_each_view_that_an_analyst_has_learned_from(viewed: Connection) -> None:
    query = 'SELECT analyst, view, spent, "limit", "left" FROM provenance.budget ORDER BY 1, 2'
    rows = viewed.execute(query).fetchall()
    assert [row[:2] for row in rows] == [
        ("alice", "all"),
        ("alice", "patient (age): count(*)"),
        ("alice", "patient: count(*)"),
        ("bob", "all"),
        ("bob", "patient: count(*)"),
    ]
    assert [float(row[2]) for row in rows] == pytest.approx([epsilon(f"0.00{n}") for n in (2, 2, 1, 3, 3)])
    assert [float(row[3]) for row in rows] == [1, 0.7, 1, 4, 4]
    assert all(row[4] == row[3] - row[2] for row in rows)
    own = viewed.execute("SELECT * FROM provenance.budget_of('alice')").fetchall()
    assert own == [row[1:] for row in rows[:3]]


def test_the_matrix_has_analysts_by_views(viewed: Connection) -> None:
    rows = viewed.execute(
        "SELECT analyst, view, questions, charged FROM provenance.matrix WHERE view <> 'all' ORDER BY 1, 2"
    ).fetchall()
    assert rows == [
        ("alice", "patient (age): count(*)", 2, Decimal("0.002")),
        ("alice", "patient: count(*)", 1, Decimal("0.001")),
        ("bob", "patient (age): count(*)", 0, 0),
        ("bob", "patient: count(*)", 1, Decimal("0.003")),
    ]


def test_history_names_the_views_and_what_the_table_lost(viewed: Connection) -> None:
    rows = viewed.execute(
        "SELECT analyst, views, charged, table_charged FROM provenance.history ORDER BY id"
    ).fetchall()
    both = ["patient (age): count(*)", "patient: count(*)"]
    assert rows == [
        ("alice", both, Decimal("0.001"), 0),
        ("alice", both[:1], Decimal("0.001"), 0),
        ("bob", both[1:], Decimal("0.003"), 0),
    ]
    own = viewed.execute("SELECT question, charged, views FROM provenance.questions_of('alice')").fetchall()
    assert own == [("SELECT 1", Decimal("0.001"), both), ("SELECT 1", Decimal("0.001"), both[:1])]
    assert viewed.execute("SELECT views FROM provenance.questions_of('alice', 1)").fetchall() == [(both[:1],)]


def test_the_budget_of_a_view_tells_how_many_have_learned_from_it(viewed: Connection) -> None:
    rows = viewed.execute('SELECT label, spent, "limit", analysts FROM provenance.view_budget ORDER BY 1').fetchall()
    assert rows == [("patient (age): count(*)", 0, Decimal("0.7"), 1), ("patient: count(*)", 0, 10, 2)]


def test_what_is_lent_shows_on_both_sides(sandbox: Connection) -> None:
    sandbox.execute("SELECT provenance.grant_budget('bob', 'alice', 0.5)")
    sandbox.execute("UPDATE provenance.grant_of_budget SET used = 0.001")
    pay(sandbox, "alice", "0.004")
    spent = dict(sandbox.execute("SELECT analyst, spent FROM provenance.budget WHERE view = 'all'").fetchall())
    assert float(spent["alice"]) == pytest.approx(epsilon("0.003"))
    assert float(spent["bob"]) == pytest.approx(epsilon("0.001"))
    (row,) = sandbox.execute("SELECT view, spent, \"limit\" FROM provenance.budget_of('alice') WHERE view <> 'all'")
    assert row[0].endswith("by bob") and row[2] == Decimal("0.5") and float(row[1]) == pytest.approx(epsilon("0.001"))
    assert sandbox.execute("SELECT active FROM provenance.lending").fetchall() == [(True,)]
    sandbox.execute("SELECT provenance.revoke_grant(id) FROM provenance.grant_of_budget")
    assert sandbox.execute("SELECT active FROM provenance.lending").fetchall() == [(False,)]


def test_a_new_analyst_has_a_limit_at_once_and_takes_nothing_from_others(sandbox: Connection) -> None:
    before = sandbox.execute('SELECT analyst, "limit" FROM provenance.budget ORDER BY 1').fetchall()
    sandbox.execute("SELECT provenance.create_analyst('dora', 'dora', 7)")
    after = sandbox.execute('SELECT analyst, "limit" FROM provenance.budget ORDER BY 1').fetchall()
    assert after == [*before, ("dora", 7)]
    sandbox.execute("UPDATE provenance.deployment SET expansion = 2")
    assert sandbox.execute('SELECT "limit" FROM provenance.budget ORDER BY analyst').fetchall() == [(2,), (8,), (10,)]


def test_everything_in_the_schema_has_a_comment(shared: str) -> None:
    query = """
        SELECT c.relname || '.' || a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.relnamespace = 'provenance'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
            AND col_description(c.oid, a.attnum) IS NULL ORDER BY 1"""
    with psycopg.connect(shared) as conn:
        assert [row[0] for row in conn.execute(query).fetchall()] == []
