"""Record and replay: random statements on a database, and the same on a neighbour with every released number frozen.

    python tests/attacks/replay.py --n 100000 --seed 1

Whatever else leaves or decides must then be equal: results with their types and order, errors and notices with all
their fields, the SQL for the protected database, every charge and every row of the ledger, what is stored, what the
shadow is told. And the exact numbers behind each release must lie as near to each other as its price claims.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))

from replay_questions import Asker, Statement
from replay_tape import Finding, Tape, forget, installed, overspent
from replay_world import UNITS, Kind, Servers, World, servers, world

from mechanisms.loss import Coin

EVIDENCE = Path(__file__).parents[2] / "bench" / "results" / "evidence" / "replay.json"
EPOCH = 60  # statements between two changes of the data
ROUND = 20  # epochs of one pair of deployments
TABLES = (
    "charge", "charge_loss", "charge_view", "balance", "spending", "view", "synopsis", "release", "knowledge",
    "layer", "felt", "grant_of_budget", "gap", "incident", "deployment", "analyst", "relation", "attribute",
)  # fmt: skip
HIDDEN = frozenset(("at", "hash", "previous", "since", "until", "created_at", "updated_at"))
"""Columns of the ledger that hold a time, or a digest of one."""
TRACED = 0.03  # of the statements: which lines are run is compared
ADMINISTRATION = (
    "SELECT provenance.refresh('stay')",
    "SELECT provenance.refresh('account')",
    "SELECT provenance.grant_budget('{0}', '{1}', 0.3)",
    "UPDATE provenance.analyst SET epsilon_limit = 2 WHERE name = '{1}'",
    "UPDATE provenance.analyst SET epsilon_limit = 1000 WHERE name = '{0}'",
    "SELECT provenance.register_view('stay', '{{paid}}')",
)
FLOOR = "0.00025"
KINDS = (
    *(Kind(unit) for unit in UNITS),
    *(Kind(unit, changes="any", floor=FLOOR) for unit in UNITS),
    *(Kind(unit, Coin.PURE, changes="any") for unit in UNITS),
    *(Kind(unit, changes="append") for unit in UNITS),
    *(Kind(unit, Coin.PURE, floor=FLOOR) for unit in UNITS),
)
_RANDOM = re.compile(
    r"incident [0-9a-f]{12}|pgveil_building_[0-9a-f]{16}"
    rf"|{time.gmtime().tm_year}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d(:\d\d)?)?"
)
"""Names that are drawn at random, apart from all noise; and times of today."""


@dataclass
class Case:
    """A finding with what is needed to see it again."""

    kind: str
    what: str
    world: str
    statement: dict[str, Any]
    settings: list[str]
    data: str
    seed: str

    def __str__(self) -> str:
        return f"[{self.kind}] {self.world} {self.statement['text']!r} {self.settings}: {self.what[:3000]}"


@dataclass
class Outcome:
    """What a run has found."""

    n: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    released: int = 0
    unclaimed: int = 0
    cases: list[Case] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)  # statements that end in our own fault, on both sides


def differences(here: Any, there: Any, path: str = "") -> Iterator[str]:
    """Where two values differ, with both."""
    if here == there:
        return
    if isinstance(here, list | tuple) and isinstance(there, list | tuple) and len(here) == len(there):
        for at, (one, other) in enumerate(zip(here, there, strict=True)):
            yield from differences(one, other, f"{path}.{at}")
    elif isinstance(here, dict) and isinstance(there, dict) and here.keys() == there.keys():
        for key in here:
            yield from differences(here[key], there[key], f"{path}.{key}")
    else:
        yield f"{path}: {here!r:.600} | {there!r:.600}"


def hashed_by_oid(text: str) -> bool:
    """Whether PostgreSQL may put the rows of a result into an order that differs between two shadows.

    It hashes the values of an enum by their oids, and each shadow numbers its own. What the shadow was given is
    compared in order all the same.
    """
    return "feeling" in text and "order by" not in text.lower()


def unordered(seen: Any) -> Any:
    """Everything that a client has seen, the rows of each result sorted."""
    results, notices, status = seen
    rows = {"TUPLES_OK": 3, "COPY_DATA": 1}  # where a result has them
    sorted_ = [
        [sorted(each, key=repr) if at == rows.get(result[0]) else each for at, each in enumerate(result)]
        for result in results
    ]
    return [sorted_, notices, status]


class Player:
    """Plays statements on both sides of a world, and compares."""

    def __init__(self, pair: World, outcome: Outcome, seed: str) -> None:
        self.pair, self.outcome, self.seed = pair, outcome, seed
        self.settings: dict[str, list[str]] = {}
        self.data = ""

    def play(self, analyst: str, statement: Statement, traced: bool = False) -> list[Finding]:
        """One statement on both sides; where it is ``traced``, the lines that are run are compared, too."""
        pair, tape, seen, ran = self.pair, Tape(), [], []
        for deployed in pair.sides:
            deployed.side.begin(tape)
            if traced:
                forget()
                deployed.trace(True)
            seen.append(deployed.client(analyst).ask(statement.text, statement.way, statement.values))
            if traced:
                ran.append(deployed.side.lines)
                deployed.trace(False)
        here, there = pair.here.side, pair.there.side
        found = [*here.findings, *there.findings]
        if tape.place < len(tape.entries):
            left = len(tape.entries) - tape.place
            found.append(Finding("release", f"{left} outputs of the release step are not asked for"))
        if hashed_by_oid(statement.text):
            seen = [unordered(each) for each in seen]
        if seen[0] != seen[1]:
            found.append(Finding("client", "; ".join(differences(self.masked(seen[0], 0), self.masked(seen[1], 1)))))
        if here.notes != there.notes:
            notes = [list(map(repr, side.notes)) for side in (here, there)]
            one, other = (Counter(self.masked(each, at)) for at, each in enumerate(notes))
            if one != other:
                what = f"here: {list(one - other)!s:.1500} there: {list(other - one)!s:.1500}"
                found.append(Finding("inside", what))
        if traced and ran[0] != ran[1]:
            found.append(Finding("lines", f"here: {sorted(ran[0] - ran[1])} there: {sorted(ran[1] - ran[0])}"))
        lost = overspent(there, pair.coin)
        if lost is not None and here.charged == there.charged:
            found.append(lost)
        found = [one for one in found if one.what]
        self._count(statement, seen[0], len(tape.entries))
        self._keep(statement, analyst, found)
        return found

    def masked(self, value: Any, side: int) -> Any:
        """Without the name of the database, and the numbers of incidents."""
        name = self.pair.sides[side].database
        match value:
            case str():
                return _RANDOM.sub("<random>", value.replace(name, "<database>"))
            case bytes():
                return _RANDOM.sub("<random>", value.decode(errors="replace").replace(name, "<database>"))
            case list() | tuple():
                return [self.masked(each, side) for each in value]
        return value

    def _count(self, statement: Statement, seen: Any, released: int) -> None:
        outcome = self.outcome
        outcome.n += 1
        outcome.kinds[statement.kind] += 1
        outcome.released += released > 0
        results, notices, _ = seen
        errors = [dict(result[5]) for result in results if result[0] == "FATAL_ERROR"]
        if errors:
            state = errors[0].get("SQLSTATE", b"?").decode()
            outcome.ends[state] += 1
            if state in ("58000", "XX000"):
                outcome.failures[statement.text] = state
                logged = [str(note[1][1])[-500:] for note in self.pair.here.side.notes if note[0] == "log"]
                how = f"{self.pair.kind.name} {statement.text!r:.900} {statement.values!r:.100}"
                sys.stderr.write(f"{state} on both sides: {how} {logged}\n")
            return
        told = [dict(each) for each in notices]
        bills = [json.loads(each["MESSAGE_DETAIL"]) for each in told if each["MESSAGE_PRIMARY"].startswith(b"veil:")]
        if not bills:
            outcome.ends["no question"] += 1
        for each in bills:
            outcome.ends[f"reused {each['mechanism']}" if each["reused"] else each["mechanism"]] += 1

    def _keep(self, statement: Statement, analyst: str, found: list[Finding]) -> None:
        for one in found:
            settings = self.settings.get(analyst, [])
            self.outcome.cases.append(
                Case(
                    *(one.kind, one.what, self.pair.kind.name),
                    asdict(statement),
                    list(settings),
                    self.data,
                    self.seed,
                )
            )

    def books(self) -> list[Finding]:
        """The tables of the ledger and of the stored answers, row by row; and nothing else has changed."""
        seen = []
        for deployed in self.pair.sides:
            rows: dict[str, Any] = {}
            for table in TABLES:
                columns = [
                    name
                    for (name,) in deployed.owner.execute(
                        "SELECT column_name::text FROM information_schema.columns"
                        " WHERE table_schema = 'provenance' AND table_name = %s ORDER BY ordinal_position",
                        (table,),
                    ).fetchall()
                    if name not in HIDDEN
                ]
                listed = ", ".join(f'"{name}"::text' for name in columns)
                rows[table] = deployed.owner.execute(
                    f"SELECT {listed} FROM provenance.{table} ORDER BY {listed}".encode()
                ).fetchall()
            seen.append(rows)
        return [Finding("books", what) for what in differences(seen[0], seen[1])][:20]


def epoch(player: Player, rng: random.Random, number: int, statements: int) -> bool:
    """New data, new analysts, and statements of both; whether nothing was found."""
    pair = player.pair
    player.data = pair.fill(rng)
    analysts = [f"analyst_{number}_{each}" for each in range(2)]
    for deployed in pair.sides:
        deployed.close_clients()
    for name in analysts:
        limit = rng.choice((None, None, None, "0.5", "3", "40"))
        pair.administer("SELECT provenance.create_analyst(%s, %s, 10)", name, name)
        pair.administer("UPDATE provenance.analyst SET epsilon_limit = %s WHERE name = %s", limit, name)
        player.settings[name] = []
    for name in analysts:
        for deployed in pair.sides:
            deployed.client(name)
    askers = {name: Asker(rng) for name in analysts}
    askers[analysts[1]].before = askers[analysts[0]].before  # who asks what others have asked
    for _ in range(statements):
        if rng.random() < 0.015:
            pair.administer(rng.choice(ADMINISTRATION).format(*analysts))
        analyst = rng.choice((analysts[0], analysts[0], analysts[1]))
        statement = askers[analyst].statement()
        found = player.play(analyst, statement, rng.random() < TRACED)
        if statement.kind == "setting":
            player.settings[analyst].append(statement.text)
        if found:
            return False
    found = player.books()
    player._keep(Statement("books", ""), analysts[0], found)
    return not found


def run(
    where: Servers,
    n: int,
    seed: int,
    *,
    kinds: Sequence[Kind] = KINDS,
    most: int = 50,
    epoch_size: int = EPOCH,
    round_size: int = ROUND,
    progress: Callable[[Outcome], None] | None = None,
) -> Outcome:
    """Play ``n`` statements; a world in which something was found is given up."""
    outcome, number = Outcome(), 0
    with installed():
        while outcome.n < n and len(outcome.cases) < most:
            rng = random.Random(f"{seed} {number}")
            kind = kinds[number % len(kinds)]
            number += 1
            with world(where, kind) as pair:
                player = Player(pair, outcome, f"{seed} {number - 1}")
                for each in range(round_size):
                    clean = outcome.n < n and epoch(player, rng, each, min(epoch_size, n - outcome.n))
                    if progress is not None:
                        progress(outcome)
                    if not clean:
                        break
                outcome.unclaimed += pair.there.side.unclaimed
    return outcome


def evidence(outcome: Outcome, seed: int) -> dict[str, Any]:
    """What is kept of a run."""
    root = Path(__file__).parents[2]
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False)
    return {
        "commit": commit.stdout.strip(),
        "seed": seed,
        "n": outcome.n,
        "seconds": 0.0,
        "findings": len(outcome.cases),
        "released": outcome.released,
        "claims_about_another_unit": outcome.unclaimed,
        "statements": dict(sorted(outcome.kinds.items())),
        "ends": dict(sorted(outcome.ends.items())),
        "failures": outcome.failures,
        "cases": [asdict(case) for case in outcome.cases[:20]],
    }


def merged(parts: Sequence[dict[str, Any]], seed: int) -> dict[str, Any]:
    """The evidence of several processes together."""
    total: dict[str, Any] = {**parts[0], "seed": seed}
    for part in parts[1:]:
        for name in ("n", "findings", "released", "claims_about_another_unit"):
            total[name] += part[name]
        for name in ("statements", "ends"):
            total[name] = dict(sorted((Counter(total[name]) + Counter(part[name])).items()))
        total["failures"] = {**total["failures"], **part["failures"]}
        total["cases"] = [*total["cases"], *part["cases"]]
    return total


def several(n: int, seed: int, jobs: int, more: Sequence[str]) -> dict[str, Any]:
    """The same in several processes, each with servers of its own."""
    with tempfile.TemporaryDirectory(prefix="pgveil-replay-") as home:
        files = [Path(home) / f"{job}.json" for job in range(jobs)]
        parts = [
            subprocess.Popen(
                [
                    *(sys.executable, __file__, "--n", str(n // jobs + (job < n % jobs))),
                    *("--seed", str(seed * 1000 + job), "--out", str(file), *more),
                ],
                stdout=subprocess.DEVNULL,
            )
            for job, file in enumerate(files)
        ]
        for part in parts:
            part.wait()
        return merged([json.loads(file.read_text()) for file in files], seed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--unit", choices=UNITS, action="append")
    parser.add_argument("--most", type=int, default=50, help="stop after so many findings")
    parser.add_argument("--out", type=Path, help=f"where the evidence goes, for example {EVIDENCE.name}")
    options = parser.parse_args()
    begun = time.monotonic()

    told_of: list[Case] = []

    def progress(outcome: Outcome) -> None:
        for case in outcome.cases[len(told_of) :]:
            told_of.append(case)
            sys.stderr.write(f"{case}\n")
        rate = outcome.n / (time.monotonic() - begun)
        sys.stderr.write(f"{outcome.n} statements, {len(outcome.cases)} findings, {rate:.1f}/s\n")

    kinds = [kind for kind in KINDS if kind.unit in (options.unit or UNITS)]
    if options.jobs > 1:
        more = ["--most", str(options.most), *(word for unit in options.unit or () for word in ("--unit", unit))]
        told = several(options.n, options.seed, options.jobs, more)
    else:
        with servers() as where:
            outcome = run(where, options.n, options.seed, kinds=kinds, most=options.most, progress=progress)
        told = evidence(outcome, options.seed)
    told["seconds"] = round(time.monotonic() - begun, 1)
    told["bound_at_99.9_percent"] = 6.9 / told["n"] if told["n"] and not told["findings"] else None
    text = json.dumps(told, indent=1) + "\n"
    sys.stdout.write(text)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text)
    return 1 if told["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
