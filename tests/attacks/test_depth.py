"""Attack: long chains of operators, casts and conditions, which end in Python's own limit of calls, or take seconds.

Each is answered, or refused with an SQLSTATE and a place, and quickly.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest
from question_world import SEED, ask

from mechanisms.errors import Refusal
from sqlrewrite.generate import generate
from sqlrewrite.parse import MAX_LEVELS

LENGTHS = (100, 150, 240, 400, 700, 1000, 2000)
SECONDS = 5.0  # on a busy machine; a chain of 240 took 14 before
NUMBERS = {
    "+": "+1",
    "-": "-1",
    "*": "*1",
    "/": "/2",
    "%": "%3",
    "cast": "::bigint::int",
    "column": "+n",
    "null": "+NULL",
}
POSITIONS = {
    "where": "SELECT count(*) FROM stay WHERE {x} = 3",
    "constant": "SELECT count(*) FROM stay WHERE n > 1 AND 3 < {x}",
    "between": "SELECT count(*) FROM stay WHERE n BETWEEN {x} AND 7",
    "in": "SELECT count(*) FROM stay WHERE {x} IN (1, 2)",
    "sum": "SELECT sum({x}) FROM stay",
    "deviation": "SELECT stddev({x}) FROM stay",
    "filter": "SELECT count(*) FILTER (WHERE {x} > 1) FROM stay",
    "key": "SELECT {x}, count(*) FROM stay GROUP BY 1",
    "having": "SELECT kind FROM stay GROUP BY kind HAVING sum({x}) > 3",
    "quantile": "SELECT kind FROM stay GROUP BY kind"
    " HAVING percentile_cont(0.5) WITHIN GROUP (ORDER BY {x}) > 3 AND count(*) > 5",
    "join": "SELECT count(*) FROM stay JOIN ward ON stay.ward = ward.ward AND {x} = beds",
    "derived": "SELECT sum(y) FROM (SELECT {x} AS y, id FROM stay) q WHERE y > 3",
    "case": "SELECT sum(CASE WHEN {x} > 1 THEN {x} ELSE 0 END) FROM stay",
    "null": "SELECT count({x}) FROM stay WHERE {x} IS NOT NULL",
}
SHAPES: dict[str, Callable[[int], str]] = {
    "aggregates": lambda n: "SELECT kind FROM stay GROUP BY kind HAVING sum(n)" + "+count(*)" * n + " > 3",
    "constants of HAVING": lambda n: "SELECT kind FROM stay GROUP BY kind HAVING count(*)" + "*2" * n + " > 3",
    "AND": lambda n: "SELECT count(*) FROM stay WHERE n = 1" + " AND n = 2" * n,
    "OR": lambda n: "SELECT count(*) FROM stay WHERE n = 1" + " OR n = 2" * n,
    "AND and OR": lambda n: "SELECT count(*) FROM stay WHERE n = 1" + " AND n = 2 OR low = 3" * (n // 2),
    "AND of HAVING": lambda n: "SELECT kind FROM stay GROUP BY kind HAVING count(*) > 3" + " AND count(*) > 4" * n,
    "NOT": lambda n: "SELECT count(*) FROM stay WHERE " + "NOT " * n + "n = 1",
    "minus": lambda n: "SELECT count(*) FROM stay WHERE " + "- " * n + "n = 1",
    "WHEN": lambda n: "SELECT sum(CASE " + " ".join(f"WHEN n = {i} THEN {i}" for i in range(n)) + " END) FROM stay",
    "CASE in ELSE": lambda n: "SELECT sum(" + "CASE WHEN n = 1 THEN 1 ELSE " * n + "0" + " END" * n + ") FROM stay",
    "concatenation": lambda n: "SELECT count(*) FROM stay WHERE note" + "||'a'" * n + " = 'b'",
    "texts": lambda n: "SELECT count(*) FROM stay WHERE note" + "::text::varchar" * (n // 2) + " = 'a'",
    "coalesce": lambda n: "SELECT sum(coalesce(n" + ", 1" * n + ")) FROM stay",
    "IS TRUE": lambda n: "SELECT count(*) FROM stay WHERE (n = 1)" + " IS TRUE" * n,
    "IS NULL": lambda n: "SELECT count(*) FROM stay WHERE n" + " IS NULL" * n,
    "LIKE": lambda n: "SELECT count(*) FROM stay WHERE note" + " LIKE 'a'" * n,
    "days": lambda n: "SELECT count(*) FROM stay WHERE day" + " + 1" * n + " > '2024-01-01'",
    "intervals": lambda n: "SELECT count(*) FROM stay WHERE at" + " + interval '1 day'" * n + " > '2024-01-01'",
    "around aggregates": lambda n: "SELECT count(*)" + "+1" * n + " FROM stay",
}


def outcome(text: str) -> str:
    """An SQLSTATE, or nothing; anything else than a refusal is raised."""
    begun = time.perf_counter()
    try:
        asked = ask(text, support=5)
        if asked.question.measures:
            generate(asked.question, SEED)
        found = ""
    except Refusal as refusal:
        assert refusal.position is not None and refusal.hint
        found = refusal.sqlstate
    assert time.perf_counter() - begun < SECONDS
    return found


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("operator", NUMBERS)
def test_chains_of_numbers(position: str, operator: str) -> None:
    for length in LENGTHS:
        text = POSITIONS[position].format(x="n" + NUMBERS[operator] * length)
        assert outcome(text) in ("54001", "0A000", "22003") if length >= MAX_LEVELS else True


@pytest.mark.parametrize("shape", SHAPES)
def test_other_chains(shape: str) -> None:
    for length in LENGTHS:
        assert outcome(SHAPES[shape](length)) in ("", "54001", "0A000", "22003", "42601")


@pytest.mark.parametrize("seed", range(8))
def test_mixed_chains(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(15):
        steps = rng.randint(100, 2000)
        chain = "n" + "".join(rng.choice(list(NUMBERS.values())) for _ in range(steps))
        found = outcome(rng.choice(list(POSITIONS.values())).format(x=chain))
        # Products stand inside sums, so a mixed chain has fewer levels than steps.
        assert found in ("54001", "0A000", "22003") or steps < 4 * MAX_LEVELS


@pytest.mark.parametrize("levels", [2, 4, 8, 16])
def test_chains_in_tables_inside_each_other(levels: int) -> None:
    """Each table adds a chain that is short by itself to that of the table inside."""
    text = "stay"
    for level in range(levels):
        inner = "n" if level == 0 else "y"
        text = f"(SELECT {inner}{'+1' * 60} AS y, id FROM {text}) q{level}"
    assert outcome(f"SELECT count(*) FROM {text} WHERE y > 1") in ("", "54001", "0A000")


def test_ordinary_chains_are_answered() -> None:
    assert outcome("SELECT sum(n" + "+low" * 60 + ") FROM stay WHERE n" + "+1" * 60 + " > 3") == ""
    assert outcome("SELECT count(*) FROM stay WHERE n = 1" + " OR n = 2" * 300) == ""
