"""Attack: a text, a database and a unit in it such that the unit moves what is measured by more than the claim.

Whole texts go through cutting, reading and generating; the databases hold values far outside what was declared. A group
of an unknown domain that one unit alone brings into being must have exactly one unit in it, or its threshold is wrong.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from decimal import Decimal

import pytest
from question_world import (
    BY_ACCOUNT,
    BY_OWNER,
    BY_PATH,
    BY_ROW,
    COLUMNS,
    STAY,
    VALUES,
    WARD,
    Asked,
    Measured,
    Server,
    Writer,
    ask,
)

from mechanisms.errors import Refusal
from sqlrewrite.catalog import Catalog
from sqlrewrite.question import Question
from sqlrewrite.sensitivity import Contribution, sensitivity

CATALOGS = (BY_ROW, BY_ACCOUNT, BY_OWNER, BY_PATH)


@dataclass(frozen=True)
class Move:
    """What one unit really moved: the cells with how far each statistic went, and groups that are there or not."""

    text: str
    claim: Contribution
    cells: list[list[int]]
    units_of_lost_groups: list[int]

    def within(self, claim: Contribution) -> bool:
        return (
            len(self.cells) <= claim.cells
            and all(m <= b for cell in self.cells for m, b in zip(cell, claim.statistics, strict=False))
            and all(units <= 1 for units in self.units_of_lost_groups)
        )


def somebody(question: Question, rng: random.Random) -> str:
    """The rows of one unit."""
    if question.unit.column is None:
        return f"id = (SELECT id FROM stay ORDER BY hashint4(id + {rng.randrange(1000)}) LIMIT 1)"
    if any(column.name == "owner" for column in question.unit.column):
        return f"account IN (SELECT id FROM account WHERE owner = {rng.choice((1, 1, 2))})"
    return f"account = {rng.choice((1, 1, 2))}"


def move(server: Server, text: str, asked: Asked, victim: str) -> Move:
    question, grid = asked.question, server.grid(asked.question)
    before = server.measured(question, grid)
    with server.connection.transaction(force_rollback=True):
        server.connection.execute(f"DELETE FROM stay WHERE {victim}".encode())
        after = server.measured(question, grid)
    nothing = (0,) * (len(question.statistics) + 1)
    moved = [
        [abs(one - other) for one, other in zip(before.get(at, nothing), after.get(at, nothing), strict=True)]
        for at in {*before, *after}
        if before.get(at, nothing) != after.get(at, nothing)
    ]
    lost = [] if grid is not None else _units(before, after)
    return Move(text, sensitivity(question), moved, lost)


def _units(before: Measured, after: Measured) -> list[int]:
    return [before[at][-1] for at in before.keys() - after.keys()]


def moves(server: Server, seed: int, wanted: int) -> list[Move]:
    rng = random.Random(seed)
    writer, found, tried = Writer(rng), list[Move](), 0
    while len(found) < wanted:
        if tried % 25 == 0:
            server.fill(rng, rng.randrange(1, 40), rng.choice((0.0, 0.1, 0.5)))
        tried += 1
        text = writer.question()
        if not server.reads(text):
            continue
        try:
            asked = ask(text, rng.choice(CATALOGS), support=rng.choice((None, 5, 5)))
            made = move(server, text, asked, somebody(asked.question, rng))
        except Refusal:
            continue
        assert made.within(made.claim), made
        found.append(made)
    return found


def smaller(claim: Contribution) -> list[Contribution]:
    """Mutants: each claims a little less."""
    return [
        replace(claim, cells=claim.cells - 1),
        replace(claim, statistics=tuple(bound - 1 for bound in claim.statistics)),
    ]


def test_no_text_moves_more_than_it_claims(server: Server) -> None:
    found = moves(server, 1, 300)
    for mutant in range(2):
        assert sum(not one.within(smaller(one.claim)[mutant]) for one in found) > 20, mutant


@pytest.mark.slow
def test_no_text_of_ten_thousand_moves_more_than_it_claims(server: Server) -> None:
    assert len(moves(server, 2, 10_000)) == 10_000


# -- attacks that were found by reading --------------------------------------------------------------------------------


def put(server: Server, *rows: dict[str, object]) -> None:
    """Tame rows with these values; ``account`` is among them."""
    server.connection.execute(
        "TRUNCATE stay, account; INSERT INTO account SELECT i, i, 'f' FROM generate_series(1, 9) i"
    )
    for number, row in enumerate(rows):
        tame = {"account": 1, **{name: values[0] for name, values in VALUES.items()}, **row}
        ordered = [tame["account"], *(tame[name] for name in COLUMNS)]
        server.connection.execute(
            f"INSERT INTO stay VALUES (%s, %s{', %s' * len(COLUMNS)})".encode(), (number, *ordered)
        )


def by(unit: str, max_groups: int, max_rows: int) -> Catalog:
    return Catalog(1, (replace(STAY, unit_column=unit, max_groups=max_groups, max_rows=max_rows), WARD))


# PostgreSQL takes such keys for one key, and GROUPING() for the finest set of all that hold one of them.
TWICE = [
    "SELECT day, day::date, count(*) FROM stay GROUP BY ROLLUP (day, day::date)",
    "SELECT ward, (ward::text), count(*) FROM stay GROUP BY CUBE (ward, (ward::text))",
    "SELECT small, n, count(*) FROM stay GROUP BY GROUPING SETS ((small, n), (n, small::smallint), (small))",
]
APART = "SELECT day, date_trunc('month', day), count(*) FROM stay GROUP BY ROLLUP (date_trunc('month', day), day)"


def test_keys_that_postgresql_takes_for_one_are_refused_in_grouping_sets(server: Server) -> None:
    for text in TWICE:
        with pytest.raises(Refusal, match="the same key stands twice"):
            ask(text)
    put(server, {"day": "2024-03-30"})
    made = move(server, APART, ask(APART), "true")
    assert made.within(made.claim), made


def test_keys_that_are_one_and_are_not_refused_are_seen(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: nobody looks for them."""
    monkeypatch.setattr("sqlrewrite.read._apart", lambda question, written: None)
    put(server, {"day": "2024-03-30"})
    made = move(server, TWICE[0], ask(TWICE[0]), "true")
    assert not made.within(made.claim)


