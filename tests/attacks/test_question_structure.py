"""Attack: a text whose pieces are put together so that something else is paid, measured or shown than was asked.

The finishing statement runs where nothing private is, so what goes wrong here cannot leak; but an answer of zeros that
costs nothing, or a count of other rows, would be believed.
"""

from __future__ import annotations

import psycopg
import pytest
from question_world import BY_ROW, Server, ask

from mechanisms.errors import Refusal
from sqlrewrite.blocks import Outline, outline
from sqlrewrite.folding import questions
from sqlrewrite.probe import is_probe
from sqlrewrite.question import Literal

PROTECTED = {"stay", "account"}


def structure(text: str) -> Outline:
    return outline(text)


def probes(text: str) -> list[bool]:
    return [is_probe(block) for block in questions(structure(text), lambda name: name[1] in PROTECTED)]


THROWN_AWAY = [
    "SELECT count(*) FROM stay LIMIT 0",
    "SELECT * FROM (SELECT ward, count(*) FROM stay GROUP BY ward) q LIMIT 0",
    "SELECT * FROM (SELECT ward, count(*) FROM stay GROUP BY ward) q WHERE 1 = 0",
    "SELECT x.n FROM (SELECT n FROM (SELECT count(*) AS n FROM stay) q WHERE FALSE) x ORDER BY 1",
    "SELECT count(*) FROM stay UNION ALL SELECT 1 LIMIT 0",
    "SELECT EXISTS (SELECT count(*) FROM stay LIMIT 0)",
]
SHOWN = [
    "SELECT (SELECT count(*) FROM stay), count(*) FROM generate_series(1, 2) WHERE false",
    "SELECT count(*) + (SELECT count(*) FROM stay) FROM ward WHERE 1 = 0",
    "SELECT 1 FROM ward WHERE false HAVING (SELECT count(*) FROM stay) > 5",
    "SELECT sum(n) FROM (SELECT count(*) AS n FROM stay) q WHERE 1 = 1",
    "SELECT * FROM (SELECT count(*) AS n FROM stay) q WHERE false OR n > 1",
    "SELECT count(*) FROM stay UNION ALL (SELECT 1 LIMIT 0)",
    "SELECT n FROM (SELECT count(*) AS n FROM stay) q, (SELECT 1 LIMIT 0) r",
    "SELECT count(*) FROM stay LIMIT 0 + 1",
    "SELECT count(*) FROM stay LIMIT $1",
    "SELECT count(*) FROM stay OFFSET 0",
    "WITH q AS (SELECT count(*) FROM stay) SELECT 1 WHERE false",
    "SELECT 'LIMIT 0', count(*) FROM stay /* LIMIT 0 */",
    'SELECT count(*) AS "limit 0" FROM stay -- LIMIT 0',
]


@pytest.mark.parametrize("text", THROWN_AWAY)
def test_a_probe_costs_nothing(text: str) -> None:
    assert probes(text) == [True]


@pytest.mark.parametrize("text", SHOWN)
def test_an_answer_that_can_be_seen_is_no_probe(text: str) -> None:
    """Attack (on the analyst): a free answer of zeros."""
    assert not any(probes(text))


OWN = [
    "SELECT ward, (SELECT count(*) FROM ward w), count(*) FROM stay GROUP BY ward",
    "SELECT ward, count(*) FROM stay GROUP BY ward ORDER BY (SELECT max(beds) FROM ward w WHERE beds > 3)",
    "SELECT kind, count(*) * (SELECT sum(beds) FROM ward w) FROM stay GROUP BY kind",
    "SELECT ward, count(*), (SELECT max(beds) FROM ward w WHERE w.ward = stay.ward AND beds > 1) FROM stay GROUP BY 1",
]


@pytest.mark.parametrize("text", OWN)
def test_the_aggregates_of_a_subquery_are_its_own(server: Server, text: str) -> None:
    asked = ask(text)
    assert len(asked.question.columns) == 1 and asked.question.columns[0].text == "count(*)"
    runs_over_arrays(server, asked.finishing, asked.question)


