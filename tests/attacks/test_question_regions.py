"""Attack: a text, a database and a unit outside the text's region that moves the answer all the same.

What lies outside is found by PostgreSQL, from the region in the words of SQL. A unit of many rows lies in a region only
if all its rows do: then units of disjoint regions are different ones, which is what parallel composition rests on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count, islice

import psycopg
import pytest
from question_world import ACCOUNT, BY_OWNER, STAY, WARD, Measured, Server, Writer, ask

from mechanisms.errors import Refusal
from provenance import reach as reaching
from provenance.reach import exact_region, group_regions, reach
from provenance.region import EVERYWHERE, Region
from provenance.told import told
from sqlrewrite.catalog import Catalog, Changes, Relation
from sqlrewrite.question import Question

CONSTANT = ("ward", "n", "day", "wide")

NUMBERS = ("small", "n", "n", "n", "big", "low", "account", "cost", "wide", "whole")
PLAIN = {
    "number": ("0", "1", "2", "5", "7", "9", "10", "-5", "5.0", "7.25", "19.99", "1.5"),
    "day": ("DATE '2024-03-31'", "'2024-03-30'", "'2024-3-29'", "'2024-04-02'", "DATE '2024-04-01'"),
    "at": ("TIMESTAMP '2024-03-30 23:59:59'", "'2024-04-01 8:30'", "DATE '2024-04-01'", "'2024-03-31'"),
    "text": ("'north'", "'south'", "'a'", "'b'", "'C'", "''", "'x'"),
    "truth": ("true", "false"),
    "other": ("'A'", "'B1'", "'sad'", "0.5", "'1 day'"),
}
ODD = {
    "number": (
        *("-1", "-0.5", "7.250", "0.01", "500", "2147483647", "-2147483648", "9223372036854775807", "1e20", "'7'"),
        *("' 5 '", "5::float8", "2::real", "NULL", "'NaN'::numeric", "'Infinity'::numeric", "'-Infinity'::numeric"),
    ),
    "day": (
        *("'infinity'", "'-infinity'", "'9999-12-31'", "'0001-01-01'", "TIMESTAMP '2024-03-31 12:00'", "NULL"),
        *("'2024-03-31 12:00'", "'2024-03-30 00:00:00'", "TIMESTAMPTZ '2024-03-31 00:30+00'"),
    ),
    "at": (
        *("'2024-03-30T23:59:59.000'", "'infinity'", "'2024-03-31 24:00'", "'2024-04-01 08:30+05'", "NULL"),
        *("'2024-03-30 23:59:60'", "TIMESTAMPTZ '2024-04-01 06:30+00'", "'9999-12-31 23:59:59.999999'"),
    ),
    "text": ("'NORTH'", "'A '::bpchar", "'north '::bpchar", "'north'::varchar", "'undeclared'", "NULL", "'\\'", "'%'"),
    "truth": ("'yes'", "'f'", "'T'", "NULL"),
    "other": ("NULL", "'infinity'", "'NaN'"),
}
KINDS = {"number": NUMBERS, "day": ("day",), "at": ("at",), "text": ("stay.ward", "kind", "note"), "truth": ("paid",)}
KINDS |= {"other": ("code", "feeling", "rate", "fine", "span", "till", "zone", "sex")}


class Narrow(Writer):
    """Conditions on bare columns, most of them, in all the ways that constants are written."""

    def condition(self, depth: int = 0) -> str:
        if depth < 3 and self.rng.random() < 0.45:
            a, b = self.condition(depth + 1), self.condition(depth + 1)
            return self.pick(f"({a} AND {b})", f"({a} AND {b})", f"({a} OR {b})", f"NOT ({a})", f"({a}) IS TRUE")
        return super().condition(depth) if self.rng.random() < 0.1 else self.bare()

    def bare(self) -> str:
        kind = self.pick("number", "number", "number", "day", "at", "text", "truth", "other")
        column = self.pick(*KINDS[kind])
        one, two, three = (self.pick(*(PLAIN if self.rng.random() < 0.8 else ODD)[kind]) for _ in range(3))
        op = self.pick("=", "<>", "<", "<=", "<=", ">", ">=", ">=")
        if self.rng.random() < 0.5:
            return self.pick("paid", "NOT paid") if column == "paid" else f"{column} {op} {one}"
        return self.pick(
            f"{one} {op} {column}", f"({column} > {one} OR {column} = {two})",
            f"{column} BETWEEN {one} AND {two}", f"{column} NOT BETWEEN {one} AND {two}", f"{column} IS NULL",
            f"{column} IS NOT NULL", f"{column} IN ({one}, {two}, {three})", f"{column} NOT IN ({one}, {two})",
            f"({column} = {one} OR {column} = {two})", f"({column} < {one} OR {column} IS NULL)",
            f"{column} IS DISTINCT FROM {one}", f"{column} IS NOT DISTINCT FROM {one}",
            f"({column} <> {one} AND {column} <> {two} AND {column} IN ({one}, {three}))", "paid IS NOT TRUE",
        )  # fmt: skip

    def aggregate(self) -> str:
        kept = f" FILTER (WHERE {self.condition(2)})" if self.rng.random() < 0.3 else ""
        return self.pick("count(*)", "sum(n)", "sum(cost)", "count(note)", "avg(whole)") + kept

    def question(self) -> str:
        tables = "stay" + self.pick("", "", "", " JOIN ward USING (ward)", " LEFT JOIN ward ON ward.ward = stay.ward")
        tables += self.pick("", "", "", " JOIN account ON account.id = stay.account")
        keys = list(dict.fromkeys(self.key() for _ in range(self.rng.choice([0, 0, 0, 1, 1, 2]))))
        shown = ", ".join([*keys, *(self.aggregate() for _ in range(self.rng.randint(1, 2)))])
        text = f"SELECT {shown} FROM {tables} WHERE {self.condition()}"
        if keys:
            text += " GROUP BY " + self.pick(", ".join(keys), ", ".join(keys), f"ROLLUP ({', '.join(keys)})")
            text += f" HAVING {self.having()}" if self.rng.random() < 0.2 else ""
        return text


def registered(relation: Relation, constant: tuple[str, ...] = ()) -> Relation:
    """The relation as the registry reads it: frozen, texts of a deterministic collation, some columns constant for a
    unit.
    """
    attributes = {
        name: replace(a, bytewise=a.type_name in ("text", "character varying"), constant_per_unit=name in constant)
        for name, a in relation.attributes.items()
    }
    return replace(relation, attributes=attributes, changes=Changes.FROZEN)


BY_ROW = Catalog(1, (registered(STAY), ACCOUNT, WARD))
BY_PERSON = Catalog(
    1, (replace(registered(STAY, CONSTANT), unit_column="account", max_groups=2, max_rows=3), ACCOUNT, WARD)
)
BY_PARENT = Catalog(1, (registered(STAY, CONSTANT), *BY_OWNER.relations[1:]))
CATALOGS = (BY_ROW, BY_ROW, BY_PERSON, BY_PERSON, BY_PARENT)


@dataclass(frozen=True)
class Tried:
    """A text whose region left somebody out, and whether they could be missed."""

    text: str
    region: str
    person: bool
    same: bool


def fill(server: Server, rng: random.Random) -> None:
    server.fill(rng, rng.randrange(5, 40), rng.choice((0.0, 0.1, 0.4)))
    columns = ", ".join(CONSTANT)
    server.connection.execute(
        f"UPDATE stay s SET {', '.join(f'{name} = f.{name}' for name in CONSTANT)}"
        f" FROM (SELECT DISTINCT ON (account) account, {columns} FROM stay ORDER BY account, id) f"
        " WHERE s.account = f.account".encode()
    )


def outside(question: Question, region: Region) -> str:
    """The rows of units that have a row outside the region."""
    rest = f"(({told(region)}) IS NOT TRUE)"
    if question.unit.column is None:
        return rest
    return f"account IN (SELECT account FROM stay WHERE {rest})"


def missed(server: Server, question: Question, region: Region, look: Callable[[Measured], object]) -> bool | None:
    """Whether the answer is another one without all units outside the region; None if there are none."""
    grid = server.grid(question)
    before = look(server.measured(question, grid))
    with server.connection.transaction(force_rollback=True):
        gone = server.connection.execute(f"DELETE FROM stay WHERE {outside(question, region)}".encode()).rowcount
        return look(server.measured(question, grid)) != before if gone else None


def shown(measured: Measured) -> object:
    return {at: values for at, values in measured.items() if any(values)}


def regions(server: Server, question: Question) -> Iterator[tuple[Region, Callable[[Measured], object]]]:
    whole = reach(question)
    yield whole, shown
    for place in range(len(question.statistics)):
        if reach(question, place) != whole:
            yield (
                reach(question, place),
                lambda measured, place=place: {at: v[place] for at, v in measured.items() if v[place]},
            )
    grid = server.grid(question)
    groups = None if grid is None else group_regions(question, grid, 200)
    for cell, region in list(enumerate(groups or ()))[:3]:
        yield region, lambda measured, cell=cell: shown({at: v for at, v in measured.items() if at == (cell,)})


def tries(server: Server, seed: int, wanted: int) -> Iterator[Tried]:
    """So many regions that left somebody out."""
    return islice(_tries(server, random.Random(seed)), wanted)


def _tries(server: Server, rng: random.Random) -> Iterator[Tried]:
    writer = Narrow(rng)
    for number in count():
        if number % 25 == 0:
            fill(server, rng)
        text = writer.question()
        if not server.reads(text):
            continue
        try:
            question = ask(text, rng.choice(CATALOGS)).question
            for region, look in regions(server, question):
                differs = None if region == EVERYWHERE else missed(server, question, region, look)
                if differs is not None:
                    yield Tried(text, told(region), question.unit.column is not None, not differs)
        except Refusal:
            continue


def test_nobody_outside_a_region_moves_the_answer(server: Server) -> None:
    found = list(tries(server, 1, 200))
    assert not [one for one in found if not one.same][:3]
    assert sum(one.person for one in found) > 20
    assert sum("BETWEEN" in one.region or "<" in one.region or ">" in one.region for one in found) > 40
    assert sum(" IN " in one.region or " = " in one.region for one in found) > 20
    assert sum(one.region != "false" for one in found) > 120


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(2, 8))
def test_nobody_outside_a_region_moves_the_answer_of_many_texts(server: Server, seed: int) -> None:
    assert not list(islice((one for one in tries(server, seed, 3_000) if not one.same), 3))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(2, 5))
def test_regions_of_many_conditions_hold_every_row_and_no_other_where_they_are_exact(server: Server, seed: int) -> None:
    assert not list(islice(by_plain_sql(server, seed, 2_000), 3))
    assert not list(islice(exact(server, seed, 1_000), 3))


def by_plain_sql(server: Server, seed: int, wanted: int) -> Iterator[str]:
    """Texts of which a row meets WHERE, by PostgreSQL's own reading of it, and lies outside the region."""
    rng = random.Random(seed)
    writer, seen, tried = Narrow(rng), 0, 0
    while seen < wanted:
        if tried % 200 == 0:
            fill(server, rng)
        tried += 1
        where = writer.condition()
        text = f"SELECT count(*) FROM stay WHERE {where}"
        if "zone" in where or "sex" in where or not server.reads(text):
            continue
        try:
            region = reach(ask(text, BY_ROW).question)
            with server.connection.transaction(force_rollback=True):
                rows = server.raw.execute(f"{text} AND (({told(region)}) IS NOT TRUE)".encode()).fetchone()
        except (Refusal, psycopg.Error):  # plain SQL may raise on data
            continue
        seen += region != EVERYWHERE
        if rows != (0,):
            yield f"{where}: {told(region)}"


