"""A plan is used again only where everything that it follows from is the same."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from mechanisms.loss import Coin
from proxy import messages as m
from proxy import remembered as module
from proxy.reading import Reading
from proxy.recent import Recent
from proxy.remembered import remembered
from proxy.wishes import Wishes
from sqlrewrite.domain import DomainQuery
from sqlrewrite.question import Literal

TEXT = "SELECT count(*) FROM patient_data WHERE age > $1"
READING = Reading(
    settings={},
    carried={"TimeZone": "UTC", "DateStyle": "ISO, MDY"},
    resolved={(None, "patient_data"): ("public", "patient_data")},
    seen=frozenset({("public", "patient_data")}),
    columns=(m.Field("count", 0, 0, 20, 8, -1, 0),),
    parameters=(Literal("40", "integer"),),
    parameter_oids=(23,),
    in_block=False,
    circumstances=("demo", "UTC", "ISO, MDY", "public"),
)
OTHERS = {
    "text": lambda: (TEXT + " ", READING, Wishes.read({})),
    "value": lambda: (TEXT, replace(READING, parameters=(Literal("41", "integer"),)), Wishes.read({})),
    "null": lambda: (TEXT, replace(READING, parameters=(Literal(None, "integer"),)), Wishes.read({})),
    "type": lambda: (TEXT, replace(READING, parameters=(Literal("40", "numeric"),)), Wishes.read({})),
    "oid": lambda: (TEXT, replace(READING, parameter_oids=(20,)), Wishes.read({})),
    "meaning": lambda: (
        TEXT,
        replace(READING, resolved={(None, "patient_data"): ("b", "patient_data")}),
        Wishes.read({}),
    ),
    "no meaning": lambda: (TEXT, replace(READING, resolved={(None, "patient_data"): None}), Wishes.read({})),
    "other reader": lambda: (TEXT, replace(READING, seen=frozenset()), Wishes.read({})),
    "in a block": lambda: (TEXT, replace(READING, in_block=True), Wishes.read({})),
    "generation": lambda: (
        TEXT,
        replace(READING, circumstances=("demo_2", *READING.circumstances[1:])),
        Wishes.read({}),
    ),
    "setting": lambda: (TEXT, replace(READING, circumstances=("demo", "CET", "ISO, MDY", "public")), Wishes.read({})),
    "wish": lambda: (TEXT, READING, Wishes.read({"veil.margin": "10u"})),
}


def house() -> Any:
    return SimpleNamespace(plans=Recent(1_000_000), listings=Recent(1000), coin=Coin.ZCDP, delta=Decimal("1e-9"))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Plans that were really made."""
    texts: list[str] = []

    async def plan(text: str, *rest: Any) -> Any:
        texts.append(text)
        return SimpleNamespace(plans=(), mark=len(texts))

    monkeypatch.setattr(module, "plan", plan)
    return texts


async def nothing(wanted: DomainQuery) -> list[tuple[str | None, ...]]:
    raise AssertionError("no domain is asked for here")


def test_the_same_question_is_planned_once(made: list[str]) -> None:
    async def ask() -> list[Any]:
        lodging = house()
        return [await remembered(TEXT, READING, lodging, Wishes.read({}), nothing) for _ in range(3)]

    first, *again = asyncio.run(ask())
    assert all(one is first for one in again) and made == [TEXT]


@pytest.mark.parametrize("what", OTHERS)
def test_another_plan_is_made_for_another(made: list[str], what: str) -> None:
    async def ask() -> tuple[Any, Any, Any]:
        lodging = house()
        before = await remembered(TEXT, READING, lodging, Wishes.read({}), nothing)
        text, reading, wishes = OTHERS[what]()
        other = await remembered(text, reading, lodging, wishes, nothing)
        return before, other, await remembered(TEXT, READING, lodging, Wishes.read({}), nothing)

    before, other, after = asyncio.run(ask())
    assert other is not before and after is before and len(made) == 2


def test_another_plan_is_made_for_another_least_price_of_a_scan(made: list[str]) -> None:
    """It depends on the analyst's limit, which is not part of the registry."""

    async def ask() -> list[Any]:
        lodging, floors = house(), [Decimal(0), Decimal("0.1"), Decimal("0.1"), Decimal(0)]
        return [await remembered(TEXT, READING, lodging, Wishes.read({}), nothing, floor) for floor in floors]

    free, dear, again, after = asyncio.run(ask())
    assert dear is again and free is after and free is not dear and len(made) == 2


def test_another_house_has_other_plans(made: list[str]) -> None:
    asyncio.run(remembered(TEXT, READING, house(), Wishes.read({}), nothing))
    asyncio.run(remembered(TEXT, READING, house(), Wishes.read({}), nothing))
    assert len(made) == 2


def test_nothing_is_remembered_where_there_may_be_temporary_objects(made: list[str]) -> None:
    lodging = house()
    for _ in range(2):
        asyncio.run(remembered(TEXT, replace(READING, circumstances=None), lodging, Wishes.read({}), nothing))
    assert len(made) == 2 and len(lodging.plans) == 0


def test_a_refusal_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    async def plan(text: str, *rest: Any) -> Any:
        asked.append(text)
        raise ValueError

    monkeypatch.setattr(module, "plan", plan)
    lodging = house()
    for _ in range(2):
        with pytest.raises(ValueError):
            asyncio.run(remembered(TEXT, READING, lodging, Wishes.read({}), nothing))
    assert len(asked) == 2


def test_a_derived_domain_is_listed_once_for_each_setting_of_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[DomainQuery] = []
    wanted = DomainQuery("SELECT 1", ())

    async def plan(text: str, reading: Reading, lodging: Any, wishes: Wishes, enumerate_: Any, floor: Decimal) -> Any:
        return SimpleNamespace(plans=(), rows=await enumerate_(wanted))

    async def enumerate_(query: DomainQuery) -> list[tuple[str | None, ...]]:
        listed.append(query)
        return [(str(len(listed)),)]

    monkeypatch.setattr(module, "plan", plan)
    lodging, elsewhere = house(), replace(READING, circumstances=("demo", "CET", "ISO, MDY", "public"))

    async def ask() -> list[Any]:
        asked = [("a", READING), ("b", READING), ("a", elsewhere), ("c", elsewhere)]
        return [(await remembered(text, how, lodging, Wishes.read({}), enumerate_)).rows for text, how in asked]

    assert asyncio.run(ask()) == [[("1",)], [("1",)], [("2",)], [("2",)]]
