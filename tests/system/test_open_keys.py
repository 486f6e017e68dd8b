"""Group keys whose values nobody declared: a group is named only if many people are in it, and delta is paid for that.

The table of these tests has groups of every size, many of a single row, and one that a neighbour database has not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from proxies import Proxy, charges, new_analyst, running_proxy

from provenance.migrate import migrate

SCHEMA = """
CREATE TABLE visits (
  id int PRIMARY KEY, person int NOT NULL, page text, device text NOT NULL, price numeric, spent int);
INSERT INTO visits SELECT i, i, 'popular ' || i % 3, (ARRAY['phone', 'desk'])[1 + i % 2], 10.0, 5
  FROM generate_series(1, 9000) i;
INSERT INTO visits SELECT 10000 + i, 10000 + i, 'secret ' || i, 'phone', i + 0.5, 5 FROM generate_series(1, 400) i;
INSERT INTO visits SELECT 20000 + i, 20000 + i, NULL, 'desk', NULL, 5 FROM generate_series(1, 2500) i;
CREATE TABLE clicks (id int PRIMARY KEY, person int NOT NULL, page text NOT NULL);
INSERT INTO clicks SELECT i, i % 3000, 'page ' || i % 2 FROM generate_series(1, 12000) i;
INSERT INTO clicks SELECT 20000 + i, 1, 'mine' FROM generate_series(1, 5000) i;
"""
REGISTER = """
-- A least price of a scan that is a fraction of so large a limit would be above every price that is tested here.
UPDATE provenance.deployment SET epsilon = 1000, delta = 0.000000002, scan_floor = 0;
SELECT provenance.protect('visits'), provenance.protect('clicks', 'person', 2, 3);
SELECT provenance.declare_attribute('visits', 'device', members => ARRAY['phone', 'desk']);
SELECT provenance.declare_attribute('visits', 'spent', lower => '0', upper => '100');
"""
BY_PAGE = "SELECT page, count(*) FROM visits GROUP BY page"
NAMED = {"popular 0", "popular 1", "popular 2", None}


@dataclass(frozen=True)
class Shop:
    """A proxy and the protected database behind it."""

    proxy: Proxy
    upstream: str

    def ask(self, text: str, *settings: str, analyst: str | None = None) -> tuple[list[Any], list[dict[str, Any]], str]:
        """Rows, bills and the analyst: by default a fresh one."""
        name = analyst or new_analyst(self.upstream)
        with self.proxy.connect(name) as session:
            bills: list[dict[str, Any]] = []
            session.add_notice_handler(lambda notice: bills.append(json.loads(notice.message_detail or "{}")))
            for setting in settings:
                session.execute(f"SET {setting}")
            cursor = session.execute(text)
            return cursor.fetchall() if cursor.description else [], bills, name


@pytest.fixture(scope="module")
def build(postgres, shadow_server, tmp_path_factory) -> Iterator[Callable[[str], Shop]]:  # type: ignore[no-untyped-def]
    """Makes shops; ``more`` is SQL that makes one differ."""
    from contextlib import ExitStack

    with ExitStack() as stack:

        def make(more: str) -> Shop:
            dsn: str = postgres.new_database("open")
            migrate(dsn)
            with psycopg.connect(dsn, autocommit=True) as conn:
                conn.execute(SCHEMA)
                conn.execute(REGISTER)
                if more:
                    conn.execute(more)
            log = tmp_path_factory.mktemp("open") / "proxy.log"
            return Shop(stack.enter_context(running_proxy(dsn, shadow_server.admin_dsn, log)), dsn)

        yield make


@pytest.fixture(scope="module")
def shop(build: Callable[[str], Shop]) -> Shop:
    return build("")


def test_groups_of_many_are_named_and_single_people_never(shop: Shop) -> None:
    """400 groups of one row, in 25 answers: 10,000 chances to be seen, each one in a hundred thousand million."""
    for _ in range(25):
        rows, _, _ = shop.ask(BY_PAGE)
        assert {page for page, _ in rows} == NAMED
        for page, number in rows:
            assert abs(number - (2500 if page is None else 3000)) < 1000


def test_keys_come_in_an_order_that_tells_nothing(shop: Shop) -> None:
    rows, _, _ = shop.ask(BY_PAGE)
    assert [page for page, _ in rows] == ["popular 0", "popular 1", "popular 2", None]


def test_no_rows_are_free_and_groups_are_not(shop: Shop) -> None:
    """A condition that the text decides: no group needs to be hidden where none is shown; where all are, each does."""
    rows, (bill,), name = shop.ask(f"{BY_PAGE} HAVING count(*) > 5 AND count(*) < 6")
    assert rows == [] and bill["epsilon"] == 0 and bill["delta"] == 0 and charges(shop.upstream, name) == []
    for text in (f"{BY_PAGE} HAVING count(*) >= 0", "SELECT page FROM visits GROUP BY page HAVING count(*) >= 0"):
        rows, (bill,), name = shop.ask(text)
        assert {row[0] for row in rows} == NAMED and bill["epsilon"] > 0 and bill["delta"] > 0


def test_delta_is_paid_and_told(shop: Shop) -> None:
    _, (bill,), name = shop.ask(BY_PAGE)
    assert 0 < bill["delta"] <= 1e-11 and bill["domain"].startswith("unknown")
    with psycopg.connect(shop.upstream) as conn:
        row = conn.execute(
            "SELECT delta, charged, epsilon FROM provenance.history WHERE analyst = %s", (name,)
        ).fetchone()
    assert row is not None and float(row[0]) == bill["delta"]
    assert float(row[2]) == pytest.approx(bill["epsilon"]) and row[1] == Decimal(bill["charged"])
    assert row[1] == 2 * sum(Decimal(each["charged"]) for each in bill["statistics"]), "the naming costs as much again"


def test_the_same_question_again_is_free_and_names_the_same_groups(shop: Shop) -> None:
    rows, _, name = shop.ask(BY_PAGE)
    for again in (BY_PAGE, "SELECT v.page, count(*) FROM public.visits v GROUP BY 1"):
        repeated, (bill,), _ = shop.ask(again, analyst=name)
        assert repeated == rows and bill["reused"] and bill["delta"] == 0
    assert len(charges(shop.upstream, name)) == 1


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("SELECT DISTINCT page FROM visits", {(p,) for p in NAMED}),
        ("SELECT page FROM visits GROUP BY page", {(p,) for p in NAMED}),
        (
            "SELECT device, page FROM visits GROUP BY 1, 2",
            {(d, p) for d in ("phone", "desk") for p in NAMED} - {("phone", None)},
        ),
        ("SELECT upper(page) FROM visits WHERE page IS NOT NULL GROUP BY 1", {(f"POPULAR {i}",) for i in range(3)}),
        ("SELECT page FROM visits GROUP BY page HAVING count(*) > 2800", {(f"popular {i}",) for i in range(3)}),
        ("SELECT price FROM visits GROUP BY price", {(Decimal(10),), (None,)}),
        (
            "SELECT page, grouping(page) FROM visits GROUP BY ROLLUP (page)",
            {*((p, 0) for p in NAMED), (None, 1)},
        ),
        ("SELECT q.page FROM (SELECT page, sum(spent) AS s FROM visits GROUP BY page) q WHERE q.s > 0",
         {(p,) for p in NAMED}),
    ],
)  # fmt: skip
def test_open_keys_stand_wherever_keys_stand(shop: Shop, text: str, named: set[Any]) -> None:
    # So little noise that the sizes of 2,500 and 3,000 are told from 2,800 whatever is drawn.
    rows, (bill,), _ = shop.ask(text, "veil.margin = '10u'")
    assert set(rows) == named and len(rows) == len(named)
    assert bill["delta"] > 0


def test_a_person_counts_once_in_a_group_whatever_the_number_of_rows(shop: Shop) -> None:
    """5,000 rows of one person make no group."""
    for _ in range(5):
        rows, _, _ = shop.ask("SELECT page, count(*) FROM clicks GROUP BY page")
        assert {page for page, _ in rows} == {"page 0", "page 1"}


def test_a_given_epsilon_pays_for_the_naming_too(shop: Shop) -> None:
    _, (bill,), name = shop.ask("SELECT page, count(*), sum(spent) FROM visits GROUP BY page", "veil.epsilon = '0.6'")
    ((_, epsilon, _, _),) = charges(shop.upstream, name)
    assert Decimal("0.5999") < epsilon <= Decimal("0.6") and bill["epsilon"] == pytest.approx(0.6, abs=1e-3)


def test_a_numeric_key_has_one_spelling_whoever_wrote_it(build: Callable[[str], Shop], shop: Shop) -> None:
    """10.0 and 10.00 are one group: the text of its key must not tell which spelling came first."""
    other = build("UPDATE visits SET price = 10.000 WHERE id = 1; CLUSTER visits USING visits_pkey")
    text = "SELECT price::text FROM (SELECT price FROM visits WHERE price IS NOT NULL GROUP BY price) q"
    assert shop.ask(text)[0] == other.ask(text)[0]


def test_one_more_person_with_a_key_of_their_own_changes_nothing_that_is_seen(
    build: Callable[[str], Shop], shop: Shop
) -> None:
    neighbour = build("INSERT INTO visits VALUES (0, 0, 'brand new', 'phone', 77.7, 5)")
    for text in (BY_PAGE, "SELECT page FROM visits GROUP BY page", "SELECT device, page FROM visits GROUP BY 1, 2"):
        for _ in range(10):
            told = [house.ask(text) for house in (shop, neighbour)]
            keys = [[row[:-1] if "count" in text else row for row in rows] for rows, _, _ in told]
            assert keys[0] == keys[1]
            seen = [
                {
                    name: value
                    for name, value in bill.items()
                    if name not in ("remaining_epsilon", "limited_by", "as_of")
                }
                for _, (bill,), _ in told
            ]
            assert seen[0] == seen[1]


def test_a_hundred_such_questions_use_the_delta_up(build: Callable[[str], Shop]) -> None:
    shop = build("")
    name = new_analyst(shop.upstream)
    with shop.proxy.connect(name) as session:
        session.execute("SET veil.epsilon = '0.1'")
        for number in range(100):
            session.execute(f"SELECT page, count(*) FROM visits WHERE spent <> {number + 1000} GROUP BY page")
        plan = session.execute(f"EXPLAIN (FORMAT JSON) {BY_PAGE}").fetchone()
        assert plan is not None and plan[0][0]["Allowed"] is False and "delta" in plan[0][0]["Verdict"]
        with pytest.raises(psycopg.errors.ConfigurationLimitExceeded) as refusal:
            session.execute(BY_PAGE)
        assert "delta" in str(refusal.value)
        session.execute("SELECT device, count(*) FROM visits GROUP BY device")  # known keys need none
    assert len(charges(shop.upstream, name)) == 101


def test_without_a_delta_unknown_keys_are_refused(build: Callable[[str], Shop]) -> None:
    shop = build("UPDATE provenance.deployment SET coin = 'pure', delta = 0")
    for text in (BY_PAGE, f"EXPLAIN {BY_PAGE}", "SELECT DISTINCT page FROM visits"):
        with pytest.raises(psycopg.errors.FeatureNotSupported) as refusal:
            shop.ask(text)
        assert "declare_attribute" in (refusal.value.diag.message_hint or "")
    rows, (bill,), _ = shop.ask("SELECT device, count(*) FROM visits GROUP BY device")
    assert len(rows) == 2 and bill["coin"] == "pure" and bill["delta"] == 0
