"""Questions about today, as Metabase's relative dates are: one question all day, however often it is asked."""

from __future__ import annotations

import time

import psycopg
import pytest
from proxies import Proxy, charges

BY_REGION = "SELECT region, count(*) AS n FROM orders WHERE {} GROUP BY region ORDER BY region"


_HOUR, _EDGE = 3600, 60  # seconds


@pytest.fixture(autouse=True)
def not_across_midnight() -> None:
    """A test that asks today and again tomorrow asks two questions; days begin with an hour, in every zone here."""
    left = _HOUR - time.time() % _HOUR
    if left < _EDGE:
        time.sleep(left + 1)


@pytest.mark.parametrize(
    "condition",
    [
        "ordered_on < current_date",
        "ordered_on < now()::date",
        "ordered_on < CAST((NOW() + (INTERVAL '-30 day')) AS date)",
        "ordered_on < DATE_TRUNC('month', (NOW() + (INTERVAL '-1 month')))",
        "ordered_on < date_trunc('year', current_date - interval '1 day') + interval '1 year'",
        "ordered_on <= current_date - 7",
    ],
)
def test_it_is_answered_and_paid_once_a_day(
    session: psycopg.Connection, proxy: Proxy, analyst: str, condition: str
) -> None:
    text = BY_REGION.format(condition)
    first = session.execute(text).fetchall()
    assert len(first) == 7 and sum(n for _, n in first) > 100_000
    assert session.execute(text).fetchall() == first
    assert session.execute(text, prepare=True).fetchall() == first
    with session.transaction():
        assert session.execute(text).fetchall() == first
    assert len(charges(proxy.upstream, analyst)) == 1


def test_the_history_tells_the_day_that_was_meant(session: psycopg.Connection, proxy: Proxy, analyst: str) -> None:
    (today,) = session.execute("SELECT current_date::text").fetchone() or ("",)
    session.execute("SELECT count(*) FROM orders WHERE ordered_on < current_date")
    ((_, _, _, question),) = charges(proxy.upstream, analyst)
    assert f"DATE '{today}'" in question


def test_it_is_the_day_of_the_session(proxy: Proxy, analyst: str) -> None:
    """Somewhere on earth it is another day than in UTC, or about to be: the zone of the session decides."""
    with proxy.connect(analyst) as conn:
        for zone in ("Pacific/Kiritimati", "Etc/GMT+12"):
            conn.execute(f"SET TimeZone = '{zone}'")
            (today,) = conn.execute("SELECT to_char(current_date, 'YYYY-MM-DD')").fetchone() or ("",)
            conn.execute("SELECT count(*) FROM orders WHERE ordered_on < current_date")
            assert f"DATE '{today}'" in charges(proxy.upstream, analyst)[-1][-1]


def test_a_moment_that_is_not_cut_to_a_day_is_refused_and_costs_nothing(
    session: psycopg.Connection, proxy: Proxy, analyst: str
) -> None:
    text = "SELECT count(*) FROM orders WHERE ordered_on < current_date AND ordered_on < now()"
    with pytest.raises(psycopg.errors.FeatureNotSupported) as refused:
        session.execute(text)
    said = refused.value.diag
    assert "now()::date" in (said.message_hint or "")
    assert text[int(said.statement_position or 0) - 1 :] == "now()"
    assert charges(proxy.upstream, analyst) == []


def test_an_error_of_postgresql_behind_it_is_placed_as_it_was_written(session: psycopg.Connection) -> None:
    text = "SELECT count(*) FROM orders WHERE ordered_on < current_date AND nosuch > 1"
    with pytest.raises(psycopg.errors.UndefinedColumn) as refused:
        session.execute(text)
    assert text[int(refused.value.diag.statement_position or 0) - 1 :].startswith("nosuch")


def test_outside_conditions_it_is_postgresqls_own(session: psycopg.Connection) -> None:
    cursor = session.execute("SELECT current_date, now() = now(), count(*) FROM orders")
    assert [column.name for column in cursor.description or ()] == ["current_date", "?column?", "count"]
    row = cursor.fetchone() or ()
    assert row[:1] == session.execute("SELECT current_date").fetchone() and row[1] is True


@pytest.mark.parametrize("years", [-5000, 290_000])
def test_a_day_in_no_calendar_is_refused_and_costs_nothing(
    session: psycopg.Connection, proxy: Proxy, analyst: str, years: int
) -> None:
    day = f"date_trunc('day', now() + interval '{years} years')"
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        session.execute(f"SELECT count(*) FROM orders WHERE ordered_on < {day}")
    assert charges(proxy.upstream, analyst) == []


def test_a_type_that_is_called_date_is_not_taken_for_one(
    session: psycopg.Connection, proxy: Proxy, analyst: str
) -> None:
    """PostgreSQL looks for types among the temporary ones first; what such a day is worth is any text."""
    session.execute("CREATE DOMAIN pg_temp.date AS text")
    with pytest.raises(psycopg.Error) as refused:
        session.execute("SELECT count(*) FROM orders WHERE ordered_on < CAST(now() AS date)")
    assert refused.value.sqlstate != "XX000" and charges(proxy.upstream, analyst) == []


def test_what_is_prepared_or_remembered_means_the_day_on_which_it_is_executed(proxy: Proxy, analyst: str) -> None:
    """These two zones are never on the same day: no plan, portal or warm answer of one stands for the other, and coming
    back to a day that was asked about is free, so that the noise of a day is drawn once."""
    text = "SELECT count(*) FROM orders WHERE ordered_on < current_date"
    told: dict[str, set[int]] = {}
    with proxy.connect(analyst) as conn:
        conn.execute("PREPARE asked AS " + text)
        for zone in ("Pacific/Kiritimati", "Etc/GMT+12") * 3:
            conn.execute(f"SET TimeZone = '{zone}'")
            for _ in range(2):
                for each in (text, "EXECUTE asked"):
                    ((number,),) = conn.execute(each).fetchall()
                    told.setdefault(zone, set()).add(number)
                ((number,),) = conn.execute(text, prepare=True).fetchall()
                told[zone].add(number)
        days = {question.partition("DATE '")[2][:10] for _, _, _, question in charges(proxy.upstream, analyst)}
    assert len(days) == len(charges(proxy.upstream, analyst)) == 2
    assert all(len(numbers) == 1 for numbers in told.values())
