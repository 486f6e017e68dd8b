"""Random histories of a small database between random questions, against an exact accountant.

Rows are inserted, updated and deleted as far as the declaration of their table allows; administrators refresh, declare
otherwise, and claim and take back that columns are immutable; analysts ask. One unit, the victim, is moved ahead of the
questions: as far as it is allowed it is changed so that the next one is about it. Each question goes through the
product's own code: it is read, its regions are worked out, and the ledger counts it. Beside that, and knowing nothing
of regions, the harness looks at every row at the moment of each measurement and adds up what each unit has lost over
all its versions.

*Checked*: no unit has lost more than the ledger counts, to any analyst or to all of them together, in coin or delta.

    python tests/attacks/histories.py --n 10000 --seed 1 --out bench/results/evidence/histories.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Protocol
from unittest.mock import patch

import numpy as np

from mechanisms.loss import Coin, Loss
from provenance import accountant
from provenance import reach as reaching
from provenance.accountant import fold
from provenance.bounds import Bounds, Layer, Quote, Quoted, Stand
from provenance.model import Charge, Entry, Felt, PredicateLoss, Stage
from provenance.reach import beside, reach
from provenance.region import Part
from proxy import levels as levelling
from proxy.levels import levels
from sqlrewrite.blocks import outline
from sqlrewrite.catalog import Attribute, Catalog, Changes, Kind, Reference, Relation
from sqlrewrite.cells import Cells, cells
from sqlrewrite.cut import cut
from sqlrewrite.folding import columns, questions
from sqlrewrite.question import Question
from sqlrewrite.read import read

ANALYSTS = ("alice", "bob")
VALUES: Mapping[str, tuple[Any, ...]] = {
    "ward": (0, 1, 2, 3),
    "age": (0, 1, 2, 3, 4, 5),
    "home": (0, 1, 2),
    "paid": (False, True),
    "kind": ("a", "b", None),
}
TOWNS = (0, 1, 2)
KEYS = ("ward", "home", "kind")
PERSONS = 4
POOL = 4000
"""Random questions that histories draw from, with joins and without."""
UNITS = ("row", "person", "joined", "joined rows")
"""A row; a person who is named in the table; a person who is named in it and joined; one who is known by the join."""

Row = dict[str, Any]
Truth = Callable[[Row], bool | None]


# -- what is asked -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Condition:
    """A condition as SQL, and by itself what it is of a row: true, false or unknown."""

    sql: str
    holds: Truth


def _comparison(rng: Random, joined: bool) -> Condition:
    name = rng.choice(("ward", "ward", "age", "age", "home", "kind", "patient", "id", *(("town",) if joined else ())))
    if rng.random() < 0.15:
        return Condition("paid", lambda row: row["paid"]) if rng.random() < 0.5 else _not(Condition("paid", _paid))
    if name == "kind":
        value = rng.choice(("a", "b"))
        return rng.choice((
            Condition(f"kind = '{value}'", lambda row: None if row["kind"] is None else row["kind"] == value),
            Condition("kind IS NULL", lambda row: row["kind"] is None),
            Condition("kind IS NOT NULL", lambda row: row["kind"] is not None),
        ))  # fmt: skip
    pool = {"town": TOWNS, "patient": range(PERSONS), "id": range(12)}.get(name) or VALUES[name]
    one, two = rng.choice(pool), rng.choice(pool)
    low, high = min(one, two), max(one, two)
    place = f"stay.{name}" if name != "town" else "patient.town"
    return rng.choice((
        Condition(f"{place} = {one}", lambda row: row[name] == one),
        Condition(f"{place} = {one}", lambda row: row[name] == one),
        Condition(f"{place} <> {one}", lambda row: row[name] != one),
        Condition(f"{place} <= {one}", lambda row: row[name] <= one),
        Condition(f"{place} > {one}", lambda row: row[name] > one),
        Condition(f"{place} BETWEEN {low} AND {high}", lambda row: low <= row[name] <= high),
        Condition(f"{place} IN ({one}, {two})", lambda row: row[name] in (one, two)),
        Condition(f"{place} + 1 > {one}", lambda row: row[name] + 1 > one),
    ))  # fmt: skip


def _paid(row: Row) -> bool:
    return bool(row["paid"])


def _not(inner: Condition) -> Condition:
    def holds(row: Row) -> bool | None:
        found = inner.holds(row)
        return None if found is None else not found

    return Condition(f"NOT ({inner.sql})", holds)


def condition(rng: Random, joined: bool, depth: int = 0) -> Condition:
    if depth > 2 or rng.random() < 0.6:
        return _comparison(rng, joined)
    one, other = condition(rng, joined, depth + 1), condition(rng, joined, depth + 1)
    if rng.random() < 0.2:
        return _not(one)
    if rng.random() < 0.65:

        def both(row: Row) -> bool | None:
            found = one.holds(row), other.holds(row)
            return False if False in found else None if None in found else True

        return Condition(f"({one.sql} AND {other.sql})", both)

    def either(row: Row) -> bool | None:
        found = one.holds(row), other.holds(row)
        return True if True in found else None if None in found else False

    return Condition(f"({one.sql} OR {other.sql})", either)


@dataclass(frozen=True, eq=False)
class Asked:
    """A question: its text, which rows its answer is about, and which each of its numbers is about."""

    text: str
    where: Truth
    parts: tuple[Truth, ...]
    filtered: tuple[bool, ...]  # of each part, whether it has a FILTER: of two parts one has
    key: str | None
    decision: bool


def plain(rng: Random, joined: bool) -> Asked:
    """About one value of one column: such questions are disjoint, as long as the column separates."""
    name = rng.choice(("ward", "home"))
    return _plain(name, rng.choice(VALUES[name]), joined)


@cache
def _plain(name: str, value: int, joined: bool) -> Asked:
    tables = "stay JOIN patient ON stay.patient = patient.id" if joined else "stay"
    holds: Truth = lambda row: row[name] == value  # noqa: E731
    return Asked(f"SELECT count(*) FROM {tables} WHERE stay.{name} = {value}", holds, (holds,), (False,), None, False)


def question(rng: Random, joined: bool) -> Asked:
    tables = "stay JOIN patient ON stay.patient = patient.id" if joined else "stay"
    where = condition(rng, joined) if rng.random() < 0.85 else Condition("true", lambda row: True)
    key = rng.choice(KEYS) if rng.random() < 0.4 else None
    group = "" if key is None else f" GROUP BY stay.{key}"
    shown = "" if key is None else f"stay.{key}, "
    if key is not None and rng.random() < 0.5:
        text = f"SELECT {shown.rstrip(', ')} FROM {tables} WHERE {where.sql}{group} HAVING count(*) > 3"
        return Asked(text, where.holds, (where.holds,), (False,), key, True)
    filters = [condition(rng, joined, 2) if rng.random() < 0.5 else None for _ in range(rng.choice((1, 1, 2)))]
    if len(filters) == 2 and (filters[0] is None) == (filters[1] is None):
        filters = filters[:1]
    told, parts = [], []
    for kept in filters:
        told.append("count(*)" if kept is None else f"count(*) FILTER (WHERE {kept.sql})")
        parts.append(where.holds if kept is None else _and(where.holds, kept.holds))
    text = f"SELECT {shown}{', '.join(told)} FROM {tables} WHERE {where.sql}{group}"
    return Asked(text, where.holds, tuple(parts), tuple(kept is not None for kept in filters), key, False)


def _and(one: Truth, other: Truth) -> Truth:
    return lambda row: one(row) is True and other(row) is True


def parsed(asked: Asked, catalog: Catalog) -> Question:
    """As the product reads it."""
    structure = outline(asked.text)
    (block,) = questions(structure, lambda name: True)
    tables = columns(structure, block, lambda name: frozenset(catalog.by_name["public", name[1]].attributes))
    taken = cut(asked.text, block, tables)
    return read(taken.clauses, catalog, lambda schema, name: catalog.by_name.get(("public", name)), ())


@cache
def _pool(joined: bool) -> tuple[Asked, ...]:
    rng = Random(f"questions/{joined}")
    return tuple(question(rng, joined) for _ in range(POOL))


@cache
def _read(asked: Asked, unit: str) -> Question:
    return parsed(asked, tables(unit))


def understood(asked: Asked, unit: str, catalog: Catalog) -> Question:
    """The same as ``parsed``, read once: what is declared about changes is nothing that reading depends on."""
    found = _read(asked, unit)
    here = [replace(each, relation=catalog.by_name["public", each.relation.name]) for each in found.sources]
    return replace(found, sources=tuple(here))


def filtered(found: Question) -> list[bool]:
    """Of each number, in the product's order, whether it has a FILTER."""
    return [found.measures[one.terms[0][0]].filter is not None for one in found.statistics]


