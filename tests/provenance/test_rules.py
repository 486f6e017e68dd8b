"""Nonsense is kept out by the database itself, with a sentence that says why."""

from __future__ import annotations

import pytest
from psycopg import Connection, errors

CHARGE = """
INSERT INTO provenance.charge (analyst, relation, relation_id, data_version, registry_version, fingerprint, question,
                               mechanism, coin, amount, delta, epsilon)
SELECT 'alice', label, id, 1, 1, 'f', 'q', 'tslm', 'zcdp', 0.001, 0, 0.1 FROM provenance.relation WHERE label = %s
"""

NONSENSE = {
    "a limit above the table's": ("UPDATE provenance.analyst SET epsilon_limit = 10.5", "23514", "above the limit"),
    "a negative limit": ("UPDATE provenance.analyst SET epsilon_limit = -1", "23514", "epsilon_limit"),
    "a limit that is no number": ("UPDATE provenance.analyst SET epsilon_limit = 'NaN'", "23514", "above the limit"),
    "privilege 0": ("UPDATE provenance.analyst SET privilege = 0", "23514", "outside 1..10"),
    "privilege 11": ("SELECT provenance.create_analyst('eve', 'x', 11)", "23514", "outside 1..10"),
    "an epsilon of 0": ("UPDATE provenance.deployment SET epsilon = 0", "23514", "epsilon"),
    "an infinite epsilon": ("UPDATE provenance.deployment SET epsilon = 'Infinity'", "23514", "epsilon"),
    "a delta of 1": ("UPDATE provenance.deployment SET delta = 1", "23514", "delta"),
    "zcdp without delta": ("UPDATE provenance.deployment SET delta = 0", "23514", "zcdp_needs_a_delta"),
    "an unknown coin": ("UPDATE provenance.deployment SET coin = 'gold'", "23514", "coin"),
    "an unknown allocation": ("UPDATE provenance.deployment SET allocation = 'fair'", "23514", "allocation"),
    "an expansion below 1": ("UPDATE provenance.deployment SET expansion = 0.5", "23514", "expansion"),
    "a second deployment": ("INSERT INTO provenance.deployment DEFAULT VALUES", "23505", "deployment"),
    "no deployment": ("DELETE FROM provenance.deployment", "42501", "cannot be deleted"),
    "bounds upside down": ("UPDATE provenance.attribute SET lower = 101", "23514", "above its upper bound"),
    "dates upside down": (
        "SELECT provenance.declare_attribute('patient', 'seen', '2024-02-01', '2024-01-31')",
        "23514",
        "above its upper bound",
    ),
    "a bound that is a word": ("UPDATE provenance.attribute SET lower = 'low'", "22023", "neither a number nor a date"),
    "a bound that is no day": ("UPDATE provenance.attribute SET lower = '2024-02-31'", "22023", "neither a number"),
    "a step of 0": ("UPDATE provenance.attribute SET step = 0", "23514", "not above 0"),
    "a range without end": ("UPDATE provenance.attribute SET step = 0.00001", "54000", "more than 1000000"),
    "a step without bounds": (
        "SELECT provenance.declare_attribute('patient', 'fee', step => '1')",
        "23514",
        "a_step_needs_both_bounds",
    ),
    "two domains": ("UPDATE provenance.attribute SET members = '{1,2}'", "23514", "one_domain_only"),
    "NULL as a declared member": (
        "UPDATE provenance.attribute SET step = NULL, members = '{1,NULL}'",
        "23514",
        "members",
    ),
    "an unknown column": ("SELECT provenance.declare_attribute('patient', 'nose')", "42703", "does not exist"),
    "an unknown relation": ("SELECT provenance.declare_attribute('nowhere', 'x')", "42P01", "not registered"),
    "keys from a protected table": (
        "SELECT provenance.declare_attribute('orders', 'city', members_from => 'patient.sex')",
        "42501",
        "not a column of a published table",
    ),
    "an unknown unit": ("SELECT provenance.protect('patient', 'nobody')", "42703", "unit column"),
    "a row unit with many rows": (
        "SELECT provenance.protect('patient', max_rows => 2)",
        "23514",
        "a_row_unit_is_one_row",
    ),
    "max_groups of 0": ("SELECT provenance.protect('orders', 'customer_id', 0)", "23514", "max_groups"),
    "a system table": ("SELECT provenance.publish('pg_catalog.pg_authid')", "23514", "schema"),
    "our own table": ("SELECT provenance.publish('provenance.secret')", "23514", "schema"),
    "a sequence or index": ("SELECT provenance.publish('city_pkey')", "42809", "not a table"),
    "a name in three parts": ("SELECT provenance.protect('a.b.c')", "42602", "not a table name"),
    "settings that are not ours": (
        'UPDATE provenance.analyst SET settings = \'{"work_mem": "1GB"}\'',
        "22023",
        "veil.",
    ),
    "settings that nobody knows": (
        'UPDATE provenance.analyst SET settings = \'{"veil.bta": "0.1"}\'',
        "22023",
        "veil.bta",
    ),
    "a probability of seven": (
        'UPDATE provenance.analyst SET settings = \'{"veil.beta": "7"}\'',
        "22023",
        "between 0 and 1",
    ),
    "settings that are no object": ("UPDATE provenance.analyst SET settings = '[]'", "23514", "settings"),
    "an analyst who is an administrator": (
        "SELECT provenance.create_analyst('admin', 'x', 1)",
        "23505",
        "administrator",
    ),
    "an administrator who is an analyst": ("SELECT provenance.create_administrator('alice', 'x')", "23505", "analyst"),
    "a password for nobody": ("SELECT provenance.set_password('nobody', 'x')", "42704", "no analyst or administrator"),
    "an empty password": ("SELECT provenance.set_password('alice', '')", "22023", "empty"),
    "a view above the table's limit": (
        "INSERT INTO provenance.view (relation, epsilon_limit) VALUES ('patient', 11)",
        "23514",
        "above the limit",
    ),
    "a period": ("UPDATE provenance.deployment SET period = '1 hour'", "23514", "a_period_lasts_a_day"),
    "data going back": ("UPDATE provenance.relation SET data_version = 0", "55000", "cannot go back"),
}


