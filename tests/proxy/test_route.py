"""Which statements are ours: naming a protected relation, in any spelling that PostgreSQL understands."""

from __future__ import annotations

import time

import pytest

from proxy.route import PASS_ALL, Router, named
from sqlrewrite.catalog import Attribute, Catalog, Kind, Relation


def relation(name: str, kind: Kind = Kind.PROTECTED, schema: str = "public") -> Relation:
    return Relation(len(name), schema, name, kind, {"a": Attribute("a", "integer", True)})


CATALOG = Catalog(
    1,
    (
        relation("orders"),
        relation('Odd "Name'),
        relation("zürich"),
        relation("city", Kind.PUBLIC),
        relation("t", schema="s"),
    ),
)


@pytest.fixture
def router() -> Router:
    return Router.of(CATALOG)


OURS = [
    "SELECT count(*) FROM orders",
    "select count(*) from ORDERS",
    'SELECT count(*) FROM "orders"',
    'SELECT count(*) FROM "public" . "orders" AS o',
    "/* c */ TABLE orders",
    "SELECT 1 WHERE EXISTS (SELECT FROM orders)",
    "WITH x AS (SELECT * FROM orders) SELECT * FROM x",
    "SELECT * FROM city JOIN orders USING (a)",
    'SELECT * FROM "Odd ""Name"',
    "SELECT * FROM zürich",
    "SELECT count(*) FROM s.t",
    "INSERT INTO orders VALUES (1)",
    "UPDATE orders SET a = 1",
    "DELETE FROM orders",
    "EXPLAIN SELECT * FROM orders",
    "COPY orders TO STDOUT",
    "COPY (SELECT * FROM orders) TO STDOUT",
    "PREPARE q AS SELECT * FROM orders",
    "DECLARE c CURSOR FOR SELECT * FROM orders",
    "SELECT 1; SELECT * FROM orders; SELECT 2",
    "BEGIN; SELECT * FROM orders",
    "SELECT * FROM city UNION ALL SELECT * FROM orders",
]

NOT_OURS = [
    "",
    "SELECT 1",
    "SELECT * FROM city",
    "SELECT 'orders'",
    "SELECT 1 -- FROM orders",
    "SELECT 1 /* FROM orders */",
    "SELECT $$ FROM orders $$",
    "SELECT orders FROM city",
    'SELECT * FROM "ORDERS"',
    "SELECT * FROM reorders",
    "SELECT * FROM orders_2020",
    "WITH orders AS (SELECT * FROM city) SELECT * FROM orders",
    "CREATE TEMP TABLE orders (a int)",
    "DROP TABLE orders",
    "SET search_path = orders",
    "SELECT to_regclass('orders')",
    "LISTEN orders",
    "SELECT c.relname FROM pg_catalog.pg_class c WHERE c.relname OPERATOR(pg_catalog.~) '^(orders)$'",
]


@pytest.mark.parametrize("text", OURS)
def test_a_protected_relation_is_noticed(router: Router, text: str) -> None:
    assert not router.is_plain(text.encode())
    assert not router.is_plain(text.encode())  # and not forgotten


@pytest.mark.parametrize("text", NOT_OURS)
def test_other_statements_pass(router: Router, text: str) -> None:
    assert router.is_plain(text.encode())
    assert text.encode() in router.passed


def test_escapes_elsewhere_do_not_hide_a_name(router: Router) -> None:
    assert not router.is_plain(b'SELECT U&"a" FROM orders')
    assert router.is_plain(rb'SELECT U&"d\0061ta" FROM city')


def test_text_in_another_encoding_is_read_as_far_as_it_goes(router: Router) -> None:
    assert not router.is_plain("SELECT count(*) AS zähler FROM orders".encode("latin-1"))
    assert router.is_plain("SELECT 'zähler'".encode("latin-1"))
    assert router.is_plain(b"\xff\xfe\x00")


def test_settings_are_looked_at_each_time(router: Router) -> None:
    assert router.is_plain(b"SET Veil.Colour = 'blue'")
    assert not router.passed


def test_memory_is_bounded(router: Router) -> None:
    for n in range(20_100):
        router.is_plain(b"SELECT %d" % n)
    assert len(router.passed) <= 20_000
    router.is_plain(b"SELECT " + b"1" * 5000)
    assert max(map(len, router.passed)) < 100


def test_a_huge_text_keeps_nobody_waiting(router: Router) -> None:
    text = b"INSERT INTO mine VALUES " + b"('orders of magnitude')," * 1_000_000
    began = time.process_time()
    assert router.is_plain(text)
    assert time.process_time() - began < 0.5


def test_nothing_is_ours_where_nothing_is_protected() -> None:
    empty = Router.of(Catalog(1, ()))
    for text in OURS:
        assert PASS_ALL.is_plain(text.encode()) and empty.is_plain(text.encode())
    PASS_ALL.passed.clear()


def test_protection_is_by_schema_and_name(router: Router) -> None:
    assert router.protects("public", "orders") and router.protects("s", "t")
    assert not router.protects("pg_temp_3", "orders") and not router.protects("public", "city")


def test_relations_are_named_with_their_schema() -> None:
    assert named('SELECT * FROM s.t, "U" JOIN v ON true') == {("s", "t"), (None, "U"), (None, "v")}
    assert (None, "orders") in named("EXPLAIN SELECT * FROM orders")
