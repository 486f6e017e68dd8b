"""Attacks on shared synopses: more learned than paid for, limits slipped by spelling, numbers taken for other numbers.

A proxy in a thread of this process, so that a test can come in between two steps of a question (``monkeypatch``).
"""

from __future__ import annotations

import itertools
import json
import os
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import psycopg
import pytest
import question_world
from attack_world import Hospital, proxy_here

import mechanisms.release
from mechanisms.errors import Refusal
from mechanisms.loss import Coin, epsilon_of
from provenance.migrate import migrate
from provenance.releases import Releases
from proxy import answer
from sqlrewrite.catalog import Catalog
from sqlrewrite.sensitivity import sensitivity
from sqlrewrite.view import view_of

SCHEMA = """
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TABLE stay (id int PRIMARY KEY, g int NOT NULL, a int, c char(4), b boolean, m mood, u uuid, n numeric(6,2),
    tz timestamptz, x int NOT NULL);
INSERT INTO stay SELECT i, i % 5, nullif(i % 10, 7), (ARRAY['a', 'ab ', 'abc', NULL])[1 + i % 4],
    (ARRAY[true, false, NULL])[1 + i % 3], (ARRAY['sad', 'ok', 'happy', NULL]::mood[])[1 + i % 4],
    (ARRAY['00000000-0000-0000-0000-00000000000a', NULL]::uuid[])[1 + i % 2], (ARRAY[1.10, 2.5, NULL])[1 + i % 3],
    timestamptz '2024-03-30 22:00Z' + i % 6 * interval '1 hour', i % 4
FROM generate_series(1, 200) i;
"""
REGISTER = """
-- A least price of a scan that is a fraction of so large a limit would be above every price that is tested here.
UPDATE provenance.deployment SET epsilon = 1000000, scan_floor = 0;
SELECT provenance.protect('stay', changes => 'frozen');
SELECT provenance.declare_attribute('stay', 'g', lower => 0, upper => 4, step => 1);
SELECT provenance.declare_attribute('stay', 'a', lower => 0, upper => 9, step => 1);
SELECT provenance.declare_attribute('stay', 'x', lower => 0, upper => 3);
SELECT provenance.declare_attribute('stay', 'c', members => ARRAY['a', 'ab', 'abc']);
SELECT provenance.declare_attribute('stay', 'b', members => ARRAY['true', 'false']);
SELECT provenance.declare_attribute('stay', 'm', members => ARRAY['sad', 'ok', 'happy']);
SELECT provenance.declare_attribute('stay', 'u', members => ARRAY['00000000-0000-0000-0000-00000000000a']);
SELECT provenance.declare_attribute('stay', 'n', members => ARRAY['1.1', '2.50']);
SELECT provenance.declare_attribute('stay', 'tz', members => ARRAY['2024-03-30 22:00Z', '2024-03-30 23:00Z',
    '2024-03-31 00:00Z', '2024-03-31 01:00Z', '2024-03-31 02:00Z', '2024-03-31 03:00Z']);
"""
BY_G = "SELECT g, count(*) FROM stay GROUP BY g"
_numbers = itertools.count(1)


@dataclass
class Session:
    connection: psycopg.Connection[Any]
    bills: list[dict[str, Any]] = field(default_factory=list)

    def ask(self, text: str, margin: str = "50u", **settings: str) -> dict[Any, Any]:
        for name, value in {"raw": "on", "margin": margin, **settings}.items():
            self.connection.execute(f"SET veil.{name} = '{value}'")
        return {row[:-1]: row[-1] for row in self.connection.execute(text).fetchall()}

    @property
    def ways(self) -> list[str] | None:
        return self.bills[-1].get("ways")


