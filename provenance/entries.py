"""Rows of the books into values, and values into rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from mechanisms.loss import Coin, Loss
from provenance import accountant
from provenance.bounds import Bounds, Layer, Quote, Quoted, Stand
from provenance.errors import NotActive, StaleCatalog
from provenance.model import (
    Allocation,
    Analyst,
    Balance,
    Balances,
    Charge,
    Deployment,
    Grant,
    Lending,
    Limited,
    Part,
    PredicateLoss,
    Receipt,
    Stage,
    View,
)


@dataclass(frozen=True, slots=True)
class Held:
    """What was ever reserved for a staged question, in coin: by the analyst, of the table, for each view."""

    loss: Loss
    table: Decimal
    parts: tuple[tuple[int, Decimal, Decimal], ...] = ()  # (view, amount, table) in the order of the charge's parts
    grants: Mapping[int, Decimal] = field(default_factory=dict)  # what each grant paid
    regions: tuple[str, ...] = ()  # where all of it fell

    @classmethod
    def foreseen(cls, receipt: Receipt) -> Held:
        """What the books will tell, if they know no more than the receipt does."""
        charge, paid = receipt.charge, receipt.paid
        first = cls(charge.loss, charge.table_amount)
        grown = first.grown(replace(charge, parts=()), paid.amount)[0]
        return cls(paid, accountant.EXACT.add(charge.table_amount, grown))

    def grown(self, charge: Charge, amount: Decimal) -> tuple[Decimal, dict[int, tuple[Decimal, Decimal]]]:
        """What the table and each view lose more where the analyst's amount becomes ``amount``, in proportion to the
        first reservation; negative where it shrinks, and never by more than the analyst's own.
        """
        first = charge.loss.amount

        def change(part: Decimal, before: Decimal, bound: Decimal) -> Decimal:
            """Not beyond the bound in the bound's direction, and not in the other one."""
            more = accountant.EXACT.subtract(accountant.in_proportion(part, first, amount), before)
            return max(min(more, bound), Decimal(0)) if bound >= 0 else min(max(more, bound), Decimal(0))

        own = accountant.EXACT.subtract(amount, self.loss.amount)
        table = change(charge.table_amount, self.table, own)
        parts = {}
        for part, (view, learned, released) in zip(charge.parts, self.parts, strict=bool(self.parts)):
            parts[view] = change(part.amount, learned, own), change(part.table, released, table)
        return table, parts


def held_of(charge: Charge, row: TupleRow, parts: Iterable[TupleRow]) -> Held:
    """What was reserved, as ``ledger_sql.HELD`` and ``HELD_VIEWS`` tell it."""
    grants = {int(id_): Decimal(amount) for id_, amount in (row[4] or {}).items()}
    views = tuple((int(part[1]), part[5], part[6]) for part in parts)
    return Held(Loss(charge.loss.coin, row[0], row[1]), row[3], views, grants, tuple(row[5]))


def deployment_of(row: TupleRow) -> Deployment:
    """The deployment as a row of ``ledger_sql.STATE`` tells it."""
    limits = Coin(row[0]), row[1], row[2], Allocation(row[3]), row[4], row[5], row[6]
    return Deployment(*limits, int(row[7]), int(row[8]), int(row[14]), row[15])


def analyst_of(row: TupleRow) -> Analyst:
    """The analyst as a row of ``ledger_sql.STATE`` tells it."""
    settings = {key: value if isinstance(value, str) else str(value) for key, value in row[12].items()}
    return Analyst(row[9], row[10], row[11], settings, row[13], row[16])


def state_of(row: TupleRow | None, name: str) -> tuple[Deployment, Analyst]:
    """Both; somebody who is not there is refused."""
    if row is None or row[9] is None:
        raise NotActive(f'there is no analyst "{name}"')
    return deployment_of(row), analyst_of(row)


