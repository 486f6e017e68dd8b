"""Attack: data that changes between questions. Releases before and after a change are taken for one number, or a row is
moved from region to region while each of them is asked about.

A proxy in a thread of this process, so that bugs can be planted (``monkeypatch``).
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from attack_world import Hospital, proxy_here

from mechanisms.loss import Coin, epsilon_of
from provenance import reach as reaching
from provenance import snapshots
from provenance.migrate import migrate
from proxy import levels, numbers, patched, relaxed, warm
from sqlrewrite.question import Question

WARDS = 40
SCHEMA = """
CREATE TABLE stay (id int PRIMARY KEY, ward int NOT NULL, age int NOT NULL, sex int NOT NULL);
SELECT provenance.protect('stay');
SELECT provenance.declare_attribute('stay', 'ward', lower => 0, upper => 39, step => 1);
SELECT provenance.declare_attribute('stay', 'age', lower => 0, upper => 9, step => 1);
SELECT provenance.declare_attribute('stay', 'sex', lower => 0, upper => 1, step => 1);
SELECT provenance.register_view('stay', '{age}');
UPDATE provenance.deployment SET epsilon = 1000000, scan_floor = 0, timing = 'immediate';
"""
FILL = "INSERT INTO stay SELECT i, i % 40, i % 10, i % 2 FROM generate_series({}, {}) i"
_numbers = itertools.count(1)


@dataclass
class Session:
    """One analyst's."""

    name: str
    connection: psycopg.Connection[Any]
    bills: list[dict[str, Any]] = field(default_factory=list)

    def ask(self, text: str, margin: str = "50u", **settings: str) -> list[tuple[Any, ...]]:
        for name, value in {"raw": "on", "margin": margin, **settings}.items():
            self.connection.execute(f"SET veil.{name} = '{value}'")
        return self.connection.execute(text.encode()).fetchall()

    def number(self, text: str, margin: str = "50u", **settings: str) -> float:
        ((found,),) = self.ask(text, margin, **settings)
        return float(found)

    @property
    def bill(self) -> dict[str, Any]:
        return self.bills[-1]


@dataclass
class Clinic:
    hospital: Hospital
    owner: psycopg.Connection[Any]
    open: list[Session] = field(default_factory=list)

    def sit(self, epsilon: str | None = None) -> Session:
        name = self.hospital.new_analyst(f"mover_{os.getpid()}_{next(_numbers)}", epsilon)
        session = Session(name, self.hospital.connect(name))
        session.connection.add_notice_handler(
            lambda notice: session.bills.append(json.loads(notice.message_detail or "{}"))
        )
        self.open.append(session)
        return session

    def declare(self, changes: str) -> None:
        self.owner.execute("SELECT provenance.set_changes('stay', %s)", (changes,))

    def fill(self, rows: int) -> None:
        self.owner.execute("TRUNCATE stay")
        self.add(1, rows)

    def add(self, first: int, last: int) -> None:
        self.owner.execute(FILL.format(first, last).encode())

    def one(self, text: str, *values: Any) -> Any:
        row = self.owner.execute(text, values).fetchone()
        assert row is not None
        return row[0]


@pytest.fixture(scope="module")
def house(postgres, shadow_server) -> Iterator[Clinic]:  # type: ignore[no-untyped-def]
    dsn: str = postgres.new_database("moving")
    migrate(dsn)
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute(SCHEMA.encode())
        with proxy_here(dsn, shadow_server.admin_dsn) as hospital:
            yield Clinic(hospital, owner)


@pytest.fixture
def clinic(house: Clinic) -> Iterator[Clinic]:
    """20,000 rows of a table that may change, and nothing released."""
    house.declare("any")
    house.owner.execute("SELECT provenance.refresh('stay')")
    house.fill(20_000)
    yield house
    while house.open:
        house.open.pop().connection.close()