def test_every_row_that_meets_where_lies_in_the_region(server: Server) -> None:
    assert not list(islice(by_plain_sql(server, 4, 300), 3))


def exact(server: Server, seed: int, wanted: int) -> Iterator[str]:
    """Conditions that a region is said to tell exactly, and of which some row knows better."""
    rng = random.Random(seed)
    writer, seen, tried = Narrow(rng), 0, 0
    while seen < wanted:
        if tried % 200 == 0:
            fill(server, rng)
        tried += 1
        where = writer.condition(2)
        text = f"SELECT count(*) FROM stay WHERE {where}"
        if "zone" in where or "sex" in where or not server.reads(text):
            continue
        try:
            region = exact_region(ask(text, BY_ROW).question, 0)
            if region is None:
                continue
            unlike = f"(({where}) IS TRUE) <> (({told(region)}) IS TRUE)"
            with server.connection.transaction(force_rollback=True):
                rows = server.raw.execute(f"SELECT count(*) FROM stay WHERE {unlike}".encode()).fetchone()
        except (Refusal, psycopg.Error):
            continue
        seen += 1
        if rows != (0,):
            yield f"{where}: {told(region)}"


def test_what_is_told_exactly_is_exact(server: Server) -> None:
    assert not list(islice(exact(server, 5, 150), 3))


