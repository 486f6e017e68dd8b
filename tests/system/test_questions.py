"""Questions as analysts and their tools write them: wrapped, combined, repeated, kept; and what each of them costs."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from proxies import Proxy, charges, forget, new_analyst
from scipy.stats import binom

WRAPPED = (
    "SELECT t.city, SUM(t.n) FROM (SELECT city, region, count(*) AS n FROM orders GROUP BY 1,2) t"
    " WHERE t.region = 'northeast' GROUP BY 1 ORDER BY 2 DESC LIMIT 10"
)


@dataclass
class Session:
    """A session with the bills that it was sent."""

    connection: psycopg.Connection[Any]
    upstream: str
    bills: list[dict[str, Any]]

    @property
    def name(self) -> str:
        return self.connection.info.user

    def ask(self, text: str, parameters: Any = None, **more: Any) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(text, parameters, **more)
        return cursor.fetchall() if cursor.description else []

    def charges(self) -> list[tuple[Any, ...]]:
        return charges(self.upstream, self.name)

    def refused(self, text: str, parameters: Any = None) -> str:
        before = len(self.charges())
        with pytest.raises(psycopg.Error) as refusal:
            self.ask(text, parameters)
        assert len(self.charges()) == before
        return refusal.value.sqlstate or ""


@pytest.fixture
def sitting(proxy: Proxy, upstream: str) -> Iterator[Callable[..., Session]]:
    """Sessions of fresh analysts of the demo."""
    opened: list[psycopg.Connection[Any]] = []

    def sit(epsilon: str | None = None, **settings: str) -> Session:
        connection = proxy.connect(new_analyst(upstream, epsilon, **settings))
        opened.append(connection)
        bills: list[dict[str, Any]] = []
        connection.add_notice_handler(lambda notice: bills.append(json.loads(notice.message_detail or "{}")))
        return Session(connection, upstream, bills)

    yield sit
    for connection in opened:
        connection.close()


@pytest.fixture
def she(sitting: Callable[..., Session]) -> Session:
    return sitting()


def one_epsilon(session: Session, text: str) -> Decimal:
    """What a question costs in coin, told by EXPLAIN."""
    (row,) = session.ask(f"EXPLAIN (FORMAT JSON) {text}")
    return Decimal(row[0][0]["Charged"])


# -- what BI tools send ----------------------------------------------------------------------------------------------


def test_a_question_in_a_wrapper_works_and_costs_one_question(she: Session) -> None:
    rows = she.ask(WRAPPED)
    assert 1 <= len(rows) <= 10
    assert [row[1] for row in rows] == sorted((row[1] for row in rows), reverse=True)
    assert len(she.charges()) == 1
    assert she.ask(WRAPPED) == rows and len(she.charges()) == 1


def test_the_columns_of_a_wrapped_question_are_typed_in_both_formats(she: Session) -> None:
    text = she.ask(WRAPPED)
    binary = she.ask(WRAPPED, binary=True)
    assert binary == text
    assert {type(cell) for row in text for cell in row} == {str, Decimal}
    inner = "SELECT ordered_on, count(*) AS n, avg(amount) AS mean, sum(amount) FROM orders GROUP BY ordered_on"
    plain = she.ask(f"SELECT * FROM ({inner}) q ORDER BY 1")
    assert she.ask(f"SELECT * FROM ({inner}) q ORDER BY 1", binary=True) == plain
    types = [{type(cell).__name__ for cell in column if cell is not None} for column in zip(*plain, strict=True)]
    assert types == [{"date"}, {"int"}, {"Decimal"}, {"Decimal"}]


@pytest.mark.parametrize(
    "probe",
    [
        f"SELECT * FROM ({WRAPPED}) q LIMIT 0",
        f"SELECT * FROM ({WRAPPED}) q WHERE 1=0",
        f"SELECT * FROM ({WRAPPED}) q WHERE false",
        f"SELECT q.* FROM (SELECT * FROM ({WRAPPED}) p) q WHERE (1 = 0)",
        "SELECT city, count(*) FROM orders GROUP BY city LIMIT 0",
        "SELECT city, count(*) FROM orders WHERE 1 = 0 GROUP BY city",
        "SELECT city, count(*) FROM orders WHERE false AND amount > 5 GROUP BY city",
    ],
)
def test_asking_for_the_shape_costs_nothing(she: Session, probe: str) -> None:
    cursor = she.connection.execute(probe)
    assert cursor.fetchall() == [] and cursor.description is not None
    assert cursor.description[0].name == "city"
    assert she.charges() == [] and [bill["charged"] for bill in she.bills] == ["0"]


def test_a_count_of_no_row_at_all_is_zero_and_free(she: Session) -> None:
    assert she.ask("SELECT count(*), sum(amount) FROM orders WHERE 1 = 0") == [(0, 0)]
    assert she.charges() == []


def test_inside_a_subselect_nothing_is_clipped_so_that_sums_are_unbiased(sitting: Callable[..., Session]) -> None:
    """500 empty groups: clipped at 0, their sum would be about 500 times the mean absolute noise over two."""
    sums, shown = [], []
    for _ in range(8):
        session = sitting()
        forget(session.upstream)
        session.ask("SET veil.epsilon = '0.1'")
        inner = "SELECT age, disease, count(*) AS n FROM patient_data WHERE age < 12 AND patient_id = 0 GROUP BY 1, 2"
        rows = session.ask(f"SELECT sum(n), min(n), count(*), stddev(n) FROM ({inner}) q")
        total, least, groups, spread = rows[0]
        assert least < 0 and groups > 400
        sums.append(float(total) / (float(spread) * groups**0.5))
        shown += [row[2] for row in session.ask(inner)]
        assert len(session.charges()) == 1
    assert min(shown) == 0, "the same numbers at the top: none is negative"
    # Each is a Student's t of as many degrees of freedom as there are groups, so nearly normal: six standard errors are
    # passed once in 10^8 runs; what is cut off at zero lies forty away.
    assert abs(statistics.fmean(sums)) < 6 / len(sums) ** 0.5


def test_raw_shows_the_negative_numbers_and_costs_nothing_more(she: Session) -> None:
    text = "SELECT disease, count(*), sum(age) FROM patient_data WHERE patient_id = 0 GROUP BY disease ORDER BY 1"
    clipped = she.ask(text)
    she.ask("SET veil.raw = on")
    raw = she.ask(text)
    assert len(she.charges()) == 1
    assert min(row[1] for row in raw) < 0 and min(row[2] for row in raw) < 0
    assert clipped == [(disease, max(0, n), max(0, s)) for disease, n, s in raw]


# -- several questions in one statement ------------------------------------------------------------------------------

BOTH = (
    "SELECT disease FROM patient_data WHERE age > 50 GROUP BY disease HAVING count(*) > 400"
    " INTERSECT SELECT disease FROM patient_data WHERE age <= 60 GROUP BY disease HAVING count(*) > 400"
)
"""About people between 50 and 60, both: what each of them costs adds up."""


def test_the_questions_of_one_statement_are_charged_together_or_not_at_all(sitting: Callable[..., Session]) -> None:
    rich = sitting(mechanism="tslm")
    rich.ask(BOTH)
    assert len(rich.charges()) == 2
    amounts = {amount for _, _, amount, _ in rich.charges()}
    assert len(amounts) == 1
    # A limit between the price of one and the price of both: rho r costs r + 2 sqrt(r ln(1/delta)).
    poor = sitting(str(limit_between(rich, *amounts)), mechanism="tslm")
    assert poor.refused(BOTH) == "53400"
    first = BOTH.partition(" INTERSECT ")[0]
    poor.ask("SET veil.beta = '0.025'")
    poor.ask(first)
    assert len(poor.charges()) == 1


def limit_between(session: Session, amount: Decimal) -> Decimal:
    """An epsilon that pays for the amount once, and not twice."""
    with psycopg.connect(session.upstream) as conn:
        row = conn.execute("SELECT conversion_delta FROM provenance.deployment").fetchone()
    assert row is not None
    logarithm = -row[0].ln()
    return (amount * Decimal("1.5") + 2 * (amount * Decimal("1.5") * logarithm).sqrt()).quantize(Decimal("1e-6"))


def test_two_decisions_share_the_bound_on_misses(she: Session) -> None:
    she.ask(BOTH)
    assert [bill["beta"] for bill in she.bills] == [0.025, 0.025]
    she.ask(BOTH.partition(" INTERSECT ")[0])
    assert she.bills[-1]["beta"] == 0.05 and not she.bills[-1]["reused"]


def test_a_refused_question_takes_the_others_of_its_statement_with_it(she: Session) -> None:
    text = "SELECT (SELECT count(*) FROM patient_data), (SELECT count(DISTINCT note) FROM orders)"
    assert she.refused(text) != ""
    mixed = "SELECT (SELECT count(*) FROM patient_data), (SELECT max(age) FROM patient_data)"
    assert she.refused(mixed) in ("0A000", "42501")


def test_the_same_question_twice_in_a_statement_shows_the_same_numbers_and_is_paid_once(she: Session) -> None:
    inner = "SELECT gender, count(*) AS n FROM patient_data GROUP BY gender"
    rows = she.ask(f"SELECT a.gender, a.n, b.n FROM ({inner}) a JOIN ({inner}) b USING (gender)")
    assert all(one == other for _, one, other in rows)
    assert len(she.charges()) == 1


# -- the same question again -----------------------------------------------------------------------------------------

COUNTED = "SELECT disease, gender, count(*) FROM patient_data"
SPELLINGS: list[tuple[str, tuple[Any, ...] | None]] = [
    (text, None)
    for text in (
        f"{COUNTED} WHERE age BETWEEN 20 AND 60 AND gender IN ('male', 'female') GROUP BY disease, gender",
        "select disease, gender, COUNT(*) from patient_data where age between 20 and 60"
        " and gender in ('female', 'male') group by disease, gender",
        f"{COUNTED} WHERE gender IN ('male', 'female') AND age BETWEEN 20 AND 60 GROUP BY gender, disease",
        "SELECT disease, gender, count(*) FROM patient_data p WHERE p.age >= 20 AND p.age <= 60"
        " AND (p.gender = 'male' OR p.gender = 'female') GROUP BY 1, 2",
        "SELECT p.disease, p.gender, count(*) FROM public.patient_data AS p WHERE 20 <= age AND 60 >= age"
        " AND gender IN ('male', 'female', 'male') GROUP BY 2, 1",
        'SELECT "disease", "gender", count(*) FROM "public"."patient_data" WHERE "age" BETWEEN 20 AND 60'
        ' AND "gender" IN (\'male\', \'female\') GROUP BY "disease", "gender"',
        f"{COUNTED} WHERE NOT (age < 20 OR age > 60)"
        " AND gender = ANY (ARRAY['male', 'female']) GROUP BY disease, gender",
        "SELECT disease AS d, gender AS g, count(*) AS n FROM patient_data WHERE age BETWEEN 20 AND 60"
        " AND gender IN ('male', 'female') GROUP BY d, g ORDER BY n DESC",
        "SELECT * FROM (SELECT disease, gender, count(*) FROM patient_data WHERE age BETWEEN 20 AND 60"
        " AND gender IN ('male', 'female') GROUP BY 1, 2) AS q",
        "WITH q AS (SELECT disease, gender, count(*) AS n FROM patient_data WHERE age BETWEEN 20 AND 60"
        " AND gender IN ('male', 'female') GROUP BY 1, 2) SELECT disease, gender, n FROM q",
        f"{COUNTED} WHERE age BETWEEN 20 AND 60 AND gender IN ('male', 'female') GROUP BY (disease, gender)",
        f"{COUNTED} WHERE age BETWEEN 20 AND 60 AND gender IN ('male', 'female') GROUP BY disease, gender, disease",
        f"{COUNTED} WHERE age BETWEEN 20.0 AND 6e1 AND gender IN"
        " ('male', 'female') GROUP BY disease, gender LIMIT 1000",
        f"{COUNTED} -- a comment\n WHERE /* another */ age BETWEEN 20 AND 60 AND"
        " gender IN ('male', 'female') GROUP BY disease, gender",
        f"{COUNTED} WHERE ((age BETWEEN 20 AND (60))) AND ((gender IN ('male', 'female'))) GROUP BY (disease), gender",
        f"{COUNTED} WHERE age >= 10 + 10 AND age <= 60 AND gender IN ('male', 'female') GROUP BY disease, gender",
        f"{COUNTED} WHERE age BETWEEN 20 AND 60 AND age BETWEEN 20 AND 60 AND"
        " gender IN ('male', 'female') GROUP BY disease, gender",
        f"{COUNTED} WHERE age BETWEEN 20 AND 60 AND true AND 1 = 1 AND gender IN"
        " ('male', 'female') GROUP BY disease, gender",
        "SELECT disease, gender, count(*) + 0 FROM patient_data WHERE age BETWEEN 20 AND 60 AND gender IN"
        " ('male', 'female') GROUP BY disease, gender",
        "SELECT disease, gender, count(*)::bigint FROM patient_data WHERE age BETWEEN 20 AND 60 AND gender IN"
        " ('male', 'female') GROUP BY disease, gender OFFSET 0",
        "SELECT disease, gender, count(1) FROM patient_data WHERE age BETWEEN 20 AND 60 AND gender IN"
        " ('male', 'female') GROUP BY disease, gender",
        "(SELECT disease, gender, count(*) FROM patient_data WHERE age BETWEEN 20 AND 60 AND gender IN"
        " ('male', 'female') GROUP BY disease, gender)",
        f"{COUNTED} AS x WHERE age BETWEEN 20 AND 60 AND gender IN ('male', 'female') GROUP BY disease, x.gender",
        "SELECT disease, gender, n FROM (SELECT gender, count(*) AS n, disease FROM patient_data WHERE age BETWEEN 20"
        " AND 60 AND gender IN ('male', 'female') GROUP BY GROUPING SETS ((gender, disease))) q",
    )
]
FILTERED = "SELECT disease, gender, count(*) FROM patient_data WHERE age BETWEEN {} AND {} AND gender IN ({}, {})"
SPELLINGS += [
    (FILTERED.format("%s", "%s", "%s", "%s") + " GROUP BY disease, gender", (20, 60, "male", "female")),
    (FILTERED.format("%s", "60", "'female'", "%s") + " GROUP BY 1, 2", (20, "male")),
    (
        FILTERED.format("%s", "%s", "%s", "%s") + " GROUP BY gender, disease",
        (Decimal("20.0"), Decimal(60), "female", "male"),
    ),
    (
        f"{COUNTED} WHERE age >= %s AND age <= 60 AND (gender = %s OR gender = %s) GROUP BY 1, 2 LIMIT %s",
        (20, "male", "female", 10_000),
    ),
    (
        "SELECT disease, gender, n FROM (SELECT disease, gender, count(*) AS n FROM patient_data WHERE age BETWEEN %s"
        " AND %s AND gender IN (%s, %s) GROUP BY 1, 2) q WHERE n > %s",
        (20, 60, "male", "female", -1_000_000),
    ),
    (
        "SELECT disease, gender, count(*) * %s FROM patient_data WHERE age BETWEEN %s AND %s AND gender IN (%s, %s)"
        " GROUP BY 1, 2",
        (1, 20, 60, "female", "male"),
    ),
]


def test_one_question_in_thirty_spellings_is_one_charge_and_one_set_of_numbers(she: Session) -> None:
    """Attack: averaging the noise away by spelling the question anew each time."""
    assert len(SPELLINGS) >= 30
    she.ask("SET veil.raw = on")
    answers = {}
    for text, parameters in SPELLINGS:
        rows = she.ask(text, parameters)
        answers[text] = frozenset((disease, gender, int(n)) for disease, gender, n in rows)
        assert len(she.charges()) == 1, text
    assert len(set(answers.values())) == 1


def test_a_prepared_question_is_paid_once_for_each_value(she: Session) -> None:
    text = "SELECT gender, count(*) FROM patient_data WHERE age > %s GROUP BY gender ORDER BY 1"
    first = she.ask(text, (30,), prepare=True)
    assert she.ask(text, (30,), prepare=True) == first
    assert len(she.charges()) == 1
    she.ask(text, (31,), prepare=True)
    assert len(she.charges()) == 2
    assert she.ask(text, (30,), prepare=True) == first and len(she.charges()) == 2


def test_parameters_stand_inside_a_question_and_around_it(she: Session) -> None:
    rows = she.ask(
        "SELECT q.d || %s, q.n * %s::int, %s::date FROM (SELECT disease AS d, count(*) AS n FROM patient_data"
        " WHERE age > %s AND gender = %s GROUP BY disease HAVING count(*) > %s) q WHERE q.d <> %s ORDER BY 1 LIMIT %s",
        ("!", 10, "2025-02-03", 30, "female", 100, "flu", 3),
    )
    assert len(rows) == 3 and len(she.charges()) == 1
    assert all(d.endswith("!") and n % 10 == 0 and str(day) == "2025-02-03" for d, n, day in rows)


# -- decided by the text ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "having",
    ["count(*) > 500 AND count(*) < 400", "count(*) > 5 AND count(*) < 6", "count(*) < 0", "false", "avg(age) > 100"],
)
def test_what_no_data_can_make_true_has_no_rows_and_costs_nothing(she: Session, having: str) -> None:
    text = f"SELECT disease, count(*), avg(age) FROM patient_data GROUP BY disease HAVING {having}"
    assert she.ask(text) == [] and she.charges() == []
    assert she.bills[-1]["epsilon"] == 0 and she.bills[-1]["returned"] == 0
    assert she.ask(f"SELECT count(*) FROM patient_data HAVING {having}") == [] and she.charges() == []
    told = [line for (line,) in she.ask(f"EXPLAIN {text}")]
    assert any("Decision: false" in line for line in told) and she.charges() == []


def test_what_every_group_satisfies_is_the_question_without_it(she: Session) -> None:
    plain = "SELECT gender, count(*) FROM patient_data GROUP BY gender"
    rows = she.ask(plain)
    assert len(she.charges()) == 1
    for having in ("count(*) >= 0", "count(*) > 5 OR count(*) <= 5", "NOT (count(*) > 9 AND count(*) < 9)"):
        assert she.ask(f"{plain} HAVING {having}") == rows
    assert len(she.charges()) == 1
    assert len(she.ask("SELECT gender FROM patient_data GROUP BY gender HAVING count(*) >= 0")) == len(rows)
    assert len(she.charges()) == 1


# -- keeping an answer -----------------------------------------------------------------------------------------------


def test_an_answer_is_kept_in_a_temporary_table_for_one_charge(she: Session) -> None:
    she.ask("CREATE TEMP TABLE mine AS SELECT gender, count(*) AS n FROM patient_data GROUP BY gender")
    assert len(she.charges()) == 1 and len(she.bills) == 1
    kept = she.ask("SELECT gender, n FROM mine ORDER BY 1")
    assert [gender for gender, _ in kept] == sorted(gender for gender, _ in kept) and len(kept) >= 2
    she.ask("SET veil.raw = on")
    shown = she.ask("SELECT gender, count(*) FROM patient_data GROUP BY gender ORDER BY 1")
    assert shown == kept and len(she.charges()) == 1
    she.ask(
        "INSERT INTO mine (gender, n) SELECT gender, count(*) FROM patient_data WHERE age > %s GROUP BY gender", (40,)
    )
    assert len(she.charges()) == 2
    assert she.ask("SELECT count(*) FROM mine") == [(2 * len(kept),)]
    returned = she.ask(
        "INSERT INTO mine SELECT gender, count(*) FROM patient_data WHERE age > %s GROUP BY gender RETURNING n", (40,)
    )
    assert len(returned) == len(kept) and len(she.charges()) == 2
    she.ask("CREATE TEMPORARY TABLE two (g, n) AS WITH q AS (SELECT gender, count(*) FROM patient_data GROUP BY 1)"
            " SELECT * FROM q UNION ALL SELECT 'x', 1 WITH NO DATA")  # fmt: skip
    assert she.ask("SELECT * FROM two") == []


COUNTED = "SELECT gender, count(*) AS n FROM patient_data GROUP BY gender"


@pytest.mark.parametrize(
    "text",
    [
        f"CREATE TABLE mine AS {COUNTED}",
        f"CREATE UNLOGGED TABLE IF NOT EXISTS public.mine AS {COUNTED}",
        f"CREATE TEMP TABLE public.mine AS {COUNTED}",
        f"CREATE TABLE mine AS WITH q AS ({COUNTED}) SELECT * FROM q",
        f"SELECT q.n INTO mine FROM ({COUNTED}) q",
        f"WITH q AS ({COUNTED}) SELECT n INTO TABLE mine FROM q",
        f"INSERT INTO ward SELECT gender, n FROM ({COUNTED}) q",
        f"EXPLAIN CREATE TABLE mine AS {COUNTED}",
    ],
)
def test_an_answer_that_cannot_be_kept_is_not_paid_for(she: Session, text: str) -> None:
    with pytest.raises(psycopg.Error) as refusal:
        she.ask(text)
    assert refusal.value.sqlstate == "42501"
    assert "CREATE TEMP TABLE name AS" in (refusal.value.diag.message_hint or "")
    assert she.charges() == []
    assert she.ask("SELECT 1") == [(1,)]


@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_a_table_that_is_there_already_costs_nothing(she: Session, begin: str) -> None:
    she.ask('CREATE TEMP TABLE "My ""own" AS SELECT 1 AS one')
    if begin:
        she.ask("BEGIN")
    told: list[str] = []
    she.connection.add_notice_handler(lambda notice: told.append(notice.message_primary or ""))
    she.ask(f'CREATE TEMP TABLE IF NOT EXISTS "My ""own" AS {COUNTED}')
    assert told == ['relation "My ""own" already exists, skipping'.replace('""', '"')]
    assert she.ask('SELECT * FROM "My ""own"') == [(1,)] and she.charges() == []
    if begin:
        she.ask("SAVEPOINT s")
    assert she.refused(f'CREATE TEMP TABLE "My ""own" AS {COUNTED}') == "42P07"
    if begin:
        she.ask("ROLLBACK TO s")
    assert she.refused(f'SELECT q.n INTO TEMP "My ""own" FROM ({COUNTED}) q') == "42P07"


def test_a_read_only_transaction_makes_no_table_and_pays_for_none(she: Session) -> None:
    she.ask("SET default_transaction_read_only = on")
    assert she.refused(f"CREATE TEMP TABLE mine AS {COUNTED}") == "25006"
    she.ask(COUNTED)
    assert len(she.charges()) == 1


def test_a_table_that_is_not_there_yet_is_made(she: Session) -> None:
    she.ask(
        "CREATE TEMP TABLE IF NOT EXISTS a AS SELECT gender, count(*) AS n FROM patient_data WHERE age > %s GROUP BY 1",
        (40,),
    )
    assert len(she.ask("SELECT * FROM a")) == 3 and len(she.charges()) == 1
    she.ask(f"CREATE TABLE pg_temp.b AS {COUNTED}")
    she.ask(f"SELECT q.n INTO TEMP c FROM ({COUNTED}) q")
    assert len(she.ask("SELECT n FROM b")) == len(she.ask("SELECT n FROM c")) == 3 and len(she.charges()) == 2


def test_a_temporary_table_may_bear_a_protected_name(she: Session) -> None:
    she.ask("CREATE TEMP TABLE adult AS SELECT 1 AS one")
    assert she.ask("SELECT * FROM adult") == [(1,)]
    assert she.charges() == []


def test_views_and_functions_over_protected_tables_are_refused(she: Session) -> None:
    she.ask("CREATE TEMP VIEW counted AS SELECT count(*) AS n FROM patient_data")
    she.ask("CREATE FUNCTION pg_temp.f() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM public.patient_data'")
    for text in ("SELECT * FROM counted", "SELECT pg_temp.f()", "CREATE TEMP TABLE x AS SELECT * FROM counted"):
        assert she.refused(text) == "42501"
    assert she.refused("SELECT count(*) INTO TEMP x FROM patient_data") == "0A000"


# -- settings --------------------------------------------------------------------------------------------------------


def test_an_average_is_decided_with_a_guard_or_not_at_all(she: Session) -> None:
    bare = "SELECT disease FROM patient_data GROUP BY disease HAVING avg(age) > 50"
    with pytest.raises(psycopg.Error) as refusal:
        she.ask(bare)
    assert "count(*) >=" in (refusal.value.diag.message_hint or "")
    she.ask("SET veil.support = '300'")
    told = she.ask(bare)
    assert len(she.charges()) == 1
    she.ask("RESET veil.support")
    guarded = "SELECT disease FROM patient_data GROUP BY disease HAVING avg(age) > 50 AND count(*) >= 300"
    assert sorted(she.ask(guarded)) == sorted(told) and len(she.charges()) == 1
    for odd in ("0", "-1", "1.5", "many"):
        she.ask(f"SET veil.support = '{odd}'")
        assert she.refused(bare) == "22023"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT gender, count(*), sum(age), avg(age) FROM patient_data GROUP BY gender",
        "SELECT city, count(*), sum(amount), count(DISTINCT customer_id) FROM orders GROUP BY city",
        "SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 500 AND sum(age) > 9000",
        "SELECT gender, stddev(age) FROM patient_data GROUP BY ROLLUP (gender)",
    ],
)
def test_a_given_epsilon_is_spent_on_the_question_whatever_it_asks(she: Session, text: str) -> None:
    she.ask("SET veil.epsilon = '0.25'")
    she.ask(text)
    ((_, epsilon, amount, _),) = she.charges()
    assert Decimal("0.2499") < epsilon <= Decimal("0.25")
    assert she.bills[-1]["epsilon"] == pytest.approx(float(epsilon))
    assert 0 < amount <= epsilon**2 / 2 + Decimal("1e-12")


def test_a_margin_in_numbers_is_kept_by_sums(sitting: Callable[..., Session]) -> None:
    """Rows up to 100, margin 3,000: nineteen of twenty sums are within it."""
    with psycopg.connect(sitting().upstream) as conn:
        true = dict(conn.execute("SELECT disease, sum(age) FROM patient_data GROUP BY disease").fetchall())
    errors = []
    for _ in range(15):
        session = sitting()
        forget(session.upstream)
        session.ask("SET veil.margin = '3000'")
        rows = session.ask("SELECT disease, sum(age) FROM patient_data GROUP BY disease")
        errors += [abs(total - true.get(disease, 0)) for disease, total in rows]
        assert session.bills[-1]["statistics"][0]["margin"] == 3000
    assert len(errors) >= 500
    within = sum(error <= 3000 for error in errors)
    assert binom.ppf(1e-8, len(errors), 0.95) <= within <= binom.ppf(1 - 1e-8, len(errors), 0.955)


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("SELECT gender, count(*) FROM patient_data WHERE gender IN ('female') GROUP BY 1", {"female"}),
        (
            "SELECT gender, count(*) FROM patient_data WHERE gender <> 'female' AND age > 3 GROUP BY 1",
            {"male", "other"},
        ),
        (
            "SELECT extract(month FROM ordered_on), count(*) FROM orders"
            " WHERE ordered_on >= '2025-03-01' AND ordered_on < '2025-05-01' GROUP BY 1",
            {3, 4},
        ),
        ("SELECT category, region, count(*) FROM orders WHERE category = 'toys' GROUP BY 2, 1", {"toys"}),
        ("SELECT age / 50, count(*) FROM patient_data WHERE age % 100 = 7 GROUP BY 1", {0}),
    ],
)
def test_groups_that_where_leaves_out_are_not_answered(she: Session, text: str, groups: set[Any]) -> None:
    assert {row[0] for row in she.ask(text)} == groups


def test_where_no_group_is_left_nothing_is_asked(she: Session) -> None:
    assert she.ask("SELECT gender, count(*) FROM patient_data WHERE gender = 'nobody' GROUP BY gender") == []
    assert she.ask("SELECT gender FROM patient_data WHERE gender = 'x' GROUP BY 1 HAVING count(*) > 100") == []
    assert she.charges() == []


def test_who_wants_no_notices_gets_none_and_finds_the_bill_in_the_report(she: Session) -> None:
    she.ask("SET client_min_messages = warning")
    she.ask("SELECT gender, count(*) FROM patient_data GROUP BY gender")
    assert she.bills == [] and len(she.charges()) == 1
    assert she.ask("SELECT count(*) FROM veil.question") == [(1,)]
    she.ask("SET client_min_messages = notice")
    she.ask("SELECT gender, count(*) FROM patient_data GROUP BY gender")
    assert len(she.bills) == 1
