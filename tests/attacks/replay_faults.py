"""Planted bugs of the known classes: record and replay must see every one of them.

A fault is planted before the proxies start, and everything else is the product. What it needs to know of the data it
takes from the exact numbers of the last question, as a careless programmer would.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import numpy as np
from replay_questions import Statement
from replay_tape import SIDE
from replay_world import Kind

import mechanisms.release
import proxy.answer
import proxy.backend
import proxy.bill
import proxy.plan
import proxy.rows
import proxy.scan
from mechanisms.account import Account
from mechanisms.errors import Refusal
from mechanisms.loss import Coin, Loss
from mechanisms.values import Noisy
from provenance.ledger import Ledger
from provenance.registry import Registry
from sqlrewrite.cells import Cells
from sqlrewrite.question import Question
from sqlrewrite.sensitivity import Contribution, sensitivity

Plant = Callable[[ExitStack], None]


@dataclass(frozen=True)
class Fault:
    """A bug, the unit that gives it away, what is asked, and which findings are about it."""

    name: str
    plant: Plant
    texts: tuple[str, ...]
    kinds: frozenset[str]
    kind: Kind = Kind()  # noqa: RUF009 (it is frozen)
    victim: Mapping[str, Any] = field(default_factory=dict)
    rows: int = 1
    traced: bool = False  # which lines are run is compared
    administer: str | None = None  # what happens to the tables once the registry has been read

    @property
    def statements(self) -> list[Statement]:
        return [Statement(self.name, text) for text in self.texts]

    @contextmanager
    def planted(self) -> Iterator[None]:
        with ExitStack() as stack:
            self.plant(stack)
            yield


def _patch(stack: ExitStack, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    stack.enter_context(mock.patch.object(owner, name, wrap(getattr(owner, name))))


def _last(stack: ExitStack) -> Callable[[], np.ndarray[Any, Any]]:
    """The exact numbers of the last question of this side."""
    seen: dict[str, Any] = {}

    def wrap(fill: Any) -> Any:
        def remember(self: Cells, rows: Any) -> Any:
            numbers = fill(self, rows)
            side = SIDE.get()
            seen["" if side is None else side.name] = numbers
            return numbers

        return remember

    _patch(stack, Cells, "fill", wrap)

    def last() -> np.ndarray[Any, Any]:
        side = SIDE.get()
        return seen.get("" if side is None else side.name, np.zeros((1, 1), dtype=np.int64))

    return last


def _claims(change: Callable[[Contribution], Contribution]) -> Plant:
    def plant(stack: ExitStack) -> None:
        def less(question: Question) -> Contribution:
            return change(sensitivity(question))

        stack.enter_context(mock.patch.object(proxy.plan, "sensitivity", less))

    return plant


def _generated(pattern: str, by: str) -> Plant:
    """The SQL for the protected database has lost something."""

    def plant(stack: ExitStack) -> None:
        def wrap(generate: Any) -> Any:
            def careless(*arguments: Any) -> Any:
                made = generate(*arguments)
                return replace(made, sql=re.sub(pattern, by, made.sql))

            return careless

        _patch(stack, proxy.answer, "generate", wrap)

    return plant


def priced_by_data(stack: ExitStack) -> None:
    """The same statement is charged once or twice, by the parity of what was counted before."""
    last = _last(stack)

    def wrap(charge_all: Any) -> Any:
        async def charge(self: Any, charges: Any, *more: Any) -> Any:
            if int(last().sum()) % 2:
                await charge_all(self, charges)
            return await charge_all(self, charges, *more)

        return charge

    _patch(stack, Ledger, "charge_all", wrap)


def released_twice(stack: ExitStack) -> None:
    """Two releases, averaged, for the price of one."""

    def wrap(measure: Any) -> Any:
        async def twice(*arguments: Any) -> Noisy:
            one, other = await measure(*arguments), await measure(*arguments)
            return Noisy((one.values + other.values) // 2, one.keys)

        return twice

    _patch(stack, proxy.answer, "measured", wrap)


def half_the_price(stack: ExitStack) -> None:
    """What a decision has released is booked with half of what it costs."""

    def wrap(total: Any) -> Any:
        def half(self: Account) -> Loss:
            loss = total(self)
            return replace(loss, amount=loss.amount / 2)

        return half

    def groups(cells: Any) -> Any:  # a settlement compares the losses of the groups with the total
        def half(self: Account) -> Any:
            losses, index = cells(self)
            return tuple(each / 2 for each in losses), index

        return half

    _patch(stack, Account, "total", wrap)
    _patch(stack, Account, "cells", groups)


def refused_if_few(stack: ExitStack) -> None:
    """An answer from few rows is refused, after the charge."""

    def wrap(fill: Any) -> Any:
        def enough(self: Cells, rows: Any) -> Any:
            values = fill(self, rows)
            if values.sum() < 1:
                raise Refusal("too few rows")
            return values

        return enough

    _patch(stack, Cells, "fill", wrap)


def groups_from_data(stack: ExitStack) -> None:
    """Only groups that have rows are shown."""
    last = _last(stack)
    _patch(
        stack,
        proxy.rows,
        "kept_of",
        lambda kept: lambda each, groups: np.intersect1d(kept(each, groups), np.flatnonzero(last()[0] > 0)),
    )


def order_from_data(stack: ExitStack) -> None:
    """The largest group comes first."""
    last = _last(stack)

    def wrap(kept: Any) -> Any:
        def ordered(each: Any, groups: Any) -> Any:
            chosen = kept(each, groups)
            return chosen[np.argsort(-last()[0][chosen], kind="stable")]

        return ordered

    _patch(stack, proxy.rows, "kept_of", wrap)


def exact_in_notice(stack: ExitStack) -> None:
    """The bill says how many rows were read."""
    last = _last(stack)
    _patch(
        stack,
        proxy.bill.Bill,
        "json",
        lambda told: lambda self: json.dumps({**json.loads(told(self)), "rows": int(last().sum())}),
    )


def branch_from_data(stack: ExitStack) -> None:
    """Something is worked out for some data, and not shown: it only takes its time."""
    last = _last(stack)

    def wrap(kept: Any) -> Any:
        def longer(each: Any, groups: Any) -> Any:
            if int(last().sum()) % 2:
                proxy.bill.nearness([{"aggregate": "", "region": "", "error": 0, "stddev": 0}])
            return kept(each, groups)

        return longer

    _patch(stack, proxy.rows, "kept_of", wrap)


def sql_from_data(stack: ExitStack) -> None:
    """The SQL of a question depends on what the last one counted."""
    last = _last(stack)

    def wrap(generate: Any) -> Any:
        def hinted(*arguments: Any) -> Any:
            made = generate(*arguments)
            return replace(made, sql=f"{made.sql} -- about {int(last().sum())} rows")

        return hinted

    _patch(stack, proxy.answer, "generate", wrap)


def domain_from_data(stack: ExitStack) -> None:
    """The wards are those that occur."""

    def wrap(load: Any) -> Any:
        async def occurring(self: Any) -> Any:
            catalog = await load(self)
            async with self._upstream.connection() as conn:
                rows = await (await conn.execute("SELECT DISTINCT ward FROM public.stay ORDER BY 1")).fetchall()
            wards = tuple(ward for (ward,) in rows if ward is not None)
            relations = tuple(
                replace(one, attributes={**one.attributes, "ward": replace(one.attributes["ward"], domain=wards)})
                if one.name == "stay"
                else one
                for one in catalog.relations
            )
            return replace(catalog, relations=relations)

        return occurring

    _patch(stack, Registry, "load", wrap)


def every_key_named(stack: ExitStack) -> None:
    """Groups of unknown keys are named however few units they have."""
    real = mechanisms.release.release_found

    def named(statistics: Any, presence: Any, shares: Any, share: Any, threshold: int, *source: Any) -> Any:
        return real(statistics, presence, shares, share, -(10**9), *source)

    stack.enter_context(mock.patch.object(mechanisms.release, "release_found", named))
    stack.enter_context(mock.patch.object(proxy.scan, "release_found", named))


def keys_as_found(stack: ExitStack) -> None:
    """Named groups come in the order in which PostgreSQL found them."""
    stack.enter_context(mock.patch.object(proxy.scan, "sorted", lambda listed, key=None: list(listed), create=True))


def stale_facts(stack: ExitStack) -> None:
    """What was read of a table is believed, whatever has become of it."""

    def wrap(prepared: Any) -> Any:
        async def believed(conn: Any, relations: Any, *more: Any) -> Any:
            await prepared(conn, relations, *more)
            return {(each.schema, each.name): each.facts for each in relations}

        return believed

    _patch(stack, proxy.backend, "_prepared", wrap)


CLAMP = r"\(CASE WHEN \(([^()]+) < (\$\d+::\w+)\) THEN \2 WHEN \(\1 > (\$\d+::\w+)\) THEN \3 ELSE"
NO_CLAMP = r"(CASE WHEN (\1 < \2) THEN \1 WHEN (\1 > \3) THEN \1 ELSE"
NO_NAN = r"(CASE WHEN (\1 < \2) THEN \2 WHEN (\1 > \3 AND \1::float8 <> 'NaN'::float8) THEN \3 ELSE"
GUARD = r"CASE WHEN \(([^()]+) >= (\$\d+::\w+)\) AND \(\1 <= (\$\d+::\w+)\) THEN \(\1::integer\) END"
NO_GUARD = r"CASE WHEN (\2 IS NOT NULL) AND (\3 IS NOT NULL) THEN (\1::integer) END"
COUNTS = ("SELECT count(*) FROM stay", "SELECT count(*) FROM stay WHERE paid")
WARDS = ("SELECT ward, count(*) FROM stay WHERE id >= 100 GROUP BY ward",)
OPEN = ("SELECT note, count(*) FROM stay GROUP BY note",)


def _fault(name: str, plant: Plant, texts: tuple[str, ...], *kinds: str, **more: Any) -> Fault:
    return Fault(name, plant, texts, frozenset(kinds), **more)


FAULTS = (
    _fault("a sensitivity too small",
           _claims(lambda c: replace(c, statistics=tuple(max(1, m - 1) for m in c.statistics))),
           ("SELECT sum(n) FROM stay",), "sensitivity", victim={"n": 10}),
    _fault("a group too few", _claims(lambda c: replace(c, groups=1, cells=1)),
           ("SELECT ward, count(*) FROM stay GROUP BY ward",), "cells", kind=Kind("account"), rows=6),
    _fault("a dropped bound", _generated(CLAMP, NO_CLAMP), ("SELECT sum(n) FROM stay",), "sensitivity",
           victim={"n": 2**31 - 1}),
    _fault("an overflow", _generated(GUARD, NO_GUARD), ("SELECT count(*) FROM stay WHERE rate::int > 0",), "client",
           victim={"rate": "1e308"}),
    _fault("NaN in a decision", _generated(CLAMP, NO_NAN),
           ("SELECT kind FROM stay GROUP BY kind HAVING sum(rate) > 3",), "client",
           victim={"rate": "NaN", "kind": "a"}),
    _fault("a domain from the data", domain_from_data, ("SELECT ward, count(*) FROM stay GROUP BY ward",), "client",
           "release", victim={"ward": "undeclared"}),
    _fault("a charge that depends on the data", priced_by_data, COUNTS, "inside"),
    _fault("two releases for one charge", released_twice, ("SELECT count(*) FROM stay",), "overspent",
           kind=Kind(coin=Coin.PURE)),
    _fault("a decision at half its price", half_the_price,
           ("SELECT kind FROM stay GROUP BY kind HAVING count(*) > 12",), "overspent", victim={"kind": "a"}),
    _fault("a refusal after the charge", refused_if_few, ("SELECT count(*) FROM stay WHERE id >= 100",), "client"),
    _fault("groups from the data", groups_from_data, WARDS, "client", victim={"ward": "attic"}),
    # Numbers below zero are shown, or else three zeros in any order would often be the same three zeros.
    _fault("an order from the data", order_from_data, ("SET veil.raw = 'on'", *WARDS), "client",
           victim={"ward": "south"}),
    _fault("an exact number in a notice", exact_in_notice, ("SELECT count(*) FROM stay",), "client"),
    _fault("a branch that depends on the data", branch_from_data, COUNTS, "lines", traced=True),
    _fault("SQL that depends on the data", sql_from_data, COUNTS, "inside"),
    _fault("keys without a threshold", every_key_named, OPEN, "key", victim={"note": "only me"}),
    _fault("keys in the order of the data", keys_as_found, ("SET veil.epsilon = '40'", *OPEN), "client",
           victim={"note": "only me"}),
    _fault("a CHECK that was dropped", stale_facts, ("SELECT sum(low) FROM stay",), "sensitivity", victim={"low": 3},
           administer="ALTER TABLE stay DROP CONSTRAINT stay_low_check; UPDATE stay SET low = 1000000 WHERE id = 100"),
)  # fmt: skip
