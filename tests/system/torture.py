"""Shared parts of the torture tests: a small world, clients that write down what they were told, and what must be true.

As a program it is a pgveil that kills itself at the n-th place where the route of one analyst's question waits:

    TORTURE=analyst:7:sent python tests/system/torture.py serve ...

Nothing of the product is changed: the coroutine of the route is driven from outside, step by step. ``TORTURE=redrawn``
plants a bug instead: who refines a part of a release gets fresh noise on it, not less of the old.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import psycopg

from provenance.accountant import fold
from provenance.migrate import migrate
from provenance.model import Balance, Entry, Stage

WORLD = """
CREATE TABLE visit (id int PRIMARY KEY, ward text NOT NULL);
INSERT INTO visit SELECT i, 'w' || least(7, (i * i) % 11) FROM generate_series(1, 2000) i;
SELECT provenance.protect('visit', size_hint => 2000, changes => 'frozen');
SELECT provenance.declare_attribute('visit', 'ward', members => '{w0,w1,w2,w3,w4,w5,w6,w7}');
SELECT provenance.declare_attribute('visit', 'id', 1, 2000);
-- A least price of a scan that is a fraction of so large a limit would be above every price that is tested here.
-- Answers leave at once: what is tortured is the ledger.
UPDATE provenance.deployment SET epsilon = 100000, scan_floor = 0, timing = 'immediate';
"""
NUMBERS = "SELECT ward, count(*) FROM visit WHERE id > {} GROUP BY ward"
DECISION = "SELECT ward FROM visit GROUP BY ward HAVING count(*) > {}"


def build(dsn: str) -> str:
    """Make the small world in an empty database."""
    migrate(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(WORLD)
    return dsn


# -- what clients were told --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Told:
    """One answer, with its bill."""

    analyst: str
    text: str
    rows: tuple[Any, ...]
    charged: Decimal
    at: float


def ask(session: psycopg.Connection[Any], text: str) -> Told:
    """One question, with what it cost."""
    bills: list[str] = []

    def hear(notice: Any) -> None:
        bills.append(notice.message_detail or "{}")

    session.add_notice_handler(hear)
    try:
        rows = tuple(sorted(session.execute(text).fetchall(), key=str))
    finally:
        session.remove_notice_handler(hear)
    return Told(session.info.user, text, rows, Decimal(json.loads(bills[-1])["charged"]), time.monotonic())


@dataclass
class Crowd:
    """Clients that ask without end, wherever a proxy is; those that lose it come again."""

    connect: Callable[[str], psycopg.Connection[Any]]
    analysts: Sequence[str]
    texts: Callable[[random.Random, int], str]
    told: list[Told] = field(default_factory=list)
    refused: list[psycopg.Error] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def about(self) -> Iterator[Crowd]:
        threads = [
            threading.Thread(target=self._client, args=(number, name)) for number, name in enumerate(self.analysts)
        ]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._over.set()
            for thread in threads:
                thread.join(120)
        assert not any(thread.is_alive() for thread in threads)

    def _client(self, number: int, name: str) -> None:
        dice, asked = random.Random(number), 0
        while not self._over.is_set():
            try:
                with self.connect(name) as session:
                    while not self._over.is_set():
                        asked += 1
                        self.told.append(ask(session, self.texts(dice, asked)))
            except psycopg.Error as error:
                if error.sqlstate is not None:
                    self.refused.append(error)
                time.sleep(0.02)

    def answers_since(self, moment: float, seconds: float = 120.0) -> float:
        """Wait for an answer that cost something and came after that moment; how long it took."""
        deadline = time.monotonic() + seconds
        seen = 0
        while True:
            for one in self.told[seen:]:
                seen += 1
                if one.at > moment and one.charged:
                    return one.at - moment
            assert time.monotonic() < deadline, f"nothing is answered; refused: {self.refused[-3:]}"
            time.sleep(0.005)


def mixed(dice: random.Random, asked: int) -> str:
    """Mostly numbers, of views that analysts share; now and then a decision in stages.

    Its threshold lies far from the size of every ward: at such a size a decision may be refused.
    """
    return DECISION.format(20 + asked % 100) if dice.random() < 0.25 else NUMBERS.format(asked % 1900)


# -- what must be true -------------------------------------------------------------------------------------------------


def journal(conn: psycopg.Connection[Any]) -> list[Entry]:
    """The journal as the accountant reads it."""
    rows = conn.execute(
        "SELECT id, coalesce(question_of, id), analyst, stage, amount, delta, table_amount,"
        " views, view_amounts, view_tables, counted, table_counted FROM provenance.charge ORDER BY id"
    ).fetchall()
    return [
        Entry(
            id_,
            question,
            who,
            Stage(stage),
            amount,
            delta,
            table,
            dict(zip(views, zip(own, all_, strict=True), strict=True)),
            *counted,
        )
        for id_, question, who, stage, amount, delta, table, views, own, all_, *counted in rows
    ]


def books_balance(dsn: str) -> None:
    """The balances are the fold of the journal, whose chain is whole."""
    with psycopg.connect(dsn) as conn:
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        books = fold(journal(conn))
        for scope, name, amount, delta in conn.execute("SELECT scope, name, amount, delta FROM provenance.balance"):
            match scope:
                case "table":
                    folded = books.table
                case "analyst":
                    folded = books.analysts.get(name, Balance())
                case _:
                    folded = Balance(books.views.get(int(name), Decimal(0)))
            assert Balance(amount, delta) == folded, (scope, name)
        learned = {(row[0], row[1]): row[2] for row in conn.execute("SELECT * FROM provenance.spending")}
        assert learned == books.spending
        ((_, broken, reason),) = conn.execute("SELECT * FROM provenance.verify_chain()").fetchall()
        assert broken is None and reason is None, reason


@dataclass
class Auditor:
    """Looks into the books again and again; ``log`` is where the proxy writes what went wrong."""

    dsn: str
    log: Path
    seen: list[tuple[Any, ...]] = field(default_factory=list)

    def look(self, told: Sequence[Told]) -> None:
        """No answer without its charge, no charge lost, and the same numbers whenever the same was asked.

        The bill of a decision whose settlement was cut off is what was reserved, for nobody knows whether the rest came
        back; the log tells of it. Any other bill is at most the charge.
        """
        told, cut_off = list(told), self.log.read_text().count("could not be settled")
        books_balance(self.dsn)
        with psycopg.connect(self.dsn) as conn:
            links = conn.execute("SELECT id, hash FROM provenance.charge ORDER BY id").fetchall()
            history = conn.execute("SELECT analyst, question, charged FROM provenance.history").fetchall()
            taken = conn.execute(
                "SELECT q.analyst, q.question, sum(c.amount) FROM provenance.charge c"
                " JOIN provenance.charge q ON q.id = coalesce(c.question_of, c.id) WHERE c.amount > 0 GROUP BY 1, 2"
            ).fetchall()
        assert links[: len(self.seen)] == self.seen, "a charge is gone"
        self.seen = links
        paid: dict[tuple[str, str], Decimal] = {}
        for analyst, question, charged in history:
            paid[analyst, question] = paid.get((analyst, question), Decimal(0)) + charged
        billed: dict[tuple[str, str], Decimal] = {}
        shown: dict[tuple[str, str], tuple[Any, ...]] = {}
        for one in told:
            key = one.analyst, one.text
            billed[key] = billed.get(key, Decimal(0)) + one.charged
            assert shown.setdefault(key, one.rows) == one.rows, "noise was drawn anew"
        assert all(paid.get(key, Decimal(0)) > 0 for key in billed), "an answer without a charge"
        reserved = {(analyst, question): amount for analyst, question, amount in taken}
        assert all(reserved[key] >= sum_ for key, sum_ in billed.items()), "a bill for more than was ever reserved"
        dearer = [(key, paid[key], sum_) for key, sum_ in billed.items() if paid[key] < sum_]
        assert len(dearer) <= cut_off, f"charges are smaller than their bills: {dearer}"


# -- the program that kills itself -------------------------------------------------------------------------------------


_ROOT = Path(__file__).parents[2]
_PRODUCT = tuple(str(_ROOT / package) + os.sep for package in ("proxy", "provenance"))


def _place(work: Any) -> tuple[tuple[str, int], ...]:
    """Where a suspended coroutine waits: the lines of the product, from the outermost await to the innermost."""
    found: list[tuple[str, int]] = []
    while work is not None:
        frame = getattr(work, "cr_frame", None) or getattr(work, "gi_frame", None)
        if frame is not None and frame.f_code.co_filename.startswith(_PRODUCT):
            found.append((frame.f_code.co_filename, frame.f_lineno))
        work = getattr(work, "cr_await", None) or getattr(work, "gi_yieldfrom", None)
    return tuple(found)


class _Counted:
    """Drives a coroutine, and ends the process at the n-th place where it waits: when it has said what it waits for
    (``sent``), or when it is about to go on (``came``). A place counts once, however often it is come by.
    """

    def __init__(self, work: Coroutine[Any, Any, Any], place: int, moment: str) -> None:
        self._work, self._place, self._moment = work, place, moment

    def __await__(self) -> Generator[Any, Any, Any]:
        inner, places = self._work.__await__(), set[Any]()
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                waited = inner.send(value) if error is None else inner.throw(error)
            except StopIteration as stop:
                return stop.value
            new = len(places) + 1 == self._place and _place(self._work) not in places
            places.add(_place(self._work))
            if new and self._moment == "sent":
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                value, error = (yield waited), None
            except BaseException as thrown:
                value, error = None, thrown
            if new and self._moment == "came":
                os.kill(os.getpid(), signal.SIGKILL)


def _redrawn() -> None:
    numbers: Any = importlib.import_module("proxy.numbers")
    draw = numbers.draw_partial
    numbers.draw_partial = lambda release, before, added, source: draw(release, None, added, source)


def _doomed() -> None:
    asking: Any = importlib.import_module("proxy.asking")
    who, place, moment = os.environ["TORTURE"].rsplit(":", 2)
    route = asking.answer

    async def answer(runtime: Any, asker: Any, *rest: Any) -> Any:
        work = route(runtime, asker, *rest)
        return await (_Counted(work, int(place), moment) if asker.name == who else work)

    asking.answer = answer


if __name__ == "__main__":
    from proxy.__main__ import main

    (_redrawn if os.environ["TORTURE"] == "redrawn" else _doomed)()
    sys.exit(main())
