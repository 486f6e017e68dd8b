"""What an administrator changes holds from the next question on, also for sessions that are connected."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from proxies import Proxy, charges, new_analyst, running_proxy
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from provenance.migrate import migrate

GENDERS = "SELECT gender, count(*) FROM patient_data GROUP BY gender"
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture(scope="module")
def books(new_upstream: Callable[[], str]) -> str:
    """A database whose registry is this module's own."""
    return new_upstream()


@pytest.fixture(scope="module")
def office(books: str, shadow_server, tmp_path_factory) -> Iterator[Proxy]:  # type: ignore[no-untyped-def]
    log = tmp_path_factory.mktemp("office") / "proxy.log"
    with running_proxy(books, shadow_server.admin_dsn, log) as proxy:
        yield proxy


@pytest.fixture
def owner(books: str) -> Iterator[psycopg.Connection]:
    """The administrator, straight at the database."""
    with psycopg.connect(books, autocommit=True) as conn:
        yield conn


@pytest.fixture
def asker(books: str) -> str:
    return new_analyst(books)


def bill_of(session: psycopg.Connection, question: str) -> dict[str, Any]:
    told: list[dict[str, Any]] = []

    def hear(notice: psycopg.errors.Diagnostic) -> None:
        told.append(json.loads(notice.message_detail or "{}"))

    session.add_notice_handler(hear)
    try:
        session.execute(question.encode())
    finally:
        session.remove_notice_handler(hear)
    (bill,) = told
    return bill


def test_a_table_protected_now_is_asked_by_the_next_session(office: Proxy, owner, asker: str) -> None:  # type: ignore[no-untyped-def]
    owner.execute("CREATE TABLE visit AS SELECT i AS id, 'north' AS ward FROM generate_series(1, 500) i")
    with office.connect(asker) as old:
        bill_of(old, GENDERS)
        owner.execute("SELECT provenance.protect('visit')")
        owner.execute("SELECT provenance.declare_attribute('visit', 'ward', members => '{north,south}')")
        question = "SELECT ward, count(*) FROM visit GROUP BY ward"
        with office.connect(asker) as new:
            assert len(new.execute(question).fetchall()) == 3  # NULL is a member of a column that may be NULL
        with pytest.raises(psycopg.errors.UndefinedTable):
            old.execute(question)  # its shadow is of the time when it logged in
        assert bill_of(old, GENDERS)["reused"] is True
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            new_rows(office, asker)
    owner.execute("UPDATE provenance.relation SET active = false WHERE name = 'visit'")
    with office.connect(asker) as later, pytest.raises(psycopg.errors.UndefinedTable):
        later.execute(question)


def new_rows(office: Proxy, asker: str) -> None:
    with office.connect(asker) as session:
        session.execute("SELECT * FROM visit")


def test_a_changed_domain_holds_for_sessions_that_are_connected(
    office: Proxy, owner: psycopg.Connection, books: str, asker: str
) -> None:
    (members,) = owner.execute("SELECT members FROM provenance.attribute WHERE name = 'gender'").fetchone() or ([],)
    with office.connect(asker) as session:
        before = bill_of(session, GENDERS)
        owner.execute("UPDATE provenance.attribute SET members = members || '{unheard}' WHERE name = 'gender'")
        try:
            after = bill_of(session, GENDERS)
            names = {name for name, _ in session.execute(GENDERS)}
        finally:
            owner.execute("UPDATE provenance.attribute SET members = %s WHERE name = 'gender'", (members,))
    assert after["groups"] == before["groups"] + 1 and "unheard" in names
    assert after["reused"] is False and len(charges(books, asker)) == 2


def test_a_domain_follows_the_published_table_that_it_comes_from(
    office: Proxy, owner: psycopg.Connection, asker: str
) -> None:
    with office.connect(asker) as session:
        before = bill_of(session, "SELECT disease, count(*) FROM patient_data GROUP BY disease")
        owner.execute("INSERT INTO ward VALUES ('ennui', 1)")
        owner.execute("SELECT provenance.refresh('ward')")
        after = bill_of(session, "SELECT disease, count(*) FROM patient_data GROUP BY disease")
    assert (before["groups"], after["groups"], after["reused"]) == (40, 41, False)
    with office.connect(asker) as session:
        assert session.execute("SELECT capacity FROM ward WHERE disease = 'ennui'").fetchone() == (1,)
    owner.execute("DELETE FROM ward WHERE disease = 'ennui'")
    owner.execute("SELECT provenance.refresh('ward')")


def test_new_data_make_the_old_answer_unusable(
    office: Proxy, owner: psycopg.Connection, books: str, asker: str
) -> None:
    with office.connect(asker) as session:
        assert [bill_of(session, GENDERS)["reused"] for _ in range(2)] == [False, True]
        owner.execute("SELECT provenance.refresh('patient_data')")
        assert [bill_of(session, GENDERS)["reused"] for _ in range(2)] == [False, True]
    assert len(charges(books, asker)) == 2


