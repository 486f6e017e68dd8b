"""A relation with a limit of its own, asked about by way of another one that has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from proxies import Proxy, new_analyst, running_proxy

VISITS = """
CREATE TABLE visit (visit_id integer PRIMARY KEY, patient_id integer NOT NULL REFERENCES patient_data (patient_id));
INSERT INTO visit SELECT patient_id, patient_id FROM patient_data;
SELECT provenance.protect('visit', 'patient_id');
CREATE TABLE person (id integer PRIMARY KEY);
CREATE TABLE stay (stay_id integer, person_id integer REFERENCES person);
SELECT provenance.protect('person'), provenance.protect('stay', 'person_id');
"""
OWN = "SELECT count(*) FROM patient_data WHERE age = {}"
BY_WAY_OF_ANOTHER = "SELECT count(*) FROM visit v JOIN patient_data p ON v.patient_id = p.patient_id WHERE p.age = {}"


@pytest.fixture(scope="module")
def house(new_upstream: Callable[[], str], shadow_server: Any, tmp_path_factory: Any) -> Iterator[Proxy]:
    upstream, log = new_upstream(), tmp_path_factory.mktemp("joined") / "proxy.log"
    with psycopg.connect(upstream, autocommit=True) as conn:
        conn.execute(VISITS.encode())
    with running_proxy(upstream, shadow_server.admin_dsn, log) as proxy:
        yield proxy


def test_a_child_asked_alone_does_not_lead_around_the_limit_of_its_parent(house: Proxy) -> None:
    """Its rows are those of persons: what is asked about stays alone counts against the limit of persons."""
    with psycopg.connect(house.upstream, autocommit=True) as conn:
        conn.execute("SELECT provenance.limit_relation('person', 0.5)")
        with house.connect(new_analyst(house.upstream)) as session:
            session.execute("SET veil.epsilon = 0.2")
            with pytest.raises(psycopg.errors.ConfigurationLimitExceeded, match="relation person"):
                for number in range(20):
                    session.execute(f"SELECT count(*) FROM stay WHERE stay_id > {number}".encode())


def test_a_join_does_not_lead_around_the_limit_of_a_relation(house: Proxy) -> None:
    """Forty questions about the ages of patients through their visits: no more is told than the limit allows."""
    with psycopg.connect(house.upstream, autocommit=True) as conn:
        conn.execute("SELECT provenance.limit_relation('patient_data', 0.5)")
        answers = 0
        with house.connect(new_analyst(house.upstream)) as session:
            session.execute("SET veil.epsilon = 0.2")
            with pytest.raises(psycopg.errors.ConfigurationLimitExceeded, match="relation patient_data"):
                for age in range(20, 60):
                    session.execute(BY_WAY_OF_ANOTHER.format(age).encode())
                    answers += 1
            with pytest.raises(psycopg.errors.ConfigurationLimitExceeded, match="relation patient_data"):
                session.execute(OWN.format(30).encode())
        row = conn.execute(
            "SELECT spent, \"limit\" FROM provenance.relation_budget WHERE relation = 'patient_data'"
        ).fetchone()
    assert row is not None and Decimal("0.3") < row[0] <= row[1] and 1 <= answers < 20