@dataclass
class Office:
    """A deployment with its owner's session, which sees what no analyst sees."""

    hospital: Hospital
    owner: psycopg.Connection[Any]
    open: list[psycopg.Connection[Any]] = field(default_factory=list)

    def somebody(self) -> str:
        return self.hospital.new_analyst(f"rival_{os.getpid()}_{next(_numbers)}")

    def sit(self, name: str | None = None) -> Session:
        session = Session(self.hospital.connect(name or self.somebody()))
        session.connection.add_notice_handler(
            lambda notice: session.bills.append(json.loads(notice.message_detail or "{}"))
        )
        self.open.append(session.connection)
        return session

    def one(self, text: str, *values: Any) -> Any:
        row = self.owner.execute(text, values).fetchone()
        return None if row is None else row[0]

    def spent(self, name: str) -> Decimal:
        return Decimal(self.one("SELECT amount FROM provenance.balance WHERE (scope, name) = ('analyst', %s)", name))

    def table(self) -> Decimal:
        return Decimal(self.one("SELECT amount FROM provenance.balance WHERE scope = 'table'"))

    def knows(self, name: str) -> Fraction:
        """What the analyst's knowledge of counts over single rows is worth in coin, from the tables alone."""
        rows = self.owner.execute(
            "SELECT r.parts, r.variance, k.added FROM provenance.knowledge k"
            " JOIN provenance.release r ON r.id = k.release WHERE k.analyst = %s",
            (name,),
        ).fetchall()
        return sum((Fraction(int(p) ** 2, 2) / (Fraction(v) + Fraction(e or 0)) for p, v, e in rows), Fraction(0))


@pytest.fixture(scope="module")
def house(postgres, shadow_server) -> Iterator[Office]:  # type: ignore[no-untyped-def]
    dsn: str = postgres.new_database("synopses")
    migrate(dsn)
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute(SCHEMA + REGISTER)
        with proxy_here(dsn, shadow_server.admin_dsn) as hospital:
            yield Office(hospital, owner)


@pytest.fixture
def office(house: Office) -> Iterator[Office]:
    """Every test starts with nothing released, and leaves nobody connected."""
    house.owner.execute("SELECT provenance.refresh('stay')")
    yield house
    while house.open:
        house.open.pop().close()


# -- more than was paid for --------------------------------------------------------------------------------------------


def test_what_analysts_know_is_what_they_paid_for_whatever_their_sessions_do_at_once(office: Office) -> None:
    names = [office.somebody() for _ in range(3)]
    before = office.table()

    def work(place: int) -> None:
        session, margins = office.sit(names[place % 3]), (150, 21, 55, 13, 89, 34)
        for turn in range(6):
            try:
                session.ask(BY_G, f"{margins[(turn + place) % 6]}u")
            except psycopg.errors.SerializationFailure:  # ten others were faster
                continue

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    quanta = Fraction(2 * office.one("SELECT count(*) FROM provenance.charge"), 10**18)
    for name in names:
        assert 0 <= Fraction(office.spent(name)) - office.knows(name) <= quanta, name
        partly = "SELECT count(*) FROM provenance.knowledge WHERE analyst = %s AND added IS NOT NULL"
        assert office.one(partly, name) <= 1
    rows = office.owner.execute("SELECT parts, variance FROM provenance.release").fetchall()
    released = sum((Fraction(int(parts) ** 2, 2) / Fraction(variance) for parts, variance in rows), Fraction(0))
    assert 0 <= Fraction(office.table() - before) - released <= quanta


def test_a_cap_on_what_a_question_may_cost_holds_on_every_way(office: Office) -> None:
    first, second = office.sit(), office.sit()
    second.ask(BY_G, "3u")
    cap = Decimal("0.3")
    for margin in ("400u", "100u", "40u", "20u", "10u", "3u"):
        try:
            first.ask(BY_G, margin, max_epsilon=str(cap))
        except psycopg.Error as refused:
            assert refused.sqlstate != "XX000"
    rows = office.owner.execute(
        "SELECT h.charged, d.conversion_delta FROM provenance.history h, provenance.deployment d WHERE h.analyst = %s",
        (first.connection.info.user,),
    ).fetchall()
    assert rows and all(not paid or epsilon_of(Coin.ZCDP, paid, delta) <= cap for paid, delta in rows)


def test_a_view_that_two_questions_of_a_statement_need_is_paid_by_both(office: Office) -> None:
    alone, both = office.sit(), office.sit()
    alone.ask("SELECT count(*) FROM stay WHERE g < 3")
    one = office.spent(alone.connection.info.user)
    office.owner.execute("SELECT provenance.refresh('stay')")
    both.ask("SELECT (SELECT count(*) FROM stay WHERE g < 3), (SELECT count(*) + 0 * sum(x) FROM stay WHERE g < 3)")
    name = both.connection.info.user
    assert office.spent(name) > 2 * one > 0 and office.knows(name) <= Fraction(office.spent(name))