@pytest.mark.parametrize("case", NONSENSE)
def test_nonsense_is_kept_out(sandbox: Connection, case: str) -> None:
    statement, sqlstate, words = NONSENSE[case]
    with pytest.raises(errors.Error, match=words) as caught, sandbox.transaction():
        sandbox.execute(statement.encode())
    assert caught.value.sqlstate == sqlstate


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE provenance.charge SET amount = 0",
        "DELETE FROM provenance.charge",
        "TRUNCATE provenance.charge CASCADE",
        "UPDATE provenance.charge SET amount = 0 WHERE false",
    ],
)
def test_a_charge_is_never_changed_even_by_the_owner(sandbox: Connection, statement: str) -> None:
    sandbox.execute(CHARGE, ("patient",))
    with pytest.raises(errors.InsufficientPrivilege, match="never changed"), sandbox.transaction():
        sandbox.execute(statement.encode())


LOOSER = {
    "another unit": "UPDATE provenance.relation SET unit_column = 'order_id' WHERE name = 'orders'",
    "no unit": "UPDATE provenance.relation SET unit_column = NULL, max_groups = 1, max_rows = 1 WHERE name = 'orders'",
    "more groups": "SELECT provenance.protect('orders', 'customer_id', 4, 2)",
    "fewer rows": "SELECT provenance.protect('orders', 'customer_id', 3, 1)",
    "public": "SELECT provenance.publish('patient')",
    "another table": "UPDATE provenance.relation SET name = 'secret_notes' WHERE name = 'patient'",
    "a lower lower bound": "UPDATE provenance.attribute SET lower = -1",
    "a higher upper bound": "UPDATE provenance.attribute SET upper = 1000",
    "no bound": "UPDATE provenance.attribute SET lower = NULL, step = NULL",
    "no declaration": "DELETE FROM provenance.attribute",
    "constant per unit": "UPDATE provenance.attribute SET constant_per_unit = true",
    "another coin": "UPDATE provenance.deployment SET coin = 'pure'",
    "no analyst": "DELETE FROM provenance.analyst WHERE name = 'alice'",
    "another name": "UPDATE provenance.analyst SET name = 'mallory' WHERE name = 'alice'",
    "no relation": "DELETE FROM provenance.relation WHERE name = 'patient'",
}


@pytest.mark.parametrize("case", LOOSER)
def test_what_charges_rest_on_is_fixed_by_the_first_charge(sandbox: Connection, case: str) -> None:
    with sandbox.transaction(force_rollback=True):
        sandbox.execute(LOOSER[case].encode())  # before a charge it is allowed
    sandbox.execute(CHARGE, ("patient",))
    sandbox.execute(CHARGE, ("orders",))
    with pytest.raises((errors.ObjectNotInPrerequisiteState, errors.ForeignKeyViolation)), sandbox.transaction():
        sandbox.execute(LOOSER[case].encode())