def label_of(charge: Charge, deployment: Deployment, relation: TupleRow | None) -> str:
    """The relation's name, if the charge was priced under the present versions."""
    if relation is None or charge.registry_version != deployment.registry_version:
        raise StaleCatalog("the registry has changed since the question was read", hint="Ask again.")
    if charge.data_version != relation[0]:
        raise StaleCatalog("the data have been refreshed since the question was read", hint="Ask again.")
    if charge.loss.coin is not deployment.coin:
        raise StaleCatalog("the coin of the deployment has changed since the question was priced", hint="Ask again.")
    return str(relation[1])


def check_joined(charges: Iterable[Charge], rows: Iterable[TupleRow]) -> None:
    """Refuse charges of which a joined relation has other data than the question was planned on."""
    present = {int(id_): int(version) for id_, version in rows}
    for charge in charges:
        if any(present.get(relation) != version for relation, version in charge.joined_versions):
            raise StaleCatalog("the data have been refreshed since the question was read", hint="Ask again.")


def balances_of(
    rows: Iterable[TupleRow],
    circumstances: TupleRow | None,
    deployment: Deployment,
    analyst: Analyst,
    views: Iterable[TupleRow] = (),
    limited: Iterable[TupleRow] = (),
) -> Balances:
    """What is spent so far, and what is lent."""
    by_scope = {scope: Balance(amount, delta) for scope, amount, delta in rows}
    _, _, group, group_delta, lent = circumstances or (None, False, None, None, None)
    return Balances(
        analyst=by_scope["analyst"],
        table=by_scope["table"],
        views={int(row[1]): View(int(row[1]), row[2], row[3], row[4]) for row in views},
        lending=_lending(lent or [], deployment, analyst.name),
        coalition=None if group is None else Balance(group, group_delta),
        relations={int(row[0]): Limited(*row[1:]) for row in limited},
    )


def _lending(rows: Iterable[Sequence[Any]], deployment: Deployment, name: str) -> Lending:
    """Grants as ``ledger_sql.CIRCUMSTANCES`` tells them."""
    given, drawn, grants = Decimal(0), Decimal(0), list[Grant]()
    for id_, grantor, epsilon, used, usable, privilege, epsilon_limit, learned, lent, borrowed in rows:
        if grantor == name:
            given = accountant.EXACT.add(given, Decimal(used))
            continue
        drawn = accountant.EXACT.add(drawn, Decimal(used))
        if usable:
            whose = Analyst(grantor, privilege, None if epsilon_limit is None else Decimal(epsilon_limit), {}, True)
            most = accountant.worth(deployment, accountant.limit(deployment, whose))
            lent_out = accountant.EXACT.subtract(Decimal(lent), Decimal(borrowed))
            counted = accountant.EXACT.add(Decimal(learned), lent_out)
            left = accountant.EXACT.subtract(accountant.worth(deployment, Decimal(epsilon)), Decimal(used))
            room = max(Decimal(0), accountant.EXACT.subtract(most, counted))
            grants.append(Grant(int(id_), grantor, max(Decimal(0), left), room))
    return Lending(given, drawn, tuple(grants))


def wanted(parts: Iterable[tuple[int, Part]]) -> Jsonb:
    """Parts of relations as ``provenance.open_views`` takes them."""
    return Jsonb([[relation, sorted(part.dimensions), part.measure] for relation, part in parts])


def layers_wanted(layers: Iterable[Layer], bounds: Bounds) -> Jsonb:
    """Layers as ``ledger_sql.LAYERS`` and ``CHANGES`` take them, with the versions in memory."""
    keys = [(each.scope, each.name, each.relation_id, each.data_version) for each in layers]
    return Jsonb([[*key, bounds.kept(Layer(*key)).version] for key in keys])


def stands_of(rows: Iterable[TupleRow]) -> dict[Layer, Stand]:
    """The layers as ``ledger_sql.LAYERS`` tells them."""
    return {Layer(row[0], row[1], int(row[2]), int(row[3])): Stand(int(row[4]), row[5]) for row in rows}


def changes_of(rows: Iterable[TupleRow]) -> dict[Layer, tuple[int, dict[str, Decimal]]]:
    """The layers as ``ledger_sql.CHANGES`` tells them: the version, and the regions that changed."""
    found: dict[Layer, tuple[int, dict[str, Decimal]]] = {}
    for scope, name, relation, data, version, _, region, amount in rows:
        changes = found.setdefault(Layer(scope, name, int(relation), int(data)), (int(version), {}))[1]
        if region is not None:
            changes[region] = amount
    return found


