"""The claim without statistics: one unit more or less moves the exact vector by no more than was claimed."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from clinic import DAYS, ORDERS, House, ask

from sqlrewrite.question import Question
from sqlrewrite.sensitivity import Contribution, sensitivity

KEYS = ("city", "region", "ordered_on")
CONDITIONS = ("amount > 50", "city <> 'Ulm'", "ordered_on < '2024-01-04'", "NOT (amount <= 20 OR city = 'Kiel')")


def fill(house: House, rng: random.Random) -> list[int]:
    """Some customers with many orders in many places, some without a name."""
    rows = []
    for number in range(rng.randrange(1, 60)):
        customer = rng.choice([None, 1, 1, 1, 2, 3, 4])
        region = "north" if (customer or 0) % 2 else "south"
        if rng.random() < 0.1:  # the declaration that a region is constant may be wrong
            region = rng.choice(["north", "south"])
        city = rng.choice(["Ulm", "Bonn", "Kiel", "Jena", "undeclared"])
        rows.append((number, customer, city, region, rng.randrange(100), rng.choice(DAYS)))
    house.connection.execute("TRUNCATE orders")
    with house.connection.cursor() as cursor:
        cursor.executemany("INSERT INTO orders VALUES (%s, %s, %s, %s, %s, %s)", rows)
    return [row[0] for row in rows]


def question(rng: random.Random) -> Question:
    keys = rng.sample(KEYS, rng.randrange(4))
    text = f"SELECT count(*) FROM orders WHERE {rng.choice(CONDITIONS)}"
    asked = ask(text + (f" GROUP BY {', '.join(keys)}" if keys else ""))
    unit = rng.choice([None, "customer_id"])
    bounded = replace(ORDERS, unit_column=unit, max_groups=rng.randint(1, 4), max_rows=rng.randint(1, 4))
    return replace(asked, relation=bounded)


def triples(house: House, rng: random.Random, databases: int, questions: int) -> int:
    """How many triples reached their claim; a triple that exceeds it fails."""
    reached = 0
    for _ in range(databases):
        orders = fill(house, rng)
        asked = [question(rng) for _ in range(questions)]
        before = [house.measure(q) for q in asked]
        victims = {None: f"order_id = {rng.choice(orders)}", "customer_id": f"customer_id = {rng.choice([1, 1, 2])}"}
        after = {}
        for unit, condition in victims.items():
            with house.connection.transaction(force_rollback=True):
                house.connection.execute(f"DELETE FROM orders WHERE {condition}")
                after[unit] = [house.measure(q) for q in asked]
        for place, q in enumerate(asked):
            moved = np.abs(before[place] - after[q.relation.unit_column][place])
            claim = sensitivity(q)
            assert moved.max() <= claim.per_cell, q
            assert np.count_nonzero(moved) <= claim.groups, q
            reached += moved.max() == claim.per_cell and np.count_nonzero(moved) == claim.groups
    return reached


def test_one_unit_moves_the_vector_within_the_claim(house: House) -> None:
    assert triples(house, random.Random(1), databases=20, questions=20) > 40  # and the claim is not idle


@pytest.mark.slow
def test_one_unit_moves_the_vector_within_the_claim_ten_thousand_times(house: House) -> None:
    triples(house, random.Random(2), databases=200, questions=50)


def test_bounding_keeps_the_same_groups_whatever_the_physical_order(house: House) -> None:
    rng = random.Random(3)
    fill(house, rng)
    asked = ask("SELECT city, ordered_on, count(*) FROM orders GROUP BY 1, 2")
    first = house.measure(asked)
    house.connection.execute(
        "CREATE TEMP TABLE shuffled ON COMMIT DROP AS SELECT * FROM orders; TRUNCATE orders;"
        "INSERT INTO orders SELECT * FROM shuffled ORDER BY hashint8(order_id + 12345)"
    )
    assert np.array_equal(first, house.measure(asked))


def test_a_person_touches_one_group_where_all_keys_are_constant_or_absent() -> None:
    assert sensitivity(ask("SELECT region, count(*) FROM orders GROUP BY 1")) == Contribution(per_cell=3, groups=1)
    assert sensitivity(ask("SELECT count(*) FROM orders")) == Contribution(per_cell=3, groups=1)
    assert sensitivity(ask("SELECT city, region, count(*) FROM orders GROUP BY 1, 2")) == Contribution(3, 2)


def test_a_row_moves_one_count_by_one() -> None:
    assert sensitivity(ask("SELECT disease, count(*) FROM patient_data GROUP BY 1")) == Contribution(1, 1)
