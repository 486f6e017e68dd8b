"""WHERE: the typed reading keeps the rows that PostgreSQL keeps, and nothing in it raises on data."""

from __future__ import annotations

import time

import pytest
from fragments import NASTY, Shop, ask

from mechanisms.errors import Refusal
from sqlrewrite.question import Always, Among, Compare, Literal

KEPT = [
    "quantity = 3",
    "3 = quantity",
    "quantity <> 3",
    "quantity != 3 AND quantity > 1",
    "quantity >= 2.5",
    "quantity + 1 > 4",
    "quantity > rating",
    "rating IS NULL OR quantity <= rating",
    "NOT quantity > rating",
    "quantity IN (1, 2, 3)",
    "quantity NOT IN (1, 2, 3)",
    "rating IN (1, NULL)",
    "rating NOT IN (1, NULL)",
    "quantity IN (rating, 3)",
    "category IN ('food', 'toys')",
    "category NOT IN ('food')",
    "quantity BETWEEN 2 AND 4",
    "quantity NOT BETWEEN 2 AND 4",
    "rating NOT BETWEEN 2 AND 4",
    "amount BETWEEN quantity AND 100.5",
    "category LIKE 'f%'",
    "category NOT LIKE 'f%'",
    "category ILIKE 'F_OD'",
    "category NOT ILIKE 'F%'",
    "note LIKE '%1_'",
    "code = 'A'",
    "code LIKE 'B%'",
    "category IS NULL",
    "category IS NOT NULL",
    "category ISNULL",
    "category NOTNULL",
    "NOT category IS NULL",
    "gift",
    "NOT gift",
    "gift = true",
    "gift IS TRUE",
    "gift IS NOT TRUE",
    "gift IS FALSE",
    "gift IS NOT FALSE",
    "gift IS UNKNOWN",
    "gift IS NOT UNKNOWN",
    "NOT (gift IS TRUE)",
    "(rating > 2) IS TRUE",
    "(rating > 2) IS NOT TRUE",
    "(rating > 2) IS FALSE",
    "NOT ((rating > 2) IS NOT FALSE)",
    "rating IS DISTINCT FROM 3",
    "rating IS NOT DISTINCT FROM 3",
    "rating IS DISTINCT FROM NULL",
    "NOT (rating IS DISTINCT FROM 3)",
    "1 = 1",
    "1 = 0",
    "true",
    "false",
    "NOT false",
    "1 = 0 OR quantity = 2",
    "1 = 1 AND quantity = 2",
    "NULL",
    "NOT NULL",
    "rating = NULL",
    "NOT (rating = NULL OR quantity = 2)",
    "NULL OR quantity = 2",
    "NOT (NULL AND quantity = 2)",
    "'a' = 'a' AND quantity = 1",
    "2 > 1.5 AND quantity = 1",
    "ordered_on = '2024-02-03'",
    "ordered_on >= DATE '2024-02-03'",
    "ordered_on < DATE '2024-02-03' + 7",
    "ordered_on + 7 < DATE '2024-02-03'",
    "ordered_on >= DATE '2024-01-01' + INTERVAL '1 month'",
    "ordered_on - INTERVAL '1 month' < DATE '2024-01-15'",
    "ordered_on >= '2024-01-31'::date - interval '2' day",
    "ordered_on > cast('2024-03-01' AS date)",
    "ordered_on BETWEEN '2024-02-01' AND '2024-02-29'",
    "ordered_on - DATE '2024-01-01' > 100",
    "shipped > TIMESTAMP '2024-01-15 12:30:00'",
    "shipped >= '2024-01-15 12:30'",
    "shipped::date = '2024-01-15'",
    "shipped < ordered_on",
    "seen > TIMESTAMPTZ '2024-01-15 12:30:00+02'",
    "date_trunc('month', ordered_on) = '2024-03-01 00:00:00+00'",
    "extract(dow FROM ordered_on) IN (0, 6)",
    "date_part('month', ordered_on) = 2",
    "extract(hour FROM shipped) >= 12",
    "lower(category) = 'food'",
    "upper(note) LIKE 'NOTE%'",
    "length(category) > 4",
    "left(category, 2) = 'fo'",
    "coalesce(category, 'none') = 'none'",
    "coalesce(amount, 0) > 100",
    "abs(discount) < 5",
    "-discount > 5",
    "+quantity > 5",
    "quantity % 3 = 1",
    "mod(quantity, 3) = 1",
    "quantity / 3 = 2",
    "quantity / 3.0 > 2",
    "discount / 2 < -1.5",
    "round(amount) = 20",
    "round(amount, 1) > 20.4",
    "floor(amount) = 20",
    "ceil(amount) = 20",
    "trunc(discount) = -3",
    "amount * quantity > 400",
    "amount * (1 - discount / 100) > 100",
    "CASE WHEN quantity > 5 THEN 'many' ELSE 'few' END = 'few'",
    "CASE quantity WHEN 1 THEN 10 WHEN 2 THEN 20 END > 10",
    "width_bucket(amount, 0, 500, 10) = 3",
    "width_bucket(quantity, 0, 10, 5) = 3",
    "weight > 5",
    "weight BETWEEN 2.5 AND 7.25",
    "wide > 3.3333",
    "big > 500000",
    "small < 0 AND small > -4",
    "feeling = 'sad'",
    "quantity = ANY(ARRAY[1, 2])",
    "quantity = ANY('{3,4}')",
    "quantity = ANY('{3,4}'::int[])",
    "category = ANY('{food,\"toys\",NULL}')",
    "quantity > 2 * 3 - 1",
    "quantity > 7 / 2",
    "quantity > 7 / 2.0",
    "quantity > -(-5)",
    "quantity = '3'",
    "city = 'Bonn' AND (quantity > 3 OR NOT (amount < 20 AND gift))",
    "(quantity > 3) IS TRUE AND city = 'Ulm'",
]