def runs_over_arrays(server: Server, finishing: str, question: object) -> list[tuple[object, ...]]:
    """The finishing statement over empty released relations."""
    arrays = ["{}"] * finishing.count("pg_catalog.unnest($")
    return server.raw.execute(finishing.encode(), arrays).fetchall()


FINISHED = [
    "SELECT /* a */ ward -- b\n, count(*) /*, note */ FROM stay GROUP BY ward",
    "SELECT left(ward::text, 2), count(*) FROM stay GROUP BY left(ward::text, 2)",
    "SELECT round((n)::numeric, 2) AS n, sum(n) FROM stay GROUP BY round((n)::numeric, 2)",
    'SELECT ward AS "count", count(*) AS "ward" FROM stay GROUP BY ward ORDER BY "ward"',
    "SELECT kind, sum(count(*)) OVER (ORDER BY kind), GROUPING(kind) FROM stay GROUP BY ROLLUP (kind)",
    "SELECT DISTINCT ON (ward) ward, kind, count(*) FROM stay GROUP BY ward, kind ORDER BY ward, count(*) DESC",
    "WITH __veil_0 AS (SELECT 1 AS k0) SELECT ward, count(*), (SELECT k0 FROM __veil_0) FROM stay GROUP BY ward",
    "SELECT __veil_0.ward, count(*) FROM stay AS __veil_0 GROUP BY __veil_0.ward",
    "WITH stay AS (SELECT 1 AS id) SELECT count(*) FROM public.stay",
]


@pytest.mark.parametrize("text", FINISHED)
def test_a_text_is_finished_over_released_columns_only(server: Server, text: str) -> None:
    asked = ask(text)
    assert "stay" not in asked.finishing.lower().replace("with stay as", "").replace('"stay"', "")
    runs_over_arrays(server, asked.finishing, asked.question)


ROWS = [
    "SELECT note FROM stay GROUP BY ward",
    "SELECT ward, max(note) FROM stay GROUP BY ward",
    "SELECT ward, array_agg(note) FROM stay GROUP BY ward",
    "SELECT ward, count(*), stay FROM stay GROUP BY ward",
    "SELECT ward, count(*), __veil_0.note FROM stay GROUP BY ward",
    "SELECT ward, (SELECT note) FROM stay GROUP BY ward",
    "SELECT ward, sum(sum(n)) FROM stay GROUP BY ward",
    "SELECT ward, count(*), (SELECT max(note) FROM ward) FROM stay GROUP BY ward",
    "SELECT count(*) OVER () FROM stay",
    "SELECT ward, count(*) FROM stay GROUP BY ward LIMIT (SELECT count(note) FROM ward)",
]


@pytest.mark.parametrize("text", ROWS)
def test_a_column_that_is_not_released_is_never_finished(server: Server, text: str) -> None:
    """Attack: a name outside keys and aggregates. It is refused, or PostgreSQL does not know it."""
    with pytest.raises((Refusal, psycopg.Error)), server.connection.transaction(force_rollback=True):
        asked = ask(text)
        runs_over_arrays(server, asked.finishing, asked.question)


def test_arrays_do_not_take_the_number_of_a_parameter() -> None:
    text = "SELECT ward, count(*) + $2 FROM stay WHERE n > $1 GROUP BY ward"
    asked = ask(text, BY_ROW, (Literal("3", "integer"), Literal("5", "integer")))
    assert "$2" in asked.finishing and "unnest($3" in asked.finishing and "unnest($4" in asked.finishing


def test_an_aggregate_of_a_subquery_that_is_taken_for_the_questions_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: parentheses are not looked at."""
    monkeypatch.setattr("sqlrewrite.cut.is_query", lambda inner: False)
    assert len(ask("SELECT kind, sum(n), (SELECT count(*) FROM ward w) FROM stay GROUP BY kind").question.columns) == 2
