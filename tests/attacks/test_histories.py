"""Attack: a unit that loses more, over all its versions, than the ledger counts (``histories``)."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import histories
import psycopg
import pytest
from histories import BUGS, Books, Counts, History, PureBooks, Totals, planted, run, tables
from psycopg_pool import AsyncConnectionPool

from mechanisms.loss import Coin, Loss, epsilon_of
from provenance.ledger import Ledger
from provenance.migrate import migrate
from provenance.model import Charge, Felt, Receipt
from provenance.reach import reach
from provenance.region import Part
from provenance.registry import Registry
from sqlrewrite.catalog import Catalog, Changes

WARDS = 40
ONE = Decimal("0.0003")
EVIDENCE = Path(__file__).parents[2] / "bench" / "results" / "evidence" / "histories.json"


def test_no_unit_loses_more_than_is_counted_whatever_happens_to_its_rows() -> None:
    outcome = run(seed=7, number=150)
    assert outcome.violations == []
    assert outcome.counts.questions > 1000 and outcome.counts.separated > 200 and outcome.counts.changes > 500


@pytest.mark.slow
def test_no_unit_of_ten_thousand_histories_loses_more_than_is_counted() -> None:
    assert run(seed=8, number=10_000).violations == []


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_seen(bug: str) -> None:
    assert run(seed=7, number=1500, bug=bug, enough=1).violations


def test_the_evidence_that_is_kept_says_that_nothing_was_found() -> None:
    kept = json.loads(EVIDENCE.read_text())
    assert (kept["n"], kept["violations"], kept["bound"]) == (10_000, 0, 6.9 / 10_000)
    assert {bug: kept["planted_bugs"][bug]["caught"] for bug in BUGS} == dict.fromkeys(BUGS, True)


def test_a_question_that_was_read_once_is_the_one_that_is_read_now() -> None:
    rng = Random(11)
    for unit in histories.UNITS:
        base = tables(unit)
        stay = base.relations[0]
        columns = {name: replace(each, immutable=rng.random() < 0.5) for name, each in stay.attributes.items()}
        stay = replace(stay, changes=rng.choice(list(Changes)), data_version=3, attributes=columns)
        catalog = Catalog(2, (stay, *base.relations[1:]))
        for _ in range(10):
            asked = histories.question(rng, unit.startswith("joined"))
            assert histories.understood(asked, unit, catalog) == histories.parsed(asked, catalog)


# -- the row that was moved along --------------------------------------------------------------------------------------


def _moved_along(changes: Changes, bug: str | None) -> tuple[Decimal, Decimal]:
    """What a row loses that is in each of 40 wards when it is asked about, and what the ledger counts."""
    catalog = tables("row")
    stay = catalog.relations[0]
    ward = replace(stay.attributes["ward"], domain=tuple(range(WARDS)))
    stay = replace(stay, changes=changes, attributes={**stay.attributes, "ward": ward})
    books = PureBooks(Catalog(1, (stay, *catalog.relations[1:])))
    with planted(bug):
        for at in range(WARDS):
            text = f"SELECT count(*) FROM stay WHERE ward = {at}"
            asked = histories.Asked(text, lambda row: True, (), (), None, False)
            question = histories.parsed(asked, books.catalog)
            felt = (Felt(reach(question), ONE, ONE),)
            books.charge(Charge("alice", 1, 1, 1, "f00d", "", "history", Loss(Coin.ZCDP, ONE), felt=felt))
    return WARDS * ONE, books.totals().analysts["alice"][0]


def test_forty_counts_on_forty_wards_while_a_row_is_moved_along() -> None:
    lost, counted = _moved_along(Changes.ANY, None)
    assert lost <= counted


def test_the_moved_row_is_seen_where_every_column_separates() -> None:
    lost, counted = _moved_along(Changes.ANY, "columns")
    assert counted == ONE
    told, true = (epsilon_of(Coin.ZCDP, amount, Decimal("5e-10")) for amount in (counted, lost))
    assert true > 6 * told  # as it was found: 0.55 was told of a row that had lost 3.8


def test_rows_that_stay_are_still_counted_in_parallel() -> None:
    for changes in (Changes.APPEND, Changes.FROZEN):
        assert _moved_along(changes, None)[1] == ONE


# -- a sample through the ledger in PostgreSQL, with the declarations as it keeps them ---------------------------------

STAY = """
CREATE TABLE stay (id int NOT NULL, patient int NOT NULL, ward int NOT NULL, age int NOT NULL, home int NOT NULL,
    paid bool NOT NULL, kind text);
UPDATE provenance.deployment SET epsilon = 1000000, delta = 0.1;
"""
DECLARED = """
SELECT provenance.declare_attribute('stay', 'ward', 0, 3, 1), provenance.declare_attribute('stay', 'age', 0, 5, 1),
    provenance.declare_attribute('stay', 'paid', members => '{false,true}'),
    provenance.declare_attribute('stay', 'kind', members => '{a,b}')
