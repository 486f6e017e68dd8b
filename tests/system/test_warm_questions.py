"""What was read before is not read again, and nothing that changes its meaning goes unnoticed."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from proxies import Proxy, charges, new_analyst, running_proxy
from psycopg import errors

GENDERS = "SELECT gender, count(*) FROM patient_data GROUP BY gender"
OLD = "SELECT count(*) FROM patient_data WHERE age >= 60"
BY_AGE = "SELECT count(*) FROM patient_data WHERE age >= %s"


class Asker:
    """A session that collects its bills."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self.conn = conn
        self.bills: list[dict[str, Any]] = []
        conn.add_notice_handler(lambda notice: self.bills.append(json.loads(notice.message_detail or "{}")))

    def ask(self, question: str, *values: Any, **how: Any) -> tuple[list[Any], dict[str, Any] | None]:
        """The rows, and the bill if there was one."""
        before = len(self.bills)
        rows = self.conn.execute(question.encode(), values or None, **how).fetchall()
        return rows, self.bills[-1] if len(self.bills) > before else None

    def warm(self, question: str, *values: Any, **how: Any) -> list[Any]:
        """Ask twice, so that the second time everything is known."""
        rows, _ = self.ask(question, *values, **how)
        again, bill = self.ask(question, *values, **how)
        assert bill is not None and bill["reused"] and again == rows
        return rows


@pytest.fixture
def asker(session: psycopg.Connection[Any]) -> Asker:
    return Asker(session)


def test_a_temporary_table_of_the_same_name_is_read_instead(asker: Asker) -> None:
    known = asker.warm(OLD)
    asker.conn.execute("CREATE TEMP TABLE patient_data AS SELECT 70 AS age FROM generate_series(1, 7)")
    assert asker.ask(OLD) == ([(7,)], None)
    asker.conn.execute("INSERT INTO patient_data VALUES (80)")
    assert asker.ask(OLD) == ([(8,)], None)
    asker.conn.execute("DROP TABLE patient_data")
    rows, bill = asker.ask(OLD)
    assert bill is not None and bill["reused"] and rows == known


def test_a_temporary_table_that_a_rollback_takes_away_is_gone(asker: Asker) -> None:
    known = asker.warm(OLD)
    asker.conn.execute("BEGIN")
    asker.conn.execute("CREATE TEMP TABLE patient_data (age int)")
    assert asker.ask(OLD) == ([(0,)], None)
    asker.conn.execute("ROLLBACK")
    assert asker.ask(OLD)[0] == known


def test_a_temporary_table_that_bears_the_name_of_a_type_is_seen(asker: Asker) -> None:
    question = "SELECT count(*) FROM patient_data WHERE gender = 'female'::veiled_type"
    with pytest.raises(errors.UndefinedObject):
        asker.ask(question)
    typed = "SELECT gender::text, count(*) FROM patient_data GROUP BY gender"
    asker.warm(typed)
    asker.conn.execute("CREATE TEMP TABLE text (a int)")
    with pytest.raises(psycopg.Error):  # a composite type is no text; the old reading would have gone on
        asker.ask(typed)


def test_another_search_path_is_another_meaning(asker: Asker) -> None:
    known = asker.warm(OLD)
    asker.conn.execute("SET search_path = pg_catalog")
    with pytest.raises(errors.UndefinedTable):
        asker.ask(OLD)
    asker.conn.execute("RESET search_path")
    assert asker.ask(OLD)[0] == known


def test_a_wish_that_changes_makes_another_question(asker: Asker) -> None:
    known = asker.warm(OLD)
    asker.conn.execute("SET veil.margin = '20u'")
    _, dearer = asker.ask(OLD)
    assert dearer is not None and dearer["epsilon"] > 0
    asker.conn.execute("SET veil.margin = 'wide'")
    with pytest.raises(errors.InvalidParameterValue):
        asker.ask(OLD)
    asker.conn.execute("RESET veil.margin")
    rows, bill = asker.ask(OLD)
    assert bill is not None and bill["epsilon"] == 0 and len(rows) == len(known)


def test_a_setting_of_a_transaction_ends_with_it(asker: Asker) -> None:
    asker.warm(GENDERS)
    asker.conn.execute("BEGIN")
    asker.conn.execute("SET LOCAL veil.nonsense = 1")
    with pytest.raises(errors.InvalidParameterValue):
        asker.ask(GENDERS)
    asker.conn.execute("ROLLBACK")
    assert asker.ask(GENDERS)[1] is not None


def test_a_parameter_follows_the_settings_of_the_session(asker: Asker) -> None:
    question, day = "SELECT count(*) FROM orders WHERE ordered_on < %s", "02/01/2025"
    asker.conn.execute("SET DateStyle = 'ISO, MDY'")
    february = asker.warm(question, day)
    asker.conn.execute("SET DateStyle = 'ISO, DMY'")
    january, bill = asker.ask(question, day)
    assert bill is not None and not bill["reused"] and january != february
    asker.conn.execute("SET DateStyle = 'ISO, MDY'")
    again, bill = asker.ask(question, day)
    assert bill is not None and bill["reused"] and again == february


def test_strings_are_read_as_the_session_says(asker: Asker) -> None:
    question = r"SELECT count(*) AS n, '\\'::text AS sign FROM patient_data WHERE age > 59"
    assert asker.warm(question)[0][1] == r"\\"
    asker.conn.execute("SET standard_conforming_strings = off")
    assert asker.ask(question)[0][0][1] == "\\"


