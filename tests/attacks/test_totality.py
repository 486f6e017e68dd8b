"""Attack: size a constant, a product or a pattern so that a question fails, or takes long, if and only if a row exists.

``totality`` holds the texts and the check; the full run (``python tests/attacks/totality.py``) leaves its evidence in
``bench/results/evidence/totality.json``. Here is a sample of it, and every mutant.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import totality
from question_world import BY_ROW, ask
from totality import SIZED, Text, Worlds, build, directed, random_texts, refused, survey

from mechanisms.errors import Refusal
from sqlrewrite import guarded
from sqlrewrite.bounded import kept
from sqlrewrite.guarded import Use
from sqlrewrite.question import Literal
from sqlrewrite.term import Form, Term


@pytest.fixture(scope="module")
def worlds(postgres) -> Iterator[Worlds]:  # type: ignore[no-untyped-def]
    dsns = [postgres.new_database(f"totality_{kind}") for kind in Worlds.KINDS]
    for kind, dsn in zip(Worlds.KINDS, dsns, strict=True):
        build(dsn, kind)
    with ExitStack() as stack:
        yield Worlds(dsns, stack)


def sample(n: int) -> list[Text]:
    """So many of the directed texts, the same ones each time."""
    return random.Random(n).sample(directed(), n)


def test_there_are_enough_directed_texts() -> None:
    assert len({(text.sql, text.parameters) for text in directed()}) > 2_000


def test_directed_constants_in_all_positions(worlds: Worlds) -> None:
    report = survey(sample(250), worlds, timed=5, filled=20)
    assert report.failures == []
    assert report.counts["accepted"] > 40 and report.counts["refused without a place"] == 0


@pytest.mark.parametrize("generic", [False, True], ids=["custom plans", "generic plans"])
def test_random_constants_in_all_positions(worlds: Worlds, generic: bool) -> None:
    worlds.generic(generic)
    report = survey(random_texts(7 + generic, 150), worlds, timed=10, filled=20)
    worlds.generic(False)
    assert report.failures == []
    assert report.counts["accepted"] > 20


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_all_directed_texts_and_some_thousand_random_ones(worlds: Worlds) -> None:
    report = survey(directed(), worlds, timed=1, filled=10)
    report.add(survey(random_texts(random.SystemRandom().randrange(2**32), 3_000), worlds, timed=50, filled=50))
    assert report.failures == []


@pytest.mark.parametrize("text", SIZED, ids=lambda text: text[:60])
def test_what_an_analyst_could_size_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(Refusal) as caught:
        ask(text)
    assert caught.value.sqlstate in ("22003", "0A000", "54001")
    assert caught.value.position is not None and caught.value.hint


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("SELECT count(*) FROM stay WHERE n > 1 AND n * 1e131071 > 1", "n * 1e131071"),
        ("SELECT count(*) FROM stay WHERE n > 1 OR 3 < (wide * 2) * (whole * whole * whole)", "wide * 2"),
        ("SELECT sum(n), sum(n + 1e77) FROM stay", "n + 1e77"),
        ("SELECT count(*) FROM stay WHERE n = 1 AND note LIKE '" + "a" * 101 + "'", "note LIKE"),
        ("SELECT kind FROM stay GROUP BY kind HAVING count(*) > 3 AND sum(n * 1e60) > 1", "n * 1e60"),
        ("SELECT day + 2147483647, count(*) FROM stay GROUP BY 1", "day + "),
    ],
)
def test_the_place_is_that_of_the_part(text: str, part: str) -> None:
    with pytest.raises(Refusal) as caught:
        ask(text)
    assert text.index(part) < (caught.value.position or 0) <= text.index(part) + len(part)


@pytest.mark.parametrize("value", ["1e131071", "1e400", "NaN", "Infinity", "9" * 16_000, "abc", "1e50"])
def test_a_parameter_is_bound_with_the_same_limits_and_described_without_them(value: str) -> None:
    text = "SELECT count(*), sum(n % $1) FROM stay WHERE n * $1 > 1 OR wide / $1 > 3"
    with pytest.raises(Refusal):
        ask(text, parameters=[Literal(value, "numeric")])
    assert ask(text, parameters=[Literal("7", "numeric")]).question.where is not None


# -- mutants ----------------------------------------------------------------------------------------------------------


def found(worlds: Worlds, texts: list[Text]) -> list[str]:
    """What the directed part finds: failures, and texts that must be refused and are not."""
    report = survey(texts, worlds)
    return report.failures + [text.sql for text in texts if text.sql in SIZED and not refused(text)]


def without_digits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("sqlrewrite.term.MOST_DIGITS", 10**9)
    patch.setattr("sqlrewrite.constant.MOST_EXPONENT", 140_000)


def without_pattern_cap(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("sqlrewrite.functions.PATTERN_LENGTH", 10**6)
    patch.setattr("sqlrewrite.functions.PATTERN_WILDCARDS", 10**6)


def without_numeric_guard(patch: pytest.MonkeyPatch) -> None:
    def raw(name: str, attribute: object, use: Use, bind: guarded.Bind) -> Term:
        return Term(name, Form.NUMERIC, 1, None if use is Use.COMPARISON else kept(None, None))

    patch.setattr(guarded, "_numeric", raw)


def without_cost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("sqlrewrite.term.MOST_COST", 10**9)
    patch.setattr("sqlrewrite.sizes.MOST_COST", 10**9)


MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], str]] = [
    (without_digits, "1e131071"),
    (without_pattern_cap, "LIKE"),
    (without_numeric_guard, "w"),
    (without_cost, "IN ("),
]


@pytest.mark.parametrize(("mutant", "seen"), MUTANTS, ids=lambda each: getattr(each, "__name__", None))
def test_a_missing_check_would_be_seen(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch, mutant: Callable[[pytest.MonkeyPatch], None], seen: str
) -> None:
    texts = [Text(sql) for sql in SIZED] + [
        Text(template.format(f=totality.FROM, x=column, c="7.25"), catalog=BY_ROW)
        for template in totality.ARITHMETIC
        for column in ("wide", "whole")
    ]
    assert found(worlds, texts) == []
    mutant(monkeypatch)
    assert any(seen in failure for failure in found(worlds, texts))
