"""EXPLAIN of a question: what it would do and cost, told for nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from proxies import Proxy, charges, new_analyst

DECISION = (
    "SELECT disease FROM patient_data WHERE age > 40 GROUP BY disease"
    " HAVING (count(*) > 500 AND sum(age) > 30000) OR count(*) FILTER (WHERE gender = 'female') >= 700"
)
NUMBERS = "SELECT city, count(*), avg(amount) FROM orders GROUP BY city"
STATEMENTS = [
    DECISION,
    NUMBERS,
    "SELECT count(*) FROM patient_data",
    "SELECT gender, stddev(age) FROM patient_data GROUP BY ROLLUP (gender)",
    "SELECT amount, ordered_on, count(*) FROM orders GROUP BY 1, 2",
    "SELECT q.city, q.n FROM (SELECT city, count(*) AS n FROM orders GROUP BY city) q ORDER BY 2 DESC LIMIT 3",
    f"{DECISION} INTERSECT SELECT disease FROM ward WHERE capacity > 10",
    "SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 300"
    " EXCEPT SELECT disease FROM patient_data WHERE age > 60 GROUP BY disease HAVING count(*) > 300",
    "SELECT DISTINCT gender FROM patient_data",
    "SELECT city, count(*) FROM orders GROUP BY city LIMIT 0",
]


@pytest.fixture
def told(session: psycopg.Connection) -> list[dict[str, Any]]:
    """The bills of the session."""
    bills: list[dict[str, Any]] = []
    session.add_notice_handler(lambda notice: bills.append(json.loads(notice.message_detail or "{}")))
    return bills


def document(session: psycopg.Connection, text: str, parameters: Any = None) -> dict[str, Any]:
    row = session.execute(f"EXPLAIN (FORMAT JSON) {text}", parameters).fetchone()
    assert row is not None
    (found,) = row[0]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("text", STATEMENTS)
def test_what_is_explained_is_what_is_charged_then(
    session: psycopg.Connection, upstream: str, told: list[dict[str, Any]], text: str
) -> None:
    plan = document(session, text)
    assert charges(upstream, session.info.user) == [] and told == []
    session.execute(text)
    paid = charges(upstream, session.info.user)
    charged = sum((amount for _, _, amount, _ in paid), Decimal(0))
    spent = sum(bill["epsilon"] for bill in told)
    assert charged == sum(Decimal(bill["charged"]) for bill in told)
    assert spent == pytest.approx(float(sum(epsilon for _, epsilon, _, _ in paid)))
    assert spent <= plan["Worst Epsilon"] * (1 + 1e-9)
    assert plan["Delta"] == pytest.approx(sum(bill["delta"] for bill in told))
    if all(bill["mechanism"] != "cert" for bill in told):  # a price that is fixed beforehand
        assert Decimal(plan["Charged"]) == charged and plan["Epsilon"] == pytest.approx(spent)
    assert [each["Mechanism"] for each in plan["Questions"]] == [bill["mechanism"] for bill in told]
    known = [(each["Groups"], bill["groups"]) for each, bill in zip(plan["Questions"], told, strict=True)]
    assert all(groups in (None, number) for groups, number in known)


@pytest.mark.parametrize("text", STATEMENTS)
def test_a_question_that_was_answered_is_explained_as_free(session: psycopg.Connection, text: str) -> None:
    session.execute(text)
    plan = document(session, text)
    assert (plan["Charged"], plan["Epsilon"], plan["Allowed"]) == ("0", 0, True)
    assert all(each["Reused"] and each["Cost"]["worst"] == 0 for each in plan["Questions"])


def test_the_text_tells_tree_atoms_sensitivity_noise_sql_price_and_verdict(
    session: psycopg.Connection, upstream: str
) -> None:
    cursor = session.execute(f"EXPLAIN {DECISION}")
    assert cursor.description is not None and [c.name for c in cursor.description] == ["QUERY PLAN"]
    page = "\n".join(row[0] for row in cursor.fetchall())
    for part in (
        *(
            "cert on public.patient_data",
            "Groups: 40",
            "domain public",
            "Privacy unit: row of patient_data",
            "OR",
            "AND",
            "beta 0.05, alpha 0.1",
        ),
        *("count(*) >= 501", "sum(age) >= 30001", "gender = 'female') >= 700", "sensitivity 100"),
        *("Usual price: epsilon", "at alpha 0.1", "at alpha 0.01"),
        *("SQL: SELECT", "GROUP BY", "Cost: epsilon", "expected, at most", "the limits allow it"),
    ):
        assert part in page, part
    assert charges(upstream, session.info.user) == []


def test_json_is_one_document_with_the_same_facts(session: psycopg.Connection) -> None:
    plan = document(session, DECISION)
    (question,) = plan["Questions"]
    assert question["Relation"] == "public.patient_data" and question["Groups"] == 40 and question["Beta"] == 0.05
    assert len(question["Atoms"]) == 3 and question["Statistics"] == []  # nothing is shown but the groups
    assert question["Alpha"] == 0.1 and list(question["Prices"]) == ["0.1", "0.05", "0.02", "0.01"]
    assert sorted(question["Prices"].values()) == list(question["Prices"].values())
    assert {atom["sensitivity"] for atom in question["Atoms"]} == {1, 100}
    assert question["SQL"].startswith("SELECT ") and '"patient_data"' in question["SQL"]
    assert plan["Epsilon"] == question["Cost"]["expected"] <= question["Cost"]["worst"]
    assert plan["Finishing"].count("unnest") >= 1 and plan["Allowed"] is True


def test_the_predicted_error_is_in_the_units_of_the_aggregate(session: psycopg.Connection) -> None:
    session.execute("SET veil.margin = '2500'")
    plan = document(session, "SELECT sum(amount) FROM orders WHERE city = 'Boston'")
    (statistic,) = plan["Questions"][0]["Statistics"]
    assert statistic["predicted error"] == pytest.approx(2500, abs=0.01)
    plan = document(session, "SELECT count(*) FROM patient_data")
    assert plan["Questions"][0]["Statistics"][0]["predicted error"] == 2500


def test_noise_and_bounds_are_told_in_the_words_of_the_question(session: psycopg.Connection) -> None:
    page = [row[0] for row in session.execute("EXPLAIN SELECT city, sum(amount) FROM orders GROUP BY city")]
    (statistic,) = [line for line in page if "Statistic" in line]
    found = re.search(r"Statistic 1: sum\(amount\)  \(.*standard deviation ([\d.e+]+), in steps of", statistic)
    assert found is not None and 100_000 < float(found[1]) < 110_000
    assert "  Privacy unit: orders.customer_id, in at most 8 groups, with at most 8 rows in each" in page
    text = (
        "SELECT p.disease FROM patient_data p JOIN ward w USING (disease) GROUP BY p.disease, w.capacity"
        " HAVING count(*) > 2 * w.capacity AND count(*) >= 500 AND avg(age) > 60"
    )
    (question,) = document(session, text)["Questions"]
    assert {"count(*) > 2 * capacity", "avg(age), as -60 count(*) + sum(age), >= 1", "count(*) >= 500"} == {
        atom["atom"] for atom in question["Atoms"]
    }


def test_a_decision_that_may_not_spend_its_usual_price_is_told(proxy: Proxy, upstream: str) -> None:
    with proxy.connect(new_analyst(upstream, max_epsilon="0.05")) as session:
        text = "SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 300"
        plan = document(session, text)
        (cost,) = [row[0] for row in session.execute(f"EXPLAIN {text}".encode()) if row[0].startswith("Cost: ")]
    assert plan["Epsilon"] > plan["Worst Epsilon"] and plan["Allowed"] and "54000" in plan["Verdict"]
    assert "at most" not in cost, "what is expected would be more than the most"
    assert f"{plan['Epsilon']:.6g} expected, but only {plan['Worst Epsilon']:.6g} may be spent" in cost


def test_the_key_of_the_hash_is_told_to_nobody(session: psycopg.Connection) -> None:
    """The generated SQL has its constants as parameters, the key that picks a person's groups too."""
    sql = document(session, "SELECT city, ordered_on, count(*) FROM orders GROUP BY 1, 2")["Questions"][0]["SQL"]
    assert "extended(" in sql and not re.search(r"[0-9]{6}", sql)