def test_what_tightens_is_still_allowed_after_a_charge(sandbox: Connection) -> None:
    sandbox.execute(CHARGE, ("patient",))
    sandbox.execute("UPDATE provenance.attribute SET lower = 1, upper = 99")
    sandbox.execute("UPDATE provenance.deployment SET epsilon = 0.01")
    sandbox.execute("UPDATE provenance.analyst SET epsilon_limit = 0")
    sandbox.execute("SELECT provenance.declare_attribute('patient', 'sex', members => '{f,m}')")


def test_a_table_with_charges_is_registered_anew_under_another_unit(sandbox: Connection) -> None:
    sandbox.execute(CHARGE, ("orders",))
    sandbox.execute("UPDATE provenance.relation SET active = false WHERE name = 'orders'")
    sandbox.execute("SELECT provenance.protect('orders')")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="active"), sandbox.transaction():
        sandbox.execute("UPDATE provenance.relation SET active = true WHERE name = 'orders' AND NOT active")
    rows = sandbox.execute(
        "SELECT unit_column, active FROM provenance.relation WHERE name = 'orders' ORDER BY id"
    ).fetchall()
    assert rows == [("customer_id", False), (None, True)]


def version(sandbox: Connection) -> int:
    row = sandbox.execute("SELECT registry_version FROM provenance.deployment").fetchone()
    assert row is not None
    return int(row[0])


def test_the_registry_version_moves_with_changes_and_only_then(sandbox: Connection) -> None:
    before = version(sandbox)
    sandbox.execute("SELECT provenance.protect('orders', 'customer_id', 3, 2)")
    sandbox.execute("SELECT provenance.declare_attribute('patient', 'age', 0, 100, 1)")
    sandbox.execute("UPDATE provenance.analyst SET privilege = 2")
    sandbox.execute("SELECT provenance.refresh('patient')")
    assert version(sandbox) == before
    for statement in (
        "SELECT provenance.refresh('city')",  # its rows are in the shadow
        "SELECT provenance.declare_attribute('patient', 'age', 0, 99, 1)",
        "SELECT provenance.protect('orders', 'customer_id', 4, 2)",
        "DELETE FROM provenance.attribute",
    ):
        previous = version(sandbox)
        sandbox.execute(statement.encode())
        assert version(sandbox) > previous, statement


def test_changes_are_told_and_charges_are_not(owner: Connection) -> None:
    owner.execute("LISTEN pgveil")
    owner.execute(CHARGE, ("patient",))
    owner.execute("UPDATE provenance.analyst SET privilege = 2")
    owner.execute("UPDATE provenance.deployment SET epsilon = 9")
    told = [note.payload for note in owner.notifies(timeout=60, stop_after=2)]
    assert told == ["analyst", "deployment"]


def test_a_refresh_drops_synopses_and_keeps_spending(sandbox: Connection) -> None:
    sandbox.execute(CHARGE, ("patient",))
    sandbox.execute(
        "INSERT INTO provenance.synopsis (analyst, relation, relation_id, data_version, fingerprint, accuracy,"
        " aggregates, cells, values, charge)"
        " SELECT analyst, relation, relation_id, 1, 'f', 'a', 0, 0, '', id FROM provenance.charge"
    )
    assert sandbox.execute("SELECT provenance.refresh('public.patient')").fetchone() == (2,)
    assert sandbox.execute("SELECT count(*) FROM provenance.synopsis").fetchone() == (0,)
    spent = sandbox.execute(
        "SELECT scope, amount::text FROM provenance.balance WHERE amount > 0 ORDER BY scope"
    ).fetchall()
    assert spent == [("analyst", "0.001"), ("table", "0.001")]


def test_a_limit_above_a_lowered_one_does_not_stand_in_the_way_of_other_changes(sandbox: Connection) -> None:
    sandbox.execute("UPDATE provenance.deployment SET epsilon = 5")
    sandbox.execute("SELECT provenance.create_analyst('dora', 'dora', 3)")
    sandbox.execute("UPDATE provenance.analyst SET epsilon_limit = 4 WHERE name = 'dora'")
    sandbox.execute("UPDATE provenance.deployment SET epsilon = 1")
    sandbox.execute("UPDATE provenance.analyst SET active = false WHERE name = 'dora'")
    with pytest.raises(errors.CheckViolation):
        sandbox.execute("UPDATE provenance.analyst SET epsilon_limit = 3 WHERE name = 'dora'")
