"""Many conversations of a decision mechanism on one database, and the loss of each against a neighbour.

A run's output is everything that was shown: the numbers of every look, the choices, the kept groups or the refusal, and
the charge. The laws of the noise are public, so what an output tells about one neighbour or another is a number that
follows from it (``losses``), for every neighbour at once. ``loss_proofs`` says what such numbers prove.

Runs are held side by side: one ``Staged`` with the cells of all of them, which never meet; each has an account of its
own.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import combinations, count, product

import numpy as np
from loss_proofs import Floats, Losses
from numpy.typing import NDArray

from mechanisms import ladder
from mechanisms.account import Account
from mechanisms.decision import CapReached, Choose, Decision, Fresh, Problem, Refine, Reply, Request, Solver
from mechanisms.errors import AccuracyUnreachable
from mechanisms.loss import Coin, Loss
from mechanisms.noise import DiscreteGaussian, DiscreteLaplace, Noise
from mechanisms.release import Staged, release
from mechanisms.sampler import Source
from mechanisms.threshold import Share
from mechanisms.values import Exact, Lattice

REFUSED = -1
_NONE, _UNASKED = -1, -2
SIDE_BY_SIDE = 2000


def seeded(seed: object) -> Source:
    """A stream of bytes that depends on the seed alone."""
    calls = count()
    return lambda n: hashlib.shake_256(f"{seed}/{next(calls)}".encode()).digest(n)


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """A problem, the numbers of one database, the mechanism, and the most that a question may spend."""

    problem: Problem
    database: Lattice
    make: Callable[[Problem], Solver]
    cap: Decimal

    def neighbours(self) -> list[Lattice]:
        """One unit more or less, in as many cells as it touches: each statistic of a set goes up, down, or stays."""
        problem, found = self.problem, {}
        for cells in combinations(range(problem.cells), min(problem.touched, problem.cells)):
            for together in problem.sets():
                for signs in product((1, -1, 0), repeat=len(together)):
                    other = self.database.copy()
                    for statistic, sign in zip(together, signs, strict=True):
                        other[statistic, list(cells)] += sign * problem.sensitivities[statistic]
                    if any(signs):
                        found[other.tobytes()] = other
        return list(found.values())


# -- Conversations side by side ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """The numbers that one step showed, by the level of a path or by a law of their own."""

    statistic: int
    law: int | Noise
    parts: int  # of the grid; 0 where the numbers are on the lattice itself
    cells: NDArray[np.int64]  # run * cells of the problem + cell
    values: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """All that some runs showed."""

    charges: Floats
    kept: NDArray[np.int64]  # the kept groups as bits, or REFUSED
    looks: list[Look]
    choices: list[tuple[Choose, NDArray[np.int64]]]  # the reply to each run


class _Spent:
    """What a run has been charged: runs that asked for the same share the account."""

    def __init__(self, account: Account) -> None:
        self._account, self._then = account, dict[tuple[object, ...], _Spent]()
        self.amount = account.total().amount

    def after(self, requests: Sequence[Request]) -> _Spent:
        key = tuple(map(_key, requests))
        if key not in self._then:
            self._then[key] = _Spent(self._account.foreseen(requests))
        return self._then[key]


def _key(request: Request) -> tuple[object, ...]:
    match request:
        case Refine(statistic, cells, level, parts):
            return statistic, cells.tobytes(), level, parts
        case Fresh(statistic, cells, noise):
            return statistic, cells.tobytes(), noise
        case Choose(clauses, share, epsilon):
            return clauses, share, epsilon


@dataclass(slots=True, eq=False)
class _Run:
    """One conversation, as in ``mechanisms.solve``."""

    solver: Solver
    spent: _Spent
    cap: Decimal
    requests: tuple[Request, ...] = ()
    kept: int | None = None
    replies: list[Reply] = field(default_factory=list)

    def go_on(self) -> None:
        try:
            requests = self.solver.send(tuple(self.replies)) if self.requests else next(self.solver)
            while (then := self.spent.after(requests)).amount > self.cap:
                requests = self.solver.throw(CapReached())
        except StopIteration as end:
            decision: Decision = end.value
            self.kept = int(decision.kept @ (1 << np.arange(len(decision.kept))))
        except AccuracyUnreachable:
            self.kept = REFUSED
        else:
            self.requests, self.spent, self.replies = requests, then, [None] * len(requests)


def converse(
    world: World, database: Lattice, runs: int, source: Source, account: Callable[[Problem], Account] = Account
) -> Shown:
    """So many runs of the mechanism on one database."""
    start = _Spent(account(world.problem))
    talks = [_Run(world.make(world.problem), start, world.cap) for _ in range(runs)]
    releases = _Releases(world.problem, database, runs, source)
    while open_ := {run: talk for run, talk in enumerate(talks) if talk.kept is None}:
        releases.reply_to({run: talk for run, talk in open_.items() if talk.requests})
        for talk in open_.values():
            talk.go_on()
    charges = np.array([float(talk.spent.amount) for talk in talks])
    kept = np.array([talk.kept for talk in talks], dtype=np.int64)
    return Shown(charges, kept, releases.looks, list(releases.choices.values()))


def at_once(
    problem: Problem, requests: Sequence[Refine | Fresh], database: Lattice, runs: int, source: Source
) -> Shown:
    """So many runs that ask for these, whatever comes out; their outcome is a few low bits of the last numbers."""
    releases, every = _Releases(problem, database, runs, source), np.ones(runs * problem.cells, dtype=np.bool_)
    for request in requests:
        releases.release(replace(request, cells=every))
    charges = np.full(runs, float(Account(problem).after(requests).amount))
    last = releases.looks[-1].values.reshape(runs, problem.cells)[:, 0]
    return Shown(charges, np.floor(last).astype(np.int64) % 4, releases.looks, [])


def number(share: Share, value: int, coin: Coin, runs: int, source: Source) -> Shown:
    """One number with its share's noise, so many times."""
    shown, grid = release(Exact(np.full((1, runs), value)), [share], source).row(0), share.grid
    look = Look(0, share.noise, 0 if grid.own else grid.parts, np.arange(runs), grid.numbers(shown).astype(np.float64))
    charges = np.full(runs, float(share.loss(coin).amount))
    return Shown(charges, grid.numbers(shown) % 4, [look], [])