# A number that leaves the type it is cast to is no summand, but its row still counts: it moves sum - 7 count by 7.
LOST = "SELECT ward FROM stay GROUP BY ward HAVING avg(whole::bigint) > 7 AND count(*) > 5"


def test_a_summand_that_is_lost_is_counted_in_the_claim(server: Server) -> None:
    put(server, {"whole": "1e30"})
    made = move(server, LOST, ask(LOST), "true")
    assert made.within(made.claim), made


def test_a_lost_summand_that_is_forgotten_is_seen(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: what is cast from a column that is never NULL is taken for never NULL."""
    monkeypatch.setattr("sqlrewrite.linear.nullable", lambda argument, scope: False)
    monkeypatch.setattr("sqlrewrite.aggregate.nullable", lambda argument, scope: False)
    put(server, {"whole": "1e30"})
    made = move(server, LOST, ask(LOST), "true")
    assert not made.within(made.claim)


def test_one_row_matches_one_row_of_a_public_table(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: char(4) takes 'A' and 'A ' for one, varchar does not: a row joined on a unique varchar comes twice."""
    text = "SELECT count(*) FROM stay JOIN ward ON ward.label = stay.code"
    with pytest.raises(Refusal):
        ask(text)
    monkeypatch.setattr("sqlrewrite.source._joinable", lambda left, right, node: None)
    put(server, {"code": "A"})
    made = move(server, text, ask(text), "true")
    assert not made.within(made.claim)  # what the refusal is for


def test_texts_are_joined_byte_by_byte() -> None:
    """Attack: a column whose collation takes 'a' for 'A' matches a key twice that is unique byte by byte."""
    from sqlrewrite.generate import generate

    sql = generate(ask("SELECT count(*) FROM stay JOIN ward USING (ward) WHERE ward LIKE 'n%'").question, 1).sql
    left, right = re.search(r" ON \(\((.*?) = (.*?)\)\) WHERE (.*)", sql).groups()[:2]  # type: ignore[union-attr]
    assert left.startswith("((CASE WHEN") and 't0."ward"' in left and left.endswith('COLLATE pg_catalog."default")')
    # The key is read whole: two keys with one beginning would both match a text that is cut.
    assert right == '(t1."ward" COLLATE pg_catalog."default")'
    assert ' COLLATE pg_catalog."default") LIKE' in sql


def test_a_person_of_two_spellings_is_one_person(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a unit of a type in which equal is not identical must not be split before its rows are bounded."""
    put(server, *({"span": span, "ward": "north"} for span in ("1 day", "24:00:00") for _ in range(5)))
    text, catalog = "SELECT ward, kind, count(*), sum(n) FROM stay GROUP BY ward, kind", by("span", 2, 3)
    made = move(server, text, ask(text, catalog), "span = '1 day'")
    assert made.within(made.claim) and made.cells, made


def test_sums_of_floats_are_exact(server: Server) -> None:
    """Attack: beyond 2^53 a sum of floats depends on the order of the rows, and small rows vanish in it."""
    far = replace(STAY.attributes["rate"], lower=Decimal(0), upper=Decimal(2**36))
    catalog = Catalog(1, (replace(STAY, attributes={**STAY.attributes, "rate": far}), WARD))
    put(server, {"rate": 1.0})
    names = ", ".join(name for name in COLUMNS if name != "rate")
    server.connection.execute(
        f"INSERT INTO stay (id, rate, {names})"
        f" SELECT i, 2.0 ^ 36, {names} FROM stay, generate_series(1, 140000) i".encode()
    )
    question = ask("SELECT sum(round(rate)) FROM stay", catalog).question
    assert server.rows(question) == [(140_000 * 2**36 + 1,)]


def test_group_bounding_comes_before_the_threshold(server: Server) -> None:
    """Attack: a person with a thousand groups of an unknown domain is counted in as many as were paid for."""
    put(server, *({"note": f"secret {number}"} for number in range(50)))
    text = "SELECT note, count(*) FROM stay GROUP BY note"
    made = move(server, text, ask(text, BY_ACCOUNT), "account = 1")
    assert len(made.cells) == 2 == made.claim.cells and made.units_of_lost_groups == [1, 1]