def test_an_explained_question_may_have_parameters(session: psycopg.Connection, upstream: str) -> None:
    text = "SELECT gender, count(*) * %s FROM patient_data WHERE age > %s GROUP BY gender HAVING count(*) > %s"
    values = (2, 30, 100)
    plan = document(session, text, values)
    lines = session.execute(f"EXPLAIN {text}", values).fetchall()
    assert any("count(*) >= 101" in line for (line,) in lines) and "count(*) >= 101" in plan["Questions"][0]["Tree"]
    assert charges(upstream, session.info.user) == []


@pytest.fixture
def poor(proxy: Proxy, upstream: str) -> Iterator[psycopg.Connection]:
    with proxy.connect(new_analyst(upstream, "0.4")) as conn:
        yield conn


def test_the_verdict_says_when_the_limit_is_reached(poor: psycopg.Connection, upstream: str) -> None:
    dear = "SELECT disease, gender, count(*), sum(age) FROM patient_data GROUP BY 1, 2"
    poor.execute("SET veil.epsilon = '0.5'")
    plan = document(poor, dear)
    assert plan["Allowed"] is False and "limit" in plan["Verdict"]
    page = "\n".join(row[0] for row in poor.execute(f"EXPLAIN {dear}").fetchall())
    assert "Limits: the privacy limit" in page
    with pytest.raises(psycopg.errors.ConfigurationLimitExceeded):
        poor.execute(dear)
    poor.execute("SET veil.epsilon = '0.01'")
    plan = document(poor, dear)
    assert plan["Allowed"] is True
    poor.execute(dear)
    assert len(charges(upstream, poor.info.user)) == 1


