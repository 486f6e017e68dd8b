"""A question's SELECT in pieces: which fragments are read, which text is kept, and what is refused on sight."""

from __future__ import annotations

import time

import pytest
from clinic import ask, taken

from mechanisms.errors import Refusal
from sqlrewrite import lex
from sqlrewrite.cut import AggregateSlot, Cut, GroupingSlot, KeySlot
from sqlrewrite.errors import NotAnswered, SyntaxNotRead, TooComplex, WouldShowRows
from sqlrewrite.normal import fingerprint
from sqlrewrite.probe import is_probe


def only(text: str) -> Cut:
    (one,) = taken(text)
    return one


def told(template: tuple[object, ...]) -> str:
    """A template as text, with {k0}, {a1}, {g0,1} for its slots."""
    out = ""
    for piece in template:
        match piece:
            case str():
                out += piece
            case KeySlot(index):
                out += f"{{k{index}}}"
            case AggregateSlot(index):
                out += f"{{a{index}}}"
            case GroupingSlot(keys):
                out += f"{{g{','.join(map(str, keys))}}}"
    return out


@pytest.mark.parametrize(
    ("text", "head", "rest"),
    [
        (
            "SELECT disease, count(*) FROM patient_data GROUP BY disease ORDER BY count(*) DESC, disease LIMIT 5",
            'SELECT {k0} AS "disease", {a0} AS "count"',
            " ORDER BY {a0} DESC, disease LIMIT 5",
        ),
        (
            "SELECT disease d, round(100.0 * sum(age) / sum(sum(age)) OVER (), 1) FROM patient_data GROUP BY 1",
            'SELECT {k0} AS "d", round(100.0 * {a0} / sum({a0}) OVER (), 1)',
            "",
        ),
        (
            "SELECT p.disease, upper(disease) || 'x' AS u FROM patient_data p GROUP BY disease",
            'SELECT {k0} AS "disease", upper({k0}) || \'x\' AS "u"',
            "",
        ),
        (
            "SELECT age / 10 AS decade, age / 10 + 1, count(*) FROM patient_data GROUP BY age/10 ORDER BY age / 10",
            'SELECT {k0} AS "decade", {k0} + 1, {a0} AS "count"',
            " ORDER BY {k0}",
        ),
        (
            "SELECT age, (age / 10) * 10, age + 1, count(*) FROM patient_data GROUP BY age, age / 10",
            'SELECT {k0} AS "age", ({k1}) * 10, {k0} + 1, {a0} AS "count"',
            "",
        ),
        (
            "SELECT gender, grouping(gender, disease), count(*) FILTER (WHERE age > 5) AS n FROM patient_data"
            " GROUP BY ROLLUP (gender, disease)",
            'SELECT {k0} AS "gender", {g0,1} AS "grouping", {a0} AS "n"',
            "",
        ),
        (
            "SELECT DISTINCT ON (gender) gender, disease FROM patient_data GROUP BY gender, disease ORDER BY 1, 2",
            'SELECT DISTINCT ON ({k0}) {k0} AS "gender", {k1} AS "disease"',
            " ORDER BY 1, 2",
        ),
        (
            "SELECT count(*) AS \"Number of 'rows'\", max(count(*)) OVER w FROM patient_data GROUP BY gender"
            " WINDOW w AS (ORDER BY gender)",
            "SELECT {a0} AS \"Number of 'rows'\", max({a0}) OVER w",
            " WINDOW w AS (ORDER BY {k0})",
        ),
        (
            "SELECT count(*)::int, (count(*)), CASE WHEN count(*) > 5 THEN 'a' END FROM patient_data",
            'SELECT {a0}::int AS "count", ({a0}) AS "count", CASE WHEN {a0} > 5 THEN \'a\' END',
            "",
        ),
    ],
)
def test_only_keys_and_aggregates_are_taken_out_of_the_text(text: str, head: str, rest: str) -> None:
    one = only(text)
    assert (told(one.head), told(one.rest)) == (head, rest)


