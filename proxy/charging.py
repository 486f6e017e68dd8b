"""What the ledger is asked for: the charge of each question, and of each scan that no question pays for in full.

Of a fixed price as much as the floor falls everywhere, in the same row of the journal. A decision in stages falls on
one region, so that the floor of its scan is a row of its own, in the same transaction; as much of the decision is paid
for with it (``credit``), and its stages pay what is beyond. So every question that reads data costs the larger of its
own price and the floor, and every unit of the relation bears the floor at least.

*Guarantee*: no unit loses more than the rows say: one in the question's region bears floor + max(0, own price - floor).
A decision that is refused before it looks gets its stages back, and not the row of its scan.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal

from mechanisms.course import Course
from mechanisms.loss import WIDE, Loss, epsilon_of
from provenance.model import Charge, Felt, Part, PredicateLoss
from provenance.reach import beside, joined_versions, reach
from provenance.region import EVERYWHERE
from provenance.synopses import Sameness
from proxy.floor import felt_of
from proxy.plan import Plan
from proxy.runtime import House
from proxy.staging import Paid, reserved
from proxy.view_updates import Ways
from sqlrewrite.view import whole_view

SCAN = "scan"
"""The mechanism of a row that pays for the scan of a decision."""


def charge_of(same: Sameness, house: House, each: Plan, course: Course | None, found: Ways | None, text: str) -> Charge:
    """What is asked for one question: at a fixed price, from its views, or for the first stages of a decision."""
    fixed = course is None or each.staged is None
    loss, table = each.loss, None
    if found is not None:
        loss, table, parts, felt = found.loss, found.table, found.parts, found.felt
    elif course is not None and each.staged is not None:
        loss = reserved(course, each.loss, each.staged.most, credit(each))
        parts, felt = _parts(each, loss.amount), (Felt(reach(each.question), loss.amount, loss.amount),)
    else:
        parts, felt = _parts(each, loss.amount), felt_of(each.question, loss.amount, loss.amount, each.floor)
    groups = None
    if fixed and each.cells is not None:
        groups = PredicateLoss.uniform(WIDE.divide(loss.amount, Decimal(each.contribution.cells)), each.cells.size)
    return Charge(
        analyst=same.analyst,
        relation_id=same.relation_id,
        data_version=same.data_version,
        registry_version=house.catalog.version,
        fingerprint=same.fingerprint,
        question=text,
        mechanism=each.mechanism,
        loss=loss,
        epsilon=each.epsilon if fixed and found is None else None,
        staged=not fixed,
        groups=groups,
        table=table,
        parts=parts,
        accuracy=same.accuracy,
        felt=felt,
        beside=beside(each.question),
        joined_versions=joined_versions(each.question),
    )


def credit(each: Plan) -> Decimal:
    """What the row of its scan pays of a decision in stages, in coin."""
    return each.floor if each.staged is not None else Decimal(0)


def with_scans(asked: Iterable[tuple[Charge, Plan]]) -> list[Charge]:
    """The charges of questions, and behind them the rows for the scans of decisions."""
    pairs = list(asked)
    return [charge for charge, _ in pairs] + [
        replace(
            charge,
            mechanism=SCAN,
            loss=Loss(charge.loss.coin, credit(each)),
            staged=False,
            parts=_parts(each, credit(each)),  # it pays for what the decision's first stages tell of the view
            accuracy=None,
            felt=(Felt(EVERYWHERE, credit(each), credit(each)),),
        )
        for charge, each in pairs
        if charge.staged and credit(each)
    ]


def with_scan(paid: Paid, each: Plan) -> Paid:
    """What a decision cost together with its scan."""
    if not credit(each):
        return paid
    loss = paid.loss + Loss(paid.loss.coin, credit(each))
    return replace(paid, loss=loss, epsilon=epsilon_of(loss.coin, loss.amount, each.conversion_delta))


def _parts(each: Plan, amount: Decimal) -> tuple[Part, ...]:
    """A question with noise of its own is one view to the ledger: all its statistics together."""
    dimensions, measure = whole_view(each.question)
    return (Part(dimensions, measure, amount, amount),)