# -- what is declared --------------------------------------------------------------------------------------------------


def tables(unit: str) -> Catalog:
    """The registered tables, as a kind of unit has them."""
    person = unit in ("person", "joined")
    stay = [
        Attribute("id", "integer", True),
        Attribute("patient", "integer", True),
        Attribute("ward", "integer", True, VALUES["ward"], Decimal(0), Decimal(3)),
        Attribute("age", "integer", True, VALUES["age"], Decimal(0), Decimal(5)),
        Attribute("home", "integer", True, VALUES["home"], Decimal(0), Decimal(2), constant_per_unit=person),
        Attribute("paid", "boolean", True, (False, True)),
        Attribute("kind", "text", False, ("a", "b"), bytewise=True, constant_per_unit=False),
    ]
    patient = [Attribute("id", "integer", True), Attribute("town", "integer", True)]
    bounds: dict[str, Any] = {"unit_column": "patient", "max_groups": 2, "max_rows": 2} if person else {}
    own: dict[str, Any] = {"unit_column": "id", "max_groups": 2, "max_rows": 2} if unit == "joined" else {}
    return Catalog(1, (
        Relation(1, "public", "stay", Kind.PROTECTED, {each.name: each for each in stay},
                 references=(Reference(("patient",), "public", "patient", ("id",)),), **bounds),
        Relation(2, "public", "patient", Kind.PROTECTED, {each.name: each for each in patient},
                 unique=frozenset({("id",)}), **own),
    ))  # fmt: skip