# -- the same tests see regions that are too small ---------------------------------------------------------------------


def test_an_interval_that_is_one_too_short_is_seen(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    right = reaching._compared

    def short(kind: str, op: object, value: object) -> object:
        found = right(kind, op, value)  # type: ignore[arg-type]
        integer = kind in ("smallint", "integer", "bigint")
        return replace(found, high=found.high - 1) if integer and getattr(found, "high", None) is not None else found

    monkeypatch.setattr(reaching, "_compared", short)
    assert any(by_plain_sql(server, 4, 300))


def test_a_person_who_is_told_apart_by_a_row_is_seen(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaching, "separating", lambda question: frozenset(question.relation.attributes))
    assert next(one for one in tries(server, 1, 400) if not one.same).person


def test_a_forgotten_null_is_seen(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaching, "_union", lambda one, other: one)
    assert any(not one.same for one in tries(server, 1, 400))


def test_a_condition_that_is_passed_over_is_seen_where_a_region_must_be_exact(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaching, "_exact", lambda part, relation: True)
    assert any(exact(server, 5, 600))


def test_a_date_that_is_cut_as_text_is_seen(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A timestamp with a zone written behind it, and 24:00, are not what they look like."""
    right = reaching._moment
    monkeypatch.setattr(reaching, "_moment", lambda text, kind, given: right(text.strip()[:10], kind, "date"))
    assert any(by_plain_sql(server, 4, 800))
