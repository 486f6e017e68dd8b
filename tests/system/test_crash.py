"""What was charged stays charged: restart, ROLLBACK, cancel, a lost client and kill -9 refund nothing.

A question is held between its charge and its answer by a lock on an index of the protected table.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from proxies import Proxy, charges, forget, new_analyst, scans_held, scans_waiting, start_proxy

from provenance.migrate import migrate
from proxy.embedded import temporary

QUESTION = "SELECT disease, count(*) FROM patient_data GROUP BY disease ORDER BY disease"


@pytest.fixture(autouse=True)
def nothing_released(upstream: str) -> None:
    """New data: what another test's analyst paid for would be told without reading the table."""
    forget(upstream)


def until(fact: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.01)


@contextmanager
def asked(session: psycopg.Connection, upstream: str, analyst: str) -> Iterator[list[BaseException]]:
    """A question that has been charged and cannot be answered yet; how it ended is in the list afterwards."""
    ended: list[BaseException] = []

    def ask() -> None:
        try:
            session.execute(QUESTION)
        except psycopg.Error as error:
            ended.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        until(lambda: bool(charges(upstream, analyst)) and len(scans_waiting(upstream)) == 1, "the charge and its read")
        yield ended
    finally:
        thread.join(60)
    assert not thread.is_alive()


def bills(session: psycopg.Connection) -> list[dict[str, object]]:
    """Fills up with what the session's answers cost."""
    told: list[dict[str, object]] = []
    session.add_notice_handler(lambda notice: told.append(json.loads(notice.message_detail or "{}")))
    return told


def test_a_proxy_killed_between_charge_and_answer_refunds_nothing(
    own_proxy: Callable[..., Proxy], upstream: str, analyst: str
) -> None:
    doomed = own_proxy()
    with scans_held(upstream), doomed.connect(analyst) as session, asked(session, upstream, analyst) as ended:
        doomed.kill()
    assert isinstance(ended[0], psycopg.OperationalError) and ended[0].sqlstate is None
    (first,) = charges(upstream, analyst)

    risen = own_proxy()
    with risen.connect(analyst) as session:
        bill = bills(session)
        rows = session.execute(QUESTION).fetchall()
        assert session.execute(QUESTION).fetchall() == rows
    assert len(rows) == 40
    # Nothing had been stored, so the same question was charged again, and only then became free.
    assert [(b["reused"], b["charged"] != "0") for b in bill] == [(False, True), (True, False)]
    rows = charges(upstream, analyst)
    assert len(rows) == 2 and rows[0] == first


def test_a_restart_refunds_nothing_and_forgets_no_answer(
    own_proxy: Callable[..., Proxy], upstream: str, analyst: str
) -> None:
    first = own_proxy()
    with first.connect(analyst) as session:
        rows = session.execute(QUESTION).fetchall()
    assert first.stop() == 0
    with own_proxy().connect(analyst) as session:
        bill = bills(session)
        assert session.execute(QUESTION).fetchall() == rows
    assert bill[0]["reused"] is True
    assert len(charges(upstream, analyst)) == 1


def test_a_rollback_refunds_nothing(proxy: Proxy, upstream: str, analyst: str) -> None:
    with proxy.connect(analyst, autocommit=False) as session:
        bill = bills(session)
        rows = session.execute(QUESTION).fetchall()
        session.rollback()
        assert len(charges(upstream, analyst)) == 1
        session.execute("SAVEPOINT here")
        assert session.execute(QUESTION).fetchall() == rows
        session.execute("ROLLBACK TO here")
        session.rollback()
    assert [b["reused"] for b in bill] == [False, True]
    assert len(charges(upstream, analyst)) == 1


def test_a_cancelled_question_stays_charged_and_leaves_nothing_running(
    proxy: Proxy, upstream: str, analyst: str
) -> None:
    with proxy.connect(analyst) as session:
        with scans_held(upstream):
            with asked(session, upstream, analyst) as ended:
                session.cancel_safe()
            until(lambda: len(scans_waiting(upstream)) == 0, "the read is given up")
        assert isinstance(ended[0], psycopg.errors.QueryCanceled)
        assert len(charges(upstream, analyst)) == 1
        assert len(session.execute(QUESTION).fetchall()) == 40
    assert len(charges(upstream, analyst)) == 2


