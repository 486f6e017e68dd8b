"""What is told at once is what would be told otherwise: frame by frame, and never under settings that have changed."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import pytest
from proxies import Proxy
from raw_wire import Frame, Wire, sqlstates

from proxy import messages as m

OLD = "SELECT count(*) FROM patient_data WHERE age >= 60"
ELSEWHERE = "SET search_path = pg_catalog"
UNDEFINED, NO_STATEMENT, VIOLATION = "42P01", "26000", "08P01"


@pytest.fixture
def wire(proxy: Proxy, analyst: str) -> Iterator[Wire]:
    with Wire(proxy.port) as wire:
        wire.login(analyst, proxy.database)
        for _ in range(3):
            assert not sqlstates(wire.query(OLD))
        yield wire


def prepare(wire: Wire, name: str, text: str = OLD) -> None:
    wire.send(m.encode_parse(name, text), m.encode_sync())
    assert not sqlstates(wire.until(m.READY_FOR_QUERY))
    for _ in range(3):
        assert not sqlstates(executed(wire, name))


def executed(wire: Wire, name: str, described: bool = True, **bound: tuple[object, ...]) -> list[Frame]:
    asked = [m.encode_bind("", name, **bound)]  # type: ignore[arg-type]
    asked += [m.encode_describe(m.PORTAL, "")] if described else []
    wire.send(*asked, m.encode_execute(""), m.encode_sync())
    return wire.until(m.READY_FOR_QUERY)


def batch(text: str) -> tuple[bytes, ...]:
    return m.encode_parse("", text), m.encode_bind("", ""), m.encode_execute("")


def test_a_statement_on_its_way_may_change_what_the_next_one_means(wire: Wire) -> None:
    wire.send(m.encode_query(ELSEWHERE), m.encode_query(OLD))
    assert [kind for kind, _ in wire.until(m.READY_FOR_QUERY)] == [m.COMMAND_COMPLETE, m.READY_FOR_QUERY]
    assert sqlstates(wire.until(m.READY_FOR_QUERY)) == [UNDEFINED]


def test_answers_come_in_the_order_of_what_was_asked(wire: Wire) -> None:
    wire.send(m.encode_sync(), m.encode_query(OLD))
    assert [kind for kind, _ in wire.until(m.READY_FOR_QUERY)] == [m.READY_FOR_QUERY]
    assert not sqlstates(wire.until(m.READY_FOR_QUERY))


@pytest.mark.parametrize("forget", ["DEALLOCATE s", "DEALLOCATE ALL", "DISCARD PLANS"])
def test_what_forgets_may_be_followed_by_more(wire: Wire, forget: str) -> None:
    prepare(wire, "s")
    wire.query(OLD)
    assert not sqlstates(wire.query(f"{forget}; {ELSEWHERE}"))
    assert sqlstates(wire.query(OLD)) == [UNDEFINED]


def test_what_was_deallocated_is_gone(wire: Wire) -> None:
    prepare(wire, "s")
    prepare(wire, "t")
    assert not sqlstates(wire.query("DEALLOCATE s"))
    assert sqlstates(executed(wire, "s")) == [NO_STATEMENT]
    assert not sqlstates(executed(wire, "t"))
    assert not sqlstates(executed(wire, "t"))
    assert sqlstates(executed(wire, "s")) == [NO_STATEMENT]  # though the other one has the same text


def test_a_setting_of_an_open_batch_ends_with_it(wire: Wire) -> None:
    wire.send(*batch("SET LOCAL client_min_messages = error"), m.encode_flush())
    wire.until(m.COMMAND_COMPLETE)
    assert m.NOTICE_RESPONSE not in dict(wire.query(OLD))
    assert m.NOTICE_RESPONSE in dict(wire.query(OLD))


def test_an_open_batch_is_ended_by_a_question(wire: Wire, shadow_server) -> None:  # type: ignore[no-untyped-def]
    prepare(wire, "s")
    wire.send(m.encode_bind("", "s"), m.encode_execute(""), m.encode_flush())
    wire.until(m.COMMAND_COMPLETE)
    assert not sqlstates(wire.query(OLD))
    with psycopg.connect(shadow_server.admin_dsn) as clock:
        (moment,) = clock.execute("SELECT clock_timestamp()::text").fetchone() or ("",)
    late = f"SELECT now() > '{moment}'"  # the beginning of its transaction
    assert m.decode_data_row(dict(wire.query(late))[m.DATA_ROW]) == [b"t"]


@pytest.mark.parametrize("described", [True, False])
@pytest.mark.parametrize("text", [OLD, "SELECT gender, count(*) AS n FROM patient_data GROUP BY gender"])
def test_a_prepared_question_is_told_frame_by_frame_as_ever(wire: Wire, text: str, described: bool) -> None:
    prepare(wire, "s", text)
    at_once = executed(wire, "s", described)
    time.sleep(1.2)  # nothing is believed for that long
    assert executed(wire, "s", described) == at_once


@pytest.mark.parametrize("text", [OLD, 'SELECT gender AS "a ""b""", count(*), count(*) n FROM patient_data GROUP BY 1'])
def test_a_simple_question_is_told_frame_by_frame_as_ever(wire: Wire, text: str) -> None:
    for _ in range(3):
        at_once = wire.query(text)
    time.sleep(1.2)
    assert wire.query(text) == at_once


