"""Cancelling: the second connection with the secret key, and what it stops."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from proxies import Proxy, charges, forget, scans_held, scans_waiting
from psycopg import errors
from raw_wire import Ended, Wire, sqlstates

from proxy import messages as m

COUNTS = "SELECT gender, count(*) FROM patient_data GROUP BY gender ORDER BY 1"


@contextmanager
def held_up(upstream: str) -> Iterator[None]:
    """Questions are charged and then wait for their data, of which nothing was released yet."""
    forget(upstream)
    with scans_held(upstream):
        yield


def when(true: Callable[[], bool]) -> None:
    """Wait until something is so."""
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.01)


def reading(upstream: str) -> bool:
    """Whether a question waits for its data."""
    return len(scans_waiting(upstream)) == 1


def cancel_later(conn: psycopg.Connection, condition: Callable[[], bool]) -> threading.Thread:
    def work() -> None:
        when(condition)
        conn.cancel()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def sleeping(shadow: str, analyst: str) -> bool:
    with psycopg.connect(shadow) as conn:
        query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND usename = %s"
        return conn.execute(query, (analyst,)).fetchone() == (1,)


def test_a_statement_on_the_shadow_is_cancelled(session: psycopg.Connection, analyst: str, shadow_server) -> None:  # type: ignore[no-untyped-def]
    thread = cancel_later(session, lambda: sleeping(shadow_server.admin_dsn, analyst))
    with pytest.raises(errors.QueryCanceled):
        session.execute("SELECT pg_sleep(60)")
    thread.join()
    assert session.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("by", ["simple", "extended", "script"])
def test_a_question_is_cancelled_and_stays_paid(
    session: psycopg.Connection, upstream: str, analyst: str, by: str
) -> None:
    with held_up(upstream):
        thread = cancel_later(session, lambda: reading(upstream))
        with pytest.raises(errors.QueryCanceled):
            match by:
                case "simple":
                    session.execute(COUNTS)
                case "extended":
                    session.execute(COUNTS, prepare=True)
                case _:
                    session.execute(f"SELECT 1; {COUNTS}; SELECT 2")
        thread.join()
        when(lambda: not reading(upstream))  # the protected database has stopped too
    assert len(charges(upstream, analyst)) == 1
    assert session.execute("SELECT 1").fetchone() == (1,)
    assert session.execute(COUNTS).fetchall()


def test_a_cancelled_question_fails_its_transaction(proxy: Proxy, upstream: str, analyst: str) -> None:
    with proxy.connect(analyst, autocommit=False) as conn:
        conn.execute("SELECT 1")
        with held_up(upstream):
            thread = cancel_later(conn, lambda: reading(upstream))
            with pytest.raises(errors.QueryCanceled):
                conn.execute(COUNTS)
            thread.join()
        with pytest.raises(errors.InFailedSqlTransaction):
            conn.execute("SELECT 1")
        conn.rollback()
        assert conn.execute(COUNTS).fetchall()


def test_a_client_that_leaves_stops_its_question(proxy: Proxy, upstream: str, analyst: str) -> None:
    with held_up(upstream):
        with Wire(proxy.port) as wire:
            wire.login(analyst, proxy.database).send(m.encode_query(COUNTS))
            when(lambda: reading(upstream))
        when(lambda: not reading(upstream))
    assert len(charges(upstream, analyst)) == 1


def knock(proxy: Proxy, pid: int, key: bytes) -> None:
    """A cancel request; whatever it says, the answer is silence."""
    with Wire(proxy.port) as wire:
        wire.send(m.encode_cancel(pid, key))
        with pytest.raises(Ended):
            wire.frame()


@pytest.mark.parametrize("minor", [0, 2])
def test_only_the_right_key_cancels(proxy: Proxy, analyst: str, shadow_server, minor: int) -> None:  # type: ignore[no-untyped-def]
    with Wire(proxy.port) as wire:
        wire.login(analyst, proxy.database, minor=minor)  # type: ignore[arg-type]
        wire.send(m.encode_query("SELECT pg_sleep(60)"))
        when(lambda: sleeping(shadow_server.admin_dsn, analyst))
        wrong = bytes([wire.key[0] ^ 1]) + wire.key[1:]
        for pid, key in ((wire.pid, wrong), (wire.pid, wire.key + b"\0"), (wire.pid ^ 1, wire.key)):
            knock(proxy, pid, key)
        with pytest.raises(TimeoutError):
            wire.until(m.READY_FOR_QUERY, 0.3)
        knock(proxy, wire.pid, wire.key)
        assert sqlstates(wire.until(m.READY_FOR_QUERY)) == ["57014"]
        knock(proxy, wire.pid, wire.key)  # idle: nothing happens
        assert sqlstates(wire.query("SELECT 1")) == []


def test_a_cancel_request_of_an_odd_length_is_no_harm(proxy: Proxy, analyst: str) -> None:
    with Wire(proxy.port) as wire:
        wire.send(struct.pack(">III", 12, m.CANCEL_CODE, 1))
        assert sqlstates(wire.the_rest()) == ["08P01"]
    with proxy.connect(analyst) as conn:
        assert conn.execute("SELECT 1").fetchone() == (1,)
