"""The route of one question.

    Question -> Condition[Atom] -> Share -> Charge -> Receipt -> Exact -> Noisy -> rows

One door in, one till, one look at the data, one place of noise, one door out. Everything before the till is a function
of the text, the settings and the public catalog; everything after the noise is post-processing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.condition import atoms
from mechanisms.loss import Loss
from mechanisms.release import release
from mechanisms.threshold import Share, decide, for_interval, interval_at, tslm, tslm_at, uncertain
from mechanisms.values import Noisy
from provenance.accountant import shown
from provenance.errors import StaleCatalog
from provenance.model import Charge, Remaining
from provenance.synopses import Sameness
from proxy.conversation import Reading
from proxy.runtime import House, Runtime
from proxy.wishes import Wishes
from sqlrewrite.assemble import assemble
from sqlrewrite.catalog import Relation
from sqlrewrite.cells import cells
from sqlrewrite.errors import SyntaxNotRead
from sqlrewrite.generate import generate
from sqlrewrite.normal import fingerprint
from sqlrewrite.question import Question
from sqlrewrite.sensitivity import Contribution, sensitivity
from sqlrewrite.validate import read

_RETRIES = 10  # registry changes that one question outlives


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks."""

    name: str


@dataclass(frozen=True, slots=True)
class Answered:
    """The finishing statement for the shadow, and the bill."""

    sql: str
    arrays: tuple[str, ...]
    message: str
    bill: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A question with its price: sensitivity, noise and charge come from this one value."""

    question: Question
    contribution: Contribution
    share: Share
    loss: Loss
    epsilon: Decimal


async def answer(runtime: Runtime, asker: Asker, text: str, reading: Reading) -> Answered:
    """Answer one question, or refuse it."""
    wishes = Wishes.read(reading.settings)
    for attempt in range(_RETRIES):
        house = await runtime.current()
        question = read(text, house.catalog, _resolver(house, reading), reading.parameters)
        _agree(question, reading, house)
        if not question.aggregates:
            return await _domain(runtime, asker, house, question, reading, text)
        plan = apportion(question, wishes, house)
        try:
            return await _answer(runtime, asker, house, plan, reading, wishes, text)
        except StaleCatalog:
            if attempt + 1 == _RETRIES:
                raise
    raise AssertionError("unreachable")


async def _answer(
    runtime: Runtime, asker: Asker, house: House, plan: Plan, reading: Reading, wishes: Wishes, text: str
) -> Answered:
    question, relation = plan.question, plan.question.relation
    way = f"tslm/{plan.share.noise}/{plan.share.shift}"
    if _depends_on_settings(question):  # '03/01/2025' is another day under another DateStyle
        way += "/" + ",".join(f"{name}={value}" for name, value in sorted(reading.carried.items()))
    same = Sameness(asker.name, relation.id, relation.data_version, fingerprint(question), way)
    noisy = await runtime.synopses.find(same)
    remaining: Remaining
    if noisy is None:
        async with runtime.backend.reader() as reader:  # there before the till: what cannot be read costs nothing
            receipt = await runtime.ledger.charge(_charge(asker, house, plan, same, text))
            exact = await reader.measure(receipt, generate(question, house.seed), cells(question), reading.carried)
        noisy = await runtime.synopses.keep(same, release(exact, [plan.share] * exact.shape[0]), receipt)
        remaining, paid = receipt.remaining, True
    else:
        remaining, paid = await runtime.ledger.remaining(asker.name), False
    keep = _decide(question, plan.share, noisy)
    finishing = assemble(question, keep, noisy, reading.column_types, clip=not wishes.raw)
    bill = _bill(plan, noisy, keep, remaining, paid, text)
    return Answered(finishing.sql, finishing.arrays, _sentence(bill), json.dumps(bill))


async def _domain(
    runtime: Runtime, asker: Asker, house: House, question: Question, reading: Reading, text: str
) -> Answered:
    """Keys alone list their declared domain: that is public, so it is free and no data is read."""
    nothing = Noisy(np.zeros((0, cells(question).size), dtype=np.int64))
    finishing = assemble(question, None, nothing, reading.column_types, clip=False)
    left = (await runtime.ledger.remaining(asker.name)).epsilon
    size = nothing.values.shape[1]
    bill: dict[str, Any] = {
        "question": text,
        "mechanism": "domain",
        "epsilon": 0,
        "delta": 0,
        "coin": house.coin.value,
        "charged": "0",
        "beta": None,
        "alpha": None,
        "groups": size,
        "returned": size,
        "expected_false": 0,
        "atoms": [],
        "reused": True,
        "remaining_epsilon": float(left),
    }
    return Answered(finishing.sql, finishing.arrays, _sentence(bill), json.dumps(bill))


def _depends_on_settings(question: Question) -> bool:
    """Whether a constant of date or time type, or a key of one, is read under the session's settings."""
    said = repr((question.where, [key.type_name for key in question.keys]))
    return any(word in said for word in ("'date", "'time", "'interval"))


