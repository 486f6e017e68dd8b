"""Row expressions: PostgreSQL's type, PostgreSQL's value, and no error on any data."""

from __future__ import annotations

from decimal import Decimal

import pytest
from fragments import NASTY, Shop, ask

from mechanisms.errors import Refusal
from sqlrewrite.question import Call, Case, ColumnRef, Literal

EXPRESSIONS = [
    "city", "category", "quantity", "small", "big", "amount", "wide", "ordered_on", "shipped", "seen", "gift", "note",
    "code", "feeling", "orders.city", "public.orders.city", "(city)", "CITY", '"city"', "quantity + 1", "small + 1",
    "small + small", "big + quantity", "quantity + 1.5", "quantity * amount", "amount - discount",
    "quantity * 2 - small", "-quantity", "- -quantity", "-amount", "+quantity", "quantity / 3", "quantity / -3",
    "small / 2", "big / 7", "amount / 4", "quantity / 2.5", "quantity % 4", "-quantity % 4", "mod(big, 7)",
    "discount % 3", "amount % 0.7", "abs(discount)", "abs(small)", "abs(quantity)", "weight + 1", "weight * 2",
    "quantity::text", "quantity::bigint", "quantity::numeric", "small::integer", "big::integer", "amount::integer",
    "amount::numeric", "amount::text", "discount::integer", "ordered_on::text", "ordered_on::timestamp",
    "shipped::date", "seen::date", "gift::integer", "gift::text", "note::text", "code::text",
    "cast(quantity AS smallint)", "city::varchar", "quantity::double precision", "round(discount)",
    "round(discount, 1)", "round(quantity)", "floor(discount)", "ceil(discount)", "ceiling(discount)",
    "trunc(discount)", "trunc(discount, 1)", "floor(quantity)", "floor(amount / 50)", "floor(weight)",
    "ordered_on + 7", "ordered_on - 7", "7 + ordered_on", "ordered_on + INTERVAL '1 month'",
    "ordered_on - INTERVAL '1 year'", "shipped + interval '1 day 2 hours'", "seen - INTERVAL '30 minutes'",
    "ordered_on - DATE '2024-01-01'", "DATE '2024-12-31' - ordered_on", "date_trunc('month', ordered_on)",
    "date_trunc('MONTH', ordered_on)", "date_trunc('week', shipped)", "date_trunc('hour', seen)",
    "date_trunc('quarter', ordered_on)::date", "extract(year FROM ordered_on)", "extract(dow FROM ordered_on)",
    "extract(isodow FROM shipped)", "extract(hour FROM shipped)", "extract(epoch FROM shipped)",
    "EXTRACT(MONTH FROM seen)", "extract('doy' FROM ordered_on)", "extract(month FROM ordered_on)::int",
    "date_part('year', ordered_on)", "date_part('hour', shipped)", "extract(week FROM date_trunc('month', shipped))",
    "width_bucket(amount, 0, 500, 10)", "width_bucket(quantity, 0, 10, 5)", "width_bucket(discount, 20.5, -10, 4)",
    "width_bucket(weight, 0, 100, 7)", "CASE WHEN quantity > 5 THEN 'many' ELSE 'few' END",
    "CASE WHEN gift THEN 1 ELSE 0 END", "CASE WHEN gift THEN 1 END", "CASE WHEN gift THEN amount ELSE 0 END",
    "CASE WHEN gift THEN amount ELSE discount END", "CASE WHEN gift THEN amount END",
    "CASE quantity WHEN 1 THEN 'one' WHEN 2 THEN 'two' ELSE 'more' END", "CASE WHEN gift THEN quantity ELSE 1.5 END",
    "CASE WHEN gift THEN small ELSE big END", "CASE WHEN gift THEN ordered_on ELSE '2024-01-01' END",
    "CASE WHEN gift THEN note ELSE category END", "CASE WHEN gift THEN 1 ELSE weight END",
    "CASE WHEN category IS NULL THEN 'none' WHEN category LIKE 'f%' THEN 'f' ELSE category END",
    "coalesce(category, 'none')", "coalesce(amount, 0)", "coalesce(amount, discount)", "coalesce(small, quantity, 3)",
    "coalesce(rating, 0) + 1", "coalesce(note, city)", "coalesce(city, note)", "coalesce(NULL, note, city)",
    "CASE WHEN gift THEN city ELSE note END", "CASE WHEN gift THEN note WHEN true THEN city END",
    "CASE WHEN gift THEN 'x' ELSE note END", "lower(city)", "upper(category)", "lower(note)", "left(city, 2)",
    "left(note, 3)", "length(city)", "char_length(note)", "character_length(category)", "length(code)",
    "quantity > 5", "gift IS TRUE", "city IN ('Ulm', 'Kiel')", "NOT gift", "amount > 5 AND gift",
    "rating BETWEEN 2 AND 3", "3", "'x'", "1 + 2 * 3", "TRUE", "quantity * (1 + 1)", "amount * (1 - discount / 100)",
    "(quantity - 1) / 3 * 3",
]  # fmt: skip


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_the_type_is_postgresqls(text: str, shop: Shop) -> None:
    (key,) = ask(keys=[text]).keys
    found = "text" if key.expression == Literal("x", "unknown") else key.expression.type_name
    assert found == shop.type_of(text)


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_the_value_is_postgresqls(text: str, shop: Shop) -> None:
    expected = shop.plain(f"SELECT order_id, {text} FROM orders ORDER BY 1")
    for (place, wanted), (same, got) in zip(expected, shop.values(ask(keys=[text])), strict=True):
        assert place == same
        if isinstance(wanted, float | Decimal) and got is not None:
            assert float(got) == pytest.approx(float(wanted), rel=1e-12)
        else:
            assert got == wanted


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_no_expression_raises_on_the_ends_of_types(text: str, shop: Shop) -> None:
    shop.connection.execute(NASTY.encode())
    shop.values(ask(keys=[text]), as_text=True)