# -- the ledger --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Totals:
    """What the ledger counts, in coin and in delta."""

    analysts: Mapping[str, tuple[Decimal, Decimal]]
    table: tuple[Decimal, Decimal]


class Books(Protocol):
    """A ledger with the declarations that it goes by."""

    catalog: Catalog

    def declare(self, changes: Changes) -> None: ...
    def immutable(self, column: str, claimed: bool) -> None: ...
    def refresh(self) -> None: ...
    def charge(self, charge: Charge) -> Any: ...
    def settle(self, receipt: Any, reached: Decimal, parts: Sequence[Part]) -> None: ...
    def totals(self) -> Totals: ...


@dataclass
class PureBooks:
    """The ledger's own arithmetic without a database: quotes, bookings of layers, and the fold of the journal.

    When another declaration is a new data version is said here as ``0026_changes.sql`` says it; ``versioned`` plants
    the bug that it is none.
    """

    catalog: Catalog
    versioned: bool = True
    bounds: Bounds = field(default_factory=Bounds)
    stands: dict[Layer, Stand] = field(default_factory=dict)
    journal: list[Entry] = field(default_factory=list)

    @property
    def relation(self) -> Relation:
        return self.catalog.relations[0]

    def _declared(self, relation: Relation) -> None:
        self.catalog = Catalog(self.catalog.version + 1, (relation, *self.catalog.relations[1:]))

    def _next(self, relation: Relation) -> Relation:
        return replace(relation, data_version=relation.data_version + bool(self.journal and self.versioned))

    def declare(self, changes: Changes) -> None:
        if changes is not self.relation.changes:
            self._declared(self._next(replace(self.relation, changes=changes)))

    def immutable(self, column: str, claimed: bool) -> None:
        before = self.relation.attributes[column]
        if before.immutable == claimed:
            return
        found = replace(
            self.relation, attributes={**self.relation.attributes, column: replace(before, immutable=claimed)}
        )
        self._declared(self._next(found) if found.changes is Changes.ANY else found)

    def refresh(self) -> None:
        self._declared(replace(self.relation, data_version=self.relation.data_version + 1))

    def charge(self, charge: Charge) -> Charge:
        (quoted,) = self.bounds.quotes([charge])
        loss, table = charge.loss, charge.table_amount
        stage = Stage.RESERVE if charge.staged else Stage.CHARGE
        self._book(charge, quoted, stage, loss.amount, loss.delta, table)
        return charge

    def settle(self, receipt: Charge, reached: Decimal, parts: Sequence[Part]) -> None:
        paid = receipt.loss.amount
        back = paid - reached
        quoted = self.bounds.levelled(receipt, paid, back, parts) if parts else None
        quoted = quoted or self.bounds.more(receipt, -back, -back)
        self._book(receipt, quoted, Stage.SETTLE, -back, Decimal(0), -back)

    def _book(
        self, charge: Charge, quoted: Quoted, stage: Stage, amount: Decimal, delta: Decimal, table: Decimal
    ) -> None:
        counted: list[Decimal] = []
        booked: list[tuple[Quote, Stand, bool]] = []
        for quote, lost in ((quoted.own, amount), (quoted.table, table)):
            before = self.stands.get(quote.layer, Stand())
            after = quote.booked(before, lost)
            self.stands[quote.layer] = after
            counted.append(after.bound - before.bound)
            booked.append((quote, before, quote.fits(before, lost)))
        self.bounds.committed(booked)
        id_ = len(self.journal) + 1
        first = id_ if stage is not Stage.SETTLE else self._first(charge)
        self.journal.append(Entry(id_, first, charge.analyst, stage, amount, delta, table, {}, *counted))

    def _first(self, charge: Charge) -> int:
        return next(
            e.question for e in reversed(self.journal) if (e.analyst, e.stage) == (charge.analyst, Stage.RESERVE)
        )

    def totals(self) -> Totals:
        found = fold(self.journal)
        return Totals(
            {name: (each.amount, each.delta) for name, each in found.analysts.items()},
            (found.table.amount, found.table.delta),
        )