def test_a_question_priced_under_an_old_version_is_planned_again_and_charged_once(
    office: Proxy, books: str, asker: str
) -> None:
    with office.connect(asker) as session, psycopg.connect(books) as change:
        # The till is held until the change is committed, so the question is priced before it and charged after it.
        version = change.execute("SELECT provenance.refresh('patient_data')").fetchone()
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(bill_of, session, GENDERS)
            with psycopg.connect(books, autocommit=True) as look:
                deadline = time.monotonic() + 60
                while look.execute(WAITING).fetchone() != (1,):
                    assert time.monotonic() < deadline
                    time.sleep(0.005)
            change.commit()
            assert answer.result(60)["reused"] is False
    with psycopg.connect(books) as direct:
        rows = direct.execute("SELECT data_version FROM provenance.history WHERE analyst = %s", (asker,)).fetchall()
    assert rows == [version]


def test_questions_go_on_while_the_registry_changes(
    office: Proxy, owner: psycopg.Connection, books: str, asker: str
) -> None:
    changed, begun = threading.Event(), threading.Barrier(4)

    def ask(number: int) -> int:
        asked = 0
        with office.connect(asker) as session:
            while not changed.is_set():
                threshold = 1000 * number + asked
                bill_of(session, f"SELECT gender FROM patient_data GROUP BY gender HAVING count(*) > {threshold}")
                asked += 1
                if asked == 1:
                    begun.wait(120)
        return asked

    with ThreadPoolExecutor(3) as pool:
        answers = [pool.submit(ask, number) for number in range(3)]
        begun.wait(120)
        for _ in range(3):
            time.sleep(0.3)
            owner.execute("SELECT provenance.refresh('patient_data')")
            time.sleep(0.3)
            owner.execute("UPDATE provenance.relation SET size_hint = size_hint + 1 WHERE name = 'adult'")
        changed.set()
        assert sum(answer.result(120) for answer in answers) == len(charges(books, asker)) > 0


def test_an_analyst_who_is_set_inactive_is_refused_at_once(
    office: Proxy, owner: psycopg.Connection, books: str, asker: str
) -> None:
    with office.connect(asker) as session:
        bill_of(session, GENDERS)
        owner.execute("UPDATE provenance.analyst SET active = false WHERE name = %s", (asker,))
        for question in (GENDERS, GENDERS + " HAVING count(*) > 7", "SELECT gender FROM patient_data GROUP BY gender"):
            with pytest.raises(psycopg.errors.InvalidAuthorizationSpecification):
                session.execute(question.encode())
        with pytest.raises(psycopg.OperationalError):
            office.connect(asker)
        owner.execute("UPDATE provenance.analyst SET active = true WHERE name = %s", (asker,))
        assert bill_of(session, GENDERS)["reused"] is True
    assert len(charges(books, asker)) == 1


def test_a_changed_limit_holds_at_the_next_question(office: Proxy, owner: psycopg.Connection, asker: str) -> None:
    def ask(number: int) -> dict[str, Any]:
        return bill_of(session, f"SELECT gender FROM patient_data GROUP BY gender HAVING count(*) > {number}")

    with office.connect(asker) as session:
        session.execute("SET veil.mechanism = tslm")
        ask(1)
        owner.execute("UPDATE provenance.analyst SET epsilon_limit = 0.01 WHERE name = %s", (asker,))
        with pytest.raises(psycopg.errors.ConfigurationLimitExceeded) as refused:
            ask(2)
        assert "of 0.01" in (refused.value.diag.message_detail or "")
        assert ask(1)["remaining_epsilon"] == 0  # what is known stays known
        owner.execute("UPDATE provenance.analyst SET epsilon_limit = 5 WHERE name = %s", (asker,))
        assert 0 < ask(2)["remaining_epsilon"] < 5


def test_a_registry_that_changed_while_nobody_was_there_lets_analysts_in_again(
    office: Proxy, owner: psycopg.Connection, asker: str
) -> None:
    for _ in range(2):
        with office.connect(asker) as session:
            assert session.execute("SELECT count(*) FROM city").fetchone() == (43,)
        owner.execute("UPDATE provenance.relation SET size_hint = size_hint + 1 WHERE name = 'adult'")
    with office.connect(asker) as session:
        bill_of(session, GENDERS)


def test_a_shadow_that_was_dropped_is_built_again_at_the_next_login(
    office: Proxy, books: str, shadow_server, asker: str
) -> None:  # type: ignore[no-untyped-def]
    with office.connect(asker) as session:
        bill_of(session, GENDERS)
    name = str(conninfo_to_dict(books)["dbname"])
    with psycopg.connect(shadow_server.admin_dsn, autocommit=True) as admin:
        for (each,) in admin.execute("SELECT datname FROM pg_database WHERE datname LIKE %s", (name + "%",)).fetchall():
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(each)))
    with office.connect(asker) as session:
        assert bill_of(session, GENDERS)["reused"] is True


