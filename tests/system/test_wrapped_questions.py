"""Questions inside COPY, DECLARE and PREPARE: answered once, as PostgreSQL itself would hand them out."""

from __future__ import annotations

import csv
import io
import struct
from pathlib import Path

import psycopg
import pytest
from proxies import Proxy, charges, running_proxy
from psycopg import errors
from raw_wire import Wire
from raw_wire import errors as told
from test_psql import psql, through

from proxy import messages as m

COUNTS = "SELECT gender, count(*) AS n FROM patient_data GROUP BY gender ORDER BY gender"
ROWS = "SELECT * FROM patient_data"


@pytest.fixture
def paid(proxy: Proxy, analyst: str):  # type: ignore[no-untyped-def]
    """How often the analyst has been charged."""
    return lambda: len(charges(proxy.upstream, analyst))


def copied(session: psycopg.Connection, statement: str) -> bytes:
    with session.cursor().copy(statement) as copy:
        return b"".join(bytes(piece) for piece in copy)


def kinds(frames: list[tuple[int, bytes]]) -> str:
    """The types of the frames, notices left out and runs of one type once."""
    letters = [chr(kind) for kind, _ in frames if kind != m.NOTICE_RESPONSE]
    return "".join(letter for at, letter in enumerate(letters) if not at or letters[at - 1] != letter)


# -- COPY --------------------------------------------------------------------------------------------------------------


def test_a_question_is_copied_in_every_format_and_paid_once(session: psycopg.Connection, paid) -> None:  # type: ignore[no-untyped-def]
    text = copied(session, f"COPY ({COUNTS}) TO STDOUT").decode()
    assert paid() == 1
    rows = [tuple(line.split("\t")) for line in text.splitlines()]
    assert rows == [(key, str(n)) for key, n in session.execute(COUNTS).fetchall()] and len(rows) == 3
    sheet = copied(session, f"copy ({COUNTS}) to stdout with (format csv, header, force_quote (gender))").decode()
    assert sheet.startswith("gender,n\n") and f'"{rows[0][0]}",' in sheet
    assert [tuple(line) for line in csv.reader(io.StringIO(sheet))][1:] == rows
    with session.cursor().copy(f"COPY ({COUNTS}) TO STDOUT (FORMAT binary)") as copy:
        copy.set_types(["text", "int8"])
        assert [(key, str(n)) for key, n in copy.rows()] == rows
    assert copied(session, f"COPY ({COUNTS}) TO STDOUT WITH CSV").decode().splitlines() == [",".join(r) for r in rows]
    assert paid() == 1


def test_a_copied_question_comes_with_its_bill_and_stands_in_the_history(
    session: psycopg.Connection, proxy: Proxy, analyst: str
) -> None:
    notices: list[str] = []
    session.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
    copied(session, f"/* all */ COPY (\n{COUNTS} -- by gender\n) TO STDOUT")
    assert len(notices) == 1 and notices[0].startswith("veil: ")
    assert [question for *_, question in charges(proxy.upstream, analyst)] == [COUNTS]


def test_keys_that_need_quotes_are_copied_as_they_are(session: psycopg.Connection) -> None:
    odd = r"SELECT gender || E'''\\\n\t\"' || '$1' AS odd, count(*) AS n FROM patient_data GROUP BY gender ORDER BY 1"
    for conforming in ("on", "off"):
        session.execute(f"SET standard_conforming_strings = {conforming}")
        plain = session.execute(odd).fetchall()
        with session.cursor().copy(f"COPY ({odd}) TO STDOUT (FORMAT binary)") as copy:
            copy.set_types(["text", "int8"])
            assert list(copy.rows()) == plain and len(plain) == 3


@pytest.mark.parametrize(
    ("statement", "state", "at"),
    [
        (f"COPY ({ROWS}) TO STDOUT", "42501", None),
        (f"COPY ({COUNTS}) TO STDOUT (FORMAT nonsense)", "22023", "FORMAT"),
        (f"COPY ({COUNTS}) TO STDOUT (FORMAT csv, nonsense)", "42601", "nonsense"),
        (f"COPY ({COUNTS}) TO STDOUT (FORMAT csv, FORCE_QUOTE (nonsense))", "42703", None),
        ("COPY (SELECT nonsense, count(*) FROM patient_data GROUP BY 1) TO STDOUT", "42703", "nonsense"),
        ("COPY (SELECT gender FROM patient_data GROUP BY gender FOR UPDATE) TO STDOUT", "0A000", None),
        (f"COPY ({COUNTS}) TO '/tmp/file'", "42501", None),
        (f"COPY ({COUNTS}) TO PROGRAM 'cat'", "42501", None),
        (f"COPY ({COUNTS}) FROM STDIN", "42601", "FROM STDIN"),
        ("COPY patient_data TO STDOUT", "42501", "COPY"),
    ],
)
@pytest.mark.parametrize("before", ["", "SELECT 1; "])
def test_a_copy_that_goes_wrong_says_where_and_costs_nothing(
    session: psycopg.Connection,
    paid,
    before: str,
    statement: str,
    state: str,
    at: str | None,  # type: ignore[no-untyped-def]
) -> None:
    statement = before + statement
    with pytest.raises(psycopg.Error) as refused:
        session.execute(statement)
    assert refused.value.sqlstate == state, refused.value
    if at is not None:
        assert refused.value.diag.statement_position == str(statement.index(at) + 1), refused.value
    assert paid() == 0 and session.execute("SELECT 1").fetchone() == (1,)


