"""Attacks on questions that are answered at once, from what the analyst knows: other people's knowledge, old data,
settings that have changed, numbers that change; and both ways to an answer give the same one.

A proxy in a thread of this process, so that a test sees which way a question went (``monkeypatch``).
"""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from attack_world import Hospital, proxy_here

from provenance.migrate import migrate
from proxy import asking, warm
from proxy.express import Express

SCHEMA = """
CREATE TABLE stay (id int PRIMARY KEY, g int NOT NULL, a int, s smallint, c text);
INSERT INTO stay SELECT i, i % 5, nullif(i % 12, 7), i % 3, (ARRAY['x', 'y''s', 'Z', NULL])[1 + i % 4]
FROM generate_series(1, 400) i;
"""
REGISTER = """
-- A least price of a scan that is a fraction of so large a limit would be above every price that is tested here.
UPDATE provenance.deployment SET epsilon = 1000000, scan_floor = 0;
SELECT provenance.protect('stay', changes => 'frozen');
SELECT provenance.declare_attribute('stay', 'g', lower => 0, upper => 4, step => 1);
SELECT provenance.declare_attribute('stay', 'a', lower => 0, upper => 11, step => 1);
SELECT provenance.declare_attribute('stay', 's', lower => 0, upper => 2, step => 1);
SELECT provenance.declare_attribute('stay', 'c', members => ARRAY['x', 'y''s', 'Z']);
"""
WHOLE = "SELECT g, a, s, c, count(*) FROM stay GROUP BY g, a, s, c"
RANGE = "SELECT count(*) FROM stay WHERE a BETWEEN {} AND {}"
_numbers = itertools.count(1)


