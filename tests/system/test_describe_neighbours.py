"""Attack: sizes, row estimates and statistics. psql's whole \\d family, and the catalogs that such numbers come from,
show the registered tables with keys, types and comments, and the same bytes whoever is in them.

Neighbours here have one row more, or a tenth more, after ANALYZE.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from proxies import running_proxy
from test_psql import FAMILY, PSQLS, psql, through

from provenance.migrate import migrate
from proxy.embedded import OLDEST, temporary

CLINIC = """
CREATE SCHEMA lab;
CREATE TABLE ward (ward text PRIMARY KEY, beds integer NOT NULL);
INSERT INTO ward SELECT 'w' || i, 10 * i FROM generate_series(1, 9) i;
CREATE TABLE patient (
  id integer PRIMARY KEY, ward text NOT NULL REFERENCES ward, age integer, fee numeric(8,2), note text,
  UNIQUE (ward, id));
COMMENT ON TABLE patient IS 'Who was here';
COMMENT ON COLUMN patient.fee IS 'In euros';
CREATE INDEX patient_age ON patient (age);
CREATE TABLE lab.sample (id bigint, taken timestamptz NOT NULL, level double precision);
"""
ROWS = """
TRUNCATE patient, lab.sample;
INSERT INTO patient SELECT i, 'w' || 1 + i % 9, i % 90, i % 500, repeat('x', i % 50) FROM generate_series(1, {0}) i;
INSERT INTO lab.sample SELECT i, timestamptz '2025-01-01 00:00+00' + i * interval '1 hour', i
  FROM generate_series(1, {0}) i;
ANALYZE patient;
ANALYZE lab.sample;
"""
REGISTERED = """
SELECT provenance.publish('ward');
SELECT provenance.protect('patient');
SELECT provenance.protect('lab.sample');
SELECT provenance.declare_attribute('patient', 'ward', members_from => 'ward.ward');
SELECT provenance.create_analyst('curious', 'curious', 10);
"""

pytestmark = pytest.mark.slow
SIZES = (2000, 2001, 2200)

DESCRIBED = (
    "\\set VERBOSITY terse\n"
    + FAMILY.replace("orders", "patient").replace("patient_data", "lab.sample").replace("city", "ward")
    + r"""
\d patient
\d+ patient
\d lab.*
\d+ lab.sample
\dt+ public.*
\dt+ lab.*
\di+ *.*
\dpp
\db+
\dm+
\l+
"""
)

SIDE_DOORS = (
    "SELECT nspname, relname, relkind, reltuples, relpages, relallvisible FROM pg_class c JOIN pg_namespace n"
    " ON n.oid = relnamespace WHERE nspname IN ('public', 'lab') ORDER BY 1, 2",
    "SELECT * FROM pg_stats WHERE schemaname IN ('public', 'lab') AND tablename <> 'ward'",
    "SELECT schemaname, relname, n_live_tup, n_dead_tup, n_tup_ins, n_mod_since_analyze, last_analyze, analyze_count"
    " FROM pg_stat_user_tables WHERE relname <> 'ward' ORDER BY 1, 2",
    "SELECT relname, indexrelname, idx_tup_read, idx_tup_fetch FROM pg_stat_user_indexes WHERE relname <> 'ward'"
    " ORDER BY 1, 2",
    *(
        f"SELECT {function}('{table}')"
        for table in ("patient", "lab.sample")
        for function in (
            "pg_total_relation_size",
            "pg_table_size",
            "pg_relation_size",
            "pg_indexes_size",
        )
    ),
    "SELECT pg_stat_get_live_tuples('patient'::regclass), pg_stat_get_tuples_inserted('lab.sample'::regclass)",
    "SELECT * FROM pg_statistic_ext_data",
    "SELECT stxname FROM pg_statistic_ext",
    "SELECT most_common_vals, histogram_bounds FROM pg_stats WHERE tablename = 'patient'",
    "EXPLAIN SELECT ward, count(*) FROM patient GROUP BY ward",
)


@pytest.fixture(scope="module")
def clinic(postgres) -> str:  # type: ignore[no-untyped-def]
    dsn: str = postgres.new_database("described")
    migrate(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(CLINIC)
        conn.execute(REGISTERED)
    return dsn


@pytest.fixture(scope="module")
def seen(clinic: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, tuple[str, str]]]:
    """What psql shows of each neighbour, on a shadow of its own, and what it shows of the private tables themselves."""
    found: dict[int, tuple[str, str]] = {}
    for size in SIZES:
        with psycopg.connect(clinic, autocommit=True) as conn:
            conn.execute(ROWS.format(size))
            truth = "\n".join(str(conn.execute(text).fetchall()) for text in SIDE_DOORS[:9])
        log: Path = tmp_path_factory.mktemp("described") / "proxy.log"
        with (
            # A catalog that was vacuumed meanwhile is larger by a map of its pages.
            temporary({"fsync": "off", "autovacuum": "off"}, version=OLDEST) as shadow,
            running_proxy(clinic, shadow.dsn(), log) as proxy,
        ):
            script = DESCRIBED + "".join(f"{text};\n" for text in SIDE_DOORS)
            shown = "".join(psql(through(proxy, "curious"), script, program=program) for program in PSQLS[:2])
        # \l+ has the size of the shadow itself, which grows with its own catalogs.
        found[size] = re.sub(r"[0-9]+ [kM]B +\| pg_default", "SIZE", shown), truth
    yield found


def test_no_description_tells_how_many_rows_there_are(seen: dict[int, tuple[str, str]]) -> None:
    (first, _), *others = seen.values()
    for shown, _ in others:
        assert shown == first


def test_the_private_tables_themselves_would_tell(seen: dict[int, tuple[str, str]]) -> None:
    """The same statements, past the proxy: the comparison can fail."""
    assert len({truth for _, truth in seen.values()}) == len(SIZES)


def test_tables_are_described_with_keys_types_and_comments_and_without_numbers(
    seen: dict[int, tuple[str, str]],
) -> None:
    shown, _ = seen[SIZES[0]]
    for line in (
        r'Table "public\.patient"',
        r" fee +\| numeric\(8,2\) .* In euros",
        r" public \| patient \| table .* Who was here",
        r'"patient_pkey" PRIMARY KEY, btree \(id\)',
        r'"patient_ward_id_key" UNIQUE CONSTRAINT, btree \(ward, id\)',
        r'"patient_ward_fkey" FOREIGN KEY \(ward\) REFERENCES ward\(ward\)',
        r" taken +\| timestamp with time zone \| +\| not null",
        r" veil +\| low +\| numeric",
        r" lab +\| sample +\| table .* 0 bytes",
        r" lab +\| sample +\| r +\| +-1 \| +0 \| +0",  # never analysed, no page
        r" public +\| patient +\| +0 \| +0 \| +0 \| +0 \|",  # nothing was ever inserted
    ):
        assert len(re.findall(line, shown)) >= 2, line  # by both psqls
    assert not any(f" {size} " in shown or f"={size} " in shown for size in SIZES)
