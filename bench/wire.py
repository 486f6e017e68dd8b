"""Pass-through: ``select 1``, large results and logins: the shadow alone, through pgbouncer, through pgveil."""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from psycopg.conninfo import make_conninfo

from bench.rig.measure import Ratio, interleave, ratio, say
from bench.rig.pgbench import Load, Run, pgbench
from bench.rig.report import Report, Table
from bench.rig.scene import ANALYST, pgbouncer, pgbouncer_program, scene

ONE = "select 1"
MANY = "SELECT * FROM generate_series(1,100000)"
TARGETS = {("simple", 8): 0.6, ("prepared", 8): 0.5}  # of pgbouncer's rate in the same run
DIRECT, BOUNCER, VEIL = "direct", "pgbouncer", "pgveil"
PARTIES = (VEIL, BOUNCER, "postgres", "pgbench")


@dataclass(frozen=True, slots=True)
class Case:
    """One load, given to each way in turn."""

    name: str
    load: Load
    samples: Mapping[str, Sequence[Run]]
    starts: Mapping[str, Run]  # one transaction per client: hardly more than logging in

    def rates(self, way: str) -> list[float]:
        return [run.rate for run in self.samples[way]]

    def against(self, way: str) -> Ratio | None:
        """pgveil's rate over another's."""
        return ratio(self.rates(VEIL), self.rates(way)) if way in self.samples else None

    def micros(self, way: str, party: str) -> float:
        return statistics.median(run.micros(party, self.starts.get(way)) for run in self.samples[way])


def loads(smoke: bool) -> list[tuple[str, Load]]:
    """What is measured."""
    seconds = 0 if smoke else 2
    cases = [
        (f"{mode}, {_clients(clients)}", Load(ONE, clients, seconds, mode))
        for mode in ("simple", "prepared")
        for clients in ((8,) if smoke else (1, 8, 64))
    ]
    few = (1,) if smoke else (1, 8)
    cases += [(f"100,000 rows, {_clients(n)}", Load(MANY, n, seconds, transactions=2)) for n in few]
    cases += [(f"login, {_clients(n)}", Load(ONE, n, seconds, reconnect=True, transactions=2)) for n in few]
    return cases


def _clients(number: int) -> str:
    return "1 client" if number == 1 else f"{number} clients"


def run(*, smoke: bool) -> Report:
    """Measure all cases in one run of the same servers."""
    program = pgbouncer_program()
    with ExitStack() as stack:
        stage = stack.enter_context(scene(patients=1000))
        ways = {DIRECT: stage.shadow_dsn}
        parties = {"postgres": stage.shadow.pid, VEIL: stage.proxy.pid}
        if program is None:
            say("pgbouncer is not installed: no comparison with it")
        else:
            process, port = stack.enter_context(pgbouncer(program, stage.shadow, ANALYST))
            login = {"user": ANALYST, "dbname": stage.shadow_database}
            ways[BOUNCER] = make_conninfo("", host="127.0.0.1", port=port, **login)
            parties[BOUNCER] = process.pid
        ways[VEIL] = stage.dsn
        cases = [_case(name, load, ways, parties, 1 if smoke else 5) for name, load in loads(smoke)]
    return _report(cases, smoke, program)


def _case(name: str, load: Load, ways: Mapping[str, str], parties: Mapping[str, int], rounds: int) -> Case:
    """All ways in turn; where a login is not the point, its processor time is measured apart and taken off."""
    once = replace(load, seconds=0, transactions=1)
    starts = (
        {} if load.reconnect or not load.seconds else {way: pgbench(dsn, once, parties) for way, dsn in ways.items()}
    )
    turns = {way: partial(pgbench, dsn, load, parties) for way, dsn in ways.items()}
    return Case(name, load, interleave(turns, rounds, name), starts)


def _report(cases: Sequence[Case], smoke: bool, program: str | None) -> Report:
    ways = [way for way in (DIRECT, BOUNCER, VEIL) if way in cases[0].samples]
    rates = Table(
        "Transactions per second (medians), and pgveil's rate over the others' (median, smallest..largest round)",
        ("load", *ways, "pgveil/pgbouncer", "pgveil/direct", "target"),
        [
            (
                case.name,
                *(f"{statistics.median(case.rates(way)):,.0f}" for way in ways),
                *(str(case.against(way) or "-") for way in (BOUNCER, DIRECT)),
                _verdict(case),
            )
            for case in cases
        ],
    )
    times = Table(
        "Processor time per transaction in microseconds (medians, logging in taken off): who works on this way",
        ("load", "way", *PARTIES),
        [
            (case.name, way, *(f"{case.micros(way, party):,.1f}" if _works(way, party) else "-" for party in PARTIES))
            for case in cases
            for way in ways
        ],
    )
    notes = [
        "pgbench, the proxies and PostgreSQL share the cores of this machine: ratios below 1 are processor time.",
        "direct goes by Unix socket; clients reach the proxies by TCP, and the proxies the shadow by Unix socket.",
        "login: pgveil does SCRAM-SHA-256 and opens a backend of its own for each client; direct opens one without a"
        " password; pgbouncer (auth_type any, session pool) asks for none and hands out an open backend.",
    ]
    versions = {} if program is None else {"pgbouncer": _version(program)}
    return Report("wire", smoke, (rates, times), _numbers(cases), lambda figure: _draw(figure, cases), notes, versions)


def _works(way: str, party: str) -> bool:
    return party in ("postgres", "pgbench", way)


def _verdict(case: Case) -> str:
    target = TARGETS.get((case.load.mode, case.load.clients)) if case.load.statement == ONE else None
    reached = case.against(BOUNCER)
    if target is None or reached is None or case.load.reconnect:
        return ""
    return f"{target:.1f}: {'met' if reached.median >= target else 'missed'}"


def _numbers(cases: Sequence[Case]) -> dict[str, Any]:
    return {
        case.name: {
            "statement": case.load.statement,
            "protocol": case.load.mode,
            "clients": case.load.clients,
            "seconds": case.load.seconds,
            "reconnect": case.load.reconnect,
            "rates": {way: case.rates(way) for way in case.samples},
            "pgveil_over": {
                way: found.as_json() for way in case.samples if way != VEIL and (found := case.against(way)) is not None
            },
            "processor_micros": {
                way: {party: case.micros(way, party) for party in PARTIES if _works(way, party)} for way in case.samples
            },
        }
        for case in cases
    }


def _draw(figure: Any, cases: Sequence[Case]) -> None:
    """Bars: each way's rate with direct as 1; no logins, since the three do different work there."""
    cases = [case for case in cases if not case.load.reconnect]
    ways = [way for way in (DIRECT, BOUNCER, VEIL) if way in cases[0].samples]
    axes = figure.subplots()
    width = 0.8 / len(ways)
    for number, way in enumerate(ways):
        heights = [ratio(case.rates(way), case.rates(DIRECT)).median for case in cases]
        axes.bar([i + (number - (len(ways) - 1) / 2) * width for i in range(len(cases))], heights, width, label=way)
    axes.set_xticks(range(len(cases)), [case.name.replace(", ", "\n") for case in cases], fontsize=8)
    axes.set_ylabel("rate, direct = 1")
    axes.set_title("Pass-through by pgbench, rivals in turn on the same machine")
    axes.legend()


def _version(program: str) -> str:
    return subprocess.run([program, "--version"], capture_output=True, text=True).stdout.split("\n")[0]
