"""The demo is the same everywhere, and has the shape that the documentation states."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from proxy import demo_data
from proxy.demo import TABLES, Table, prepare
from proxy.demo_data import Row

# Changing the demo changes this on purpose: two demos of one release agree byte for byte.
FINGERPRINT = "ea12f5f448a4595c0aaf5518270601c4a2873fc8a28c2c2d4de461f0c8e51ecb"


def fingerprint() -> str:
    digest = hashlib.sha256()
    for rows in (demo_data.wards, demo_data.cities, demo_data.patients, demo_data.orders, demo_data.adult):
        for row in rows():
            digest.update("\t".join(map(str, row)).encode() + b"\n")
    return digest.hexdigest()


@pytest.fixture
def place() -> Iterator[Path]:
    """Not below pytest's own directory, which another user (the server's, when we are root) cannot pass."""
    with tempfile.TemporaryDirectory(prefix="pgveil-test-") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def orders() -> list[Row]:
    return list(demo_data.orders())


@pytest.fixture(scope="module")
def patients() -> list[Row]:
    return list(demo_data.patients())


def test_another_process_makes_the_same_rows() -> None:
    program = "import test_demo_data; print(test_demo_data.fingerprint())"
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "7",
        "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)]),
    }
    other = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == FINGERPRINT


def test_sixty_thousand_patients_with_forty_diseases(patients: list[Row]) -> None:
    assert len(patients) == 60_000
    assert len({row[0] for row in patients}) == 60_000
    assert {row[2] for row in patients} == set(demo_data.GENDERS)
    assert {row[4] for row in patients} == set(demo_data.DISEASE_TYPES)
    sizes = Counter(row[3] for row in patients)
    assert len(sizes) == 40
    assert 24 <= min(sizes.values()) <= 60
    assert 3000 <= max(sizes.values()) <= 9000
    assert 15 <= sum(size > 500 for size in sizes.values()) <= 25


def test_ages_lie_between_0_and_100_and_differ_by_disease(patients: list[Row]) -> None:
    ages: dict[object, list[int]] = {}
    for row in patients:
        ages.setdefault(row[3], []).append(int(row[1]))
    assert all(0 <= age <= 100 for some in ages.values() for age in some)
    means = {disease: sum(some) / len(some) for disease, some in ages.items()}
    assert means["measles"] < 12 < 60 < means["heart failure"]


def test_a_disease_has_one_type_and_one_ward(patients: list[Row]) -> None:
    assert len({(row[3], row[4]) for row in patients}) == 40
    assert {row[3] for row in patients} == {row[0] for row in demo_data.wards()}


def test_three_hundred_thousand_orders_of_twenty_thousand_customers(orders: list[Row]) -> None:
    assert len(orders) == len({row[0] for row in orders}) == 300_000
    assert len({row[1] for row in orders}) == 20_000
    assert {(row[2], row[3]) for row in orders} == {(row[0], row[1]) for row in demo_data.cities()}
    assert len({row[2] for row in orders}) == 43
    assert len({row[3] for row in orders}) == 7
    assert {row[4] for row in orders} == set(demo_data.CATEGORIES)
    assert all(0 <= float(row[5]) <= 500 for row in orders)
    days = {str(row[6]) for row in orders}
    assert (min(days), max(days), len(days)) == ("2025-01-01", "2025-12-31", 365)


def test_sales_are_skewed(orders: list[Row]) -> None:
    cities = sorted(Counter(row[2] for row in orders).values())
    assert cities[-1] > 10 * cities[0]
    customers = sorted(Counter(row[1] for row in orders).values(), reverse=True)
    assert sum(customers[:2000]) > 0.25 * 300_000


def test_a_customer_orders_in_several_cities(orders: list[Row]) -> None:
    places: dict[object, set[object]] = {}
    for row in orders:
        places.setdefault(row[1], set()).add(row[2])
    assert sum(len(some) > 1 for some in places.values()) > 15_000


def test_adult_is_complete() -> None:
    rows = list(demo_data.adult())
    assert len(rows) == 48_842
    assert Counter(row[-1] for row in rows) == {"<=50K": 37_155, ">50K": 11_687}
    assert sum("?" in row for row in rows) == 48_842 - 45_222


FILES = """
SELECT c.oid::regclass::text, c.oid, pg_relation_filenode(c.oid), pg_relation_size(c.oid)
FROM pg_class c WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' ORDER BY 1"""


def test_a_demo_killed_while_loading_is_loaded_again_and_then_left_alone(place: Path) -> None:
    program = "import sys; from pathlib import Path; from proxy.demo import prepare; prepare(Path(sys.argv[1]))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", program, str(place)], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert any("patient_data" in line for line in process.stdout)
        process.kill()
    cluster, dsn = prepare(place)
    try:
        with psycopg.connect(dsn) as connection:
            for table in TABLES:
                count = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table.name))
                assert connection.execute(count).fetchone() == (sum(1 for _ in table.rows()),)
            declared = connection.execute("SELECT count(*) FROM provenance.attribute").fetchone()
            assert declared == (sum(len(table.columns) for table in TABLES if table.size_hint),)
            people = connection.execute("SELECT name, privilege FROM provenance.analyst ORDER BY privilege").fetchall()
            assert people == [("alice", 1), ("bob", 4), ("carol", 10)]
            connection.execute("UPDATE provenance.deployment SET epsilon = 9")
            files = connection.execute(FILES).fetchall()
            connection.execute("UPDATE provenance.analyst SET privilege = 2 WHERE name = 'alice'")
    finally:
        cluster.stop()
    cluster, dsn = prepare(place)
    try:
        with psycopg.connect(dsn) as connection:
            assert connection.execute(FILES).fetchall() == files, "no table was made or filled anew"
            changed = "SELECT epsilon, privilege FROM provenance.deployment, provenance.analyst WHERE name = 'alice'"
            assert connection.execute(changed).fetchone() == (9, 2)
    finally:
        cluster.stop()


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_value_lies_in_what_is_declared(table: Table) -> None:
    cities, wards = ({str(row[0]) for row in rows()} for rows in (demo_data.cities, demo_data.wards))
    members_from = {"city.city": cities, "ward.disease": wards}
    tests: list[Callable[[str], bool]] = []
    for column in table.columns:
        if table.size_hint is None:
            assert column.lower is None and column.members is None
            continue
        if column.lower is not None and column.upper is not None:
            read: Callable[[str], object] = str if column.type == "date" else float
            low, high = read(column.lower), read(column.upper)
            tests.append(lambda value, low=low, high=high, read=read: low <= read(value) <= high)
        else:
            members = members_from[column.members_from] if column.members_from else set(column.members or ())
            assert members
            tests.append(members.__contains__)
    width = len(table.columns)
    for row in _sample(table.rows()):
        assert len(row) == width
        assert all(test(str(value)) for test, value in zip(tests, row, strict=False)), row


def _sample(rows: Iterator[Row]) -> Iterator[Row]:
    for number, row in enumerate(rows):
        if number % 5 == 0 or number < 100:
            yield row
