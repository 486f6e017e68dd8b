"""Two databases that differ in one unit, and questions that make this unit's rows as expensive as they can.

The unit is a row of ``entry``, a person of ``visit`` (with 400 rows, as many as all others have in a hundred persons),
or a customer of ``sale`` joined to ``customer``. What it has in its columns is what costs: long texts, many digits, a
value that only a late arm of a CASE matches, a key that no other row has, a partner in a join.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg

from provenance.migrate import migrate

SCHEMA = """
CREATE TABLE place (place text PRIMARY KEY, region text);
INSERT INTO place SELECT 'p' || i, 'r' || i % 5 FROM generate_series(1, 50) i;
CREATE TABLE entry (
    id bigint PRIMARY KEY, v int NOT NULL, w int NOT NULL, x numeric(12, 2) NOT NULL, d double precision NOT NULL,
    note text NOT NULL, big text NOT NULL, wide1 text, wide2 text, wide3 text, day date NOT NULL, at timestamp NOT NULL,
    grp text NOT NULL, place text NOT NULL, ok boolean NOT NULL, padded bpchar, broad text, bits varbit);
INSERT INTO entry
SELECT i, i % 100, i % 7, (i % 1000) / 7.0, i / 3.0, 'note ' || i, 'b', NULL, NULL, NULL, date '2024-01-01' + i % 365,
       timestamp '2024-01-01' + i * interval '1 hour', 'g' || i % 20, 'p' || 1 + i % 50, i % 2 = 0,
       'b', 'b', '1'
FROM generate_series(1, 3000) i;
CREATE TABLE visit (id bigint PRIMARY KEY, person int NOT NULL, v int NOT NULL, note text NOT NULL, day date NOT NULL,
                    grp text NOT NULL);
INSERT INTO visit SELECT i, i % 700, i % 100, 'note ' || i, date '2024-01-01' + i % 365, 'g' || i % 20
FROM generate_series(1, 2800) i;
CREATE TABLE customer (id int PRIMARY KEY, grp text NOT NULL, v int NOT NULL);
CREATE TABLE sale (id bigint PRIMARY KEY, customer int NOT NULL REFERENCES customer, x numeric(10, 2) NOT NULL,
                   place text NOT NULL, note text NOT NULL);
INSERT INTO customer SELECT i, 'g' || i % 20, i % 100 FROM generate_series(1, 1000) i;
INSERT INTO sale SELECT i, 1 + i % 1000, i % 500, 'p' || 1 + i % 60, 'note ' || i FROM generate_series(1, 3000) i;
"""

# Incompressible long texts: they are stored out of line, in some 500 pieces for the megabyte.
THE_UNIT = """
INSERT INTO entry
SELECT -1, 99, 6, 9999999999.99, 1e15, repeat('ab', 1000), big, left(big, 8000), left(big, 9000), left(big, 10000),
       date '2024-12-30', timestamp '2024-12-30 23:59:59.999999', 'g0', 'p1', true,
       repeat('x', 1000000), repeat(chr(119887), 256), repeat('1', 150000)::varbit
FROM (SELECT string_agg(md5(i::text), '') AS big FROM generate_series(1, 32768) i) b;
INSERT INTO visit SELECT -i, -1, i % 100, repeat('ab', 300), date '2024-01-01' + i % 365, 'g' || i % 20
FROM generate_series(1, 400) i;
INSERT INTO customer VALUES (-1, 'g0', 99);
INSERT INTO sale SELECT -i, -1, i, 'p1', repeat('ab', 300) FROM generate_series(1, 60) i;
"""

REGISTER = """
-- Nobody reaches the limit; a least price of a scan that is a fraction of it would be above any price.
UPDATE provenance.deployment SET epsilon = 1000000, scan_floor = 0;
SELECT provenance.publish('place'), provenance.protect('entry'), provenance.protect('visit', 'person', 5, 20),
       provenance.protect('customer', 'id', 1, 1), provenance.protect('sale', 'customer', 5, 20);
