"""A staged decision on its way: it goes on as far as what is paid reaches, and says what it needs to go further.

The first need is known before any data is read, so the till can come first; afterwards ``measured`` brings the numbers.
"""

from __future__ import annotations

from decimal import Decimal

from mechanisms.account import Account
from mechanisms.decision import CapReached, Decision, Problem, Request, Solver
from mechanisms.loss import Loss
from mechanisms.release import Staged


class Course:
    """One decision: a mechanism, and the releases that it asks for."""

    __slots__ = ("_cap", "_requests", "_solver", "_staged", "decision", "need", "problem")

    def __init__(self, problem: Problem, solver: Solver, cap: Decimal) -> None:
        self.problem, self._solver, self._cap = problem, solver, cap
        self._staged: Staged | None = None
        self.decision: Decision | None = None
        self._requests: tuple[Request, ...] = ()
        try:
            self._asked(next(solver), Account(problem))
        except StopIteration as end:
            self._decided(end.value)

    def measured(self, staged: Staged) -> None:
        """The numbers are there."""
        self._staged = staged

    def advance(self, paid: Loss) -> Decision | None:
        """Go on until the decision is made, or until ``need`` exceeds what is paid."""
        staged = self._staged
        if staged is None:
            raise ValueError("a decision goes on once its numbers are measured")
        while self.decision is None and self.need.amount <= paid.amount:
            try:
                self._asked(self._solver.send(staged.answer(self._requests, paid)), staged)
            except StopIteration as end:
                self._decided(end.value)
        return self.decision

    def _asked(self, requests: tuple[Request, ...], prices: Account | Staged) -> None:
        """What the mechanism wants next; beyond the cap it hears so, and may still decide or refuse."""
        while True:
            need = prices.after(requests) if isinstance(prices, Account) else prices.price(requests)
            if need.amount <= self._cap:
                self._requests, self.need = requests, need
                return
            requests = self._solver.throw(CapReached())

    def _decided(self, decision: Decision) -> None:
        self.decision, self.need = decision, Loss.nothing(self.problem.coin)
