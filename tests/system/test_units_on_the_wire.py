"""Whose loss is stated: every answer names its unit, alone and joined, and one unit loses no more than that."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from proxies import Proxy, new_analyst, running_proxy

from proxy.settings import Settings
from proxy.status import status

CLINIC = """
CREATE TABLE visit (visit_id int PRIMARY KEY, patient_id int REFERENCES patient_data (patient_id), fee int NOT NULL);
INSERT INTO visit SELECT n, 1 + n / 5, 10 FROM generate_series(1, 20000) n;
CREATE TABLE item (item_id int PRIMARY KEY, visit_id int REFERENCES visit, price int NOT NULL);
INSERT INTO item SELECT n, n, 5 FROM generate_series(1, 20000) n;
INSERT INTO item SELECT 20000 + n, NULL, 5 FROM generate_series(1, 5000) n;
CREATE TABLE bed (bed_id int PRIMARY KEY, patient_id int REFERENCES patient_data (patient_id));
INSERT INTO bed SELECT n, 1 + n / 5 FROM generate_series(1, 20000) n;
SELECT provenance.protect('visit', unit => 'patient_id', max_rows => 5);
SELECT provenance.protect('item', unit => 'visit_id -> visit.patient_id', max_rows => 5);
SELECT provenance.protect('bed', unit => 'row');
SELECT provenance.declare_attribute('item', 'price', 0, 10);
"""

PATIENT = "patient_data.patient_id through {}"
NAMED = [
    ("SELECT count(*) FROM patient_data", "row of patient_data"),
    ("SELECT count(*) FROM orders", "orders.customer_id"),
    ("SELECT count(*) FROM visit", PATIENT.format("visit.patient_id")),
    ("SELECT count(*) FROM visit JOIN patient_data USING (patient_id)", PATIENT.format("visit.patient_id")),
    ("SELECT count(*) FROM item", PATIENT.format("item.visit_id, visit.patient_id")),
    ("SELECT count(*) FROM item JOIN visit USING (visit_id)", PATIENT.format("item.visit_id, visit.patient_id")),
    ("SELECT count(*) FROM bed", "row of bed"),
    ("SELECT count(*) FROM bed JOIN patient_data USING (patient_id)", PATIENT.format("bed.patient_id")),
]


@pytest.fixture(scope="module")
def clinic(new_upstream: Callable[[], str], shadow_server: Any, tmp_path_factory: Any) -> Iterator[Proxy]:
    upstream, log = new_upstream(), tmp_path_factory.mktemp("units") / "proxy.log"
    with psycopg.connect(upstream, autocommit=True) as conn:
        conn.execute(CLINIC.encode())
    with running_proxy(upstream, shadow_server.admin_dsn, log) as proxy:
        yield proxy


def told(session: psycopg.Connection[Any], text: str) -> tuple[Any, str, dict[str, Any]]:
    """The first row, the sentence and the bill."""
    seen: list[tuple[str, str]] = []

    def see(notice: Any) -> None:
        seen.append((notice.message_primary, notice.message_detail))

    session.add_notice_handler(see)
    row = session.execute(text.encode()).fetchone()
    session.remove_notice_handler(see)
    ((sentence, detail),) = [each for each in seen if each[0].startswith("veil:")]
    return row, sentence, json.loads(detail)


@pytest.mark.parametrize(("text", "unit"), NAMED)
def test_every_answer_and_every_explanation_names_the_unit(clinic: Proxy, text: str, unit: str) -> None:
    with clinic.connect(new_analyst(clinic.upstream)) as session:
        plan = session.execute(f"EXPLAIN {text}".encode()).fetchall()
        assert f"  Privacy unit: {unit}, in at most 1 group" in "\n".join(line for (line,) in plan)
        ((document,),) = session.execute(f"EXPLAIN (FORMAT JSON) {text}".encode()).fetchone() or ((None,),)
        assert document["Questions"][0]["Unit"] == unit
        _, sentence, bill = told(session, text)
        assert bill["unit"] == unit and (len(unit) > 60 or f" per {unit};" in sentence)
        assert told(session, text)[2]["unit"] == unit  # from what was stored


def test_rows_without_a_unit_are_not_counted(clinic: Proxy) -> None:
    """Items of no visit belong to nobody: 20,000 of 25,000 are left, alone and joined."""
    with clinic.connect(new_analyst(clinic.upstream)) as session:
        session.execute("SET veil.epsilon = 5")
        for text in ("SELECT count(*) FROM item", "SELECT count(*) FROM item JOIN visit USING (visit_id)"):
            assert abs(told(session, text)[0][0] - 20_000) < 500, text
        assert abs(told(session, "SELECT sum(price) FROM item")[0][0] - 100_000) < 5_000


def test_charges_on_both_tables_add_up(clinic: Proxy) -> None:
    """They may be about the same patient: nothing keeps a visit and a patient apart."""
    with clinic.connect(new_analyst(clinic.upstream)) as session:
        session.execute("SET veil.epsilon = 0.5")
        spent = []
        for text in (
            "SELECT count(*) FROM patient_data WHERE age < 30",
            "SELECT count(*) FROM visit",
            "SELECT count(*) FROM item",
        ):
            told(session, text)
            (row,) = session.execute("SELECT spent FROM veil.budget WHERE view = 'all'").fetchall()
            spent.append(float(row[0]))
        assert spent[0] < spent[1] < spent[2]


def test_a_table_whose_unit_is_missing_is_refused_with_the_reason(clinic: Proxy) -> None:
    with psycopg.connect(clinic.upstream, autocommit=True) as conn:
        conn.execute("CREATE TABLE note (id int PRIMARY KEY, patient_id int); SELECT provenance.protect('note')")
        with clinic.connect(new_analyst(clinic.upstream)) as session:
            session.execute("SELECT count(*) FROM note")
            conn.execute("ALTER TABLE note ADD FOREIGN KEY (patient_id) REFERENCES patient_data (patient_id)")
            conn.execute(
                "SELECT provenance.refresh('note'); UPDATE provenance.relation SET size_hint = 9 WHERE name = 'note'"
            )
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="its unit is not declared"):
                session.execute("SELECT count(*) FROM note")
            conn.execute("SELECT provenance.protect('note', unit => 'row')")
            session.execute("SELECT count(*) FROM note")


def test_the_status_reports_units_that_are_only_assumed(clinic: Proxy) -> None:
    settings = Settings.model_validate({"upstream": clinic.upstream, "listen": f"127.0.0.1:{clinic.port}"})
    assert "assumed" not in status(settings)[0]
    with psycopg.connect(clinic.upstream, autocommit=True) as conn:
        conn.execute("SET session_replication_role = replica")  # as the migration leaves what was registered before
        conn.execute("UPDATE provenance.relation SET unit = NULL, unit_assumed = true WHERE name = 'bed'")
        assert "each row of bed is assumed to be a unit" in status(settings)[0]
        conn.execute("SET session_replication_role = origin; SELECT provenance.protect('bed', unit => 'row')")
    assert "assumed" not in status(settings)[0]
