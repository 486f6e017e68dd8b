"""Answers to analysts of two neighbouring databases, through real proxies, and what they prove about the loss.

Each neighbour has a proxy process of its own. *Cells.* Where every group's number has noise of its own, a question over
many groups is as many pairs of neighbours at once: in one database each group has one unit more than in the other, and
what is shown of one group says nothing about the rest. *Blocks.* A decision in stages looks at all its groups together:
there a question is one sample, and its WHERE picks one of many blocks that are alike.

Answers are kept for whoever asks the same again, so between two samples the data version moves, or the block does.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import psycopg
from loss_proofs import Losses
from numpy.typing import NDArray
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from scipy.stats import beta as beta_law
from scipy.stats import norm

from mechanisms.loss import Coin
from provenance.migrate import migrate

Floats: TypeAlias = NDArray[np.float64]
CELLS, BLOCKS = 2000, 50
ROWS = 24  # of a cell, without the unit
STAYS, AT = {Coin.ZCDP: 2, Coin.PURE: 3}, 2  # of a block, and the threshold of the staged decisions: one unit matters
DELTA = 5e-10  # that the deployment converts its coin with

# Values beyond the declared bounds, and more rows of a person than may count: the SQL bounds what a unit moves.
SCHEMA = f"""
CREATE TABLE reading (cell int NOT NULL, x numeric NOT NULL);
CREATE TABLE visit (person int NOT NULL, cell int NOT NULL);
CREATE TABLE stay (block int NOT NULL, cell int NOT NULL);
INSERT INTO reading SELECT cell, 40 FROM generate_series(1, {CELLS}) cell, generate_series(1, {ROWS});
INSERT INTO visit SELECT 10000 * n + cell, cell FROM generate_series(1, {CELLS}) cell, generate_series(1, 3) n;
INSERT INTO stay SELECT block, 1 FROM generate_series(1, {BLOCKS}) block, generate_series(1, {{}});
"""
THE_UNIT = f"""
INSERT INTO reading SELECT cell, 1000000 FROM generate_series(1, {CELLS}) cell;
INSERT INTO visit SELECT -(cell + 1) / 2, cell FROM generate_series(1, {CELLS}) cell, generate_series(1, 5);
INSERT INTO stay SELECT block, 1 FROM generate_series(1, {BLOCKS}) block;
"""
REGISTER = f"""
-- A least price of a scan that is a fraction of so large a limit would be above every price that is tested here.
-- Answers leave at once: it is their noise that is audited, over thousands of them.
UPDATE provenance.deployment SET epsilon = 1000000, delta = {2 * DELTA}, coin = '{{}}';
UPDATE provenance.deployment SET scan_floor = 0, timing = 'immediate';
SELECT provenance.protect('reading'), provenance.protect('visit', 'person', 2, 3), provenance.protect('stay');
SELECT provenance.declare_attribute('reading', 'cell', lower => 1, upper => {CELLS}, step => 1);
SELECT provenance.declare_attribute('reading', 'x', lower => 0, upper => 100);
SELECT provenance.declare_attribute('visit', 'cell', lower => 1, upper => {CELLS}, step => 1);
SELECT provenance.declare_attribute('stay', 'cell', lower => 1, upper => 1, step => 1);
SELECT provenance.create_analyst('auditor', 'auditor', 10);
"""


def build(dsn: str, coin: Coin, *, unit: bool) -> str:
    """One of the neighbours, in an empty database."""
    migrate(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(SCHEMA.format(STAYS[coin]) + (THE_UNIT if unit else "") + "ANALYZE;")
        conn.execute(REGISTER.format(coin.value))
    return dsn


# -- Asking ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class House:
    """A proxy process before one of the neighbours."""

    upstream: str
    port: int

    def asking(self) -> psycopg.Connection[Any]:
        place = {"host": "127.0.0.1", "port": self.port, "dbname": conninfo_to_dict(self.upstream)["dbname"]}
        dsn = make_conninfo(**place, user="auditor", password="auditor", sslmode="disable", connect_timeout=60)  # type: ignore[arg-type]
        return psycopg.connect(dsn, autocommit=True)


@contextmanager
def house(upstream: str, shadow: str, log: Path, fault: str | None) -> Iterator[House]:
    """``pgveil serve``, with a planted bug if one is named."""
    program = ["-m", "proxy"] if fault is None else [str(Path(__file__).parent / "faulty_proxy.py"), fault]
    command = [sys.executable, *program, "serve", "--upstream", upstream, "--shadow", shadow, "--listen", "127.0.0.1:0"]
    root = Path(__file__).parents[2]
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=root) as process,
    ):
        assert process.stdout is not None
        # Whatever else it says is read, so that it never waits for a reader.
        rest = threading.Thread(target=process.stdout.read, daemon=True)
        try:
            ready = next((line for line in process.stdout if "pgveil ready" in line), None)
            assert ready is not None, log.read_text()
            rest.start()
            yield House(upstream, int(ready.rpartition(":")[2]))
        finally:
            process.terminate()
            process.wait(60)
            if rest.ident is not None:
                rest.join()


@dataclass(frozen=True, slots=True)
class Claim:
    """What the bill says that an answer lost, in coin and as an epsilon."""

    charged: float
    epsilon: float


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """A question that shows many samples at once: a row of numbers for each of them."""

    sql: str
    relation: str
    settings: dict[str, str]
    read: Callable[[Sequence[tuple[Any, ...]]], Floats]
    gaussian: bool  # else Laplace noise, whose price is an epsilon on either coin

    def samples(self, house: House, least: int) -> tuple[Floats, Claim]:
        """At least so many, each with noise of its own, and the one price of each question."""
        found: list[Floats] = []
        with house.asking() as session, psycopg.connect(house.upstream, autocommit=True) as keeper:
            bills = _told(session, {**self.settings, "raw": "on"})
            while sum(map(len, found)) < least:
                keeper.execute("SELECT provenance.refresh(%s)", (self.relation,))
                found.append(self.read(session.execute(self.sql.encode()).fetchall()))
        assert not any(bill["reused"] for bill in bills) and len(bills) == len(found)
        (claim,) = {Claim(float(bill["charged"]), bill["epsilon"]) for bill in bills}
        return np.concatenate(found), claim


def _told(session: psycopg.Connection[Any], settings: dict[str, str]) -> list[dict[str, Any]]:
    """Where the session's bills will be; the wishes are set."""
    bills: list[dict[str, Any]] = []
    session.add_notice_handler(lambda notice: bills.append(json.loads(notice.message_detail or "{}")))
    for name, value in settings.items():
        session.execute(f"SET veil.{name} = '{value}'".encode())
    return bills


