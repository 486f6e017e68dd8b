"""``veil.budget`` and ``veil.question``: the analyst's own limits, spending and history, as relations of the shadow.

On the shadow both are views over a setting of the session. A statement that names one has that setting filled in its
own transaction, just before it is executed; everything else (joins, filters, cursors, COPY) is PostgreSQL's business.
An analyst who writes that setting deceives nobody else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from provenance.outlook import Pool, connected

SETTING: Final = "pgveil.{}"
"""Which setting holds the rows of a report; none of the ``veil.`` settings, which are wishes."""

# What is spelled otherwise (a temporary view, another search_path) is told by the shadow to write the name out.
_NAMED: Final = re.compile(rb'\bveil"?\s*\.\s*"?(budget|question)\b', re.IGNORECASE)
_MOST: Final = 10_000  # questions, the last ones

# For people, as bills are: six digits after the point, what is spent rounded up and what is left down.
_BUDGET: Final = (
    "SELECT r.view, trim_scale(ceil(r.spent * 1e6) / 1e6) AS spent,"
    ' trim_scale(floor(r."limit" * 1e6) / 1e6) AS "limit",'
    ' trim_scale(floor(r."left" * 1e6) / 1e6) AS "left" FROM provenance.budget_of(%(analyst)s) r'
)

# An analyst's questions are numbered by themselves: a number of the journal would tell how many others have asked.
_ROWS: Final = {
    "budget": f"SELECT jsonb_agg(to_jsonb(r)) FROM ({_BUDGET}) r",
    "question": "SELECT jsonb_agg(to_jsonb(r) - '{views,number}'::text[] || jsonb_build_object('id', r.number)"
    " ORDER BY r.number)"
    " FROM (SELECT q.*, a.count - count(*) OVER () + row_number() OVER (ORDER BY q.id) AS number"
    f" FROM provenance.questions_of(%(analyst)s, {_MOST}) q CROSS JOIN (SELECT count(*) FROM provenance.charge c"
    " WHERE c.analyst = %(analyst)s AND c.question_of IS NULL) a) r",
}

COLUMNS: Final[Mapping[str, str]] = {
    "budget": 'view text, spent numeric, "limit" numeric, "left" numeric',
    "question": "id bigint, at timestamptz, question text, mechanism text, epsilon numeric, delta numeric,"
    " charged numeric, coin text, bill jsonb",
}


def named(text: bytes) -> Sequence[str]:
    """The reports that a statement names."""
    return sorted({found.lower().decode() for found in _NAMED.findall(text)})


class Reports:
    """What the ledger tells each analyst about himself."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def rows(self, report: str, analyst: str) -> str:
        """The rows of a report as a JSON array, in ASCII: clients of every encoding may ask."""
        async with connected(self._pool) as conn:
            row = await (
                await conn.execute(f"SELECT ({_ROWS[report]})::text".encode(), {"analyst": analyst})
            ).fetchone()
        return _ascii(row[0]) if row is not None and row[0] is not None else "[]"


def _ascii(text: str) -> str:
    return re.sub(r"[^\x00-\x7f]+", lambda found: json.dumps(found[0])[1:-1], text)


def ddl() -> list[str]:
    """What the shadow has of them."""
    meaning = {
        "budget": "Your limits and what you have spent, per view; view all is your total",
        "question": f"The questions that you have paid for, with their prices: the last {_MOST:,}",
    }
    complaint = "its rows come with a statement that names it"
    return [
        f"""CREATE FUNCTION veil.reported(report text) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF coalesce(pg_catalog.current_setting('{SETTING.format("")}' || report, true), '') = '' THEN
    RAISE feature_not_supported USING MESSAGE = 'veil.' || report || ' is not filled: {complaint}',
      HINT = 'Write veil.' || report || ' in the statement itself, not inside a view or a function.';
  END IF;
  RETURN pg_catalog.current_setting('{SETTING.format("")}' || report)::jsonb;
END $$""",
        "COMMENT ON FUNCTION veil.reported(text) IS 'The rows of veil.budget and veil.question'",
        *(
            statement
            for report, columns in COLUMNS.items()
            for statement in (
                f"CREATE VIEW veil.{report} AS SELECT *"
                f" FROM pg_catalog.jsonb_to_recordset(veil.reported('{report}')) AS r({columns})",
                f"COMMENT ON VIEW veil.{report} IS '{meaning[report]}'",
            )
        ),
        f"GRANT SELECT, REFERENCES ON {', '.join(f'veil.{report}' for report in COLUMNS)} TO PUBLIC",
    ]