def test_a_refused_construct_inside_a_copy_is_pointed_at(session: psycopg.Connection) -> None:
    statement = "COPY (SELECT gender, string_agg(disease, ',') FROM patient_data GROUP BY gender) TO STDOUT"
    with pytest.raises(errors.InsufficientPrivilege) as plain:
        session.execute(statement[6:-11])
    with pytest.raises(errors.InsufficientPrivilege) as refused:
        session.execute(statement)
    assert refused.value.diag.message_primary == plain.value.diag.message_primary
    assert int(refused.value.diag.statement_position or 0) == int(plain.value.diag.statement_position or 0) + 6 > 6


def test_copy_takes_no_parameters_as_in_postgresql(proxy: Proxy, analyst: str, paid) -> None:  # type: ignore[no-untyped-def]
    with Wire(proxy.port) as wire:
        wire.login(analyst, proxy.database)
        text = "COPY (SELECT count(*) FROM patient_data WHERE age > $1) TO STDOUT"
        wire.send(m.encode_parse("", text), m.encode_bind("", ""), m.encode_execute(""), m.encode_sync())
        (error,) = told(wire.until(m.READY_FOR_QUERY))
        assert error["C"] == "42P02" and error["P"] == str(text.index("$1") + 1) and paid() == 0


def test_copy_by_the_extended_protocol_is_the_same_frames(proxy: Proxy, analyst: str, paid) -> None:  # type: ignore[no-untyped-def]
    text = f"COPY ({COUNTS}) TO STDOUT (FORMAT binary)"
    with Wire(proxy.port) as wire:
        wire.login(analyst, proxy.database)
        simple = wire.query(text)
        wire.send(m.encode_parse("", text), m.encode_bind("", ""), m.encode_describe(m.PORTAL, ""))
        wire.send(m.encode_execute(""), m.encode_sync())
        extended = wire.until(m.READY_FOR_QUERY)
        assert kinds(simple) == "HdcCZ" and kinds(extended) == "12nHdcCZ"
        data = [[frame for kind, frame in frames if kind == m.COPY_DATA] for frames in (simple, extended)]
        assert data[0] == data[1] and data[0][0][5:16] == b"PGCOPY\n\xff\r\n\0"
        assert data[0][-1][-2:] == struct.pack(">h", -1) and paid() == 1
        assert kinds(wire.query(f"SELECT 1; {text}; SELECT 2")) == "TDCHdcCTDCZ"


def test_copy_of_a_public_query_is_postgresqls_own(session: psycopg.Connection, paid) -> None:  # type: ignore[no-untyped-def]
    text = "COPY (SELECT city FROM city WHERE city <> 'patient_data' ORDER BY 1) TO STDOUT"
    assert len(copied(session, text).splitlines()) == 43
    session.execute("CREATE TEMP TABLE patient_data AS SELECT 7 AS age")
    assert copied(session, "COPY (SELECT * FROM patient_data) TO STDOUT") == b"7\n" and paid() == 0


def test_psql_copies_a_question_to_a_file(proxy: Proxy, analyst: str, tmp_path: Path, paid) -> None:  # type: ignore[no-untyped-def]
    place, file = through(proxy, analyst), tmp_path / "answer.csv"
    said = psql(place, "", "-c", rf"\copy ({COUNTS}) to '{file}' with (format csv, header)")
    assert "COPY 3" in said and "veil: " in said
    assert file.read_text().startswith("gender,n\n") and len(file.read_text().splitlines()) == 4
    again = psql(place, "", "-q", "-c", f"COPY ({COUNTS}) TO STDOUT CSV", "-c", "SELECT 'after'")
    assert all(line in again for line in file.read_text().splitlines()[1:]) and "after" in again
    assert paid() == 1


