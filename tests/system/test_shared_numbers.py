"""Numbers of many analysts from shared synopses: who pays what, who sees what."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from proxies import Proxy, new_analyst, running_proxy

BY_DISEASE = "SELECT disease, count(*) FROM patient_data GROUP BY disease"
HISTOGRAM = "INSERT INTO provenance.view (relation, dimensions, measure) VALUES ('patient_data', '{age}', 'count(*)')"


@dataclass
class Clinic:
    """A proxy over a deployment of its own."""

    proxy: Proxy
    upstream: str
    sittings: list[Sitting] = field(default_factory=list)

    def sit(self, **settings: str) -> Sitting:
        connection = self.proxy.connect(new_analyst(self.upstream))
        bills: list[dict[str, Any]] = []
        connection.add_notice_handler(lambda notice: bills.append(json.loads(notice.message_detail or "{}")))
        sitting = Sitting(connection, bills)
        self.sittings.append(sitting)
        for name, value in {"raw": "on", **settings}.items():
            sitting.set(name, value)
        return sitting

    def administer(self, text: str, *values: Any) -> None:
        with psycopg.connect(self.upstream, autocommit=True) as conn:
            conn.execute(text, values)

    def table(self) -> Decimal:
        """What the protected database has lost so far, in coin."""
        with psycopg.connect(self.upstream) as conn:
            row = conn.execute("SELECT amount FROM provenance.total").fetchone()
        assert row is not None
        return Decimal(row[0])

    def spent(self, sitting: Sitting) -> Decimal:
        with psycopg.connect(self.upstream) as conn:
            row = conn.execute(
                "SELECT amount FROM provenance.balance WHERE scope = 'analyst' AND name = %s", (sitting.name,)
            ).fetchone()
        assert row is not None
        return Decimal(row[0])


@dataclass
class Sitting:
    connection: psycopg.Connection[Any]
    bills: list[dict[str, Any]]

    @property
    def name(self) -> str:
        return self.connection.info.user

    def set(self, name: str, value: str) -> None:
        self.connection.execute(f"SET veil.{name} = '{value}'")

    def ask(self, text: str) -> dict[Any, Any]:
        return {row[0]: row[-1] for row in self.connection.execute(text).fetchall()}

    def way(self) -> list[str]:
        ways: list[str] = self.bills[-1]["ways"]
        return ways


@pytest.fixture(scope="module")
def clinic(new_upstream: Callable[[], str], shadow_server: Any, tmp_path_factory: Any) -> Iterator[Clinic]:
    upstream = new_upstream()
    log: Path = tmp_path_factory.mktemp("synopses") / "proxy.log"
    with running_proxy(upstream, shadow_server.admin_dsn, log) as proxy:
        yield Clinic(proxy, upstream)


@pytest.fixture(autouse=True)
def new_data(clinic: Clinic) -> Iterator[None]:
    """Every test starts with nothing released, and leaves nobody connected."""
    clinic.administer("SELECT provenance.refresh('patient_data')")
    yield
    while clinic.sittings:
        clinic.sittings.pop().connection.close()


def test_what_one_analyst_paid_for_costs_the_database_nothing_again(clinic: Clinic) -> None:
    first, second = clinic.sit(), clinic.sit()
    before = clinic.table()
    numbers = first.ask(BY_DISEASE)
    paid = clinic.table() - before
    assert first.way() == ["measure"] and paid == clinic.spent(first) > 0
    assert second.ask(BY_DISEASE) == numbers
    assert second.way() == ["derive"] and clinic.spent(second) == clinic.spent(first)
    assert clinic.table() - before == paid


def test_less_accuracy_is_free_and_more_costs_the_difference(clinic: Clinic) -> None:
    she, other = clinic.sit(margin="50u"), clinic.sit(margin="25u")
    she.ask(BY_DISEASE)
    cheap = clinic.spent(she)
    she.set("margin", "200u")
    she.ask(BY_DISEASE)
    assert she.way() == ["reuse"] and she.bills[-1]["reused"] is True and clinic.spent(she) == cheap
    she.set("margin", "25u")
    she.ask(BY_DISEASE)
    assert she.way() == ["refine"]
    other.ask(BY_DISEASE)
    # Both know the same precision now, one in two steps: to the last digits it has the same price.
    assert abs(clinic.spent(she) - clinic.spent(other)) < Decimal("1e-12") < clinic.spent(other)
    assert other.way() == ["derive"]


def test_whoever_pays_less_sees_less_and_comes_to_the_same_in_the_end(clinic: Clinic) -> None:
    fine, coarse = clinic.sit(margin="20u"), clinic.sit(margin="400u")
    sharp = fine.ask(BY_DISEASE)
    blurred = coarse.ask(BY_DISEASE)
    assert coarse.way() == ["derive"] and clinic.spent(coarse) < clinic.spent(fine) / 100
    assert sum(abs(sharp[d] - blurred[d]) for d in sharp) / len(sharp) > 40
    # In steps: noise that was added is taken away, and what was shown on the way gives nothing away.
    for margin in ("200u", "100u", "60u"):
        coarse.set("margin", margin)
        closer = coarse.ask(BY_DISEASE)
        assert coarse.way() == ["derive"] and closer != blurred
        blurred = closer
    coarse.set("margin", "20u")
    assert coarse.ask(BY_DISEASE) == sharp
    assert abs(clinic.spent(coarse) - clinic.spent(fine)) < Decimal("1e-12")


def test_the_same_question_again_shows_the_same_numbers_after_a_refinement(clinic: Clinic) -> None:
    she = clinic.sit(margin="100u")
    before = she.ask(BY_DISEASE)
    she.set("margin", "30u")
    assert she.ask(BY_DISEASE) != before
    she.set("margin", "100u")
    assert she.ask(BY_DISEASE) == before and she.bills[-1]["charged"] == "0"


def test_one_statistic_is_one_view_whatever_is_asked_beside_it(clinic: Clinic) -> None:
    she = clinic.sit()
    she.ask("SELECT disease, sum(age), count(*) FROM patient_data GROUP BY disease")
    spent = clinic.spent(she)
    she.ask(BY_DISEASE)
    assert she.way() == ["reuse"] and clinic.spent(she) == spent


def test_new_data_is_measured_anew(clinic: Clinic) -> None:
    first, second = clinic.sit(), clinic.sit()
    numbers = first.ask(BY_DISEASE)
    clinic.administer("SELECT provenance.refresh('patient_data')")
    assert second.ask(BY_DISEASE) != numbers and second.way() == ["measure"]


def test_explain_tells_the_way_and_its_price_beforehand(clinic: Clinic) -> None:
    first, second = clinic.sit(), clinic.sit()
    first.ask(BY_DISEASE)
    ((document,),) = second.connection.execute(f"EXPLAIN (FORMAT JSON) {BY_DISEASE}").fetchall()
    assert document[0]["Questions"][0]["Ways"][0]["way"] == "derive"
    page = "\n".join(line for (line,) in second.connection.execute(f"EXPLAIN {BY_DISEASE}").fetchall())
    assert "Way 1: derive" in page and clinic.spent(second) == 0
    second.ask(BY_DISEASE)
    assert document[0]["Charged"] == second.bills[-1]["charged"]
    assert document[0]["Epsilon"] == pytest.approx(second.bills[-1]["epsilon"])


def test_a_limit_on_a_view_binds_all_analysts_together(clinic: Clinic) -> None:
    first, second = clinic.sit(), clinic.sit(margin="5u")
    text = "SELECT gender, count(*) FROM patient_data GROUP BY gender"
    first.ask(text)
    clinic.administer(
        "UPDATE provenance.view SET epsilon_limit = 0.2 WHERE dimensions = '{gender}' AND measure = 'count(*)'"
    )
    with pytest.raises(psycopg.errors.ConfigurationLimitExceeded) as refused:
        second.ask(text)
    assert "gender" in str(refused.value) and clinic.spent(second) == 0
    second.set("margin", "50u")
    second.ask(text)  # what is there already costs the view nothing


class TestRegisteredViews:
    """Range counts as sums of a histogram's cells."""

    RANGE = "SELECT count(*), count(*) FROM patient_data WHERE age BETWEEN {} AND {}"

    @pytest.fixture(autouse=True)
    def histogram(self, clinic: Clinic) -> Iterator[None]:
        clinic.administer(HISTOGRAM + " ON CONFLICT (relation_id, dimensions, measure) DO UPDATE SET registered = true")
        yield
        clinic.administer("UPDATE provenance.view SET registered = false WHERE dimensions = '{age}'")

    def test_a_range_is_free_once_the_histogram_is_known(self, clinic: Clinic) -> None:
        she = clinic.sit(margin="20u")
        by_age = {
            row[0]: row[1]
            for row in she.connection.execute("SELECT age, count(*) FROM patient_data GROUP BY age").fetchall()
        }
        spent = clinic.spent(she)
        she.set("margin", "200u")
        for low, high in ((20, 39), (25, 60), (0, 9)):
            (number,) = she.ask(self.RANGE.format(low, high)).values()
            assert number == sum(by_age[age] for age in range(low, high + 1))
            assert she.way() == ["reuse on age: count(*)"] and she.bills[-1]["charged"] == "0"
        assert clinic.spent(she) == spent

    def test_groups_are_derived_too(self, clinic: Clinic) -> None:
        she = clinic.sit(margin="20u")
        by_age = dict(she.connection.execute("SELECT age, count(*) FROM patient_data GROUP BY age").fetchall())
        she.set("margin", "300u")
        rows = she.connection.execute(
            "SELECT age / 10 AS decade, count(*) FROM patient_data WHERE age <> 50 GROUP BY age / 10"
        ).fetchall()
        assert she.way() == ["reuse on age: count(*)"] and len(rows) >= 10
        for decade, number in rows:
            ages = [age for age in by_age if (age is None) is (decade is None) and age != 50]
            assert number == sum(by_age[age] for age in ages if age is None or age // 10 == decade)

    def test_where_the_own_view_is_cheaper_it_is_taken_and_explain_tells_both(self, clinic: Clinic) -> None:
        she = clinic.sit()
        text = self.RANGE.format(18, 64)
        ((document,),) = she.connection.execute(f"EXPLAIN (FORMAT JSON) {text}").fetchall()
        ((told,),) = [document[0]["Questions"][0]["Ways"]]
        ways = {way["way"]: way["epsilon"] for way in told["alternatives"]}
        assert ways.keys() == {"measure on its own view", "measure on age: count(*)"}
        assert ways["measure on its own view"] < ways["measure on age: count(*)"]
        she.ask(text)
        assert she.way() == ["measure"]


class TestDecisionsOnKnownNoise:
    DECISION = "SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 2500"

    def test_noise_that_was_shown_decides_for_free_only_if_the_analyst_says_so(self, clinic: Clinic) -> None:
        she = clinic.sit(margin="20u")
        numbers = she.ask(BY_DISEASE)
        spent = clinic.spent(she)
        she.set("reuse", "on")
        kept = she.ask(self.DECISION).keys()
        assert she.bills[-1]["charged"] == "0" and "not chosen from these numbers" in she.bills[-1]["promise"]
        assert clinic.spent(she) == spent
        assert {d for d, n in numbers.items() if n > 2500} <= kept <= {d for d, n in numbers.items() if n > 2450}
        she.set("reuse", "off")
        she.ask(self.DECISION)
        assert clinic.spent(she) > spent and "promise" not in she.bills[-1]

    def test_what_is_not_known_is_decided_as_ever(self, clinic: Clinic) -> None:
        she = clinic.sit(reuse="on")
        she.ask(self.DECISION)
        assert she.bills[-1]["mechanism"] == "cert" and clinic.spent(she) > 0


def test_two_sessions_that_ask_the_same_at_once_pay_once(clinic: Clinic) -> None:
    name = clinic.sit().name
    text = "SELECT disease, gender, count(*) FROM patient_data GROUP BY 1, 2"

    def ask() -> list[Any]:
        with clinic.proxy.connect(name) as session:
            return session.execute(text).fetchall()

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: ask(), range(4)))
    assert all(answer == answers[0] for answer in answers)
    with psycopg.connect(clinic.upstream) as conn:
        paid = conn.execute("SELECT count(*) FROM provenance.charge WHERE analyst = %s", (name,)).fetchone()
    assert paid == (1,)


@pytest.mark.parametrize("decision", [False, True])
def test_two_proxies_that_are_asked_the_same_at_once_are_paid_once(
    clinic: Clinic, shadow_server: Any, tmp_path: Path, decision: bool
) -> None:
    name = clinic.sit().name
    with running_proxy(clinic.upstream, shadow_server.admin_dsn, tmp_path / "other.log") as other:
        sessions = [proxy.connect(name) for proxy in (clinic.proxy, other)]
        for threshold in range(1, 9):
            text = f"SELECT disease FROM patient_data GROUP BY 1 HAVING count(*) > {1500 + 10 * threshold}"
            text = text if decision else f"SELECT count(*) FROM patient_data WHERE age > {threshold}"
            with ThreadPoolExecutor(2) as pool:
                one, same = pool.map(lambda session, text=text: session.execute(text.encode()).fetchall(), sessions)
            assert one == same
        for session in sessions:
            session.close()
    with psycopg.connect(clinic.upstream) as conn:
        paid = conn.execute("SELECT count(*) FROM provenance.questions_of(%s, 100)", (name,)).fetchone()
    assert paid == (8,)
