"""Facts are checked where they are used: a constraint, a column or a data version that changes between plan, charge and
read releases nothing on stale facts, and charges nothing for nothing.

The tests hold a lock at which the question must wait, change something, and let it go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from proxies import PATIENCE, Proxy, new_analyst, running_proxy

from provenance.migrate import migrate

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
SUM = "SELECT sum(score) FROM exam"
COUNT = "SELECT count(*) FROM exam"
JOINED = "SELECT count(*) FROM exam e JOIN pupil p ON e.pupil = p.id"
SCHEMA = """
CREATE TABLE pupil (id int PRIMARY KEY, school text NOT NULL);
CREATE TABLE exam (id int PRIMARY KEY, pupil int NOT NULL REFERENCES pupil, score int NOT NULL,
                   CONSTRAINT score_range CHECK (score >= 0 AND score <= 100));
INSERT INTO pupil SELECT i, 'north' FROM generate_series(1, 1000) i;
INSERT INTO exam SELECT i, 1 + i % 1000, i % 101 FROM generate_series(1, 20000) i;
"""


@pytest.fixture
def school(postgres, shadow_server, tmp_path) -> Iterator[Proxy]:  # type: ignore[no-untyped-def]
    """A proxy in front of pupils and their exams, each pupil a unit."""
    dsn = postgres.new_database("school")
    migrate(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(SCHEMA)
        conn.execute("UPDATE provenance.deployment SET epsilon = 1000")
        conn.execute("SELECT provenance.protect('pupil')")
        conn.execute("SELECT provenance.protect('exam', unit_column => 'pupil', max_rows => 40)")
        conn.execute("SELECT provenance.declare_attribute('exam', 'score', 0, 100)")
    with running_proxy(dsn, shadow_server.admin_dsn, tmp_path / "proxy.log") as proxy:
        yield proxy


@pytest.fixture
def owner(school: Proxy) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(school.upstream, autocommit=True) as conn:
        yield conn


class Asked:
    """A question in a thread of its own."""

    def __init__(self, proxy: Proxy, question: str) -> None:
        self.name = new_analyst(proxy.upstream)
        self._session = proxy.connect(self.name)
        self._session.execute("SET veil.epsilon = 1")
        self._found: list[Any] = []
        self._thread = threading.Thread(target=self._ask, args=(question,), daemon=True)
        self._thread.start()

    def _ask(self, question: str) -> None:
        try:
            self._found.append(self._session.execute(question.encode()).fetchall())
        except psycopg.Error as refused:
            self._found.append(refused)

    def answer(self) -> Any:
        self._thread.join(PATIENCE)
        self._session.close()
        (found,) = self._found
        return found


@contextmanager
def held(school: Proxy, lock: str) -> Iterator[psycopg.Connection[Any]]:
    """A transaction that holds a lock; committed at the end."""
    with psycopg.connect(school.upstream) as conn:
        conn.execute(lock.encode())
        yield conn
        conn.commit()


def wait_for_lock(owner: psycopg.Connection[Any]) -> None:
    end = time.monotonic() + PATIENCE
    while owner.execute(WAITING).fetchone() == (0,):
        assert time.monotonic() < end, "nobody waits"
        time.sleep(0.01)


def charged(owner: psycopg.Connection[Any], name: str) -> list[tuple[int, int]]:
    """Relation and data version of every charge of an analyst, oldest first."""
    rows = owner.execute(
        "SELECT relation_id, data_version FROM provenance.charge WHERE analyst = %s AND amount > 0 ORDER BY id", (name,)
    )
    return rows.fetchall()


LEDGER = "SELECT FROM provenance.balance WHERE scope = 'table' FOR UPDATE"


def test_a_constraint_dropped_before_the_read_is_noticed(school: Proxy, owner: psycopg.Connection[Any]) -> None:
    """Found: ``sum(x)`` was 1,000,005,235 with a stated deviation of 115, since a dropped CHECK was still believed."""
    Asked(school, COUNT).answer()
    with held(school, "LOCK TABLE exam IN ACCESS EXCLUSIVE MODE") as other:
        asked = Asked(school, SUM)
        wait_for_lock(owner)
        other.execute("ALTER TABLE exam DROP CONSTRAINT score_range")
        other.execute("INSERT INTO exam VALUES (0, 1, 1000000000)")
    ((total,),) = asked.answer()
    assert abs(total - 1_000_000) < 500_000  # clamped to the declared bounds
    assert len(charged(owner, asked.name)) == 1


def test_a_constraint_dropped_long_ago_is_noticed_too(school: Proxy, owner: psycopg.Connection[Any]) -> None:
    """Nobody called refresh: the registry's version is the same."""
    Asked(school, COUNT).answer()
    owner.execute("ALTER TABLE exam DROP CONSTRAINT score_range")
    owner.execute("INSERT INTO exam VALUES (0, 1, 1000000000)")
    ((total,),) = Asked(school, SUM).answer()
    assert abs(total - 1_000_000) < 500_000


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE exam DROP CONSTRAINT exam_pupil_fkey",
        "ALTER TABLE exam ALTER score DROP NOT NULL",
        "ALTER TABLE exam ALTER score TYPE bigint",
        "ALTER TABLE pupil DROP CONSTRAINT pupil_pkey CASCADE",
        "CREATE TABLE more_exams () INHERITS (exam)",
    ],
)
def test_every_fact_that_changes_makes_the_question_be_planned_again(
    school: Proxy, owner: psycopg.Connection[Any], change: str
) -> None:
    with held(school, "LOCK TABLE exam, pupil IN ACCESS EXCLUSIVE MODE") as other:
        asked = Asked(school, JOINED)
        wait_for_lock(owner)
        other.execute(change.encode())
    found = asked.answer()
    if isinstance(found, psycopg.Error):  # without the key or the foreign key the join is refused
        assert found.sqlstate == "0A000", found
        assert charged(owner, asked.name) == []
    else:
        assert len(charged(owner, asked.name)) == 1


