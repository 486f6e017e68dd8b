"""Attack: facts about a table that hold for less than they seem to, and tables that change without an UPDATE.

Each was an exploit: a policy of row level security, an heir behind a foreign key, a key whose index is not valid, a
foreign key that was added beside the question's own tables, a table that was made anew or rewritten.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from proxies import Proxy, new_analyst, running_proxy

from provenance.migrate import migrate

SCHEMA = """
CREATE TABLE plain (id int PRIMARY KEY, n int NOT NULL);
INSERT INTO plain SELECT i, i % 10 FROM generate_series(1, 1000) i;
CREATE TABLE vis (id int PRIMARY KEY, person int NOT NULL);
CREATE TABLE item (id int PRIMARY KEY, vis_id int NOT NULL REFERENCES vis, c int NOT NULL);
INSERT INTO vis VALUES (1, 1);
INSERT INTO item SELECT i, 1, 1 FROM generate_series(1, 10) i;
CREATE TABLE code (k int NOT NULL, w int) PARTITION BY LIST (k);
CREATE TABLE code_1 PARTITION OF code FOR VALUES IN (1);
INSERT INTO code VALUES (1, 1);
ALTER TABLE ONLY code ADD CONSTRAINT code_k UNIQUE (k);
CREATE TABLE dim (k int PRIMARY KEY, flag int NOT NULL);
INSERT INTO dim SELECT i, 1 FROM generate_series(0, 9) i;
CREATE TABLE step (id int PRIMARY KEY, person int);
CREATE TABLE leaf (id int PRIMARY KEY, step_id int REFERENCES step);
INSERT INTO leaf SELECT i FROM generate_series(1, 100) i;
CREATE TABLE kept (id int PRIMARY KEY, region int NOT NULL, other int NOT NULL);
INSERT INTO kept SELECT i, 1, 2 FROM generate_series(1, 1000) i;
CREATE MATERIALIZED VIEW seen AS SELECT id, n FROM plain;
"""
REGISTERED = """
UPDATE provenance.deployment SET epsilon = 100000, scan_floor = 0;
SELECT provenance.protect('plain'), provenance.protect('vis', unit => 'person', max_rows => 1000),
       provenance.protect('item', unit => 'vis_id -> vis.person', max_rows => 10), provenance.publish('code'),
       provenance.publish('dim'), provenance.protect('leaf'), provenance.protect('kept'), provenance.protect('seen');