@pytest.mark.parametrize("text", KEPT)
def test_the_reading_keeps_the_rows_that_postgresql_keeps(text: str, shop: Shop) -> None:
    expected = shop.plain(f"SELECT order_id FROM orders WHERE {text} ORDER BY 1")
    assert shop.kept(ask(where=text)) == expected


@pytest.mark.parametrize("text", KEPT)
def test_no_reading_raises_on_the_ends_of_types(text: str, shop: Shop) -> None:
    shop.connection.execute(NASTY.encode())
    shop.kept(ask(where=text))


REFUSED = [
    ("quantity / rating > 1", "0A000"),
    ("quantity / 0 > 1", "0A000"),
    ("1 / 0 = 1", "0A000"),
    ("note::integer = 1", "0A000"),
    ("note::date = '2024-01-01'", "0A000"),
    ("note ~ 'a'", "0A000"),
    ("note SIMILAR TO 'a'", "0A000"),
    ("note LIKE category", "0A000"),
    ("note LIKE 'a!%' ESCAPE '!'", "0A000"),
    (f"note LIKE '{'x' * 200}'", "22003"),
    (f"CASE WHEN note ILIKE '{'%a' * 9}' THEN 1 ELSE 0 END = 1", "22003"),
    ("quantity::text LIKE '1%'", "0A000"),
    ("quantity BETWEEN SYMMETRIC 4 AND 2", "0A000"),
    ("quantity IN (SELECT 1)", "0A000"),
    ("EXISTS (SELECT 1 FROM city)", "0A000"),
    ("quantity = (SELECT max(population) FROM city)", "0A000"),
    ("quantity = ALL(ARRAY[1])", "0A000"),
    ("(city, quantity) = ('Bonn', 1)", "0A000"),
    ("ordered_on >= current_date - 7", "0A000"),
    ("shipped > now()", "0A000"),
    ("ordered_on = 'today'", "0A000"),
    ("ordered_on = '01/02/2024'", "0A000"),
    ("ordered_on = '2024-02-30'", "0A000"),
    ("ordered_on > DATE '2024-01-01' + INTERVAL 'P1M'", "0A000"),
    ("ordered_on + quantity > DATE '2024-01-01'", "0A000"),
    ("extract(hour FROM ordered_on) = 1", "0A000"),
    ("extract(timezone FROM seen) = 1", "0A000"),
    ("sqrt(quantity) > 1", "0A000"),
    ("random() < 0.5", "0A000"),
    ("pg_sleep(1) IS NULL", "0A000"),
    ("quantity ^ 2 > 3", "0A000"),
    ("category || 'x' = 'foodx'", "0A000"),
    ("quantity", "0A000"),
    ("amount > weight", "0A000"),
    ("count(*) > 3", "0A000"),
    ("sum(quantity) OVER () > 3", "0A000"),
    ("orders IS NULL", "42501"),
    ("ctid IS NULL", "42501"),
    ("orders.* IS NULL", "42501"),
    ("salary = 1", "42703"),
    ("nobody.quantity = 1", "42P01"),
    ("other.orders.quantity = 1", "42P01"),
    ("quantity = 1 GROUP BY city", "0A000"),
    ("quantity = 1; DROP TABLE orders", "42601"),
    ("quantity = $2", "0A000"),
    ("quantity = E'1'", "0A000"),
    ("quantity = 1_000", "42601"),
    ("quantity = 1 -- \u00a0\n", "42601"),
    ("", "42601"),
    ("quantity =", "42601"),
    ("quantity = 1e500 * 2", "0A000"),
    ("weight > 1e400", "0A000"),
    ("width_bucket(amount, 0, 0, 10) = 3", "0A000"),
    ("width_bucket(amount, 0, 10, 0) = 3", "0A000"),
    ("quantity" + " * quantity" * 17 + " > 1", "22003"),
    ("CASE WHEN gift THEN 1 ELSE 'x' END = 1", "0A000"),
    ("CASE WHEN gift THEN city ELSE 1 END = 'x'", "0A000"),
    ("interval '1 day' > interval '1 hour'", "0A000"),
    ("amount::numeric(3,1) > 1", "0A000"),
    ("x.y(quantity) = 1", "0A000"),
    ("quantity COLLATE \"C\" = '1'", "0A000"),
    ("note AT TIME ZONE 'utc' IS NULL", "0A000"),
    ("'a' 'b' = note", "0A000"),
]