class Counting:
    """By how much rows of one transaction move the balances, one after the other."""

    def __init__(self, stands: Mapping[Layer, Stand]) -> None:
        self._stands = dict(stands)
        self.booked: list[tuple[Quote, Stand, bool]] = []  # with whether the quote fitted
        self.fits = True
        """Whether every quote was about these books."""
        self.sure = True
        """Whether every quote was exact: no smaller number would have been right."""

    def count(self, quoted: Quoted, amount: Decimal, table: Decimal) -> tuple[Decimal, Decimal]:
        """What the next row counts for: of the analyst, and of the protected database."""
        return self._one(quoted.own, amount), self._one(quoted.table, table)

    def _one(self, quote: Quote, amount: Decimal) -> Decimal:
        before = self._stands.get(quote.layer, Stand())
        after = self._stands[quote.layer] = quote.booked(before, amount)
        fits = quote.fits(before, amount)
        self.booked.append((quote, before, fits))
        self.fits = self.fits and fits
        self.sure = self.sure and (quote.exact or not amount)
        return accountant.EXACT.subtract(after.bound, before.bound)


def row_of(
    charge: Charge,
    label: str,
    epsilon: Decimal,
    views: Sequence[int],
    draws: Mapping[int, Decimal],
    quoted: Quoted,
    counted: tuple[Decimal, Decimal],
) -> tuple[Any, ...]:
    """The parameters of ``ledger_sql.INSERT``."""
    return (
        *(charge.analyst, label, charge.relation_id, charge.data_version, charge.registry_version),
        *(charge.fingerprint, charge.question, charge.mechanism),
        *(charge.loss.coin.value, charge.loss.amount, charge.loss.delta, epsilon, Jsonb(dict(charge.bill))),
        *((Stage.RESERVE if charge.staged else Stage.CHARGE).value, charge.table_amount, list(views)),
        *([part.amount for part in charge.parts], [part.table for part in charge.parts]),
        *(list(draws), list(draws.values()), quoted.regions),
        *([amount for _, amount, _ in quoted.felt], [table for _, _, table in quoted.felt], *counted),
        list(charge.beside),
    )


def stage_of(
    stage: Stage,
    loss: Loss,
    epsilon: Decimal,
    bill: Mapping[str, Any],
    table: Decimal,
    parts: Mapping[int, tuple[Decimal, Decimal]],
    grants: Mapping[int, Decimal],
    quoted: Quoted,
    counted: tuple[Decimal, Decimal],
    question: int,
) -> tuple[Any, ...]:
    """The parameters of ``ledger_sql.FOLLOW``, or of ``LEVELS`` where parts gain; what is given back has a minus."""
    sign = Decimal.copy_negate if stage is Stage.SETTLE else Decimal.copy_abs
    moved = quoted.felt if quoted.own.gained else [(region, sign(loss.amount), table) for region, _, _ in quoted.felt]
    return (
        *(stage.value, sign(loss.amount), sign(loss.delta), epsilon, Jsonb(dict(bill)), table),
        *([amount for amount, _ in parts.values()], [released for _, released in parts.values()]),
        *(list(grants), [sign(amount) for amount in grants.values()]),
        *((quoted.regions,) if quoted.own.gained else ()),
        *([amount for _, amount, _ in moved], [released for _, _, released in moved], *counted, question),
    )


def same_of(charge: Charge) -> tuple[Any, ...]:
    """The parameters of ``ledger_sql.ANSWERED``."""
    return (charge.analyst, charge.relation_id, charge.data_version, charge.fingerprint, charge.accuracy)


def losses_of(charge: int | None, groups: PredicateLoss) -> tuple[Any, ...]:
    """The parameters of ``ledger_sql.LOSSES``."""
    return (charge, list(groups.levels), groups.packed(), groups.groups, groups.min_entropy)