def _numbers(rows: Sequence[tuple[Any, ...]]) -> Floats:
    return np.array([[0.0 if value is None else float(value) for value in row[1:]] for row in rows])


def _totals(rows: Sequence[tuple[Any, ...]]) -> Floats:
    """An average and its count as the two numbers that were released: the centred sum and the count."""
    numbers = _numbers(rows)
    return np.column_stack([(numbers[:, 0] - 50) * numbers[:, 1], numbers[:, 1]])


def _pairs(rows: Sequence[tuple[Any, ...]]) -> Floats:
    """Of the two cells of a person together."""
    return _numbers(rows).reshape(-1, 2)


def _kept(rows: Sequence[tuple[Any, ...]]) -> Floats:
    kept = np.zeros((CELLS, 1))
    kept[[row[0] - 1 for row in rows]] = 1
    return kept


def shapes(coin: Coin) -> dict[str, Shape]:
    """The questions at fixed prices. Noise on counts is wide enough beside their lattice to be as good as normal."""
    gaussian = coin is Coin.ZCDP
    little, more = ("3", "14") if gaussian else ("1", "1.5")
    count = "SELECT cell, count(*) FROM {} GROUP BY cell ORDER BY cell"
    average = "SELECT cell, avg(x), count(x) FROM reading GROUP BY cell ORDER BY cell"
    total = "SELECT cell, sum(x) FROM reading GROUP BY cell ORDER BY cell"
    # With this beta and epsilon a decision does not lean: it compares where the neighbours differ, and tells most.
    decision = f"SELECT cell FROM reading GROUP BY cell HAVING count(*) >= {ROWS + 1}"
    return {
        "count": Shape(count.format("reading"), "reading", {"epsilon": little}, _numbers, gaussian),
        "sum": Shape(total, "reading", {"epsilon": more}, _numbers, gaussian),
        "average": Shape(average, "reading", {"epsilon": little}, _totals, gaussian),
        "person": Shape(count.format("visit"), "visit", {"epsilon": more}, _pairs, gaussian),
        "tslm": Shape(decision, "reading", {"epsilon": "1.5", "beta": "0.2", "mechanism": "tslm"}, _kept, False),
    }


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """The houses without and with the unit."""

    houses: tuple[House, House]

    def both(self, ask: Callable[[House], Any]) -> tuple[Any, Any]:
        """Asked in both houses at the same time."""
        with ThreadPoolExecutor(2) as pool:
            without, with_unit = pool.map(ask, self.houses)
        return without, with_unit


@contextmanager
def neighbours(upstreams: tuple[str, str], shadow: str, logs: Path, fault: str | None = None) -> Iterator[Neighbours]:
    with (
        house(upstreams[0], shadow, logs / "without.log", fault) as without,
        house(upstreams[1], shadow, logs / "with.log", fault) as with_unit,
    ):
        yield Neighbours((without, with_unit))


# -- What numbers prove ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Proved:
    """Lower bounds on the loss: in coin, and as the epsilon at ``DELTA``."""

    amount: float
    epsilon: float