@pytest.mark.parametrize(("text", "sqlstate"), REFUSED)
def test_what_is_not_total_or_not_known_is_refused(text: str, sqlstate: str) -> None:
    with pytest.raises(Refusal) as caught:
        ask(where=text)
    assert caught.value.sqlstate == sqlstate, caught.value.message


@pytest.mark.parametrize(
    ("text", "bound", "same"),
    [
        ("quantity > $1", Literal("3", "integer"), "quantity > 3"),
        ("quantity > $1 + 1", Literal("3", "integer"), "quantity > 4"),
        ("quantity = ANY($1)", Literal("{1,2}", "integer[]"), "quantity IN (2, 1)"),
        ("category = ANY($1)", Literal('{"a b",food}', "text[]"), "category IN ('food', 'a b')"),
        ("quantity = ANY($1)", Literal("{}", "integer[]"), "1 = 0"),
        ("quantity = ANY($1)", Literal(" {\t} ", "integer[]"), "1 = 0"),
        ("category = ANY($1)", Literal('{ a  b , "c" ,\u2003d\n}', "text[]"), "category IN ('c', 'a  b', '\u2003d')"),
        ("ordered_on >= $1", Literal("2024-02-01", "date"), "ordered_on >= '2024-02-01'"),
        ("category LIKE $1", Literal("f%", "text"), "category LIKE 'f%'"),
        ("gift = $1", Literal("true", "boolean"), "gift"),
        ("$1", Literal("true", "boolean"), "true"),
    ],
)
def test_a_parameter_reads_as_its_constant(text: str, bound: Literal, same: str) -> None:
    assert ask(where=text, parameters=[bound]).where == ask(where=same).where


@pytest.mark.parametrize("text", ["{" + 700 * " " + "{}", "{a" + 12_000 * " " + "b\\}", '{"' + 9_000 * "\\\\" + "}"])
def test_a_long_text_that_is_no_array_is_read_once(text: str) -> None:
    """Attack: a parameter of blanks that keeps the reader trying, and with it everybody who is connected."""
    started = time.process_time()
    with pytest.raises(Refusal, match="array"):
        ask(where="category = ANY($1::text[])", parameters=[Literal(text, "text")])
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize(
    "text",
    ["quantity > $1", "quantity IN ($1, $2)", "category LIKE $1", "quantity = ANY($1)", "ordered_on >= $1::date + $2"],
)
def test_before_bind_a_parameter_is_any_value(text: str) -> None:
    ask(where=text, parameters=None)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("quantity BETWEEN 2 AND 4", "quantity <= 4 AND 2 <= quantity"),
        ("quantity IN (2, 3)", "quantity = 3 OR quantity = 2.0"),
        ("NOT (quantity < 2 OR gift)", "quantity >= 2 AND NOT gift"),
        ("quantity > rating", "rating < quantity"),
        ("1 = 1 AND quantity = 2", "quantity = 2"),
        ("city NOT IN ('a', 'b')", "NOT (city = 'a' OR city = 'b')"),
    ],
)
def test_equal_conditions_have_one_normal_form(one: str, other: str) -> None:
    assert ask(where=one).where == ask(where=other).where


def test_constant_conditions_are_known() -> None:
    assert ask(where="1 = 0").where == Always(False)
    assert ask(where="1 = 1").where is None
    assert isinstance(ask(where="city IN ('a', 'b')").where, Among)
    assert isinstance(ask(where="city IN ('a')").where, Compare)


def test_a_place_is_that_of_the_statement() -> None:
    with pytest.raises(Refusal) as caught:
        ask(where="quantity = 1 AND salary = 2", start=100)
    assert caught.value.position == 100 + "quantity = 1 AND salary".index("salary") + 1
