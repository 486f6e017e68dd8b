"""Attack: a question that fails on one row and not on another tells that the row is there.

Each text is measured on no row, and on rows with every value that may trip PostgreSQL or Python up; neither may raise.
PostgreSQL turns constants into other types when it plans or, in a generic plan, when a row is there: so both are tried.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

import psycopg
import pytest
from question_world import (
    BY_ACCOUNT,
    BY_OWNER,
    BY_PATH,
    BY_ROW,
    COLUMNS,
    HOSTILE,
    STAY,
    VALUES,
    WARD,
    Server,
    Writer,
    ask,
)

from mechanisms.errors import Refusal
from sqlrewrite.catalog import Catalog

TOTAL = [
    # columns of different collations have none together
    "SELECT count(*) FROM stay JOIN ward USING (ward) WHERE kind = zone",
    "SELECT count(*) FROM stay JOIN ward USING (ward) WHERE kind < zone OR lower(zone) >= upper(kind)",
    "SELECT count(*) FROM stay JOIN ward USING (ward) WHERE coalesce(kind, zone) = 'a'",
    "SELECT count(*) FROM stay JOIN ward USING (ward) WHERE CASE WHEN paid THEN kind ELSE zone END LIKE 'a%'",
    "SELECT count(*) FILTER (WHERE lower(coalesce(zone, kind)) > 'a') FROM stay JOIN ward USING (ward)",
    "SELECT count(*) FROM stay JOIN ward ON stay.kind = ward.ward",
    "SELECT count(*) FROM stay WHERE note ILIKE '%s_%' OR note LIKE '' OR kind NOT LIKE '%%%%'",
    # numbers at the ends of their types
    "SELECT sum(n * n * n), sum(big * big), sum(-big), sum(abs(big)), sum(small * small) FROM stay",
    "SELECT sum(whole * whole), sum(whole * n * 1.5), sum(wide / 7), sum(wide % 3) FROM stay",
    "SELECT sum(whole::int), sum(wide::bigint), sum(rate::smallint), sum(fine::int), sum(n::smallint) FROM stay",
    "SELECT sum(rate * rate) FROM stay",
    "SELECT sum(fine - rate) FROM stay",
    "SELECT variance(rate), stddev(wide), var_pop(big) FROM stay",
    "SELECT sum(coalesce(rate, 2147483648)), avg(coalesce(rate, -5e12)) FROM stay",  # in steps wider than 1
    "SELECT sum(round(rate)), sum(floor(fine)), sum(round(wide, -2)), sum(trunc(whole, 30)), sum(ceil(rate)) FROM stay",
    "SELECT width_bucket(rate, 0, 1, 4), width_bucket(wide, 5, 10.5, 3), count(*) FROM stay GROUP BY 1, 2",
    "SELECT count(*) FROM stay WHERE rate > 1e300 OR fine = 3e38 OR wide > whole * 1e20 OR n / -1 > 0 OR big % -1 = 0",
    "SELECT ward FROM stay GROUP BY ward HAVING avg(whole::bigint) > 7 AND count(*) > 5",
    # moments outside the calendar
    "SELECT date_trunc('millennium', day), count(*) FROM stay GROUP BY 1",
    "SELECT extract(year FROM day + 400000), extract(dow FROM till), count(*) FROM stay GROUP BY 1, 2",
    "SELECT count(*) FROM stay WHERE at + INTERVAL '3000 years' > day - INTERVAL '3000 years' OR till::date < day",
    "SELECT count(*) FROM stay WHERE day < till OR at > till OR day > at OR date_trunc('week', at) = day",
    "SELECT till::date, count(*) FROM stay GROUP BY 1",
    "SELECT at, count(*), sum(extract(second FROM at)) FROM stay GROUP BY at",
    "SELECT count(*) FROM stay WHERE extract(epoch FROM till) > 0 OR date_part('julian', day) > 0 OR day - day > 0",
    "SELECT day::text, till::text, count(*) FROM stay GROUP BY 1, 2",
    # other types
    "SELECT span, count(*) FROM stay WHERE span > '1 day' GROUP BY span",
    "SELECT feeling, code, wide, note, count(*) FROM stay GROUP BY feeling, code, wide, note",
    "SELECT count(shape), count(*) FROM stay WHERE shape IS NOT NULL",
    "SELECT whole, rate::numeric, count(*) FROM stay GROUP BY CUBE (whole, rate::numeric)",
]

REFUSED = [
    "SELECT count(*) FROM stay WHERE shape = '((0,0),(1,1))'",  # the area of a box leaves the range of floats
    "SELECT count(*) FROM stay WHERE rate > 1e-400",  # zero as a float, which PostgreSQL says on a row
    "SELECT count(*) FROM stay WHERE rate > 1e399",
    "SELECT width_bucket(rate, 0, 1e390, 5), count(*) FROM stay GROUP BY 1",
    "SELECT count(*) FROM stay WHERE n / small > 1",
    "SELECT count(*) FROM stay WHERE note::int > 1",
    "SELECT count(*) FROM stay WHERE day + n > '2024-01-01'",
    "SELECT count(*) FROM stay WHERE day + INTERVAL '9999 years' > '2024-01-01'",
    "SELECT sum(whole * whole * whole * whole * whole * whole) FROM stay",  # some hundred digits
]


def put_hostile_rows(server: Server) -> None:
    """Each hostile value stands in some row, beside tame ones."""
    server.connection.execute("TRUNCATE stay, account; INSERT INTO account VALUES (1, 1, 'f')")
    rng = random.Random(4)
    most = max(len(values) for values in HOSTILE.values())
    rows = [(number, 1, *(HOSTILE[name][number % len(HOSTILE[name])] for name in COLUMNS)) for number in range(most)]
    rows += [(most + 1, 1, *(VALUES[name][0] for name in COLUMNS))]
    for number in range(40):
        picked = {name: rng.choice((HOSTILE if rng.random() < 0.5 else VALUES)[name]) for name in COLUMNS}
        picked["ward"] = rng.choice(("north", "south", "attic"))
        rows.append((most + 2 + number, 1, *picked.values()))
    with server.connection.cursor() as cursor:
        cursor.executemany(f"INSERT INTO stay VALUES (%s, %s{', %s' * len(COLUMNS)})", rows)


def failures(server: Server, texts: list[str], catalog: Catalog = BY_ROW) -> list[str]:
    """The texts that fail on hostile rows, or on none."""
    found = []
    for text in texts:
        assert server.reads(text), text
        asked = ask(text, catalog)
        try:
            server.measured(asked.question, server.grid(asked.question))
        except (psycopg.Error, ValueError, OverflowError, TypeError):
            found.append(text)
    return found


@pytest.mark.parametrize("catalog", [BY_ROW, BY_ACCOUNT], ids=["rows", "persons"])
@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
def test_no_row_makes_a_question_fail(server: Server, catalog: Catalog, plans: str) -> None:
    server.connection.execute(f"SET LOCAL plan_cache_mode = {plans}")
    server.connection.execute("TRUNCATE stay")
    assert failures(server, TOTAL, catalog) == []
    put_hostile_rows(server)
    assert failures(server, TOTAL, catalog) == []


@pytest.mark.parametrize("text", REFUSED)
def test_what_could_fail_on_a_row_is_refused_before_it_is_measured(server: Server, text: str) -> None:
    with pytest.raises(Refusal):
        asked = ask(text)
        server.rows(asked.question)


def test_random_questions_do_not_fail_on_hostile_rows(server: Server) -> None:
    put_hostile_rows(server)
    rng, ways = random.Random(11), Counter[str]()
    writer = Writer(rng)
    while ways["measured"] < 150:
        text = writer.question()
        if not server.reads(text):
            continue
        try:
            asked = ask(text, rng.choice((BY_ROW, BY_ACCOUNT, BY_OWNER, BY_PATH)), support=5)
            grid = server.grid(asked.question)
        except Refusal:
            ways["refused"] += 1
            continue
        server.measured(asked.question, grid)
        ways["measured"] += 1


def test_a_comparison_of_two_collations_would_be_seen(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: texts are compared as they are."""
    for module in ("render", "functions"):
        monkeypatch.setattr(f"sqlrewrite.{module}.collated", lambda sql: sql)
    put_hostile_rows(server)
    seen = failures(server, TOTAL)
    assert any("kind = zone" in text for text in seen) and any("coalesce(kind, zone)" in text for text in seen)


