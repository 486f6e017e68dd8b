"""The fingerprint: one for all spellings of a question, another for another question."""

from __future__ import annotations

from dataclasses import replace

import pytest
from clinic import PATIENTS, ask

from sqlrewrite.normal import fingerprint, normalise
from sqlrewrite.question import Literal

SAME = [
    [
        "SELECT disease FROM patient_data WHERE age BETWEEN 18 AND 65 GROUP BY disease HAVING count(*) > 500",
        "SELECT disease AS d FROM public.patient_data p WHERE 18 <= p.age AND age <= 65.0 GROUP BY 1"
        " HAVING 501 <= count(*)",
        "SELECT disease FROM patient_data WHERE NOT (age < 18 OR NOT age <= 65) GROUP BY disease"
        " HAVING NOT count(*) <= 500 ORDER BY 1 LIMIT 5",
        "SELECT disease FROM patient_data WHERE age <= 65 AND (age >= 18 AND age <= 65) GROUP BY disease"
        " HAVING count(*) > 500.3",
    ],
    [
        "SELECT count(*), gender, disease FROM patient_data WHERE disease = 'flu' OR disease = 'cold'"
        " GROUP BY gender, disease",
        "SELECT count(*) FROM patient_data WHERE disease IN ('cold', 'flu', 'cold') GROUP BY disease, gender",
        "SELECT disease, count(*) n FROM patient_data WHERE NOT (disease <> 'flu' AND NOT disease = 'cold')"
        " GROUP BY 1, gender",
    ],
]

OTHERS = [
    "SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 500",
    "SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 501",
    "SELECT disease FROM patient_data GROUP BY disease HAVING count(*) < 501",
    "SELECT disease, count(*) FROM patient_data GROUP BY disease HAVING count(*) > 500",
    "SELECT gender FROM patient_data GROUP BY gender HAVING count(*) > 500",
    "SELECT disease FROM patient_data GROUP BY disease, gender HAVING count(*) > 500",
    "SELECT disease FROM patient_data WHERE age > 5 GROUP BY disease HAVING count(*) > 500",
    "SELECT disease FROM patient_data WHERE age >= 5 GROUP BY disease HAVING count(*) > 500",
    "SELECT disease FROM patient_data WHERE note = '5' GROUP BY disease HAVING count(*) > 500",
    "SELECT disease FROM patient_data WHERE note = ' 5' GROUP BY disease HAVING count(*) > 500",
    "SELECT disease FROM patient_data WHERE note = NULL GROUP BY disease HAVING count(*) > 500",
    "SELECT disease FROM patient_data WHERE note = 'NULL' GROUP BY disease HAVING count(*) > 500",
    "SELECT disease FROM patient_data WHERE note IS NULL GROUP BY disease HAVING count(*) > 500",
    "SELECT city FROM orders GROUP BY city HAVING count(*) > 500",
]


@pytest.mark.parametrize("spellings", SAME)
def test_all_spellings_of_a_question_have_one_fingerprint(spellings: list[str]) -> None:
    assert len({fingerprint(ask(text)) for text in spellings}) == 1


def test_different_questions_have_different_fingerprints() -> None:
    assert len({fingerprint(ask(text)) for text in OTHERS}) == len(OTHERS)


def test_a_parameter_is_the_same_question_as_its_constant() -> None:
    asked = ask(
        "SELECT gender FROM patient_data WHERE age > $2 GROUP BY 1 HAVING count(*) > $1",
        [Literal("500", "bigint"), Literal("18", "integer")],
    )
    assert fingerprint(asked) == fingerprint(
        ask("SELECT gender FROM patient_data WHERE age > 18 GROUP BY 1 HAVING count(*) > 500")
    )


def test_another_domain_or_bound_is_another_question() -> None:
    question = ask("SELECT gender, count(*) FROM patient_data GROUP BY 1")
    (key,) = question.keys
    other = replace(question, keys=(replace(key, domain=("F", "M")),))
    bounded = replace(question, relation=replace(PATIENTS, unit_column="patient_id"))
    assert len({fingerprint(q) for q in (question, other, bounded)}) == 3


def test_the_normal_form_is_stable() -> None:
    for text in (*OTHERS, *SAME[0], *SAME[1]):
        where = ask(text).where
        assert where is None or normalise(where) == where
