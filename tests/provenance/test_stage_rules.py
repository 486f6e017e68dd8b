"""The database itself takes no forged settlement, from nobody; and reports show a question on one line."""

from __future__ import annotations

from decimal import Decimal

import pytest
from psycopg import Connection, errors

ROW = """
INSERT INTO provenance.charge (analyst, relation, relation_id, data_version, registry_version, fingerprint, question,
                               mechanism, coin, amount, delta, epsilon, bill, stage, question_of)
SELECT %(analyst)s, label, id, 1, 1, %(fingerprint)s, 'SELECT 1', 'cert', 'zcdp', %(amount)s, %(delta)s, %(epsilon)s,
       %(bill)s, %(stage)s, %(question_of)s
FROM provenance.relation WHERE label = %(relation)s RETURNING id
"""
USUAL = {"analyst": "alice", "fingerprint": "f", "delta": Decimal(0), "epsilon": 0, "bill": "{}", "relation": "patient"}


def add(conn: Connection, stage: str, amount: str, question_of: int | None = None, **other: object) -> int:
    more = {"stage": stage, "amount": Decimal(amount), "question_of": question_of}
    row = conn.execute(ROW, USUAL | more | other).fetchone()
    assert row is not None
    return int(row[0])


def balances(conn: Connection) -> list[tuple[str, str]]:
    rows = conn.execute("SELECT scope, amount::text FROM provenance.balance WHERE amount <> 0 ORDER BY scope")
    return [(scope, amount) for scope, amount in rows]


FORGED = {
    "a negative charge": ({"stage": "charge", "amount": "-0.001"}, "23514"),
    "a negative reservation": ({"stage": "reserve", "amount": "-0.001"}, "23514"),
    "a negative reservation of a question": ({"stage": "reserve", "amount": "-0.0001", "question_of": "open"}, "23514"),
    "a negative delta": ({"stage": "charge", "amount": "0", "delta": Decimal("-1e-12")}, "23514"),
    "a settlement of nothing": ({"stage": "settle", "amount": "-0.001"}, "23514"),
    "a settlement that takes": ({"stage": "settle", "amount": "0.001", "question_of": "open"}, "23514"),
    "more than was reserved": ({"stage": "settle", "amount": "-0.001000000000000001", "question_of": "open"}, "23514"),
    "more delta than was reserved": (
        {"stage": "settle", "amount": "0", "delta": Decimal("-1e-30"), "question_of": "open"},
        "23514",
    ),
    "endlessly much": ({"stage": "settle", "amount": "-Infinity", "question_of": "open"}, "23514"),
    "no number": ({"stage": "settle", "amount": "NaN", "question_of": "open"}, "23514"),
    "a fixed price": ({"stage": "settle", "amount": "-0.001", "question_of": "fixed"}, "55000"),
    "a settled question": ({"stage": "settle", "amount": "-0.0001", "question_of": "closed"}, "55000"),
    "more for a settled question": ({"stage": "reserve", "amount": "0.001", "question_of": "closed"}, "55000"),
    "a later stage": ({"stage": "settle", "amount": "-0.001", "question_of": "later"}, "55000"),
    "a settlement": ({"stage": "settle", "amount": "0", "question_of": "end"}, "55000"),
    "a row that is not there": ({"stage": "settle", "amount": "-0.001", "question_of": "nowhere"}, "55000"),
    "another analyst's": ({"stage": "settle", "amount": "-0.001", "question_of": "open", "analyst": "bob"}, "55000"),
    "another relation's": (
        {"stage": "settle", "amount": "-0.001", "question_of": "open", "relation": "orders"},
        "55000",
    ),
    "another question's": (
        {"stage": "settle", "amount": "-0.001", "question_of": "open", "fingerprint": "g"},
        "55000",
    ),
    "a charge that follows": ({"stage": "charge", "amount": "0.001", "question_of": "open"}, "23514"),
    "an unknown stage": ({"stage": "refund", "amount": "-0.001", "question_of": "open"}, "23514"),
}


