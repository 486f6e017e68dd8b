"""provenance.relation.changes and provenance.attribute.immutable: what is declared, assumed, enforced and versioned."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg import Connection, errors

from provenance.registry import Registry
from sqlrewrite.catalog import Catalog, Changes

CHARGE = """
INSERT INTO provenance.charge (analyst, relation, relation_id, data_version, registry_version, fingerprint, question,
                               mechanism, coin, amount, delta, epsilon, beside)
SELECT 'alice', label, id, data_version, 1, 'f', 'q', 'gaussian', 'zcdp', 0.001, 0, 0.1, %s::bigint[]
FROM provenance.relation WHERE label = %s RETURNING id
"""
RELEASE = """
INSERT INTO provenance.release (relation_id, data_version, digest, dimensions, measure, sensitivity, parts, variance,
                                cells, values, charge, snapshot)
SELECT relation_id, data_version, 'd', '{}', 'count(*)', 1, 1, '4', 1, '\\x0000000000000000', id, id
FROM provenance.charge WHERE id = %s
"""
SYNOPSIS = """
INSERT INTO provenance.synopsis (analyst, relation, relation_id, data_version, fingerprint, accuracy, aggregates,
                                 cells, values, charge)
SELECT 'alice', relation, relation_id, data_version, 'f', 'a', 1, 1, '', id FROM provenance.charge WHERE id = %s
"""


def one(conn: Connection, query: str, *parameters: object) -> tuple[object, ...]:
    row = conn.execute(query.encode(), parameters).fetchone()
    assert row is not None
    return row


def state(conn: Connection, name: str) -> tuple[object, ...]:
    return one(conn, "SELECT changes, enforced, data_version FROM provenance.relation WHERE name = %s AND active", name)


def kept(conn: Connection) -> tuple[object, ...]:
    return one(conn, "SELECT (SELECT count(*) FROM provenance.release), (SELECT count(*) FROM provenance.synopsis)")


def charged(conn: Connection, name: str, *beside: int) -> None:
    (charge,) = one(conn, CHARGE, list(beside), name)
    conn.execute(RELEASE, (charge,))
    conn.execute(SYNOPSIS, (charge,))


def said(conn: Connection, statement: str) -> list[str]:
    heard: list[str] = []
    conn.add_notice_handler(lambda notice: heard.append(f"{notice.severity_nonlocalized} {notice.message_primary}"))
    conn.execute(statement.encode())
    return heard


def test_a_table_changes_in_any_way_unless_it_is_declared(sandbox: Connection) -> None:
    assert state(sandbox, "patient") == ("any", False, 1)
    sandbox.execute("SELECT provenance.protect('patient', size_hint => 100, changes => 'frozen')")
    assert state(sandbox, "patient") == ("frozen", False, 1)
    sandbox.execute("SELECT provenance.set_changes('patient', 'append')")
    assert state(sandbox, "patient") == ("append", False, 1)
    sandbox.execute("SELECT provenance.protect('patient', size_hint => 100)")  # what is left out is the default
    assert state(sandbox, "patient") == ("any", False, 1)


def test_repeating_a_declaration_changes_nothing(sandbox: Connection) -> None:
    sandbox.execute("SELECT provenance.protect('patient', changes => 'frozen')")
    charged(sandbox, "patient")
    before = one(sandbox, "SELECT registry_version FROM provenance.deployment")
    assert said(sandbox, "SELECT provenance.protect('patient', changes => 'frozen')") == []
    assert said(sandbox, "SELECT provenance.set_changes('patient', 'frozen')") == []
    assert (one(sandbox, "SELECT registry_version FROM provenance.deployment"), kept(sandbox)) == (before, (1, 1))


@pytest.mark.parametrize("statement", [
    "SELECT provenance.set_changes('patient', 'never')",
    "SELECT provenance.set_changes('patient', NULL)",
    "SELECT provenance.protect('patient', changes => 'sometimes')",
    "SELECT provenance.protect('patient', changes => NULL)",
    "SELECT provenance.set_changes('city', 'frozen')",
    "SELECT provenance.set_changes('nobody', 'frozen')",
])  # fmt: skip
def test_nonsense_is_refused(sandbox: Connection, statement: str) -> None:
    with pytest.raises(psycopg.Error) as wrong, sandbox.transaction():
        sandbox.execute(statement.encode())
    assert wrong.value.sqlstate in ("22023", "55000", "42P01")


def test_what_is_assumed_is_said_with_a_warning(sandbox: Connection) -> None:
    (frozen,) = said(sandbox, "SELECT provenance.set_changes('patient', 'frozen')")
    assert frozen.startswith('WARNING "patient" is assumed to be frozen: rows are neither added, changed nor removed')
    (append,) = said(sandbox, "SELECT provenance.protect('patient', changes => 'append')")
    assert append.startswith('WARNING "patient" is assumed to be append')
    assert said(sandbox, "SELECT provenance.set_changes('patient', 'any')") == []
    (column,) = said(sandbox, "SELECT provenance.declare_attribute('patient', 'sex', immutable => true)")
    assert column.startswith('WARNING "sex" of "patient" is assumed to be immutable')
    assert said(sandbox, "SELECT provenance.set_changes('patient', 'frozen', enforce => true)") == []


@pytest.mark.parametrize(("before", "after"), [*itertools.permutations(("any", "append", "frozen"), 2)])
def test_another_declaration_after_a_charge_is_a_new_data_version(sandbox: Connection, before: str, after: str) -> None:
    sandbox.execute("SELECT provenance.set_changes('patient', %s)", (before,))
    assert state(sandbox, "patient") == (before, False, 1)  # nothing is charged: nothing to keep apart
    charged(sandbox, "patient")
    registry = one(sandbox, "SELECT registry_version FROM provenance.deployment")
    sandbox.execute("SELECT provenance.set_changes('patient', %s)", (after,))
    assert state(sandbox, "patient") == (after, False, 2)
    assert kept(sandbox) == (0, 0)
    assert one(sandbox, "SELECT registry_version FROM provenance.deployment") > registry
    assert one(sandbox, "SELECT amount FROM provenance.balance WHERE scope = 'table' AND name = ''") != (0,)


def test_a_new_version_of_a_joined_table_ends_what_was_measured_with_it(sandbox: Connection) -> None:
    (orders,) = one(sandbox, "SELECT id FROM provenance.relation WHERE name = 'orders'")
    assert isinstance(orders, int)
    charged(sandbox, "patient", orders)
    sandbox.execute("SELECT provenance.set_changes('orders', 'frozen')")
    assert (state(sandbox, "orders")[2], state(sandbox, "patient")[2], kept(sandbox)) == (2, 1, (0, 0))
    charged(sandbox, "patient", orders)
    sandbox.execute("SELECT provenance.refresh('orders')")
    assert kept(sandbox) == (0, 0)


def test_what_is_immutable_after_a_charge_is_a_new_data_version(sandbox: Connection) -> None:
    def declared(text: str) -> object:
        sandbox.execute(f"SELECT provenance.declare_attribute('patient', {text})".encode())
        return state(sandbox, "patient")[2]

    assert declared("'sex', members => '{f,m}', immutable => true") == 1
    charged(sandbox, "patient")
    assert declared("'sex', members => '{f,m}', immutable => true") == 1
    assert declared("'sex', members => '{f,m}'") == 2
    assert declared("'sex', members => '{f,m}', immutable => true") == 3
    assert declared("'age', 0, 100, 1, immutable => true") == 4
    assert declared("'mood', immutable => true") == 5
    sandbox.execute("DELETE FROM provenance.attribute WHERE name = 'mood'")
    assert state(sandbox, "patient")[2] == 6
    assert kept(sandbox) == (0, 0)
    sandbox.execute("SELECT provenance.set_changes('patient', 'frozen')")
    assert declared("'sex', members => '{f,m}'") == 7  # by the switch: of a frozen table all columns separate


def refused(conn: Connection, statement: str) -> str:
    with pytest.raises(errors.ObjectNotInPrerequisiteState) as wrong, conn.transaction():
        conn.execute(statement.encode())
    return str(wrong.value)


WRITES = {
    "INSERT": "INSERT INTO patient (id, age) VALUES (1000, 1)",
    "UPDATE": "UPDATE patient SET age = 1 WHERE id = 1",
    "DELETE": "DELETE FROM patient WHERE id = 2",
    "TRUNCATE": "TRUNCATE patient",
}


@pytest.mark.parametrize(("changes", "allowed"), [("frozen", ()), ("append", ("INSERT",))])
def test_what_is_enforced_is_refused_to_everybody(sandbox: Connection, changes: str, allowed: tuple[str, ...]) -> None:
    sandbox.execute("SELECT provenance.set_changes('patient', %s, enforce => true)", (changes,))
    sandbox.execute("SET LOCAL session_replication_role = replica")  # as whoever applies replicated changes
    for word, statement in WRITES.items():
        if word in allowed:
            with sandbox.transaction(force_rollback=True):
                sandbox.execute(statement.encode())
        else:
            assert f"{word} on" in refused(sandbox, statement)
    sandbox.execute("SET LOCAL session_replication_role = origin")
    sandbox.execute("SELECT provenance.set_changes('patient', 'any')")
    for statement in WRITES.values():
        sandbox.execute(statement.encode())


def test_immutable_columns_and_the_unit_are_enforced_in_a_table_that_changes(sandbox: Connection) -> None:
    sandbox.execute("SELECT provenance.set_changes('patient', 'any', enforce => true)")
    sandbox.execute("UPDATE patient SET sex = 'm' WHERE id = 1")
    sandbox.execute("SELECT provenance.declare_attribute('patient', 'sex', immutable => true)")
    assert "declared immutable: sex" in refused(sandbox, "UPDATE patient SET sex = 'f', age = 3 WHERE id = 1")
    sandbox.execute("UPDATE patient SET age = 2, sex = sex")
    sandbox.execute(
        "CREATE FUNCTION slip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.sex := ''x''; RETURN NEW; END'"
    )
    sandbox.execute("CREATE TRIGGER slip BEFORE UPDATE ON patient FOR EACH ROW EXECUTE FUNCTION slip()")
    refused(sandbox, "UPDATE patient SET age = 4 WHERE id = 1")  # another trigger changes the column
    sandbox.execute("DELETE FROM provenance.attribute WHERE name = 'sex'")
    sandbox.execute("UPDATE patient SET age = 4 WHERE id = 1")
    sandbox.execute("SELECT provenance.set_changes('orders', 'any', enforce => true)")
    sandbox.execute("INSERT INTO orders (order_id, customer_id) VALUES (1, 1)")
    assert "customer_id" in refused(sandbox, "UPDATE orders SET customer_id = 2")


def test_partitions_are_refused_too(sandbox: Connection) -> None:
    sandbox.execute("CREATE TABLE visit (id int, year int) PARTITION BY RANGE (year)")
    sandbox.execute("CREATE TABLE visit_1 PARTITION OF visit FOR VALUES FROM (0) TO (10)")
    sandbox.execute("INSERT INTO visit VALUES (1, 1)")
    sandbox.execute("SELECT provenance.protect('visit')")
    sandbox.execute("SELECT provenance.set_changes('visit', 'frozen', enforce => true)")
    for statement in ("INSERT INTO visit_1 VALUES (2, 2)", "UPDATE visit_1 SET id = 3", "DELETE FROM visit_1"):
        refused(sandbox, statement)
    refused(sandbox, "TRUNCATE visit_1")
    sandbox.execute("SELECT provenance.set_changes('visit', 'frozen')")
    sandbox.execute("TRUNCATE visit_1; INSERT INTO visit_1 VALUES (2, 2)")


def test_what_cannot_be_enforced_is_an_error(sandbox: Connection) -> None:
    sandbox.execute("CREATE MATERIALIZED VIEW seen AS SELECT * FROM patient")
    sandbox.execute("SELECT provenance.protect('seen', changes => 'frozen')")
    with pytest.raises(errors.WrongObjectType, match="cannot be refused by triggers"), sandbox.transaction():
        sandbox.execute("SELECT provenance.set_changes('seen', 'frozen', enforce => true)")
    sandbox.execute("DROP TABLE orders")
    with pytest.raises(errors.UndefinedTable, match="not in this database"), sandbox.transaction():
        sandbox.execute("SELECT provenance.set_changes('orders', 'frozen', enforce => true)")


def test_a_table_that_is_not_registered_any_more_is_not_held(sandbox: Connection) -> None:
    sandbox.execute("SELECT provenance.set_changes('patient', 'frozen', enforce => true)")
    sandbox.execute("UPDATE provenance.relation SET active = false WHERE name = 'patient'")
    for statement in WRITES.values():
        sandbox.execute(statement.encode())


def test_administrators_declare_and_do_not_enforce_past_the_function(owner: Connection) -> None:
    owner.execute("SET ROLE pgveil_admin")
    owner.execute("SELECT provenance.set_changes('patient', 'frozen')")
    owner.execute("SELECT provenance.protect('patient', size_hint => 100, changes => 'append')")
    owner.execute("UPDATE provenance.relation SET changes = 'frozen' WHERE name = 'patient'")
    owner.execute("SELECT provenance.declare_attribute('patient', 'age', 0, 100, 1, immutable => true)")
    for forbidden in (
        "UPDATE provenance.relation SET enforced = true",
        "SELECT provenance.enforce_changes(1)",
        "SELECT provenance.was_charged(1)",
    ):
        with pytest.raises(errors.InsufficientPrivilege):
            owner.execute(forbidden.encode())


def test_the_catalog_says_what_is_declared(ready: str, pools: Callable[..., Any]) -> None:
    with psycopg.connect(ready, autocommit=True) as conn:
        conn.execute("SELECT provenance.set_changes('orders', 'append')")
        conn.execute("SELECT provenance.declare_attribute('patient', 'sex', members => '{f,m}', immutable => true)")

    async def loaded() -> Catalog:
        async with pools(ready) as pool:
            return await Registry(pool, pool).load()

    catalog = asyncio.run(loaded())
    patient, orders = catalog.by_name["public", "patient"], catalog.by_name["public", "orders"]
    assert (patient.changes, orders.changes) == (Changes.ANY, Changes.APPEND)
    assert [name for name, attribute in patient.attributes.items() if attribute.immutable] == ["sex"]


def test_a_row_is_not_moved_to_another_partition_where_its_column_is_immutable(sandbox: Connection) -> None:
    """PostgreSQL makes a DELETE and an INSERT of such an UPDATE, which fires no AFTER UPDATE trigger."""
    sandbox.execute("CREATE TABLE visit (id int, region int NOT NULL, n int) PARTITION BY LIST (region)")
    sandbox.execute("CREATE TABLE visit_1 PARTITION OF visit FOR VALUES IN (1)")
    sandbox.execute("CREATE TABLE visit_2 PARTITION OF visit FOR VALUES IN (2)")
    sandbox.execute("INSERT INTO visit VALUES (1, 1, 1)")
    sandbox.execute("SELECT provenance.protect('visit')")
    sandbox.execute("SELECT provenance.declare_attribute('visit', 'region', members => '{1,2}', immutable => true)")
    sandbox.execute("SELECT provenance.set_changes('visit', 'any', enforce => true)")
    assert "region" in refused(sandbox, "UPDATE visit SET region = 2")
    assert "region" in refused(
        sandbox, "MERGE INTO visit USING (VALUES (2)) AS s (r) ON true WHEN MATCHED THEN UPDATE SET region = s.r"
    )
    sandbox.execute("UPDATE visit SET n = 2")


def test_all_columns_of_a_unit_are_enforced(sandbox: Connection) -> None:
    sandbox.execute("CREATE TABLE person (clinic int, no int, PRIMARY KEY (clinic, no))")
    sandbox.execute("CREATE TABLE stay (id int, clinic int, no int, FOREIGN KEY (clinic, no) REFERENCES person)")
    sandbox.execute("INSERT INTO person VALUES (1, 1), (1, 2); INSERT INTO stay VALUES (1, 1, 1)")
    sandbox.execute("SELECT provenance.protect('person')")
    sandbox.execute("SELECT provenance.protect('stay', unit => '(clinic, no) -> person', max_rows => 10)")
    sandbox.execute("SELECT provenance.set_changes('stay', 'any', enforce => true)")
    assert "no" in refused(sandbox, "UPDATE stay SET no = 2")
    sandbox.execute("UPDATE stay SET id = 2")
