"""The extended protocol, byte by byte: statements and portals of questions behave as PostgreSQL's own."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from proxies import Proxy, charges, new_analyst
from raw_wire import Frame, Wire, errors, sqlstates

from proxy import messages as m

COUNTS = "SELECT gender, count(*) FROM patient_data GROUP BY gender ORDER BY 1"
DISEASES = "SELECT disease, count(*) AS n FROM patient_data GROUP BY disease ORDER BY disease"
ROWS = "SELECT * FROM patient_data"
WRONG = "SELECT 1/(SELECT 0)"  # when it is executed, not before
BEFORE, AFTER = "SELECT 'before'", "SELECT 'after'"
SYNC, FLUSH = m.encode_sync(), m.encode_flush()


@pytest.fixture
def wire(proxy: Proxy, analyst: str) -> Iterator[Wire]:
    with Wire(proxy.port) as one:
        yield one.login(analyst, proxy.database)


def parse(text: str, name: str = "", oids: tuple[int, ...] = ()) -> bytes:
    return m.encode_parse(name, text, oids)


def bind(portal: str = "", statement: str = "", *values: bytes | None, binary: bool = False) -> bytes:
    return m.encode_bind(portal, statement, (), values, (1,) if binary else ())


def whole(text: str, *values: bytes | None) -> bytes:
    """One statement, all the way, without a Sync."""
    return parse(text) + bind("", "", *values) + m.encode_describe(m.PORTAL, "") + m.encode_execute("")


def ask(wire: Wire, *data: bytes) -> list[Frame]:
    """A batch and its answer, up to ReadyForQuery."""
    wire.send(*data, SYNC)
    return wire.until(m.READY_FOR_QUERY)


def kinds(frames: list[Frame]) -> str:
    """The types of an answer, rows folded into one, notices left out."""
    said = "".join(chr(kind) for kind, _ in frames if kind != m.NOTICE_RESPONSE)
    while "DD" in said:
        said = said.replace("DD", "D")
    return said


def rows(frames: list[Frame]) -> list[tuple[bytes | None, ...]]:
    return [tuple(m.decode_data_row(frame)) for kind, frame in frames if kind == m.DATA_ROW]


def status(frames: list[Frame]) -> str:
    kind, frame = frames[-1]
    assert kind == m.READY_FOR_QUERY
    return chr(frame[5])


def columns(frames: list[Frame]) -> list[tuple[str, int, int]]:
    """Name, type and format of the columns described."""
    (frame,) = [frame for kind, frame in frames if kind == m.ROW_DESCRIPTION]
    return [(field.name, field.type_oid, field.format) for field in m.decode_row_description(frame)]


def test_an_unnamed_question_is_answered(wire: Wire) -> None:
    said = ask(wire, whole(COUNTS))
    assert kinds(said) == "12TDCZ" and len(rows(said)) > 1 and status(said) == "I"


def test_a_statement_can_be_described_before_it_is_bound(wire: Wire) -> None:
    said = ask(wire, parse(DISEASES, "d"), m.encode_describe(m.STATEMENT, "d"))
    assert kinds(said) == "1tTZ"
    assert columns(said) == [("disease", 25, 0), ("n", 20, 0)]


def test_a_portal_is_described_alike_before_and_after_it_is_executed(wire: Wire, proxy: Proxy, analyst: str) -> None:
    wire.query("BEGIN")
    described = m.encode_describe(m.PORTAL, "p")
    before = ask(wire, parse(DISEASES, "d"), bind("p", "d", binary=True), described)
    assert charges(proxy.upstream, analyst) == []  # Parse, Bind and Describe look at nothing
    after = ask(wire, m.encode_execute("p"), described)
    assert columns(before) == columns(after) == [("disease", 25, 1), ("n", 20, 1)]
    assert kinds(before) == "12TZ" and kinds(after) == "DCTZ"


def test_results_come_in_the_format_that_bind_chose(wire: Wire) -> None:
    as_text = rows(ask(wire, parse(COUNTS), bind(), m.encode_execute("")))
    in_binary = rows(ask(wire, parse(COUNTS), bind(binary=True), m.encode_execute("")))
    mixed = rows(ask(wire, parse(COUNTS), m.encode_bind("", "", (), (), (0, 1)), m.encode_execute("")))
    assert [(key, struct.pack(">q", int(n or b"0"))) for key, n in as_text] == in_binary == mixed


def test_formats_that_do_not_fit_are_refused_before_anything_is_paid(wire: Wire, proxy: Proxy, analyst: str) -> None:
    wrong = m.encode_bind("", "", (), (), (0, 0, 0))
    answer = ask(wire, parse(COUNTS), wrong, m.encode_execute(""))
    assert sqlstates(answer) == ["08P01"] and not charges(proxy.upstream, analyst)
    assert len(rows(ask(wire, whole(COUNTS)))) > 1


def test_a_question_fetched_in_pieces_is_answered_once(wire: Wire, proxy: Proxy, analyst: str) -> None:
    wire.query("BEGIN")
    first = ask(wire, parse(DISEASES, "d"), bind("p", "d"), m.encode_execute("p", 15))
    assert kinds(first) == "12DsZ" and len(rows(first)) == 15
    second = ask(wire, m.encode_execute("p", 15))
    last = ask(wire, m.encode_execute("p", 15), m.encode_execute("p", 15))
    assert kinds(second) == "DsZ" and kinds(last) == "DCCZ"
    assert len(charges(proxy.upstream, analyst)) == 1
    again = rows(ask(wire, whole(DISEASES)))
    assert rows(first) + rows(second) + rows(last) == again
    assert len(charges(proxy.upstream, analyst)) == 1


def test_a_flush_brings_the_answer_without_a_sync(wire: Wire) -> None:
    wire.send(whole(COUNTS), FLUSH)
    said = wire.until(m.COMMAND_COMPLETE)
    assert kinds(said) == "12TDC"
    wire.send(whole(BEFORE), FLUSH)
    assert rows(wire.until(m.COMMAND_COMPLETE)) == [(b"before",)]
    assert kinds(ask(wire)) == "Z"


def test_a_batch_around_a_question_comes_back_in_order(wire: Wire) -> None:
    said = ask(wire, whole(BEFORE), whole(COUNTS), whole("SELECT city FROM city LIMIT 1"), whole(AFTER))
    assert kinds(said) == "12TDC" * 4 + "Z"
    assert rows(said)[0] == (b"before",) and rows(said)[-1] == (b"after",)


def test_two_questions_in_one_batch_are_both_answered(wire: Wire, proxy: Proxy, analyst: str) -> None:
    said = ask(wire, whole(COUNTS), whole(DISEASES))
    assert kinds(said) == "12TDC12TDCZ"
    assert len(charges(proxy.upstream, analyst)) == 2


def test_a_refused_question_skips_to_sync(wire: Wire, proxy: Proxy, analyst: str) -> None:
    said = ask(wire, whole(BEFORE), whole(ROWS), whole(AFTER), whole(COUNTS))
    assert kinds(said) == "12TDC12TEZ" and sqlstates(said) == ["42501"] and status(said) == "I"
    assert charges(proxy.upstream, analyst) == []
    assert rows(ask(wire, whole(AFTER))) == [(b"after",)]


def test_an_error_before_a_question_keeps_it_from_being_asked(wire: Wire, proxy: Proxy, analyst: str) -> None:
    for _ in range(20):  # whether the error or the question is first here is a matter of luck
        said = ask(wire, whole(WRONG), whole(COUNTS), whole(AFTER))
        assert kinds(said) == "12TEZ" and sqlstates(said) == ["22012"]
    assert charges(proxy.upstream, analyst) == []
    assert kinds(ask(wire, whole(COUNTS))) == "12TDCZ"


def test_an_error_behind_a_question_does_not_take_its_answer_away(wire: Wire) -> None:
    said = ask(wire, whole(COUNTS), whole(WRONG), whole(AFTER))
    assert kinds(said) == "12TDC12TEZ"


def test_the_next_batch_may_be_sent_ahead(wire: Wire) -> None:
    wire.send(whole(ROWS), SYNC, whole(COUNTS), SYNC, whole(WRONG), SYNC, whole(AFTER), SYNC)
    said = [wire.until(m.READY_FOR_QUERY) for _ in range(4)]
    assert [kinds(each) for each in said] == ["12TEZ", "12TDCZ", "12TEZ", "12TDCZ"]


def test_simple_queries_may_be_sent_ahead(wire: Wire) -> None:
    wire.send(*(m.encode_query(text) for text in ("BEGIN", "TABLE city", COUNTS, WRONG, COUNTS, "ROLLBACK")))
    said = [wire.until(m.READY_FOR_QUERY) for _ in range(6)]
    assert [status(each) for each in said] == list("TTTEEI")
    assert [kinds(each) for each in said] == ["CZ", "TDCZ", "TDCZ", "TEZ", "EZ", "CZ"]


@pytest.mark.parametrize("text", [ROWS, "SELECT nosuch FROM patient_data", WRONG])
def test_the_status_after_an_error_is_native(wire: Wire, text: str) -> None:
    assert status(wire.query("BEGIN")) == "T"
    assert status(ask(wire, whole(COUNTS))) == "T"
    assert status(ask(wire, whole(text))) == "E"
    said = ask(wire, whole(COUNTS))
    assert sqlstates(said) == ["25P02"] and status(said) == "E"
    said = wire.query(COUNTS)
    assert sqlstates(said) == ["25P02"] and status(said) == "E"
    assert status(wire.query("COMMIT")) == "I"


def test_a_savepoint_outlives_a_refusal(wire: Wire) -> None:
    wire.query("BEGIN; CREATE TEMP TABLE kept AS SELECT 1; SAVEPOINT s")
    assert status(wire.query(ROWS)) == "E"
    assert status(wire.query("ROLLBACK TO s")) == "T"
    assert kinds(wire.query(COUNTS)) == "TDCZ"
    assert rows(wire.query("COMMIT; TABLE kept")) == [(b"1",)]


def test_a_portal_dies_with_its_transaction(wire: Wire, proxy: Proxy, analyst: str) -> None:
    ask(wire, parse(COUNTS, "q"), bind("p", "q"))
    said = ask(wire, m.encode_execute("p"))
    assert sqlstates(said) == ["34000"]
    wire.query("BEGIN")
    assert kinds(ask(wire, bind("p", "q"))) == "2Z"
    wire.query("COMMIT")
    assert sqlstates(ask(wire, m.encode_execute("p"))) == ["34000"]
    wire.query("BEGIN; SAVEPOINT s")
    ask(wire, bind("p", "q"))
    wire.query("ROLLBACK TO s")
    assert sqlstates(ask(wire, m.encode_execute("p"))) == ["34000"]
    assert charges(proxy.upstream, analyst) == []


def test_the_unnamed_portal_may_be_bound_again_and_a_named_one_not(wire: Wire) -> None:
    wire.query("BEGIN")
    said = ask(wire, parse(DISEASES, "d"), parse(COUNTS, "q"), bind("", "d"), bind("", "q"), m.encode_execute(""))
    assert kinds(said) == "1122DCZ" and len(rows(said)) < 10
    assert kinds(ask(wire, bind("p", "q"))) == "2Z"
    assert sqlstates(ask(wire, bind("p", "d"))) == ["42P03"]


def test_a_portal_keeps_its_question_when_its_statement_is_replaced(wire: Wire) -> None:
    wire.query("BEGIN")
    said = ask(wire, parse(DISEASES), bind("p"), parse(COUNTS), bind("r"), m.encode_describe(m.PORTAL, "p"))
    assert columns(said) == [("disease", 25, 0), ("n", 20, 0)]
    first, second = ask(wire, m.encode_execute("p")), ask(wire, m.encode_execute("r"))
    assert len(rows(first)) == 40 and 1 < len(rows(second)) < 10


def test_a_closed_statement_leaves_its_portals(wire: Wire) -> None:
    wire.query("BEGIN")
    ask(wire, parse(COUNTS, "q"), bind("p", "q"), m.encode_close(m.STATEMENT, "q"))
    assert kinds(ask(wire, m.encode_describe(m.PORTAL, "p"), m.encode_execute("p"))) == "TDCZ"
    assert sqlstates(ask(wire, bind("", "q"))) == ["26000"]


def test_a_closed_portal_is_gone(wire: Wire) -> None:
    wire.query("BEGIN")
    said = ask(wire, parse(COUNTS, "q"), bind("p", "q"), m.encode_close(m.PORTAL, "p"), m.encode_execute("p"))
    assert kinds(said) == "123EZ" and sqlstates(said) == ["34000"]


def test_a_parse_that_fails_changes_nothing(wire: Wire) -> None:
    ask(wire, parse(COUNTS, "q"), parse("SELECT 'plain'", "plain"))
    assert sqlstates(ask(wire, parse(DISEASES, "q"))) == ["42P05"]
    assert sqlstates(ask(wire, parse("SELECT 2", "q"))) == ["42P05"]
    assert sqlstates(ask(wire, parse(DISEASES, "plain"))) == ["42P05"]
    assert 1 < len(rows(ask(wire, bind("", "q"), m.encode_execute("")))) < 10
    assert rows(ask(wire, bind("", "plain"), m.encode_execute(""))) == [(b"plain",)]
    assert sqlstates(ask(wire, parse("SELECT nosuch FROM patient_data", "bad"))) == ["42703"]
    assert sqlstates(ask(wire, bind("", "bad"), m.encode_execute(""))) == ["26000"]


@pytest.mark.parametrize("forget", ["DEALLOCATE q", "DEALLOCATE ALL", "DISCARD ALL"])
def test_a_question_that_was_deallocated_is_gone(wire: Wire, forget: str) -> None:
    ask(wire, parse(COUNTS, "q"))
    wire.query(forget)
    assert sqlstates(ask(wire, bind("", "q"), m.encode_execute(""))) == ["26000"]
    assert kinds(ask(wire, parse(COUNTS, "q"), bind("", "q"), m.encode_execute(""))) == "12DCZ"


def test_parameters_reach_the_question(wire: Wire) -> None:
    text = "SELECT disease FROM patient_data WHERE gender = $1 GROUP BY disease HAVING count(*) > $2 ORDER BY 1"
    said = ask(wire, parse(text, "q"), m.encode_describe(m.STATEMENT, "q"))
    ((_, told),) = [frame for frame in said if frame[0] == m.PARAMETER_DESCRIPTION]
    assert m.decode_parameter_description(told) == (25, 20)
    as_text = rows(ask(wire, bind("", "q", b"female", b"1000"), m.encode_execute("")))
    values = (b"female", struct.pack(">q", 1000))
    in_binary = rows(ask(wire, m.encode_bind("", "q", (1,), values), m.encode_execute("")))
    assert as_text == in_binary and 0 < len(as_text) < 40


@pytest.mark.parametrize(
    ("values", "state"),
    [((b"female", b"many"), "22P02"), ((b"female",), "08P01"), ((b"female", b"1", b"2"), "08P01")],
)
def test_wrong_parameters_are_refused_and_the_session_goes_on(
    wire: Wire, proxy: Proxy, analyst: str, values: tuple[bytes, ...], state: str
) -> None:
    text = "SELECT disease FROM patient_data WHERE gender = $1 GROUP BY disease HAVING count(*) > $2"
    for _ in range(2):
        said = ask(wire, parse(text), bind("", "", *values), m.encode_execute(""))
        assert sqlstates(said) == [state] and status(said) == "I"
    assert charges(proxy.upstream, analyst) == []
    assert kinds(ask(wire, whole(COUNTS))) == "12TDCZ"


def test_a_script_inside_a_failed_batch_is_skipped(wire: Wire) -> None:
    for _ in range(10):
        wire.send(whole(WRONG), m.encode_query(COUNTS), m.encode_query(AFTER), SYNC)
        assert kinds(wire.until(m.READY_FOR_QUERY)) == "12TEZ"
        assert rows(wire.query(AFTER)) == [(b"after",)]


def test_a_copy_works_beside_a_prepared_question(wire: Wire) -> None:
    wire.query("CREATE TEMP TABLE t (a int)")
    ask(wire, parse(COUNTS, "q"))
    wire.query("BEGIN")
    ask(wire, bind("p", "q"))
    wire.send(whole("COPY t FROM STDIN"), SYNC)
    wire.until(m.COPY_IN_RESPONSE)
    wire.send(m.encode(m.COPY_DATA, b"1\n2\n"), m.encode(m.COPY_DONE), SYNC)
    assert kinds(wire.until(m.READY_FOR_QUERY)) == "CZ"
    assert rows(wire.query("SELECT count(*) FROM t")) == [(b"2",)]
    assert kinds(ask(wire, m.encode_execute("p"))) == "DCZ"


@pytest.mark.parametrize("simple", [True, False])
def test_a_copy_that_fails_leaves_the_session_usable(wire: Wire, simple: bool) -> None:
    wire.query("CREATE TEMP TABLE t (a int)")
    wire.send(m.encode_query("COPY t FROM STDIN") if simple else whole("COPY t FROM STDIN") + SYNC)
    wire.until(m.COPY_IN_RESPONSE)
    wire.send(m.encode(m.COPY_DATA, b"one\n"), m.encode(m.COPY_DATA, b"2\n"), m.encode(m.COPY_DONE))
    wire.send(b"" if simple else SYNC)
    said = wire.until(m.READY_FOR_QUERY)
    assert sqlstates(said) == ["22P02"] and status(said) == "I"
    assert rows(wire.query(AFTER)) == [(b"after",)]
    assert kinds(ask(wire, whole(COUNTS))) == "12TDCZ"


def test_another_client_encoding_is_understood(wire: Wire, proxy: Proxy, analyst: str) -> None:
    wire.query("SET client_encoding = 'LATIN1'")
    said = wire.query("SELECT gender AS gr\N{LATIN SMALL LETTER O WITH DIAERESIS} FROM city")
    assert sqlstates(said) == ["42703"]
    text = 'SELECT gender, count(*) AS "z\xe4hler" FROM patient_data GROUP BY gender'
    wire.send(m.encode_query(text, "latin-1"))
    said = wire.until(m.READY_FOR_QUERY)
    assert kinds(said) == "TDCZ"
    (described,) = [frame for kind, frame in said if kind == m.ROW_DESCRIPTION]
    assert "z\xe4hler".encode("latin-1") in described
    wire.send(m.encode_query("SELECT \xe4 FROM patient_data", "latin-1"))
    (error,) = errors(wire.until(m.READY_FOR_QUERY))
    assert error["C"] == "42703"
    assert len(charges(proxy.upstream, analyst)) == 1


def test_many_messages_sent_ahead_of_an_answer_are_not_lost(wire: Wire) -> None:
    long = whole(f"SELECT length('{'x' * 10_000}')") + SYNC
    wire.send(whole(DISEASES), SYNC)
    wire.send(*(long for _ in range(300)))  # 3 MB: more than may wait at once
    assert kinds(wire.until(m.READY_FOR_QUERY)) == "12TDCZ"
    for _ in range(300):
        assert rows(wire.until(m.READY_FOR_QUERY)) == [(b"10000",)]


def negotiated(wire: Wire, minor: int, proxy: Proxy, user: str, **options: str) -> tuple[int, tuple[str, ...]] | None:
    wire.send(m.encode_startup({"user": user, "database": proxy.database, **options}, minor))
    for kind, frame in wire.until(m.AUTHENTICATION):
        if kind == m.NEGOTIATE_PROTOCOL_VERSION:
            version, _ = struct.unpack_from(">II", frame, 5)
            return version & 0xFFFF, tuple(frame[13:].decode().split("\0")[:-1])
    return None


def test_a_later_minor_version_is_negotiated_down(proxy: Proxy, analyst: str) -> None:
    for minor, expected in ((0, None), (2, None), (9, (2, ()))):
        with Wire(proxy.port) as wire:
            assert negotiated(wire, minor, proxy, analyst) == expected


def test_unknown_protocol_options_are_named(proxy: Proxy, analyst: str) -> None:
    with Wire(proxy.port) as wire:
        options = {"_pq_.compression": "on", "application_name": "x"}
        assert negotiated(wire, 0, proxy, analyst, **options) == (0, ("_pq_.compression",))


def test_the_cancel_key_is_long_from_3_2_on(proxy: Proxy, upstream: str) -> None:
    name = new_analyst(upstream)
    for minor, size in ((0, 4), (2, 32)):
        with Wire(proxy.port) as wire:
            assert len(wire.login(name, proxy.database, minor=minor).key) == size  # type: ignore[arg-type]


def test_encryption_is_declined_and_the_connection_goes_on(proxy: Proxy, analyst: str) -> None:
    with Wire(proxy.port) as wire:
        for request in (m.encode_gssenc_request(), m.encode_ssl_request()):
            wire.send(request)
            assert wire.socket.recv(1) == b"N"
        assert rows(wire.login(analyst, proxy.database).query(AFTER)) == [(b"after",)]