def test_equal_aggregates_are_asked_once_however_they_are_spelled() -> None:
    one = only('SELECT sum(age), SUM( p.age ) + 1, sum("age") FROM patient_data p GROUP BY gender ORDER BY sum(age)')
    assert [fragment.text for fragment in one.clauses.aggregates] == ["sum(age)"]


def test_an_aggregate_inside_a_string_a_comment_or_a_name_is_none() -> None:
    one = only("SELECT 'count(*)', /* sum(age) */ avg(age) AS \"sum(age)\" -- max(age)\n FROM patient_data")
    assert [fragment.text for fragment in one.clauses.aggregates] == ["avg(age)"]


@pytest.mark.parametrize(
    ("group_by", "sets"),
    [
        ("gender, disease", ((0, 1),)),
        ("1, disease", ((0, 1),)),
        ("g, 2", ((0, 1),)),
        ("(gender, disease)", ((0, 1),)),
        ("gender, gender, disease", ((0, 1),)),
        ("ROLLUP (gender, disease)", ((0, 1), (0,), ())),
        ("CUBE (gender, disease)", ((0, 1), (0,), (1,), ())),
        ("GROUPING SETS ((gender), (disease, gender), ())", ((0,), (1, 0), ())),
        ("gender, ROLLUP (disease)", ((0, 1), (0,))),
        ("ROLLUP ((gender, disease))", ((0, 1), ())),
        ("GROUPING SETS (gender, ROLLUP (disease))", ((0,), (1,), ())),
    ],
)
def test_group_by_is_read_as_postgresql_reads_it(group_by: str, sets: tuple[tuple[int, ...], ...]) -> None:
    one = only(f"SELECT gender AS g, disease, count(*) FROM patient_data GROUP BY {group_by}")
    assert [fragment.text for fragment in one.clauses.keys] == ["gender", "disease"]
    assert one.clauses.sets == sets


def test_a_name_in_group_by_is_a_column_before_it_is_an_output() -> None:
    one = only("SELECT disease AS gender, count(*) FROM patient_data GROUP BY gender, disease")
    assert [fragment.text for fragment in one.clauses.keys] == ["gender", "disease"]


def test_a_fragment_knows_its_place_in_the_statement() -> None:
    text = "WITH q AS (SELECT gender FROM patient_data WHERE age > 5 GROUP BY gender HAVING count(*) > 3) TABLE q"
    clauses = only(text).clauses
    assert clauses.where is not None and clauses.having is not None
    for fragment in (clauses.from_, clauses.where, clauses.having, *clauses.keys):
        assert text[fragment.start : fragment.start + len(fragment.text)] == fragment.text


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("SELECT * FROM patient_data", WouldShowRows),
        ("SELECT p.* FROM patient_data p", WouldShowRows),
        ("TABLE patient_data", WouldShowRows),
        ("SELECT age FROM patient_data", WouldShowRows),
        ("SELECT count(*) OVER () FROM patient_data", WouldShowRows),
        ("SELECT FROM patient_data", NotAnswered),
        ("SELECT gender FROM patient_data GROUP BY gender FOR UPDATE", NotAnswered),
        ("SELECT count(*) INTO TEMP x FROM patient_data", NotAnswered),
        ("SELECT gender FROM patient_data GROUP BY ALL", NotAnswered),
        ("SELECT gender FROM patient_data GROUP BY DISTINCT gender", NotAnswered),
        ("SELECT gender FROM patient_data GROUP BY 3", SyntaxNotRead),
        ("SELECT gender FROM patient_data GROUP BY 0", SyntaxNotRead),
        ("SELECT gender FROM patient_data GROUP BY CUBE (a, b, c, d, e, f, g)", TooComplex),
        (f"SELECT 1 FROM patient_data GROUP BY {', '.join(f'age + {i}' for i in range(200))}", TooComplex),
        ("SELECT count(*) FROM patient_data WHERE age > (SELECT avg(age) FROM patient_data)", NotAnswered),
        ("SELECT 2 * age / 10, count(*) FROM patient_data GROUP BY age, age / 10", NotAnswered),
        ("SELECT age / 10 % 3, count(*) FROM patient_data GROUP BY age, age / 10", NotAnswered),
    ],
)
def test_what_cannot_be_a_question_is_refused_on_sight(text: str, error: type[Refusal]) -> None:
    with pytest.raises(error) as refusal:
        taken(text)
    assert refusal.value.position is None or 1 <= refusal.value.position <= len(text)