def test_a_renamed_column_is_charged_at_no_try(school: Proxy, owner: psycopg.Connection[Any]) -> None:
    """Found: the SQL was generated and run after the charge, so that each try was charged."""
    with held(school, "LOCK TABLE exam IN ACCESS EXCLUSIVE MODE") as other:
        asked = Asked(school, SUM)
        wait_for_lock(owner)
        other.execute("ALTER TABLE exam RENAME score TO points")
    refused = asked.answer()
    assert isinstance(refused, psycopg.Error) and refused.sqlstate in ("42703", "0A000"), refused
    assert charged(owner, asked.name) == []
    with school.connect(asked.name) as again, pytest.raises(psycopg.Error):
        again.execute(SUM)
    assert charged(owner, asked.name) == []


def test_a_dropped_table_is_charged_at_no_try(school: Proxy, owner: psycopg.Connection[Any]) -> None:
    with held(school, "LOCK TABLE exam IN ACCESS EXCLUSIVE MODE") as other:
        asked = Asked(school, COUNT)
        wait_for_lock(owner)
        other.execute("DROP TABLE exam")
    assert isinstance(asked.answer(), psycopg.Error)
    assert charged(owner, asked.name) == []


@pytest.mark.parametrize("question, refreshed", [(COUNT, "exam"), (JOINED, "exam"), (JOINED, "pupil")])
def test_a_refresh_before_the_charge_is_charged_to_the_version_that_is_read(
    school: Proxy, owner: psycopg.Connection[Any], question: str, refreshed: str
) -> None:
    """Found: a refresh in between booked the loss on the wrong version, and a parent's was never compared."""
    with held(school, LEDGER) as other:
        asked = Asked(school, question)
        wait_for_lock(owner)  # its snapshot is open
        other.execute("INSERT INTO exam SELECT 20000 + i, 1 + i % 1000, 0 FROM generate_series(1, 20000) i")
        version = other.execute("SELECT provenance.refresh(%s)", (refreshed,)).fetchone()
    ((number,),) = asked.answer()
    if question == COUNT:
        assert (
            number > 30_000
        )  # max_rows cuts nothing before, and half of 40 rows a pupil after: but it is the new data
    ((relation, read),) = charged(owner, asked.name)
    name = owner.execute("SELECT name FROM provenance.relation WHERE id = %s", (relation,)).fetchone()
    assert name == ("exam",)
    if refreshed == "exam":
        assert (read,) == version


