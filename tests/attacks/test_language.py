"""SQL that would show rows, or would let a private value decide what is seen: refused, and free."""

from __future__ import annotations

import json
from collections.abc import Callable

import psycopg
import pytest
from attack_statements import ANSWERED, LANGUAGE
from attack_world import VICTIM, Hospital, Thief, sqlstate

REFUSALS = {"0A000", "25006", "42501", "42601", "42702", "42703", "42803", "42883", "42P01", "42P09", "42P10", "428C9"}


@pytest.mark.parametrize("sql", LANGUAGE.values(), ids=LANGUAGE.keys())
def test_what_would_show_rows_is_refused_at_no_cost(thief: Thief, sql: str) -> None:
    assert sqlstate(thief.session, sql) in REFUSALS
    assert thief.charges() == []
    assert thief.session.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize(("sql", "noised"), ANSWERED.values(), ids=ANSWERED.keys())
def test_what_can_be_read_two_ways_is_read_as_postgresql_reads_it(
    session: psycopg.Connection, hospital: Hospital, spy: str, sql: str, noised: tuple[int, ...]
) -> None:
    """Nearly no noise, so that the numbers show which question was answered; a name that one row has is never shown."""
    session.execute("SET veil.epsilon = '300'")
    shown = session.execute(sql).fetchall()
    assert len(hospital.charges(spy)) == 1
    with psycopg.connect(hospital.upstream) as direct:
        direct.execute("UPDATE patient SET age = 90, ward = NULL WHERE id = -1")  # else her age overflows
        true = direct.execute(sql).fetchall()
        direct.rollback()
    people = {row[0] for row in true} if "name," in sql else {row[1] for row in true} if ", name" in sql else set()
    if people:
        assert shown == []
        return
    (at,) = noised
    for row in shown:
        likely = [0, *(one[at] for one in true if one[:at] + one[at + 1 :] == row[:at] + row[at + 1 :])]
        assert any(abs(row[at] - number) <= 1 for number in likely), (row, true)
    assert len(shown) > 1 or abs(shown[0][at] - true[0][at]) <= 1


def test_every_group_of_the_domain_is_answered_and_no_other(session: psycopg.Connection) -> None:
    """Attack: existence of a group. The attic is empty, and the victim's ward is in no domain."""
    rows = session.execute("SELECT ward, count(*) FROM patient GROUP BY ward").fetchall()
    assert {row[0] for row in rows} == {"north", "south", "attic", None}
    rows = session.execute("SELECT born, count(*) FROM patient WHERE id = -1 GROUP BY born").fetchall()
    assert [str(row[0]) for row in rows] == ["1950-01-02", "1950-01-03", "None"]


def test_intervals_make_the_same_groups_under_every_style(session: psycopg.Connection) -> None:
    """The texts of the domain would meet no row if the protected database wrote intervals in the analyst's style."""
    session.execute("SET veil.epsilon = '100'")
    for style in ("postgres", "iso_8601", "sql_standard", "postgres_verbose"):
        session.execute(f"SET IntervalStyle = {style}")
        question = f"SELECT stay = '1 day', count(*) FROM patient WHERE '{style}' <> name GROUP BY stay"
        rows = session.execute(question).fetchall()
        assert dict(rows)[True] == pytest.approx(200, abs=2)


def test_order_and_limit_act_on_noised_numbers(session: psycopg.Connection) -> None:
    """Attack: ORDER BY count(*) LIMIT 1 as an exact maximum."""
    session.execute("SET veil.epsilon = '0.001'")
    session.execute("SET veil.raw = on")  # cut off at zero, several would be the last
    rows = session.execute("SELECT ward, count(*) FROM patient GROUP BY ward ORDER BY 2 DESC").fetchall()
    shown = [row[1] for row in rows]
    assert shown == sorted(shown, reverse=True)
    (top,) = session.execute("SELECT ward FROM patient GROUP BY ward ORDER BY count(*) DESC LIMIT 1").fetchall()
    first = {ward for ward, number in rows if number == shown[0]}
    assert top[0] in first, "the hidden column must be the same noise as the shown one"


def test_one_question_in_many_spellings_is_one_charge_and_one_answer(
    session: psycopg.Connection, hospital: Hospital, spy: str
) -> None:
    """Attack: averaging the noise away by asking the same thing again."""
    spellings = (
        "SELECT count(*) FROM patient WHERE age = 3 OR age = 5",
        "select COUNT(*) as n from PATIENT where AGE in (5, 3, 3)",
        'SELECT count(*) FROM public."patient" p WHERE p.age IN (3.0, 5) -- once more',
        "SELECT count(*) FROM patient WHERE NOT (age <> 5 AND NOT age = 3)",
        "SELECT count(*) FROM patient WHERE (3 = age) OR (5) = (age) LIMIT 10",
        "SELECT (count(*)) FROM patient WHERE age IN (3, 5) AND age IN (5, 3)",
    )
    answers = {session.execute(sql).fetchall()[0][0] for sql in spellings}
    assert len(answers) == 1 and len(hospital.charges(spy)) == 1