def test_a_product_that_overflows_would_be_seen(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: whole numbers are multiplied in int8 whatever their size."""
    monkeypatch.setattr("sqlrewrite.arithmetic.INT8", 2**400)
    put_hostile_rows(server)
    assert any("big * big" in text for text in failures(server, TOTAL))


def test_a_moment_outside_the_calendar_would_be_seen(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: infinite moments are keys, which Python cannot hold; and are moved, which PostgreSQL cannot do."""
    put_hostile_rows(server)
    with monkeypatch.context() as planted:
        planted.setattr("sqlrewrite.generate._Statement._having", lambda self, keys: "")
        assert any("GROUP BY at" in text for text in failures(server, TOTAL))
    monkeypatch.setattr("sqlrewrite.guarded.CALENDAR", {})
    assert any("3000 years" in text for text in failures(server, TOTAL))


SPELLINGS = {
    "SELECT wide, count(*) FROM stay GROUP BY wide": ("7.25", "7.250000"),
    "SELECT whole * 1, count(*) FROM stay GROUP BY 1": ("5", "5.000"),
    "SELECT span, count(*) FROM stay GROUP BY span": ("1 day", "24:00:00"),
    "SELECT rate::numeric, count(*) FROM stay GROUP BY 1": ("0", "-0"),
}


def named(server: Server, text: str, catalog: Catalog = BY_ROW) -> list[set[str]]:
    """The keys of many rows with one spelling of a value, and of the same with one row of another spelling."""
    first, second = SPELLINGS[text]
    name = text.split()[1].split("::")[0].strip(",")
    found = []
    for odd in (False, True):
        server.connection.execute("TRUNCATE stay")
        for number in range(4):
            picked = {column: values[0] for column, values in VALUES.items()}
            picked[name] = second if odd and number == 0 else first
            server.connection.execute(
                f"INSERT INTO stay VALUES (%s, NULL{', %s' * len(COLUMNS)})".encode(), (number, *picked.values())
            )
        rows = server.rows(ask(text, catalog).question)
        found.append({str(row[0]) for row in rows if row[1] > 1})
    return found


@pytest.mark.parametrize("text", SPELLINGS)
def test_one_row_does_not_respell_the_key_of_a_group(server: Server, text: str) -> None:
    """Attack: GROUP BY shows any one of the values that it takes for equal; 1.00 among ones would be told."""
    alone, together = named(server, text)
    assert alone == together


def test_a_respelt_key_would_be_seen(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: numbers are grouped and shown as they are stored, and groups are made by equality."""
    plain = replace(STAY.attributes["wide"], type_name="numeric(40,9)")  # such a number is a key as it is stored
    catalog = Catalog(1, (replace(STAY, attributes={**STAY.attributes, "wide": plain}), WARD))
    monkeypatch.setattr("sqlrewrite.generate._shown", lambda column, type_name: column)
    alone, together = named(server, "SELECT wide, count(*) FROM stay GROUP BY wide", catalog)
    assert alone != together
    monkeypatch.setattr("sqlrewrite.generate._grouped", lambda column, type_name: column)
    monkeypatch.setattr("sqlrewrite.generate._shown", lambda column, type_name: f"({column}::text)")
    alone, together = named(server, "SELECT span, count(*) FROM stay GROUP BY span")
    assert alone != together


def test_an_hour_that_comes_twice_has_its_two_groups(server: Server) -> None:
    """Python takes 02:30 of the night that summer time ends for unequal to the same moment in UTC."""
    server.connection.execute("TRUNCATE stay")
    hours = (datetime(2024, 10, 27, 0, tzinfo=UTC), datetime(2024, 10, 27, 1, tzinfo=UTC))
    till = replace(STAY.attributes["till"], domain=hours)
    catalog = Catalog(1, (replace(STAY, attributes={**STAY.attributes, "till": till}), WARD))
    tame = {column: values[0] for column, values in VALUES.items()}
    for number, hour in enumerate((hours[0], hours[1], hours[1])):
        server.connection.execute(
            f"INSERT INTO stay VALUES (%s, NULL{', %s' * len(COLUMNS)})".encode(),
            (number, *{**tame, "till": hour}.values()),
        )
    for key in ("till", "date_trunc('hour', till)"):
        question = ask(f"SELECT {key}, count(*) FROM stay GROUP BY 1", catalog).question
        grid = server.grid(question)
        assert grid is not None
        assert grid.fill(server.rows(question)).sum() == 3, key