# -- a history ---------------------------------------------------------------------------------------------------------


@dataclass
class Lost:
    """What each unit has lost over all its versions, to each analyst, and of the protected database (nobody's name)."""

    amounts: dict[tuple[str, Any], Decimal] = field(default_factory=lambda: defaultdict(Decimal))
    deltas: dict[tuple[str, Any], Decimal] = field(default_factory=lambda: defaultdict(Decimal))

    def add(self, analyst: str, unit: Any, amount: Decimal, table: Decimal, delta: Decimal) -> None:
        for name, lost in ((analyst, amount), ("", table)):
            self.amounts[name, unit] += lost
            self.deltas[name, unit] += delta

    def beyond(self, totals: Totals) -> list[str]:
        """The units that have lost more than is counted."""
        found = []
        for name, (amount, delta) in {**totals.analysts, "": totals.table}.items():
            for kind, lost, counted in (("coin", self.amounts, amount), ("delta", self.deltas, delta)):
                units = [(value, unit) for (who, unit), value in lost.items() if who == name]
                if units and (worst := max(units, key=lambda one: one[0]))[0] > counted:
                    found.append(f"{kind}: unit {worst[1]} lost {worst[0]} to {name or 'all'}, counted {counted}")
        return found


@dataclass
class Counts:
    questions: int = 0
    changes: int = 0
    declarations: int = 0
    separated: int = 0  # questions that fell on less than everything


