"""When answers leave: scans after the delay, everything else at once, and nobody sees a scan end before."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from patient import DELAY
from proxies import PATIENCE, Proxy, charges, new_analyst, running_proxy, scans_held, scans_waiting, start_proxy
from psycopg import errors

COUNTS = "SELECT gender, count(*) FROM patient_data GROUP BY gender ORDER BY 1"
DECISION = "SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 2500"
OPEN = "SELECT patient_id % 7, count(*) FROM patient_data GROUP BY 1"
PROGRAM = (str(Path(__file__).parent / "patient.py"),)
SOON = 0.75 * DELAY  # what is not delayed takes less, also on a busy machine


@pytest.fixture(scope="module")
def books(new_upstream: Callable[[], str]) -> str:
    return new_upstream()


@pytest.fixture(scope="module")
def patient(books: str, shadow_server, tmp_path_factory) -> Iterator[Proxy]:  # type: ignore[no-untyped-def]
    log = tmp_path_factory.mktemp("patient") / "proxy.log"
    with running_proxy(books, shadow_server.admin_dsn, log, program=PROGRAM) as proxy:
        yield proxy


@pytest.fixture
def asker(patient: Proxy, books: str) -> Iterator[psycopg.Connection]:
    with patient.connect(new_analyst(books)) as conn:
        yield conn


def seconds(run: Callable[[], object]) -> float:
    began = time.monotonic()
    run()
    return time.monotonic() - began


def test_scans_wait_and_everything_else_does_not(patient: Proxy, books: str, asker: psycopg.Connection) -> None:
    asker.execute("SET veil.epsilon = '0.1'")
    for question in (COUNTS, DECISION, OPEN):
        assert seconds(lambda question=question: asker.execute(question)) >= DELAY  # type: ignore[misc]
        assert seconds(lambda question=question: asker.execute(question)) < SOON, "a stored answer"  # type: ignore[misc]
    with patient.connect(new_analyst(books)) as other:
        other.execute("SET veil.epsilon = '0.01'")
        assert seconds(lambda: other.execute(COUNTS)) < SOON, "derived from what was released to somebody else"

    def refused() -> None:
        with pytest.raises(errors.Error):
            asker.execute("SELECT * FROM patient_data")

    assert seconds(refused) < SOON
    assert seconds(lambda: asker.execute(f"EXPLAIN {DECISION.replace('2500', '2600')}")) < SOON


def test_a_change_holds_from_the_next_question_on(asker: psycopg.Connection, books: str) -> None:
    with psycopg.connect(books, autocommit=True) as owner:
        try:
            owner.execute("UPDATE provenance.deployment SET timing = 'immediate'")
            assert seconds(lambda: asker.execute("SELECT count(*) FROM patient_data WHERE age = 31")) < SOON
        finally:
            owner.execute("UPDATE provenance.deployment SET timing = 'delayed'")
    assert seconds(lambda: asker.execute("SELECT count(*) FROM patient_data WHERE age = 32")) >= DELAY


def test_who_waits_for_the_same_question_hears_of_it_no_earlier(patient: Proxy, books: str) -> None:
    name, question = new_analyst(books), "SELECT count(*) FROM patient_data WHERE age = 33"
    heard: list[float] = []

    def ask() -> None:
        with patient.connect(name) as conn:
            conn.execute(question)
            heard.append(time.monotonic())

    began = time.monotonic()
    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(heard) == 2 and min(heard) - began >= DELAY
    assert len(charges(books, name)) == 1


def test_a_failure_of_the_protected_database_waits_too(patient: Proxy, asker: psycopg.Connection, books: str) -> None:
    question = "SELECT count(*) FROM patient_data WHERE age = 34"
    began = time.monotonic()
    with scans_held(books):
        thread = threading.Thread(target=_end_readers, args=(books,))
        thread.start()
        with pytest.raises(errors.Error):
            asker.execute(question)
        thread.join(PATIENCE)
    assert time.monotonic() - began >= DELAY


def _end_readers(books: str) -> None:
    until = time.monotonic() + PATIENCE
    with psycopg.connect(books, autocommit=True) as conn:
        while time.monotonic() < until:
            for pid in scans_waiting(books):
                conn.execute("SELECT pg_terminate_backend(%s)", (pid,))
                return
            time.sleep(0.02)


@pytest.mark.parametrize("running", [True, False], ids=["in the scan", "in the delay"])
def test_a_cancel_waits_for_a_delay_of_its_own(patient: Proxy, books: str, running: bool) -> None:
    name = new_analyst(books)
    with patient.connect(name) as conn, scans_held(books) as owner:
        if not running:
            owner.rollback()
        began: list[float] = []

        def stop() -> None:
            until = time.monotonic() + PATIENCE
            while not charges(books, name) and time.monotonic() < until:
                time.sleep(0.02)
            time.sleep(0.3)
            began.append(time.monotonic())
            conn.cancel()

        thread = threading.Thread(target=stop)
        thread.start()
        with pytest.raises(errors.QueryCanceled):
            conn.execute("SELECT count(*) FROM patient_data WHERE age = 35")
        ended = time.monotonic()
        thread.join(PATIENCE)
        owner.rollback()
        assert ended - began[0] >= DELAY
        assert conn.execute("SELECT 1").fetchone() == (1,)


def test_a_shutdown_does_not_wait(books: str, shadow_server, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    proxy = start_proxy(books, shadow_server.admin_dsn, tmp_path / "proxy.log", program=PROGRAM)
    name = new_analyst(books)
    with proxy.connect(name) as conn:

        def ask() -> None:
            with pytest.raises(errors.Error):
                conn.execute("SELECT count(*) FROM patient_data WHERE age = 36")

        thread = threading.Thread(target=ask)
        thread.start()
        until = time.monotonic() + PATIENCE
        while not charges(books, name) and time.monotonic() < until:
            time.sleep(0.02)
        stopping = seconds(lambda: proxy.stop())
        thread.join(PATIENCE)
    assert proxy.process.returncode == 0
    assert stopping < 2.5 * DELAY  # one second is given to clients anyway