# -- DECLARE -----------------------------------------------------------------------------------------------------------


def test_a_cursor_over_a_question_is_answered_once(session: psycopg.Connection, paid) -> None:  # type: ignore[no-untyped-def]
    with session.transaction(), session.cursor(name="slowly", scrollable=True) as cursor:
        cursor.itersize = 1
        cursor.execute(COUNTS)
        assert paid() == 1
        rows = list(cursor)
        cursor.scroll(0, mode="absolute")
        assert cursor.fetchmany(2) == rows[:2] and cursor.fetchall() == rows[2:] and len(rows) == 3
    assert session.execute(COUNTS).fetchall() == rows and paid() == 1


@pytest.mark.parametrize("binary", [False, True])
def test_a_cursor_takes_parameters(session: psycopg.Connection, binary: bool) -> None:
    text = "SELECT disease FROM patient_data WHERE gender = %s GROUP BY disease HAVING count(*) > %s ORDER BY 1"
    plain = session.execute(text, ("female", 1000)).fetchall()
    with session.transaction(), session.cursor(name="odd \"name'", withhold=True) as cursor:
        cursor.execute(text, ("female", 1000), binary=binary)
        assert cursor.fetchall() == plain and plain


def test_a_cursor_that_is_held_outlives_its_transaction(session: psycopg.Connection, paid) -> None:  # type: ignore[no-untyped-def]
    session.execute(f'DECLARE "kept" BINARY NO SCROLL CURSOR WITH HOLD FOR {COUNTS}')
    session.execute("MOVE 1 IN kept")
    rest = session.execute("FETCH ALL IN kept").fetchall()
    session.execute("CLOSE kept")
    assert rest == session.execute(COUNTS).fetchall()[1:] and paid() == 1


def test_a_script_declares_fetches_and_closes(proxy: Proxy, analyst: str) -> None:
    with Wire(proxy.port) as wire:
        wire.login(analyst, proxy.database)
        script = f"BEGIN; DECLARE c CURSOR WITHOUT HOLD FOR {COUNTS}; FETCH 2 FROM c; MOVE c; CLOSE c; COMMIT"
        assert kinds(wire.query(script)) == "CTDCZ"


@pytest.mark.parametrize("hold", ["", "WITH HOLD "])
def test_a_script_may_begin_with_a_cursor(
    postgres,
    upstream: str,
    analyst: str,
    tmp_path: Path,
    paid,
    hold: str,  # type: ignore[no-untyped-def]
) -> None:
    """The statements of one simple query are one transaction, so a cursor may be the first of them.

    So it is in a batch of the extended protocol since PostgreSQL 17, and the shadow here is a newer one than elsewhere.
    """
    with (
        running_proxy(upstream, postgres.admin_dsn, tmp_path / "proxy.log") as newer,
        Wire(newer.port) as wire,
    ):
        wire.login(analyst, newer.database)
        frames = wire.query(f"DECLARE c CURSOR {hold}FOR {COUNTS}; FETCH 2 FROM c; FETCH ALL FROM c; CLOSE c")
        assert kinds(frames) == "CTDCTDCZ", frames
        assert [kind for kind, _ in frames].count(m.DATA_ROW) == 3 and paid() == 1
        assert kinds(wire.query(f"DECLARE c CURSOR FOR {COUNTS}")) == "EZ" and paid() == 1


@pytest.mark.parametrize(
    ("before", "statement", "state"),
    [
        ("", f"DECLARE c CURSOR FOR {COUNTS}", "25P01"),
        ("BEGIN", f"DECLARE c CURSOR FOR {ROWS}", "42501"),
        ("BEGIN; DECLARE c CURSOR FOR SELECT 1", f"DECLARE c CURSOR FOR {COUNTS}", "42P03"),
        ("BEGIN", f"DECLARE c SCROLL NO SCROLL CURSOR FOR {COUNTS}", "42P11"),
        ("BEGIN", "DECLARE c CURSOR FOR SELECT nonsense, count(*) FROM patient_data GROUP BY 1", "42703"),
    ],
)
@pytest.mark.parametrize("prepare", [False, True])
def test_a_cursor_that_cannot_be_declared_costs_nothing(
    session: psycopg.Connection,
    paid,
    before: str,
    statement: str,
    state: str,
    prepare: bool,  # type: ignore[no-untyped-def]
) -> None:
    if before:
        session.execute(before)
    with pytest.raises(psycopg.Error) as refused:
        session.execute(statement, prepare=prepare)
    assert refused.value.sqlstate == state, refused.value
    if "nonsense" in statement:
        assert refused.value.diag.statement_position == str(statement.index("nonsense") + 1)
    assert paid() == 0
    if before:
        with pytest.raises(errors.InFailedSqlTransaction):
            session.execute("SELECT 1")
    session.execute("ROLLBACK")