"""
HOME = "SELECT provenance.declare_attribute('stay', 'home', 0, 2, 1, constant_per_unit => %s)"
_numbers = itertools.count(1)


class RealBooks:
    """The ledger on its database; the declarations go through SQL, and come back by the registry."""

    def __init__(self, owner: psycopg.Connection[Any], runner: asyncio.Runner, pool: Any, catalog: Catalog) -> None:
        self._owner = owner
        self._runner, self._number = runner, next(_numbers)
        self._ledger, self._registry = Ledger(pool), Registry(pool, pool)
        person = catalog.relations[0].unit_column is not None
        self._owner.execute("UPDATE provenance.relation SET active = false WHERE name = 'stay'")
        unit = "'stay', 'patient', 2, 2" if person else "'stay'"
        self._owner.execute(f"SELECT provenance.protect({unit})".encode())
        self._owner.execute(DECLARED.encode())
        self._owner.execute(HOME, (person,))
        for name in histories.ANALYSTS:
            self._owner.execute("SELECT provenance.create_analyst(%s, 'x', 10)", (self._named(name),))
        self._before = self._balance("table", "")
        self._load()

    def _named(self, analyst: str) -> str:
        return f"{analyst}_{self._number}"

    def _load(self) -> None:
        self.catalog = self._runner.run(self._registry.load())

    def _said(self, text: str, *values: Any) -> None:
        self._owner.execute(text.encode(), values)
        self._load()

    def declare(self, changes: Changes) -> None:
        self._said("SELECT provenance.set_changes('stay', %s)", changes.value)

    def immutable(self, column: str, claimed: bool) -> None:
        self._said("UPDATE provenance.attribute a SET immutable = %s FROM provenance.relation r WHERE r.id ="
                   " a.relation_id AND r.active AND a.name = %s", claimed, column)  # fmt: skip

    def refresh(self) -> None:
        self._said("SELECT provenance.refresh('stay')")

    def charge(self, charge: Charge) -> Receipt:
        return self._runner.run(self._ledger.charge(replace(charge, analyst=self._named(charge.analyst))))

    def settle(self, receipt: Receipt, reached: Decimal, parts: Sequence[Part]) -> None:
        self._runner.run(self._ledger.settle(receipt, Loss(Coin.ZCDP, reached), levels=parts))

    def _balance(self, scope: str, name: str) -> tuple[Decimal, Decimal]:
        row = self._owner.execute(
            "SELECT amount, delta FROM provenance.balance WHERE (scope, name) = (%s, %s)", (scope, name)
        ).fetchone()
        assert row is not None
        return row[0], row[1]

    def totals(self) -> Totals:
        amount, delta = self._balance("table", "")
        own = {name: self._balance("analyst", self._named(name)) for name in histories.ANALYSTS}
        return Totals(own, (amount - self._before[0], delta - self._before[1]))


Make = Callable[[Catalog, str | None], Books]


@pytest.fixture
def real(postgres) -> Iterator[tuple[psycopg.Connection[Any], Make]]:  # type: ignore[no-untyped-def]
    dsn: str = postgres.new_database("histories")
    migrate(dsn)
    with psycopg.connect(dsn, autocommit=True) as owner, asyncio.Runner() as runner:
        owner.execute(STAY.encode())
        pool: AsyncConnectionPool[Any] = AsyncConnectionPool(dsn, min_size=1, max_size=2, open=False)
        runner.run(pool.open())
        yield owner, lambda catalog, bug: RealBooks(owner, runner, pool, catalog)
        runner.run(pool.close())


def test_the_ledger_itself_counts_what_units_lose(real: tuple[psycopg.Connection[Any], Make]) -> None:
    owner, books = real
    outcome = run(seed=9, number=24, books=books, units=("row", "person"))
    assert outcome.violations == [] and outcome.counts.questions > 150
    assert owner.execute("SELECT provenance.verify_balances()").fetchone() == (None,)


PARALLEL = """
DO $$ BEGIN
    EXECUTE replace(pg_get_functiondef('provenance.count_charge'::regproc),
        'b.delta + NEW.delta', 'greatest(b.delta, NEW.delta)');
END $$
"""
UNVERSIONED = """
ALTER TABLE provenance.relation DISABLE TRIGGER changes_rules;
ALTER TABLE provenance.attribute DISABLE TRIGGER immutable_rules;
ALTER TABLE provenance.attribute DISABLE TRIGGER immutable_rules_on_change;
"""


@pytest.mark.parametrize(("statement", "what"), [(PARALLEL, "delta"), (UNVERSIONED, "coin")])
def test_bugs_in_the_database_are_seen(real: tuple[psycopg.Connection[Any], Make], statement: str, what: str) -> None:
    owner, books = real
    owner.execute(statement.encode())
    # History by history as the pure ones: those that a bug without a database is seen in come first.
    bug = {"delta": "deltas", "coin": "versions"}[what]
    seeds = [at for at in range(400) if _seen(at, bug)][:1]
    for at in seeds:
        assert any(what in one for one in _played(at, books(tables(_unit(at)), None)))
    assert seeds


def _unit(at: int) -> str:
    return ("row", "person")[at % 2]


def _played(at: int, books: Books) -> list[str]:
    rng = Random(f"history/{at}")
    history = History(rng, _unit(at), books, Counts())
    history.books.declare(Changes.FROZEN)
    return history.play(30)


def _seen(at: int, bug: str) -> bool:
    with planted(bug):
        return bool(_played(at, PureBooks(tables(_unit(at)), versioned=bug != "versions")))


def test_deltas_add_up_over_all_regions(real: tuple[psycopg.Connection[Any], Make]) -> None:
    """Two charges on disjoint regions: their coin is counted once, their delta twice."""
    _, make = real
    books = make(tables("row"), None)
    books.declare(Changes.FROZEN)
    stay, delta = books.catalog.relations[0], Decimal("1e-12")
    for ward in (0, 1):
        asked = histories.Asked(f"SELECT count(*) FROM stay WHERE ward = {ward}", lambda row: True, (), (), None, False)
        felt = (Felt(reach(histories.parsed(asked, books.catalog)), ONE, ONE),)
        versions = stay.id, stay.data_version, books.catalog.version
        books.charge(Charge("alice", *versions, "f00d", "", "history", Loss(Coin.ZCDP, ONE, delta), felt=felt))
    assert books.totals().analysts["alice"] == books.totals().table == (ONE, 2 * delta)