def _resolver(house: House, reading: Reading) -> Any:
    def resolve(schema: str | None, name: str) -> Relation | None:
        pair = reading.resolved.get((schema, name))
        return None if pair is None else house.catalog.by_name.get(pair)

    return resolve


def _agree(question: Question, reading: Reading, house: House) -> None:
    """Both readers must name the same registered relations; in a transaction PostgreSQL remembers earlier ones too."""
    ours = {(question.relation.schema, question.relation.name)}
    theirs = {pair for pair in reading.seen if pair in house.catalog.by_name}
    if not (ours <= theirs if reading.in_block else ours == theirs):
        raise SyntaxNotRead(
            "the two readers of this statement do not agree on the relations it names",
            hint="Write it more plainly: one table, plain names.",
        )


def apportion(question: Question, wishes: Wishes, house: House) -> Plan:
    """Price a question: how much noise each cell gets, and what one privacy unit may move in all."""
    touched = sensitivity(question)
    accuracy = wishes.accuracy
    per_cell = None if accuracy.epsilon is None else accuracy.epsilon / touched.groups
    most = None if accuracy.max_epsilon is None else accuracy.max_epsilon / touched.groups
    margin = accuracy.margin.lattice(touched.per_cell)
    if question.having is not None:
        if per_cell is not None:
            share = tslm_at(touched.per_cell, per_cell, accuracy.beta)
        else:
            share = tslm(touched.per_cell, margin, accuracy.beta, max_epsilon=most)
    elif per_cell is not None:
        share = interval_at(touched.per_cell, per_cell, accuracy.confidence)
    else:
        share = for_interval(touched.per_cell, margin, accuracy.confidence, max_epsilon=most)
    # Cells have independent noise, so what one unit touches adds up in coin: under zCDP that is less than the
    # square of the summed epsilons.
    loss = sum((share.loss(house.coin) for _ in range(touched.groups)), Loss.nothing(house.coin))
    return Plan(question, touched, share, loss, share.epsilon * touched.groups)


def _charge(asker: Asker, house: House, plan: Plan, same: Sameness, text: str) -> Charge:
    return Charge(
        analyst=asker.name,
        relation_id=same.relation_id,
        data_version=same.data_version,
        registry_version=house.catalog.version,
        fingerprint=same.fingerprint,
        question=text,
        mechanism="tslm" if plan.question.having is not None else "laplace",
        loss=plan.loss,
        epsilon=plan.epsilon,
    )


def _decide(question: Question, share: Share, noisy: Noisy) -> NDArray[np.bool_] | None:
    if question.having is None:
        return None
    (atom,) = atoms(question.having)
    return decide(noisy.row(atom.aggregate), atom.direction, atom.threshold, share)


def _bill(
    plan: Plan, noisy: Noisy, keep: NDArray[np.bool_] | None, remaining: Remaining, paid: bool, text: str
) -> dict[str, Any]:
    question, share = plan.question, plan.share
    groups = noisy.values.shape[1]
    decided = list(atoms(question.having)) if question.having is not None else []
    return {
        "question": text,
        "mechanism": "tslm" if decided else "laplace",
        "epsilon": float(plan.epsilon) if paid else 0,
        "delta": 0,
        "coin": plan.loss.coin.value,
        "charged": f"{plan.loss.amount.normalize():f}" if paid else "0",
        "beta": float(share.beta) if share.beta is not None else None,
        "alpha": None,
        "groups": groups,
        "returned": groups if keep is None else int(keep.sum()),
        "expected_false": None,
        "margin": share.shift,
        "atoms": [
            {
                "aggregate": "count(*)",
                "comparison": ">=" if atom.direction > 0 else "<=",
                "threshold": atom.threshold,
                "epsilon": float(share.epsilon) if paid else 0,
                "beta": float(share.beta) if share.beta is not None else None,
                "uncertain": uncertain(noisy.row(atom.aggregate), atom.direction, atom.threshold, share),
            }
            for atom in decided
        ],
        "reused": not paid,
        "remaining_epsilon": float(remaining.epsilon),
    }


def _sentence(bill: Mapping[str, Any]) -> str:
    left = shown(Decimal(repr(bill["remaining_epsilon"])))
    if bill["mechanism"] == "domain":
        return f"veil: the declared keys are public, at no cost; epsilon {left} left"
    if bill["reused"]:
        return f"veil: answered from what you already know, at no cost; epsilon {left} left"
    return f"veil: {bill['mechanism']} spent epsilon {bill['epsilon']:.4g}; epsilon {left} left"