def proved(shape: Shape, without: Floats, with_unit: Floats, sure: float) -> Proved:
    """What the samples prove but for a probability of ``sure``.

    One quarter of them chooses a direction and an event along it, the rest tries that. Neighbours of Gaussian noise are
    normal laws at a distance of sqrt(2 rho), and no event is further from itself than that; Laplace noise and the
    epsilon of any noise are in the odds of an event.
    """
    quarter = min(len(without), len(with_unit)) // 4
    low, high = without[:quarter], with_unit[:quarter]
    spread = np.cov(np.concatenate([low - low.mean(axis=0), high - high.mean(axis=0)]), rowvar=False)
    direction = np.linalg.solve(np.atleast_2d(spread), high.mean(axis=0) - low.mean(axis=0))
    ours, theirs = with_unit @ direction, without @ direction
    first = np.concatenate([ours[:quarter], theirs[:quarter]])

    def bounds(place: float, part: slice, weight: int = 1) -> tuple[float, float]:
        """Of the event on both sides: at least so often with the unit, at most so often without."""
        n, others = len(ours[part]) * weight, len(theirs[part]) * weight
        inside, outside = (int(np.count_nonzero(x[part] >= place)) * weight for x in (ours, theirs))
        return _at_least(inside, n, sure / 4), 1 - _at_least(others - outside, others, sure / 4)

    def odds(least: float, most: float) -> float:
        return math.log(max(least - (DELTA if shape.gaussian else 0), 1e-300) / most)

    # As if the quarter were as many as the rest: events in the tails have the odds, but not the numbers.
    places = np.unique(np.quantile(first, np.linspace(0.2, 0.8, 31))).tolist()
    best = max(places, key=lambda place: odds(*bounds(place, slice(quarter), 3)))
    epsilon = odds(*bounds(best, slice(quarter, None)))
    if not shape.gaussian:
        return Proved(epsilon, epsilon)
    # Of normal laws the event in the middle is the one whose distance is known best.
    ends = bounds(float(np.median(first)), slice(quarter, None))
    return Proved(max(0.0, float(norm.ppf(ends[0]) - norm.ppf(ends[1]))) ** 2 / 2, epsilon)


def _at_least(hits: int, n: int, sure: float) -> float:
    """Clopper and Pearson."""
    return float(beta_law.ppf(sure, hits, n - hits + 1)) if hits else 0.0


# -- Decisions in stages -----------------------------------------------------------------------------------------------

CERTIFIED = f"SELECT cell FROM stay WHERE block = {{}} GROUP BY cell HAVING count(*) >= {AT}"
BOUNDS = {"mechanism": "cert", "alpha": "0.8", "beta": "0.2"}
MOST = {Coin.ZCDP: "18", Coin.PURE: "4"}
SPENT = re.compile(r"spent on the way: epsilon [0-9.e-]+, ([0-9.]+) ")
REFUSED = 2


def decisions(house: House, coin: Coin, runs: int) -> Losses:
    """Decisions by ``cert``: the outcome of each, and what it was charged."""
    charges, outcomes = [], []
    with house.asking() as session, psycopg.connect(house.upstream, autocommit=True) as keeper:
        bills = _told(session, {**BOUNDS, "max_epsilon": MOST[coin]})
        for run in range(runs):
            if run % BLOCKS == 0:
                keeper.execute("SELECT provenance.refresh('stay')")
            try:
                kept = session.execute(CERTIFIED.format(1 + run % BLOCKS).encode()).fetchall()
            except psycopg.errors.ProgramLimitExceeded as refused:
                told = SPENT.search(refused.diag.message_detail or "")
                assert told is not None
                outcomes.append(REFUSED)
                charges.append(float(told[1]))
            else:
                outcomes.append(len(kept))
                charges.append(float(bills[-1]["charged"]))
    nothing = np.zeros(runs)
    return Losses(np.array(charges), np.array(outcomes), nothing, nothing)


def learnt(without: Losses, with_unit: Losses) -> tuple[Losses, Losses]:
    """The same with the losses that the first halves suggest: a test function, which the second halves are tried by."""
    classes: list[dict[tuple[float, int], int]] = []
    for told in (without, with_unit):
        half = len(told.charges) // 2
        seen = zip(told.charges[:half].tolist(), told.outcomes[:half].tolist(), strict=True)
        counted: dict[tuple[float, int], int] = {}
        for each in seen:
            counted[each] = counted.get(each, 0) + 1
        classes.append(counted)

    def losses(told: Losses, ours: dict[tuple[float, int], int], theirs: dict[tuple[float, int], int]) -> Losses:
        each = zip(told.charges.tolist(), told.outcomes.tolist(), strict=True)
        exact = np.array([math.log((ours.get(key, 0) + 1) / (theirs.get(key, 0) + 1)) for key in each])
        return Losses(told.charges, told.outcomes, exact, exact)

    return losses(without, *classes), losses(with_unit, classes[1], classes[0])
