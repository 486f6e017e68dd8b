"""Attack: a person with many rows in a child table, asked about alone and joined, moves more than one unit may.

The same person is taken out of the parent and the child. What is measured must move by no more than the claim, for the
unit that the answer names.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from question_world import ACCOUNT, BY_ACCOUNT, BY_OWNER, BY_PATH, STAY, WARD, Server, ask
from test_question_sensitivity import Move, move, put

from mechanisms.errors import Refusal
from sqlrewrite.catalog import Catalog, Relation, UnitPath
from sqlrewrite.generate import generate
from sqlrewrite.unit import unit_name

ALONE = "SELECT ward, count(*), sum(n) FROM stay GROUP BY ward"
JOINED = "SELECT stay.ward, count(*), sum(n) FROM stay JOIN account ON stay.account = account.id GROUP BY stay.ward"
LEFT = JOINED.replace("JOIN", "LEFT JOIN")
KEYED = "SELECT sex, count(*) FROM stay JOIN account ON stay.account = account.id GROUP BY sex"


def visits(server: Server) -> None:
    """Owner 1 has two accounts with five stays each, in three wards; a few others have one."""
    wards = ("north", "south", "attic", "north", "north")
    put(server, *({"account": a, "ward": w, "n": 10} for a in (1, 2) for w in wards), {"account": 3}, {"account": None})
    server.connection.execute("UPDATE account SET owner = 1 WHERE id IN (1, 2)")


def taken_out(server: Server, text: str, catalog: Catalog, victim: str = "owner = 1") -> Move:
    return move(server, text, ask(text, catalog), f"account IN (SELECT id FROM account WHERE {victim})")


@pytest.mark.parametrize("text", [ALONE, JOINED, LEFT, KEYED])
def test_a_person_found_by_a_path_moves_no_more_than_claimed(server: Server, text: str) -> None:
    visits(server)
    made = taken_out(server, text, BY_PATH)
    assert made.within(made.claim) and made.cells, made
    # The same when two accounts are two units of their own.
    made = taken_out(server, text, BY_ACCOUNT, "id = 1")
    assert made.within(made.claim) and made.cells, made


@pytest.mark.parametrize("text", [ALONE, JOINED])
def test_a_path_that_is_forgotten_is_seen(server: Server, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: each row is a unit of its own, as it was without a declaration."""
    visits(server)
    monkeypatch.setattr("sqlrewrite.unit.own_unit", lambda sources, place: ())
    catalog = Catalog(1, (BY_PATH.relations[0], ACCOUNT, WARD))
    made = taken_out(server, text, catalog)
    assert not made.within(made.claim)


def test_a_path_and_the_same_join_are_one_unit_and_one_join() -> None:
    alone, joined, left = (ask(text, BY_PATH).question for text in (ALONE, JOINED, LEFT))
    assert {unit_name(each) for each in (alone, joined, left)} == {"account.owner through stay.account"}
    for each in (alone, joined, left):
        assert generate(each, 1).sql.count('"account" AS t') == 1 and each.unit == alone.unit
    assert 'INNER JOIN "public"."account" AS t1' in generate(alone, 1).sql


def test_the_tables_of_a_path_have_no_name_in_the_question() -> None:
    for text in ("SELECT count(*) FROM stay WHERE owner = 1", "SELECT count(*) FROM stay WHERE account.owner = 1"):
        with pytest.raises(Refusal) as caught:
            ask(text, BY_PATH)
        assert caught.value.sqlstate in ("42703", "42P01")
    with pytest.raises(Refusal):
        ask("SELECT sex, count(*) FROM stay GROUP BY sex", BY_PATH)


def test_a_row_that_leads_to_nobody_is_not_counted(server: Server) -> None:
    visits(server)
    server.connection.execute("UPDATE account SET owner = NULL WHERE id = 3")
    question = ask("SELECT count(*) FROM stay", BY_PATH).question
    assert server.rows(question) == [(3,)]  # of ten rows of one owner three count; the others belong to nobody


def test_rows_that_are_units_of_their_own_are_bounded_when_they_are_joined(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``stay`` by row, joined to accounts by owner: the owner is named, and one row moves no more than is claimed.

    The owner keeps one group. The row that makes it the smallest is taken out, and another group comes in.
    """
    catalog = Catalog(1, (STAY, replace(BY_OWNER.relations[1], max_groups=1, max_rows=1), WARD))
    assert unit_name(ask(JOINED, catalog).question) == "account.owner through stay.account"
    assert unit_name(ask(ALONE, catalog).question) == "row of stay"

    def most() -> int:
        found = []
        for ward in ("north", "south", "attic"):
            put(server, *({"account": 1, "ward": each} for each in ("north", "south", "attic")))
            made = move(server, JOINED, ask(JOINED, catalog), f"ward = '{ward}'")
            found.append(len(made.cells) - made.claim.cells)
        return max(found)

    assert most() <= 0
    monkeypatch.setattr("sqlrewrite.sensitivity.has_parts", lambda question: False)  # Mutant
    assert most() > 0


def test_units_that_differ_are_not_mixed() -> None:
    """``stay`` by account and accounts by owner: an owner has many accounts."""
    other = Catalog(1, (BY_ACCOUNT.relations[0], *BY_OWNER.relations[1:]))
    with pytest.raises(Refusal, match="different units"):
        ask(JOINED, other)
    through = replace(STAY, unit_path=UnitPath(STAY.references, ("owner",)))
    with pytest.raises(Refusal, match="different units"):
        ask(JOINED, Catalog(1, (through, replace(ACCOUNT, unit_column="sex"), WARD)))
    with pytest.raises(Refusal, match="is not registered"):
        ask(ALONE, Catalog(1, (through, WARD)))


def test_a_column_and_the_row_that_it_leads_to_are_one_unit() -> None:
    """Also where the key is int8 and the column int4: PostgreSQL compares them as numbers."""
    for type_name in ("integer", "bigint"):
        key = replace(ACCOUNT.attributes["id"], type_name=type_name)
        parent: Relation = replace(ACCOUNT, attributes={**ACCOUNT.attributes, "id": key})
        catalog = Catalog(1, (BY_ACCOUNT.relations[0], parent, WARD))
        alone, joined = ask(ALONE, catalog).question, ask(JOINED, catalog).question
        assert alone.unit == joined.unit and unit_name(joined) == "account.id through stay.account"


def test_a_table_that_is_refused_gives_its_reason() -> None:
    catalog = Catalog(1, (replace(STAY, refused="its unit is not declared"), ACCOUNT, WARD))
    with pytest.raises(Refusal, match="its unit is not declared") as caught:
        ask(ALONE, catalog)
    assert caught.value.sqlstate == "0A000"