@pytest.mark.parametrize("prepare", [True, False])
def test_parameters_are_told_apart_by_value_and_by_type(asker: Asker, prepare: bool) -> None:
    sixty = asker.warm(BY_AGE, 60, prepare=prepare)
    _, other = asker.ask(BY_AGE, 61, prepare=prepare)
    assert other is not None and not other["reused"]
    rows, same = asker.ask(BY_AGE, 60, prepare=prepare)
    assert same is not None and same["reused"] and rows == sixty
    for form in ("%t", "%b"):
        rows, same = asker.ask(BY_AGE.replace("%s", form), 60, prepare=prepare)
        assert same is not None and same["reused"] and rows == sixty
    _, unknown = asker.ask(BY_AGE.replace("%s", "%s::int"), None, prepare=prepare)
    assert unknown is not None and not unknown["reused"]
    with pytest.raises(errors.InvalidTextRepresentation):
        asker.ask(BY_AGE.replace("%s", "%s::int"), "sixty", prepare=prepare)
    assert asker.ask(BY_AGE, 60, prepare=prepare)[0] == sixty


@pytest.mark.parametrize("forget", ["DISCARD ALL", "DEALLOCATE ALL", "RESET ALL"])
def test_a_session_that_is_cleaned_goes_on(asker: Asker, forget: str) -> None:
    known = asker.warm(OLD)
    asker.conn.execute(forget.encode())
    assert asker.ask(OLD)[0] == known


def test_a_question_in_a_failed_transaction_fails_as_everything_does(asker: Asker) -> None:
    known = asker.warm(OLD)
    asker.conn.execute("BEGIN")
    with pytest.raises(errors.DivisionByZero):
        asker.conn.execute("SELECT 1/0")
    with pytest.raises(errors.InFailedSqlTransaction):
        asker.ask(OLD)
    asker.conn.execute("ROLLBACK")
    assert asker.ask(OLD)[0] == known


def test_who_is_no_longer_active_hears_nothing_more(asker: Asker, proxy: Proxy, analyst: str) -> None:
    asker.warm(OLD)
    with psycopg.connect(proxy.upstream, autocommit=True) as owner:
        owner.execute("UPDATE provenance.analyst SET active = false WHERE name = %s", (analyst,))
        with pytest.raises(errors.InvalidAuthorizationSpecification):
            asker.ask(OLD)
        owner.execute("UPDATE provenance.analyst SET active = true WHERE name = %s", (analyst,))
    assert asker.ask(OLD)[1] is not None


def test_a_free_answer_tells_what_is_left_now(proxy: Proxy, upstream: str) -> None:
    name = new_analyst(upstream, epsilon="5")
    with proxy.connect(name) as conn, psycopg.connect(upstream, autocommit=True) as owner:
        asker = Asker(conn)

        def left() -> float:
            _, bill = asker.ask(OLD)
            assert bill is not None
            return float(bill["remaining_epsilon"])

        asker.warm(OLD)
        before = left()
        with proxy.connect(name) as elsewhere:
            elsewhere.execute(GENDERS)
        after = left()
        assert after < before < 5 and left() == after
        for limit in (3, 7):
            owner.execute("UPDATE provenance.analyst SET epsilon_limit = %s WHERE name = %s", (limit, name))
            assert abs(left() - (limit - 5 + after)) < 1e-4


def test_new_data_are_a_new_question(new_upstream: Callable[[], str], shadow_server: Any, tmp_path: Any) -> None:
    upstream = new_upstream()
    name = new_analyst(upstream)
    with running_proxy(upstream, shadow_server.admin_dsn, tmp_path / "log") as own, own.connect(name) as conn:
        asker = Asker(conn)
        asker.warm(GENDERS)
        with psycopg.connect(upstream, autocommit=True) as owner:
            owner.execute("SELECT provenance.refresh('patient_data')")
            _, bill = asker.ask(GENDERS)
            assert bill is not None and not bill["reused"]
            owner.execute("UPDATE provenance.attribute SET members = members || '{unheard}' WHERE name = 'gender'")
            rows, bill = asker.ask(GENDERS)
            assert bill is not None and not bill["reused"] and "unheard" in dict(rows)


@pytest.mark.parametrize("prepare", [True, False])
def test_a_warm_answer_takes_one_round_trip_to_the_ledger_and_none_to_the_shadow(
    own_proxy: Callable[..., Proxy], upstream: str, tmp_path: Path, prepare: bool
) -> None:
    told, name, many = tmp_path / "counts", new_analyst(upstream), 100
    program = (str(Path(__file__).parent / "counting.py"),)
    proxy = own_proxy(program=program, environment={"COUNTS": str(told)})

    def counts() -> dict[str, int]:
        told.unlink(missing_ok=True)
        proxy.process.send_signal(signal.SIGUSR1)
        while not told.exists():
            time.sleep(0.01)
        return dict(json.loads(told.read_text()))

    with proxy.connect(name) as conn:
        asker = Asker(conn)
        asker.warm(BY_AGE, 60, prepare=prepare)
        before = counts()
        started = time.monotonic()
        for _ in range(many):
            asker.ask(BY_AGE, 60, prepare=prepare)
        seconds = time.monotonic() - started
        after = counts()
    # Once a second the shadow is asked for its settings, the ledger for more than the marks, and the proxy tells that
    # it lives.
    asked = after["shadow"] - before["shadow"]
    assert asked <= 4 * (2 + seconds)
    assert many <= after["provenance"] - before["provenance"] <= many + 12 * (2 + seconds)
    assert len(charges(upstream, name)) == 1