@dataclass
class Session:
    connection: psycopg.Connection[Any]
    bills: list[dict[str, Any]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.connection.info.user

    def ask(self, text: str, *values: Any, margin: str | None = None) -> list[Any]:
        if margin is not None:
            self.connection.execute(f"SET veil.margin = '{margin}'".encode())
        return self.connection.execute(text.encode(), values or None).fetchall()

    @property
    def free(self) -> bool:
        return bool(self.bills[-1]["charged"] == "0" and self.bills[-1]["reused"])

    @property
    def way(self) -> str:
        (found,) = self.bills[-1]["ways"]
        return str(found)


@dataclass
class Office:
    hospital: Hospital
    owner: psycopg.Connection[Any]
    open: list[psycopg.Connection[Any]] = field(default_factory=list)

    def sit(self) -> Session:
        name = self.hospital.new_analyst(f"warm_{os.getpid()}_{next(_numbers)}")
        session = Session(self.hospital.connect(name))
        session.connection.add_notice_handler(
            lambda notice: session.bills.append(json.loads(notice.message_detail or "{}"))
        )
        session.connection.execute("SET veil.raw = on")
        self.open.append(session.connection)
        return session

    def knowing(self, margin: str = "2u") -> Session:
        """Somebody who has paid for the histogram, and asks for little accuracy from now on."""
        session = self.sit()
        session.ask(WHOLE, margin=margin)
        session.ask(RANGE.format(0, 0), margin="3000u")
        assert session.way.startswith("reuse on ")
        return session

    def rows(self, name: str) -> tuple[int, int]:
        """Charges and stored answers of an analyst."""
        row = self.owner.execute(
            "SELECT (SELECT count(*) FROM provenance.charge WHERE analyst = %(a)s),"
            " (SELECT count(*) FROM provenance.synopsis WHERE analyst = %(a)s)",
            {"a": name},
        ).fetchone()
        assert row is not None
        return int(row[0]), int(row[1])


@pytest.fixture(scope="module")
def house(postgres, shadow_server) -> Iterator[Office]:  # type: ignore[no-untyped-def]
    dsn: str = postgres.new_database("warm")
    migrate(dsn)
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute(SCHEMA + REGISTER)
        owner.execute("SELECT provenance.register_view('stay', '{g,a,s,c}')")
        with proxy_here(dsn, shadow_server.admin_dsn) as hospital:
            yield Office(hospital, owner)


@pytest.fixture
def office(house: Office) -> Iterator[Office]:
    """Every test starts with nothing released, and leaves nobody connected."""
    house.owner.execute("SELECT provenance.refresh('stay')")
    yield house
    while house.open:
        house.open.pop().close()


@pytest.fixture
def went(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each question was answered at once."""
    found: list[bool] = []
    real = warm.at_once

    async def watched(*arguments: Any) -> Any:
        told = await real(*arguments)
        found.append(told is not None)
        return told

    monkeypatch.setattr(asking, "at_once", watched)
    tell = Express.tell

    async def told(self: Express, known: Any, send: Callable[[bytes], None], otherwise: Callable[[], object]) -> None:
        def noted(data: bytes) -> None:
            found.append(True)  # before the client, in another thread, has the answer and looks here
            send(data)

        await tell(self, known, noted, otherwise)

    monkeypatch.setattr(Express, "tell", told)
    return found


@pytest.fixture
def long_way(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    async def never(*arguments: Any) -> None:
        return None

    monkeypatch.setattr(asking, "at_once", never)
    without_express(monkeypatch)
    return monkeypatch


def without_express(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Express, "find", lambda *_: None)
    monkeypatch.setattr(Express, "find_bound", lambda *_: None)


def predicate(dice: random.Random) -> str:
    """A random condition on the dimensions, whose constants can be lifted, or cannot."""
    number = dice.randint(-1, 13)
    return dice.choice(
        (
            f"a {dice.choice(('<', '<=', '>', '>=', '=', '<>', '!='))} {number}",
            f"a BETWEEN {abs(number)} AND {abs(number) + dice.randint(-1, 9)}",
            f"g >= {abs(number)}",
            f"s = {abs(number) % 3}",
            f"c {dice.choice(('=', '<>'))} '{dice.choice(('x', 'Z', 'z', 'unknown', chr(39) * 2 + 's'))}'",
            f"a IN ({number}, {number + 2})",
            f"(a = {abs(number)} OR g = {dice.randint(0, 4)})",
            f"NOT a > {abs(number)}",
            f"a > {number}.5",
            "a IS NOT NULL",
            "c LIKE 'y%%'",
        )
    )


def texts(seed: int, count: int) -> list[str]:
    dice = random.Random(seed)
    conditions = [" AND ".join(predicate(dice) for _ in range(dice.randint(1, 3))) for _ in range(count)]
    return [
        f"SELECT {dice.choice(('count(*)', 's, count(*)', 'c, count(*)'))} FROM stay WHERE {each}".replace("%%", "%")
        for each in conditions
    ]


def whole(text: str) -> str:
    keys = text.split(" FROM")[0].removeprefix("SELECT ").split(", count")[0]
    return text if keys.startswith("count") else f"{text} GROUP BY {keys}"


@pytest.mark.parametrize("count", [40, pytest.param(500, marks=(pytest.mark.slow, pytest.mark.timeout(1200)))])
def test_both_ways_give_the_same_numbers(
    office: Office, went: list[bool], monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    session = office.knowing()
    asked = [whole(text) for text in texts(count, count)]
    asked += [RANGE.format(low, low + 3) for low in range(8)]
    before = office.rows(session.name)
    twice = [[(session.ask(text), session.bills[-1].get("ways")) for text in asked] for _ in range(2)]
    quick = sum(went)
    free = [text for text, (_, ways) in zip(asked, twice[1], strict=True) if ways and ways[0].startswith("reuse on ")]
    assert quick > count / 3 and len(free) > count / 3
    monkeypatch.undo()
    monkeypatch.setattr(asking, "at_once", _never)
    without_express(monkeypatch)
    plainly = [(session.ask(text), session.bills[-1].get("ways")) for text in asked]
    assert twice[0] == twice[1] == plainly
    paid = [text for text in asked if text not in free]
    assert office.rows(session.name)[0] - before[0] <= len(paid), "what was free has left nothing behind"


async def _never(*arguments: Any) -> None:
    return None


def test_parameters_are_the_constants_that_they_are_bound_to(office: Office, went: list[bool]) -> None:
    session = office.knowing()
    text = "SELECT count(*) FROM stay WHERE a BETWEEN %s AND %s AND c = %s"
    session.ask(text, 0, 5, "x")
    went.clear()
    for low, high, word in ((1, 4, "x"), (2, 9, "Z"), (0, 11, "y's"), (3, 3, "nobody")):
        told = session.ask(text, low, high, word)
        escaped = word.replace("'", "''")
        assert session.ask(f"SELECT count(*) FROM stay WHERE a BETWEEN {low} AND {high} AND c = '{escaped}'") == told
    assert went[0] and any(went[2::2])
    session.ask(text, None, 5, "x")
    assert not went[-1], "NULL is no constant like the others"


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("prepare", [False, True])
def test_however_a_driver_asks_it_is_told_the_same(
    office: Office, went: list[bool], binary: bool, prepare: bool
) -> None:
    session = office.knowing()
    text = "SELECT s, c, count(*) FROM stay WHERE a < %s GROUP BY s, c"
    plain = {high: session.ask(text.replace("%s", str(high))) for high in range(1, 12)}
    before = office.rows(session.name)
    for _ in range(2):
        for high, rows in plain.items():
            assert session.connection.execute(text, (high,), prepare=prepare, binary=binary).fetchall() == rows
            assert session.free
    assert all(went[-8:]) and office.rows(session.name) == before


def test_free_questions_leave_nothing_behind(office: Office, went: list[bool]) -> None:
    session = office.knowing()
    before = office.rows(session.name)
    for low, high in itertools.combinations(range(12), 2):
        session.ask(RANGE.format(low, high))
        assert session.free
    assert all(went) and len(went) == 66
    assert office.rows(session.name) == before


def test_what_another_analyst_knows_is_paid_for(office: Office, went: list[bool]) -> None:
    rich, poor = office.knowing(), office.sit()
    numbers = [rich.ask(RANGE.format(low, 11)) for low in range(6)]
    went.clear()
    told = [poor.ask(RANGE.format(low, 11), margin="3000u") for low in range(6)]
    assert not any(went) and poor.bills[0]["charged"] != "0" and not poor.bills[0]["reused"]
    assert told != numbers


def test_new_data_end_what_was_known(office: Office, went: list[bool]) -> None:
    session = office.knowing()
    session.ask(RANGE.format(1, 5))
    assert went[-1] and session.free
    office.owner.execute("SELECT provenance.refresh('stay')")
    session.ask(RANGE.format(2, 6))
    assert not went[-1] and not session.free


def test_a_view_that_is_not_registered_any_more_answers_nothing_new(office: Office, went: list[bool]) -> None:
    session = office.knowing()
    session.ask(RANGE.format(1, 5))
    assert went[-1]
    office.owner.execute("UPDATE provenance.view SET registered = false WHERE dimensions @> '{c,a}'")
    try:
        session.ask(RANGE.format(2, 6))
        assert not went[-1] and not session.free
    finally:
        office.owner.execute("UPDATE provenance.view SET registered = true WHERE dimensions @> '{c,a}'")


def test_who_is_not_active_any_more_is_told_nothing(office: Office) -> None:
    session = office.knowing()
    session.ask(RANGE.format(1, 5))
    office.owner.execute("UPDATE provenance.analyst SET active = false WHERE name = %s", (session.name,))
    for text in (RANGE.format(2, 6), RANGE.format(1, 5)):
        with pytest.raises(psycopg.errors.InvalidAuthorizationSpecification):
            session.ask(text)


def test_who_has_nothing_left_is_still_told_what_is_known_and_nothing_else(office: Office, went: list[bool]) -> None:
    session = office.knowing()
    office.owner.execute("UPDATE provenance.analyst SET epsilon_limit = 0.000001 WHERE name = %s", (session.name,))
    session.ask(RANGE.format(2, 6))
    assert went[-1] and session.free and session.bills[-1]["remaining_epsilon"] <= 0
    with pytest.raises(psycopg.errors.ConfigurationLimitExceeded):
        session.ask(RANGE.format(2, 6), margin="1u")


def test_settings_that_changed_since_the_last_question_are_noticed(office: Office, went: list[bool]) -> None:
    session = office.knowing()
    session.ask(RANGE.format(1, 5))
    session.ask(RANGE.format(1, 6), margin="1u")
    assert not session.free, "what was begun under the old margin is thrown away"
    session.ask(RANGE.format(1, 7), margin="3000u")
    session.ask(RANGE.format(1, 8))
    assert went[-1] and session.free
    with session.connection.transaction():
        session.connection.execute("SET LOCAL veil.margin = '1u'")
        session.ask(RANGE.format(2, 8))
        assert not session.free
    session.connection.execute("SET veil.margin = 'wide'")
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        session.ask(RANGE.format(3, 8))


def test_a_temporary_table_of_the_same_name_is_read_instead(office: Office) -> None:
    session = office.knowing()
    session.ask(RANGE.format(1, 5))
    session.connection.execute("CREATE TEMP TABLE stay AS SELECT 3 AS a FROM generate_series(1, 7)")
    assert session.ask(RANGE.format(2, 5)) == [(7,)]
    session.connection.execute("DROP TABLE stay")
    session.ask(RANGE.format(2, 6))
    assert session.free


def test_an_answer_that_was_paid_for_is_shown_again_though_more_is_known(office: Office, went: list[bool]) -> None:
    session = office.sit()
    paid = session.ask(RANGE.format(2, 6), margin="3000u")
    assert not session.free
    session.ask(WHOLE, margin="2u")
    session.ask(RANGE.format(1, 5), margin="3000u")
    session.ask(RANGE.format(1, 6))
    assert went[-1] and session.free
    assert session.ask(RANGE.format(2, 6)) == paid and session.free
    went.clear()
    session.ask(RANGE.format(2, 6), margin="5000u")  # from its own view, which was known first
    assert session.way == "reuse" and not any(went)


def test_the_same_question_shows_the_same_numbers_after_more_was_learned(
    office: Office, went: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = office.knowing()
    asked = [RANGE.format(low, 9) for low in range(9)]
    before = [session.ask(text) for text in asked]
    histogram = session.ask(WHOLE, margin="2u")
    finer = session.ask(WHOLE, margin="1u")
    assert finer != histogram and not session.free
    again = [session.ask(text, margin="3000u") for text in asked]
    assert again == before and all(went[-5:])
    monkeypatch.undo()
    monkeypatch.setattr(asking, "at_once", _never)
    without_express(monkeypatch)
    assert [session.ask(text) for text in asked] == before


def test_numbers_from_what_is_known_in_part_are_stored(office: Office, went: list[bool]) -> None:
    """The noise that was added is replaced when it is narrowed: what it showed could not be worked out again."""
    office.sit().ask(WHOLE, margin="10u")
    session = office.sit()
    session.ask(WHOLE, margin="60u")
    assert session.way == "derive"
    known = session.ask(RANGE.format(3, 8), margin="9000u")
    assert session.way.startswith("reuse on ") and session.free and not any(went)
    session.ask(WHOLE, margin="30u")
    assert session.way == "derive"
    assert session.ask(RANGE.format(3, 8), margin="9000u") == known and session.free


def test_a_cap_below_the_full_price_lets_through_what_costs_less_now(office: Office) -> None:
    """veil.max_epsilon bounds what the analyst would pay, not what the question would cost a newcomer."""
    session = office.knowing()
    session.connection.execute("SET veil.max_epsilon = '0.0001'")
    session.ask(RANGE.format(2, 7), margin="900u")
    assert session.free
    with pytest.raises(psycopg.Error) as refused:
        session.ask("SELECT count(*) FROM stay WHERE id < 100", margin="2u")
    assert refused.value.sqlstate == "54000"


def test_constants_that_decide_a_condition_do_not_stand_for_others(office: Office) -> None:
    """With marks in the place of its constants a HAVING may be decided which with other constants is not."""
    session = office.knowing()
    text = "SELECT g, count(*) FROM stay WHERE a >= %s GROUP BY g HAVING count(*) > %s OR count(*) <= %s"
    session.connection.execute("SET veil.margin = '3000u'")
    for at in range(4):
        assert session.connection.execute(text, (at % 2, 5, 5), prepare=True).fetchall()
    assert session.connection.execute(text, (1, 30_000, -1), prepare=True).fetchall() == []