@dataclass
class History:
    """One random history."""

    rng: Random
    unit: str
    books: Books
    counts: Counts
    rows: dict[int, Row] = field(default_factory=dict)
    towns: dict[int, int] = field(default_factory=dict)
    homes: dict[int, int] = field(default_factory=dict)  # of persons, where that is the same for all their rows
    lost: Lost = field(default_factory=Lost)
    chased: bool = False  # whether somebody moves the victim along
    victim: Any = None
    restless: bool = False  # whether declarations change often
    plain: bool = False  # whether all questions are disjoint, or the same
    _next: int = 0

    def __post_init__(self) -> None:
        self.towns = {person: self.rng.choice(TOWNS) for person in range(PERSONS)}
        self.homes = {person: self.rng.choice(VALUES["home"]) for person in range(PERSONS)}
        for _ in range(self.rng.randint(2, 10)):
            self._insert()
        self.chased, self.victim = self.rng.random() < 0.8, self.unit_of(self.rows[1])
        self.restless, self.plain = self.rng.random() < 0.3, self.rng.random() < 0.4

    @property
    def stay(self) -> Relation:
        return self.books.catalog.relations[0]

    @property
    def persons(self) -> bool:
        return self.unit in ("person", "joined")

    def play(self, steps: int) -> list[str]:
        for _ in range(steps):
            dice = self.rng.random()
            if dice < (0.6 if self.restless else 0.45):
                self.ask()
                if wrong := self.lost.beyond(self.books.totals()):
                    return wrong
            elif dice < (0.75 if self.restless else 0.93):
                self.change(self.stay.changes)
            else:
                self.declaration()
        return []

    # -- changes, as far as they are declared

    def change(self, changes: Changes) -> None:
        """One change that is allowed under a declaration; parents change as they like."""
        if self.rng.random() < 0.15:
            self.towns[self.rng.randrange(PERSONS)] = self.rng.choice(TOWNS)
        if changes is Changes.FROZEN:
            return
        self.counts.changes += 1
        dice = self.rng.random()
        if changes is Changes.APPEND or dice < 0.3 or not self.rows:
            self._insert()
        elif dice < 0.45:
            del self.rows[self.rng.choice(list(self.rows))]
        else:
            self._update()

    def _insert(self) -> None:
        self._next += 1
        person = self.rng.randrange(PERSONS)
        row = {name: self.rng.choice(values) for name, values in VALUES.items()}
        if self.persons:
            row["home"] = self.homes[person]
        self.rows[self._next] = {**row, "id": self._next, "patient": person}

    def _update(self) -> None:
        """Other values in one row; what is constant in a person changes in all rows of the person."""
        row = self.rows[self.rng.choice(list(self.rows))]
        chosen = set(self.rng.sample(sorted(VALUES), self.rng.choice((1, 1, 2)))) - self._fixed()
        self._set(row, {name: self.rng.choice(VALUES[name]) for name in sorted(chosen)})

    def _fixed(self) -> set[str]:
        return {name for name, each in self.stay.attributes.items() if each.immutable} | {"id", "patient"}

    def _set(self, row: Row, values: Mapping[str, Any]) -> None:
        row.update(values)
        if "home" in values and self.persons:
            self.homes[row["patient"]] = values["home"]
            for each in self.rows.values():
                each["home"] = self.homes[each["patient"]]

    def _chase(self, holds: Truth) -> None:
        """Move the victim (the first row, or a row of the first person) to where the next question is about it."""
        own = [row for row in self.rows.values() if self.unit_of(row) == self.victim]
        changes, fixed = self.stay.changes, self._fixed()
        if changes is Changes.FROZEN or (not own and self.unit == "row"):
            return
        person = 0 if self.unit == "row" else int(str(self.victim).split()[1])
        fresh = changes is Changes.APPEND or not own
        if fresh and self.unit == "row":
            return
        for _ in range(12):
            if fresh:
                row = {name: self.rng.choice(values) for name, values in VALUES.items()}
                row |= {"id": self._next + 1, "patient": person} | (
                    {"home": self.homes[person]} if self.persons else {}
                )
                moved = {}
            else:
                row = self.rng.choice(own)
                moved = {name: self.rng.choice(values) for name, values in VALUES.items() if name not in fixed}
            if holds({**row, **moved, "town": self.towns[person if fresh else row["patient"]]}) is True:
                self.counts.changes += 1
                if fresh:
                    self._next += 1
                    self.rows[self._next] = row
                else:
                    self._set(row, moved)
                return

    def declaration(self) -> None:
        self.counts.declarations += 1
        dice = self.rng.random()
        if dice < 0.4:
            self.books.declare(self.rng.choice(list(Changes)))
        elif dice < 0.8:
            column = self.rng.choice(("ward", "home", "home", "age"))
            self.books.immutable(column, not self.stay.attributes[column].immutable)
        else:  # the owner changes the data as it pleases, and says so
            for _ in range(self.rng.randrange(4)):
                self.change(Changes.ANY)
            self.books.refresh()

    # -- questions

    def view(self) -> list[Row]:
        """The rows as a question sees them, with what is joined to them."""
        return [{**row, "town": self.towns[row["patient"]]} for row in self.rows.values()]

    def unit_of(self, row: Row) -> Any:
        return row["id"] if self.unit == "row" else f"person {row['patient']}"

    def touched(self, holds: Truth) -> set[Any]:
        return {self.unit_of(row) for row in self.view() if holds(row) is True}

    def ask(self) -> None:
        self.counts.questions += 1
        joined = self.unit in ("joined", "joined rows")
        asked = plain(self.rng, joined) if self.plain else self.rng.choice(_pool(joined))
        found = understood(asked, self.unit, self.books.catalog)
        analyst = self.rng.choice(ANALYSTS) if self.rng.random() < 0.4 else ANALYSTS[0]
        if self.chased:
            self._chase(self.rng.choice(asked.parts))
        if asked.decision:
            self._decide(asked, found, analyst)
        elif self.rng.random() < 0.6 and sorted(filtered(found)) == sorted(asked.filtered):
            self._by_views(asked, found, analyst)
        else:
            self._at_once(asked, found, analyst)

    def _amount(self) -> Decimal:
        return Decimal(self.rng.randint(1, 9)) / 1000

    def _charge(self, found: Question, analyst: str, loss: Loss, felt: Sequence[Felt], **more: Any) -> Charge:
        stay = found.relation
        self.counts.separated += all(one.region.sides for one in felt)
        return Charge(
            *(analyst, stay.id, stay.data_version, self.books.catalog.version, "f00d", "", "history", loss),
            felt=tuple(felt),
            beside=beside(found),
            **more,
        )

    def _by_views(self, asked: Asked, found: Question, analyst: str) -> None:
        """Each number from a view of its own: some new to the database, some to the analyst (``proxy.numbers``)."""
        felt = []
        for place, kept in enumerate(filtered(found)):
            holds, amount = asked.parts[asked.filtered.index(kept)], self._amount()
            table = self.rng.choice((amount, amount, Decimal(0)))
            felt.append(Felt(reach(found, place), amount, table))
            for unit in self.touched(holds):
                self.lost.add(analyst, unit, amount, table, Decimal(0))
        loss = Loss(Coin.ZCDP, sum((one.amount for one in felt), Decimal(0)))
        self.books.charge(self._charge(found, analyst, loss, felt, table=sum((one.table for one in felt), Decimal(0))))

    def _at_once(self, asked: Asked, found: Question, analyst: str) -> None:
        """All numbers with noise of their own, and perhaps a delta for keys that are not public (``proxy.answer``)."""
        amount = self._amount()
        delta = Decimal(self.rng.randint(1, 9)) * Decimal("1e-12") if self.rng.random() < 0.4 else Decimal(0)
        units = set.union(*(self.touched(holds) for holds in asked.parts))
        for unit in units:
            self.lost.add(analyst, unit, amount, amount, delta)
        felt = [Felt(reach(found), amount, amount)]
        self.books.charge(self._charge(found, analyst, Loss(Coin.ZCDP, amount, delta), felt))

    def _decide(self, asked: Asked, found: Question, analyst: str) -> None:
        """A decision in stages: it reserves on all of its region, and leaves each group with its own level."""
        domain: Cells = cells(found)
        whole = self._amount()
        reached = whole * self.rng.randint(1, 4) / 4
        several = tuple(sorted({reached * part / 4 for part in self.rng.choices(range(5), k=3)} | {reached}))
        index = np.array([self.rng.randrange(len(several)) for _ in range(domain.size)], dtype=np.uint8)
        groups = PredicateLoss(several, index)
        charge = self._charge(found, analyst, Loss(Coin.ZCDP, whole), [Felt(reach(found), whole, whole)], staged=True)
        receipt = self.books.charge(charge)
        alone = levels(found, domain, 1 if self.unit == "row" else 2, groups)
        if reached < whole:
            self.books.settle(receipt, reached, alone)
        (keys,) = domain.key_columns(np.arange(domain.size, dtype=np.int64))
        level_of = {key: several[place] for key, place in zip(keys, index.tolist(), strict=True)}
        assert asked.key is not None
        for unit in self.touched(asked.where):
            lost = reached
            if self.unit == "row" and reached < whole:
                lost = level_of.get(self.rows[unit][asked.key], Decimal(0))
            elif self.unit == "row":
                lost = whole
            self.lost.add(analyst, unit, lost, lost, Decimal(0))