def test_psql_fetches_a_question_in_pieces(proxy: Proxy, analyst: str, paid) -> None:  # type: ignore[no-untyped-def]
    text = "SELECT disease, count(*) FROM patient_data GROUP BY disease ORDER BY 1;"
    place = through(proxy, analyst)
    pieces = psql(place, f"\\set FETCH_COUNT 7\n\\pset format unaligned\n\\set QUIET\n{text}\n")
    whole = psql(place, f"\\pset format unaligned\n\\set QUIET\n{text}\n")
    assert [line for line in pieces.splitlines() if "|" in line] == [line for line in whole.splitlines() if "|" in line]
    assert "(40 rows)" in pieces and paid() == 1


# -- PREPARE -----------------------------------------------------------------------------------------------------------


def test_a_prepared_question_is_paid_when_it_is_executed(session: psycopg.Connection, paid) -> None:  # type: ignore[no-untyped-def]
    session.execute(f"PREPARE asked AS {COUNTS}")
    assert paid() == 0
    rows = session.execute("EXECUTE asked").fetchall()
    assert rows == session.execute("execute Asked;").fetchall() == session.execute(COUNTS).fetchall() and paid() == 1
    with pytest.raises(errors.DuplicatePreparedStatement):
        session.execute(f"PREPARE asked AS {COUNTS}")


def test_a_prepared_question_takes_values(session: psycopg.Connection, paid) -> None:  # type: ignore[no-untyped-def]
    text = "SELECT gender, count(*) FROM patient_data WHERE age >= {} AND disease_type = {} GROUP BY gender ORDER BY 1"
    session.execute(f'PREPARE "Of Age" (int, text) AS {text.format("$1", "$2")}')
    session.execute(f"PREPARE guessed AS {text.format('$1', '$2')}")
    first = session.execute("EXECUTE \"Of Age\" (9 * 2, lower('VIRAL'))").fetchall()
    assert first == session.execute("EXECUTE guessed('18', 'viral')").fetchall()
    assert first == session.execute(text.format("18", "'viral'")).fetchall() and paid() == 1
    assert session.execute("EXECUTE guessed(80, 'chronic')").fetchall() != first and paid() == 2


@pytest.mark.parametrize(
    ("statement", "state", "at"),
    [
        ("EXECUTE asked", "42601", None),
        ("EXECUTE asked (1, 2)", "42601", None),
        ("EXECUTE asked ('many')", "22P02", "'many'"),
        ("EXECUTE asked (now())", "42804", "now"),
        ("EXECUTE asked (nonsense)", "42703", "nonsense"),
        ("EXECUTE nobody (1)", "26000", None),
        ("EXECUTE rows", "42501", None),
    ],
)
def test_an_execution_that_goes_wrong_says_why_and_costs_nothing(
    session: psycopg.Connection,
    paid,
    statement: str,
    state: str,
    at: str | None,  # type: ignore[no-untyped-def]
) -> None:
    session.execute("PREPARE asked (int) AS SELECT count(*) FROM patient_data WHERE age > $1")
    session.execute(f"PREPARE rows AS {ROWS}")
    with pytest.raises(psycopg.Error) as refused:
        session.execute(statement)
    assert refused.value.sqlstate == state and "__veil" not in str(refused.value), refused.value
    if at is not None:
        assert refused.value.diag.statement_position == str(statement.index(at) + 1)
    assert paid() == 0


@pytest.mark.parametrize("forget", ["DEALLOCATE asked", "DEALLOCATE PREPARE ALL", "DISCARD ALL"])
def test_a_prepared_question_is_forgotten(session: psycopg.Connection, paid, forget: str) -> None:  # type: ignore[no-untyped-def]
    session.execute(f"PREPARE asked AS {COUNTS}")
    session.execute(forget)
    with pytest.raises(errors.InvalidSqlStatementName):
        session.execute("EXECUTE asked")
    session.execute("PREPARE asked AS SELECT 7")
    assert session.execute("EXECUTE asked").fetchone() == (7,) and paid() == 0


