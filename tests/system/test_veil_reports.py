"""veil.budget and veil.question: every analyst sees his own limits and questions, in any SQL and any client."""

from __future__ import annotations

from decimal import ROUND_DOWN, ROUND_UP, Decimal
from typing import Any

import psycopg
import pytest
from proxies import Proxy, charges, new_analyst
from psycopg import errors
from test_psql import psql, through

QUESTION = "SELECT gender, count(*) FROM patient_data GROUP BY gender"
DECISION = "SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 2500"


def budget(session: psycopg.Connection[Any], view: str = "all") -> tuple[Decimal, Decimal, Decimal]:
    rows = session.execute('SELECT spent, "limit", "left" FROM veil.budget WHERE view = %s', (view,)).fetchall()
    (row,) = rows
    return row


def test_the_budget_is_that_of_the_ledger(session: psycopg.Connection[Any], upstream: str, analyst: str) -> None:
    assert budget(session)[0] == 0
    session.execute(QUESTION)
    spent, limit, left = budget(session)
    with psycopg.connect(upstream) as owner:
        told = owner.execute(
            """SELECT spent, "limit", "left" FROM provenance.budget WHERE analyst = %s AND view = 'all'""", (analyst,)
        ).fetchone()
    assert told is not None and spent > 0 and left == limit - spent
    for shown, exact, rounding in zip((spent, limit, left), told, (ROUND_UP, ROUND_DOWN, ROUND_DOWN), strict=True):
        assert shown == exact.quantize(Decimal("0.000001"), rounding)


def test_a_budget_is_shown_with_six_digits_after_the_point(session: psycopg.Connection[Any]) -> None:
    session.execute(QUESTION)
    rows = session.execute('SELECT spent::text, "limit"::text, "left"::text FROM veil.budget').fetchall()
    assert len(rows) > 1 and all(len(text.partition(".")[2]) <= 6 for row in rows for text in row if text is not None)
    (kind,) = session.execute("SELECT DISTINCT pg_typeof(spent)::text FROM veil.budget").fetchall()
    assert kind == ("numeric",)


def test_the_questions_are_those_of_the_ledger(session: psycopg.Connection[Any], upstream: str, analyst: str) -> None:
    assert session.execute("SELECT count(*) FROM veil.question").fetchone() == (0,)
    for text in (QUESTION, DECISION, QUESTION):  # the last one is free, and no charge
        session.execute(text.encode())
    rows = session.execute("SELECT id, epsilon, charged, question FROM veil.question ORDER BY id").fetchall()
    # Numbered by themselves: the numbers of the ledger would tell how many questions others have asked in between.
    assert [row[0] for row in rows] == [1, 2] and [row[3] for row in rows] == [QUESTION, DECISION]
    assert [row[1:] for row in rows] == [row[1:] for row in charges(upstream, analyst)]
    mechanisms = session.execute("SELECT mechanism, coin, bill FROM veil.question WHERE mechanism = 'cert'").fetchall()
    assert [(row[0], row[1]) for row in mechanisms] == [("cert", "zcdp")] and isinstance(mechanisms[0][2], dict)


def test_one_analyst_never_sees_another_s(proxy: Proxy, upstream: str) -> None:
    rich, poor = new_analyst(upstream), new_analyst(upstream, epsilon="2")
    with proxy.connect(rich) as one, proxy.connect(poor) as other:
        one.execute(QUESTION)
        assert one.execute("SELECT count(*) FROM veil.question").fetchone() == (1,)
        assert other.execute("SELECT count(*) FROM veil.question").fetchone() == (0,)
        assert budget(other)[:2] == (0, 2) and budget(one)[0] > 0
        text = "SELECT * FROM veil.question UNION ALL SELECT * FROM veil.question"
        assert {row[2] for row in one.execute(text)} == {QUESTION} and not other.execute(text).fetchall()


def test_a_report_may_stand_anywhere_in_a_statement(session: psycopg.Connection[Any]) -> None:
    session.execute(QUESTION)
    spent = budget(session)[0]
    joined = "SELECT b.spent FROM veil.budget b JOIN veil.question q ON b.view = 'all' WHERE q.epsilon > 0"
    assert session.execute(joined).fetchall() == [(spent,)]
    assert session.execute('SELECT max(spent) FROM (SELECT * FROM "veil"."budget") x').fetchone() == (spent,)
    assert session.execute("WITH b AS (TABLE VEIL.BUDGET) SELECT spent FROM b WHERE view = 'all'").fetchone() == (
        spent,
    )
    assert session.execute("SELECT count(*) FROM city WHERE EXISTS (SELECT FROM veil.budget)").fetchone() == (43,)
    with session.transaction(), session.cursor("held") as cursor:
        assert cursor.execute("SELECT view FROM veil.budget ORDER BY view = 'all' DESC").fetchone() == ("all",)
    session.execute("CREATE TEMP TABLE kept AS SELECT * FROM veil.budget")
    assert session.execute("SELECT spent FROM kept WHERE view = 'all'").fetchone() == (spent,)
    with (
        session.cursor() as cursor,
        cursor.copy("COPY (SELECT spent FROM veil.budget WHERE view = 'all') TO STDOUT") as out,
    ):
        assert Decimal(b"".join(out).decode().strip()) == spent


