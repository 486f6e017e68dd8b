"""FROM: joins that keep one row one row, whose unit is bounded, and what names mean."""

from __future__ import annotations

import pytest
from fragments import CUSTOMERS, ORDERS, PATIENTS, Shop, ask

from mechanisms.errors import Refusal
from sqlrewrite.question import ColumnRef, Unit

CUSTOMER = ColumnRef(0, "customer_id", "integer")
JOINED = [
    "orders",
    "public.orders",
    "orders o",
    "orders AS o",
    "Orders",
    '"orders"',
    "orders JOIN city ON orders.city = city.city",
    "orders o INNER JOIN city c ON (c.city = o.city)",
    "orders o LEFT JOIN city c ON o.city = c.city",
    "orders o LEFT OUTER JOIN city c USING (city)",
    "orders JOIN city USING (city)",
    "orders o JOIN city c USING (city) JOIN region r USING (region)",
    "orders o LEFT JOIN city c ON o.city = c.city LEFT JOIN region r ON r.region = c.region",
    "orders o JOIN city c ON o.city = c.city AND c.population > 200000",
    "orders o JOIN city c ON o.city = c.city AND o.quantity > 3 JOIN region r ON c.region = r.region",
    "city c JOIN orders o ON o.city = c.city",
    "region r JOIN city c ON r.region = c.region JOIN orders o ON o.city = c.city",
    "city JOIN orders USING (city) LEFT JOIN region USING (region)",
    "orders o JOIN city a ON o.city = a.city JOIN city b ON o.city = b.city",
    "orders o JOIN customers c ON o.customer_id = c.id",
    "customers c JOIN orders o ON c.id = o.customer_id",
    "orders o LEFT JOIN customers c ON o.customer_id = c.id",
    "customers c JOIN orders o ON c.id = o.customer_id LEFT JOIN city ON city.city = o.city",
    "orders o LEFT JOIN city c ON o.city = c.city JOIN region r ON c.region = r.region",
    "orders o LEFT JOIN city c ON o.city = c.city JOIN customers k ON k.id = o.customer_id",
]


@pytest.mark.parametrize("text", JOINED)
def test_a_join_has_postgresqls_rows(text: str, shop: Shop) -> None:
    expected = shop.plain(f"SELECT order_id FROM {text} ORDER BY 1")
    question = ask(text)
    assert question.relation == ORDERS
    assert shop.kept(question) == expected
    assert len(set(expected)) == len(expected)


REFUSED = [
    ("nothing", "42P01"),
    ("pg_class", "42P01"),
    ("city", "0A000"),
    ("city JOIN region USING (region)", "0A000"),
    ("orders, city", "0A000"),
    ("orders, city WHERE true", "0A000"),
    ("orders CROSS JOIN city", "0A000"),
    ("orders NATURAL JOIN city", "0A000"),
    ("orders RIGHT JOIN city USING (city)", "0A000"),
    ("orders FULL JOIN city USING (city)", "0A000"),
    ("orders JOIN city", "0A000"),
    ("city LEFT JOIN orders USING (city)", "0A000"),
    ("customers LEFT JOIN orders ON id = customer_id", "0A000"),
    ("orders JOIN holiday ON ordered_on = day", "0A000"),
    ("orders o JOIN city c ON o.city = c.region", "0A000"),
    ("orders o JOIN city c ON o.quantity = c.population", "0A000"),
    ("orders o JOIN city c ON o.city < c.city", "0A000"),
    ("orders o JOIN city c ON o.city = c.city OR true", "0A000"),
    ("orders o JOIN city c ON true", "0A000"),
    ("orders o LEFT JOIN city c ON o.city = c.city AND c.population > 5", "0A000"),
    ("orders o JOIN city c ON lower(o.city) = c.city", "0A000"),
    ("orders o JOIN city c ON o.quantity = c.city", "0A000"),
    ("orders a JOIN orders b ON a.order_id = b.order_id", "0A000"),
    ("orders a JOIN orders b USING (order_id)", "0A000"),
    ("orders o JOIN patients p ON o.customer_id = p.id", "0A000"),
    ("orders o JOIN customers c ON o.quantity = c.id", "0A000"),
    ("orders o JOIN customers c ON o.customer_id = c.id AND o.city = c.segment", "0A000"),
    ("visits v JOIN orders o ON o.order_id = v.visit_id", "0A000"),
    ("orders o JOIN city o USING (city)", "0A000"),
    ("orders JOIN city USING (town)", "42703"),
    ("orders o JOIN city c ON o.city = d.city", "42P01"),
    ("orders o JOIN city c ON o.town = c.city", "42703"),
    ("(orders JOIN city USING (city))", "0A000"),
    ("LATERAL (SELECT 1) x", "0A000"),
    ("generate_series(1, 2)", "0A000"),
    ("ONLY orders", "0A000"),
    ("orders TABLESAMPLE SYSTEM (1)", "0A000"),
    ("orders o (a, b)", "0A000"),
    ("db.public.orders", "0A000"),
    ("orders PIVOT (sum(amount) FOR city IN ('a'))", "0A000"),
    ("ROWS FROM (generate_series(1, 2))", "0A000"),
    ("VALUES (1)", "0A000"),
    ("orders WHERE true", "0A000"),
    ("orders FOR UPDATE", "0A000"),
    ("orders UNION SELECT 1 FROM orders", "42601"),
    ("a" * 64, "0A000"),
    ("", "42601"),
]


