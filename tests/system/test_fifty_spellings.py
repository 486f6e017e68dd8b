"""The same question again, in fifty spellings and by several clients, costs nothing and shows the same numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from proxies import Proxy, charges, new_analyst
from test_psql import psql, through

Row = tuple[Any, ...]
Spelling = str | tuple[str, Sequence[Any]]

# Adults with two kinds of disease, by gender: a conjunction, a range and a list.
ADULTS: tuple[Spelling, ...] = (
    "SELECT gender, count(*) FROM patient_data"
    " WHERE age BETWEEN 18 AND 64 AND disease_type IN ('viral', 'bacterial') GROUP BY gender",
    "SELECT gender, count(*) FROM patient_data"
    " WHERE disease_type IN ('viral', 'bacterial') AND age BETWEEN 18 AND 64 GROUP BY gender",
    "SELECT gender, count(*) FROM patient_data"
    " WHERE disease_type IN ('bacterial', 'viral') AND age >= 18 AND age <= 64 GROUP BY gender",
    "SELECT gender, count(*) FROM patient_data"
    " WHERE age <= 64 AND (disease_type = 'viral' OR disease_type = 'bacterial') AND 18 <= age GROUP BY gender",
    "SELECT gender, count(*) FROM patient_data"
    " WHERE ('bacterial' = disease_type OR 'viral' = disease_type) AND NOT age < 18 AND NOT (age > 64) GROUP BY gender",
    "SELECT gender, count(*) FROM patient_data"
    " WHERE NOT (age < 18 OR age > 64) AND disease_type = ANY (ARRAY['viral', 'bacterial']) GROUP BY gender",
    "SELECT gender, count(*) FROM patient_data"
    " WHERE NOT (age NOT BETWEEN 18 AND 64) AND NOT disease_type NOT IN ('viral', 'bacterial') GROUP BY gender",
    "SELECT gender, count(*) FROM patient_data"
    " WHERE age BETWEEN 18 AND 64 AND NOT (disease_type <> 'viral' AND disease_type != 'bacterial') GROUP BY gender",
    "SELECT gender, count(*) FROM patient_data"
    " WHERE age BETWEEN 18 AND 64 AND disease_type IN ('viral', 'bacterial') GROUP BY GROUPING SETS ((gender))",
    "SELECT count(*), gender FROM patient_data"
    " WHERE age BETWEEN 18 AND 64 AND disease_type IN ('viral', 'bacterial') GROUP BY gender",
    "SELECT gender, count(*) FROM patient_data"
    " WHERE age > 17 AND age < 65 AND disease_type IN ('viral', 'bacterial') GROUP BY gender",
    "SELECT gender, count(*) FROM patient_data"
    " WHERE age >= 18.0 AND age <= 6.4e1 AND disease_type IN ('viral', 'bacterial') GROUP BY gender",
    "select GENDER, COUNT(*) from PATIENT_DATA"
    " where AGE between 18 and 64 and DISEASE_TYPE in ('viral', 'bacterial') group by GENDER",
    "SELECT   gender ,\n\tcount( * )\nFROM patient_data -- who\nWHERE age BETWEEN 18 AND 64 /* adults */\n"
    "  AND disease_type IN ( 'viral' , 'bacterial' )\nGROUP BY gender ;",
    "SELECT p.gender, count(*) FROM patient_data p"
    " WHERE p.age BETWEEN 18 AND 64 AND p.disease_type IN ('viral', 'bacterial') GROUP BY p.gender",
    "SELECT who.gender AS g, count(*) AS n FROM public.patient_data AS who"
    " WHERE who.age BETWEEN 18 AND 64 AND who.disease_type IN ('viral', 'bacterial') GROUP BY who.gender",
    'SELECT "gender", count(*) FROM "public"."patient_data"'
    ' WHERE "age" BETWEEN 18 AND 64 AND "disease_type" IN (\'viral\', \'bacterial\') GROUP BY "gender"',
    "SELECT gender, count(*) FROM patient_data"
    " WHERE age BETWEEN 18 AND 64 AND disease_type IN ('viral', 'bacterial') GROUP BY 1",
    "SELECT gender AS who, count(*) FROM patient_data"
    " WHERE age BETWEEN 18 AND 64 AND disease_type IN ('viral', 'bacterial') GROUP BY who",
    "SELECT gender, count(*) FROM patient_data"
    " WHERE (((age BETWEEN 18 AND 64))) AND (disease_type IN ('viral', 'bacterial')) GROUP BY (gender)",
    "SELECT gender, count(1) FROM patient_data"
    " WHERE age BETWEEN 18 AND 64 AND disease_type IN ('viral', 'bacterial') GROUP BY gender",
    "SELECT gender, count(*) FROM patient_data"
    " WHERE age BETWEEN 18 AND 64 AND disease_type IN ('viral', 'bacterial', 'viral') AND true GROUP BY gender",
    "SELECT gender, count(*) FROM patient_data"
    " WHERE age BETWEEN 18 AND 64 AND age >= 18 AND disease_type IN ('viral', 'bacterial') GROUP BY gender",
    "SELECT gender, count(*) FROM patient_data"
    " WHERE age BETWEEN 18 AND 64 AND disease_type IN ('viral', 'bacterial') GROUP BY gender ORDER BY count(*) DESC",
    "SELECT gender, count(*) FROM patient_data"
    " WHERE age BETWEEN 18 AND 64 AND disease_type IN ('viral', 'bacterial') GROUP BY gender LIMIT 100 OFFSET 0",
    "SELECT * FROM (SELECT gender, count(*) FROM patient_data"
    " WHERE age BETWEEN 18 AND 64 AND disease_type IN ('viral', 'bacterial') GROUP BY gender) AS inside",
    "WITH adults AS (SELECT gender, count(*) AS n FROM patient_data"
    " WHERE age BETWEEN 18 AND 64 AND disease_type IN ('viral', 'bacterial') GROUP BY gender) SELECT * FROM adults",
    (
        "SELECT gender, count(*) FROM patient_data"
        " WHERE age BETWEEN %s AND %s AND disease_type IN (%s, %s) GROUP BY gender",
        (18, 64, "viral", "bacterial"),
    ),
    (
        "SELECT gender, count(*) FROM patient_data"
        " WHERE age >= %b AND age <= %b AND disease_type = ANY (%s) GROUP BY gender",
        (18, 64, ["bacterial", "viral"]),
    ),
    (
        "SELECT gender, count(*) FROM patient_data"
        " WHERE disease_type IN (%t, %t) AND %s <= age AND age <= %s GROUP BY gender",
        ("bacterial", "viral", Decimal("18.0"), 64),
    ),
)

# What everything but gardens brought in by region, in spring: an amount, and days.
SALES: tuple[Spelling, ...] = (
    "SELECT region, sum(amount) FROM orders"
    " WHERE ordered_on >= DATE '2025-03-01' AND ordered_on < DATE '2025-06-01' AND category <> 'garden' GROUP BY 1",
    "SELECT region, sum(amount) FROM orders"
    " WHERE category <> 'garden' AND ordered_on >= '2025-03-01' AND ordered_on < '2025-06-01' GROUP BY region",
    "SELECT region, sum(amount) FROM orders WHERE NOT category = 'garden'"
    " AND ordered_on >= '2025-03-01'::date AND NOT ordered_on >= CAST('2025-06-01' AS date) GROUP BY region",
    "SELECT o.region, sum(o.amount) AS total FROM orders o"
    " WHERE DATE '2025-06-01' > o.ordered_on AND o.category != 'garden' AND DATE '2025-03-01' <= o.ordered_on"
    " GROUP BY o.region ORDER BY 2",
    "SELECT region, sum(amount) FROM orders WHERE ordered_on BETWEEN DATE '2025-03-01' AND DATE '2025-05-31'"
    " AND category NOT IN ('garden') GROUP BY region",
    "SELECT region, sum(amount) FROM orders WHERE NOT (ordered_on < DATE '2025-03-01' OR category = 'garden')"
    " AND ordered_on <= DATE '2025-05-31' GROUP BY region",
    (
        "SELECT region, sum(amount) FROM orders WHERE ordered_on >= %s AND ordered_on < %s AND category <> %s"
        " GROUP BY region",
        ("2025-03-01", "2025-06-01", "garden"),
    ),
    "SELECT region, total FROM (SELECT region, sum(amount) AS total FROM orders WHERE ordered_on >= DATE '2025-03-01'"
    " AND ordered_on < DATE '2025-06-01' AND category <> 'garden' GROUP BY 1) AS s WHERE true",
)

# Which diseases many adults have.
DECISION: tuple[Spelling, ...] = (
    "SELECT disease FROM patient_data WHERE age >= 18 GROUP BY disease HAVING count(*) > 2000",
    "SELECT disease FROM patient_data WHERE 18 <= age GROUP BY disease HAVING 2000 < count(*)",
    "SELECT disease FROM patient_data WHERE NOT age < 18 GROUP BY 1 HAVING count(*) >= 2001",
    "SELECT disease FROM patient_data WHERE age > 17 GROUP BY disease HAVING NOT count(*) <= 2000",
    "SELECT d.disease FROM patient_data d WHERE d.age >= 18 GROUP BY d.disease HAVING count(*) > 2000.0",
    "SELECT disease FROM patient_data WHERE age >= 18 GROUP BY disease HAVING count(*) > 2000 AND count(*) > 2000",
    "SELECT disease FROM patient_data WHERE age >= 18 GROUP BY disease HAVING count(*) > 2000 OR count(*) >= 2001",
    "SELECT disease FROM patient_data WHERE age >= 18 GROUP BY disease HAVING count(*) > 1999 + 1",
    "SELECT disease FROM patient_data WHERE age >= 18 GROUP BY disease HAVING count(*) > 2000 ORDER BY disease DESC",
    "SELECT DISTINCT disease FROM patient_data WHERE age >= 18 GROUP BY disease HAVING count(*) > 2000",
    "SELECT disease FROM (SELECT disease FROM patient_data WHERE age >= 18 GROUP BY disease HAVING count(*) > 2000) x",
    "WITH x AS (SELECT disease FROM patient_data WHERE age >= 18 GROUP BY disease HAVING count(*) > 2000) TABLE x",
    ("SELECT disease FROM patient_data WHERE age >= %s GROUP BY disease HAVING count(*) > %s", (18, 2000)),
    ("SELECT disease FROM patient_data WHERE age >= %s GROUP BY disease HAVING count(*) > %b", (Decimal("18.0"), 2000)),
)
SPELLINGS = {"adults": ADULTS, "sales": SALES, "decision": DECISION}


def asked(session: psycopg.Connection[Any], spelling: Spelling, **how: Any) -> list[Row]:
    """The answer, rows and columns in an order of their own."""
    text, values = (spelling, None) if isinstance(spelling, str) else spelling
    return ordered(session.execute(text.encode(), values, **how).fetchall())


def ordered(rows: Sequence[Row]) -> list[Row]:
    return sorted((tuple(sorted(row, key=lambda value: type(value).__name__, reverse=True)) for row in rows), key=str)


def test_there_are_fifty_of_them() -> None:
    assert len({str(spelling) for spellings in SPELLINGS.values() for spelling in spellings}) >= 50


@pytest.mark.parametrize("question", SPELLINGS)
def test_every_spelling_is_the_same_question(proxy: Proxy, upstream: str, question: str) -> None:
    name = new_analyst(upstream)
    bills: list[dict[str, Any]] = []
    with proxy.connect(name) as session:
        session.add_notice_handler(lambda notice: bills.append(json.loads(notice.message_detail or "{}")))
        # A total of a small region may come out below zero, and only at the top of a statement would it be shown as 0.
        session.execute("SET veil.raw = on")
        first, *others = SPELLINGS[question]
        known = asked(session, first)
        assert known and len(charges(upstream, name)) == 1
        # All are asked before anything is said, so that a failure tells every spelling that costs or differs.
        answers = {str(spelling): asked(session, spelling) for spelling in others}
    odd = [text for text, rows in answers.items() if rows != known]
    dear = [bill["question"] for bill in bills[1:] if bill["epsilon"] or bill["charged"] != "0" or not bill["reused"]]
    assert not odd and not dear and len(bills) == len(others) + 1
    assert len(charges(upstream, name)) == 1


def test_every_spelling_may_be_the_first(proxy: Proxy, upstream: str) -> None:
    """Whoever pays, the others are free: here the last one pays."""
    for spellings in SPELLINGS.values():
        name = new_analyst(upstream)
        with proxy.connect(name) as session:
            shown = {str(asked(session, spelling)) for spelling in reversed(spellings[::5])}
        assert len(shown) == 1 and len(charges(upstream, name)) == 1


def test_another_client_is_told_the_same(proxy: Proxy, upstream: str) -> None:
    name, text = new_analyst(upstream), str(ADULTS[0])
    with proxy.connect(name) as session:
        known = asked(session, text)
        told = [asked(session, text, prepare=True), asked(session, text, binary=True)]
        with psycopg.ClientCursor(session) as simple, psycopg.RawCursor(session) as raw:
            told += [ordered(cursor.execute(text).fetchall()) for cursor in (simple, raw)]
        with session.pipeline():
            piped = [session.execute(text.encode()) for _ in range(3)]
        told += [ordered(cursor.fetchall()) for cursor in piped]
        with session.transaction():
            told.append(asked(session, text))
    with proxy.connect(name, client_encoding="latin1") as other:
        told.append(asked(other, text))
    assert all(rows == known for rows in told)
    printed = psql(through(proxy, name), f"{text};\n", "-A", "-t", "-q")
    assert sorted(line for line in printed.splitlines() if "|" in line) == sorted(f"{g}|{n}" for g, n in known)
    assert len(charges(upstream, name)) == 1


def repeated(proxy: Proxy, upstream: str, times: int) -> None:
    """Ask again and again, in turns: if the noise were drawn anew even once, the mean would begin to sharpen."""
    name, texts = new_analyst(upstream), [str(text) for text in ADULTS if isinstance(text, str)]
    seen: set[str] = set()
    with proxy.connect(name) as session:
        asked(session, texts[0])
        for start in range(0, times, 100):
            with session.pipeline():
                cursors = [session.execute(texts[at % len(texts)].encode()) for at in range(start, start + 100)]
            seen |= {str(ordered(cursor.fetchall())) for cursor in cursors}
    assert len(seen) == 1 and len(charges(upstream, name)) == 1


def test_repeats_do_not_sharpen_the_mean(proxy: Proxy, upstream: str) -> None:
    repeated(proxy, upstream, 300)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_ten_thousand_repeats_do_not_sharpen_the_mean(proxy: Proxy, upstream: str) -> None:
    repeated(proxy, upstream, 10_000)
