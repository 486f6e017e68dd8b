"""What a question cost, for the analyst: one sentence, and one JSON object with the fields of CONTRACT."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_DOWN
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.condition import atoms
from mechanisms.decision import Decision
from mechanisms.threshold import Share, uncertain
from mechanisms.values import Noisy
from provenance.accountant import shown
from provenance.model import Remaining
from proxy.plan import Plan, lattice_unit
from proxy.staging import Paid
from sqlrewrite import spelled
from sqlrewrite.catalog import Key
from sqlrewrite.question import Atom, KeyThreshold, Question
from sqlrewrite.unit import unit_name

_LONGEST = 300  # characters of a region in a sentence; the detail has all of it
_LONGEST_UNIT = 60  # characters of a unit's name in a sentence


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


def promised(decision: Decision) -> dict[str, Any]:
    """What a staged decision tells of itself; stored with it, for the bill of the same question asked again."""
    return {
        "alpha": None if decision.alpha is None else float(decision.alpha),
        "expected_false": None if decision.expected_false is None else round(decision.expected_false, 3),
        "uncertain": list(decision.uncertain),
        "betas": [float(beta) for beta in decision.betas],
    }


def bill(
    each: Plan,
    groups: Groups,
    kept: NDArray[np.int64],
    paid: Paid | None,
    facts: Mapping[str, Any],
    remaining: Remaining,
    text: str,
) -> Bill:
    """The account of one question; ``facts`` is what its decision promised."""
    return Bill(
        {
            "question": text,
            "mechanism": each.mechanism if "relaxed" not in facts else "relax",
            "epsilon": float(paid.epsilon) if paid is not None else 0,
            "delta": float(paid.loss.delta) if paid is not None else 0,
            "coin": each.loss.coin.value,
            "charged": f"{paid.loss.amount.normalize():f}" if paid is not None else "0",
            "beta": float(each.beta) if each.question.having is not None else None,
            "alpha": facts.get("alpha"),  # None: tslm and kin bound misses only
            "groups": groups.size,
            "domain": "public" if each.presence is None else f"unknown: named from {each.presence.threshold} units on",
            "returned": len(kept),
            "expected_false": facts.get("expected_false"),
            "atoms": _atoms(each, groups.noisy, paid, facts),
            "statistics": [
                None if share is None else _statistic(each, at, share, paid is not None and "relaxed" not in facts)
                for at, share in enumerate(each.shares)
            ],
            **{name: facts[name] for name in ("ways", "promise", "relaxed", "bought") if name in facts},
            **_bounded(each),
            "unit": unit_name(each.question),
            "as_of": facts.get("as_of"),
            "reused": paid is None,
            "remaining_epsilon": float(shown(remaining.epsilon, ROUND_DOWN)),
            "limited_by": "database" if remaining.shared < remaining.analyst else "analyst",
        }
    )


def _bounded(each: Plan) -> dict[str, Any]:
    """With how much of what a person has the numbers were made; the rest is left out, and no interval tells of it."""
    unit = each.question.unit
    if unit.column is None:
        return {}
    names = ", ".join(column.name for column in unit.column)
    return {"bounded": {"unit": names, "groups": each.contribution.groups, "rows": unit.max_rows}}


def _atoms(each: Plan, noisy: Noisy, paid: Paid | None, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    if each.staged is None:
        having = each.question.having
        return [] if having is None else [_atom(each, a, noisy, paid is not None) for a in dict.fromkeys(atoms(having))]
    # A staged decision pays for its tests together: each is told the whole.
    epsilon = float(paid.epsilon) if paid is not None else 0
    told = zip(each.staged.atoms, facts.get("betas", ()), facts.get("uncertain", ()), strict=False)
    return [
        {**_named(each, atom), "epsilon": epsilon, "beta": beta, "uncertain": uncertain_}
        for atom, beta, uncertain_ in told
    ]


def _named(each: Plan, atom: Atom) -> dict[str, Any]:
    question = each.question
    measured = {"measured": spelled.statistic(question, question.statistics[atom.statistic])} if atom.average else {}
    return {
        "aggregate": atom.text,
        **measured,
        "comparison": shown_comparison(atom),
        "threshold": shown_threshold(question, atom),
    }


def shown_comparison(atom: Atom) -> str:
    """Whole numbers have been moved so that no comparison with them is strict; those of a key have not."""
    strict = isinstance(atom.threshold, KeyThreshold) and atom.threshold.strict
    return (">" if atom.direction > 0 else "<") + ("" if strict else "=")


def shown_threshold(question: Question, atom: Atom) -> int | float | str:
    """An atom's threshold in the units of its aggregate; of a combination, such as an average's, in lattice numbers."""
    terms = question.statistics[atom.statistic].terms
    measure, coefficient = terms[0]
    unit = Fraction(1) if len(terms) > 1 else question.measures[measure].unit / coefficient
    if isinstance(atom.threshold, KeyThreshold):
        key, factor = spelled.expression(question.keys[atom.threshold.key].expression), atom.threshold.factor * unit
        return key if factor == 1 else f"{_number(factor)} * {key}"
    return _number(atom.threshold * unit)


def _number(exact: Fraction) -> int | float:
    return int(exact) if exact.denominator == 1 else float(exact)


def _statistic(each: Plan, at: int, share: Share, paid: bool) -> dict[str, Any]:
    """The price of one statistic in one cell: in coin these add up, in epsilon only those of Laplace noise do."""
    unit = lattice_unit(each.question, each.question.statistics[at])
    return {
        "epsilon": float(share.epsilon_at(each.conversion_delta)) if paid else 0,
        "charged": f"{share.loss(each.loss.coin).amount.normalize():f}" if paid else "0",
        "margin": _number(share.shift * unit),
    }


def _atom(each: Plan, atom: Atom, noisy: Noisy, paid: bool) -> dict[str, Any]:
    share = each.shares[atom.statistic]
    assert share is not None
    entry = _named(each, atom)
    entry["epsilon"] = float(share.epsilon) if paid else 0
    entry["beta"] = float(share.beta) if share.beta is not None else None
    if not isinstance(atom.threshold, KeyThreshold):
        entry["uncertain"] = uncertain(noisy.row(atom.statistic), atom.direction, atom.threshold, share)
    return entry


def sentence(entry: Bill) -> str:
    fields = entry.fields
    left = f"epsilon {fields['remaining_epsilon']:g} left"
    if fields.get("limited_by") == "database":  # in tenths of its limit: what others pay is not shown
        left = f"at most {left} in the database"
    if fields["mechanism"] == "domain":
        return f"veil: the declared keys are public, at no cost; {left}"
    if fields["mechanism"] == "constant":
        return f"veil: this HAVING is never true, whatever the data, at no cost; {left}"
    if fields["mechanism"] == "probe":
        return f"veil: the shape of an answer, at no cost; {left}"
    if "relaxed" in fields:
        near = nearness(fields["relaxed"])
        if "bought" in fields:
            pieces = "; ".join(fields["bought"])
            return f"veil: the limit is reached; with a piece for epsilon {fields['epsilon']:.4g} ({pieces}): {near}"
        return f"veil: the limit is reached; at no cost, from what you already know: {near}"
    if "bounded" in fields:
        left += f"; each {fields['bounded']['unit']} counts with {_most(fields['bounded'])}"
    if fields["reused"]:
        return f"veil: answered from what you already know, at no cost; {left}"
    unit = f" per {fields['unit']}" if len(fields["unit"]) <= _LONGEST_UNIT else ""
    return f"veil: {fields['mechanism']} spent epsilon {fields['epsilon']:.4g}{unit}; {left}"


def _most(bounded: Mapping[str, Any]) -> str:
    rows, groups = bounded["rows"], bounded["groups"]
    rows = "one row" if rows == 1 else f"at most {rows} rows"
    return rows if groups == 1 else f"{rows} in each of at most {groups} groups"


def nearness(told: Sequence[Mapping[str, Any]]) -> str:
    """What a relaxed answer is an answer to, in words; of many numbers, how far the farthest is off."""
    farthest = max(told, key=lambda one: float(one["error"]))
    error, noise = f"relaxation error {farthest['error']:.4g}", f"standard deviation {farthest['stddev']:.4g}"
    if len(told) > 1:
        return f"{len(told)} numbers, of the regions that the detail tells; the farthest has {error}, {noise}"
    region = farthest["region"]
    short = region if len(region) <= _LONGEST else f"{region[:_LONGEST]}..."
    return f"{farthest['aggregate']} WHERE {short}; {error}, {noise}"