# -- planted bugs ------------------------------------------------------------------------------------------------------


def _believing(relation: Relation) -> Relation:
    return replace(relation, changes=Changes.FROZEN)


def _columns_separate(asked: Question) -> frozenset[str]:
    """Every column of a row separates, whatever becomes of it."""
    if asked.unit.column is not None:
        return _separating(asked)
    return frozenset(asked.relation.attributes)


def _constants_separate(asked: Question) -> frozenset[str]:
    """What is constant in a person at each time is believed to be so at all times."""
    if asked.unit.column is None:
        return _separating(asked)
    first, *others = asked.sources
    return _separating(replace(asked, sources=(replace(first, relation=_believing(first.relation)), *others)))


def _joined_separate(asked: Question) -> frozenset[str]:
    """Columns of the first table separate units that are known by a join only."""
    return frozenset(asked.relation.attributes) if asked.unit.column is not None else _separating(asked)


def _deltas_in_parallel(balance: Any, amount: Decimal, delta: Decimal) -> Any:
    found = _moved(balance, amount, Decimal(0))
    return replace(found, delta=max(balance.delta, delta))


_separating, _moved = reaching.separating, accountant._moved
BUGS = ("columns", "constants", "joined", "deltas", "versions")


@contextmanager
def planted(bug: str | None) -> Iterator[None]:
    """The product with a bug in it; ``versions`` is one of the books (``PureBooks.versioned``)."""
    wrong = {"columns": _columns_separate, "constants": _constants_separate, "joined": _joined_separate}.get(bug or "")
    with ExitStack() as stack:
        if wrong is not None:
            stack.enter_context(patch.object(reaching, "separating", wrong))
            stack.enter_context(patch.object(levelling, "separating", wrong))
        if bug == "deltas":
            stack.enter_context(patch.object(accountant, "_moved", _deltas_in_parallel))
        yield


