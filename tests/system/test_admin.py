"""Administrators come through the same port, reach provenance and nothing else; what they change holds at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from proxies import Proxy, charges, new_analyst, running_proxy
from psycopg import errors
from psycopg.types.json import Jsonb

from proxy.veil_settings import SETTINGS

HAVING = "SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 5000"


@pytest.fixture(scope="module")
def house(new_upstream: Callable[[], str], shadow_server, tmp_path_factory) -> Iterator[Proxy]:  # type: ignore[no-untyped-def]
    """A proxy on a database of its own, since the registry is changed here."""
    log: Path = tmp_path_factory.mktemp("house") / "proxy.log"
    with running_proxy(new_upstream(), shadow_server.admin_dsn, log) as running:
        yield running


@pytest.fixture
def admin(house: Proxy) -> Iterator[psycopg.Connection]:
    with house.connect("admin") as conn:
        yield conn


@pytest.fixture
def someone(house: Proxy) -> str:
    return new_analyst(house.upstream)


def test_an_administrator_reads_the_reports(house: Proxy, admin: psycopg.Connection, someone: str) -> None:
    with house.connect(someone) as conn:
        conn.execute(HAVING)
    assert admin.execute("SELECT count(*) FROM provenance.history WHERE analyst = %s", (someone,)).fetchone() == (1,)
    for view in ("budget", "matrix", "history", "deployment", "relation", "attribute", "analyst"):
        assert admin.execute(f"SELECT count(*) > 0 FROM provenance.{view}").fetchone() == (True,)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM patient_data",
        "SELECT count(*) FROM orders",
        "SELECT * FROM provenance.credential",
        "SELECT * FROM provenance.secret",
        "SET ROLE pgveil_reader",
        "SET ROLE postgres",
        "COPY patient_data TO STDOUT",
        "COPY (SELECT 1) TO PROGRAM 'true'",
        "SELECT pg_read_file('PG_VERSION')",
        "SELECT query_to_xml('TABLE patient_data', true, true, '')",
        "CREATE TABLE provenance.mine (a int)",
        "CREATE TABLE public.mine (a int)",
        "UPDATE provenance.charge SET amount = 0",
        "DELETE FROM provenance.charge",
        "ALTER TABLE provenance.charge DISABLE TRIGGER ALL",
        "SELECT * FROM pg_authid",
    ],
)
def test_an_administrator_reaches_nothing_else(admin: psycopg.Connection, text: str) -> None:
    with pytest.raises(psycopg.Error) as refused:
        admin.execute(text)
    assert refused.value.sqlstate in ("42501", "42P01", "0A000", "55000", "25006", "23514", "P0001")
    assert admin.execute("SELECT current_user").fetchone() == ("pgveil_admin",)


def test_the_statistics_of_protected_tables_do_not_show(house: Proxy, admin: psycopg.Connection) -> None:
    with psycopg.connect(house.upstream, autocommit=True) as conn:
        conn.execute("ANALYZE patient_data")
    query = "SELECT count(*) FROM pg_stats WHERE tablename IN ('patient_data', 'orders', 'adult')"
    assert admin.execute(query).fetchone() == (0,)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM provenance.analyst",
        "SELECT provenance.create_analyst('mallory', 'mallory', 10)",
        "UPDATE provenance.deployment SET epsilon = 1e6",
        "SET ROLE pgveil_admin",
        "SELECT * FROM provenance.charge",
    ],
)
def test_an_analyst_cannot_reach_provenance(house: Proxy, someone: str, text: str) -> None:
    with house.connect(someone) as conn, pytest.raises(psycopg.Error) as refused:
        conn.execute(text)
    assert refused.value.sqlstate in ("42P01", "3F000", "22023", "42704", "42501")
    with house.connect(someone) as conn:
        assert conn.execute("SELECT to_regnamespace('provenance')").fetchone() == (None,)


def test_a_new_analyst_may_come_at_once(house: Proxy, admin: psycopg.Connection) -> None:
    admin.execute("SELECT provenance.create_analyst('dora', 'first', 5)")
    with house.connect("dora", password="first") as conn:
        assert conn.execute(HAVING).fetchall()
    admin.execute("SELECT provenance.set_password('dora', 'second')")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        house.connect("dora", password="first")
    house.connect("dora", password="second").close()


def test_an_analyst_who_was_dismissed_cannot_ask(house: Proxy, admin: psycopg.Connection, someone: str) -> None:
    with house.connect(someone) as conn:
        assert conn.execute(HAVING).fetchall()
        admin.execute("UPDATE provenance.analyst SET active = false WHERE name = %s", (someone,))
        with pytest.raises(psycopg.Error):
            conn.execute("SELECT gender FROM patient_data GROUP BY gender HAVING count(*) > 10")
    with pytest.raises(psycopg.OperationalError):
        house.connect(someone)


def test_a_limit_holds_from_the_next_question_on(house: Proxy, admin: psycopg.Connection, someone: str) -> None:
    ask = "SELECT gender, count(*) FROM patient_data GROUP BY gender HAVING count(*) > {}".format
    with house.connect(someone) as conn:
        conn.execute(ask(1))
        admin.execute("UPDATE provenance.analyst SET epsilon_limit = 0.01 WHERE name = %s", (someone,))
        with pytest.raises(psycopg.Error) as refused:
            conn.execute(ask(2000))
        assert refused.value.sqlstate == "53400"
        assert len(charges(house.upstream, someone)) == 1
        admin.execute("UPDATE provenance.analyst SET epsilon_limit = NULL WHERE name = %s", (someone,))
        conn.execute(ask(2000))
    assert len(charges(house.upstream, someone)) == 2


def test_new_defaults_hold_from_the_next_session_on(house: Proxy, admin: psycopg.Connection, someone: str) -> None:
    admin.execute("""UPDATE provenance.analyst SET settings = '{"veil.beta": "0.17"}' WHERE name = %s""", (someone,))
    with house.connect(someone) as conn:
        assert conn.execute("SHOW veil.beta").fetchone() == ("0.17",)


def test_every_setting_may_be_a_default(admin: psycopg.Connection, someone: str) -> None:
    defaults = Jsonb(dict(SETTINGS))
    admin.execute("UPDATE provenance.analyst SET settings = %s WHERE name = %s", (defaults, someone))


def test_a_table_that_is_newly_protected_is_there_for_new_sessions(
    house: Proxy, admin: psycopg.Connection, someone: str
) -> None:
    ask = "SELECT colour, count(*) FROM paint GROUP BY colour HAVING count(*) > 100 ORDER BY 1"
    with house.connect(someone) as old:
        assert old.execute("SELECT count(*) FROM city").fetchone() == (43,)
        with psycopg.connect(house.upstream, autocommit=True) as owner:
            owner.execute("CREATE TABLE paint (id int PRIMARY KEY, colour text NOT NULL)")
            owner.execute(
                "INSERT INTO paint SELECT n, (ARRAY['red', 'blue', 'blue'])[1 + n % 3] FROM generate_series(1, 9000) n"
            )
            owner.execute("GRANT SELECT ON paint TO pgveil_reader")
        admin.execute("SELECT provenance.protect('paint')")
        admin.execute(
            "SELECT provenance.declare_attribute('paint', 'colour', members => ARRAY['red', 'blue', 'green'])"
        )
        with house.connect(someone, options="-c veil.alpha=1e-10 -c veil.beta=1e-10") as new:  # nothing is left to luck
            assert [row[0] for row in new.execute(ask)] == ["blue", "red"]
            with pytest.raises(errors.InsufficientPrivilege):
                new.execute("SELECT * FROM paint")
            (there,) = new.execute("SELECT current_database()").fetchone() or ("",)
        # The old session stays where it was, and its questions about what it sees are answered.
        assert old.execute("SELECT current_database()").fetchone() != (there,)
        assert old.execute("SELECT count(*) FROM city").fetchone() == (43,)
        assert old.execute(HAVING).fetchall()
        with pytest.raises(errors.UndefinedTable):
            old.execute(ask)
        assert old.execute("SELECT 1").fetchone() == (1,)
    with house.connect(someone) as later:
        assert later.execute("SELECT current_database()").fetchone() == (there,)


def test_an_administrator_who_is_wrong_is_told_natively(admin: psycopg.Connection) -> None:
    with pytest.raises(errors.Error) as refused:
        admin.execute("SELECT provenance.protect('no such table at all')")
    assert refused.value.sqlstate
    with pytest.raises(errors.CheckViolation), admin.transaction():
        admin.execute("UPDATE provenance.analyst SET privilege = 11 WHERE name = 'alice'")
    assert admin.execute("SELECT 1").fetchone() == (1,)


def test_names_that_nothing_bears_are_told(admin: psycopg.Connection) -> None:
    told: list[str] = []
    admin.add_notice_handler(lambda notice: told.append(f"{notice.severity}: {notice.message_primary}"))
    with admin.transaction(force_rollback=True):
        admin.execute("SELECT provenance.protect('ordres')")
        admin.execute("SELECT provenance.register_view('patient_data', '{age,gendre}')")
        admin.execute("SELECT provenance.register_view('patient_data', '{gender,capacity}')")
    assert told == [
        'WARNING: there is no table "ordres"',
        'WARNING: "gendre" is no column of "patient_data" or of a published table',
    ]
    with pytest.raises(errors.UndefinedColumn), admin.transaction():
        admin.execute("SELECT provenance.declare_attribute('orders', 'city', members_from => 'city.town')")


def test_administrators_use_the_whole_protocol(admin: psycopg.Connection) -> None:
    with admin.pipeline():
        first = admin.execute("SELECT %s::int", (1,))
        second = admin.execute("SELECT name FROM provenance.relation WHERE name = %s", ("orders",), prepare=True)
        assert first.fetchone() == (1,) and second.fetchone() == ("orders",)
    with admin.cursor().copy("COPY (SELECT name FROM provenance.analyst) TO STDOUT") as copy:
        assert "alice" in [row[0] for row in copy.rows()]


TYPES = "SELECT disease_type, count(*) FROM patient_data GROUP BY disease_type"


def refused(conn: psycopg.Connection, text: str) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as caught:
        conn.execute(text)
    return caught.value


def test_the_limit_of_a_view_holds_at_the_next_question(house: Proxy, admin: psycopg.Connection, someone: str) -> None:
    admin.execute("SELECT provenance.register_view('patient_data', '{disease_type}', epsilon_limit => 0)")
    with house.connect(someone) as conn:
        told = refused(conn, TYPES)
        assert told.sqlstate == "53400" and "view patient_data (disease_type): count(*)" in str(told)
        assert charges(house.upstream, someone) == []
        admin.execute("UPDATE provenance.view SET epsilon_limit = NULL WHERE dimensions = '{disease_type}'")
        assert len(conn.execute(TYPES).fetchall()) == 5
        view = "SELECT spent > 0 FROM provenance.view_budget WHERE label = 'patient_data (disease_type): count(*)'"
        assert admin.execute(view).fetchone() == (True,)
        own = conn.execute("SELECT view, spent > 0 FROM veil.budget ORDER BY view <> 'all'").fetchall()
        assert own[0] == ("all", True) and ("patient_data (disease_type): count(*)", True) in own


def test_a_budget_that_is_lent_is_used_when_the_own_one_is_spent(
    house: Proxy, admin: psycopg.Connection, someone: str
) -> None:
    friend = new_analyst(house.upstream)
    admin.execute("UPDATE provenance.analyst SET epsilon_limit = 0 WHERE name = %s", (someone,))
    with house.connect(someone) as conn:
        assert refused(conn, "SELECT count(*) FROM adult WHERE age > 30").sqlstate == "53400"
        grant = admin.execute("SELECT provenance.grant_budget(%s, %s, 5)", (friend, someone)).fetchone()
        assert conn.execute("SELECT count(*) FROM adult WHERE age > 30").fetchone() is not None
        used = admin.execute("SELECT grantor, used > 0, active FROM provenance.lending WHERE id = %s", grant).fetchone()
        assert used == (friend, True, True)
        admin.execute("SELECT provenance.revoke_grant(%s)", grant)
        assert refused(conn, "SELECT count(*) FROM adult WHERE age > 40").sqlstate == "53400"
        assert conn.execute("SELECT count(*) FROM adult WHERE age > 30").fetchone() is not None, "known, and so free"
    spent = admin.execute("SELECT spent > 0 FROM provenance.budget WHERE analyst = %s AND view = 'all'", (friend,))
    assert spent.fetchone() == (True,)


def test_an_administrator_sees_fairness_replicas_and_the_chain(
    house: Proxy, admin: psycopg.Connection, someone: str
) -> None:
    with house.connect(someone) as conn:
        conn.execute(HAVING)
    fair = "SELECT questions > 0, spent > 0, ndcfg > 0 FROM provenance.fairness WHERE analyst = %s"
    assert admin.execute(fair, (someone,)).fetchone() == (True, True, True)
    assert admin.execute("SELECT charges > 0, broken FROM provenance.verify_chain()").fetchone() == (True, None)
    (replica,) = admin.execute("SELECT name, trouble FROM provenance.replica").fetchall()
    assert replica[0].endswith(f"/{house.process.pid}") and replica[1] is None
    assert admin.execute("SELECT count(*) FROM provenance.gap").fetchone() == (0,)


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE provenance.chain SET charge = 0",
        "DELETE FROM provenance.gap",
        "UPDATE provenance.spending SET amount = 0",
        "UPDATE provenance.grant_of_budget SET used = 0",
        "INSERT INTO provenance.charge_view VALUES (1, 1, 0, 0)",
        "SELECT provenance.report_gap(1, sha256(''), now(), 'zcdp', '{}', 'me')",
        "SELECT provenance.heartbeat('me')",
        "SELECT provenance.open_views('[]')",
        "UPDATE provenance.balance SET amount = 0",
    ],
)
def test_an_administrator_cannot_write_the_books(admin: psycopg.Connection, text: str) -> None:
    assert refused(admin, text).sqlstate == "42501"


def test_a_period_lets_limits_grow(house: Proxy, admin: psycopg.Connection) -> None:
    """Set by an administrator, told with what it means, felt at the next question; only time earns a period."""
    someone, told = new_analyst(house.upstream, epsilon="0.5"), list[str]()
    ask = "SELECT gender, count(*) FROM patient_data WHERE age > {} GROUP BY gender".format
    admin.add_notice_handler(lambda said: told.append(said.message_primary or ""))
    with house.connect(someone) as conn:
        for year in range(90):  # different questions, until the purse is empty
            try:
                conn.execute(ask(year).encode())
            except errors.ConfigurationLimitExceeded:
                break
        with pytest.raises(errors.ConfigurationLimitExceeded):
            conn.execute(ask(year).encode())
        admin.execute("UPDATE provenance.deployment SET period = '1 month'")
        try:
            assert told[-1] == "every limit grows each 1 mon"
            with pytest.raises(errors.ConfigurationLimitExceeded) as refused:
                conn.execute(ask(year).encode())
            assert "wait until the limit grows (" in (refused.value.diag.message_hint or "")
            for column in ("period_began = now() - interval '1 year'", "periods_earned = 9"):
                with pytest.raises(errors.InsufficientPrivilege):
                    admin.execute(f"UPDATE provenance.deployment SET {column}".encode())
            with psycopg.connect(house.upstream, autocommit=True) as owner:  # a month goes by
                owner.execute("UPDATE provenance.deployment SET period_began = period_began - interval '31 days'")
            conn.execute(ask(year).encode())
            (limit,) = conn.execute("""SELECT "limit" FROM veil.budget WHERE view = 'all'""").fetchone() or (0,)
            assert 0.7 < limit < 0.8, "the coin of two, which is less than twice the epsilon"
        finally:
            with psycopg.connect(house.upstream, autocommit=True) as owner:
                owner.execute("UPDATE provenance.deployment SET period = NULL")
                owner.execute("UPDATE provenance.deployment SET periods_earned = 1")