def test_formats_that_do_not_fit_are_refused(wire: Wire) -> None:
    prepare(wire, "s")
    assert sqlstates(executed(wire, "s", result_formats=(0, 0, 0))) == [VIOLATION]
    assert not sqlstates(executed(wire, "s", result_formats=(0,)))


def test_a_format_that_there_is_not_is_refused(wire: Wire) -> None:
    text = "SELECT count(*) FROM patient_data WHERE age >= $1"
    wire.query("SELECT age, count(*) FROM patient_data GROUP BY age")
    wire.send(m.encode_parse("s", text, (23,)), m.encode_sync())
    wire.until(m.READY_FOR_QUERY)
    ask = {"values": (b"\0\0\0\x3c",)}
    for _ in range(3):
        assert not sqlstates(executed(wire, "s", formats=(1,), **ask))
    assert sqlstates(executed(wire, "s", formats=(2,), **ask)) == ["22023"]


def test_a_batch_that_fails_leaves_the_portals_of_the_next_one_alone(wire: Wire) -> None:
    prepare(wire, "s")
    wrong = [m.encode_bind("", "s", values=(b"1",)), m.encode_execute(""), m.encode_sync()]
    wire.send(*wrong, m.encode_bind("", "s"))  # bound before the end of the first batch is heard of
    assert sqlstates(wire.until(m.READY_FOR_QUERY)) == [VIOLATION]
    wire.send(m.encode_execute(""), m.encode_sync())
    rows = [frame for kind, frame in wire.until(m.READY_FOR_QUERY) if kind == m.DATA_ROW]
    assert [len(m.decode_data_row(row)) for row in rows] == [1]


def test_a_portal_that_ended_with_its_batch_is_not_described_in_the_next_one(wire: Wire) -> None:
    prepare(wire, "s")
    wrong = [m.encode_bind("", "s", values=(b"1",)), m.encode_execute(""), m.encode_sync()]
    wire.send(*wrong, m.encode_describe(m.PORTAL, ""), m.encode_sync())  # before the end of the first batch is heard of
    assert sqlstates(wire.until(m.READY_FOR_QUERY)) == [VIOLATION]
    assert sqlstates(wire.until(m.READY_FOR_QUERY)) == ["34000"]


def test_a_statement_that_is_gone_comes_before_a_wrong_number_of_parameters(wire: Wire) -> None:
    prepare(wire, "s")
    wire.query("DEALLOCATE s")
    assert sqlstates(executed(wire, "s", values=(b"1",))) == [NO_STATEMENT]


def test_a_declared_parameter_must_be_bound_though_the_text_has_none(wire: Wire) -> None:
    wire.query("SELECT age, count(*) FROM patient_data GROUP BY age")
    for age in (60, 61, 62, 63):
        wire.query(OLD.replace("60", str(age)))
    wrong = m.encode_parse("", OLD.replace("60", "64"), (20,)), m.encode_bind("", ""), m.encode_execute("")
    wire.send(*wrong, m.encode_sync())
    assert sqlstates(wire.until(m.READY_FOR_QUERY)) == [VIOLATION]