# -- many of them ------------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    histories: int = 0
    violations: list[str] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    kinds: dict[str, int] = field(default_factory=lambda: defaultdict(int))


def pure(catalog: Catalog, bug: str | None) -> Books:
    return PureBooks(catalog, versioned=bug != "versions")


def run(
    seed: int,
    number: int,
    bug: str | None = None,
    enough: int | None = None,
    books: Callable[[Catalog, str | None], Books] = pure,
    units: Sequence[str] = UNITS,
) -> Outcome:
    """So many histories; with a bug until ``enough`` violations are found."""
    outcome = Outcome()
    with planted(bug):
        for at in range(number):
            rng = Random(f"{seed}/{at}")
            unit, first = units[at % len(units)], rng.choice(list(Changes))
            history = History(rng, unit, books(tables(unit), bug), outcome.counts)
            history.books.declare(first)
            wrong = history.play(rng.randint(10, 40))
            outcome.histories += 1
            outcome.kinds[f"{unit}, first {first.value}"] += 1
            outcome.violations += [f"history {seed}/{at} ({unit}): {one}" for one in wrong]
            if enough is not None and len(outcome.violations) >= enough:
                break
    return outcome


def evidence(seed: int, number: int) -> dict[str, Any]:
    began = time.monotonic()
    outcome = run(seed, number)
    caught = {}
    for bug in BUGS:
        found = run(seed, 5000, bug, enough=1)
        caught[bug] = {"caught": bool(found.violations), "histories": found.histories, "as": found.violations[:1]}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    return {
        "what": "random histories of INSERT, UPDATE and DELETE between questions, against an exact accountant",
        "commit": commit,
        "seed": seed,
        "n": outcome.histories,
        "duration": round(time.monotonic() - began, 1),
        "violations": len(outcome.violations),
        "bound": 6.9 / outcome.histories,
        "first_violations": outcome.violations[:5],
        "questions": outcome.counts.questions,
        "questions_on_part_of_the_domain": outcome.counts.separated,
        "changes": outcome.counts.changes,
        "declarations": outcome.counts.declarations,
        "histories_of": dict(outcome.kinds),
        "planted_bugs": caught,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    found = evidence(options.seed, options.n)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=2) + "\n")
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