def test_nothing_changes_between_the_charge_and_the_read(school: Proxy, owner: psycopg.Connection[Any]) -> None:
    """While a question waits for the ledger its tables are locked already: no ALTER TABLE can come in between."""
    with held(school, LEDGER):
        asked = Asked(school, SUM)
        wait_for_lock(owner)
        with psycopg.connect(school.upstream, autocommit=True) as other:
            other.execute("SET lock_timeout = '300ms'")
            for change in ("DROP CONSTRAINT score_range", "RENAME score TO points", "ALTER score DROP NOT NULL"):
                with pytest.raises(psycopg.errors.LockNotAvailable):
                    other.execute(f"ALTER TABLE exam {change}".encode())
    assert abs(asked.answer()[0][0] - 1_000_000) < 500_000


def test_rows_that_are_written_between_the_charge_and_the_read_are_not_read(
    school: Proxy, owner: psycopg.Connection[Any]
) -> None:
    """The snapshot is older than the charge: what a refresh after it brings belongs to the next version."""
    with held(school, LEDGER):
        asked = Asked(school, "SELECT count(DISTINCT pupil) FROM exam")
        wait_for_lock(owner)
        owner.execute("INSERT INTO pupil SELECT 10000 + i, 'south' FROM generate_series(1, 5000) i")
        owner.execute("INSERT INTO exam SELECT 50000 + i, 10000 + i, 0 FROM generate_series(1, 5000) i")
    ((pupils,),) = asked.answer()
    assert abs(pupils - 1000) < 200


def test_a_lock_that_is_not_given_in_time_costs_nothing(school: Proxy, owner: psycopg.Connection[Any]) -> None:
    with held(school, "LOCK TABLE exam IN ACCESS EXCLUSIVE MODE"):
        asked = Asked(school, COUNT)
        refused = asked.answer()
    assert isinstance(refused, psycopg.Error) and refused.sqlstate == "58000"
    assert "Nothing was charged" in (refused.diag.message_detail or "")
    assert charged(owner, asked.name) == []


def test_a_materialized_view_made_anew_is_noticed(school: Proxy, owner: psycopg.Connection[Any]) -> None:
    """LOCK TABLE does not take materialized views; PREPARE locks them, and the identity is compared."""
    owner.execute("CREATE MATERIALIZED VIEW best AS SELECT id, score FROM exam")
    owner.execute("SELECT provenance.protect('best')")
    owner.execute("SELECT provenance.declare_attribute('best', 'score', 0, 100)")
    assert abs(Asked(school, "SELECT sum(score) FROM best").answer()[0][0] - 1_000_000) < 500_000
    owner.execute("DROP MATERIALIZED VIEW best")
    owner.execute("CREATE MATERIALIZED VIEW best AS SELECT id, score * 1000 AS score FROM exam")
    owner.execute("SELECT provenance.protect('best')")
    owner.execute("GRANT SELECT ON best TO pgveil_reader")
    found = Asked(school, "SELECT sum(score) FROM best WHERE id > 0").answer()
    assert not isinstance(found, psycopg.Error), (found, found.diag.message_hint)
    ((total,),) = found
    assert total < 5_000_000  # of 1,000,000,000: clamped to the declared bounds