def test_a_role_that_was_dropped_on_the_shadow_is_made_again_at_the_next_login(
    office: Proxy, books: str, shadow_server, asker: str
) -> None:  # type: ignore[no-untyped-def]
    with office.connect(asker) as session:
        (database,) = session.execute("SELECT current_database()").fetchone() or ("",)
    role = sql.Identifier(asker)
    with psycopg.connect(shadow_server.dsn(database), autocommit=True) as admin:
        admin.execute(sql.SQL("DROP OWNED BY {}; DROP ROLE {}").format(role, role))
    with office.connect(asker) as session:
        assert session.execute("SELECT 1").fetchone() == (1,)


def test_a_second_proxy_that_drops_a_generation_shuts_nobody_out(
    office: Proxy, owner: psycopg.Connection, books: str, shadow_server, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    analysts = [new_analyst(books) for _ in range(3)]
    with running_proxy(books, shadow_server.admin_dsn, tmp_path / "second.log") as second:
        for number in range(4):
            owner.execute("UPDATE provenance.relation SET size_hint = size_hint + 1 WHERE name = 'adult'")

            def enter(place: tuple[Proxy, str]) -> object:
                with place[0].connect(place[1]) as session:
                    return session.execute("SELECT count(*) FROM city").fetchone()

            places = [(proxy, name) for name in analysts for proxy in (office, second)]
            with ThreadPoolExecutor(len(places)) as pool:
                assert set(pool.map(enter, places[number % 2 :] + places[: number % 2])) == {(43,)}


def test_a_coin_may_be_chosen_until_the_first_charge(new_upstream, shadow_server, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    fresh = new_upstream()
    who = new_analyst(fresh)
    with running_proxy(fresh, shadow_server.admin_dsn, tmp_path / "proxy.log") as proxy, proxy.connect(who) as session:
        with psycopg.connect(fresh) as direct:
            direct.execute("UPDATE provenance.deployment SET coin = 'pure'")
        bill = bill_of(session, GENDERS)
        assert bill["coin"] == "pure" and float(bill["charged"]) == pytest.approx(bill["epsilon"])


def test_a_ledger_in_another_database_works_the_same(database: str, postgres, shadow_server, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    protected = postgres.new_database("apart")
    with psycopg.connect(protected, autocommit=True) as direct:
        direct.execute("CREATE SCHEMA clinic CREATE TABLE visit (id int, person int NOT NULL, ward text NOT NULL)")
        direct.execute("INSERT INTO clinic.visit SELECT i, i, 'north' FROM generate_series(1, 3000) i")
        direct.execute("CREATE TABLE later (ward text NOT NULL)")
        direct.execute("CREATE TABLE faceless (ward text NOT NULL)")
    command = [sys.executable, "-m", "proxy", "init", "--upstream", protected, "--provenance", database]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[2], stdout=subprocess.DEVNULL, timeout=240)
    with psycopg.connect(protected) as direct:  # nothing of ours is left there
        assert direct.execute("SELECT to_regnamespace('provenance')").fetchone() == (None,)
    who = new_analyst(database)
    with (
        psycopg.connect(database, autocommit=True) as ledger,
        running_proxy(
            protected, shadow_server.admin_dsn, tmp_path / "proxy.log", options=("--provenance", database)
        ) as proxy,
    ):
        ledger.execute("SELECT provenance.protect('clinic.visit', 'person')")
        ledger.execute("SELECT provenance.declare_attribute('clinic.visit', 'ward', members => '{north,south}')")
        ledger.execute("SELECT provenance.protect('faceless', 'person')")
        with proxy.connect(who) as session:
            rows = dict(session.execute("SELECT ward, count(*) FROM clinic.visit GROUP BY ward").fetchall())
            assert rows["north"] > 2000 and rows["south"] < 1000
            with pytest.raises(psycopg.errors.UndefinedTable):
                session.execute("SELECT count(*) FROM faceless")
        ledger.execute("SELECT provenance.protect('later')")
        ledger.execute("SELECT provenance.declare_attribute('later', 'ward', members => '{north,south}')")
        with proxy.connect(who) as session:
            assert len(session.execute("SELECT ward, count(*) FROM later GROUP BY ward").fetchall()) == 2
    assert len(charges(database, who)) == 2
    assert "public.faceless is left out" in (tmp_path / "proxy.log").read_text()


def test_a_protected_database_that_cannot_be_prepared_says_what_to_do(
    database: str, shadow_server, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    from proxy.embedded import temporary

    migrate(database)
    with temporary({"fsync": "off"}) as cluster:
        with psycopg.connect(cluster.dsn(), autocommit=True) as direct:
            direct.execute("CREATE ROLE weak LOGIN")
        command = [sys.executable, "-m", "proxy", "serve", "--upstream", cluster.dsn(user="weak")]
        command += ["--provenance", database, "--shadow", shadow_server.admin_dsn, "--listen", "127.0.0.1:0"]
        ended = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=240)
    assert ended.returncode == 1 and "CREATE ROLE pgveil_reader" in ended.stderr and "Traceback" not in ended.stderr
