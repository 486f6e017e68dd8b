"""A statement with its prices: the questions in it, what is measured for each, and the noise that each number gets.

Sensitivity, charge and generated SQL all follow from one ``Plan``; nothing here has seen data.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np

from mechanisms.apportion import Ask, apportion, own_epsilon
from mechanisms.condition import atoms
from mechanisms.errors import AccuracyUnreachable
from mechanisms.loss import Loss, amount_within, exact_product, exact_sum
from mechanisms.noise import DiscreteGaussian
from mechanisms.threshold import Share, key_threshold
from mechanisms.values import Lattice
from proxy.decided import Decided, decided, is_staged
from proxy.floor import Floor, Presence, payment_of
from proxy.reading import Reading
from proxy.runtime import House
from proxy.wider import Derivable, Enumerate, derivable
from proxy.wishes import Wishes
from sqlrewrite.blocks import Block, Name, Outline, outline
from sqlrewrite.canonical import canonical
from sqlrewrite.catalog import Catalog, Relation
from sqlrewrite.cells import Cells, cells
from sqlrewrite.constant import NUMBERS, TEXTS, base_type
from sqlrewrite.cut import Cut, cut
from sqlrewrite.domain import domain_query, is_open
from sqlrewrite.errors import SyntaxNotRead, TooManyGroups
from sqlrewrite.finish import Released, as_released, finish, released
from sqlrewrite.folding import columns, questions
from sqlrewrite.generate import SUMS
from sqlrewrite.kind import refuse_kind, targets
from sqlrewrite.lex import tokens
from sqlrewrite.minimise import NEVER, prime_implicants
from sqlrewrite.normal import fingerprint
from sqlrewrite.probe import is_probe
from sqlrewrite.question import Always, Literal, Question, Statistic
from sqlrewrite.read import read
from sqlrewrite.sensitivity import Contribution, sensitivity

_SETTLED = frozenset((*NUMBERS, *TEXTS, "boolean", "uuid"))
"""Types whose constants mean the same in every session."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One question, priced."""

    question: Question
    cut: Cut
    cells: Cells | None  # None: some key has no public domain, and groups are named only if they pass a threshold
    contribution: Contribution
    shares: tuple[Share | None, ...]  # of each statistic; None where only a staged decision looks at it
    loss: Loss  # what is fixed beforehand: of a staged decision only the numbers beside it
    most: Decimal | None  # the coin that the analyst lets the question spend
    epsilon: Decimal  # the question's own, at the delta of conversion
    conversion_delta: Decimal
    digest: str
    context: str  # what the numbers depend on beside the question: settings, the list of groups
    beta: Decimal
    presence: Presence | None
    staged: Decided | None
    wider: tuple[tuple[Derivable, ...], ...]  # for each statistic, registered views that it can be derived from
    probe: bool  # the answer is thrown away whatever it is, or no row can be in it, whatever the data
    dear: AccuracyUnreachable | None  # why its full price is more than the analyst lets it spend
    floor: Decimal = Decimal(0)  # the least price of a scan, in coin; 0: there is none, or nothing is read
    raised: Plan | None = None  # where that is more than the price: the same with the noise that it buys

    @property
    def free(self) -> bool:
        """A probe, or keys alone: nothing is measured."""
        return self.probe or (not self.question.statistics and self.presence is None)

    @property
    def empty(self) -> bool:
        """WHERE false: nothing is counted, so a question without keys has the answer 0, and others have no group."""
        return self.probe and _of_nothing(self.question) and not is_probe(self.cut.block)

    @property
    def mechanism(self) -> str:
        """What answers it, as the ledger and the bill call it."""
        if self.probe:
            return "constant" if self.question.having == NEVER else "probe"
        if self.free:
            return "domain"
        if self.staged is not None:
            return self.staged.mechanism
        if self.question.having is not None:
            return "tslm"
        return "gaussian" if any(isinstance(share.noise, DiscreteGaussian) for share in self.paid) else "laplace"

    @property
    def paid(self) -> tuple[Share, ...]:
        """The shares of all numbers that are released at a fixed price."""
        kept = (*self.shares, self.presence.share if self.presence is not None else None)
        return tuple(share for share in kept if share is not None)

    @property
    def buys(self) -> Decimal:
        """What a view that has to be measured grows by, in coin: the floor, unless the noise is fixed."""
        return self.floor if self.question.relation.noise_magnitude is None else Decimal(0)

    def within(self, half: Decimal) -> Plan:
        """The plan of one of whose budget this coin is half."""
        return self if self.staged is None else replace(self, staged=self.staged.within(half))

    def refuse_if_dear(self) -> None:
        """The refusal of a question whose full price has to be paid."""
        if self.dear is not None:
            raise AccuracyUnreachable(self.dear.message, detail=self.dear.detail, hint=self.dear.hint)

    @property
    def weights(self) -> Lattice:
        """Statistics as combinations of measures."""
        return weights(self.question)