REFUSED = [
    ("salary", "42703"),
    ("nobody.city", "42P01"),
    ("orders", "42501"),
    ("orders.*", "42501"),
    ("*", "0A000"),
    ("xmin", "42501"),
    ("city AS c", "0A000"),
    ("city c", "0A000"),
    ("city, category", "0A000"),
    ("DISTINCT city", "0A000"),
    ("city FROM orders", "0A000"),
    ("weight", "0A000"),
    ("quantity / 0", "0A000"),
    ("quantity / rating", "0A000"),
    ("quantity % small", "0A000"),
    ("note::integer", "0A000"),
    ("city::date", "0A000"),
    ("amount::numeric(4,1)", "0A000"),
    ("note::varchar(3)", "0A000"),
    ("feeling::text", "0A000"),
    ("ordered_on::integer", "0A000"),
    ("ordered_on * 2", "0A000"),
    ("ordered_on + quantity", "0A000"),
    ("ordered_on + ordered_on", "0A000"),
    ("shipped - shipped", "0A000"),
    ("ordered_on + INTERVAL '1 fortnight'", "0A000"),
    ("date_trunc('fortnight', ordered_on)", "0A000"),
    ("date_trunc(category, ordered_on)", "0A000"),
    ("date_trunc('day', seen, 'UTC')", "0A000"),
    ("date_trunc('day', city)", "0A000"),
    ("extract(hour FROM ordered_on)", "0A000"),
    ("extract(timezone FROM seen)", "0A000"),
    ("extract(year FROM city)", "0A000"),
    ("width_bucket(amount, 0, 0, 5)", "0A000"),
    ("width_bucket(amount, 0, quantity, 5)", "0A000"),
    ("width_bucket(amount, 0, 10, 2.5)", "0A000"),
    ("width_bucket(amount, ARRAY[1, 2])", "0A000"),
    ("sqrt(quantity)", "0A000"),
    ("ln(quantity)", "0A000"),
    ("power(quantity, 2)", "0A000"),
    ("random()", "0A000"),
    ("now()", "0A000"),
    ("current_date", "0A000"),
    ("current_date - ordered_on", "0A000"),
    ("nextval('s')", "0A000"),
    ("query_to_xml('x', true, true, '')", "0A000"),
    ("pg_catalog.lower(city)", "0A000"),
    ("md5(city)", "0A000"),
    ("to_char(ordered_on, 'YYYY')", "0A000"),
    ("substring(city FROM 1 FOR 2)", "0A000"),
    ("replace(city, 'a', 'b')", "0A000"),
    ("city || note", "0A000"),
    ("concat(city, note)", "0A000"),
    ("length(quantity)", "0A000"),
    ("lower(quantity)", "0A000"),
    ("left(city, quantity)", "0A000"),
    ("left(city, -1)", "0A000"),
    ("CASE WHEN gift THEN 1 ELSE 'x' END", "0A000"),
    ("CASE WHEN gift THEN city ELSE ordered_on END", "0A000"),
    ("CASE WHEN quantity THEN 1 END", "0A000"),
    ("coalesce(city, quantity)", "0A000"),
    ("round(weight, 2)", "0A000"),
    ("sum(quantity)", "0A000"),
    ("count(*)", "0A000"),
    ("rank() OVER (ORDER BY city)", "0A000"),
    ("(SELECT 1)", "0A000"),
    ("ARRAY[quantity]", "0A000"),
    ("ROW(city, note)", "0A000"),
    ("(orders).city", "0A000"),
    ("city COLLATE \"C\"", "0A000"),
    ("shipped AT TIME ZONE 'UTC'", "0A000"),
    ("nullif(quantity, 1)", "0A000"),
    ("greatest(quantity, 1)", "0A000"),
    ("-city", "0A000"),
    ("|/ 16 + 9", "0A000"),
    ("||/ 19 + 8", "0A000"),
    ("~ 5 + 1", "0A000"),
    ("@ quantity", "0A000"),
    ("quantity !", "0A000"),
    ("interval(0) '1.7 seconds' + shipped", "0A000"),
    ("current_timestamp(0)", "0A000"),
    ("1_000 + quantity", "42601"),
    ("{# x #} city", "42601"),
    ("city\u00a0", "42601"),
    ("b'1'", "0A000"),
    ("$$x$$", "0A000"),
    ("city -- x\r y", "42601"),
    ("city)", "42601"),
    ("(city", "42601"),
    ("", "42601"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "sqlstate"), REFUSED)
