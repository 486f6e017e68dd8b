"""Neighbours: two hospitals that differ in one person; whatever a client sees, noised cells apart, is the same bytes.

The person has what may trip a reader up: infinite and ancient dates, NaN, NULL, values outside every domain, one key in
another spelling, 3,000 rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from attack_statements import ANSWERED, DIFFERENTIALS, LANGUAGE, SIDE_DOORS
from attack_world import Ask, Hospital, trace, without_noise

ROW_UNIT = [
    Ask("SELECT count(*) FROM patient", (0,)),
    Ask("SELECT count(*) FROM patient WHERE id = -1", (0,)),
    Ask("SELECT count(*), ward FROM patient WHERE name = 'victim' GROUP BY ward", (0,)),
    Ask("SELECT ward, age, count(*) FROM patient GROUP BY age, ward ORDER BY ward, age", (2,)),
    Ask("SELECT ward, count(*) FROM patient GROUP BY ward ORDER BY 1 DESC NULLS LAST LIMIT 2 OFFSET 1", (1,)),
    Ask("SELECT ward FROM patient GROUP BY ward"),
    Ask("SELECT ward FROM patient WHERE id = -1 GROUP BY ward HAVING count(*) > 0", decision=True),
    Ask("SELECT ward, count(*) FROM patient GROUP BY ward HAVING count(*) <= 100", decision=True),
    # Decided by the text: what is free must not depend on anybody, and not be taken for a decision about data.
    *(
        Ask(f"SELECT {key}, count(*) FROM patient WHERE id = -1 GROUP BY {key} HAVING {never}")
        for key in ("ward", "name")  # the second has no declared domain
        for never in ("count(*) > 5 AND count(*) < 6", "count(*) < 0", "sum(age) < 0", "avg(age) > 3")
    ),
    Ask("SELECT count(*), sum(age) FROM patient WHERE id = -1 HAVING sum(age) > 3 AND sum(age) <= 3"),
    Ask("SELECT ward FROM patient WHERE id = -1 GROUP BY ward HAVING count(*) >= 0"),
    Ask("SELECT ward FROM patient WHERE id = -1 GROUP BY ward HAVING sum(age) > 3 OR count(*) >= 0"),
    Ask("SELECT ward, count(*) FROM patient WHERE id = -1 GROUP BY ward HAVING count(*) > 5 OR count(*) <= 5", (1,)),
    *(
        Ask(f"SELECT {key}, count(*) FROM patient WHERE id = -1 GROUP BY {key}", (1,))
        for key in ("age", "born", "seen", "at", "ward", "insured", "code", "stay")
    ),
    *(
        Ask(f"SELECT count(*) FROM patient WHERE id = -1 AND {condition}", (0,))
        for condition in (
            "born > '2024-01-01'",
            "born = 'infinity'",
            "born < '2024-01-01'::timestamptz",
            "seen < '2024-01-01'::date",
            "at > '294276-12-31'",
            "at IN ('infinity', '2024-01-01')",
            "fee > 1e100",
            "fee = 'NaN'",
            "weight > 1e300",
            "weight = 'NaN'",
            "age > 9223372036854775807",
            "age < 0.5",
            "code = 'c1      '",
            "code > 'c'::text",
            "name >= 'victim'",
            "name IN ('victim', NULL)",
            "insured",
            "NOT insured",
            "insured IS NOT TRUE",
            "stay = '1 day'",
            "stay > '1000 years'",
        )
    ),
    Ask("SELECT count(*) FROM patient WHERE name = %s AND born > %s", (0,), parameters=("victim", "2024-01-01")),
    Ask("SELECT count(*) FROM patient WHERE fee = %s", (0,), parameters=(float("inf"),)),
]

PERSON_UNIT = [
    Ask("SELECT count(*) FROM visit", (0,)),
    Ask("SELECT count(*) FROM visit WHERE person = 'victim'", (0,)),
    Ask("SELECT ward, month, count(*) FROM visit GROUP BY ward, month", (2,)),
    Ask("SELECT month, count(*) FROM visit WHERE person = 'victim' GROUP BY month", (1,)),
    Ask("SELECT count(*) FROM visit WHERE cost > 1e300 AND month > '2024-01-01'", (0,)),
    Ask("SELECT ward FROM visit GROUP BY ward HAVING count(*) > 10", decision=True),
    Ask("SELECT ward FROM visit WHERE person = 'victim' GROUP BY ward HAVING count(*) < 1", decision=True),
]

AGE = "count(*) FILTER (WHERE age * age > 4), sum(age), avg(age + 1), stddev(age)"
EXPRESSIONS = [
    Ask(f"SELECT {AGE} FROM patient WHERE id = -1", (0, 1, 2, 3)),
    Ask(f"SELECT ward, {AGE} FROM patient WHERE id = -1 GROUP BY ROLLUP (ward)", (1, 2, 3, 4)),
    *(
        Ask(f"SELECT {key}, count(*) FROM patient WHERE id = -1 GROUP BY 1", (1,))
        for key in (
            "date_trunc('month', born)",
            "extract(isodow FROM seen)",
            "extract(hour FROM at)",
            "width_bucket(weight, 0, 100, 4)",
            "width_bucket(fee, 0, 100.5, 4)",
            "CASE WHEN name LIKE 'v%' THEN 'v' WHEN fee > 1e20 THEN 'rich' END",
            "age / 2",
            "coalesce(ward, 'none')",
            "lower(code)",
            "born + 30",
            "at::date",
        )
    ),
    *(
        Ask(f"SELECT count(*) FROM patient WHERE id = -1 AND {condition}", (0,))
        for condition in (
            "born + 300000 > seen + INTERVAL '2000 years'",
            "date_trunc('millennium', at) < born",
            "age * age * id > fee * 1e20",
            "weight * weight > 7",
            "fee::int > age::smallint",
            "name ILIKE '%' OR name > code",
            "coalesce(name, ward, code) = 'victim'",
            "extract(epoch FROM born) > 5",
            "round(weight) > 4 OR trunc(fee) < 3",
            "born - '2024-01-01'::date > 4",
        )
    ),
    Ask("SELECT ward FROM patient WHERE id = -1 GROUP BY ward HAVING avg(age) > 2 AND count(*) > 9", decision=True),
    Ask("SELECT p.ward FROM patient p WHERE id = -1 GROUP BY 1 HAVING sum(age) > 3 OR NOT count(*) > 2", decision=True),
    Ask("SELECT count(DISTINCT person), count(*) FROM visit WHERE person = 'victim'", (0, 1)),
    Ask("SELECT month, count(DISTINCT person) FROM visit GROUP BY CUBE (month)", (1,)),
    Ask("SELECT t.n * 0 FROM (SELECT ward, count(*) AS n FROM visit GROUP BY 1) t ORDER BY n LIMIT 2"),
    Ask("EXPLAIN SELECT ward, sum(age) FROM patient WHERE id = -1 GROUP BY ward"),
    Ask("SELECT * FROM (SELECT ward, sum(age) FROM patient WHERE id = -1 GROUP BY ward) q WHERE 1 = 0"),
]

REFUSED = [
    Ask(sql) for group in (LANGUAGE, SIDE_DOORS, DIFFERENTIALS) for sql in group.values() if "pg_stat" not in sql
]

ANSWERS = [Ask(sql, noised) for sql, noised in ANSWERED.values()]

DATE_STYLES = [
    ask
    for style in ("German", "SQL, DMY", "Postgres, MDY")
    for ask in (
        Ask(f"SET DateStyle = '{style}'"),
        *(
            Ask(f"SELECT {key}, count(*) FROM {table} WHERE id < 0 GROUP BY {key}", (1,))
            for table, key in (("patient", "stay"), ("patient", "insured"), ("visit", "month"))
        ),
    )
]

TIME_ZONES = [
    ask
    for zone in ("Europe/Berlin", "X+100", "<y>-100", "America/St_Johns")
    for ask in (
        Ask(f"SET TimeZone = '{zone}'"),
        Ask("SELECT at, count(*) FROM patient WHERE age < 3 GROUP BY at", (1,)),
        Ask("SELECT count(*) FROM patient WHERE at < '2024-01-01' AND born > '2024-01-01'::timestamptz", (0,)),
    )
]


def differences(twins: tuple[Hospital, Hospital], names: Callable[[], str], asks: list[Ask]) -> list[str]:
    """The statements whose answers tell the two hospitals apart."""
    one, other = twins
    for hospital in twins:  # what was asked of one of them alone would make a question cheaper there
        hospital.forget()
    # Limits of their own: what is left of a table's depends on what other tests have spent.
    first, second = one.new_analyst(names(), "100000"), other.new_analyst(names(), "100000")
    # At a fixed price: what a staged decision reaches is a function of its noise, and is audited with it.
    asks = [Ask("SET veil.mechanism = tslm"), *asks]
    with one.connect(first) as here, other.connect(second) as there:
        return [
            ask.sql
            for ask in asks
            if without_noise(trace(here, ask), ask, first) != without_noise(trace(there, ask), ask, second)
        ]


@pytest.mark.parametrize(
    "asks",
    [ROW_UNIT, PERSON_UNIT, EXPRESSIONS, REFUSED, ANSWERS, TIME_ZONES, DATE_STYLES],
    ids=["row unit", "person unit", "expressions", "refused", "answered", "time zones", "date styles"],
)
def test_neighbours_look_the_same(twins: tuple[Hospital, Hospital], names: Callable[[], str], asks: list[Ask]) -> None:
    assert differences(twins, names, asks) == []


def test_a_key_outside_the_dates_of_python_is_seen(
    twins: tuple[Hospital, Hospital], names: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: infinite dates are read, and the error tells of them."""
    monkeypatch.setattr("sqlrewrite.generate._Statement._having", lambda self, keys: "")
    seen = differences(twins, names, ROW_UNIT + PERSON_UNIT)
    # (A person's infinite month may be among the groups that the keyed hash leaves out: that depends on the secret.)
    assert any("GROUP BY born" in sql for sql in seen)


