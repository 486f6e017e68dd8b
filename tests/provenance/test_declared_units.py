"""Whose rows they are: a table that references a protected one is registered with a declared unit, or not at all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from provenance import migrate as module
from provenance import units
from provenance.migrate import migrate, migrations
from provenance.registry import Registry
from sqlrewrite.catalog import Catalog, Reference, UnitPath

Pools = Callable[..., Any]

CLINIC = """
CREATE TABLE visit (id int PRIMARY KEY, patient_id int NOT NULL REFERENCES patient, doctor_id int, fee int);
CREATE TABLE item (id int PRIMARY KEY, visit_id int REFERENCES visit, what text);
CREATE TABLE part (id int, item_id int REFERENCES item);
"""


@pytest.fixture
def clinic(sandbox: Connection) -> Connection:
    """``patient`` is protected by row; visits of patients, items of visits and parts of items are not registered."""
    sandbox.execute(CLINIC)
    return sandbox


def registered(conn: Connection, name: str) -> tuple[Any, ...]:
    row = conn.execute(
        "SELECT unit, unit_column, unit_path, unit_assumed FROM provenance.relation WHERE name = %s AND active", (name,)
    ).fetchone()
    assert row is not None
    return row


def refusal(conn: Connection, statement: str) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as caught, conn.transaction():
        conn.execute(statement.encode())
    return caught.value


def warnings(conn: Connection, statement: str) -> list[str]:
    seen: list[str] = []
    handler = lambda notice: seen.append(f"{notice.severity} {notice.message_primary} {notice.message_detail}")  # noqa: E731
    conn.add_notice_handler(handler)
    conn.execute(statement.encode())
    conn.remove_notice_handler(handler)
    return [each for each in seen if each.startswith("WARNING")]


def test_a_child_without_a_unit_is_refused_and_the_hint_can_be_run(clinic: Connection) -> None:
    wrong = refusal(clinic, "SELECT provenance.protect('visit')")
    assert wrong.sqlstate == "55000" and wrong.diag.message_hint is not None
    assert '"visit"' in str(wrong) and '"patient"' in str(wrong)
    assert "SELECT provenance.protect('visit', unit => 'patient_id')" in wrong.diag.message_hint
    assert "SELECT provenance.protect('visit', unit => 'row')" in wrong.diag.message_hint
    clinic.execute("SELECT provenance.protect('visit', unit => 'patient_id')")
    assert registered(clinic, "visit") == ("patient_id", "patient_id", None, False)
    clinic.execute("SELECT provenance.protect('visit', 'patient_id')")  # the same in the older words
    assert registered(clinic, "visit") == ("patient_id", "patient_id", None, False)


def test_a_path_is_stored_as_foreign_keys_and_hints_lead_to_it(clinic: Connection) -> None:
    through = refusal(clinic, "SELECT provenance.protect('part')")  # by way of two tables that are not registered
    assert "unit => 'item_id -> item.visit_id -> visit.patient_id'" in (through.diag.message_hint or "")
    first = refusal(clinic, "SELECT provenance.protect('part', unit => 'item_id -> item.visit_id -> visit.patient_id')")
    assert first.sqlstate == "42P01" and "protect('public.item', unit =>" in (first.diag.message_hint or "")
    clinic.execute("SELECT provenance.protect('visit', 'patient_id')")
    wrong = refusal(clinic, "SELECT provenance.protect('item')")
    assert "unit => 'visit_id -> visit.patient_id'" in (wrong.diag.message_hint or "")
    clinic.execute("SELECT provenance.protect('item', unit => 'visit_id -> visit.patient_id', max_rows => 5)")
    step = {"columns": ["visit_id"], "schema": "public", "table": "visit"}
    path = {"steps": [step], "columns": ["patient_id"], "of": None}
    assert registered(clinic, "item") == ("visit_id -> visit.patient_id", None, path, False)
    longer = refusal(clinic, "SELECT provenance.protect('part')")
    assert "unit => 'item_id -> item.visit_id -> visit.patient_id'" in (longer.diag.message_hint or "")
    clinic.execute("SELECT provenance.protect('part', unit => 'item_id -> item.visit_id -> visit.patient_id')")
    assert len(registered(clinic, "part")[2]["steps"]) == 2


@pytest.mark.parametrize(
    ("unit", "sqlstate"),
    [
        ("visit_id -> visit.nobody", "42703"),
        ("what -> visit.patient_id", "42830"),  # no foreign key
        ("visit_id -> patient.id", "42830"),  # the key leads to another table
        ("visit_id -> nowhere.patient_id", "42830"),
        ("visit_id -> visit.patient_id -> visit.id", "42830"),
        ("visit_id -> visit.(patient_id, doctor_id)", "22023"),
        ("visit_id -> visit -> patient", "22023"),
        ("visit_id -> visit", "22023"),  # a row of visit is no unit: patient_id is
        ("visit_id -> a.b.c.d", "42602"),
        ("nobody", "42703"),
        ("visit_id ->", "22023"),
        ("a b", "22023"),
    ],
)
def test_a_unit_that_leads_nowhere_is_refused(clinic: Connection, unit: str, sqlstate: str) -> None:
    clinic.execute("SELECT provenance.protect('visit', 'patient_id')")
    assert refusal(clinic, f"SELECT provenance.protect('item', unit => '{unit}')").sqlstate == sqlstate


def test_a_unit_is_declared_once(clinic: Connection) -> None:
    twice = refusal(clinic, "SELECT provenance.protect('visit', 'patient_id', unit => 'row')")
    assert twice.sqlstate == "22023"
    other = refusal(clinic, "SELECT provenance.protect('visit', 'patient_id', unit => 'doctor_id')")
    assert other.sqlstate == "22023"


def test_the_row_as_the_unit_is_warned_about(clinic: Connection) -> None:
    (warning,) = warnings(clinic, "SELECT provenance.protect('visit', unit => 'row')")
    assert "each row by itself" in warning and '"patient"' in warning and "n times" in warning
    assert registered(clinic, "visit") == ("row", None, None, False)
    assert warnings(clinic, "SELECT provenance.protect('visit', unit => 'row')") == []  # nothing changed
    assert warnings(clinic, "CREATE TABLE apart (id int); SELECT provenance.protect('apart', unit => 'row')") == []
    assert warnings(clinic, "SELECT provenance.protect('visit', unit => 'patient_id')") == []


def test_a_unit_that_is_not_the_parents_is_warned_about(clinic: Connection) -> None:
    (warning,) = warnings(clinic, "SELECT provenance.protect('visit', unit => 'doctor_id')")
    assert "doctor_id" in warning and '"patient"' in warning


def test_the_parent_is_refused_while_its_child_has_no_unit(sandbox: Connection) -> None:
    sandbox.execute("CREATE TABLE person (id int PRIMARY KEY); CREATE TABLE stay (person_id int REFERENCES person)")
    sandbox.execute("SELECT provenance.protect('stay')")  # nothing protected is referenced yet
    wrong = refusal(sandbox, "SELECT provenance.protect('person')")
    assert wrong.sqlstate == "55000" and '"stay"' in str(wrong)
    assert "SELECT provenance.protect('stay', unit => 'person_id')" in (wrong.diag.message_hint or "")
    sandbox.execute("SELECT provenance.protect('stay', unit => 'person_id'); SELECT provenance.protect('person')")


def test_foreign_keys_of_partitions_and_through_other_tables_count(sandbox: Connection) -> None:
    sandbox.execute(
        "CREATE TABLE stay (id int, day int) PARTITION BY RANGE (day);"
        "CREATE TABLE stay_1 PARTITION OF stay FOR VALUES FROM (0) TO (9);"
        "CREATE TABLE room (id int PRIMARY KEY, patient_id int);"
        "ALTER TABLE room ADD FOREIGN KEY (patient_id) REFERENCES patient NOT VALID;"
        "ALTER TABLE stay_1 ADD FOREIGN KEY (id) REFERENCES room;"
        "CREATE TABLE old (id int); CREATE TABLE older (patient_id int REFERENCES patient) INHERITS (old)"
    )
    assert refusal(sandbox, "SELECT provenance.protect('stay')").sqlstate == "55000"
    assert refusal(sandbox, "SELECT provenance.protect('old')").sqlstate == "55000"
    sandbox.execute("SELECT provenance.publish('room')")  # the same whoever is there: it leads nowhere
    sandbox.execute("SELECT provenance.protect('stay')")
    whole = "CREATE TABLE whole (id int PRIMARY KEY) PARTITION BY RANGE (id);"
    whole += (
        "CREATE TABLE half PARTITION OF whole FOR VALUES FROM (0) TO (9); CREATE TABLE leaf (h int REFERENCES half)"
    )
    sandbox.execute(whole.encode())
    sandbox.execute("SELECT provenance.protect('whole')")
    assert refusal(sandbox, "SELECT provenance.protect('leaf')").sqlstate == "55000"


def test_a_key_of_several_columns_names_the_row_that_it_leads_to(sandbox: Connection) -> None:
    sandbox.execute(
        "CREATE TABLE person (clinic int, no int, PRIMARY KEY (clinic, no)); SELECT provenance.protect('person');"
        "CREATE TABLE stay (a int, b int, FOREIGN KEY (a, b) REFERENCES person)"
    )
    wrong = refusal(sandbox, "SELECT provenance.protect('stay')")
    assert "unit => '(a, b) -> person'" in (wrong.diag.message_hint or "")
    sandbox.execute("SELECT provenance.protect('stay', unit => '(a, b) -> person', max_rows => 3)")
    of = {"schema": "public", "table": "person"}
    assert registered(sandbox, "stay")[2] == {"steps": [], "columns": ["a", "b"], "of": of}
    assert warnings(sandbox, "SELECT provenance.protect('stay', unit => '(a, b) -> public.person.*')") == []


def test_an_administrator_cannot_go_around_it(clinic: Connection) -> None:
    clinic.execute("SET LOCAL ROLE pgveil_admin")
    wrong = refusal(clinic, "INSERT INTO provenance.relation (name) VALUES ('visit')")
    assert wrong.sqlstate == "55000"
    clinic.execute("INSERT INTO provenance.relation (name, unit) VALUES ('visit', 'patient_id')")
    assert registered(clinic, "visit")[:2] == ("patient_id", "patient_id")
    clinic.execute("INSERT INTO provenance.relation (name, unit) VALUES ('item', 'visit_id -> visit.patient_id')")
    for change in ("unit = NULL", "unit_column = NULL, unit = NULL"):
        assert refusal(clinic, f"UPDATE provenance.relation SET {change} WHERE name = 'item'").sqlstate == "55000"
    assert refusal(clinic, "UPDATE provenance.relation SET unit_path = '{}' WHERE name = 'item'").sqlstate == "42501"
    assert refusal(clinic, "UPDATE provenance.relation SET unit_column = NULL WHERE name = 'visit'").sqlstate == "55000"


def test_once_charged_a_unit_stays(clinic: Connection) -> None:
    clinic.execute("SELECT provenance.protect('visit', 'patient_id')")
    clinic.execute("SELECT provenance.protect('item', unit => 'visit_id -> visit.patient_id')")
    clinic.execute(
        "INSERT INTO provenance.charge (analyst, relation, relation_id, data_version, registry_version, fingerprint,"
        " question, mechanism, coin, amount, epsilon) SELECT 'alice', label, id, 1, 1, 'x', 'x', 'x', 'zcdp', 1e-4, 0.1"
        " FROM provenance.relation WHERE name = 'item'"
    )
    wrong = refusal(clinic, "SELECT provenance.protect('item', unit => 'row')")
    assert wrong.sqlstate == "55000" and "charged" in str(wrong)


def load(dsn: str, pools: Pools) -> Catalog:
    async def run() -> Catalog:
        async with pools(dsn) as pool:
            return await Registry(pool, pool).load()

    return asyncio.run(run())


def test_a_foreign_key_that_is_added_later_is_noticed(
    ready: str, owner: Connection, pools: Pools, caplog: pytest.LogCaptureFixture
) -> None:
    owner.execute("CREATE TABLE note (id int, patient_id int); SELECT provenance.protect('note')")
    assert load(ready, pools).by_name["public", "note"].refused is None
    owner.execute("ALTER TABLE note ADD FOREIGN KEY (patient_id) REFERENCES patient NOT VALID")
    with caplog.at_level(logging.WARNING):
        refused = load(ready, pools).by_name["public", "note"].refused
    assert refused is not None and "public.patient" in refused and "public.note" in caplog.text
    owner.execute("SELECT provenance.protect('note', unit => 'patient_id')")
    assert load(ready, pools).by_name["public", "note"].refused is None


def test_a_path_comes_into_the_catalog_and_a_broken_one_is_refused(ready: str, owner: Connection, pools: Pools) -> None:
    owner.execute(CLINIC)
    owner.execute("SELECT provenance.protect('visit', 'patient_id')")
    owner.execute("SELECT provenance.protect('item', unit => 'visit_id -> visit.patient_id', max_rows => 4)")
    item = load(ready, pools).by_name["public", "item"]
    assert item.unit_path == UnitPath((Reference(("visit_id",), "public", "visit", ("id",)),), ("patient_id",))
    assert (item.unit_column, item.max_rows, item.refused, item.row_unit) == (None, 4, None, False)
    owner.execute("ALTER TABLE item DROP CONSTRAINT item_visit_id_fkey")
    assert "missing" in (load(ready, pools).by_name["public", "item"].refused or "")
    owner.execute(
        "ALTER TABLE item ADD FOREIGN KEY (visit_id) REFERENCES visit; ALTER TABLE visit DROP patient_id CASCADE"
    )
    assert ("public", "visit") not in load(ready, pools).by_name
    assert "patient_id" in (load(ready, pools).by_name["public", "item"].refused or "")


def test_what_was_registered_before_goes_on_and_is_marked(ready: str, owner: Connection, pools: Pools) -> None:
    """As the migration leaves it: the mark goes with the first declaration, and a new parent is not protected."""
    owner.execute(CLINIC)
    owner.execute("SET session_replication_role = replica")
    owner.execute("INSERT INTO provenance.relation (name, unit_assumed) VALUES ('visit', true)")
    owner.execute("SET session_replication_role = origin; GRANT SELECT ON visit TO pgveil_reader")
    assert load(ready, pools).by_name["public", "visit"].refused is None
    owner.execute("UPDATE provenance.relation SET size_hint = 7 WHERE name = 'visit'")
    assert registered(owner, "visit") == (None, None, None, True)
    owner.execute(
        "CREATE TABLE doctor (id int PRIMARY KEY); ALTER TABLE visit ADD FOREIGN KEY (doctor_id) REFERENCES doctor"
    )
    assert refusal(owner, "SELECT provenance.protect('doctor')").sqlstate == "55000"
    owner.execute("SELECT provenance.protect('visit', unit => 'row')")
    assert registered(owner, "visit") == ("row", None, None, False)


def test_the_migration_marks_children_and_lets_them_go_on(
    empty: str, pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = migrations()
    with monkeypatch.context() as past:
        past.setattr(module, "migrations", lambda: {name: text for name, text in files.items() if name < "0027"})
        migrate(empty)
    with psycopg.connect(empty, autocommit=True) as conn:
        conn.execute(
            "CREATE TABLE patient (id int PRIMARY KEY, family int); CREATE TABLE doctor (id int PRIMARY KEY);"
            "CREATE TABLE visit (id int PRIMARY KEY, patient_id int REFERENCES patient);"
            "SELECT provenance.protect('patient', 'family'), provenance.protect('doctor'), provenance.protect('visit');"
        )
        migrate(empty)
        assert registered(conn, "patient") == ("family", "family", None, False)
        assert registered(conn, "doctor") == (None, None, None, False)
        assert registered(conn, "visit") == (None, None, None, True)
        assert load(empty, pools).by_name["public", "visit"].refused is None
        conn.execute("SELECT provenance.protect('patient', 'family', size_hint => 7)")  # it was protected before
        conn.execute("SELECT provenance.protect('visit', unit => 'patient_id -> patient.family')")
        assert registered(conn, "visit")[3] is False


def test_planted_bugs_are_seen() -> None:
    """A reader of foreign keys that is blind for ways through other tables, or for published ones, is caught."""
    protected = units.Declared(("s", "a"), "protected", False, None)
    middle, end = ("s", "m"), units.Declared(("s", "z"), "protected", True, None)
    keys = [("s", "a", "s", "m"), ("s", "m", "s", "z"), ("s", "z", "s", "a")]

    def refused(tables: list[units.Declared], known: list[tuple[str, str, str, str]]) -> dict[units.Name, str]:
        return units.undeclared(tables, units.parents(tables, known))

    assert ("s", "a") in refused([protected, end], keys)
    assert refused([protected, end, units.Declared(middle, "public", False, None)], keys) == {}
    assert refused([protected, end], keys[:1]) == {}
    assert refused([protected], [("s", "a", "s", "a"), *keys]) == {}  # its own rows
