"""A statement of several decisions of which one is refused: the others have looked at nothing."""

from __future__ import annotations

import psycopg
import pytest
from proxies import Proxy, new_analyst

FAR = "SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 5000"
# Three groups, one of them empty, and a threshold of one row: no decision within so little.
NEAR = "SELECT gender FROM patient_data GROUP BY gender HAVING count(*) > 1"


def test_a_decision_that_has_not_begun_costs_nothing_when_another_is_refused(proxy: Proxy, upstream: str) -> None:
    who = new_analyst(upstream, max_epsilon="0.3")
    with proxy.connect(who) as session, pytest.raises(psycopg.errors.ProgramLimitExceeded) as refused:
        session.execute(f"SELECT (SELECT count(*) FROM ({NEAR}) a), (SELECT count(*) FROM ({FAR}) b)")
    assert "could not be certified" in str(refused.value)
    with psycopg.connect(upstream) as direct:
        rows = "SELECT charged, settled FROM provenance.history WHERE analyst = %s ORDER BY id"
        first, second = direct.execute(rows, (who,)).fetchall()
    assert first[0] > 0 and first[1] is True
    assert second == (0, True)
