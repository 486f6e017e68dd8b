"""Record and replay, and bugs of the known classes that it must see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from replay import Outcome, Player, run
from replay_faults import FAULTS, Fault
from replay_tape import Finding, installed
from replay_world import Servers, World, servers, world


@pytest.fixture(scope="module")
def where() -> Iterator[Servers]:
    with servers() as made:
        yield made


def _told(outcome: Outcome) -> str:
    return "\n".join(map(str, outcome.cases))


def test_a_sample(where: Servers) -> None:
    outcome = run(where, 240, seed=20, epoch_size=40, round_size=1)
    assert not outcome.cases, _told(outcome)
    assert outcome.released > 40  # otherwise nothing was frozen


@pytest.mark.slow
@pytest.mark.vast
@pytest.mark.timeout(7200)
def test_many(where: Servers) -> None:
    outcome = run(where, 20_000, seed=21)
    assert not outcome.cases, _told(outcome)


@contextmanager
def _neighbours(where: Servers, fault: Fault) -> Iterator[World]:
    with world(where, fault.kind) as pair:
        pair.fill_exactly(fault.victim, fault.rows)
        pair.administer("SELECT provenance.create_analyst('spy', 'spy', 10)")
        for deployed in pair.sides:
            deployed.client("spy")
        if fault.administer is not None:
            pair.administer(fault.administer)
        yield pair


def _played(where: Servers, fault: Fault) -> list[Finding]:
    with installed(), _neighbours(where, fault) as pair:
        player = Player(pair, Outcome(), fault.name)
        return [finding for statement in fault.statements for finding in player.play("spy", statement, fault.traced)]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_bug_is_seen(where: Servers, fault: Fault) -> None:
    with fault.planted():
        found = _played(where, fault)
    assert fault.kinds & {finding.kind for finding in found}, found


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@pytest.mark.slow
def test_without_the_bug_nothing_is_seen(where: Servers, fault: Fault) -> None:
    assert _played(where, fault) == []
