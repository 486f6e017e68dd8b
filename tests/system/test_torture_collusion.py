"""What analysts can make of all that a proxy ever told them: alone never more than each has paid for, and together
never more than the hidden global synopsis knows.

*The test.* The errors of k answers in n cells are Gaussian, independent from cell to cell. The best unbiased
combination of the answers is found by least squares on the sample itself, as colluding analysts would; if its true
variance is v, the sum of its squared errors is v times a chi-square with n - rank degrees of freedom.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
import torture
from numpy.typing import NDArray
from proxies import Proxy, charges, new_analyst, running_proxy
from scipy.stats import chi2

LEVEL = 1e-8  # of each of the few bounds in a test
ROUNDING = 1 / 12  # answers are whole numbers
SURVEY = """
CREATE TABLE survey (id int PRIMARY KEY, a int NOT NULL, b int NOT NULL);
INSERT INTO survey SELECT i, (i * i) % 60, (i * 7) % 50 FROM generate_series(1, 5000) i;
SELECT provenance.protect('survey', size_hint => 5000, changes => 'frozen');
SELECT provenance.declare_attribute('survey', 'a', 0, 59, 1);
SELECT provenance.declare_attribute('survey', 'b', 0, 49, 1);
"""
QUESTION = "SELECT a, b, count(*) FROM survey GROUP BY a, b"
MARGINS = (  # who asks for which margin, in this order: six analysts, each several times
    *((3, 60), (2, 700), (0, 300), (1, 500), (4, 180), (2, 400), (5, 90), (0, 200), (1, 250), (2, 280), (4, 130)),
    *((3, 45), (0, 140), (2, 200), (1, 120), (4, 90), (5, 50), (3, 36), (0, 100), (2, 150), (1, 80), (4, 70), (1, 40)),
)


@dataclass
class Survey:
    """A proxy in front of one table, and the truth about it."""

    proxy: Proxy
    dsn: str
    truth: NDArray[np.float64]

    def errors(self, session: psycopg.Connection[Any]) -> NDArray[np.float64]:
        rows = sorted(session.execute(QUESTION).fetchall())
        return np.array([row[2] for row in rows], dtype=np.float64) - self.truth

    def variance(self) -> float:
        """Of the hidden global synopsis, as its owner sees it."""
        with psycopg.connect(self.dsn) as conn:
            rows = conn.execute("SELECT variance, sensitivity, parts FROM provenance.release").fetchall()
        assert len(rows) >= 2 and {row[1:] for row in rows} == {(1, 1)}, "several releases, counted in whole numbers"
        return float(1 / sum(1 / Fraction(variance) for variance, *_ in rows))

    def paid(self, analyst: str) -> float:
        """The variance of the best estimate that an analyst's payments are worth."""
        spent = sum(Fraction(charged) for *_, charged, _ in charges(self.dsn, analyst))
        return float(1 / (2 * spent))


@pytest.fixture
def survey(postgres: Any, shadow_server: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Survey]:
    dsn = torture.build(postgres.new_database("torture"))
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(SURVEY)
        rows = conn.execute(
            "SELECT count(s.id) FROM generate_series(0, 59) x CROSS JOIN generate_series(0, 49) y"
            " LEFT JOIN survey s ON (s.a, s.b) = (x, y) GROUP BY x, y ORDER BY x, y"
        ).fetchall()
    more: dict[str, Any] = {}
    if getattr(request, "param", None):
        more = {"program": (str(Path(torture.__file__)),), "environment": {"TORTURE": request.param}}
    with running_proxy(dsn, shadow_server.admin_dsn, tmp_path / "proxy.log", **more) as proxy:
        yield Survey(proxy, dsn, np.array([count for (count,) in rows], dtype=np.float64))


def best(errors: list[NDArray[np.float64]]) -> tuple[float, int]:
    """The sum of squared errors of the best combination, with weights that add up to 1, and its degrees of freedom."""
    first = errors[0]
    if len(errors) == 1:
        return float(first @ first), len(first)
    apart = np.array([first - other for other in errors[1:]]).T
    weights, _, rank, _ = np.linalg.lstsq(apart, first, rcond=1e-9)
    rest = first - apart @ weights
    return float(rest @ rest), len(first) - int(rank)


def sharper(errors: list[NDArray[np.float64]], variance: float) -> bool:
    """Whether the best combination has less than this variance, at that level."""
    squares, freedom = best(errors)
    return bool(squares / variance < chi2.ppf(LEVEL, freedom))


def ask_all(survey: Survey) -> dict[str, list[NDArray[np.float64]]]:
    sessions = [survey.proxy.connect(new_analyst(survey.dsn)) for _ in range(6)]
    shown: dict[str, list[NDArray[np.float64]]] = {session.info.user: [] for session in sessions}
    for who, margin in MARGINS:
        sessions[who].execute(f"SET veil.raw = on; SET veil.margin = '{margin}u'")
        shown[sessions[who].info.user].append(survey.errors(sessions[who]))
    for session in sessions:
        session.close()
    return shown


def test_all_analysts_together_know_no_more_than_the_global_synopsis(survey: Survey) -> None:
    shown = ask_all(survey)
    everything = [errors for each in shown.values() for errors in each]
    variance = survey.variance()
    assert not sharper(everything, variance)
    squares, _ = best(everything)
    # Somebody knows all releases: the bound is met, so that the test can fail.
    assert squares / (variance + ROUNDING) < chi2.ppf(1 - LEVEL, len(survey.truth))
    for analyst, errors in shown.items():
        assert not sharper(errors, survey.paid(analyst)), "more is known than was paid for"


@pytest.mark.slow
@pytest.mark.parametrize("survey", ["redrawn"], indirect=True)
def test_a_part_that_is_redrawn_instead_of_refined_is_caught(survey: Survey) -> None:
    shown = ask_all(survey)
    assert any(sharper(errors, survey.paid(analyst)) for analyst, errors in shown.items())


@pytest.mark.parametrize("times", [150, pytest.param(10_000, marks=(pytest.mark.slow, pytest.mark.timeout(1200)))])
def test_a_question_that_is_repeated_is_never_sharper(survey: Survey, times: int) -> None:
    text = "SELECT a, count(*) FROM survey WHERE b < 25 GROUP BY a"
    who = new_analyst(survey.dsn)
    answers: set[tuple[Any, ...]] = set()
    for _ in range(3):
        with survey.proxy.connect(who) as session:
            for _ in range(-(-times // 3)):
                answers.add(tuple(sorted(session.execute(text).fetchall())))
    assert len(answers) == 1
    assert len(charges(survey.dsn, who)) == 1
