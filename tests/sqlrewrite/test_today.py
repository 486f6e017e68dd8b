"""The current day in conditions: what is written into the text, and what is left alone."""

from __future__ import annotations

import pytest

from sqlrewrite.today import constant, spoken, written

SHAPES = (
    "SELECT count(*) FROM t WHERE {}",
    "SELECT a, count(*) FROM t WHERE b > 0 AND {} GROUP BY a ORDER BY 2",
    "SELECT count(*) FILTER (WHERE {}) FROM t",
    "SELECT a FROM (SELECT a, d FROM t WHERE {}) t GROUP BY a HAVING count(*) > 5",
)


def said(text: str) -> list[str]:
    return [text[place.start : place.stop] for place in spoken(text)]


@pytest.mark.parametrize(
    ("condition", "meant"),
    [
        ("d < current_date", ["current_date"]),
        ("d < CURRENT_DATE - 7 AND e = current_date", ["CURRENT_DATE", "current_date"]),
        ("d < now()::date", ["now()::date"]),
        ("d < (now() + INTERVAL '-1 day')::date", ["(now() + INTERVAL '-1 day')::date"]),
        ("d < CAST((NOW() + (INTERVAL '-30 day')) AS date)", ["CAST((NOW() + (INTERVAL '-30 day')) AS date)"]),
        ("(d < date_trunc('month', now( ) ))", ["date_trunc('month', now( ) )"]),
        ("(d < DATE_TRUNC('DAY', localtimestamp) AND x)", ["DATE_TRUNC('DAY', localtimestamp)"]),
        (
            "d < date_trunc('month', current_date - interval '1 month')::date",
            ["date_trunc('month', current_date - interval '1 month')"],
        ),
        ("extract(year from d) = extract(year from current_date)", ["current_date"]),
        ("d BETWEEN CAST(now() AS date) AND CAST(now() AS date)", ["CAST(now() AS date)"] * 2),
        ("date_trunc('month', d + (now() - now())) = current_date", ["current_date"]),
    ],
)
def test_the_day_is_found_in_conditions(condition: str, meant: list[str]) -> None:
    for shape in SHAPES:
        assert said(shape.format(condition)) == meant


@pytest.mark.parametrize(
    ("kind", "iso", "written_as"),
    [
        ("date", "2025-03-04", "DATE '2025-03-04'"),
        ("timestamp without time zone", "2025-03-04T00:00:00", "TIMESTAMP '2025-03-04 00:00:00'"),
        ("timestamp with time zone", "2025-03-04T00:00:00+05:30", "TIMESTAMP WITH TIME ZONE '2025-03-03 18:30:00+00'"),
        ("interval", "1 day", None),
        ("date", "infinity", None),
        ("date", "0044-03-15 BC", None),
        ("date", "2025-03-04' OR '' = '", None),  # CREATE DOMAIN pg_temp.date AS text
        ("timestamp without time zone", "-infinity", None),
        ("timestamp with time zone", "292025-01-01T00:00:00+00:00", None),
        ("timestamp with time zone", "2974-01-01T00:00:00+00:00 BC", None),
        ("timestamp with time zone", "0001-01-01T00:00:00+14:00", None),
    ],
)
def test_a_value_is_written_as_every_session_reads_it(kind: str, iso: str, written_as: str | None) -> None:
    assert constant(kind, iso) == written_as


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) FROM t WHERE d < now()",  # another question at every refresh: refused later on
        "SELECT count(*) FROM t WHERE d < now() - interval '1 day'",
        "SELECT count(*) FROM t WHERE d < date_trunc('hour', now())",
        "SELECT count(*) FROM t WHERE d < date_trunc('second', current_timestamp)",
        "SELECT count(*) FROM t WHERE d < CAST(now() AS timestamp)",
        "SELECT count(*) FROM t WHERE d < current_timestamp(0)::date",
        "SELECT count(*) FROM t WHERE d < 'now()'",
        "SELECT count(*) FROM t WHERE d < t.now",
        'SELECT count(*) FROM t WHERE "current_date" = 1',
        "SELECT count(*) FROM t WHERE a = 1 -- current_date",
        "SELECT current_date, now()::date, count(*) FROM t WHERE a = 1 GROUP BY a ORDER BY current_date",
        "SELECT count(*) FILTER (WHERE a = 1), current_date FROM t",
    ],
)
def test_all_else_is_left_alone(text: str) -> None:
    assert spoken(text) == ()


def test_a_place_behind_it_is_told_as_it_was_written() -> None:
    text = "SELECT count(*) FROM t WHERE d < current_date AND e < current_date AND min(x) > 1"
    found = written(text, spoken(text), ["DATE '2025-03-04'"] * 2)
    assert found.text.count("DATE '2025-03-04'") == 2 and "current" not in found.text
    for word in ("SELECT", "WHERE", "AND", "min"):
        assert found.before(found.text.index(word) + 1) == text.index(word) + 1
    assert found.before(found.text.rindex("'2025") + 1) == text.rindex("current_date") + 1