@dataclass(frozen=True, slots=True)
class StatementPlan:
    """All questions of a statement and the text that finishes it."""

    plans: tuple[Plan, ...]
    parts: tuple[Released, ...]
    sql: str
    top: Block | None  # the question that is the whole statement, if there is one


def weights(question: Question) -> Lattice:
    """The statistics of a question as combinations of its measures."""
    matrix = np.zeros((len(question.statistics), len(question.measures)), dtype=np.int64)
    for row, statistic in enumerate(question.statistics):
        for measure, coefficient in statistic.terms:
            matrix[row, measure] = coefficient
    return matrix


@lru_cache(maxsize=2048)
def skeleton(text: str) -> Outline:
    """The structure of a statement; a pure function of its text."""
    return outline(text)


async def plan(
    text: str, reading: Reading, house: House, wishes: Wishes, enumerate_: Enumerate, floor: Decimal = Decimal(0)
) -> StatementPlan:
    """Read every question of a statement and price it; ``floor`` is the analyst's least price of a scan."""
    resolve = resolver(house.catalog, reading)
    refuse_kind(text, lambda name: _protected(resolve(*name), house.catalog))
    structure = skeleton(text)
    blocks = blocks_of(text, reading, house)
    _agree(structure, reading, house, resolve)
    decisions = sum("having" in block.clauses for block in blocks)
    plans: list[Plan] = []
    parts: list[Released] = []
    for block in blocks:
        taken, found = asked_in(text, block, reading, house, wishes, reading.parameters)
        domain = listed = None
        printed = fingerprint(found)
        question, places = canonical(found, printed)
        try:
            if not any(key.open for key in question.keys):
                wanted = domain_query(question)
                listed = None if wanted is None else await enumerate_(wanted)
                domain = cells(question, listed)
        except TooManyGroups:  # then only groups that pass a threshold are named, if that can be paid for
            if house.versions.payment_delta <= 0:
                raise
            listed = None
            found = replace(found, keys=tuple(replace(key, open=True) for key in found.keys))
            printed = fingerprint(found)
            question, places = canonical(found, printed)
        # Numbers are stored by place: another list of groups (a public table has changed) is another question.
        listing = "" if listed is None else "/" + hashlib.sha256(repr(listed).encode()).hexdigest()
        context = listing + setting_digest(question, reading)
        priced = _price(question, taken, domain, wishes, house, max(1, decisions), printed.digest, context, floor)
        if domain is not None and shares_views(priced):
            settings = partial(setting_digest, reading=reading)
            several = range(len(question.statistics))
            views = [await derivable(question, at, domain, settings, enumerate_) for at in several]
            priced = replace(priced, wider=tuple(views))
        plans.append(priced)
        parts.append(released(question, taken, places))
    sql = finish(text, parts, len(reading.parameters))
    first = structure.blocks[0] if structure.blocks else None
    shown = first is not None and not first.tail and tokens(text)[0].word not in ("insert", "create")
    whole = blocks[0] if len(blocks) == 1 and first is blocks[0] and shown else None
    if whole is not None:
        parts = [replace(parts[0], as_is=as_released(text, parts[0]))]
    return StatementPlan(tuple(plans), tuple(parts), sql, whole)


