"""Statements that are parsed each time, and results in binary, as drivers ask for them: told at once, too, and the
unnamed statement is there afterwards, or not, as it would be otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from proxies import Proxy, new_analyst, running_proxy
from raw_wire import Frame, Wire, sqlstates
from test_express import Client, rows

from proxy import messages as m

SCHEMA = """
CREATE TABLE kinds (id int PRIMARY KEY, s smallint, i int, b bigint, t text, v varchar);
INSERT INTO kinds SELECT n, n % 3 - 1, n % 4 - 2, n % 2 * 5000000000, (ARRAY['x', 'ä €', ''])[1 + n % 3], 'v' || n % 2
FROM generate_series(1, 300) n;
SELECT provenance.protect('kinds');
SELECT provenance.declare_attribute('kinds', 's', lower => -1, upper => 1, step => 1);
SELECT provenance.declare_attribute('kinds', 'i', lower => -2, upper => 1, step => 1);
SELECT provenance.declare_attribute('kinds', 'b', members => ARRAY['0', '5000000000']);
SELECT provenance.declare_attribute('kinds', 't', members => ARRAY['x', 'ä €', '']);
SELECT provenance.declare_attribute('kinds', 'v', members => ARRAY['v0', 'v1']);
SELECT provenance.register_view('kinds', '{s,i}');
SELECT provenance.register_view('kinds', '{s,b}');
SELECT provenance.register_view('kinds', '{s,t}');
SELECT provenance.register_view('kinds', '{s,v}');
"""
ONE = "SELECT count(*) FROM kinds WHERE s >= 0"
SOME = "SELECT count(*) FROM kinds WHERE s >= $1"
EACH = ("s", "i", "b", "t", "v")
NO_STATEMENT, VIOLATION = "26000", "08P01"
DESCRIBE, EXECUTE, SYNC = m.encode_describe(m.PORTAL, ""), m.encode_execute(""), m.encode_sync()


@pytest.fixture(scope="module")
def house(new_upstream: Callable[[], str], shadow_server, tmp_path_factory) -> Iterator[Proxy]:  # type: ignore[no-untyped-def]
    upstream = new_upstream()
    with psycopg.connect(upstream, autocommit=True) as owner:
        owner.execute(SCHEMA)
    log = tmp_path_factory.mktemp("unnamed") / "proxy.log"
    with running_proxy(upstream, shadow_server.admin_dsn, log) as running:
        yield running


@pytest.fixture(scope="module")
def analyst(house: Proxy) -> str:
    """Somebody who knows the views."""
    name = new_analyst(house.upstream)
    with house.connect(name, options="-c veil.margin=10u") as conn:
        for key in EACH[1:]:
            conn.execute(f"SELECT s, {key}, count(*) FROM kinds GROUP BY s, {key}".encode())
    return name


@pytest.fixture
def client(house: Proxy, analyst: str, shadow_server) -> Iterator[Client]:  # type: ignore[no-untyped-def]
    with Wire(house.port) as wire:
        client = Client(wire.login(analyst, house.database, options="-c veil.margin=500u"), shadow_server.admin_dsn)
        with client.shadow:
            yield client


def parsed(text: str, oids: tuple[int, ...] = (), described: bool = True, **bound: Any) -> list[bytes]:
    """A batch as drivers send it."""
    described_ = [DESCRIBE] if described else []
    return [m.encode_parse("", text, oids), m.encode_bind("", "", **bound), *described_, EXECUTE, SYNC]


def told(client: Client, *messages: bytes) -> list[Frame]:
    """The answer at once, after it was known."""
    for _ in range(4):
        frames, at_once = client.ask(*messages)
        assert not sqlstates(frames)
        if at_once:
            return frames
    raise AssertionError("the shadow was asked")


def usually(client: Client, *messages: bytes) -> list[Frame]:
    client.wire.query("SET application_name = 'other'")
    frames, at_once = client.ask(*messages)
    assert not at_once
    return frames


@pytest.mark.parametrize("described", [True, False])
@pytest.mark.parametrize(
    ("text", "oids", "bound"),
    [
        (ONE, (), {}),
        (f"{ONE} ;\n", (), {}),
        (SOME, (), {"values": (b"0",)}),
        (SOME, (23,), {"values": (b"\0\0\0\1",), "formats": (1,)}),
        (SOME, (20,), {"values": (b"1",), "formats": (0,), "result_formats": (1,)}),
        ("SELECT t, count(*) FROM kinds WHERE s < $1 GROUP BY t", (), {"values": (b"1",), "result_formats": (0, 1)}),
    ],
)
def test_it_is_what_the_usual_way_sends(
    client: Client, text: str, oids: tuple[int, ...], bound: dict[str, Any], described: bool
) -> None:
    batch = parsed(text, oids, described, **bound)
    assert told(client, *batch) == usually(client, *batch)


@pytest.mark.parametrize("formats", [(), (0,), (1,), (0, 0), (1, 1), (0, 1), (1, 0)])
@pytest.mark.parametrize("key", EACH)
def test_each_type_is_sent_in_binary_as_postgresql_sends_it(client: Client, key: str, formats: tuple[int, ...]) -> None:
    batch = parsed(f"SELECT {key}, count(*) FROM kinds WHERE s >= 0 GROUP BY {key}", result_formats=formats)
    frames = told(client, *batch)
    assert frames == usually(client, *batch) and rows(frames)
    client.ask(m.encode_parse("known", f"SELECT {key}, count(*) FROM kinds GROUP BY {key}"), SYNC)
    named = m.encode_bind("", "known", result_formats=formats), DESCRIBE, EXECUTE, SYNC
    assert told(client, *named) == usually(client, *named)


def test_other_parameters_are_told_at_once_too(client: Client) -> None:
    for value in (b"0", b"1", b"-1"):
        batch = parsed(SOME, values=(value,), result_formats=(1,))
        assert told(client, *batch) == usually(client, *batch)
    blank = parsed(SOME, values=(b" 1",), result_formats=(1,))
    told(client, *parsed(SOME, values=(b"1",), result_formats=(1,)))
    frames, at_once = client.ask(*blank)
    assert not at_once and not sqlstates(frames), "a blank is for PostgreSQL to read"


@pytest.mark.parametrize(
    ("batch", "sqlstate"),
    [
        (parsed(SOME, values=()), VIOLATION),
        (parsed(SOME, values=(b"1", b"2")), VIOLATION),
        (parsed(SOME, values=(b"1",), result_formats=(0, 0)), VIOLATION),
        (parsed(SOME, values=(b"1",), result_formats=(2,)), "22023"),
        (parsed(SOME, values=(b"1",), formats=(3,)), "22023"),
        (parsed(SOME, values=(b"x",)), "22P02"),
        (parsed(SOME, (23,), values=(b"\0\0",), formats=(1,)), "08P01"),
        (parsed(SOME, (999999,), values=(b"1",)), "XX000"),
        (parsed(SOME, (16,), values=(b"1",)), "42883"),
        (parsed(f"{SOME}; {SOME}", values=(b"1",)), "42601"),
        ([m.encode_parse("", SOME), m.encode_bind("", "other", (), (b"1",)), EXECUTE, SYNC], NO_STATEMENT),
    ],
)
def test_what_is_wrong_is_refused_as_ever(client: Client, batch: list[bytes], sqlstate: str) -> None:
    for oids in ((), (23,)):
        told(client, *parsed(SOME, oids, values=(b"1",)))
    frames, at_once = client.ask(*batch)
    assert not at_once and sqlstates(frames) == [sqlstate] and frames == usually(client, *batch)


@pytest.mark.parametrize(
    ("left_out", "why"),
    [
        (f'SELECT count(*) AS "{"n" * 64}" FROM kinds WHERE s >= 0', "PostgreSQL says that it cuts the name"),
        (f"{ONE} /* veil.margni */", "it may be a setting that somebody has set"),
        (f"{ONE} -- \\", "PostgreSQL may warn"),
    ],
)
def test_what_postgresql_may_have_something_to_say_about_is_read_by_it(client: Client, left_out: str, why: str) -> None:
    told(client, *parsed(ONE))
    for _ in range(3):
        frames, at_once = client.ask(*parsed(left_out))
        assert not at_once and not sqlstates(frames), why
        client.ask(*parsed(ONE))
    for _ in range(3):
        frames, _ = client.query(left_out)
    assert frames == client.usually(left_out)


AGAIN = m.encode_bind("", "", (), (b"1",)), DESCRIBE, EXECUTE, SYNC
SHOW = m.encode_describe(m.STATEMENT, ""), SYNC
CLOSE = m.encode_close(m.STATEMENT, ""), SYNC
LATER: dict[str, list[tuple[bytes, ...]]] = {
    "it is bound again": [AGAIN, AGAIN],
    "it is described": [SHOW, AGAIN],
    "it is closed": [CLOSE, AGAIN, SHOW],
    "a portal is closed": [(m.encode_close(m.PORTAL, ""), SYNC), AGAIN],
    "something else is executed": [(m.encode_bind("", "other"), EXECUTE, SYNC), AGAIN],
    "something else fails": [(m.encode_bind("", "nobody"), EXECUTE, SYNC), AGAIN, SHOW],
    "something else is parsed": [(m.encode_parse("more", "SELECT 1"), SYNC), AGAIN],
    "another takes its place": [tuple(parsed("SELECT 7")), (m.encode_bind("", ""), EXECUTE, SYNC), AGAIN],
    "another fails to": [tuple(parsed("SELECT nothing")), AGAIN, SHOW],
    "nothing comes of it": [(SYNC,), (m.encode_flush(), SYNC), AGAIN],
    "all are deallocated": [(m.encode_bind("", "all"), EXECUTE, SYNC), AGAIN],
    "names mean something else": [(m.encode_bind("", "path"), EXECUTE, SYNC), AGAIN, SHOW],
    "a transaction fails": [
        (m.encode_bind("", "begin"), EXECUTE, m.encode_bind("", "wrong"), EXECUTE, SYNC),
        (m.encode_bind("", "rollback"), EXECUTE, SYNC),
        AGAIN,
    ],
    "a simple question": [(m.encode_query(ONE),), AGAIN, SHOW],
    "simple questions": [(m.encode_query(ONE),), (m.encode_query(ONE),), SHOW, AGAIN],
    "a script": [(m.encode_query(f"SELECT 1; {ONE}"),), (m.encode_bind("", ""), EXECUTE, SYNC), SHOW],
    "a simple query": [(m.encode_query("SELECT 1"),), AGAIN, SHOW],
    "a simple query that fails": [(m.encode_query("SELECT"), m.encode_query("SELEC")), SHOW],
    "an unfinished batch": [(*AGAIN[:2], *AGAIN), (m.encode_bind("", "other"), EXECUTE, *AGAIN)],
}
PREPARED = {
    "other": "SELECT 5",
    "all": "DEALLOCATE ALL",
    "path": "SET search_path = pg_catalog",
    "begin": "BEGIN",
    "wrong": "SELECT 1/(SELECT 0)",
    "rollback": "ROLLBACK",
}


@pytest.mark.parametrize("later", LATER)
def test_what_comes_later_finds_the_unnamed_statement_as_ever(client: Client, later: str) -> None:
    """Once behind an answer that was told at once, once behind the same answer by the usual way."""
    heard = []
    for known in (True, False):
        client.wire.query("DISCARD ALL")
        client.wire.query("SET veil.margin = '500u'")
        for name, text in PREPARED.items():
            client.ask(m.encode_parse(name, text), SYNC)
        batch = parsed(SOME, values=(b"1",))
        found = [told(client, *batch) if known else client.ask(*batch)[0]]
        for messages in LATER[later]:
            found.append(client.ask(*messages)[0])
            for _ in range(sum(each[0] in (m.QUERY, m.SYNC) for each in messages) - 1):
                found.append(client.wire.until(m.READY_FOR_QUERY))
        heard.append([[frame for frame in each if frame[0] != m.PARAMETER_STATUS] for each in found])
    assert heard[0] == heard[1]


def test_a_simple_question_ends_the_unnamed_statement(client: Client) -> None:
    told(client, *parsed(SOME, values=(b"1",)))
    told(client, m.encode_query(ONE))
    assert sqlstates(client.ask(*AGAIN)[0]) == [NO_STATEMENT]
    for text in (ONE, f"SELECT 1; {ONE}", f"{ONE}; SELECT 1"):
        client.ask(*parsed(SOME, values=(b"1",)))
        assert not sqlstates(client.query(text)[0])
        assert sqlstates(client.ask(*AGAIN)[0]) == [NO_STATEMENT]


def test_what_the_shadow_is_owed_is_nobody_elses_error(client: Client, shadow_server) -> None:  # type: ignore[no-untyped-def]
    """The statement cannot be parsed any more, though it was told: what comes next is not refused for that."""
    (database,) = rows(client.wire.query("SELECT current_database()"))[0]
    client.ask(m.encode_parse("other", "SELECT 5"), SYNC)
    other = m.encode_bind("", "other"), EXECUTE, SYNC
    with psycopg.connect(shadow_server.admin_dsn, dbname=(database or b"").decode(), autocommit=True) as shadow:
        told(client, *parsed(ONE))
        shadow.execute("ALTER TABLE kinds RENAME TO gone")
        try:
            frames, _ = client.ask(*other)
            assert rows(frames) == [[b"5"]] and not sqlstates(frames)
            assert sqlstates(client.ask(m.encode_bind("", ""), EXECUTE, SYNC)[0]) == [NO_STATEMENT]
        finally:
            shadow.execute("ALTER TABLE gone RENAME TO kinds")
    assert not sqlstates(client.ask(*parsed(ONE))[0])
    assert rows(client.ask(*other)[0]) == [[b"5"]]


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("prepare", [False, True])
def test_psycopg_is_told_at_once(house: Proxy, analyst: str, shadow_server, binary: bool, prepare: bool) -> None:  # type: ignore[no-untyped-def]
    heard = "SELECT state_change FROM pg_stat_activity WHERE pid = %s"
    with (
        house.connect(analyst, options="-c veil.margin=500u") as conn,
        psycopg.connect(shadow_server.admin_dsn, autocommit=True) as shadow,
    ):
        (pid,) = conn.execute("SELECT pg_backend_pid()").fetchone() or (0,)
        text = "SELECT t, count(*) FROM kinds WHERE s >= %s GROUP BY t"
        plain = conn.execute(text, (0,), prepare=prepare, binary=binary).fetchall()
        for _ in range(3):
            assert conn.execute(text, (0,), prepare=prepare, binary=binary).fetchall() == plain
            before = shadow.execute(heard, (pid,)).fetchall()
            assert conn.execute(text, (0,), prepare=prepare, binary=binary).fetchall() == plain
            if shadow.execute(heard, (pid,)).fetchall() == before:
                return
    raise AssertionError("the shadow was asked")
