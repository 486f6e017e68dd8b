"""psycopg as a real driver: simple and extended, text and binary, prepared, pipelined, many at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import date

import psycopg
import pytest
from proxies import Proxy, charges, new_analyst
from psycopg import errors, sql

COUNTS = "SELECT gender, count(*) FROM patient_data GROUP BY gender ORDER BY 1"
BY_GENDER = "SELECT disease FROM patient_data WHERE gender = %s GROUP BY disease HAVING count(*) > %s ORDER BY 1"


@pytest.fixture
def paid(proxy: Proxy, analyst: str):  # type: ignore[no-untyped-def]
    """How often the analyst has been charged."""
    return lambda: len(charges(proxy.upstream, analyst))


def test_the_same_answer_comes_by_every_way(session: psycopg.Connection, paid) -> None:  # type: ignore[no-untyped-def]
    answers = [session.execute(COUNTS).fetchall()]
    answers += [session.execute(COUNTS, prepare=prepare).fetchall() for prepare in (True, False)]
    answers += [session.execute(COUNTS, binary=True).fetchall()]
    with psycopg.ClientCursor(session) as cursor:
        answers.append(cursor.execute(COUNTS).fetchall())
    with psycopg.RawCursor(session) as cursor:
        answers.append(cursor.execute(COUNTS).fetchall())
    assert all(answer == answers[0] for answer in answers) and answers[0]
    assert {type(value) for row in answers[0] for value in row} == {str, int}
    assert paid() == 1


def test_a_prepared_question_may_be_asked_many_times(session: psycopg.Connection, paid) -> None:  # type: ignore[no-untyped-def]
    first = session.execute(BY_GENDER, ("female", 1000), prepare=True).fetchall()
    for _ in range(20):
        assert session.execute(BY_GENDER, ("female", 1000), prepare=True).fetchall() == first
        assert session.execute("SELECT city FROM city WHERE region = %s", ("northeast",), prepare=True).fetchall()
    assert paid() == 1
    session.execute("DEALLOCATE ALL")
    assert session.execute(BY_GENDER, ("female", 1000)).fetchall() == first


def test_more_statements_than_psycopg_keeps_prepared(session: psycopg.Connection) -> None:
    session.prepare_threshold, session.prepared_max = 0, 3
    for n in range(12):
        query = sql.SQL("SELECT gender FROM patient_data GROUP BY gender HAVING count(*) > {}").format(n * 1000)
        session.execute(query)
        assert session.execute(sql.SQL("SELECT {}").format(n)).fetchone() == (n,)


@pytest.mark.parametrize("form", ["%s", "%t", "%b"])
def test_parameters_are_text_or_binary(session: psycopg.Connection, form: str) -> None:
    found = session.execute(BY_GENDER.replace("%s", form), ("female", 1000)).fetchall()
    with psycopg.ClientCursor(session) as cursor:  # literals in the text
        assert cursor.execute(BY_GENDER, ("female", 1000)).fetchall() == found
    assert 0 < len(found) < 40


def test_a_date_is_a_parameter(session: psycopg.Connection) -> None:
    text = "SELECT region FROM orders WHERE ordered_on < %s GROUP BY region HAVING count(*) > 9000 ORDER BY 1"
    assert session.execute(text, (date(2100, 1, 1),)).fetchall()
    assert session.execute(text, (date(1990, 1, 1),)).fetchall() == []


def test_null_compares_with_nothing_and_is_no_threshold(session: psycopg.Connection, paid) -> None:  # type: ignore[no-untyped-def]
    session.execute("SET veil.mechanism = tslm")  # a certified decision may name a few groups falsely
    assert session.execute(BY_GENDER, (None, 1000)).fetchall() == []
    before = paid()
    assert session.execute(BY_GENDER, ("female", None)).fetchall() == []
    assert paid() == before


@pytest.mark.parametrize(
    ("values", "error"),
    [
        (("female", "many"), errors.InvalidTextRepresentation),
        (("female", date(2020, 1, 1)), errors.UndefinedFunction),
        ((b"female", 1000), errors.UndefinedFunction),
    ],
)
def test_a_parameter_of_the_wrong_type_is_refused_natively(
    session: psycopg.Connection, paid, values: tuple[object, ...], error: type[Exception]
) -> None:  # type: ignore[no-untyped-def]
    for _ in range(2):
        with pytest.raises(error):
            session.execute(BY_GENDER, values)
    assert paid() == 0
    assert session.execute(BY_GENDER, ("female", 1000)).fetchall()


def test_a_pipeline_keeps_its_order(session: psycopg.Connection) -> None:
    with session.pipeline():
        cursors = [
            session.execute("SELECT 'before'"),
            session.execute(COUNTS),
            session.execute("SELECT city FROM city WHERE region = %s LIMIT 1", ("northeast",)),
            session.execute(BY_GENDER, ("female", 1000)),
            session.execute("SELECT 'after'"),
        ]
        results = [cursor.fetchall() for cursor in cursors]
    assert results[0] == [("before",)] and results[-1] == [("after",)]
    assert results[1] == session.execute(COUNTS).fetchall()
    assert results[3] == session.execute(BY_GENDER, ("female", 1000)).fetchall()


def test_a_refusal_inside_a_pipeline_aborts_the_rest_of_it(session: psycopg.Connection, paid) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(errors.InsufficientPrivilege), session.pipeline() as pipeline:
        first = session.execute("SELECT 'before'")
        session.execute("SELECT * FROM patient_data")
        session.execute(COUNTS)
        pipeline.sync()
    assert first.fetchall() == [("before",)]
    assert paid() == 0
    assert session.execute("SELECT 1").fetchone() == (1,)


def test_a_cursor_reads_a_public_table_in_pieces(session: psycopg.Connection) -> None:
    with session.transaction(), session.cursor(name="slowly") as cursor:
        cursor.itersize = 10
        cursor.execute("SELECT city FROM city ORDER BY city")
        assert len(list(cursor)) == 43


def test_a_question_in_a_named_cursor_is_answered_once(session: psycopg.Connection, paid) -> None:  # type: ignore[no-untyped-def]
    with session.transaction(), session.cursor(name="slowly") as cursor:
        cursor.itersize = 2
        rows = list(cursor.execute(COUNTS))
    assert session.execute(COUNTS).fetchall() == rows and paid() == 1


def test_executemany_asks_each(session: psycopg.Connection, paid) -> None:  # type: ignore[no-untyped-def]
    with session.cursor() as cursor:
        cursor.executemany(BY_GENDER, [("female", 1000), ("male", 1000), ("female", 1000)], returning=True)
        answers = [cursor.fetchall()]
        while cursor.nextset():
            answers.append(cursor.fetchall())
    assert len(answers) == 3 and answers[0] == answers[2] and paid() == 2


def test_a_transaction_rolls_back_what_is_its_own_and_no_charge(session: psycopg.Connection, paid) -> None:  # type: ignore[no-untyped-def]
    with session.transaction(force_rollback=True):
        session.execute("CREATE TEMP TABLE gone (a int)")
        session.execute(COUNTS)
    with pytest.raises(errors.UndefinedTable):
        session.execute("TABLE gone")
    assert paid() == 1


def test_a_transaction_that_is_not_autocommitted_knows_its_status(proxy: Proxy, analyst: str) -> None:
    status = psycopg.pq.TransactionStatus
    with proxy.connect(analyst, autocommit=False) as conn:
        conn.execute(COUNTS)
        assert conn.info.transaction_status is status.INTRANS
        with pytest.raises(errors.InsufficientPrivilege):
            conn.execute("SELECT * FROM orders")
        assert conn.info.transaction_status is status.INERROR
        with pytest.raises(errors.InFailedSqlTransaction):
            conn.execute(COUNTS)
        conn.rollback()
        assert conn.info.transaction_status is status.IDLE


def test_copy_goes_both_ways(session: psycopg.Connection) -> None:
    session.execute("CREATE TEMP TABLE many (n int, name text)")
    with session.cursor() as cursor:
        with cursor.copy("COPY many FROM STDIN") as copy:
            for n in range(20_000):
                copy.write_row((n, f"name {n}"))
        with cursor.copy("COPY (SELECT n FROM many ORDER BY n) TO STDOUT") as copy:
            assert sum(int(row[0]) for row in copy.rows()) == 199_990_000
    with pytest.raises(errors.InsufficientPrivilege), session.cursor().copy("COPY orders TO STDOUT") as copy:
        next(iter(copy))


def test_many_sessions_ask_at_once(proxy: Proxy, upstream: str) -> None:
    name = new_analyst(upstream)
    queries = [COUNTS, "SELECT count(*) FROM city", BY_GENDER.replace("%s", "'male'", 1).replace("%s", "1000")]

    def work(n: int) -> list[object]:
        with proxy.connect(name) as conn:
            return [conn.execute(query).fetchall() for query in (queries * 2)[n % 3 :][:3]]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(work, range(24)))
    for n, each in enumerate(answers):
        for k in range(3):
            assert each[k] == answers[0][(n + k) % 3]
    assert len(charges(proxy.upstream, name)) >= 2
