"""How often may an analyst look? A hostile one asks the cheapest questions there are, each on other rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from attack_world import Hospital, proxy_here
from timing_audit import recording
from timing_families import build

from provenance.model import Felt
from provenance.plan import Cost
from proxy import charging, view_updates
from proxy.plan import Plan

MOST = 5  # timings, by a floor of a fifth


@pytest.fixture(scope="module")
def hospital(postgres, shadow_server) -> Iterator[Hospital]:  # type: ignore[no-untyped-def]
    dsn = build(postgres.new_database("floor"), unit=True)
    with psycopg.connect(dsn, autocommit=True) as conn:
        # Scans are counted here, not timed.
        conn.execute("UPDATE provenance.deployment SET scan_floor = 0.2, timing = 'immediate'")
        conn.execute("SELECT provenance.set_changes('entry', 'frozen')")  # so that regions are separated
    with proxy_here(dsn, shadow_server.admin_dsn) as running:
        yield running


def looks(hospital: Hospital, name: str, questions: Sequence[str]) -> int:
    """How many scans an analyst of epsilon 1 gets out of these questions, whatever is refused."""
    hospital.new_analyst(name, "1")
    with recording() as reads, hospital.connect(name) as session:
        for question in questions:
            try:
                session.execute(question.encode())
            except psycopg.Error as refused:
                assert refused.sqlstate is not None and not refused.sqlstate.startswith("XX")
        return sum(len(each) for each in reads.values())


def counts(mark: int) -> list[str]:
    """Rows of nobody else: what was measured for one analyst would be derived for another."""
    return [f"SELECT count(*) FROM entry WHERE v = {value} AND w = {mark}" for value in range(4 * MOST)]


def cheap(mark: int) -> list[str]:
    return ["SET veil.margin = '100000u'", *counts(mark)]


def priced(mark: int) -> list[str]:
    return ["SET veil.epsilon = '0.00001'", *counts(mark)]


def decisions(mark: int) -> list[str]:
    tests = [f"WHERE v = {value} AND w = {mark} GROUP BY grp HAVING count(*) > 100000" for value in range(4 * MOST)]
    return ["SET veil.alpha = '0.9'", "SET veil.beta = '0.9'", *(f"SELECT grp FROM entry {test}" for test in tests)]


@pytest.mark.parametrize("questions", [cheap, priced, decisions])
def test_no_more_scans_than_the_floor_allows(hospital: Hospital, questions: Callable[[int], list[str]]) -> None:
    mark = [cheap, priced, decisions].index(questions)
    assert 1 <= looks(hospital, f"spy_{mark}", questions(mark)) <= MOST


def no_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Views are paid for by what they cost alone."""
    felt_by = view_updates.felt_by
    monkeypatch.setattr(view_updates, "below", lambda scans, floor: Cost(Decimal(0), Decimal(0)))
    monkeypatch.setattr(view_updates, "felt_by", lambda moves, scans, floor: felt_by(moves, scans, Decimal(0)))


def on_the_region(monkeypatch: pytest.MonkeyPatch) -> None:
    """The floor is paid by the rows that were asked for, not by all that were read."""

    def felt_by(moves: Any, scans: Any, floor: Decimal) -> tuple[Felt, ...]:
        return tuple(Felt(move.felt.region, max(floor, move.felt.amount), floor) for move in moves)

    monkeypatch.setattr(view_updates, "felt_by", felt_by)


def no_floor_for_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row of a decision's scan is left out."""

    def credit(each: Plan) -> Decimal:
        return Decimal(0)

    monkeypatch.setattr(charging, "credit", credit)


@pytest.mark.parametrize(
    ("plant", "questions", "mark"),
    [(no_floor, cheap, 3), (on_the_region, cheap, 4), (no_floor_for_decisions, decisions, 5)],
    ids=["no floor", "on the region", "decisions"],
)
def test_a_floor_that_is_not_paid_is_seen(
    hospital: Hospital,
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
    questions: Callable[[int], list[str]],
    mark: int,
) -> None:
    plant(monkeypatch)
    assert looks(hospital, f"mutant_{mark}", questions(mark)) > MOST