SELECT provenance.declare_attribute(t, 'grp', members => ARRAY(SELECT 'g' || i FROM generate_series(0, 19) i))
FROM unnest(ARRAY['entry', 'visit', 'customer']) t;
SELECT provenance.declare_attribute(t, 'place', members_from => 'place.place') FROM unnest(ARRAY['entry', 'sale']) t;
SELECT provenance.declare_attribute(t, 'v', lower => 0, upper => 100, step => 1)
FROM unnest(ARRAY['entry', 'visit', 'customer']) t;
SELECT provenance.declare_attribute('entry', 'w', lower => 0, upper => 10, step => 1);
SELECT provenance.declare_attribute('entry', 'x', lower => 0, upper => 1000, step => 0.01);
SELECT provenance.declare_attribute('sale', 'x', lower => 0, upper => 500, step => 0.01);
SELECT provenance.declare_attribute(t, 'day', lower => '2024-01-01', upper => '2024-12-31', step => '1')
FROM unnest(ARRAY['entry', 'visit']) t;
SELECT provenance.declare_attribute('entry', 'ok', members => ARRAY['false', 'true']);
SELECT provenance.create_analyst('spy', 'spy', 10);
"""


def build(dsn: str, *, unit: bool) -> str:
    """A database with the unit or without, registered; the same size of everything else."""
    migrate(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(SCHEMA.encode())
        if unit:
            conn.execute(THE_UNIT.encode())
        conn.execute(REGISTER.encode())
        conn.execute("VACUUM ANALYZE")
    return dsn


@dataclass(frozen=True)
class Family:
    """One way to make a unit expensive, as one question of it."""

    name: str
    unit: str  # row, person or joined
    sql: str


def _ladder(arms: int) -> str:
    tests = " ".join(f"WHEN v = {99 - arm} AND note LIKE '%ab{arm}%' THEN {arm}" for arm in range(arms))
    return f"CASE {tests} ELSE 0 END"


_MANY = ", ".join(f"sum(v) FILTER (WHERE w = {i % 7} AND v > {i})" for i in range(30))
_LISTED = ", ".join(f"'{'ab' * 250}{i}'" for i in range(20))

_PADDED = ", ".join(f"count(*) FILTER (WHERE padded <> 'a{i}')" for i in range(5))
_BROAD = chr(119887)

FAMILIES = (
    Family("plain count", "row", "SELECT count(*) FROM entry"),
    Family("equality on the unit", "row", "SELECT count(*) FROM entry WHERE id = -1"),
    Family("LIKE with many wildcards", "row", "SELECT count(*) FROM entry WHERE note LIKE '%a%b%a%b%a%b%a%b%c%'"),
    Family("LIKE with a long pattern", "row", f"SELECT count(*) FROM entry WHERE note LIKE '%{'ab' * 40}%c'"),
    Family("LIKE over a megabyte", "row", "SELECT count(*) FROM entry WHERE big LIKE '%0%0%0%zz%'"),
    Family("ILIKE over a megabyte", "row", "SELECT count(*) FROM entry WHERE big ILIKE '%ZZ%'"),
    Family("LIKE with four-byte characters", "row", f"SELECT count(*) FROM entry WHERE broad LIKE '%{_BROAD * 5}c%'"),
    Family("LIKE, long, of four bytes", "row", f"SELECT count(*) FROM entry WHERE broad LIKE '%{_BROAD * 80}c%'"),
    Family("bpchar of a megabyte", "row", f"SELECT {_PADDED} FROM entry"),
    Family("open keys of a compressed value", "row", "SELECT bits, count(*) FROM entry GROUP BY bits"),
    Family("upper of a megabyte", "row", "SELECT count(*) FROM entry WHERE upper(big) = 'B'"),
    Family("length of a megabyte", "row", "SELECT count(*) FROM entry WHERE length(big) > 5"),
    Family("wide rows", "row", "SELECT count(*) FROM entry WHERE wide1 > 'z' OR wide2 > 'z' OR wide3 > 'z'"),
    Family("CASE ladder", "row", f"SELECT sum({_ladder(12)}) FROM entry"),
    Family("many aggregates", "row", f"SELECT {_MANY} FROM entry"),
    Family("many digits", "row", "SELECT count(*) FROM entry WHERE x * x * x * x * x * x > 1"),
    Family("decimals of a product", "row", "SELECT sum(x * 1.000000001) FROM entry WHERE ok"),
    Family("list of long texts", "row", f"SELECT count(*) FROM entry WHERE note IN ({_LISTED})"),
    Family("date arithmetic", "row", "SELECT count(*) FROM entry WHERE extract(doy FROM day + 5) > 360"),
    Family("timestamps", "row", "SELECT count(*) FROM entry WHERE date_trunc('month', at) = '2024-12-01'"),
    Family("group by domain", "row", "SELECT grp, count(*), sum(x) FROM entry GROUP BY grp"),
    Family("two keys", "row", "SELECT grp, v, count(*) FROM entry GROUP BY grp, v"),
    Family("open keys", "row", "SELECT note, count(*) FROM entry GROUP BY note"),
    Family("open keys of a megabyte", "row", "SELECT big, count(*) FROM entry GROUP BY big"),
    Family("new group", "row", "SELECT v, w, ok, count(*) FROM entry WHERE v > 95 GROUP BY v, w, ok"),
    Family("grouping sets", "row", "SELECT grp, ok, count(*) FROM entry GROUP BY ROLLUP (grp, ok)"),
    Family("sort and hash of many groups", "row", "SELECT grp, day, v, count(*) FROM entry GROUP BY grp, day, v"),
    Family("decision", "row", "SELECT grp FROM entry GROUP BY grp HAVING count(*) > 150"),
    Family("join with a public table", "row", "SELECT p.region, count(*) FROM entry e JOIN place p USING (place) "
           "WHERE e.v > 90 GROUP BY p.region"),
    Family("person with many rows", "person", "SELECT count(*) FROM visit"),
    Family("person by group", "person", "SELECT grp, count(*), sum(v) FROM visit GROUP BY grp"),
    Family("person with LIKE", "person", "SELECT count(*) FROM visit WHERE note LIKE '%a%b%a%b%c%'"),
    Family("person, open keys", "person", "SELECT note, count(*) FROM visit GROUP BY note"),
    Family("person, dates", "person", "SELECT count(*) FROM visit WHERE extract(month FROM day) = 12"),
    Family("persons by day (sort)", "person", "SELECT day, count(*) FROM visit GROUP BY day"),
    Family("partner in a join", "joined", "SELECT count(*) FROM sale s JOIN customer c ON s.customer = c.id "
           "WHERE c.v > 50"),
    Family("join by group", "joined", "SELECT c.grp, count(*), sum(s.x) FROM sale s JOIN customer c "
           "ON s.customer = c.id GROUP BY c.grp"),
    Family("join with two tables", "joined", "SELECT p.region, count(*) FROM sale s JOIN customer c "
           "ON s.customer = c.id JOIN place p USING (place) WHERE c.v > 90 GROUP BY p.region"),
)  # fmt: skip