def believe_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: releases of all snapshots are combined, as if nothing ever changed."""
    for module in (snapshots, numbers, patched, relaxed, warm):
        monkeypatch.setattr(module, "combines", lambda question: True)


# -- releases before and after a change --------------------------------------------------------------------------------


def asked_twice(clinic: Clinic) -> tuple[float, float]:
    """The interval of a count that is asked for before and after the table has doubled, the second time finer."""
    session = clinic.sit()
    assert abs(session.number("SELECT count(*) FROM stay", "60u") - 20_000) < 200
    clinic.add(20_001, 40_000)
    ((low, high),) = session.ask("SELECT veil.low(count(*)), veil.high(count(*)) FROM stay", "40u")
    return float(low), float(high)


@pytest.mark.parametrize("changes", ["any", "append"])
def test_what_was_measured_before_a_change_is_not_averaged_with_what_is_measured_after(
    clinic: Clinic, changes: str
) -> None:
    clinic.declare(changes)
    low, high = asked_twice(clinic)
    assert low - 120 < 40_000 < high + 120  # three more margins: the interval has confidence 0.95
    assert high - low < 90


def test_averaging_across_a_change_is_seen(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    believe_everything(monkeypatch)
    assert asked_twice(clinic)[1] + 120 < 40_000


def test_a_finer_answer_costs_its_whole_precision_where_rows_may_change(clinic: Clinic) -> None:
    prices = {}
    for changes in ("any", "frozen"):
        clinic.declare(changes)
        session = clinic.sit()
        for margin in ("60u", "40u"):
            session.ask("SELECT count(*) FROM stay", margin)
        first, second = (Decimal(bill["charged"]) for bill in session.bills[-2:])
        prices[changes] = first, second, session.bill["ways"]
    (coarse, whole, measured), (again, rest, refined) = prices["any"], prices["frozen"]
    assert (measured, refined, coarse) == (["measure"], ["refine"], again)
    assert abs(rest + again - whole) < Decimal("1e-9") * whole


def average(clinic: Clinic) -> float:
    """An average after a count of the same rows was released precisely, and the rows have changed since."""
    session = clinic.sit()
    session.number("SELECT count(*) FROM stay", "20u")
    clinic.fill(5_000)
    clinic.owner.execute("UPDATE stay SET age = 9")
    return session.number("SELECT avg(age) FROM stay", "20u")


def test_numerator_and_denominator_are_of_one_snapshot(clinic: Clinic) -> None:
    assert abs(average(clinic) - 9) < 0.5


def test_a_quotient_across_a_change_is_seen(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    believe_everything(monkeypatch)
    assert average(clinic) < 7


def test_of_two_statistics_none_is_told_from_another_snapshot_than_the_other(clinic: Clinic) -> None:
    session = clinic.sit()
    session.ask("SELECT count(*) FROM stay WHERE sex = 0", "20u")
    clinic.fill(5_000)
    session.ask("SELECT count(*) FROM stay WHERE sex = 1", "20u")
    ((both, one, other),) = session.ask(
        "SELECT count(*), count(*) FILTER (WHERE sex = 0), count(*) FILTER (WHERE sex = 1) FROM stay", "20u"
    )
    assert session.bill["ways"] == ["measure"] * 3
    assert abs(both - 5_000) < 100 and abs(one - 2_500) < 100 and abs(other - 2_500) < 100


def test_another_analyst_derives_from_one_snapshot_at_no_cost_to_the_database(clinic: Clinic) -> None:
    first, second = clinic.sit(), clinic.sit()
    first.number("SELECT count(*) FROM stay", "30u")
    clinic.add(20_001, 40_000)
    first.number("SELECT count(*) FROM stay", "15u")
    before = clinic.one("SELECT amount FROM provenance.balance WHERE scope = 'table' AND name = ''")
    assert abs(second.number("SELECT count(*) FROM stay", "60u") - 40_000) < 300  # of two that cost the same, the later
    assert second.bill["ways"] == ["derive"] and Decimal(second.bill["charged"]) > 0
    assert clinic.one("SELECT amount FROM provenance.balance WHERE scope = 'table' AND name = ''") == before
    # What is known of a release in part is narrowed, at the price of the difference.
    second.number("SELECT count(*) FROM stay", "45u")
    known = clinic.owner.execute(
        "SELECT count(*), count(DISTINCT r.snapshot) FROM provenance.knowledge k"
        " JOIN provenance.release r ON r.id = k.release WHERE k.analyst = %s",
        (second.name,),
    ).fetchone()
    assert (second.bill["ways"], known) == (["derive"], (1, 1))


def test_parts_of_releases_of_several_snapshots_are_kept_apart(clinic: Clinic) -> None:
    """An analyst may know two releases of one view through added noise: each is narrowed by itself."""
    first, second = clinic.sit(), clinic.sit()
    first.number("SELECT count(*) FROM stay", "30u")
    second.number("SELECT count(*) FROM stay", "90u")
    clinic.add(20_001, 40_000)
    first.number("SELECT count(*) FROM stay", "15u")
    assert abs(second.number("SELECT count(*) FROM stay", "22u") - 40_000) < 150
    rows = clinic.owner.execute(
        "SELECT r.snapshot, k.added IS NULL FROM provenance.knowledge k JOIN provenance.release r ON r.id = k.release"
        " WHERE k.analyst = %s ORDER BY 1",
        (second.name,),
    ).fetchall()
    assert len(rows) == 2 and rows[0][0] != rows[1][0]
    spent = clinic.one("SELECT amount FROM provenance.balance WHERE (scope, name) = ('analyst', %s)", second.name)
    assert spent == sum(Decimal(bill["charged"]) for bill in second.bills)


def test_cells_of_a_registered_view_are_added_up_within_one_snapshot(clinic: Clinic) -> None:
    session, histogram = clinic.sit(), "SELECT age, count(*) FROM stay GROUP BY age"
    session.ask(histogram, "40u")
    clinic.add(20_001, 40_000)
    session.ask(histogram, "20u")
    assert abs(session.number("SELECT count(*) FROM stay WHERE age < 4", "60u") - 16_000) < 250
    assert session.bill["ways"] == ["reuse on age: count(*)"] and session.bill["charged"] == "0"
    for last in (3, 5, 7, 8, 2):  # by constants, out of what is remembered of the question (proxy.warm)
        found = session.number(f"SELECT count(*) FROM stay WHERE age < {last}", "60u")
        assert abs(found - 4_000 * last) < 300, last
        assert session.bill["charged"] == "0"


def test_decisions_on_known_noise_are_of_one_snapshot(clinic: Clinic) -> None:
    session = clinic.sit()
    session.ask("SELECT age, count(*) FROM stay GROUP BY age", "40u")
    session.ask("SELECT age, sum(sex) FROM stay GROUP BY age", "40u")
    clinic.fill(4_000)
    session.ask("SELECT age, count(*), sum(sex) FROM stay GROUP BY age", "30u")
    kept = session.ask(
        "SELECT age FROM stay GROUP BY age HAVING count(*) > 1000 AND sum(sex) > 1000", "50u", reuse="on"
    )
    assert kept == [] and session.bill["charged"] == "0"


def test_the_same_question_again_is_answered_from_the_store_as_of_its_time(clinic: Clinic) -> None:
    session, before = clinic.sit(), datetime.now(UTC).replace(microsecond=0)
    first = session.number("SELECT count(*) FROM stay")
    told = datetime.fromisoformat(session.bill["as_of"])
    assert before - timedelta(seconds=5) <= told <= datetime.now(UTC) + timedelta(seconds=5)
    clinic.add(20_001, 40_000)
    assert session.number("SELECT count(*) FROM stay") == first
    assert (session.bill["reused"], session.bill["charged"]) == (True, "0")
    assert datetime.fromisoformat(session.bill["as_of"]) == told
    clinic.owner.execute("SELECT provenance.refresh('stay')")
    assert abs(session.number("SELECT count(*) FROM stay") - 40_000) < 200


def test_explain_tells_the_way_that_is_taken(clinic: Clinic) -> None:
    session = clinic.sit()
    session.number("SELECT count(*) FROM stay", "60u")
    ((document,),) = session.ask("EXPLAIN (FORMAT JSON) SELECT count(*) FROM stay", "40u")
    (told,) = document[0]["Questions"][0]["Ways"]
    assert told["way"] == "measure"
    session.number("SELECT count(*) FROM stay", "40u")
    assert Decimal(session.bill["charged"]) == Decimal(document[0]["Charged"])
    other = clinic.sit()
    ((document,),) = other.ask("EXPLAIN (FORMAT JSON) SELECT count(*) FROM stay", "60u")
    (told,) = document[0]["Questions"][0]["Ways"]
    assert told["way"] == "derive" and "measure" in json.dumps(told)


def relaxed_sum(clinic: Clinic) -> float:
    """What an analyst whose limit is reached is told of two parts, one measured before a change, one after."""
    session = clinic.sit()
    session.number("SELECT count(*) FROM stay WHERE age < 5", "20u")
    clinic.add(20_001, 60_000)
    session.number("SELECT count(*) FROM stay WHERE age >= 5", "20u")
    clinic.owner.execute("UPDATE provenance.analyst SET epsilon_limit = 0 WHERE name = %s", (session.name,))
    return session.number("SELECT count(*) FROM stay WHERE age >= 0", "20u", on_exhausted="relax")


def test_relaxed_answers_are_put_together_within_one_snapshot(clinic: Clinic) -> None:
    found = relaxed_sum(clinic)
    assert min(abs(found - 10_000), abs(found - 30_000)) < 200  # one of the parts, told as such


def test_relaxed_answers_across_a_change_are_seen(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    believe_everything(monkeypatch)
    assert abs(relaxed_sum(clinic) - 40_000) < 200  # neither the rows before nor those after


# -- a row that is moved along -----------------------------------------------------------------------------------------


def moved_along(clinic: Clinic) -> tuple[Decimal, Decimal]:
    """What a row has lost that is moved to each ward before it is asked about, and what the ledger counts."""
    session = clinic.sit("1000000")
    before = clinic.one("SELECT amount FROM provenance.balance WHERE scope = 'table' AND name = ''")
    for ward in range(WARDS):
        clinic.owner.execute("UPDATE stay SET ward = %s WHERE id = 1", (ward,))
        session.ask(f"SELECT count(*) FROM stay WHERE ward = {ward}", "30u")
    lost = sum(Decimal(bill["charged"]) for bill in session.bills)  # the row was counted every time
    counted = clinic.one("SELECT amount FROM provenance.balance WHERE (scope, name) = ('analyst', %s)", session.name)
    table = clinic.one("SELECT amount FROM provenance.balance WHERE scope = 'table' AND name = ''") - before
    assert table >= counted
    return lost, counted


def test_a_row_that_is_moved_along_loses_no_more_than_the_ledger_counts(clinic: Clinic) -> None:
    lost, counted = moved_along(clinic)
    assert 0 < lost <= counted


def separating_before(question: Question) -> frozenset[str]:
    """The planted bug: every column of a row tells rows apart, whatever becomes of it."""
    return frozenset(question.relation.attributes)


def test_that_all_columns_separate_rows_that_move_is_seen(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (reaching, levels):
        monkeypatch.setattr(module, "separating", separating_before)
    lost, counted = moved_along(clinic)
    delta = clinic.one("SELECT conversion_delta FROM provenance.deployment")
    assert lost > 35 * counted
    assert epsilon_of(Coin.ZCDP, lost, delta) > 6 * epsilon_of(Coin.ZCDP, counted, delta)


def test_an_immutable_column_separates_and_what_is_frozen_separates(clinic: Clinic) -> None:
    def counted(column: str) -> int:
        session = clinic.sit("1000000")
        for value in (0, 1):
            session.ask(f"SELECT count(*) FROM stay WHERE {column} = {value}", "30u")
        amount = Decimal(session.bill["charged"])
        told = clinic.one("SELECT amount FROM provenance.balance WHERE (scope, name) = ('analyst', %s)", session.name)
        return round(told / amount)

    assert (counted("sex"), counted("age")) == (2, 2)
    clinic.owner.execute("SELECT provenance.declare_attribute('stay', 'sex', 0, 1, 1, immutable => true)")
    assert (counted("sex"), counted("age")) == (1, 2)
    clinic.owner.execute("SELECT provenance.declare_attribute('stay', 'sex', 0, 1, 1)")
    assert counted("sex") == 2
    clinic.declare("append")
    assert (counted("sex"), counted("age")) == (1, 1)
