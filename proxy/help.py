"""``veil.help()`` and ``veil.help('topic')``: what an analyst needs to know, inside any client.

Functions of the shadow that hold these texts; nothing of them is private, so nobody but PostgreSQL answers them. The
texts are ASCII, for clients of every encoding. Lines that begin with two blanks and end with a semicolon are SQL, and
the tests run them on the demo.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.veil_settings import SETTINGS

_MEANINGS: Final[Mapping[str, str]] = {
    "veil.beta": "a group that truly qualifies is missing from a decision with at most this probability",
    "veil.alpha": "at most this share of the groups that do not qualify is expected in a decision",
    "veil.epsilon": "spend exactly this on each question",
    "veil.margin": "half the width of a number's interval: a number, or 50u = 50 times what one unit moves",
    "veil.confidence": "of a number's interval",
    "veil.max_epsilon": "the most that one question may spend",
    "veil.support": "a number m: averages in a decision are read as count(*) >= m AND ...",
    "veil.mechanism": "how decisions are made: auto, or one of the papers' mechanisms",
    "veil.certify": "alpha, or beta: then alpha is kept for each group, and beta on average",
    "veil.raw": "on: top-level counts and sums may be negative",
    "veil.reuse": "on: a decision may be made, for nothing, on numbers that were shown before",
    "veil.on_exhausted": "error, or relax: answer a part of the question that the limits still allow",
}

TOPICS: Final[Mapping[str, tuple[str, ...]]] = {
    "questions": (
        "A question is a SELECT with aggregates over a protected table. Its answer has noise; all else is plain SQL.",
        "  SELECT gender, count(*), avg(age) FROM patient_data GROUP BY gender;",
        "Answered are count, sum, avg, variance, stddev and count(DISTINCT unit), each with FILTER, and GROUPING SETS.",
        "What stands around a question (outer SELECT, WITH, window functions, ORDER BY, LIMIT) is free.",
        "The same question again, in whatever spelling, shows the same numbers and costs nothing.",
    ),
    "decisions": (
        "A decision names the groups that pass a condition, and no numbers:",
        "  SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 2500;",
        "HAVING may be any AND, OR, NOT of comparisons of count, sum, avg, ratios and percentile_cont with constants.",
        "An average needs a guard on the group's size beside it, or SET veil.support:",
        "  SELECT disease FROM patient_data GROUP BY disease HAVING count(*) >= 500 AND avg(age) > 60;",
        "A group that qualifies is missing with probability veil.beta at most; of the groups that do not qualify, at",
        "most the share veil.alpha is expected in the answer.",
    ),
    "accuracy": (
        "A number lies within veil.margin of the truth with probability veil.confidence; a smaller margin costs more.",
        "  SET veil.margin = '100u';",
        "50u means 50 times what one privacy unit (a row, or a person) can move the aggregate.",
        "The interval and the noise of an aggregate stand beside it for nothing:",
        "  SELECT count(*), veil.low(count(*)), veil.high(count(*)), veil.stddev(count(*)) FROM patient_data;",
    ),
    "budget": (
        "Every question that tells something new spends epsilon. What is left, and what was paid for:",
        "  SELECT * FROM veil.budget;",
        "  SELECT at, question, epsilon FROM veil.question ORDER BY at DESC LIMIT 10;",
        "The notice of each answer tells its price. What is charged stays charged: ROLLBACK and cancel refund nothing.",
        "EXPLAIN tells the price beforehand, for nothing. What others have paid for is often cheaper.",
    ),
    "settings": (
        "SET, SET LOCAL, RESET, SHOW and startup options work as for PostgreSQL's own settings.",
        *(f"{name} = {default if default else 'unset'}: {_MEANINGS[name]}" for name, default in SETTINGS.items()),
    ),
    "explain": (
        "EXPLAIN of a question tells how it is read, the SQL that would run, its price (expected and at most), its",
        "error, and whether the limits allow it. It spends nothing, and reads no private row.",
        "  EXPLAIN SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 700;",
        "  EXPLAIN (FORMAT JSON) SELECT gender, count(*) FROM patient_data GROUP BY gender;",
    ),
    "errors": (
        "The HINT of an error says what to write instead.",
        "42501: would show rows, or belongs to another analyst. 25006: would write. 0A000: SQL that is not answered.",
        "53400: a limit is reached. 54000: the accuracy cannot be met; the hint names one that can.",
        "22023: a setting means nothing. 42601, 42P01, 42703: PostgreSQL does not understand the statement.",
        "57014: cancelled. 58000: a database does not answer. XX000: a bug, with a number for the administrator.",
        "What is refused before it is asked costs nothing.",
    ),
    "limits": (
        "Limits hold for each analyst, for each view (a table, its groups and one aggregate), and for the database.",
        "All three must allow a question; the administrator sets them. Budgets do not come back by themselves.",
        "  SET veil.max_epsilon = '0.5';",
        "bounds what one question may spend. A question has at most 16 KiB of text, a statement around it 64 KiB.",
    ),
    "joins": (
        "A question may join public tables on their unique keys, and a protected parent by a declared foreign key.",
        "  SELECT p.disease FROM patient_data p JOIN ward w USING (disease)"
        " GROUP BY p.disease, w.capacity HAVING count(*) > w.capacity;",
        "Joins that multiply the rows of a person are refused. Answers may be joined with anything, for nothing:",
        "  SELECT c.region, sum(t.n) FROM (SELECT city, count(*) AS n FROM orders GROUP BY city) t"
        " JOIN city c USING (city) GROUP BY c.region;",
    ),
    "privacy": (
        "The answers of a database with and without any one unit (a row, or all rows of a person) are almost equally",
        "likely; epsilon bounds by how much they may differ, over everything that you and all others ever ask.",
        "Values are clamped to declared bounds, and groups come from declared domains, so that also empty groups are",
        "answered; a key without a domain is shown once enough units are in its group.",
        "Your own text runs on a copy without private rows: only SQL that pgveil wrote reaches the data.",
    ),
}


def ddl() -> list[str]:
    """The functions of the shadow that tell these texts."""
    known = ", ".join(TOPICS)
    start = (
        "pgveil answers questions about protected tables under differential privacy.",
        f"Topics: {known}.",
        "  SELECT veil.help('questions');",
    )
    cases = "\n".join(f"    WHEN {_text(topic)} THEN RETURN QUERY {_rows(lines)};" for topic, lines in TOPICS.items())
    return [
        f"CREATE FUNCTION veil.help() RETURNS SETOF text LANGUAGE sql IMMUTABLE ROWS {len(start)}"
        f" AS $help${_rows(start)}$help$",
        "COMMENT ON FUNCTION veil.help() IS 'What pgveil can tell: the topics of veil.help(topic)'",
        f"""CREATE FUNCTION veil.help(topic text) RETURNS SETOF text LANGUAGE plpgsql IMMUTABLE ROWS 10 AS $help$
BEGIN
  CASE pg_catalog.lower(pg_catalog.btrim(topic))
{cases}
    ELSE RAISE invalid_parameter_value USING
      MESSAGE = pg_catalog.format('there is no help on "%s"', topic), HINT = {_text(f"Topics: {known}.")};
  END CASE;
END $help$""",
        f"COMMENT ON FUNCTION veil.help(text) IS {_text(f'Help on one topic: {known}')}",
    ]


def _rows(lines: tuple[str, ...]) -> str:
    return f"SELECT pg_catalog.unnest(ARRAY[{', '.join(map(_text, lines))}])"


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