def test_a_group_of_an_unknown_domain_is_explained_with_its_threshold(session: psycopg.Connection) -> None:
    plan = document(session, "SELECT amount, ordered_on, count(*) FROM orders GROUP BY 1, 2")
    (question,) = plan["Questions"]
    assert question["Domain"].startswith("unknown: named from ") and question["Groups"] is None
    assert question["Cost"]["delta"] > 0 and plan["Delta"] > 0


def test_explain_of_public_tables_is_postgresqls_own(session: psycopg.Connection) -> None:
    page = "\n".join(row[0] for row in session.execute("EXPLAIN SELECT * FROM city").fetchall())
    assert "Seq Scan on city" in page
    analysed = session.execute("EXPLAIN ANALYZE SELECT count(*) FROM ward").fetchall()
    assert any("actual" in row[0] for row in analysed)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (f"EXPLAIN ANALYZE {NUMBERS}", "0A000"),
        (f"EXPLAIN (ANALYZE) {NUMBERS}", "0A000"),
        (f"EXPLAIN (ANALYZE true, FORMAT JSON) {NUMBERS}", "0A000"),
        (f"EXPLAIN (FORMAT JSON, ANALYZE 1) {NUMBERS}", "0A000"),
        (f"EXPLAIN ANALYZE VERBOSE {NUMBERS}", "0A000"),
        (f"EXPLAIN (FORMAT YAML) {NUMBERS}", "0A000"),
        ("EXPLAIN SELECT * FROM patient_data", "42501"),
        ("EXPLAIN SELECT max(age) FROM patient_data", "0A000"),
        ("EXPLAIN UPDATE patient_data SET age = 1", "25006"),
        ("EXPLAIN SELECT nothing FROM patient_data", "42703"),
        ("EXPLAIN SELECT count(*) FROM", "42601"),
    ],
)
def test_what_cannot_be_explained_is_refused(session: psycopg.Connection, upstream: str, text: str, state: str) -> None:
    with pytest.raises(psycopg.Error) as refusal:
        session.execute(text)
    assert refusal.value.sqlstate == state
    assert charges(upstream, session.info.user) == []


def test_an_analyze_that_is_off_is_no_analyze(session: psycopg.Connection, upstream: str) -> None:
    for options in ("ANALYZE off", "ANALYZE false, FORMAT TEXT", "FORMAT 'json', ANALYZE 0", "VERBOSE, COSTS off"):
        assert session.execute(f"EXPLAIN ({options}) {NUMBERS}").fetchall()
    assert charges(upstream, session.info.user) == []


def test_explaining_reads_no_data(session: psycopg.Connection, upstream: str) -> None:
    """A protected table that cannot be read is explained all the same."""
    with psycopg.connect(upstream, autocommit=True) as conn:
        conn.execute("ALTER TABLE patient_data RENAME COLUMN gender TO was_gender")
        try:
            plan = document(session, "SELECT gender, count(*) FROM patient_data GROUP BY gender")
        finally:
            conn.execute("ALTER TABLE patient_data RENAME COLUMN was_gender TO gender")
    assert plan["Allowed"] is True


def test_a_decision_on_noise_that_was_shown_is_explained_as_free(proxy: Proxy, upstream: str) -> None:
    decision = "SELECT gender FROM patient_data GROUP BY gender HAVING count(*) > 2500"
    with proxy.connect(new_analyst(upstream)) as session:
        session.execute("SELECT gender, count(*) FROM patient_data GROUP BY gender")
        assert document(session, decision)["Epsilon"] > 0
        session.execute("SET veil.reuse = on")
        plan = document(session, decision)
        assert (plan["Charged"], plan["Epsilon"]) == ("0", 0) and plan["Questions"][0]["Reused"] is True


def test_what_may_be_spent_is_compared_with_what_would_be_paid(proxy: Proxy, upstream: str) -> None:
    text = "SELECT gender, count(*) FROM patient_data GROUP BY gender"
    with proxy.connect(new_analyst(upstream)) as session:
        session.execute("SET veil.max_epsilon = '0.001'")
        for each in (text, f"EXPLAIN {text}"):
            with pytest.raises(psycopg.Error) as refused:
                session.execute(each)
            assert refused.value.sqlstate == "54000" and "0.001" in (refused.value.diag.message_detail or "")
        session.execute("RESET veil.max_epsilon")
        session.execute("SET veil.margin = '40u'")
        session.execute(text)
        session.execute("SET veil.margin = '60u'")
        session.execute("SET veil.max_epsilon = '0.001'")  # far less than it would cost alone
        assert document(session, text)["Charged"] == "0"
        session.execute(text)
        assert len(charges(upstream, session.info.user)) == 1
