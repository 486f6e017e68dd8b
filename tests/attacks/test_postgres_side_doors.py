"""PostgreSQL's side doors: each is shut, or has nothing behind it."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from attack_statements import SIDE_DOORS
from attack_world import Hospital, angry, sqlstate
from psycopg import generators
from psycopg.conninfo import make_conninfo

EMPTY = {
    "row estimates": "SELECT reltuples FROM pg_class WHERE relname IN ('patient', 'visit') AND reltuples > 0",
    "size": "SELECT 1 WHERE pg_total_relation_size('patient') > 32768",
    "column statistics": "SELECT * FROM pg_stats WHERE tablename IN ('patient', 'visit')",
    "extended statistics": "SELECT * FROM pg_stats_ext",
    "table activity": "SELECT * FROM pg_stat_user_tables WHERE relname = 'patient' AND n_live_tup + n_tup_ins > 0",
    "others' statements": "SELECT * FROM pg_stat_activity WHERE usename <> current_user AND query NOT LIKE '<insuff%'"
    " AND query <> ''",
    "views with private constants": "SELECT * FROM pg_views WHERE schemaname = 'public'",
    "defaults and checks": "SELECT * FROM pg_constraint WHERE conrelid = 'patient'::regclass AND contype = 'c'",
    "functions": "SELECT * FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
    "verifiers": "SELECT 1 WHERE has_table_privilege('pg_authid', 'SELECT')",
}


def answered(session: psycopg.Connection) -> list[str]:
    """The side doors that let somebody in."""
    return [name for name, text in SIDE_DOORS.items() if sqlstate(session, text) is None]


def test_no_side_door_opens(session: psycopg.Connection, hospital: Hospital, spy: str) -> None:
    assert answered(session) == []
    assert hospital.charges(spy) == []


@pytest.mark.parametrize(
    "text",
    ["SELECT * FROM patient", "TABLE patient", "SELECT name FROM patient WHERE id = -1", "SELECT * FROM visit v"],
)
def test_rows_are_not_shown_by_a_prepared_statement_either(
    session: psycopg.Connection, hospital: Hospital, spy: str, text: str
) -> None:
    """PREPARE shows nothing: the shadow takes it, and EXECUTE is what is refused."""
    assert sqlstate(session, f"PREPARE thief AS {text}") in (None, "42501", "0A000")
    assert sqlstate(session, "EXECUTE thief") in ("42501", "0A000", "26000")
    assert sqlstate(session, "EXPLAIN EXECUTE thief") is not None
    assert sqlstate(session, "CREATE TEMP TABLE loot AS EXECUTE thief") is not None
    assert sqlstate(session, "/* so */ EXECUTE thief") is not None
    assert hospital.charges(spy) == []


@pytest.mark.parametrize("text", EMPTY.values(), ids=EMPTY.keys())
def test_what_is_open_has_nothing_behind_it(session: psycopg.Connection, text: str) -> None:
    assert session.execute(text).fetchall() == []


def test_a_temporary_view_or_function_reads_no_protected_table(session: psycopg.Connection) -> None:
    session.execute("CREATE TEMP VIEW thief AS SELECT * FROM patient")
    assert sqlstate(session, "SELECT * FROM thief") == "42501"
    assert sqlstate(session, "SELECT 1 FROM thief WHERE false") == "42501"
    session.execute(
        "CREATE FUNCTION pg_temp.f() RETURNS SETOF text LANGUAGE plpgsql AS"
        " $$ BEGIN RETURN QUERY EXECUTE 'SELECT name FROM public.patient'; END $$"
    )
    assert sqlstate(session, "SELECT pg_temp.f()") == "42501"


def test_a_select_grant_on_the_shadow_is_seen(session: psycopg.Connection, hospital: Hospital, shadow_server) -> None:  # type: ignore[no-untyped-def]
    """Mutant: SELECT on the empty copies. Statements that we do not recognise would be answered from them."""
    (database,) = session.execute("SELECT current_database()").fetchone()  # type: ignore[misc]
    inside = make_conninfo(shadow_server.admin_dsn, dbname=database)
    with psycopg.connect(inside, autocommit=True) as admin:
        admin.execute("GRANT SELECT ON patient TO PUBLIC")
        try:
            opened = answered(session)
        finally:
            admin.execute("REVOKE SELECT ON patient FROM PUBLIC")
    assert {"do", "a name in escapes"} <= set(opened)


@pytest.mark.parametrize(
    "more",
    [
        {"options": "-c role=postgres"},
        {"options": "-c session_authorization=postgres"},
        {"options": "-c session_preload_libraries=x"},
        {"options": "-c log_statement=all"},
        {"replication": "database"},
        {"replication": "true"},
    ],
    ids=str,
)
def test_startup_options_give_no_power(hospital: Hospital, spy: str, more: dict[str, str]) -> None:
    with pytest.raises(psycopg.OperationalError), hospital.connect(spy, **more) as session:
        session.execute("SELECT 1")


def test_startup_options_are_settings_as_any_other(hospital: Hospital, spy: str) -> None:
    with hospital.connect(spy, options="-c veil.epsilon=nonsense") as session:
        assert sqlstate(session, "SELECT count(*) FROM patient") == "22023"
    with hospital.connect(spy, options="-c veil.epsilom=1") as session:
        assert sqlstate(session, "SELECT count(*) FROM patient") == "22023"
    assert hospital.charges(spy) == []


def test_parse_and_describe_are_free_and_an_answer_is_drawn_once(
    session: psycopg.Connection, hospital: Hospital, spy: str
) -> None:
    """Attack: a prepared question described and executed again, for fresh draws."""
    pg = session.pgconn
    pg.send_prepare(b"q", b"SELECT ward, count(*) FROM patient GROUP BY ward")
    session.wait(generators.execute(pg))
    pg.send_describe_prepared(b"q")
    (described,) = session.wait(generators.execute(pg))
    assert described.nfields == 2
    assert hospital.charges(spy) == [], "Parse and Describe are free"
    draws = set()
    for _ in range(3):
        pg.send_query_prepared(b"q", [])
        (result,) = session.wait(generators.execute(pg))
        draws.add(tuple(result.get_value(row, 1) for row in range(result.ntuples)))
    assert len(draws) == 1 and len(hospital.charges(spy)) == 1


def test_rollback_refunds_nothing(session: psycopg.Connection, hospital: Hospital, spy: str) -> None:
    session.execute("BEGIN")
    session.execute("SELECT count(*) FROM patient")
    session.execute("ROLLBACK")
    assert len(hospital.charges(spy)) == 1


def test_an_empty_purse_reads_nothing(hospital: Hospital, names: Callable[[], str]) -> None:
    """Rule 5: the till first. Whoever cannot pay learns it before a row is touched."""
    poor = hospital.new_analyst(names(), epsilon="0.000001")
    with angry(hospital), hospital.connect(poor) as session:
        assert sqlstate(session, "SELECT count(*) FROM patient WHERE age = 1") == "53400"
    assert hospital.charges(poor) == []


def test_what_was_read_was_paid_even_if_the_reading_failed(hospital: Hospital, spy: str) -> None:
    assert _paid_for_a_broken_reading(hospital, spy)


def test_a_till_after_the_reading_is_seen(hospital: Hospital, spy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: the receipt is written first, and the charge once the data has been read."""
    from decimal import Decimal

    from provenance import model
    from provenance.ledger import Ledger
    from provenance.synopses import Synopses

    charge_all, keep, ledgers = Ledger.charge_all, Synopses.keep, []

    async def on_credit(self, asked, also=()):  # type: ignore[no-untyped-def]
        ledgers.append(self)
        left = model.Remaining(Decimal(1), Decimal(1))
        return [model.Receipt(0, one, Decimal(1), left, model._TILL) for one in asked]

    async def pay_then_keep(self, key, noisy, receipt):  # type: ignore[no-untyped-def]
        (paid,) = await charge_all(ledgers[-1], [receipt.charge])
        return await keep(self, key, noisy, paid)

    monkeypatch.setattr(Ledger, "charge_all", on_credit)
    monkeypatch.setattr(Synopses, "keep", pay_then_keep)
    assert not _paid_for_a_broken_reading(hospital, spy)


def _paid_for_a_broken_reading(hospital: Hospital, spy: str) -> bool:
    with angry(hospital), hospital.connect(spy) as session:
        assert sqlstate(session, "SELECT count(*) FROM patient WHERE age = 2") == "58000"
    return len(hospital.charges(spy)) == 1