def test_a_script_prepares_and_executes(proxy: Proxy, analyst: str, paid) -> None:  # type: ignore[no-untyped-def]
    with Wire(proxy.port) as wire:
        wire.login(analyst, proxy.database)
        script = f"PREPARE a AS {COUNTS}; PREPARE b AS SELECT 7; EXECUTE b; EXECUTE a; DEALLOCATE a; SELECT 1"
        assert kinds(wire.query(script)) == "CTDCTDCTDCZ"
        assert paid() == 1
        wire.send(m.encode_parse("wired", COUNTS), m.encode_sync())
        wire.until(m.READY_FOR_QUERY)
        assert kinds(wire.query("EXECUTE wired")) == "TDCZ" and paid() == 1
        wire.send(m.encode_parse("", "EXECUTE wired"), m.encode_bind("", ""), m.encode_describe(m.PORTAL, ""))
        wire.send(m.encode_execute(""), m.encode_sync())
        assert kinds(wire.until(m.READY_FOR_QUERY)) == "12TDCZ" and paid() == 1


# -- shapes ------------------------------------------------------------------------------------------------------------

SHAPES = [
    'SELECT * FROM "public"."patient_data" LIMIT 0',
    "SELECT * FROM patient_data p WHERE 1=0",
    'SELECT * FROM (SELECT * FROM public.patient_data) AS "t" LIMIT 0',
    "SELECT * FROM (SELECT * FROM patient_data) t WHERE false",
    'SELECT TRUE AS "_" FROM "public"."patient_data" WHERE 1 <> 1 LIMIT 0',
    'SELECT "public"."patient_data"."age" AS "age" FROM "public"."patient_data" LIMIT 0',
    "SELECT p.*, w.capacity FROM ward w LEFT JOIN patient_data AS p USING (disease) WHERE w.capacity > 3 AND (1 = 0)",
    "SELECT age + 1, upper(gender) FROM patient_data, city WHERE 2 = 3 ORDER BY age",
    "SELECT p FROM patient_data p LIMIT 0",
    "SELECT a.age FROM patient_data a JOIN patient_data b ON a.patient_id = b.patient_id LIMIT 0",
]


@pytest.mark.parametrize("statement", SHAPES)
def test_the_shape_of_a_protected_table_is_free(
    session: psycopg.Connection,
    upstream: str,
    paid,
    statement: str,  # type: ignore[no-untyped-def]
) -> None:
    with psycopg.connect(upstream) as direct:
        theirs = direct.execute(statement).description or ()
    for prepare in (False, True):
        ours = session.execute(statement, prepare=prepare)
        assert ours.fetchall() == [] and len(ours.description or ()) == len(theirs)
        for mine, other in zip(ours.description or (), theirs, strict=True):
            row = statement.startswith("SELECT p FROM")  # a type of the table's own, in another database
            assert mine.name == other.name and (row or mine.type_code == other.type_code)
    assert copied(session, f"COPY ({statement}) TO STDOUT") == b"" and paid() == 0


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM patient_data LIMIT 1",
        "SELECT * FROM patient_data WHERE 1=1",
        "SELECT * FROM patient_data WHERE 1=0 OR age > 3",
        "SELECT * FROM patient_data WHERE NOT 1=0",
        "SELECT * FROM patient_data WHERE age = 1 = false",
        "SELECT * FROM patient_data WHERE CASE WHEN age > 1 AND false THEN false ELSE true END",
        "SELECT * FROM patient_data UNION ALL (SELECT * FROM patient_data LIMIT 0)",
        "SELECT (SELECT age FROM patient_data), count(*) FROM city WHERE 1=0",
        "SELECT * FROM (SELECT * FROM city WHERE 1=0) c FULL JOIN patient_data ON true",
        "SELECT * FROM ONLY patient_data LIMIT 0",
        "WITH p AS (SELECT * FROM patient_data LIMIT 0) SELECT * FROM p, patient_data",
    ],
)
def test_what_may_have_rows_is_refused(session: psycopg.Connection, paid, statement: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(psycopg.Error) as refused:
        session.execute(statement)
    assert refused.value.sqlstate in ("42501", "0A000", "42601") and paid() == 0


def test_a_value_of_a_probe_is_a_parameter(session: psycopg.Connection) -> None:
    found = session.execute("SELECT age FROM patient_data WHERE gender = %s AND 1 = 0", ("female",))
    assert found.fetchall() == [] and found.statusmessage == "SELECT 0"
    session.execute("PREPARE shape AS SELECT age FROM patient_data WHERE gender = $1 LIMIT 0")
    assert session.execute("EXECUTE shape ('female')").fetchall() == []
    with session.transaction(), session.cursor(name="shape") as cursor:
        assert cursor.execute("SELECT * FROM patient_data LIMIT 0").fetchall() == []
        assert [column.name for column in cursor.description or ()][1:3] == ["age", "gender"]
