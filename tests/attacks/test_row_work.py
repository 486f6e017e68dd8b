"""Attack: values that are stored small and are large, or that PostgreSQL must read as a whole, in every position.

Each question is accepted and then cheap on the row that is made to be slow, or refused with a place. What is measured
is the mean of many equal rows, so that a busy machine does not decide the outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
from question_world import SEED, _attribute, ask

from mechanisms.errors import Refusal
from sqlrewrite.catalog import Catalog, Kind, Relation
from sqlrewrite.generate import Generated, generate

ROWS = 300
MOST_MICROSECONDS = 60.0  # limits.py: some 40 for a row that is made to be slow; a busy machine takes more
WIDE_CHARACTER = "\U0001d54f"
SCHEMA = f"""
CREATE DOMAIN long_text AS text;
CREATE DOMAIN padded AS bpchar;
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TABLE big (id int PRIMARY KEY, bp bpchar, blank bpchar, dp padded, vb varbit, vc varbit, ba bytea, dt long_text,
                  nu numeric, u varchar(256), ut text, at text, c600 char(600), c5000 char(5000), iv interval);
INSERT INTO big SELECT i, repeat('x', 1000000), 'a' || repeat(' ', 1000000), repeat('x', 1000000),
    repeat('1', 150000)::varbit, repeat('10', 75000)::varbit, decode(repeat('ab', 80000), 'hex'), repeat('ab', 500000),
    repeat('7', 5000)::numeric, repeat('{WIDE_CHARACTER}', 256), repeat('{WIDE_CHARACTER}', 256), repeat('a', 256),
    'a', 'a', 'infinity'
