"""What cannot run costs nothing: a statement that fails whatever the numbers are is refused before the charge.

And a statement that made-up numbers could break, and real ones do not, is answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from proxies import Proxy, charges
from psycopg import errors
from raw_wire import Wire
from raw_wire import errors as told

from proxy import messages as m

Q = "patient_data WHERE age > 3"
COUNTED = f"WITH q AS (SELECT count(*) AS n FROM {Q})"
GROUPED = f"WITH q AS (SELECT gender, count(*) AS n FROM {Q} GROUP BY gender)"


@pytest.fixture
def paid(proxy: Proxy, analyst: str) -> Callable[[], int]:
    """How often the analyst has been charged, scans included."""

    def count() -> int:
        with psycopg.connect(proxy.upstream) as conn:
            row = conn.execute("SELECT count(*) FROM provenance.charge WHERE analyst = %s", (analyst,)).fetchone()
            assert row is not None and (row[0] > 0) == bool(charges(proxy.upstream, analyst))
            return int(row[0])

    return count


def state_of(conn: psycopg.Connection[Any], statement: str, values: tuple[Any, ...] | None = None) -> str | None:
    try:
        conn.execute(statement, values)
    except psycopg.Error as error:
        return error.sqlstate
    return None


DOOMED = [
    f"SELECT count(*), 1/0 FROM {Q}",
    f"SELECT count(*) / 0 FROM {Q}",
    f"SELECT count(*) % 0 FROM {Q}",
    f"SELECT count(*), sqrt(-1) FROM {Q}",
    f"SELECT count(*), chr(0) FROM {Q}",
    f"SELECT count(*), repeat('a', 2000000000) FROM {Q}",
    f"SELECT CASE WHEN 1/0 = 1 THEN count(*) END FROM {Q}",
    f"{COUNTED} SELECT n, 1/0 FROM q",
    f"{COUNTED} SELECT regexp_replace('a', '(', 'b') FROM q",
    f"{COUNTED} SELECT generate_series(1, 5, 0) FROM q",
    f"{COUNTED} SELECT ntile(0) OVER () FROM q",
    f"{COUNTED} SELECT nth_value(n, 0) OVER () FROM q",
    f"{COUNTED} SELECT sum(n) OVER (ROWS BETWEEN -1 PRECEDING AND CURRENT ROW) FROM q",
    f"{COUNTED} SELECT percentile_cont(2) WITHIN GROUP (ORDER BY n) FROM q",
    f"{COUNTED} SELECT to_timestamp('zz', 'YYYY') FROM q",
    f"{COUNTED} SELECT current_setting('nope.nope') FROM q",
    f"{COUNTED} SELECT n FROM q WHERE 1/0 = n",
    f"{COUNTED} SELECT n FROM q ORDER BY 1/(n - n)",
    f"SELECT count(*) FROM {Q} LIMIT -1",
    f"SELECT count(*) FROM {Q} OFFSET -1",
    f"SELECT count(*) FROM {Q} LIMIT (SELECT 1/0)",
    f"SELECT count(*) FROM {Q} LIMIT 'x'::text::int",
    f"SELECT (SELECT 1 UNION ALL SELECT 2), count(*) FROM {Q}",
    f"{GROUPED} SELECT (SELECT n FROM q)",
    f"SELECT gender, count(*), gender::int FROM {Q} GROUP BY gender",
    f"SELECT disease FROM {Q} GROUP BY disease HAVING count(*) > 2500 LIMIT -1",
    f"CREATE TEMP TABLE zz (a, b, c) AS SELECT count(*) FROM {Q}",
    f"CREATE TEMP TABLE zz AS SELECT count(*) AS a, 1 AS a FROM {Q}",
    f"CREATE TEMP TABLE zz TABLESPACE nope AS SELECT count(*) FROM {Q}",
    f"CREATE TEMP TABLE zz WITH (fillfactor = 1) AS SELECT count(*) FROM {Q}",
    f"SELECT q.n, 1/0 AS z INTO TEMP zz FROM (SELECT count(*) AS n FROM {Q}) q",
]


@pytest.mark.parametrize("statement", DOOMED)
def test_what_fails_in_any_case_is_refused_as_postgresql_does_and_costs_nothing(
    session: psycopg.Connection[Any], truth_of_demo: psycopg.Connection[Any], paid: Callable[[], int], statement: str
) -> None:
    wanted = state_of(truth_of_demo, statement)
    assert wanted is not None
    with pytest.raises(psycopg.Error) as refused:
        session.execute(statement)
    assert refused.value.sqlstate == wanted and paid() == 0, refused.value
    with pytest.raises(psycopg.Error) as native:
        truth_of_demo.execute(statement)
    assert refused.value.diag.message_primary == native.value.diag.message_primary
    assert session.execute("SELECT 1").fetchone() == (1,)


@pytest.fixture(scope="module")
def truth_of_demo(upstream: str):  # type: ignore[no-untyped-def]
    with psycopg.connect(upstream, autocommit=True) as conn:
        yield conn


@pytest.mark.parametrize("call", ["pg_read_file('/etc/passwd')", "lo_create(0)"])
def test_a_function_that_is_not_allowed_costs_nothing(
    session: psycopg.Connection[Any], paid: Callable[[], int], call: str
) -> None:
    assert state_of(session, f"SELECT count(*), {call} FROM {Q}") == "42501" and paid() == 0


@pytest.mark.parametrize(
    ("statement", "value", "state"),
    [
        (f"SELECT count(*), 1/%s::int FROM {Q}", 0, "22012"),
        (f"SELECT count(*) FROM {Q} LIMIT %s", -1, "2201W"),
        (f"SELECT count(*) FROM {Q} OFFSET %s", -1, "2201X"),
        (f"{GROUPED} SELECT (gender || %s)::int FROM q", "it's \\ $1", "22P02"),
    ],
)
@pytest.mark.parametrize("binary", [False, True])
def test_parameters_of_a_driver(
    session: psycopg.Connection[Any], paid: Callable[[], int], statement: str, value: Any, state: str, binary: bool
) -> None:
    with session.cursor(binary=binary) as cursor, pytest.raises(psycopg.Error) as refused:
        cursor.execute(statement, (value,))
    assert refused.value.sqlstate == state and paid() == 0


def test_a_parameter_has_no_name_of_its_own(session: psycopg.Connection[Any], paid: Callable[[], int]) -> None:
    """As PostgreSQL has it: with a cast around it, its column would be called after the type."""
    text = f'WITH q AS (SELECT $1, count(*) AS int4 FROM {Q}) SELECT "?column?", int4 FROM q'
    session.execute(f"PREPARE zn (int) AS {text}")
    assert session.execute("EXECUTE zn (5)").fetchall()[0][0] == 5 and paid() == 1
    session.execute("CREATE TEMP TABLE zn (a int, b bigint)")
    session.execute(f"INSERT INTO zn SELECT %s, count(*) FROM {Q}", (7,))
    assert session.execute("SELECT a FROM zn").fetchall() == [(7,)] and paid() == 1


def test_parameters_of_a_prepared_statement(session: psycopg.Connection[Any], paid: Callable[[], int]) -> None:
    session.execute(f"PREPARE zp (int) AS SELECT count(*), 1/$1 FROM {Q}")
    assert state_of(session, "EXECUTE zp (0)") == "22012" and paid() == 0
    assert session.execute("EXECUTE zp (1)").fetchall()[0][1] == 1 and paid() == 1


@pytest.mark.parametrize(
    ("table", "statement", "state"),
    [
        ("a int NOT NULL, n bigint", f"INSERT INTO zi SELECT NULL, count(*) FROM {Q}", "23502"),
        ("a int CHECK (a > 5), n bigint", f"INSERT INTO zi SELECT 1, count(*) FROM {Q}", "23514"),
        ("a int PRIMARY KEY, n bigint", f"INSERT INTO zi SELECT 1, count(*) FROM {Q}", "23505"),
        ("a text, n bigint", f"INSERT INTO zi SELECT chr(0), count(*) FROM {Q}", "54000"),
        ("a varchar(2), n bigint", f"INSERT INTO zi SELECT gender, count(*) FROM {Q} GROUP BY gender", "22001"),
    ],
)
def test_rows_that_a_temporary_table_does_not_take(
    session: psycopg.Connection[Any], paid: Callable[[], int], table: str, statement: str, state: str
) -> None:
    session.execute(f"CREATE TEMP TABLE zi ({table})")
    if "PRIMARY" in table:
        session.execute("INSERT INTO zi VALUES (1, 2)")
    with pytest.raises(psycopg.Error) as refused:
        session.execute(statement)
    assert refused.value.sqlstate == state and paid() == 0
    assert "1000" not in str(refused.value)  # no number that was made up
    if state == "23514":
        assert refused.value.diag.constraint_name == "zi_a_check"
    assert len(session.execute("SELECT * FROM zi").fetchall()) == ("PRIMARY" in table)


ANSWERED = [
    f"SELECT 1/(count(*) - 1) FROM {Q}",
    f"SELECT 1/(count(*) - 1000) FROM {Q}",
    f"SELECT 100.0 * sum(age) / nullif(count(*), 0) FROM {Q}",
    f"SELECT (count(*) / 10)::smallint FROM {Q}",
    f"SELECT (count(*) - 50000)::smallint FROM {Q}",
    f"SELECT count(*)::smallint FROM {Q} AND disease = 'asthma'",
    f"SELECT sqrt(count(*)), ln(sum(age)), ln(avg(age)) FROM {Q}",
    f"SELECT acos(avg(age) / 100) FROM {Q}",
    f"SELECT make_date(2020, (count(*) / 10000)::int, 1) FROM {Q}",
    f"WITH q AS (SELECT count(*) AS n, count(*) FILTER (WHERE gender = 'male') AS m FROM {Q}) SELECT 1/(n/m) FROM q",
    f"WITH q AS (SELECT count(*) AS n, count(*) FILTER (WHERE gender = 'male') AS m FROM {Q})"
    " SELECT sqrt(1 - 1.0 * m / n) FROM q",
    f"{GROUPED} SELECT gender, n, rank() OVER (ORDER BY n), n - lag(n) OVER (ORDER BY n) FROM q",
    f"{GROUPED} SELECT 1/(max(n) - min(n)), percentile_cont(0.5) WITHIN GROUP (ORDER BY n) FROM q",
    f"{GROUPED}, r AS (SELECT sum(n) AS t FROM q) SELECT gender, 100.0 * n / t FROM q, r ORDER BY n DESC LIMIT 2",
    f"SELECT gender, avg(age), stddev(age), veil.low(count(*)) FROM {Q} GROUP BY ROLLUP (gender)"
    " ORDER BY grouping(gender)",
    f"SELECT 1/(SELECT count(*) FROM (SELECT disease FROM {Q} GROUP BY disease HAVING count(*) > 2500) q)",
    f"SELECT disease FROM {Q} GROUP BY disease HAVING count(*) > 2500 ORDER BY 1 LIMIT 3",
    f"SELECT count(*), random() < 2, clock_timestamp() IS NULL FROM {Q}",
]


@pytest.mark.parametrize("statement", ANSWERED)
def test_what_real_numbers_do_not_break_is_answered(
    session: psycopg.Connection[Any], paid: Callable[[], int], statement: str
) -> None:
    session.execute("SET veil.margin = '30u'")
    rows = session.execute(statement).fetchall()
    before = paid()
    assert rows and before > 0
    assert len(session.execute(statement).fetchall()) == len(rows) and paid() == before


def test_limits_with_parameters_copies_and_cursors_are_answered(
    session: psycopg.Connection[Any], paid: Callable[[], int]
) -> None:
    grouped = f"SELECT gender, count(*) FROM {Q} GROUP BY gender ORDER BY 1/nullif(count(*) - 5, 0), gender"
    assert len(session.execute(f"{grouped} LIMIT %s OFFSET %s", (1, 1)).fetchall()) == 1
    with session.cursor().copy(f"COPY ({grouped}) TO STDOUT") as copy:
        assert len(list(copy.rows())) == 3
    with session.transaction():
        session.execute(f"DECLARE c CURSOR FOR {grouped}")
        assert len(session.execute("FETCH ALL IN c").fetchall()) == 3
    assert paid() == 1


@pytest.mark.parametrize(
    ("question", "state"),
    [(f"SELECT count(*) FROM {Q} LIMIT -1", "2201W"), (f"{GROUPED} SELECT gender::int, n FROM q", "22P02")],
)
def test_a_copy_that_fails_in_any_case_costs_nothing(
    session: psycopg.Connection[Any], paid: Callable[[], int], question: str, state: str
) -> None:
    with pytest.raises(psycopg.Error) as refused, session.cursor().copy(f"COPY ({question}) TO STDOUT") as copy:
        list(copy.rows())
    assert refused.value.sqlstate == state and paid() == 0


def test_a_cursor_that_tells_no_row_costs_nothing(session: psycopg.Connection[Any], paid: Callable[[], int]) -> None:
    session.execute("BEGIN")
    assert state_of(session, f"DECLARE c CURSOR FOR {GROUPED} SELECT gender::int FROM q") == "22P02" and paid() == 0
    session.execute("ROLLBACK")


def test_a_refused_statement_fails_its_transaction_and_only_that(
    session: psycopg.Connection[Any], paid: Callable[[], int]
) -> None:
    session.execute("BEGIN; CREATE TEMP TABLE kept AS SELECT 1 AS one; SAVEPOINT s")
    assert state_of(session, f"SELECT count(*) FROM {Q} LIMIT -1") == "2201W"
    with pytest.raises(errors.InFailedSqlTransaction):
        session.execute("SELECT 1")
    session.execute("ROLLBACK TO s")
    assert session.execute("SELECT one FROM kept").fetchone() == (1,)
    session.execute("COMMIT")
    assert session.execute("SELECT one FROM kept").fetchone() == (1,) and paid() == 0


def test_statements_of_the_same_batch_are_undone_with_a_refused_one(
    proxy: Proxy, analyst: str, paid: Callable[[], int]
) -> None:
    with Wire(proxy.port) as wire:
        wire.login(analyst, proxy.database)
        script = f"CREATE TEMP TABLE before (a int); SELECT count(*), 1/0 FROM {Q}; SELECT 2"
        (error,) = told(wire.query(script))
        assert error["C"] == "22012" and paid() == 0 and set(error) <= set("SVCMDHPFLR")
        (error,) = told(wire.query("SELECT * FROM before"))
        assert error["C"] == "42P01"
        frames = wire.query(f"CREATE TEMP TABLE before (a int); SELECT count(*), 1/(count(*)-1) FROM {Q}; SELECT 2")
        assert not told(frames) and [kind for kind, _ in frames].count(m.DATA_ROW) == 2


def test_a_trial_leaves_nothing_behind(session: psycopg.Connection[Any], paid: Callable[[], int]) -> None:
    session.execute("SET statement_timeout = '77s'; CREATE TEMP SEQUENCE zs")
    session.execute("CREATE TEMP TABLE zt (id serial PRIMARY KEY, made int GENERATED ALWAYS AS IDENTITY, n bigint)")
    notices: list[str] = []
    session.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
    session.execute("BEGIN")
    session.execute(f"INSERT INTO zt (n) SELECT count(*) + 1 FROM {Q}")
    assert session.execute("SHOW statement_timeout").fetchone() == ("77s",)
    session.execute("COMMIT")
    assert session.execute("SELECT id, made FROM zt").fetchall() == [(1, 1)]
    row = session.execute(f"SELECT nextval('zs'), count(*), sum(age) FROM {Q} AND age < 90").fetchone()
    assert row is not None and row[0] == 1
    for call in ("pg_advisory_lock(7) IS NULL", "pg_try_advisory_lock(8)"):
        session.execute(f"SELECT count(*), {call} FROM {Q} AND age < 80")
    held = session.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")
    assert held.fetchone() == (2,)
    session.execute(f"SELECT count(*), pg_advisory_unlock(7), pg_advisory_unlock(8) FROM {Q} AND age < 80")
    held = session.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")
    assert held.fetchone() == (0,)
    assert session.execute("SELECT setseed(0.5)") and session.execute("SHOW statement_timeout").fetchone() == ("77s",)
    drawn = session.execute(f"SELECT random(), count(*) FROM {Q} AND age < 70").fetchone()
    session.execute("SELECT setseed(0.5)")
    alone = session.execute("SELECT random()").fetchone()
    assert drawn is not None and alone is not None and drawn[0] == alone[0]
    session.execute(f"SELECT set_config('a.b', count(*)::text, false), count(*) FROM {Q} AND age < 60")
    assert session.execute("SHOW a.b").fetchone() != ("1000",)
    assert all(notice.startswith("veil: ") for notice in notices), notices


def test_a_text_that_the_client_cannot_be_sent_costs_nothing(
    session: psycopg.Connection[Any], paid: Callable[[], int]
) -> None:
    session.execute("SET client_encoding = 'LATIN1'")
    assert state_of(session, f"SELECT count(*), chr(8364) FROM {Q}") == "22P05" and paid() == 0
    (row,) = session.execute(f"SELECT count(*), chr(233) FROM {Q}").fetchall()
    assert row[1] == "\N{LATIN SMALL LETTER E WITH ACUTE}" and paid() == 1


def test_what_takes_long_to_finish_is_answered(session: psycopg.Connection[Any], paid: Callable[[], int]) -> None:
    slow = f"{COUNTED} SELECT n, (SELECT count(*) FROM generate_series(1, 3000000 + 0 * n) g) FROM q"
    ((_, counted),) = session.execute(slow).fetchall()
    assert counted == 3_000_000 and paid() == 1