def test_rows_that_are_picked_in_with_are_pointed_to_from() -> None:
    with pytest.raises(WouldShowRows) as refusal:
        taken("WITH t AS (SELECT gender FROM patient_data) SELECT gender, count(*) FROM t GROUP BY gender")
    assert "FROM (SELECT" in (refusal.value.hint or "")


def test_two_spellings_that_are_taken_apart_alike_are_one_question() -> None:
    one = ask("SELECT gender AS g, disease, sum(age) FROM patient_data WHERE age > 5 GROUP BY 1, 2")
    other = ask("select count(*), p.disease from patient_data p where 5 < age group by p.disease, gender")
    again = ask("SELECT sum(p.age) x FROM patient_data AS p WHERE (p.age > 5.0) GROUP BY p.disease, (p.gender)")
    assert fingerprint(one).digest == fingerprint(again).digest != fingerprint(other).digest


@pytest.mark.parametrize(
    ("text", "probe"),
    [
        ("SELECT gender, count(*) FROM patient_data GROUP BY gender LIMIT 0", True),
        ("SELECT * FROM (SELECT count(*) FROM patient_data) q LIMIT 0", True),
        ("SELECT * FROM (SELECT * FROM (SELECT count(*) FROM patient_data) q) r WHERE 1=0", True),
        ("SELECT * FROM (SELECT count(*) FROM patient_data) q WHERE (false)", True),
        ("SELECT count(*) FROM patient_data UNION SELECT 1 LIMIT 0", True),
        ("SELECT gender, count(*) FROM patient_data GROUP BY gender LIMIT 10", False),
        ("SELECT gender, count(*) FROM patient_data GROUP BY gender OFFSET 0", False),
        ("SELECT * FROM (SELECT count(*) FROM patient_data) q WHERE 1=1", False),
        ("SELECT * FROM (SELECT count(*) FROM patient_data) q WHERE false OR true", False),
        ("SELECT (SELECT count(*) FROM patient_data), count(*) FROM city WHERE false", False),
        ("SELECT count(*) FROM patient_data UNION (SELECT 1 LIMIT 0)", False),
        ("SELECT q.n FROM (SELECT count(*) AS n FROM patient_data) q, (SELECT 1 LIMIT 0) r", False),
    ],
)
def test_a_probe_is_an_answer_that_is_thrown_away_whatever_it_is(text: str, probe: bool) -> None:
    assert is_probe(only(text).block) is probe


@pytest.mark.parametrize(
    "text",
    [
        "SELECT " + "CASE WHEN count(*) > 1 THEN 1 END + " * 300 + "1 FROM patient_data GROUP BY disease",
        "SELECT " + ", ".join(["disease"] * 1500) + " FROM patient_data GROUP BY disease",
        "SELECT disease FROM patient_data GROUP BY disease ORDER BY " + ", ".join(["p.disease.x"] * 900),
        "SELECT 1 FROM patient_data WHERE " + "(" * 60 + "1" + ")" * 60 + " IN (" + "1," * 2000 + "1)",
    ],
)
def test_long_texts_are_taken_apart_or_refused_quickly(text: str) -> None:
    took = []
    for _ in range(3):
        lex._remembered.cache_clear()
        start = time.process_time()  # whatever else the machine does
        try:
            taken(text)
        except Refusal:
            pass
        took.append(time.process_time() - start)
    assert min(took) < 0.5
