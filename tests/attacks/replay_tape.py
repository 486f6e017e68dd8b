"""The seam of record and replay: what the release step puts out is recorded on one side and returned on the other.

Two proxies run in this process, each in a thread whose context says which side it is. On the recording side the release
step runs as it is and its outputs are kept in order; on the replaying side they are returned in the same order without
noise being drawn. Both sides note what they do besides: every statement to a PostgreSQL (text and parameters), every
message to the shadow, every charge, every line of the log. With the outputs of the release step frozen, all notes must
be equal, or something about the data gets past the noise.

The exact inputs of the release step are compared too, with what the price claims: how far one unit moves a number, in
how many cells, and what the difference really costs against what the ledger was charged.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import wraps
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import psycopg
from psycopg.types.json import Jsonb

import mechanisms.release
import mechanisms.synopsis
import provenance.snapshots
import proxy.answer
import proxy.express
import proxy.lookout
import proxy.numbers
import proxy.standing
import sqlrewrite.cells
from mechanisms import ladder, values
from mechanisms.decision import Fresh, Refine, Request
from mechanisms.loss import Coin, Loss
from mechanisms.noise import DiscreteGaussian
from mechanisms.release import Staged, _grid_numbers
from mechanisms.threshold import Share
from mechanisms.values import Exact, Lattice, Noisy, Passed
from provenance.ledger import Ledger
from provenance.model import Charge, Receipt
from provenance.region import EVERYWHERE
from proxy.link import Link
from proxy.lookout import Lookout
from proxy.plan import Plan
from proxy.view_updates import Ways

PACKAGES = ("mechanisms", "sqlrewrite", "provenance", "proxy")
BACKGROUND = re.compile(
    r"provenance\.heartbeat|provenance\.replica|SELECT 1$|^$|FROM provenance\.chain|FROM pg_stat_activity"
)
"""Statements of tasks that run by the clock, and of pools that look after their connections."""


@dataclass(frozen=True)
class Finding:
    """A difference that the noise does not cover."""

    kind: str
    what: str


@dataclass(eq=False)
class Entry:
    """One output of the release step, with what it was asked for and what it was made from."""

    asked: Any
    output: Any
    exact: Any = None


@dataclass
class Tape:
    """The outputs for one statement, in order."""

    entries: list[Entry] = field(default_factory=list)
    place: int = 0

    def take(self, asked: Any) -> Entry | None:
        """The next output, if it was asked for in the same words."""
        if self.place < len(self.entries) and self.entries[self.place].asked == asked:
            self.place += 1
            return self.entries[self.place - 1]
        return None


@dataclass
class Side:
    """One of the two databases with its proxy."""

    name: str
    records: bool
    person: bool = False  # the unit that differs is a person: what is claimed for single rows is not about it
    tape: Tape = field(default_factory=Tape)
    notes: list[Any] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    charged: dict[int, tuple[Coin, Decimal]] = field(default_factory=dict)  # what the database lost, by charge
    lost: list[tuple[str, Fraction]] = field(default_factory=list)  # what the difference really costs, of each release
    unclaimed: int = 0
    found: list[tuple[str | None, ...]] | None = None  # the keys of an unknown domain that a question has
    lines: set[tuple[str, str, int]] = field(default_factory=set)  # of the product, as far as they are traced

    def begin(self, tape: Tape) -> None:
        """A new statement."""
        self.tape, self.notes, self.findings = tape, [], []
        self.charged, self.lost = {}, []

    def find(self, kind: str, what: str) -> None:
        self.findings.append(Finding(kind, what))


SIDE: ContextVar[Side | None] = ContextVar("side", default=None)
CLAIM: ContextVar[Plan | Ways | None] = ContextVar("claim", default=None)


def plain(value: Any) -> Any:
    """Anything that is noted, in a form that can be compared and printed; identities and times are left out."""
    match value:
        case None | bool() | int() | str() | bytes() | float():
            return value
        case Decimal() | Fraction():
            return str(value)
        case datetime():
            return "<time>"
        case Enum():
            return value.name
        case np.ndarray():
            return (str(value.dtype), value.shape, value.tobytes())
        case np.generic():
            return value.item()
        case Jsonb():
            return plain(value.obj)
        case Exact():
            return "<exact>"
        case Mapping():
            return {str(key): plain(each) for key, each in value.items()}
        case frozenset() | set():
            return sorted((plain(each) for each in value), key=repr)
        case list() | tuple():
            return [plain(each) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        return [type(value).__name__, *(plain(getattr(value, each.name)) for each in fields(value) if each.repr)]
    return f"<{type(value).__name__}>"


def note(kind: str, *what: Any) -> None:
    side = SIDE.get()
    if side is not None:
        side.notes.append((kind, plain(what)))


# -- control flow ------------------------------------------------------------------------------------------------------

UNTRACED = re.compile(
    r"mechanisms/(release|sampler|path|jumps|choosing|fixed|bridge|noise|ladder)\.py|sqlrewrite/cells\.py"
    r"|proxy/(lookout|recent|link|pacing|runtime)\.py|provenance/(watch|chain|outlook)\.py"
)
"""What is frozen or comes before it: noise, and rows on their way to it. And what waits, and how often, is for time."""


@contextmanager
def untraced() -> Iterator[None]:
    """What happens here happens on one side only."""
    before = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(before)


def forget() -> None:
    """Empty what is remembered of constants in the whole process: both sides work it out."""
    for module in [each for key, each in sys.modules.items() if key.split(".")[0] in PACKAGES]:
        for each in vars(module).values():
            if hasattr(each, "cache_clear"):
                each.cache_clear()
    object.__setattr__(EVERYWHERE, "_text", None)  # a constant of the process that keeps its own text


def tracer(side: Side) -> Callable[..., Any]:
    """Notes which lines of the product are run, for ``sys.settrace``."""
    known: dict[str, str | None] = {}

    def called(frame: Any, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        if name not in known:
            place = "/".join(Path(name).parts[-2:])
            ours = Path(name).parent.name in PACKAGES and UNTRACED.search(place) is None
            known[name] = place if ours else None
        place = known[name]
        if place is None:
            return None
        within = frame.f_code.co_name

        def ran(frame: Any, event: str, argument: Any) -> Any:
            if event == "line" and within != "vouch":  # by the clock
                side.lines.add((place, within, frame.f_lineno))
            return ran

        return ran

    return called


# -- the release step --------------------------------------------------------------------------------------------------


def _opened(exact: Exact) -> Lattice:
    return np.clip(exact.open_for_release(), -(2**62), 2**62).copy()


def _deviates(side: Side, asked: Any) -> None:
    at = side.tape.place
    before = side.tape.entries[at].asked if at < len(side.tape.entries) else "nothing"
    side.find("release", f"release step {at} was asked for {asked!r}, on the other side for {before!r}")


def _frozen(
    asked: Any, exact: Any, draw: Callable[[], Any], compare: Callable[[Side, Entry], None] | None = None
) -> Any:
    """The output of one call of the release step: drawn and recorded, or the recorded one."""
    side = SIDE.get()
    if side is None:
        return draw()
    if side.records:
        with untraced():
            output = draw()
        side.tape.entries.append(Entry(asked, output, exact))
        return output
    entry = side.tape.take(asked)
    if entry is None:
        _deviates(side, asked)
        return draw()
    if compare is not None:
        with untraced():
            compare(side, entry)
    return entry.output


def _release(real: Callable[..., Noisy]) -> Callable[..., Noisy]:
    def release(exact: Exact, shares: Sequence[Share], *source: Any) -> Noisy:
        numbers = _opened(exact)

        def compare(side: Side, entry: Entry) -> None:
            moved(side, shares, entry.exact, numbers, _claimed(side))

        asked = ("release", exact.shape, plain(list(shares)))
        noisy: Noisy = _frozen(asked, numbers, lambda: real(exact, shares, *source), compare)
        return Noisy(noisy.values.copy(), noisy.keys)

    return release


def _release_found(real: Callable[..., tuple[Passed, Noisy]]) -> Callable[..., tuple[Passed, Noisy]]:
    def release_found(
        statistics: Exact, presence: Exact, shares: Sequence[Share], share: Share, threshold: int, *source: Any
    ) -> tuple[Passed, Noisy]:
        side = SIDE.get()
        keys = side.found if side is not None and side.found is not None else []
        groups = {
            key: (column, units)
            for key, column, units in zip(keys, _opened(statistics).T, _opened(presence)[0].tolist(), strict=True)
        }

        def draw() -> Any:
            passed, noisy = real(statistics, presence, shares, share, threshold, *source)
            return passed, noisy, [keys[at] for at in passed.indices.tolist()]

        def compare(side: Side, entry: Entry) -> None:
            claim = _claimed(side)
            if claim is not None:
                _moved_found(side, shares, share, entry.exact, groups, claim)
                for key in entry.output[2]:
                    if key not in groups or key not in entry.exact:
                        side.find("key", f"a group that one unit alone brings into being is named: {key!r}")

        # How many groups there are is private here, and so no part of what was asked for.
        asked = ("release_found", plain(list(shares)), plain(share), threshold)
        passed, noisy, named = _frozen(asked, groups, draw, compare)
        side = SIDE.get()
        # What is released is a set of groups: in which order PostgreSQL found them must not be seen.
        way = 1 if side is None or side.records else -1
        if side is not None:
            side.found = named[::way]
        return Passed(passed.indices[::way], values._RELEASE), Noisy(noisy.values[:, ::way].copy())

    return release_found


def _found(real: Callable[..., Any]) -> Callable[..., Any]:
    """The texts of all keys, by which groups of both sides are known for the same."""

    def found(*arguments: Any) -> Any:
        groups = real(*arguments)
        everything = np.arange(groups.units.shape[1], dtype=np.int64)
        side = SIDE.get()  # one for all threads that work for it
        if side is not None:
            side.found = _named(groups, Passed(everything, values._RELEASE))
        return groups

    return found


_named = sqlrewrite.cells.Found.named


def _frozen_named(groups: Any, passed: Passed) -> list[tuple[str | None, ...]]:
    """The keys that the release step let be named: those of the recording side."""
    side = SIDE.get()
    return list(side.found) if side is not None and side.found is not None else _named(groups, passed)


def _draw_partial(real: Callable[..., Any]) -> Callable[..., Any]:
    def draw_partial(release: Any, before: Any, added: Fraction, source: Any) -> Any:
        asked = ("draw_partial", plain(release), plain(before), plain(added))
        return _frozen(asked, None, lambda: real(release, before, added, source))

    return draw_partial


class _FrozenStaged(Staged):
    """Answers a mechanism with what the other side answered; prices and payments are worked out as ever."""

    __slots__ = ("_asked", "_pair")

    def __init__(self, exact: Exact, problem: Any, source: Any = os.urandom) -> None:
        super().__init__(exact, problem, source)
        numbers, side = _opened(exact), SIDE.get()
        self._pair: tuple[Lattice, Lattice] | None = None  # the exact numbers of both sides
        self._asked: list[Request] = []

        def compare(side: Side, entry: Entry) -> None:
            claim = _claimed(side)
            if claim is not None:
                self._pair = entry.exact, numbers
                apart = np.abs(entry.exact.astype(object) - numbers.astype(object))
                _bounded(side, apart, problem.sensitivities, min(problem.touched, claim), "a decision")

        if side is not None:
            _frozen(("Staged", plain(problem)), numbers, lambda: None, compare)

    def _reply(self, request: Any) -> Any:
        self._asked.append(request)
        return _frozen(("reply", plain(request)), None, lambda: super(_FrozenStaged, self)._reply(request))

    def values(self, statistic: int, level: int) -> Any:
        return _frozen(("values", statistic, level), None, lambda: super(_FrozenStaged, self).values(statistic, level))

    def lost(self, coin: Coin) -> Fraction:
        """What the difference of both sides costs: of each path where it ended, and of every fresh draw.

        Choices are left out: what is told is a lower bound.
        """
        if self._pair is None:
            return Fraction(0)
        here, there = self._pair
        ends: dict[tuple[int, int], tuple[int, int]] = {}  # (statistic, cell) -> (level, parts)
        total = Fraction(0)
        for request in self._asked:
            match request:
                case Refine(statistic, cells, level, parts):
                    for cell in np.flatnonzero(cells).tolist():
                        before = ends.get((statistic, cell), (level, parts))
                        ends[statistic, cell] = max(before[0], level), parts
                case Fresh(statistic, cells, noise):
                    for cell in np.flatnonzero(cells).tolist():
                        step = abs(int(here[statistic, cell]) - int(there[statistic, cell]))
                        epsilon = Fraction(noise.epsilon) * step / noise.sensitivity
                        total += epsilon * epsilon / 2 if coin is Coin.ZCDP else epsilon
        for (statistic, cell), (level, parts) in ends.items():
            bound = self._problem.sensitivities[statistic]
            grid = [_grid_numbers(side[statistic, [cell]], bound, parts) for side in (here, there)]
            step = Fraction(abs(int(grid[0][0]) - int(grid[1][0])), parts)
            total += ladder.price(coin, level, parts) * (step * step if coin is Coin.ZCDP else step)
        return total


# -- what is claimed about the exact numbers ---------------------------------------------------------------------------


def _claimed(side: Side) -> int | None:
    """In how many cells one unit is said to move numbers; None where the claim is about another unit."""
    claim = CLAIM.get()
    match claim:
        case Plan():
            questions, cells = [claim.question], claim.contribution.cells
        case Ways():
            questions = [move.question for move in claim.moves.values()]
            cells = min(move.touched for move in claim.moves.values())
        case _:
            side.find("claim", "numbers are released for no plan")
            return None
    if side.person and any(question.unit.column is None for question in questions):
        side.unclaimed += 1
        return None
    return cells


def _bounded(side: Side, apart: Any, sensitivities: Sequence[int], cells: int, of: str) -> None:
    for row, bound in enumerate(sensitivities):
        most = int(apart[row].max(initial=0))
        if most > bound:
            side.find("sensitivity", f"one unit moves statistic {row} of {of} by {most}, and {bound} is claimed")
    touched = int((apart != 0).any(axis=0).sum()) if len(apart) else 0
    if touched > cells:
        side.find("cells", f"one unit moves {touched} cells of {of}, and {cells} are claimed")


def moved(side: Side, shares: Sequence[Share], here: Lattice, there: Lattice, cells: int | None) -> None:
    """Compare the exact numbers of both sides with what the shares are priced for."""
    if cells is None:
        return
    apart = np.abs(here.astype(object) - there.astype(object)).reshape(here.shape)
    _bounded(side, apart, [share.sensitivity for share in shares], cells, "a question")
    for row, share in enumerate(shares):
        numbers = share.grid.numbers(here[row]).astype(object) - share.grid.numbers(there[row]).astype(object)
        side.lost += [_price(share, int(step)) for step in numbers.tolist() if step]


def _price(share: Share, step: int) -> tuple[str, Fraction]:
    """What it costs to move a noisy number by so much: rho of Gaussian noise, epsilon of Laplace noise."""
    if isinstance(share.noise, DiscreteGaussian):
        return "rho", Fraction(step * step, 2) / share.noise.sigma2
    return "epsilon", Fraction(share.noise.epsilon) * abs(step) / share.noise.sensitivity


def _moved_found(
    side: Side, shares: Sequence[Share], share: Share, here: Mapping[Any, Any], there: Mapping[Any, Any], cells: int
) -> None:
    differ = 0
    for key in dict.fromkeys((*here, *there)):
        one, other = here.get(key), there.get(key)
        if one is None or other is None:
            units = (one or other)[1]  # type: ignore[index]
            differ += 1
            if units != 1:
                side.find("presence", f"one unit alone brings a group into being, and the group has {units} units")
            continue
        if one[1] == other[1] and (one[0] == other[0]).all():
            continue
        differ += 1
        if abs(one[1] - other[1]) > share.sensitivity:
            side.find("presence", f"one unit moves the number of units of a group from {one[1]} to {other[1]}")
        side.lost.append(_price(share, one[1] - other[1]))
        moved(side, shares, one[0].reshape(-1, 1), other[0].reshape(-1, 1), 1)
    if differ > cells:
        side.find("cells", f"one unit moves {differ} groups of unknown keys, and {cells} are claimed")


def overspent(side: Side, coin: Coin) -> Finding | None:
    """The difference of both databases costs more than the ledger was charged."""
    lost = Fraction(0)
    for law, price in side.lost:
        # Where rho is added up, an epsilon-DP step counts with epsilon^2 / 2.
        lost += price * price / 2 if law == "epsilon" and coin is Coin.ZCDP else price
    charged = sum((Fraction(amount) for _, amount in side.charged.values()), Fraction(0))
    if lost > charged:
        return Finding("overspent", f"the unit lost {float(lost):.6g} {coin.value}, charged were {float(charged):.6g}")
    return None


# -- installing --------------------------------------------------------------------------------------------------------


def _claiming(real: Callable[..., Any]) -> Callable[..., Any]:
    """Numbers that are released inside are released for this plan."""

    @wraps(real)
    async def claiming(*arguments: Any, **named: Any) -> Any:
        given = [getattr(each, "plan", each) for each in (*arguments, *named.values())]
        given = [each for each in given if isinstance(each, Plan | Ways)]
        token = CLAIM.set(given[0])
        try:
            return await real(*arguments, **named)
        finally:
            CLAIM.reset(token)

    return claiming


def _noting(kind: str, real: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(real)
    def noting(self: Any, *arguments: Any, **named: Any) -> Any:
        note(kind, *arguments, *named.values())
        return real(self, *arguments, **named)

    return noting


def _execute(real: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(real)
    async def execute(self: Any, query: Any, params: Any = None, **more: Any) -> Any:
        text = query if isinstance(query, str) else query.decode() if isinstance(query, bytes) else str(query)
        if SIDE.get() is not None and not BACKGROUND.search(text):
            note("sql", text, params)
        return await real(self, query, params, **more)

    return execute


def _charge_all(real: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(real)
    async def charge_all(self: Ledger, charges: Sequence[Charge], *more: Any, **named: Any) -> Any:
        note("charge", list(charges), *more)
        receipts = await real(self, charges, *more, **named)
        _booked(receipts)
        return receipts

    return charge_all


def _booked(receipts: Sequence[Receipt]) -> None:
    side = SIDE.get()
    if side is not None:
        for receipt in receipts:
            charge = receipt.charge
            lost = charge.table_amount if receipt.added is None else receipt.paid.amount
            side.charged[receipt.id] = charge.loss.coin, lost


def _reserve_more(real: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(real)
    async def reserve_more(self: Ledger, receipt: Receipt, loss: Loss, *more: Any, **named: Any) -> Any:
        note("reserve", loss, *more)
        grown = await real(self, receipt, loss, *more, **named)
        _booked([grown])
        return grown

    return reserve_more


def _settle(real: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(real)
    async def settle(self: Ledger, receipt: Receipt, reached: Loss, *more: Any, **named: Any) -> Any:
        note("settle", reached, *more, *named.values())
        settled = await real(self, receipt, reached, *more, **named)
        side = SIDE.get()
        if side is not None:
            side.charged[receipt.id] = settled.loss.coin, settled.loss.amount
        return settled

    return settle


def _decided(real: Callable[..., Any]) -> Callable[..., Any]:
    """What a decision has released is lost where the two databases differ."""

    @wraps(real)
    async def decided(*arguments: Any, **named: Any) -> Any:
        try:
            return await real(*arguments, **named)
        finally:
            side = SIDE.get()
            for each in arguments:
                if side is not None and not side.records and isinstance(each, _FrozenStaged):
                    with untraced():
                        side.lost.append(("as charged", each.lost(arguments[1].paid.coin)))

    return decided


class _Log(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        note("log", record.levelname, record.getMessage())


@contextmanager
def installed() -> Iterator[None]:
    """The seam is in place."""
    with ExitStack() as stack:

        def everywhere(home: Any, name: str, wrapped: Any) -> None:
            """Wherever the product has imported it; where it is made it stays, for what is made of it there."""
            real, found = getattr(home, name), 0
            for module in [each for key, each in sys.modules.items() if key.split(".")[0] in PACKAGES]:
                if module is not home and getattr(module, name, None) is real:
                    stack.enter_context(mock.patch.object(module, name, wrapped))
                    found += 1
            assert found, f"nobody uses {name}"

        def within(owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
            stack.enter_context(mock.patch.object(owner, name, wrap(getattr(owner, name))))

        everywhere(mechanisms.release, "release", _release(mechanisms.release.release))
        everywhere(mechanisms.release, "release_found", _release_found(mechanisms.release.release_found))
        everywhere(mechanisms.release, "Staged", _FrozenStaged)
        everywhere(mechanisms.synopsis, "draw_partial", _draw_partial(mechanisms.synopsis.draw_partial))
        everywhere(sqlrewrite.cells, "found", _found(sqlrewrite.cells.found))
        within(sqlrewrite.cells.Found, "named", lambda real: _frozen_named)
        for name in ("measured", "_decide", "told"):
            within(proxy.answer, name, _claiming)
        within(proxy.answer, "decide", _decided)
        everywhere(provenance.snapshots, "as_of", lambda moments: "<time>" if list(moments) else None)
        within(psycopg.AsyncCursor, "execute", _execute)
        within(Lookout, "ask", lambda real: _noting("look", real))
        for name in ("write", "relay_one", "relay_batch"):
            within(Link, name, lambda real: _noting("shadow", real))
        within(Ledger, "charge_all", _charge_all)
        within(Ledger, "reserve_more", _reserve_more)
        within(Ledger, "settle", _settle)
        # What is done again by the clock: how long things are believed, and how long is waited for a look.
        for module in (proxy.standing, proxy.express):
            stack.enter_context(mock.patch.object(module, "_BELIEVED", 1e9))
        stack.enter_context(mock.patch.object(proxy.lookout, "_PATIENCE", 600.0))
        handler = _Log(logging.WARNING)
        logger = logging.getLogger("pgveil")
        logger.addHandler(handler)
        stack.callback(logger.removeHandler, handler)
        yield
