"""What the books say about regions, against the truth: every point of a small domain is looked at."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from decimal import ROUND_DOWN, Decimal, localcontext
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import psycopg
from overlap_sets import POINTS, region

from mechanisms.loss import QUANTUM, Coin, Loss
from provenance.extent import Members
from provenance.model import Charge, Felt, Receipt
from provenance.region import EVERYWHERE, Region, coin

UNLIMITED = "UPDATE provenance.deployment SET epsilon = 1000000; UPDATE provenance.analyst SET epsilon_limit = 1000000"
Layer = tuple[str, str, int, int]


def place(conn: psycopg.Connection[Any], relation: str = "patient") -> tuple[int, int, int, str]:
    """The versions that a charge is priced under, and the coin."""
    row = conn.execute(
        "SELECT r.id, r.data_version, d.registry_version, d.coin FROM provenance.relation r, provenance.deployment d"
        " WHERE r.label = %s AND r.active",
        (relation,),
    ).fetchone()
    assert row is not None
    return row


def charge_on(
    where: tuple[int, int, int, str], analyst: str, *felt: tuple[Region, Decimal, Decimal], staged: bool = False
) -> Charge:
    """A charge that falls on these regions; the loss is the sum, as if they overlapped."""
    loss = sum((amount for _, amount, _ in felt), Decimal(0))
    table = sum((table for _, _, table in felt), Decimal(0))
    relation, data, registry, name = where
    charge = Charge(analyst, relation, data, registry, "f00d", "SELECT 1", "tslm", Loss(Coin(name), loss), table=table)
    return replace(charge, staged=staged, felt=tuple(Felt(*one) for one in felt))


def random_charge(random: Random, where: tuple[int, int, int, str], analyst: str, attributes: str) -> Charge:
    """On one to three regions, a part of it paid by the database; a question with stages falls on one, in full."""
    staged = random.random() < 0.4
    felt = []
    for _ in range(1 if staged else random.choice((1, 1, 2, 3))):
        amount = random.choice(
            (Decimal("0.05"), Decimal(random.randint(1, 9)) / 100, coin(random.randrange(1, 10**17)))
        )
        table = random.choice((amount, amount, Decimal(0), (amount / 2).quantize(QUANTUM)))
        felt.append((random.choice((region(random, attributes), EVERYWHERE)), amount, table))
    return charge_on(where, analyst, *felt, staged=staged)


def some_levels(random: Random, receipt: Receipt, reached: Decimal) -> list[tuple[Region, Decimal]]:
    """Parts of a question's region, told apart on one attribute, each with a level of its own."""
    whole, name = receipt.charge.felt[0].region, random.choice("ab")
    found = []
    for members in ((0, 1), (2,), (3, 5)):
        part = whole.intersection(Region.of({name: Members.of(*members)}))
        if not part.empty:
            found.append((part, (reached * random.randint(0, 3) / 3).quantize(QUANTUM, ROUND_DOWN)))
    return found


def weights(conn: psycopg.Connection[Any]) -> dict[Layer, dict[Region, Decimal]]:
    """What each region of each layer has lost, from the journal alone."""
    found: dict[Layer, dict[Region, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    for row in conn.execute(
        "SELECT analyst, relation_id, data_version, amount, table_amount, regions, region_amounts, region_tables"
        " FROM provenance.charge WHERE mechanism <> 'gap' ORDER BY id"
    ):
        who, relation, data, amount, table, regions, amounts, tables = row
        if not regions:
            regions, amounts, tables = ["{}"], [amount], [table]
        for text, own, lost in zip(regions, amounts, tables, strict=True):
            found["analyst", who, relation, data][Region.parse(text)] += own
            found["table", "", relation, data][Region.parse(text)] += lost
    return found


def heaviest(weighted: dict[Region, Decimal]) -> Decimal:
    """The largest total over any point, to the last digit."""
    names = sorted({name for where in weighted for name, _ in where.sides})
    totals = np.zeros((len(POINTS),) * len(names), object)
    for where, weight in weighted.items():
        covered = np.ones((), np.bool_)
        for name in names:
            extent = where.on(name)
            inside = np.array([extent is None or value in extent for value in POINTS])
            covered = np.logical_and.outer(covered, inside)
        totals += covered.astype(object) * Fraction(weight)
    most = Fraction(totals.max())
    with localcontext(prec=200):
        return Decimal(most.numerator) / Decimal(most.denominator)


def wrong(conn: psycopg.Connection[Any]) -> list[str]:
    """What the books say that is not true: nothing, if all is well."""
    with conn.transaction(), localcontext(prec=200):
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        found = []
        bounds = {tuple(row[:4]): row[4] for row in conn.execute(
            "SELECT scope, name, relation_id, data_version, bound FROM provenance.layer")}  # fmt: skip
        for layer, weighted in weights(conn).items():
            if heaviest(weighted) > bounds.get(layer, Decimal(0)):
                found.append(f"a point of {layer} has lost {heaviest(weighted)}, counted are {bounds.get(layer)}")
        sums: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
        for (scope, name, _, _), bound in bounds.items():
            sums[scope, name] += bound
        for scope, name, amount in conn.execute(
            "SELECT scope, name, amount FROM provenance.balance WHERE scope <> 'view'"
        ):
            if amount != sums[scope, name]:
                found.append(f"the balance of {scope} {name} is {amount}, its layers count {sums[scope, name]}")
        (checked,) = conn.execute("SELECT reason FROM provenance.verify_chain()").fetchall()
        return found + [checked[0]] * (checked[0] is not None)


def balances(conn: psycopg.Connection[Any]) -> dict[str, Decimal]:
    """By analyst, and of the table."""
    rows = conn.execute("SELECT scope, name, amount FROM provenance.balance WHERE scope <> 'view'").fetchall()
    return {name or scope: amount for scope, name, amount in rows}