def blocks_of(text: str, reading: Reading, house: House) -> list[Block]:
    """The questions in a statement."""
    resolve = resolver(house.catalog, reading)
    return questions(skeleton(text), lambda name: _protected(resolve(*name), house.catalog))


def asked_in(
    text: str, block: Block, reading: Reading, house: House, wishes: Wishes, parameters: Sequence[Literal]
) -> tuple[Cut, Question]:
    """What one of them asks, with these values of its parameters."""
    resolve = resolver(house.catalog, reading)

    def named(name: Name) -> frozenset[str] | None:
        relation = resolve(*name)
        return None if relation is None else frozenset(relation.attributes)

    taken = cut(text, block, columns(skeleton(text), block, named))
    return taken, _with_open_keys(read(taken.clauses, house.catalog, resolve, parameters, wishes.support))


def shares_views(each: Plan) -> bool:
    """Whether a question's numbers come from synopses: Gaussian noise over public groups, and no decision."""
    gaussian = all(share is not None and isinstance(share.noise, DiscreteGaussian) for share in each.shares)
    return gaussian and each.cells is not None and each.question.having is None and not each.free


def resolver(catalog: Catalog, reading: Reading) -> Callable[[str | None, str], Relation | None]:
    """What a name means to the analyst's session."""

    def resolve(schema: str | None, name: str) -> Relation | None:
        pair = reading.resolved.get((schema, name))
        return None if pair is None else catalog.by_name.get(pair)

    return resolve


def _protected(relation: Relation | None, catalog: Catalog) -> bool:
    return relation is not None and relation in catalog.protected


def _agree(
    structure: Outline, reading: Reading, house: House, resolve: Callable[[str | None, str], Relation | None]
) -> None:
    """Both readers must name the same registered relations; in a transaction PostgreSQL remembers earlier ones too."""
    named = structure.names() | targets(structure.text)
    ours = {(r.schema, r.name) for name in named if (r := resolve(*name)) is not None}
    theirs = {pair for pair in reading.seen if pair in house.catalog.by_name}
    if not (ours <= theirs if reading.in_block else ours == theirs):
        raise SyntaxNotRead(
            "the two readers of this statement do not agree on the relations it names",
            hint="Write it more plainly: plain names, no view or function over a protected table.",
        )


def _with_open_keys(question: Question) -> Question:
    """Mark the keys whose possible values are not public."""
    return replace(
        question, keys=tuple(replace(key, open=is_open(key.expression, question.sources)) for key in question.keys)
    )


