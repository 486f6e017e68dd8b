"""The conversation between a mechanism and the release, without a ledger: for tests, benches and audits."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from mechanisms.account import Index
from mechanisms.decision import CapReached, Decision, Solver
from mechanisms.errors import AccuracyUnreachable
from mechanisms.loss import Loss
from mechanisms.release import Staged


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    """A decision, what it cost, and what it cost in each cell (distinct losses, and which one each cell has)."""

    decision: Decision
    loss: Loss
    losses: tuple[Decimal, ...]
    cells: Index


def solve(solver: Solver, staged: Staged, cap: Decimal | None) -> Solved:
    """Answer what the mechanism asks for until it decides; what would cost more than the cap is not answered.

    A refusal tells on ``spent`` what was released before it.
    """
    try:
        requests = next(solver)
        while True:
            total = staged.price(requests)
            if cap is not None and total.amount > cap:
                requests = solver.throw(CapReached())
            else:
                requests = solver.send(staged.answer(requests, paid=total))
    except StopIteration as end:
        decision: Decision = end.value
        return Solved(decision, staged.spent(), *staged.cells())
    except AccuracyUnreachable as refusal:
        refusal.spent = staged.spent()
        raise
