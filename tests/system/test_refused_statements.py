"""A statement of several decisions of which one is refused: the others have looked at nothing."""

from __future__ import annotations

import psycopg
import pytest
from proxies import Proxy, new_analyst

FAR = "SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 5000"
# Three groups, and the threshold is the very size of the smallest. Among so few none may stay undecided, and that one
# is refuted with probability beta at most (it qualifies) and proven with about alpha/20 (one row less would not, and
# within this epsilon the noise is many rows wide), however many looks there are: certified once in 10^12 runs.
NEAR = "SELECT gender FROM patient_data GROUP BY gender HAVING count(*) >= {}"
BOUNDS = {"max_epsilon": "0.3", "alpha": "1e-12", "beta": "1e-12"}


def test_a_decision_that_has_not_begun_costs_nothing_when_another_is_refused(proxy: Proxy, upstream: str) -> None:
    with psycopg.connect(upstream) as direct:
        sizes = direct.execute("SELECT count(*) FROM patient_data GROUP BY gender ORDER BY 1").fetchall()
    assert len(sizes) == 3
    near, who = NEAR.format(sizes[0][0]), new_analyst(upstream, **BOUNDS)
    with proxy.connect(who) as session, pytest.raises(psycopg.errors.ProgramLimitExceeded) as refused:
        session.execute(f"SELECT (SELECT count(*) FROM ({near}) a), (SELECT count(*) FROM ({FAR}) b)")
    assert "could not be certified" in str(refused.value)
    with psycopg.connect(upstream) as direct:
        rows = "SELECT charged, settled FROM provenance.history WHERE analyst = %s ORDER BY id"
        first, second = direct.execute(rows, (who,)).fetchall()
    assert first[0] > 0 and first[1] is True
    assert second == (0, True)


def test_a_decision_that_is_refused_for_its_accuracy_is_not_relaxed_and_says_so(proxy: Proxy, upstream: str) -> None:
    with psycopg.connect(upstream) as direct:
        sizes = direct.execute("SELECT count(*) FROM patient_data GROUP BY gender ORDER BY 1").fetchall()
    for word, told in (("relax", True), ("error", False)):
        who, near = new_analyst(upstream, **BOUNDS, on_exhausted=word), NEAR.format(sizes[0][0])
        with proxy.connect(who) as session, pytest.raises(psycopg.errors.ProgramLimitExceeded) as refused:
            session.execute(near.encode())
        assert ("answers what a limit refuses (53400)" in (refused.value.diag.message_hint or "")) is told
        assert "SET veil.alpha" in str(refused.value) or "veil.max_epsilon" in str(refused.value)
