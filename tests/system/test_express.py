"""What is known is told at once, without the shadow: byte for byte what the usual way sends, and never out of date."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from proxies import Proxy, new_analyst, running_proxy
from raw_wire import Frame, Wire, sqlstates

from proxy import messages as m

RANGE = "SELECT count(*) FROM patient_data WHERE age BETWEEN {} AND {}"
BY_GENDER = 'SELECT gender AS "who ""is"" it", count(*), count(*) AS again FROM patient_data WHERE age < {} GROUP BY 1'
DECISION = "SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 100"
NUMBERS = "SELECT gender, count(*) FROM patient_data GROUP BY gender"
TOLD = (RANGE.format(20, 39), BY_GENDER.format(40), DECISION, NUMBERS, f"{NUMBERS} ;")
USUAL = (
    f"{NUMBERS} ORDER BY gender",
    "SELECT avg(age) FROM patient_data",
    "SELECT count(*) * 2 FROM patient_data",
    "SELECT DISTINCT count(*) FROM patient_data",
    "SELECT count(*)::int FROM patient_data",
    "SELECT gender, count(*), now() > '2000-01-01' FROM patient_data GROUP BY gender",
    "SELECT count(*) FROM patient_data LIMIT 1",
    "SELECT count(*) FROM patient_data WHERE age > extract(year FROM current_date) - 1990",
)
REGISTER = """
SELECT provenance.register_view('patient_data', '{age}');
SELECT provenance.register_view('patient_data', '{age,gender}');
"""


@pytest.fixture(scope="module")
def house(new_upstream: Callable[[], str], shadow_server, tmp_path_factory) -> Iterator[Proxy]:  # type: ignore[no-untyped-def]
    upstream = new_upstream()
    with psycopg.connect(upstream, autocommit=True) as owner:
        owner.execute(
            "SELECT provenance.declare_attribute('patient_data', 'age', lower => '0', upper => '120', step => '1')"
        )
        owner.execute(REGISTER)
    log = tmp_path_factory.mktemp("express") / "proxy.log"
    program = (str(Path(__file__).parent / "believing.py"),)
    with running_proxy(upstream, shadow_server.admin_dsn, log, program=program) as running:
        yield running


class Client:
    """A raw client that knows whether the shadow has heard of it."""

    def __init__(self, wire: Wire, shadow: str) -> None:
        self.wire = wire
        self.shadow = psycopg.connect(shadow, autocommit=True)
        self.pid = int(m.decode_data_row(self.wire.query("SELECT pg_backend_pid()")[1][1])[0] or 0)

    def heard(self) -> Any:
        """Changes with whatever the shadow is told in this session."""
        row = self.shadow.execute(
            "SELECT state_change, query_start FROM pg_stat_activity WHERE pid = %s", (self.pid,)
        ).fetchone()
        assert row is not None
        return row

    def ask(self, *messages: bytes) -> tuple[list[Frame], bool]:
        """The answer up to ReadyForQuery, and whether it was told without the shadow."""
        before = self.heard()
        self.wire.send(*messages)
        found = self.wire.until(m.READY_FOR_QUERY)
        return found, self.heard() == before

    def query(self, text: str) -> tuple[list[Frame], bool]:
        return self.ask(m.encode_query(text))

    def told(self, text: str) -> list[Frame]:
        """The answer at once; it was answered at no cost before."""
        for _ in range(3):
            frames, at_once = self.query(text)
            assert not sqlstates(frames)
            if at_once:
                return frames
        raise AssertionError(f"the shadow was asked: {text}")

    def usually(self, text: str) -> list[Frame]:
        """The answer by the usual way: something else was said before."""
        self.wire.query("SET application_name = 'other'")
        frames, at_once = self.query(text)
        assert not at_once
        return frames


@pytest.fixture
def client(house: Proxy, shadow_server) -> Iterator[Client]:  # type: ignore[no-untyped-def]
    analyst = new_analyst(house.upstream)
    with Wire(house.port) as wire:
        client = Client(wire.login(analyst, house.database), shadow_server.admin_dsn)
        wire.query("SET veil.margin = '10u'")
        for learn in ("SELECT age, count(*) FROM patient_data GROUP BY age", NUMBERS, DECISION):
            assert not sqlstates(wire.query(learn))
        wire.query("SET veil.margin = '1000u'")
        for learn in (NUMBERS, DECISION, "SELECT age, gender, count(*) FROM patient_data GROUP BY age, gender"):
            assert not sqlstates(wire.query(learn))
        client.analyst = analyst  # type: ignore[attr-defined]
        with client.shadow:
            yield client


@pytest.fixture
def owner(house: Proxy) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(house.upstream, autocommit=True) as conn:
        yield conn


def bill(frames: list[Frame]) -> dict[str, Any]:
    (notice,) = [m.decode_fields(frame) for kind, frame in frames if kind == m.NOTICE_RESPONSE]
    found: dict[str, Any] = json.loads(notice["D"])
    return found


def rows(frames: list[Frame]) -> list[list[bytes | None]]:
    return [m.decode_data_row(frame) for kind, frame in frames if kind == m.DATA_ROW]


@pytest.mark.parametrize("text", TOLD)
def test_it_is_what_the_usual_way_sends(client: Client, text: str) -> None:
    client.query(text)
    told = client.told(text)
    assert told == client.usually(text) and bill(told)["reused"]


@pytest.mark.parametrize("text", USUAL)
def test_whatever_postgresql_has_to_finish_is_finished_by_it(client: Client, text: str) -> None:
    for _ in range(4):
        frames, at_once = client.query(text)
        assert not sqlstates(frames) and not at_once


def test_other_constants_are_told_at_once_too(client: Client) -> None:
    client.told(RANGE.format(20, 39))
    for low, high in ((0, 99), (7, 7), (0, 120), (64, 200), (30, 12)):
        text = RANGE.format(low, high)
        frames, at_once = client.query(text)
        assert at_once is (low <= high)  # of no cells nothing is known
        if at_once:
            assert frames == client.usually(text)
            client.told(RANGE.format(20, 39))


def test_a_prepared_statement_is_told_at_once(client: Client) -> None:
    batch = [
        m.encode_bind("", "known", (), (b"20", b"39")),
        m.encode_describe(m.PORTAL, ""),
        m.encode_execute(""),
        m.encode_sync(),
    ]
    client.ask(m.encode_parse("known", RANGE.format("$1", "$2")), m.encode_sync())
    answers = [client.ask(*batch) for _ in range(4)]
    assert [at_once for _, at_once in answers][-1] is True
    for frames, _ in answers[1:]:
        assert frames == answers[1][0]
    other = m.encode_bind("", "known", (), (b"21", b"44"))
    frames, at_once = client.ask(other, *batch[1:])
    assert at_once and rows(frames) == rows(client.usually(RANGE.format(21, 44)))
    client.ask(*batch)
    undescribed, at_once = client.ask(batch[0], *batch[2:])
    assert at_once and undescribed == [frame for frame in answers[1][0] if frame[0] != m.ROW_DESCRIPTION]
    for unlike in (
        [m.encode_bind("", "known", (), (None, b"39")), *batch[1:]],
        [*batch[:2], m.encode_execute("", 5), batch[3]],
        [m.encode_bind("named", "known", (), (b"20", b"39")), m.encode_execute("named"), batch[3]],
    ):
        frames, at_once = client.ask(*unlike)
        assert not at_once and not sqlstates(frames)
    frames, _ = client.ask(m.encode_bind("", "known", (), (b"20",)), *batch[1:])
    assert sqlstates(frames) == ["08P01"]


def test_what_was_deallocated_is_gone(client: Client) -> None:
    batch = m.encode_bind("", "gone"), m.encode_execute(""), m.encode_sync()
    client.ask(m.encode_parse("gone", RANGE.format(20, 39)), m.encode_sync())
    for _ in range(3):
        frames, at_once = client.ask(*batch)
    assert at_once and not sqlstates(frames)
    client.wire.query("DEALLOCATE gone")
    client.told(RANGE.format(20, 39))
    frames, at_once = client.ask(*batch)
    assert not at_once and sqlstates(frames) == ["26000"]


def test_who_talks_ahead_is_answered_in_order(client: Client) -> None:
    one, two = RANGE.format(20, 39), RANGE.format(10, 50)
    wanted = client.told(one), client.told(two)
    expected = [*wanted[0], *client.wire.query("SELECT 7"), *wanted[1], *wanted[0]]
    client.told(one)
    texts = (one, "SELECT 7", two, one)
    client.wire.send(*(m.encode_query(text) for text in texts))
    found = [frame for _ in texts for frame in client.wire.until(m.READY_FOR_QUERY)]
    assert found == expected
    client.told(one)
    for byte in m.encode_query(two) + m.encode_query(one):
        client.wire.send(bytes((byte,)))
    assert [frame for _ in range(2) for frame in client.wire.until(m.READY_FOR_QUERY)] == [*wanted[1], *wanted[0]]


@pytest.mark.parametrize("way", ["simple", "bound"])
def test_in_a_transaction_the_shadow_is_asked(client: Client, way: str) -> None:
    text = RANGE.format(20, 39)
    client.ask(m.encode_parse("known", text), m.encode_sync())
    batch = m.encode_bind("", "known"), m.encode_execute(""), m.encode_sync()
    for _ in range(3):
        client.ask(*batch)
    client.told(text)
    client.wire.query("BEGIN")
    frames, at_once = client.query(text) if way == "simple" else client.ask(*batch)
    assert not at_once and frames[-1] == (m.READY_FOR_QUERY, m.encode_ready_for_query(ord("T")))
    client.wire.query("SAVEPOINT here")
    client.wire.query("SET LOCAL veil.margin = 'wide'")
    assert sqlstates(client.query(text)[0]) == ["22023"]
    client.wire.query("ROLLBACK TO here")
    assert not sqlstates(client.query(text)[0])
    client.wire.query("ROLLBACK")
    assert client.told(text)


CHANGES = {
    "SET veil.margin = 'wide'": ["22023"],
    "SET search_path = pg_catalog": ["42P01"],
    "SELECT set_config('veil.margin', 'wide', false)": ["22023"],
    "DO $$ BEGIN PERFORM set_config('search_path', 'pg_catalog', false); END $$": ["42P01"],
    "CREATE TEMP TABLE patient_data (age int)": [],
    "SET client_encoding = 'LATIN1'": [],
    "SET client_min_messages = warning": [],
    "SET veil.margni = 1": ["22023"],
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_the_session_is_noticed(client: Client, change: str) -> None:
    text = RANGE.format(20, 39)
    known = client.told(text)
    client.wire.query(change)
    frames, at_once = client.query(text)
    assert not at_once and sqlstates(frames) == CHANGES[change]
    assert frames != known or "LATIN1" in change


def test_a_function_call_in_a_batch_is_noticed(client: Client) -> None:
    text = RANGE.format(20, 39)
    client.told(text)
    change = "SELECT set_config('veil.margin', 'wide', false)"
    client.ask(m.encode_parse("", change), m.encode_bind("", ""), m.encode_execute(""), m.encode_sync())
    assert sqlstates(client.query(text)[0]) == ["22023"]


def test_who_is_not_active_any_more_is_refused(client: Client, owner: psycopg.Connection[Any]) -> None:
    text, name = RANGE.format(20, 39), client.analyst  # type: ignore[attr-defined]
    client.told(text)
    owner.execute("UPDATE provenance.analyst SET active = false WHERE name = %s", (name,))
    assert sqlstates(client.query(text)[0])
    owner.execute("UPDATE provenance.analyst SET active = true WHERE name = %s", (name,))
    assert client.told(text)


@pytest.mark.parametrize("text", [RANGE.format(20, 39), NUMBERS])
def test_new_data_make_another_question(client: Client, owner: psycopg.Connection[Any], text: str) -> None:
    client.told(text)
    owner.execute("SELECT provenance.refresh('patient_data')")
    frames, at_once = client.query(text)
    assert not at_once and not bill(frames)["reused"]


def test_a_limit_that_changes_is_told_in_the_next_bill(client: Client, owner: psycopg.Connection[Any]) -> None:
    text, name = RANGE.format(20, 39), client.analyst  # type: ignore[attr-defined]
    before = bill(client.told(text))["remaining_epsilon"]
    owner.execute("UPDATE provenance.analyst SET epsilon_limit = 3 WHERE name = %s", (name,))
    frames, at_once = client.query(text)
    assert at_once and bill(frames)["remaining_epsilon"] != before


def test_an_answer_that_was_stored_meanwhile_is_shown(client: Client, house: Proxy) -> None:
    """Elsewhere the same question is paid for; the same numbers are shown everywhere from then on."""
    text, name = RANGE.format(20, 39), client.analyst  # type: ignore[attr-defined]
    client.told(text)
    with house.connect(name) as other:
        other.execute("SET veil.margin = '10u'")
        other.execute("SELECT count(*) FROM patient_data WHERE gender = 'female'")
    assert client.query(text)[0][:1] != []
    assert rows(client.told(text)) == rows(client.usually(text))


def test_another_analyst_is_told_nothing_of_it(client: Client, house: Proxy) -> None:
    text = RANGE.format(20, 39)
    client.told(text)
    with Wire(house.port) as wire:
        wire.login(new_analyst(house.upstream), house.database)
        wire.query("SET veil.margin = '1000u'")
        assert not bill(wire.query(text))["reused"]


def test_a_proxy_whose_ledger_restarts_goes_on(
    new_upstream: Callable[[], str],
    shadow_server,
    tmp_path: Path,  # type: ignore[no-untyped-def]
) -> None:
    """The connection for looks is lost: the pool is asked, and the next look has a new one."""
    upstream = new_upstream()
    with running_proxy(upstream, shadow_server.admin_dsn, tmp_path / "proxy.log") as proxy:
        name = new_analyst(upstream)
        with proxy.connect(name) as conn, psycopg.connect(upstream, autocommit=True) as owner:
            known = conn.execute(NUMBERS.encode()).fetchall()
            for _ in range(5):
                assert conn.execute(NUMBERS.encode()).fetchall() == known
                # Until they are gone: one that ends in the middle of a question may well cost its answer.
                owner.execute(
                    "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
                    " WHERE pid <> pg_backend_pid() AND datname = current_database()"
                )
                assert conn.execute(NUMBERS.encode()).fetchall() == known