def test_an_expression_outside_the_list_is_refused(text: str, sqlstate: str) -> None:
    with pytest.raises(Refusal) as caught:
        ask(keys=[text])
    assert caught.value.sqlstate == sqlstate, caught.value.message
    assert caught.value.hint or sqlstate == "42601"


def test_the_tree_says_what_was_written() -> None:
    (key,) = ask(keys=["date_trunc('Month', ordered_on)"]).keys
    assert key.expression == Call(
        "date_trunc",
        (Literal("month", "text"), ColumnRef(0, "ordered_on", "date")),
        "timestamp with time zone",
    )
    (key,) = ask(keys=["quantity > 5"]).keys
    assert isinstance(key.expression, Case)


@pytest.mark.parametrize(
    ("text", "open_"),
    [
        ("city", False),
        ("rating", True),
        ("rating + 1", True),
        ("quantity / 3", False),
        ("CASE WHEN rating > 2 THEN 'a' ELSE 'b' END", False),
        ("coalesce(rating, quantity)", True),
    ],
)
def test_a_key_is_open_where_a_column_has_no_domain(text: str, open_: bool) -> None:
    (key,) = ask(keys=[text]).keys
    assert key.open is open_


@pytest.mark.parametrize(
    ("from_", "text", "constant"),
    [
        ("orders", "city", False),
        ("orders", "customer_id", True),
        ("orders JOIN customers ON customer_id = id", "segment", True),
        ("orders JOIN customers ON customer_id = id", "born", True),
        ("orders JOIN customers ON customer_id = id", "id", True),
        ("orders JOIN city USING (city)", "region", False),
        ("visits JOIN patients ON patient = id", "sex", True),
        ("visits JOIN patients ON patient = id JOIN ward USING (disease)", "capacity", True),
        ("visits JOIN patients ON patient = id", "visit_id", False),
        ("patients", "age", True),
    ],
)
def test_what_follows_from_the_unit_is_constant_per_unit(from_: str, text: str, constant: bool) -> None:
    (key,) = ask(from_, keys=[text]).keys
    assert key.constant_per_unit is constant
