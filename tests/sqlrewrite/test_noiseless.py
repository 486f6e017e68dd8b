"""Random questions on random tables: with noise left out, the rows are PostgreSQL's own.

The groups that no row has are aside: PostgreSQL does not list them. Person units are covered where nobody
exceeds the bounds (each order has its own customer), and by ``test_sensitivity``.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import date

import pytest
from clinic import DAYS, House, ask

KEYS = ("gender", "disease", "insured", "weight", "ward", "feeling", "admitted", '"Odd ""Name"', "age")
VALUES: dict[str, list[object]] = {
    "age": [0, 5, 18, 100, None],
    "gender": ["F", "M", "X"],
    "disease": ["flu", "cold", 'a "quoted\\" one', "", None],
    "insured": [True, False, None],
    "weight": ["50.0", "60.5", None],
    "fever": [36.5, 38.0, "NaN", "Infinity", None],
    "ward": ["A", "B1", None],
    "feeling": ["sad", "ok", "happy", None],
    "admitted": [*DAYS, None],
    "odd": ["x", "y", None],
    "note": ["", "n", "it's", None],
}
CONDITIONS = (
    "age > 5", "age <= 18.5", "18 <> age", "age IN (0, 5, NULL)", "age NOT IN (0, 18)", "age BETWEEN 1 AND 18",
    "age NOT BETWEEN 1 AND 17.5", "gender = 'F'", "disease IS NULL", "disease IS NOT NULL", "disease < 'd'", "insured",
    "insured IS TRUE", "insured IS NOT FALSE", "insured = false", "weight >= 60.50", "weight < 55", "fever > 37",
    "fever <= 36.5", "ward = 'A'", "ward >= 'B'", "feeling > 'sad'", "feeling IN ('ok', 'sad')",
    "admitted >= '2024-01-03'", "admitted < date '2024-01-02'", "note = 'it''s'", "note <> ''", "note = NULL",
    '"Odd ""Name" = \'x\'', "weight = -50", "admitted > '2024-01-02 12:00'::timestamp",
)  # fmt: skip


def fill(house: House, rng: random.Random, outside: bool) -> None:
    rows = []
    for number in range(rng.randrange(60)):
        row = [rng.choice(values) for values in VALUES.values()]
        if outside and rng.random() < 0.2:
            row[2], row[8] = "undeclared", rng.choice([date(1999, 1, 1), "infinity", "0044-03-15 BC"])
        rows.append((number, *row))
    with house.connection.cursor() as cursor:
        cursor.executemany(f"INSERT INTO patient_data VALUES (%s{', %s' * 11})", rows)


def predicate(rng: random.Random, depth: int = 0) -> str:
    match rng.randrange(6) if depth < 3 else 5:
        case 0:
            return f"NOT ({predicate(rng, depth + 1)})"
        case 1 | 2:
            word = rng.choice([" AND ", " OR "])
            return "(" + word.join(predicate(rng, depth + 1) for _ in range(rng.randint(2, 3))) + ")"
    return rng.choice(CONDITIONS)


def question(rng: random.Random) -> str:
    keys = rng.sample(KEYS, rng.choice([0, 1, 1, 2, 2, 3]))
    outputs = rng.sample(keys, rng.randint(0, len(keys))) if keys else []
    outputs.insert(rng.randint(0, len(outputs)), "count(*)")
    if len(outputs) > 1 and rng.random() < 0.4:
        outputs.remove("count(*)")
    text = f"SELECT {', '.join(outputs)} FROM patient_data"
    if rng.random() < 0.7:
        text += f" WHERE {predicate(rng)}"
    if keys:
        text += f" GROUP BY {', '.join(keys)}"
    op = rng.choice([">", ">="]) if keys else rng.choice([">", ">=", "<", "<="])
    if rng.random() < 0.6:
        text += f" HAVING count(*) {op} {rng.choice(['1', '2', '3.5', '0.5', '7'])}"
    elif keys:
        text += " HAVING count(*) > 0"  # leaves the empty groups out
    order = rng.sample(outputs, rng.randint(0, len(outputs)))
    order += [term for term in (*keys, "count(*)") if rng.random() < 0.3]
    if order:
        text += " ORDER BY " + ", ".join(
            term + rng.choice(["", " ASC", " DESC"]) + rng.choice(["", " NULLS FIRST", " NULLS LAST"]) for term in order
        )
    if order and set(keys) <= set(order) and rng.random() < 0.7:
        text += f" LIMIT {rng.randrange(5)}" + rng.choice(["", f" OFFSET {rng.randrange(3)}"])
    return text


def compare(house: House, text: str) -> None:
    asked = ask(text)
    types = house.types(text)
    theirs = house.raw.execute(text).fetchall()
    ours = house.answer(asked, types)
    ordered = {term.output for term in asked.shape.order}
    if ordered >= set(range(len(asked.shape.columns))):
        assert ours == theirs, text
    assert Counter(map(repr, ours)) == Counter(map(repr, theirs)), text


def run(house: House, rng: random.Random, tables: int, questions: int) -> None:
    for _ in range(tables):
        house.connection.execute("TRUNCATE patient_data")
        fill(house, rng, outside=False)
        for _ in range(questions):
            compare(house, question(rng))


def test_random_questions_equal_postgresql(house: House) -> None:
    run(house, random.Random(7), tables=10, questions=30)


@pytest.mark.slow
def test_many_random_questions_equal_postgresql(house: House) -> None:
    run(house, random.Random(8), tables=50, questions=60)


def test_values_outside_the_domain_leave_no_trace(house: House) -> None:
    rng = random.Random(9)
    for _ in range(5):
        house.connection.execute("TRUNCATE patient_data")
        fill(house, rng, outside=True)
        for keys in ("disease", "admitted", "disease, admitted"):
            text = f"SELECT {keys}, count(*) FROM patient_data GROUP BY {keys} HAVING count(*) > 0"
            inside = text.replace("GROUP", "WHERE note IS NULL AND disease IS DISTINCT FROM 'undeclared' GROUP")
            theirs = house.raw.execute(inside).fetchall()
            asked = ask(text.replace("GROUP", "WHERE note IS NULL GROUP"))
            assert Counter(house.answer(asked, house.types(inside))) == Counter(theirs)


def test_orders_of_one_row_each_are_counted_in_full(house: House) -> None:
    house.connection.execute(
        "INSERT INTO orders SELECT i, i, (ARRAY['Ulm','Bonn','Kiel'])[1 + i % 3], 'north', i,"
        " date '2024-01-01' + i % 5 FROM generate_series(1, 100) i"
    )
    house.connection.execute("INSERT INTO orders SELECT 0, NULL, 'Ulm', 'north', 1, '2024-01-01'")
    rows = house.answer(ask("SELECT city, count(*) FROM orders GROUP BY 1 ORDER BY 1"), ["text", "bigint"])
    assert rows == [("Bonn", 34), ("Jena", 0), ("Kiel", 33), ("Ulm", 33)]
    assert house.answer(ask("SELECT count(*) FROM orders"), ["bigint"]) == [(100,)]


def test_an_answer_without_a_kept_group_is_empty_and_typed(house: House) -> None:
    text = "SELECT feeling, admitted, count(*) FROM patient_data GROUP BY 1, 2 HAVING count(*) > 5 ORDER BY 1, 2"
    compare(house, text)
    assert house.answer(ask(text), house.types(text)) == []


def test_negative_numbers_are_shown_only_when_they_are_wanted(house: House) -> None:
    import numpy as np

    from mechanisms.values import Noisy
    from sqlrewrite.assemble import assemble

    asked = ask("SELECT gender, count(*) FROM patient_data GROUP BY 1 ORDER BY 1")
    noisy = Noisy(np.array([[-3, 4, 0]]))
    for clip, expected in ((True, [("F", 0), ("M", 4), ("X", 0)]), (False, [("F", -3), ("M", 4), ("X", 0)])):
        finishing = assemble(asked, None, noisy, ["text", "bigint"], clip)
        assert house.raw.execute(finishing.sql, finishing.arrays).fetchall() == expected