def test_noise_that_was_drawn_for_a_refused_statement_is_the_noise_of_the_question_ever_after(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = office.sit()
    name, told = session.connection.info.user, answer._told
    calls = itertools.count()

    async def failing(*arguments: Any) -> Any:
        if next(calls):
            raise Refusal("the second question of the statement cannot be answered")
        return await told(*arguments)

    monkeypatch.setattr(answer, "_told", failing)
    with pytest.raises(psycopg.Error):
        session.ask("SELECT (SELECT count(*) FROM stay WHERE g < 2), (SELECT count(*) FROM stay WHERE g > 3)")
    monkeypatch.undo()
    paid = office.spent(name)
    first = session.ask("SELECT count(*) FROM stay WHERE g < 2")
    assert office.spent(name) == paid > 0
    assert session.ask("SELECT count(*) FROM stay WHERE g < 2", "80u") == first and office.spent(name) == paid


def test_a_release_that_a_refresh_overtakes_is_shown_once_and_never_refined(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = office.sit()
    name, append = session.connection.info.user, Releases.append

    async def late(*arguments: Any) -> Any:
        office.owner.execute("SELECT provenance.refresh('stay')")
        return await append(*arguments)

    monkeypatch.setattr(Releases, "append", late)
    session.ask(BY_G)
    monkeypatch.undo()
    paid = office.spent(name)
    assert paid > 0 and office.one("SELECT count(*) FROM provenance.release") == 0
    session.ask(BY_G)
    assert session.ways == ["measure"] and office.spent(name) == 2 * paid


def test_a_session_that_another_one_overtakes_begins_again(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known in part was narrowed between two looks at it."""
    office.sit().ask(BY_G, "20u")
    session = office.sit()
    numbers = session.ask(BY_G, "60u")
    name, loaded, calls = session.connection.info.user, Releases.loaded, itertools.count()
    partly = "SELECT count(*) FROM provenance.knowledge WHERE analyst = %s AND added IS NOT NULL"
    assert session.ways == ["derive"] and office.one(partly, name) == 1

    async def overtaken(*arguments: Any) -> Any:
        if not next(calls):
            office.owner.execute("UPDATE provenance.knowledge SET drawn = drawn + 1 WHERE analyst = %s", (name,))
        return await loaded(*arguments)

    monkeypatch.setattr(Releases, "loaded", overtaken)
    assert session.ask(BY_G, "90u") == numbers and session.ways == ["reuse"]
    assert next(calls) == 2


# -- numbers taken for other numbers -----------------------------------------------------------------------------------


def test_a_release_with_the_number_of_one_that_was_lost_is_not_taken_for_it(office: Office) -> None:
    """A ledger that was restored from an older copy counts on from there, while the proxy remembers what it knew."""
    hidden = office.sit().ask("SELECT g, sum(x) FROM stay GROUP BY g", "3u")
    lost = office.one("SELECT max(id) FROM provenance.release")
    office.owner.execute("SELECT provenance.refresh('stay')")
    office.owner.execute(f"ALTER TABLE provenance.release ALTER COLUMN id RESTART WITH {lost}")
    first, second = office.sit(), office.sit()
    numbers = first.ask(BY_G)
    assert office.one("SELECT max(id) FROM provenance.release") == lost
    assert second.ask(BY_G) == numbers != hidden and second.ways == ["derive"]
    assert first.ask(BY_G, "90u") == numbers and first.ways == ["reuse"]


def test_a_moment_that_another_time_zone_means_is_another_view(office: Office) -> None:
    session = office.sit()
    for zone in ("UTC", "Europe/Berlin", "America/St_Johns"):
        session.connection.execute(f"SET TimeZone = '{zone}'")
        session.ask("SELECT count(*) FROM stay WHERE tz >= '2024-03-31'")
        assert session.ways == ["measure"]


def test_new_data_of_a_joined_table_make_another_view() -> None:
    stay, account, *others = question_world.BY_OWNER.relations
    text = "SELECT count(*) FROM stay JOIN account ON stay.account = account.id"
    digests = set()
    for version in (1, 2):
        catalog = Catalog(1, (stay, replace(account, data_version=version), *others))
        digests.add(view_of(question_world.ask(text, catalog).question, 0, "").digest)
    assert len(digests) == 2


def test_a_constant_of_an_enumeration_can_be_compared(office: Office) -> None:
    session = office.sit()
    session.ask("SELECT count(*) FROM stay WHERE m = 'ok'")
    assert session.ways == ["measure"]


DERIVED = (
    "SELECT count(*) FROM stay WHERE a IS NULL",
    "SELECT count(*) FROM stay WHERE a NOT IN (1, 2)",
    "SELECT coalesce(a, 77) / 3, count(*) FROM stay GROUP BY 1",
    "SELECT count(*) FROM stay WHERE c LIKE 'ab%'",
    "SELECT length(c), count(*) FROM stay GROUP BY 1",
    "SELECT count(*) FROM stay WHERE c >= 'ab '",
    "SELECT count(*) FROM stay WHERE b IS NOT TRUE",
    "SELECT count(*) FROM stay WHERE m >= 'ok'",
    "SELECT count(*) FROM stay WHERE u = '00000000-0000-0000-0000-00000000000A'",
    "SELECT round(n), count(*) FROM stay GROUP BY 1",
    "SELECT extract(hour FROM tz), count(*) FROM stay GROUP BY 1",
    "SELECT date_trunc('day', tz), count(*) FROM stay GROUP BY 1",
)


def test_a_sum_of_cells_is_what_postgresql_counts(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """NULL, padded texts, flags, enumerations and an hour that a zone leaves out; without noise, to compare."""
    monkeypatch.setattr(mechanisms.release, "draw", lambda noise, count, source: np.zeros(count, dtype=np.int64))
    session = office.sit()
    for connection in (session.connection, office.owner):
        connection.execute("SET TimeZone = 'Europe/Berlin'")
    try:
        for column in ("a", "c", "b", "m", "u", "n", "tz"):
            office.owner.execute("SELECT provenance.register_view('stay', ARRAY[%s])", (column,))
            session.ask(f"SELECT {column}, count(*) FROM stay GROUP BY {column}", "1u")
        for text in DERIVED:
            told = {key: number for key, number in session.ask(text, "400u").items() if number}
            truth = {row[:-1]: row[-1] for row in office.owner.execute(text.encode()).fetchall()}
            assert told == truth, text
            assert session.ways is not None and session.ways[0].startswith("reuse on "), text
    finally:
        office.owner.execute("RESET TimeZone")
        office.owner.execute("UPDATE provenance.view SET registered = false")


AGGREGATES = ("count(*)", "count(big)", "sum(n)", "avg(n)", "avg(big)", "stddev(low)", "sum(n) FILTER (WHERE n > 3)",
              "sum(n) FILTER (WHERE n >= 4)", "avg(n + low)")  # fmt: skip
CONDITIONS = ("true", "n > 3", "n >= 4", "n > 3.5", "NOT n <= 3", "n >= 4 AND n > 3", "n > 3 AND low < 7",
              "low <= 6 AND n >= 4", "code = 'A'", "code = 'A   '", "note = 'A'", "day > '2024-01-02'",
              "day >= '2024-01-03'")  # fmt: skip
GROUPS = ("kind", "GROUPING SETS ((kind), (kind))", "ward")


def _declared_otherwise(catalog: Catalog) -> Iterator[Catalog]:
    """The catalog, and what else an administrator or the table's owner might say about columns."""
    yield catalog
    stay, *others = catalog.relations
    for name in ("n", "big", "low", "ward"):
        was = stay.attributes[name]
        changes = [replace(was, not_null=not was.not_null), replace(was, constant_per_unit=True)]
        for now in changes if was.upper is None else (*changes, replace(was, upper=was.upper + 1)):
            yield Catalog(1, (replace(stay, attributes={**stay.attributes, name: now}), *others))


@pytest.mark.parametrize("catalog", [question_world.BY_ROW, question_world.BY_ACCOUNT], ids=["rows", "accounts"])
def test_one_view_has_one_sensitivity_and_one_name_in_the_books(catalog: Catalog) -> None:
    """A release is priced by what one unit moves, and a limit is found by name: both must follow from the digest."""
    found: dict[str, set[Any]] = defaultdict(set)
    texts: dict[str, set[str]] = defaultdict(set)
    for which, declared in enumerate(_declared_otherwise(catalog)):
        conditions = CONDITIONS if not which else CONDITIONS[:2]
        plain = [f"SELECT {one} FROM stay WHERE {where}" for one in AGGREGATES for where in conditions]
        grouped = [f"SELECT {one} FROM stay GROUP BY {keys}" for one in AGGREGATES[:6] for keys in GROUPS]
        for text in (*plain, *grouped):
            question = question_world.ask(text, declared).question
            moved = sensitivity(question)
            for place, most in enumerate(moved.statistics):
                view = view_of(question, place, "")
                found[view.digest].add((most, moved.cells, tuple(sorted(view.dimensions)), view.measure))
                texts[view.digest].add(text)
    assert any(len(several) >= 4 for several in texts.values())  # n > 3 has many spellings
    assert {digest: several for digest, several in found.items() if len(several) > 1} == {}


# -- limits and books --------------------------------------------------------------------------------------------------


def test_a_limit_on_a_view_holds_however_its_filter_is_spelled(office: Office) -> None:
    first, second = office.sit(), office.sit()
    first.ask("SELECT count(*) FROM stay WHERE a >= 4")
    made = office.one("SELECT max(view) FROM provenance.charge_view")
    office.owner.execute("UPDATE provenance.view SET epsilon_limit = 0.5 WHERE id = %s", (made,))
    for text in ("a > 3", "NOT a <= 3", "a > 3.5", "a >= 4 AND a > 3"):
        with pytest.raises(psycopg.errors.ConfigurationLimitExceeded, match="view"):
            second.ask(f"SELECT count(*) FROM stay WHERE {text}", "2u")
    assert office.spent(second.connection.info.user) == 0


PAST = (
    "UPDATE provenance.charge SET amount = 0",
    "DELETE FROM provenance.charge",
    "TRUNCATE provenance.charge CASCADE",
    "INSERT INTO provenance.charge (analyst, amount) SELECT min(name), -1 FROM provenance.analyst",
    "ALTER TABLE provenance.charge DISABLE TRIGGER ALL",
    "SET session_replication_role = replica",
    "UPDATE provenance.balance SET amount = 0",
    "DELETE FROM provenance.balance",
    "UPDATE provenance.spending SET amount = 0",
    "DELETE FROM provenance.charge_view",
    "UPDATE provenance.chain SET charge = 0",
    "UPDATE provenance.release SET variance = '1'",
    "DELETE FROM provenance.release",
    "SELECT values FROM provenance.release",
    "UPDATE provenance.knowledge SET added = NULL, values = NULL",
    "DELETE FROM provenance.knowledge",
    "SELECT values FROM provenance.knowledge",
    "DELETE FROM provenance.synopsis",
    "UPDATE provenance.relation SET data_version = 1",
    "DELETE FROM provenance.view WHERE id IN (SELECT view FROM provenance.charge_view)",
    "UPDATE provenance.view SET measure = 'count(*) x' WHERE id IN (SELECT view FROM provenance.charge_view)",
    "UPDATE provenance.view SET dimensions = '{x}' WHERE id IN (SELECT view FROM provenance.charge_view)",
    "DELETE FROM provenance.analyst WHERE name IN (SELECT analyst FROM provenance.charge)",
    "UPDATE provenance.analyst SET name = name || ' (old)' WHERE name IN (SELECT analyst FROM provenance.charge)",
    "UPDATE provenance.deployment SET coin = 'pure'",
    "UPDATE provenance.deployment SET registry_version = 1",
    "UPDATE provenance.grant_of_budget SET used = 0",
    "DELETE FROM provenance.grant_of_budget",
    "INSERT INTO provenance.gap (charge, hash, at, coin, totals, replica) SELECT 0, hash, now(), 'zcdp', '{}', ''"
    " FROM provenance.chain",
    """SELECT provenance.report_gap(1, sha256(''), now(), 'zcdp', '{"table": ["-5", "0"], "analysts": {}}', 'me')""",
    "SELECT provenance.book_gap(g, NULL, 0, 0, -5) FROM (SELECT NULL::provenance.gap) AS n(g)",
    "SELECT provenance.open_views('[]')",
    "SELECT setval('provenance.charge_id_seq', 1)",
    "SELECT setval('provenance.release_id_seq', 1)",
)


@pytest.mark.parametrize("statement", PAST)
def test_an_administrator_cannot_change_what_was_spent_or_see_what_is_hidden(house: Office, statement: str) -> None:
    if not house.one("SELECT count(*) FROM provenance.release"):
        house.sit().ask(BY_G)
    books = "SELECT jsonb_agg(b ORDER BY b.scope, b.name) FROM provenance.balance b"
    before = house.one(books)
    house.owner.execute("SET ROLE pgveil_admin")
    try:
        with pytest.raises((
            psycopg.errors.InsufficientPrivilege,
            psycopg.errors.ObjectNotInPrerequisiteState,
            psycopg.errors.ForeignKeyViolation,
        )):  # fmt: skip
            house.owner.execute(statement.encode())
    finally:
        house.owner.execute("RESET ROLE; RESET session_replication_role")
    assert house.one(books) == before
    assert house.owner.execute("SELECT broken, reason FROM provenance.verify_chain()").fetchone() == (None, None)
