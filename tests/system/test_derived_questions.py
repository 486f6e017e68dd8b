"""Random questions that are answered from registered histograms: with the noise left out, the rows are PostgreSQL's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from proxies import Proxy, new_analyst
from random_questions import Asker, Table

REGISTER = """
INSERT INTO provenance.view (relation, dimensions, measure)
SELECT 'patient_data', d, m
FROM unnest(ARRAY['count(*)', 'sum(age)']) m, (VALUES ('{age,gender}'::text[]), ('{disease_type,smoker}')) v (d)
ON CONFLICT (relation_id, dimensions, measure) DO UPDATE SET registered = true"""
FORGET = "UPDATE provenance.view SET registered = false WHERE relation = 'patient_data'"

BY_AGE = Table(
    "patient_data",
    (
        *("age", "gender", "age / 10", "age % 7", "age > 50", "upper(gender)", "width_bucket(age, 0, 100, 10)"),
        *("age * 2 - 5", "CASE WHEN age < 18 THEN 'child' WHEN age < 65 THEN 'adult' ELSE 'senior' END", "age::text"),
        "CASE gender WHEN 'f' THEN 1 WHEN 'm' THEN 2 END",
    ),
    ("age",),
    (),
    ("age",),
    (
        *("age > 40", "age <= 60.5", "gender = 'f'", "gender <> 'x'", "age BETWEEN 20 AND 70", "age IS NULL"),
        *("age NOT BETWEEN 30 AND 40", "age % 2 = 0", "gender IS NULL", "gender IN ('f', 'x')", "age / 10 = 4"),
        *("gender = ANY (ARRAY['f', 'm'])", "gender IS DISTINCT FROM 'm'", "gender LIKE '%m%'", "50 < age"),
    ),
)
BY_TYPE = Table(
    "patient_data",
    (
        "disease_type",
        "smoker",
        "left(disease_type, 2)",
        "upper(disease_type)",
        "CASE WHEN smoker THEN 'yes' ELSE 'no' END",
    ),
    ("age",),
    (),
    ("age",),
    (
        *("smoker", "NOT smoker", "smoker IS NOT TRUE", "disease_type LIKE '%al'", "disease_type ILIKE 'CHR%'"),
        *("disease_type = 'viral'", "disease_type IN ('injury', 'other')", "lower(disease_type) > 'c'"),
        "smoker IS NULL",
    ),
)


@dataclass
class Desk:
    """An analyst who knows all histograms already."""

    session: psycopg.Connection[Any]
    truth: psycopg.Connection[Any]
    bills: list[dict[str, Any]] = field(default_factory=list)


@pytest.fixture(scope="module")
def desk(noiseless: Proxy, case_database: str, truth: psycopg.Connection[Any]) -> Iterator[Desk]:
    truth.execute(REGISTER)
    with noiseless.connect(new_analyst(case_database)) as session:
        at = Desk(session, truth)
        session.add_notice_handler(lambda notice: at.bills.append(json.loads(notice.message_detail or "{}")))
        session.execute("SET veil.margin = '3u'")
        session.execute("SELECT age, gender, count(*), sum(age) FROM patient_data GROUP BY 1, 2")
        session.execute("SELECT disease_type, smoker, count(*), sum(age) FROM patient_data GROUP BY 1, 2")
        session.execute("SET veil.margin = '100000u'")
        yield at
    truth.execute(FORGET)


def asked(asker: Asker) -> str:
    table = asker.rng.choice((BY_AGE, BY_TYPE))
    keys = asker.rng.sample(table.keys, asker.rng.randint(0, 2))
    numbers = [
        asker.rng.choice((f"count(*){asker.filtered(table)}", f"coalesce(sum(age){asker.filtered(table)}, 0)"))
        for _ in range(asker.rng.randint(1, 2))
    ]
    where = f" WHERE {asker.condition(table)}" if asker.chance(0.8) else ""
    grouped = f" GROUP BY {', '.join(str(place + 1) for place in range(len(keys)))}" if keys else ""
    return f"SELECT {', '.join([*keys, *numbers])} FROM patient_data{where}{grouped} -- {len(keys)}"


def differing(desk: Desk, seed: int, questions: int) -> tuple[list[str], int]:
    """The questions that are answered differently, and how many were derived."""
    asker, wrong, derived = Asker(seed), list[str](), 0
    for _ in range(questions):
        text = asked(asker)
        keys = int(text.rpartition(" ")[2])
        expected = {row[:keys]: row[keys:] for row in desk.truth.execute(text).fetchall()}
        told = {row[:keys]: row[keys:] for row in desk.session.execute(text).fetchall()}
        bill = desk.bills[-1]
        derived += any(" on " in way for way in bill.get("ways", ()))
        # Groups without a row are there too, with nothing in them.
        filled = {key: row for key, row in told.items() if key in expected or any(row)}
        if filled != {key: row for key, row in expected.items() if key in filled or any(row)}:
            wrong.append(f"{text} {bill.get('ways')}: {expected} but {filled}")
    return wrong, derived


def test_what_is_derived_is_what_postgresql_counts(desk: Desk) -> None:
    wrong, derived = differing(desk, 20261116, 120)
    assert wrong == []
    assert derived > 80, "most questions are answered from the histograms"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_much_that_is_derived_is_what_postgresql_counts(desk: Desk, seed: int) -> None:
    wrong, derived = differing(desk, seed, 600)
    assert wrong == [] and derived > 350