def _price(
    question: Question,
    taken: Cut,
    domain: Cells | None,
    wishes: Wishes,
    house: House,
    decisions: int,
    digest: str,
    context: str,
    floor: Decimal,
) -> Plan:
    coin, touched, converted = house.coin, sensitivity(question), house.versions.conversion_delta
    never = question.having == NEVER  # no row, hence no group that would have to be hidden
    payment = payment_of(question, house) if any(key.open for key in question.keys) and not never else None
    accuracy, fixed = wishes.accuracy.shared(decisions), question.relation.noise_magnitude
    least = Floor(floor, coin, converted)
    if fixed is not None:
        accuracy = least.price(accuracy).capped()
    nobody = domain is not None and not domain.size  # WHERE leaves out every group
    probe = is_probe(taken.block) or _of_nothing(question) or nobody or never
    staged = None
    if is_staged(question, domain, wishes) and not probe and domain is not None:
        staged = decided(question, touched, domain, accuracy, wishes, coin, converted)
    asks = _asks(question, touched, wishes, staged is not None)
    asked = [ask for ask in asks if ask is not None]
    if payment is not None:  # the number of units of a group, which says whether it is named
        asked.append(Ask(1, accuracy.margin.lattice(1), False, True))
    longest = max((len(part) for part in prime_implicants(question.having)), default=1) if question.having else 1
    priced = partial(apportion, asked, longest=longest, touched=touched.cells, coin=coin, delta=converted)
    if fixed is not None:
        priced = partial(priced, magnitude=fixed)
    dear = None
    try:
        given = least.tried(priced, accuracy)
    except AccuracyUnreachable as refusal:
        if accuracy.max_epsilon is None or accuracy.epsilon is not None:
            raise
        given, dear = priced(replace(accuracy, max_epsilon=None)), refusal
    paid = given if not probe else ()
    presence = None
    if payment is not None:
        *_, last = given
        presence = Presence(last, key_threshold(last, payment, touched.cells), payment)
    following = iter(given)
    allowed = accuracy.max_epsilon if accuracy.epsilon is None else least.price(accuracy).epsilon
    # Cells have independent noise, so what one unit touches adds up in coin.
    amount = exact_product(exact_sum(share.loss(coin).amount for share in paid), touched.cells)
    base = Plan(
        question=question,
        cut=taken,
        cells=domain,
        contribution=touched,
        shares=tuple(None if ask is None else next(following) for ask in asks),
        loss=Loss(coin, amount, payment if payment is not None and not probe else Decimal(0)),
        most=None if allowed is None else amount_within(coin, allowed, converted),
        epsilon=own_epsilon(paid, touched.cells, converted),
        conversion_delta=converted,
        digest=digest + context,
        context=context,
        beta=accuracy.beta,
        presence=presence,
        staged=staged,
        wider=(),
        probe=probe,
        dear=None if probe else (least.refusal(accuracy) if amount < floor else None) or dear,
    )
    return base if base.free else least.raised(base, tuple(asked), accuracy, longest, shares_views(base))


def _asks(question: Question, touched: Contribution, wishes: Wishes, staged: bool) -> list[Ask | None]:
    """What is wanted of each statistic at a fixed price; what only a staged decision looks at has none.

    Numbers that are shown beside a staged decision have noise of their own: that of the decision has chosen which
    groups are shown, and an interval around it would not hold what it says.
    """
    judged = {atom.statistic for atom in atoms(question.having)} if question.having is not None and not staged else ()
    shown = {terms for column in question.columns for terms in column.wanted}
    return [
        Ask(bound, _margin(question, statistic, bound, wishes, at in judged), at in judged, statistic.terms in shown)
        if not staged or statistic.terms in shown
        else None
        for at, (statistic, bound) in enumerate(zip(question.statistics, touched.statistics, strict=True))
    ]


def _of_nothing(question: Question) -> bool:
    """Whether no row can be counted, whatever the data: tools ask so for the shape of an answer."""
    return question.where == Always(False) and question.having is None


def lattice_unit(question: Question, statistic: Statistic) -> Fraction:
    """What one lattice number of a statistic is: of a sum with a count taken off, that of the sum."""
    sums = [term for term in statistic.terms if question.measures[term[0]].kind in SUMS]
    measure, coefficient = (sums or statistic.terms)[0]
    return question.measures[measure].unit / abs(coefficient)


def _margin(question: Question, statistic: Statistic, bound: int, wishes: Wishes, decided: bool) -> int:
    """The margin in lattice numbers: in units of what one privacy unit moves, or in the aggregate's own units."""
    margin = wishes.accuracy.margin
    if margin.in_units:
        return margin.lattice(bound)
    if not decided:
        return math.floor(Fraction(margin.amount) / lattice_unit(question, statistic))
    measure, coefficient = statistic.terms[0]
    return math.floor(Fraction(margin.amount) * abs(coefficient) / question.measures[measure].unit)


def setting_digest(question: Question, reading: Reading) -> str:
    """Constants of date and time types mean what the session's settings say: another setting, another question.

    So may those of types that are not known here: a domain over dates, a range of them.
    """
    types = set(re.findall(r"type_name='([^']*)'", repr((question.where, question.keys, question.measures))))
    if {base_type(name) for name in types} <= _SETTLED:
        return ""
    return "/" + ",".join(f"{name}={value}" for name, value in sorted(reading.carried.items()))
