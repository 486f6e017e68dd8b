"""EXPLAIN of a question: what would be measured, with which noise, at what price, and whether the limits allow it.

Nothing is spent and no data is read: everything here follows from the text, the settings, the catalog and the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_DOWN, Decimal
from fractions import Fraction
from typing import Any

from mechanisms.condition import And, Condition, Leaf, Or, atoms
from mechanisms.interval import deviation
from mechanisms.loss import Loss, epsilon_of
from mechanisms.noise import DiscreteGaussian, DiscreteLaplace
from mechanisms.threshold import Share
from provenance.accountant import shown
from provenance.model import Room, Verdict
from provenance.nearby import Near
from provenance.synopses import Sameness
from proxy.answer import known_to
from proxy.asker import Answered, Asker, sameness
from proxy.bill import nearness, shown_comparison, shown_threshold
from proxy.conversation import Conversation
from proxy.numbers import ways
from proxy.patched import Buyer
from proxy.plan import Plan, StatementPlan, lattice_unit, shares_views
from proxy.priced import Priced
from proxy.reading import Reading
from proxy.relaxed import Relaxed, nearby
from proxy.remembered import remembered
from proxy.runtime import Runtime
from proxy.view_updates import Ways
from proxy.wishes import Wishes
from sqlrewrite import spelled
from sqlrewrite.errors import NotAnswered
from sqlrewrite.finish import array_text
from sqlrewrite.generate import generate
from sqlrewrite.lex import Kind, Token, tokens
from sqlrewrite.question import Atom, Question
from sqlrewrite.unit import unit_name

_TEXT = 'SELECT v AS "QUERY PLAN" FROM pg_catalog.unnest(${}::pg_catalog.text[]) WITH ORDINALITY AS u(v, i) ORDER BY i'
_JSON = 'SELECT v AS "QUERY PLAN" FROM pg_catalog.unnest(${}::pg_catalog.json[]) AS u(v)'


@dataclass(frozen=True, slots=True)
class Explained:
    """An EXPLAIN taken apart: the question (at its own place in the text) and the format."""

    question: str
    as_json: bool


def unwrap(text: str) -> Explained | None:
    """The question inside an EXPLAIN; None if the text is no EXPLAIN."""
    these = tokens(text)
    if not these or these[0].word != "explain":
        return None
    at, options = 1, {}
    if len(these) > 1 and these[1].kind is Kind.OPEN:
        at = next((i for i, token in enumerate(these) if token.kind is Kind.CLOSE), len(these) - 1) + 1
        words = [token.word or token.text.strip("'").lower() for token in these[2 : at - 1]]
        for option in " ".join(words).split(" , "):
            name, _, value = option.partition(" ")
            options[name] = value or "true"
    while at < len(these) and these[at].word in ("analyze", "analyse", "verbose"):
        options[these[at].word or ""] = "true"
        at += 1
    if options.get("analyze", options.get("analyse", "off")) not in ("false", "off", "0"):
        raise NotAnswered(
            "EXPLAIN ANALYZE would run the question, and its times and row counts would tell about private rows",
            hint="Write EXPLAIN without ANALYZE: it tells the price and the expected error, and costs nothing.",
            position=_place(these[:at], "analyze", "analyse"),
        )
    form = options.get("format", "text")
    if form not in ("text", "json"):
        raise NotAnswered(
            f"EXPLAIN in {form} is not offered",
            hint="Write EXPLAIN (FORMAT JSON) or plain EXPLAIN.",
            position=_place(these[:at], "format"),
        )
    start = these[at].start if at < len(these) else len(text)
    return Explained(" " * start + text[start:], form == "json")


def _place(these: Sequence[Token], *words: str) -> int | None:
    return next((token.start + 1 for token in these if token.word in words), None)


async def explain(
    runtime: Runtime, asker: Asker, explained: Explained, reading: Reading, shadow: Conversation
) -> Answered:
    """Have the shadow show the plan as PostgreSQL shows one."""
    wishes = Wishes.read(reading.settings)
    house = await runtime.current(asker.name)
    floor = await runtime.floor(asker.name, house)
    planned = await remembered(explained.question, reading, house, wishes, shadow.enumerate, floor)
    seen: set[Sameness] = set()
    priced: list[Priced] = []
    total = Loss.nothing(house.coin)
    for each in planned.plans:
        same = sameness(asker, each)
        known = each.free or same in seen or await known_to(runtime, asker, house, each, wishes.reuse) is not None
        found = await ways(runtime.releases, asker.name, each) if not known and shares_views(each) else None
        if not known and (found is None or found.dearer_than(each.most)):
            each.refuse_if_dear()
            found, each = None, each.raised or each
        known = known or (found is not None and found.free)
        priced.append(Priced(each, known, found))
        seen.add(same)
        total = total + priced[-1].expected
    asked = [one.charge(asker, house) for one in priced if one.expected.amount or one.expected.delta]
    verdict = await runtime.ledger.verdict(asked, exact=False) if asked else Verdict(None, Decimal(0), Decimal(0))
    if verdict.refusal is not None:
        buyer = Buyer(runtime, asker, house, reading, wishes, shadow.enumerate, exact=False)
        priced = [await _with_nearby(buyer, one) for one in priced]
    left = (await runtime.ledger.remaining(asker.name)).epsilon
    room = await runtime.ledger.room(asker.name)
    document = _document(planned, priced, house.seed, verdict, left, room, total)
    lines = [json.dumps([document], indent=2)] if explained.as_json else list(_lines(document))
    shape = _JSON if explained.as_json else _TEXT
    await shadow.prepare(shape.format(len(reading.parameters) + 1), reading, 1)
    return Answered((array_text(lines),), ())


async def _with_nearby(buyer: Buyer, one: Priced) -> Priced:
    """The same, with what ``veil.on_exhausted = relax`` would tell instead."""
    if one.known:
        return one
    near, offer = await nearby(buyer.runtime.releases, buyer.asker.name, one.plan), await buyer.offer(one.plan)
    return replace(one, nearby=near, offer=offer)


def _document(
    planned: StatementPlan, priced: list[Priced], seed: int, verdict: Verdict, left: Decimal, room: Room, total: Loss
) -> dict[str, Any]:
    questions = [_question(one, seed, room) for one in priced]
    paid = [one.epsilon for one in priced]
    return {
        "Questions": questions,
        "Finishing": planned.sql,
        "Coin": total.coin.value,
        "Charged": f"{total.amount.normalize():f}",
        "Epsilon": sum(paid),
        "Worst Epsilon": sum(question["Cost"]["worst"] for question in questions),
        "Delta": float(total.delta),
        "Remaining Epsilon": float(shown(left, ROUND_DOWN)),
        "Counted": f"{max(verdict.analyst, Decimal(0)).normalize():f}",
        "Allowed": verdict.refusal is None,
        "Verdict": _verdict(verdict, questions),
    }


def _verdict(verdict: Verdict, questions: Sequence[dict[str, Any]]) -> str:
    refusal = verdict.refusal
    if refusal is not None:
        return f"{refusal.message}: {(refusal.detail or '').rstrip('.')}"
    if any(question["Cost"]["expected"] > question["Cost"]["worst"] for question in questions):
        return "the limits allow it, but one question may not spend as much, and may end without an answer (54000)"
    return "the limits allow it"


def _question(one: Priced, seed: int, room: Room) -> dict[str, Any]:
    each = one.plan
    question = each.question
    sql = None if each.free else generate(question, seed).sql
    return {
        "Mechanism": each.mechanism,
        "Relation": question.relation.qualified,
        "Unit": unit_name(question),
        "Cells Per Unit": each.contribution.cells,
        "Rows Per Unit": question.unit.max_rows,
        "Groups": each.cells.size if each.cells is not None else None,
        "Domain": "public" if each.presence is None else f"unknown: named from {each.presence.threshold} units on",
        "Tree": None if question.having is None else _tree(question.having, question),
        "Beta": float(each.beta) if question.having is not None else None,
        "Alpha": None if each.staged is None or not bounds_alpha(each) else float(each.staged.problem.alpha),
        "Atoms": [_atom(each, atom) for atom in dict.fromkeys(atoms(question.having))] if question.having else [],
        "Statistics": [_statistic(each, at, share) for at, share in enumerate(each.shares) if share is not None],
        "SQL": sql,
        "Region": "; ".join(one.regions),
        "Least Price": one.least,
        "Reused": one.known,
        "Ways": [] if one.ways is None else _ways(one, one.ways),
        "Cost": {"worst": 0.0, "expected": 0.0, "delta": 0.0} if one.known else _cost(one, room),
        "Prices": _prices(one),
        "Relaxed": _relaxed(one),
    }


def _relaxed(one: Priced) -> list[dict[str, Any]]:
    """What relaxation would give: with pieces that would be bought, and what they cost, or without."""
    offer, each = one.offer, one.plan
    if offer is None:
        return [] if one.nearby is None else one.nearby.told(each)
    found = offer.relaxed
    near = Near(found.region, found.error, found.variance, Fraction(0))
    (entry,) = Relaxed(((near,),)).told(each)
    return [{**entry, "bought": offer.bought, "charged": f"{offer.cost.normalize():f}"}]


def bounds_alpha(each: Plan) -> bool:
    """Whether the mechanism promises anything about false groups."""
    return each.staged is not None and each.staged.mechanism in ("cert", "probe", "probe_naive", "probe_ent")


def _ways(one: Priced, found: Ways) -> list[dict[str, Any]]:
    """For each statistic how it would be had, and what the other ways would cost."""
    return [
        {
            "way": name,
            "alternatives": [
                {
                    "way": f"{other.word} on {other.view}",
                    "epsilon": one.at(Loss(found.loss.coin, other.cost.analyst)),
                    "charged": f"{other.cost.analyst:f}",
                }
                for other in (weighed.chosen, *weighed.others)
            ],
        }
        for name, weighed in zip(found.names, found.plans, strict=True)
    ]


def _cost(one: Priced, room: Room) -> dict[str, float]:
    """In epsilon: a staged decision ends where its certificate holds, at the latest where the limits do."""
    each = one.plan
    worst = usual = one.epsilon
    if each.staged is not None:
        most = room.half if each.staged.capped is None else min(room.whole, each.staged.most)
        worst = float(epsilon_of(each.loss.coin, most, each.conversion_delta)) if most else 0.0
    return {"worst": worst, "expected": usual, "delta": float(each.loss.delta)}


def _prices(one: Priced) -> dict[str, float]:
    """What the decision would usually cost at some alphas."""
    each = one.plan
    if each.staged is None:
        return {}
    return {
        alpha: float(epsilon_of(loss.coin, one.at_least(each.loss + loss).amount, each.conversion_delta))
        for alpha, loss in each.staged.prices().items()
    }


def _tree(condition: Condition[Atom], question: Question) -> str:
    match condition:
        case Leaf(atom):
            return _words(atom, question)
        case And(parts):
            return "(" + " AND ".join(_tree(part, question) for part in parts) + ")"
        case Or(parts):
            return "(" + " OR ".join(_tree(part, question) for part in parts) + ")" if parts else "false"


def _words(atom: Atom, question: Question) -> str:
    measured = spelled.statistic(question, question.statistics[atom.statistic])
    what = f"{atom.text}, as {measured}," if atom.average else atom.text
    return f"{what} {shown_comparison(atom)} {shown_threshold(question, atom)}"


def _atom(each: Plan, atom: Atom) -> dict[str, Any]:
    share = each.shares[atom.statistic] if each.staged is None else None
    entry = {
        "atom": _words(atom, each.question),
        "statistic": atom.statistic + 1,
        "sensitivity": each.contribution.statistics[atom.statistic],
        "beta": float(each.beta if share is None or share.beta is None else share.beta),
    }
    return entry if share is None else {**entry, "margin": share.shift}


def _statistic(each: Plan, index: int, share: Share) -> dict[str, Any]:
    question = each.question
    statistic = question.statistics[index]
    unit = lattice_unit(question, statistic)
    return {
        "statistic": spelled.statistic(question, statistic),
        "lattice unit": float(unit),
        "sensitivity": each.contribution.statistics[index],
        "noise": _noise(share, float(unit)),
        "epsilon": float(share.epsilon_at(each.conversion_delta)),
        "predicted error": float(share.shift * unit),
    }


def _noise(share: Share, unit: float) -> str:
    match share.noise:
        case DiscreteLaplace(epsilon, sensitivity):
            return f"discrete Laplace, scale {float(sensitivity / epsilon) * unit:.6g}"
        case DiscreteGaussian():
            words = f"discrete Gaussian, standard deviation {deviation(share) * unit:.6g}"
            grid = share.grid
            return words if grid.own else f"{words}, in steps of {grid.sensitivity / grid.parts * unit:.6g}"


def _lines(document: dict[str, Any]) -> Iterator[str]:
    for number, question in enumerate(document["Questions"], start=1):
        usual = question["Cost"]["expected"]
        yield f"Question {number}: {question['Mechanism']} on {question['Relation']}  (epsilon {usual:.6g})"
        number_of = question["Groups"] if question["Groups"] is not None else "those in the data"
        yield f"  Groups: {number_of}, domain {question['Domain']}"
        cells = question["Cells Per Unit"]
        groups, each = ("group", "") if cells == 1 else ("groups", " in each")
        most = "" if question["Unit"][:4] == "row " else f", with at most {question['Rows Per Unit']} rows{each}"
        yield f"  Privacy unit: {question['Unit']}, in at most {cells} {groups}{most}"
        if question["Tree"] is not None:
            alpha = "" if question["Alpha"] is None else f", alpha {question['Alpha']:g}"
            yield f"  Decision: {question['Tree']}  (beta {question['Beta']:g}{alpha})"
        for atom in question["Atoms"]:
            margin = f"margin {atom['margin']}, " if "margin" in atom else ""
            means = f"sensitivity {atom['sensitivity']}, {margin}beta {atom['beta']:g}"
            yield f"    Atom: {atom['atom']}  ({means})"
        for place, statistic in enumerate(question["Statistics"], start=1):
            price = f"epsilon {statistic['epsilon']:.6g}, {statistic['noise']}"
            yield f"    Statistic {place}: {statistic['statistic']}  ({price})"
            yield f"      Predicted error: within {statistic['predicted error']:g}"
        for place, way in enumerate(question["Ways"], start=1):
            others = ", ".join(f"{other['way']} {other['epsilon']:.4g}" for other in way["alternatives"])
            yield f"    Way {place}: {way['way']}  (weighed, in epsilon: {others})"
        if question["Prices"]:
            prices = ", ".join(f"{price:.4g} at alpha {alpha}" for alpha, price in question["Prices"].items())
            yield f"  Usual price: epsilon {prices}"
        yield f"  Region: {question['Region']}"
        if question["Least Price"] is not None:
            yield f"  Scan: costs at least epsilon {question['Least Price']:.4g}, of everybody whose rows are read"
        if question["Relaxed"]:
            pieces = "; ".join(question["Relaxed"][0].get("bought", ()))
            price = f", with a piece that is bought ({pieces})" if pieces else ""
            yield f"  Relaxed, if veil.on_exhausted says so{price}: {nearness(question['Relaxed'])}"
        if question["SQL"] is not None:
            yield f"  SQL: {question['SQL']}"
    charged = f"charged {document['Charged']} {document['Coin']}, counts {document['Counted']} of it"
    capped = document["Epsilon"] > document["Worst Epsilon"]
    worst = f"{'but only' if capped else 'at most'} {document['Worst Epsilon']:.6g}{' may be spent' if capped else ''}"
    yield f"Cost: epsilon {document['Epsilon']:.6g} expected, {worst}, {charged}"
    yield f"Limits: {document['Verdict']}; epsilon {document['Remaining Epsilon']:g} left"
