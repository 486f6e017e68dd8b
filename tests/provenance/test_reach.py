"""What a question touches: conditions on bare columns give extents, everything else only makes the region larger.

That nobody outside a region moves an answer is tried on random texts in ``tests/attacks/test_question_regions.py``.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest

from provenance.reach import NOWHERE, group_regions, reach, separating
from provenance.region import EVERYWHERE, coin, unit_parts
from provenance.told import told
from sqlrewrite.blocks import outline
from sqlrewrite.catalog import Attribute, Catalog, Changes, Kind, Reference, Relation
from sqlrewrite.cells import cells
from sqlrewrite.cut import cut
from sqlrewrite.folding import columns, questions
from sqlrewrite.question import Literal, Question
from sqlrewrite.read import read

SICK = Relation(
    1, "public", "sick", Kind.PROTECTED,
    {
        a.name: a
        for a in (
            Attribute("id", "integer", True),
            Attribute("age", "integer", True, tuple(range(101)), Decimal(0), Decimal(100)),
            Attribute("ill", "text", False, ("flu", "cold"), bytewise=True),
            Attribute("town", "character varying(20)", True, bytewise=True),
            Attribute("folded", "text", True),
            Attribute("code", "character(4)", True, bytewise=True),
            Attribute("fee", "numeric(8,2)", False, lower=Decimal(0), upper=Decimal(500)),
            Attribute("rate", "double precision", False),
            Attribute("day", "date", False),
            Attribute("at", "timestamp without time zone", False),
            Attribute("till", "timestamp with time zone", False),
            Attribute("paid", "boolean", False, (False, True)),
            Attribute("born", "public.day_of_birth", False),
        )
    },
    references=(Reference(("id",), "public", "person", ("id",)),),
    changes=Changes.FROZEN,
)  # fmt: skip
TOWN = Relation(
    2, "public", "place", Kind.PUBLIC,
    {a.name: a for a in (Attribute("town", "text", True, bytewise=True), Attribute("size", "integer", True))},
    unique=frozenset({("town",)}),
)  # fmt: skip
PERSON = Relation(
    3, "public", "person", Kind.PROTECTED, {"id": Attribute("id", "integer", True)}, unique=frozenset({("id",)})
)  # fmt: skip


def asked(text: str, sick: Relation = SICK, parameters: tuple[Literal, ...] = ()) -> Question:
    catalog = Catalog(1, (sick, TOWN, PERSON))
    (block,) = questions(outline(text), lambda name: name[1] == "sick")
    tables = columns(outline(text), block, lambda name: frozenset(catalog.by_name["public", name[1]].attributes))
    taken = cut(text, block, tables)
    return read(taken.clauses, catalog, lambda schema, name: catalog.by_name.get(("public", name)), parameters)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("age > 17", "age >= 18"),
        ("age >= 17.5 AND age < 65.5", "age BETWEEN 18 AND 65"),
        ("18 <= age AND NOT age > 64", "age BETWEEN 18 AND 64"),
        ("age BETWEEN 30 AND 30", "age = 30"),
        ("age = 1.5", "false"),
        ("age > 5 AND age < 6", "false"),
        ("age IN (1, 2, 3) AND age <> 2", "age IN (1, 3)"),
        ("age <> 2", "true"),
        ("age = 5::float8", "true"),
        ("age < 10 OR age > 90", "true"),
        ("age < 10 OR age BETWEEN 5 AND 20", "age <= 20"),
        ("age = 3 OR age BETWEEN 5 AND 20", "age BETWEEN 3 AND 20"),
        ("age + 1 = 5", "true"),
        ("(age = 1 AND paid) OR (age = 2 AND ill = 'flu')", "age IN (1, 2)"),
        ("age = 1 OR ill = 'flu'", "true"),
        ("false", "false"),
        ("ill = 'flu'", "ill = 'flu'"),
        ("ill IN ('flu', 'cold', 'flu')", "ill IN ('cold', 'flu')"),
        ("ill IN ('flu', NULL)", "ill IS NOT NULL"),
        ("ill > 'flu'", "ill IS NOT NULL"),
        ("ill <> 'flu'", "ill IS NOT NULL"),
        ("ill = 'flu' OR ill IS NULL", "(ill = 'flu' OR ill IS NULL)"),
        ("ill = 'flu' AND ill IS NULL", "false"),
        ("ill = 'flu '::bpchar", "ill IS NOT NULL"),
        ("town = 'Oslo'", "town = 'Oslo'"),
        ("folded = 'Oslo'", "true"),
        ("code = 'A'", "true"),
        ("lower(ill) = 'flu'", "true"),
        ("ill LIKE 'flu'", "true"),
        ("fee > 1.50 AND fee <= 2", "fee > 1.5 AND fee <= 2"),
        ("fee = 'NaN'", "fee IS NOT NULL"),
        ("fee < 3 OR fee IS NULL", "true"),
        ("rate = 0.5", "true"),
        ("day > '2024-01-31'", "day >= DATE '2024-02-01'"),
        ("day > '9999-12-31'", "day > DATE '9999-12-31'"),
        ("day < 'infinity'", "day IS NOT NULL"),
        ("day = '2024-01-31 12:00'", "day IS NOT NULL"),
        ("day < TIMESTAMP '2024-01-31 12:00'", "day IS NOT NULL"),
        ("at >= DATE '2024-01-31'", "at >= TIMESTAMP '2024-01-31 00:00:00'"),
        ("at < '2024-01-31 8:30:00.5'", "at < TIMESTAMP '2024-01-31 08:30:00.500000'"),
        ("at < '2024-01-31 08:30+05'", "at IS NOT NULL"),
        ("at < TIMESTAMPTZ '2024-01-31 08:30+05'", "at IS NOT NULL"),
        ("till < '2024-01-31'", "true"),
        ("paid", "paid = true"),
        ("NOT paid", "paid = false"),
        ("paid IS NOT TRUE", "(paid = false OR paid IS NULL)"),
        ("born IS NULL", "true"),
        ("place.town = 'Oslo' AND place.size > 5", "true"),
    ],
)  # fmt: skip
def test_conditions_give_the_region(where: str, expected: str) -> None:
    tables = "sick JOIN place ON place.town = sick.town" if "place" in where else "sick"
    assert told(reach(asked(f"SELECT count(*) FROM {tables} WHERE {where}"))) == expected


def test_parameters_are_constants() -> None:
    bound = (Literal("30", "integer"), Literal("flu", "text"))
    question = asked("SELECT count(*) FROM sick WHERE age >= $1 AND ill = $2", parameters=bound)
    assert told(reach(question)) == "age >= 30 AND ill = 'flu'"


def test_a_filter_belongs_to_its_statistic() -> None:
    question = asked(
        "SELECT count(*) FILTER (WHERE age < 18), sum(fee) FILTER (WHERE age < 65) FROM sick WHERE ill = 'flu'"
    )
    known = {told(reach(question, place)) for place in range(2)}
    assert known == {"age <= 17 AND ill = 'flu'", "age <= 64 AND ill = 'flu'"}
    assert told(reach(question)) == "age <= 64 AND ill = 'flu'"


def test_whether_an_open_group_is_shown_depends_on_rows_that_a_filter_leaves_out() -> None:
    question = asked("SELECT town, count(*) FILTER (WHERE age < 18) FROM sick WHERE paid GROUP BY town")
    assert told(reach(question)) == told(reach(question, 0)) == "paid = true"


def test_a_condition_on_a_key_in_having_is_one_on_rows() -> None:
    question = asked("SELECT ill FROM sick GROUP BY ill HAVING ill = 'flu' AND count(*) > 5")
    assert told(reach(question)) == "ill = 'flu'"


def by_person() -> Relation:
    attributes = {**SICK.attributes, "paid": replace(SICK.attributes["paid"], constant_per_unit=True)}
    return replace(SICK, attributes=attributes, unit_column="id", max_groups=3, max_rows=2)


def test_only_what_is_constant_for_a_person_separates_persons() -> None:
    question = asked("SELECT count(*) FROM sick WHERE age < 18 AND paid AND id IN (3, 4)", by_person())
    assert separating(question) == {"id", "paid"}
    assert told(reach(question)) == "id IN (3, 4) AND paid = true"
    assert reach(asked("SELECT count(*) FROM sick WHERE age < 18", by_person())) == EVERYWHERE


@pytest.mark.parametrize("changes", [Changes.APPEND, Changes.FROZEN])
def test_rows_that_stay_as_they_are_are_told_apart_by_all_columns(changes: Changes) -> None:
    stays = replace(SICK, changes=changes)
    assert separating(asked("SELECT count(*) FROM sick", stays)) == frozenset(SICK.attributes)


def _declared(relation: Relation, **of: tuple[bool, bool]) -> Relation:
    """The relation with columns that are (constant_per_unit, immutable)."""
    declared = {
        name: replace(relation.attributes[name], constant_per_unit=constant, immutable=immutable)
        for name, (constant, immutable) in of.items()
    }
    return replace(relation, attributes={**relation.attributes, **declared})


def test_rows_that_may_change_are_told_apart_by_immutable_columns_only() -> None:
    changing = replace(SICK, changes=Changes.ANY)
    text = "SELECT count(*) FROM sick WHERE ill = 'flu' AND age > 17"
    assert reach(asked(text, changing)) == EVERYWHERE
    assert told(reach(asked(text, _declared(changing, age=(False, True))))) == "age >= 18"
    assert reach(asked(text, _declared(changing, age=(True, False)))) == EVERYWHERE  # a row is constant in itself


def test_persons_whose_rows_may_change_are_told_apart_by_what_is_constant_and_immutable() -> None:
    persons = replace(SICK, changes=Changes.ANY, unit_column="id", max_groups=2)
    every = _declared(persons, age=(True, False), ill=(False, True), town=(True, True))
    assert separating(asked("SELECT count(*) FROM sick", every)) == {"id", "town"}
    for changes in (Changes.APPEND, Changes.FROZEN):
        stays = replace(every, changes=changes)
        assert separating(asked("SELECT count(*) FROM sick", stays)) == {"id", "age", "town"}


def test_groups_of_rows_that_may_change_share_a_region() -> None:
    question = asked("SELECT ill, count(*) FROM sick GROUP BY ill", replace(SICK, changes=Changes.ANY))
    assert group_regions(question, cells(question)) == [EVERYWHERE] * 3


def test_what_nobody_meets_touches_nobody_whatever_separates() -> None:
    region = reach(asked("SELECT count(*) FROM sick WHERE age < 18 AND age > 20", by_person()))
    assert region == NOWHERE and region.empty and region.disjoint(EVERYWHERE)


def test_a_unit_that_is_known_through_a_join_is_not_separated() -> None:
    question = asked("SELECT count(*) FROM sick JOIN person ON person.id = sick.id WHERE age < 18 AND paid")
    assert question.unit.column is not None and reach(question) == EVERYWHERE


def test_each_group_has_its_own_region() -> None:
    question = asked("SELECT ill FROM sick WHERE age < 18 GROUP BY ill, lower(town) HAVING count(*) > 5")
    assert group_regions(question, cells(question, [("flu", "oslo"), ("flu", "bergen"), (None, "oslo")])) is None
    question = asked("SELECT ill FROM sick WHERE age < 18 GROUP BY ill HAVING count(*) > 5")
    found = group_regions(question, cells(question))
    assert found is not None
    assert [told(each) for each in found] == [
        "age <= 17 AND ill = 'flu'", "age <= 17 AND ill = 'cold'", "age <= 17 AND ill IS NULL"
    ]  # fmt: skip
    assert group_regions(question, cells(question), most=2) is None


def test_groups_that_where_leaves_out_touch_nobody() -> None:
    question = asked("SELECT ill FROM sick WHERE ill = 'flu' GROUP BY ill HAVING count(*) > 5")
    found = group_regions(question, cells(question))
    assert found is not None and [told(each) for each in found] == ["ill = 'flu'", "false", "false"]


def test_groups_of_several_sets_share_the_region_of_the_question() -> None:
    question = asked("SELECT ill, paid, count(*) FROM sick GROUP BY ROLLUP (ill, paid)")
    assert group_regions(question, cells(question)) is None


def test_groups_that_do_not_separate_persons_add_up() -> None:
    question = asked("SELECT ill FROM sick GROUP BY ill HAVING count(*) > 5", by_person())
    found = group_regions(question, cells(question))
    assert found == [EVERYWHERE] * 3
    levels = [coin(5), coin(3), coin(2)]
    felt = unit_parts(zip(found, levels, strict=True), separating(question), most_groups=2)
    assert felt == [(EVERYWHERE, coin(8))]


def test_the_words_of_a_region_say_what_is_in_it() -> None:
    region = reach(asked("SELECT count(*) FROM sick WHERE ill = 'it''s' AND day >= '2024-02-29' AND fee < -0.5"))
    assert told(region) == "day >= DATE '2024-02-29' AND fee < -0.5 AND ill = 'it''s'"
    assert region.covers({"day": date(2024, 3, 1), "fee": Decimal(-1), "ill": "it's"})