def test_a_charge_that_depends_on_the_data_is_seen(
    twins: tuple[Hospital, Hospital], names: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: an answer from few rows is refused, as systems with a minimum group size do."""
    from mechanisms.errors import Refusal
    from sqlrewrite.cells import Cells

    fill = Cells.fill

    def enough(self, rows):  # type: ignore[no-untyped-def]
        values = fill(self, rows)
        if values.sum() < 1:
            raise Refusal("too few rows")
        return values

    monkeypatch.setattr(Cells, "fill", enough)
    assert "SELECT count(*) FROM patient WHERE id = -1" in differences(twins, names, ROW_UNIT)


def test_groups_that_come_from_the_data_are_seen(
    twins: tuple[Hospital, Hospital], names: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: only groups that have rows are shown."""
    from proxy import rows
    from sqlrewrite.cells import Cells

    fill, kept, filled = Cells.fill, rows.kept_of, []

    def remember(self, rows):  # type: ignore[no-untyped-def]
        filled.append(fill(self, rows))
        return filled[-1]

    def existing(each, groups):  # type: ignore[no-untyped-def]
        return np.intersect1d(kept(each, groups), np.flatnonzero(filled[-1][0] > 0))

    monkeypatch.setattr(Cells, "fill", remember)
    monkeypatch.setattr(rows, "kept_of", existing)
    asks = [Ask("SELECT insured, count(*) FROM patient WHERE id = -1 GROUP BY insured", (1,))]
    assert differences(twins, names, asks) == [asks[0].sql]


def test_two_spellings_of_one_key_do_not_move_the_whole_group(
    twins: tuple[Hospital, Hospital], names: Callable[[], str]
) -> None:
    """Attack: GROUP BY takes '1 day' and '24:00:00' for one key and shows either; one row must not move 200 others."""
    seen = []
    for hospital in twins:
        hospital.forget()
        with hospital.connect(hospital.new_analyst(names())) as session:
            session.execute("SET veil.epsilon = '100'")
            seen.append(session.execute("SELECT stay, count(*) FROM patient GROUP BY stay").fetchall())
    assert sum(abs(one[1] - other[1]) for one, other in zip(*seen, strict=True)) <= 1


def test_a_comparison_that_only_fails_on_a_row_is_not_run(
    twins: tuple[Hospital, Hospital], names: Callable[[], str]
) -> None:
    """Attack: arrays of a type without equality are compared only once a row is there, and then it is an error."""
    asks = [Ask("SELECT count(*) FROM patient WHERE id = -1 AND image = '{\"(3,4)\"}'", (0,))]
    assert differences(twins, names, asks) == []