@pytest.mark.parametrize("role", ["owner", "pgveil_admin"])
@pytest.mark.parametrize("case", FORGED)
def test_a_forged_row_is_not_taken(sandbox: Connection, case: str, role: str) -> None:
    ids: dict[str, int] = {"nowhere": 2**40, "open": add(sandbox, "reserve", "0.001")}
    ids["fixed"] = add(sandbox, "charge", "0.001")
    ids["closed"] = add(sandbox, "reserve", "0.001")
    ids["later"] = add(sandbox, "reserve", "0.001", ids["closed"])
    ids["end"] = add(sandbox, "settle", "-0.0005", ids["closed"])
    before = balances(sandbox)
    if role != "owner":  # who may not even insert
        sandbox.execute(f"SET LOCAL ROLE {role}".encode())
        with pytest.raises(errors.InsufficientPrivilege), sandbox.transaction():
            add(sandbox, "charge", "0.001")
        sandbox.execute("RESET ROLE")
        sandbox.execute(f"GRANT INSERT ON provenance.charge TO {role}".encode())
        sandbox.execute(f"SET LOCAL ROLE {role}".encode())
    forged, sqlstate = FORGED[case]
    place = forged.get("question_of")
    row = forged | {"question_of": None if place is None else ids[str(place)]}
    with pytest.raises(errors.Error) as caught, sandbox.transaction():
        add(sandbox, **row)  # type: ignore[arg-type]
    assert caught.value.sqlstate == sqlstate
    assert balances(sandbox) == before


def test_two_settlements_in_one_statement_are_not_taken(sandbox: Connection) -> None:
    first = add(sandbox, "reserve", "0.001")
    twice = ROW.replace("FROM provenance.relation", "FROM generate_series(1, 2), provenance.relation")
    row = USUAL | {"stage": "settle", "amount": Decimal("-0.0001"), "question_of": first}
    with pytest.raises((errors.ObjectNotInPrerequisiteState, errors.UniqueViolation)), sandbox.transaction():
        sandbox.execute(twice.encode(), row)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE provenance.charge SET stage = 'charge'",
        "DELETE FROM provenance.charge WHERE stage = 'reserve'",
        "UPDATE provenance.charge_loss SET min_entropy = 0",
        "DELETE FROM provenance.charge_loss",
        "TRUNCATE provenance.charge_loss",
    ],
)
def test_stages_are_never_changed_even_by_the_owner(sandbox: Connection, statement: str) -> None:
    add(sandbox, "reserve", "0.001")
    with pytest.raises(errors.InsufficientPrivilege, match="never changed"), sandbox.transaction():
        sandbox.execute(statement.encode())


def test_a_question_is_one_line_of_each_report(sandbox: Connection) -> None:
    add(sandbox, "charge", "0.004", epsilon=4, bill='{"fixed": 1}')
    first = add(sandbox, "reserve", "0.001", epsilon=1, delta=Decimal("1e-11"), bill='{"beta": 1, "returned": null}')
    add(sandbox, "reserve", "0.002", first, epsilon=2)
    add(sandbox, "settle", "-0.0015", first, epsilon="1.5", delta=Decimal("-4e-12"), bill='{"returned": 7}')
    lost = add(sandbox, "reserve", "0.003", epsilon=1)
    add(sandbox, "reserve", "0.006", lost, epsilon=3)
    rows = sandbox.execute(
        "SELECT epsilon, delta, charged, bill, min_entropy, stages, settled FROM provenance.history ORDER BY id"
    ).fetchall()
    assert rows == [
        (4, 0, Decimal("0.004"), {"fixed": 1}, None, 1, True),
        (Decimal("1.5"), Decimal("6e-12"), Decimal("0.0015"), {"beta": 1, "returned": 7}, None, 2, True),
        (3, 0, Decimal("0.009"), {}, None, 2, False),
    ]
    matrix = sandbox.execute(
        "SELECT questions, charged, delta FROM provenance.matrix WHERE analyst = 'alice' AND relation = 'patient'"
    ).fetchall()
    assert matrix == [(3, Decimal("0.0145"), Decimal("6e-12"))]
    budget = sandbox.execute(
        "SELECT spent = provenance.epsilon_of('zcdp', 0.0145, 5e-10) FROM provenance.budget WHERE analyst = 'alice'"
    ).fetchone()
    assert budget == (True,)


def test_the_columns_of_the_reports_stay_where_they_were(sandbox: Connection) -> None:
    def columns(view: str) -> list[str]:
        rows = sandbox.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attnum",
            (f"provenance.{view}",),
        ).fetchall()
        return [row[0] for row in rows]

    before = "id at analyst relation question mechanism epsilon delta coin charged data_version registry_version bill"
    since = "min_entropy stages settled views table_charged regions counted table_counted"
    assert columns("history") == [*before.split(), *since.split()]
    assert columns("matrix") == ["analyst", "relation", "questions", "spent", "coin", "charged", "delta", "view"]
    assert columns("budget") == ["analyst", "view", "spent", "limit", "left"]