SELECT provenance.declare_attribute('kept', 'region', members => '{1,2,3}', immutable => true);
"""


@pytest.fixture
def site(postgres, shadow_server, tmp_path) -> Iterator[Proxy]:  # type: ignore[no-untyped-def]
    dsn = postgres.new_database("misleading")
    migrate(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(SCHEMA)
        conn.execute(REGISTERED)
    with running_proxy(dsn, shadow_server.admin_dsn, tmp_path / "proxy.log") as proxy:
        yield proxy


@pytest.fixture
def owner(site: Proxy) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(site.upstream, autocommit=True) as conn:
        yield conn


@pytest.fixture
def analyst(site: Proxy) -> Iterator[psycopg.Connection[Any]]:
    with site.connect(new_analyst(site.upstream, "30000")) as session:
        session.execute("SET veil.epsilon = 5")
        yield session


def number(session: psycopg.Connection[Any], question: str) -> int:
    row = session.execute(question.encode()).fetchone()
    assert row is not None
    return int(row[0])


def refused(session: psycopg.Connection[Any], question: str) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as caught:
        session.execute(question.encode())
    return caught.value


def charges(owner: psycopg.Connection[Any]) -> int:
    return number(owner, "SELECT count(*) FROM provenance.charge")


def test_a_table_with_row_level_security_is_not_asked_about(
    owner: psycopg.Connection[Any], analyst: psycopg.Connection[Any]
) -> None:
    assert abs(number(analyst, "SELECT count(*) FROM plain WHERE n >= 0") - 1000) < 50
    owner.execute("ALTER TABLE plain ENABLE ROW LEVEL SECURITY")
    owner.execute("CREATE POLICY p ON plain USING (10 / (id - 7) > -100)")
    before = charges(owner)
    for bound in (-1, -2):
        found = refused(analyst, f"SELECT count(*) FROM plain WHERE n >= {bound}")
        assert found.sqlstate == "0A000" and "row level security" in str(found)
    assert charges(owner) == before
    owner.execute("DROP POLICY p ON plain; ALTER TABLE plain DISABLE ROW LEVEL SECURITY")
    owner.execute("SELECT provenance.refresh('plain')")
    assert abs(number(analyst, "SELECT count(*) FROM plain WHERE n >= -3") - 1000) < 50


def test_a_unit_is_not_found_through_a_table_with_heirs(
    owner: psycopg.Connection[Any], analyst: psycopg.Connection[Any]
) -> None:
    assert abs(number(analyst, "SELECT count(*) FROM item WHERE c >= 0")) < 200
    owner.execute("CREATE TABLE vis_old () INHERITS (vis)")
    owner.execute("INSERT INTO vis_old SELECT 1, 1000 + j FROM generate_series(1, 500) j")
    before = charges(owner)
    assert refused(analyst, "SELECT count(*) FROM item WHERE c >= -1").sqlstate == "0A000"
    assert charges(owner) == before


def test_a_key_whose_index_is_not_valid_is_no_key(analyst: psycopg.Connection[Any]) -> None:
    found = refused(analyst, "SELECT count(*) FROM plain JOIN code ON plain.n = code.k")
    assert found.sqlstate == "0A000", found


def test_a_foreign_key_that_is_added_elsewhere_is_noticed(
    owner: psycopg.Connection[Any], analyst: psycopg.Connection[Any]
) -> None:
    assert abs(number(analyst, "SELECT count(*) FROM leaf WHERE id > 0") - 100) < 50
    owner.execute("ALTER TABLE step ADD FOREIGN KEY (person) REFERENCES plain")
    before = charges(owner)
    found = refused(analyst, "SELECT count(*) FROM leaf WHERE id > -1")
    assert found.sqlstate == "0A000" and "plain" in str(found)
    assert charges(owner) == before


def test_a_revoked_privilege_is_charged_at_no_try_and_is_no_incident(
    owner: psycopg.Connection[Any], analyst: psycopg.Connection[Any]
) -> None:
    number(analyst, "SELECT count(*) FROM seen")
    owner.execute("REVOKE SELECT ON seen FROM pgveil_reader")
    before = charges(owner)
    for bound in range(4):
        found = refused(analyst, f"SELECT count(*) FROM seen WHERE n >= {bound}")
        assert found.sqlstate == "0A000" and "no right to read" in str(found)
    assert charges(owner) == before
    assert number(owner, "SELECT count(*) FROM provenance.incident") == 0


CHANGES = {
    "another column by that name": "ALTER TABLE kept RENAME region TO r0; ALTER TABLE kept RENAME other TO region",
    "a rewrite": "ALTER TABLE kept ALTER region TYPE int USING region + 1",
    "made anew": "ALTER TABLE kept RENAME TO kept_before; CREATE TABLE kept AS SELECT id, 2 AS region FROM kept_before;"
    " GRANT SELECT ON kept TO pgveil_reader",
    "truncated": "TRUNCATE kept; INSERT INTO kept SELECT i, 2, 2 FROM generate_series(1, 1000) i",
}


@pytest.mark.parametrize("change", CHANGES)
def test_rows_that_move_without_an_update_are_counted_again(
    owner: psycopg.Connection[Any], analyst: psycopg.Connection[Any], change: str
) -> None:
    def lost() -> float:
        """What the ledger counts for the analyst, in rho."""
        row = owner.execute(
            "SELECT amount FROM provenance.balance WHERE scope = 'analyst' AND name = %s", (analyst.info.user,)
        ).fetchone()
        assert row is not None
        return float(row[0])

    number(analyst, "SELECT count(*) FROM kept WHERE region = 1 AND id >= 1")
    once = lost()
    number(analyst, "SELECT count(*) FROM kept WHERE region = 3 AND id >= 1")
    assert lost() == once  # rows stay where they are
    owner.execute(CHANGES[change].encode())
    number(analyst, "SELECT count(*) FROM kept WHERE region = 2 AND id >= 1")
    assert lost() > 1.5 * once


def test_an_ordinary_change_of_a_table_is_no_new_data_version(
    owner: psycopg.Connection[Any], analyst: psycopg.Connection[Any]
) -> None:
    number(analyst, "SELECT count(*) FROM kept WHERE region = 1 AND id >= 1")
    owner.execute("ALTER TABLE kept ADD note text; INSERT INTO kept VALUES (0, 1, 1); CREATE INDEX ON kept (other)")
    number(analyst, "SELECT count(*) FROM kept WHERE region = 2 AND id >= 1")
    assert number(owner, "SELECT data_version FROM provenance.relation WHERE name = 'kept'") == 1


def test_a_public_table_that_changes_is_not_averaged_over(
    owner: psycopg.Connection[Any], analyst: psycopg.Connection[Any]
) -> None:
    owner.execute("SELECT provenance.set_changes('plain', 'frozen')")
    text = "SELECT count(*) FROM plain JOIN dim ON plain.n = dim.k WHERE flag = 1"
    analyst.execute("RESET veil.epsilon; SET veil.margin = '20'")
    assert abs(number(analyst, text) - 1000) < 60
    owner.execute("UPDATE dim SET flag = 0")
    analyst.execute("SET veil.margin = '18'")
    assert number(analyst, text) < 60
