"""What a question cost, for the analyst: one sentence, and one JSON object with the fields of CONTRACT."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_DOWN
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.condition import atoms
from mechanisms.threshold import uncertain
from mechanisms.values import Noisy
from provenance.accountant import shown
from provenance.model import Receipt, Remaining
from proxy.plan import Plan
from sqlrewrite.catalog import Key
from sqlrewrite.question import Atom, KeyThreshold, Question


@dataclass(frozen=True, slots=True)
class Groups:
    """Released groups: their numbers, their keys column by column, and the grouping set of each."""

    noisy: Noisy
    keys: Sequence[Sequence[Key]]
    sets: NDArray[np.int64]

    @property
    def size(self) -> int:
        return int(self.noisy.values.shape[1])


@dataclass(frozen=True, slots=True)
class Bill:
    """The account of one question; ``fields`` has nothing in it that was not paid for or public."""

    fields: dict[str, Any]

    def json(self) -> str:
        return json.dumps(self.fields)


def bill(
    each: Plan, groups: Groups, kept: NDArray[np.int64], receipt: Receipt | None, remaining: Remaining, text: str
) -> Bill:
    paid = receipt is not None
    decided = list(atoms(each.question.having)) if each.question.having is not None else []
    return Bill(
        {
            "question": text,
            "mechanism": each.mechanism,
            "epsilon": float(each.epsilon) if paid else 0,
            "delta": float(each.loss.delta) if paid else 0,
            "coin": each.loss.coin.value,
            "charged": f"{each.loss.amount.normalize():f}" if paid else "0",
            "beta": float(each.beta) if decided else None,
            "alpha": None,  # tslm bounds misses only
            "groups": groups.size,
            "domain": "public" if each.presence is None else f"unknown: named from {each.presence.threshold} units on",
            "returned": len(kept),
            "expected_false": None,
            "atoms": [_atom(each, atom, groups.noisy, paid) for atom in dict.fromkeys(decided)],
            "statistics": [
                {"epsilon": float(share.epsilon) if paid else 0, "margin": share.shift} for share in each.shares
            ],
            "reused": not paid,
            "remaining_epsilon": float(shown(remaining.epsilon, ROUND_DOWN)),
        }
    )


def shown_threshold(question: Question, atom: Atom) -> int | float | str:
    """An atom's threshold in the units of its aggregate; of a combination, such as an average's, in lattice numbers."""
    if isinstance(atom.threshold, KeyThreshold):
        return f"key {atom.threshold.key + 1}"
    terms = question.statistics[atom.statistic].terms
    if len(terms) > 1:
        return atom.threshold
    measure, coefficient = terms[0]
    real = atom.threshold * question.measures[measure].unit / coefficient
    return int(real) if real.denominator == 1 else float(real)


def _atom(each: Plan, atom: Atom, noisy: Noisy, paid: bool) -> dict[str, Any]:
    share = each.shares[atom.statistic]
    entry: dict[str, Any] = {
        "aggregate": atom.text,
        "comparison": ">=" if atom.direction > 0 else "<=",
        "epsilon": float(share.epsilon) if paid else 0,
        "beta": float(share.beta) if share.beta is not None else None,
    }
    entry["threshold"] = shown_threshold(each.question, atom)
    if not isinstance(atom.threshold, KeyThreshold):
        entry["uncertain"] = uncertain(noisy.row(atom.statistic), atom.direction, atom.threshold, share)
    return entry


def sentence(entry: Bill) -> str:
    fields = entry.fields
    left = fields["remaining_epsilon"]
    if fields["mechanism"] == "domain":
        return f"veil: the declared keys are public, at no cost; epsilon {left:g} left"
    if fields["mechanism"] == "probe":
        return f"veil: the shape of an answer, at no cost; epsilon {left:g} left"
    if fields["reused"]:
        return f"veil: answered from what you already know, at no cost; epsilon {left:g} left"
    return f"veil: {fields['mechanism']} spent epsilon {fields['epsilon']:.4g}; epsilon {left:g} left"
