"""SELECTs in FROM that only pick: the question around them is the one that is asked without them."""

from __future__ import annotations

import time

import pytest
from clinic import ask, taken

from mechanisms.errors import Refusal
from sqlrewrite.errors import TooComplex
from sqlrewrite.normal import fingerprint

PLAIN = "SELECT city, count(*), count(amount) FROM orders WHERE region = 'north' AND amount > 5 GROUP BY city"
SPELLINGS = [
    "SELECT city, count(*), count(amount) FROM (SELECT * FROM orders) t WHERE region = 'north' AND amount > 5"
    " GROUP BY 1",
    "SELECT c, count(*), count(a) FROM (SELECT city AS c, amount a FROM orders WHERE region = 'north') t WHERE a > 5"
    " GROUP BY c",
    "SELECT t.c, count(*), count(t.a) FROM (SELECT o.city AS c, o.amount AS a, region FROM public.orders o) t"
    " WHERE t.region = 'north' AND t.a > 5 GROUP BY t.c",
    "SELECT x, count(*), count(y) FROM (SELECT c AS x, a AS y FROM (SELECT city c, amount a, region FROM orders"
    " WHERE amount > 5) u WHERE region = 'north') v GROUP BY x",
    'select "_"."city", count(1), count("_"."amount") from ((select * from "orders" "$Table" where "region" = \'north\''
    ' order by 1)) "_" where "_"."amount" > 5 group by "city"',
    # An alias that is a column's name: the inner meaning counts.
    "SELECT region, count(*), count(customer_id) FROM (SELECT city AS region, amount AS customer_id, region AS city"
    " FROM orders) t WHERE city = 'north' AND customer_id > 5 GROUP BY region",
]


@pytest.mark.parametrize("text", SPELLINGS)
def test_a_question_over_a_picking_select_is_the_plain_one(text: str) -> None:
    found, plain = ask(text), ask(PLAIN)
    assert fingerprint(found).digest == fingerprint(plain).digest
    assert found.where == plain.where and found.sources == plain.sources and found.measures == plain.measures


def test_a_comma_join_is_the_join_on_that_equality() -> None:
    joined = ask("SELECT count(*) FROM orders o JOIN city c ON o.city = c.city WHERE o.amount > 5")
    comma = ask("SELECT count(*) FROM orders o, city c WHERE c.city = o.city AND o.amount > 5")
    assert fingerprint(joined).digest == fingerprint(comma).digest and comma.where == joined.where


def test_the_outermost_asking_select_is_the_question() -> None:
    text = "SELECT max(n) FROM (SELECT city, count(*) AS n FROM (SELECT city FROM orders) t GROUP BY city) u"
    (one,) = taken(text)
    assert text[one.block.start : one.block.stop].startswith("SELECT city, count(*) AS n")


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("SELECT city FROM (SELECT city FROM orders) t", "42501"),
        ("SELECT t FROM (SELECT city FROM orders) t GROUP BY t", "42501"),
        ("SELECT count(*) FROM (SELECT city FROM orders OFFSET 3) t", "42501"),
        ("SELECT count(*) FROM (SELECT city FROM orders UNION ALL SELECT city FROM orders) t", "42501"),
        ("SELECT count(*) FROM city, LATERAL (SELECT amount FROM orders) t", "42501"),
        ("SELECT count(amount) FROM (SELECT city FROM orders) t", "42703"),
        ("SELECT count(*) FROM (SELECT city FROM orders o) t WHERE o.city = 'Ulm'", "42P01"),
        ("SELECT count(*) FROM (SELECT amount, city AS amount FROM orders) t WHERE amount > 5", "0A000"),
        ("SELECT count(*) FROM (SELECT city FROM orders) t, (SELECT city FROM orders) t", "0A000"),
        ("SELECT count(*) FROM (SELECT city FROM orders WHERE EXISTS (SELECT FROM city)) t", "0A000"),
        ("SELECT count(*) FROM (SELECT city, (SELECT 1) AS n FROM orders) t", "0A000"),
    ],
)
def test_what_is_no_picking_is_refused(text: str, state: str) -> None:
    with pytest.raises(Refusal) as refused:
        ask(text)
    assert refused.value.sqlstate == state, refused.value.message


def test_outputs_that_double_at_every_level_are_refused_at_once() -> None:
    text = "orders"
    for _ in range(9):
        text = f"(SELECT amount + amount AS amount, city FROM {text}) t"
    begun = time.monotonic()
    with pytest.raises(TooComplex):
        ask(f"SELECT count(amount) FROM {text}")
    assert time.monotonic() - begun < 5


def test_stars_at_every_level_take_no_time() -> None:
    text = "(SELECT city, amount FROM orders) t"
    for _ in range(8):
        text = f"(SELECT *, t.* FROM {text}) t"
    begun = time.monotonic()
    with pytest.raises(Refusal, match="twice"):
        ask(f"SELECT count(amount) FROM {text}")
    assert time.monotonic() - begun < 5