class _Releases:
    """The releases to all runs, and what they showed."""

    def __init__(self, problem: Problem, database: Lattice, runs: int, source: Source) -> None:
        self._runs, self._cells = runs, problem.cells
        self._staged = Staged(Exact(np.tile(database, runs)), replace(problem, cells=runs * problem.cells), source)
        self._choosing = Staged(Exact(database), problem, source)
        self._paid = Loss(problem.coin, Decimal(10**9))
        self._standing = np.full((len(problem.sensitivities), runs * problem.cells), ladder.NOTHING)
        self.looks: list[Look] = []
        self.choices: dict[tuple[object, ...], tuple[Choose, NDArray[np.int64]]] = {}

    def reply_to(self, talks: Mapping[int, _Run]) -> None:
        """What each run has asked for; what is alike is released together."""
        asked: dict[tuple[object, ...], list[tuple[int, int, Refine | Fresh]]] = defaultdict(list)
        for run, talk in talks.items():
            often: dict[object, int] = defaultdict(int)
            for place, request in enumerate(talk.requests):
                match request:
                    case Refine(statistic, _, level, parts):
                        asked[statistic, level, parts].append((run, place, request))
                    case Fresh(statistic, _, noise):
                        often[statistic, noise] += 1  # a second draw of one run is a draw of its own
                        asked[statistic, noise, often[statistic, noise]].append((run, place, request))
                    case Choose():
                        talk.replies[place] = self._chosen(run, request)
        for alike in asked.values():
            reply = self.release(self._merged(alike))
            for run, place, _ in alike:
                talks[run].replies[place] = reply[run * self._cells : (run + 1) * self._cells].copy()

    def _merged(self, alike: Sequence[tuple[int, int, Refine | Fresh]]) -> Refine | Fresh:
        mask = np.zeros((self._runs, self._cells), dtype=np.bool_)
        for run, _, request in alike:
            mask[run] = request.cells
        return replace(alike[0][2], cells=mask.reshape(-1))

    def release(self, request: Refine | Fresh) -> Floats:
        """What is released to all the runs that ask for it."""
        (reply,) = self._staged.answer((request,), self._paid)
        assert isinstance(reply, np.ndarray)
        match request:
            case Refine(statistic, mask, level, parts):
                moved = np.flatnonzero(mask & (self._standing[statistic] < level))
                self._standing[statistic, moved] = level
                self.looks.append(Look(statistic, level, parts, moved, reply[moved]))
            case Fresh(statistic, mask, noise):
                self.looks.append(Look(statistic, noise, 0, np.flatnonzero(mask), reply[mask]))
        return reply

    def _chosen(self, run: int, request: Choose) -> int | None:
        (reply,) = self._choosing.answer((request,), self._paid)
        assert reply is None or isinstance(reply, int)
        told = self.choices.setdefault(_key(request), (request, np.full(self._runs, _UNASKED)))[1]
        told[run] = _NONE if reply is None else reply
        return reply


