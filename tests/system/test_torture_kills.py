"""kill -9 of a proxy, under load and at every await of the route; PostgreSQL killed under a proxy.

Afterwards: no answer without its charge, no charge lost, the books fold to the balances, and the next answer is soon.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
import torture
from pace import pace
from proxies import Proxy, charges, new_analyst, start_proxy
from torture import Auditor, Crowd, Told, ask, mixed

from proxy.embedded import temporary

SOON = 5.0  # seconds until the next answer, start of the proxy included


def soon(recovered: list[float], first: float) -> bool:
    """Within what is promised, or what the very first start takes beside all that runs on this machine."""
    return statistics.median(recovered) < max(SOON * pace(), 2 * first)


@pytest.fixture
def world(postgres: Any) -> str:
    return torture.build(postgres.new_database("torture"))


class Stage:
    """Where the proxy is at the moment."""

    def __init__(self, dsn: str, shadow: str, log: Path) -> None:
        self.dsn, self.shadow, self.log = dsn, shadow, log
        self.proxy: Proxy | None = None

    def start(self, **more: Any) -> Proxy:
        self.proxy = start_proxy(self.dsn, self.shadow, self.log, **more)
        return self.proxy

    def connect(self, name: str) -> psycopg.Connection[Any]:
        assert self.proxy is not None
        return self.proxy.connect(name)


@pytest.fixture
def stage(world: str, shadow_server: Any, tmp_path: Path) -> Iterator[Stage]:
    found = Stage(world, shadow_server.admin_dsn, tmp_path / "proxy.log")
    yield found
    if found.proxy is not None:
        found.proxy.stop()


@pytest.mark.parametrize("kills", [2, pytest.param(200, marks=(pytest.mark.slow, pytest.mark.timeout(2400)))])
def test_a_proxy_killed_at_any_moment_under_load_loses_no_charge(
    stage: Stage, kills: int, record_testsuite_property: Any
) -> None:
    dice, auditor, recovered = random.Random(kills), Auditor(stage.dsn, stage.log), []
    crowd = Crowd(stage.connect, [new_analyst(stage.dsn) for _ in range(4)], mixed)
    begun = time.monotonic()
    stage.start()
    with crowd.about():
        first = crowd.answers_since(begun)
        for number in range(kills):
            time.sleep(dice.uniform(0, 0.3))
            assert stage.proxy is not None
            stage.proxy.kill()
            killed = time.monotonic()
            stage.start()
            recovered.append(crowd.answers_since(killed))
            if number % 10 == 0:
                auditor.look(crowd.told)
    auditor.look(crowd.told)
    assert not crowd.refused, crowd.refused[0]
    record_testsuite_property(
        f"{kills} kills: seconds to the next answer, median and most", (statistics.median(recovered), max(recovered))
    )
    record_testsuite_property(f"{kills} kills: answers, charges", (len(crowd.told), len(auditor.seen)))
    assert soon(recovered, first), (first, recovered)


QUESTIONS = {
    "measure": torture.NUMBERS,
    "derive": torture.NUMBERS,  # of a view that somebody else knows better
    "decision": torture.DECISION,
}


class Chase:
    """Proxies that kill themselves, one after the other; each finds what the one before left."""

    def __init__(self, stage: Stage, kind: str) -> None:
        self.stage, self.kind, self.number = stage, kind, 100
        self.auditor, self.told = Auditor(stage.dsn, stage.log), list[Told]()
        self.left: tuple[str, str] | None = None  # who was not answered, and what was asked

    def dies(self, place: int, moment: str) -> bool:
        """Whether a proxy killed itself there; whatever it did, the books are right."""
        self.number += 1
        who, text = new_analyst(self.stage.dsn), QUESTIONS[self.kind].format(self.number)
        program = (str(Path(torture.__file__)),)
        proxy = self.stage.start(program=program, environment={"TORTURE": f"{who}:{place}:{moment}"})
        self.answered(proxy)
        if self.kind == "derive":
            with proxy.connect(new_analyst(self.stage.dsn)) as other:
                other.execute("SET veil.margin = '10u'")
                other.execute(text)
        self.left = who, text
        try:
            with proxy.connect(who) as session:
                self.told.append(ask(session, text))
        except psycopg.OperationalError as error:
            assert error.sqlstate is None
            proxy.process.wait(60)
            assert proxy.process.returncode == -signal.SIGKILL
            return True
        finally:
            self.auditor.look(self.told)
        proxy.stop()
        return False

    def answered(self, proxy: Proxy) -> None:
        """What was left is answered now, for at most one more charge, and once more for none."""
        if self.left is not None:
            who, text = self.left
            before = len(charges(self.stage.dsn, who))
            with proxy.connect(who) as session:
                self.told += [ask(session, text), ask(session, text)]
            assert self.told[-1].charged == 0 and len(charges(self.stage.dsn, who)) <= before + 1
            self.auditor.look(self.told)

    def over(self) -> None:
        self.answered(self.stage.start())


def test_a_proxy_killed_in_the_middle_of_its_route_loses_no_charge(stage: Stage) -> None:
    chase = Chase(stage, "decision")
    assert chase.dies(6, "came")
    chase.over()


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("kind", list(QUESTIONS))
def test_a_proxy_killed_at_every_await_of_its_route_loses_no_charge(
    stage: Stage, kind: str, record_testsuite_property: Any
) -> None:
    chase = Chase(stage, kind)
    last = next(place for place in count(1) if not (chase.dies(place, "came") | chase.dies(place, "sent")))
    chase.over()
    record_testsuite_property(f"awaits of {kind}", last - 1)
    assert last > 8, "a question waits for many things"


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=(pytest.mark.slow, pytest.mark.timeout(1500)))])
def test_postgresql_killed_under_a_proxy_loses_no_charge(
    shadow_server: Any, tmp_path: Path, kills: int, record_testsuite_property: Any
) -> None:
    dice, recovered = random.Random(kills), []
    with temporary({"fsync": "off"}) as cluster:
        world = torture.build(cluster.dsn())
        auditor, stage = (
            Auditor(world, tmp_path / "proxy.log"),
            Stage(world, shadow_server.admin_dsn, tmp_path / "proxy.log"),
        )
        crowd = Crowd(stage.connect, [new_analyst(world) for _ in range(4)], mixed)
        begun = time.monotonic()
        proxy = stage.start()
        try:
            with crowd.about():
                first = crowd.answers_since(begun)
                for number in range(kills):
                    time.sleep(dice.uniform(0, 0.5))
                    os.kill(cluster.pid, signal.SIGQUIT if number % 2 else signal.SIGKILL)
                    cluster.stop()
                    cluster.start()
                    recovered.append(crowd.answers_since(time.monotonic()))
                    auditor.look(crowd.told)
        finally:
            proxy.stop()
        auditor.look(crowd.told)
    assert {error.sqlstate for error in crowd.refused} <= {"58000"}
    assert "Traceback" not in proxy.log.read_text()
    record_testsuite_property(
        f"{kills} kills: seconds to the next answer, median and most", (statistics.median(recovered), max(recovered))
    )
    record_testsuite_property(f"{kills} kills: answers, charges", (len(crowd.told), len(auditor.seen)))
    assert soon(recovered, first), (first, recovered)