def test_a_client_that_hangs_up_is_charged_and_leaves_nothing_running(
    proxy: Proxy, upstream: str, analyst: str
) -> None:
    session = proxy.connect(analyst)
    with scans_held(upstream):
        with asked(session, upstream, analyst):
            session.pgconn.finish()
        until(lambda: len(scans_waiting(upstream)) == 0, "the read is given up")
    assert len(charges(upstream, analyst)) == 1


def test_a_proxy_stopped_in_the_middle_of_a_question_says_so_and_goes(
    own_proxy: Callable[..., Proxy], upstream: str, analyst: str
) -> None:
    one = own_proxy()
    with scans_held(upstream), one.connect(analyst) as session, asked(session, upstream, analyst) as ended:
        assert one.stop() == 0  # the lock is held all the while: nobody waits for the answer
    assert isinstance(ended[0], psycopg.errors.AdminShutdown)
    assert len(charges(upstream, analyst)) == 1


@pytest.mark.slow
def test_many_questions_wait_their_turn_for_a_few_readers(
    own_proxy: Callable[..., Proxy], upstream: str, analyst: str
) -> None:
    one = own_proxy(environment={"PGVEIL_READERS": "2"})

    def ask(number: int) -> int:
        with one.connect(analyst) as session:
            return len(
                session.execute(f"SELECT gender, count(*) FROM patient_data WHERE age > {number} GROUP BY 1").fetchall()
            )

    with ThreadPoolExecutor(6) as pool:
        with scans_held(upstream):
            answers = [pool.submit(ask, number) for number in range(6)]
            until(lambda: len(scans_waiting(upstream)) == 2, "both readers are busy")
            time.sleep(5)  # longer than a server that is down would be waited for
        assert {answer.result(120) for answer in answers} == {answers[0].result()}
    assert len(charges(upstream, analyst)) == 6


SMALL = """
CREATE TABLE visit (id int PRIMARY KEY, ward text NOT NULL);
INSERT INTO visit SELECT i, CASE WHEN i % 3 = 0 THEN 'north' ELSE 'south' END FROM generate_series(1, 3000) i;
SELECT provenance.protect('visit');
SELECT provenance.declare_attribute('visit', 'ward', members => '{north,south}');
-- A least price of a scan that is a fraction of so large a limit would be above every price that is tested here.
UPDATE provenance.deployment SET epsilon = 100, scan_floor = 0;
"""


@pytest.mark.parametrize("ledger", ["beside the data", pytest.param("elsewhere", marks=pytest.mark.slow)])
def test_a_protected_database_may_restart_under_a_running_proxy(
    ledger: str, database: str, shadow_server, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    with temporary({"fsync": "off"}) as cluster:
        provenance = cluster.dsn() if ledger == "beside the data" else database
        migrate(provenance)
        with psycopg.connect(cluster.dsn(), autocommit=True) as direct, psycopg.connect(provenance) as books:
            for statement in filter(str.strip, SMALL.split(";\n")):
                (books if "provenance" in statement else direct).execute(statement)  # type: ignore[arg-type]
        analyst = new_analyst(provenance)
        options = () if ledger == "beside the data" else ("--provenance", provenance)
        one = start_proxy(cluster.dsn(), shadow_server.admin_dsn, tmp_path / "proxy.log", options=options)
        try:
            with one.connect(analyst) as session:
                text = "SELECT ward, count(*) FROM visit WHERE id > {} GROUP BY ward"
                assert len(session.execute(text.format(1)).fetchall()) == 2
                cluster.stop()
                begun = time.monotonic()
                with pytest.raises(psycopg.errors.SystemError) as failed:
                    session.execute(text.format(2))
                assert time.monotonic() - begun < 60
                told = [failed.value.diag.message_primary, failed.value.diag.message_detail, str(failed.value)]
                assert not any(
                    word in str(told) for word in ("visit", "socket", "FATAL", "refused", str(cluster.directory))
                )
                assert session.execute("SELECT 1").fetchone() == (1,)  # the session itself goes on
                if ledger == "elsewhere":
                    assert _answers(session, text.format(1))  # known already: the protected database is not needed
                cluster.start()
                until(lambda: _answers(session, text.format(3)), "answers again")
                spent = [question for *_, question in charges(provenance, analyst)]
                assert spent.count(text.format(3)) == 1
                if ledger == "beside the data":
                    assert spent == [text.format(1), text.format(3)]
        finally:
            one.stop()
        assert "Traceback" not in one.log.read_text()


def _answers(session: psycopg.Connection, text: str) -> bool:
    try:
        return len(session.execute(text).fetchall()) == 2  # type: ignore[call-overload]
    except psycopg.errors.SystemError:
        return False
