"""Words that could name a relation, in texts that nobody takes apart."""

from __future__ import annotations

import pytest

from sqlrewrite.relations import mentions


@pytest.mark.parametrize(
    "text",
    [
        "EXPLAIN SELECT * FROM patient_data",
        "PREPARE q AS SELECT * FROM patient_data",
        "DO $$ BEGIN PERFORM 1 FROM patient_data; END $$",
        "SELECT * FROM patient_data WHERE (((",
        "SELECT " + "(" * 5_000 + " patient_data",
        "SELECT 1 -- " + "x" * 20_000 + "\n FROM Patient_Data",
        'LOCK TABLE "patient_data"',
    ],
)
def test_a_text_that_is_not_read_still_mentions_its_names(text: str) -> None:
    assert (None, "patient_data") in mentions(text)


def test_a_qualified_mention_gives_schema_and_name() -> None:
    assert ("s", "T x") in mentions('LOCK s . "T x"')
