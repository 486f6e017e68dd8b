"""An empty purse still gets an answer: of a region that is told, from what the analyst knows, at no cost."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from proxies import Proxy, charges, new_analyst, running_proxy
from scipy.stats import chi2

MARGIN = "400u"
LEAN = math.sqrt(2 * math.log(20))  # deviations, for a beta of 0.05
FIRST, SECOND, THIRD = ("age < 20", "age BETWEEN 20 AND 39", "age BETWEEN 40 AND 59")


def counting(where: str) -> str:
    return f"SELECT count(*) FROM patient_data WHERE {where}"


@dataclass
class Asker:
    """An analyst whose purse can be emptied."""

    proxy: Proxy
    name: str
    notices: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.session = self.proxy.connect(self.name)
        self.session.add_notice_handler(
            lambda n: self.notices.append((n.message_primary or "", json.loads(n.message_detail or "{}")))
        )

    def ask(self, text: str) -> list[tuple[Any, ...]]:
        return self.session.execute(text.encode()).fetchall()

    def refused(self, text: str) -> psycopg.Error:
        with pytest.raises(psycopg.Error) as refusal:
            self.session.execute(text.encode())
        assert refusal.value.sqlstate == "53400"
        return refusal.value

    def number(self, text: str) -> int:
        ((found,),) = self.ask(text)
        return int(found)

    def relaxed(self) -> list[dict[str, Any]]:
        """What the last bill says was really answered."""
        found: list[dict[str, Any]] = self.notices[-1][1]["relaxed"]
        return found

    def allow(self, epsilon: str) -> None:
        with psycopg.connect(self.proxy.upstream, autocommit=True) as conn:
            conn.execute("UPDATE provenance.analyst SET epsilon_limit = %s WHERE name = %s", (epsilon, self.name))


@pytest.fixture(scope="module")
def house(new_upstream: Callable[[], str], shadow_server: Any, tmp_path_factory: Any) -> Iterator[Proxy]:
    log = tmp_path_factory.mktemp("relaxed") / "proxy.log"
    with running_proxy(new_upstream(), shadow_server.admin_dsn, log) as proxy:
        yield proxy


@pytest.fixture
def new_asker(house: Proxy) -> Iterator[Callable[..., Asker]]:
    made: list[Asker] = []

    def make(on_exhausted: str = "relax") -> Asker:
        made.append(Asker(house, new_analyst(house.upstream, margin=MARGIN, raw="on", on_exhausted=on_exhausted)))
        return made[-1]

    yield make
    for each in made:
        each.session.close()


@pytest.fixture
def asker(new_asker: Callable[..., Asker]) -> Asker:
    return new_asker()


def true_count(proxy: Proxy, where: str) -> int:
    with psycopg.connect(proxy.upstream) as conn:
        row = conn.execute(counting(where).encode()).fetchone()
    assert row is not None
    return int(row[0])


def refresh(proxy: Proxy) -> None:
    with psycopg.connect(proxy.upstream, autocommit=True) as conn:
        conn.execute("SELECT provenance.refresh('patient_data')")


def test_a_refused_count_is_answered_for_the_region_that_is_told(asker: Asker, house: Proxy) -> None:
    for where in (FIRST, SECOND):
        asker.ask(counting(where))
    asker.allow("0.001")
    paid = charges(house.upstream, asker.name)
    value = asker.number(counting("age BETWEEN 19 AND 41"))
    (told,) = asker.relaxed()
    message, bill = asker.notices[-1]
    assert told["region"] == "age BETWEEN 20 AND 39" and told["aggregate"] == "count(*)"
    assert 0 < told["error"] < 0.1 and told["stddev"] > 100
    # Noise with Gaussian tails is that far off once in 10^10 times.
    assert abs(value - true_count(house, told["region"])) < 7 * told["stddev"]
    assert "count(*) WHERE age BETWEEN 20 AND 39" in message and "relaxation error" in message
    assert (bill["mechanism"], bill["charged"], bill["epsilon"], bill["reused"]) == ("relax", "0", 0, True)
    assert charges(house.upstream, asker.name) == paid


def test_known_answers_are_added_and_taken_away(asker: Asker) -> None:
    first, second = (asker.number(counting(where)) for where in (FIRST, SECOND))
    asker.allow("0.001")
    assert asker.number(counting("age < 40")) == first + second
    (told,) = asker.relaxed()
    assert told["region"] == "age BETWEEN 0 AND 39" and told["error"] == 0
    asker.allow("1")
    young = asker.number(counting("age < 10"))
    asker.allow("0.001")
    assert asker.number(counting("age BETWEEN 10 AND 19")) == first - young
    assert asker.relaxed()[0]["region"] == "age BETWEEN 10 AND 19"


def test_sums_are_relaxed_too_and_counts_are_no_sums(asker: Asker) -> None:
    known = asker.ask("SELECT sum(age) FROM patient_data WHERE age < 50")
    asker.allow("0.001")
    assert asker.ask("SELECT sum(age) FROM patient_data WHERE age <= 50") == known
    assert asker.relaxed()[0]["aggregate"] == "sum(age)"
    assert "Nothing that you know" in str(asker.refused(counting("age < 50")).diag.message_hint)


def test_numbers_about_persons_are_told_as_they_are_and_not_added_up(asker: Asker) -> None:
    def orders(where: str) -> str:
        return f"SELECT count(*) FROM orders WHERE {where}"

    low, high = (asker.number(orders(where)) for where in ("amount < 100", "amount >= 100"))
    by_category = asker.ask("SELECT category, count(*) FROM orders GROUP BY category")
    asker.allow("0.001")
    assert asker.number(orders("amount < 120")) == low
    assert asker.relaxed()[0]["region"] == "amount BETWEEN 0.00 AND 99.99"
    assert asker.number(orders("amount < 500")) in (low, high)
    assert asker.ask("SELECT category, count(*) FROM orders WHERE amount < 499 GROUP BY category") == by_category


def test_cells_of_a_known_histogram_are_added_up(asker: Asker) -> None:
    known = dict(asker.ask("SELECT disease, count(*) FROM patient_data GROUP BY disease"))
    asker.allow("0.001")
    two = "disease IN ('asthma', 'influenza')"
    found = asker.number(f"SELECT count(*) FILTER (WHERE {two}) FROM patient_data")
    assert found == known["asthma"] + known["influenza"]
    assert asker.relaxed()[0]["region"] == two and asker.relaxed()[0]["error"] == 0


def test_groups_stay_apart(asker: Asker) -> None:
    known = asker.ask("SELECT gender, count(*) FROM patient_data GROUP BY gender")
    asker.allow("0.001")
    assert asker.ask("SELECT gender, count(*) FROM patient_data WHERE age <= 99 GROUP BY gender") == known
    assert [(each["group"], each["region"]) for each in asker.relaxed()] == [
        ([name], f"gender = '{name}'") for name, _ in known
    ]
    asker.refused("SELECT disease_type, count(*) FROM patient_data GROUP BY disease_type")


@pytest.mark.parametrize("mechanism", ["auto", "tslm"])
def test_groups_are_decided_by_nearby_numbers(asker: Asker, house: Proxy, mechanism: str) -> None:
    known = dict(asker.ask("SELECT disease, count(*) FROM patient_data GROUP BY disease"))
    asker.session.execute(f"SET veil.mechanism = '{mechanism}'".encode())
    asker.allow("0.001")
    paid = charges(house.upstream, asker.name)
    kept = asker.ask("SELECT disease FROM patient_data WHERE age <= 99 GROUP BY disease HAVING count(*) > 2000")
    told = {each["group"][0]: each for each in asker.relaxed()}
    assert told.keys() == known.keys()
    assert all(each["region"] == f"disease = '{name}'" for name, each in told.items())
    leaning = {name for name, each in told.items() if known[name] >= 2001 - math.ceil(LEAN * each["stddev"])}
    assert {name for (name,) in kept} == leaning
    assert "regions" in asker.notices[-1][1]["promise"] and charges(house.upstream, asker.name) == paid


def test_in_a_statement_with_several_questions_what_is_known_stays_as_it_was(asker: Asker) -> None:
    average = asker.ask("SELECT avg(age) FROM patient_data")
    first = asker.number(counting(FIRST))
    asker.allow("0.001")
    both = asker.ask(f"SELECT (SELECT avg(age) FROM patient_data), ({counting('age < 21')})")
    assert both == [(average[0][0], first)]
    assert ["relaxed" in bill for _, bill in asker.notices[-2:]] == [False, True]


def test_without_the_wish_the_refusal_stands_and_says_what_could_be_had(new_asker: Callable[..., Asker]) -> None:
    asker = new_asker("error")
    asker.ask(counting(FIRST))
    asker.allow("0.001")
    assert "veil.on_exhausted" in str(asker.refused(counting("age < 21")).diag.message_hint)
    asker.session.execute("SET veil.on_exhausted = 'relax'")
    asker.number(counting("age < 21"))
    assert asker.relaxed()[0]["region"] == "age BETWEEN 0 AND 19"


def test_once_the_purse_is_full_again_the_question_itself_is_answered(asker: Asker) -> None:
    asker.ask(counting(FIRST))
    asker.allow("0.001")
    asker.ask(counting("age < 21"))
    asker.allow("5")
    asker.ask(counting("age < 21"))
    assert "relaxed" not in asker.notices[-1][1] and asker.notices[-1][1]["epsilon"] > 0


def test_another_word_is_no_wish(asker: Asker) -> None:
    asker.session.execute("SET veil.on_exhausted = 'panic'")
    with pytest.raises(psycopg.Error) as refusal:
        asker.ask(counting(FIRST))
    assert refusal.value.sqlstate == "22023" and "error, relax" in str(refusal.value.diag.message_hint)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 2000",
        "SELECT gender FROM patient_data GROUP BY gender HAVING avg(age) > 50 AND count(*) > 100",
        "SELECT avg(age) FROM patient_data",
        counting("age % 2 = 0"),
        counting("age IN (1, 50)"),
        "SELECT count(*), veil.low(count(*)) FROM patient_data WHERE age < 21",
        "SELECT count(*) FROM orders WHERE amount < 100",
    ],
)
def test_what_has_no_nearby_number_is_refused_as_before(asker: Asker, text: str) -> None:
    asker.ask(counting(FIRST))
    asker.allow("0.001")
    asker.refused(text)


def test_what_others_know_is_never_used(new_asker: Callable[..., Asker], house: Proxy) -> None:
    refresh(house)
    poor, rich = new_asker(), new_asker()
    rich.ask(counting("age < 21"))
    rich.ask("SELECT age, count(*) FROM patient_data GROUP BY age")
    poor.allow("0.001")
    assert "Nothing that you know" in str(poor.refused(counting("age < 21")).diag.message_hint)
    poor.allow("5")
    poor.ask(counting("age < 60"))
    poor.allow("0.001")
    poor.ask(counting("age < 21"))
    assert poor.relaxed()[0]["region"] == "age BETWEEN 0 AND 59"


def test_explain_tells_what_relaxation_would_give(asker: Asker, house: Proxy) -> None:
    asker.ask(counting(SECOND))
    text = counting("age BETWEEN 21 AND 39")
    assert not any("Relaxed" in line for (line,) in asker.ask(f"EXPLAIN {text}"))
    asker.allow("0.001")
    paid = charges(house.upstream, asker.name)
    (line,) = [line for (line,) in asker.ask(f"EXPLAIN {text}") if "Relaxed" in line]
    assert "count(*) WHERE age BETWEEN 20 AND 39" in line
    ((document,),) = asker.ask(f"EXPLAIN (FORMAT JSON) {text}")
    (told,) = document[0]["Questions"][0]["Relaxed"]
    assert told["region"] == "age BETWEEN 20 AND 39" and "value" not in told
    asker.ask(text)
    assert asker.relaxed() == [told] and charges(house.upstream, asker.name) == paid


def test_rows_that_were_not_released_change_nothing(
    new_upstream: Callable[[], str], shadow_server: Any, tmp_path: Any
) -> None:
    """The rows are gone, and what was released is not: every relaxed answer is the same, byte for byte."""
    with running_proxy(new_upstream(), shadow_server.admin_dsn, tmp_path / "proxy.log") as proxy:
        asker = Asker(proxy, new_analyst(proxy.upstream, margin=MARGIN, on_exhausted="relax"))
        for where in (FIRST, SECOND, THIRD, "disease = 'asthma'"):
            asker.ask(counting(where))
        asker.ask("SELECT disease, count(*) FROM patient_data GROUP BY disease")
        asker.allow("0.001")
        texts = [
            *map(counting, ("age < 40", "age BETWEEN 18 AND 41", "disease = 'asthma' AND age < 90", "age <= 59")),
            "SELECT disease, count(*) FROM patient_data WHERE age < 95 GROUP BY disease",
        ]

        def told() -> list[Any]:
            answers = [asker.ask(text) for text in texts]
            bills = [(message, json.dumps(bill)) for message, bill in asker.notices[-len(texts) :]]
            return [answers, bills]

        before = told()
        with psycopg.connect(proxy.upstream, autocommit=True) as conn:
            conn.execute("DELETE FROM patient_data WHERE patient_id % 3 <> 0 OR age < 30")
        assert told() == before
        asker.session.close()


@pytest.mark.slow
def test_the_noise_of_relaxed_numbers_is_the_noise_that_is_told(new_asker: Callable[..., Asker], house: Proxy) -> None:
    """Squares of (number - true count of the told region) / (told deviation), over fresh data versions."""
    asker = new_asker()
    truth: dict[str, int] = {}
    squares: list[float] = []
    for _ in range(60):
        refresh(house)
        asker.allow("100")
        for where in (FIRST, SECOND, THIRD):
            asker.ask(counting(where))
        asker.allow("0.001")
        for where in ("age < 40", "age BETWEEN 41 AND 60"):
            value = asker.number(counting(where))
            (told,) = asker.relaxed()
            region = told["region"]
            truth.setdefault(region, true_count(house, region))
            squares.append(((value - truth[region]) / told["stddev"]) ** 2)
    assert len(truth) == 2
    low, high = chi2.ppf([0.5e-7, 1 - 0.5e-7], len(squares))
    assert low < sum(squares) < high
    wrong = [each * 4 for each in squares]  # a deviation that is told at half
    assert not low < sum(wrong) < high