FROM generate_series(1, {ROWS}) i;
CREATE TABLE small (LIKE big);
INSERT INTO small (id) SELECT i FROM generate_series(1, {ROWS}) i;
"""
TYPES = {"bp": "bpchar", "blank": "bpchar", "dp": "public.padded", "vb": "bit varying", "vc": "bit varying"} | {
    "ba": "bytea", "dt": "public.long_text", "nu": "numeric", "u": "character varying(256)", "ut": "text", "at": "text",
    "c600": "character(600)", "c5000": "character(5000)", "iv": "interval",
}  # fmt: skip


def _catalog(name: str, unit: str | None = None) -> Catalog:
    columns = [_attribute("id", "integer", True)]
    columns += [_attribute(c, t, bytewise=t in ("bpchar", "text")) for c, t in TYPES.items()]
    more = {} if unit is None else {"unit_column": unit, "max_groups": 2, "max_rows": 3}
    attributes = {a.name: a for a in columns}
    return Catalog(1, (Relation(1, "public", name, Kind.PROTECTED, attributes, unique=frozenset({("id",)}), **more),))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def server(postgres) -> Iterator[psycopg.RawCursor[tuple[object, ...]]]:  # type: ignore[no-untyped-def]
    with psycopg.connect(postgres.new_database("row_work"), autocommit=True) as connection:
        connection.execute(SCHEMA.encode())
        connection.execute("VACUUM ANALYZE")
        connection.execute("SET jit = off; SET max_parallel_workers_per_gather = 0")
        connection.prepare_threshold = None
        yield psycopg.RawCursor(connection)


def made(text: str, table: str, unit: str | None = None) -> Generated:
    return generate(ask(text.format(t=table), _catalog(table, unit), support=5).question, SEED)


Work = Callable[[str, str | None], float | None]


@pytest.fixture
def work(server: psycopg.RawCursor[tuple[object, ...]]) -> Work:
    """How many microseconds a large row takes more than a small one; None where the question is refused."""

    def measure(text: str, unit: str | None = None) -> float | None:
        try:
            queries = {table: made(text, table, unit) for table in ("big", "small")}
        except Refusal as refusal:
            assert refusal.position is not None and refusal.sqlstate in ("22003", "0A000", "54001")
            return None
        least = dict.fromkeys(queries, float("inf"))
        for _ in range(7):
            for table, query in queries.items():
                sql = f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {query.sql}"
                told = server.execute(sql.encode(), query.parameters).fetchone()
                assert told is not None
                least[table] = min(least[table], told[0][0]["Execution Time"])  # type: ignore[index]
            if least["big"] - least["small"] < MOST_MICROSECONDS * ROWS / 3000:
                break
        return 1000 * (least["big"] - least["small"]) / ROWS

    return measure


def _many(part: str, n: int) -> str:
    return "SELECT " + ", ".join(f"count(*) FILTER (WHERE {part.format(i=i)})" for i in range(n)) + " FROM {t}"


PADDED = (
    "SELECT count(*) FILTER (WHERE bp <> 'a') FROM {t}",
    _many("bp <> 'a{i}'", 3),
    _many("bp <> 'a{i}'", 20),
    "SELECT count(*) FROM {t} WHERE bp IN ('a', 'b', 'c')",
    "SELECT count(*) FROM {t} WHERE bp IN (" + ", ".join(f"'a{i}'" for i in range(30)) + ")",
    "SELECT count(*) FROM {t} WHERE bp IS DISTINCT FROM 'a' OR blank IS NOT DISTINCT FROM 'a'",
    "SELECT sum(CASE WHEN bp = 'a' THEN 1 WHEN bp = 'b' THEN 2 ELSE 0 END) FROM {t}",
    "SELECT count(*) FROM {t} WHERE CASE bp WHEN 'a' THEN true ELSE false END",
    "SELECT bp, count(*) FROM {t} GROUP BY 1",
    "SELECT blank, count(*) FROM {t} GROUP BY 1",
    "SELECT dp, count(*) FROM {t} GROUP BY 1",
    "SELECT count(*) FROM {t} WHERE dp = 'a' OR dp <> 'b'",
    "SELECT count(*) FROM {t} WHERE bp > 'a'",
    "SELECT count(*) FROM {t} WHERE bp = blank",
    "SELECT count(*) FROM {t} WHERE bp LIKE 'a%'",
    "SELECT lower(bp), count(*) FROM {t} GROUP BY 1",
    "SELECT count(*) FROM {t} WHERE length(blank) > 3 OR left(bp, 3) = 'xxx'",
    "SELECT count(*) FROM {t} WHERE c600 = 'a' OR c600 = 'b'",
)
COMPRESSED = (
    "SELECT vb, count(*) FROM {t} GROUP BY 1",
    "SELECT vb, vc, count(*) FROM {t} GROUP BY 1, 2",
    "SELECT ba, count(*) FROM {t} GROUP BY 1",
    "SELECT dt, count(*) FROM {t} GROUP BY 1",
    "SELECT count(*) FROM {t} WHERE dt = 'a' OR dt > 'b'",
    "SELECT count(*) FROM {t} WHERE nu > 5",
    "SELECT nu, count(*) FROM {t} GROUP BY 1",
    "SELECT count(*) FROM {t} WHERE nu * 3 > 5 OR nu + 1 < 7 OR nu - 3 > 1",
    "SELECT count(nu + 1), count(nu * 2) FROM {t}",
)
LONG, WIDE = "a" * 80, WIDE_CHARACTER * 80
PATTERNS = (
    _many(f"u LIKE '%{WIDE}{{i}}%'", 11),
    _many("at LIKE '%" + "a" * 60 + "{i}%'", 7),
    _many("at LIKE '%" + "a" * 96 + "{i}'", 7),
    _many(f"ut ILIKE '%{WIDE}{{i}}%'", 4),
    _many(f"u LIKE '%{WIDE_CHARACTER * 5}{{i}}%'", 11),
    _many("at LIKE '%" + "_a" * 40 + "{i}%'", 3),
    _many(f"u LIKE '{WIDE}{{i}}%'", 20),
    _many("at LIKE '" + ("%" + "a" * 12) * 7 + "{i}%'", 3),
)


@pytest.mark.parametrize("text", PADDED + COMPRESSED + PATTERNS, ids=lambda text: text[:70])
def test_one_row_takes_little_time_or_the_question_is_refused(work: Work, text: str) -> None:
    found = work(text, None)
    assert found is None or found < MOST_MICROSECONDS


@pytest.mark.parametrize("unit", ["ba", "vb", "dt", "nu", "bp"])
def test_a_large_unit_takes_little_time(work: Work, unit: str) -> None:
    found = work("SELECT count(*) FROM {t}", unit)
    assert found is not None and found < MOST_MICROSECONDS


@pytest.mark.parametrize("text", [PADDED[2], PATTERNS[0], PATTERNS[1], PATTERNS[2], PATTERNS[3]], ids=lambda t: t[:60])
def test_what_costs_too_much_is_refused(text: str) -> None:
    with pytest.raises(Refusal) as caught:
        made(text, "big")
    assert caught.value.sqlstate == "54001" and caught.value.position is not None


@pytest.mark.parametrize(
    "text",
    [
        _many("ut LIKE '%smith{i}%'", 4),
        _many("at ILIKE '%smith{i}%'", 3),
        _many("u LIKE '%smith{i}%'", 5),
        _many("ut LIKE 'smith{i}%'", 10),
        "SELECT count(*) FROM {t} WHERE ut LIKE '%@example.com' OR ut LIKE '%street%' OR ut NOT LIKE '%1_3%'",
        PADDED[0],
        PADDED[1],
    ],
    ids=lambda text: text[:60],
)
def test_ordinary_patterns_and_comparisons_are_accepted(text: str) -> None:
    assert made(text, "big").sql


@pytest.mark.parametrize("part", ["c5000 = 'a'", "c5000 > 'a'", "left(c5000, 3) = 'a'", "c5000 IN ('a', 'b')"])
def test_a_padded_type_of_which_no_value_could_be_read_is_refused(part: str) -> None:
    with pytest.raises(Refusal) as caught:
        made(f"SELECT count(*) FROM {{t}} WHERE {part}", "big")
    assert caught.value.sqlstate == "0A000" and caught.value.position is not None
    assert made("SELECT count(c5000) FROM {t} WHERE c5000 IS NOT NULL", "big").sql


@pytest.mark.parametrize(
    ("value", "constant"), [("a", "a  "), ("a   ", "a"), ("a" + " " * 500, "a"), ("", "  "), ("é ", "é")]
)
@pytest.mark.parametrize("form", ["{c} = '{v}'", "NOT {c} <> '{v}'", "{c} IN ('{v}', 'z')", "{c} >= '{v}'"])
def test_trailing_blanks_do_not_count(
    server: psycopg.RawCursor[tuple[object, ...]], value: str, constant: str, form: str
) -> None:
    with server.connection.transaction(force_rollback=True):
        server.execute("TRUNCATE big")
        server.execute("INSERT INTO big (id, bp, c600) VALUES (1, $1, $1)", (value,))
        for column in ("bp", "c600"):
            query = made(f"SELECT count(*) FROM {{t}} WHERE {form.format(c=column, v=constant)}", "big")
            told = server.execute(query.sql.encode(), query.parameters).fetchone()
            assert told == (1,), column


# -- values that an older server cannot read ---------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["iv", "coalesce(iv, iv)", "CASE WHEN id > 0 THEN iv END"])
def test_an_infinite_interval_is_no_key(server: psycopg.RawCursor[tuple[object, ...]], key: str) -> None:
    values = ["infinity", "-infinity", "1 day", "178000000 years", "-178000000 years", None]
    with server.connection.transaction(force_rollback=True):
        server.execute("TRUNCATE big")
        for place, value in enumerate(values):
            server.execute("INSERT INTO big (id, iv) VALUES ($1, $2)", (place, value))
        query = made(f"SELECT {key}, count(*) FROM {{t}} GROUP BY 1", "big")
        found = {row[0]: row[1] for row in server.execute(query.sql.encode(), query.parameters).fetchall()}
    assert found == {"1 day": 1, "178000000 years": 1, "-178000000 years": 1, None: 3}