@pytest.mark.parametrize(("text", "sqlstate"), REFUSED)
def test_a_join_that_could_multiply_rows_is_refused(text: str, sqlstate: str) -> None:
    with pytest.raises(Refusal) as caught:
        ask(text)
    assert caught.value.sqlstate == sqlstate, caught.value.message


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("orders", Unit((CUSTOMER,), 4, 3)),
        ("patients", Unit()),
        ("orders JOIN customers ON customer_id = id", Unit((CUSTOMER,), 4, 3)),
        ("customers JOIN orders ON customer_id = id", Unit((CUSTOMER,), 4, 3)),
        ("visits JOIN patients ON patient = id", Unit((ColumnRef(1, "id", "integer"),), 1, 1)),
        ("patients JOIN ward USING (disease)", Unit()),
        ("customers", Unit()),
    ],
)
def test_the_unit_is_that_of_the_table_that_holds_it(text: str, unit: Unit) -> None:
    assert ask(text).unit == unit


def test_a_parent_with_another_unit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    import fragments

    parent = replace(CUSTOMERS, unit_column="segment")
    catalog = fragments.Catalog(1, (ORDERS, parent, PATIENTS))
    monkeypatch.setattr(fragments, "CATALOG", catalog)
    with pytest.raises(Refusal) as caught:
        ask("orders JOIN customers ON customer_id = id")
    assert caught.value.sqlstate == "0A000"
    child = replace(ORDERS, unit_column=None)
    monkeypatch.setattr(fragments, "CATALOG", fragments.Catalog(1, (child, parent)))
    found = ask("orders JOIN customers ON customer_id = id").unit
    assert found == Unit((ColumnRef(1, "segment", "text"),), parent.max_groups, parent.max_rows)


def test_what_is_constant_in_a_row_is_not_constant_in_the_unit_of_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    import fragments

    for unit, constant in (("customer_id", True), (None, False)):
        city = replace(ORDERS.attributes["city"], constant_per_unit=True)
        child = replace(ORDERS, unit_column=unit, attributes={**ORDERS.attributes, "city": city})
        monkeypatch.setattr(fragments, "CATALOG", fragments.Catalog(1, (child, replace(CUSTOMERS, unit_column="id"))))
        (key,) = ask("orders JOIN customers ON customer_id = id", keys=["city"], aggregates=["count(*)"]).keys
        assert key.constant_per_unit is constant


def test_the_hint_tells_the_administrator_what_is_missing() -> None:
    with pytest.raises(Refusal) as caught:
        ask("orders JOIN holiday ON ordered_on = day")
    assert "ADD PRIMARY KEY (day)" in (caught.value.hint or "")


def test_names_mean_what_they_mean_in_postgresql() -> None:
    question = ask("orders o LEFT JOIN city c USING (city)", keys=["city", "c.city", "region", "o.city"])
    assert [key.expression for key in question.keys] == [
        ColumnRef(0, "city", "text"),
        ColumnRef(1, "city", "text"),
        ColumnRef(1, "region", "text"),
        ColumnRef(0, "city", "text"),
    ]
    with pytest.raises(Refusal):
        ask("orders o JOIN city c ON o.city = c.city", keys=["city"])
    with pytest.raises(Refusal):
        ask("orders o", keys=["orders.city"])
    with pytest.raises(Refusal):
        ask("orders o", keys=["public.o.city"])
    assert ask("city JOIN orders USING (city)", keys=["city"]).keys[0].expression == ColumnRef(1, "city", "text")