def test_a_person_with_thousands_of_rows_moves_no_cell_beyond_the_bound(
    twins: tuple[Hospital, Hospital], names: Callable[[], str]
) -> None:
    """Attack: a person with 3,000 rows; nearly no noise, so that the bounds themselves are seen."""
    seen = []
    for hospital in twins:
        hospital.forget()
        name = hospital.new_analyst(names())
        with hospital.connect(name) as session:
            session.execute("SET veil.epsilon = '3000'")
            session.execute("SET veil.raw = on")
            seen.append(session.execute("SELECT ward, month, count(*) FROM visit GROUP BY ward, month").fetchall())
    moved = [one[2] - other[2] for one, other in zip(*seen, strict=True)]
    assert sum(1 for move in moved if move) <= 2 and all(0 <= move <= 3 for move in moved)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("veil.epsilon", value) for value in ("0", "-1", "NaN", "inf", "1e-300", "1e300", "0x10", "1e-13")],
        *[("veil.beta", value) for value in ("0", "1", "-0.1", "NaN", "1e-300")],
        *[("veil.margin", value) for value in ("-1", "NaN", "u", "-5u", "1e99")],
        *[("veil.max_epsilon", value) for value in ("0", "-1", "1e-15")],
        *[("veil.confidence", value) for value in ("0", "1", "2")],
        *[("veil.mechanism", value) for value in ("none", "exact")],
        ("veil.no_such_setting", "1"),
    ],
)
def test_settings_never_buy_an_answer_without_its_price(thief: Thief, name: str, value: str) -> None:
    """Attack: a setting that makes noise vanish or the price zero."""
    thief.session.execute(f"SET {name} = '{value}'")
    state = sqlstate(thief.session, "SELECT ward FROM patient GROUP BY ward HAVING count(*) > 50")
    thief.session.execute("RESET ALL")
    assert state in {"22023", "54000"} and thief.charges() == []


@pytest.mark.parametrize("settings", [{"beta": "0.999"}, {"margin": "0"}, {"epsilon": "1e-12"}, {"margin": "1e17"}])
def test_odd_but_lawful_settings_are_charged_what_their_noise_costs(
    session: psycopg.Connection, hospital: Hospital, spy: str, settings: dict[str, str]
) -> None:
    told: list[str] = []
    session.add_notice_handler(lambda notice: told.append(notice.message_detail or "{}"))
    session.execute("SET veil.mechanism = tslm")
    for name, value in settings.items():
        session.execute(f"SET veil.{name} = '{value}'")
    session.execute("SELECT ward FROM patient GROUP BY ward HAVING count(*) > 50")
    ((_, amount),) = hospital.charges(spy)
    bill = json.loads(told[-1])
    assert amount > 0 and float(amount) >= bill["epsilon"] ** 2 / 2


@pytest.mark.parametrize("settings", [{"beta": "0.999"}, {"alpha": "0.999"}, {"alpha": "0.000001"}, {"beta": "1e-9"}])
def test_a_certified_decision_is_charged_whether_it_is_answered_or_not(
    session: psycopg.Connection, hospital: Hospital, spy: str, settings: dict[str, str]
) -> None:
    for name, value in settings.items():
        session.execute(f"SET veil.{name} = '{value}'")
    state = sqlstate(session, "SELECT ward FROM patient GROUP BY ward HAVING count(*) > 50")
    ((_, amount),) = hospital.charges(spy)
    assert state in {None, "54000", "53400"} and amount > 0


def test_synopses_are_not_shared_between_analysts(hospital: Hospital, names: Callable[[], str]) -> None:
    """Attack: a Sybil account that reads for free what another paid for, or both seeing one draw for two prices."""
    assert _free_riders(hospital, names) == 0


def test_a_synopsis_without_its_analyst_is_seen(
    hospital: Hospital, names: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: the synopsis is looked up without the analyst."""
    import dataclasses

    from provenance.synopses import Synopses

    asked: list[str] = []
    find = Synopses.find

    async def for_everybody(self, key):  # type: ignore[no-untyped-def]
        asked.append(key.analyst)
        return await find(self, dataclasses.replace(key, analyst=asked[0]))

    monkeypatch.setattr(Synopses, "find", for_everybody)
    assert _free_riders(hospital, names) == 1


def _free_riders(hospital: Hospital, names: Callable[[], str]) -> int:
    free = 0
    for name in (names(), names()):
        hospital.new_analyst(name)
        with hospital.connect(name) as session:
            session.execute("SELECT code, count(*) FROM patient GROUP BY code")
        free += not hospital.charges(name)
    return free


def test_the_victim_is_in_one_hospital_only(twins: tuple[Hospital, Hospital]) -> None:
    """Or all the rest would prove nothing."""
    for hospital, there in zip(twins, (1, 0), strict=True):
        with psycopg.connect(hospital.upstream) as direct:
            row = direct.execute("SELECT count(*) FROM patient WHERE name = %s", (VICTIM,)).fetchone()
            assert row == (there,)