# -- The loss, by likelihood -------------------------------------------------------------------------------------------


def losses(shown: Shown, problem: Problem, here: Lattice, there: Lattice) -> Losses:
    """The loss of each run on ``here`` against ``there``."""
    runs, cells = len(shown.charges), problem.cells
    paths = np.zeros((len(problem.sensitivities), runs * cells))
    draws, redrawn = np.zeros(runs * cells), np.zeros(runs * cells)
    for look in shown.looks:
        x, other = (numbers[look.statistic] for numbers in (here, there))
        if look.parts:
            x, other = (one * look.parts // problem.sensitivities[look.statistic] for one in (x, other))
        affected = np.isin(look.cells % cells, np.flatnonzero(x != other))
        at, y = look.cells[affected], look.values[affected]
        part = _log_ratio(problem.coin, look.law, y, x[at % cells], other[at % cells])
        # What a path showed before its last look follows from that look and from noise alone.
        if look.parts:
            paths[look.statistic, at] = part
        else:
            draws[at] += part
        redrawn[at] += part
    chosen = np.zeros(runs)
    for choose, replies in shown.choices:
        ours, theirs = (chances(choose, problem, numbers) for numbers in (here, there))
        chosen += np.where(replies == _UNASKED, 0.0, np.log(ours / theirs)[np.maximum(replies, _NONE)])
    exact, every = ((sums.reshape(runs, cells).sum(axis=1) + chosen) for sums in (paths.sum(axis=0) + draws, redrawn))
    return Losses(shown.charges, shown.kept, exact, every)


def _log_ratio(coin: Coin, law: int | Noise, y: Floats, x: Lattice, other: Lattice) -> Floats:
    """ln P[y | x] / P[y | other]; for a Gaussian path its estimate says all that its increments do."""
    precision = rate = 0.0
    match law, coin:
        case DiscreteLaplace(), _:
            rate = float(law.rate)
        case DiscreteGaussian(sigma2), _:
            precision = float(1 / sigma2)
        case int(), Coin.PURE:
            rate = float(ladder.rate(law))
        case int(), Coin.ZCDP:
            precision = float(ladder.precision(law))
    ratio: Floats = precision * (x - other) * (y - (x + other) / 2) + rate * (np.abs(y - other) - np.abs(y - x))
    return ratio


def chances(choose: Choose, problem: Problem, numbers: Lattice) -> Floats:
    """The probability of each reply to a choice, none of them last: AboveThreshold by its definition, integrated."""
    epsilon, tests = float(choose.epsilon), problem.tests
    refuted = [
        np.clip((test.threshold - numbers[test.statistic]) * test.direction * 2 / test.scale, 0, 1) for test in tests
    ]
    named = {test for clause in choose.clauses for test in clause}
    moved = problem.touched * max(
        min(1.0, 2 * problem.sensitivities[tests[test].statistic] / tests[test].scale) for test in named
    )
    steps = np.linspace(-30, 30, 12_001)
    raised = choose.share * problem.cells + steps * 2 * moved / epsilon
    open_, told = np.exp(-np.abs(steps)), []
    for clause in choose.clauses:
        short = (raised - np.minimum.reduce([refuted[test] for test in clause]).sum()) * epsilon / (4 * moved)
        reaches = np.where(short > 0, np.exp(-np.abs(short)) / 2, 1 - np.exp(-np.abs(short)) / 2)
        told.append(float(open_ @ reaches))
        open_ = open_ * (1 - reaches)
    found = np.array([*told, float(open_.sum())])
    shares: Floats = found / found.sum()
    return shares


def audited(
    world: World,
    database: Lattice,
    against: Sequence[Lattice],
    runs: int,
    seed: object,
    account: Callable[[Problem], Account] = Account,
) -> list[Losses]:
    """So many runs on a database, and their losses against each of some neighbours."""
    source, parts = seeded(seed), []
    for start in range(0, runs, SIDE_BY_SIDE):
        shown = converse(world, database, min(SIDE_BY_SIDE, runs - start), source, account)
        parts.append([losses(shown, world.problem, database, other) for other in against])
    return [Losses.joined(list(of)) for of in zip(*parts, strict=True)]