def test_a_question_beside_the_budget_shows_what_is_left_after_it(session: psycopg.Connection[Any]) -> None:
    spending = "SELECT spent FROM veil.budget WHERE view = 'all'"
    text = f"SELECT n > -1000000, ({spending}) FROM (SELECT count(*) AS n FROM patient_data) q"
    ((_, spent),) = session.execute(text.encode()).fetchall()
    assert spent == budget(session)[0] > 0


@pytest.mark.parametrize("how", [{"prepare": True}, {"prepare": False}, {"binary": True}])
def test_a_prepared_report_is_fresh_each_time(session: psycopg.Connection[Any], how: dict[str, bool]) -> None:
    text = "SELECT count(*) FROM veil.question WHERE epsilon > %s"
    assert session.execute(text, (0,), **how).fetchone() == (0,)  # type: ignore[arg-type]
    session.execute(QUESTION)
    assert session.execute(text, (0,), **how).fetchone() == (1,)  # type: ignore[arg-type]


def test_a_report_in_a_transaction_follows_what_is_spent_in_it(session: psycopg.Connection[Any]) -> None:
    with session.transaction():
        assert budget(session)[0] == 0
        session.execute(QUESTION)
        assert budget(session)[0] > 0


def test_a_simple_query_and_a_script_may_name_reports(session: psycopg.Connection[Any]) -> None:
    with psycopg.ClientCursor(session) as cursor:
        assert cursor.execute("SELECT spent FROM veil.budget WHERE view = 'all'").fetchall() == [(0,)]
        cursor.execute(f"SELECT 1; {QUESTION}; SELECT count(*) FROM veil.question")
        while cursor.nextset():
            pass
        assert cursor.fetchall() == [(1,)]
        with pytest.raises(errors.UndefinedColumn):
            cursor.execute("SELECT wrong FROM veil.budget")
        assert cursor.execute("SELECT count(*) FROM veil.question").fetchall() == [(1,)]


def test_a_report_in_a_failed_transaction_fails_as_everything_does(session: psycopg.Connection[Any]) -> None:
    for cursor in (psycopg.ClientCursor(session), session.cursor()):
        session.execute("BEGIN")
        with pytest.raises(errors.DivisionByZero):
            session.execute("SELECT 1/0")
        with pytest.raises(errors.InFailedSqlTransaction):
            cursor.execute("SELECT * FROM veil.budget")
        session.execute("ROLLBACK")
        assert cursor.execute("SELECT count(*) FROM veil.question").fetchall() == [(0,)]


def test_a_report_behind_a_view_says_how_to_write_it(session: psycopg.Connection[Any]) -> None:
    session.execute("CREATE TEMP VIEW mine AS SELECT * FROM veil.budget")
    with pytest.raises(errors.FeatureNotSupported, match=r"veil\.budget is not filled") as refused:
        session.execute("SELECT * FROM mine")
    assert "in the statement itself" in (refused.value.diag.message_hint or "")


def test_questions_in_every_script_come_back_as_they_were_written(proxy: Proxy, analyst: str) -> None:
    text = "SELECT count(*) AS \"größe 数 \U0001f9ea\" FROM patient_data WHERE disease <> 'it''s \"x\"'"
    with proxy.connect(analyst) as session:
        session.execute(text.encode())
        assert session.execute("SELECT question FROM veil.question").fetchone() == (text,)
    with proxy.connect(analyst, client_encoding="latin1") as session:
        assert session.execute("SELECT length(question) FROM veil.question").fetchone() == (len(text),)


def test_psql_shows_them(proxy: Proxy, upstream: str) -> None:
    name = new_analyst(upstream, epsilon="4")
    told = psql(through(proxy, name), f"{QUESTION};\n\\d veil.budget\nSELECT * FROM veil.budget;\n", "-A", "-t")
    assert "all|" in told and "|4|" in told and "ERROR" not in told and "spent|numeric" in told
    told = psql(through(proxy, name), "SELECT question, bill FROM veil.question \\gx\n", "-A", "-t")
    assert QUESTION in told


def test_the_columns_are_those_of_the_contract(session: psycopg.Connection[Any]) -> None:
    def columns(report: str) -> list[str]:
        cursor = session.execute(f"SELECT * FROM veil.{report}".encode())
        return [column.name for column in cursor.description or ()]

    assert columns("budget") == ["view", "spent", "limit", "left"]
    assert columns("question") == [
        *("id", "at", "question", "mechanism", "epsilon", "delta", "charged", "coin", "bill")
    ]
